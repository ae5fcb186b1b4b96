"""Judging decides whether a number that we find agrees with the printed one.

It agrees if the printed number is within two units of its last digit from our mean (a count must be equal), or inside
the 95% interval of our repeats. This is the interval that contains a mean of as many new repeats as the paper's 19
times out of 20,

    mean +- t(n - 1) sd sqrt(1 / n + 1 / n')        n our repeats, n' the paper's, t Student's .975 quantile

which for n' = 1 is the interval of a single run.
"""

from __future__ import annotations

import math

from scipy import stats

from papers.reproduction.published import Printed

LEVEL = 0.95
EASE = 1e-9  # of a unit: allows for binary rounding of decimals


def judged(printed: Printed, mean: float, half: float) -> str:
    """The condition by which a printed number agrees with our mean and half-interval; empty if it does not agree.

    >>> judged(Printed("", "0.48", ""), 0.46, 0.0), judged(Printed("", "0.48", ""), 0.45, 0.0)
    ('digits', '')
    """
    if abs(mean - printed.value) <= (printed.units + EASE) * printed.unit:
        return "digits"
    return "interval" if abs(mean - printed.value) <= half else ""


def half_width(sd: float, n: int, repeats: int) -> float:
    """Half the interval of n repeats against a paper's `repeats`; 0 for a single run or for runs that are equal."""
    if n < 2 or not math.isfinite(sd):
        return 0.0
    return float(stats.t.ppf(0.5 + LEVEL / 2, n - 1)) * sd * math.sqrt(1 / n + 1 / repeats)


def as_good(printed: Printed, value: float) -> bool:
    """Whether a value of ours, in as many digits as are printed, is at least as good.

    >>> as_good(Printed("", "0.53", "high"), 0.5251), as_good(Printed("", "0.53", "low"), 0.5351)
    (True, False)
    """
    ours = round(value, printed.digits)
    return ours >= printed.value if printed.better == "high" else ours <= printed.value
