"""Table: private data with public knowledge about them, and a ledger that answers for them."""

from __future__ import annotations

import os
from dataclasses import replace
from types import TracebackType
from typing import Any

import ibis
import ibis.expr.types as ir

from tacit.data.cleaning.expressions import clean
from tacit.data.engine.rowwise import rowwise
from tacit.data.source import PrivateSource, connect
from tacit.errors import InvalidValue, TacitError
from tacit.ledger import Ledger
from tacit.randomness import Source as RandomSource
from tacit.relations import Relation, Unit
from tacit.schema import Column, Schema
from tacit.tables.batch import Batch
from tacit.tables.cells.noise import Context
from tacit.tables.questions import Questions
from tacit.tables.release import Release

__all__ = ["Table", "open"]


class Table(Questions):
    """A private table; made by :func:`tacit.tables.open`.

    Every question is charged to the ledger before the data are read, and answered by a
    :class:`~tacit.tables.Release`. A table is never changed: :meth:`filter` and :meth:`derive` return
    another view of the same data, on the same ledger.
    """

    def __init__(
        self,
        source: PrivateSource,
        expression: ir.Table,
        schema: Schema,
        ledger: Ledger,
        context: Context,
        described: str = "",
        filtered: bool = False,
    ) -> None:
        self.source, self.expression = source, expression
        self.schema = schema
        """What is public about the columns, derived ones included."""
        self.ledger = ledger
        """Where every answer is charged."""
        self.context = context
        self._described, self._filtered = described, filtered

    @property
    def relation(self) -> Relation:
        """Which tables count as neighbours."""
        return self.context.relation

    @property
    def unit(self) -> Unit:
        """Whom the answers protect."""
        return self.context.unit

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the guarantee of an answer takes for granted."""
        return ("what the schema says was known without the data", *self.source.assumptions)

    def every_row_counts(self, column: str) -> bool:
        """Whether n is public and every row has a value in the column: see :meth:`mean`."""
        return (
            self.schema.population is not None
            and self.unit.column is None
            and not self._filtered
            and self.schema[column].missing is not None
            and (self.schema[column].categories is None or self.schema[column].type == "boolean")
        )

    def filter(self, *conditions: Any) -> Table:
        """The rows that meet all conditions, each a row-by-row Ibis expression (``_.age >= 40``).

        Conditions see cleaned columns: clipped to their bounds, undeclared categories missing. A row for
        which a condition is missing is left out. What mixes rows is refused.
        """
        view = self
        for one in conditions:
            condition, shown = view._condition(one)
            view = Table(
                view.source,
                view.expression.filter(condition),
                view.schema,
                view.ledger,
                view.context,
                view._restricted(shown),
                filtered=True,
            )
        return view

    def _restricted(self, shown: str) -> str:
        return f"{self._described} and {shown}" if self._described else f" where {shown}"

    def _condition(self, condition: Any) -> tuple[ir.BooleanValue, str]:
        made = rowwise(condition, self.expression)
        if not isinstance(made, ir.BooleanValue):
            raise InvalidValue("condition", str(made.type()), "true or false for each row")
        shown = repr(condition) if isinstance(condition, ibis.Deferred) else "a condition"
        return made, shown

    def condition(self, where: Any, text: str) -> tuple[ir.BooleanValue | None, str]:
        """A checked condition, or None, and the question with what it is restricted to."""
        if where is None:
            return None, text + self._described
        condition, shown = self._condition(where)
        return condition.fill_null(False), text if " where " in text else text + self._restricted(shown)

    def derive(
        self,
        name: str,
        expression: Any,
        *,
        bounds: tuple[Any, Any] | None = None,
        categories: tuple[Any, ...] | None = None,
        missing: Any = None,
    ) -> Table:
        """A view with one column more, a row-by-row Ibis expression of cleaned columns.

        What is to be asked of it needs ``bounds`` (numbers, dates) or ``categories`` (strings), which
        are public knowledge like those of the schema.
        """
        if not isinstance(name, str) or name.lower() in (known.lower() for known in self.expression.columns):
            raise InvalidValue("name", name, "a new name of a column", "Names differ in more than case.")
        made = rowwise(expression, self.expression)
        column = Column(
            _type_of(made, categories),
            bounds=bounds,
            categories=None if categories is None or made.type().is_boolean() else tuple(categories),
            missing=missing,
        )
        schema = self.schema.with_column(name, column)
        table = self.expression.mutate(**{name: clean(made, column)}).view()
        return Table(self.source, table, schema, self.ledger, self.context, self._described, self._filtered)

    def batch(self, *, epsilon: float, delta: float = 0.0) -> Batch:
        """Several questions for one budget: ``with table.batch(epsilon=1.0) as b: n = b.count()``."""
        return Batch(self, epsilon, delta)

    def _ask(
        self,
        make: Any,
        label: str | None,
        where: Any,
        *,
        epsilon: Any = None,
        delta: float = 0.0,
        **unknown: Any,
    ) -> Release:
        if unknown:
            raise TypeError(f"a question takes epsilon= and delta=, not {', '.join(unknown)}=")
        if epsilon is None:
            raise InvalidValue("epsilon", None, "given", "Every answer has a price: epsilon=0.1, say.")
        batch = Batch(self, epsilon, delta)
        release = batch._ask(make, label, where)
        batch.run()
        return release

    def close(self) -> None:
        """Close the connection to the data, if it was opened here. The ledger stays open."""
        self.source.close()

    def __enter__(self) -> Table:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Table({', '.join(self.schema.columns)}{self._described})"


def _type_of(expression: ir.Value, categories: Any) -> str:
    kind = expression.type()
    if kind.is_boolean():
        return "boolean"
    if kind.is_string():
        return "text" if categories is None else "category"
    if kind.is_date():
        return "date"
    if kind.is_numeric():
        return "number" if categories is None else "integer"
    raise InvalidValue("expression", str(kind), "a number, a string, a date or a truth value for each row")


def open(
    source: Any,
    *,
    schema: Schema | str | os.PathLike[str],
    ledger: Ledger,
    unit: Unit | None = None,
    relation: Relation | str | None = None,
    random_state: int | None = None,
    delimiter: str = ",",
    memory_limit: str | None = None,
    show_engine_errors: bool = False,
) -> Table:
    """Open private data for questions.

    ``source`` is a CSV or Parquet file, a glob or list of them, a pandas, polars or pyarrow frame, or an
    Ibis table on any backend. ``schema`` is public knowledge about it, or the file it is written in.
    ``ledger`` is charged for every answer; ``unit`` and ``relation`` may be repeated here and must be
    the ledger's. Only names and types of columns are looked at until a question is charged.

    ``random_state`` seeds the noise, for tests; there is no privacy then, and every guarantee says so.
    ``memory_limit`` caps the memory of the embedded engine ("1GB"). ``show_engine_errors`` shows what the
    database says when it fails, which may quote the data: it is for the curator's eyes.
    """
    known = Schema.of(schema)
    if not isinstance(ledger, Ledger):
        raise InvalidValue(
            "ledger",
            ledger,
            "a tacit.Ledger",
            "Open one: tacit.Ledger.open('study.db', budget=tacit.Budget(1.0)).",
        )
    known = replace(known, unit=_agreed_unit(known, ledger, unit))
    neighbours = ledger.relation if relation is None else Relation.of(relation)
    if neighbours is not ledger.relation:
        raise TacitError(
            f"The ledger promises privacy under {ledger.relation}, not {neighbours}.",
            "Leave relation out, or open a ledger for the other relation.",
        )
    context = Context(
        neighbours,
        known.unit,
        RandomSource(random_state),
        known.population,
        concentrated=ledger.budget.delta > 0 and ledger.budget.filter != "basic",
    )
    connected = connect(
        source, known, delimiter=delimiter, memory_limit=memory_limit, show_engine_errors=show_engine_errors
    )
    return Table(connected, connected.table, known, ledger, context)


def _agreed_unit(schema: Schema, ledger: Ledger, unit: Unit | None) -> Unit:
    """The unit of the ledger; schema and caller may repeat it but not contradict it."""
    named = unit if unit is not None else schema.unit
    if named != ledger.unit:
        raise TacitError(
            f"The ledger protects one {ledger.unit}, not one {named}.",
            "Declare the same unit in the schema ([unit] column, rows) and when the ledger is made.",
        )
    return named
