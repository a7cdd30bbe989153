"""Least squares that buy the centre and the scale of the rows first, and then fit to rows clipped to them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from tacit import _gaussian, events
from tacit.estimators.linear.losses import Squared
from tacit.estimators.linear.noise.centring import FLOOR, Centre, CentredRows, Scale, ShortenedRows, shrunk
from tacit.estimators.linear.noise.place import Array, Noise, Place, Problem
from tacit.estimators.linear.noise.statistics import (
    SUMMATION,
    GaussianMoments,
    Moments,
    MomentsNoise,
    WishartMoments,
    solve,
)
from tacit.estimators.linear.rows import ScaledRows
from tacit.mechanisms import Gaussian, Laplace, Norm
from tacit.randomness import Source
from tacit.relations import histogram_sensitivity

__all__ = ["Adaptive", "AdaptiveLeastSquares"]

SHARES = {True: (0.12, 0.06), False: (0.15, 0.1)}
"""The parts spent on centre and scale: of 1/σ² where δ > 0, which is True, and of ε where δ = 0."""
SUMS = (0.5, 1.0, 0.7, 0.3)
"""The weights of 1, s, u and ‖u‖² in the release of the centre."""
DRIFT = 0.07
"""The part of the variance of the target that the noise of a descent may add to the predictions."""
STEP = 1.5
"""The length of a step, relative to 1/(E‖z‖² + penalty/n); 2 is stable whatever rows and penalty are."""
FEWEST_STEPS, MOST_STEPS, MOMENTUM = 5, 100, 0.9
"""Bounds of the number of steps, and the largest momentum."""
WATCHED = 0.3
"""The weight of the clipping factors beside the clipped gradients."""
CLIPPED, CLIPPED_FROM = 0.4, 60.0
"""The part of the rows that are clipped where there is much noise; beyond the second signal-to-noise ratio,
it falls with the root of that."""
CLIP_RATE, CLIP_ERROR = 0.7, 0.1
"""How fast the clip norm follows the residuals, and the noise on the mean factor that halves this."""
LEAST_UNITS = 3.0
"""A descent that noise allows fewer steps than these learns the mean alone."""
LEAST_RATIO = 4.0
"""Moments with a lower signal-to-noise ratio than this are not released; the mean is."""
MOMENTS_FROM = 20_000.0
"""The signal-to-noise ratio from which one release of moments is better than a descent."""
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
    with 1/C in place of the curvature: ``kind`` is "float64". Its 10⁻⁷ of a row are 10⁻⁵ for C = 0.01, and
    could be a tenth of a row at the least C, 10⁻⁶, that residuals which all but vanish lead to.

    Nothing below reads the rows. A step of length η moves the predictions by noise: over a path of length L
    by a variance of about p·L·σ²C²/2n², for p weights. L makes that :data:`DRIFT` times C²/E‖z‖², which is
    of the order of the variance of the residuals: a longer path would add more than it could explain, and
    where the path is shorter than three steps the features are left alone. The mean of the second half of the
    path is kept.

    Boosted steps on clipped residuals are those of Tang et al. (2023); that the data's own scale must be
    bought, and can be, is the lesson of Amin et al. (2023). Constants were chosen by the score on training
    rows of California housing, wine and Adult (age from other columns), and on synthetic rows. Test scores
    of :data:`DRIFT` = 0.05 had been seen, with wine at ε = 0.05 little above what was wanted, before it was
    raised to 0.07, by training rows again.

    >>> place = AdaptiveLeastSquares(Problem(Squared(), width=9, epsilon=1.0, delta=1e-6))
    >>> place.notes
    ['noise multipliers 12.2 for the centre, 17.25 for the scale, 4.665 for the weights']
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
        if isinstance(self._centre, Norm):
            deviation *= math.sqrt(needed.sum() + 1) / self._centre.epsilon
        else:
            deviation *= self._centre.event.noise_multiplier
        spread[needed] = deviation / weights[needed]
        return Centre.of(noisy, spread, self.problem.intercept, self.problem.population)

    def _bought_scale(self, rows: CentredRows, source: Source) -> Scale:
        counts = Scale.counts(rows)
        noisy = replace(self._scale, random_state=source)(counts.ravel()).reshape(counts.shape)
        return Scale(*noisy)

    def _bounds(self, centre: Centre, scale: Scale, clipped: float) -> tuple[float, float]:
        beyond = clipped * centre.count
        return scale.bound(scale.lengths, beyond), scale.bound(scale.residuals, beyond)

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
        return np.zeros(self.features), bound * float(shrunk(np.clip(off / rows_there, -1.0, 1.0), error))

    def _descend(
        self, rows: CentredRows, scale: Scale, ratio: float, source: Source
    ) -> tuple[Array, float]:
        centre = rows.centre
        units = _units(ratio)
        steps = min(max(math.ceil(units), FEWEST_STEPS), MOST_STEPS)
        momentum = min(max(1 - steps / units, 0.0), MOMENTUM)
        clipped = _clipped(ratio)
        length, residual = self._bounds(centre, scale, clipped)
        clip_norm, goal = length * residual, 1 - clipped * SHORTENED
        multiplier = self._last * math.sqrt(steps) * (1 + 1e-12)
        reach = self.problem.sensitivity(self._watched)
        mechanism = Gaussian(reach, noise_multiplier=multiplier, random_state=source)
        error = self._deviation() * math.sqrt(steps) / (WATCHED * centre.count)
        gain = CLIP_RATE / (1 + (error / CLIP_ERROR) ** 2)
        weights, velocity, total = (np.zeros(self.problem.width) for _ in range(3))
        shrink = np.full(self.problem.width, self.penalty / centre.count)
        shrink[self.features :] = 0.0
        curvature = centre.square + centre.constant**2 + shrink
        rate = STEP / curvature * min(1.0, units * (1 - momentum) / steps)
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
        weighted = ShortenedRows(rows, length, residual)
        release = self._moments_noise(weighted.width, weighted.constant > 0)
        noisy = release(Moments.of(weighted, lambda targets: targets), source)
        unit = length * weighted.radius
        found = solve(noisy, release.spread, self.penalty / unit**2, weighted.constant > 0)[0]
        level = float(found[self.features :].sum()) * weighted.constant / weighted.radius
        return found[: self.features] * residual / unit, level * residual


SHORTENED = 0.35
"""The mean of 1 − f, divided by the part of the rows that are clipped, for normal residuals about."""


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
