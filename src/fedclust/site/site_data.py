"""A party's rows as its handlers see them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from fedclust.core import wire
from fedclust.core.effects import Handler, SealedMessages
from fedclust.core.errors import DataError, KeysRefused, OutOfBounds
from fedclust.core.noise_price import FINITE_ROWS_ONLY, PricedQuestion
from fedclust.core.question_types import REFUSE_GAPS, GapsQuestion, ViewedQuestion
from fedclust.core.site_interface import RowOrder, Vault, View
from fedclust.core.types import Array, Floats, Ints, PartyId
from fedclust.kernels.row_sample import WHOLE_TABLE, sampled_pieces
from fedclust.questions.missing_values import MISSING_RULES
from fedclust.questions.schema import Schema
from fedclust.site.sources import Source, Survey, select_rows, survey, take_rows


class SiteData:
    """Rows under a party's name, surveyed once per rule for missing values; for rows in memory the last view is cached.

    `schema` is the party's declaration of its columns. Rows that sites agreed on are read from their `full_source`.
    """

    def __init__(
        self, party: PartyId, source: Source, schema: Schema | None = None, *, full_source: Source | None = None
    ) -> None:
        self.party = party
        self.source = source
        self.full_source = source if full_source is None else full_source
        self.schema = dict(schema or {})
        self._surveys_by_rule: dict[str, Survey] = {}
        self._admitted_view: View | None = None
        self._cached_view: View | None = None
        self._cached_blocks: list[Array] | None = None
        self._cached_sample: tuple[View, int, int, list[Floats]] | None = None

    def with_order(self, order: RowOrder) -> SiteData:
        """Return the rows that sites agreed on, in memory, in the agreed order."""
        found = SiteData(self.party, take_rows(self.full_source, order.rows), self.schema, full_source=self.full_source)
        found.row_key = order.key  # reveals nothing about ids to sites that do not share them
        return found

    @property
    def survey(self) -> Survey:
        """The survey of the rows if no value may be missing."""
        return self.survey_for("refuse")

    def survey_for(self, missing: str) -> Survey:
        """Survey the rows that take part under a rule for missing values; refuse rows that cannot."""
        if missing not in (*MISSING_RULES, FINITE_ROWS_ONLY):
            raise DataError(
                f"{self.party} was asked to handle missing values by a rule that it does not know; update fedclust"
            )
        if missing not in self._surveys_by_rule:
            self._surveys_by_rule[missing] = survey(self.source, missing)
        return self._surveys_by_rule[missing]

    @property
    def value_count(self) -> int:
        """The number of values if it is known without reading, otherwise None."""
        if not self.source.resident:
            return 0
        return next((found.rows for found in self._surveys_by_rule.values()), 0) * len(self.source.columns)

    @cached_property
    def column_fingerprints(self) -> dict[str, bytes]:
        return {name: column.fingerprint() for name, column in self.schema.items()}

    def blocks(self, view: View) -> Iterable[Array]:
        """Return the rows in blocks of columns, in the study's view; refuse a column that exceeds its bound."""
        if view is not self._admitted_view and not view.admits(self.survey_for(view.missing).largest):
            raise OutOfBounds(f"a column of {self.party} exceeds its bound; scale the columns or declare wider bounds")
        self._admitted_view = view
        if not self.source.resident:
            return self._transform_blocks(view)
        if self._cached_blocks is None or not view.shows_same(self._cached_view):
            self._cached_view, self._cached_blocks = view, list(self._transform_blocks(view))
        return self._cached_blocks

    def sample(self, view: View, seed: int, share: int) -> Iterable[Floats]:
        """Return the rows of a public sample; a sample of rows in memory is chosen once."""
        blocks = self.blocks(view)
        if share >= WHOLE_TABLE or not self.source.resident:
            return sampled_pieces(blocks, seed, share)
        known = self._cached_sample
        if known is not None and known[1:3] == (seed, share) and view.shows_same(known[0]):
            return known[3]
        pieces = list(sampled_pieces(blocks, seed, share))
        self._cached_sample = view, seed, share, pieces
        return pieces

    def _transform_blocks(self, view: View) -> Iterator[Array]:
        return (_locked(view.transform(select_rows(block, view.missing))) for block in self.source.blocks())

    @cached_property
    def digest(self) -> bytes:
        """A digest that changes with the rows: of every value if in memory, of the extremes if streamed."""
        digest = hashlib.sha256(repr(self.source.columns).encode())
        if self.source.resident:
            for block in self.source.blocks():
                digest.update(np.ascontiguousarray(block).tobytes())
            return digest.digest()
        found = self.survey_for("partial")
        digest.update(str(found.rows).encode() + found.lo.tobytes() + found.hi.tobytes())
        return digest.digest()

    @cached_property
    def row_key(self) -> bytes:
        """Return a digest that two sites share if they hold the same rows in the same order, by id."""
        ids = self.source.ids()
        digest = hashlib.sha256(str(self.survey.rows).encode())
        for one in () if ids is None else ids:
            digest.update(b"\0" + str(one).encode())
        return digest.digest()


def _locked(block: Array) -> Array:
    """Return a view of a block that nobody can write to by mistake; later questions read the same rows."""
    locked = block.view()
    locked.flags.writeable = False
    return locked


def missing_rule_of(handler: Handler[Any, Any], message: object) -> str:
    """Return a question's rule for missing values, by its type; one without a rule gets no rows with missing values.

    Sealed messages follow the rule of their note. A question that reads nothing needs no rule: missing values are no
    reason to refuse it.
    """
    if isinstance(message, SealedMessages) and handler.note is not None:
        message = wire.decode(handler.note, message.note)
    if isinstance(message, PricedQuestion):
        return FINITE_ROWS_ONLY  # whatever it says: refusing its rows would reveal something without payment
    if handler.reads == "nothing":
        return "partial"
    if isinstance(message, GapsQuestion):
        return message.rows_with_gaps()
    if isinstance(message, ViewedQuestion):
        return message.view.missing
    return REFUSE_GAPS


class HandlerContext:
    """One step at one site, as `core.site_interface.Site` defines it for a handler."""

    def __init__(
        self,
        site_data: SiteData,
        seed_and_step: tuple[int, int],
        memory: Mapping[str, Array],
        missing: str = "refuse",
        vault: Callable[[], Vault] | None = None,
        *,
        point_floor: int = 0,
        one_rule: bool = False,
    ) -> None:
        self._site_data = site_data
        self.point_floor = point_floor
        self._one_rule = one_rule  # rows with missing values are read in the question's way only
        self._missing = missing
        self._seed_and_step = seed_and_step
        self.memory = MappingProxyType(dict(memory))
        self._vault = vault

    @property
    def party(self) -> PartyId:
        return self._site_data.party

    @property
    def columns(self) -> tuple[str, ...]:
        return self._site_data.source.columns

    @property
    def column_fingerprints(self) -> Mapping[str, bytes]:
        return self._site_data.column_fingerprints

    @property
    def rows(self) -> int:
        return self._site_data.survey_for(self._missing).rows

    @property
    def left_out(self) -> int:
        return self._site_data.survey_for(self._missing).left_out

    @property
    def gaps(self) -> Ints:
        return self._site_data.survey_for(self._missing).gaps

    @property
    def largest(self) -> Floats:
        return self._site_data.survey_for(self._missing).largest

    @cached_property
    def rng(self) -> np.random.Generator:
        """The random stream that (study seed, step, party) determines."""
        return np.random.default_rng((*self._seed_and_step, self._party_number))

    def rng_from_seed(self, seed: int) -> np.random.Generator:
        """Return the random stream that (seed, party) determines, independent of the step."""
        return np.random.default_rng((seed, self._party_number))

    @property
    def _party_number(self) -> int:
        return int.from_bytes(hashlib.sha256(self.party.encode()).digest()[:8], "little")

    @property
    def vault(self) -> Vault:
        if self._vault is None:
            raise KeysRefused("this site has no folder for keys; enrol it first")
        return self._vault()

    def blocks(self, view: View) -> Iterable[Array]:
        if self._one_rule and view.missing != self._missing:
            raise DataError("the view and the question handle missing values differently; use the question's view")
        return self._site_data.blocks(view)

    def sample(self, view: View, seed: int, share: int) -> Iterable[Floats]:
        if self._one_rule and view.missing != self._missing:
            raise DataError("the view and the question handle missing values differently; use the question's view")
        return self._site_data.sample(view, seed, share)

    def ids(self) -> Array | None:
        return self._site_data.full_source.ids()

    def row_key(self) -> bytes:
        return self._site_data.row_key


@dataclass(frozen=True)
class NoRows:
    """The columns of a source without a way to its rows."""

    site: PartyId
    columns: tuple[str, ...]
    resident: bool = False

    def blocks(self) -> Iterator[Array]:
        raise _no_rows_error()

    def ids(self) -> None:
        raise _no_rows_error()


def _no_rows_error() -> TypeError:
    return TypeError("the handler of this question is declared to read no rows; set reads='rows' in its @handler")


class RowlessContext(HandlerContext):
    """The context of a question that declares to read nothing: it has no rows and no stored state."""

    def __init__(
        self,
        site_data: SiteData,
        seed_and_step: tuple[int, int],
        memory: Mapping[str, Array],  # noqa: ARG002
        missing: str = REFUSE_GAPS,
        vault: Callable[[], Vault] | None = None,
        *,
        point_floor: int = 0,
        one_rule: bool = False,
    ) -> None:
        no_rows = NoRows(site_data.party, site_data.source.columns)
        super().__init__(
            SiteData(site_data.party, no_rows, site_data.schema),
            seed_and_step,
            {},
            missing,
            vault,
            point_floor=point_floor,
            one_rule=one_rule,
        )

    @property
    def rows(self) -> int:
        raise _no_rows_error()

    @property
    def left_out(self) -> int:
        raise _no_rows_error()

    @property
    def gaps(self) -> Ints:
        raise _no_rows_error()

    @property
    def largest(self) -> Floats:
        raise _no_rows_error()

    def blocks(self, view: View) -> Iterable[Array]:  # noqa: ARG002
        raise _no_rows_error()

    def sample(self, view: View, seed: int, share: int) -> Iterable[Floats]:  # noqa: ARG002
        raise _no_rows_error()

    def ids(self) -> Array | None:
        raise _no_rows_error()

    def row_key(self) -> bytes:
        raise _no_rows_error()
