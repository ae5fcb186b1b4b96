"""A message file proves who wrote it, for whom, in which run, and after which other message.

Messages from one sender to one recipient form a chain: each has the next number and the digest of the one before. The
content is encrypted between sender and recipient, so the holder of the USB stick or folder cannot read it.
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
from fedclust.privacy.keys import Identity, is_signed_by

MESSAGE_FILE_HEADER = b"fedclust message 1\n"
MESSAGE_SUFFIX = ".message"
FILE_SALT_BYTES, SIGNATURE_BYTES, DIGEST_PREFIX_BYTES = 16, 64, 8
COORDINATOR_ID: PartyId = ""  # no site can have this name
LEAD_SUFFIX = "+lead"  # end of a run's name in messages between its lead and the coordinator
CHAIN_START_DIGEST = bytes(32)  # the previous digest of a chain's first message
RUN_NAME_PATTERN = re.compile(
    r"[0-9A-Za-z][0-9A-Za-z.-]*(\+lead)?"
)  # file names contain the run's name, so it must not lead to another folder
_LENGTH = struct.Struct("<I")


class MessageRefused(WireError):
    """A file that is not accepted; the text gives the reason, and the caller adds the file's name."""


class DuplicateMessage(MessageRefused):
    """A message that was accepted before."""


class IncompleteMessage(WireError):
    """A file without its end: it is still being copied, or the copy was cut short."""


@dataclass(frozen=True)
class SignedMessage:
    """The content of a file. `answered_digest` is the digest of the message it answers; `kind` says what `body` is."""

    run: str
    sender: str
    recipient: str
    number: int
    previous_digest: bytes
    answered_digest: bytes
    kind: str
    body: bytes

    @property
    def file_name(self) -> str:
        """A file name that sorts by number and shows people what the file is; nothing depends on it."""
        what = "-lead" if self.run.endswith(LEAD_SUFFIX) else ""
        return f"{self.run[:8]}-{self.number:06}-{self.sender or 'coordinator'}{what}{MESSAGE_SUFFIX}"


def sign_message(message: SignedMessage, identity: Identity) -> bytes:
    """The signed bytes of a message file."""
    text = wire.encode(message)
    return MESSAGE_FILE_HEADER + _LENGTH.pack(len(text)) + text + identity.sign(MESSAGE_FILE_HEADER + text)


def read_message(path: Path) -> tuple[SignedMessage, bytes]:
    """A file's message, not yet verified, and its bytes; refuses what is not a message."""
    try:
        if path.stat().st_size > wire.MAX_MESSAGE_BYTES:
            raise MessageRefused("it is larger than the limit for message files")
        data = path.read_bytes()
    except OSError:
        raise IncompleteMessage("it cannot be read yet") from None
    if not data.startswith(MESSAGE_FILE_HEADER):
        if MESSAGE_FILE_HEADER.startswith(data):
            raise IncompleteMessage("it is not complete yet")
        raise MessageRefused("it is not a message file of this version of fedclust")
    if len(data) < len(MESSAGE_FILE_HEADER) + _LENGTH.size:
        raise IncompleteMessage("it is not complete yet")
    (length,) = _LENGTH.unpack_from(data, len(MESSAGE_FILE_HEADER))
    end = len(MESSAGE_FILE_HEADER) + _LENGTH.size + length + SIGNATURE_BYTES
    if len(data) < end:
        raise IncompleteMessage("it is not complete yet")
    if len(data) > end:
        raise MessageRefused("it was altered: it is longer than the file that was signed")
    try:
        message = wire.decode(SignedMessage, data[len(MESSAGE_FILE_HEADER) + _LENGTH.size : end - SIGNATURE_BYTES])
    except WireError:
        raise MessageRefused("it was altered, or written by another version of fedclust") from None
    if not RUN_NAME_PATTERN.fullmatch(message.run):
        raise MessageRefused("it belongs to a run with an invalid name")
    return message, data


def check_sender(message: SignedMessage, data: bytes, public: bytes, *, sender: PartyId, recipient: PartyId) -> None:
    """Refuse a message that is not from the holder of a key, or not for this recipient.

    Errors quote the message's own claims only after the signature has been verified.
    """
    if not has_valid_signature(data, public):
        raise MessageRefused("it was altered, or signed with a key other than the one enrolled here")
    if message.sender != sender:
        raise MessageRefused(f"it is from {display_name(message.sender)}, not from {display_name(sender)}")
    if message.recipient != recipient:
        raise MessageRefused(f"it is for {display_name(message.recipient)}, not for {display_name(recipient)}")


def has_valid_signature(data: bytes, public: bytes) -> bool:
    """Whether the holder of a key signed a message."""
    return is_signed_by(
        public,
        data[-SIGNATURE_BYTES:],
        MESSAGE_FILE_HEADER + data[len(MESSAGE_FILE_HEADER) + _LENGTH.size : -SIGNATURE_BYTES],
    )


def display_name(party: PartyId) -> str:
    """A party's name for people to read."""
    return escape_unprintable(party) or "the coordinator"


def escape_unprintable(text: str) -> str:
    r"""A foreign text that is safe to print: it is escaped if it has characters that do not print.

    >>> print(escape_unprintable("north-2.message"), escape_unprintable("\x1b[2J.message"))
    north-2.message \x1b[2J.message
    """
    return text if text.isprintable() else ascii(text)[1:-1]


def are_other_channels(one: str, other: str) -> bool:
    """Whether only one of two runs is a lead's exchange with the coordinator; a lead also answers as a site."""
    return one.endswith(LEAD_SUFFIX) != other.endswith(LEAD_SUFFIX)


def message_digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


@dataclass(frozen=True)
class Hello:
    """The first message of each end: a public key, from which later keys are agreed, and its text."""

    public: bytes
    text: bytes


@dataclass(frozen=True)
class Chain:
    """One end of a message exchange as stored on disk: what was last sent and received, and what is not yet delivered.

    `undelivered` holds messages, by name, that the other end has not confirmed. `request` and `reply` are the digest of
    the last question and its answer, so that it need not be asked twice.
    """

    run: str
    sent: int = 0
    sent_digest: bytes = CHAIN_START_DIGEST
    received: int = 0
    received_digest: bytes = CHAIN_START_DIGEST
    received_prefixes: bytes = (
        b""  # the first bytes of the digests of all received messages, to tell a copy from a forgery
    )
    private: bytes = b""
    public: bytes = b""
    undelivered: dict[str, bytes] = field(default_factory=dict)
    request: bytes = b""
    reply: bytes | None = None
    ended: bool = False

    @classmethod
    def new(cls, run: str) -> Chain:
        return cls(run, private=keys.new_pair()[0])

    @classmethod
    def load(cls, path: Path, run: str) -> Chain:
        """The stored chain of a run, or a new one."""
        return wire.decode(Chain, path.read_bytes()) if path.exists() else cls.new(run)

    def save(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_file(path, wire.encode(self))

    def append_message(
        self, kind: str, body: bytes, identity: Identity, direction: tuple[PartyId, PartyId], *, in_clear: bool = False
    ) -> Chain:
        """The chain with one more undelivered message; `direction` is sender and recipient."""
        sender, recipient = direction
        number = self.sent + 1
        text = body if in_clear else self._encrypt_text(body, kind, direction, number)
        message = SignedMessage(self.run, sender, recipient, number, self.sent_digest, self.received_digest, kind, text)
        data = sign_message(message, identity)
        return replace(
            self,
            sent=number,
            sent_digest=message_digest(data),
            undelivered={**self.undelivered, message.file_name: data},
        )

    def accept_message(self, message: SignedMessage, data: bytes) -> Chain:
        """The chain with a received message; refuses one that is not the next."""
        if message.run != self.run:
            raise MessageRefused("it belongs to another run")
        if message.number <= self.received:
            at = DIGEST_PREFIX_BYTES * (message.number - 1)
            if self.received_prefixes[at : at + DIGEST_PREFIX_BYTES] != message_digest(data)[:DIGEST_PREFIX_BYTES]:
                raise MessageRefused(
                    f"a different message {message.number} was already accepted; the last accepted message is "
                    f"{self.received}"
                )
            raise DuplicateMessage("it was already accepted")
        if message.number > self.received + 1:
            raise MessageRefused(f"message {self.received + 1} is missing and must come first; copy it too")
        if message.previous_digest != self.received_digest:
            raise MessageRefused("it does not follow the last accepted message")
        came = message_digest(data)
        return replace(
            self,
            received=message.number,
            received_digest=came,
            received_prefixes=self.received_prefixes + came[:DIGEST_PREFIX_BYTES],
        )

    def encode_hello(self, text: bytes) -> bytes:
        """The body of a first message."""
        return wire.encode(Hello(keys.public_from_private(self.private), text))

    def read_hello(self, message: SignedMessage) -> Hello:
        """The content of the other end's first message; refuses a public key that cannot encrypt later messages."""
        try:
            hello = wire.decode(Hello, message.body)
            keys.derive_shared_secret(self.private, hello.public)
        except WireError:
            raise MessageRefused("its content cannot be read by this version of fedclust") from None
        except KeysRefused:
            raise MessageRefused("its public key is invalid") from None
        return hello

    def drop_delivered(self, answered_digest: bytes) -> Chain:
        """The chain without the messages that the other end has confirmed by the digest of the last one."""
        names = list(self.undelivered)
        last = next(
            (i for i, name in enumerate(names) if message_digest(self.undelivered[name]) == answered_digest), -1
        )
        return replace(self, undelivered={name: self.undelivered[name] for name in names[last + 1 :]})

    def decrypt_message(self, message: SignedMessage) -> bytes:
        """The content of an encrypted message."""
        way = message.sender, message.recipient
        try:
            key, about = self._message_key(message.body[:FILE_SALT_BYTES], message.kind, way, message.number)
            return keys.decrypt(key, message.body[FILE_SALT_BYTES:], about)
        except KeysRefused:
            raise MessageRefused("it cannot be decrypted, because it was encrypted with other keys") from None

    def _encrypt_text(self, text: bytes, kind: str, direction: tuple[PartyId, PartyId], number: int) -> bytes:
        salt = secrets.token_bytes(FILE_SALT_BYTES)  # no key encrypts two messages
        key, about = self._message_key(salt, kind, direction, number)
        return salt + keys.encrypt(key, text, about)

    def _message_key(
        self, salt: bytes, kind: str, direction: tuple[PartyId, PartyId], number: int
    ) -> tuple[bytes, bytes]:
        about = keys.frame_parts("fedclust message", self.run, *direction, number, kind)
        return keys.derive_key(keys.derive_shared_secret(self.private, self.public), about, salt), about


def chain_path(folder: Path, run: str, party: PartyId = "") -> Path:
    """The file of one end's chain."""
    return folder / "messages" / hashlib.sha256(f"{run}\n{party}".encode()).hexdigest()[:32]
