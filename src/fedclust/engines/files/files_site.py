"""A site that answers letters: reads an inbox, writes an outbox, and remembers where each correspondence stands."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol as Structural

from fedclust.core.errors import FedclustError, StudyError
from fedclust.core.types import PartyId
from fedclust.engines.files.message_file import (
    COORDINATOR,
    LEADS,
    Chain,
    Letter,
    Old,
    Refused,
    chain_path,
    digest,
    proven,
)
from fedclust.engines.files.message_folder import Folder
from fedclust.privacy.keys import Identity
from fedclust.site.session import Reception
from fedclust.site.site_file import SiteFile, private_key


@dataclass
class Turn:
    """What one look into the inbox came to."""

    answered: list[str] = field(default_factory=list)  # names of letters that were read and replied to
    written: list[str] = field(default_factory=list)  # names of letters that are in the outbox since
    known: list[str] = field(default_factory=list)  # names of letters that were answered earlier
    refused: dict[str, str] = field(default_factory=dict)
    unfinished: dict[str, str] = field(default_factory=dict)
    ended: bool = False  # a run was told to be over
    over: bool = False  # every run that was met has ended, now or earlier


class Hearing(Structural):
    """Whoever answers: under which name, what it keeps where, and what it replies."""

    @property
    def party(self) -> PartyId: ...
    @property
    def folder(self) -> Path: ...
    def hear(self, data: bytes) -> bytes: ...


class Mailroom:
    """The answering end of a correspondence: a site's with the coordinator, or the coordinator's with a lead.

    `public` is the key that the other end signs with; `leads` tells letters between coordinator and lead from others.
    """

    def __init__(
        self,
        reception: Hearing,
        identity: Identity,
        public: bytes,
        inbox: Path,
        outbox: Path,
        *,
        other: PartyId = COORDINATOR,
        leads: bool = False,
    ) -> None:
        self.reception = reception
        self.identity = identity
        self._public = public
        self._other = other
        self._leads = leads
        self._inbox = Folder(inbox, self._check)
        self._outbox = Folder(outbox, self._check)
        self._chains: dict[str, Chain] = {}
        self._led: dict[str, None] = {}  # runs with letters that are not for this end to answer
        self._known: list[str] = []

    @classmethod
    def of(cls, reception: Reception, site: SiteFile, inbox: Path, outbox: Path) -> Mailroom:
        """The correspondence of a site that serves, between two folders."""
        if site.identity is None or site.coordinator is None:
            raise StudyError(
                "the site file must name an identity, to sign with, and the coordinator's public key, to know it by"
            )
        if not inbox.is_dir():
            raise StudyError(f"there is no inbox at {inbox}; make the folder, and put the coordinator's letters in it")
        return cls(reception, private_key(site.identity), site.coordinator, inbox, outbox)

    @property
    def runs(self) -> tuple[str, ...]:
        """The runs that letters came of, those to a site as their lead included."""
        return tuple(self._chains | self._led)

    def ended(self, run: str) -> bool:
        """Whether a correspondence is over, and was so before this process began."""
        path = chain_path(self.reception.folder, run)
        return path.exists() and Chain.load(path, run).over

    def turn(self) -> Turn:
        """Answer what is there to be answered; a bad file keeps no good one from being read."""
        found = Turn()
        self._known = found.known
        lots: dict[str, list[tuple[str, Letter, bytes]]] = {}
        for name, letter, data in self._inbox.letters():
            if letter.run.endswith(LEADS) != self._leads:
                self._led[letter.run.removesuffix(LEADS)] = None
                continue
            lots.setdefault(letter.run, []).append((name, letter, data))
        failed: list[Exception] = []
        for run, lot in lots.items():
            try:
                self._correspond(run, lot, found)
            except (FedclustError, OSError) as error:
                failed.append(error)  # the other runs are answered first
        if failed:
            raise failed[0]
        found.refused = dict(self._inbox.bad)
        found.unfinished = dict(self._inbox.unfinished)
        found.over = bool(self._chains) and all(chain.over for chain in self._chains.values())
        return found

    def _correspond(self, run: str, lot: list[tuple[str, Letter, bytes]], found: Turn) -> None:
        new = self._new(run, lot)
        last = max((i for i, (_, letter, _) in enumerate(new) if letter.kind == "call"), default=-1)
        for i, (name, letter, data) in enumerate(new):
            chain = self._chains[run].next(letter, data)
            # A question after which another came has been given up by whoever asked it.
            if letter.kind != "call" or i == last:
                chain = self._replied(chain, letter)
                found.answered += [name] if letter.kind != "end" else []
                found.ended |= letter.kind == "end"
            self._save(chain)
        known = self._chains.get(run)
        if known is not None:
            found.written += self._outbox.put(known.waiting)

    def _new(self, run: str, lot: list[tuple[str, Letter, bytes]]) -> list[tuple[str, Letter, bytes]]:
        """Letters that follow each other and the last one taken."""
        path = chain_path(self.reception.folder, run)
        chain = self._chains.get(run) or (Chain.load(path, run) if path.exists() or self._begins(lot) else None)
        if chain is None:
            for name, *_ in lot:
                self._inbox.refuse(name, "it is of a run that this site was not greeted for, or has lost its memory of")
            return []
        self._chains[run] = chain
        taken = []
        for name, letter, data in lot:
            if name in self._inbox.bad:
                continue
            try:
                after = chain.next(letter, data)
                readable(letter, self._chains[run])
            except Old:
                self._known.append(name)
            except Refused as error:
                if letter.number <= chain.got + 1:
                    self._inbox.refuse(name, str(error))
                else:
                    self._inbox.unfinished[name] = str(error)
            else:
                chain = after
                taken.append((name, letter, data))
        return taken

    def _begins(self, lot: list[tuple[str, Letter, bytes]]) -> bool:
        return any(letter.number == 1 and letter.kind == "greeting" for _, letter, _ in lot)

    def _replied(self, chain: Chain, letter: Letter) -> Chain:
        """The chain with a reply to a letter."""
        self._outbox.remove(chain.waiting)
        chain = replace(chain, waiting={})  # whoever writes on has what was written before, or gave it up
        if letter.kind == "end":
            return replace(chain, over=True)
        way = self.reception.party, self._other
        if letter.kind == "greeting":
            hello = chain.hello_in(letter)
            chain = replace(chain, public=hello.public, over=False)
            reply = chain.hello(self.reception.hear(hello.text))
            return chain.written("welcome", reply, self.identity, way, in_clear=True)
        return chain.written("answer", self.reception.hear(chain.text(letter)), self.identity, way)

    def _save(self, chain: Chain) -> None:
        chain.save(chain_path(self.reception.folder, chain.run))
        self._chains[chain.run] = chain

    def _check(self, letter: Letter, data: bytes) -> None:
        known = self._chains.get(letter.run)
        if known is not None and letter.number == known.got and digest(data) == known.got_digest:
            return  # proven when it was taken
        proven(letter, data, self._public, sender=self._other, recipient=self.reception.party)


def readable(letter: Letter, chain: Chain) -> None:
    """Refuse a letter that cannot be read, before it counts as taken."""
    if letter.kind == "greeting":
        chain.hello_in(letter)
    elif letter.kind != "end":
        chain.text(letter)
