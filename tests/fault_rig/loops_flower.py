"""The Flower loop puts site servers behind a real ClientApp with real messages, but without Flower's processes.

Through a SuperLink a message takes seconds, and the conformance checks send thousands. Here a message takes only the
time to encode and decode it.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.supercore.task_identity import TaskIdentity

from fedclust.core import wire
from fedclust.core.drive import Reply
from fedclust.core.envelope import Answer, Call
from fedclust.core.types import PartyId
from fedclust.engines.attendance import Attendance
from fedclust.engines.flower_link import FlowerLink, client_app
from fedclust.engines.networked_engine import NetworkedEngine
from fedclust.privacy.keys import Identity
from fedclust.site.server import SiteServer

FLOWER_WAIT_SECONDS = 60.0  # seconds
FLOWER_RUN_ID = 1


class InProcessGrid:
    """A grid with nodes in this process: a pushed message is answered at once, and the reply waits to be pulled."""

    def __init__(self, app: Any, parties: Iterable[PartyId]) -> None:
        TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = FLOWER_RUN_ID  # as in a ServerApp's process
        self.app = app
        self.nodes = {secrets.randbits(62): party for party in parties}
        self._replies: dict[str, Message] = {}

    def get_node_ids(self) -> list[int]:
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        return [self._answer_pushed(message) for message in messages]

    def pull_messages(self, keys: Iterable[str]) -> list[Message]:
        return [self._replies.pop(key) for key in list(keys) if key in self._replies]

    def _answer_pushed(self, message: Message) -> str:
        key = secrets.token_hex(32)
        message.metadata.__dict__["_message_id"] = key  # as Flower's own grids do
        node = message.metadata.dst_node_id
        there = message_from_proto(message_to_proto(message))
        own = Context(FLOWER_RUN_ID, node, {"site": self.nodes[node]}, RecordDict(), {})
        self._replies[key] = message_from_proto(message_to_proto(self.app(message=there, context=own)))
        return key


class FlowerLoop:
    """An engine whose sites are asked by Flower messages."""

    def __init__(self, desks: Mapping[PartyId, SiteServer], folder: Path, run: str) -> None:  # noqa: ARG002 all loops have this signature
        self.site_servers = dict(desks)
        self.parties = tuple(desks)
        keys = {party: Identity.new() for party in desks}
        app = client_app(lambda site: (site, keys[site]), self._hear, self._ignore_error)
        link = FlowerLink(InProcessGrid(app, self.parties), {party: own.public for party, own in keys.items()})
        self._engine = NetworkedEngine(
            link,
            self.parties,
            run=run,
            study="",
            attendance=Attendance(FLOWER_WAIT_SECONDS, patience=FLOWER_WAIT_SECONDS),
            greeted=self.parties,
        )

    def exchange(self, calls: Mapping[PartyId, Call], *, timeout: float | None, quorum: int) -> dict[PartyId, Reply]:
        return self._engine.exchange(calls, timeout=timeout, quorum=quorum)

    def close(self) -> None:
        """There is nothing to stop."""

    def _hear(self, site: str, data: bytes) -> bytes:
        return wire.encode(Answer.from_reply(hashlib.sha256(data).digest(), self.site_servers[site].answer_bytes(data)))

    def _ignore_error(self, site: str, error: Exception) -> None:
        """A failure at a site counts as silence."""
