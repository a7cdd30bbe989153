"""Arithmetic on rows that rounds each row by itself.

How a matrix product or a sum along rows rounds one row may depend on how many other rows there are and on how
they lie in memory. Where a row's number must depend on that row alone, bit by bit, these are used instead.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["lengths", "products"]

Array = NDArray[np.float64]


def lengths(rows: Array) -> Array:
    """The ℓ2 norm of each row, by one operation per feature on all rows.

    Elementwise operations round each row by itself. A sum along rows does not: NumPy adds up in another
    order where the array is in column order, unless it has a single row.
    """
    largest = np.abs(rows).max(axis=1, initial=0.0)
    unit = np.where(largest > 0, largest, 1.0)
    total = np.zeros(len(rows))
    for start in range(0, rows.shape[1], 32):
        part = np.zeros(len(rows))
        for j in range(start, min(start + 32, rows.shape[1])):
            part += np.square(rows[:, j] / unit)
        total += part
    return np.asarray(np.sqrt(total) * unit)


def products(rows: Array, weights: Array) -> Array:
    """``rows @ weights``, feature by feature: how a matrix product rounds a row may depend on the others."""
    total = np.zeros((len(rows), weights.shape[1]))
    for j in range(rows.shape[1]):
        total += np.multiply.outer(rows[:, j], weights[j])
    return total
