"""ALIBI: noise on one-hot labels, and the posterior that a model's prior makes of them.

Malek, Mironov, Prasad, Shilov and Tramèr, "Antipodes of Label Differential Privacy: PATE and ALIBI" (NeurIPS
2021).

Sensitivity: replacing a label moves its one-hot row from one corner of the simplex to another, by 2 in ℓ1 and
√2 in ℓ2; a label that is none of the classes is the row of zeros, at most 1 from each corner. Event:
``Laplace(1/ε)``, that is noise of scale b = 2/ε on each entry, or for δ > 0 ``Gaussian(σ/√2)`` calibrated to
(ε, δ). Whatever is computed from the noisy rows afterwards is post-processing.

The log-likelihood of class c given the noisy row x is, but for a constant of the row,

    Laplace:  (|x_c| − |x_c − 1|)/b        Gaussian:  x_c/σ²

as −((x_c − 1)² − x_c²)/(2σ²) = (x_c − 1/2)/σ². The published code divides by σ where it should divide by σ²,
which weighs the labels wrongly unless σ = 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit import events
from tacit.labels.response import Float64, Int64
from tacit.mechanisms import Gaussian, Laplace
from tacit.randomness import Source

__all__ = ["NoisyOneHot"]

_ACROSS = math.nextafter(math.sqrt(2.0), math.inf)
"""The ℓ2 distance of two one-hot rows, rounded up."""


@dataclass(frozen=True)
class NoisyOneHot:
    """One-hot labels with exact Laplace noise, or with Gaussian noise where ``delta`` is above 0.

    Guarantee: (ε, δ)-differential privacy for each label.

    >>> mechanism = NoisyOneHot(categories=10, epsilon=1.0)
    >>> mechanism.event, mechanism.scale
    (Laplace(scale=1.0), 2.0)
    >>> round(NoisyOneHot(10, 1.0, 1e-5).event.noise_multiplier, 3)
    3.731
    """

    categories: int
    epsilon: float
    delta: float = 0.0

    def mechanism(self, source: Source | None = None) -> Laplace | Gaussian:
        """The noise, for a matrix of which one row changes from one one-hot row to another."""
        if self.delta:
            return Gaussian(_ACROSS, epsilon=self.epsilon, delta=self.delta, random_state=source)
        return Laplace(2.0, epsilon=self.epsilon, random_state=source)

    @property
    def event(self) -> events.Event:
        """What the noisy rows cost, for one label."""
        return self.mechanism().event

    @property
    def scale(self) -> float:
        """The scale b of the Laplace noise, or the standard deviation σ of the Gaussian noise."""
        made = self.mechanism()
        if isinstance(made, Gaussian):
            return _ACROSS * made.event.noise_multiplier
        return 2.0 * made.event.scale

    def respond(self, codes: Int64, source: Source) -> Float64:
        """A noisy row for each code, −1 for labels that are none of the classes."""
        rows = np.zeros((len(codes), self.categories))
        known = np.flatnonzero(codes >= 0)
        rows[known, codes[known]] = 1.0
        return np.asarray(self.mechanism(source)(rows))

    def log_likelihood(self, responses: Float64) -> Float64:
        """log P(noisy row | class) for every row and class, but for a constant of the row."""
        if self.delta:
            return responses / self.scale**2
        return (np.abs(responses) - np.abs(responses - 1.0)) / self.scale
