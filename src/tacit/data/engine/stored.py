"""Ibis tables: which of them can be questioned, and where their rows are read.

An Ibis expression is a plan in somebody else's engine. It may draw rows at random, take the first thousand
in no particular order, or divide by a column that is zero in one row; answers would then be about other rows
each time, or fail because of one person. So there is a closed list of what is read:

* of engines, DuckDB and Spark. Both pass the table of traps in ``tests/data/test_traps.py``. All others are
  refused by name: PostgreSQL, for example, raises on numbers that DuckDB takes.
* of operations, those that choose, name or compute columns, and conditions, each made row by row and total
  by :func:`tacit.data.engine.rowwise.rowwise`. Joins, aggregates, limits, windows, samples, SQL text and
  whatever else has no rule are refused. Their result can be stored as a table, and that table be passed.
* of tables, those whose rows are stored. A view is a plan that Ibis does not see. It is refused, unless all
  it does is to read Parquet files, which are then read as if they had been named themselves, or an Arrow
  object registered with DuckDB, which is then read once, in one piece. On Spark the plan of the view is
  looked at.
* of functions, DuckDB's own. A connection on which somebody has defined a function (a macro) by the name of
  one of these is refused: the queries would run that instead.

All of this is decided by names, types and plans, before anything is charged and without reading a row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import ibis.expr.operations as ops
import ibis.expr.types as ir
import sqlglot
import sqlglot.expressions as sge

from tacit.data.engine.pruning import prune, used_columns
from tacit.data.engine.rowwise import rowwise
from tacit.data.files import paths_of
from tacit.data.frames import Frame, arrow_frame, frame_of
from tacit.errors import InvalidValue

__all__ = ["ENGINES", "FORMATS", "Stored", "stored_of"]

ENGINES = ("duckdb", "pyspark")
"""The engines whose tables are read, by Ibis's name."""

_KEEP = "Store its result as a table (CREATE TABLE people AS SELECT …) and pass that."
_COPY = "Read it into DuckDB, or pass a file or a frame."
_ROWS = (ops.Project, ops.Filter, ops.DropColumns, ops.SelfReference, ops.Sort)
_LEAVES = (ops.DatabaseTable, ops.InMemoryTable)


@dataclass(frozen=True)
class Stored:
    """Where the rows of an Ibis table are read: in place, as files, or as a frame, of which one is given."""

    source: ir.Table
    connection: Any = None
    paths: Sequence[str] | None = None
    frame: Frame | None = None

    def on(self, base: ir.Table) -> ir.Table:
        """The expression on another table with the columns of the one below it; row by row and total."""
        return _rebuilt(self.source.op(), base)

    def used(self, names: Iterable[str | None]) -> list[str]:
        """The columns of the table below that these columns of the expression, if there, are made of."""
        leaf = _leaf(self.source.op())
        there = [name for name in dict.fromkeys(names) if name in self.source.columns]
        kept = used_columns(self.here().select(*there).op())[leaf] if there else ()
        return [name for name in leaf.schema if name in kept]

    def here(self) -> ir.Table:
        """The expression, in place."""
        return self.on(_leaf(self.source.op()).to_expr())


def stored_of(source: ir.Table, names: Sequence[str | None]) -> Stored:
    """Where the rows of ``source`` are to be read, or :class:`~tacit.errors.InvalidValue`.

    ``names`` are the columns that will be asked for; those that are absent are left to the caller.
    """
    leaf = _leaf(source.op())
    if isinstance(leaf, ops.InMemoryTable):
        frame = frame_of(getattr(leaf.data, "obj", None))
        if frame is None or source.op() is not leaf:
            _refuse("an expression on data in memory", "a table", "Pass the frame itself.")
        return Stored(source, frame=frame)
    connection = leaf.source
    if connection.name not in ENGINES:
        _refuse(f"a table on {connection.name}", "an Ibis table on DuckDB or Spark", _COPY)
    here = Stored(source, connection)
    here.here()
    if connection.name == "pyspark":
        _require_plain_plan(connection, leaf, here.used(names))
        return here
    _require_own_names(connection)
    view = _view(connection, leaf)
    if view is None:
        return here
    paths = _parquet_files(view)
    if paths is not None:
        return Stored(source, paths=paths_of(paths))
    if _scan(view)[0] != "python_arrow_scan":
        _refuse(f"a view, {leaf.name!r}", "an Ibis table that stores its rows", _KEEP)
    for column in here.used(names):
        if leaf.schema[column].is_timestamp() and leaf.schema[column].timezone is not None:
            # DuckDB turns all of them into microseconds, and fails on one that does not fit.
            _refuse(f"the time with a zone {column!r} in {leaf.name!r}", "without", "Pass the frame itself.")
    return Stored(source, frame=_read_once(connection, here.here()))


def _refuse(got: str, needed: str, advice: str) -> NoReturn:
    raise InvalidValue("source", got, needed, advice)


def _leaf(op: Any) -> Any:
    """The one table at the bottom, if every operation above it is on the list."""
    while type(op) in _ROWS:
        op = op.parent
    if type(op) not in _LEAVES:
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(op).__name__).lower()
        _refuse(f"an expression with a {name}", "row by row: columns and conditions of one table", _KEEP)
    return op


def _rebuilt(op: Any, base: ir.Table) -> ir.Table:
    if type(op) in _LEAVES:
        return base
    below = _rebuilt(op.parent, base)

    def made(value: Any) -> ir.Value:
        while isinstance(value, ops.Alias):
            value = value.arg
        if isinstance(value, ops.Field):
            return below[value.name]
        total = rowwise(value.to_expr(), op.parent.to_expr())
        return total.op().replace({op.parent: below.op()}).to_expr()

    if isinstance(op, ops.Project):
        return below.select(**{name: made(value) for name, value in op.values.items()})
    if isinstance(op, ops.Filter):
        return below.filter(*(made(predicate) for predicate in op.predicates))
    return below.select(*op.schema)


def _read_once(connection: Any, table: ir.Table) -> Frame:
    """What the expression gives as a frame: one query, when the rows are taken."""
    kinds = arrow_frame(table.schema().to_pyarrow().empty_table())

    def taken(places: Sequence[int]) -> Frame:
        names = list(dict.fromkeys(kinds.names[place] for place in places))
        found = arrow_frame(connection.to_pyarrow(prune(table.select(*names))))
        return found.taken([names.index(kinds.names[place]) for place in places])

    return Frame(kinds.names, kinds.kind, lambda place, column: taken([place]).values(0, column), taken)


_CATALOG = """
SELECT d.type, v.sql, 0 FROM duckdb_views() v JOIN duckdb_databases() d USING (database_name)
WHERE lower(view_name) = lower($name) AND {place} UNION ALL
SELECT d.type, NULL, (SELECT count(*) FROM duckdb_columns() c WHERE c.is_generated
    AND c.database_oid = t.database_oid AND c.table_oid = t.table_oid)
FROM duckdb_tables() t JOIN duckdb_databases() d USING (database_name)
WHERE lower(table_name) = lower($name) AND {place}
"""


def _view(connection: Any, leaf: Any) -> Any:
    """How the view is defined; None for a table whose rows DuckDB stores."""
    place = "database_name IN ('temp', coalesce($catalog, current_database()))"
    if leaf.namespace.database is not None:
        place += " AND lower(schema_name) = lower($database)"
    values = {"name": leaf.name, "catalog": leaf.namespace.catalog, "database": leaf.namespace.database}
    given = {name: value for name, value in values.items() if name != "database" or value is not None}
    found = connection.con.execute(_CATALOG.format(place=place), given).fetchall()
    if len(found) != 1:
        _refuse(f"{leaf.name!r}, of which DuckDB has {len(found)}", "one table", "Name its schema too.")
    ((kind, sql, generated),) = found
    if kind != "duckdb":
        _refuse(f"a table on {kind}, attached to DuckDB", "a table of DuckDB's own", _KEEP)
    if generated:
        _refuse(f"{leaf.name!r}, with generated columns", "a table that stores its rows", _KEEP)
    return None if sql is None else sqlglot.parse_one(sql, read="duckdb")


_DEFINED = """
SELECT lower(function_name) AS name FROM duckdb_functions() GROUP BY name
HAVING bool_or(internal) AND bool_or(NOT internal) LIMIT 1
"""


def _require_own_names(connection: Any) -> None:
    for (name,) in connection.con.execute(_DEFINED).fetchall():
        _refuse(f"a connection that redefines {name!r}", "a connection with DuckDB's own functions", _COPY)


def _scan(view: Any) -> tuple[str, list[Any]]:
    """The function that a view is made of, if it does nothing but select all from it, and its arguments."""
    select = view.args.get("expression")
    if not isinstance(view.this, sge.Table) or not isinstance(select, sge.Select):
        return "", []
    if [type(part) for part in select.expressions] != [sge.Star] or _parts(select.expressions[0]):
        return "", []
    table = select.args["from_"].this if _parts(select) == {"expressions", "from_"} else None
    if not isinstance(table, sge.Table) or not _parts(table) <= {"this", "alias"}:
        return "", []
    if table.args.get("alias") and _parts(table.args["alias"]) != {"this"}:
        return "", []
    scan = table.this
    if isinstance(scan, sge.ReadParquet):
        return "read_parquet", scan.expressions
    return (scan.name.lower(), scan.expressions) if isinstance(scan, sge.Anonymous) else ("", [])


def _parts(expression: Any) -> set[str]:
    return {name for name, value in expression.args.items() if value}


_OPTIONS = ("(hive_partitioning = FALSE)", "(can_have_nan = TRUE)", "(can_have_nan = FALSE)")


def _parquet_files(view: Any) -> list[str] | None:
    name, arguments = _scan(view)
    if name != "read_parquet" or not arguments:
        return None
    first, *options = arguments
    files = first.expressions if isinstance(first, sge.Array) else [first]
    plain = all(isinstance(file, sge.Literal) and file.is_string for file in files)
    if not plain or not all(option.sql("duckdb") in _OPTIONS for option in options):
        return None
    return [file.name for file in files]


_STORED_RDDS = {"MapPartitionsRDD", "ParallelCollectionRDD", "LocalCheckpointRDD", "ReliableCheckpointRDD"}
FORMATS = ("ParquetFileFormat", "OrcFileFormat")
"""The formats of files that Spark reads without raising on a value, as Spark calls them."""
_REBASING = ("spark.sql.parquet.datetimeRebaseModeInRead", "spark.sql.parquet.int96RebaseModeInRead")
_SPARK = "Write it to Parquet files, or call localCheckpoint() on the DataFrame, and pass that."


def _require_plain_plan(connection: Any, leaf: Any, used: Sequence[str]) -> None:
    """Refuse a table of Spark whose plan does more than to read what is stored.

    Spark raises on a time in a Parquet file that does not fit into microseconds, and, if it is told so, on
    dates before 1582; so times in files are refused, and that setting is.
    """
    session = connection._session
    if not hasattr(session, "_jsparkSession"):
        _refuse("a table of Spark Connect", "a table of a classic Spark session", _COPY)
    space = (leaf.namespace.catalog, leaf.namespace.database, leaf.name)
    name = ".".join("`" + part.replace("`", "``") + "`" for part in space if part)
    nodes = [session.table(name)._jdf.queryExecution().analyzed()]
    while nodes:
        node = nodes.pop()
        kind = node.getClass().getSimpleName()
        if not _plain(node, kind):
            _refuse(f"{leaf.name!r}, which Spark computes ({kind})", "a table that stores its rows", _SPARK)
        if kind == "LogicalRelation":
            _require_readable_files(session, leaf.schema, used)
        nodes += _members(node.children())


def _plain(node: Any, kind: str) -> bool:
    if kind == "Project":
        return all(_class(_unnamed(one)) == "AttributeReference" for one in _members(node.expressions()))
    if kind == "LogicalRelation":
        relation = node.relation()
        return _class(relation) == "HadoopFsRelation" and _class(relation.fileFormat()) in FORMATS
    if kind == "LogicalRDD":
        rows = node.rdd()
        lineage = set(re.findall(r"(\w+)\[\d+\]", rows.toDebugString()))
        still_to_compute = rows.checkpointData().isDefined() and not rows.isCheckpointed()
        return not node.isStreaming() and lineage <= _STORED_RDDS and not still_to_compute
    return kind in ("SubqueryAlias", "View", "LocalRelation")


def _unnamed(one: Any) -> Any:
    """A column of Spark without a name for it, and without a cast to the type that it has."""
    while _class(one) == "Alias" or (_class(one) == "Cast" and one.dataType().equals(one.child().dataType())):
        one = one.child()
    return one


def _require_readable_files(session: Any, types: Mapping[str, Any], used: Sequence[str]) -> None:
    for column in used:
        if types[column].is_timestamp():
            advice = "Write it as a date or as text, or let tacit read the files itself."
            _refuse(f"the timestamp {column!r} in files that Spark reads", "without times", advice)
    for setting in _REBASING:
        if session.conf.get(setting, "CORRECTED").upper() == "EXCEPTION":
            _refuse(f"{setting}=EXCEPTION", "read without exceptions", "Set it to CORRECTED.")


def _members(sequence: Any) -> list[Any]:
    return [sequence.apply(place) for place in range(sequence.size())]


def _class(thing: Any) -> str:
    name: str = thing.getClass().getSimpleName()
    return name
