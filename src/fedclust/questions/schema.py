"""Declarations of columns, the same at every site: number, ordinal or category, unit, levels.

A site reads its table by the declaration. It refuses values that do not fit, and names the column and their number.
Sites that declare their own columns send a fingerprint of each declaration; an error names the site and the column that
differ.

>>> column = Column("ordinal", levels=["low", "mid", "high"])
>>> encoded_names({"risk": column, "sex": Column("category", levels=["f", "m"])})
('risk', 'sex=f', 'sex=m')
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from fedclust.core.effects import Protocol, each_to, handler
from fedclust.core.errors import DataError, StudyError
from fedclust.core.question_types import GapsQuestion
from fedclust.core.release import Release, public_keys
from fedclust.core.site_interface import Site
from fedclust.core.types import PartyId
from fedclust.questions.question_contracts import fits_declarations

COLUMN_TYPES = ("number", "ordinal", "category")
Level = str | float
Schema = Mapping[str, "Column"]
ASPECT_DIGEST_BYTES = 16  # bytes for each aspect of a declaration


@dataclass(frozen=True)
class Column:
    """One column as a study declares it.

    Parameters
    ----------
    type : {"number", "ordinal", "category"}
        The levels of an ordinal column become codes 0, 1, 2, ...; each level of a category becomes a column of zeros
        and ones.
    unit : str
        Free text, compared between sites and shown with results.
    levels : list
        Every value that an ordinal column or a category may have; all strings or all numbers.
    codes : list of float
        Increasing numbers for the levels of an ordinal column, instead of 0, 1, 2, ...
    missing_values : list
        Values that mean "missing" in this column, such as 0 for a cholesterol that was not measured.
    """

    type: str = "number"
    unit: str = ""
    levels: Sequence[Level] = ()
    codes: Sequence[float] = ()
    missing_values: Sequence[Level] = field(default=())

    def __post_init__(self) -> None:
        for name in ("levels", "codes", "missing_values"):
            object.__setattr__(self, name, _plain_values(getattr(self, name), name))
        for wrong, sentence in self._complaints():
            if wrong:
                raise StudyError(sentence)

    def _complaints(self) -> list[tuple[bool, str]]:
        kind, coded = str(self.type), self.type != "number"
        kinds = {isinstance(level, str) for level in self.levels}
        texts = {isinstance(value, str) for value in self.missing_values}
        return [
            (kind not in COLUMN_TYPES, f"a column's type is '{kind}'; choose one of {', '.join(COLUMN_TYPES)}"),
            (not isinstance(self.unit, str), "a column's unit must be a string, such as 'mmHg'"),
            (
                coded and len(self.levels) < 2,
                f"a column of type '{kind}' needs two or more levels; list every value it may take",
            ),
            (not coded and bool(self.levels), "a column of type 'number' cannot have levels; remove them"),
            (len(kinds) > 1, "a column's levels mix strings and numbers; use only strings or only numbers"),
            (len(set(self.levels)) < len(self.levels), "a column lists a level twice; list each level once"),
            (bool(self.codes) and kind != "ordinal", "only an ordinal column can have codes; remove them"),
            (not self._has_valid_codes(), "a column's codes must be increasing numbers, one for each level"),
            (
                bool(texts - (kinds or {False})),
                "a column's missing_values must have the type of its values: numbers, or strings like its levels",
            ),
            (
                bool(set(self.levels) & set(self.missing_values)),
                "a value is both a level and a missing value of a column; remove it from one of the two lists",
            ),
        ]

    def _has_valid_codes(self) -> bool:
        numbers = [code for code in self.codes if not isinstance(code, str)]
        return not self.codes or (len(numbers) == len(self.levels) and numbers == sorted(self.codes))

    @property
    def is_text(self) -> bool:
        """Whether the column is read as text."""
        return bool(self.levels) and isinstance(self.levels[0], str)

    @property
    def is_plain(self) -> bool:
        """Whether values are taken as they are."""
        return self.type == "number" and not self.missing_values

    def encoded_column_names(self, name: str) -> tuple[str, ...]:
        """The names of the columns this one becomes."""
        return tuple(f"{name}={_level_text(level)}" for level in self.levels) if self.type == "category" else (name,)

    def limits(self) -> tuple[float, float] | None:
        """The range of what it becomes, where the declaration tells."""
        if self.type == "number":
            return None
        return (0.0, 1.0) if self.type == "category" else (min(self.ranks), max(self.ranks))

    @property
    def ranks(self) -> tuple[float, ...]:
        """The code of each level of an ordinal."""
        return tuple(self.codes) or tuple(float(rank) for rank in range(len(self.levels)))

    def fingerprint(self) -> bytes:
        """A digest of each aspect, in the order of `ASPECTS`."""
        stated = {**asdict(self), "codes": self.ranks}
        parts = (json.dumps([stated[name] for name in names]) for names in ASPECTS.values())
        return b"".join(hashlib.sha256(part.encode()).digest()[:ASPECT_DIGEST_BYTES] for part in parts)


ASPECTS = {
    "type": ("type",),
    "unit": ("unit",),
    "levels": ("levels", "codes"),
    "missing values": ("missing_values",),
}


def encoded_names(schema: Schema) -> tuple[str, ...]:
    """The columns that clustering sees; two that would share a name are refused."""
    names = [name for raw, column in schema.items() for name in column.encoded_column_names(raw)]
    for name in names:
        if names.count(name) > 1:
            raise StudyError(f"two columns would have the name '{name}'; rename one of them")
    return tuple(names)


def schema_to_dict(schema: Schema) -> dict[str, dict[str, Any]]:
    """A schema as JSON and TOML hold it, defaults left out."""
    bare = asdict(Column())
    shown = {name: asdict(column) for name, column in schema.items()}
    return {
        name: {key: list(v) if isinstance(v, tuple) else v for key, v in stated.items() if v != bare[key]}
        for name, stated in shown.items()
    }


def schema_from_dict(document: Mapping[str, Mapping[str, Any]]) -> dict[str, Column]:
    """The schema that `schema_to_dict` wrote."""
    return {name: Column(**stated) for name, stated in document.items()}


@dataclass(frozen=True)
class DeclarationsQuestion(GapsQuestion):
    """Columns whose declaration is asked for, and how the study treats gaps."""

    columns: tuple[str, ...]
    missing: str

    def rows_with_gaps(self) -> str:
        return self.missing


@dataclass(frozen=True)
class Declarations(Release):
    fingerprints: tuple[bytes, ...] = public_keys(
        "a digest of what the site declares about each column (type, unit, levels), without any value"
    )


@handler(releases=Declarations, before_alignment=True, contract=fits_declarations)
def declare(site: Site, ask: DeclarationsQuestion) -> Declarations:
    """What this party says the columns are; of a column it does not have, nothing."""
    return Declarations(tuple(site.column_fingerprints.get(name, b"") for name in ask.columns))


def check_declarations(wanted: Mapping[PartyId, Schema], missing: str = "refuse") -> Protocol[None]:
    """Compare the study's declaration of each party's columns with the party's own; refuse the first that differs."""
    answers = yield from each_to(
        declare, {party: DeclarationsQuestion(tuple(own), missing) for party, own in wanted.items()}
    )
    for party, answer in answers.items():
        if len(answer.fingerprints) != len(wanted[party]):
            raise DataError(
                f"site '{party}' did not declare all columns; site and coordinator must run the same version of "
                "fedclust"
            )
        for (name, column), found in zip(wanted[party].items(), answer.fingerprints, strict=True):
            if aspects := differing_aspects(column.fingerprint(), found):
                raise DataError(
                    f"site '{party}' declares column '{name}' differently from the study ({', '.join(aspects)}); "
                    "make the two declarations the same"
                )


def differing_aspects(wanted: bytes, found: bytes) -> list[str]:
    """The aspects in which two fingerprints differ."""
    if not found:
        return ["not declared"]
    at = range(0, len(wanted), ASPECT_DIGEST_BYTES)
    return [
        aspect
        for aspect, i in zip(ASPECTS, at, strict=True)
        if wanted[i : i + ASPECT_DIGEST_BYTES] != found[i : i + ASPECT_DIGEST_BYTES]
    ]


def _plain_values(values: Any, name: str) -> tuple[Level, ...]:
    """Texts and numbers, each number a float."""
    if isinstance(values, (str, Mapping)) or not isinstance(values, Sequence):
        raise StudyError(f"a column's {name} must be a list")
    out = tuple(value if isinstance(value, str) else _to_number(value, name) for value in values)
    if any(isinstance(value, float) and not math.isfinite(value) for value in out):
        raise StudyError(f"a column's {name} must be strings or finite numbers")
    return out


def _to_number(value: Any, name: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise StudyError(f"a column's {name} must be strings or finite numbers") from None


def _level_text(level: Level) -> str:
    return level if isinstance(level, str) else str(int(level)) if level.is_integer() else repr(level)
