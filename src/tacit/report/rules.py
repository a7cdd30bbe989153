"""Which rule lets a ledger go furthest with a list of intended releases; no data and no ledger needed.

A release is a line of text, one charge or several alike::

    ages 0.1 x 50                      fifty releases of ε = 0.1 that need no δ (Laplace noise)
    means 0.2 1e-8 x 10                ten of ε = 0.2, δ = 1e-8, with Gaussian noise
    sums noise_multiplier=20 x 10      ten with Gaussian noise, σ = 20 × sensitivity
    model epsilon=1 delta=1e-7 population=60000 batch_size=256 epochs=15    one training run

A name, then ε and δ, or settings by name, and how often. Releases that need a δ and say none share the δ
of the budget.

>>> found = compare_rules(["counts 0.1 x 20", "means 0.1 1e-8 x 20"], Budget(epsilon=3.0, delta=1e-6))
>>> [(one.name, one.fits, one.of) for one in found]
[('basic', 30, 40), ('renyi', 40, 40), ('gaussian', 40, 40)]
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from tacit import _gaussian, _validate, events
from tacit.accounting import calibrate, filters
from tacit.errors import InvalidValue, UnsupportedEvent
from tacit.ledger import Budget
from tacit.ledger.budget import RULES
from tacit.relations import Relation

__all__ = ["Intended", "RuleCost", "compare_rules", "parse_release"]

_TIMES = re.compile(r"\s+[x×*]\s*(\d+)$")
_SETTINGS = ("epsilon", "delta", "noise_multiplier", "population", "batch_size", "epochs")
_HOW = "Write 'name ε x times', 'name ε δ x times' or settings by name: " + ", ".join(_SETTINGS) + "."


@dataclass(frozen=True)
class Intended:
    """Releases that somebody intends to make: a name, the event of one, its δ if it has one, how many."""

    name: str
    event: events.Event
    delta: float | None
    times: int = 1


@dataclass(frozen=True)
class RuleCost:
    """What a list of releases comes to under one rule.

    ``fits`` of ``of`` releases can be charged, one after the other, before the first is refused; they spend
    ``epsilon`` and ``delta``. ``refused`` names the first that does not fit, ``why`` says what is wrong.
    """

    name: str
    fits: int
    of: int
    epsilon: float
    delta: float
    refused: str | None = None
    why: str = ""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def parse_release(text: str, relation: Relation | str = "add_remove") -> Intended:
    """The releases that a line of text describes.

    >>> parse_release("ages 0.1 x 50")
    Intended(name='ages', event=Laplace(scale=10.0), delta=None, times=50)
    """
    line = text.strip()
    found = _TIMES.search(line)
    times = _validate.count("times", int(found.group(1)), 1) if found else 1
    words = line[: found.start() if found else None].split()
    named = dict(word.partition("=")[::2] for word in words if "=" in word)
    plain = [word for word in words if "=" not in word]
    numbers = [word for word in plain if _is_number(word)]
    name = " ".join(word for word in plain if word not in numbers)
    if not name or set(named) - set(_SETTINGS) or len(numbers) > 2:
        raise InvalidValue("release", text, "a name and what it costs", _HOW)
    given = {**dict(zip(("epsilon", "delta"), numbers, strict=False)), **named}
    try:
        values = {key: float(value) for key, value in given.items()}
    except ValueError:
        raise InvalidValue("release", text, "settings that are numbers", _HOW) from None
    event, delta = _event(text, values, Relation.of(relation))
    return Intended(name, event, delta, times)


def _event(text: str, values: dict[str, float], relation: Relation) -> tuple[events.Event, float | None]:
    epsilon, delta, noise = (values.get(name) for name in ("epsilon", "delta", "noise_multiplier"))
    if (epsilon is None) == (noise is None):
        raise InvalidValue("release", text, "one with an ε or a noise multiplier, and not both", _HOW)
    sampling = [values.get(name) for name in ("population", "batch_size", "epochs")]
    if any(value is not None for value in sampling):
        if None in sampling or (delta is None and epsilon is not None):
            raise InvalidValue("release", text, "a run with population, batch_size, epochs and a δ", _HOW)
        population, batch, epochs = (_validate.count("release", int(value or 0), 1) for value in sampling)
        rate, steps = (
            _validate.probability("batch_size ÷ population", batch / population),
            round(epochs * population / batch),
        )

        def run(multiplier: float) -> events.Event:
            return events.Repeat(events.PoissonSampled(rate, events.Gaussian(multiplier)), steps)

        if epsilon is not None:
            noise = calibrate(run, epsilon=epsilon, delta=delta or 0.0, relation=relation)
        return run(float(noise or 0.0)), delta
    if noise is not None:
        return events.Gaussian(noise), delta
    if not delta:
        return events.Laplace(1 / _validate.epsilon(epsilon)), None
    return events.Gaussian(_gaussian.noise_multiplier(float(epsilon or 0.0), delta)), delta


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def compare_rules(
    releases: Iterable[str | Intended], budget: Budget, relation: Relation | str = "add_remove"
) -> list[RuleCost]:
    """What every rule would let a ledger with this budget charge of these releases, in their order."""
    if budget.delta == 0:
        raise InvalidValue("delta", 0.0, "above 0 to compare rules", "With δ = 0 the ε's add up.")
    wanted = [each if isinstance(each, Intended) else parse_release(each, relation) for each in releases]
    if not wanted:
        raise InvalidValue("releases", (), "one or more", _HOW)
    rule = filters.BudgetFilter(budget.epsilon, budget.delta, relation)
    return [_spent_under(name, rule, wanted) for name in RULES]


def _spent_under(name: str, rule: filters.BudgetFilter, wanted: Sequence[Intended]) -> RuleCost:
    of = sum(each.times for each in wanted)
    needy = sum(each.times for each in wanted if each.delta is None and _needs_delta(each.event, rule))
    declared = math.fsum(each.times * (each.delta or 0.0) for each in wanted)
    share = max(rule.delta_for_charges(name) - declared, 0.0) / max(needy, 1)
    total, fits = filters.Cost(), 0
    refused, why = None, ""
    for each in wanted:
        asked = (
            each if each.delta or not _needs_delta(each.event, rule) else replace(each, delta=share or None)
        )
        try:
            quotes = list(rule.quotes(asked.event, lambda cost, total=total: total + cost, name, asked.delta))  # type: ignore[misc]
        except UnsupportedEvent:
            refused, why = each.name, "this rule refuses it"
            break
        cost = quotes[0].cost
        many = _most(rule, total, cost, each.times, name)
        total, fits = total + _times(cost, many), fits + many
        if many < each.times:
            over = total + cost
            spare = rule.delta_for_charges(name) * (1 + filters.ROUNDING)
            out = "δ" if name != "gaussian" and over.delta > spare else "ε"
            refused, why = each.name, f"{out} runs out"
            break
    delta = total.delta if name == "basic" else rule.delta if fits else 0.0
    return RuleCost(name, fits, of, rule.spent(total, name), delta, refused, why)


def _needs_delta(event: events.Event, rule: filters.BudgetFilter) -> bool:
    return not math.isfinite(filters.PureFilter(1.0, rule.relation).price(event))


def _most(rule: filters.BudgetFilter, total: filters.Cost, cost: filters.Cost, times: int, name: str) -> int:
    """How many of these costs fit on top of the total: the rule's ε grows with every one of them."""

    def fits(many: int) -> bool:
        return rule.spent(total + _times(cost, many), name) <= rule.epsilon

    low, high = 0, times
    if fits(high):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _times(cost: filters.Cost, many: int) -> filters.Cost:
    return filters.Cost(*(many * part for part in vars(cost).values())) if many else filters.Cost()
