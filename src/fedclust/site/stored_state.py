"""What handlers store at a site between questions: one part for each package, saved with the answer that left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedclust.core import wire
from fedclust.core.effects import Handler, Keep
from fedclust.core.errors import DataError, NotAsDeclared, WireError
from fedclust.core.handler_checks import OWN_PACKAGE
from fedclust.core.types import Array

MEMORY_LAYOUT = 2  # of what handlers store
PACKAGE_MARK = "/"  # before and after the name of another package, at the front of the names of what it stored


@dataclass(frozen=True)
class _StoredState:
    memory: dict[str, Array]


def read_stored_state(handler: Handler[Any, Any], answer: Any) -> Any:
    """Return an answer of another package with the state that it stores as plain arrays, before anything leaves.

    An answer that left and a state that could not be stored afterwards would be a message.
    """
    if not (handler.is_foreign and isinstance(answer, Keep)):
        return answer
    if answer.order is not None:
        raise NotAsDeclared(
            "only fedclust's own alignment may choose which rows a run reads; remove `order` from the answer's Keep"
        )
    return Keep(answer.release, wire.copy_as(_StoredState, _StoredState(dict(answer.memory))).memory)


def memory_of_package(memory: Mapping[str, Array], package: str) -> Mapping[str, Array]:
    """Return what a handler of a package may read of a run's stored state: only what its own package stored.

    What another package stores would otherwise leave by fedclust's own answers, which the rules trust more.
    """
    if package == OWN_PACKAGE:
        return {name: value for name, value in memory.items() if not name.startswith(PACKAGE_MARK)}
    mark = f"{PACKAGE_MARK}{package}{PACKAGE_MARK}"
    return {name.removeprefix(mark): value for name, value in memory.items() if name.startswith(mark)}


def replace_memory_of_package(
    memory: Mapping[str, Array], package: str, stored: Mapping[str, Array]
) -> dict[str, Array]:
    """Return a run's stored state in which a package replaced its own part, and only that."""
    mark = "" if package == OWN_PACKAGE else f"{PACKAGE_MARK}{package}{PACKAGE_MARK}"
    own = {f"{mark}{name}" for name in memory_of_package(memory, package)}
    others = {name: value for name, value in memory.items() if name not in own}
    return {**others, **{f"{mark}{name}": value for name, value in stored.items()}}


@dataclass(frozen=True)
class SavedState:
    """A site's stored state together with the answer that produced it, so that both survive or neither does."""

    run: str
    step: int
    digest: bytes
    reply: bytes
    memory: dict[str, Array]
    layout: int = MEMORY_LAYOUT

    @classmethod
    def read(cls, path: Path) -> SavedState:
        try:
            found = wire.decode(cls, path.read_bytes())
        except WireError:
            found = None
        if found is None or found.layout != MEMORY_LAYOUT:
            raise DataError(
                f"{path} is damaged, or was written by another version of fedclust; move the file away and "
                "start the study again"
            )
        return found
