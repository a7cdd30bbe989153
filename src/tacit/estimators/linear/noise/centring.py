"""Rows about a centre that was released, and what is released of their centre and their scale.

:class:`~tacit.estimators.linear.noise.adaptive.AdaptiveLeastSquares` has the sensitivities.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.data.arithmetic import lengths
from tacit.estimators.linear.noise.place import Array
from tacit.estimators.linear.rows import KEPT_BYTES, ScaledRows

__all__ = ["FLOOR", "Centre", "CentredRows", "Scale", "ShortenedRows", "shrunk"]

EXPONENTS = (-10, 1)
"""The scales that are told apart are powers of two between these."""
CONSTANT = 0.3
"""The square of the constant beside the centred features, relative to their mean squared length."""
FLOOR = 2.0
"""The number of rows is taken to be at least so many standard deviations of its noise."""
BESIDE = 0.5
"""The constant beside rows of length 1 in the moments."""


@dataclass(frozen=True)
class Centre:
    """What the first release says of rows (u, constant) with targets s: their number, means, mean ‖u‖²."""

    count: float
    least: float
    """The number of rows that there are at least, but for two standard deviations of its noise."""
    target: float
    features: Array
    square: float
    constant: float

    @staticmethod
    def sums(rows: ScaledRows, features: int) -> Array:
        """Σ (1, s, u, ‖u‖²), exact."""
        total = np.zeros(features + 3)
        for x, targets, w in rows.weighted():
            counted = x.any(axis=1) * (1.0 if isinstance(w, float) else w[:, 0])
            u = x[:, :features]
            total[0] += counted.sum()
            total[1] += counted @ targets[:, 0]
            total[2:-1] += counted @ u
            total[-1] += counted @ np.square(u).sum(axis=1)
        return total

    @classmethod
    def of(cls, sums: Array, spread: Array, intercept: bool, count: float | None) -> Centre:
        """Means of noisy sums, shrunk towards 0 by their noise; ``spread`` has one deviation for each sum."""
        rows = max(float(sums[0]), FLOOR * float(spread[0]), 1.0) if count is None else float(count)
        means, errors = sums / rows, spread / rows
        features, noise = means[2:-1] * intercept, float(np.linalg.norm(errors[2:-1]))
        length = float(np.linalg.norm(features))
        features = features * float(shrunk(min(length, 1.0), noise)) / max(length, 1e-300)
        square = float(np.clip(means[-1] - features @ features + errors[-1] / 2, 0.05, 1.0))
        target = float(np.clip(shrunk(means[1], errors[1]), -1.0, 1.0)) if intercept else 0.0
        least = rows if count is not None else max(float(sums[0] - 2 * spread[0]), 0.0)
        return cls(rows, least, target, features, square, math.sqrt(CONSTANT * square) if intercept else 0.0)


class CentredRows:
    """Rows z = (u − centre, constant) with their residuals r = s − mean, lengths and weights, in many passes.

    How a row is centred, and its length, depend on that row and the released centre alone, bit by bit.
    """

    def __init__(self, rows: ScaledRows, centre: Centre) -> None:
        self._rows, self.centre = rows, centre
        small = len(rows) * rows.width * 8 <= KEPT_BYTES
        self._kept = list(self._prepare()) if small else None

    def _prepare(self) -> Iterator[tuple[Array, Array, Array, Array | float]]:
        features = self.centre.features.size
        for x, targets, w in self._rows.weighted():
            counted = x.any(axis=1)
            z = x.copy()
            z[:, :features] -= self.centre.features
            z[:, features:] = self.centre.constant
            z[~counted] = 0.0
            residuals = np.where(counted, targets[:, 0] - self.centre.target, 0.0)
            yield z, residuals, lengths(z), w if isinstance(w, float) else w[:, 0]

    def blocks(self) -> Iterator[tuple[Array, Array, Array, Array | float]]:
        """(z, residuals, ‖z‖, weights) of each block; a row that does not count is all zeros."""
        return iter(self._kept) if self._kept is not None else self._prepare()


@dataclass(frozen=True)
class Scale:
    """Noisy histograms of ‖z‖ and |r|, over powers of two."""

    lengths: Array
    residuals: Array

    @staticmethod
    def counts(rows: CentredRows) -> Array:
        """How many rows have their length, and their residual, below each power of two and not the last."""
        edges = 2.0 ** np.arange(*EXPONENTS)
        found = np.zeros((2, edges.size + 1))
        for z, residuals, sizes, w in rows.blocks():
            counted = z.any(axis=1) * w
            for row, values in zip(found, (sizes, np.abs(residuals)), strict=True):
                row += np.bincount(np.searchsorted(edges, values), counted, edges.size + 1)
        return found

    def bound(self, histogram: Array, beyond: float) -> float:
        """A value that about ``beyond`` rows exceed: bins are added up from the top, then interpolated."""
        tail = 0.0
        for place in range(histogram.size - 1, 0, -1):
            before, tail = tail, tail + float(histogram[place])
            if tail > beyond:
                part = min(max((beyond - before) / (tail - before), 0.0), 1.0)
                return float(2.0 ** (EXPONENTS[0] + place - part))
        return float(2.0 ** EXPONENTS[0])


class ShortenedRows:
    """Rows for :meth:`Moments.of`: of length ≤ 1, targets within ±1, each scaled down as a whole.

    A row and its target that exceed the bounds are multiplied by the same number, which is to give the row a
    lower weight: least squares of the same linear relation.
    """

    def __init__(self, rows: CentredRows, length: float, residual: float) -> None:
        self._rows, self._length, self._residual = rows, length, residual
        self.constant = BESIDE if rows.centre.constant > 0 else 0.0
        self.radius = math.hypot(1.0, self.constant)
        self.width = rows.centre.features.size + (self.constant > 0)

    def weighted(self) -> Iterator[tuple[Array, Array, Array | float]]:
        """(rows, targets, weights) of each block: centred rows, shortened to the length that was bought."""
        features = self._rows.centre.features.size
        for z, residuals, _, w in self._rows.blocks():
            x = z / (self._length * self.radius)
            x[:, features:] = np.where(z.any(axis=1), self.constant / self.radius, 0.0)[:, None]
            s = residuals / self._residual
            largest = np.maximum(np.maximum(lengths(x), np.abs(s)), 1.0)
            x, s = x / largest[:, None], np.clip(s / largest, -1.0, 1.0)
            yield x, s[:, None], w if isinstance(w, float) else w[:, None]


def shrunk(means: Any, errors: Any) -> Any:
    """Means less what noise of this standard deviation adds to their squares; 0 where that is all of it."""
    return means * np.maximum(0.0, 1 - np.square(errors) / np.maximum(np.square(means), 1e-300))
