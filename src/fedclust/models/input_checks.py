"""Checks of parameters and values before a computation, so that users see a clear message and no bare TypeError."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fedclust.core.effects import ALL_PARTIES
from fedclust.core.errors import DataError, StudyError
from fedclust.core.types import Array
from fedclust.federation.federation import MAX_MAGNITUDE

SEED_LIMIT = 1 << 32  # the random stream of the papers' "box" initial centres takes no larger seed


def require(condition: bool, sentence: str) -> None:  # noqa: FBT001
    """Refuse a parameter unless the condition holds; the sentence says what to do."""
    if not condition:
        raise StudyError(sentence)


def is_whole_number(value: Any) -> bool:
    """Whether a value is a whole number; True and "2" are not."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def is_real_number(value: Any) -> bool:
    """Whether a value is a number that can be compared; NaN cannot."""
    return is_whole_number(value) or (isinstance(value, (float, np.floating)) and not np.isnan(value))


def is_quorum(value: Any) -> bool:
    """Whether a value says how many parties must answer."""
    if isinstance(value, str):
        return value == ALL_PARTIES
    return (is_whole_number(value) and value >= 1) or (isinstance(value, float) and 0 < value <= 1)


def check_quorum_reachable(quorum: Any, sites: int) -> None:
    """Refuse a quorum of more sites than there are; with a single site any quorum is allowed."""
    require(
        sites == 1 or not is_whole_number(quorum) or quorum <= sites,
        f"quorum is {quorum}, but there are only {sites} sites; use at most {sites}, a share such as 0.8, or 'all'",
    )


def limit_quorum(quorum: Any, sites: int) -> Any:
    """Return the quorum, limited to the number of sites that are left."""
    return min(quorum, sites) if is_whole_number(quorum) else quorum


def seed_from_random_state(given: Any) -> int:
    """Return the seed of a `random_state`; a NumPy generator draws one, as in scikit-learn.

    >>> seed_from_random_state(7)
    7
    >>> one, two = (seed_from_random_state(np.random.RandomState(0)) for _ in range(2))
    >>> one == two
    True
    """
    if given is None or given is np.random:
        return secrets.randbits(31)
    if isinstance(given, np.random.RandomState):
        return int(given.randint(1 << 31, dtype=np.int64))
    if isinstance(given, np.random.Generator):
        return int(given.integers(1 << 31))
    require(
        is_whole_number(given) and 0 <= given < SEED_LIMIT,
        f"random_state is {given!r}; it must be a whole number from 0 to {SEED_LIMIT - 1}, a NumPy generator, or None",
    )
    return int(given)


def require_rows(rows: int, missing: str) -> int:
    """Return the number of rows that take part; refuse if there are none."""
    if not rows:
        none = "no site has a row" if missing == "refuse" else "every row has missing values and was left out"
        remedy = "check the sites' data" if missing == "refuse" else "remove the columns with most missing values"
        raise DataError(f"n_samples=0: {none}; {remedy}")
    return rows


def check_magnitudes(columns: Sequence[str], blocks: Iterable[Array], site: str | None = None) -> None:
    """Refuse values that are too large for a fit: their squares would overflow, and no centre would be nearest.

    >>> check_magnitudes(["age", "bp"], [np.array([[40.0, 50.0], [1e200, 120.0]])])
    Traceback (most recent call last):
    fedclust.core.errors.DataError: column 'bp' holds 1 value beyond 2^127; correct or remove these rows
    """
    counts = np.zeros(len(columns), np.int64)
    for block in blocks:
        if block.size and not (block.min() >= -MAX_MAGNITUDE and block.max() <= MAX_MAGNITUDE):  # NaN is neither
            counts += (np.abs(block) > MAX_MAGNITUDE).sum(axis=1)
    if counts.any():
        raise DataError(
            f"{_describe_first_column(columns, counts, '{values} beyond 2^127', site)}; correct or remove these rows"
        )


def check_complete(columns: Sequence[str], rows: Array, *, gaps: bool, remedy: str) -> None:
    """Refuse infinite values, and missing values unless `gaps` allows them; `remedy` says what to do."""
    if np.isfinite(rows).all():
        return
    infinite, missing = np.isinf(rows).sum(axis=0), np.isnan(rows).sum(axis=0)
    if infinite.any():
        raise DataError(
            f"{_describe_first_column(columns, infinite, 'infinite {values}')}; correct or remove these rows"
        )
    if not gaps:
        raise DataError(f"{_describe_first_column(columns, missing, 'missing {values} (NaN)')}; {remedy}")


def _describe_first_column(columns: Sequence[str], counts: Array, what: str, site: str | None = None) -> str:
    """Describe the first column with unusable values and their number, never a value."""
    first, *others = np.flatnonzero(counts).tolist()
    more = f" (as do{'es' * (len(others) == 1)} {len(others)} more column{'s' * (len(others) > 1)})" if others else ""
    where = "" if site is None else f" of site '{site}'"
    held = what.format(values="value" if counts[first] == 1 else "values")
    return f"column '{columns[first]}'{where} holds {counts[first]} {held}{more}"


def fill_masked(X: Any) -> Any:
    """Return rows unchanged, except for NumPy's masked arrays, whose hidden values become NaN.

    >>> fill_masked(np.ma.array([[1, 2]], mask=[[False, True]])).tolist()
    [[1.0, nan]]
    """
    if not isinstance(X, np.ma.MaskedArray):
        return X
    return np.ma.filled(X.astype(np.float64 if X.dtype.kind in "fiub" else object), np.nan)
