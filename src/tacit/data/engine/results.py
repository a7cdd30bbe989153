"""What a query returns: collected, or in blocks, so that memory does not grow with the number of rows.

DuckDB hands out Arrow batches while it runs. Spark would collect the whole result on the driver; instead
every executor writes its batches as Arrow messages, and the driver fetches those of one partition at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import ibis.expr.operations as ops
import ibis.expr.types as ir
import pandas as pd
import pyarrow as pa

from tacit.data.frames import cast

__all__ = ["BLOCK_ROWS", "as_frame", "blocks_of", "collected", "cut"]

BLOCK_ROWS = 1 << 15
"""Rows of every block but the last."""


def collected(connection: Any, expression: ir.Table) -> pa.Table:
    """The whole result of a query."""
    if connection.name == "pyspark" and not expression.op().find(ops.InMemoryTable):
        query = connection.raw_sql(connection.compile(expression))
        if hasattr(query, "toArrow"):  # Ibis goes through pandas, where whole numbers beside NULL are floats
            return query.toArrow()
    return connection.to_pyarrow(expression)


def as_frame(result: pa.Table) -> pd.DataFrame:
    """As pandas, with no whole number turned into a float.

    Spark stores, and hands out, text that is not UTF-8, on which pandas would raise: the bytes that do not
    fit become U+FFFD, as in frames.
    """
    nullable = {pa.int64(): pd.Int64Dtype(), pa.int32(): pd.Int32Dtype(), pa.bool_(): pd.BooleanDtype()}
    columns = {}
    for name, column in zip(result.column_names, result.columns, strict=True):
        kind = nullable.get(column.type) if column.null_count else None
        values = cast(column, column.type) if pa.types.is_string(column.type) else column
        columns[name] = values.to_pandas(types_mapper=None if kind is None else lambda _, kind=kind: kind)
    return pd.DataFrame(columns)


def blocks_of(connection: Any, expression: ir.Table, rows: int) -> Iterator[pa.Table]:
    """The result of a query, in blocks of so many rows; a result without rows is one empty block."""
    schema = expression.schema().to_pyarrow()
    batches = (_of_spark if connection.name == "pyspark" else _of_duckdb)(connection, expression, rows)
    return cut((pa.Table.from_batches([batch]).cast(schema) for batch in batches), schema, rows)


def cut(tables: Iterable[pa.Table], schema: pa.Schema, rows: int) -> Iterator[pa.Table]:
    """The same rows in the same order, in blocks of so many; the last one has the rest.

    >>> tables = [pa.table({"a": list(range(5))}), pa.table({"a": [5, 6]})]
    >>> [block["a"].to_pylist() for block in cut(tables, tables[0].schema, 3)]
    [[0, 1, 2], [3, 4, 5], [6]]
    """
    held, whole = schema.empty_table(), False
    for table in tables:
        held = pa.concat_tables([held, table])
        while len(held) >= rows:
            yield held.slice(0, rows)
            held, whole = held.slice(rows), True
    if len(held) or not whole:
        yield held


def _of_duckdb(connection: Any, expression: ir.Table, rows: int) -> Iterator[pa.RecordBatch]:
    connection._run_pre_execute_hooks(expression)
    shown = connection.con.execute("SELECT current_setting('enable_progress_bar')").fetchone()[0]
    connection.con.execute("SET enable_progress_bar = false")  # it would be printed on and on
    try:
        result = connection.con.sql(connection.compile(expression))  # con.execute would collect all rows
        reader = getattr(result, "to_arrow_reader", None) or result.fetch_record_batch  # before DuckDB 2
        yield from reader(rows)
    finally:
        with suppress(Exception):  # it may be closed by now
            connection.con.execute(f"SET enable_progress_bar = {str(shown).lower()}")


def _of_spark(connection: Any, expression: ir.Table, rows: int) -> Iterator[pa.RecordBatch]:
    def written(batches: Any) -> Any:
        """Each batch as one Arrow message; an inner function, which Spark sends to executors by its code."""
        import pyarrow

        for batch in batches:
            sink = pyarrow.BufferOutputStream()
            with pyarrow.ipc.new_stream(sink, batch.schema) as stream:
                stream.write_batch(batch)
            message = pyarrow.array([sink.getvalue().to_pybytes()], pyarrow.binary())
            yield pyarrow.RecordBatch.from_arrays([message], names=["message"])

    connection._run_pre_execute_hooks(expression)
    query = connection.raw_sql(connection.compile(expression))
    for row in query.mapInArrow(written, "message binary").toLocalIterator():
        yield from pa.ipc.open_stream(pa.py_buffer(row.message))
