"""MUFC: sites send counts on a grid so sparse that a few sums over a finite field hold them; forgetting is cheap.

A site picks k rows by k-means++, counts the rows nearest to each, and rounds their mean to a cell of a grid of step
1/sqrt(n) over the box of the data. What leaves is not the histogram of cells but its power sums (sparse_sums.py):
they add up over sites, and only their total is needed. From it the coordinator finds the cells and counts of all sites
together, not whose they were, and runs k-means on cells weighted by counts.

A cell of few columns is a number below the field's prime and is its own label. One of many columns is written as
several such numbers c_r; its label is a mixture sum a_r c_r with public random a_r, under which two of t cells meet
with probability below t^2 / 2^61, and the numbers themselves come back from further sums weighted by q c_r.

No seed counts fewer rows than `least`, and no mean is a row but for rounding: such a seed leaves its rows to the next
nearest. The paper rounds the seeds themselves. They are rows, and a grid of that step is finer than whole numbers often
are: the cell of such a row is that row.

Paper: Pan, Sima, Prakash, Rana and Milenkovic, "Machine unlearning of federated clusters".
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedclust.algorithms import kfed
from fedclust.algorithms.cmeans.fit_result import FitResult
from fedclust.algorithms.method_contracts import fits_counts
from fedclust.algorithms.shared import initial_centers, weighted_kmeans
from fedclust.algorithms.shared.row_likeness import near_rows
from fedclust.core import wire
from fedclust.core.counted_nouns import count_noun
from fedclust.core.effects import Keep, Protocol, handler, total
from fedclust.core.errors import RunFailed
from fedclust.core.question_types import FlooredQuestion, PointsQuestion, ViewedQuestion
from fedclust.core.release import FLOOR_FROM_QUESTION, Release, additive, additive_points
from fedclust.core.ring import UNIT_ONE, Exact, limbs_from_integers
from fedclust.core.site_interface import Site, View
from fedclust.core.types import Floats, Ints
from fedclust.kernels import distances
from fedclust.privacy import sparse_sums
from fedclust.privacy.sparse_sums import FIELD_PRIME

MUFC_RESTARTS = 10
MUFC_LOSSY_NOTE = (
    "Not lossless: sites sent only how many of their rows lie around a few points, so the result "
    "differs from that of the pooled rows."
)
ROUNDED_CELLS_NOTE = "Each grid cell that a site sent is the rounded mean of at least {least} of its rows."


@dataclass(frozen=True)
class Grid:
    """Cells of a box in the view: `levels` along every column. `mix` makes one label of a cell's numbers."""

    low: Floats
    high: Floats
    levels: int
    mix: Ints

    @cached_property
    def columns_per_number(self) -> int:
        """How many columns one number below the prime holds."""
        return digits_per_number(self.levels)

    def cells(self, points: Floats) -> Ints:
        """The cell of each point, by column; points beyond the box count at its edge."""
        width = np.where(self.high > self.low, self.high - self.low, 1.0)
        at = np.floor((points - self.low) / width * self.levels)
        return np.clip(at, 0, self.levels - 1).astype(np.int64)

    def cell_centers(self, cells: Ints) -> Floats:
        """The points in the middle of cells."""
        return np.asarray(self.low + (cells + 0.5) / self.levels * (self.high - self.low), np.float64)

    def numbers_from_cell(self, cell: Ints) -> list[int]:
        """A cell as numbers below the prime, its first column the leading digit."""
        out = []
        for at in range(0, len(cell), self.columns_per_number):
            number = 0
            for digit in cell[at : at + self.columns_per_number].tolist():
                number = number * self.levels + digit
            out.append(number)
        return out

    def cell_from_numbers(self, numbers: list[int]) -> list[int]:
        """The cell of such numbers, one after the other."""
        digits: list[int] = []
        for at, number in enumerate(numbers):
            own, left = [], number
            for _ in range(min(self.columns_per_number, len(self.low) - at * self.columns_per_number)):
                left, digit = divmod(left, self.levels)
                own.append(digit)
            if left:
                raise RunFailed(
                    "the sites' sums decode to a cell outside the grid, so one site gave a wrong answer; start a "
                    "new run"
                )
            digits += own[::-1]
        return digits

    def label(self, numbers: list[int]) -> int:
        if len(numbers) == 1:
            return numbers[0]
        mix: list[int] = self.mix.tolist()
        return sum(a * c for a, c in zip(mix, numbers, strict=True)) % FIELD_PRIME


def digits_per_number(levels: int) -> int:
    """How many digits of so many levels stay below the prime.

    >>> digits_per_number(75), digits_per_number(2)
    (9, 60)
    """
    digits = 1
    while max(levels, 2) ** (digits + 1) <= 1 << 60:
        digits += 1
    return digits


@dataclass(frozen=True)
class Count(ViewedQuestion, PointsQuestion, FlooredQuestion):
    """Pick `count` rows, or with `again` the picks remembered if they are still rows, and count around them."""

    view: View
    grid: Grid
    count: int
    least: int
    most: int  # cells that all sites together can have
    seed: int
    again: bool

    def max_points(self) -> int:
        return self.count

    def rows_per_point(self) -> int:
        return self.least


@dataclass(frozen=True)
class CellPowerSums(Release):
    counts: Exact = additive_points(
        "power sums that encode which cells of a public grid contain means of rows, and how many rows each of these "
        "cells stands for",
        floor=FLOOR_FROM_QUESTION,
    )
    places: Exact = additive_points(
        "more power sums of the same cells, if one number is not enough to identify a cell", floor=FLOOR_FROM_QUESTION
    )
    reseeded: Exact = additive(
        "how many sites picked new rows as starting points, and how many have too few rows or only equal rows"
    )


@handler(releases=CellPowerSums, methods=("mufc",), contract=fits_counts)
def cell_power_sums(site: Site, ask: Count) -> Keep[CellPowerSums]:
    """This site's histogram as power sums; zeros if its rows are too few, or all alike."""
    seeds, reseeded = _pick_seeds(site, ask)
    means, sizes = _means_around_seeds(site, ask, seeds)
    held: Counter[tuple[int, ...]] = Counter()
    for cell, size in zip(ask.grid.cells(means).tolist(), sizes.tolist(), strict=True):
        held[tuple(cell)] += size
    numbers = [ask.grid.numbers_from_cell(np.array(cell, np.int64)) for cell in held]
    labels, weights = [ask.grid.label(own) for own in numbers], list(held.values())
    counts = sparse_sums.power_sums(labels, weights, 2 * ask.most)
    parts = len(ask.grid.mix) if len(ask.grid.mix) > 1 else 0
    places = [
        s
        for r in range(parts)
        for s in sparse_sums.power_sums(labels, [w * own[r] for w, own in zip(weights, numbers, strict=True)], ask.most)
    ]
    hidden = sparse_sums.add_random_multiples(counts + places, _hiding_stream(site, ask, len(counts) + len(places)))
    release = CellPowerSums(
        _exact_from_integers(hidden[: len(counts)], (len(counts),)),
        _exact_from_integers(hidden[len(counts) :], (parts, ask.most)),
        Exact.from_counts((int(reseeded), int(not len(means)))),
    )
    return Keep(release, _seed_memory(ask.view, seeds))


def _pick_seeds(site: Site, ask: Count) -> tuple[Floats, bool]:
    """The picked rows in the view, and whether they were picked again."""
    if site.rows <= ask.count:
        return np.empty((0, len(site.columns))), False
    kept = site.memory.get("seeds")
    if (
        ask.again
        and kept is not None
        and len(kept)
        and _same_view(site, ask.view)
        and _are_still_rows(site, ask.view, kept)
    ):
        return np.asarray(kept, np.float64), False
    rng = site.rng_from_seed(ask.seed)
    rows = initial_centers.read_rows(site, ask.view, sample=rng)
    picked = rows[initial_centers.plus_plus(rows, ask.count, rng, tries=1)]
    _, first = np.unique(picked, axis=0, return_index=True)
    return picked[np.sort(first)], True


def _means_around_seeds(site: Site, ask: Count, seeds: Floats) -> tuple[Floats, Ints]:
    """Means and numbers of the rows nearest to each seed; one with too few, or with a row for a mean, leaves them."""
    while len(seeds):
        sums, sizes = np.zeros((seeds.shape[1], len(seeds))), np.zeros(len(seeds), np.int64)
        for block in site.blocks(ask.view):
            labels = distances.nearest_centers(block, seeds)[0]
            sizes += np.bincount(labels, minlength=len(seeds))
            sums += np.stack([np.bincount(labels, values, minlength=len(seeds)) for values in block])
        means = (sums / np.maximum(sizes, 1)).T
        bad = sizes < ask.least
        if not bad.any():
            for block in site.blocks(ask.view):
                bad |= near_rows(means, np.asarray(block.T, np.float64))
        if not bad.any():
            return means, sizes
        lightest = np.flatnonzero(bad)[sizes[bad].argmin()]
        seeds = np.delete(seeds, lightest, axis=0)
    return seeds, np.zeros(0, np.int64)


def _same_view(site: Site, view: View) -> bool:
    before = site.memory["view"]
    now = _seed_memory(view, np.empty((0, len(site.columns))))["view"]
    return before.shape == now.shape and bool((before == now).all())


def _seed_memory(view: View, seeds: Floats) -> dict[str, Floats]:
    nothing = np.empty((0, seeds.shape[1]))
    seen = nothing if view.origin is None or view.spread is None else np.stack([view.origin, view.spread])
    return {"seeds": seeds, "view": seen}


def _are_still_rows(site: Site, view: View, seeds: Floats) -> bool:
    found = np.zeros(len(seeds), bool)
    for block in site.blocks(view):
        found |= kfed.is_row(seeds, np.asarray(block.T, np.float64))
    return bool(found.all())


def _hiding_stream(site: Site, ask: Count, numbers: int) -> bytes:
    """A stream that this site alone can make: its rows are the key. Who can guess them all has nothing to learn."""
    digest = hashlib.sha256(site.party.encode() + b"\0" + wire.encode(ask))  # another question has other random bits
    for block in site.blocks(ask.view):
        digest.update(np.ascontiguousarray(block, np.float64).tobytes())
    return hashlib.shake_256(digest.digest()).digest(numbers * sparse_sums.MULTIPLE_BITS // 8)


def _exact_from_integers(numbers: list[int], shape: tuple[int, ...]) -> Exact:
    return Exact(limbs_from_integers(numbers, shape), UNIT_ONE)


def histogram(ask: Count) -> Protocol[tuple[Ints, Ints, tuple[int, int]]]:
    """The cells of all sites together, in order, their counts; how many sites picked again, how many abstained."""
    sums = yield from total(cell_power_sums, ask)
    counts = [s % FIELD_PRIME for s in sums.counts.to_integers()]
    labels, weights = sparse_sums.recover_labels(counts)
    if sum(weights) != counts[0]:
        raise RunFailed(
            "the sites' sums do not match, so one site gave a wrong answer or its answer was altered; start a new run"
        )
    numbers = [[label] for label in labels]
    if sums.places.shape[0]:
        flat = [s % FIELD_PRIME for s in sums.places.to_integers()]
        rows = [flat[at : at + ask.most] for at in range(0, len(flat), ask.most)]
        found = sparse_sums.vandermonde(labels, rows)
        inverses = [pow(w, -1, FIELD_PRIME) for w in weights]
        numbers = [[own[j] * inverses[j] % FIELD_PRIME for own in found] for j in range(len(labels))]
    cells = [ask.grid.cell_from_numbers(own) for own in numbers]
    order = sorted(range(len(cells)), key=cells.__getitem__)
    reseeded, silent = sums.reseeded.to_integers()
    shape = (len(cells), len(ask.grid.low))
    return (
        np.array([cells[j] for j in order], np.int64).reshape(shape),
        np.array([weights[j] for j in order], np.int64),
        (reseeded, silent),
    )


def fit(
    view: View,
    box: tuple[Floats, Floats],
    *,
    count: int,
    levels: int,
    local: int,
    least: int,
    parties: int,
    seed: int,
    again: bool = False,
) -> Protocol[tuple[FitResult, int]]:
    """One message from each site, then weighted k-means; also how many sites picked again."""
    parts = -(-len(box[0]) // digits_per_number(levels))
    mix = np.random.default_rng((seed, 3)).integers(1, FIELD_PRIME, parts)
    ask = Count(view, Grid(*box, levels, mix), local, least, local * parties, seed, again)
    cells, weights, (reseeded, silent) = yield from histogram(ask)
    points = ask.grid.cell_centers(cells)
    if len(points) < count:
        begin, drawn = yield from kfed.fill_centers(view, points, count, seed)
        centers = begin
    else:
        drawn, rng = 0, np.random.default_rng((seed, 2))
        starts = weighted_kmeans.plus_plus_starts(points, weights, count, rng, MUFC_RESTARTS)
        tries = [(begin, *weighted_kmeans.kmeans(points, weights, begin)) for begin in starts]
        begin, _, centers = min(tries, key=lambda found: found[1])
    notes = [MUFC_LOSSY_NOTE, ROUNDED_CELLS_NOTE.format(least=least), *kfed.drawn_centers_notes(count, drawn)]
    if silent:
        notes.append(
            f"{silent} of {parties} sites abstained, because they have too few rows for "
            f"{count_noun(local, 'starting point')} "
            "or all their rows are equal."
        )
    return (yield from kfed.one_round_result(view, begin, centers, notes)), reseeded
