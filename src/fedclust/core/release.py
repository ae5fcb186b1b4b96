"""What may leave a site: every field of an answer declares its class, and there is no default.

| class | what it is | declared by |
|---|---|---|
| facts | a yes, a whole number or names of parties; nothing of single rows | `facts` |
| marks | a mark for each column at one of a few places, added over the sites | `marks` |
| counts | how many rows there are of something | `counts`, `additive_counts` |
| sums | sums over rows, added over the sites | `additive` |
| points | places that stand for rows, at least a floor of them each | `points`, `additive_points` |
| weights | parameters or scores of a model that was trained on rows | `weights`, `additive_weights`, `sealed_weights` |
| noisy | sums that get noise in the gate | `noise_price.noisy`, `noise_price.noisy_own` |
| keys | public keys, signatures, digests of what is no row | `public_keys` |
| shares | what is random to whoever lacks a key: secret shares, ciphertexts | `shares`, `sealed_shares` |
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedclust.core import ring
from fedclust.core.question_types import PointsQuestion, ViewedQuestion
from fedclust.core.types import Array, Bools, Floats, Ints, Limbs

FieldClass = Literal["facts", "marks", "counts", "sums", "points", "weights", "noisy", "keys", "shares"]
FIELD_CLASSES: tuple[FieldClass, ...] = typing.get_args(FieldClass)
FloorUnit = Literal["rows"]  # what a floor counts
ROW_BITS = 36
MAX_ROWS = 2.0**ROW_BITS  # more than any site holds
MAX_POINT_REACH = 3.0  # times the bound of a column, where points may lie: at a mean and twice a standard deviation
FLOOR_FROM_QUESTION: Literal["asked"] = "asked"  # a floor that the question names, which then is a `FlooredQuestion`
MAX_PLACES = 2**12  # of marks, for each column

# The types that a field of each class may have. No float is a fact, and no text or bytes are: they could hold rows.
ALLOWED_TYPES: dict[str, tuple[Any, ...]] = {
    "facts": (bool, int, tuple[str, ...]),
    "counts": (int, Ints),
    "points": (Floats, Floats | None),
    "weights": (Floats, NDArray[np.float32], Ints),
    "noisy": (ring.Exact,),
    "keys": (bytes, dict[str, bytes], tuple[bytes, ...]),
    "shares": (bytes, Limbs, Array),
}
# What the gate cannot look into, or, of noise, whether a row can move a sum no further than its price says. Only
# questions of fedclust itself release these.
UNCHECKABLE_CLASSES: frozenset[FieldClass] = frozenset({"keys", "shares", "noisy"})


@dataclass(frozen=True)
class Disclosure:
    """How one field leaves: of a `sum` the total over parties, of `each` a party's own, `letters` to recipients."""

    combine: Literal["sum", "each", "letters"]
    kind: FieldClass
    why: str
    cells: bool = False  # how many rows are behind each number, or what they weigh: a site has a floor for it
    least: float = -math.inf
    most: float = math.inf
    floor: int | Literal["asked"] = 0  # of points: how many stand behind each at least
    unit: FloorUnit = "rows"  # what that floor counts


def _declare_field(disclosure: Disclosure) -> Any:
    if not disclosure.why:
        raise TypeError("a field that leaves a site says what it tells; give the reason")
    return dataclasses.field(metadata={"disclosure": disclosure})


def additive(why: str, *, cells: bool = False, least: float = -math.inf, most: float = math.inf) -> Any:
    """Sums over rows of which the coordinator needs the total; no true answer, and no total, leaves the bounds.

    With `cells` the numbers are the weights of the rows behind the other sums.
    """
    if cells:
        least, most = 0.0, MAX_ROWS
    return _declare_field(Disclosure("sum", "sums", why, cells, least, most))


def additive_counts(why: str, *, cells: bool = False) -> Any:
    """Counts of rows or of sites of which the coordinator needs the total."""
    return _declare_field(Disclosure("sum", "counts", why, cells, 0.0, MAX_ROWS))


def additive_weights(why: str) -> Any:
    """Parameters of a model, times rows, of which the coordinator needs the total; a site consents to it."""
    return _declare_field(Disclosure("sum", "weights", why))


def additive_points(why: str, *, floor: int | Literal["asked"], unit: FloorUnit = "rows") -> Any:
    """Points encoded in sums, of which the coordinator needs the total; each stands for at least `floor` rows."""
    return _declare_field(Disclosure("sum", "points", why, floor=floor, unit=unit))


def marks(why: str) -> Any:
    """For each column of a site one mark at a place; the coordinator needs to know how many sites marked each."""
    return _declare_field(Disclosure("sum", "marks", why, least=0.0, most=MAX_ROWS))


def facts(why: str, *, most: float = 1) -> Any:
    """A yes, a whole number up to `most`, or names of parties, which the coordinator sees site by site."""
    return _declare_field(Disclosure("each", "facts", why, least=-1.0, most=most))


def counts(why: str, *, hide_small: bool = True) -> Any:
    """Counts of rows that the coordinator sees site by site; the gate puts `HIDDEN` where a count is too small."""
    return _declare_field(Disclosure("each", "counts", why, cells=hide_small))


def points(why: str, *, floor: int | Literal["asked"], unit: FloorUnit = "rows") -> Any:
    """Places that the coordinator sees site by site, each of which stands for at least `floor` rows.

    The gate holds them against the site's rows: none is a row but for rounding.
    """
    return _declare_field(Disclosure("each", "points", why, floor=floor, unit=unit))


def weights(why: str) -> Any:
    """Parameters or scores of a site's model that the coordinator sees; a site consents to it."""
    return _declare_field(Disclosure("each", "weights", why))


def public_keys(why: str) -> Any:
    """Public keys, signatures and digests, of no row at all; in questions of fedclust itself only."""
    return _declare_field(Disclosure("each", "keys", why))


def shares(why: str) -> Any:
    """What is random to whoever lacks a key; in questions of fedclust itself only."""
    return _declare_field(Disclosure("each", "shares", why))


def sealed_weights(why: str) -> Any:
    """Parameters of a site's model by recipient, which the gate seals; a site consents to it."""
    return _declare_field(Disclosure("letters", "weights", why))


def sealed_shares(why: str) -> Any:
    """Shares by recipient, which the gate seals; in questions of fedclust itself only."""
    return _declare_field(Disclosure("letters", "shares", why))


HIDDEN_COUNT = -1


@dataclass(frozen=True)
class Release:
    """Base of every answer; each field of a subclass declares its class, or the subclass cannot be made."""

    _schema: ClassVar[dict[str, Disclosure]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in inspect.get_annotations(cls):
            declared = cls.__dict__.get(name)
            if not (isinstance(declared, dataclasses.Field) and "disclosure" in declared.metadata):
                raise TypeError(
                    f"{cls.__module__}.{cls.__qualname__}.{name} does not declare its class; say how it leaves a site "
                    "by additive(), points(), counts(), facts(), ... of fedclust.core.release"
                )

    @classmethod
    def schema(cls) -> dict[str, Disclosure]:
        """Each field's disclosure."""
        if "_schema" not in cls.__dict__:
            cls._schema = {field.name: field.metadata["disclosure"] for field in dataclasses.fields(cls)}
        return cls._schema

    def field_value(self, name: str) -> Any:
        """The value of a declared field."""
        return getattr(self, name)

    def form(self) -> tuple[object, ...]:
        """Shapes and units of the additive fields; answers of one form can be added."""
        return tuple(self.field_value(name).form for name in self.schema())

    @classmethod
    def plausible(cls, parts: Sequence[Any], ask: Any) -> Bools:
        """Which of several answers of one form can be true: finite, and within the bounds their fields declare.

        Besides, points are as wide as the view they are asked for in and hardly farther out than its bounds; what is
        counted beside them are the rows of each.
        """
        sound = np.ones(len(parts), bool)
        for name, d in cls.schema().items():
            if d.combine == "each":
                sound &= [_is_finite(part.field_value(name)) for part in parts]
                sound &= [_fits_question(part.field_value(name), d.kind, ask) for part in parts]
            elif d.combine == "sum" and (d.least, d.most) != (-math.inf, math.inf):
                sound &= _are_within(stack_field(parts, name), d.least, d.most).reshape(len(parts), -1).all(axis=1)
        own = {name: d.kind for name, d in cls.schema().items() if d.combine == "each"}
        places, sizes = ([name for name, kind in own.items() if kind == wanted] for wanted in ("points", "counts"))
        if places and sizes:
            sound &= [_has_count_for_each(part.field_value(places[0]), part.field_value(sizes[0])) for part in parts]
        return sound

    @classmethod
    def total(cls, parts: list[Any]) -> Any:
        """The answer of all parties together."""
        return cls(*(ring.total([part.field_value(name) for part in parts]) for name in cls.schema()))


def check_declarations(release: type[Release]) -> None:
    """Refuse an answer whose fields are of types that may hold more than their class says; done once, at import."""
    if not dataclasses.is_dataclass(release) or "__dataclass_fields__" not in release.__dict__:
        raise TypeError(f"{release.__module__}.{release.__qualname__} is not a dataclass; decorate it as one")
    hints = typing.get_type_hints(release)
    for field in dataclasses.fields(release):
        if "disclosure" not in field.metadata:
            raise TypeError(f"{release.__module__}.{release.__qualname__}.{field.name} does not declare its class")
        declared: Disclosure = field.metadata["disclosure"]
        allowed = {"sum": (ring.Exact,), "letters": (dict[str, bytes],)}.get(
            declared.combine, ALLOWED_TYPES.get(declared.kind, ())
        )
        if hints[field.name] not in allowed:
            raise TypeError(
                f"{release.__module__}.{release.__qualname__}.{field.name} is of class {declared.kind}, which cannot "
                f"be {hints[field.name]}: it could hold rows. Declare its true class"
            )


def stack_field(parts: Sequence[Any], name: str) -> ring.Exact:
    """One field of several answers of one form, side by side."""
    return ring.Exact(np.stack([part.field_value(name).limbs for part in parts]), parts[0].field_value(name).unit)


def count_numbers(release: Release) -> int:
    """How many numbers that sum or describe rows an answer holds; facts are none, nor are counts over all sites."""
    return sum(
        release.field_value(name).limbs.size // 2 if d.combine == "sum" else np.size(release.field_value(name))
        for name, d in release.schema().items()
        if d.kind in ("sums", "points", "weights") or (d.kind == "counts" and (d.cells or d.combine == "each"))
    )


def _are_within(numbers: ring.Exact, least: float, most: float) -> Bools:
    if least == 0 and not numbers.unit.any():  # counts, of which there may be thousands
        return np.asarray((numbers.limbs[..., 1] == 0) & (numbers.limbs[..., 0] <= most))
    values = numbers.to_floats()
    return np.asarray((values >= least) & (values <= most))


def _is_finite(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return not (isinstance(value, np.ndarray) and value.dtype.kind == "f") or bool(np.isfinite(value).all())


def _fits_question(value: Any, kind: FieldClass, ask: Any) -> bool:
    """Whether points are no more than asked for and lie where the rows of a view might, and counts could be of rows."""
    if kind == "points" and isinstance(ask, ViewedQuestion):
        most = ask.max_points() if isinstance(ask, PointsQuestion) else MAX_ROWS
        wide = value.ndim == 2 and value.shape[1] == len(ask.view.exponents) and len(value) <= most
        return wide and bool((np.abs(value) <= MAX_POINT_REACH * np.ldexp(1.0, ask.view.exponents)).all())
    return kind != "counts" or bool((np.asarray(value) >= HIDDEN_COUNT).all() and (np.asarray(value) <= MAX_ROWS).all())


def _has_count_for_each(places: Any, sizes: Any) -> bool:
    """Whether there is a count for each point, and no point stands for no row."""
    return places.ndim == 2 and sizes.shape == places.shape[:1] and bool(sizes.all())


@dataclass(frozen=True)
class Done(Release):
    """A site carried out a step and has nothing to show."""
