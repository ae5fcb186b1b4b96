"""The file transport reads messages from an inbox, writes answers to an outbox, and stores the state of each run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol as Structural

from fedclust.core.errors import FedclustError, StudyError
from fedclust.core.types import PartyId
from fedclust.engines.files.message_file import (
    COORDINATOR_ID,
    LEAD_SUFFIX,
    Chain,
    DuplicateMessage,
    MessageRefused,
    SignedMessage,
    chain_path,
    check_sender,
    message_digest,
)
from fedclust.engines.files.message_folder import MessageFolder
from fedclust.privacy.keys import Identity
from fedclust.site.session import SiteSession
from fedclust.site.site_file import SiteFile, read_private_key


@dataclass
class InboxReport:
    """The results of one check of the inbox."""

    answered: list[str] = field(default_factory=list)  # names of messages that were read and answered
    written: list[str] = field(default_factory=list)  # names of messages that were written to the outbox
    answered_before: list[str] = field(default_factory=list)  # names of messages that were answered earlier
    refused: dict[str, str] = field(default_factory=dict)
    incomplete: dict[str, str] = field(default_factory=dict)
    has_run_ended: bool = False  # a message said that a run is over
    all_ended: bool = False  # every known run has ended, now or earlier


class Responder(Structural):
    """The party that answers: its name, the folder of its state, and its replies."""

    @property
    def party(self) -> PartyId: ...
    @property
    def folder(self) -> Path: ...
    def answer_message(self, data: bytes) -> bytes: ...


class FileTransport:
    """The answering end of a message exchange: a site's with the coordinator, or the coordinator's with a lead.

    The other end signs with the key `public`. `to_lead` selects the messages between coordinator and lead.
    """

    def __init__(
        self,
        responder: Responder,
        identity: Identity,
        public: bytes,
        inbox: Path,
        outbox: Path,
        *,
        other: PartyId = COORDINATOR_ID,
        to_lead: bool = False,
    ) -> None:
        self.responder = responder
        self.identity = identity
        self._public = public
        self._other = other
        self._to_lead = to_lead
        self._inbox = MessageFolder(inbox, self._check_message)
        self._outbox = MessageFolder(outbox, self._check_message)
        self._chains: dict[str, Chain] = {}
        self._runs_to_lead: dict[str, None] = {}  # runs with messages that another end answers
        self._answered_before: list[str] = []

    @classmethod
    def for_site(cls, session: SiteSession, site: SiteFile, inbox: Path, outbox: Path) -> FileTransport:
        """The transport of a serving site, between two folders."""
        if site.identity is None or site.coordinator is None:
            raise StudyError(
                "the site file must set `identity` (the site's signing key) and `coordinator` (the "
                "coordinator's public key)"
            )
        if not inbox.is_dir():
            raise StudyError(
                f"there is no inbox at {inbox}; create the folder and copy the coordinator's messages to it"
            )
        return cls(session, read_private_key(site.identity), site.coordinator, inbox, outbox)

    @property
    def runs(self) -> tuple[str, ...]:
        """The runs that messages arrived from, including messages to this site as a lead."""
        return tuple(self._chains | self._runs_to_lead)

    def has_ended(self, run: str) -> bool:
        """Whether the exchange of a run is over, according to the disk."""
        path = chain_path(self.responder.folder, run)
        return path.exists() and Chain.load(path, run).ended

    def answer_inbox(self) -> InboxReport:
        """Answer all messages in the inbox; a bad file does not prevent good ones from being read."""
        found = InboxReport()
        self._answered_before = found.answered_before
        lots: dict[str, list[tuple[str, SignedMessage, bytes]]] = {}
        for name, message, data in self._inbox.read_messages():
            if message.run.endswith(LEAD_SUFFIX) != self._to_lead:
                self._runs_to_lead[message.run.removesuffix(LEAD_SUFFIX)] = None
                continue
            lots.setdefault(message.run, []).append((name, message, data))
        failed: list[Exception] = []
        for run, lot in lots.items():
            try:
                self._answer_run(run, lot, found)
            except (FedclustError, OSError) as error:
                failed.append(error)  # the other runs are answered first
        if failed:
            raise failed[0]
        found.refused = dict(self._inbox.refused)
        found.incomplete = dict(self._inbox.incomplete)
        found.all_ended = bool(self._chains) and all(chain.ended for chain in self._chains.values())
        return found

    def _answer_run(self, run: str, messages: list[tuple[str, SignedMessage, bytes]], report: InboxReport) -> None:
        new = self._new_messages(run, messages)
        last = max((i for i, (_, message, _) in enumerate(new) if message.kind == "call"), default=-1)
        for i, (name, message, data) in enumerate(new):
            chain = self._chains[run].accept_message(message, data)
            # If a later question follows, the sender has given up this one.
            if message.kind != "call" or i == last:
                chain = self._append_reply(chain, message)
                report.answered += [name] if message.kind != "end" else []
                report.has_run_ended |= message.kind == "end"
            self._save_chain(chain)
        known = self._chains.get(run)
        if known is not None:
            report.written += self._outbox.write_messages(known.undelivered)

    def _new_messages(
        self, run: str, messages: list[tuple[str, SignedMessage, bytes]]
    ) -> list[tuple[str, SignedMessage, bytes]]:
        """Messages that follow each other and the last one accepted."""
        path = chain_path(self.responder.folder, run)
        chain = self._chains.get(run) or (
            Chain.load(path, run) if path.exists() or self._has_greeting(messages) else None
        )
        if chain is None:
            for name, *_ in messages:
                self._inbox.refuse(
                    name,
                    "it belongs to a run that never contacted this site, or the site has lost the state of that run",
                )
            return []
        self._chains[run] = chain
        taken = []
        for name, message, data in messages:
            if name in self._inbox.refused:
                continue
            try:
                after = chain.accept_message(message, data)
                check_readable(message, self._chains[run])
            except DuplicateMessage:
                self._answered_before.append(name)
            except MessageRefused as error:
                if message.number <= chain.received + 1:
                    self._inbox.refuse(name, str(error))
                else:
                    self._inbox.incomplete[name] = str(error)
            else:
                chain = after
                taken.append((name, message, data))
        return taken

    def _has_greeting(self, messages: list[tuple[str, SignedMessage, bytes]]) -> bool:
        return any(message.number == 1 and message.kind == "greeting" for _, message, _ in messages)

    def _append_reply(self, chain: Chain, message: SignedMessage) -> Chain:
        """The chain with a reply to a message."""
        self._outbox.remove(chain.undelivered)
        chain = replace(chain, undelivered={})  # a sender that continues has the earlier replies, or gave them up
        if message.kind == "end":
            return replace(chain, ended=True)
        way = self.responder.party, self._other
        if message.kind == "greeting":
            hello = chain.read_hello(message)
            chain = replace(chain, public=hello.public, ended=False)
            reply = chain.encode_hello(self.responder.answer_message(hello.text))
            return chain.append_message("welcome", reply, self.identity, way, in_clear=True)
        return chain.append_message(
            "answer", self.responder.answer_message(chain.decrypt_message(message)), self.identity, way
        )

    def _save_chain(self, chain: Chain) -> None:
        chain.save(chain_path(self.responder.folder, chain.run))
        self._chains[chain.run] = chain

    def _check_message(self, message: SignedMessage, data: bytes) -> None:
        known = self._chains.get(message.run)
        if known is not None and message.number == known.received and message_digest(data) == known.received_digest:
            return  # verified when it was accepted
        check_sender(message, data, self._public, sender=self._other, recipient=self.responder.party)


def check_readable(message: SignedMessage, chain: Chain) -> None:
    """Refuse a message that cannot be read, before it counts as accepted."""
    if message.kind == "greeting":
        chain.read_hello(message)
    elif message.kind != "end":
        chain.decrypt_message(message)
