"""Correlated noise: the noise of a step takes back part of the noise of the steps before it.

A model that is trained by SGD is the sum of all gradients so far, and with independent noise the variance of
that sum grows with the number of steps. With correlated noise (DP-FTRL by matrix factorisation: Kairouz et
al. 2021, Denisov et al. 2022, Choquette-Choo et al. 2023) the step t releases

    S_t + Y_t,    where    Y_t = Z_t − c_1·Y_{t−1} − … − c_{b−1}·Y_{t−b+1},

with S_t the clipped sum of the step and Z_t independent Gaussian noise. In matrices, with C the lower
triangular band matrix that has c_0 = 1, c_1, …, c_{b−1} below its diagonal, the release is S + C⁻¹Z, which
tells just as much as C·S + Z: a Gaussian mechanism on C·S. The last b − 1 noises of the run are kept in
memory, and b is the number of bands.

Sensitivity. An example that is seen k times, the steps at least b apart, changes k rows of S, each by at
most the sensitivity Δ of one step. Row t of C·S holds the last b rows of S, hence at most one of the k, so
the squares add up: the change of C·S has a norm of at most Δ·√k·‖c‖₂. Each Z_t has the standard deviation
noise_multiplier × Δ·√k·‖c‖₂, and the whole run is one release with Gaussian noise of that noise multiplier.
The bound holds for every path of the run, however its gradients depend on earlier releases (Denisov et al.
2022, Theorem 2.1), and also if the noises kept are dropped at some step and correlation begins anew: dropping
them sets entries of C to 0.

Amplification by sampling is not claimed. An example has to be seen at steps that are at least b apart, and
the sampler of the plan sees to that (:mod:`tacit.training.sampling`).

>>> plain, correlated = Correlation((1.0,)), optimised(steps=1000, bands=32)
>>> round(plain.error(1000) / correlated.error(1000), 1)
4.6
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit import _validate

Float64 = NDArray[np.float64]
MOST_BANDS = 32
"""As many bands as a plan takes if none are given: each holds one more copy of the parameters in memory."""
_UP = 1 + 2.0**-40
_FAR = 1e3


@dataclass(frozen=True)
class Correlation:
    """The coefficients 1, c_1, …, c_{b−1} of the band matrix C."""

    coefficients: tuple[float, ...]

    @property
    def bands(self) -> int:
        """How many steps the noise of one step reaches, itself included."""
        return len(self.coefficients)

    def sensitivity(self, participations: int) -> float:
        """√k·‖c‖₂, not rounded down: the sensitivity of a run in units of that of a step."""
        return math.sqrt(participations * math.fsum(each * each for each in self.coefficients)) * _UP

    def error(self, steps: int) -> float:
        """Noise in the sum of the gradients so far, its root mean square over the steps.

        This is stated for an example that is seen once, in units of noise multiplier × sensitivity of a step.
        """
        weights = _sums(np.array(self.coefficients), steps)
        mean = float(np.arange(steps, 0, -1) @ weights**2) / steps
        return self.sensitivity(1) * math.sqrt(mean)


@functools.lru_cache(64)
def optimised(*, steps: int, bands: int) -> Correlation:
    """Coefficients that make :meth:`Correlation.error` least for so many steps.

    The search starts from the first coefficients of (1 − x)^(−1/2), which are the best of all for bands =
    steps up to a constant (Fichtenberger et al. 2023), and ends where the gradient vanishes. It changes the
    error alone: the sensitivity is computed from whatever coefficients are found.
    """
    steps, bands = _validate.count("steps", steps, 1), _validate.count("bands", bands, 1)
    if bands == 1:
        return Correlation((1.0,))
    from scipy.optimize import minimize

    start = np.cumprod([1 - 0.5 / place for place in range(1, bands)])
    found = minimize(_objective, start, args=(steps,), jac=True, method="L-BFGS-B", options={"maxiter": 200})
    best = min((start, found.x), key=lambda tail: _objective(tail, steps)[0])
    return Correlation((1.0, *map(float, best)))


def _sums(coefficients: Float64, steps: int) -> Float64:
    """The weights of Z_t, Z_{t−1}, … in Y_1 + … + Y_t: the series of 1 ÷ ((1 − x)·c(x))."""
    return _divided(np.ones(steps), coefficients)


def _divided(series: Float64, coefficients: Float64) -> Float64:
    """The series a(x) ÷ c(x), to as many terms as a(x) has."""
    from scipy.signal import lfilter

    made: Float64 = lfilter([1.0], coefficients, series)
    return made


def _objective(tail: Float64, steps: int) -> tuple[float, Float64]:
    """The logarithm of the squared error, and its derivatives by c_1, …, c_{b−1}."""
    coefficients = np.concatenate([[1.0], tail])
    with np.errstate(over="ignore", invalid="ignore"):
        sums = _sums(coefficients, steps)
        counted = np.arange(steps, 0, -1) * sums
        squares, norm = float(counted @ sums), float(coefficients @ coefficients)
    if not math.isfinite(squares):
        return _FAR, np.zeros_like(tail)
    # The derivative of a(x) ÷ c(x) by c_j is −x^j·a(x) ÷ c(x)².
    again = _divided(sums, coefficients)
    slopes = [-2 * float(counted[place:] @ again[: steps - place]) for place in range(1, len(tail) + 1)]
    return math.log(squares) + math.log(norm), np.array(slopes) / squares + 2 * tail / norm
