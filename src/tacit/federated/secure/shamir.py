"""Shamir's secret sharing of bytes, over the field of 256 elements (Shamir 1979).

A secret of n bytes is split into shares of n bytes, one for each of at most 255 holders. Any ``threshold``
of them give the secret back; fewer are independent of it, whatever the computing power, because each byte
is the value at 0 of a polynomial of degree threshold − 1 whose other coefficients are uniform.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InvalidValue
from tacit.randomness import Source

__all__ = ["MOST_HOLDERS", "recovered", "split", "weights"]

Bytes = NDArray[np.uint8]

MOST_HOLDERS = 255
"""A holder is a nonzero element of the field."""
_POLYNOMIAL = 0x11B


@cache
def _products() -> Bytes:
    """The multiplication table of the field, with x⁸ + x⁴ + x³ + x + 1 = 0."""
    table = np.zeros((256, 256), dtype=np.uint8)
    column = np.arange(256)
    for row in range(256):
        product, shifted, rest = np.zeros(256, dtype=np.int64), column.copy(), row
        while rest:
            if rest & 1:
                product ^= shifted
            shifted <<= 1
            shifted ^= np.where(shifted & 256, _POLYNOMIAL, 0)
            rest >>= 1
        table[row] = product
    return table


def split(secret: bytes, holders: int, threshold: int, source: Source) -> list[bytes]:
    """Shares of the secret for holders 1 … ``holders``; any ``threshold`` of them are enough, and fewer
    tell nothing.
    """
    if not 1 <= threshold <= holders <= MOST_HOLDERS:
        raise InvalidValue("threshold", threshold, f"between 1 and {holders} holders, themselves at most 255")
    products = _products()
    coefficients = source.words((threshold - 1, len(secret)), np.uint8)
    points = np.arange(1, holders + 1)
    shares = np.zeros((holders, len(secret)), dtype=np.uint8)
    for coefficient in coefficients:
        shares = products[points[:, None], shares ^ coefficient]
    shares ^= np.frombuffer(secret, dtype=np.uint8)
    return [share.tobytes() for share in shares]


def weights(points: tuple[int, ...]) -> Bytes:
    """By what shares of these holders are multiplied so that they add up to the secret (Lagrange, at 0)."""
    if len(set(points)) != len(points) or not all(1 <= point <= MOST_HOLDERS for point in points):
        raise InvalidValue("points", len(points), "different holders, from 1 to 255")
    logarithms, powers = _logarithms()
    at = np.array(points, dtype=np.int64)
    differences = at[:, None] ^ at
    np.fill_diagonal(differences, 1)
    logs = logarithms[at].sum() - logarithms[at] - logarithms[differences].sum(axis=1)
    return np.asarray(powers[logs % 255])


@cache
def _logarithms() -> tuple[NDArray[np.int64], Bytes]:
    """Logarithms to the base 3, which generates the field, and its powers."""
    powers, products = [1], _products()
    for _ in range(254):
        powers.append(int(products[powers[-1], 3]))
    logarithms = np.zeros(256, dtype=np.int64)
    logarithms[powers] = np.arange(255)
    return logarithms, np.array(powers, dtype=np.uint8)


def recovered(shares: list[bytes], by: Bytes) -> bytes:
    """The secret, from as many shares as the threshold demands and the :func:`weights` of their holders."""
    table = np.frombuffer(b"".join(shares), dtype=np.uint8).reshape(len(shares), -1)
    return bytes(np.bitwise_xor.reduce(_products()[by[:, None], table], axis=0))
