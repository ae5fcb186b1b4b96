"""Initial centres from totals and public draws only: the same for every spread of the rows over the sites.

k-means++   cells of a tree; many greedy k-means++ and k-means of the cells' means at the coordinator; the best of these
            candidates are compared over all rows
random      cells' means, each as likely as its number of rows

The papers' own starts are in `initial_centers`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedclust.algorithms.shared.candidate_choice import choose_candidates
from fedclust.algorithms.shared.cell_sums import RaceQuestion, objectives
from fedclust.algorithms.shared.cell_tree import (
    MAX_AXES,
    MAX_DECIDED_TREE_ASKS,
    MAX_TREE_ASKS,
    OVERSAMPLING,
    CellMeans,
    CellOpening,
    find_cells,
    max_cells,
)
from fedclust.algorithms.shared.reseeding import draw_index
from fedclust.core.effects import Protocol, total
from fedclust.core.round_padding import pad_rounds
from fedclust.core.site_interface import View
from fedclust.core.types import Floats, Ints
from fedclust.kernels import distances
from fedclust.kernels.row_sample import WHOLE_TABLE, sample_share
from fedclust.privacy.padding import Padding
from fedclust.questions import standardisation

AUTO_CANDIDATES = 20  # compared over all rows if n_init is "auto"
MAX_DECIDED_START_ASKS = MAX_DECIDED_TREE_ASKS + 5
MAX_START_ASKS = MAX_TREE_ASKS + 5  # with the columns' statistics, and the comparison of candidates
MIN_FLOORED_CELLS = 4  # with fewer cells of the floor's size for each centre, cells nearly equal clusters
STUDY_CELL_FLOOR = 10  # rows behind every cell of a study


@dataclass(frozen=True)
class StartCenters:
    """Initial centres, and how many of them were drawn at random because there were too few cells."""

    centers: Floats
    drawn: int = 0


@dataclass(frozen=True)
class StartRequest:
    """How many centres are wanted, of how many candidates the best, and how few rows a cell may have."""

    count: int
    candidates: int
    seed: int
    floor: int
    everyone: bool  # whether a site that is absent ends the run
    opening: CellOpening | None = None  # who decides which cells are opened; None: all that have rows enough

    @property
    def max_asks(self) -> int:
        """How many questions finding the centres takes at most."""
        return MAX_START_ASKS if self.opening is None else MAX_DECIDED_START_ASKS


def start_padding(columns: int, clusters: int, candidates: int) -> Padding:
    """The padding for questions and answers while initial centres are found, with any values in the table."""
    cells, axes = max_cells(clusters), min(columns, MAX_AXES)
    products = axes * (axes + 1) // 2
    sketched = columns * max(
        columns // 2 + 1 if columns < 2 * (MAX_AXES + OVERSAMPLING) else 0, MAX_AXES + OVERSAMPLING
    )
    points = columns * max(cells, candidates * clusters, axes)
    return Padding(
        question=8 * points + 128 * columns + cells * (24 * axes + 64) + 4096,
        numbers=max(cells * (1 + axes + products), cells * (1 + 2 * columns), sketched + columns, candidates) + 64,
    )


def plus_plus_centers(view: View, ask: StartRequest, rng: np.random.Generator) -> Protocol[StartCenters]:
    """The best candidate among k-means of the cells' means."""

    def candidates(cells: CellMeans) -> list[Floats]:
        return choose_candidates(cells.means, cells.rows, ask.count, rng, ask.candidates)

    return (yield from pad_rounds(_centers_from_cells(view, ask, rng, candidates), ask.max_asks))


def random_centers(view: View, ask: StartRequest, rng: np.random.Generator) -> Protocol[StartCenters]:
    """The best of a few draws of cells' means."""

    def candidates(cells: CellMeans) -> list[Floats]:
        return [cells.means[_draw_by_weight(cells.rows, ask.count, rng)] for _ in range(ask.candidates)]

    return (yield from pad_rounds(_centers_from_cells(view, ask, rng, candidates), ask.max_asks))


def best_of_draws(view: View, draws: Sequence[Floats], seed: int) -> Protocol[Floats]:
    """The one of several sets of centres with the least objective over all rows."""
    found = yield from standardisation.column_statistics(view)
    share = sample_share(float(found.counts.max()))
    best, _ = yield from _race(RaceQuestion(view, seed, share, found.mean, np.stack(draws)))
    return best


def _centers_from_cells(
    view: View,
    ask: StartRequest,
    rng: np.random.Generator,
    candidates: Callable[[CellMeans], Sequence[Floats]],
) -> Protocol[StartCenters]:
    """The best of the candidates that are made of cells; all cells and further draws if there are too few cells."""
    found = yield from standardisation.column_statistics(view)
    same = np.repeat(found.mean[None], ask.count, axis=0)
    if ask.count == 1 or not (found.sd > 0).any():
        return StartCenters(same)
    known = None if ask.opening is None else (yield from ask.opening.known_cells(found, ask.seed))
    small = ask.opening is not None and found.counts.max() < MIN_FLOORED_CELLS * ask.count * ask.floor
    if known is None and small:
        return StartCenters((yield from best_of_draws(view, _draws_around_mean(found, ask, rng), ask.seed)))
    cells = known or (
        yield from find_cells(
            view, found, ask.count, seed=ask.seed, floor=ask.floor, everyone=ask.everyone, opening=ask.opening
        )
    )
    if cells is None:
        return StartCenters(same)
    missing = max(0, ask.count - len(cells.means))
    if len(cells.means) <= ask.count:
        made = np.concatenate([cells.means, cells.draw_points(missing, rng)])[None]
        if ask.opening is None:
            return StartCenters(made[0], missing)
    else:
        made = np.stack(candidates(cells))
    best, objective = yield from _race(RaceQuestion(*cells.frame.sample, made), even_one=ask.opening is not None)
    if ask.opening is not None and objective is not None:
        nearest, _ = distances.nearest_centers(np.ascontiguousarray(cells.means.T), best)
        ask.opening.record_start(np.asarray(nearest, np.int64), ask.count)
    return StartCenters(best, missing)


def _draws_around_mean(
    found: standardisation.ColumnStatistics, ask: StartRequest, rng: np.random.Generator
) -> list[Floats]:
    """Candidates drawn uniformly within two standard deviations of the mean of each column."""
    shape = (ask.count, len(found.mean))
    return [found.mean + 2 * found.sd * rng.uniform(-1, 1, shape) for _ in range(ask.candidates)]


def _race(ask: RaceQuestion, *, even_one: bool = False) -> Protocol[tuple[Floats, float | None]]:
    """The first of the candidates with the least objective, and this objective if it was asked for over all rows.

    A single candidate needs no question, unless `even_one` asks for its objective.
    """
    if len(ask.candidates) == 1 and not even_one:
        return np.asarray(ask.candidates[0], np.float64), None
    found = (yield from total(objectives, ask)).objectives.to_floats()
    best = int(np.argmin(found))
    return np.asarray(ask.candidates[best], np.float64), float(found[best]) if ask.share >= WHOLE_TABLE else None


def _draw_by_weight(weights: Floats, count: int, rng: np.random.Generator) -> Ints:
    """Different numbers, each drawn as likely as its weight."""
    left = weights.copy()
    picked = np.empty(count, np.int64)
    for i in range(count):
        picked[i] = draw_index(left, rng)
        left[picked[i]] = 0.0
    return picked
