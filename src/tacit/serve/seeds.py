"""One secret seed for each request: whoever computes its release again computes the same release.

A process may be killed between the charge and the end of a request, for want of memory, say, and that may
depend on the rows or on the noise. If the next attempt drew fresh noise, what is released would have been
chosen among several draws, and its distribution would be another than the one that was paid for. So all
noise of a request comes from one key of 256 bits, drawn from the operating system before the request is
charged: every attempt computes the same release, and it does not matter which of them is stored.

The noise is that of AES-256 in counter mode, the generator that OpenSSL gives random bits from, under a key
of its own for each request and with a counter of its own for each source (:func:`streams`). So a guarantee
says of it what it says of the bits of the operating system, as long as the key is secret: whoever has it can
subtract the noise from the release. It is therefore kept where the rows are kept from others, in the home
(:class:`Seeds`), and in no database, whose journals and backups would keep it. It is removed when the request
has ended. A request that was charged and has lost its key fails, and is not drawn again.

What a release depends on besides: the rows, which are read in the order of the files, and the code. Sums of
floating-point numbers that an engine adds in parallel may differ in their last digits before the noise is
added; cells are whole numbers.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tacit.randomness import Stream

__all__ = ["Seeds", "new", "streams"]

SIZE = 32
_PLACE, _DRAFT = "seed", ".seed-"


@dataclass(frozen=True)
class Seeds:
    """The seeds of requests that have not ended, each a file that its owner alone can read."""

    folder: Path

    def keep(self, request: str, seed: bytes) -> bytes:
        """Keep the seed of a request, or find the one that another attempt has kept: the first one counts."""
        place = self.place(request)
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = place.with_name(f"{_DRAFT}{secrets.token_hex(8)}")
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(seed)
                file.flush()
                os.fsync(file.fileno())
            with contextlib.suppress(FileExistsError):
                os.link(draft, place)
        finally:
            draft.unlink(missing_ok=True)
        _flushed(place.parent)
        found = self.find(request)
        if found is None:
            raise OSError(f"The seed of request {request} cannot be read; the home may be damaged.")
        return found

    def find(self, request: str) -> bytes | None:
        """The seed of a request, if it is kept and whole."""
        try:
            found = self.place(request).read_bytes()
        except OSError:
            return None
        return found if len(found) == SIZE else None

    def forget(self, request: str) -> None:
        """Remove the seed of a request that has ended, and drafts of it whose process was killed."""
        place = self.place(request)
        for found in (place, *place.parent.glob(f"{_DRAFT}*")):
            found.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            place.parent.rmdir()

    def kept(self) -> list[str]:
        """The requests whose seeds are kept, or drafts of them."""
        found = [*self.folder.glob(f"*/{_PLACE}"), *self.folder.glob(f"*/{_DRAFT}*")]
        return sorted({one.parent.name for one in found})

    def place(self, request: str) -> Path:
        """Where the seed of a request is."""
        return self.folder / request / _PLACE


def new() -> bytes:
    """A new seed, from the operating system."""
    return secrets.token_bytes(SIZE)


def streams(seed: bytes) -> Iterator[Stream]:
    """Streams of bits under one seed, none of which repeats another: see :func:`tacit.randomness.drawn_from`.

    >>> seed = bytes(range(32))
    >>> first, second = itertools.islice(streams(seed), 2)
    >>> whole = first(48)
    >>> again = next(streams(seed))
    >>> again(16) + again(32) == whole, second(48) == whole
    (True, False)
    """
    return map(partial(_Stream, seed, os.getpid()), itertools.count())


def _flushed(folder: Path) -> None:
    """Have the entries of a folder written before the charge is: the charge outlives a power failure too."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class _Stream:
    """The bytes of AES-256 in counter mode; the upper half of the counter is the number of the stream.

    It is never in two places at once: a copy is the same stream, and in any process but the one in which
    :func:`streams` was called, forked off or unpickled, there is none, but bits of the operating system.
    """

    def __init__(self, seed: bytes, process: int, number: int) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        counter = number.to_bytes(8, "big") + bytes(8)
        self._cipher = Cipher(algorithms.AES256(seed), modes.CTR(counter)).encryptor()
        self._process, self._turn = process, threading.Lock()

    def __call__(self, size: int) -> bytes:
        if self._process != os.getpid():
            return os.urandom(size)
        with self._turn:
            return self._cipher.update(bytes(size))

    def __copy__(self) -> _Stream:
        return self

    def __deepcopy__(self, known: dict[int, Any]) -> _Stream:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _operating_system, ()


def _operating_system() -> Stream:
    return os.urandom
