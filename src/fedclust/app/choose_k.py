"""Chooses the number of clusters and says how certain the choice is.

The default compares Gaussian mixtures, using sums only (`questions.choice_of_k`), and can find that there is no
structure. `criterion="index"` follows paper 2: it fits the estimator for each K and compares a validation index.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from fedclust.algorithms.cmeans import column_split
from fedclust.algorithms.gaussian_mixture import mixture
from fedclust.app import indices
from fedclust.app.fits_for_each_k import FitsForEachK, agreement_of_restarts, agreement_without_each_site
from fedclust.core.effects import Protocol
from fedclust.core.errors import DataError, StudyError
from fedclust.core.site_interface import View
from fedclust.federation.derived_federations import federation_of_rows
from fedclust.federation.federation import Federation, parse_bounds
from fedclust.models.assignment import CentersModel
from fedclust.models.base import FederatedEstimator, padding_for
from fedclust.models.input_checks import check_quorum_reachable
from fedclust.privacy.padding import Padding
from fedclust.questions import bounds
from fedclust.questions.choice_of_k import choice_notes, k_range, two_step
from fedclust.questions.cluster_indices import NO_ROWS_MESSAGE

T = TypeVar("T")
K_CRITERIA = ("two-step", "index")
INDEX_RULES = ("min", "elbow")
DEFAULT_INDEX = "fuzzy-davies-bouldin"
DEFAULT_RESTARTS = 5  # fits for each K
DEFAULT_KS = range(2, 9)  # if no site can look for clusters on its own
MIN_UPPER_K = 8  # the two-step search goes at least this far
ASKS_PER_K, BASE_ASKS = (
    64,
    160,
)  # questions of the two-step for each K up to the largest, and in all; most need far fewer


@dataclass(frozen=True)
class Selection:
    """The chosen K, the estimator fitted with it, and the evidence.

    `scores` has one dict per candidate, with the chosen one marked. `stability` is the mean adjusted Rand index between
    the partitions of restarts (or with one site left out). `range` is the range of K that was examined. `notes` lists
    what a reader should know.
    """

    k: int
    model: CentersModel
    scores: list[dict[str, Any]]
    range: tuple[int, int]
    criterion: str
    stability: float | None
    notes: list[str]


def select_k(
    estimator: FederatedEstimator,
    fed: Any,
    ks: Iterable[int] | None = None,
    *,
    index: str | None = None,
    rule: str | None = None,
    restarts: int = DEFAULT_RESTARTS,
    criterion: str | None = None,
    stability: str | None = "restarts",
) -> Selection:
    """Choose the number of clusters and fit the estimator with it.

    Parameters
    ----------
    estimator : the estimator to fit; its seed, scale and treatment of missing values apply to the choice too.
    fed : a federation, or an array of rows.
    ks : candidates for K; None takes the range from the numbers of clusters that the sites find alone, and widens it
        if the choice is at its edge.
    index, rule : a validation index by name, and "min" (its best value) or "elbow"; either implies criterion "index".
    restarts : number of fits of the estimator for each K; the one with the best objective is used.
    criterion : "two-step" (default; row splits) or "index" (paper 2).
    stability : "restarts", "sites" (leave one out; sites of this process only, aggregation "plain") or None.

    Examples
    --------
    >>> import fedclust as fc
    >>> parties, _ = fc.datasets.motivational()
    >>> found = fc.select_k(fc.FuzzyCMeans(), fc.Federation.local(parties))
    >>> found.k, found.model.n_clusters
    (5, 5)
    """
    if not isinstance(fed, Federation):
        fed = federation_of_rows(fed)
    if not isinstance(estimator, CentersModel) or estimator.finds_k:
        raise StudyError(f"{estimator!r} has no number of clusters to choose; use an estimator such as KMeans()")
    candidates = _parse_candidates(ks)
    named = index is not None or rule is not None or fed.split == "columns"
    criterion = criterion or ("index" if named else "two-step")
    index, rule = index or DEFAULT_INDEX, rule or "min"
    _check_choice(estimator, fed, candidates, index, rule, restarts, criterion, stability)
    if estimator.opens_labels:
        raise StudyError("choosing K needs objectives or indices, but opens='labels' reveals neither; give a single K")
    hidden, notes = fed.aggregation.has_fixed_rounds, list[str]()
    if hidden and candidates is None:
        candidates = list(DEFAULT_KS if criterion == "index" else range(1, MIN_UPPER_K + 1))
        notes.append(
            f"K was limited to {MIN_UPPER_K}, so that the coordinator cannot see how many clusters sites found."
        )
    if hidden:
        fed.widen_padding(
            _padding_for_choice(fed, candidates or [1], restarts, full_covariance=estimator.full_covariance)
        )
    seed = secrets.randbits(31) if estimator.random_state is None else int(estimator.random_state)
    fits = FitsForEachK(estimator, fed, seed, restarts)
    if criterion == "two-step":
        found, models = _choose_two_step(fits, candidates)
    else:
        found, models = _choose_by_index(fits, candidates, index, rule)
    found = replace(found, notes=[*notes, *found.notes])
    if stability is None:
        return found
    return replace(
        found,
        stability=(agreement_of_restarts if stability == "restarts" else agreement_without_each_site)(fits, models),
    )


def max_two_step_asks(max_clusters: int) -> int:
    """Return an upper limit, rarely exceeded, on the questions of a two-step search up to this number of clusters."""
    return BASE_ASKS + ASKS_PER_K * max_clusters


def _parse_candidates(ks: Any) -> list[int] | None:
    """Return the candidates in order, without repeats."""
    if ks is None:
        return None
    some: list[Any] = list(ks) if isinstance(ks, Iterable) and not isinstance(ks, (str, bytes)) else []
    if not some or not all(isinstance(k, (int, np.integer)) and k >= 1 for k in some):
        raise StudyError(f"ks is {ks!r}; give whole numbers of at least 1, such as range(2, 9) or [3]")
    return sorted({int(k) for k in some})


def _padding_for_choice(fed: Federation, ks: Sequence[int], restarts: int, *, full_covariance: bool) -> Padding:
    """Return the padding that covers every message of the choice, whatever its outcome."""
    columns = len(fed.columns)
    pairs, points = restarts * (restarts - 1) // 2, columns * max(ks)
    asked, answered = two_step.max_message_numbers(columns, ks)
    asked = max(asked, 2 * pairs * (2 * points + 64 + (columns * columns if full_covariance else 0)))
    padding = Padding(8 * asked + 4096, max(answered, pairs * max(ks) ** 2)).cover_both(padding_for(columns, max(ks)))
    if not padding.is_within_limit:
        raise StudyError(
            f"messages for {columns} columns and up to {max(ks)} clusters would be too long once they are padded to "
            "hide their lengths; ask for fewer clusters, or set early_stopping to true"
        )
    return padding


def _choose_two_step(fits: FitsForEachK, ks: Sequence[int] | None) -> tuple[Selection, list[CentersModel]]:
    frame, (low, high), notes = fits.run_protocol(_look_at_rows(fits.estimator, fits.fed, ks))
    frame, asks = replace(frame, seed=fits.seed), max_two_step_asks(high)
    if ks is not None and high > frame.rows:
        ks, more = choice_notes.drop_large_candidates(ks, frame.rows)
        (low, high), notes = (ks[0], ks[-1]), [*notes, *more]

    def widen(most: int) -> int:
        return k_range.widen_range(most, frame.rows) if ks is None else most

    choice = fits.run_protocol(two_step.choose_k(frame, high, ks=ks, wider=widen), asks_multiple=asks)
    if len(choice.centers) > high:
        notes.append(
            f"The lowest ICL was at the upper end of the range, so the range was widened from {high} to "
            f"{len(choice.centers)} clusters."
        )
        high = len(choice.centers)
    k, more = choice_notes.choose_among(choice, ks)
    notes += [*more, *choice_notes.mixture_notes(choice, k, high, given=ks is not None and high < frame.rows)]
    models = fits.fit_with_k(k, start=frame.view.to_original_units(choice.centers[k - 1].centers))
    best = min((s for s in choice.scores if s.k == k), key=lambda s: (s.is_dropped, s.icl))
    rows = [choice_notes.score_row(s, chosen=s is best) for s in choice.scores]
    return Selection(k, models[0], rows, (low, high), "two-step", None, notes), models


def _look_at_rows(
    estimator: CentersModel, fed: Federation, ks: Sequence[int] | None
) -> Protocol[tuple[mixture.Frame, tuple[int, int], list[str]]]:
    """Return the columns as the estimator sees them, centred, and the range of K."""
    width = len(fed.columns)
    rows = yield from _count_rows(estimator, fed)
    view = yield from _estimator_view(estimator, fed)
    hidden = fed.aggregation.has_fixed_rounds  # then messages must not reveal whether there are enough rows
    frame = yield from mixture.make_frame(view, full=two_step.allows_full_covariance(width, None if hidden else rows))
    few = not two_step.allows_full_covariance(width, rows)
    notes = (
        ["Mixtures with full covariances (EEE) were left out: they have too many parameters for these rows."]
        if few
        else []
    )
    if ks is not None:
        return frame, (ks[0], ks[-1]), notes
    counts = yield from k_range.local_counts(view)
    high = k_range.range_of_k(counts, rows)[1]
    return frame, (1, max(high, min(MIN_UPPER_K, rows // k_range.MIN_CLUSTER_ROWS), 1)), notes


def _count_rows(estimator: CentersModel, fed: Federation) -> Protocol[int]:
    """Count the rows that take part; refuse if there are none."""
    rows = yield from bounds.total_rows(len(fed.columns), estimator.missing)
    if rows < 1:
        raise DataError(NO_ROWS_MESSAGE)
    return rows


def _estimator_view(estimator: CentersModel, fed: Federation) -> Protocol[View]:
    """Return the columns as the estimator would see them."""
    missing, box = estimator.missing, parse_bounds(estimator.bounds, len(fed.columns))
    return k_range.study_view(
        len(fed.columns), fed.declared_schemas, missing=missing, scale=estimator.scale or "none", box=box
    )


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
            values[k] = sign * indices.scores(models[k][0], fits.fed, (index,))[index]
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
        view = yield from _estimator_view(fits.estimator, fits.fed)
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
    restarts: int,
    criterion: str,
    stability: str | None,
) -> None:
    by_mixtures, most = criterion == "two-step", max(ks or [2])
    masked = fed.aggregation.mode != "plain"
    gapped = estimator.missing == "partial"
    for broken, sentence in (
        (criterion not in K_CRITERIA, f"criterion is {criterion!r}; choose one of {', '.join(K_CRITERIA)}"),
        (rule not in INDEX_RULES, f"the parameter 'rule' is {rule!r}; choose one of {', '.join(INDEX_RULES)}"),
        (
            index not in indices.BEST_DIRECTION,
            f"the parameter 'index' is {index!r}; choose one of {', '.join(indices.BEST_DIRECTION)}",
        ),
        (restarts < 1, f"restarts is {restarts}; it must be at least 1"),
        (
            stability not in (None, "restarts", "sites"),
            f"the parameter 'stability' is {stability!r}; choose 'restarts', 'sites' or None",
        ),
        (
            stability == "sites" and masked,
            "stability='sites' would reveal each site's sums; set aggregation to 'plain'",
        ),
        (not by_mixtures and most < 2, "an index needs at least two clusters; ask for K of at least 2"),
        (by_mixtures and fed.split != "rows", "criterion='two-step' works on row splits only; use criterion='index'"),
        (
            by_mixtures and gapped,
            "criterion='two-step' needs rows without missing values; set missing to 'drop', or use criterion='index'",
        ),
    ):
        if broken:
            raise StudyError(sentence)
    check_quorum_reachable(estimator.quorum, len(fed.parties))
