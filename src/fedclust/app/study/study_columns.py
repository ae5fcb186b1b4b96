"""Reads the columns of a study: a plain list, or a table that describes each column."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fedclust.app.study.study_keys import COLUMN_KEYS, check_table, suggest_key
from fedclust.core.errors import StudyError
from fedclust.questions.schema import Column, encoded_names


def parse_columns(top: Mapping[str, Any]) -> dict[str, Column] | None:
    """Return what the study says about its columns, in its order; None if it names none."""
    given = top.get("columns")
    marks: Mapping[str, list[Any]] = top.get("missing_values", {})
    if given is None:
        if marks:
            raise StudyError("missing_values needs columns; list the columns of the study too")
        return None
    if isinstance(given, list):
        check_no_repeats(given, "columns")
    tables = given if isinstance(given, dict) else {name: {} for name in given}
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise StudyError(
                f'{name} in [columns] must be a table; write [columns.{name}] with type = "number" below it'
            )
    for name in marks:
        if name not in tables:
            raise StudyError(
                f"missing_values names '{name}', which is not a column; {suggest_key(name, tables) or 'leave it out'}"
            )
        if "missing_values" in tables[name]:
            raise StudyError(f"missing_values of '{name}' is given twice; keep one")
    schema = {name: _parse_column(name, {**table, **_missing_marks(marks, name)}) for name, table in tables.items()}
    encoded_names(schema)
    return schema


def check_no_repeats(names: Sequence[str], place: str) -> None:
    """Refuse a list that names a column more than once."""
    for name, count in Counter(names).items():
        if count > 1:
            raise StudyError(f"{place} names '{name}' {count} times; name it once")


def _missing_marks(marks: Mapping[str, list[Any]], name: str) -> dict[str, Any]:
    return {"missing_values": marks[name]} if name in marks else {}


def _parse_column(name: str, table: Mapping[str, Any]) -> Column:
    place = f"[columns.{name}]"
    try:
        return Column(**check_table(table, COLUMN_KEYS, place))
    except StudyError as error:
        raise StudyError(f"{place}: {error}" if place not in str(error) else str(error)) from None
