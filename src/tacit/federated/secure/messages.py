"""What clients and server of a round send each other, as bytes that any transport can carry.

A message is a header (kind, session, round, number of the client that sent it or for which it is) and a
body of fixed layout in little-endian order. ``from_bytes`` refuses everything else; no pickle, and nothing
is guessed.

================  ================  ============================================================
message           direction         content
================  ================  ============================================================
KeysMessage       client → server   its two public keys
RosterMessage     server → client   who takes part, and the public keys of the client's neighbours
SharesMessage     client → server   for each neighbour, sealed shares of the client's two secrets
InboxMessage      server → client   the sealed shares that neighbours sent to the client
MaskedMessage     client → server   the masked vector, modulo 2^bits
SurvivorsMessage  server → client   whose masked vectors are in the sum
UnmaskMessage     client → server   for each neighbour one share: of its self-mask or of its mask key
================  ================  ============================================================
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from tacit.errors import MessageRefused
from tacit.federated.secure.keys import KEY, TAG, Occasion, word_of

__all__ = [
    "InboxMessage",
    "KeysMessage",
    "MaskedMessage",
    "Message",
    "RosterMessage",
    "SharesMessage",
    "SurvivorsMessage",
    "UnmaskMessage",
]

_HEADER = struct.Struct("<4s16sII")
_BOX = 2 * KEY + TAG


def _malformed(kind: str) -> MessageRefused:
    return MessageRefused(
        f"These bytes are not a message of the kind {kind}.", "Drop the client or the round."
    )


def _numbers(values: Iterable[int]) -> bytes:
    return np.array(list(values), dtype="<u4").tobytes()


def _table(entries: Mapping[int, bytes], size: int) -> bytes:
    """Entries of one size, by client, in increasing order of their numbers."""
    order = sorted(entries)
    if any(len(entries[number]) != size for number in order):
        raise MessageRefused("An entry of a message has the wrong size.")
    return struct.pack("<I", len(order)) + _numbers(order) + b"".join(entries[number] for number in order)


class _Reader:
    """Takes a body apart, and refuses one that is too short or too long, or whose numbers do not increase."""

    def __init__(self, kind: str, body: bytes) -> None:
        self.kind, self.body, self.at = kind, body, 0

    def take(self, size: int) -> bytes:
        piece = self.body[self.at : self.at + size]
        if len(piece) != size:
            raise _malformed(self.kind)
        self.at += size
        return piece

    def count(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def numbers(self) -> tuple[int, ...]:
        count = self.count()
        if 4 * count > len(self.body):
            raise _malformed(self.kind)
        found = np.frombuffer(self.take(4 * count), dtype="<u4").astype(np.int64)
        if np.any(np.diff(found) <= 0):
            raise _malformed(self.kind)
        return tuple(found.tolist())

    def table(self, size: int) -> dict[int, bytes]:
        order = self.numbers()
        block = self.take(size * len(order))
        return {number: block[i * size : (i + 1) * size] for i, number in enumerate(order)}

    def end(self) -> None:
        if self.at != len(self.body):
            raise _malformed(self.kind)


@dataclass(frozen=True)
class Message:
    """A message of one round: ``on`` says of which, ``number`` from or for which client."""

    on: Occasion
    number: int
    tag: ClassVar[bytes] = b""

    def to_bytes(self) -> bytes:
        """The message as bytes; ``from_bytes`` reads them."""
        return _HEADER.pack(self.tag, self.on.session, self.on.round, self.number) + self._body()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The message; :class:`~tacit.errors.MessageRefused` for bytes that are none of this kind."""
        name = cls.__name__
        if not isinstance(data, (bytes, bytearray, memoryview)) or len(data) < _HEADER.size:
            raise _malformed(name)
        data = bytes(data)
        tag, session, round_, number = _HEADER.unpack_from(data)
        if tag != cls.tag:
            raise _malformed(name)
        reader = _Reader(name, data[_HEADER.size :])
        message = cls._read(reader, Occasion(session, round_), number)
        reader.end()
        return message

    def _body(self) -> bytes:
        raise NotImplementedError

    @classmethod
    def _read(cls, reader: _Reader, on: Occasion, number: int) -> Self:
        raise NotImplementedError


@dataclass(frozen=True)
class KeysMessage(Message):
    """A client's public keys of this round: for sealing shares, and for masks."""

    cipher_key: bytes
    mask_key: bytes
    tag: ClassVar[bytes] = b"KEYS"

    def _body(self) -> bytes:
        return self.cipher_key + self.mask_key

    @classmethod
    def _read(cls, reader: _Reader, on: Occasion, number: int) -> Self:
        return cls(on, number, reader.take(KEY), reader.take(KEY))


@dataclass(frozen=True)
class RosterMessage(Message):
    """Who takes part, and the keys (for sealing, for masks) of those whom this client has to know."""

    clients: tuple[int, ...]
    keys: Mapping[int, tuple[bytes, bytes]]
    tag: ClassVar[bytes] = b"ROST"

    def _body(self) -> bytes:
        joined = {number: one + other for number, (one, other) in self.keys.items()}
        return struct.pack("<I", len(self.clients)) + _numbers(self.clients) + _table(joined, 2 * KEY)

    @classmethod
    def _read(cls, reader: _Reader, on: Occasion, number: int) -> Self:
        clients = reader.numbers()
        keys = {each: (both[:KEY], both[KEY:]) for each, both in reader.table(2 * KEY).items()}
        return cls(on, number, clients, keys)


@dataclass(frozen=True)
class _Boxes(Message):
    boxes: Mapping[int, bytes]

    def _body(self) -> bytes:
        return _table(self.boxes, _BOX)

    @classmethod
    def _read(cls, reader: _Reader, on: Occasion, number: int) -> Self:
        return cls(on, number, reader.table(_BOX))


@dataclass(frozen=True)
class SharesMessage(_Boxes):
    """Sealed shares of this client's secrets, by the neighbour that can open them."""

    tag: ClassVar[bytes] = b"SHAR"


@dataclass(frozen=True)
class InboxMessage(_Boxes):
    """Sealed shares for this client, by the neighbour that sent them."""

    tag: ClassVar[bytes] = b"INBO"


@dataclass(frozen=True, eq=False)
class MaskedMessage(Message):
    """A client's masked vector: integers modulo 2^bits, in as few bytes each as hold them."""

    vector: NDArray[np.unsignedinteger]
    bits: int
    tag: ClassVar[bytes] = b"MASK"

    def _body(self) -> bytes:
        word, size = word_of(self.bits), -(-self.bits // 8)
        values = np.ascontiguousarray(self.vector, dtype=word)
        pieces = values.view(np.uint8).reshape(len(values), word.itemsize)[:, :size]
        return struct.pack("<II", self.bits, len(values)) + pieces.tobytes()

    @classmethod
    def _read(cls, reader: _Reader, on: Occasion, number: int) -> Self:
        bits, length = reader.count(), reader.count()
        if not 1 <= bits <= 64 or length * -(-bits // 8) > len(reader.body):
            raise _malformed(cls.__name__)
        word, size = word_of(bits), -(-bits // 8)
        pieces = np.frombuffer(reader.take(length * size), dtype=np.uint8).reshape(length, size)
        values = np.zeros((length, word.itemsize), dtype=np.uint8)
        values[:, :size] = pieces
        vector = values.view(word).reshape(length)
        if bits % 8 and np.any(vector >> word.type(bits)):
            raise _malformed(cls.__name__)
        return cls(on, number, vector, bits)


@dataclass(frozen=True)
class SurvivorsMessage(Message):
    """Whose masked vectors arrived, and make up the sum; the same for all."""

    clients: tuple[int, ...]
    tag: ClassVar[bytes] = b"SURV"

    def _body(self) -> bytes:
        return struct.pack("<I", len(self.clients)) + _numbers(self.clients)

    @classmethod
    def _read(cls, reader: _Reader, on: Occasion, number: int) -> Self:
        return cls(on, number, reader.numbers())


@dataclass(frozen=True)
class UnmaskMessage(Message):
    """One share for each neighbour: of the self-mask of those that survived, of the mask key of those that
    did not.
    """

    self_shares: Mapping[int, bytes]
    key_shares: Mapping[int, bytes]
    tag: ClassVar[bytes] = b"UNMA"

    def _body(self) -> bytes:
        return _table(self.self_shares, KEY) + _table(self.key_shares, KEY)

    @classmethod
    def _read(cls, reader: _Reader, on: Occasion, number: int) -> Self:
        return cls(on, number, reader.table(KEY), reader.table(KEY))
