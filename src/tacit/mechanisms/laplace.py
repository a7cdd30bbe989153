"""The Laplace mechanism."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from numpy.typing import NDArray

from tacit import _validate, events
from tacit.errors import InvalidValue
from tacit.mechanisms import _grid
from tacit.mechanisms._base import Float64, RealMechanism, exactly_one, real_values, tail
from tacit.randomness import MAX_SCALE, discrete_laplace


@dataclass(frozen=True)
class Laplace(RealMechanism):
    """Laplace noise of scale sensitivity/ε on a number or an array (Dwork et al. 2006).

    ``sensitivity`` bounds the ℓ1 distance of the whole array between neighbours, under whichever
    relation it was derived for. Give ``epsilon``, or ``scale`` = 1/ε, the scale of the noise per
    unit of sensitivity.

    Guarantee: no more is revealed than by real-valued Laplace noise, ``events.Laplace(scale)``;
    in particular ε-differential privacy. The noise is exact (see :mod:`tacit.randomness`), on a
    grid of g ≤ 2^−20/(d+1) sensitivities for d coordinates.

    Why. On the grid, neighbours are at most m = ⌊sensitivity/g + d⌋ steps apart in ℓ1, since
    rounding adds at most one step to each coordinate. Let F be the noise's distribution function.
    The best power of a test of level α between noise and noise shifted by m is reached by a
    threshold, so on the line these curves G_m obey G_(m+n) = G_m ∘ G_n; moving one coordinate
    after the other then bounds the curve of a vector by that of a single coordinate shifted by
    the whole ℓ1 distance. A discrete tail P(N ≥ c) equals the continuous tail at z(c), in steps
    with a = 1/(noise scale in steps): z(c) = c + u for c ≥ 1 and z(c) = c − 1 − u for c ≤ 0, where
    u = ln((1+e^−a)/2)/a ∈ [−1/2, 0]. Hence z(c) − z(c−m) ≤ m + 1: the discrete curve lies below the
    continuous one for m + 1 steps at its corners, and between them, where it is straight and the
    other concave, as well. The noise is scaled to (1 + 2^−20)·sensitivity/g ≥ m + 1 steps. Where that would
    be more noise than the sampler takes, 2^54 steps (scales near 2^30 and many coordinates), the grid is
    coarser and the noise is scaled to sensitivity/g + d + 1 ≥ m + 1 steps.

    Values are clamped to ±2^100 grid steps (2^58/(d+1) sensitivities or more). NaN,
    infinities and non-numbers raise :class:`~tacit.errors.InvalidValue`; that check reads the
    private value, so clip beforehand.

    >>> laplace = Laplace(sensitivity=1.0, epsilon=0.5, random_state=1)
    >>> round(laplace(100.0), 3), laplace.event
    (100.682, Laplace(scale=2.0))
    >>> low, high = laplace.interval(confidence=0.95)
    >>> round(low, 3), round(high, 3)
    (-5.991, 5.991)
    """

    sensitivity: float = 1.0
    epsilon: float | None = None
    scale: float | None = None
    event: events.Laplace = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep("sensitivity", _grid.real_sensitivity(self.sensitivity))
        name = exactly_one(epsilon=self.epsilon, scale=self.scale)
        self._keep(name, _validate.positive(name, getattr(self, name)))
        scale = self.scale if self.scale is not None else 1.0 / (self.epsilon or math.inf)
        if not 2.0**-100 <= scale <= 2.0**30:
            raise InvalidValue(name, getattr(self, name), "such that the scale, 1/ε, is in [2^-100, 2^30]")
        self._keep("event", events.Laplace(scale))

    def _exact_scale(self) -> Fraction:
        """Scale per unit of sensitivity: of ε and of the event's rounded 1/ε, the more private."""
        scale = Fraction(self.event.scale)
        return scale if self.epsilon is None else max(scale, 1 / Fraction(self.epsilon))

    def _on_grid(self, coordinates: int) -> tuple[int, Fraction]:
        """The exponent of the grid for so many coordinates, and the scale of the noise in its steps."""
        exponent = _grid.grid_exponent(self.sensitivity, coordinates + 1, self.event.scale)
        exact = self._exact_scale()
        scale = _grid.in_steps(self.sensitivity, exponent) * _grid.WIDENED * exact
        while scale > MAX_SCALE:
            if (coordinates + 1) * exact > MAX_SCALE / 2:
                raise InvalidValue("coordinates", coordinates, "fewer at this scale", "Use Gaussian noise.")
            exponent += 1
            scale = (_grid.in_steps(self.sensitivity, exponent) + coordinates + 1) * exact
        return exponent, scale

    def _noisy(self, values: Float64) -> Float64:
        return self._moved(values, values.size)

    def each(self, rows: NDArray[Any] | Sequence[Any]) -> Float64:
        """Rows with noise, each of which is another person's record: neighbours differ in one of them.

        ``sensitivity`` bounds the ℓ1 distance of two records, so the grid is that of one row, however many
        rows there are. The event is that of one call, under ``replace_one`` of one record.
        """
        values, _ = real_values(rows)
        if values.ndim != 2:
            raise InvalidValue("rows", f"an array of {values.ndim} dimensions", "a matrix, a row per record")
        return self._moved(values, values.shape[1])

    def _moved(self, values: Float64, coordinates: int) -> Float64:
        """The values with noise, of which ``coordinates`` differ between neighbours."""
        exponent, scale = self._on_grid(coordinates)
        noise = discrete_laplace(self._source, scale, values.size).reshape(values.shape)
        return _grid.add_steps(values, noise, exponent)

    def interval(self, confidence: float = 0.95, *, coordinates: int = 1) -> tuple[float, float]:
        """Where true − released lies with at least this probability.

        For all of ``coordinates`` at once. Rounding to the grid is included; the last rounding
        to float64, 2^−53 of the release, is not.

        ``P(|N| > k) = 2 r^(k+1)/(1+r)`` in steps, and ln(2/(1+e^−a)) ≤ a/2, so the quantile exceeds
        the continuous one by less than half a step; the grid of a scalar is the coarsest but for scales
        near 2^30.
        """
        exponent, scale = self._on_grid(coordinates)
        scalar = _grid.grid_exponent(self.sensitivity, 2, self.event.scale)
        step = math.ldexp(1.0, max(exponent, scalar))
        spread = self.sensitivity * float(scale / _grid.in_steps(self.sensitivity, exponent))
        half = (spread * -math.log(tail(confidence, coordinates)) + step) * (1 + 1e-12)
        return -half, half
