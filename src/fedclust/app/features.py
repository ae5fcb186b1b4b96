"""Choosing columns over a federation before clustering it, from sums that no row can be seen in.

>>> import numpy as np, fedclust as fc
>>> X = np.random.default_rng(0).normal(size=(90, 2))
>>> X = np.c_[X, 2.5 * X[:, 0], np.ones(90)]
>>> found = fc.select_features(fc.Federation.local({"a": X[:30], "b": X[30:]}, columns=["dose", "age", "mg", "unit"]))
>>> found.kept, found.dropped
(('dose', 'age'), {'mg': 'correlation +1.000 with dose', 'unit': 'constant'})
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedclust.core.errors import StudyError
from fedclust.core.types import Floats
from fedclust.federation.federation import Federation, parse_bounds
from fedclust.questions import feature_selection
from fedclust.questions.missing_values import MISSING_RULES


@dataclass(frozen=True)
class Features:
    """What to keep, what to leave out and why, by the names in the sites' tables.

    `variance` (each column's share of its mean square) and `correlation` are those of `columns`, the columns as
    clustering sees them, levels encoded; both are totals over all sites.
    """

    kept: tuple[str, ...]
    dropped: dict[str, str]
    columns: tuple[str, ...]
    variance: Floats
    correlation: Floats
    notes: tuple[str, ...]


def select_features(
    fed: Federation,
    *,
    variance: float | None = 0.0,
    correlation: float | None = 0.95,
    missing: str = "refuse",
    bounds: Any = None,
) -> Features:
    """Choose columns that vary and do not repeat each other; the same for every way of spreading the rows.

    Parameters
    ----------
    variance : a column goes whose variance is at most this share of its mean square (0: constants; None: none goes).
    correlation : of two columns that correlate by more than this in magnitude, the later goes (None: none goes).
    missing : "refuse", "drop", or "partial": a pair of columns is compared over the rows that have both.
    bounds : public bounds of the columns, as estimators take them.
    """
    if fed.split != "rows":
        raise StudyError(
            "columns are compared row by row, which needs whole rows; select them before splitting columns"
        )
    if missing not in MISSING_RULES:
        raise StudyError(f"missing is {missing!r}; choose one of {', '.join(MISSING_RULES)}")
    for name, value in (("variance", variance), ("correlation", correlation)):
        if value is not None and not 0 <= value < 1:
            raise StudyError(f"{name} is {value}; it must be at least 0 and below 1, or None")
    found, _ = fed.run(
        feature_selection.measure_columns(fed.columns, parse_bounds(bounds, len(fed.columns)), missing), missing=missing
    )
    out = feature_selection.columns_to_drop(fed.schema, found, variance, correlation)
    kept = tuple(name for name in fed.schema if name not in out)
    return Features(kept, out, fed.columns, found.variance, found.correlation, found.notes)
