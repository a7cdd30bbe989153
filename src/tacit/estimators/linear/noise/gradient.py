"""Noise in the updates: gradient descent on gradients that are clipped, summed and made noisy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from tacit import _gaussian, _validate, events
from tacit.accounting import calibrate
from tacit.errors import InvalidValue
from tacit.estimators.linear.losses import HuberHinge, Logistic, Loss, Softmax, Squared
from tacit.estimators.linear.noise.place import Array, Place, Task
from tacit.estimators.linear.rows import Rows
from tacit.mechanisms import Gaussian, Norm
from tacit.randomness import Source, bernoulli
from tacit.relations import Relation

__all__ = ["Gradient"]

SQUARED_CLIP = 1.0
"""Where slopes have no bound: no row pulls harder than one whose target, in [−1, 1], is off by 1."""
MOMENTUM = 0.9
REACH, PURE_REACH = 2.0, 0.1
"""How far a weight may drift on noise alone before descent stops; less where every step costs as much."""
STEPS, PURE_STEPS = 10, 1
"""The fewest steps that are chosen."""
MOST_STEPS, WORK = (100, 1000), 4e8
"""The most of them, between these: as many as read so many numbers in all."""
EPOCHS = 20
"""Expected passes over the rows where they are sampled."""
LIMIT = 1e9
"""Weights are kept within ± this, so that none that runs away overflows, which rows would decide."""
DECAYS = ("none", "sqrt", "linear")


class Gradient(Place):
    """Gradient descent on noisy gradients, on all rows or on a secret sample of them in every step.

    Step t sums the gradients x ⊗ slope of the rows, each shortened to ``clip_norm`` in ℓ2, adds noise,
    divides by the public expected number of rows and moves the weights.

    Proof. Given the weights so far, which are public, one row more or less moves the sum by at most
    ``clip_norm`` in ℓ2, one replaced by twice that, one unit by that times its rows; the steps compose, with
    each chosen in view of those before. What is released, an average of the weights, is computed from them.

    * δ > 0: Gaussian noise of standard deviation noise_multiplier × sensitivity. The event is
      ``Repeat(Gaussian)``, or with a ``sampling_rate`` q < 1 ``Repeat(PoissonSampled(q, Gaussian))``: every
      row enters the sum of a step by an exact coin of its own (Abadi et al. 2016). A unit with several
      rows would have to be sampled as one, so for those there is no sampling.
    * δ = 0: noise of density ∝ exp(−ε′‖v‖₂/sensitivity), ε′ = ε/steps, composed by adding up. The event is
      ``Repeat(Pure)``; nothing is gained there from sampling, and it is refused.

    The noise is that of :mod:`tacit.mechanisms`, on a grid; but the sums it is added to are computed in
    float64, whose rounding is not in the sensitivity, so ``kind`` is "float64". Rounding is small there: how
    a product of matrices rounds a row's score may depend on the other rows, but slope and clipping are
    continuous, so a row more moves another row's gradient by at most 2⁻⁵³ × curvature × ‖Θ‖ × √width, which
    for a million rows, 100 features and weights of length 100 is 10⁻⁷ of a row in all.

    Options: ``steps``; ``sampling_rate``; ``clip_norm``, by default the bound of the loss's own gradient, so
    that nothing is clipped (1 for squared loss, which has none); ``learning_rate``, a number or "auto";
    ``decay`` of it, "none", "sqrt" (1/√t) or "linear" (to 0); ``momentum``; ``average``, whether the second
    half of the path is averaged. All are public, as is ``n``, by which sums become means.

    The default path is as long as noise allows: where the data say nothing, the weights drift on noise alone,
    by (length of path) × noise/n, and that is kept of order one, as a penalty would. There are as many steps
    as this length takes at the longest stable step.

    >>> place = Gradient(Task(Logistic(), width=5, epsilon=1.0, delta=1e-6, rows=10_000))
    >>> place.notes
    ['72 steps of 7.514, gradients clipped to 1, noise 35.85 per weight of their sum']
    >>> place.event
    Repeat(event=Gaussian(noise_multiplier=35.84...), times=72)
    """

    name = "gradient"
    losses = (Logistic, HuberHinge, Softmax, Squared)
    settings = ("steps", "sampling_rate", "clip_norm", "learning_rate", "decay", "momentum", "average")

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        options = task.options
        self.rate = _validate.probability("sampling_rate", options.get("sampling_rate", 1.0))
        self._refuse_sampling()
        if task.rows is None:
            raise InvalidValue(
                "n", None, 'given for noise="gradient", whose steps are means over the rows',
                'Say n= if it is public, or n="dp" to spend a part of ε on it.',
            )  # fmt: skip
        self.n = task.rows
        self.clip_norm = _validate.positive("clip_norm", options.get("clip_norm", natural_clip(task.loss)))
        self.momentum = _validate.non_negative("momentum", options.get("momentum", MOMENTUM))
        if self.momentum >= 1:
            raise InvalidValue("momentum", self.momentum, "in [0, 1)")
        self.decay = _validate.choice("decay", options.get("decay") or "none", DECAYS)
        self.average = options.get("average", True)
        if not isinstance(self.average, bool):
            raise InvalidValue("average", self.average, "True or False")
        self.penalty = 0.0 if task.penalty is None else task.penalty
        self.sensitivity = task.sensitivity(self.clip_norm)
        given = options.get("steps")
        self.steps = self._chosen_steps() if given is None else _validate.count("steps", given, 1)
        self._noise = self._mechanism()
        self.event = events.Repeat(self._of_one_step(), self.steps)
        self.learning_rate = self._learning_rate(options.get("learning_rate", "auto"))
        self.notes.append(
            f"{self.steps} steps of {self.learning_rate:.4g}, gradients clipped to {self.clip_norm:.4g}, "
            f"noise {self._spread(self.steps):.4g} per weight of their sum"
        )

    def _refuse_sampling(self) -> None:
        if self.rate == 1:
            return
        if self.task.delta == 0:
            raise InvalidValue(
                "sampling_rate", self.rate, "1 where δ = 0", "Set delta, or leave sampling_rate out."
            )
        if self.task.unit.rows > 1:
            raise InvalidValue(
                "sampling_rate", self.rate,
                "1 where a unit has several rows, which would have to be sampled together",
                "Leave sampling_rate out, or set rows_per_group=1.",
            )  # fmt: skip

    @property
    def _expected(self) -> float:
        """How many rows a step is expected to see."""
        return self.rate * self.n

    def _spread(self, steps: int) -> float:
        """The standard deviation of one coordinate of the noise of one step."""
        task = self.task
        if task.delta == 0:
            return self.sensitivity * math.sqrt(task.size + 1) * steps / task.epsilon
        multiplier = _multiplier(steps, self.rate, task.epsilon, task.delta, task.relation)
        return self.sensitivity * multiplier

    def _length(self, steps: int) -> float:
        """The path, a sum of step sizes, after which noise alone has moved a weight by ``REACH``."""
        reach = PURE_REACH if self.task.delta == 0 else REACH
        return reach * self._expected * math.sqrt(steps) / self._spread(steps)

    @property
    def _longest(self) -> float:
        """A stable step: the mean Hessian is at most the loss's curvature, plus the penalty."""
        return (1 + self.momentum) / (self.task.loss.curvature + self.penalty / self.n)

    def _chosen_steps(self) -> int:
        """The fewest steps that make up the length."""
        if self.rate < 1:
            return math.ceil(EPOCHS / self.rate)
        most = min(max(WORK / (self.n * self.task.size), MOST_STEPS[0]), MOST_STEPS[1])
        steps = PURE_STEPS if self.task.delta == 0 else STEPS
        while steps < most and self._sizes(steps).sum() * self._longest < self._length(steps):
            steps += 1
        return steps

    def _sizes(self, steps: int) -> Array:
        """What a gradient of 1 in each step adds up to by the end, momentum included, at learning rate 1."""
        left = np.arange(steps, 0, -1.0)
        carried = (1 - self.momentum**left) / (1 - self.momentum)
        return np.asarray(_decays(self.decay, steps) * carried)

    def _learning_rate(self, given: Any) -> float:
        if given != "auto":
            return _validate.positive("learning_rate", given)
        return min(self._longest, self._length(self.steps) / float(self._sizes(self.steps).sum()))

    def _mechanism(self) -> Gaussian | Norm:
        task = self.task
        if task.delta == 0:
            share = task.epsilon / self.steps
            while share * self.steps > task.epsilon:
                share = math.nextafter(share, 0.0)
            return Norm(self.sensitivity, share)
        multiplier = _multiplier(self.steps, self.rate, task.epsilon, task.delta, task.relation)
        return Gaussian(self.sensitivity, noise_multiplier=multiplier)

    def _of_one_step(self) -> events.Event:
        one = self._noise.event
        return one if self.rate == 1 else events.PoissonSampled(self.rate, one)

    def fixed(self) -> Mapping[str, Any]:
        return {"steps": self.steps}

    def solve(self, rows: Rows, source: Source) -> Array:
        noise = replace(self._noise, random_state=source)
        weights = np.zeros((rows.width, rows.outputs))
        velocity, total = np.zeros_like(weights), np.zeros_like(weights)
        first = self.steps // 2 if self.average else self.steps - 1
        for step, decay in enumerate(_decays(self.decay, self.steps)):
            mean = noise(self._summed(weights, rows, source)) / self._expected
            velocity = self.momentum * velocity + mean + self.penalty / self.n * weights
            weights = np.clip(weights - self.learning_rate * decay * velocity, -LIMIT, LIMIT)
            if step >= first:
                total += weights
        return np.asarray(total / (self.steps - first))

    def _summed(self, weights: Array, rows: Rows, source: Source) -> Array:
        """The sum of clipped gradients, over all rows or a fresh sample of them."""
        total = np.zeros_like(weights)
        for x, y in rows.blocks():
            if self.rate < 1:
                taken = bernoulli(source, Fraction(self.rate), len(x))
                x, y = x[taken], y[taken]
            total += clipped_sum(self.task.loss, weights, x, y, self.clip_norm)
        return total


def natural_clip(loss: Loss) -> float:
    """A clip norm that the gradient of one row, ‖x‖ ≤ 1, never exceeds, where there is one."""
    return loss.lipschitz if math.isfinite(loss.lipschitz) else SQUARED_CLIP


def clipped_sum(loss: Loss, weights: Array, x: Array, y: Array, clip_norm: float) -> Array:
    """Σ of x ⊗ slope, each shortened to ``clip_norm``; its norm is ‖x‖·‖slope‖."""
    slope = loss.slope(x @ weights, y)
    if clip_norm < loss.lipschitz:
        norms = np.sqrt(np.square(x).sum(axis=1) * np.square(slope).sum(axis=1))
        slope = slope * np.minimum(1.0, clip_norm / np.maximum(norms, 1e-300))[:, None]
    return np.asarray(x.T @ slope)


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
