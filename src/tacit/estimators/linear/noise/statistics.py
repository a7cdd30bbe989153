"""Noise on the statistics that least squares needs: Σ xxᵀ and Σ xs, released once, then solved."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from tacit import _gaussian, _validate, events
from tacit.errors import InvalidValue, TacitError
from tacit.estimators.linear.losses import Squared
from tacit.estimators.linear.noise.place import Array, Noise, Place, Problem
from tacit.estimators.linear.rows import ScaledRows
from tacit.mechanisms import Gaussian, Wishart, normals
from tacit.randomness import Source
from tacit.relations import Relation

__all__ = [
    "GaussianMoments",
    "Moments",
    "MomentsNoise",
    "NoisyStatistics",
    "Statistics",
    "WishartMoments",
    "release_of",
    "solve",
]

SUMMATION = 1 + 2.0**-20
"""Factor on every sensitivity, for the rounding of long float64 sums, which depends on all rows."""
FILTER, LIFT, FILTER_CONSTANT = 0.5, 0.2, 4.0
"""Strength of the spectral filter, in norms of the noise; see :func:`solve`."""
SIMULATIONS = 1000
"""Releases simulated for an interval."""


class WeightedRows(Protocol):
    """Rows of length ≤ 1 with targets and weights, block by block."""

    @property
    def width(self) -> int:
        """How many coordinates a row has."""

    def weighted(self) -> Iterator[tuple[Array, Array, Array | float]]:
        """(rows, targets, weights) of each block; a row that does not count is all zeros."""


@dataclass(frozen=True)
class Moments:
    """Σ xxᵀ, Σ xs, Σ s² and n, over the rows that are not all zeros. Leading axes are repetitions."""

    matrix: Array
    vector: Array
    square: Any = None
    count: Any = None

    @classmethod
    def of(cls, rows: WeightedRows, signs: Callable[[Array], Array]) -> Moments:
        """The exact moments, in one pass; ``signs`` makes s, in [−1, 1], of the targets."""
        matrix, vector = np.zeros((rows.width, rows.width)), np.zeros(rows.width)
        square = count = 0.0
        for x, targets, w in rows.weighted():
            counts = x.any(axis=1)
            s = np.where(counts, signs(targets)[:, 0], 0.0)
            if not isinstance(w, float):
                x, s = x * np.sqrt(w), s * np.sqrt(w[:, 0])
            matrix += x.T @ x
            vector += x.T @ s
            square += float(s @ s)
            count += float(np.count_nonzero(counts))
        return cls(matrix, vector, square, count)


@dataclass(frozen=True)
class MomentsNoise:
    """Base of the releases of moments: ‖x‖₂ ≤ 1, |s| ≤ 1, one unit as the problem says.

    ``extended`` releases Σ s² and n as well. ``spread`` is the standard deviation of the noise on the
    diagonal of Σ xxᵀ, √2 times that off it, and ``vector_spread`` that of Σ xs.
    """

    problem: Problem
    extended: bool = False
    event: events.Event = field(init=False)
    kind: str = field(init=False, default="exact")

    ratio = 1.0
    """ρ, the factor on s beside x: the larger it is, the less noise is on Σ xs and the more on Σ xxᵀ."""
    extra = 0.25
    """The weight of s² and of 1 where they are released, at most ``ratio``."""

    @property
    def sensitivity(self) -> float:
        """How far one unit moves the released moments, in the norm of the mechanism."""
        return self.problem.unit.rows * self.of_a_row(self.problem.relation) * SUMMATION

    def of_a_row(self, relation: Relation) -> float:
        """The same for one row, without rounding."""
        raise NotImplementedError

    @property
    def spread(self) -> float:
        """The standard deviation of an entry on the diagonal of the matrix."""
        raise NotImplementedError

    @property
    def vector_spread(self) -> float:
        """The standard deviation of an entry of the vector Σxy."""
        return self.spread / self.ratio

    def noise_and_signal(self) -> tuple[float, float] | None:
        """Expected norm of the noise on Σ xs, and the largest that Σ xs can have; None if n is not known."""
        rows = self.problem.population
        return None if rows is None else (self.vector_spread * math.sqrt(self.problem.width), float(rows))

    def expected(self, factor: float = 1.0) -> str | None:
        """Noise on Σ xs times ``factor``, divided by n, above which Σ xxᵀ has no eigenvalue, in words."""
        rows = self.problem.population
        if rows is None:
            return None
        least = factor * self.vector_spread / rows
        return f"privacy noise of {least:.3g} or more on a weight of scaled rows, before it is shrunk"

    def __call__(self, exact: Moments, source: Source) -> Moments:
        """The moments with noise."""
        raise NotImplementedError

    def simulate(self, times: int, source: Source) -> Moments:
        """Noise alone, to simulate releases with: float64, and no part of any guarantee."""
        raise NotImplementedError

    def _coordinates(self, moments: Moments, between: float) -> Array:
        """One vector of the diagonal, the triangle times ``between``, Σ xs times the ratio, and the rest."""
        upper = np.triu_indices(self.problem.width)
        weights = np.where(upper[0] == upper[1], 1.0, between)
        parts = [moments.matrix[upper] * weights, moments.vector * self.ratio]
        if self.extended:
            parts.append(np.array([moments.square, moments.count]) * self.extra)
        return np.concatenate(parts)

    def _moments(self, coordinates: Array, between: float) -> Moments:
        width = self.problem.width
        upper = np.triu_indices(width)
        weights = np.where(upper[0] == upper[1], 1.0, between)
        triangle, size = coordinates[..., : weights.size] / weights, weights.size
        matrix = np.zeros((*coordinates.shape[:-1], width, width))
        matrix[..., upper[0], upper[1]] = triangle
        matrix[..., upper[1], upper[0]] = triangle
        vector = coordinates[..., size : size + width] / self.ratio
        if not self.extended:
            return Moments(matrix, vector)
        return Moments(matrix, vector, *(coordinates[..., i] / self.extra for i in (-2, -1)))

    @property
    def _size(self) -> int:
        width = self.problem.width
        return width * (width + 3) // 2 + 2 * self.extended


@dataclass(frozen=True)
class GaussianMoments(MomentsNoise):
    """Gaussian noise on (xxᵀ, ρ·xs), for δ > 0 (Dwork et al. 2014, "Analyze Gauss").

    The triangle of xxᵀ counts √2 times off the diagonal, so that ℓ2 is the Frobenius norm, in which
    xxᵀ has norm ‖x‖² ≤ 1. Adding a row moves the vector by √(‖x‖⁴ + ρ²s²‖x‖²) ≤ **√(1 + ρ²)**.

    Replacing one, with c = xᵀx′, moves it by the root of ‖x‖⁴ + ‖x′‖⁴ − 2c² + ρ²‖xs − x′s′‖². For given c
    that grows with both norms, and, the signs being opposite, with |s| and |s′|; at 1 it is
    2(1 − c²) + 2ρ²(1 + |c|), largest at |c| = ρ²/2 ≤ 1: **√(2 + 2ρ² + ρ⁴/2)**, √2 times as much and a little.

    Σ s² and n, with weight η ≤ ρ, add 2η² under the first root and nothing under the second, since
    (s² − s′²)² ≤ |s² − s′²|: what s′ loses in ρ² outweighs it.
    """

    multiplier: float | None = None
    """The noise multiplier, where the release is a part of (ε, δ); left out, that of (ε, δ)."""

    _between = math.sqrt(2.0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "event", self._mechanism.event)

    def of_a_row(self, relation: Relation) -> float:
        square = self.ratio**2
        if relation is Relation.REPLACE_ONE:
            return math.sqrt(2 + 2 * square + square**2 / 2)
        return math.sqrt(1 + square + 2 * self.extended * self.extra**2)

    @cached_property
    def _mechanism(self) -> Gaussian:
        multiplier = self.multiplier
        if multiplier is None:
            multiplier = _gaussian.noise_multiplier(self.problem.epsilon, self.problem.delta)
        return Gaussian(self.sensitivity, noise_multiplier=multiplier)

    @property
    def spread(self) -> float:
        """The standard deviation of an entry on the diagonal of the matrix."""
        return self.sensitivity * self._mechanism.event.noise_multiplier

    def __call__(self, exact: Moments, source: Source) -> Moments:
        mechanism = replace(self._mechanism, random_state=source)
        return self._moments(mechanism(self._coordinates(exact, self._between)), self._between)

    def simulate(self, times: int, source: Source) -> Moments:
        return self._moments(self.spread * normals(source, (times, self._size)), self._between)


@dataclass(frozen=True)
class WishartMoments(MomentsNoise):
    """:class:`~tacit.mechanisms.Wishart` noise on Σ zzᵀ with z = (x, ρs), for δ = 0.

    The sensitivity in the trace norm is ‖z‖² ≤ **1 + ρ²**, twice that if a row is replaced (reached by rows
    with zᵀz′ = 0). Where n is released it stands in a corner of its own, as η² per row: η² more if a row is
    added, and nothing if one is replaced by another. Σ s² comes with the matrix.
    """

    ratio = 0.7
    kind: str = field(init=False, default="float64")

    def __post_init__(self) -> None:
        object.__setattr__(self, "event", self._mechanism.event)

    def of_a_row(self, relation: Relation) -> float:
        trace = 1 + self.ratio**2
        return trace + self.extended * self.extra**2 if relation is Relation.ADD_REMOVE else 2 * trace

    @property
    def _size(self) -> int:
        return self.problem.width + 1 + self.extended

    @cached_property
    def _mechanism(self) -> Wishart:
        return Wishart(self.sensitivity, self.problem.epsilon)

    @property
    def spread(self) -> float:
        """The standard deviation of an entry on the diagonal of the matrix."""
        return self._mechanism.deviation(self._size)

    @property
    def vector_spread(self) -> float:
        """The standard deviation of an entry of the vector Σxy."""
        return self.spread / (math.sqrt(2) * self.ratio)

    def _whole(self, moments: Moments) -> Array:
        """Σ zzᵀ, and n in its corner."""
        width = self.problem.width
        whole = np.zeros((self._size, self._size))
        whole[:width, :width] = moments.matrix
        whole[:width, width] = whole[width, :width] = self.ratio * moments.vector
        whole[width, width] = self.ratio**2 * moments.square
        if self.extended:
            whole[-1, -1] = self.extra**2 * moments.count
        return whole

    def _split(self, whole: Array) -> Moments:
        width = self.problem.width
        square = whole[..., width, width] / self.ratio**2
        count = whole[..., -1, -1] / self.extra**2 if self.extended else None
        return Moments(whole[..., :width, :width], whole[..., :width, width] / self.ratio, square, count)

    def __call__(self, exact: Moments, source: Source) -> Moments:
        return self._split(replace(self._mechanism, random_state=source)(self._whole(exact)))

    def simulate(self, times: int, source: Source) -> Moments:
        return self._split(replace(self._mechanism, random_state=source).sample(self._size, times))


def release_of(
    problem: Problem, mechanism: str | None, known: dict[str, type[MomentsNoise]], extended: bool
) -> MomentsNoise:
    """The release that ``mechanism`` names, or Gaussian for δ > 0 and Wishart for δ = 0."""
    chosen = mechanism or ("gaussian" if problem.delta > 0 else "wishart")
    if chosen == "gaussian" and problem.delta == 0:
        raise InvalidValue("mechanism", chosen, "another one where delta is 0", "Leave it out, or set delta.")
    return known[chosen](problem, extended)


def solve(noisy: Moments, spread: float, penalty: float, intercept: bool) -> tuple[Array, Array]:
    """Weights, and the moment matrix they were found with, from noisy moments: post-processing.

    The constant is eliminated, then (Â + penalty)θ = b̂ solved along each eigenvector of the remaining matrix.
    With noise E on A and e on b, b̂ = Âθ + (e − Eθ), where the error is about as large in every direction; so
    instead of 1/a the filter is a/(a² + κ²), the posterior mean for weights of one size, κ being FILTER
    times the norm of the noise, spread·√d. Eigenvalues are first lifted to (a + √(a² + 4γ²))/2 > 0, since
    the exact ones are not negative. It was compared, on synthetic data, California housing and wine, with
    fixed and adaptive ridge (Wang 2018) and with risk estimates, and is best or close to it for ε from 0.05
    to 10. Without noise it is the exact solution.
    """
    matrix, vector = noisy.matrix, noisy.vector
    features = vector.shape[-1] - intercept
    coupling, constant, mean = matrix[..., :features, -1:], 1.0, 0.0
    if intercept:
        corner = _lifted(matrix[..., -1, -1], spread)
        constant = corner + (FILTER_CONSTANT * spread) ** 2 / corner
        mean = vector[..., -1] / constant
        away = coupling @ coupling.swapaxes(-1, -2) / _column(constant, 2)
        matrix = matrix[..., :features, :features] - away
        vector = vector[..., :features] - coupling[..., 0] * _column(mean, 1)
    size = spread * math.sqrt(max(features, 1))
    values, axes = np.linalg.eigh(matrix)
    values = _lifted(values, LIFT * size)
    along = (axes.swapaxes(-1, -2) @ vector[..., None])[..., 0]
    raised = values + penalty
    found = (axes @ (along * raised / (raised**2 + (FILTER * size) ** 2))[..., None])[..., 0]
    repaired = (axes * values[..., None, :]) @ axes.swapaxes(-1, -2)
    if not intercept:
        return found, repaired
    last = np.asarray(mean - (coupling[..., 0] * found).sum(axis=-1) / constant)
    beside = np.concatenate([coupling.swapaxes(-1, -2), _column(constant, 2)], axis=-1)
    whole = np.concatenate([np.concatenate([repaired + away, coupling], axis=-1), beside], axis=-2)
    return np.concatenate([found, last[..., None]], axis=-1), whole


def _lifted(values: Any, least: float) -> Any:
    """A positive number close to each value that is well above ``least``, and of its order below."""
    if least == 0:
        return np.maximum(values, 0.0)
    root = np.hypot(values, 2 * least)
    return np.where(values > 0, (values + root) / 2, 2 * least**2 / (root - np.minimum(values, 0.0)))


def _column(values: Any, axes: int) -> Array:
    array = np.asarray(values)
    return array.reshape(array.shape + (1,) * axes)


MECHANISMS: dict[str, type[MomentsNoise]] = {"gaussian": GaussianMoments, "wishart": WishartMoments}


@dataclass(frozen=True)
class Statistics(Noise):
    """Noise on Σxxᵀ and Σxy, from which least squares are solved (Vu and Slavković 2009; Dwork et al. 2014).

    One row moves them by at most √2 in ℓ2 (``Gaussian``, δ > 0), or by 1.49 in the trace norm (Wishart noise,
    ``Pure``, δ = 0); where it is replaced by √4.5 and 2.98. :class:`NoisyStatistics` has the proof.
    """

    name = "statistics"

    residuals: bool = False
    """Whether Σy² and the number of rows are released too, from which there are standard errors."""
    mechanism: str | None = None
    """``"gaussian"`` or ``"wishart"``; left out, Gaussian for δ > 0."""

    def __post_init__(self) -> None:
        self._check_flag("residuals")
        if self.mechanism is not None:
            _validate.choice("mechanism", self.mechanism, tuple(MECHANISMS))

    def place(self, problem: Problem) -> NoisyStatistics:
        return NoisyStatistics(problem, self)


class NoisyStatistics(Place):
    """Least squares from noisy sufficient statistics (Vu and Slavković 2009; Dwork et al. 2014).

    Σ xxᵀ and Σ xy are released once; what follows reads nothing else, so fitting costs what
    :class:`GaussianMoments` (δ > 0) or :class:`WishartMoments` (δ = 0) cost, whatever the solver does.
    Unlike noise on the output or in the objective, no bound on weights or residuals is needed, and the noise
    per row falls as 1/n. The setting ``mechanism`` names the release: for δ > 0 and few features "wishart"
    has less noise, while "gaussian" composes better with other releases.

    With ``residuals`` Σ y² and n are released too, and :meth:`intervals` include sampling noise.

    >>> from tacit.estimators.linear.rows import Space
    >>> X = np.random.default_rng(1).uniform(-1, 1, size=(5000, 1))
    >>> rows = ScaledRows(X, X / 2, Space.of(np.array([-1.0]), np.array([1.0]), None, intercept=True))
    >>> place = NoisyStatistics(Problem(Squared(), rows.width, epsilon=1.0))
    >>> place.event, place.solve(rows, Source(1)).round(2).ravel().tolist()
    (Pure(epsilon=1.0), [0.69, -0.0])
    """

    settings = Statistics
    losses = (Squared,)

    def __init__(self, problem: Problem, noise: Statistics | None = None) -> None:
        super().__init__(problem, noise)
        self.release = release_of(problem, self.noise.mechanism, MECHANISMS, self.noise.residuals)
        self.event, self.kind = self.release.event, self.release.kind
        self.noisy: Moments | None = None
        spread, on_target = self.release.spread, self.release.vector_spread
        self.notes.append(f"noise {spread:.4g} on squares, {on_target:.4g} on products with the target")

    def noise_and_signal(self) -> tuple[float, float] | None:
        """Noise on Σxs against Σxs, of which a row is at most 1 long."""
        return self.release.noise_and_signal()

    def expected(self) -> str | None:
        """The least noise on a weight."""
        return self.release.expected()

    def solve(self, rows: ScaledRows, source: Source) -> Array:
        self.noisy = self.release(Moments.of(rows, lambda targets: targets), source)
        return self._solve(self.noisy)[0][:, None]

    def _solve(self, noisy: Moments) -> tuple[Array, Array]:
        return solve(noisy, self.release.spread, self.problem.penalty or 0.0, self.problem.intercept)

    def intervals(self, confidence: float = 0.95) -> tuple[Array, Array]:
        """(lower, upper) per weight, from the release alone: privacy noise and, with ``residuals``, sampling.

        Releases are simulated around the fitted weights and the repaired matrix, fitted in the same way,
        and the quantiles of their errors, among them the bias of the filter, taken off the weights. Each
        weight is covered about as often as stated where the data outweigh the noise.
        """
        level = _validate.open_probability("confidence", confidence)
        weights, errors = self._errors()
        low, high = np.quantile(errors, [(1 - level) / 2, (1 + level) / 2], axis=0)
        return weights - high, weights - low

    def covariance(self) -> Array | None:
        """That of the same simulated errors, bias included; None without ``residuals``."""
        if not self.release.extended:
            return None
        errors = self._errors()[1]
        return np.asarray(errors.T @ errors / len(errors))

    def _errors(self) -> tuple[Array, Array]:
        """The weights, and how far simulated releases around them come out from them."""
        if self.noisy is None:
            raise TacitError("There is no release to take intervals from.", "Call solve first.")
        weights, matrix = self._solve(self.noisy)
        source = Source(0)
        noise = self.release.simulate(SIMULATIONS, source)
        products = matrix @ weights + noise.vector
        if self.release.extended:
            values, axes = np.linalg.eigh(matrix)
            normal = normals(source, (SIMULATIONS, weights.size))
            root = axes * np.sqrt(np.maximum(values, 0.0))
            products += math.sqrt(self._residual(self.noisy, weights, matrix)) * normal @ root.T
        return weights, np.asarray(self._solve(Moments(matrix + noise.matrix, products))[0] - weights)

    def _residual(self, noisy: Moments, weights: Array, matrix: Array) -> float:
        """The variance of the residuals, at most 1 as targets are within ±1."""
        error = noisy.square - 2 * noisy.vector @ weights + weights @ matrix @ weights
        return float(np.clip(error / max(noisy.count, 1.0), 0.0, 1.0))
