"""A letter: one message as a file that proves by itself who wrote it, to whom, in which run, and after which other.

Letters of one sender to one recipient form a chain: each has the next number and the digest of the one before. What a
letter says is encrypted between its two ends, whoever may hold the stick or the folder it travels by.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import struct
from dataclasses import dataclass, field, replace
from pathlib import Path

from fedclust.core import wire
from fedclust.core.atomic_files import write_file
from fedclust.core.errors import KeysRefused, WireError
from fedclust.core.types import PartyId
from fedclust.privacy import keys
from fedclust.privacy.keys import Identity, signed_by

HEAD = b"fedclust letter 1\n"
SUFFIX = ".letter"
SALT, SIGNATURE, SHORT = 16, 64, 8
COORDINATOR: PartyId = ""  # no site can be called that
LEADS = "+lead"  # how the name of a run ends in letters between its lead and the coordinator
FIRST = bytes(32)  # what the first letter of a chain comes after
RUN = re.compile(r"[0-9A-Za-z][0-9A-Za-z.-]*(\+lead)?")  # files are called by a run's name: it must lead nowhere else
_LENGTH = struct.Struct("<I")


class Refused(WireError):
    """A file that is not taken; the text says why, its name is for the caller to add."""


class Old(Refused):
    """A letter that was taken before."""


class Unfinished(WireError):
    """A file whose end is not there yet: it is being copied, or the copy was cut short."""


@dataclass(frozen=True)
class Letter:
    """What a file says. `answers` is the digest of the letter it replies to; `kind` says what `body` is."""

    run: str
    sender: str
    recipient: str
    number: int
    before: bytes
    answers: bytes
    kind: str
    body: bytes

    @property
    def name(self) -> str:
        """A name for the file: it sorts, and tells people what it is; nothing depends on it."""
        what = "-lead" if self.run.endswith(LEADS) else ""
        return f"{self.run[:8]}-{self.number:06}-{self.sender or 'coordinator'}{what}{SUFFIX}"


def sealed(letter: Letter, identity: Identity) -> bytes:
    """A letter as its file has it, signed."""
    text = wire.encode(letter)
    return HEAD + _LENGTH.pack(len(text)) + text + identity.sign(HEAD + text)


def read(path: Path) -> tuple[Letter, bytes]:
    """A file's letter, as yet unproven, and its bytes; refuses what is no letter."""
    try:
        if path.stat().st_size > wire.MAX_BYTES:
            raise Refused("it is larger than a letter can be")
        data = path.read_bytes()
    except OSError:
        raise Unfinished("it cannot be read yet") from None
    if not data.startswith(HEAD):
        if HEAD.startswith(data):
            raise Unfinished("it is not complete yet")
        raise Refused("it is no letter of this version of fedclust")
    if len(data) < len(HEAD) + _LENGTH.size:
        raise Unfinished("it is not complete yet")
    (length,) = _LENGTH.unpack_from(data, len(HEAD))
    end = len(HEAD) + _LENGTH.size + length + SIGNATURE
    if len(data) < end:
        raise Unfinished("it is not complete yet")
    if len(data) > end:
        raise Refused("it is longer than its writer made it: it was altered")
    try:
        letter = wire.decode(Letter, data[len(HEAD) + _LENGTH.size : end - SIGNATURE])
    except WireError:
        raise Refused("it was altered, or written by another version of fedclust") from None
    if not RUN.fullmatch(letter.run):
        raise Refused("it is of a run with a name that no run can have")
    return letter, data


def proven(letter: Letter, data: bytes, public: bytes, *, sender: PartyId, recipient: PartyId) -> None:
    """Refuse a letter that is not from the holder of a key, or not for this recipient.

    What it says of itself is quoted only once the key has proven it.
    """
    if not signed(data, public):
        raise Refused("it was altered, or signed with another key than the one enrolled here")
    if letter.sender != sender:
        raise Refused(f"it is from {called(letter.sender)}, not from {called(sender)}")
    if letter.recipient != recipient:
        raise Refused(f"it is for {called(letter.recipient)}, not for {called(recipient)}")


def signed(data: bytes, public: bytes) -> bool:
    """Whether the holder of a key wrote a letter."""
    return signed_by(public, data[-SIGNATURE:], HEAD + data[len(HEAD) + _LENGTH.size : -SIGNATURE])


def called(party: PartyId) -> str:
    """What people call an end of a correspondence."""
    return seen(party) or "the coordinator"


def seen(text: str) -> str:
    r"""A text of somebody else's for a person's eyes: if part of it would not show, or move what does, it is escaped.

    >>> print(seen("north-2.letter"), seen("\x1b[2J.letter"))
    north-2.letter \x1b[2J.letter
    """
    return text if text.isprintable() else ascii(text)[1:-1]


def apart(one: str, other: str) -> bool:
    """Whether letters of two runs are of different business: a lead corresponds as a site, too."""
    return one.endswith(LEADS) != other.endswith(LEADS)


def digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


@dataclass(frozen=True)
class Hello:
    """The first letter of each end: a public key, from which those of later letters are agreed, and its text."""

    public: bytes
    text: bytes


@dataclass(frozen=True)
class Chain:
    """One end of a correspondence as the disk has it: what was sent and got last, and what is still to arrive.

    `waiting` holds letters, by name, that the other end has not been seen to have. `request` and `reply` are the last
    question's digest and what was answered to it, so that it need not be asked twice.
    """

    run: str
    sent: int = 0
    sent_digest: bytes = FIRST
    got: int = 0
    got_digest: bytes = FIRST
    taken: bytes = b""  # the beginnings of the digests of all that was got, to tell a copy from a forgery
    private: bytes = b""
    public: bytes = b""
    waiting: dict[str, bytes] = field(default_factory=dict)
    request: bytes = b""
    reply: bytes | None = None
    over: bool = False

    @classmethod
    def new(cls, run: str) -> Chain:
        return cls(run, private=keys.new_pair()[0])

    @classmethod
    def load(cls, path: Path, run: str) -> Chain:
        """The chain of a run, or a new one."""
        return wire.decode(Chain, path.read_bytes()) if path.exists() else cls.new(run)

    def save(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_file(path, wire.encode(self))

    def written(
        self, kind: str, body: bytes, identity: Identity, way: tuple[PartyId, PartyId], *, in_clear: bool = False
    ) -> Chain:
        """The chain with one more letter that waits to arrive; `way` is from whom to whom."""
        sender, recipient = way
        number = self.sent + 1
        text = body if in_clear else self._locked(body, kind, way, number)
        letter = Letter(self.run, sender, recipient, number, self.sent_digest, self.got_digest, kind, text)
        data = sealed(letter, identity)
        return replace(self, sent=number, sent_digest=digest(data), waiting={**self.waiting, letter.name: data})

    def next(self, letter: Letter, data: bytes) -> Chain:
        """The chain with a letter that came; refuses one that is not the next."""
        if letter.run != self.run:
            raise Refused("it belongs to another run")
        if letter.number <= self.got:
            at = SHORT * (letter.number - 1)
            if self.taken[at : at + SHORT] != digest(data)[:SHORT]:
                raise Refused(f"another letter {letter.number} was taken before it; letter {self.got} was the last")
            raise Old("it was taken before")
        if letter.number > self.got + 1:
            raise Refused(f"letter {self.got + 1} must come first, and is not here")
        if letter.before != self.got_digest:
            raise Refused("it does not follow the letter that was taken before it")
        came = digest(data)
        return replace(self, got=letter.number, got_digest=came, taken=self.taken + came[:SHORT])

    def hello(self, text: bytes) -> bytes:
        """A first letter's body."""
        return wire.encode(Hello(keys.public_of(self.private), text))

    def hello_in(self, letter: Letter) -> Hello:
        """What the other end's first letter says; its key must be one that later letters can be written under."""
        try:
            hello = wire.decode(Hello, letter.body)
            keys.agreed(self.private, hello.public)
        except WireError:
            raise Refused("it says nothing that this version of fedclust understands") from None
        except KeysRefused:
            raise Refused("its public key agrees with nothing") from None
        return hello

    def arrived(self, answered: bytes) -> Chain:
        """The chain without letters that the other end has, as it says by the digest of the last one."""
        names = list(self.waiting)
        last = next((i for i, name in enumerate(names) if digest(self.waiting[name]) == answered), -1)
        return replace(self, waiting={name: self.waiting[name] for name in names[last + 1 :]})

    def text(self, letter: Letter) -> bytes:
        """What an encrypted letter says."""
        way = letter.sender, letter.recipient
        try:
            key, about = self._key(letter.body[:SALT], letter.kind, way, letter.number)
            return keys.opened(key, letter.body[SALT:], about)
        except KeysRefused:
            raise Refused("it cannot be decrypted: it was written under other keys") from None

    def _locked(self, text: bytes, kind: str, way: tuple[PartyId, PartyId], number: int) -> bytes:
        salt = secrets.token_bytes(SALT)  # no key serves two letters
        key, about = self._key(salt, kind, way, number)
        return salt + keys.locked(key, text, about)

    def _key(self, salt: bytes, kind: str, way: tuple[PartyId, PartyId], number: int) -> tuple[bytes, bytes]:
        about = keys.framed("fedclust letter", self.run, *way, number, kind)
        return keys.derived(keys.agreed(self.private, self.public), about, salt), about


def chain_path(folder: Path, run: str, party: PartyId = "") -> Path:
    """Where one end keeps a chain."""
    return folder / "letters" / hashlib.sha256(f"{run}\n{party}".encode()).hexdigest()[:32]
