"""Rows in a ball of public radius, on a grid of integers: what clusters and components are fitted to.

A row is clipped to its bounds, measured from a public origin, shortened to the radius, divided by it and cut
off to whole steps. So a row is a vector of integers that is at most ``grid`` long, whatever it held, and
every number that a fit or a prediction computes from it first (a sum over rows, a product with a vector that
is on such a grid too) is an integer below 2^53, which float64 holds exactly. Those numbers are the same
however many other rows there are, in whichever order and blocks they are added, and whatever BLAS does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.data.arithmetic import lengths
from tacit.data.space import LARGEST, declared_box
from tacit.errors import InvalidValue
from tacit.estimators.private import PrivateRows, Public

__all__ = ["FINE", "Ball", "on_grid"]

Array = NDArray[np.float64]

FINE = 2**26
"""Steps to the radius for predictions: products of two vectors of this grid stay below 2^53."""
BLOCK = 1 << 14
"""Rows that are put on the grid at a time."""
_WITHIN = 1 - 2.0**-30
"""Points are drawn this much towards the origin first, far more than rounding can lengthen them."""


@dataclass(frozen=True)
class Ball:
    """Where rows lie by public facts: in a box, within ``radius`` of ``origin`` in ℓ2.

    Where bounds alone are known, the origin is their midpoint and the radius the distance to a corner. Where
    a norm is known, by ``norm=`` or a :class:`~tacit.data.preprocessor.Preprocessor`, the origin is zero.
    Features keep their units.

    >>> ball = Ball.of(Public(1.0, 0.0, "add_remove", None, 2), bounds=(0, [6, 8]), norm=None)
    >>> ball.origin.tolist(), ball.radius
    ([3.0, 4.0], 5.0)
    >>> ball.whole(np.array([[6.0, 4.0], [np.nan, 99.0]]), 1000).tolist()
    [[599.0, 0.0], [0.0, 799.0]]
    """

    lower: Array
    upper: Array
    origin: Array
    radius: float

    @classmethod
    def of(cls, public: Public, *, bounds: Any, norm: Any) -> Ball:
        """The ball that parameters declare, or else that a Preprocessor or another step knows."""
        lower, upper, length = declared_box(public.width, bounds, norm, public.features)
        if bounds is None and public.features is None:
            lower, upper = np.full_like(lower, -LARGEST), np.full_like(upper, LARGEST)
        origin = np.zeros_like(lower) if length is not None else lower / 2 + upper / 2
        radius = math.hypot(*(upper / 2 - lower / 2)) if length is None else length
        small = max(float(np.abs(lower).max()), float(np.abs(upper).max())) <= LARGEST
        if not (small and 1 / LARGEST <= radius <= LARGEST):
            raise InvalidValue("bounds", "numbers too large or too close", "within ±1e150, 1e-150 apart")
        return cls(lower, upper, origin, radius)

    @classmethod
    def fitted(cls, model: Any) -> Ball:
        """The ball of a fitted model, from its released attributes."""
        lower, upper = np.asarray(model.bounds_)
        return cls(lower, upper, np.asarray(model.origin_), float(model.radius_))

    @property
    def facts(self) -> dict[str, Any]:
        """The released attributes that :meth:`fitted` reads."""
        bounds = np.stack([self.lower, self.upper])
        return {"bounds_": bounds, "origin_": self.origin, "radius_": self.radius}

    @property
    def largest_l1(self) -> float:
        """The largest ℓ1 norm of a row, divided by the radius."""
        with np.errstate(over="ignore"):
            far = np.maximum(np.abs(self.lower - self.origin), np.abs(self.upper - self.origin))
        return min(math.sqrt(self.lower.size), float((far / self.radius).sum()))

    def whole(self, matrix: NDArray[Any], grid: int) -> Array:
        """Every row on the grid, from that row alone: integers in float64, at most ``grid`` long in ℓ2.

        A value that is not finite is missing, and counts as the origin's.
        """
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            rows = np.array(matrix, dtype=np.float64, order="C")
            missing = ~np.isfinite(rows)
            if missing.any():
                rows[missing] = np.broadcast_to(self.origin, rows.shape)[missing]
            np.clip(rows, self.lower, self.upper, out=rows)
            rows -= self.origin
            rows /= self.radius
            np.clip(rows, -LARGEST, LARGEST, out=rows)
            return on_grid(rows, grid)

    def blocks(self, rows: PrivateRows, grid: int) -> Iterator[tuple[Array, NDArray[np.bool_]]]:
        """(rows on the grid, which of them count), block by block.

        A row counts if its unit may have it and one of its values is finite.
        """
        for start in range(0, len(rows.matrix), BLOCK):
            part = rows.matrix[start : start + BLOCK]
            counts = np.isfinite(part).any(axis=1)
            if rows.keep is not None:
                counts &= rows.keep[start : start + BLOCK]
            yield self.whole(part, grid), counts

    def inside(self, points: Array) -> Array:
        """Points of the unit ball, clipped to where rows can lie."""
        with np.errstate(over="ignore"):
            low, high = (self.lower - self.origin) / self.radius, (self.upper - self.origin) / self.radius
        clipped = np.clip(points, low, high)
        return np.asarray(clipped / np.maximum(lengths(clipped), 1.0)[:, None])

    def raw(self, points: Array) -> Array:
        """Points of the unit ball in the units of the features."""
        return np.asarray(self.origin + self.radius * points)


def on_grid(points: Array, grid: int) -> Array:
    """Points shortened to the unit ball, in whole steps of 1/grid, cut off towards zero.

    Cutting off makes no coordinate larger, so that a point is at most ``grid`` steps long.
    """
    size = lengths(points)
    factor = np.where(size > 1.0, 1.0 / np.where(size > 1.0, size, 1.0), 1.0)
    return np.asarray(np.trunc(points * (factor * (grid * _WITHIN))[:, None]))
