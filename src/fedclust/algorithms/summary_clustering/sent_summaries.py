"""What a site remembers of the summaries it sent, so that rows of a table that grows are not sent twice.

A site recognises rows by fingerprints under a key of its own, with how often each occurred: if a table holds a row
three times and two are known, one row is new. A site cannot distinguish a row that was sent before from another with
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

SUMMARY_PREFIX = "summaries."
FINGERPRINT_BYTES = 8


@dataclass(frozen=True)
class SentSummaries:
    """The rows that were summarised or wait, and all summaries sent: their places in the view of `origin`."""

    run: Array  # the run of the last answer, as bytes
    key: Array
    fingerprints: Ints  # of rows that were summarised or wait, sorted
    copies: Ints  # how many rows have each
    waiting: Floats  # rows that wait, in original units
    places: Floats
    weights: Floats
    origin: Floats  # empty where columns were not scaled
    spread: Floats

    @classmethod
    def empty(cls, columns: int) -> SentSummaries:
        """No rows and no summaries, with a new key."""
        none, key = np.empty(0), np.frombuffer(secrets.token_bytes(32), np.uint8)
        counts = np.empty(0, np.int64)
        rows = np.empty((0, columns))
        return cls(np.empty(0, np.uint8), key, counts, counts, rows, rows, none, none, none)

    @staticmethod
    def is_in(memory: Mapping[str, Array]) -> bool:
        """Whether a memory holds an earlier round."""
        return SUMMARY_PREFIX + "key" in memory

    @classmethod
    def from_memory(cls, memory: Mapping[str, Array], columns: int) -> SentSummaries:
        """What a memory holds, or nothing."""
        if not cls.is_in(memory):
            return cls.empty(columns)
        return cls(**{f.name: np.asarray(memory[SUMMARY_PREFIX + f.name]) for f in fields(cls)})

    def to_memory(self) -> dict[str, Array]:
        """All of it as arrays under names of its own."""
        return {SUMMARY_PREFIX + f.name: np.ascontiguousarray(vars(self)[f.name]) for f in fields(self)}

    def belongs_to(self, run: str) -> bool:
        """Whether the last answer was in this run."""
        return self.run.tobytes() == run.encode()

    def has_rows_missing_in(self, rows: Floats) -> bool:
        """Whether known rows are not among these, as after a deletion."""
        fingerprints, counts = np.unique(self._fingerprints_of(rows), return_counts=True)
        return bool((_counts_of(self.fingerprints, fingerprints, counts) < self.copies).any())

    def new_rows(self, rows: Floats) -> Floats:
        """The rows beyond those known, in their order: of equal ones the later."""
        found, at, counts = np.unique(self._fingerprints_of(rows), return_inverse=True, return_counts=True)
        order = np.argsort(at, kind="stable")
        before = np.empty(len(rows), np.int64)  # how many equal rows came earlier
        before[order] = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        return rows[before >= _counts_of(found, self.fingerprints, self.copies)[at]]

    def with_known_rows(self, new: Floats) -> SentSummaries:
        """The same with more rows known."""
        every = np.concatenate([np.repeat(self.fingerprints, self.copies), self._fingerprints_of(new)])
        fingerprints, copies = np.unique(every, return_counts=True)
        return replace(self, fingerprints=fingerprints, copies=copies.astype(np.int64))

    def places_in(self, view: View) -> Floats:
        """The places of all summaries sent, in any view of the same rows: a mean moves as its rows do."""
        first = self._first_view(view)
        return self.places if view.shows_same(first) else view.transform_points(first.to_original_units(self.places))

    def with_sent(self, places: Floats, weights: Floats, view: View) -> SentSummaries:
        """The same with more summaries sent; all are kept in the view of the first, so that no conversion rounds."""
        first = self._first_view(view) if len(self.places) else view
        own = places if view.shows_same(first) else first.transform_points(view.to_original_units(places))
        return replace(
            self,
            places=np.concatenate([self.places, own]),
            weights=np.concatenate([self.weights, weights]),
            origin=np.empty(0) if first.origin is None else first.origin,
            spread=np.empty(0) if first.spread is None else first.spread,
        )

    def _first_view(self, view: View) -> View:
        """The view in which the first summaries were sent."""
        plain = View(view.exponents, missing=view.missing)
        return replace(plain, origin=self.origin, spread=self.spread) if len(self.origin) else plain

    def _fingerprints_of(self, rows: Floats) -> Ints:
        """A fingerprint of each row, which nobody can compute without the key."""
        key, exact = self.key.tobytes(), np.ascontiguousarray(rows) + 0.0  # -0.0 becomes 0.0
        hashed = (hashlib.blake2b(row.tobytes(), digest_size=FINGERPRINT_BYTES, key=key).digest() for row in exact)
        return np.frombuffer(b"".join(hashed), "<i8").astype(np.int64)


def _counts_of(wanted: Ints, fingerprints: Ints, counts: Ints) -> Ints:
    """The count of each wanted fingerprint among sorted ones, 0 where it does not occur."""
    if not len(fingerprints):
        return np.zeros(len(wanted), np.int64)
    at = np.minimum(np.searchsorted(fingerprints, wanted), len(fingerprints) - 1)
    return np.where(fingerprints[at] == wanted, counts[at], 0).astype(np.int64)
