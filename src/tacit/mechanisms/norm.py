"""The K-norm mechanism."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray
from scipy.special import gammaincinv

from tacit import _validate, events
from tacit.errors import InvalidValue
from tacit.mechanisms import _grid
from tacit.mechanisms._base import Float64, Mechanism, real_values, tail
from tacit.mechanisms.laplace import Laplace


@dataclass(frozen=True)
class Norm(Mechanism):
    """Noise with density ∝ exp(−ε‖x‖/sensitivity) on a vector (Hardt and Talwar 2010).

    ``sensitivity`` bounds the distance of neighbours in the same norm: 1, 2 or ``"inf"``. An
    array of any shape is one vector of d coordinates.

    Guarantee: ε-differential privacy, since ‖x − a‖ and ‖x − b‖ differ by at most ‖a − b‖.
    For ℓ1 this is :class:`~tacit.mechanisms.Laplace`, exact and charged as such. For ℓ2 the noise
    is a Gamma(d) radius times a uniform direction, for ℓ∞ a Gamma(d+1) radius times a uniform point
    of the cube [−1, 1]^d; both are float64 noise: the proof is about real numbers, the sum is
    rounded to float64 (Mironov 2012 shows what that can cost), and ``noise`` says so.

    >>> norm = Norm(sensitivity=1.0, epsilon=1.0, norm=2, random_state=1)
    >>> norm([3.0, 4.0]).shape, norm.event, norm.noise
    ((2,), Pure(epsilon=1.0), 'seeded')
    """

    sensitivity: float
    epsilon: float
    norm: int | str = 2
    event: events.Event = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep("sensitivity", _grid.real_sensitivity(self.sensitivity))
        self._keep("epsilon", _validate.epsilon(self.epsilon))
        if not 2.0**-500 <= self.sensitivity / self.epsilon <= 2.0**500:
            raise InvalidValue("epsilon", self.epsilon, "such that sensitivity/ε is in [2^-500, 2^500]")
        if isinstance(self.norm, bool) or self.norm not in (1, 2, "inf"):
            raise InvalidValue("norm", self.norm, "1, 2 or 'inf'")
        self._keep("event", events.Pure(self.epsilon) if self.norm != 1 else self._laplace().event)

    def _laplace(self) -> Laplace:
        return Laplace(self.sensitivity, epsilon=self.epsilon, random_state=self._source)

    @property
    def noise(self) -> str:
        """The kind of noise, one of :data:`tacit.guarantee.NOISE_KINDS`."""
        kind = super().noise
        return "float64" if kind == "exact" and self.norm != 1 else kind

    def __call__(self, value: NDArray[Any] | Sequence[Any]) -> Float64:
        """The vector with noise, float64 of the same shape."""
        values, scalar = real_values(value)
        if scalar:
            raise InvalidValue("value", "a scalar", "a vector", "Use Laplace for a single number.")
        if self.norm == 1:
            return self._laplace()(values)
        if not values.size:
            return values
        generator = self._source.generator()
        scale = self.sensitivity / self.epsilon
        if self.norm == 2:
            direction = generator.standard_normal(values.shape)
            radius = generator.gamma(values.size) * scale
            return values + radius * direction / math.sqrt(float((direction**2).sum()))
        radius = generator.gamma(values.size + 1) * scale
        return values + radius * generator.uniform(-1.0, 1.0, values.shape)

    def interval(self, confidence: float = 0.95, *, coordinates: int) -> tuple[float, float]:
        """Where every coordinate of true − released lies at once, with at least this probability.

        ``coordinates`` is the vector's number of coordinates, d. For ℓ2 and ℓ∞ it is the quantile
        of the radius, which no coordinate exceeds.
        """
        if self.norm == 1:
            return self._laplace().interval(confidence, coordinates=coordinates)
        miss = tail(confidence, coordinates) * coordinates
        shape = coordinates if self.norm == 2 else coordinates + 1
        half = float(gammaincinv(shape, 1 - miss)) * self.sensitivity / self.epsilon * (1 + 1e-9)
        return -half, half
