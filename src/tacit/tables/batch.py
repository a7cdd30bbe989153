"""Batch: several questions, one charge, as few queries as possible."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tacit import _validate, accounting, events
from tacit.errors import InvalidValue, TacitError
from tacit.guarantee import Guarantee
from tacit.tables.asking import BatchQuestions
from tacit.tables.cells.measure import measure
from tacit.tables.cells.noise import Share, shares
from tacit.tables.questions import Question, parse
from tacit.tables.release import Answer, Release
from tacit.tables.statistics.asked import statistic_of
from tacit.tables.statistics.statistic import NoisyStatistic, Statistic, composed

if TYPE_CHECKING:
    from tacit.tables.table import Table

__all__ = ["Batch", "Quote"]


@dataclass(frozen=True)
class Quote:
    """What a question would cost and how far off its answer would be, from public facts alone.

    ``error`` is the expected half-width of a 95 % interval (for a table, that of one cell), or None where
    it depends on the data; ``note`` says more.
    """

    label: str
    epsilon: float
    delta: float
    event: events.Event
    error: float | None
    note: str


@dataclass(frozen=True)
class Asked:
    """A question of a batch, its statistic, and the release that will hold its answer."""

    question: Question
    statistic: Statistic
    release: Release


class Batch(BatchQuestions):
    """Several questions that share one budget; made by :meth:`tacit.tables.Table.batch`.

    Ask inside a ``with`` block; when it ends without an exception, one charge is made for all
    questions, the engine answers those on the same groups in one query, and the releases are filled. Each
    question has a ``weight``, 1 unless told.
    """

    def __init__(self, table: Table, epsilon: float, delta: float) -> None:
        self._table = table
        self._epsilon = _validate.epsilon(epsilon)
        self._delta = _validate.delta(delta)
        _validate.warn_if_weak(self._epsilon, self._delta, table.context.population, stacklevel=4)
        if self._delta > table.ledger.budget.delta:
            raise InvalidValue(
                "delta", delta, f"at most that of the ledger's budget, {table.ledger.budget.delta}"
            )
        self._asked: list[Asked] = []
        self._bought: list[NoisyStatistic] = []
        self._promised: dict[events.Event, Guarantee] = {}
        self._done = False

    def ask(self, question: Question | str) -> Release:
        """Add a question, a value or its text; its release is filled when the batch has run."""
        if self._done:
            raise TacitError("This batch has ended.", "Open another with table.batch().")
        asked = parse(question) if isinstance(question, str) else question
        statistic = statistic_of(asked, self._table)
        if statistic.discovering and self._delta == 0:
            raise InvalidValue(
                "delta",
                self._delta,
                "above 0 to discover keys",
                "Give delta, such as 1e-6; or declare the keys.",
            )
        release = Release(self._table.label(asked), self._nothing())
        self._asked.append(Asked(asked, statistic, release))
        self._bought = []
        return release

    def sizes(self) -> tuple[int, int]:
        """How many cells the engine counts for all questions, and about how many numbers are answered.

        What memory they take follows from it. Of the values that are chosen from, few are answered.
        """
        counted = answered = 0
        for asked in self._asked:
            for one in asked.statistic.measurements():
                chosen = 2 if asked.statistic.selecting else 0
                counted += math.prod(one.shape)
                answered += math.prod(one.shape[: len(one.shape) - chosen])
        return counted, answered

    def _nothing(self) -> Guarantee:
        table = self._table
        return Guarantee(0.0, 0.0, events.Compose(()), table.relation, table.unit)

    def _shares(self) -> list[Share]:
        """The part of ε and δ that each question may use."""
        return shares(
            [asked.question.weight for asked in self._asked],
            epsilon=self._epsilon,
            delta=self._delta,
            discovering=[asked.statistic.discovering for asked in self._asked],
            selecting=[asked.statistic.selecting for asked in self._asked],
        )

    def _noisy(self) -> list[NoisyStatistic]:
        """Every statistic with its noise, which is bought once, when all questions are known."""
        if not self._bought:
            self._bought = [
                asked.statistic.with_noise(share, self._table.context)
                for asked, share in zip(self._asked, self._shares(), strict=True)
            ]
        return self._bought

    def plan(self, *, population: int | None = None) -> list[Quote]:
        """What each question costs and how accurate it will be; nothing is spent and no data are read.

        ``population`` is a guess at the number of rows, for statistics whose error depends on it, where the
        schema does not declare it.
        """
        rows = self._table.context.population
        if population is not None:
            rows = _validate.count("population", population, 1)
        quotes = []
        for asked, noisy in zip(self._asked, self._noisy(), strict=True):
            event, (error, note) = noisy.event, noisy.expected(rows)
            delta = self._part_of_delta(event)
            quotes.append(Quote(asked.release.label, self._cost(event, delta), delta, event, error, note))
        return quotes

    @property
    def event(self) -> events.Event:
        """The event that the whole batch will be charged as."""
        return composed([noisy.event for noisy in self._noisy()])

    @property
    def guarantee(self) -> Guarantee:
        """What is promised about all answers of this batch together."""
        return self._guarantee(self.event) if self._asked else self._nothing()

    def _part_of_delta(self, event: events.Event) -> float:
        """0 where the event is within ε without any δ, else the batch's δ."""
        pure = accounting.epsilon(event, 0.0, relation=self._table.relation)
        return 0.0 if pure <= self._epsilon * (1 + 1e-9) else self._delta

    def _cost(self, event: events.Event, delta: float) -> float:
        spent = accounting.epsilon(event, delta, relation=self._table.relation)
        if spent > self._epsilon * (1 + 1e-9):
            raise TacitError(f"A batch for ε = {self._epsilon} would cost {spent}.", "Please report this.")
        return min(spent, self._epsilon)

    def _guarantee(self, event: events.Event) -> Guarantee:
        """What is promised about an answer that costs this event, accounted for once."""
        if event not in self._promised:
            table = self._table
            delta = self._part_of_delta(event)
            noise = "seeded" if table.context.random.seeded else "exact"
            self._promised[event] = Guarantee(
                self._cost(event, delta), delta, event, table.relation, table.unit, noise, table.assumptions
            )
        return self._promised[event]

    def run(self) -> None:
        """Charge and answer. The end of a ``with`` block does this."""
        if self._done:
            raise TacitError("This batch has run already.", "Open another with table.batch().")
        table = self._table
        table.source.require_open()
        self._done = True
        if not self._asked:
            return
        whole, bought = self.guarantee, self._noisy()
        promised = [self._guarantee(noisy.event) for noisy in bought]
        label = _shortened([asked.release.label for asked in self._asked])
        with table.payment.charge(whole.event, label, noise=whole.noise, delta=whole.delta):
            answers = _answered(table, bought)
        for asked, guarantee, (answer, bounds) in zip(self._asked, promised, answers, strict=True):
            asked.release.guarantee = guarantee
            asked.release.bounds = bounds
            asked.release._answer = answer

    def __enter__(self) -> Batch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.run()
        self._done = True


def _answered(
    table: Table, asked: Sequence[NoisyStatistic]
) -> list[tuple[Answer, dict[str, tuple[float, float]] | None]]:
    """The answers, each with the bounds that were bought for it, if any.

    Every round reads the cells that statistics still need, those on the same axes in one query. Only bounds
    that are bought take a second round.
    """
    pending, answers = dict(enumerate(asked)), {}
    while pending:
        wanted = [(i, part) for i, noisy in pending.items() for part in noisy.statistic.measurements()]
        cells = measure(table.source, table.expression, table.unit, [part for _, part in wanted])
        found: dict[int, list[Any]] = {i: [] for i in pending}
        for (i, _), exact in zip(wanted, cells, strict=True):
            found[i].append(exact)
        for i, noisy in list(pending.items()):
            own = noisy.statistic.read(table.source, table.expression, table.context)
            outcome = noisy.answer(own or found[i])
            if isinstance(outcome, Answer):
                del pending[i]
                answers[i] = outcome, noisy.bought
            else:
                pending[i] = outcome
    return [answers[i] for i in range(len(asked))]


def _shortened(labels: list[str], most: int = 200) -> str:
    """All labels in one, as many of them in full as the ledger has room for."""
    for shown in range(len(labels), 0, -1):
        left = len(labels) - shown
        text = "; ".join(labels[:shown]) + (f"; and {left} more" if left else "")
        if len(text) <= most:
            return text
    end = f"…; and {len(labels) - 1} more" if len(labels) > 1 else "…"
    return labels[0][: most - len(end)] + end
