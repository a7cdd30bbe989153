"""The road on which votes are released: agree with the ledger, charge, read the votes, answer."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tacit import _validate, accounting, events
from tacit.errors import InvalidValue, TacitError
from tacit.guarantee import Guarantee
from tacit.ledger.payment import Payment
from tacit.pate.votes import Int64, Labels
from tacit.randomness import Source
from tacit.relations import Relation, Unit

if TYPE_CHECKING:
    from tacit.pate.aggregator import Aggregator

__all__ = ["Answers", "seen_by_one"]


def source_of(random_state: int | Source | None) -> Source:
    """The stream of random bits that a seed, a stream or nothing stands for."""
    return random_state if isinstance(random_state, Source) else Source(random_state)


def noise_of(source: Source, kind: str = "exact") -> str:
    """The kind of noise that is drawn from ``source``."""
    return "seeded" if source.seeded else kind


CHOSEN_BY_ROWS = "the rows decided on how many queries were answered, within a budget that a filter enforces"
"""What has to hold for a cost that counts the answers that were given, and not as many as there might be."""


def agreed(ledger: Any, relation: Relation | str | None, unit: Unit | None) -> Payment:
    """The agreement with the ledger; that only labels are protected must be said, and not taken over.

    Whoever trains teachers on rows and leaves ``unit`` out expects the rows to be protected. A ledger that
    protects labels alone promises less.
    """
    part = getattr(getattr(ledger, "unit", None), "part", None)
    if unit is None and part is not None:
        raise TacitError(
            f"The ledger protects the {part} of a row and not its features, and unit= was left out.",
            "Pass unit=tacit.relations.LABEL if features decide which teacher sees a row and only its label "
            "is private; else open a ledger that protects rows.",
        )
    return Payment.agreed(ledger, relation=relation, unit=unit)


def seen_by_one(unit: Unit, relation: Relation) -> str:
    """What has to hold for one vote per query to be all that a unit can change.

    >>> seen_by_one(Unit(), Relation.REPLACE_ONE)
    'each row is seen by one teacher, which is chosen by nothing that replacing it may change'
    """
    if relation is Relation.ADD_REMOVE:
        return f"each {unit} is seen by one teacher, which is chosen without looking at other rows"
    return f"each {unit} is seen by one teacher, which is chosen by nothing that replacing it may change"


def guarantee_of(
    event: events.Event, delta: float, payment: Payment, source: Source, kind: str = "exact"
) -> Guarantee:
    """The guarantee of ``event`` at ``delta``; refused, before anything is charged, where no ε exists."""
    level = _validate.delta(delta)
    epsilon = accounting.epsilon(event, level, relation=payment.relation)
    if math.isinf(epsilon):
        raise InvalidValue("delta", delta, "above 0 for Gaussian noise", "Choose one far below 1/rows.")
    noise, assumption = noise_of(source, kind), seen_by_one(payment.unit, payment.relation)
    return Guarantee(epsilon, level, event, payment.relation, payment.unit, noise, (assumption,))


@dataclass(frozen=True, eq=False)
class Answers:
    """Labels that may be published: ``labels``, ``guarantee``, how many were ``asked`` and ``answered``.

    ``labels`` has one entry per query, −1 where the aggregator abstained. ``passed`` says which queries the
    teachers answered; it differs from ``labels >= 0`` only where a student's own label was reinforced.
    ``charged`` is what was charged, in the order of the entries.
    """

    labels: Labels
    passed: NDArray[np.bool_]
    guarantee: Guarantee
    charged: tuple[events.Event, ...]

    @property
    def asked(self) -> int:
        """How many queries were asked."""
        return len(self.labels)

    @property
    def answered(self) -> int:
        """How many queries the teachers answered."""
        return int(self.passed.sum())

    def __str__(self) -> str:
        return f"{self.answered} of {self.asked} queries answered\n{self.guarantee}"


@dataclass(frozen=True)
class Asking:
    """One release of an aggregator, with its public settings."""

    aggregator: Aggregator
    answers: int | None
    delta: float
    label: str | None
    random_state: int | Source | None

    def release(
        self,
        votes: Any,
        asked: int | None,
        student: Any,
        ledger: Any,
        relation: Relation | str | None,
        unit: Unit | None,
    ) -> Answers:
        """Check what is public, agree with the ledger, and go one of the two roads."""
        read, queries, shape = self._reading(votes, asked)
        given = self.aggregator._student(student, shape or np.shape(student))
        source = source_of(self.random_state)
        payment = agreed(ledger, relation, unit)
        if not self.aggregator.tests or self.answers is not None:
            return self._at_once(read, queries, given, payment, source)
        if payment.ledger is None:
            raise InvalidValue(
                "answers", None, "given where there is no ledger",
                "How many queries pass depends on the rows: say after how many answers to stop, or open "
                "a ledger, whose filter makes it sound: Ledger.open(…, filter='renyi').",
            )  # fmt: skip
        return self._tests_first(read, queries, given, payment, source)

    def _reading(
        self, votes: Any, asked: int | None
    ) -> tuple[Callable[[], Int64], int, tuple[int, ...] | None]:
        """How to get checked votes, how many queries there are, and the shape, if it is known already.

        An array is checked here, before the charge; the array that a function returns, within it.
        """
        check = self.aggregator._checked
        if not callable(votes):
            counts = check(votes)
            if asked is not None and asked != len(counts):
                raise InvalidValue("asked", asked, f"left out, or {len(counts)}, the rows of votes")
            return (lambda: counts), len(counts), counts.shape
        if asked is None:
            raise InvalidValue("asked", asked, "given where votes is a function")
        queries = _validate.count("asked", asked)

        def read() -> Int64:
            counts = check(votes())
            if len(counts) != queries:
                raise InvalidValue("votes", f"{len(counts)} rows", f"of {queries} rows, as asked= says")
            return counts

        return read, queries, None

    def _at_once(
        self, read: Callable[[], Int64], queries: int, student: Any, payment: Payment, source: Source
    ) -> Answers:
        """One charge, for all tests and as many answers as there may be."""
        aggregator = self.aggregator
        most = queries if self.answers is None else _validate.count("answers", self.answers)
        event = aggregator.event(asked=queries, answered=min(most, queries))
        guarantee = guarantee_of(event, self.delta, payment, source)
        with payment.charge(event, self._named(queries), noise=guarantee.noise, delta=self.delta):
            votes = read()
            given = aggregator._student(student, votes.shape)
            passed = aggregator._passed(votes, given, source)
            passed &= np.cumsum(passed) <= most
            labels = aggregator._answered(votes, given, passed, source)
        return Answers(labels, passed, guarantee, (event,))

    def _tests_first(
        self, read: Callable[[], Int64], queries: int, student: Any, payment: Payment, source: Source
    ) -> Answers:
        """Two charges: the tests, and then the answers that are given.

        The rows decide how many there are, so that the event of the answers that were given promises nothing
        by itself. The guarantee is the budget that the filter of the ledger keeps; its event says just that.
        """
        aggregator, ledger = self.aggregator, payment.ledger
        if ledger is None:
            raise TacitError("There is no ledger to charge.")
        guarantee_of(aggregator.event(asked=queries), self.delta, payment, source)
        noise, label = noise_of(source), self._named(queries)
        testing = events.Repeat(aggregator._test_event(), queries)
        with payment.charge(testing, f"{label}: tests", noise=noise, delta=self.delta):
            votes = read()
            given = aggregator._student(student, votes.shape)
            passed = aggregator._passed(votes, given, source)
        answered = int(passed.sum())
        answering = events.Repeat(aggregator._answer_event(), answered)
        charged: tuple[events.Event, ...] = (testing,)
        if answered:
            with payment.charge(answering, f"{label}: answers", noise=noise, delta=self.delta):
                labels = aggregator._answered(votes, given, passed, source)
            charged = (testing, answering)
        else:
            labels = aggregator._unanswered(queries, given)
        budget = ledger.budget
        promised = events.Approximate(budget.epsilon, budget.delta)
        one = seen_by_one(payment.unit, payment.relation)
        assumed = (one, CHOSEN_BY_ROWS, "ε and δ are the budget of the ledger")
        guarantee = Guarantee(
            budget.epsilon, budget.delta, promised, payment.relation, payment.unit, noise, assumed
        )
        return Answers(labels, passed, guarantee, charged)

    def _named(self, queries: int) -> str:
        return self.label or f"{type(self.aggregator).__name__} on {queries} queries"
