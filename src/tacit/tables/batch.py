"""Batch: several questions, one charge, as few queries as possible."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tacit import _validate, accounting, events
from tacit.errors import InvalidValue, TacitError
from tacit.guarantee import Guarantee
from tacit.tables.cells.measure import measure
from tacit.tables.cells.noise import Share, shares
from tacit.tables.questions import Questions
from tacit.tables.release import Answer, Release
from tacit.tables.statistics.statistic import Statistic, composed

if TYPE_CHECKING:
    from tacit.tables.table import Table

__all__ = ["Batch", "Plan"]


@dataclass(frozen=True)
class Plan:
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


class Batch(Questions):
    """Several questions that share one budget; made by :meth:`tacit.tables.Table.batch`.

    Ask inside a ``with`` block; when it ends without an exception, one charge is made for all
    questions, the engine answers those on the same groups in one query, and the releases are filled. Each
    question has a ``weight``, 1 unless told.
    """

    def __init__(self, table: Table, epsilon: float, delta: float) -> None:
        self._table = table
        self._epsilon = _validate.epsilon(epsilon)
        self._delta = _validate.delta(delta)
        if self._delta > table.ledger.budget.delta:
            raise InvalidValue(
                "delta", delta, f"at most that of the ledger's budget, {table.ledger.budget.delta}"
            )
        self._asked: list[tuple[Statistic, float, Release]] = []
        self._done = False

    def _ask(
        self, make: Any, label: str | None, where: Any, *, weight: float = 1.0, **unknown: Any
    ) -> Release:
        if unknown:
            raise TypeError(f"a question of a batch takes weight=, not {', '.join(unknown)}=")
        if self._done:
            raise TacitError("This batch has ended.", "Open another with table.batch().")
        condition, text = self._table.condition(where, label or "")
        statistic = make(text, self._table, condition)
        if statistic.discovering and self._delta == 0:
            raise InvalidValue(
                "delta",
                self._delta,
                "above 0 to discover keys",
                "Give delta, such as 1e-6; or declare the keys.",
            )
        release = Release(text, self._nothing())
        self._asked.append((statistic, _validate.positive("weight", weight), release))
        return release

    def _nothing(self) -> Guarantee:
        table = self._table
        return Guarantee(0.0, 0.0, events.Compose(()), table.relation, table.unit)

    def _shares(self) -> list[Share]:
        return shares(
            [weight for _, weight, _ in self._asked],
            epsilon=self._epsilon,
            delta=self._delta,
            discovering=[statistic.discovering for statistic, _, _ in self._asked],
            selecting=[statistic.selecting for statistic, _, _ in self._asked],
        )

    def _events(self) -> list[events.Event]:
        context = self._table.context
        return [
            statistic.event(share, context)
            for (statistic, _, _), share in zip(self._asked, self._shares(), strict=True)
        ]

    def plan(self, *, rows: int | None = None) -> list[Plan]:
        """What each question costs and how accurate it will be; nothing is spent and no data are read.

        ``rows`` is a guess at the number of rows, for statistics whose error depends on it, where the schema
        does not declare it.
        """
        plans = []
        context = self._table.context
        if rows is not None:
            context = replace(context, rows=_validate.count("rows", rows, 1))
        for (statistic, _, release), share, event in zip(
            self._asked, self._shares(), self._events(), strict=True
        ):
            error, note = statistic.expected(share, context)
            delta = self._part_of_delta(event)
            plans.append(Plan(release.label, self._cost(event, delta), delta, event, error, note))
        return plans

    @property
    def event(self) -> events.Event:
        """What the whole batch will be charged as."""
        return composed(self._events())

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
        table = self._table
        delta = self._part_of_delta(event)
        noise = "seeded" if table.context.random.seeded else "exact"
        return Guarantee(
            self._cost(event, delta), delta, event, table.relation, table.unit, noise, table.assumptions
        )

    def run(self) -> None:
        """Charge and answer. The end of a ``with`` block does this."""
        if self._done:
            raise TacitError("This batch has run already.", "Open another with table.batch().")
        self._table.source.require_open()
        self._done = True
        if not self._asked:
            return
        table, whole = self._table, self.guarantee
        label = _shortened([release.label for _, _, release in self._asked])
        promised = [self._guarantee(event) for event in self._events()]
        with table.ledger.charge(whole.event, label, delta=whole.delta or None, noise=whole.noise):
            answers = self._answers([statistic for statistic, _, _ in self._asked], self._shares())
        for answer, guarantee, (_, _, release) in zip(answers, promised, self._asked, strict=True):
            release.guarantee = guarantee
            release._answer = answer

    def _answers(self, asked: list[Statistic], paid: list[Share]) -> list[Answer]:
        """Rounds of queries until every statistic has its answer; all but bought bounds need one."""
        table = self._table
        pending: dict[int, Statistic] = dict(enumerate(asked))
        answers: dict[int, Answer] = {}
        while pending:
            wanted = [(i, part) for i, statistic in pending.items() for part in statistic.measurements()]
            cells = measure(table.source, table.expression, table.unit, [part for _, part in wanted])
            found: dict[int, list[Any]] = {i: [] for i in pending}
            for (i, _), exact in zip(wanted, cells, strict=True):
                found[i].append(exact)
            for i, statistic in list(pending.items()):
                own = statistic.read(table.source, table.expression, table.context)
                outcome = statistic.finish(own or found[i], paid[i], table.context)
                if isinstance(outcome, Answer):
                    del pending[i]
                    answers[i] = outcome
                else:
                    pending[i] = outcome
                    self._asked[i][2].bounds = outcome.bought
        return [answers[i] for i in range(len(asked))]

    def __enter__(self) -> Batch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.run()
        self._done = True


def _shortened(labels: list[str], most: int = 200) -> str:
    """All labels in one, as many of them in full as the ledger has room for."""
    for shown in range(len(labels), 0, -1):
        left = len(labels) - shown
        text = "; ".join(labels[:shown]) + (f"; and {left} more" if left else "")
        if len(text) <= most:
            return text
    end = f"…; and {len(labels) - 1} more" if len(labels) > 1 else "…"
    return labels[0][: most - len(end)] + end
