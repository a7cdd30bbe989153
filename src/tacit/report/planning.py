"""What a plan costs before any data are touched: a training run, or one step repeated.

>>> plan = Plan(population=60_000, batch_size=256, epochs=1, noise_multiplier=1.0, delta=1e-5)
>>> cost = training_cost(plan)
>>> plan.steps, rounded_up(cost.epsilon, 3)
(234, '0.393')
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from decimal import Context, Decimal
from typing import Any

from tacit import _validate, accounting, events
from tacit.errors import UnsupportedEvent, WeakPrivacy
from tacit.guarantee import ceiling
from tacit.relations import Relation
from tacit.training.plan import Plan

__all__ = [
    "ACCOUNTANTS",
    "Comparison",
    "EpochSpend",
    "TrainingCost",
    "compare_accountants",
    "rounded_up",
    "training_cost",
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
"""Called with what is being computed, to show progress."""


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
class TrainingCost:
    """What the run of a :class:`tacit.training.Plan` costs, by epoch and by accountant.

    ``target`` is the ε that was asked for, None where the noise was given, and ``epsilon`` is the ε that
    the run spends by the tightest accountant. ``spend`` has at most about 20 epochs of the run;
    ``accountants`` has the ε of the whole run by each accountant. ``correlated`` is the plan of as many
    epochs at the same ε without sampling and with correlated noise (:mod:`tacit.training.correlation`).
    """

    plan: Plan
    target: float | None
    epsilon: float
    spend: tuple[EpochSpend, ...]
    accountants: dict[str, float]
    correlated: Plan | None = None

    @property
    def recommended(self) -> str:
        """Which of the two has less noise in the sum of the gradients so far: "poisson" or "correlated"."""
        if self.correlated is None or self.plan.running_noise <= self.correlated.running_noise:
            return str(self.plan.sampling)
        return "correlated"

    @property
    def slack(self) -> float | None:
        """ε asked for and not spent; never negative."""
        return None if self.target is None else self.target - self.epsilon

    @property
    def noise_per_clip_norm(self) -> float:
        """Standard deviation of a step's fresh noise on the sum of gradients, in units of the clip norm."""
        return self.plan.step_noise * self.plan.sensitivity / self.plan.clip_norm

    def to_dict(self) -> dict[str, Any]:
        """The plan and its cost, for JSON."""
        plan = self.plan
        return {
            "population": plan.population,
            "batch_size": plan.batch_size,
            "epochs": plan.epochs,
            "delta": plan.delta,
            "relation": Relation.of(plan.relation),
            "noise_multiplier": plan.noise_multiplier,
            "target": self.target,
            "epsilon": self.epsilon,
            "spend": [asdict(row) for row in self.spend],
            "accountants": self.accountants,
            "sampling_rate": plan.sampling_rate,
            "steps": plan.steps,
            "slack": self.slack,
            "noise_per_clip_norm": self.noise_per_clip_norm,
            "running_noise": plan.running_noise,
            "running_noise_correlated": None if self.correlated is None else self.correlated.running_noise,
            "recommended": self.recommended,
        }


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


def training_cost(plan: Plan, *, target: float | None = None, say: Say = lambda text: None) -> TrainingCost:
    """What a plan costs; ``target`` is the ε that its noise was calibrated to, if it was."""
    say("comparing accountants")
    accountants = accounting.compare(plan.event, plan.delta, relation=plan.relation)
    if not accountants:
        raise UnsupportedEvent(
            f"No accountant certifies a finite ε at noise {plan.noise_multiplier!r}.", "Use more noise."
        )
    spent = min(accountants.values())
    last = math.ceil(plan.steps * plan.sampling_rate) if plan.epochs is None else math.ceil(plan.epochs)
    spend = []
    for epoch in _spread(last, ROWS):
        say(f"epoch {epoch} of {last}")
        steps = min(plan.steps, plan.steps_in(epoch))
        after = spent if steps == plan.steps else accounting.epsilon(
            plan.event_of(steps), plan.delta, relation=plan.relation
        )  # fmt: skip
        spend.append(EpochSpend(epoch, steps, after))
    say("comparing with correlated noise")
    return TrainingCost(plan, target, spent, tuple(spend), accountants, _correlated(plan))


def _correlated(plan: Plan) -> Plan | None:
    if plan.sampling != "poisson" or not plan.epsilon > 0:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WeakPrivacy)
        return replace(
            plan, sampling="cyclic", noise="correlated", clipping="flat", charge="run", epsilon=plan.epsilon,
            noise_multiplier=0.0, steps=0 if plan.epochs is not None else plan.steps,
        )  # fmt: skip


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


def _spread(last: int, count: int) -> list[int]:
    """1 … last in even strides, at most about ``count`` of them, the last included."""
    stride = max(1, math.ceil(last / count))
    return sorted({*range(stride, last + 1, stride), 1, last})


def _log_spread(last: int, count: int) -> tuple[int, ...]:
    """1 … last in even ratios, at most ``count`` of them, both ends included."""
    if last == 1:
        return (1,)
    return tuple(sorted({round(last ** (i / (count - 1))) for i in range(count)}))
