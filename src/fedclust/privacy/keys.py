"""Identities and shared secrets: Ed25519 signatures, X25519 key agreement, and keys derived from them by HKDF.

Keys come from the operating system. No key is used for two purposes: each purpose derives its own key.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from fedclust.core.errors import KeysRefused

ONE_TIME_NONCE = bytes(12)  # the nonce of a key that encrypts one message


@dataclass(frozen=True)
class Identity:
    """A party's signing key, enrolled once and for all of its studies."""

    private: bytes

    @classmethod
    def new(cls) -> Identity:
        return cls(Ed25519PrivateKey.generate().private_bytes_raw())

    @property
    def public(self) -> bytes:
        return Ed25519PrivateKey.from_private_bytes(self.private).public_key().public_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        return Ed25519PrivateKey.from_private_bytes(self.private).sign(message)


def is_signed_by(public: bytes, signature: bytes, message: bytes) -> bool:
    """Return whether the holder of an identity signed exactly this message."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def new_pair() -> tuple[bytes, bytes]:
    """Return a fresh (private, public) pair for key agreement."""
    private = X25519PrivateKey.generate()
    return private.private_bytes_raw(), private.public_key().public_bytes_raw()


def public_from_private(private: bytes) -> bytes:
    """The public half of an agreement key."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def derive_shared_secret(private: bytes, public: bytes) -> bytes:
    """The secret that the holders of two pairs share, ready to derive keys from."""
    try:
        shared = X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise KeysRefused("the public key is not a valid X25519 key") from None
    return hmac.digest(b"fedclust agreement", shared, "sha256")


def derive_key(secret: bytes, *purpose: bytes | str | int) -> bytes:
    """A key for one purpose."""
    return expand_key(secret, frame_parts(*purpose))


def expand_key(secret: bytes, info: bytes) -> bytes:
    """HKDF-Expand, one block."""
    return hmac.digest(secret, info + b"\x01", "sha256")


def frame_parts(*parts: bytes | str | int) -> bytes:
    """Join parts, each with its length, so that no two lists give the same bytes."""
    out = []
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode()
        out += [len(data).to_bytes(4, "little"), data]
    return b"".join(out)


def digest_parts(*parts: bytes | str | int) -> bytes:
    """A fingerprint of a list of parts."""
    return hashlib.sha256(frame_parts(*parts)).digest()


def encrypt(key: bytes, text: bytes, about: bytes) -> bytes:
    """Encrypt a text under a key that is used only once, bound to its context."""
    return ChaCha20Poly1305(key).encrypt(ONE_TIME_NONCE, text, about)


def decrypt(key: bytes, sealed: bytes, about: bytes) -> bytes:
    """Return the text if it was encrypted under this key and for this context."""
    try:
        return ChaCha20Poly1305(key).decrypt(ONE_TIME_NONCE, sealed, about)
    except InvalidTag:
        raise KeysRefused("an encrypted message was altered, or encrypted for another recipient or purpose") from None
