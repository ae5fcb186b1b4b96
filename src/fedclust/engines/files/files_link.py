"""Folders instead of a network: letters to each site in one, its replies in another, however long they take.

The coordinator may end between two steps. What it wrote and what it got is on disk before anything depends on it.
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
from fedclust.engines.coordinator_file import OwnFile, read_own
from fedclust.engines.files.message_file import (
    COORDINATOR,
    Chain,
    Letter,
    Old,
    Refused,
    apart,
    called,
    chain_path,
    digest,
    proven,
    seen,
    signed,
)
from fedclust.engines.files.message_folder import Folder
from fedclust.engines.networked_engine import Networked
from fedclust.engines.registry import RunSpec
from fedclust.privacy.keys import Identity

POLL = 1.0  # seconds between two looks into the folders


def check(spec: RunSpec) -> None:
    """Refuse a run that could not write its first letter: for want of a key, a site's key, or a pause between looks."""
    own = _own_of(spec)
    poll_of(spec, own)
    own.signer()
    own.keys_of(spec.parties)


def connect(spec: RunSpec) -> Networked:
    """The engine of a run whose sites are reached by files; see `FilesLink` for where they lie."""
    own = _own_of(spec)
    patience = math.inf if spec.timeout is None else spec.timeout
    attendance = Attendance(timeout=patience, again=0.0, patience=patience if spec.wait else 0.0, tell=spec.tell)
    poll = poll_of(spec, own)
    link = FilesLink(
        spec,
        boxes(mail_of(spec, own), spec.parties),
        own.signer(),
        own.keys_of(spec.parties),
        idle=lambda: time.sleep(poll),
    )
    return Networked(
        link,
        spec.parties,
        run=spec.run,
        study=spec.study,
        attendance=attendance,
        met=link.met,
        forget=link.forget,
        without=spec.without,
    )


def _own_of(spec: RunSpec) -> OwnFile:
    if spec.own is None:
        raise StudyError("engine 'files' signs its letters; name the coordinator's own file with --own")
    return read_own(spec.own, "files")


def mail_of(spec: RunSpec, own: OwnFile) -> Path:
    """Where letters lie: as the run's settings or the coordinator's file say, else in the run folder."""
    said = spec.settings.get("folder") or own.engine.get("folder")
    return own.folder / Path(str(said)).expanduser() if said else spec.folder / "mail"


def poll_of(spec: RunSpec, own: OwnFile) -> float:
    try:
        seconds = float(spec.settings.get("poll") or own.engine.get("poll") or POLL)
    except (TypeError, ValueError):
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise StudyError("poll of engine 'files' must be a number of seconds above 0")
    return seconds


def boxes(mail: Path, parties: tuple[PartyId, ...]) -> dict[PartyId, tuple[Path, Path]]:
    """Letters to site NAME in `to/NAME` of a mail folder, and from it in `from/NAME`."""
    return {party: (mail / "to" / party, mail / "from" / party) for party in parties}


class FilesLink:
    """Letters to each party in one folder, and from it in another; `idle` passes the time between two looks."""

    def __init__(
        self,
        spec: RunSpec,
        folders: Mapping[PartyId, tuple[Path, Path]],
        identity: Identity,
        roster: Mapping[PartyId, bytes],
        *,
        idle: Callable[[], None],
        me: PartyId = COORDINATOR,
    ) -> None:
        self.spec = spec
        self.identity = identity
        self._idle = idle
        self._me = me
        self._roster = dict(roster)
        self._to = {p: Folder(to, _unread) for p, (to, _) in folders.items()}
        self._from = {
            p: Folder(back, partial(_from, party=p, roster=self._roster, me=me)) for p, (_, back) in folders.items()
        }
        self._chains = {p: Chain.load(self._path(p), spec.run) for p in spec.parties}
        self._used: dict[PartyId, set[str]] = {p: set() for p in spec.parties}
        self._told: set[tuple[str, str]] = set()
        for folder in self._from.values():
            make_shared_folder(folder.path)

    def carry(self, requests: Mapping[PartyId, bytes], *, timeout: float) -> Iterator[tuple[PartyId, bytes]]:
        """Write letters and yield what came; without `wait`, `Waiting` says for whom."""
        self._told.clear()
        for party, data in requests.items():
            self._ask(party, data)
            known = self._chains[party].reply
            if known is not None:
                yield party, known
        until = time.monotonic() + timeout
        while True:
            for party in requests:
                yield from ((party, reply) for reply in self._replies(party))
            missing = [p for p in requests if self._chains[p].reply is None]
            if not missing or time.monotonic() >= until:
                return
            if not self.spec.wait:
                raise Waiting(self.errand(missing), tuple(missing))
            self._idle()

    def boxes_of(self, party: PartyId) -> tuple[Path, Path, bytes]:
        """The folders of letters to and from a party, and its public key."""
        return self._to[party].path, self._from[party].path, self._roster[party]

    @property
    def met(self) -> set[PartyId]:
        """Sites that took part before this process began; they need no greeting."""
        return {party for party, chain in self._chains.items() if chain.public}

    def forget(self, parties: Iterable[PartyId]) -> None:
        """Ask parties anew what they gave a reply of no use to; who gave none yet has the letter to do so."""
        for party in parties:
            chain = self._chains[party]
            if chain.reply is not None:
                self._save(party, replace(chain, request=b"", reply=None))

    def close(self, *, done: bool) -> None:
        """Tell sites that the run is over, if it is."""
        for party, chain in self._chains.items() if done else ():
            if chain.over:
                self._to[party].put(chain.waiting)  # written down, and perhaps not put there
            elif chain.sent:
                self._write(party, replace(chain, over=True), "end", b"", in_clear=True)
                self._from[party].remove(self._used[party])

    def _ask(self, party: PartyId, data: bytes) -> None:
        """A letter with a question, unless it is the one that was written last."""
        chain, asked = self._chains[party], digest(data)
        if chain.request == asked:
            self._to[party].put(chain.waiting)
            return
        greets = data[:1] == b"{"
        body = chain.hello(data) if greets else data
        kind = "greeting" if greets else "call"
        self._write(party, replace(chain, request=asked, reply=None), kind, body, in_clear=greets)
        self._from[party].remove(self._used[party])
        self._used[party].clear()

    def _write(self, party: PartyId, chain: Chain, kind: str, body: bytes, *, in_clear: bool) -> None:
        chain = chain.written(kind, body, self.identity, (self._me, party), in_clear=in_clear)
        self._save(party, chain)
        self._to[party].put(chain.waiting)

    def _replies(self, party: PartyId) -> Iterator[bytes]:
        """What a site's new letters say."""
        folder = self._from[party]
        for name, letter, data in folder.letters():
            if name in self._used[party] or name in folder.bad:
                continue
            chain = self._chains[party]
            if apart(letter.run, chain.run):
                continue
            try:
                got, text = self._taken(chain.next(letter, data), letter)
            except Old as error:
                self._used[party].add(name)
                if letter.number != chain.got:  # the last one lies there until the next question
                    folder.refuse(name, str(error))
                    self.spec.tell("dropped", site=party, kind="duplicate")
                continue
            except Refused as error:
                if letter.number <= chain.got + 1:  # one that waits for another may be taken yet
                    folder.refuse(name, str(error))
                else:
                    folder.unfinished[name] = str(error)
                continue
            self._used[party].add(name)
            if letter.answers == chain.sent_digest:
                # A site that takes no part ends the run: gone on with, it is greeted anew.
                no = letter.kind == "welcome" and not got.public
                got = replace(got, reply=None, request=b"") if no else replace(got, reply=text)
            left = got.arrived(letter.answers)
            self._save(party, left)
            self._to[party].remove(set(chain.waiting) - set(left.waiting))
            yield text
        self._complain(party, folder)

    def _taken(self, chain: Chain, letter: Letter) -> tuple[Chain, bytes]:
        if letter.kind == "welcome":
            hello = chain.hello_in(letter)
            return replace(chain, public=hello.public if self._agrees(hello.text) else b""), hello.text
        return chain, chain.text(letter)

    def _agrees(self, welcome: bytes) -> bool:
        """Whether a site takes part, and can: then it need not be greeted again."""
        try:
            told = Welcome.decode(welcome)
        except WireError:
            return False
        return not told.code and not versions_differ(told, Greeting.to("", run=self.spec.run, study=""))

    def _complain(self, party: PartyId, folder: Folder) -> None:
        for name, why in folder.bad.items():
            if (name, why) not in self._told:
                self._told.add((name, why))
                self.spec.tell("bad-file", site=party, file=str(folder.path / seen(name)), why=why)

    def errand(self, missing: list[PartyId]) -> str:
        """What a person has to do now."""
        names = {party: called(party) for party in missing}
        lines = [f"Waiting for {', '.join(names.values())}. Carry letters both ways:"]
        for party, name in names.items():
            lines.append(f"  {self._to[party].path} -> the inbox of {name}")
            lines.append(f"  the outbox of {name} -> {self._from[party].path}")
        for folder in self._from.values():
            lines += [f"Not complete yet: {folder.path / seen(name)}: {why}" for name, why in folder.unfinished.items()]
            lines += [f"Not taken: {folder.path / seen(name)}: {why}" for name, why in folder.bad.items()]
        return "\n".join(lines)

    def _save(self, party: PartyId, chain: Chain) -> None:
        chain.save(self._path(party))
        self._chains[party] = chain

    def _path(self, party: PartyId) -> Path:
        return chain_path(self.spec.folder, self.spec.run, party)


def _unread(letter: Letter, data: bytes) -> None:
    """A folder that is only written to."""


def _from(letter: Letter, data: bytes, *, party: PartyId, roster: Mapping[PartyId, bytes], me: PartyId) -> None:
    other = roster.get(letter.sender)
    if letter.sender != party and other is not None and signed(data, other):
        raise Refused(f"it is from {called(letter.sender)}, not from {called(party)}")
    proven(letter, data, roster[party], sender=party, recipient=me)
