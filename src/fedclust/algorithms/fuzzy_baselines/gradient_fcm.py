"""Federated fuzzy c-means by gradient descent (GDF-FCM): parties look ahead, the server takes a small step.

Every round a party runs a few rounds of fuzzy c-means from the server's centres V. With the memberships u that it ends
at, and the centres w to which they lead, the gradient of its own cost at V, summed over its rows, is

    g_c = 2 sum_i u_ic^m (v_c - x_i) = 2 (sum_i u_ic^m) (v_c - w_c)

The server averages gradients by row counts and moves V by -step times the mean. One `total` a round.

The cost is a sum over a party's rows, so a step that suits parties of 100 rows is too long for parties of 1,000. This
reading gives the published figures: all eight sets settle at step .005; at .05 four run away, a fifth swings to and fro
and a sixth ends with coinciding centres, where the paper counts six failures. With a mean over rows .005 hardly
moves, and the gradient at w itself, which is nearly 0, leads nowhere.

Papers: Pedrycz, "Federated FCM: clustering under privacy requirements"; compared in Corcuera Barcena et al., "Federated
c-means and fuzzy c-means clustering algorithms for horizontally and vertically partitioned data", Table III.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedclust.algorithms.cmeans.fit_result import FitResult, Round, frobenius
from fedclust.algorithms.fuzzy_baselines import local_fcm
from fedclust.algorithms.method_contracts import fits_gradient
from fedclust.algorithms.shared.participation import draw_parties
from fedclust.core.effects import Protocol, handler, report, total
from fedclust.core.errors import RunFailed
from fedclust.core.question_types import ViewedQuestion
from fedclust.core.release import Release, additive, additive_counts
from fedclust.core.ring import Exact
from fedclust.core.site_interface import Site, View
from fedclust.core.types import Floats, PartyId, Units
from fedclust.kernels.units import bounds_above, farthest_in_columns, unit_of

GRADIENT_BITS = 56  # of a gradient, below its bound; those of 2^34 rows at each of 2 parties fit the ring
RUNAWAY_BITS = 20  # centres 2^20 times as far out as any row will not come back
GRADIENT_LOSSY_NOTE = (
    "Not lossless: the centres follow averaged gradients, so the result may differ from that of the pooled rows."
)


@dataclass(frozen=True)
class GradientQuestion(ViewedQuestion):
    """Where the centres are, and how many rounds to look ahead."""

    view: View
    centers: Floats
    m: float
    rounds: int

    @property
    def reach(self) -> Floats:
        """A bound on |v - x| in each column."""
        return farthest_in_columns(self.view.exponents, self.centers)

    @property
    def unit(self) -> Units:
        """The unit of a gradient, column by column."""
        return unit_of(bounds_above(self.reach), GRADIENT_BITS)


@dataclass(frozen=True)
class LocalGradient(Release):
    rows: Exact = additive_counts("the total number of rows")
    gradient: Exact = additive("the sum of the sites' gradients, each multiplied by the site's number of rows")
    objective: Exact = additive("the sum of the weighted squared distances to the centres", least=0.0)


# Gradients of one site alone, which in few rounds are its rows; a published method to compare with.
@handler(releases=LocalGradient, withheld=True, contract=fits_gradient)
def local_gradient(site: Site, ask: GradientQuestion) -> LocalGradient:
    """The gradient of this party's cost at the server's centres, by the memberships it would end at."""
    ahead = ask.centers
    for _ in range(ask.rounds):
        ahead, mass = local_fcm.run_local_round(site, ask.view, ahead, ask.m)
    gradient = 2 * mass[:, None] * (ask.centers - ahead)
    weighted = Exact.from_floats(site.rows * gradient, unit=np.tile(ask.unit, (len(ahead), 1)))
    return LocalGradient(
        Exact.from_counts(site.rows), weighted, local_fcm.own_objective(site, ask.view, ask.centers, ask.m)
    )


def fit(
    view: View,
    start: Floats,
    *,
    m: float,
    step: float,
    local_rounds: int,
    tol: float | None,
    max_iter: int,
    parties: Sequence[PartyId] = (),
    participation: float = 1.0,
    rng: np.random.Generator | None = None,
) -> Protocol[FitResult]:
    """Follow the averaged gradient until the centres move by less than `tol`, or for `max_iter` rounds.

    With a stream, a fresh share of the parties is asked in each round.
    """
    centers, history = start, list[Round]()
    for number in range(1, max_iter + 1):
        among = None if rng is None else draw_parties(parties, participation, rng)
        sums = yield from total(local_gradient, GradientQuestion(view, centers, m, local_rounds), among=among)
        gradient = sums.gradient.to_floats() / sums.rows.to_integers()[0]
        shift = frobenius(step * gradient)
        centers = centers - step * gradient
        objective = float(sums.objective.to_floats())
        history.append(Round(number, shift, objective))
        yield from report(round=number, shift=shift, objective=objective)
        if (np.abs(centers) > np.ldexp(1.0, view.exponents + RUNAWAY_BITS)).any():
            raise RunFailed(
                f"the centres diverged in round {number}, because the parameter 'step' is {step:g}; choose a "
                "smaller value"
            )
        if tol is not None and shift < tol:
            break
    notes = [GRADIENT_LOSSY_NOTE, *local_fcm.participation_notes(participation)]
    return (yield from local_fcm.finish_fit(view, centers, m, start=start, history=history, notes=notes))
