"""Local differential privacy from files: a private column into reports, and reports into frequencies."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit import _validate, accounting, events
from tacit.errors import InvalidValue, TacitError
from tacit.guarantee import Guarantee
from tacit.jobs import books, files
from tacit.jobs.fitting import PUBLIC
from tacit.jobs.job import Due, Job, Say, silent, warned, whole
from tacit.relations import Relation

if TYPE_CHECKING:
    from tacit.data.source import PrivateSource
    from tacit.ledger import Payment
    from tacit.local import Frequencies, FrequencyOracle, Reports
    from tacit.schema import Column, Schema

__all__ = ["RandomizeJob", "Randomized", "local_estimate", "local_randomize", "plan_local_randomize"]

RECOMMENDED = "recommended"
MIXED = "whoever sees the reports sees nothing but the mixed file"
"""An assumption of a charge for shuffled reports."""


@dataclass(frozen=True)
class Randomized:
    """The reports that were made of a column, in random order, and where they are."""

    reports: Reports
    guarantee: Guarantee
    path: Path | None
    """The file that was written, if there was one; its description is beside it."""


class RandomizeJob(Job):
    """A column that will be randomized: its categories and the oracle are public, its rows are not read yet.

    *Relation.* A row makes one report, and the file shows how many there are. Under ``replace_one`` two
    neighbours have as many rows. Under ``add_remove`` exactly ``population`` reports are made: a row that is
    absent is replaced by a uniformly drawn category, and of too many rows a random choice reports. So in both
    cases neighbours differ in the value behind one report, which is ε-private. The reports are written in
    random order, so the place of a report tells nothing of its row.

    *Event.* That of one report. With ``delta`` above 0, it is the whole file, ``population`` shuffled
    reports: whoever sees only the file does not know which report is whose.
    """

    def __init__(
        self, source: str, column: str, oracle: FrequencyOracle, reason: str, payment: Payment, label: str,
        population: int | None, delta: float,
    ) -> None:  # fmt: skip
        self.source = source
        self.column = column
        self.oracle = oracle
        self.reason = reason
        """Why this oracle, if it was not named."""
        self.payment = payment
        self.label = label
        self.population = population
        """How many reports are made; None for as many as there are rows."""
        self.delta = delta
        self.out: Path | None = None
        self.overwrite = False
        self._opened: Any = None
        event, cost = self.oracle.event, oracle.epsilon
        if delta and population is not None:
            event = events.Shuffled(oracle.event, population)  # type: ignore[arg-type]
            cost = accounting.epsilon(event, delta, relation=payment.relation)
        super().__init__([Due(payment, event, label, cost, delta, oracle.noise)])

    def find(self, opened: PrivateSource, stack: ExitStack) -> None:
        """Keep the source, which was found and not read."""
        self._opened = opened
        stack.callback(opened.close)

    def run(self, say: Say = silent, warn: Say = warned) -> Randomized:
        """Charge, read, randomize, mix, write."""
        from tacit.local import Reports

        self._opened.require_open()
        (due,) = self.dues
        with self.payment.charge(due.event, self.label, noise=due.noise, delta=self.delta):
            say("Randomizing the rows")
            reports = Reports(self.oracle, self.oracle.randomize(self._values()), self.column)
        payment = self.payment
        mixed = (MIXED,) if isinstance(due.event, events.Shuffled) else ()
        assumptions = (PUBLIC, *mixed, *self._opened.assumptions)
        guarantee = Guarantee(
            due.epsilon, self.delta, due.event, payment.relation, payment.unit, due.noise, assumptions
        )
        place = self.out
        if place is not None:
            place = files.kept(
                lambda path, over: reports.save(path, overwrite=over),
                place,
                self.overwrite,
                warn,
                "file of reports",
            )
        return Randomized(reports, guarantee, place)

    def _values(self) -> Any:
        """The private values in random order, as many as there will be reports; None where there is none."""
        import numpy as np

        table = self._opened.table
        found = self._opened.run(table.select(self.column))[self.column]
        values = [
            None if missing else value for value, missing in zip(found.tolist(), found.isna(), strict=True)
        ]
        many = len(values) if self.population is None else self.population
        values += [None] * (many - len(values))
        order = np.lexsort(self.oracle._source.words((2, len(values))))
        mixed = np.empty(len(values), dtype=object)
        mixed[:] = values
        return mixed[order[:many]]


def plan_local_randomize(
    source: str | os.PathLike[str],
    *,
    column: str,
    schema: Schema | str | os.PathLike[str],
    epsilon: float,
    ledger: books.Place,
    method: str = RECOMMENDED,
    delta: float = 0.0,
    out: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    dataset: str = "default",
    label: str | None = None,
    delimiter: str | None = None,
    random_state: int | None = None,
) -> RandomizeJob:
    """Plan :func:`local_randomize`: choose the oracle, find the column; nothing is read or charged."""
    from tacit.data.reading import prepare
    from tacit.local import recommend
    from tacit.local.reports import METHODS, description_of, require_writable
    from tacit.schema import Schema

    _validate.epsilon(epsilon)
    _validate.delta(delta)
    _validate.choice("method", method, (RECOMMENDED, *METHODS))
    known = schema if isinstance(schema, Schema) else Schema.load(schema)
    if delimiter is not None:
        known = replace(known, csv=replace(known.csv, delimiter=delimiter))
    if known.unit.column is not None:
        raise InvalidValue(
            "unit", known.unit.column, "left out of the schema: in local privacy each person reports once",
            "Make a table with one row for each, and a schema and a ledger for rows.",
        )  # fmt: skip
    categories = _categories(column, known[column])
    advice = recommend(categories=categories, epsilon=epsilon) if method == RECOMMENDED else None
    kind = METHODS[method] if advice is None else type(advice.oracle)
    oracle = kind(categories=categories, epsilon=epsilon, random_state=random_state)
    told = label or f"reports of {column}"
    with ExitStack() as stack:
        payment = books.agreed(ledger, dataset, unit=known.unit, delta=delta, label=told, stack=stack)
        _require_population(known.population, payment.relation, delta)
        job = RandomizeJob(
            os.fspath(source), column, oracle, "" if advice is None else advice.reason, payment, told,
            known.population, delta,
        )  # fmt: skip
        if out is not None:
            job.out, job.overwrite = Path(out), overwrite
            require_writable(oracle)
            for place in (job.out, description_of(job.out)):
                files.writable(place, overwrite, source, schema, ledger)
        job.find(prepare(source, known, [column], delimiter=delimiter), stack)
        return job.holding(stack)


@whole(plan_local_randomize)
def local_randomize(job: RandomizeJob) -> Randomized:
    """Turn a column of private values into reports that anybody may see: charge, then read, then randomize.

    ``source`` is a CSV or Parquet file, or a pattern of several, with one row for each person; ``schema``
    declares the categories of ``column``. ``method`` names an oracle of :mod:`tacit.local`, or is
    ``"recommended"``. A missing or undeclared value is replaced by a uniformly drawn category, or counted
    under the ``other`` and ``missing`` that the schema declares. The reports are written to ``out`` in
    random order, and a description beside them. Running it twice releases two reports of each row, and is
    charged twice.

    Guarantee: ``epsilon`` for each row, under the relation of the ledger; under ``add_remove`` the schema
    has to declare ``population``, and that many reports are made. With ``delta`` above 0 the charge is that
    of as many shuffled reports (:class:`tacit.events.Shuffled`), which is much less than ``epsilon`` for
    large tables. It holds for whoever sees the file alone.
    """
    return job.run()


def local_estimate(path: str | os.PathLike[str]) -> Frequencies:
    """The frequencies of all categories, from a file of reports; nothing is charged.

    The file is one that :func:`local_randomize` or :meth:`tacit.local.Reports.save` wrote, or a CSV file of
    the reports that people sent, with a description beside it.
    """
    from tacit.local import Reports

    if not Path(path).is_file():
        from tacit.errors import SourceMissing

        raise SourceMissing(f"There is no file {os.fspath(path)}.", "Check the name of the file.")
    return Reports.load(path).estimate()


def _categories(name: str, column: Column) -> Sequence[Any]:
    """The categories that a report can have, from the declaration of the column."""
    if column.categories is None:
        raise InvalidValue(
            f"column {name!r}", column.type, "a column with categories",
            "Declare its categories in the schema; cut a number into bands first.",
        )  # fmt: skip
    return (*column.categories, column.other) if column.other is not None else column.categories


def _require_population(population: int | None, relation: Relation, delta: float) -> None:
    """Refuse to show how many rows there are where that is private."""
    if population is not None:
        return
    advice = "Declare the public number of rows in the schema: population = 32561."
    if relation is Relation.ADD_REMOVE:
        raise TacitError(
            "Each row makes a report, and the ledger promises privacy under add_remove, where the number of "
            "rows is private.",
            f"{advice} Or make a ledger for replace_one.",
        )
    if delta:
        raise InvalidValue("delta", delta, "0 where the schema declares no population", advice)
