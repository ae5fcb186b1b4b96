"""Scores an attack: how many true rows it recovers exactly or nearly, and how many of its points are wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedclust.core.types import Array, PartyId
from fedclust.privacy.attacks.transcript import RecoveredPoint

EXACT_TOLERANCE = 1e-9  # of a column's largest magnitude
NEARLY_TOLERANCE = 1e-3  # of a column's range


@dataclass(frozen=True)
class Score:
    """Distinct rows recovered exactly, further ones nearly, points that are neither, and whose rows they are."""

    exact: int = 0
    nearly: int = 0
    wrong: int = 0
    owners: tuple[PartyId, ...] = ()

    def __add__(self, other: Score) -> Score:
        owners = tuple(sorted({*self.owners, *other.owners}))
        return Score(self.exact + other.exact, self.nearly + other.nearly, self.wrong + other.wrong, owners)


def score(found: Sequence[RecoveredPoint], rows: Mapping[PartyId, Array]) -> Score:
    """Compare points with the rows of all parties.

    >>> rows = {"a": np.array([[0.0, 1.0], [2.0, 4.0]])}
    >>> score([RecoveredPoint(np.array([2.0, 4.0]), 1, ("a",), "a row")], rows)
    Score(exact=1, nearly=0, wrong=0, owners=('a',))
    """
    X = np.concatenate([np.asarray(own, np.float64) for own in rows.values()])
    owner = np.repeat(list(rows), [len(own) for own in rows.values()])
    fine = EXACT_TOLERANCE * np.abs(X).max(axis=0, initial=0.0)
    coarse = NEARLY_TOLERANCE * (X.max(axis=0) - X.min(axis=0))
    exact, nearly, wrong = set[int](), set[int](), 0
    for one in found:
        gap = np.abs(X - one.point)
        hit, close = np.flatnonzero((gap <= fine).all(axis=1)), np.flatnonzero((gap <= coarse).all(axis=1))
        if len(hit):
            exact.add(int(hit[0]))
        elif len(close):
            nearly.add(int(close[0]))
        else:
            wrong += 1
    return Score(len(exact), len(nearly - exact), wrong, tuple(sorted({str(owner[i]) for i in exact})))
