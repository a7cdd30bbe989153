"""Noise on the coefficients of the objective, taken as a polynomial of degree two."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tacit import _validate
from tacit.estimators.linear.losses import Logistic, Squared
from tacit.estimators.linear.noise.place import Array, Noise, Place, Problem
from tacit.estimators.linear.noise.statistics import (
    FILTER,
    GaussianMoments,
    Moments,
    MomentsNoise,
    WishartMoments,
    release_of,
    solve,
)
from tacit.estimators.linear.rows import ScaledRows
from tacit.mechanisms import Laplace
from tacit.randomness import Source
from tacit.relations import Relation

__all__ = ["Functional", "LaplaceMoments", "NoisyPolynomial"]

REACH = 4.0
"""The logistic loss is fitted for scores up to this."""


@dataclass(frozen=True)
class LaplaceMoments(MomentsNoise):
    """Laplace noise on (triangle of xxᵀ, ρ·xs), for δ = 0: exact, but more of it than Wishart's.

    Adding a row: Σ_{i≤j}|xᵢxⱼ| = (‖x‖₁² + ‖x‖₂²)/2 ≤ (d + 1)/2 and ‖xs‖₁ ≤ √d, both reached by equal
    entries: **(d + 1)/2 + ρ√d**.

    Replacing one: by Cauchy and Schwarz, with weight ½ on the entries of D = xxᵀ − x′x′ᵀ off the diagonal
    and 1 on it, and any κ in (0, √2], the sum is at most √(d(d+3)/4 + dρ²/κ²) times
    √(‖D‖² + κ²‖xs − x′s′‖²), of which :class:`GaussianMoments` bounds the second. The best κ is taken; a
    numerical search comes within 4 % of this for d from 2 to 16 (21 % for d = 1), and it is well below
    twice the sensitivity to adding a row.
    """

    ratio = 1.4

    def __post_init__(self) -> None:
        object.__setattr__(self, "event", self._mechanism.event)

    def of_a_row(self, relation: Relation) -> float:
        width = self.problem.width
        added = (width + 1) / 2 + self.ratio * math.sqrt(width)
        if relation is Relation.ADD_REMOVE:
            return added
        square = np.linspace(1e-3, 2.0, 2000)
        first = width * (width + 3) / 4 + width * self.ratio**2 / square
        replaced = float(np.sqrt(first * (2 + 2 * square + square**2 / 2)).min())
        return min(replaced, 2 * added)

    @cached_property
    def _mechanism(self) -> Laplace:
        return Laplace(self.sensitivity, epsilon=self.problem.epsilon)

    @property
    def spread(self) -> float:
        """The standard deviation of an entry on the diagonal of the matrix, an upper bound."""
        return 2 * self.sensitivity / self.problem.epsilon

    @property
    def vector_spread(self) -> float:
        """The standard deviation of an entry of the vector."""
        return self.spread / (math.sqrt(2) * self.ratio)

    def __call__(self, exact: Moments, source: Source) -> Moments:
        mechanism = replace(self._mechanism, random_state=source)
        return self._moments(mechanism(self._coordinates(exact, 1.0)), 1.0)

    def simulate(self, times: int, source: Source) -> Moments:
        two = source.uniforms(2 * times * self._size).reshape(2, times, self._size)
        noise = np.log(two[0] / two[1]) * self.sensitivity / self.problem.epsilon
        return self._moments(noise, 1.0)


MECHANISMS: dict[str, type[MomentsNoise]] = {
    "gaussian": GaussianMoments,
    "laplace": LaplaceMoments,
    "wishart": WishartMoments,
}


def logistic_curvature() -> float:
    """q such that constant + q·m² is the least-squares fit of ln(2 cosh(m/2)) for |m| ≤ REACH.

    >>> round(logistic_curvature(), 4)
    0.0856
    """
    scores = np.linspace(0.0, REACH, 1001)
    return float(np.polyfit(scores**2, np.log(2 * np.cosh(scores / 2)), 1)[0])


@dataclass(frozen=True)
class Functional(Noise):
    """Noise on the coefficients of the objective, taken as a polynomial of degree two (Zhang et al. 2012).

    The coefficients are Σxxᵀ and Σxs, of which one row moves as much as for :class:`~.statistics.Statistics`;
    the event is ``Gaussian`` (δ > 0), ``Pure`` (δ = 0, Wishart noise) or ``Laplace`` if that is asked for.
    :class:`NoisyPolynomial` has the proof.
    """

    name = "functional"

    regularisation: bool = True
    """Whether a filter repairs the noisy polynomial; otherwise directions below the noise are dropped."""
    mechanism: str | None = None
    """``"gaussian"``, ``"laplace"`` or ``"wishart"``; left out, Gaussian for δ > 0 and Wishart for δ = 0."""

    def __post_init__(self) -> None:
        self._check_flag("regularisation")
        if self.mechanism is not None:
            _validate.choice("mechanism", self.mechanism, tuple(MECHANISMS))

    def place(self, problem: Problem) -> NoisyPolynomial:
        return NoisyPolynomial(problem, self)


class NoisyPolynomial(Place):
    """The functional mechanism (Zhang et al. 2012): noise on the objective's coefficients, then its minimum.

    The loss of a row is taken as q·m² − v·s·m and a constant, m being its score: for least squares that is
    exact, q = ½, v = 1, s = y. The logistic loss is −s·m/2 + ln(2 cosh(m/2)) with s = 2y − 1; its even part
    is fitted over |m| ≤ 4, q = 0.0856, v = ½. Taylor's q = ⅛ makes all scores a third smaller and alters
    nothing else; unless the signal is weak the loss is then higher.

    The sum over rows has the coefficients q·Σ xxᵀ and v·Σ xs, so what is released is Σ xxᵀ and Σ xs, with the
    relation, unit, event and proof of :class:`~.statistics.GaussianMoments` for δ > 0
    and :class:`~.statistics.WishartMoments` for δ = 0, or of :class:`LaplaceMoments` if
    the setting ``mechanism`` is "laplace", as in the paper. There the sensitivities, for |xⱼ| ≤ 1 and a row
    replaced, are d²/4 + 3d and 2(1 + d)²; where ‖x‖₂ ≤ 1 its own derivation gives √d + d/4 and 2(1 + √d)².

    The noisy polynomial need not have a minimum. With ``regularisation`` (the default) it is repaired by the
    filter of :func:`~.statistics.solve`; without, directions in which its curvature is
    below the noise are dropped (spectral trimming) and nothing else is done. A penalty of the model's own is
    added in both cases. All of that is post-processing.

    >>> from tacit.estimators.linear.rows import Space
    >>> X = np.random.default_rng(1).uniform(-1, 1, size=(5000, 1))
    >>> space = Space.of(np.array([-1.0]), np.array([1.0]), None, intercept=True)
    >>> rows = ScaledRows(X, (X > 0.2) * 1.0, space)
    >>> place = NoisyPolynomial(Problem(Logistic(), rows.width, epsilon=1.0, delta=1e-6))
    >>> place.solve(rows, Source(1)).round(1).ravel().tolist()
    [5.9, -0.8]
    """

    settings = Functional
    losses = (Logistic, Squared)

    def __init__(self, problem: Problem, noise: Functional | None = None) -> None:
        super().__init__(problem, noise)
        self.release = release_of(problem, self.noise.mechanism, MECHANISMS, False)
        self.event, self.kind = self.release.event, self.release.kind
        self.noisy: Moments | None = None
        logistic = isinstance(problem.loss, Logistic)
        self._curvature, self._slope = (2 * logistic_curvature(), 0.5) if logistic else (1.0, 1.0)
        spread, on_target = self._curvature * self.release.spread, self._slope * self.release.vector_spread
        self.notes.append(f"noise {spread:.4g} on quadratic, {on_target:.4g} on linear coefficients")

    def _signs(self, targets: Array) -> Array:
        return 2 * targets - 1 if isinstance(self.problem.loss, Logistic) else targets

    def noise_and_signal(self) -> tuple[float, float] | None:
        """Noise on Σxs against Σxs, of which a row is at most 1 long."""
        return self.release.noise_and_signal()

    def expected(self) -> str | None:
        """The least noise on a weight."""
        return self.release.expected(self._slope / self._curvature)

    def solve(self, rows: ScaledRows, source: Source) -> Array:
        self.noisy = self.release(Moments.of(rows, self._signs), source)
        penalty = (self.problem.penalty or 0.0) / self._curvature
        if self.noise.regularisation:
            found = solve(self.noisy, self.release.spread, penalty, self.problem.intercept)[0]
        else:
            found = self._trimmed(self.noisy, penalty)
        return np.asarray(self._slope / self._curvature * found)[:, None]

    def _trimmed(self, noisy: Moments, penalty: float) -> Array:
        width = self.problem.width
        penalties = np.full(width, penalty)
        if self.problem.intercept:
            penalties[-1] = 0.0
        values, axes = np.linalg.eigh(noisy.matrix + np.diag(penalties))
        kept = values > FILTER * self.release.spread * math.sqrt(width)
        along = axes[:, kept]
        return np.asarray(along @ ((along.T @ noisy.vector) / values[kept]))
