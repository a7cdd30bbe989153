"""Rows of random bits, packed eight to a byte: drawn exactly, set, and counted by columns.

Bit c of a row is bit c % 8 of byte c // 8. The unused bits of the last byte are 0.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InvalidValue
from tacit.local.oracle import rows_of
from tacit.mechanisms._base import Int64
from tacit.randomness import Source

__all__ = ["bernoulli_rows", "column_counts", "row_of", "row_weights", "set_bits", "well_formed", "width"]

Rows = NDArray[np.uint8]
_BLOCK = 1 << 14
_DIGITS = 60
_TOGETHER = 8
"""After so many digits, most words of 64 bits are decided, and the others are gathered."""


def width(columns: int) -> int:
    """The number of bytes of a row."""
    return -(-columns // 8)


def bernoulli_rows(source: Source, chance: Fraction, rows: int, columns: int) -> Rows:
    """Independent bits, each 1 with exactly this chance, a multiple of 2^−60."""
    whole = chance * 2**_DIGITS
    if whole.denominator != 1 or not 0 <= chance < 1:
        raise InvalidValue("chance", chance, "a multiple of 2^-60 in [0, 1)")
    size = rows * width(columns)
    words = np.concatenate(
        [
            _words(source, int(whole), min(_BLOCK, -(-size // 8) - start))
            for start in range(0, -(-size // 8), _BLOCK)
        ]
        or [np.zeros(0, dtype=np.uint64)]
    )
    found = words.view(np.uint8)[:size].reshape(rows, width(columns))
    if columns % 8:
        found[:, -1] &= (1 << columns % 8) - 1
    return found


def _words(source: Source, digits: int, size: int) -> NDArray[np.uint64]:
    """Words of 64 bits, each bit 1 if U < digits/2^60; the digits of 64 numbers U are drawn at a time.

    The first digit in which U differs from the threshold decides; a U that agrees in all digits is not below.
    """
    result = np.zeros(size, dtype=np.uint64)
    some, equal = result, np.full(size, ~np.uint64(0))
    places: Any = None
    for place in range(1, _DIGITS + 1):
        if not digits & ((1 << (_DIGITS - place + 1)) - 1):
            break
        drawn = source.words(len(equal))
        if digits >> (_DIGITS - place) & 1:
            some |= equal & ~drawn
            equal = equal & drawn
        else:
            equal = equal & ~drawn
        if place >= _TOGETHER:
            left = np.flatnonzero(equal)
            if places is None:
                places, some = np.arange(size), result
            if len(left) < len(equal) // 2 or place == _TOGETHER:
                result[places] = some
                places, equal, some = places[left], equal[left], some[left]
            if not len(left):
                break
    if places is not None:
        result[places] = some
    return result


def set_bits(rows: Rows, columns: Int64, values: NDArray[np.bool_]) -> None:
    """Set one bit of each row, in place."""
    each = np.arange(len(rows))
    byte, bit = columns >> 3, (columns & 7).astype(np.uint8)
    mask = np.left_shift(np.uint8(1), bit)
    rows[each, byte] = (rows[each, byte] & ~mask) | np.where(values, mask, np.uint8(0))


def column_counts(rows: Rows, columns: int) -> Int64:
    """How many rows have a 1 in each column.

    Bytes count up to 255 rows at once: 255 slabs of rows are added byte by byte, for each of the eight bits.
    """
    if rows.size <= _BLOCK:
        unpacked = np.unpackbits(rows, axis=1, bitorder="little")
        return np.asarray(unpacked.sum(axis=0, dtype=np.int64)[:columns])
    slab = -(-len(rows) // 255)
    length = slab * rows.shape[1]
    counts = np.zeros((rows.shape[1], 8), dtype=np.int64)
    flat = np.ascontiguousarray(rows).reshape(-1)
    for bit in range(8):
        sums = np.zeros(length, dtype=np.uint8)
        for start in range(0, flat.size, length):
            part = flat[start : start + length]
            sums[: part.size] += (part >> bit) & 1
        counts[:, bit] = sums.reshape(slab, -1).sum(axis=0, dtype=np.int64)
    return counts.reshape(-1)[:columns]


def row_weights(rows: Rows) -> Int64:
    """How many ones each row has."""
    return np.asarray(np.bitwise_count(rows).sum(axis=1, dtype=np.int64))


def well_formed(reports: Any, columns: int) -> tuple[Rows, int]:
    """The rows whose unused bits are 0, and how many reports are no such rows."""
    rows, refused = rows_of(reports, width(columns), bytes_only=True)
    if not columns % 8 or not len(rows):
        return rows, refused
    kept = rows[:, -1] >> columns % 8 == 0
    return (rows, refused) if kept.all() else (rows[kept], refused + int((~kept).sum()))


def row_of(members: Any, columns: int) -> bytes:
    """The bytes of a row that has ones in these columns."""
    number = sum(1 << int(column) for column in members)
    return number.to_bytes(width(columns), "little")
