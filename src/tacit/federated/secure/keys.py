"""Keys of one round: agreed by X25519, derived by HKDF-SHA256, stretched to masks by ChaCha20.

Every derived key is bound to its purpose, the session, the round, the numbers of the two clients and the
public keys from which it came. A key is used once: keys of clients are fresh in each round.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from tacit import _validate
from tacit.errors import InvalidValue, MessageRefused
from tacit.randomness import Source

__all__ = [
    "KEY", "TAG", "KeyPair", "Occasion", "Stream", "check_number", "derived", "opened", "sealed", "word_of",
]  # fmt: skip

KEY = 32
TAG = 16
_NAME = b"tacit secure aggregation 1"
_ONCE = bytes(12)


@dataclass(frozen=True)
class Occasion:
    """One round of one session, to which every key and every message belongs.

    >>> Occasion(bytes(16), 3).round
    3
    """

    session: bytes
    round: int

    def __post_init__(self) -> None:
        if not isinstance(self.session, bytes) or len(self.session) != 16:
            raise InvalidValue("session", "something else", "16 bytes, drawn anew for each training run")
        if not isinstance(self.round, int) or not 0 <= self.round < 2**32:
            raise InvalidValue("round", self.round, "a whole number below 2^32")

    def to_bytes(self) -> bytes:
        """Session and round, to which keys and sealed shares are bound."""
        return self.session + struct.pack("<I", self.round)


@dataclass(frozen=True)
class KeyPair:
    """A secret number and its public key."""

    secret: X25519PrivateKey
    public: bytes

    @classmethod
    def drawn(cls, source: Source) -> KeyPair:
        """A fresh pair."""
        return cls.of(source.words(KEY, np.uint8).tobytes())

    @classmethod
    def of(cls, secret: bytes) -> KeyPair:
        """The pair of a secret of 32 bytes."""
        key = X25519PrivateKey.from_private_bytes(secret)
        return cls(key, key.public_key().public_bytes_raw())

    def to_bytes(self) -> bytes:
        """The secret."""
        return self.secret.private_bytes_raw()

    def exchanged(self, public: bytes) -> bytes:
        """What only this pair and the owner of ``public`` can compute; keys are derived from it."""
        try:
            return self.secret.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError:
            raise MessageRefused("A public key is not one of X25519.", "Leave this round.") from None

    def can_exchange(self, public: bytes) -> bool:
        """Whether ``public`` is a key with which secrets can be exchanged."""
        try:
            self.exchanged(public)
        except MessageRefused:
            return False
        return True

    def pairwise(self, number: int, other: int, public: bytes, on: Occasion) -> bytes:
        """The key of the mask between client ``number``, whose pair this is, and client ``other``."""
        ends = sorted([(number, self.public), (other, public)])
        return derived(self.exchanged(public), b"mask", on, *ends)


def check_number(number: int) -> int:
    """A client's number, which messages and keys hold in 32 bits."""
    if _validate.count("number", number) >= 2**32:
        raise InvalidValue("number", number, "a whole number below 2^32")
    return int(number)


def derived(exchanged: bytes, purpose: bytes, on: Occasion, *ends: tuple[int, bytes]) -> bytes:
    """A key for one purpose in one round.

    ``ends`` are number and public key of both clients, in an order on which they agree: the sender first.
    """
    info = _NAME + purpose + on.to_bytes() + b"".join(struct.pack("<I", number) + key for number, key in ends)
    return HKDF(hashes.SHA256(), KEY, None, info).derive(exchanged)


def sealed(key: bytes, text: bytes, about: bytes) -> bytes:
    """The text, encrypted and authenticated with a key that is used for nothing else."""
    return ChaCha20Poly1305(key).encrypt(_ONCE, text, about)


def opened(key: bytes, box: bytes, about: bytes, sender: int) -> bytes:
    """The text of a box that was sealed with this key."""
    try:
        return ChaCha20Poly1305(key).decrypt(_ONCE, box, about)
    except InvalidTag:
        raise MessageRefused("A share was not sealed by its sender for this round.", client=sender) from None


def word_of(bits: int) -> np.dtype[np.unsignedinteger]:
    """The smallest unsigned integers that hold ``bits`` bits."""
    for size in (1, 2, 4, 8):
        if bits <= 8 * size:
            return np.dtype(f"<u{size}")
    raise InvalidValue("bits", bits, "at most 64")


class Stream:
    """Masks: ChaCha20 key streams as ``dimension`` integers modulo 2^bits, added and subtracted in place."""

    def __init__(self, dimension: int, bits: int) -> None:
        self.word = word_of(bits)
        self._zeros = bytes(dimension * self.word.itemsize)
        self._buffer = np.empty(len(self._zeros), dtype=np.uint8)
        self._words = self._buffer.view(self.word)

    def add(self, total: NDArray[np.unsignedinteger], key: bytes) -> None:
        """Add the mask of this key to ``total``."""
        np.add(total, self._stretched(key), out=total)

    def subtract(self, total: NDArray[np.unsignedinteger], key: bytes) -> None:
        """Subtract the mask of this key from ``total``."""
        np.subtract(total, self._stretched(key), out=total)

    def _stretched(self, key: bytes) -> NDArray[np.unsignedinteger]:
        encryptor = Cipher(algorithms.ChaCha20(key, bytes(16)), None).encryptor()
        encryptor.update_into(self._zeros, self._buffer.data)
        return self._words
