"""How good a clustering is, from sums over all rows: one sweep around the centres, one around the means of labels.

No party's row count, label or distance is needed, so each index equals that of the pooled rows, bit for bit. What the
paper calls an intermediate server is one `total`.

Papers: Stallmann and Wilbik, "On a framework for federated cluster analysis" (fuzzy Davies-Bouldin); Davies and
Bouldin; Xie and Beni; Calinski and Harabasz; Bezdek (coefficient, entropy); Hruschka et al. (simplified silhouette).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedclust.core import ring
from fedclust.core.effects import Protocol, handler, total
from fedclust.core.errors import DataError, StudyError
from fedclust.core.question_types import ViewedQuestion
from fedclust.core.release import MAX_ROWS, Release, additive, additive_counts
from fedclust.core.ring import Exact
from fedclust.core.row_weights import tally_unit_weights, tally_weights
from fedclust.core.site_interface import Site, View
from fedclust.core.types import Array, Floats, Ints, Limbs
from fedclust.kernels import distances, exact_sums, gap_sweep
from fedclust.kernels.fine_sums import fine_sums, fine_sums_by_label
from fedclust.kernels.units import DISTANCE_BITS, partial_distance_bound, squared_distance_bound, unit_of
from fedclust.questions import index_formulas
from fedclust.questions.index_terms import TERM_NAMES, IndexTerms, memberships_from_distances
from fedclust.questions.question_contracts import fits_index, fits_label_scatter, fits_labels

BEST_DIRECTION: dict[str, Literal["min", "max"]] = {
    "fuzzy-davies-bouldin": "min",
    "davies-bouldin": "min",
    "xie-beni": "min",
    "calinski-harabasz": "max",
    "simplified-silhouette": "max",
    "partition-coefficient": "max",
    "partition-entropy": "min",
}
SUMS_BY_INDEX = {  # what an index adds up around the centres
    "fuzzy-davies-bouldin": ("members", "distances"),
    "xie-beni": ("compactness",),
    "simplified-silhouette": ("silhouette",),
    "partition-coefficient": ("squares",),
    "partition-entropy": ("entropy",),
}
NO_ROWS_MESSAGE = (
    "n_samples=0: every row has a missing value and was dropped; set missing to 'partial', or "
    "remove columns with many missing values"
)
CRISP_INDICES = ("davies-bouldin", "calinski-harabasz")  # around the means of labels


@dataclass(frozen=True)
class IndexQuestion(ViewedQuestion):
    """Where the centres are, and which sums over the rows around them are wanted."""

    view: View
    centers: Floats
    terms: IndexTerms


@dataclass(frozen=True)
class IndexSums(Release):
    """Sums over all rows; those that were not asked for are empty."""

    rows: Exact = additive_counts("the total number of rows")
    members: Exact = additive("the sum of the memberships in each cluster", least=0.0, most=MAX_ROWS)
    distances: Exact = additive("the sum of the distances of all rows to each centre, to the power q")
    compactness: Exact = additive("the sum of the weighted squared distances to the centres", least=0.0)
    silhouette: Exact = additive("the sum of the simplified silhouettes")
    squares: Exact = additive("the sum of the squared memberships")
    entropy: Exact = additive("the sum of the memberships multiplied by their logarithms")


def _membership_weights(site: Site, ask: IndexQuestion) -> Floats:
    """What the rows weigh in each cluster."""
    return tally_weights(memberships_from_distances(d2, ask.terms.m) for d2 in _squared_distances(site, ask))


@handler(releases=IndexSums, row_weights=_membership_weights, contract=fits_index)
def index_sums(site: Site, ask: IndexQuestion) -> IndexSums:
    """One sweep over the rows."""
    found = ask.terms.zero_sums(len(ask.centers))
    for d2 in _squared_distances(site, ask):
        for part, limbs in ask.terms.sum_terms(d2).items():
            exact_sums.add_in_place(found[part], limbs)
    return IndexSums(Exact.from_counts(site.rows), **ask.terms.with_units(found))


def _squared_distances(site: Site, ask: IndexQuestion) -> Iterator[Floats]:
    squared = gap_sweep.partial_distances if ask.view.missing == "partial" else distances.squared_distances
    return (squared(block, ask.centers) for block in site.blocks(ask.view))


@dataclass(frozen=True)
class LabelsQuestion(ViewedQuestion):
    """Rows take the label of the nearest centre."""

    view: View
    centers: Floats


@dataclass(frozen=True)
class LabelSums(Release):
    sizes: Exact = additive("how many rows each label has", cells=True)
    pull: Exact = additive("for each label, the sum of its rows")


@handler(releases=LabelSums, contract=fits_labels)
def label_sums(site: Site, ask: LabelsQuestion) -> LabelSums:
    """The rows of each label, counted and added up."""
    clusters, unit = len(ask.centers), unit_of(ask.view.exponents, DISTANCE_BITS)
    sizes = np.zeros(clusters, np.int64)
    pull: Limbs = np.zeros((*ask.centers.shape, 2), np.uint64)
    for block in site.blocks(ask.view):
        labels = distances.nearest_centers(block, ask.centers)[0]
        sizes += np.bincount(labels, minlength=clusters)
        exact_sums.add_in_place(pull, fine_sums_by_label(block, labels, clusters, unit))
    return LabelSums(Exact.from_counts(sizes), Exact(pull, np.tile(unit, (clusters, 1))))


@dataclass(frozen=True)
class LabelScatterQuestion(ViewedQuestion):
    """Rows take the label of the nearest centre; how far are they from their label's mean?"""

    view: View
    centers: Floats
    means: Floats
    reach: int


@dataclass(frozen=True)
class LabelScatter(Release):
    distances: Exact = additive("for each label, the sum of the distances of its rows to their mean")
    squares: Exact = additive("the sum of the squared distances of all rows to the mean of their label")


def _label_row_weights(site: Site, ask: LabelScatterQuestion) -> Floats:
    """How many rows each label has."""
    sizes = np.zeros(len(ask.centers), np.int64)
    for block in site.blocks(ask.view):
        sizes += np.bincount(distances.nearest_centers(block, ask.centers)[0], minlength=len(sizes))
    return tally_unit_weights(sizes)


@handler(releases=LabelScatter, row_weights=_label_row_weights, contract=fits_label_scatter)
def label_scatter(site: Site, ask: LabelScatterQuestion) -> LabelScatter:
    """One sweep over the rows and their labels."""
    found = no_scatter(len(ask.centers), ask.reach)
    for block in site.blocks(ask.view):
        labels = distances.nearest_centers(block, ask.centers)[0].astype(np.int64)
        d2 = np.take_along_axis(distances.squared_distances(block, ask.means), labels[None, :], axis=0)[0]
        found = LabelScatter.total([found, scatter_of_distances(d2, labels, len(ask.centers), ask.reach)])
    return found


def scatter_of_distances(d2: Floats, labels: Ints, clusters: int, reach: int) -> LabelScatter:
    """The sums of rows at squared distances d2 <= 2^reach of their label's mean."""
    zero = no_scatter(clusters, reach)
    own = np.where(labels == np.arange(clusters)[:, None], np.sqrt(d2), 0.0)
    limbs = fine_sums(own, int(zero.distances.unit)), fine_sums(d2[None, :], int(zero.squares.unit))
    return LabelScatter(Exact(limbs[0], zero.distances.unit), Exact(limbs[1], zero.squares.unit))


def no_scatter(clusters: int, reach: int) -> LabelScatter:
    """The sums of no rows."""
    units = unit_of(-(-reach // 2) + 1, DISTANCE_BITS), unit_of(reach, DISTANCE_BITS)
    counts = (clusters, 1)
    return LabelScatter(*(Exact(np.zeros((n, 2), np.uint64), unit) for n, unit in zip(counts, units, strict=True)))


def compute_indices(
    view: View, centers: Floats, m: float, names: Iterable[str], *, p: float = 2.0, q: float = 1.0
) -> Protocol[dict[str, float]]:
    """The named indices of centres in a view, at fuzziness m (1: hard): one total, two more for those of labels."""
    names = check_indices(names, len(centers), p, q)
    found: dict[str, float] = {}
    if parts := terms_needed(names):
        terms = IndexTerms(m, q, _distance_exponent(view, centers), parts)
        sums_of_all = yield from total(index_sums, IndexQuestion(view, centers, terms))
        between = index_formulas.powers_between(centers, centers, p), index_formulas.powers_between(centers, centers)
        found |= from_sums(names, sums_of_all, between, p=p, q=q)
    if any(name in CRISP_INDICES for name in names):
        found |= yield from _crisp_indices(view, centers, names)
    return {name: found[name] for name in names}


def _crisp_indices(view: View, centers: Floats, names: tuple[str, ...]) -> Protocol[dict[str, float]]:
    """Indices of labels: their means first, then distances to them. A label without rows is left out."""
    if view.missing == "partial":
        raise StudyError(
            f"{' and '.join(CRISP_INDICES)} need rows without missing values; choose another index, or set "
            "missing to 'drop'"
        )
    groups = yield from total(label_sums, LabelsQuestion(view, centers))
    sizes, pull = groups.sizes.to_floats(), groups.pull
    means = np.where(sizes[:, None] > 0, pull.to_floats() / np.maximum(sizes, 1.0)[:, None], centers)
    every = ring.total([Exact(limbs, unit) for limbs, unit in zip(pull.limbs, pull.unit, strict=True)])
    mean = every.to_floats() / max(sizes.sum(), 1.0)
    spread = yield from total(
        label_scatter, LabelScatterQuestion(view, centers, means, _distance_exponent(view, means))
    )
    means = means[used_labels(sizes)]
    between = index_formulas.powers_between(means, means), index_formulas.powers_between(means, mean[None, :])[:, 0]
    return from_scatter(names, spread, sizes, between)


def from_sums(
    names: Iterable[str], found: IndexSums, between: tuple[Floats, Floats], *, p: float, q: float
) -> dict[str, float]:
    """Indices around the centres; `between` them are sums of p-th powers and of squares."""
    rows = found.rows.to_integers()[0]
    if rows < 1:
        raise DataError(NO_ROWS_MESSAGE)

    def mean(part: Exact) -> float:
        return float(part.to_floats()[0]) / rows

    def fuzzy() -> float:
        spread = index_formulas.fuzzy_spread(found.members.to_floats(), found.distances.to_floats(), rows, q)
        return index_formulas.davies_bouldin(spread, index_formulas.root(between[0], p))

    made: dict[str, Callable[[], float]] = {
        "fuzzy-davies-bouldin": fuzzy,
        "xie-beni": lambda: index_formulas.xie_beni(float(found.compactness.to_floats()[0]), rows, between[1]),
        "simplified-silhouette": lambda: mean(found.silhouette),
        "partition-coefficient": lambda: mean(found.squares),
        "partition-entropy": lambda: mean(found.entropy),
    }
    return {name: made[name]() for name in names if name in made}


def from_scatter(
    names: Iterable[str], spread: LabelScatter, sizes: Floats, between: tuple[Floats, Floats]
) -> dict[str, float]:
    """Indices of labels with rows; `between` are squared distances of their means to each other and to the mean."""
    used = sizes > 0
    made: dict[str, Callable[[], float]] = {
        "davies-bouldin": lambda: index_formulas.davies_bouldin(
            spread.distances.to_floats()[used] / sizes[used], np.sqrt(between[0])
        ),
        "calinski-harabasz": lambda: index_formulas.calinski_harabasz(
            sizes[used], between[1], float(spread.squares.to_floats()[0])
        ),
    }
    return {name: made[name]() for name in names if name in made}


def used_labels(sizes: Floats) -> Array:
    """Which labels have rows; an index needs two of them."""
    if not sizes.any():
        raise DataError(NO_ROWS_MESSAGE)
    if (sizes > 0).sum() < 2:
        raise StudyError("an index of hard clusters needs at least two clusters with rows; ask for more clusters")
    return sizes > 0


def terms_needed(names: Iterable[str]) -> tuple[str, ...]:
    """The sums that these indices need, each once."""
    wanted = {part for name in names for part in SUMS_BY_INDEX.get(name, ())}
    return tuple(part for part in TERM_NAMES if part in wanted)


def check_indices(names: Iterable[str], clusters: int, p: float, q: float) -> tuple[str, ...]:
    """The names, if they are indices and the question makes sense."""
    names = tuple(names)
    for name in names:
        if name not in BEST_DIRECTION:
            raise StudyError(f"there is no index '{name}'; choose one of {', '.join(BEST_DIRECTION)}")
    if clusters < 2:
        raise StudyError("an index needs at least two clusters; ask for more clusters")
    if not (1 <= p <= 8 and 1 <= q <= 8):
        raise StudyError(f"p is {p} and q is {q}; each must be between 1 and 8")
    return names


def _distance_exponent(view: View, centers: Floats) -> int:
    """An exponent above any squared distance between a row and a centre, roundings and filled gaps included."""
    bound = partial_distance_bound if view.missing == "partial" else squared_distance_bound
    return bound(view.exponents, centers) + 1
