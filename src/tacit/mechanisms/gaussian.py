"""The Gaussian mechanism."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction

from scipy.special import ndtri

from tacit import _gaussian, _validate, events
from tacit.errors import InvalidValue
from tacit.mechanisms import _grid
from tacit.mechanisms._base import Float64, RealMechanism, exactly_one, tail
from tacit.randomness import discrete_gaussian


@dataclass(frozen=True)
class Gaussian(RealMechanism):
    """Gaussian noise of standard deviation noise_multiplier × sensitivity on a number or an array.

    ``sensitivity`` bounds the ℓ2 distance of the whole array between neighbours, under whichever
    relation it was derived for. Give ``epsilon`` and ``delta``, or the ``noise_multiplier``. The
    ``calibration`` from (ε, δ) is ``"analytic"``, the smallest that suffices (Balle and Wang
    2018), or ``"classical"``, √(2 ln(1.25/δ))/ε (Dwork and Roth 2014, theorem A.1), whose proof
    needs ε ≤ 1.

    Guarantee: no more is revealed than by real-valued Gaussian noise,
    ``events.Gaussian(noise_multiplier)``. The noise is exact (see :mod:`tacit.randomness`), on a
    grid of g ≤ 2^−20/(2√d) sensitivities for d coordinates.

    Why. On the grid, coordinate i of two neighbours differs by ``mᵢ ≤ |xᵢ−yᵢ|/g + 1`` steps. Let N be
    the discrete Gaussian with the standard deviation σ ≥ 1 in steps, and z(c) the point where the
    real one has the tail P(N ≥ c). Its density falls away from 0, so for c ≥ 1 the sum over k ≥ c
    lies between the integrals from c and from c − 1 and c − 1 ≤ z(c) ≤ c (the two normalisers
    agree to 2e^(−2π²σ²), less than the slack); by symmetry the same holds for c ≤ 0. Optimal tests
    between shifts are thresholds, hence the discrete curve for mᵢ steps lies below the real one
    for z(c) − z(c−mᵢ) ≤ mᵢ + 1 steps. Real Gaussians compose in ℓ2: the vector is dominated by a
    shift of at most ``‖(|xᵢ−yᵢ|/g + 2)ᵢ‖ ≤ sensitivity/g + 2√d``, and the noise is scaled to
    (1 + 2^−20)·sensitivity/g, which is more.

    Values are clamped to ±2^100 grid steps (2^57/√d sensitivities or more). NaN,
    infinities and non-numbers raise :class:`~tacit.errors.InvalidValue`; that check reads the
    private value, so clip beforehand.

    >>> gaussian = Gaussian(sensitivity=1.0, epsilon=1.0, delta=1e-6, random_state=1)
    >>> gaussian([100.0, 200.0]).round(3).tolist()
    [103.799, 194.315]
    >>> round(gaussian.event.noise_multiplier, 4)
    4.2247
    """

    sensitivity: float = 1.0
    epsilon: float | None = None
    delta: float | None = None
    noise_multiplier: float | None = None
    calibration: str = "analytic"
    event: events.Gaussian = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep("sensitivity", _grid.real_sensitivity(self.sensitivity))
        _validate.choice("calibration", self.calibration, ("analytic", "classical"))
        multiplier = self._calibrated()
        if not 2.0**-30 <= multiplier <= 2.0**25:
            raise InvalidValue("noise_multiplier", multiplier, "in [2^-30, 2^25]")
        self._keep("event", events.Gaussian(multiplier))

    def _calibrated(self) -> float:
        if exactly_one(epsilon=self.epsilon, noise_multiplier=self.noise_multiplier) == "noise_multiplier":
            if self.delta is not None or self.calibration != "analytic":
                raise InvalidValue("noise_multiplier", self.noise_multiplier, "given alone, without delta")
            return _validate.positive("noise_multiplier", self.noise_multiplier)
        epsilon = _validate.epsilon(self.epsilon)
        delta = _validate.open_probability("delta", self.delta)
        self._keep("epsilon", epsilon)
        self._keep("delta", delta)
        analytic = _gaussian.noise_multiplier(epsilon, delta)
        if self.calibration == "analytic":
            return analytic
        if epsilon > 1:
            raise InvalidValue(
                "epsilon",
                epsilon,
                "at most 1 for the classical calibration, whose proof fails beyond",
                'Use calibration="analytic".',
            )
        return max(analytic, math.sqrt(2 * math.log(1.25 / delta)) / epsilon)

    def _noisy(self, values: Float64) -> Float64:
        exponent = self._exponent(values.size)
        multiplier = Fraction(self.event.noise_multiplier)
        deviation = _grid.in_steps(self.sensitivity, exponent) * _grid.WIDENED * multiplier
        noise = discrete_gaussian(self._source, deviation**2, values.size).reshape(values.shape)
        return _grid.add_steps(values, noise, exponent)

    def _exponent(self, coordinates: int) -> int:
        root = math.isqrt(max(coordinates, 1) - 1) + 1
        return _grid.grid_exponent(self.sensitivity, 2 * root, self.event.noise_multiplier)

    def deviation(self, coordinates: int = 1) -> float:
        """The standard deviation of one coordinate of the noise, however many there are."""
        return self.sensitivity * self.event.noise_multiplier

    def interval(self, confidence: float = 0.95, *, coordinates: int = 1) -> tuple[float, float]:
        """Where true − released lies with at least this probability.

        For all of ``coordinates`` at once. Rounding to the grid is included; the last rounding
        to float64, 2^−53 of the release, is not. The discrete quantile exceeds the continuous
        one by at most one step, by the bound z(c) ≥ c − 1 above; the grid of a scalar is the coarsest.
        """
        deviation = self.sensitivity * float(_grid.WIDENED) * self.event.noise_multiplier
        step = math.ldexp(1.0, self._exponent(1))
        half = (deviation * -float(ndtri(tail(confidence, coordinates) / 2)) + 1.5 * step) * (1 + 1e-12)
        return -half, half
