"""What may leave a site, declared field by field."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from fedclust.core import ring


@dataclass(frozen=True)
class Disclosure:
    """How one field leaves: of a `sum` the total over parties, of `each` a party's own, `letters` to recipients."""

    combine: Literal["sum", "each", "letters"]
    why: str = ""
    cells: bool = False  # counts of rows, of which the gate hides small ones


def additive(why: str = "") -> Any:
    """A field of which the coordinator needs the sum only."""
    return dataclasses.field(metadata={"disclosure": Disclosure("sum", why)})


def shown(why: str) -> Any:
    """A field the coordinator sees party by party, and why it must."""
    return dataclasses.field(metadata={"disclosure": Disclosure("each", why)})


def counted(why: str) -> Any:
    """Counts of rows that the coordinator sees party by party; the gate puts `HIDDEN` where a count is too small."""
    return dataclasses.field(metadata={"disclosure": Disclosure("each", why, cells=True)})


def letters(why: str) -> Any:
    """Letters by recipient, which the gate seals: nobody but the recipient reads them."""
    return dataclasses.field(metadata={"disclosure": Disclosure("letters", why)})


HIDDEN = -1


@dataclass(frozen=True)
class Release:
    """Base of every answer; each field of a subclass is declared by `additive()` or `shown(why)`."""

    @classmethod
    def schema(cls) -> dict[str, Disclosure]:
        """Each field's disclosure."""
        if (known := _SCHEMAS.get(cls)) is None:
            known = _SCHEMAS[cls] = {f.name: f.metadata["disclosure"] for f in dataclasses.fields(cls)}
        return known

    def form(self) -> tuple[object, ...]:
        """Shapes and units of the additive fields; answers of one form can be added."""
        return tuple(getattr(self, name).form for name in self.schema())

    @classmethod
    def total(cls, parts: list[Any]) -> Any:
        """The answer of all parties together."""
        return cls(*(ring.total([getattr(part, name) for part in parts]) for name in cls.schema()))


_SCHEMAS: dict[type[Release], dict[str, Disclosure]] = {}


@dataclass(frozen=True)
class Done(Release):
    """A site carried out a step and has nothing to show."""
