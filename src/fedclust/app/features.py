"""Selects columns of a federation before clustering, from sums that show no single row.

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
    """Which columns to keep, and which to leave out and why, by their names in the sites' tables.

    `variance` (as a share of the mean square) and `correlation` describe `columns`: the columns as clustering sees
    them, with levels encoded. Both are computed over all sites.
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
    """Choose columns that vary and do not duplicate each other. The result does not depend on how rows are distributed.

    Parameters
    ----------
    variance : drop a column whose variance is at most this share of its mean square (0: constants; None: keep all).
    correlation : of two columns with a larger absolute correlation, drop the later one (None: keep all).
    missing : "refuse", "drop", or "partial", which compares two columns over the rows that have both.
    bounds : public bounds of the columns, as estimators take them.
    """
    if fed.split != "rows":
        raise StudyError("selecting columns works on row splits only; select them before the columns are split")
    if missing not in MISSING_RULES:
        raise StudyError(f"the parameter 'missing' is {missing!r}; choose one of {', '.join(MISSING_RULES)}")
    for name, value in (("variance", variance), ("correlation", correlation)):
        if value is not None and not 0 <= value < 1:
            raise StudyError(f"{name} is {value}; it must be at least 0 and below 1, or None")
    found, _ = fed.run(
        feature_selection.measure_columns(fed.columns, parse_bounds(bounds, len(fed.columns)), missing), missing=missing
    )
    out = feature_selection.columns_to_drop(fed.schema, found, variance, correlation)
    kept = tuple(name for name in fed.schema if name not in out)
    return Features(kept, out, fed.columns, found.variance, found.correlation, found.notes)
