"""The private rows, scaled by public facts (:mod:`tacit.data.space`), with an intercept, of length ≤ 1.

A row without any finite value does not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.data.space import Space, complete

__all__ = ["ScaledBlocks", "ScaledRows", "Space", "complete"]

Array = NDArray[np.float64]

BLOCK = 1 << 15
"""Rows prepared at a time where they are not all kept."""
KEPT_BYTES = 1 << 28
"""Prepared rows are kept up to this size, and prepared anew in every pass beyond it."""


class ScaledRows:
    """Private scaled rows and their targets, block by block, in one pass or many.

    ``weights`` say how much each row counts, from 0 to 1; see :mod:`tacit.estimators.linear.weights`.
    """

    def __init__(
        self, matrix: NDArray[Any], targets: Array, space: Space, keep: NDArray[np.bool_] | None = None,
        weights: Array | None = None,
    ) -> None:  # fmt: skip
        self._matrix, self._targets, self.space = matrix, targets, space
        self._keep, self._weights = keep, weights
        self.width, self.outputs = space.width, targets.shape[1]
        small = len(matrix) * space.width * 8 <= KEPT_BYTES
        self._kept = list(self._prepare(BLOCK)) if small else None

    @property
    def nbytes(self) -> int:
        """The memory of the rows and of what was prepared of them."""
        prepared = sum(rows.nbytes + targets.nbytes for rows, targets in self._kept or ())
        return self._matrix.nbytes + self._targets.nbytes + prepared

    def _prepare(self, size: int) -> Iterator[tuple[Array, Array]]:
        for start in range(0, len(self._matrix), size):
            part = slice(start, start + size)
            rows, targets = self.space.scaled(self._matrix[part]), self._targets[part]
            dropped = np.asarray(~np.isfinite(targets).all(axis=1))
            if self._keep is not None:
                dropped |= ~self._keep[part]
            if self._weights is not None:
                dropped |= ~(self._weights[part] > 0)
            if dropped.any():
                rows[dropped] = 0.0
                targets = np.where(dropped[:, None], 0.0, targets)
            yield rows, targets

    def blocks(self) -> Iterator[tuple[Array, Array]]:
        """(rows, targets) of up to :data:`BLOCK` rows; a row that does not count is all zeros."""
        return iter(self._kept) if self._kept is not None else self._prepare(BLOCK)

    def weighted(self) -> Iterator[tuple[Array, Array, Array | float]]:
        """(rows, targets, weights) of the same blocks; weights are (rows, 1), or 1 where all rows count."""
        start = 0
        for rows, targets in self.blocks():
            part = slice(start, start + len(rows))
            yield rows, targets, 1.0 if self._weights is None else self._weights[part, None]
            start += len(rows)

    def __len__(self) -> int:
        return len(self._matrix)


class ScaledBlocks(ScaledRows):
    """The scaled rows of several blocks; every pass over them is a pass over ``parts``."""

    def __init__(self, parts: Iterable[ScaledRows], space: Space, outputs: int) -> None:
        self._parts, self.space = parts, space
        self.width, self.outputs = space.width, outputs

    def blocks(self) -> Iterator[tuple[Array, Array]]:
        """As those of the parts."""
        for part in self._parts:
            yield from part.blocks()

    def weighted(self) -> Iterator[tuple[Array, Array, Array | float]]:
        """As those of the parts."""
        for part in self._parts:
            yield from part.weighted()

    def __len__(self) -> int:
        return sum(len(part) for part in self._parts)
