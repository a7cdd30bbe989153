"""What may be done to noisy counts once they are released: it costs nothing."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from tacit.mechanisms._base import Float64

__all__ = ["without_negatives"]


def without_negatives(counts: ArrayLike) -> Float64:
    """The nearest array without negatives and with the same total, or all zeros if that is negative.

    The projection to a simplex, max(x − λ, 0) for the λ that keeps the total (Held, Wolfe and Crowder 1974).

    >>> without_negatives([5.0, -1.0, 2.0]).tolist()
    [4.5, 0.0, 1.5]
    """
    cells = np.asarray(counts, dtype=np.float64)
    total = float(cells.sum())
    if not total > 0:
        return np.zeros(cells.shape)
    falling = np.sort(cells, axis=None)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, falling.size + 1)
    kept = int(np.flatnonzero(falling >= excess)[-1])
    return np.asarray(np.maximum(cells - excess[kept], 0.0))
