"""Table: private data with public knowledge about them, and the ledger that their answers are charged to."""

from __future__ import annotations

import os
from dataclasses import replace
from types import TracebackType
from typing import Any

import ibis.expr.types as ir

from tacit.data.cleaning.expressions import clean
from tacit.data.engine.rowwise import rowwise
from tacit.data.source import PrivateSource, connect
from tacit.errors import InvalidValue
from tacit.ledger import Ledger
from tacit.ledger.payment import Payment
from tacit.randomness import Source as RandomSource
from tacit.relations import Relation, Unit
from tacit.schema import Column, Schema
from tacit.tables.asking import TableQuestions
from tacit.tables.batch import Batch
from tacit.tables.cells.noise import Context
from tacit.tables.language.condition import Expression, to_ibis
from tacit.tables.language.grammar import condition_of
from tacit.tables.questions import Question
from tacit.tables.release import Release

__all__ = ["Table", "open"]


class Table(TableQuestions):
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
        conditions: tuple[str, ...] = (),
    ) -> None:
        self.source, self.expression = source, expression
        self.schema = schema
        """What is public about the columns, derived ones included."""
        self.ledger = ledger
        """Where every answer is charged."""
        self.payment = Payment(ledger, context.relation, context.unit)
        """How every answer is charged, agreed with the ledger."""
        self.context = context
        self.conditions = conditions
        """The conditions that the rows of this view meet, as text."""

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
        """The assumptions that the guarantee of an answer rests on."""
        return ("what the schema says was known without the data", *self.source.assumptions)

    def population_of(self, column: str) -> int | None:
        """The number of values in the column, if it is public and not 0: n, where every row has a value."""
        known = self.schema[column]
        every_row_counts = (
            self.unit.column is None
            and not self.conditions
            and known.missing is not None
            and (known.categories is None or known.type == "boolean")
        )
        return self.schema.population or None if every_row_counts else None

    def filter(self, *conditions: Any) -> Table:
        """The rows that meet all conditions, each a text or a row-by-row Ibis expression.

        ``table.filter("age >= 40 and sex = 'Female'")`` and ``table.filter(_.age >= 40)``. Conditions see
        cleaned columns: clipped to their bounds, undeclared categories missing. A row for which a condition
        is missing is left out. Expressions that mix rows are refused.
        """
        view = self
        for one in conditions:
            view = Table(
                view.source,
                view.expression.filter(view._checked(one)),
                view.schema,
                view.ledger,
                view.context,
                (*view.conditions, one if isinstance(one, str) else str(Expression(one))),
            )
        return view

    def _checked(self, condition: Any) -> ir.BooleanValue:
        """A condition, as text or as an expression, as an expression that is true or false for each row."""
        if isinstance(condition, str):
            condition = to_ibis(condition_of(condition), self.schema, condition)
        made = rowwise(condition, self.expression)
        if not isinstance(made, ir.BooleanValue):
            raise InvalidValue("condition", str(made.type()), "true or false for each row")
        return made

    def condition(self, where: str | Expression | None) -> ir.BooleanValue | None:
        """The checked condition of a question, or None where it has none."""
        if where is None:
            return None
        return self._checked(where.given if isinstance(where, Expression) else where).fill_null(False)

    def label(self, question: Question) -> str:
        """The name of the question in the ledger: its text, with the conditions of this view."""
        text = question.label or question.written or question.asked
        restricted = " where " in text
        complete = question.where is None or restricted or (not question.label and question.written)
        given = [*self.conditions, *(() if complete else (str(question.where),))]
        shown = [" ".join(one.split()) for one in given]
        if restricted or len(shown) > 1:
            shown = [f"({one})" if " or " in one.lower() else one for one in shown]
        joined = " and ".join(shown)
        return text if not joined else f"{text} {'and' if restricted else 'where'} {joined}"

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

        Questions about it need its ``bounds`` (numbers, dates) or ``categories`` (strings), which are public
        knowledge like those of the schema.
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
        return Table(self.source, table, schema, self.ledger, self.context, self.conditions)

    def batch(self, *, epsilon: float, delta: float = 0.0) -> Batch:
        """Several questions for one budget: ``with table.batch(epsilon=1.0) as b: n = b.count()``."""
        return Batch(self, epsilon, delta)

    def ask(self, question: Question | str, *, epsilon: float, delta: float = 0.0) -> Release:
        """The answer to a question, a value of :mod:`tacit.tables.questions` or its text, at this cost."""
        batch = Batch(self, epsilon, delta)
        release = batch.ask(question)
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
        shown = f" where {' and '.join(self.conditions)}" if self.conditions else ""
        return f"Table({', '.join(self.schema.columns)}{shown})"


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
    delimiter: str | None = None,
    memory_limit: str | None = None,
    show_engine_errors: bool = False,
) -> Table:
    """Open private data for questions.

    ``source`` is a CSV or Parquet file, a glob or list of them, a pandas, polars or pyarrow frame, or an
    Ibis table on DuckDB or Spark. ``schema`` is public knowledge about it, or the file it is written in.
    ``ledger`` is charged for every answer; ``unit`` and ``relation`` may be repeated here and must be
    the ledger's. Only names and types of columns are looked at until a question is charged.

    ``random_state`` seeds the noise, for tests; there is no privacy then, and every guarantee says so.
    ``memory_limit`` caps the memory of the embedded engine ("1GB"). ``show_engine_errors`` shows the
    database's own messages when it fails, which may quote the data: it is for the curator's eyes.
    """
    known = Schema.of(schema)
    payment = Payment.agreed(
        ledger, relation=relation, unit=known.unit if unit is None else unit, required=True
    )
    known = replace(known, unit=payment.unit)
    context = Context(
        payment.relation,
        payment.unit,
        RandomSource(random_state),
        known.population,
        concentrated=ledger.budget.delta > 0 and ledger.filter in ("renyi", None),
    )
    connected = connect(
        source, known, delimiter=delimiter, memory_limit=memory_limit, show_engine_errors=show_engine_errors
    )
    return Table(connected, connected.table, known, ledger, context)

