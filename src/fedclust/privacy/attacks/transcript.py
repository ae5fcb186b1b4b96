"""What an observer of a run wrote down, as plain arrays: the input of every attack, and all that an attack may use.

A transcript is an ordered list of `Observation`. To try the attacks on another tool, fill one in:

>>> import numpy as np
>>> first = Observation(1, "moments", ("a",), {"centers": np.array([[0.0], [4.0]])},
...              {"mass": np.array([2.0, 1.0]), "pull": np.array([[3.0], [5.0]])})
>>> first.floats_of("mass").tolist()
[2.0, 1.0]
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from fedclust.core import ring
from fedclust.core.effects import HANDLERS, Handler
from fedclust.core.question_types import ViewedQuestion
from fedclust.core.release import COLUMNS, Release
from fedclust.core.ring import Exact
from fedclust.core.types import Array, Floats, PartyId

Numbers = Array | Exact


@dataclass(frozen=True)
class Roles:
    """Which fields of an answer are what: counts and sums by cluster, in pairs; points; and sums over parties."""

    cells: tuple[tuple[str, str], ...] = (("mass", "pull"), ("sizes", "pull"))
    points: tuple[str, ...] = ("points",)
    sums: tuple[str, ...] = ("mass", "sizes", "pull", "objective", "rows")


KNOWN_ROLES = Roles()


@dataclass(frozen=True)
class Observation:
    """One answer, or one sum of answers, together with the question as far as the observer knows it.

    `parties` are those whose sum it is: one name for a party's own answer. `asked` and `answer` map names to arrays;
    `Exact` numbers are subtracted in the ring, so that an attack loses no digit and a mask used twice would show.
    `roles` says which field of the answer is what, if the names do not say it.
    """

    step: int
    question: str
    parties: tuple[PartyId, ...]
    asked: Mapping[str, Any] = field(default_factory=dict)
    answer: Mapping[str, Any] = field(default_factory=dict)
    roles: Roles = KNOWN_ROLES

    def has_fields(self, *names: str) -> bool:
        return all(name in self.answer for name in names)

    @cached_property
    def _float_cache(self) -> dict[str, Floats]:
        return {}

    def floats_of(self, name: str) -> Floats:
        """A field of the answer as floats."""
        if name not in self._float_cache:
            value = self.answer[name]
            self._float_cache[name] = value.to_floats() if isinstance(value, Exact) else np.asarray(value, np.float64)
        return self._float_cache[name]

    @property
    def cells(self) -> list[tuple[str, str]]:
        """The fields with counts and with sums by cluster."""
        return [pair for pair in self.roles.cells if self.has_fields(*pair)]

    @property
    def centers(self) -> Floats | None:
        """The centres that were asked about, where the observer knows them."""
        found = self.asked.get("centers")
        return None if found is None else np.asarray(found, np.float64)

    def to_original_units(self, point: Floats) -> Floats:
        """A point in the units of the rows: the question may look at them through `origin` and `spread`."""
        origin, spread = self.asked.get("origin"), self.asked.get("spread")
        return point if origin is None or spread is None else np.asarray(point * spread + origin)


@dataclass(frozen=True)
class RecoveredPoint:
    """A point that an attack takes for a row (or, in `d`, for a site's own sum), in the units of the rows."""

    point: Floats
    step: int
    parties: tuple[PartyId, ...]
    taken_for: str


Transcript = Sequence[Observation]


def subtract_field(a: Observation, b: Observation, name: str) -> Floats:
    """The difference of one field of two answers, exact where the numbers are."""
    left, right = a.answer[name], b.answer[name]
    if not (isinstance(left, Exact) and isinstance(right, Exact)):
        return a.floats_of(name) - b.floats_of(name)
    if not np.array_equal(left.unit, right.unit):
        return _subtract_across_units(left, right)
    return difference(left, right).to_floats()


def difference(left: Exact, right: Exact) -> Exact:
    """The difference of two numbers in the ring."""
    with np.errstate(over="ignore"):
        low = ~right.limbs[..., 0] + np.uint64(1)
        high = ~right.limbs[..., 1] + (low == 0)
    return ring.total([left, Exact(np.stack([low, high], axis=-1), left.unit)])


def group_by_question(
    transcript: Transcript, *fields: str
) -> Iterable[tuple[tuple[str, tuple[PartyId, ...]], list[Observation]]]:
    """Answers with these fields, in order, for each question and whose sum it is."""
    found: dict[tuple[str, tuple[PartyId, ...]], list[Observation]] = {}
    for seen in transcript:
        if seen.has_fields(*fields):
            found.setdefault((seen.question, seen.parties), []).append(seen)
    return found.items()


def observe(
    step: int, handler: Handler[Any, Any], parties: tuple[PartyId, ...], message: Any, release: Release | None
) -> Observation:
    """An observation of a question of the library or of another package, and of its answer if there is one."""
    answer = {} if release is None else {name: release.field_value(name) for name in release.schema()}
    return Observation(step, handler.name, parties, asked_fields(handler, message), answer, declared_roles(handler))


def declared_roles(handler: Handler[Any, Any]) -> Roles:
    """What the fields of an answer are, by the classes that they declare.

    Another package declares the axes of its sums, which tell the sums of rows by cluster.
    """
    schema = handler.schema
    cells = tuple((count, total) for count, total, _ in _declared_cells(handler))
    return Roles(
        cells if handler.is_foreign else KNOWN_ROLES.cells,
        tuple(name for name, d in schema.items() if (d.kind, d.combine) == ("points", "each")),
        tuple(name for name, d in schema.items() if d.combine == "sum"),
    )


def roles_by_name(question: str) -> Roles:
    """The roles that a question's answers declare; its package may be missing here."""
    return declared_roles(HANDLERS[question]) if question in HANDLERS else KNOWN_ROLES


def _declared_cells(handler: Handler[Any, Any]) -> list[tuple[str, str, int | str]]:
    """The fields with numbers of rows by cluster and with sums of rows by cluster, and the axis of the clusters."""
    axes = {name: d.axes or () for name, d in handler.schema.items()}
    return [
        (count, total, axes[count][0])
        for count, declared in handler.schema.items()
        for total, other in handler.schema.items()
        if declared.cells and not other.cells and len(axes[count]) == 1 and axes[total] == (*axes[count], COLUMNS)
    ]


def asked_fields(handler: Handler[Any, Any], message: Any) -> dict[str, Any]:
    """A question as named values; the view's origin and spread are named as such.

    In a question of another package, the centres are what the axis of its clusters names, and the fuzziness is 1 if
    every row weighs one.
    """
    values = {f.name: getattr(message, f.name) for f in dataclasses.fields(message)}
    if isinstance(message, ViewedQuestion):
        values.pop("view", None)
        values |= {"origin": message.view.origin, "spread": message.view.spread}
    if handler.is_foreign:
        named = [values.get(str(axis)) for _, _, axis in _declared_cells(handler)]
        centers = next((one for one in named if isinstance(one, np.ndarray) and one.ndim == 2), None)
        values = {name: value for name, value in values.items() if name not in {"centers", "m"}}
        values |= {"centers": centers} if centers is not None else {}
        values |= {"m": 1.0} if handler.row_weights is None else {}
    return values


def distinct_points(found: Iterable[RecoveredPoint]) -> tuple[RecoveredPoint, ...]:
    """Each point once, as it was first found; the same up to the last digits counts as the same."""
    kept: dict[bytes, RecoveredPoint] = {}
    for one in found:
        digits = np.array([float(f"{value:.9e}") + 0.0 for value in np.ravel(one.point)])
        kept.setdefault(digits.tobytes(), one)
    return tuple(kept.values())


def _subtract_across_units(left: Exact, right: Exact) -> Floats:
    """A difference of numbers in different units, by integers of any size."""
    units = [np.broadcast_to(x.unit, x.shape).ravel().tolist() for x in (left, right)]
    out = []
    for a, b, e, f in zip(left.to_integers(), right.to_integers(), *units, strict=True):
        unit = min(e, f)
        number = (a << (e - unit)) - (b << (f - unit))
        out.append(float(number) * 2.0**unit if abs(number) < 1 << 900 else np.inf)
    return np.array(out, np.float64).reshape(left.shape)
