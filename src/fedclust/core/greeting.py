"""The messages that a coordinator and a site exchange before the first question: versions, the run, and the study.

A greeting is plain JSON, so that two different versions can still read and report each other's version.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from typing import Any, Self

from fedclust.core import wire
from fedclust.core.errors import WireError
from fedclust.core.script_version import SCRIPT_VERSION
from fedclust.core.types import PartyId

MAX_GREETING_BYTES = 1 << 20  # the largest greeting in bytes; a study is a page of text
WIRE_FORMAT = wire.MAGIC[2]


@dataclass(frozen=True)
class _JsonMessage:
    """A message of a few texts and numbers in JSON, which is refused if any of them is missing."""

    def encode(self) -> bytes:
        return json.dumps({"kind": type(self).__name__.lower(), **asdict(self)}, sort_keys=True).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        try:
            found: Any = json.loads(bytes(data)) if len(data) <= MAX_GREETING_BYTES else None
        except (ValueError, RecursionError):
            found = None
        wanted = {field.name: int if field.type == "int" else str for field in fields(cls)}
        if not isinstance(found, dict) or found.pop("kind", None) != cls.__name__.lower():
            raise WireError(f"expected a {cls.__name__.lower()} message")
        found.setdefault("script", 0)  # versions before script versions; their own version tells them apart
        # A newer version may add fields; the fields that this version knows must be there.
        if any(type(found.get(name)) is not kind for name, kind in wanted.items()):
            raise WireError(f"a {cls.__name__.lower()} message lacks a required field")
        return cls(**{name: found[name] for name in wanted})


@dataclass(frozen=True)
class Greeting(_JsonMessage):
    """A coordinator's first message to a site. The name of a run ends in the digest of its study."""

    run: str
    party: str
    study: str  # the study's text
    fedclust: str
    wire: int = WIRE_FORMAT
    script: int = SCRIPT_VERSION

    @classmethod
    def for_party(cls, party: PartyId, *, run: str, study: str) -> Greeting:
        return cls(run, party, study, version("fedclust"))


@dataclass(frozen=True)
class Welcome(_JsonMessage):
    """A site's answer to a greeting: it is ready, or a code gives the reason. It states the version in both cases."""

    run: str
    party: str
    fedclust: str
    code: str = ""
    wire: int = WIRE_FORMAT
    script: int = SCRIPT_VERSION

    @classmethod
    def reply_to(cls, greeting: Greeting, party: PartyId, code: str = "") -> Welcome:
        return cls(greeting.run, party, version("fedclust"), code)


def versions_differ(one: Greeting | Welcome, other: Greeting | Welcome) -> bool:
    """Return whether two versions cannot work together: results are bit-identical only between equal versions."""
    return (one.fedclust, one.wire, one.script) != (other.fedclust, other.wire, other.script)
