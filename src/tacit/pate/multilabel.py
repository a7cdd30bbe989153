"""Aggregators where a query has several labels at once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import _validate, events
from tacit.errors import InvalidValue
from tacit.mechanisms import Gaussian
from tacit.pate.aggregator import ROOT
from tacit.pate.noisy_max import checked_sigma, gaussian_winners, in_blocks
from tacit.pate.predictions import PredictionAggregator
from tacit.randomness import Source

__all__ = ["MultiLabel"]

METHODS = ("counts", "clipped", "powerset")
_STEPS = 2.0**20
"""Clipped predictions are rounded down to this many steps per vote, so that their sums are exact."""
_MOST_LABELS = 12


@dataclass(frozen=True)
class MultiLabel(PredictionAggregator):
    """Which of ``labels`` labels a query has, by the votes of the teachers on each, with Gaussian noise.

    Predictions are 0 or 1, of shape (teachers, queries, labels); every other value, NaN included, counts as
    0. A record is seen by one teacher, which may change its prediction of every label (both relations).

    ``method="counts"``
        The votes for each label get noise N(0, sigma²); a label is given if more than ``threshold`` remain
        (half of the teachers unless told). One teacher moves each count by 1: √labels in ℓ2.
    ``method="clipped"``
        The same, where each teacher's vector is scaled down to ℓ2 norm ``clip_norm`` beforehand, for queries
        that have few of many labels. The entries stay non-negative, so two such vectors are at most
        √2·clip_norm apart (Zhu et al. 2020 charge 2·clip_norm, which holds for any sign).
    ``method="powerset"``
        Each set of labels is one class of GNMax, of which there are 2^labels: √2 in ℓ2.

    Event: ``Gaussian(sigma/sensitivity)`` for each query, with exact noise
    (:class:`tacit.mechanisms.Gaussian`).

    >>> predictions = np.tile([[1, 0, 0], [0, 1, 1]], (250, 1, 1))
    >>> MultiLabel(3, sigma=10, teachers=250).answer(predictions, random_state=1).tolist()
    [[1, 0, 0], [0, 1, 1]]
    >>> MultiLabel(100, sigma=10, method="clipped", clip_norm=2.0, teachers=250).event(asked=1)
    Repeat(event=Gaussian(noise_multiplier=3.53...), times=1)
    """

    labels: int
    sigma: float = 40.0
    method: str = "counts"
    clip_norm: float | None = None
    threshold: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep("labels", _validate.count("labels", self.labels, 1))
        self._keep("sigma", checked_sigma("sigma", self.sigma))
        _validate.choice("method", self.method, METHODS)
        if (self.method == "clipped") != (self.clip_norm is not None):
            raise InvalidValue("clip_norm", self.clip_norm, "given for method='clipped', and only there")
        if self.clip_norm is not None:
            self._keep("clip_norm", _validate.positive("clip_norm", self.clip_norm))
        if self.method == "powerset" and (self.labels > _MOST_LABELS or self.threshold is not None):
            requirement = f"at most {_MOST_LABELS} for method='powerset', which takes no threshold"
            raise InvalidValue("labels", self.labels, requirement, "Use method='counts'.")
        if self.threshold is not None:
            self._keep("threshold", _validate.finite("threshold", self.threshold))
        checked_sigma("sigma/sensitivity", self.sigma / self.sensitivity)

    @property
    def sensitivity(self) -> float:
        """The ℓ2 distance of the noised vector between neighbours, for one query."""
        if self.method == "counts":
            return math.sqrt(self.labels) * (1 + 2.0**-50)
        return ROOT if self.clip_norm is None else ROOT * self.clip_norm * (1 + 2.0**-50)

    def _answer_event(self) -> events.Event:
        return events.Gaussian(self.sigma / self.sensitivity)

    def _shape(self) -> tuple[int, ...]:
        return (self.labels,)

    def _combined(self, predictions: NDArray[Any], source: Source) -> NDArray[Any]:
        ones = predictions == 1
        if self.method == "powerset":
            places = ones @ (1 << np.arange(self.labels))
            votes = np.stack([(places == place).sum(axis=0) for place in range(1 << self.labels)], axis=1)
            winners = gaussian_winners(votes.astype(np.int64), self.sigma, source)
            return (winners[:, None] >> np.arange(self.labels)) & 1
        if self.clip_norm is None:
            counts = ones.sum(axis=0).astype(float)
        else:
            norms = np.sqrt(ones.sum(axis=2, keepdims=True))
            share = np.minimum(1.0, self.clip_norm / np.maximum(norms, 1.0))
            counts = (np.floor(share * _STEPS) * ones).sum(axis=0) / _STEPS
        noisy = self._noisy(counts, source)
        return (noisy > (self.teachers / 2 if self.threshold is None else self.threshold)).astype(np.int64)

    def _noisy(self, counts: NDArray[np.float64], source: Source) -> NDArray[np.float64]:
        multiplier = self.sigma / self.sensitivity
        return in_blocks(counts, Gaussian(self.sensitivity, noise_multiplier=multiplier, random_state=source))
