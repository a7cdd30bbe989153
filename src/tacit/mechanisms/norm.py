"""The K-norm mechanism."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv

from tacit import events
from tacit.errors import InvalidValue
from tacit.mechanisms import _grid
from tacit.mechanisms._base import Float64, Mechanism, normals, real_values, tail
from tacit.mechanisms.laplace import Laplace


@dataclass(frozen=True)
class Norm(Mechanism):
    """Noise with density ∝ exp(−ε‖x‖/sensitivity) on a vector (Hardt and Talwar 2010).

    ``sensitivity`` bounds the distance of neighbours in the same norm: 1, 2 or ``"inf"``. An
    array of any shape is one vector of d coordinates.

    Guarantee: ε-differential privacy, since ‖x − a‖ and ‖x − b‖ differ by at most ‖a − b‖.
    For ℓ1 this is :class:`~tacit.mechanisms.Laplace`, exact and charged as such. For ℓ2 the noise
    is a Gamma(d) radius times a uniform direction, for ℓ∞ a Gamma(d+1) radius times a uniform point
    of the cube [−1, 1]^d. Value and noise are each rounded to a power-of-two grid and added as
    integers, so that no trailing bit of the sum tells the value (Mironov 2012): rounded noise
    has the mass of a cell, and a shift by whole cells changes that by at most the same factor;
    rounding the value is paid for by scaling to (1 + 2^−20) × sensitivity. The noise itself is
    computed in floating point, from the cryptographic stream: its distribution is the proven one
    only to rounding, and ``noise`` says "float64".

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
        sensitivity, epsilon = _grid.pure_scale(self.sensitivity, self.epsilon)
        self._keep("sensitivity", sensitivity)
        self._keep("epsilon", epsilon)
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
        exponent = _grid.grid_exponent(self.sensitivity, values.size + 1, 1 / self.epsilon)
        scale = float(_grid.in_steps(self.sensitivity, exponent) * _grid.WIDENED / Fraction(self.epsilon))
        steps = np.rint(scale * self._unit_noise(values.size)).reshape(values.shape)
        limit = float(_grid.STEPS)
        return _grid.add_steps(values, np.clip(steps, -limit, limit).astype(np.int64), exponent)

    def _unit_noise(self, size: int) -> Float64:
        """Noise for sensitivity/ε = 1. A Gamma radius of whole shape is a sum of exponentials."""
        shape = size if self.norm == 2 else size + 1
        radius = -float(np.log(self._source.uniforms(shape)).sum())
        if self.norm == 2:
            direction = normals(self._source, (size,))
            return np.asarray(radius * direction / math.sqrt(float(np.square(direction).sum())))
        return radius * (2 * self._source.uniforms(size) - 1)

    def sample(self, shape: tuple[int, ...]) -> Float64:
        """ℓ2 or ℓ∞ noise alone, in float64 and on no grid: for a proof that needs its density.

        Objective perturbation adds it to a gradient that is never released.
        """
        if self.norm == 1:
            raise InvalidValue("norm", self.norm, "2 or 'inf'")
        return self._unit_noise(math.prod(shape)).reshape(shape) * (self.sensitivity / self.epsilon)

    def deviation(self, coordinates: int) -> float:
        """The standard deviation of one of so many coordinates of the noise."""
        shape = {1: 2.0, 2: coordinates + 1.0, "inf": (coordinates + 1) * (coordinates + 2) / 3}[self.norm]
        return self.sensitivity / self.epsilon * math.sqrt(shape)

    def interval(self, confidence: float = 0.95, *, coordinates: int) -> tuple[float, float]:
        """Where every coordinate of true − released lies at once, with at least this probability.

        ``coordinates`` is the vector's number of coordinates, d. For ℓ2 and ℓ∞ it is the quantile
        of the radius, which no coordinate exceeds, and a little more for rounding.
        """
        if self.norm == 1:
            return self._laplace().interval(confidence, coordinates=coordinates)
        miss = tail(confidence, coordinates) * coordinates
        shape = coordinates if self.norm == 2 else coordinates + 1
        half = float(gammaincinv(shape, 1 - miss)) * self.sensitivity / self.epsilon * (1 + 1e-5)
        return -half, half
