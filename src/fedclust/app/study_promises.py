"""What a study promises to one of its sites: the terms that the site's gate holds every question to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedclust.algorithms.private_kmeans.private_fit import (
    BUDGET_SHARES,
    LLOYD_ROUNDS,
    ONE_ROUND_CLUSTERS,
    RELATIVE_ROUNDS,
    Spending,
)
from fedclust.algorithms.shared.cell_tree import max_cells
from fedclust.algorithms.shared.spread_free_centers import AUTO_CANDIDATES, CROSSINGS
from fedclust.app.choose_k import DEFAULT_RESTARTS
from fedclust.app.served_columns import study_column_names
from fedclust.app.study import Study
from fedclust.core.effects import ALL_PARTIES
from fedclust.core.handler_checks import OWN_PACKAGE
from fedclust.core.noise_price import count_honest_sites
from fedclust.core.study_terms import ChoiceLimits, StudyTerms
from fedclust.core.types import Floats
from fedclust.federation.federation import parse_bounds
from fedclust.models.base import FederatedEstimator
from fedclust.privacy import accountant
from fedclust.questions.choice_of_k.basins import MAX_LINES
from fedclust.questions.choice_of_k.cell_growth import LINE_AXES, MAX_CELLS, MAX_PIECES
from fedclust.questions.choice_of_k.column_kinds import MAX_COLUMNS
from fedclust.questions.choice_of_k.components import CHAINS, TRIES
from fedclust.questions.choice_of_k.k_range import MAX_CHOSEN_CLUSTERS
from fedclust.questions.schema import encoded_names

MAX_FOUND_CLUSTERS = 100  # that a report describes, if the method finds their number itself
PRICED_QUESTIONS = ("lengths", "moments", "grid")  # once each; the others are rounds


def study_terms(study: Study, columns: Sequence[str]) -> StudyTerms:
    """Return what a study promises to a site with these encoded columns."""
    names = study_column_names(study)
    estimator = study.make_estimator(names)
    settings = estimator.get_params()
    place = np.array([names.index(name) for name in columns], np.int64)
    box = parse_bounds(settings.get("bounds"), len(names))
    most, search = _max_clusters(study), study.cluster.choice
    fits = 1 if search is None else max(1, search.fits_per_k * most)
    restarts = 1 if search is None or not search.is_by_index else _restarts(study)
    draws = _candidates(settings)
    seed = settings.get("random_state") or 0
    missing = "drop" if study.noise else str(settings.get("missing") or "refuse")
    start, given = _start(settings)
    return StudyTerms(
        method=study.cluster.method,
        split=study.split,
        parties=tuple(site.name for site in study.sites),
        columns=len(columns),
        is_own_method=type(estimator).__module__.partition(".")[0] == OWN_PACKAGE,
        column_names=frozenset(_raw_names(study)),
        max_clusters=most,
        fuzziness=estimator.fuzziness,
        missing=missing,
        scale=str(settings.get("scale") or "none"),
        low=None if box is None else box[0][place],
        high=None if box is None else box[1][place],
        needs_everyone=settings.get("quorum", ALL_PARTIES) == ALL_PARTIES,
        aggregation=study.aggregation.mode,
        start=start,
        given=None if given is None else np.ascontiguousarray(given[:, place]),
        seeds=range(seed, seed + max(restarts, draws if start == "box" else 1)),
        fits=fits,
        candidates=max(draws, CROSSINGS if settings.get("n_init") == "auto" else 1),
        start_cells=max_cells(most),
        opening_floor=int(settings["floor"]) if settings.get("opening") == "floored" else 0,
        labels_only=settings.get("opens") == "labels",
        alignment="" if study.align is None else study.align.duplicates,
        k_search=_search_kind(study),
        finds_range=search is not None and search.ks is None and study.split == "rows" and missing != "partial",
        choice=_choice_limits(study),
        hides_singletons=settings.get("singletons") == "paper",
        hides_small_sites=settings.get("small_sites") == "paper",
        local_clusters=int(settings.get("local_clusters") or settings.get("n_clusters") or 0)
        if "local_clusters" in settings
        else 0,
        min_rows=int(settings.get("min_rows") or settings.get("floor") or 0),
        levels=math.ceil(1 / settings["step"]) if study.cluster.method == "mufc" and settings.get("step") else 0,
        max_nodes=int(settings.get("max_nodes") or 0),
        local_rounds=int(settings.get("local_rounds") or 0),
        local_tol=float(settings.get("local_tol") or 0.0),
        family=str(settings.get("family") or ""),
        place_of_columns=place,
        width=len(names),
        **_noise_terms(study, estimator, None if box is None else (box[0][place], box[1][place])),
    )


def _raw_names(study: Study) -> set[str]:
    own = {name for site in study.sites for name in site.columns or ()}
    return own | set(study.schema) | set(encoded_names(study.schema))


def _max_clusters(study: Study) -> int:
    """The largest number of clusters that a run may fit or describe."""
    if study.noise:
        ends = study.cluster.options["n_clusters"]
        return int(max(ends)) if isinstance(ends, (tuple, list)) else int(ends)
    if study.make_estimator(study_column_names(study)).finds_k:
        return MAX_FOUND_CLUSTERS
    search = study.cluster.choice
    if search is None:
        return study.cluster.max_clusters
    return MAX_CHOSEN_CLUSTERS if search.ks is None else search.ks[-1]


def _restarts(study: Study) -> int:
    search = study.cluster.choice
    return DEFAULT_RESTARTS if search is None else int(search.options.get("restarts", DEFAULT_RESTARTS))


def _search_kind(study: Study) -> str:
    search = study.cluster.choice
    if search is None:
        return ""
    return "index" if search.is_by_index or study.split == "columns" else "evidence"


def _choice_limits(study: Study) -> ChoiceLimits | None:
    if _search_kind(study) != "evidence":
        return None
    sets = CHAINS + TRIES
    lines = max(MAX_LINES, MAX_PIECES)
    return ChoiceLimits(MAX_CELLS + 2, LINE_AXES * MAX_CELLS, MAX_PIECES, sets, lines, MAX_COLUMNS)


def _candidates(settings: dict[str, Any]) -> int:
    """How many sets of initial centres are compared over all rows at once."""
    if settings.get("n_init", 1) == "auto":
        return AUTO_CANDIDATES if settings.get("init") == "k-means++" else 1
    return int(settings.get("n_init", 1))


def _start(settings: dict[str, Any]) -> tuple[str, Floats | None]:
    """How initial centres are found, and those that the study gives."""
    init = settings.get("init", "")
    if isinstance(init, str):
        return init, None
    return "given", np.asarray(init, np.float64)


def _noise_terms(study: Study, estimator: FederatedEstimator, box: tuple[Floats, Floats] | None) -> dict[str, Any]:
    """The prices of a private study, and the unit of its columns."""
    if not study.noise or box is None:
        return {}
    settings = estimator.get_params()
    rho = accountant.rho_from_epsilon(float(settings["epsilon"]), float(settings["delta"]))
    many = len(study.sites)
    honest = 1 if study.aggregation.mode == "plain" else count_honest_sites(many, many)
    spending, half = Spending(rho, honest, ()), (box[1] - box[0]) / 2
    unit = np.where(half > 0, half, 1.0) if settings["scale"] == "minmax" else np.ones(len(half))
    return {"prices": _prices(study, settings, spending), "rho": rho, "honest": honest, "box_unit": unit}


def _prices(study: Study, settings: dict[str, Any], spending: Spending) -> dict[str, tuple[float, ...]]:
    if settings.get("variant") == "lloyd":
        return {"offsets": (spending.price(1 / int(settings.get("rounds") or LLOYD_ROUNDS)).rho,)}
    ends = study.cluster.options["n_clusters"]
    least, most = (min(ends), max(ends)) if isinstance(ends, (tuple, list)) else (ends, ends)
    shares = BUDGET_SHARES[most <= ONE_ROUND_CLUSTERS]
    rounds = {1 if k <= ONE_ROUND_CLUSTERS else RELATIVE_ROUNDS for k in (least, most)}
    first = {name: (spending.price(share).rho,) for name, share in zip(PRICED_QUESTIONS, shares[:3], strict=True)}
    return first | {"offsets": tuple(spending.price(shares[3] / count).rho for count in sorted(rounds))}
