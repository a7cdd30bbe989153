"""The Wishart mechanism: noise for symmetric matrices, in the trace norm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import events
from tacit.errors import InvalidValue
from tacit.mechanisms import _grid
from tacit.mechanisms._base import Float64, Mechanism, normals, real_values


@dataclass(frozen=True)
class Wishart(Mechanism):
    """The difference of two Wishart matrices on a symmetric matrix.

    ``sensitivity`` bounds the distance of neighbours in the trace norm, the sum of the absolute values of
    the eigenvalues of their difference: for Σ zzᵀ with ‖z‖² ≤ s it is s if a row is added, and 2s if one is
    replaced.

    Guarantee: ε-differential privacy, ``events.Pure(epsilon)``, by this proof of our own. Let p be the size
    of the matrix, and W₁, W₂ independent with density ∝ e^{−r·tr W} on the positive semidefinite matrices:
    Wishart with p + 1 degrees of freedom and scale I/2r. Then E = W₁ − W₂ has the density
    f(E) ∝ e^{−r·tr E} ∫ e^{−2r·tr W} dW over all W ⪰ 0 with W ⪰ −E. If P ⪰ 0, that set is no smaller for
    E + P, so f(E + P) ≥ e^{−r·tr P} f(E); and since f is even, f(E) = f(−E) ≥ e^{−r·tr P} f(−E − P) =
    e^{−r·tr P} f(E + P). So a shift by S, a difference of two such matrices, changes the density by a
    factor of at most e^{r‖S‖}, in the trace norm: r = ε/sensitivity is ε-differentially private.
    A Wishart matrix alone (Jiang, Xie and Zhang 2016) is not private: a matrix outside its cone tells
    neighbours apart.

    The standard deviation is √((p+1)/2)/r off the diagonal, √2 times that on it. Noise in the Frobenius
    norm with a Gamma radius has about √(p/2) times as much, Laplace noise √p times: rows are matrices of
    rank one, of which the trace norm knows.

    Values and noise are rounded to a common grid, and rounding, at most √p·p steps in the trace norm, is
    paid for as in :class:`tacit.mechanisms.Norm`. The noise is computed in floating point, from the
    cryptographic stream: its distribution is the proven one only to rounding, and ``noise`` says "float64".
    The triangle below the diagonal is not read: it is the one above.

    >>> wishart = Wishart(sensitivity=1.0, epsilon=1.0, random_state=1)
    >>> noisy = wishart([[10.0, 2.0], [2.0, 5.0]])
    >>> noisy.shape, bool((noisy == noisy.T).all()), wishart.event
    ((2, 2), True, Pure(epsilon=1.0))
    """

    sensitivity: float
    epsilon: float
    event: events.Pure = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        sensitivity, epsilon = _grid.pure_scale(self.sensitivity, self.epsilon)
        self._keep("sensitivity", sensitivity)
        self._keep("epsilon", epsilon)
        self._keep("event", events.Pure(self.epsilon))

    @property
    def noise(self) -> str:
        """The kind of noise, one of :data:`tacit.guarantee.NOISE_KINDS`."""
        return "seeded" if self._source.seeded else "float64"

    @property
    def _scale(self) -> float:
        return self.sensitivity * float(_grid.WIDENED) / self.epsilon

    def deviation(self, size: int) -> float:
        """The standard deviation on the diagonal of a matrix of this size; off it, 1/√2 times that."""
        return math.sqrt(size + 1) * self._scale

    def sample(self, size: int, times: int = 1) -> Float64:
        """Noise alone, (times, size, size), in float64 and on no grid: for simulations."""
        roots = normals(self._source, (2, times, size, size + 1))
        first, second = roots @ roots.swapaxes(-1, -2)
        return np.asarray((first - second) * (self._scale / 2))

    def __call__(self, value: NDArray[Any] | Sequence[Any]) -> Float64:
        """The matrix with noise, float64, symmetric."""
        values, _ = real_values(value)
        if values.ndim != 2 or values.shape[0] != values.shape[1] or not values.size:
            raise InvalidValue("value", f"an array of shape {values.shape}", "a square matrix")
        size = len(values)
        exponent = _grid.grid_exponent(self.sensitivity, math.ceil(size**1.5) + 1, 1 / self.epsilon)
        limit = float(_grid.STEPS)
        noise = np.clip(np.rint(np.ldexp(self.sample(size)[0], -exponent)), -limit, limit)
        upper = np.triu_indices(size)
        released = np.zeros((size, size))
        released[upper] = _grid.add_steps(values[upper], noise[upper].astype(np.int64), exponent)
        return np.asarray(released + np.triu(released, 1).T)
