"""Initial centres from totals and public draws only: the same for every spread of the rows over the sites.

k-means++   cells of a tree; many greedy k-means++ and k-means of the cells' means at the coordinator; the best of these
            candidates are compared over all rows, and then crossings of those that turned out best
random      cells' means, each as likely as its number of rows

The papers' own starts are in `initial_centers`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedclust.algorithms.shared.candidate_choice import CandidateSearch, Partition
from fedclust.algorithms.shared.cell_sums import RaceQuestion, objectives, product_pairs
from fedclust.algorithms.shared.cell_tree import (
    MAX_AXES,
    MAX_DECIDED_TREE_ASKS,
    MAX_TREE_ASKS,
    MAX_WIDTH_OF_PRODUCTS,
    OVERSAMPLING,
    CellMeans,
    CellOpening,
    Frame,
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
CROSSING_ROUNDS, CROSSINGS = 3, 30  # ... and so many times so many crossings of the best
PARENTS = 5  # the best candidates so far, which are crossed
MIN_CROSSED_CLUSTERS = 10  # fewer clusters have few local optima
MAX_DECIDED_START_ASKS = MAX_DECIDED_TREE_ASKS + 5
MAX_START_ASKS = MAX_TREE_ASKS + 5 + CROSSING_ROUNDS  # with the columns' statistics, and comparisons of candidates
STUDY_CELL_FLOOR = 10  # rows behind every cell of a study


@dataclass(frozen=True)
class StartCenters:
    """Initial centres, and how many of them were drawn at random because there were too few cells."""

    centers: Floats
    drawn: int = 0


@dataclass(frozen=True)
class Chosen:
    """Initial centres, and their objective if it is known over all rows."""

    centers: Floats
    objective: float | None


@dataclass(frozen=True)
class StartRequest:
    """How many centres are wanted, of how many candidates the best, and how few rows a cell may have."""

    count: int
    candidates: int
    seed: int
    floor: int
    everyone: bool  # whether a site that is absent ends the run
    crossing_rounds: int = 0  # how often the best candidates are crossed
    opening: CellOpening | None = None  # who decides which cells are opened; None: all that have rows enough

    @property
    def max_asks(self) -> int:
        """How many questions finding the centres takes at most."""
        return MAX_START_ASKS if self.opening is None else MAX_DECIDED_START_ASKS


def start_padding(columns: int, clusters: int, candidates: int) -> Padding:
    """The padding for questions and answers while initial centres are found, with any values in the table."""
    cells, axes = max_cells(clusters), min(columns, MAX_AXES)
    products = len(product_pairs(axes)[0])
    sketch = MAX_AXES + OVERSAMPLING
    sketched = columns * max(columns // 2 + 1 if columns < MAX_WIDTH_OF_PRODUCTS * sketch else 0, sketch)
    points = columns * max(cells, candidates * clusters, axes)
    return Padding(
        question=8 * points + 128 * columns + cells * (24 * axes + 64) + 4096,
        numbers=max(cells * (1 + axes + products), cells * (1 + 2 * columns), sketched + columns, candidates) + 64,
    )


def plus_plus_centers(view: View, ask: StartRequest, rng: np.random.Generator) -> Protocol[StartCenters]:
    """The best candidate among k-means of the cells' means."""

    def choose(cells: CellMeans) -> Protocol[Chosen]:
        return _search_candidates(cells, ask, rng)

    return (yield from pad_rounds(_centers_from_cells(view, ask, rng, choose), ask.max_asks))


def random_centers(view: View, ask: StartRequest, rng: np.random.Generator) -> Protocol[StartCenters]:
    """The best of a few draws of cells' means."""

    def choose(cells: CellMeans) -> Protocol[Chosen]:
        draws = [cells.means[_draw_by_weight(cells.rows, ask.count, rng)] for _ in range(ask.candidates)]
        return _choose_best(cells.frame, draws, even_one=ask.opening is not None)

    return (yield from pad_rounds(_centers_from_cells(view, ask, rng, choose), ask.max_asks))


def best_of_draws(view: View, draws: Sequence[Floats], seed: int) -> Protocol[Floats]:
    """The one of several sets of centres with the least objective over all rows."""
    found = yield from standardisation.column_statistics(view)
    share = sample_share(float(found.counts.max()))
    return (yield from _choose_best(Frame(view, seed, share, found.mean, found.sd), draws, even_one=False)).centers


def _centers_from_cells(
    view: View,
    ask: StartRequest,
    rng: np.random.Generator,
    choose: Callable[[CellMeans], Protocol[Chosen]],
) -> Protocol[StartCenters]:
    """What is chosen among candidates made of cells; all cells and further draws if there are too few cells."""
    found = yield from standardisation.column_statistics(view)
    same = np.repeat(found.mean[None], ask.count, axis=0)
    if ask.count == 1 or not (found.sd > 0).any():
        return StartCenters(same)
    known = None if ask.opening is None else (yield from ask.opening.known_cells(found, ask.seed))
    cells = known or (
        yield from find_cells(
            view, found, ask.count, seed=ask.seed, floor=ask.floor, everyone=ask.everyone, opening=ask.opening
        )
    )
    if cells is None:
        return StartCenters(same)
    missing = max(0, ask.count - len(cells.means))
    if len(cells.means) <= ask.count:
        made = np.concatenate([cells.means, cells.draw_points(missing, rng)])
        chosen = yield from _choose_best(cells.frame, [made], even_one=ask.opening is not None)
    else:
        chosen = yield from choose(cells)
    if ask.opening is not None and chosen.objective is not None:
        nearest, _ = distances.nearest_centers(np.ascontiguousarray(cells.means.T), chosen.centers)
        ask.opening.record_start(cells.numbers, np.asarray(nearest, np.int64), ask.count)
    return StartCenters(chosen.centers, missing)


def _search_candidates(cells: CellMeans, ask: StartRequest, rng: np.random.Generator) -> Protocol[Chosen]:
    """The best of many restarts on the cells and of crossings of those that are best over all rows."""
    search = CandidateSearch(cells.means, cells.rows, ask.count, rng)
    born = search.restart(ask.candidates)
    if len(born) < 2:
        made = [search.centers(own) for own in born] or [search.first_draw]
        return (yield from _choose_best(cells.frame, made, even_one=ask.opening is not None))
    ranked: list[tuple[float, Partition]] = []
    for is_last in [*[False] * ask.crossing_rounds, True]:
        found = yield from _compare(cells.frame, [search.centers(own) for own in born])
        ranked = sorted([*ranked, *zip(found, born, strict=True)], key=lambda own: own[0])
        born = [] if is_last else search.cross([own for _, own in ranked[:PARENTS]], CROSSINGS)
        if not born:
            break
    objective, best = ranked[0]
    return Chosen(search.centers(best), objective if cells.frame.share >= WHOLE_TABLE else None)


def _choose_best(frame: Frame, candidates: Sequence[Floats], *, even_one: bool) -> Protocol[Chosen]:
    """The first of the candidates with the least objective; a single one is compared only if `even_one` asks for it."""
    if len(candidates) == 1 and not even_one:
        return Chosen(candidates[0], None)
    found = yield from _compare(frame, candidates)
    best = int(np.argmin(found))
    return Chosen(candidates[best], found[best] if frame.share >= WHOLE_TABLE else None)


def _compare(frame: Frame, candidates: Sequence[Floats]) -> Protocol[list[float]]:
    """The objective of each candidate, over all rows or over the public sample."""
    answer = yield from total(objectives, RaceQuestion(*frame.sample, np.stack(candidates)))
    return [float(own) for own in answer.objectives.to_floats()]


def _draw_by_weight(weights: Floats, count: int, rng: np.random.Generator) -> Ints:
    """Different numbers, each drawn as likely as its weight."""
    left = weights.copy()
    picked = np.empty(count, np.int64)
    for i in range(count):
        picked[i] = draw_index(left, rng)
        left[picked[i]] = 0.0
    return picked
