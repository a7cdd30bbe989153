"""Least squares that buy the centre and the scale of the rows first, and then fit to rows clipped to them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tacit import _gaussian, events
from tacit.data.arithmetic import lengths
from tacit.estimators.linear.losses import Squared
from tacit.estimators.linear.noise.place import Array, Noise, Place, Problem
from tacit.estimators.linear.noise.statistics import (
    SUMMATION,
    GaussianMoments,
    Moments,
    MomentsNoise,
    WishartMoments,
    solve,
)
from tacit.estimators.linear.rows import KEPT_BYTES, ScaledRows
from tacit.mechanisms import Gaussian, Laplace, Norm
from tacit.randomness import Source
from tacit.relations import histogram_sensitivity

__all__ = ["Adaptive", "AdaptiveLeastSquares", "CentredRows", "Centre", "Scale"]

SHARES = {True: (0.12, 0.06), False: (0.15, 0.1)}
"""The parts spent on the centre and on the scale, of 1/σ² where the noise is Gaussian and of ε where δ = 0."""
SUMS = (0.5, 1.0, 0.7, 0.3)
"""The weights of 1, s, u and ‖u‖² in the release of the centre."""
EXPONENTS = (-10, 1)
"""The scales that are told apart are powers of two between these."""
CONSTANT = 0.3
"""The square of the constant beside the centred features, relative to their mean squared length."""
DRIFT = 0.05
"""The part of the variance of the target that the noise of a descent may add to the predictions."""
STEP = 1.5
"""The length of a step, relative to 1/E‖z‖²; 2 is stable whatever the rows are."""
FEWEST_STEPS, MOST_STEPS, MOMENTUM = 5, 100, 0.9
"""Bounds of the number of steps, and the largest momentum."""
WATCHED = 0.3
"""The weight of the clipping factors beside the clipped gradients."""
CLIPPED, CLIPPED_FROM = 0.4, 60.0
"""The part of the rows that are clipped where there is much noise; beyond the second signal-to-noise ratio, it
falls with the root of that."""
CLIP_RATE, CLIP_ERROR = 0.7, 0.1
"""How fast the clip norm follows the residuals, and the noise on the mean factor that halves this."""
LEAST_UNITS = 3.0
"""A descent that noise allows fewer steps than these learns the mean alone."""
LEAST_RATIO = 4.0
"""Moments with a lower signal-to-noise ratio than this are not released; the mean is."""
MOMENTS_FROM = 20_000.0
"""The signal-to-noise ratio from which one release of moments is better than a descent."""
BESIDE = 0.5
"""The constant beside rows of length 1 in the moments."""
FLOOR = 2.0
"""The number of rows is taken to be at least so many standard deviations of its noise."""
LIMIT = 1e9
"""Weights are kept within ± this: rows alone would decide whether an unbounded weight overflows."""


@dataclass(frozen=True)
class Adaptive(Noise):
    """Noise on the centre and scale of the rows, then on what least squares need of rows clipped to these.

    The events are three ``Gaussian`` (δ > 0), or ``Pure``, ``Laplace`` and ``Pure`` (δ = 0), composed.
    :class:`AdaptiveLeastSquares` has the proof.

    >>> Adaptive().to_dict()
    {'name': 'adaptive'}
    """

    name = "adaptive"

    def place(self, problem: Problem) -> AdaptiveLeastSquares:
        return AdaptiveLeastSquares(problem, self)


@dataclass(frozen=True)
class Centre:
    """What the first release says of rows (u, constant) with targets s: their number, means, mean ‖u‖²."""

    count: float
    least: float
    """The number of rows that there are at least, but for two standard deviations of its noise."""
    target: float
    features: Array
    square: float
    constant: float

    @staticmethod
    def sums(rows: ScaledRows, features: int) -> Array:
        """Σ (1, s, u, ‖u‖²), exact."""
        total = np.zeros(features + 3)
        for x, targets, w in rows.weighted():
            counted = x.any(axis=1) * (1.0 if isinstance(w, float) else w[:, 0])
            u = x[:, :features]
            total[0] += counted.sum()
            total[1] += counted @ targets[:, 0]
            total[2:-1] += counted @ u
            total[-1] += counted @ np.square(u).sum(axis=1)
        return total

    @classmethod
    def of(cls, sums: Array, spread: Array, intercept: bool, count: float | None) -> Centre:
        """Means of noisy sums, shrunk towards 0 by their noise; ``spread`` has one deviation for each sum."""
        rows = max(float(sums[0]), FLOOR * float(spread[0]), 1.0) if count is None else float(count)
        means, errors = sums / rows, spread / rows
        features, noise = means[2:-1] * intercept, float(np.linalg.norm(errors[2:-1]))
        length = float(np.linalg.norm(features))
        features = features * float(_shrunk(min(length, 1.0), noise)) / max(length, 1e-300)
        square = float(np.clip(means[-1] - features @ features + errors[-1] / 2, 0.05, 1.0))
        target = float(np.clip(_shrunk(means[1], errors[1]), -1.0, 1.0)) if intercept else 0.0
        least = rows if count is not None else max(float(sums[0] - 2 * spread[0]), 0.0)
        return cls(rows, least, target, features, square, math.sqrt(CONSTANT * square) if intercept else 0.0)


class CentredRows:
    """Rows z = (u − centre, constant) with their residuals r = s − mean, lengths and weights, in many passes.

    How a row is centred, and its length, depend on that row and the released centre alone, bit by bit.
    """

    def __init__(self, rows: ScaledRows, centre: Centre) -> None:
        self._rows, self.centre = rows, centre
        small = len(rows) * rows.width * 8 <= KEPT_BYTES
        self._kept = list(self._prepare()) if small else None

    def _prepare(self) -> Iterator[tuple[Array, Array, Array, Array | float]]:
        features = self.centre.features.size
        for x, targets, w in self._rows.weighted():
            counted = x.any(axis=1)
            z = x.copy()
            z[:, :features] -= self.centre.features
            z[:, features:] = self.centre.constant
            z[~counted] = 0.0
            residuals = np.where(counted, targets[:, 0] - self.centre.target, 0.0)
            yield z, residuals, lengths(z), w if isinstance(w, float) else w[:, 0]

    def blocks(self) -> Iterator[tuple[Array, Array, Array, Array | float]]:
        """(z, residuals, ‖z‖, weights) of each block; a row that does not count is all zeros."""
        return iter(self._kept) if self._kept is not None else self._prepare()


@dataclass(frozen=True)
class Scale:
    """Noisy histograms of ‖z‖ and |r|, over powers of two."""

    lengths: Array
    residuals: Array

    @staticmethod
    def counts(rows: CentredRows) -> Array:
        """How many rows have their length, and their residual, below each power of two and not the last."""
        edges = 2.0 ** np.arange(*EXPONENTS)
        found = np.zeros((2, edges.size + 1))
        for z, residuals, sizes, w in rows.blocks():
            counted = z.any(axis=1) * w
            for row, values in zip(found, (sizes, np.abs(residuals)), strict=True):
                row += np.bincount(np.searchsorted(edges, values), counted, edges.size + 1)
        return found

    def bound(self, histogram: Array, beyond: float) -> float:
        """A value that about ``beyond`` rows exceed: bins are added up from the top, then interpolated."""
        tail = 0.0
        for place in range(histogram.size - 1, 0, -1):
            before, tail = tail, tail + float(histogram[place])
            if tail > beyond:
                part = min(max((beyond - before) / (tail - before), 0.0), 1.0)
                return float(2.0 ** (EXPONENTS[0] + place - part))
        return float(2.0 ** EXPONENTS[0])


class _Weighted:
    """Rows for :meth:`Moments.of`: of length ≤ 1, targets within ±1, each scaled down as a whole.

    A row and its target that exceed the bounds are multiplied by the same number, which is to give the row a
    lower weight: least squares of the same linear relation.
    """

    def __init__(self, rows: CentredRows, length: float, residual: float) -> None:
        self._rows, self._length, self._residual = rows, length, residual
        self.constant = BESIDE if rows.centre.constant > 0 else 0.0
        self.radius = math.hypot(1.0, self.constant)
        self.width = rows.centre.features.size + (self.constant > 0)

    def weighted(self) -> Iterator[tuple[Array, Array, Array | float]]:
        features = self._rows.centre.features.size
        for z, residuals, _, w in self._rows.blocks():
            x = z / (self._length * self.radius)
            x[:, features:] = np.where(z.any(axis=1), self.constant / self.radius, 0.0)[:, None]
            s = residuals / self._residual
            largest = np.maximum(np.maximum(lengths(x), np.abs(s)), 1.0)
            x, s = x / largest[:, None], np.clip(s / largest, -1.0, 1.0)
            yield x, s[:, None], w if isinstance(w, float) else w[:, None]


class AdaptiveLeastSquares(Place):
    """Least squares by three releases: where the rows are, how far they reach, and their weights.

    Rows are u with ‖u‖ ≤ 1 and a constant, targets s within ±1. Bounds and midpoints that are public are
    seldom where the rows are; noise that is made for rows as far away as the bounds would hide them.

    1. *Centre*: Σ(½·1, s, 0.7·u, 0.3·‖u‖²). A row moves it by at most √(¼ + 1 + 0.49 + 0.09) = **1.353** in
       ℓ2, as |s| ≤ 1 and ‖u‖² ≤ ‖u‖ ≤ 1. Coordinates that are not needed are left out: the count where the
       population is public, s and u where there is no intercept.
    2. *Scale*: with z = (u − centre, constant) and r = s − mean, two histograms of ‖z‖ and |r| over powers of
       two. A row counts once in each: **√2** in ℓ2, **2** in ℓ1.
    3. *Weights*, one of these, by the noisy count and by what is public:

       * a descent, for δ > 0, in T steps: each releases (Σ f·r·z/C, 0.3·Σ f), where f = min(1, C/‖r·z‖)
         shortens the gradient to the clip norm C. As ‖f·r·z/C‖ ≤ 1 and f ≤ 1, a row moves it by at most
         **√1.09**. C follows the noisy mean of f, as the quantile of Andrew et al. (2021) does; f is
         continuous where the indicator of clipping is not, so that rounding cannot flip it;
       * moments, for δ = 0 or many rows: z and r divided by bounds from the scale, and each row multiplied
         by the number that brings ‖x‖ and |s| to at most 1: :class:`GaussianMoments` or
         :class:`WishartMoments` have their sensitivity;
       * the mean, where the noise drowns the features: (Σ f·r/C, 0.3·Σ 1) with f·|r| ≤ C: **√1.09**.

    A row that is replaced moves each of these by at most twice as much (the histograms by √2 times as much in
    ℓ2), a unit by that times its rows.

    Events. For δ > 0 each part is Gaussian noise, and the parts together have Σ 1/σᵢ² = 1/σ², σ being the
    multiplier of (ε, δ). The third part is one Gaussian with multiplier σ₃ whichever it is: T steps
    with multiplier σ₃·√T each, T being known before the first of them, compose to what it costs (Dong, Roth
    and Su 2022, adaptive composition); T and the choice depend on what was released before alone. For δ = 0
    the parts are ε₁, ε₂ and ε₃ that add up to ε.

    Noise is that of :mod:`tacit.mechanisms`, on a grid; the sums are those of float64, as for
    :class:`~tacit.estimators.linear.noise.gradient.NoisyGradients`, whose argument on rounding holds here
    too: ``kind`` is "float64".

    Nothing below reads the rows. A step of length η moves the predictions by noise: over a path of length L
    by a variance of about p·L·σ²C²/2n², for p weights. L makes that :data:`DRIFT` times C²/E‖z‖², which is
    of the order of the variance of the residuals: a longer path would add more than it could explain, and
    where the path is shorter than two steps the features are left alone. The mean of the second half of the
    path is kept.

    Boosted steps on clipped residuals are those of Tang et al. (2023); that the data's own scale must be
    bought, and can be, is the lesson of Amin et al. (2023). Constants were chosen by the score on training
    rows of California housing, wine and Adult (age from other columns), and on synthetic rows; no test row
    was used.

    >>> place = AdaptiveLeastSquares(Problem(Squared(), width=9, epsilon=1.0, delta=1e-6))
    >>> place.notes
    ['noise multipliers 12.2 for the centre, 21.12 for the scale, 4.61 for the weights']
    >>> AdaptiveLeastSquares(Problem(Squared(), width=9, epsilon=1.0)).event
    Compose(events=(Pure(epsilon=0.15), Laplace(...), Pure(epsilon=0.7499...)))
    """

    settings = Adaptive
    losses = (Squared,)

    def __init__(self, problem: Problem, noise: Adaptive | None = None) -> None:
        super().__init__(problem, noise)
        self.features = problem.width - problem.intercept
        needed = (problem.population is None, problem.intercept, problem.intercept, True)
        self._sums = np.array(SUMS) * needed
        self.penalty = 0.0 if problem.penalty is None else problem.penalty
        reach = float(np.sqrt(np.square(self._sums).sum())) * SUMMATION
        first, second = SHARES[problem.delta > 0]
        relation, units = problem.relation, problem.unit.rows
        self._centre: Gaussian | Norm
        self._scale: Gaussian | Laplace
        if problem.delta > 0:
            whole = _gaussian.noise_multiplier(problem.epsilon, problem.delta) * (1 + 1e-9)
            parts = [whole / math.sqrt(part) for part in (first, second, 1 - first - second)]
            self._centre = Gaussian(problem.sensitivity(reach), noise_multiplier=parts[0])
            counts = units * math.sqrt(2) * histogram_sensitivity(relation, 2) * (1 + 1e-12)
            self._scale = Gaussian(counts, noise_multiplier=parts[1])
            self.event = events.Compose(tuple(events.Gaussian(part) for part in parts))
            words = "noise multipliers"
        else:
            parts = [problem.epsilon * part for part in (first, second)]
            left = problem.epsilon - sum(parts)
            parts.append(left * (1 - 1e-12))
            self._centre = Norm(problem.sensitivity(reach), parts[0])
            self._scale = Laplace(units * 2 * histogram_sensitivity(relation, 1), epsilon=parts[1])
            self.event = events.Compose((self._centre.event, self._scale.event, events.Pure(parts[2])))
            words = "ε of"
        self._last = parts[2]
        """The noise multiplier of the third release, its ε for δ = 0."""
        self.notes.append(
            f"{words} {parts[0]:.4g} for the centre, {parts[1]:.4g} for the scale, "
            f"{parts[2]:.4g} for the weights"
        )

    # --------------------------------------------------------------------------- public facts

    def _deviation(self) -> float:
        """The standard deviation of the third release per weight, for rows whose part of it is at most 1."""
        if self.problem.delta > 0:
            return self.problem.sensitivity(self._watched) * self._last
        return self._moments_noise(self.problem.width, self.problem.intercept).spread

    def noise_and_signal(self) -> tuple[float, float] | None:
        """The noise of the third release against n rows that all say the same."""
        rows = self.problem.population
        return None if rows is None else (self._deviation() * math.sqrt(self.problem.width), float(rows))

    @property
    def _watched(self) -> float:
        return math.hypot(1.0, WATCHED) * SUMMATION

    def _moments_noise(self, width: int, intercept: bool) -> MomentsNoise:
        problem = replace(self.problem, width=width, intercept=intercept)
        if problem.delta > 0:
            return GaussianMoments(problem, multiplier=self._last)
        return WishartMoments(replace(problem, epsilon=self._last))

    # ------------------------------------------------------------------------------- releases

    def solve(self, rows: ScaledRows, source: Source) -> Array:
        centre = self._bought_centre(rows, source)
        centred = CentredRows(rows, centre)
        scale = self._bought_scale(centred, source)
        ratio = centre.count / (self._deviation() * math.sqrt(self.problem.width))
        certain = ratio * centre.least / centre.count
        descent = self.problem.delta > 0 and ratio < MOMENTS_FROM
        drowned = _units(certain) < LEAST_UNITS if descent else certain < LEAST_RATIO
        if drowned and self.problem.intercept:
            found = self._mean(centred, scale, source)
        elif descent:
            found = self._descend(centred, scale, ratio, source)
        else:
            found = self._from_moments(centred, scale, ratio, source)
        coefficients, level = found
        if not self.problem.intercept:
            return coefficients[:, None]
        constant = rows.space.intercept / rows.space.radius
        last = (centre.target + level - centre.features @ coefficients) / constant
        return np.append(coefficients, last)[:, None]

    def _bought_centre(self, rows: ScaledRows, source: Source) -> Centre:
        weights = np.concatenate([self._sums[:2], np.full(self.features, self._sums[2]), self._sums[3:]])
        needed = weights > 0
        noisy = np.zeros(weights.size)
        spread = np.zeros(weights.size)
        exact = Centre.sums(rows, self.features)[needed] * weights[needed]
        noisy[needed] = replace(self._centre, random_state=source)(exact) / weights[needed]
        deviation = self._centre.sensitivity
        if isinstance(self._centre, Gaussian):
            deviation *= self._centre.event.noise_multiplier
        else:
            deviation *= math.sqrt(needed.sum() + 1) / self._centre.epsilon
        spread[needed] = deviation / weights[needed]
        return Centre.of(noisy, spread, self.problem.intercept, self.problem.population)

    def _bought_scale(self, rows: CentredRows, source: Source) -> Scale:
        counts = Scale.counts(rows)
        noisy = replace(self._scale, random_state=source)(counts.ravel()).reshape(counts.shape)
        return Scale(*noisy)

    def _bounds(self, centre: Centre, scale: Scale, clipped: float) -> tuple[float, float]:
        beyond = clipped * centre.count
        longest = 2.0 * math.hypot(1.0, centre.constant)
        return min(scale.bound(scale.lengths, beyond), longest), min(scale.bound(scale.residuals, beyond), 2.0)

    def _mean(self, rows: CentredRows, scale: Scale, source: Source) -> tuple[Array, float]:
        """No features, and how far the mean of the target is off, by clipped residuals."""
        _, bound = self._bounds(rows.centre, scale, 0.1)
        total = np.zeros(2)
        for z, residuals, _, w in rows.blocks():
            counted = z.any(axis=1) * w
            total += np.sum(counted * np.clip(residuals / bound, -1.0, 1.0)), WATCHED * np.sum(counted)
        reach = self.problem.sensitivity(self._watched)
        mechanism: Gaussian | Norm = Norm(reach, self._last)
        spread = reach * math.sqrt(3) / self._last
        if self.problem.delta > 0:
            mechanism, spread = Gaussian(reach, noise_multiplier=self._last), reach * self._last
        off, count = replace(mechanism, random_state=source)(total) / (1.0, WATCHED)
        known = self.problem.population
        rows_there = max(float(count), FLOOR * spread / WATCHED) if known is None else float(known)
        error = spread / rows_there
        return np.zeros(self.features), bound * float(_shrunk(np.clip(off / rows_there, -1.0, 1.0), error))

    def _descend(
        self, rows: CentredRows, scale: Scale, ratio: float, source: Source
    ) -> tuple[Array, float]:
        centre = rows.centre
        units = _units(ratio)
        steps = min(max(math.ceil(units), FEWEST_STEPS), MOST_STEPS)
        momentum = min(max(1 - steps / units, 0.0), MOMENTUM)
        rate = STEP / (centre.square + centre.constant**2) * min(1.0, units * (1 - momentum) / steps)
        clipped = _clipped(ratio)
        length, residual = self._bounds(centre, scale, clipped)
        clip_norm, goal = length * residual, 1 - clipped * SHORTENED
        mechanism = Gaussian(
            self.problem.sensitivity(self._watched), noise_multiplier=self._last * math.sqrt(steps) * (1 + 1e-12),
            random_state=source,
        )  # fmt: skip
        error = self._deviation() * math.sqrt(steps) / (WATCHED * centre.count)
        gain = CLIP_RATE / (1 + (error / CLIP_ERROR) ** 2)
        weights, velocity, total = (np.zeros(self.problem.width) for _ in range(3))
        shrink = np.full(self.problem.width, self.penalty / centre.count)
        shrink[self.features :] = 0.0
        for step in range(steps):
            noisy = mechanism(_clipped_gradient(rows, weights, clip_norm))
            velocity = momentum * velocity + clip_norm * noisy[:-1] / centre.count + shrink * weights
            weights = np.clip(weights - rate * velocity, -LIMIT, LIMIT)
            if step >= steps // 2:
                total += weights
            change = gain * (goal - noisy[-1] / (WATCHED * centre.count))
            clip_norm = min(max(clip_norm * math.exp(min(max(change, -0.2), 0.2)), 1e-6), 8.0)
        found = total / (steps - steps // 2)
        return found[: self.features], float(found[self.features :].sum() * centre.constant)

    def _from_moments(
        self, rows: CentredRows, scale: Scale, ratio: float, source: Source
    ) -> tuple[Array, float]:
        clipped = _clipped(ratio) / 2
        length, residual = self._bounds(rows.centre, scale, clipped)
        weighted = _Weighted(rows, length, residual)
        release = self._moments_noise(weighted.width, weighted.constant > 0)
        noisy = release(Moments.of(weighted, lambda targets: targets), source)
        unit = length * weighted.radius
        found = solve(noisy, release.spread, self.penalty / unit**2, weighted.constant > 0)[0]
        level = float(found[self.features :].sum()) * weighted.constant / weighted.radius
        return found[: self.features] * residual / unit, level * residual


SHORTENED = 0.35
"""The mean of 1 − f, divided by the part of the rows that are clipped, for normal residuals about."""


def _shrunk(means: Any, errors: Any) -> Any:
    """Means less what noise of this standard deviation adds to their squares; 0 where that is all of it."""
    return means * np.maximum(0.0, 1 - np.square(errors) / np.maximum(np.square(means), 1e-300))


def _units(ratio: float) -> float:
    """The length of the path, in steps."""
    return 2 * DRIFT * ratio**2 / STEP


def _clipped(ratio: float) -> float:
    """The part of the rows to be clipped: the more signal, the fewer."""
    return CLIPPED * min(1.0, math.sqrt(CLIPPED_FROM / max(ratio, 1e-300)))


def _clipped_gradient(rows: CentredRows, weights: Array, clip_norm: float) -> Array:
    """(Σ f·r·z/C, WATCHED·Σ f) over all rows, r being the prediction less the target."""
    total = np.zeros(weights.size + 1)
    for z, residuals, sizes, w in rows.blocks():
        slope = z @ weights - residuals
        factor = clip_norm / np.maximum(np.abs(slope) * sizes, clip_norm)
        total[:-1] += (w * factor * slope / clip_norm) @ z
        total[-1] += WATCHED * np.sum(w * factor * (sizes > 0))
    return total
