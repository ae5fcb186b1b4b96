"""The files link uses two folders per site instead of a network: one for messages to the site, one for its replies.

Replies may take any time. The coordinator may stop between two steps, because what it sent and received is on disk
before anything depends on it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from fedclust.core.atomic_files import make_shared_folder
from fedclust.core.errors import StudyError, Waiting, WireError
from fedclust.core.greeting import Greeting, Welcome, versions_differ
from fedclust.core.types import PartyId
from fedclust.engines.attendance import Attendance
from fedclust.engines.coordinator_file import CoordinatorFile, read_coordinator_file
from fedclust.engines.files.message_file import (
    COORDINATOR_ID,
    Chain,
    DuplicateMessage,
    MessageRefused,
    SignedMessage,
    are_other_channels,
    chain_path,
    check_sender,
    display_name,
    escape_unprintable,
    has_valid_signature,
    message_digest,
)
from fedclust.engines.files.message_folder import MessageFolder
from fedclust.engines.networked_engine import NetworkedEngine
from fedclust.engines.registry import RunSpec
from fedclust.privacy.keys import Identity

FOLDER_POLL_SECONDS = 1.0  # seconds between two checks of the folders


def check_spec(spec: RunSpec) -> None:
    """Refuse a run that could not write its first message: its key, a site's key or the poll setting is wrong."""
    own = _read_own_file(spec)
    poll_seconds(spec, own)
    own.signing_identity()
    own.public_keys(spec.parties)


def connect(spec: RunSpec) -> NetworkedEngine:
    """The engine of a run that reaches its sites by files; `message_root` says where the files are."""
    own = _read_own_file(spec)
    patience = math.inf if spec.timeout is None else spec.timeout
    attendance = Attendance(
        timeout=patience, retry_after=0.0, patience=patience if spec.wait else 0.0, notify=spec.notify
    )
    poll = poll_seconds(spec, own)
    link = FilesLink(
        spec,
        message_folders(message_root(spec, own), spec.parties),
        own.signing_identity(),
        own.public_keys(spec.parties),
        idle=lambda: time.sleep(poll),
    )
    return NetworkedEngine(
        link,
        spec.parties,
        run=spec.run,
        study=spec.study,
        attendance=attendance,
        greeted=link.greeted,
        forget_replies=link.forget_replies,
        without=spec.without,
    )


def _read_own_file(spec: RunSpec) -> CoordinatorFile:
    if spec.coordinator_file is None:
        raise StudyError(
            "engine 'files' signs messages with the coordinator's key; give the path of the coordinator's file "
            "with --own"
        )
    return read_coordinator_file(spec.coordinator_file, "files")


def message_root(spec: RunSpec, own: CoordinatorFile) -> Path:
    """The folder for messages, from the run's settings or the coordinator's file; by default in the run folder."""
    said = spec.settings.get("folder") or own.engine.get("folder")
    return own.folder / Path(str(said)).expanduser() if said else spec.folder / "messages"


def poll_seconds(spec: RunSpec, own: CoordinatorFile) -> float:
    try:
        seconds = float(spec.settings.get("poll") or own.engine.get("poll") or FOLDER_POLL_SECONDS)
    except (TypeError, ValueError):
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise StudyError("poll of engine 'files' must be a number of seconds above 0")
    return seconds


def message_folders(root: Path, parties: tuple[PartyId, ...]) -> dict[PartyId, tuple[Path, Path]]:
    """Each site's two folders: `to/NAME` for messages to it, and `from/NAME` for messages from it."""
    return {party: (root / "to" / party, root / "from" / party) for party in parties}


class FilesLink:
    """Messages to and from each party in two folders; `idle` waits between two checks."""

    def __init__(
        self,
        spec: RunSpec,
        folders: Mapping[PartyId, tuple[Path, Path]],
        identity: Identity,
        roster: Mapping[PartyId, bytes],
        *,
        idle: Callable[[], None],
        own_name: PartyId = COORDINATOR_ID,
    ) -> None:
        self.spec = spec
        self.identity = identity
        self._idle = idle
        self._own_name = own_name
        self._roster = dict(roster)
        self._outboxes = {p: MessageFolder(to, _check_nothing) for p, (to, _) in folders.items()}
        self._inboxes = {
            p: MessageFolder(back, partial(_check_origin, party=p, roster=self._roster, me=own_name))
            for p, (_, back) in folders.items()
        }
        self._chains = {p: Chain.load(self._chain_path(p), spec.run) for p in spec.parties}
        self._used_files: dict[PartyId, set[str]] = {p: set() for p in spec.parties}
        self._reported_files: set[tuple[str, str]] = set()
        for folder in self._inboxes.values():
            make_shared_folder(folder.path)

    def carry(self, requests: Mapping[PartyId, bytes], *, timeout: float) -> Iterator[tuple[PartyId, bytes]]:
        """Write messages and yield replies; without `wait`, raise `Waiting`, which names the missing parties."""
        self._reported_files.clear()
        for party, data in requests.items():
            self._write_request(party, data)
            known = self._chains[party].reply
            if known is not None:
                yield party, known
        until = time.monotonic() + timeout
        while True:
            for party in requests:
                yield from ((party, reply) for reply in self._read_replies(party))
            missing = [p for p in requests if self._chains[p].reply is None]
            if not missing or time.monotonic() >= until:
                return
            if not self.spec.wait:
                raise Waiting(self.describe_waiting(missing), tuple(missing))
            self._idle()

    def folders_and_key(self, party: PartyId) -> tuple[Path, Path, bytes]:
        """The folders for messages to and from a party, and its public key."""
        return self._outboxes[party].path, self._inboxes[party].path, self._roster[party]

    @property
    def greeted(self) -> set[PartyId]:
        """Sites that joined the run before this process started; they need no greeting."""
        return {party for party, chain in self._chains.items() if chain.public}

    def forget_replies(self, parties: Iterable[PartyId]) -> None:
        """Drop unusable replies, so that their parties are asked again; the others still have the message."""
        for party in parties:
            chain = self._chains[party]
            if chain.reply is not None:
                self._save_chain(party, replace(chain, request=b"", reply=None))

    def close(self, *, done: bool) -> None:
        """Send sites a message that the run is over, if it is."""
        for party, chain in self._chains.items() if done else ():
            if chain.ended:
                self._outboxes[party].write_messages(chain.undelivered)  # saved, but perhaps not written to the folder
            elif chain.sent:
                self._write_message(party, replace(chain, ended=True), "end", b"", in_clear=True)
                self._inboxes[party].remove(self._used_files[party])

    def _write_request(self, party: PartyId, data: bytes) -> None:
        """Write a message with a question, unless it is the last one written."""
        chain, asked = self._chains[party], message_digest(data)
        if chain.request == asked:
            self._outboxes[party].write_messages(chain.undelivered)
            return
        greets = data[:1] == b"{"
        body = chain.encode_hello(data) if greets else data
        kind = "greeting" if greets else "call"
        self._write_message(party, replace(chain, request=asked, reply=None), kind, body, in_clear=greets)
        self._inboxes[party].remove(self._used_files[party])
        self._used_files[party].clear()

    def _write_message(self, party: PartyId, chain: Chain, kind: str, body: bytes, *, in_clear: bool) -> None:
        chain = chain.append_message(kind, body, self.identity, (self._own_name, party), in_clear=in_clear)
        self._save_chain(party, chain)
        self._outboxes[party].write_messages(chain.undelivered)

    def _read_replies(self, party: PartyId) -> Iterator[bytes]:
        """The contents of a site's new messages."""
        folder = self._inboxes[party]
        for name, message, data in folder.read_messages():
            if name in self._used_files[party] or name in folder.refused:
                continue
            chain = self._chains[party]
            if are_other_channels(message.run, chain.run):
                continue
            try:
                got, text = self._open_message(chain.accept_message(message, data), message)
            except DuplicateMessage as error:
                self._used_files[party].add(name)
                if message.number != chain.received:  # the last one stays there until the next question
                    folder.refuse(name, str(error))
                    self.spec.notify("dropped", site=party, kind="duplicate")
                continue
            except MessageRefused as error:
                if message.number <= chain.received + 1:  # one that needs an earlier message may be accepted later
                    folder.refuse(name, str(error))
                else:
                    folder.incomplete[name] = str(error)
                continue
            self._used_files[party].add(name)
            if message.answered_digest == chain.sent_digest:
                # A site that does not take part ends the run; a resumed run greets it again.
                no = message.kind == "welcome" and not got.public
                got = replace(got, reply=None, request=b"") if no else replace(got, reply=text)
            left = got.drop_delivered(message.answered_digest)
            self._save_chain(party, left)
            self._outboxes[party].remove(set(chain.undelivered) - set(left.undelivered))
            yield text
        self._report_bad_files(party, folder)

    def _open_message(self, chain: Chain, message: SignedMessage) -> tuple[Chain, bytes]:
        if message.kind == "welcome":
            hello = chain.read_hello(message)
            return replace(chain, public=hello.public if self._takes_part(hello.text) else b""), hello.text
        return chain, chain.decrypt_message(message)

    def _takes_part(self, welcome: bytes) -> bool:
        """Whether a site takes part and has the right version, so that it need not be greeted again."""
        try:
            welcomed = Welcome.decode(welcome)
        except WireError:
            return False
        return not welcomed.code and not versions_differ(welcomed, Greeting.for_party("", run=self.spec.run, study=""))

    def _report_bad_files(self, party: PartyId, folder: MessageFolder) -> None:
        for name, why in folder.refused.items():
            if (name, why) not in self._reported_files:
                self._reported_files.add((name, why))
                self.spec.notify("bad-file", site=party, file=str(folder.path / escape_unprintable(name)), why=why)

    def describe_waiting(self, missing: list[PartyId]) -> str:
        """Instructions for the person who transfers the files."""
        names = {party: display_name(party) for party in missing}
        lines = [f"Waiting for {', '.join(names.values())}. Copy the message files in both directions:"]
        for party, name in names.items():
            lines.append(f"  {self._outboxes[party].path} -> the inbox of {name}")
            lines.append(f"  the outbox of {name} -> {self._inboxes[party].path}")
        for folder in self._inboxes.values():
            lines += [
                f"Not complete yet: {folder.path / escape_unprintable(name)}: {why}"
                for name, why in folder.incomplete.items()
            ]
            lines += [
                f"Not accepted: {folder.path / escape_unprintable(name)}: {why}" for name, why in folder.refused.items()
            ]
        return "\n".join(lines)

    def _save_chain(self, party: PartyId, chain: Chain) -> None:
        chain.save(self._chain_path(party))
        self._chains[party] = chain

    def _chain_path(self, party: PartyId) -> Path:
        return chain_path(self.spec.folder, self.spec.run, party)


def _check_nothing(message: SignedMessage, data: bytes) -> None:
    """Accept everything: this process only writes to the folder."""


def _check_origin(
    message: SignedMessage, data: bytes, *, party: PartyId, roster: Mapping[PartyId, bytes], me: PartyId
) -> None:
    other = roster.get(message.sender)
    if message.sender != party and other is not None and has_valid_signature(data, other):
        raise MessageRefused(f"it is from {display_name(message.sender)}, not from {display_name(party)}")
    check_sender(message, data, roster[party], sender=party, recipient=me)
