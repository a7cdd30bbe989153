"""Questions of a private table, from a file and text to answers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tacit import _validate
from tacit.errors import InvalidValue
from tacit.guarantee import Guarantee
from tacit.jobs import books
from tacit.jobs.job import Due, Job, Say, called, ledger_of, silent, whole

if TYPE_CHECKING:
    from tacit.data.source import PrivateSource
    from tacit.ledger import Payment
    from tacit.schema import Schema
    from tacit.tables import Batch, Quote, Release
    from tacit.tables.questions import Question

__all__ = ["Answered", "QueryJob", "plan_query", "query"]


@dataclass(frozen=True)
class Answered:
    """The answers to the questions, in their order, and what is promised about all of them together."""

    releases: tuple[Release, ...]
    guarantee: Guarantee


class QueryJob(Job):
    """Questions that are planned: everything about them is public but the rows."""

    def __init__(self, source: str, batch: Batch, releases: Sequence[Release], payment: Payment) -> None:
        self.source = source
        self.batch = batch
        self.payment = payment
        self._releases = tuple(releases)
        whole = batch.guarantee
        label = "; ".join(release.label for release in releases)
        called = "this question" if len(releases) == 1 else f"these {len(releases)} questions"
        super().__init__([Due(payment, whole.event, label, whole.epsilon, whole.delta, whole.noise, called)])

    def plan(self, population: int | None = None) -> list[Quote]:
        """What each question costs and how accurate its answer will be; nothing is charged or read.

        ``population`` is a guess at the number of rows, where the schema does not declare it.
        """
        return self.batch.plan(population=population)

    def run(self, say: Say = silent) -> Answered:
        """Charge, read, answer."""
        say(f"Asking {self.source}")
        self.batch.run()
        return Answered(self._releases, self.batch.guarantee)


def plan_query(
    source: str | os.PathLike[str] | PrivateSource,
    questions: Sequence[str | Question],
    *,
    schema: Schema | str | os.PathLike[str],
    ledger: books.Place,
    epsilon: float,
    delta: float = 0.0,
    dataset: str = "default",
    confidence: float = 0.95,
    delimiter: str | None = None,
    random_state: int | None = None,
) -> QueryJob:
    """Plan :func:`query`: parse the questions, find columns and noise; no row is read, nothing is charged."""
    if isinstance(questions, str) or not questions:
        raise InvalidValue("questions", questions, "a list of one question or more")
    _validate.epsilon(epsilon)
    _validate.delta(delta)
    _validate.open_probability("confidence", confidence)
    from tacit.schema import Schema

    known = schema if isinstance(schema, Schema) else Schema.load(schema)
    with ExitStack() as stack:
        label = str(questions[0])
        payment = books.agreed(ledger, dataset, unit=known.unit, delta=delta, label=label, stack=stack)
        from tacit import tables
        from tacit.tables.questions import parse

        asked = [parse(one, confidence=confidence) if isinstance(one, str) else one for one in questions]
        table = tables.open(
            source,
            schema=known,
            ledger=ledger_of(payment),
            random_state=random_state,
            delimiter=delimiter,
        )
        if isinstance(source, str | os.PathLike):  # a source that was opened elsewhere is closed there
            stack.enter_context(table)
        batch = table.batch(epsilon=epsilon, delta=delta)
        releases = [batch.ask(question) for question in asked]
        return QueryJob(called(source), batch, releases, payment).holding(stack)


@whole(plan_query)
def query(job: QueryJob) -> Answered:
    """Ask questions of a private table in a file: charge, then read.

    ``source`` is a CSV or Parquet file, or a pattern of several; ``questions`` are texts such as
    ``"mean(hours) by sex where age >= 40"``, or values of :mod:`tacit.tables.questions`; they share
    ``epsilon`` and ``delta``. Each answer has a value, an interval (quantiles and medians at ``confidence``)
    and a guarantee, under the relation and for the unit of the ledger. A source that is open already, of
    :func:`tacit.data.source.connect`, is asked as it is, and stays open.
    """
    return job.run()
