"""What may leave a site, declared field by field."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fedclust.core import ring
from fedclust.core.types import Bools

Kind = Literal["facts", "counts", "sums", "points", "weights", "noisy", "keys"]
ROW_BITS = 36
ROWS = 2.0**ROW_BITS  # more than any site holds
FAR = 3.0  # times the bound of a column, where points may lie: at a mean and twice a standard deviation


@dataclass(frozen=True)
class Disclosure:
    """How one field leaves: of a `sum` the total over parties, of `each` a party's own, `letters` to recipients."""

    combine: Literal["sum", "each", "letters"]
    why: str = ""
    cells: bool = False  # how many rows are behind each number, or what they weigh: a site has a floor for it
    # "facts" tell nothing of single rows, "points" and "weights" need the site's consent, "noisy" sums are paid for by
    # differential privacy; "keys" and declarations are of no row at all.
    kind: Kind = "facts"
    least: float = -math.inf
    most: float = math.inf


def additive(
    why: str = "", *, cells: bool = False, kind: Kind = "sums", least: float = -math.inf, most: float = math.inf
) -> Any:
    """A field of which the coordinator needs the sum only; no true answer, and no sum of them, leaves its bounds."""
    if cells:
        least, most = 0.0, ROWS
    return dataclasses.field(metadata={"disclosure": Disclosure("sum", why, cells, kind, least, most)})


def shown(why: str, *, kind: Kind = "facts") -> Any:
    """A field the coordinator sees party by party, and why it must."""
    return dataclasses.field(metadata={"disclosure": Disclosure("each", why, kind=kind)})


def counted(why: str) -> Any:
    """Counts of rows that the coordinator sees party by party; the gate puts `HIDDEN` where a count is too small."""
    return dataclasses.field(metadata={"disclosure": Disclosure("each", why, cells=True, kind="counts")})


def letters(why: str, *, kind: Kind = "facts") -> Any:
    """Letters by recipient, which the gate seals: nobody but the recipient reads them."""
    return dataclasses.field(metadata={"disclosure": Disclosure("letters", why, kind=kind)})


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
    def plausible(cls, parts: Sequence[Any], ask: Any) -> Bools:
        """Which of several answers of one form can be true: finite, and within the bounds their fields declare.

        Besides, points are as wide as the view they are asked for in and hardly farther out than its bounds; what is
        counted beside them are the rows of each.
        """
        sound = np.ones(len(parts), bool)
        for name, d in cls.schema().items():
            if d.combine == "each":
                sound &= [_finite(getattr(part, name)) for part in parts]
                sound &= [_as_asked(getattr(part, name), d.kind, ask) for part in parts]
            elif d.combine == "sum" and (d.least, d.most) != (-math.inf, math.inf):
                sound &= _within(together(parts, name), d.least, d.most).reshape(len(parts), -1).all(axis=1)
        points, counts = ([n for n, d in cls.schema().items() if d.kind == kind] for kind in ("points", "counts"))
        if points and counts:
            sound &= [_of_each(getattr(part, points[0]), getattr(part, counts[0])) for part in parts]
        return sound

    @classmethod
    def total(cls, parts: list[Any]) -> Any:
        """The answer of all parties together."""
        return cls(*(ring.total([getattr(part, name) for part in parts]) for name in cls.schema()))


def together(parts: Sequence[Any], name: str) -> ring.Exact:
    """One field of several answers of one form, side by side."""
    return ring.Exact(np.stack([getattr(part, name).limbs for part in parts]), getattr(parts[0], name).unit)


def numbers_in(release: Release) -> int:
    """How many numbers that sum or describe rows an answer holds; facts are none."""
    return sum(
        getattr(release, name).limbs.size // 2 if d.combine == "sum" else np.size(getattr(release, name))
        for name, d in release.schema().items()
        if d.kind not in ("facts", "keys", "noisy")
    )


def _within(numbers: ring.Exact, least: float, most: float) -> Bools:
    if least == 0 and not numbers.unit.any():  # counts, of which there may be thousands
        return np.asarray((numbers.limbs[..., 1] == 0) & (numbers.limbs[..., 0] <= most))
    values = numbers.floats()
    return np.asarray((values >= least) & (values <= most))


def _finite(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return not (isinstance(value, np.ndarray) and value.dtype.kind == "f") or bool(np.isfinite(value).all())


def _as_asked(value: Any, kind: Kind, ask: Any) -> bool:
    """Whether points are no more than asked for and lie where the rows of a view might, and counts could be of rows."""
    view = getattr(ask, "view", None)
    if kind == "points" and view is not None:
        wide = value.ndim == 2 and value.shape[1] == len(view.exponents) and len(value) <= getattr(ask, "count", ROWS)
        return wide and bool((np.abs(value) <= FAR * np.ldexp(1.0, view.exponents)).all())
    return kind != "counts" or bool((np.asarray(value) >= HIDDEN).all() and (np.asarray(value) <= ROWS).all())


def _of_each(points: Any, counts: Any) -> bool:
    """Whether there is a count for each point, and no point stands for no row."""
    return points.ndim == 2 and counts.shape == points.shape[:1] and bool(counts.all())


_SCHEMAS: dict[type[Release], dict[str, Disclosure]] = {}


@dataclass(frozen=True)
class Done(Release):
    """A site carried out a step and has nothing to show."""
