"""What a plan costs before any data are touched: a training run, or one step repeated.

>>> plan = plan_training(population=60_000, batch_size=256, epochs=1, noise_multiplier=1.0, delta=1e-5)
>>> plan.steps, rounded_up(plan.epsilon, 3)
(235, '0.394')
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from decimal import Context, Decimal
from typing import Any

from tacit import _validate, accounting, events
from tacit.errors import InvalidValue, UnsupportedEvent
from tacit.guarantee import ceiling
from tacit.relations import Relation, norm_sensitivity

__all__ = [
    "ACCOUNTANTS",
    "Comparison",
    "EpochSpend",
    "TrainingPlan",
    "compare_accountants",
    "plan_training",
    "rounded_up",
]

ACCOUNTANTS = {
    "basic": "ε's and δ's of the steps add up",
    "advanced": "strong composition of (ε, δ) steps",
    "optimal": "binomial bound for one (ε, δ) repeated",
    "zcdp": "zero-concentrated: ρ's add up",
    "moments": "Gaussian moments accountant in closed form",
    "rdp": "Rényi divergences add up, best order",
    "pld": "privacy loss distribution, convolved",
}
"""Every accountant that plans compare, and what it does, from the oldest to the newest."""

ROWS = 20
POINTS = 30

Say = Callable[[str], None]
"""Told what is being computed, for whoever shows progress."""


def rounded_up(value: float, digits: int = 5) -> str:
    """A number with this many significant digits, never below the number itself.

    >>> rounded_up(1.23401, 3), rounded_up(20.0), rounded_up(44.29478)
    ('1.24', '20.000', '44.295')
    """
    if not math.isfinite(value):
        return "∞" if value > 0 else str(value)
    number = ceiling(value, digits)
    exponent = number.adjusted() + 1 - digits if number else 0
    number = number.quantize(Decimal(1).scaleb(exponent), context=Context(prec=digits + 1))
    return f"{number:f}" if -5 <= number.adjusted() < digits else f"{number:e}"


@dataclass(frozen=True)
class EpochSpend:
    """ε of a run planned to end after this epoch, with the noise of the whole plan."""

    epoch: int
    steps: int
    epsilon: float


@dataclass(frozen=True)
class TrainingPlan:
    """What a DP-SGD run costs: Gaussian noise on clipped sums of Poisson-sampled batches.

    ``target`` is the ε asked for, if any, and ``epsilon`` what the plan spends. ``spend`` has at
    most about 20 epochs of the run; ``accountants`` the ε of the whole run by each of them.
    """

    population: int
    batch_size: int
    epochs: int
    delta: float
    relation: Relation
    noise_multiplier: float
    target: float | None
    epsilon: float
    spend: tuple[EpochSpend, ...]
    accountants: dict[str, float]

    @property
    def sampling_rate(self) -> float:
        """The probability with which each unit enters each batch."""
        return self.batch_size / self.population

    @property
    def steps(self) -> int:
        """⌈epochs · population / batch_size⌉: rounded up, so no unit is seen too rarely."""
        return _steps(self.epochs, self.population, self.batch_size)

    @property
    def slack(self) -> float | None:
        """ε asked for and not spent; never negative."""
        return None if self.target is None else self.target - self.epsilon

    @property
    def noise_per_clip_norm(self) -> float:
        """Standard deviation of the noise on the sum of gradients, in units of the clip norm."""
        return self.noise_multiplier * norm_sensitivity(1.0, self.relation)

    @property
    def event(self) -> events.Repeat:
        """The whole run, as it would be charged."""
        return _run(self.sampling_rate, self.noise_multiplier, self.steps)

    def to_dict(self) -> dict[str, Any]:
        """Everything above, for JSON."""
        derived = ("sampling_rate", "steps", "slack", "noise_per_clip_norm")
        return asdict(self) | {name: getattr(self, name) for name in derived}


@dataclass(frozen=True)
class Comparison:
    """One step repeated ``steps`` times, by every accountant that applies.

    ``curves`` has the ε of each accountant at each number of steps in ``grid``, None where it
    certifies none.
    """

    event: events.Event
    steps: int
    delta: float
    relation: Relation
    accountants: dict[str, float]
    grid: tuple[int, ...]
    curves: dict[str, tuple[float | None, ...]]

    def to_dict(self) -> dict[str, Any]:
        """Everything, for JSON; the event in its own JSON form."""
        return asdict(self) | {"event": self.event.to_json()}


def plan_training(
    *,
    population: int,
    batch_size: int,
    epochs: int,
    delta: float,
    epsilon: float | None = None,
    noise_multiplier: float | None = None,
    relation: Relation | str = Relation.ADD_REMOVE,
    say: Say = lambda text: None,
) -> TrainingPlan:
    """The noise that spends at most ``epsilon``, or the ε that ``noise_multiplier`` spends."""
    n = _validate.count("population", population, 1)
    batch, rounds = _validate.count("batch_size", batch_size, 1), _validate.count("epochs", epochs, 1)
    failure, rel = _validate.open_probability("delta", delta), Relation.of(relation)
    if batch > n:
        raise InvalidValue("batch_size", batch, f"at most the population, {n}")
    rate, total = batch / n, _steps(rounds, n, batch)
    if noise_multiplier is None:
        if epsilon is None:
            raise InvalidValue("epsilon", None, "given, or noise_multiplier instead")
        say("calibrating the noise")
        noise = accounting.calibrate(
            lambda z: _run(rate, z, total), epsilon=epsilon, delta=failure, relation=rel
        )
    elif epsilon is None:
        noise = _validate.positive("noise_multiplier", noise_multiplier)
    else:
        raise InvalidValue("epsilon", epsilon, "left out where noise_multiplier is given")
    say("comparing accountants")
    answers = accounting.compare(_run(rate, noise, total), failure, relation=rel)
    if not answers:
        raise UnsupportedEvent(f"No accountant certifies a finite ε at noise {noise!r}.", "Use more noise.")
    spend = []
    for epoch in _spread(rounds, ROWS):
        say(f"epoch {epoch} of {rounds}")
        steps = _steps(epoch, n, batch)
        spent = min(answers.values()) if steps == total else accounting.epsilon(
            _run(rate, noise, steps), failure, relation=rel
        )  # fmt: skip
        spend.append(EpochSpend(epoch, steps, spent))
    return TrainingPlan(
        population=n,
        batch_size=batch,
        epochs=rounds,
        delta=failure,
        relation=rel,
        noise_multiplier=noise,
        target=None if epsilon is None else float(epsilon),
        epsilon=min(answers.values()),
        spend=tuple(spend),
        accountants=answers,
    )


def compare_accountants(
    event: events.Event,
    *,
    steps: int,
    delta: float,
    relation: Relation | str = Relation.ADD_REMOVE,
    curves: bool = False,
    say: Say = lambda text: None,
) -> Comparison:
    """ε of ``steps`` applications of ``event`` by each accountant; with ``curves``, of fewer too.

    >>> comparison = compare_accountants(events.Approximate(0.1, 1e-5), steps=200, delta=2e-3)
    >>> rounded_up(comparison.accountants["basic"])
    '20.000'
    """
    total, rel = _validate.count("steps", steps, 1), Relation.of(relation)
    failure = _validate.delta(delta)
    grid = _log_spread(total, POINTS) if curves else (total,)
    answers = []
    for times in grid:
        say(f"{times} of {total} steps")
        answers.append(accounting.compare(events.Repeat(event, times), failure, relation=rel))
    if not answers[-1]:
        raise UnsupportedEvent(
            f"No accountant certifies a finite ε for {total} steps at delta={failure!r}.",
            "Allow a larger delta, or a smaller one per step.",
            event=event,
        )
    names = [name for name in accounting.METHODS if any(name in answer for answer in answers)]
    return Comparison(
        event=event,
        steps=total,
        delta=failure,
        relation=rel,
        accountants=answers[-1],
        grid=grid,
        curves={name: tuple(answer.get(name) for answer in answers) for name in names},
    )


def _run(rate: float, noise_multiplier: float, steps: int) -> events.Repeat:
    return events.Repeat(events.PoissonSampled(rate, events.Gaussian(noise_multiplier)), steps)


def _steps(epochs: int, population: int, batch_size: int) -> int:
    return -(-epochs * population // batch_size)


def _spread(last: int, count: int) -> list[int]:
    """1 … last in even strides, at most about ``count`` of them, the last included."""
    stride = max(1, math.ceil(last / count))
    return sorted({*range(stride, last + 1, stride), 1, last})


def _log_spread(last: int, count: int) -> tuple[int, ...]:
    """1 … last in even ratios, at most ``count`` of them, both ends included."""
    if last == 1:
        return (1,)
    return tuple(sorted({round(last ** (i / (count - 1))) for i in range(count)}))
