"""What noise is worth: between rho, in which spending adds up, and the epsilon and delta that people speak of.

Of Gaussian noise with standard deviation sigma times the most a row can move a sum, rho = 1 / (2 sigma^2). Costs
in rho add up, also where later questions depend on earlier answers. They are an (epsilon, delta) for every delta:

    epsilon = min over a > 1 of  a rho + ln(1 / (a delta)) / (a - 1) + ln(1 - 1/a)

(Canonne, Kamath and Steinke 2020, Proposition 12). A privacy loss distribution gives a smaller figure for the same
noise; that one is reported, this one is enforced.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import ROUND_CEILING, Context
from functools import cache

from scipy.optimize import minimize_scalar

from fedclust.core.errors import StudyError
from fedclust.kernels import elementary

WEAK_EPSILON = 10.0  # an epsilon from which on a guarantee says little
MEANINGLESS_EPSILON = 50.0
REPORTED_DIGITS = Context(prec=8, rounding=ROUND_CEILING)
MAX_DELTA = 0.01  # that is taken at all: showing one row in a hundred whole would keep to it


def epsilon_from_rho(rho: float, delta: float) -> float:
    """The epsilon at a delta of a cost in rho.

    >>> round(epsilon_from_rho(0.024356, 1e-6), 4), epsilon_from_rho(0.0, 1e-6)
    (1.0, 0.0)
    """
    if rho <= 0:
        return 0.0

    def at(log: float) -> float:
        less = elementary.exp_of(log)
        a = 1 + less
        return a * rho - elementary.log_of(a * delta) / less + elementary.log_of(less / a)

    # The minimum is near a - 1 = sqrt(ln(1/delta) / rho).
    near = 0.5 * elementary.log_of(max(-elementary.log_of(delta), 1e-3) / rho)
    found = minimize_scalar(at, bounds=(near - 6, near + 6), method="bounded", options={"xatol": 1e-9})
    return max(0.0, float(found.fun))


@cache
def rho_from_epsilon(epsilon: float, delta: float) -> float:
    """The largest cost in rho that is still within an epsilon at a delta."""
    low, high = 0.0, 1.0
    while epsilon_from_rho(high, delta) < epsilon:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if epsilon_from_rho(middle, delta) <= epsilon else (low, middle)
    return low


def reported_epsilon(rhos: Iterable[float], delta: float) -> float:
    """The epsilon of Gaussian releases by their privacy loss distribution, computed by `dp-accounting`.

    Gaussian noise of several prices is as good as one release at their sum. The noise is discrete; counted in 2^-36 it
    differs from rounded Gaussian noise, to which the figure applies exactly, by less than 2^-40 a number.
    """
    rho = float(f"{math.fsum(rhos):.12g}")  # which parts it came in plays no part
    return _round_up(_epsilon_by_loss_distribution(rho, delta)) if rho > 0 else 0.0


def _round_up(epsilon: float) -> float:
    """To a few digits: the last ones of a Fourier transform depend on the processor.

    >>> _round_up(1.2345678901)
    1.2345679
    """
    return float(REPORTED_DIGITS.create_decimal_from_float(epsilon))


@cache
def _epsilon_by_loss_distribution(rho: float, delta: float) -> float:
    try:
        from dp_accounting.pld import privacy_loss_distribution  # noqa: PLC0415 an extra
    except ImportError:
        raise StudyError("differential privacy needs an extra package; run pip install 'fedclust[dp]'") from None
    step = 1e-4 * max(
        1.0, epsilon_from_rho(rho, delta)
    )  # of losses that are told apart; a coarser one only reports more
    sigma = 1 / math.sqrt(2 * rho)
    loss = privacy_loss_distribution.from_gaussian_mechanism(sigma, value_discretization_interval=step)
    return float(loss.get_epsilon_for_delta(delta))


def meaning(epsilon: float, delta: float) -> str:
    """A plain sentence on what an epsilon promises.

    >>> meaning(1.0, 1e-6)
    'Someone who is 50% sure that one row is in the data can become at most 73% sure, except with a probability of 1e-06.'
    """  # noqa: E501 one line, as it is printed
    chance = 1 / (1 + elementary.exp_of(-epsilon))
    shown = "over 99.9%" if chance > 0.999 else f"at most {chance:.0%}" if chance < 0.99 else f"at most {chance:.1%}"
    return (
        f"Someone who is 50% sure that one row is in the data can become {shown} sure, "
        f"except with a probability of {delta:g}."
    )


def warning(epsilon: float) -> str | None:
    """Return a warning for an epsilon that gives little protection, or None."""
    if epsilon >= MEANINGLESS_EPSILON:
        return (
            f"epsilon = {epsilon:g} gives no protection: it lets someone detect a row with near certainty. "
            "Use 1 or less."
        )
    if epsilon >= WEAK_EPSILON:
        return f"epsilon = {epsilon:g} gives little protection: it lets someone detect nearly every row. Use 1 or less."
    return None


def delta_warning(delta: float, rows: float) -> str | None:
    """Return a warning for a delta that is not below 1 / rows, or None; `rows` is a number that may be shown.

    >>> delta_warning(1e-3, 2000.0)
    'delta = 0.001 is not below 1 / rows: even a method that shows one random row would satisfy it. Use 1e-06 or less.'
    >>> delta_warning(1e-6, 2000.0)
    """
    if delta * rows < 1:
        return None
    few = min(1e-6, 10.0 ** math.floor(math.log10(0.1 / rows)))
    return (
        f"delta = {delta:g} is not below 1 / rows: even a method that shows one random row would satisfy it. "
        f"Use {few:g} or less."
    )
