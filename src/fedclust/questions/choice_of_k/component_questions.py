"""What a site answers about components: sums of their rows, and histograms of these along lines, tubes and shells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedclust.algorithms.shared.cell_routing import project
from fedclust.core.effects import handler
from fedclust.core.release import Release, additive
from fedclust.core.ring import Exact
from fedclust.core.site_interface import Site
from fedclust.core.types import Array, Bools, Floats, Ints, Units
from fedclust.kernels import distances
from fedclust.kernels.units import bounds_above, unit_of
from fedclust.questions.choice_of_k.choice_contracts import (
    fits_component_sums,
    fits_components,
    fits_lines,
    fits_shared_rows,
    fits_shells,
)
from fedclust.questions.choice_of_k.choice_questions import (
    CHUNK_VALUES,
    GroupMoments,
    GroupTally,
    HistogramCounts,
    MappedQuestion,
    TreeQuestion,
    mapped_rows,
)
from fedclust.questions.choice_of_k.valleys import BINS

SHELL_BINS = 24
NOBODY = -1  # fills up the lists of components behind a histogram


@dataclass(frozen=True)
class Components:
    """Components that rows are assigned to, by the score offset_k - |factor_k (y - mean_k)|^2 / 2 + flags_k^T flags.

    `factors` are (k, 1) for round components, (k, q) if axes differ, and lower triangles (k, q, q) otherwise.
    """

    shape: str
    offsets: Floats
    means: Floats
    factors: Floats
    flags: Floats

    def scores(self, y: Floats, flags: Floats) -> Floats:
        """The scores (k, n) of rows."""
        out = np.empty((len(self.offsets), y.shape[1]))
        step = max(1, CHUNK_VALUES // max(1, self.factors.size))
        for at in range(0, y.shape[1], step):
            rows = slice(at, at + step)
            out[:, rows] = self._chunk_scores(np.ascontiguousarray(y[:, rows]), flags[:, rows])
        return out

    def _chunk_scores(self, y: Floats, flags: Floats) -> Floats:
        out = np.repeat(self.offsets[:, None], y.shape[1], axis=1)
        if self.means.shape[1]:
            out -= 0.5 * self._squared_distances(y)
        for weights, values in zip(self.flags.T, flags, strict=True):
            out += weights[:, None] * values
        return out

    def _squared_distances(self, y: Floats) -> Floats:
        if self.shape == "round":
            return distances.squared_distances(y, self.means) * (self.factors * self.factors)
        out = np.zeros((len(self.means), y.shape[1]))
        if self.shape == "axes":
            for means, factors, values in zip(self.means.T, self.factors.T, y, strict=True):
                away = (values - means[:, None]) * factors[:, None]
                out += away * away
            return out
        away = y - self.means[:, :, None]
        for i in range(len(y)):
            along = np.zeros_like(out)
            for j in range(i + 1):
                along += self.factors[:, i, j, None] * away[:, j]
            out += along * along
        return out

    def inverses(self) -> Floats:
        """The inverse covariances (k, q, q)."""
        k, q = self.means.shape
        if self.shape != "full":
            return np.asarray((self.factors * self.factors * np.ones((k, q)))[:, :, None] * np.eye(q), np.float64)
        out = np.zeros((k, q, q))
        for i in range(q):
            out += self.factors[:, i, :, None] * self.factors[:, i, None, :]
        return out


@dataclass(frozen=True)
class ComponentsQuestion(MappedQuestion):
    """Sets of components; each row belongs to the component of each set with the highest score."""

    sets: tuple[Components, ...]

    @cached_property
    def units(self) -> tuple[Units, Units]:
        """The units of y and of the products of two of its coordinates."""
        wide = self.row_map.reach
        i, j = np.triu_indices(len(wide))
        return unit_of(bounds_above(wide) + 1), unit_of(bounds_above(wide[i] * wide[j]) + 1)


@dataclass(frozen=True)
class ComponentSumsQuestion(ComponentsQuestion):
    """The components that are `asked` for, by their numbers in all sets together."""

    asked: Ints


@dataclass(frozen=True)
class NeighborCounts(Release):
    rows: Exact = additive("the number of rows of each component", cells=True)
    neighbors: Exact = additive("for each two components, the number of rows that they fit best", cells=True)


@handler(releases=GroupMoments, contract=fits_component_sums)
def component_moments(site: Site, ask: ComponentSumsQuestion) -> GroupMoments:
    """For the components that are asked for: how many rows they have, and the sums of these rows."""
    starts = np.cumsum([0, *(len(one.offsets) for one in ask.sets)])
    place_of = np.full(int(starts[-1]), len(ask.asked))
    place_of[ask.asked] = np.arange(len(ask.asked))
    tally = GroupTally(len(ask.asked), *ask.units, len(ask.row_map.flagged))
    for y, flags in mapped_rows(site, ask):
        for start, components in zip(starts.tolist(), ask.sets, strict=False):
            tally.add(y, flags, place_of[start + components.scores(y, flags).argmax(axis=0)])
    return tally.release()


@handler(releases=NeighborCounts, contract=fits_components)
def neighbor_counts(site: Site, ask: ComponentsQuestion) -> NeighborCounts:
    """For the components of the first set: how many rows they have, and which component comes next for these rows."""
    components = ask.sets[0]
    size = len(components.offsets)
    rows, neighbors = np.zeros(size, np.int64), np.zeros((size, size), np.int64)
    for y, flags in mapped_rows(site, ask):
        scores = components.scores(y, flags)
        best = scores.argmax(axis=0)
        rows += np.bincount(best, minlength=size)
        if size > 1:
            scores[best, np.arange(len(best))] = -np.inf
            np.add.at(neighbors, (best, scores.argmax(axis=0)), 1)
    return NeighborCounts(Exact.from_counts(rows), Exact.from_counts(neighbors))


@dataclass(frozen=True)
class SharedRowsQuestion(TreeQuestion):
    """How many rows do each cell of a tree and each component have in common?"""

    components: Components


@dataclass(frozen=True)
class SharedRows(Release):
    counts: Exact = additive("for each cell and each component, the number of rows that are in both", cells=True)


@handler(releases=SharedRows, contract=fits_shared_rows)
def count_shared_rows(site: Site, ask: SharedRowsQuestion) -> SharedRows:
    """How many rows of each cell are in each component."""
    counts = np.zeros((len(ask.places) + 1, len(ask.components.offsets)), np.int64)
    for y, flags in mapped_rows(site, ask):
        cells = ask.cells_of_rows(ask.coordinates(y, flags))
        np.add.at(counts, (cells, ask.components.scores(y, flags).argmax(axis=0)), 1)
    return SharedRows(Exact.from_counts(counts))


@dataclass(frozen=True)
class HistogramsQuestion(MappedQuestion):
    """Histograms of some components' rows; `members` lists the components of each, filled up with NOBODY."""

    components: Components
    members: Ints

    def labelled_rows(self, site: Site) -> Iterator[tuple[Floats, Bools]]:
        """The numbers (q, n) of rows, and for each histogram whether they are in it (h, n)."""
        known = np.zeros((len(self.members), len(self.components.offsets) + 1), np.bool_)
        known[np.arange(len(self.members))[:, None], self.members] = True
        known[:, NOBODY] = False
        for y, flags in mapped_rows(site, self):
            yield y, known[:, self.components.scores(y, flags).argmax(axis=0)]


@dataclass(frozen=True)
class LinesQuestion(HistogramsQuestion):
    """Histograms along directions (h, q), each from `low` to `high`.

    With `factors` (h, q, q), only rows with |factor (y - center)|^2 <= radius count, and y - center is projected.
    """

    directions: Floats
    low: Floats
    high: Floats
    centers: Floats
    factors: Floats
    radii: Floats


@dataclass(frozen=True)
class ShellsQuestion(HistogramsQuestion):
    """Histograms of the distances |factor (y - center)|, from 0 to `high`."""

    centers: Floats
    factors: Floats
    high: float


@handler(releases=HistogramCounts, contract=fits_lines)
def line_histograms(site: Site, ask: LinesQuestion) -> HistogramCounts:
    """Histograms along lines, or along tubes around them."""
    counts = np.zeros((len(ask.members), BINS), np.int64)
    tubes = len(ask.factors) > 0
    for y, inside in ask.labelled_rows(site):
        for k, (own, direction) in enumerate(zip(inside, ask.directions, strict=True)):
            rows = y[:, own]
            if tubes:
                rows = rows - ask.centers[k, :, None]
                rows = rows[:, _squared_lengths(ask.factors[k], rows) <= ask.radii[k]]
            along = project(rows, direction[:, None])[0]
            counts[k] += _histogram((along - ask.low[k]) / (ask.high[k] - ask.low[k]), BINS)
    return HistogramCounts(Exact.from_counts(counts))


@handler(releases=HistogramCounts, contract=fits_shells)
def shell_histograms(site: Site, ask: ShellsQuestion) -> HistogramCounts:
    """Histograms of distances from centres."""
    counts = np.zeros((len(ask.members), SHELL_BINS), np.int64)
    for y, inside in ask.labelled_rows(site):
        for k, own in enumerate(inside):
            away = y[:, own] - ask.centers[k, :, None]
            counts[k] += _histogram(np.sqrt(_squared_lengths(ask.factors[k], away)) / ask.high, SHELL_BINS)
    return HistogramCounts(Exact.from_counts(counts))


def _squared_lengths(factor: Floats, rows: Floats) -> Floats:
    """|factor y|^2 of rows (q, n)."""
    out = np.zeros(rows.shape[1])
    for weights in factor:
        along = project(rows, weights[:, None])[0]
        out += along * along
    return out


def _histogram(shares: Floats, bins: int) -> Array:
    """How many of these shares of the way from 0 to 1 lie in each of some sections."""
    at = np.floor(shares * bins)
    return np.bincount(at[(at >= 0) & (at < bins)].astype(np.int64), minlength=bins)


def padded_members(groups: Sequence[Sequence[int]]) -> Ints:
    """Lists of components as one matrix."""
    width = max((len(group) for group in groups), default=0)
    out = np.full((len(groups), max(width, 1)), NOBODY, np.int64)
    for row, group in zip(out, groups, strict=True):
        row[: len(group)] = group
    return out
