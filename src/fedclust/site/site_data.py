"""A party's rows as its handlers see them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property

import numpy as np

from fedclust.core.errors import DataError, KeysRefused, OutOfBounds
from fedclust.core.noise_price import FINITE, PricedQuestion
from fedclust.core.question_types import STRICT, GapsQuestion, ViewedQuestion
from fedclust.core.site_interface import Order, Vault, View
from fedclust.core.types import Array, Floats, Ints, PartyId
from fedclust.questions.missing_values import MISSING
from fedclust.questions.schema import Schema
from fedclust.site.sources import Source, Survey, in_order, survey, taking_part


class Holding:
    """Rows under a party's name, surveyed once for each way with gaps; of rows in memory the last view is kept.

    `schema` is what the party declares its columns to be. Rows that sites agreed on are read from the `whole` of them.
    """

    def __init__(
        self, party: PartyId, source: Source, schema: Schema | None = None, *, whole: Source | None = None
    ) -> None:
        self.party = party
        self.source = source
        self.whole = source if whole is None else whole
        self.schema = dict(schema or {})
        self._surveys: dict[str, Survey] = {}
        self._admitted: View | None = None
        self._view: View | None = None
        self._seen: list[Array] | None = None

    def ordered(self, order: Order) -> Holding:
        """The rows that sites agreed on, in memory, in the order they agreed on."""
        found = Holding(self.party, in_order(self.whole, order.rows), self.schema, whole=self.whole)
        found.row_key = order.key  # says nothing of ids to those who do not share them
        return found

    @property
    def survey(self) -> Survey:
        """The facts of rows that may have no gaps."""
        return self.under("refuse")

    def under(self, missing: str) -> Survey:
        """The facts of the rows that take part under a way with gaps; refuses rows that cannot."""
        if missing not in (*MISSING, FINITE):
            raise DataError(f"{self.party} was asked to treat gaps in a way it does not know; update fedclust")
        if missing not in self._surveys:
            self._surveys[missing] = survey(self.source, missing)
        return self._surveys[missing]

    @property
    def size(self) -> int:
        """How many values there are, where that is known without reading; else none."""
        if not self.source.resident:
            return 0
        return next((found.rows for found in self._surveys.values()), 0) * len(self.source.columns)

    @cached_property
    def declared(self) -> dict[str, bytes]:
        return {name: column.fingerprint() for name, column in self.schema.items()}

    def blocks(self, view: View) -> Iterable[Array]:
        """The rows in blocks of columns, as the study looks at them; a column beyond its bound is refused."""
        if view is not self._admitted and not view.admits(self.under(view.missing).largest):
            raise OutOfBounds(f"a column of {self.party} exceeds its bound; scale the columns or declare wider bounds")
        self._admitted = view
        if not self.source.resident:
            return self._looked_at(view)
        if self._seen is None or not view.same(self._view):
            self._view, self._seen = view, list(self._looked_at(view))
        return self._seen

    def _looked_at(self, view: View) -> Iterator[Array]:
        return (view.of(taking_part(block, view.missing)) for block in self.source.blocks())

    @cached_property
    def digest(self) -> bytes:
        """A digest that changes with the rows: of every value in memory, of the extremes of what is streamed."""
        digest = hashlib.sha256(repr(self.source.columns).encode())
        if self.source.resident:
            for block in self.source.blocks():
                digest.update(np.ascontiguousarray(block).tobytes())
            return digest.digest()
        found = self.under("partial")
        digest.update(str(found.rows).encode() + found.lo.tobytes() + found.hi.tobytes())
        return digest.digest()

    @cached_property
    def row_key(self) -> bytes:
        """A digest that two holdings share when they hold the same rows in the same order, by id."""
        ids = self.source.ids()
        digest = hashlib.sha256(str(self.survey.rows).encode())
        for one in () if ids is None else ids:
            digest.update(b"\0" + str(one).encode())
        return digest.digest()


def missing_in(message: object) -> str:
    """How a question reads rows with gaps, as its type says; one that does not say gets no rows with gaps."""
    if isinstance(message, PricedQuestion):
        return FINITE  # whatever it says: a site that refuses its rows would tell of them unpaid
    if isinstance(message, GapsQuestion):
        return message.rows_with_gaps()
    if isinstance(message, ViewedQuestion):
        return message.view.missing
    return STRICT


class Turn:
    """One step at one site: what `core.site.Site` promises to a handler."""

    def __init__(
        self,
        holding: Holding,
        stream: tuple[int, int],
        memory: Mapping[str, Array],
        missing: str = "refuse",
        vault: Callable[[], Vault] | None = None,
    ) -> None:
        self._holding = holding
        self._missing = missing
        self._stream = stream
        self.memory = memory
        self._vault = vault

    @property
    def party(self) -> PartyId:
        return self._holding.party

    @property
    def columns(self) -> tuple[str, ...]:
        return self._holding.source.columns

    @property
    def declared(self) -> Mapping[str, bytes]:
        return self._holding.declared

    @property
    def rows(self) -> int:
        return self._holding.under(self._missing).rows

    @property
    def left_out(self) -> int:
        return self._holding.under(self._missing).left_out

    @property
    def gaps(self) -> Ints:
        return self._holding.under(self._missing).gaps

    @property
    def largest(self) -> Floats:
        return self._holding.under(self._missing).largest

    @cached_property
    def rng(self) -> np.random.Generator:
        """The stream that (study seed, step, party) determines."""
        return np.random.default_rng((*self._stream, self._name))

    def stream(self, seed: int) -> np.random.Generator:
        """The stream that (seed, party) determines, in whatever step."""
        return np.random.default_rng((seed, self._name))

    @property
    def _name(self) -> int:
        return int.from_bytes(hashlib.sha256(self.party.encode()).digest()[:8], "little")

    @property
    def vault(self) -> Vault:
        if self._vault is None:
            raise KeysRefused("no keys are kept here")
        return self._vault()

    def blocks(self, view: View) -> Iterable[Array]:
        return self._holding.blocks(view)

    def ids(self) -> Array | None:
        return self._holding.whole.ids()

    def row_key(self) -> bytes:
        return self._holding.row_key


class RowlessTurn(Turn):
    """The same for a question that says it reads nothing: neither rows nor what was remembered of them is there."""

    def __init__(
        self,
        holding: Holding,
        stream: tuple[int, int],
        memory: Mapping[str, Array],  # noqa: ARG002
        missing: str = STRICT,
        vault: Callable[[], Vault] | None = None,
    ) -> None:
        super().__init__(holding, stream, {}, missing, vault)

    @property
    def rows(self) -> int:
        raise self._no_rows()

    @property
    def left_out(self) -> int:
        raise self._no_rows()

    @property
    def gaps(self) -> Ints:
        raise self._no_rows()

    @property
    def largest(self) -> Floats:
        raise self._no_rows()

    def blocks(self, view: View) -> Iterable[Array]:  # noqa: ARG002
        raise self._no_rows()

    def ids(self) -> Array | None:
        raise self._no_rows()

    def row_key(self) -> bytes:
        raise self._no_rows()

    def _no_rows(self) -> TypeError:
        return TypeError("this question was declared to read nothing of rows; say reads='rows' at its handler")
