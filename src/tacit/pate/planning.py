"""Planning: how many queries, how many answers, and how much noise a budget buys, from public facts alone.

The plan is made of the number of public queries, of teachers and of classes, of ε, δ and the relation: no
vote is looked at. Papernot and others chose threshold and noise by trying several on the votes, which no ε
in the papers accounts for; nothing of that kind is done here.

**Event.** ``asked`` queries are put to the teachers, and as soon as ``answered`` of them were answered the
teachers are asked no more. Both numbers are fixed in advance. So the worst case (each of the ``asked``
tests of the threshold, and ``answered`` noisy counts) is one event that is known before any vote, and is
charged in one piece. Where the teachers stop follows from answers that were released, and stopping early
costs no more than going on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from tacit import _validate, accounting, events
from tacit.errors import CalibrationError, InvalidValue
from tacit.guarantee import above
from tacit.pate.aggregator import Aggregator
from tacit.pate.confident import ConfidentGNMax, InteractiveGNMax
from tacit.pate.noisy_max import GNMax, GumbelMax
from tacit.relations import Relation

__all__ = ["AnswerPlan", "GroupPlan", "plan_answers"]

TEST_SHARE = 0.1
"""The part of the privacy loss that planned tests of the threshold take; votes that are published for MNIST
spend 7.5 % of it on them (640 tests at 150, 283 answers at 40)."""
AGREEING = 0.6
"""The planned threshold, as a share of all votes."""
NOISE_SHARE = 1 / 6
"""As many answers are planned as leave this standard deviation, as a share of all votes."""
ASKED_PER_ANSWER = 2
"""The planned number of queries for each answer."""
TOO_NOISY = 1 / 3
"""With noise above this share of all votes, an answer says little of what the teachers voted for."""
STEPS = 1000
"""Votes of groups with budgets of their own are whole numbers of this size at most."""
GUMBEL = 2 * math.pi / math.sqrt(6)
"""The standard deviation of Gumbel noise for an answer that is 1-differentially private."""
SCALED = ("threshold", "sigma", "sigma_threshold", "sigma_answer")
"""The parameters of an aggregator that grow with the size of a vote."""


@dataclass(frozen=True)
class GroupPlan:
    """A group of people with a budget of its own: its teachers, how much each of their votes counts, its
    cost."""

    name: Any
    teachers: int
    votes: int
    """What each of its teachers adds to a count."""
    event: events.Event
    epsilon: float
    """What its event costs, at most the group's ε."""


@dataclass(frozen=True)
class AnswerPlan:
    """What will be asked, answered and paid; known before any vote is. Print it."""

    aggregator: Any
    asked: int
    """So many public queries are put to the teachers at most."""
    answered: int
    """After so many answers the teachers are asked no more."""
    event: events.Event
    epsilon: float
    """What the event costs, at most the ε that was given."""
    delta: float
    relation: Relation
    teachers: int
    groups: tuple[GroupPlan, ...] = ()
    """Groups with budgets of their own, the strictest first; empty where all have the same."""
    doubts: tuple[str, ...] = ()
    """Why, by public facts alone, the answers will be useless; empty where they need not be."""
    voters: str = "teachers"
    """Who votes, in a word."""

    def __str__(self) -> str:
        lines = [
            f"ε = {above(self.epsilon, 6)}, δ = {above(self.delta, 6)}, {self.relation}",
            f"  {self.teachers} {self.voters}, {self.asked} queries, at most {self.answered} answers",
            f"  {shown(self.aggregator)}",
        ]
        lines += [
            f"  {each.name}: ε = {above(each.epsilon, 6)}, {each.teachers} teachers with "
            f"{each.votes} votes each"
            for each in self.groups
        ]
        return "\n".join(lines)


def plan_answers(
    aggregator: Any = None,
    *,
    queries: int,
    teachers: int | Mapping[Any, int],
    classes: int,
    epsilon: float | Mapping[Any, float],
    delta: float,
    relation: Relation | str = "add_remove",
    asked: int | None = None,
    answers: int | None = None,
) -> AnswerPlan:
    """Plan the answers to public queries for a budget. Reads no data.

    ``aggregator`` is one of :mod:`tacit.pate`, whose noise is then given and decides how many answers the
    budget allows; or None, and a threshold and noise are found. ``asked`` and ``answers`` may be
    given; otherwise as many answers are planned as leave a noise of a sixth of the teachers, and twice as
    many queries.

    ``teachers`` and ``epsilon`` may be mappings with the same keys, groups of people with budgets of their
    own (Boenisch, Mühl, Rinberg, Ihrig and Dziedzic 2023, "weighting"): the teachers of a group learn from
    its people alone, and their votes count less the stricter the group is. A vote that counts w instead of 1
    makes the sensitivity w times as large, and the noise multiplier that much smaller: the event of each
    group has the noise divided by its w. The event that is charged is that of the group with the largest ε.

    >>> plan = plan_answers(queries=9000, teachers=250, classes=10, epsilon=2.0, delta=1e-5)
    >>> plan.asked == 2 * plan.answered, plan.epsilon <= 2.0
    (True, True)
    """
    own = isinstance(epsilon, Mapping)
    given = {name: _validate.epsilon(each) for name, each in _by_group(epsilon).items()}
    budgets = dict(sorted(given.items(), key=lambda each: each[1]))
    sizes = {name: _validate.count("n_teachers", each, 1) for name, each in _by_group(teachers).items()}
    if own != isinstance(teachers, Mapping) or set(budgets) != set(sizes) or not sizes:
        advice = "Give both as mappings with the same groups, or both as numbers."
        raise InvalidValue("n_teachers", teachers, "for the same groups as epsilon", advice)
    public = _Public(
        _validate.count("queries", queries, 1), _validate.count("classes", classes, 2), max(budgets.values()),
        _validate.delta(delta), Relation.of(relation),
    )  # fmt: skip
    votes = _voices(public, budgets, sizes)
    declared = getattr(aggregator, "teachers", None)
    if declared not in (None, sum(sizes.values())):
        raise InvalidValue("aggregator", f"for {declared} teachers", f"for {sum(sizes.values())}")
    if aggregator is None:
        aggregator, asked, answers = _found(public, votes, asked, answers)
    else:
        asked, answers = _affordable(aggregator, public, asked, answers)
    event = aggregator.event(asked=asked, answered=answers)
    groups: tuple[GroupPlan, ...] = ()
    if own:
        groups = tuple(
            _group(aggregator, public, asked, answers, name, budgets[name], sizes[name]) for name in budgets
        )
        aggregator, votes = grown(aggregator, STEPS), sum(each.teachers * each.votes for each in groups)
        event = groups[-1].event
    cost = accounting.epsilon(event, public.delta, relation=public.relation)
    return AnswerPlan(
        aggregator, asked, answers, event, cost, public.delta, public.relation, sum(sizes.values()), groups,
        _doubts(aggregator, votes),
    )  # fmt: skip


def _by_group(given: Any) -> Mapping[Any, Any]:
    return given if isinstance(given, Mapping) else {None: given}


@dataclass(frozen=True)
class _Public:
    queries: int
    classes: int
    epsilon: float
    delta: float
    relation: Relation

    def fits(self, event: events.Event) -> bool:
        """Whether the event costs no more than the budget."""
        return accounting.epsilon(event, self.delta, relation=self.relation) <= self.epsilon


def _voices(public: _Public, budgets: Mapping[Any, float], sizes: Mapping[Any, int]) -> float:
    """About how many whole votes there are, where stricter groups have parts of votes."""
    if len(budgets) == 1:
        return float(sum(sizes.values()))
    noise = {name: _multiplier(each, public.delta) for name, each in budgets.items()}
    least = min(noise.values())
    return sum(sizes[name] * least / noise[name] for name in budgets)


def _multiplier(epsilon: float, delta: float) -> float:
    if delta == 0:
        raise InvalidValue("delta", delta, "above 0 where groups have budgets of their own")
    return accounting.calibrate(events.Gaussian, epsilon=epsilon, delta=delta)


def _found(public: _Public, votes: float, asked: int | None, answers: int | None) -> tuple[Any, int, int]:
    """Threshold and noise for the budget, and how many are asked and answered."""
    if public.delta == 0:
        return _found_pure(public, votes, asked, answers)
    whole = _multiplier(public.epsilon, public.delta)
    room = (NOISE_SHARE * votes / whole) ** 2 * (1 - TEST_SHARE) / 2
    answers = _most(public, int(room), asked) if answers is None else answers
    asked = min(public.queries, ASKED_PER_ANSWER * answers) if asked is None else asked
    _check_numbers(public, asked, answers)

    def make(noise: float) -> Aggregator:
        if asked == answers:
            return GNMax(sigma=noise * math.sqrt(2 * answers))
        return ConfidentGNMax(
            threshold=AGREEING * votes,
            sigma_threshold=noise * math.sqrt(asked / TEST_SHARE),
            sigma_answer=noise * math.sqrt(2 * answers / (1 - TEST_SHARE)),
        )

    noise = accounting.calibrate(
        lambda x: make(x).event(asked=asked, answered=answers),
        epsilon=public.epsilon, delta=public.delta, relation=public.relation,
    )  # fmt: skip
    return make(noise), asked, answers


def _found_pure(
    public: _Public, votes: float, asked: int | None, answers: int | None
) -> tuple[Any, int, int]:
    """The same without δ: Gumbel noise, and every query that is asked is answered."""
    if answers is None:
        answers = asked or _most(public, int(public.epsilon * NOISE_SHARE * votes / GUMBEL), None)
    asked = answers if asked is None else asked
    _check_numbers(public, asked, answers)
    if asked != answers:
        raise InvalidValue("answers", answers, f"the number of queries, {asked}, where delta is 0")
    each = math.nextafter(public.epsilon / answers, 0.0)
    while not public.fits(GumbelMax(epsilon=each).event(asked=asked, answered=answers)):
        each *= 1 - 1e-12
    return GumbelMax(epsilon=each), asked, answers


def _most(public: _Public, room: int, asked: int | None) -> int:
    """How many answers there is room for: at least one for each class, at most one for each query."""
    return min(public.queries, asked or public.queries, max(public.classes, room))


def _affordable(aggregator: Any, public: _Public, asked: int | None, answers: int | None) -> tuple[int, int]:
    """How many answers with given noise the budget allows."""
    if not isinstance(aggregator, Aggregator) or isinstance(aggregator, InteractiveGNMax):
        advice = (
            "Use tacit.pate.ConfidentGNMax(...), GNMax(...), GumbelMax(...) or LNMax(...), or leave it out."
        )
        raise InvalidValue("aggregator", type(aggregator).__name__, "one that needs votes alone", advice)
    asked = public.queries if asked is None else asked
    _check_numbers(public, asked, 1 if answers is None else answers)
    if answers is not None:
        if not public.fits(aggregator.event(asked=asked, answered=answers)):
            advice = "Ask for fewer answers or queries, add noise, or raise epsilon=."
            raise InvalidValue("answers", answers, f"affordable with ε = {public.epsilon:g}", advice)
        return asked, answers
    always = not aggregator.tests
    low, high = 0, asked
    while low < high:
        middle = (low + high + 1) // 2
        fits = public.fits(aggregator.event(asked=middle if always else asked, answered=middle))
        low, high = (middle, high) if fits else (low, middle - 1)
    if low == 0:
        advice = "Add noise, ask fewer queries, or raise epsilon=."
        raise InvalidValue(
            "aggregator", shown(aggregator), f"one whose answers cost at most ε = {public.epsilon:g}", advice
        )
    return (low, low) if always else (asked, low)


def _check_numbers(public: _Public, asked: int, answers: int) -> None:
    if not 1 <= _validate.count("asked", asked, 1) <= public.queries:
        raise InvalidValue("asked", asked, f"at most the number of queries, {public.queries}")
    if _validate.count("answers", answers, 1) > asked:
        raise InvalidValue("answers", answers, f"at most the number of queries that are asked, {asked}")


def _group(
    aggregator: Any, public: _Public, asked: int, answers: int, name: Any, epsilon: float, teachers: int
) -> GroupPlan:
    def event(factor: float) -> events.Event:
        made: events.Event = grown(aggregator, factor).event(asked=asked, answered=answers)
        return made

    votes = STEPS
    if accounting.epsilon(event(1.0), public.delta, relation=public.relation) > epsilon:
        factor = accounting.calibrate(event, epsilon=epsilon, delta=public.delta, relation=public.relation)
        votes = int(STEPS / factor)
    if votes < 1:
        raise CalibrationError(
            f"The budget of group {name!r} leaves no vote to its teachers.",
            "Give the group a larger epsilon, or leave it out.",
            epsilon=epsilon, delta=public.delta,
        )  # fmt: skip
    paid = event(STEPS / votes)
    cost = accounting.epsilon(paid, public.delta, relation=public.relation)
    return GroupPlan(name, teachers, votes, paid, cost)


def grown(aggregator: Any, factor: float) -> Any:
    """The aggregator for votes that count ``factor`` each: threshold and noise grow with them."""
    names = [each.name for each in fields(aggregator)]
    if not isinstance(aggregator, GNMax | ConfidentGNMax):
        raise InvalidValue(
            "aggregator",
            type(aggregator).__name__,
            "GNMax or ConfidentGNMax where groups have their own budgets",
        )
    sizes = {name: getattr(aggregator, name) * factor for name in SCALED if name in names}
    return replace(aggregator, teachers=None, **sizes)


def shown(aggregator: Any) -> str:
    """An aggregator in a plan: its numbers to four digits.

    >>> shown(GNMax(sigma=41.61081072))
    'GNMax(sigma=41.61)'
    """
    given = ((each.name, getattr(aggregator, each.name)) for each in fields(aggregator))
    words = ", ".join(f"{name}={value:.4g}" for name, value in given if value is not None)
    return f"{type(aggregator).__name__}({words})"


def _doubts(aggregator: Any, votes: float) -> tuple[str, ...]:
    noise = getattr(aggregator, "sigma_answer", getattr(aggregator, "sigma", 0.0))
    if noise <= TOO_NOISY * votes:
        return ()
    return (
        f"The noise on each count, {noise:.3g}, is more than a third of all {votes:.3g} votes: most answers "
        "will be wrong. Train more teachers, ask for fewer answers, or raise epsilon=.",
    )
