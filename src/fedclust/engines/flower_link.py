"""The Flower link sends questions to SuperNodes, and each node proves its name with its site's key.

It is for organisations that already run Flower. Flower starts a process for each message, so a round takes seconds.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

from fedclust.core import wire
from fedclust.core.errors import StudyError
from fedclust.core.types import PartyId
from fedclust.engines.coordinator_file import read_coordinator_file
from fedclust.engines.engine_settings import build_attendance
from fedclust.engines.networked_engine import NetworkedEngine
from fedclust.engines.registry import RunSpec
from fedclust.privacy.keys import Identity, frame_parts, is_signed_by

QUERY_ACTION, RECORD_NAME, PAYLOAD_KEY, NAME_KEY, PROOF_KEY = "fedclust", "fedclust", "bytes", "name", "proof"
IDENTITY_REQUEST = b"?"  # first byte of the request for a node's name; no greeting and no call starts with it
REPLY_POLL_SECONDS = 0.05  # seconds between two checks for replies
NODE_POLL_SECONDS = 1.0  # seconds between two checks for unknown nodes
DEFAULT_TIMEOUT_SECONDS = 120.0  # default time limit of a question, in seconds
NODE_CLAIM_CONTEXT = "fedclust flower node"
_grid: ContextVar[Any] = ContextVar("grid")

Text = TypeVar("Text", bytes, str)
Hear = Callable[[bytes], bytes]


def check_spec(spec: RunSpec) -> None:
    """Refuse a run that is outside a ServerApp, or whose keys or times are wrong, before any site is asked."""
    _grid_and_keys(spec)
    build_attendance("flower", spec, timeout=DEFAULT_TIMEOUT_SECONDS)


def connect(spec: RunSpec) -> NetworkedEngine:
    """The engine of a run, inside a Flower ServerApp."""
    return NetworkedEngine(
        FlowerLink(*_grid_and_keys(spec)),
        spec.parties,
        run=spec.run,
        study=spec.study,
        attendance=build_attendance("flower", spec, timeout=DEFAULT_TIMEOUT_SECONDS),
        without=spec.without,
    )


def _grid_and_keys(spec: RunSpec) -> tuple[Any, dict[PartyId, bytes]]:
    """The current grid, and the public keys of the sites on it."""
    grid = _grid.get(None)
    if grid is None:
        raise StudyError("engine 'flower' needs a Flower ServerApp; start one with flwr run (see docs/flower.md)")
    if spec.coordinator_file is None:
        raise StudyError("engine 'flower' needs the sites' public keys; pass the coordinator's file as 'own'")
    return grid, read_coordinator_file(spec.coordinator_file, "flower").public_keys(spec.parties)


@contextmanager
def use_grid(grid: Any) -> Iterator[None]:
    """Engines connected inside the `with` block use this grid."""
    token = _grid.set(grid)
    try:
        yield
    finally:
        _grid.reset(token)


@dataclass
class _UnknownNodes:
    """Nodes that were asked for their name, by message key, each with its own nonce; and when to look again."""

    asked: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    next_poll: float = 0.0


class FlowerLink:
    """Messages through a Flower grid. A node is the site whose key signs for it, whatever name it gives."""

    def __init__(self, grid: Any, roster: Mapping[PartyId, bytes]) -> None:
        self.grid = grid
        self.roster = dict(roster)
        self._nodes: dict[PartyId, int] = {}
        self._waiting: dict[str, PartyId] = {}

    def carry(self, requests: Mapping[PartyId, bytes], *, timeout: float) -> Iterator[tuple[PartyId, bytes]]:
        """Ask known nodes at once and other nodes as they are found, and poll for replies.

        Polling is needed because a node that fails reports it to Flower, not to this link.
        """
        until = time.monotonic() + timeout
        left, strangers = set(requests), _UnknownNodes()
        mine = self._send_requests(requests, left & set(self._nodes), until)
        while left and time.monotonic() < until:
            absent = left - set(self._nodes)
            if found := self._identify_nodes(strangers, absent, until) if absent else set():
                mine |= self._send_requests(requests, found, until)
            for key, message in self._pull_replies():
                party = self._waiting.pop(key)
                if key in mine:  # a reply to an earlier question is late; keep waiting for this one
                    left.discard(party)
                if message.has_error():
                    self._nodes.pop(party, None)  # it may come back under another node id
                else:
                    yield party, _read_field(message, PAYLOAD_KEY, bytes)
            if left:
                time.sleep(REPLY_POLL_SECONDS)

    def close(self, *, done: bool) -> None:
        """Flower ends with its run."""

    def _send_requests(self, requests: Mapping[PartyId, bytes], to: set[PartyId], until: float) -> set[str]:
        """Send some parties their requests, and remember which party each message went to."""
        order = sorted(to)
        packets = [(self._nodes[party], requests[party]) for party in order]
        sent = self._push_messages(packets, max(1.0, until - time.monotonic()))
        self._waiting.update(zip(sent, order, strict=True))
        return set(sent)

    def _identify_nodes(self, strangers: _UnknownNodes, absent: set[PartyId], until: float) -> set[PartyId]:
        """Ask unknown nodes for their name from time to time; return the absent parties that have proven theirs."""
        if time.monotonic() >= strangers.next_poll:
            strangers.next_poll = time.monotonic() + NODE_POLL_SECONDS
            asked = {node for node, _ in strangers.asked.values()} | set(self._nodes.values())
            new = [(node, secrets.token_bytes(16)) for node in self.grid.get_node_ids() if node not in asked]
            packets = [(node, IDENTITY_REQUEST + nonce) for node, nonce in new]
            keys = self._push_messages(packets, max(1.0, until - time.monotonic()))
            strangers.asked.update(zip(keys, new, strict=True))
        found = set()
        for message in self.grid.pull_messages(list(strangers.asked)) if strangers.asked else ():
            node, nonce = strangers.asked.pop(message.metadata.reply_to_message_id, (0, b""))
            if not nonce or message.has_error():
                continue
            name, proof = _read_field(message, NAME_KEY, str), _read_field(message, PROOF_KEY, bytes)
            if name in absent and is_signed_by(self.roster[name], proof, _claim_bytes(nonce, name)):
                self._nodes[name] = node
                found.add(name)
        return found

    def _push_messages(self, packets: list[tuple[int, bytes]], ttl: float) -> list[str]:
        messages = [
            Message(
                RecordDict({RECORD_NAME: ConfigRecord({PAYLOAD_KEY: data})}),
                dst_node_id=node,
                message_type=f"query.{QUERY_ACTION}",
                ttl=ttl,
            )
            for node, data in packets
        ]
        # Flower returns no message id for a node that is gone; a random one keeps the order and is never answered.
        return [key or secrets.token_hex(16) for key in self.grid.push_messages(messages)] if messages else []

    def _pull_replies(self) -> Iterator[tuple[str, Any]]:
        for message in self.grid.pull_messages(list(self._waiting)):
            key = message.metadata.reply_to_message_id
            if key in self._waiting:
                yield key, message


def server_app(drive: Callable[[Mapping[str, Any]], None]) -> Any:
    """A ServerApp that passes its run configuration to `drive`, which uses the app's grid."""
    app = ServerApp()

    @app.main()  # type: ignore[untyped-decorator, unused-ignore]
    def main(grid: Any, context: Any) -> None:
        with use_grid(grid):
            drive(dict(context.run_config))

    return app


def client_app(
    identity: Callable[[str], tuple[str, Identity]],
    answer_message: Callable[[str, bytes], bytes],
    log_failure: Callable[[str, Exception], None],
) -> Any:
    """A ClientApp that answers for the site whose file the node configuration gives as `site`.

    Flower would send the text of an exception to the server. So a failure gets an empty reply, and `log_failure`
    records the reason at the site.
    """
    app = ClientApp()

    @app.query(QUERY_ACTION)  # type: ignore[untyped-decorator, unused-ignore]
    def answer(message: Any, context: Any) -> Any:
        record = {PAYLOAD_KEY: b"", NAME_KEY: "", PROOF_KEY: b""}
        site = str(context.node_config.get("site", ""))
        try:
            data = _read_field(message, PAYLOAD_KEY, bytes)
            if data[:1] == IDENTITY_REQUEST:
                name, own = identity(site)
                record |= {NAME_KEY: name, PROOF_KEY: own.sign(_claim_bytes(data[1:], name))}
            else:
                record |= {PAYLOAD_KEY: answer_message(site, data)}
        except Exception as error:  # noqa: BLE001 its text must not leave the site
            with suppress(Exception):
                log_failure(site, error)
        return Message(RecordDict({RECORD_NAME: ConfigRecord(record)}), reply_to=message)

    return app


def _read_field(message: Any, key: str, kind: type[Text]) -> Text:
    """The value of a message's key; empty if it is missing, has another type or is too long."""
    record = message.content.get(RECORD_NAME)
    value = record.get(key) if isinstance(record, ConfigRecord) else None
    return value if type(value) is kind and len(value) <= wire.MAX_MESSAGE_BYTES else kind()


def _claim_bytes(nonce: bytes, name: str) -> bytes:
    return frame_parts(NODE_CLAIM_CONTEXT, nonce, name)
