"""Aggregators of numbers that the teachers predict: their mean or their median."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import _validate, events
from tacit.errors import InvalidValue
from tacit.mechanisms import Gaussian
from tacit.pate.noisy_max import checked_sigma, chosen, in_blocks
from tacit.pate.predictions import PredictionAggregator
from tacit.randomness import Source

__all__ = ["MeanVote", "MedianVote"]

_STEPS = 2**20
"""A prediction is rounded to this many steps between its bounds, so that sums are exact."""


@dataclass(frozen=True)
class _Bounded(PredictionAggregator):
    """Predictions of shape (teachers, queries), clipped to public bounds; NaN counts as the middle."""

    bounds: tuple[float, float]

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            low, high = (_validate.finite("bounds", bound) for bound in self.bounds)
        except (TypeError, ValueError):
            raise InvalidValue("bounds", self.bounds, "two numbers, the lower one first") from None
        if not low < high or not np.isfinite(high - low):
            raise InvalidValue("bounds", self.bounds, "two numbers, the lower one first")
        self._keep("bounds", (low, high))

    def _steps(self, predictions: NDArray[Any]) -> NDArray[np.int64]:
        """Each prediction as a whole number of steps from the lower bound, by itself."""
        low, high = self.bounds
        values = predictions.astype(float)
        inside = np.clip(np.where(np.isnan(values), low + (high - low) / 2, values), low, high)
        return np.rint(np.clip((inside - low) / (high - low), 0.0, 1.0) * _STEPS).astype(np.int64)


@dataclass(frozen=True)
class MeanVote(_Bounded):
    """The mean of the teachers' predictions, clipped to ``bounds``, with Gaussian noise.

    Relation: a record is seen by one teacher (both relations). Sensitivity: (upper − lower)/teachers. Event:
    ``Gaussian(noise_multiplier)`` for each query. Predictions are rounded to 2^−20 of the range, one by one,
    so that their sum is exact, and the noise is (:class:`tacit.mechanisms.Gaussian`).

    >>> predictions = np.tile([3.0, 7.0], (250, 1))
    >>> MeanVote((0.0, 10.0), noise_multiplier=4.0, teachers=250).answer(predictions, random_state=1).round(2)
    array([3.15, 6.77])
    """

    noise_multiplier: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep("noise_multiplier", checked_sigma("noise_multiplier", self.noise_multiplier))

    def _answer_event(self) -> events.Event:
        return events.Gaussian(self.noise_multiplier)

    def _combined(self, predictions: NDArray[Any], source: Source) -> NDArray[Any]:
        sums = self._steps(predictions).sum(axis=0)
        noise = Gaussian(float(_STEPS), noise_multiplier=self.noise_multiplier, random_state=source)
        low, high = self.bounds
        share = in_blocks(sums, noise) / (_STEPS * self.teachers)
        return np.asarray(low + share * (high - low))


@dataclass(frozen=True)
class MedianVote(_Bounded):
    """About the median of the teachers' predictions: a value of a public grid, by the exponential mechanism.

    The grid has ``candidates`` values between the ``bounds``, ends included. The score of one is minus the
    larger of how many predictions are below and above it. Relation: a record is seen by one teacher (both
    relations). Sensitivity: one teacher moves either number by 1. Event: ``BoundedRange(epsilon)`` for each
    query; the choice is exact.

    >>> predictions = np.tile([3.0, 7.0], (250, 1))
    >>> MedianVote((0.0, 10.0), epsilon=0.5, candidates=11, teachers=250).answer(predictions, random_state=1)
    array([3., 7.])
    """

    epsilon: float = 0.1
    candidates: int = 257

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep("epsilon", _validate.epsilon(self.epsilon))
        self._keep("candidates", _validate.count("candidates", self.candidates, 2))
        if not (2.0**-28 <= self.epsilon <= 2.0**28 and self.candidates <= 2**16):
            raise InvalidValue("epsilon", self.epsilon, "in [2^-28, 2^28], with at most 2^16 candidates")

    def _answer_event(self) -> events.Event:
        return events.BoundedRange(self.epsilon)

    def _combined(self, predictions: NDArray[Any], source: Source) -> NDArray[Any]:
        low, high = self.bounds
        grid = low + (high - low) * np.arange(self.candidates) / (self.candidates - 1)
        places = np.rint(np.linspace(0, _STEPS, self.candidates)).astype(np.int64)
        ordered = np.sort(self._steps(predictions), axis=0)
        scores = np.empty((ordered.shape[1], self.candidates), dtype=np.int64)
        for query, values in enumerate(ordered.T):
            below = np.searchsorted(values, places, side="left")
            above = self.teachers - np.searchsorted(values, places, side="right")
            scores[query] = -np.maximum(below, above)
        return np.asarray(grid[chosen(scores, self.epsilon, source)])
