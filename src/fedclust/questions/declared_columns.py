"""Translate the argument `columns` into the columns that each site reads, and check that the sites agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from fedclust.core.errors import DataError, StudyError
from fedclust.core.types import PartyId
from fedclust.questions.schema import Column, Schema, differing_aspects, encoded_names

ColumnsArgument = (
    Sequence[str]
    | Mapping[str, Column]
    | Mapping[PartyId, Sequence[str]]
    | Mapping[PartyId, Mapping[str, Column]]
    | None
)


@dataclass(frozen=True)
class WantedColumns:
    """The columns one site is to read, None for all it has, and what is known of them."""

    names: tuple[str, ...] | None = None
    schema: Schema = field(default_factory=dict)

    def declared_schema(self, shown: Sequence[str]) -> dict[str, Column]:
        """What is declared of the columns a site turned out to have, by the names in its table."""
        raw = {name: own for own, column in self.schema.items() for name in column.encoded_column_names(own)}
        held = dict.fromkeys(raw.get(name, name) for name in shown)
        return {name: self.schema.get(name, Column()) for name in held}


def is_schema(columns: Any) -> bool:
    """Whether columns are declared one by one, rather than listed or given site by site."""
    return isinstance(columns, Mapping) and all(isinstance(column, Column) for column in columns.values())


def declarations(columns: ColumnsArgument, parties: Sequence[PartyId], split: str) -> dict[PartyId, WantedColumns]:
    """What each site is to read. A site of a column split reads all it has, unless told otherwise by name."""
    if is_schema(columns) or not isinstance(columns, Mapping):
        same = _parse_columns(columns)
        return dict.fromkeys(parties, same if split == "rows" else WantedColumns(None, same.schema))
    for name, own in columns.items():
        if name not in parties:
            what = (
                "declare columns with fc.Column"
                if isinstance(own, (Column, Mapping))
                else "pass a mapping from site names, or a list of column names"
            )
            raise StudyError(f"`columns` has the key '{name}', which is not a site; {what}, the same for all sites")
    return {party: _parse_columns(columns.get(party)) for party in parties}


def _parse_columns(columns: Any) -> WantedColumns:
    if columns is None:
        return WantedColumns()
    if isinstance(columns, str):
        return WantedColumns((columns,))
    if not isinstance(columns, Mapping):
        return WantedColumns(tuple(columns))
    if not is_schema(columns):
        raise StudyError("the columns of a site must be a list of names, or a mapping from names to fc.Column")
    return WantedColumns(tuple(columns), columns)


def one_schema(schemas: Mapping[PartyId, Schema]) -> dict[str, Column]:
    """The schema of sites that hold the same columns; the first difference is reported by site and column."""
    first, schema = next(iter(schemas.items()))
    for party, own in schemas.items():
        for name in schema.keys() & own.keys():
            if aspects := differing_aspects(schema[name].fingerprint(), own[name].fingerprint()):
                raise DataError(
                    f"sites '{first}' and '{party}' declare column '{name}' differently ({', '.join(aspects)}); "
                    "agree on one declaration"
                )
    return dict(schema)


def joint_schema(schemas: Mapping[PartyId, Schema], shown: Sequence[str]) -> dict[str, Column]:
    """The schema of sites that each hold some columns, in the study's order."""
    declared = {name: column for own in schemas.values() for name, column in own.items()}
    return WantedColumns(None, declared).declared_schema(shown)


def same_columns(held: Mapping[PartyId, tuple[str, ...]]) -> tuple[str, ...]:
    """The columns of sites that hold the same ones."""
    first, names = next(iter(held.items()))
    for party, own in held.items():
        if own != names:
            odd = sorted(set(own) ^ set(names)) or list(own)
            raise DataError(
                f"sites '{first}' and '{party}' have different columns ({', '.join(odd[:3])}); "
                "list in `columns` the columns to use, or give all sites the same columns"
            )
    return names


def all_columns(held: Mapping[PartyId, tuple[str, ...]], columns: ColumnsArgument) -> tuple[str, ...]:
    """The columns of sites that each hold some, in the order given, else site after site."""
    owners: dict[str, PartyId] = {}
    for party, own in held.items():
        for name in own:
            if name in owners:
                raise DataError(
                    f"sites '{owners[name]}' and '{party}' both hold column '{name}'; give each column to one site only"
                )
            owners[name] = party
    if is_schema(columns):
        columns = encoded_names(cast("Schema", columns))
    if columns is None or isinstance(columns, Mapping):
        return tuple(owners)
    if set(columns) != set(owners):
        odd = sorted(set(columns) ^ set(owners))
        raise DataError(
            f"the columns of the study differ from those of the sites ({', '.join(odd[:3])}); list in `columns` "
            "exactly the columns of the sites"
        )
    return tuple(columns)
