"""Lossless c-means and fuzzy c-means over rows that lie at several parties (LLF-CM, LLF-FCM).

Every round asks for three sums over all rows, at fuzziness m (m = 1 is hard c-means):

    mass_c = sum u_ic^m        pull_c = sum u_ic^m x_i        objective = sum u_ic^m |x_i - v_c|^2

and moves each centre to pull_c / mass_c. The sums are exact integers, so the run is the pooled run, bit for bit.

Papers: Corcuera Barcena et al., "Federated c-means and fuzzy c-means clustering algorithms for horizontally and
vertically partitioned data", Algorithms 1 to 3; the same, "Federated fuzzy c-means".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedclust.algorithms.cmeans.cmeans_contracts import fits_centers
from fedclust.algorithms.cmeans.exact_rounds import (
    FallingObjective,
    RoundQuestion,
    RoundSums,
    check_shares,
    objective_is_plausible,
    pull_is_plausible,
    total_with_digits,
)
from fedclust.algorithms.cmeans.fit_result import FitNotes, FitResult, Round, RoundResult, frobenius
from fedclust.algorithms.shared.participation import draw_parties
from fedclust.algorithms.shared.reseeding import CenterReseeder
from fedclust.core.effects import Protocol, handler, report
from fedclust.core.errors import RunFailed
from fedclust.core.release import Release, additive, additive_counts, stack_field
from fedclust.core.ring import Exact
from fedclust.core.row_weights import tally_weights
from fedclust.core.site_interface import Site, View
from fedclust.core.types import Array, Bools, Floats, PartyId
from fedclust.kernels import distances, fuzzy_sweep, hard_sweep
from fedclust.kernels.exact_sums import Blocks, Sums
from fedclust.kernels.gap_sweep import hard_or_fuzzy_weights
from fedclust.kernels.units import squared_distance_bound


@dataclass(frozen=True)
class CentersQuestion(RoundQuestion):
    """The centres at which to sum, and whether the papers' rules for lone rows and for small sites hold."""

    singletons: bool
    small_sites: bool


def make_question(
    view: View, centers: Floats, m: float, *, singletons: bool = False, small_sites: bool = False
) -> CentersQuestion:
    """The sums at some centres, at the usual units and, unless asked for, by none of the papers' rules."""
    shifts = np.zeros(len(centers), np.int32)
    reach = squared_distance_bound(view.exponents, centers)
    return CentersQuestion(view, centers, m, shifts, reach, singletons, small_sites)


@dataclass(frozen=True)
class Moments(Release):
    mass: Exact = additive("the total weight of each cluster", cells=True)
    pull: Exact = additive("the weighted sum of the rows of each cluster")
    objective: Exact = additive("the sum of the weighted squared distances to the centres", least=0.0)
    hidden: Exact = additive_counts("how many clusters of single rows the sites hid, and how many sites abstained")

    @classmethod
    def plausible(cls, parts: Sequence[Moments], ask: CentersQuestion) -> Bools:
        """Also: a cluster's sum is at most its weight times a column's bound, the objective 2^reach for each row."""
        mass = stack_field(parts, "mass").to_floats()[..., None]
        sound = pull_is_plausible(parts, ask.view, mass) & objective_is_plausible(parts, ask.reach)
        return super().plausible(parts, ask) & sound


NOTHING_HIDDEN = Exact.from_counts((0, 0))


def membership_weights(site: Site, ask: CentersQuestion) -> Floats:
    """What the rows weigh in each cluster: u^m, or one for the nearest."""
    return tally_weights(
        hard_or_fuzzy_weights(distances.squared_distances(block, ask.centers), ask.m) for block in site.blocks(ask.view)
    )


@handler(releases=Moments, row_weights=membership_weights, opens_all_clusters=True, contract=fits_centers)
def moments(site: Site, ask: CentersQuestion) -> Moments:
    """One sweep over the rows."""
    mass, pull, objective = ask.units
    sums = Sums.zeros(mass, pull, int(objective))
    hidden = NOTHING_HIDDEN
    if ask.small_sites and _is_small(site, ask):
        hidden = Exact.from_counts((0, 1))
    else:
        blocks = site.blocks(ask.view)
        if ask.singletons:
            blocks, lone_rows = _without_singletons(list(blocks), ask)
            hidden = Exact.from_counts((lone_rows, 0)) if lone_rows else NOTHING_HIDDEN
        for some in [blocks] if isinstance(blocks, list) else blocks:
            _check_reach(some, ask)
            if ask.m == 1:
                hard_sweep.accumulate(sums, some, ask.centers)
            else:
                fuzzy_sweep.accumulate(sums, some, ask.centers, ask.m)
    return Moments(Exact(sums.mass, mass), Exact(sums.pull, pull), Exact(sums.objective, objective), hidden)


def _check_reach(blocks: Blocks, ask: CentersQuestion) -> None:
    """Refuse rows that lie farther from all centres than the sums can hold."""
    if not ask.holds_any_row:
        listed = [blocks] if isinstance(blocks, np.ndarray) else blocks
        far = (block for block in listed if block.size and not _box_within(block, ask))
        check_shares(far, ask.reach, lambda rows: _shares(rows, ask))


def _box_within(block: Array, ask: CentersQuestion) -> bool:
    """Whether the box around the rows lies near enough to one centre: no share exceeds the least squared distance."""
    low, high = block.min(axis=1).astype(np.float64), block.max(axis=1).astype(np.float64)
    far = np.maximum(np.abs(low - ask.centers), np.abs(high - ask.centers))
    return bool((far * far).sum(axis=1).min() <= 2.0 ** (ask.reach - 1))


def _shares(rows: Array, ask: CentersQuestion) -> Floats:
    """What each row adds to the objective: sum_c u_c^m d2_c."""
    if ask.m == 1:
        return distances.nearest_centers(rows, ask.centers)[1]
    d2 = distances.squared_distances(rows, ask.centers)
    return np.asarray((hard_or_fuzzy_weights(d2, ask.m) * d2).sum(axis=0))


def _is_small(site: Site, ask: CentersQuestion) -> bool:
    """The paper's rule: a site takes part only if N > C (F + 1) / F, else its sums could be solved for its rows."""
    n_clusters, n_columns = ask.centers.shape
    return bool(site.rows * n_columns <= n_clusters * (n_columns + 1))


def _without_singletons(blocks: list[Array], ask: CentersQuestion) -> tuple[list[Array], int]:
    """The paper's rule: a cluster with one row of this site sends nothing. The other rows, and how many were lone."""
    labels = [distances.nearest_centers(block, ask.centers)[0] for block in blocks]
    sizes = np.bincount(np.concatenate(labels), minlength=len(ask.centers)) if labels else np.zeros(1)
    lone = sizes == 1
    if not lone.any():
        return blocks, 0
    kept = [np.ascontiguousarray(block[:, ~lone[own]]) for block, own in zip(blocks, labels, strict=True)]
    return kept, int(lone.sum())


RoundProtocol = Callable[[CentersQuestion, tuple[PartyId, ...] | None], Protocol[RoundResult]]


def one_round(ask: CentersQuestion, among: tuple[PartyId, ...] | None) -> Protocol[RoundResult]:
    """Where the sums over all rows move the centres; NaN for one without mass."""
    answer = yield from total_with_digits(moments, ask, _read_sums, among)
    cells, abstained = answer.first.hidden.to_integers()
    sums = answer.found
    with np.errstate(divide="ignore", invalid="ignore"):
        centers = sums.pull / sums.mass[:, None]
    return RoundResult(
        centers, sums.mass, sums.objective, cells, abstained, everyone_asked=among is None, answered_by=answer.parties
    )


def _read_sums(sums: Moments) -> RoundSums:
    return RoundSums.from_exact(sums.mass, sums.pull, sums.objective)


def fit(
    view: View,
    start: Floats,
    *,
    m: float,
    tol: float | None,
    max_iter: int,
    parties: Sequence[PartyId],
    rng: np.random.Generator,
    participation: float = 1.0,
    singletons: bool = False,
    small_sites: bool = False,
    ask_round: RoundProtocol = one_round,
) -> Protocol[FitResult]:
    """Move the centres until they move by less than `tol`, or for `max_iter` rounds.

    `ask_round` is another way to ask for the sums of one round, as rows with gaps need.
    """
    centers, history, notes = start, list[Round](), FitNotes()
    places, falling = CenterReseeder(rng, notes), FallingObjective()
    closing: RoundResult | None = None

    def sweep(among: tuple[PartyId, ...] | None) -> Protocol[RoundResult]:
        ask = make_question(view, centers, m, singletons=singletons, small_sites=small_sites)
        return ask_round(falling.tighten(ask), among)

    for number in range(1, max_iter + 1):
        moved = yield from sweep(draw_parties(parties, participation, rng))
        if participation >= 1:
            _require_rows(moved)
        notes.note_suppressed(number, moved)
        target, reseeded = places.reseed_empty(moved, centers, number)
        shift = frobenius(target - centers)
        if target is moved.centers and moved.includes_all(parties) and not (singletons or small_sites):
            falling.observe(moved.objective, view, target)
        else:
            falling.forget()  # rows that were not in this sum may raise the next one
        stays = np.array_equal(target, centers)
        centers = target
        history.append(Round(number, shift, moved.objective))
        yield from report(round=number, shift=shift, objective=moved.objective)
        if tol is not None and shift < tol and not reseeded and moved.mass.any():
            closing = moved if stays and moved.includes_all(parties) else None
            break
    if closing is None:
        closing = yield from sweep(None)
    _require_rows(closing)
    notes.note_empty_clusters(int((closing.mass <= 0).sum()))
    if participation < 1:
        notes.note_participation(
            participation, frobenius(np.where(closing.mass[:, None] > 0, closing.centers, centers) - centers)
        )
    return FitResult(centers, start, closing.objective, closing.mass, tuple(history), tuple(notes.sentences()))


def _require_rows(moved: RoundResult) -> None:
    """Centres that no row had a say in are no result."""
    if moved.mass.any():
        return
    if moved.abstained:
        raise RunFailed(
            "every site has too few rows under the rule small_sites='paper'; remove the setting `small_sites`, or ask "
            "for fewer clusters"
        )
    raise RunFailed("the singleton rule hid every row; remove the setting `singletons`, or ask for fewer clusters")
