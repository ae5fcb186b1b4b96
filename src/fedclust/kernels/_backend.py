"""Compiled sweeps where they could be built, their NumPy twin elsewhere: the choice changes the speed, not a bit.

But for autoencoders (`coder`): nothing about them is exact, so C may fuse multiply and add.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, Protocol

from fedclust.core.types import Array, Floats, Limbs, Units
from fedclust.kernels import _twin

BackendName = Literal["c", "numpy"]


class Arithmetic(Protocol):
    """What both backends offer; outputs are written in place, sums are added to what is there."""

    def sweep(  # noqa: PLR0917  (positions are the C function's)
        self,
        rule: int,
        blocks: Sequence[Array],
        centers: Floats,
        m: float,
        mass: Limbs,
        pull: Limbs,
        objective: Limbs,
        mass_unit: Units,
        pull_unit: Units,
        objective_unit: int,
        /,
    ) -> None: ...
    def plain(  # noqa: PLR0917  (positions are the C function's)
        self,
        rule: int,
        blocks: Sequence[Array],
        centers: Floats,
        m: float,
        mass: Floats,
        pull: Floats,
        objective: Floats,
        /,
    ) -> None: ...
    def weighted(  # noqa: PLR0917  (positions are the C function's)
        self, block: Array, weights: Array, mass: Limbs, pull: Limbs, mass_unit: Units, pull_unit: Units, /
    ) -> None: ...
    def squared(self, block: Array, centers: Floats, out: Floats, /) -> None: ...
    def nearest(self, block: Array, centers: Floats | None, labels: Units, least: Floats, /) -> None: ...
    def memberships(self, block: Array, centers: Floats | None, m: float, out: Floats, /) -> None: ...
    def weights(self, block: Array, centers: Floats | None, m: float, out: Floats, /) -> None: ...
    def exact(self, block: Array, centers: Floats, unit: int, out: Limbs, /) -> None: ...
    def totals(self, values: Array, unit: Units, out: Limbs, /) -> None: ...
    def elementary(self, which: int, x: Floats, p: float, out: Floats, /) -> None: ...


available: dict[BackendName, Arithmetic] = {"numpy": _twin}
try:
    from fedclust.kernels import _sweeps
except ImportError:
    warnings.warn(
        "compiled kernels are missing, so NumPy is used, which gives the same results but is slower; "
        "to get the kernels, install a C compiler and reinstall fedclust",
        RuntimeWarning,
        stacklevel=2,
    )
else:
    available["c"] = _sweeps

_name: BackendName = "c" if "c" in available else "numpy"
active = available[_name]


def backend() -> BackendName:
    """The backend in use."""
    return _name


@contextmanager
def use_backend(name: BackendName) -> Iterator[None]:
    """Use one backend inside a `with` block, in all threads."""
    global _name, active
    before = _name
    _name, active = name, available[name]
    try:
        yield
    finally:
        _name, active = before, available[before]
