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
from fedclust.core.ring import Exact
from fedclust.core.types import Array, Floats, PartyId

Numbers = Array | Exact


@dataclass(frozen=True)
class Observation:
    """One answer, or one sum of answers, together with the question as far as the observer knows it.

    `parties` are those whose sum it is: one name for a party's own answer. `asked` and `answer` map names to arrays;
    `Exact` numbers are subtracted in the ring, so that an attack loses no digit and a mask used twice would show.
    """

    step: int
    question: str
    parties: tuple[PartyId, ...]
    asked: Mapping[str, Any] = field(default_factory=dict)
    answer: Mapping[str, Any] = field(default_factory=dict)

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


def plain_fields(message: Any) -> dict[str, Any]:
    """A message of the library as named values; the view's origin and spread are named as such."""
    values = {f.name: getattr(message, f.name) for f in dataclasses.fields(message)}
    view = values.pop("view", None)
    if view is not None:
        values |= {"origin": view.origin, "spread": view.spread}
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
