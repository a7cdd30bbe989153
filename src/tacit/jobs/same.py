"""Whether the rows of a test are the rows that the model was fitted to.

A measurement on the training rows has to be paid for from the budget of the people in them. As public rows,
or from the budget of others, the training rows are refused. Rows are compared by content, as the model sees
them, whatever the file is called and however it is packed, ordered, repeated or formatted.

The comparison keeps the curator, who holds both files, from a mistake. A refusal is not a release: it says
that the private rows are exactly those of a file that was declared public, and must not be shown to anybody
who may not see the private rows. Some of the training rows alone, or training rows with a value changed,
are not recognised.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import zlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tacit.errors import InvalidValue

__all__ = ["digest_of", "refusal", "refuse_same_file"]

_PIECE = 1 << 20


def refusal(test: str, what: str = "rows") -> InvalidValue:
    """The error about a test on the training rows."""
    return InvalidValue(
        "test=", test, f"other {what} than the ones that the model is fitted to",
        f"What is measured on the training {what} has to be paid for: use test_epsilon= alone.",
    )  # fmt: skip


def refuse_same_file(source: str, test: str) -> None:
    """Refuse a test on a file that holds the same bytes, compressed or not, under whatever name."""
    if _digest_of_file(Path(source)) == _digest_of_file(Path(test)) is not None:
        raise refusal(test)


def digest_of(rows: Iterable[Any]) -> str:
    """A digest of rows in any order: equal where the rows are, each as often or k times as often."""
    counts = Counter(hashlib.sha256(repr(row).encode("utf-8", "backslashreplace")).digest() for row in rows)
    times = math.gcd(*counts.values()) or 1
    each = sorted(row + (count // times).to_bytes(8, "big") for row, count in counts.items())
    return hashlib.sha256(b"".join(each)).hexdigest()


def _digest_of_file(path: Path) -> str | None:
    """Of what a file holds, unpacked; None for what is no file."""
    found = hashlib.sha256()
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else path.open("rb") as content:
            while piece := content.read(_PIECE):
                found.update(piece)
    except (OSError, EOFError, ValueError, zlib.error):
        return None
    return found.hexdigest()
