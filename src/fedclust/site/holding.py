"""A party's rows as its handlers see them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import cached_property

import numpy as np

from fedclust.core.errors import OutOfBounds
from fedclust.core.site import View
from fedclust.core.types import Array, Floats, PartyId
from fedclust.site.sources import Source, Survey, survey


class Holding:
    """Rows under a party's name, surveyed once; of rows in memory the last view is kept."""

    def __init__(self, party: PartyId, source: Source) -> None:
        self.party = party
        self.source = source
        self._admitted: View | None = None
        self._view: View | None = None
        self._seen: list[Array] | None = None

    @cached_property
    def survey(self) -> Survey:
        return survey(self.source)

    @cached_property
    def largest(self) -> Floats:
        return self.survey.largest

    def blocks(self, view: View) -> Iterable[Array]:
        """The rows in blocks of columns, as the study looks at them; a column beyond its bound is refused."""
        if view is not self._admitted and not view.admits(self.largest):
            raise OutOfBounds(f"a column of {self.party} exceeds its bound; scale the columns or declare wider bounds")
        self._admitted = view
        if not self.source.resident:
            return (view.of(block) for block in self.source.blocks())
        if self._seen is None or not view.same(self._view):
            self._view, self._seen = view, [view.of(block) for block in self.source.blocks()]
        return self._seen

    @cached_property
    def row_key(self) -> bytes:
        """A digest that two holdings share when they hold the same rows in the same order, by id."""
        ids = self.source.ids()
        digest = hashlib.sha256(str(self.survey.rows).encode())
        for one in () if ids is None else ids:
            digest.update(b"\0" + str(one).encode())
        return digest.digest()


class Turn:
    """One step at one site: what `core.site.Site` promises to a handler."""

    def __init__(self, holding: Holding, stream: tuple[int, int], memory: Mapping[str, Array]) -> None:
        self._holding = holding
        self._stream = stream
        self.memory = memory

    @property
    def party(self) -> PartyId:
        return self._holding.party

    @property
    def columns(self) -> tuple[str, ...]:
        return self._holding.source.columns

    @property
    def rows(self) -> int:
        return self._holding.survey.rows

    @property
    def largest(self) -> Floats:
        return self._holding.largest

    @cached_property
    def rng(self) -> np.random.Generator:
        """The stream that (study seed, step, party) determines."""
        name = int.from_bytes(hashlib.sha256(self.party.encode()).digest()[:8], "little")
        return np.random.default_rng((*self._stream, name))

    def blocks(self, view: View) -> Iterable[Array]:
        return self._holding.blocks(view)

    def row_key(self) -> bytes:
        return self._holding.row_key
