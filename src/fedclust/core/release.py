"""What may leave a site: every field of an answer declares its class, and there is no default.

| class | what it is | declared by |
|---|---|---|
| facts | a yes, a whole number or names of parties; nothing about single rows | `facts` |
| marks | a mark for each column at one of a few places, added over the sites | `marks` |
| counts | numbers of rows | `counts`, `additive_counts` |
| sums | sums over rows, added over the sites | `additive` |
| points | points that each stand for at least a floor of rows | `points`, `additive_points` |
| weights | parameters or scores of a model that was trained on rows | `weights`, `additive_weights`, `sealed_weights` |
| noisy | sums that get noise in the gate | `noise_price.noisy`, `noise_price.noisy_own` |
| keys | public keys, signatures, and digests that depend on no row | `public_keys` |
| shares | values that look random without a key: secret shares, ciphertexts | `shares`, `sealed_shares` |
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import typing
from collections.abc import Mapping, Sequence
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
# how far points may lie, as a multiple of a column's bound: at a mean plus twice a standard deviation
MAX_POINT_REACH = 3.0
FLOOR_FROM_QUESTION: Literal["asked"] = "asked"  # the question sets the floor, and is then a `FlooredQuestion`
COLUMNS = "columns"  # an axis of a field: the columns of the site's table
Axes = tuple[int | str, ...]
MAX_PLACES = 2**12  # of marks, for each column

# The types that a field of each class may have. Floats, texts and bytes are never facts: they could hold rows.
ALLOWED_TYPES: dict[str, tuple[Any, ...]] = {
    "facts": (bool, int, tuple[str, ...]),
    "counts": (int, Ints),
    "points": (Floats, Floats | None),
    "weights": (Floats, NDArray[np.float32], Ints),
    "noisy": (ring.Exact,),
    "keys": (bytes, dict[str, bytes], tuple[bytes, ...]),
    "shares": (bytes, Limbs, Array),
}
# How a field of each class may leave.
ALLOWED_COMBINATIONS: frozenset[tuple[str, str]] = frozenset(
    {("sum", kind) for kind in ("marks", "counts", "sums", "points", "weights", "noisy")}
    | {("each", kind) for kind in ("facts", "counts", "points", "weights", "noisy", "keys", "shares")}
    | {("messages", kind) for kind in ("weights", "shares")}
)
# Classes that the gate cannot check. For noise, it cannot check that one row changes a sum by no more than the price
# says. For marks, it cannot check that a column has its mark because of all its values and not because of one row.
# Only fedclust's own questions release these.
UNCHECKABLE_CLASSES: frozenset[FieldClass] = frozenset({"keys", "shares", "noisy", "marks"})
LEAST_FACT = -1.0


@dataclass(frozen=True)
class Disclosure:
    """How a field leaves: `sum` as the total over parties, `each` as a party's own value, `messages` to recipients."""

    combine: Literal["sum", "each", "messages"]
    kind: FieldClass
    why: str
    cells: bool = False  # the number of rows behind each number, or their weights, which a site's floor applies to
    least: float = -math.inf
    most: float = math.inf
    floor: int | Literal["asked"] = 0  # of points: the fewest rows behind each
    unit: FloorUnit = "rows"  # what that floor counts
    power: int = 0  # of sums: they are multiples of 2**power, if not of the units that the question states
    axes: Axes | None = None  # how long each axis is; None: the gate does not check it
    units: str = ""  # the field of the question that states the units


def _declare_field(disclosure: Disclosure) -> Any:
    if not disclosure.why:
        raise TypeError("a field that leaves a site must describe what it reveals; write a description")
    return dataclasses.field(metadata={"disclosure": disclosure})


def additive(
    why: str,
    *,
    cells: bool = False,
    least: float = -math.inf,
    most: float = math.inf,
    power: int = 0,
    axes: Axes | None = None,
    units: str = "",
) -> Any:
    """Declare sums over rows of which the coordinator needs the total; true answers and totals stay within the bounds.

    With `cells`, the numbers are the weights of the rows behind the other sums. The sums are multiples of 2**`power`,
    or of the units in the question's field `units`. `axes` says how long each axis is: a whole number, `COLUMNS`, or
    the name of a field of the question (the number in it, or its length). Other packages must declare it.
    """
    if cells:
        least, most = 0.0, MAX_ROWS
    return _declare_field(Disclosure("sum", "sums", why, cells, least, most, power=power, axes=axes, units=units))


def additive_counts(why: str, *, cells: bool = False, axes: Axes | None = None) -> Any:
    """Declare counts of rows or of sites of which the coordinator needs the total."""
    return _declare_field(Disclosure("sum", "counts", why, cells, 0.0, MAX_ROWS, axes=axes))


def additive_weights(why: str, *, power: int = 0, axes: Axes | None = None, units: str = "") -> Any:
    """Declare parameters of a model, times rows, of which the coordinator needs the total; a site must consent."""
    return _declare_field(Disclosure("sum", "weights", why, power=power, axes=axes, units=units))


def additive_points(why: str, *, floor: int | Literal["asked"], unit: FloorUnit = "rows") -> Any:
    """Declare points encoded in sums that the coordinator needs as a total; each stands for at least `floor` rows."""
    return _declare_field(Disclosure("sum", "points", why, floor=floor, unit=unit))


def marks(why: str) -> Any:
    """Declare one mark at a place for each column; the coordinator needs to know how many sites marked each place."""
    return _declare_field(Disclosure("sum", "marks", why, least=0.0, most=MAX_ROWS))


def facts(why: str, *, most: float = 1) -> Any:
    """Declare a yes, a whole number up to `most`, or names of parties, which the coordinator sees for each site."""
    return _declare_field(Disclosure("each", "facts", why, least=LEAST_FACT, most=most))


def counts(why: str, *, hide_small: bool = True, axes: Axes | None = None) -> Any:
    """Declare counts of rows that the coordinator sees for each site; the gate replaces small counts by `HIDDEN`."""
    return _declare_field(Disclosure("each", "counts", why, cells=hide_small, axes=axes))


def points(why: str, *, floor: int | Literal["asked"], unit: FloorUnit = "rows") -> Any:
    """Declare points that the coordinator sees for each site, each of which stands for at least `floor` rows.

    The gate compares them with the site's rows: no point may be a row, up to rounding.
    """
    return _declare_field(Disclosure("each", "points", why, floor=floor, unit=unit))


def weights(why: str) -> Any:
    """Declare parameters or scores of a site's model that the coordinator sees; a site must consent."""
    return _declare_field(Disclosure("each", "weights", why))


def public_keys(why: str) -> Any:
    """Declare public keys, signatures and digests, which depend on no row; only fedclust's own questions may."""
    return _declare_field(Disclosure("each", "keys", why))


def shares(why: str) -> Any:
    """Declare values that look random without a key; only fedclust's own questions may."""
    return _declare_field(Disclosure("each", "shares", why))


def sealed_weights(why: str) -> Any:
    """Declare parameters of a site's model by recipient, which the gate seals; a site must consent."""
    return _declare_field(Disclosure("messages", "weights", why))


def sealed_shares(why: str) -> Any:
    """Declare shares by recipient, which the gate seals; only fedclust's own questions may."""
    return _declare_field(Disclosure("messages", "shares", why))


HIDDEN_COUNT = -1


@dataclass(frozen=True)
class Release:
    """Base of every answer; a subclass must declare the class of each field."""

    _schema: ClassVar[dict[str, Disclosure]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in inspect.get_annotations(cls):
            declared = cls.__dict__.get(name)
            if not (isinstance(declared, dataclasses.Field) and "disclosure" in declared.metadata):
                raise TypeError(
                    f"{cls.__module__}.{cls.__qualname__}.{name} does not declare its class; declare how it "
                    "leaves a site with additive(), points(), counts(), facts(), ... of fedclust.core.release"
                )

    @classmethod
    def schema(cls) -> dict[str, Disclosure]:
        """The disclosure of each field."""
        if "_schema" not in cls.__dict__:
            cls._schema = {field.name: field.metadata["disclosure"] for field in dataclasses.fields(cls)}
        return cls._schema

    def field_value(self, name: str) -> Any:
        """Return the value of a declared field."""
        return getattr(self, name)

    def messages_by_recipient(self) -> dict[str, bytes]:
        """Return the messages to other sites, which one field holds."""
        (name,) = (name for name, d in self.schema().items() if d.combine == "messages")
        messages: dict[str, bytes] = self.field_value(name)
        return messages

    def form(self) -> tuple[object, ...]:
        """The shapes and units of the additive fields; answers of one form can be added."""
        return tuple(self.field_value(name).form for name in self.schema())

    @classmethod
    def plausible(cls, parts: Sequence[Any], ask: Any) -> Bools:
        """Return which of several answers of one form can be true: finite, and within the bounds that their fields
        declare.

        In addition, points must have as many columns as the view of the question and lie close to its bounds, and the
        counts next to them must be the rows of each point.
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
        """Return the combined answer of all parties."""
        return cls(*(ring.total([part.field_value(name) for part in parts]) for name in cls.schema()))


def declared_schema(release: type[Release]) -> dict[str, Disclosure]:
    """Return what the fields of an answer type declare, whatever the type says of itself."""
    return {field.name: field.metadata["disclosure"] for field in dataclasses.fields(release)}


def check_declarations(release: type[Release]) -> None:
    """Refuse an answer type with fields that could hold more than their class says; done once, at import."""
    if not dataclasses.is_dataclass(release) or "__dataclass_fields__" not in release.__dict__:
        raise TypeError(f"{release.__module__}.{release.__qualname__} is not a dataclass; decorate it with @dataclass")
    hints = typing.get_type_hints(release)
    for field in dataclasses.fields(release):
        if "disclosure" not in field.metadata:
            raise TypeError(
                f"{release.__module__}.{release.__qualname__}.{field.name} does not declare its class; use "
                "additive(), points(), facts(), ..."
            )
        declared: Disclosure = field.metadata["disclosure"]
        _check_disclosure(f"{release.__module__}.{release.__qualname__}.{field.name}", declared)
        allowed = {"sum": (ring.Exact,), "messages": (dict[str, bytes],)}.get(
            declared.combine, ALLOWED_TYPES.get(declared.kind, ())
        )
        if hints[field.name] not in allowed:
            raise TypeError(
                f"{release.__module__}.{release.__qualname__}.{field.name} has class {declared.kind}, which "
                f"does not allow the type {hints[field.name]} because it could hold rows. Declare the correct class"
            )
    if release.schema() != declared_schema(release):
        raise TypeError(f"{release.__module__}.{release.__qualname__} has a schema that differs from its fields")
    if sum(declared.combine == "messages" for declared in declared_schema(release).values()) > 1:
        raise TypeError(f"{release.__module__}.{release.__qualname__} holds messages in two fields; put them in one")


_PLAIN_TYPES = (str, bool, int, float)  # a subclass may compare as it likes


def _check_disclosure(name: str, declared: Disclosure) -> None:
    """Refuse a declaration that none of the functions above makes."""
    values = [value for name, value in vars(declared).items() if name != "axes"]
    if declared.axes is not None:
        values += declared.axes if type(declared.axes) is tuple else [declared.axes]
    plain = type(declared) is Disclosure and all(type(value) in _PLAIN_TYPES for value in values)
    plain = plain and (declared.combine, declared.kind) in ALLOWED_COMBINATIONS
    if not plain or (declared.kind == "facts" and declared.least != LEAST_FACT):
        raise TypeError(
            f"{name} has a disclosure that fedclust did not make; declare the field with additive(), points(), "
            "facts(), ..."
        )


def make_plain_copy(release: type[Release], schema: Mapping[str, Disclosure]) -> type[Release]:
    """Return a type with the same fields and the same name on the wire, and nothing else of the original.

    A site reads the answers of another package as this type, so nothing that is done to the original type later
    changes what the site reads.
    """
    hints = typing.get_type_hints(release)
    fields = [(name, hints[name], dataclasses.field(metadata={"disclosure": d})) for name, d in schema.items()]
    made = dataclasses.make_dataclass(release.__name__, fields, bases=(Release,), frozen=True)
    made.__module__, made.__qualname__ = release.__module__, release.__qualname__
    return made


def stack_field(parts: Sequence[Any], name: str) -> ring.Exact:
    """Stack one field of several answers of one form."""
    return ring.Exact(np.stack([part.field_value(name).limbs for part in parts]), parts[0].field_value(name).unit)


def count_numbers(release: Release, *, all_counts: bool = False) -> int:
    """Return how many numbers of an answer sum or describe rows, without facts.

    Counts over all sites that are no cells are included only with `all_counts`.
    """
    return sum(
        release.field_value(name).limbs.size // 2 if d.combine == "sum" else np.size(release.field_value(name))
        for name, d in release.schema().items()
        if d.kind in ("sums", "points", "weights")
        or (d.kind == "counts" and (d.cells or d.combine == "each" or all_counts))
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
    """Return whether points are no more than requested and within the view's range, and counts are possible."""
    if kind == "points" and isinstance(ask, ViewedQuestion):
        most = ask.max_points() if isinstance(ask, PointsQuestion) else MAX_ROWS
        wide = value.ndim == 2 and value.shape[1] == len(ask.view.exponents) and len(value) <= most
        return wide and bool((np.abs(value) <= MAX_POINT_REACH * np.ldexp(1.0, ask.view.exponents)).all())
    return kind != "counts" or bool((np.asarray(value) >= HIDDEN_COUNT).all() and (np.asarray(value) <= MAX_ROWS).all())


def _has_count_for_each(places: Any, sizes: Any) -> bool:
    """Return whether there is a count for each point, and every point stands for at least one row."""
    return places.ndim == 2 and sizes.shape == places.shape[:1] and bool(sizes.all())


@dataclass(frozen=True)
class Done(Release):
    """The site carried out a step and returns nothing."""
