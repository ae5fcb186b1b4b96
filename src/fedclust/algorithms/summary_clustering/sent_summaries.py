"""What a site remembers of the summaries it sent, so that a table that grows is not told again.

Rows are known again by fingerprints under a key of the site's own, with how often each was there: of a table that holds
a row three times, of which two are known, one row is new. A site cannot tell a row that came again from another with
the same values; both count as known.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np

from fedclust.core.site_interface import View
from fedclust.core.types import Array, Floats, Ints

PREFIX = "summaries."
MARK = 8  # bytes of a fingerprint


@dataclass(frozen=True)
class Told:
    """Rows that were told or wait, and all summaries sent, as they were sent: places in a view of that origin."""

    run: Array  # the run of the last answer, as bytes
    key: Array
    marks: Ints  # fingerprints of rows that were told or wait, in order
    copies: Ints  # how many rows have each
    waiting: Floats  # rows that wait, in original units
    places: Floats
    weights: Floats
    origin: Floats  # none where columns were seen as they are
    spread: Floats

    @classmethod
    def nothing(cls, columns: int) -> Told:
        none, key = np.empty(0), np.frombuffer(secrets.token_bytes(32), np.uint8)
        marks = np.empty(0, np.int64)
        rows = np.empty((0, columns))
        return cls(np.empty(0, np.uint8), key, marks, marks, rows, rows, none, none, none)

    @staticmethod
    def known(memory: Mapping[str, Array]) -> bool:
        """Whether a memory holds an earlier round."""
        return PREFIX + "key" in memory

    @classmethod
    def recalled(cls, memory: Mapping[str, Array], columns: int) -> Told:
        """What a memory holds, or nothing."""
        if not cls.known(memory):
            return cls.nothing(columns)
        return cls(**{f.name: np.asarray(memory[PREFIX + f.name]) for f in fields(cls)})

    def remembered(self) -> dict[str, Array]:
        """All of it as arrays under names of its own."""
        return {PREFIX + f.name: np.ascontiguousarray(getattr(self, f.name)) for f in fields(self)}

    def of_run(self, run: str) -> bool:
        return self.run.tobytes() == run.encode()

    def lacks_of(self, rows: Floats) -> bool:
        """Whether rows that are known here are not among these, as after a deletion."""
        marks, counts = np.unique(self._marked(rows), return_counts=True)
        return bool((_looked_up(self.marks, marks, counts) < self.copies).any())

    def new_among(self, rows: Floats) -> Floats:
        """The rows beyond those known, in their order: of equal ones the later."""
        marks, at, counts = np.unique(self._marked(rows), return_inverse=True, return_counts=True)
        order = np.argsort(at, kind="stable")
        before = np.empty(len(rows), np.int64)  # how many equal rows came earlier
        before[order] = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        return rows[before >= _looked_up(marks, self.marks, self.copies)[at]]

    def knowing(self, new: Floats) -> Told:
        """With more rows known."""
        all_marks = np.concatenate([np.repeat(self.marks, self.copies), self._marked(new)])
        marks, copies = np.unique(all_marks, return_counts=True)
        return replace(self, marks=marks, copies=copies.astype(np.int64))

    def seen(self, view: View) -> Floats:
        """The places of all summaries sent, in any view of the same rows: a mean moves as its rows do."""
        first = self._first(view)
        return self.places if view.same(first) else view.points(first.back(self.places))

    def having_sent(self, places: Floats, weights: Floats, view: View) -> Told:
        """With more summaries sent; all are kept in the view of the first, so that going to and fro rounds nothing."""
        first = self._first(view) if len(self.places) else view
        own = places if view.same(first) else first.points(view.back(places))
        return replace(
            self,
            places=np.concatenate([self.places, own]),
            weights=np.concatenate([self.weights, weights]),
            origin=np.empty(0) if first.origin is None else first.origin,
            spread=np.empty(0) if first.spread is None else first.spread,
        )

    def _first(self, view: View) -> View:
        plain = View(view.exponents, missing=view.missing)
        return replace(plain, origin=self.origin, spread=self.spread) if len(self.origin) else plain

    def _marked(self, rows: Floats) -> Ints:
        """A fingerprint of each row, which nobody can make without the key."""
        key, exact = self.key.tobytes(), np.ascontiguousarray(rows) + 0.0  # both zeros are one
        found = b"".join(hashlib.blake2b(row.tobytes(), digest_size=MARK, key=key).digest() for row in exact)
        return np.frombuffer(found, "<i8").astype(np.int64)


def _looked_up(wanted: Ints, marks: Ints, counts: Ints) -> Ints:
    """The count of each wanted mark among sorted ones, 0 where it is not there."""
    if not len(marks):
        return np.zeros(len(wanted), np.int64)
    at = np.minimum(np.searchsorted(marks, wanted), len(marks) - 1)
    return np.where(marks[at] == wanted, counts[at], 0).astype(np.int64)
