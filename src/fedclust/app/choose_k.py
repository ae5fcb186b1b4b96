"""Chooses the number of clusters and says how certain the choice is.

The default compares partitions of the rows by evidence and valleys, using sums only (`questions.choice_of_k.choice`),
and can find that there is no structure. `criterion="index"` follows paper 2: it fits the estimator for each K and
compares a validation index.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedclust.algorithms.cmeans import column_split
from fedclust.algorithms.cmeans.choice_cells import record_choice
from fedclust.algorithms.cmeans.described_cells import DescribedCells, indices_of_cells
from fedclust.app import indices
from fedclust.app.fits_for_each_k import FitsForEachK, agreement_of_restarts, agreement_without_each_site
from fedclust.core.counted_nouns import count_noun
from fedclust.core.effects import ALL_PARTIES, Protocol
from fedclust.core.errors import DataError, StudyError
from fedclust.core.site_interface import View
from fedclust.federation.derived_federations import federation_of_rows
from fedclust.federation.federation import Federation, parse_bounds
from fedclust.models.assignment import CentersModel
from fedclust.models.base import FederatedEstimator, padding_for
from fedclust.models.input_checks import check_quorum_reachable, is_whole_number, seed_from_random_state
from fedclust.privacy.padding import Padding
from fedclust.questions import bounds
from fedclust.questions.choice_of_k import choice_notes, k_range
from fedclust.questions.choice_of_k.choice import KChoice, choose_groups, max_message_numbers
from fedclust.questions.cluster_indices import NO_ROWS_MESSAGE
from fedclust.questions.missing_values import count_missing_values

K_CRITERIA = ("evidence", "index")
INDEX_RULES = ("min", "elbow")
DEFAULT_INDEX = "fuzzy-davies-bouldin"
DEFAULT_RESTARTS = 5  # fits for each K
DEFAULT_KS = range(2, 9)  # if no site can look for clusters on its own
MAX_BLIND_K = 8  # if nobody may see how many clusters were found


@dataclass(frozen=True)
class Selection:
    """The chosen K, the estimator fitted with it, and the evidence.

    By evidence, `verdict` is "groups", "none" (no structure) or "not round", and `certainty` is "clear", "likely" or
    "unsure", with a `reason`. `scores` has one dict per candidate, with the chosen one marked. `stability`, by an
    index, is the mean adjusted Rand index between the partitions of restarts (or with one site left out). `range` is
    the range of K that was examined. `notes` lists what a reader should know.
    """

    k: int
    model: CentersModel
    scores: list[dict[str, Any]]
    range: tuple[int, int]
    criterion: str
    stability: float | None
    notes: list[str]
    verdict: str | None = None
    certainty: str | None = None
    reason: str | None = None


def select_k(
    estimator: FederatedEstimator,
    fed: Any,
    ks: Iterable[int] | None = None,
    *,
    index: str | None = None,
    rule: str | None = None,
    restarts: int | None = None,
    criterion: str | None = None,
    stability: str | None = "restarts",
) -> Selection:
    """Choose the number of clusters and fit the estimator with it.

    Parameters
    ----------
    estimator : the estimator to fit; its seed and treatment of missing values apply to the choice too.
    fed : a federation, or an array of rows.
    ks : candidates for K; None allows any number. By an index, None takes the range from the numbers of clusters that
        the sites find alone, and widens it if the choice is at its edge.
    index, rule : a validation index by name, and "min" (its best value) or "elbow"; either implies criterion "index".
    restarts : by an index, the number of fits of the estimator for each K (5 if left out); the one with the best
        objective is used.
    criterion : "evidence" (default; row splits) or "index" (paper 2).
    stability : by an index, "restarts", "sites" (leave one out; sites of this process only, aggregation "plain") or
        None.

    Examples
    --------
    >>> import fedclust as fc
    >>> parties, _ = fc.datasets.motivational()
    >>> found = fc.select_k(fc.FuzzyCMeans(), fc.Federation.local(parties))
    >>> found.k, found.verdict, found.certainty
    (5, 'groups', 'clear')
    """
    if not isinstance(fed, Federation):
        fed = federation_of_rows(fed)
    options: dict[str, Any] = {"index": index, "rule": rule, "restarts": restarts, "criterion": criterion}
    found = choose_k(estimator, fed, ks, **options, stability=stability)
    if found.criterion == "evidence":  # an index compares fits, so its model is one of them
        found.model.fit(fed)
    return found


def choose_k(
    estimator: FederatedEstimator,
    fed: Federation,
    ks: Iterable[int] | None = None,
    *,
    index: str | None = None,
    rule: str | None = None,
    restarts: int | None = None,
    criterion: str | None = None,
    stability: str | None = "restarts",
) -> Selection:
    """Choose the number of clusters as `select_k` does; by evidence, the selection's model is still to be fitted."""
    if not isinstance(estimator, CentersModel) or estimator.finds_k:
        raise StudyError(f"{estimator!r} has no number of clusters to choose; use an estimator such as KMeans()")
    if estimator.takes_initial_centers and not isinstance(estimator.get_params(deep=False).get("init", ""), str):
        raise StudyError("init gives centres for one K, so there is no K to choose; fit the estimator, or name a start")
    candidates = _parse_candidates(ks)
    named = index is not None or rule is not None or fed.split == "columns"
    criterion = criterion or ("index" if named else "evidence")
    index, rule = index or DEFAULT_INDEX, rule or "min"
    _check_choice(estimator, fed, candidates, index, rule, restarts, criterion, stability)
    if estimator.opens_labels:
        raise StudyError("choosing K needs objectives or indices, but opens='labels' reveals neither; give a single K")
    hidden, notes = fed.aggregation.has_fixed_rounds, list[str]()
    if hidden and candidates is None:
        candidates = list(DEFAULT_KS if criterion == "index" else range(1, MAX_BLIND_K + 1))
        notes.append(
            f"K was limited to {MAX_BLIND_K}, so that the coordinator cannot see how many clusters sites found."
        )
    seed = seed_from_random_state(estimator.random_state)
    seeded = type(estimator)(**(estimator.get_params(deep=False) | {"random_state": seed}))
    fits = FitsForEachK(seeded, fed, seed, restarts or DEFAULT_RESTARTS)
    if hidden:
        fed.widen_padding(_padding_for_choice(fits, candidates or [1], criterion))
    if criterion == "evidence":
        found = _choose_by_evidence(fits, candidates)
        return replace(found, notes=[*notes, *found.notes])
    found, models = _choose_by_index(fits, candidates, index, rule)
    found = replace(found, notes=[*notes, *found.notes])
    if stability is None:
        return found
    return replace(
        found,
        stability=(agreement_of_restarts if stability == "restarts" else agreement_without_each_site)(fits, models),
    )


def _parse_candidates(ks: Any) -> list[int] | None:
    """Return the candidates in order, without repeats."""
    if ks is None:
        return None
    some: list[Any] = list(ks) if isinstance(ks, Iterable) and not isinstance(ks, (str, bytes)) else []
    if not some or not all(is_whole_number(k) and k >= 1 for k in some):
        raise StudyError(f"ks is {ks!r}; give whole numbers of at least 1, such as range(2, 9) or [3]")
    return sorted({int(k) for k in some})


def _padding_for_choice(fits: FitsForEachK, ks: Sequence[int], criterion: str) -> Padding:
    """Return the padding that covers every message of the choice, whatever its outcome."""
    columns = len(fits.fed.columns)
    if criterion == "evidence":
        asked, answered = max_message_numbers(columns)
    else:
        pairs, points = fits.restarts * (fits.restarts - 1) // 2, columns * max(ks)
        full = columns * columns if fits.estimator.full_covariance else 0
        asked, answered = 2 * pairs * (2 * points + 64 + full), pairs * max(ks) ** 2
    padding = Padding(8 * asked + 4096, answered).cover_both(padding_for(columns, max(ks)))
    if not padding.is_within_limit:
        raise StudyError(
            f"messages for {count_noun(columns, 'column')} and up to {count_noun(max(ks), 'cluster')} "
            "would be too long once they are padded to "
            "hide their lengths; ask for fewer clusters, or set early_stopping to true"
        )
    return padding


def _choose_by_evidence(fits: FitsForEachK, ks: Sequence[int] | None) -> Selection:
    """Choose by evidence and valleys, which needs no fit."""
    rows, found = fits.run_protocol(_look_at_rows(fits))
    notes = list[str]()
    if ks is not None:
        ks, notes = choice_notes.drop_large_candidates(ks, rows)
    k, more = choice_notes.choose_candidate(found, ks)
    certainty, reason = choice_notes.how_sure(found, k)
    notes += [*more, *choice_notes.choice_notes(found, len(fits.fed.columns), fits.estimator.opening_floor)]
    ends = (ks[0], ks[-1]) if ks is not None else (1, max([found.k, *found.curve]))
    scores = choice_notes.score_rows(found, k, ks)
    return Selection(k, fits.estimator_with(k), scores, ends, "evidence", None, notes, found.verdict, certainty, reason)


def _look_at_rows(fits: FitsForEachK) -> Protocol[tuple[int, KChoice]]:
    """Return the number of rows, and the choice over them in their original units."""
    rows = yield from _count_rows(fits.estimator, fits.fed)
    if fits.estimator.missing == "partial":
        yield from count_missing_values(fits.fed.columns, "partial")
    view = yield from _estimator_view(fits.estimator, fits.fed, scale="none")
    everyone = fits.estimator.quorum == ALL_PARTIES
    floor = fits.estimator.opening_floor
    choice = choose_groups(view, seed=fits.seed, floor=floor, everyone=everyone, level_floor=fits.fed.cell_floor)
    return rows, (yield from record_choice(choice, fits.fed.opening_record) if fits.estimator.opens_floored else choice)


def _count_rows(estimator: CentersModel, fed: Federation) -> Protocol[int]:
    """Count the rows that take part; refuse if there are none."""
    rows = yield from bounds.total_rows(len(fed.columns), estimator.missing)
    if rows < 1:
        raise DataError(NO_ROWS_MESSAGE)
    return rows


def _estimator_view(estimator: CentersModel, fed: Federation, scale: str) -> Protocol[View]:
    """Return the columns as the estimator would see them, in a given scale."""
    missing, box = estimator.missing, parse_bounds(estimator.bounds, len(fed.columns))
    return k_range.study_view(len(fed.columns), fed.declared_schemas, missing=missing, scale=scale, box=box)


def _choose_by_index(
    fits: FitsForEachK, ks: Sequence[int] | None, index: str, rule: str
) -> tuple[Selection, list[CentersModel]]:
    """Choose as paper 2 does: the best fit for each K, its index, and the best value or the elbow of the curve."""
    (low, high), rows, notes = _index_range(fits, ks)
    sign = 1.0 if indices.BEST_DIRECTION[index] == "min" else -1.0
    models: dict[int, list[CentersModel]] = {}
    values: dict[int, float] = {}
    asked = list(range(low, high + 1)) if ks is None else [k for k in ks if k > 1]
    while True:
        for k in (k for k in asked if k not in models):
            models[k] = fits.fit_with_k(k)
            if fits.fed.split == "columns":  # every message is about all rows
                labels = models[k][0].labels_
                many = min((0 if labels is None else len(labels)) * high, column_split.MATRIX_CHUNK_VALUES)
                fits.fed.widen_padding(Padding(8 * many + 4096, many))
            values[k] = sign * _index_of(fits, models[k][0], index, worst=sign * np.inf)
        k = min(asked, key=lambda n: values[n]) if rule == "min" else k_range.elbow(asked, [values[n] for n in asked])
        further = k_range.widen_range(high, rows)
        if ks is not None or k < high or further == high:
            break
        notes.append(
            f"The chosen K was at the upper end of the range, so the range was widened from {high} to {further} "
            "clusters."
        )
        high = further
        asked = list(range(low, high + 1))
    notes += choice_notes.index_notes(values, k, given=ks is not None, elbow=rule == "elbow")
    table = [
        {"k": n, "index": index, "value": sign * values[n], "objective": models[n][0].final_objective, "chosen": n == k}
        for n in asked
    ]
    return Selection(k, models[k][0], table, (low, high), "index", None, notes), models[k]


def _index_of(fits: FitsForEachK, model: CentersModel, index: str, *, worst: float) -> float:
    """Return an index of a fitted model; of one that opened sums above a floor, over the rows of its opened cells."""
    if not model.opens_floored:
        return indices.scores(model, fits.fed, (index,))[index]
    opened = [cell for cell in model.opened_cells_ or () if cell is not None]
    sizes = np.zeros(0) if model.cluster_sizes_ is None else model.cluster_sizes_
    if len(opened) < model.cluster_count or not sizes.all():
        return worst  # the sums of a cluster were never opened, or it is empty

    def script() -> Protocol[float]:
        view, centers = yield from indices.model_view(model, fits.fed)
        cells = DescribedCells.from_cells(view, centers, opened)
        return (yield from indices_of_cells(cells, sizes))[index]

    return fits.run_protocol(script())


def _index_range(fits: FitsForEachK, ks: Sequence[int] | None) -> tuple[tuple[int, int], int, list[str]]:
    """Return the range of K, and the number of rows, which is needed to widen it."""
    if ks is not None:
        skipped = ["K = 1 was left out, because an index needs at least two clusters."] if ks[0] < 2 else []
        return (max(ks[0], 2), ks[-1]), 0, skipped
    if fits.fed.split == "columns" or fits.estimator.missing == "partial":
        why = "they hold different columns" if fits.fed.split == "columns" else "rows may have missing values"
        notes = [f"K from 2 to {DEFAULT_KS[-1]} was examined. The sites could not suggest a range, because {why}."]
        return (DEFAULT_KS[0], DEFAULT_KS[-1]), 0, notes

    def script() -> Protocol[tuple[list[int], int]]:
        rows = yield from _count_rows(fits.estimator, fits.fed)
        view = yield from _estimator_view(fits.estimator, fits.fed, fits.estimator.scale or "none")
        return (yield from k_range.local_counts(view)), rows

    counts, rows = fits.run_protocol(script())
    low, high = k_range.range_of_k(counts, rows)
    return (max(low, 2), max(high, 2)), rows, []


def _check_choice(  # noqa: PLR0917
    estimator: CentersModel,
    fed: Federation,
    ks: Sequence[int] | None,
    index: str,
    rule: str,
    restarts: int | None,
    criterion: str,
    stability: str | None,
) -> None:
    by_index, most = criterion == "index", max(ks or [2])
    masked = fed.aggregation.mode != "plain"
    for broken, sentence in (
        (criterion not in K_CRITERIA, f"criterion is {criterion!r}; choose one of {', '.join(K_CRITERIA)}"),
        (rule not in INDEX_RULES, f"the parameter 'rule' is {rule!r}; choose one of {', '.join(INDEX_RULES)}"),
        (
            index not in indices.BEST_DIRECTION,
            f"the parameter 'index' is {index!r}; choose one of {', '.join(indices.BEST_DIRECTION)}",
        ),
        (restarts is not None and restarts < 1, f"restarts is {restarts}; it must be at least 1"),
        (
            stability not in (None, "restarts", "sites"),
            f"the parameter 'stability' is {stability!r}; choose 'restarts', 'sites' or None",
        ),
        (
            not by_index and restarts is not None,
            "only criterion='index' fits every K several times; leave restarts out, or set n_init of the estimator",
        ),
        (not by_index and stability == "sites", "only criterion='index' compares fits; leave stability out"),
        (
            stability == "sites" and masked,
            "stability='sites' would reveal each site's sums; set aggregation to 'plain'",
        ),
        (by_index and most < 2, "an index needs at least two clusters; ask for K of at least 2"),
        (
            not by_index and fed.split != "rows",
            "criterion='evidence' works on row splits only; use criterion='index'",
        ),
    ):
        if broken:
            raise StudyError(sentence)
    check_quorum_reachable(estimator.quorum, len(fed.parties))
