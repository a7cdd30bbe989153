"""The space of scaled rows: how a row of features becomes a vector of length at most 1, by public facts.

A scaled row is (x, intercept)/R, R being its public norm bound, so that its ℓ2 norm is at most 1. How a row
is scaled depends on that row alone, and no value in it raises an error. A value that is not finite is
missing, and counts as the middle of its bounds, in ``fit`` and in ``predict``, as a missing value does in a
:class:`~tacit.data.preprocessor.Preprocessor`; a row without any finite value is all zeros.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import _validate
from tacit.data.arithmetic import lengths
from tacit.data.features import Features, box
from tacit.errors import InvalidValue

__all__ = ["LARGEST", "Space", "complete", "declared_box"]

Array = NDArray[np.float64]

LARGEST = 1e150
"""Bounds and norms beyond this, or below one over it, are refused: squares would leave float64."""


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

    @classmethod
    def declared(
        cls, width: int, *, bounds: Any, norm: Any, features: Features | None, intercept: bool,
        otherwise: str = "",
    ) -> Space:  # fmt: skip
        """The space that parameters declare, or else that a Preprocessor or another step knows.

        ``otherwise`` is a sentence that is added to the advice where neither does.
        """
        lower, upper, length = declared_box(width, bounds, norm, features, otherwise)
        return cls.of(lower, upper, length, intercept=intercept)

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


def declared_box(
    width: int, bounds: Any, norm: Any, features: Features | None, otherwise: str = ""
) -> tuple[Array, Array, float | None]:
    """The bounds of each feature, ±∞ where none are known, and the norm of a row, None where none is.

    They are what parameters declare, or else what a Preprocessor or another step knows. ``otherwise`` is a
    sentence that is added to the advice where neither does.
    """
    length = None if norm is None else _validate.positive("norm", norm)
    if bounds is not None:
        return (*box(bounds, width), length)
    if features is not None:
        length = features.largest_norm if length is None else length
    if length is None:
        advice = (
            "Say what is publicly known: bounds=(lower, upper) of the features, norm= of a row, or a "
            f"Preprocessor before. {otherwise}".rstrip()
        )
        raise InvalidValue("bounds", None, "given, or norm=", advice)
    if features is None:
        return np.full(width, -np.inf), np.full(width, np.inf), length
    return np.array(features.lower), np.array(features.upper), length


def complete(raw: Array, middle: Array) -> None:
    """Put the middle in place of every value that is not finite."""
    missing = ~np.isfinite(raw)
    if missing.any():
        raw[missing] = np.broadcast_to(middle, raw.shape)[missing]
