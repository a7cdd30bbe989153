"""The private rows, scaled by public facts: clipped to bounds and norm, with an intercept, of length ≤ 1.

A scaled row is (x, intercept)/R, R being its public norm bound, so that its ℓ2 norm is at most 1. How a row
is scaled depends on that row alone, and no value in it raises an error. A value that is not finite is
missing, and counts as the middle of its bounds, in ``fit`` and in ``predict``, as a missing value does in a
:class:`~tacit.data.preprocessor.Preprocessor`; a row without any finite value does not count.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.data.arithmetic import lengths
from tacit.errors import InvalidValue

__all__ = ["ScaledBlocks", "ScaledRows", "Space"]

Array = NDArray[np.float64]

BLOCK = 1 << 15
"""Rows prepared at a time where they are not all kept."""
LARGEST = 1e150
"""Bounds and norms beyond this, or below one over it, are refused: squares would leave float64."""
KEPT_BYTES = 1 << 28
"""Prepared rows are kept up to this size, and prepared anew in every pass beyond it."""


@dataclass(frozen=True)
class Space:
    """How a raw row is scaled: ((clip(x) − centre)/scale, clipped to ``norm``, intercept)/R."""

    lower: Array
    upper: Array
    centre: Array
    scale: Array
    norm: float
    intercept: float

    @classmethod
    def of(cls, lower: Array, upper: Array, norm: float | None, *, intercept: bool) -> Space:
        """Scaled to [−1, 1] by finite bounds alone; as it is where a norm is given."""
        width = lower.size
        if norm is None:
            with np.errstate(over="ignore"):
                centre, scale = lower / 2 + upper / 2, upper / 2 - lower / 2
            small = np.maximum(np.abs(lower), np.abs(upper)) < LARGEST
            if not (small.all() and (scale > 1 / LARGEST).all()):
                raise InvalidValue("bounds", "numbers too large or too close", "within ±1e150, 1e-150 apart")
            bound = math.sqrt(max(width, 1))
        else:
            centre, scale = np.zeros(width), np.ones(width)
            bound = norm
            if not 1 / LARGEST <= norm <= LARGEST:
                raise InvalidValue("norm", norm, "in [1e-150, 1e150]", "Measure in other units.")
        constant = bound / math.sqrt(max(width, 1)) if norm is None else bound / 4
        return cls(lower, upper, centre, scale, bound, constant if intercept else 0.0)

    @property
    def radius(self) -> float:
        """R: the norm bound of a row together with its intercept."""
        return math.hypot(self.norm, self.intercept)

    @property
    def width(self) -> int:
        """How many coordinates a scaled row has."""
        return self.lower.size + (self.intercept > 0)

    def scaled(self, block: NDArray[Any]) -> Array:
        """The scaled rows of raw rows; a row without any value that is finite is all zeros."""
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            raw = np.array(block, dtype=np.float64, order="C")
            finite = np.isfinite(raw).any(axis=1) if raw.shape[1] else np.ones(len(raw), dtype=bool)
            complete(raw, self.centre)
            np.clip(raw, self.lower, self.upper, out=raw)
            raw -= self.centre
            raw /= self.scale
            raw *= (np.minimum(1.0, self.norm / np.maximum(lengths(raw), 1e-300)) / self.radius)[:, None]
        if self.intercept > 0:
            raw = np.column_stack([raw, np.full(len(raw), self.intercept / self.radius)])
        raw[~finite] = 0.0
        return raw

    def unscaled(self, weights: Array) -> tuple[Array, Array]:
        """Coefficients and intercepts for raw rows, from weights (width, outputs) for scaled rows."""
        features = weights[: self.lower.size] / (self.scale * self.radius)[:, None]
        constant = weights[-1] * (self.intercept / self.radius) if self.intercept > 0 else 0.0
        intercepts = np.broadcast_to(constant - self.centre @ features, (weights.shape[1],))
        return features.T.copy(), np.array(intercepts, dtype=np.float64)


def complete(raw: Array, middle: Array) -> None:
    """Put the middle in place of every value that is not finite."""
    missing = ~np.isfinite(raw)
    if missing.any():
        raw[missing] = np.broadcast_to(middle, raw.shape)[missing]


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
