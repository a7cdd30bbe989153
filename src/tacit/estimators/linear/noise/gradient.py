"""Noise in the updates: gradient descent on gradients that are clipped, summed and made noisy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from tacit import _gaussian, _validate, events
from tacit.accounting import calibrate
from tacit.accounting.individual import affordable
from tacit.errors import InvalidValue
from tacit.estimators.linear.losses import HuberHinge, Logistic, Loss, Softmax, Squared
from tacit.estimators.linear.noise.place import Array, Noise, Place, Problem
from tacit.estimators.linear.rows import ScaledRows
from tacit.mechanisms import Gaussian, Norm
from tacit.randomness import Source, bernoulli
from tacit.relations import Relation

__all__ = ["Gradient", "NoisyGradients"]

SQUARED_CLIP = 1.0
"""The clip norm where slopes have no bound: the gradient of a row whose target, in [−1, 1], is off by 1."""
REACH, PURE_REACH = 2.0, 0.1
"""How far a weight may drift on noise alone before descent stops; less for δ = 0, where ε is divided by the
number of steps."""
STEPS, PURE_STEPS = 10, 1
"""The fewest steps that are chosen."""
MOST_STEPS, WORK = (100, 1000), 4e8
"""Bounds of the largest number of steps that is chosen, and the numbers that all steps together may read:
between the bounds, there are as many steps as that allows."""
EPOCHS = 20
"""Expected passes over the rows where they are sampled."""
LIMIT = 1e9
"""Weights are kept within ± this: rows alone would decide whether an unbounded weight overflows."""
DECAYS = ("none", "sqrt", "linear")


@dataclass(frozen=True)
class Gradient(Noise):
    """Noise in the gradient of every step of gradient descent (Abadi et al. 2016).

    One row moves the sum of clipped per-example gradients by at most ``clip_norm`` in ℓ2, twice that where it
    is replaced. The event is ``Repeat`` of ``Gaussian`` (δ > 0), of ``PoissonSampled(Gaussian)`` where rows
    are sampled, or of ``Pure`` (δ = 0). :class:`NoisyGradients` has the proof.

    >>> Gradient(steps=100, sampling_rate=0.01).decay
    'none'
    """

    name = "gradient"

    steps: int | None = None
    """The number of steps; chosen from ε, δ and the population if left out."""
    sampling_rate: float = 1.0
    """The probability with which each row takes part in a step."""
    clip_norm: float | None = None
    """The longest gradient of one row; left out, the bound of the loss's own gradient, 1 for squared loss."""
    learning_rate: float | str = "auto"
    """The length of a step, or ``"auto"``."""
    decay: str = "none"
    """How the learning rate falls: ``"none"``, ``"sqrt"`` (1/√t) or ``"linear"`` (to 0)."""
    momentum: float = 0.9
    """The share of the last step that is taken again, in [0, 1)."""
    average: bool = True
    """Whether the second half of the path is averaged."""
    participations: int | None = None
    """Individual accounting, for rows in memory and δ > 0: every row pays for its own gradients, and leaves
    when it has paid for as much as so many of norm ``clip_norm``. Left out, all rows pay for all steps."""

    def __post_init__(self) -> None:
        if self.steps is not None:
            _validate.count("steps", self.steps, 1)
        rate = _validate.probability("sampling_rate", self.sampling_rate)
        object.__setattr__(self, "sampling_rate", rate)
        if self.clip_norm is not None:
            _validate.positive("clip_norm", self.clip_norm)
        if self.learning_rate != "auto":
            _validate.positive("learning_rate", self.learning_rate)
        _validate.choice("decay", self.decay, DECAYS)
        if self.participations is not None:
            _validate.count("participations", self.participations, 1)
        if _validate.non_negative("momentum", self.momentum) >= 1:
            raise InvalidValue("momentum", self.momentum, "in [0, 1)")
        self._check_flag("average")

    def place(self, problem: Problem) -> NoisyGradients:
        return NoisyGradients(problem, self)


class NoisyGradients(Place):
    """Gradient descent on noisy gradients, on all rows or on a secret sample of them in every step.

    Step t sums the gradients x ⊗ slope of the rows, each shortened to ``clip_norm`` in ℓ2, adds noise,
    divides by the public expected number of rows and moves the weights.

    Proof. Given the weights so far, which are public, one row more or less moves the sum by at most
    ``clip_norm`` in ℓ2, one replaced by twice that, one unit by that times its rows; the steps compose, with
    each chosen in view of those before. The released weights are an average of the path alone.

    * δ > 0: Gaussian noise of standard deviation noise_multiplier × sensitivity. The event is
      ``Repeat(Gaussian)``, or with a ``sampling_rate`` q < 1 ``Repeat(PoissonSampled(q, Gaussian))``: every
      row enters the sum of a step by an exact coin of its own (Abadi et al. 2016). A unit with several
      rows would have to be sampled as one, so for those there is no sampling.
    * δ > 0 with ``participations`` k: every row pays for the squared norms of the gradients it adds, and a
      gradient is shortened before they exceed k·``clip_norm``² in all. Given the weights so far, how far it
      is shortened depends on the row alone, so on every path the sums with and without it differ, over all
      steps together, by at most √k·``clip_norm`` in ℓ2, and the steps are one Gaussian release of noise
      multiplier z, where the noise of a step has standard deviation z·√k × sensitivity (Feldman and Zrnic
      2021; Smith and Thakurta 2022). Rows with large gradients, which are those that the model gets wrong,
      leave first: on Adult that costs more accuracy than the smaller noise gains.
    * δ = 0: noise of density ∝ exp(−ε′‖v‖₂/sensitivity), ε′ = ε/steps, composed by adding up. The event is
      ``Repeat(Pure)``; nothing is gained there from sampling, and it is refused.

    The noise is that of :mod:`tacit.mechanisms`, on a grid; but the sums it is added to are computed in
    float64, whose rounding is not in the sensitivity, so ``kind`` is "float64". Rounding is small there: how
    a product of matrices rounds a row's score may depend on the other rows, but slope and clipping are
    continuous, so a row more moves another row's gradient by at most 2⁻⁵³ × curvature × ‖Θ‖ × √width, which
    for a million rows, 100 features and weights of length 100 is 10⁻⁷ of a row in all. Shortening a gradient
    to what its row has left is continuous, too (:mod:`tacit.accounting.individual`).

    The settings are those of :class:`Gradient`. By default the clip norm is the bound of the loss's own
    gradient, so that nothing is clipped. Sums become means by the public number of rows.

    The default path is as long as noise allows. Where the data say nothing, the weights drift on noise alone,
    by (length of path) × noise/population; the length keeps this drift of order one, as a penalty would.
    There are as many steps as this length takes at the longest stable step.

    >>> place = NoisyGradients(Problem(Logistic(), width=5, epsilon=1.0, delta=1e-6, population=10_000))
    >>> place.notes
    ['72 steps of 7.514, gradients clipped to 1, noise 35.85 per weight of their sum']
    >>> place.event
    Repeat(event=Gaussian(noise_multiplier=35.84...), times=72)
    """

    settings = Gradient
    losses = (Logistic, HuberHinge, Softmax, Squared)

    def __init__(self, problem: Problem, noise: Gradient | None = None) -> None:
        super().__init__(problem, noise)
        settings: Gradient = self.noise
        self.rate, self.momentum, self.average = settings.sampling_rate, settings.momentum, settings.average
        self.participations = settings.participations
        self._refuse_sampling()
        if problem.population is None:
            raise InvalidValue(
                "population", None, 'given for noise="gradient", whose steps are means over the rows',
                'Say population= if it is public, or population="dp" to spend a part of ε on it.',
            )  # fmt: skip
        self.population = problem.population
        self.clip_norm = natural_clip(problem.loss) if settings.clip_norm is None else settings.clip_norm
        self.penalty = 0.0 if problem.penalty is None else problem.penalty
        self.sensitivity = problem.sensitivity(self.clip_norm)
        self.steps = self._chosen_steps() if settings.steps is None else settings.steps
        self._mechanism = self._calibrated()
        self.event = self._of_all_steps()
        self.learning_rate = self._learning_rate(settings.learning_rate)
        self.notes.append(
            f"{self.steps} steps of {self.learning_rate:.4g}, gradients clipped to {self.clip_norm:.4g}, "
            f"noise {self._spread(self.steps):.4g} per weight of their sum"
        )

    def _refuse_sampling(self) -> None:
        if self.participations is not None and (self.rate < 1 or self.problem.delta == 0):
            raise InvalidValue(
                "participations", self.participations, "left out where δ = 0 or rows are sampled",
                "Individual accounting is for Gaussian noise on the gradients of all rows.",
            )  # fmt: skip
        if self.rate == 1:
            return
        if self.problem.delta == 0:
            raise InvalidValue(
                "sampling_rate", self.rate, "1 where δ = 0", "Set delta, or leave sampling_rate out."
            )
        if self.problem.unit.rows > 1:
            raise InvalidValue(
                "sampling_rate", self.rate,
                "1 where a unit has several rows, which would have to be sampled together",
                "Leave sampling_rate out, or set rows_per_unit=1.",
            )  # fmt: skip

    @property
    def _expected(self) -> float:
        """How many rows a step is expected to see."""
        return self.rate * self.population

    def _spread(self, steps: int) -> float:
        """The standard deviation of one coordinate of the noise of one step."""
        problem = self.problem
        if problem.delta == 0:
            return self.sensitivity * math.sqrt(problem.size + 1) * steps / problem.epsilon
        return self.sensitivity * self._step_noise(steps)

    def _step_noise(self, steps: int) -> float:
        """The standard deviation of the noise of one step, in units of the sensitivity of a step."""
        problem = self.problem
        paid = self._full_gradients(steps)
        return _multiplier(paid, self.rate, problem.epsilon, problem.delta, problem.relation)

    def _length(self, steps: int) -> float:
        """The path, a sum of step sizes, after which noise alone has moved a weight by ``REACH``."""
        reach = PURE_REACH if self.problem.delta == 0 else REACH
        return reach * self._expected * math.sqrt(steps) / self._spread(steps)

    @property
    def _longest(self) -> float:
        """A stable step: the mean Hessian is at most the loss's curvature, plus the penalty."""
        return (1 + self.momentum) / (self.problem.loss.curvature + self.penalty / self.population)

    def _chosen_steps(self) -> int:
        """The fewest steps that make up the length."""
        if self.rate < 1:
            return math.ceil(EPOCHS / self.rate)
        most = min(max(WORK / (self.population * self.problem.size), MOST_STEPS[0]), MOST_STEPS[1])
        steps = PURE_STEPS if self.problem.delta == 0 else STEPS
        while steps < most and self._sizes(steps).sum() * self._longest < self._length(steps):
            steps += 1
        return steps

    def _sizes(self, steps: int) -> Array:
        """The displacement at the end that a gradient of 1 in each step leads to, at learning rate 1."""
        left = np.arange(steps, 0, -1.0)
        carried = (1 - self.momentum**left) / (1 - self.momentum)
        return np.asarray(_decays(self.noise.decay, steps) * carried)

    def _learning_rate(self, given: Any) -> float:
        if given != "auto":
            return float(given)
        return min(self._longest, self._length(self.steps) / float(self._sizes(self.steps).sum()))

    def _calibrated(self) -> Gaussian | Norm:
        problem = self.problem
        if problem.delta == 0:
            share = problem.epsilon / self.steps
            while share * self.steps > problem.epsilon:
                share = math.nextafter(share, 0.0)
            return Norm(self.sensitivity, share)
        return Gaussian(self.sensitivity, noise_multiplier=self._step_noise(self.steps))

    def _full_gradients(self, steps: int) -> int:
        """How many gradients of norm ``clip_norm`` one row can add in so many steps."""
        return steps if self.participations is None else min(steps, self.participations)

    def _of_all_steps(self) -> events.Event:
        one = self._mechanism.event
        if self.participations is not None:
            full = math.sqrt(self._full_gradients(self.steps))
            return events.Gaussian(math.nextafter(self._step_noise(self.steps) / full, 0.0))
        return events.Repeat(one if self.rate == 1 else events.PoissonSampled(self.rate, one), self.steps)

    def fixed(self) -> Mapping[str, Any]:
        return {"steps": self.steps}

    def noise_and_signal(self) -> tuple[float, float] | None:
        """The noise of all steps, which grows like √steps, against their gradients, which grow like steps."""
        size, steps = self.problem.size, self.steps
        pull = min(self.clip_norm, self.problem.loss.start)
        return self._spread(steps) * math.sqrt(size * steps), steps * self._expected * pull

    def solve(self, rows: ScaledRows, source: Source) -> Array:
        noise = replace(self._mechanism, random_state=source)
        weights = np.zeros((rows.width, rows.outputs))
        velocity, total = np.zeros_like(weights), np.zeros_like(weights)
        first = self.steps // 2 if self.average else self.steps - 1
        spent = Spent(self.problem.loss, self.clip_norm, self.participations)
        for step, decay in enumerate(_decays(self.noise.decay, self.steps)):
            mean = noise(self._summed(weights, rows, source, spent)) / self._expected
            velocity = self.momentum * velocity + mean + self.penalty / self.population * weights
            weights = np.clip(weights - self.learning_rate * decay * velocity, -LIMIT, LIMIT)
            if step >= first:
                total += weights
        return np.asarray(total / (self.steps - first))

    def _summed(self, weights: Array, rows: ScaledRows, source: Source, spent: Spent) -> Array:
        """The sum of clipped gradients, over all rows, those that can pay, or a fresh sample of them."""
        total = np.zeros_like(weights)
        for number, (x, y, w) in enumerate(rows.weighted()):
            if self.participations is not None:
                w = w * spent.pay(number, weights, x, y, w)
            if self.rate < 1:
                taken = bernoulli(source, Fraction(self.rate), len(x))
                x, y, w = x[taken], y[taken], w if isinstance(w, float) else w[taken]
            total += clipped_sum(self.problem.loss, weights, x, y, self.clip_norm, w)
        return total


class Spent:
    """What every row has paid for its own gradients, in units of ``clip_norm``², and who can go on.

    A row's gradient of norm n, times how much the row counts, costs it the square of that; one that it cannot
    pay for is shortened to what is left (:mod:`tacit.accounting.individual`). Given the weights so far, this
    depends on the row alone. Blocks are known by their
    number: they are the same in every pass over rows in memory.
    """

    def __init__(self, loss: Loss, clip_norm: float, participations: int | None) -> None:
        self._loss, self._clip_norm, self._budget = loss, clip_norm, participations or 0
        self._spent: dict[int, Array] = {}

    def pay(self, number: int, weights: Array, x: Array, y: Array, counted: Array | float) -> Array:
        """Let each row of the block pay for its next gradient; the factors that the gradients are paid with.

        The factor is 1 for a row that can pay for all of its gradient, and 0 for one that has nothing left.
        """
        norms = np.minimum(_norms(x, self._loss.slope(x @ weights, y)), self._clip_norm)
        price = np.square(norms * np.reshape(counted, -1) / self._clip_norm)
        price = np.minimum(price * (1 + 1e-9), 1.0)
        spent = self._spent.setdefault(number, np.zeros(len(x)))
        factors = affordable(price, self._budget - spent)
        spent += price * factors**2
        return factors[:, None]


def natural_clip(loss: Loss) -> float:
    """A clip norm that the gradient of one row, ‖x‖ ≤ 1, never exceeds, where there is one."""
    return loss.lipschitz if math.isfinite(loss.lipschitz) else SQUARED_CLIP


def clipped_sum(
    loss: Loss, weights: Array, x: Array, y: Array, clip_norm: float, counted: Array | float = 1.0
) -> Array:
    """Σ of x ⊗ slope, each shortened to ``clip_norm``, times how much its row counts, at most 1."""
    slope = loss.slope(x @ weights, y)
    if clip_norm < loss.lipschitz:
        norms = _norms(x, slope)
        slope = slope * np.minimum(1.0, clip_norm / np.maximum(norms, 1e-300))[:, None]
    return np.asarray(x.T @ (counted * slope))


def _norms(x: Array, slope: Array) -> Array:
    """The norms of the gradients x ⊗ slope."""
    return np.asarray(np.sqrt(np.square(x).sum(axis=1) * np.square(slope).sum(axis=1)))


def _decays(decay: str, steps: int) -> Array:
    if decay == "sqrt":
        return np.asarray(1 / np.sqrt(np.arange(1.0, steps + 1)))
    if decay == "linear":
        return np.asarray(np.arange(steps, 0, -1.0) / steps)
    return np.ones(steps)


_once = lru_cache(128)(_gaussian.noise_multiplier)


@lru_cache(1024)
def _multiplier(steps: int, rate: float, epsilon: float, delta: float, relation: Relation) -> float:
    """The noise multiplier with which all steps together are (ε, δ)-private."""
    if rate == 1:
        return math.sqrt(steps) * _once(epsilon, delta) * (1 + 1e-9)
    return calibrate(
        lambda z: events.Repeat(events.PoissonSampled(rate, events.Gaussian(z)), steps),
        epsilon=epsilon,
        delta=delta,
        relation=relation,
    )
