"""Noise for integers: discrete Laplace and discrete Gaussian."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from tacit import _validate, events
from tacit.errors import InvalidValue
from tacit.mechanisms._base import Int64, Mechanism, exactly_one, tail, whole_values
from tacit.randomness import MAX_SCALE, discrete_gaussian, discrete_laplace

LIMIT = 2**60
"""Integers are clamped to ± this before noise, and releases to ± twice this."""


class _Integers(Mechanism):
    """Integer values plus integer noise."""

    def _noise(self, size: int) -> Int64:
        raise NotImplementedError

    @overload
    def __call__(self, value: int) -> int: ...
    @overload
    def __call__(self, value: NDArray[Any] | Sequence[Any]) -> Int64: ...
    def __call__(self, value: Any) -> int | Int64:
        """The value with noise: an int for a scalar, else int64 of the same shape."""
        values, scalar = whole_values(value, LIMIT)
        noise = self._noise(values.size).reshape(values.shape)
        result = np.clip(values + noise, -2 * LIMIT, 2 * LIMIT)
        return int(result) if scalar else result


@dataclass(frozen=True)
class DiscreteLaplace(_Integers):
    """Noise on integers with P(k) ∝ e^(−ε|k|/sensitivity) (Ghosh, Roughgarden, Sundararajan 2009).

    ``sensitivity``, a whole number, bounds the ℓ1 distance of the whole array between neighbours.

    Guarantee: ε-differential privacy, by the triangle inequality. The event is ``Pure(ε)``, not
    ``Laplace(1/ε)``: with sensitivity 1 neighbours are at total variation tanh(ε/2), which is what
    ε alone allows and more than the 1 − e^(−ε/2) of the continuous noise.

    Values are clamped to ±2^60. Anything but integers raises :class:`~tacit.errors.InvalidValue`.

    >>> counts = DiscreteLaplace(sensitivity=1, epsilon=0.5, random_state=1)
    >>> counts([120, 80]).tolist(), counts.event, counts.interval()
    ([119, 77], Pure(epsilon=0.5), (-6, 6))
    """

    sensitivity: int
    epsilon: float
    event: events.Pure = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep("sensitivity", _validate.count("sensitivity", self.sensitivity, 1))
        self._keep("epsilon", _validate.epsilon(self.epsilon))
        if self._scale() > MAX_SCALE:
            raise InvalidValue("epsilon", self.epsilon, "at least sensitivity · 2^-54")
        self._keep("event", events.Pure(self.epsilon))

    def _scale(self) -> Fraction:
        return self.sensitivity / Fraction(self.epsilon)

    def _noise(self, size: int) -> Int64:
        return discrete_laplace(self._source, self._scale(), size)

    @property
    def deviation(self) -> float:
        """The standard deviation of one coordinate of the noise."""
        decay = math.exp(-1 / float(self._scale()))
        return math.sqrt(2 * decay) / (1 - decay)

    def interval(self, confidence: float = 0.95, *, coordinates: int = 1) -> tuple[int, int]:
        """Where true − released lies with at least this probability, for all ``coordinates`` at once.

        The smallest k with ``P(|N| > k) = 2 r^(k+1)/(1+r)`` ≤ miss, r = e^(−ε/sensitivity).
        """
        miss = tail(confidence, coordinates) * (1 - 1e-9)
        scale = float(self._scale())
        ratio = math.exp(-1 / scale)
        k = max(0, math.ceil(scale * math.log(2 / ((1 + ratio) * miss))) - 1)
        return -k, k


@dataclass(frozen=True)
class DiscreteGaussian(_Integers):
    """Noise on integers with P(k) ∝ e^(−k²/2σ²) (Canonne, Kamath, Steinke 2020).

    ``sensitivity`` bounds the ℓ2 distance of the whole array between neighbours and σ is
    noise_multiplier × sensitivity. Give ``noise_multiplier``, or ``epsilon`` and ``delta``.

    Guarantee: ρ-zCDP with ρ = 1/(2·noise_multiplier²): they show that no Rényi divergence between
    shifts by whole numbers exceeds that of the real Gaussian, and these add over coordinates.
    (ε, δ) is met through their conversion ε = ρα + ln((α−1)/α) − (ln δ + ln α)/(α−1), valid for
    every order α > 1 and taken at the best.

    Values are clamped to ±2^60. Anything but integers raises :class:`~tacit.errors.InvalidValue`.

    >>> counts = DiscreteGaussian(sensitivity=1.0, noise_multiplier=4.0, random_state=1)
    >>> counts(120), counts.event, counts.interval()
    (113, ZeroConcentrated(rho=0.03125), (-8, 8))
    """

    sensitivity: float = 1.0
    epsilon: float | None = None
    delta: float | None = None
    noise_multiplier: float | None = None
    event: events.ZeroConcentrated = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep("sensitivity", _validate.positive("sensitivity", self.sensitivity))
        given = exactly_one(epsilon=self.epsilon, noise_multiplier=self.noise_multiplier)
        if given == "noise_multiplier":
            if self.delta is not None:
                raise InvalidValue("delta", self.delta, "left out where noise_multiplier is given")
            rho = _rho(_validate.positive("noise_multiplier", self.noise_multiplier))
        else:
            epsilon = _validate.epsilon(self.epsilon)
            rho = _calibrate(epsilon, _validate.open_probability("delta", self.delta))
        self._keep("event", events.ZeroConcentrated(rho))
        if self._variance() > MAX_SCALE**2 // 4:
            raise InvalidValue("sensitivity", self.sensitivity, "such that σ is at most 2^53")

    def _variance(self) -> Fraction:
        """sensitivity²/2ρ: the noise is set by the event, so its ρ holds to the bit."""
        return Fraction(self.sensitivity) ** 2 / (2 * Fraction(self.event.rho))

    def _noise(self, size: int) -> Int64:
        return discrete_gaussian(self._source, self._variance(), size)

    @property
    def deviation(self) -> float:
        """σ, which the standard deviation of one coordinate of the noise never exceeds."""
        return math.sqrt(self._variance())

    def interval(self, confidence: float = 0.95, *, coordinates: int = 1) -> tuple[int, int]:
        """Where true − released lies with at least this probability, for all ``coordinates`` at once.

        The smallest such k by summing the probabilities for σ up to 10^4; beyond, one more than
        the continuous quantile, which is at most one too many.
        """
        miss = tail(confidence, coordinates) * (1 - 1e-9)
        deviation = math.sqrt(self._variance())
        if deviation > 1e4:
            k = math.ceil(-deviation * float(ndtri(miss / 2)) * (1 + 1e-12)) + 1
            return -k, k
        points = np.arange(math.ceil(40 * deviation) + 2)
        weights = np.exp(-(points**2) / (2 * deviation**2))
        beyond = 2 * (weights[::-1].cumsum()[::-1] - weights) / (2 * weights.sum() - 1)
        k = int(np.argmax(beyond <= miss))
        return -k, k


def _rho(noise_multiplier: float) -> float:
    if not 1e-150 <= noise_multiplier <= 1e150:
        raise InvalidValue("noise_multiplier", noise_multiplier, "between 1e-150 and 1e150")
    return 0.5 / noise_multiplier**2


def _calibrate(epsilon: float, delta: float) -> float:
    """The largest ρ whose conversion at δ stays within ε: at order α that is (ε − c(α))/α."""
    excess = np.geomspace(1e-9, 1e12, 1 << 16)
    order = 1 + excess
    conversion = -np.log1p(1 / excess) - (math.log(delta) + np.log(order)) / excess
    rho = float(np.max((epsilon - conversion) / order)) * (1 - 1e-10)
    if rho <= 0:
        raise InvalidValue("epsilon", epsilon, "larger at this delta")
    return rho
