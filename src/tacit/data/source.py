"""Sources: where the rows are, and the cleaned table that the questions are asked of.

:func:`connect` looks at names and types of columns and at nothing else; no row is read before
:meth:`PrivateSource.run`. Files and frames are read by a DuckDB of our own, an Ibis table stays where it is.

>>> import pandas as pd
>>> from tacit.schema import Column, Schema
>>> schema = Schema({"age": Column("integer", bounds=(0, 120))})
>>> source = connect(pd.DataFrame({"age": [41, 230, None, "n/a"]}), schema)
>>> source.run(source.table)["age"].tolist()
[41, 120, <NA>, <NA>]
>>> source.close()
"""

from __future__ import annotations

import difflib
import itertools
import shutil
import tempfile
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import ibis
import ibis.expr.types as ir
import pandas as pd
import pyarrow as pa

from tacit._toml import quoted
from tacit.data.cleaning import expressions, storage
from tacit.data.cleaning.rule import coded
from tacit.data.cleaning.values import category
from tacit.data.engine.pruning import prune
from tacit.data.engine.results import BLOCK_ROWS, as_frame, blocks_of, collected
from tacit.data.engine.silence import silent
from tacit.data.engine.stored import stored_of
from tacit.data.files import DELIMITERS, Part, first_line, is_csv, paths_of, tables_of, unchanged, well_formed
from tacit.data.frames import Frame, frame_of
from tacit.errors import EngineFailed, InvalidValue, SourceMissing
from tacit.schema import Column, Dialect, Schema

__all__ = ["UNIT", "PrivateSource", "connect", "text_of", "unnamed_advice"]

T = TypeVar("T")

UNIT = "__unit__"
"""The column of the cleaned table that tells the units apart."""

RAW = "__raw__"
STATE = "__state__"
"""What the column that tells the state of another is called before its name; see :mod:`tacit.data.states`."""
_ABSENT = "__absent__"
STORED = "the names and types in which the frame stores its columns were decided without the rows"
"""What is assumed of a frame. ``pd.read_csv``, say, lets one row decide the type of a whole column."""

_UNNAMED = (
    "A CSV file begins with a line of names, each of them once; this one may have no first line of column "
    "names, or another delimiter: if so, name that delimiter. The line is not shown: it may be someone's row."
)


@ibis.udf.scalar.builtin  # type: ignore[untyped-decorator]
def encode(text: str) -> bytes:
    """DuckDB's own; a cast to bytes would fail on anything but ASCII."""
    raise NotImplementedError


class PrivateSource:
    """Private rows behind a schema, cleaned: nothing that :meth:`run` returns is noisy, or may be published.

    ``table`` has the declared columns, in the schema's order and each in the one type of its kind:
    integer int64, number float64 (never NaN), boolean, date, category and text string (int64 where
    the categories are numbers); NULL where a value is missing. If the schema names a unit, the column
    :data:`UNIT` holds that of each row, and rows without one are left out. Columns for :meth:`key` follow.
    ``steady`` says that reading it twice in one query gives the same rows; somebody else's view may not.

    Guarantee: each row of ``table`` depends on one row of the source, and nothing that a row holds
    makes :meth:`run` fail, except lines that break the file format itself.
    """

    def __init__(
        self, table: ir.Table, schema: Schema, connection: Any, *, show_engine_errors: bool = False,
        load: Callable[[], None] | None = None, release: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        self.table = table
        self.backend: str = connection.name
        self.steady = release is not None
        self.assumptions: tuple[str, ...] = ()
        self.files: Sequence[str] = ()
        self._schema = schema
        self._connection = connection
        self._show = show_engine_errors
        self._load = load
        self._closed = False
        self.failed = False
        """Whether a query has failed: then it is not known what state the engine is in."""
        self._release = weakref.finalize(self, release or (lambda: None))

    def run(self, expression: ir.Table) -> pd.DataFrame:
        """The result of a query: whole numbers exact (``Int64`` where some are NULL), dates as dates.

        If the engine fails, its message, its warnings and its log are withheld.
        """
        self.require_open()
        with unchanged(self.files):
            return self._silently(lambda: as_frame(collected(self._connection, prune(expression))))

    def blocks(self, expression: ir.Table, rows: int = BLOCK_ROWS) -> Iterator[pd.DataFrame]:
        """The result of a query as :meth:`run` gives it, in blocks of so many rows, one at a time.

        A result without rows is one empty block. No other query may run on the same connection meanwhile.
        """
        self.require_open()
        with unchanged(self.files):
            steps = self._silently(
                lambda: map(as_frame, blocks_of(self._connection, prune(expression), rows))
            )
            while (block := self._silently(lambda: next(steps, None))) is not None:
                yield block

    def _silently(self, action: Callable[[], T]) -> T:
        """What the engine answers; if it fails, what it says is withheld."""
        with ExitStack() as silence:
            if not self._show:
                silence.enter_context(silent(self._connection))
            try:
                if self._load is not None:
                    self._load()
                    self._load = None
                return action()
            except Exception as error:
                self.failed = True
                if self._show:
                    problem = f"The engine could not run a query: {error}"
                    raise EngineFailed(problem, engine=self.backend) from error
        raise EngineFailed(
            "The engine could not run a query; what it said is withheld, for it may quote the data.",
            "Check memory, disk space and whether the files are whole; whoever may see the data can open it "
            "with show_engine_errors=True.",
            engine=self.backend,
        )

    def require_open(self) -> None:
        """Raise unless there is still something to read from."""
        if self._closed:
            raise SourceMissing("The source is closed.", "Open it again.")

    def key(self, table: ir.Table, name: str) -> ir.Value:
        """What to group ``table`` by for the categories of a column: cheaper than the column itself.

        ``table`` is :attr:`table` or made from it, row by row. The keys that come back are not yet looked
        up; :meth:`category` does that, and undeclared ones fall away after the grouping.
        """
        raw = RAW + name
        return self.bytewise(table[raw if raw in table.columns and self._coded(name) else name])

    def bytewise(self, value: ir.Value) -> ir.Value:
        """Text to group by. Somebody else's engine may take ``Ann`` and ``ANN`` for the same text, and
        let one row decide how the group is called; bytes are themselves everywhere."""
        if self.steady or not value.type().is_string():
            return value
        return encode(value) if self.backend == "duckdb" else value.cast("binary")

    def unit(self, table: ir.Table) -> ir.Value:
        """The unit of each row of ``table``: the one column by which units are bounded, counted and joined.

        Two units are equal in it just if they are the same; see :func:`tacit.data.cleaning.expressions.unit`.
        """
        return self.bytewise(table[UNIT])

    def category(self, name: str, key: Any) -> Any:
        """The category that a key of a grouped result stands for: a declared one, ``other`` or None."""
        key = text_of(key)
        if pd.isna(key):
            key = None
        if self._coded(name):
            return category(self._schema[name], key)
        return key.item() if hasattr(key, "item") else key

    def _coded(self, name: str) -> bool:
        return name in self._schema.columns and coded(self._schema[name])

    def close(self) -> None:
        """Let go of the data, and of the connection if it was made here."""
        self._closed = True
        self._load = None
        self._release()


def text_of(key: Any) -> Any:
    """A key of a grouped result, as text again if it was grouped by its bytes."""
    return bytes(key).decode("utf-8", "replace") if isinstance(key, (bytes, bytearray)) else key


def connect(
    source: Any,
    schema: Schema,
    *,
    delimiter: str | None = None,
    memory_limit: str | None = None,
    show_engine_errors: bool = False,
) -> PrivateSource:
    """The cleaned table behind ``source``; only its metadata are read.

    ``source``
        path, glob or list of paths of CSV files (``.csv``, ``.tsv``, ``.txt``, also ``.gz``; the first line
        names the columns) or Parquet files; a pandas, polars or pyarrow frame, left unchanged until closed;
        or an Ibis table on DuckDB or Spark, see :mod:`tacit.data.engine.stored`. What an Ibis expression does
        to the rows of its table comes before the cleaning, and is as public as the schema.
        Or a source that was opened under the same schema, which is returned as it is.
    ``delimiter``
        of CSV files, if not that of the schema. Files that end in ``.tsv`` are separated by tabs.
    ``memory_limit``
        of the embedded engine, such as ``"1GB"``; what does not fit is written to a private folder.
    ``show_engine_errors``
        lets the engine's own messages through, which may quote the data.

    Raises :class:`~tacit.errors.SourceMissing` where there is nothing to read, a declared column is
    absent, or it is stored in a type that cannot be what is declared. All of these are public.
    """
    if isinstance(source, PrivateSource):
        source.require_open()
        if source._schema != schema:
            raise InvalidValue("schema", "another one", "that under which the source was opened")
        return source
    _check_names(schema)
    dialect = schema.csv if delimiter is None else replace(schema.csv, delimiter=delimiter)
    names = [*schema.columns, schema.unit.column]
    stored = stored_of(source, names) if isinstance(source, ir.Table) else None
    paths, frame = (stored.paths, stored.frame) if stored else (paths_of(source), frame_of(source))
    if stored is None and paths is None and frame is None:
        kinds = "a path, a glob or list of paths, a pandas, polars or pyarrow frame, or an Ibis table"
        raise InvalidValue("source", type(source).__name__, kinds)
    load: Callable[[], None] | None = None
    release: Callable[[], None] | None = None
    if stored is not None and stored.connection is not None:
        connection = stored.connection
    else:
        connection, release = _embedded(memory_limit)
    try:
        parts: list[Part] = []
        texts: list[str] = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Ibis 12 calls DuckDB 2 by old names
            if frame is not None:
                part, load = _registered(connection, frame, schema)
                parts = [part]
            elif paths is not None:
                wanted = names if stored is None else stored.used(names)
                whom = [schema.unit.column] if stored is None else stored.used([schema.unit.column])
                parts, load = tables_of(connection, paths, dialect, wanted, whom)
                texts = [path for path in paths if is_csv(path)]
                if stored is not None:
                    parts = [_itself(stored.on(part.table)) for part in parts]
            elif stored is not None:
                parts = [_itself(_without_nan(stored.here(), connection.name))]
        if frame is None:
            parts = [
                part._replace(names={k: v for k, v in part.names.items() if k != UNIT}) for part in parts
            ]
        for part in parts if frame is None else ():
            _require(part.names, schema, partial(unnamed_advice, schema, texts, dialect) if texts else None)
        cleaned = [_cleaned(part, schema, connection.name) for part in parts]
        _require_one_type_of_unit(parts, schema)
    except BaseException:
        if release is not None:
            release()
        raise
    table = cleaned[0] if len(cleaned) == 1 else ibis.union(*cleaned)
    made = PrivateSource(
        table, schema, connection, show_engine_errors=show_engine_errors, load=load, release=release
    )
    if paths is not None:
        made.assumptions = (well_formed(dialect.encoding if texts else "utf-8"),)
        made.files = paths
    if frame is not None:
        made.assumptions = (STORED,)
    return made


def _itself(table: ir.Table) -> Part:
    return Part(table, {name: name for name in table.columns})


def _without_nan(table: ir.Table, engine: str) -> ir.Table:
    """NULL for NaN, where somebody else's DuckDB may not see it.

    DuckDB 2 answers isnan(x) and comparisons from a Parquet file's minimum and maximum, which leave NaN out;
    of exp(x), which is NaN just where x is, it knows neither.
    """
    if engine != "duckdb":
        return table
    floats = [name for name, stored in table.schema().items() if stored.is_floating()]
    return table.mutate(
        **{name: ibis.ifelse(table[name].exp().isnan(), ibis.null("float64"), table[name]) for name in floats}
    )


def _check_names(schema: Schema) -> None:
    """Engines do not tell ``age`` from ``Age``, and would bound one by the other's bounds."""
    for name, times in Counter(name.lower() for name in schema.columns).items():
        if times > 1:
            alike = [column for column in schema.columns if column.lower() == name]
            raise InvalidValue("columns", alike, "different in more than upper and lower case", "Rename one.")
        if name == UNIT or name.startswith((RAW, STATE, _ABSENT)):
            raise InvalidValue("column", name, f"named neither {UNIT} nor {RAW}…", "Rename it.")


def _embedded(memory_limit: str | None) -> tuple[Any, Callable[[], None]]:
    """A DuckDB of our own, which spills into a private folder, and what ends both."""
    folder = tempfile.mkdtemp(prefix="tacit-")
    limits = {} if memory_limit is None else {"memory_limit": memory_limit}
    connection = ibis.duckdb.connect(temp_directory=folder, autoinstall_known_extensions=False, **limits)

    def release() -> None:
        with suppress(Exception):
            connection.disconnect()
        shutil.rmtree(folder, ignore_errors=True)

    return connection, release


def _registered(connection: Any, frame: Frame, schema: Schema) -> tuple[Part, Callable[[], None]]:
    """An empty table of the frame's types, and what puts the values into it."""
    _require(frame.names, schema)
    wanted: list[tuple[str, str, Column | None]]
    wanted = [(name, name, column) for name, column in schema.columns.items()]
    if schema.unit.column is not None:
        wanted.append((UNIT, schema.unit.column, None))
    places: dict[str, tuple[int, Column | None]] = {}
    for label, name, column in wanted:
        if frame.names.count(name) > 1:
            raise SourceMissing(f"The frame has two columns {name!r}.", "Rename one of them.", column=name)
        places[label] = frame.names.index(name), column
    stored = {label: f"c{i}" for i, label in enumerate(places)}
    objects = {label: f"a{i}" for i, label in enumerate(places) if frame.untyped(places[label][0])}
    fields = [(stored[label], frame.kind(*place)) for label, place in places.items()]
    layout = pa.schema([*fields, *((name, pa.bool_()) for name in objects.values())])
    connection.con.register("frame", layout.empty_table())

    def load() -> None:
        taken = frame.taken([place for place, _ in places.values()])
        values = [taken.values(i, column) for i, (_, column) in enumerate(places.values())]
        values += [taken.absent(i) for i, label in enumerate(places) if label in objects]
        connection.con.register("frame", pa.table(values, schema=layout))

    return Part(connection.table("frame"), stored, absent=objects), load


def _require(names: Iterable[Any], schema: Schema, unnamed: Callable[[], str] | None = None) -> None:
    """Raise unless all declared columns are there; ``unnamed`` advises where names are not to be shown."""
    known = [name for name in names if isinstance(name, str)]
    for name in (*schema.columns, schema.unit.column):
        if name is None or name in known:
            continue
        if unnamed is not None:
            raise SourceMissing(f"The source has no column {name!r}.", unnamed(), column=name)
        lowered = {column.lower(): column for column in known}
        close = difflib.get_close_matches(name.lower(), lowered, cutoff=0.5)
        alike = " or ".join(repr(lowered[word]) for word in close)
        advice = f"Did you mean {alike}?" if close else f"It has {', '.join(map(repr, known)):.200}."
        raise SourceMissing(f"The source has no column {name!r}.", advice, column=name)


def unnamed_advice(schema: Schema, paths: Sequence[str], dialect: Dialect) -> str:
    """Advice on a CSV file whose first line, as it is read, does not name all declared columns.

    What a file without a line of names has in its first line is somebody's row: the advice is the same,
    whatever is there. Only where another usual delimiter or encoding makes it name every declared column, it
    is that line, and says so.
    """
    wanted = {*schema.columns, *([schema.unit.column] if schema.unit.column is not None else [])}
    encodings = dict.fromkeys((dialect.encoding, "utf-8", "utf-16", "cp1252"))
    for encoding, delimiter in itertools.product(encodings, dict.fromkeys((dialect.delimiter, *DELIMITERS))):
        other = replace(dialect, delimiter=delimiter, encoding=encoding)
        with suppress(OSError, EOFError, UnicodeError):
            if all(wanted <= set(first_line(path, other)) for path in paths):
                changed = [
                    f"{key} = {quoted(getattr(other, key))}"
                    for key in ("delimiter", "encoding")
                    if getattr(other, key) != getattr(dialect, key)
                ]
                said = f"The schema says so with [csv] and, below, {' and '.join(changed)}"
                if delimiter == dialect.delimiter:
                    return f"Is the encoding {encoding}? {said}."
                found = "One column was found. " if len(first_line(paths[0], dialect)) == 1 else ""
                return f"{found}Is the delimiter {delimiter!r}? {said}, or name that delimiter here."
    return _UNNAMED


def _cleaned(part: Part, schema: Schema, engine: str) -> ir.Table:
    """Parsed in one step and bounded in the next, so that no value is parsed more than once."""
    table, names = part.table, part.names
    columns: dict[str, ir.Value] = {}
    for name, column in schema.columns.items():
        stored = table[names[name]]
        if name not in part.untyped:
            storage.require(name, expressions.family_of(stored.type()), stored.type(), column)
        columns[name] = expressions.parsed(expressions.pointed(stored, column, part.decimal), column, engine)
        told = part.absent.get(name)
        columns[_ABSENT + name] = expressions.absent(stored) if told is None else table[told]
    if schema.unit.column is not None:
        stored = table[names.get(UNIT) or names[schema.unit.column]]
        key = expressions.unit(stored)
        if key is None:
            raise _unreadable(schema.unit.column, stored, "the unit")
        columns[UNIT] = key
    table = table.select(**columns).view()
    if UNIT in columns:
        table = table.filter(table[UNIT].notnull())
    looked_up = [name for name, column in schema.columns.items() if coded(column)]
    return table.select(
        **{name: expressions.bounded(table[name], column) for name, column in schema.columns.items()},
        **{name: table[name] for name in columns if name == UNIT},
        **{RAW + name: table[name] for name in looked_up},
        **{
            STATE + name: expressions.state(table[_ABSENT + name], table[name], column)
            for name, column in schema.columns.items()
        },
    )


def _require_one_type_of_unit(parts: list[Part], schema: Schema) -> None:
    """In another type the same unit may look like another one, and would count twice."""
    name = schema.unit.column
    if (
        name is not None
        and len({part.table[part.names[name]].type() for part in parts if name in part.names}) > 1
    ):
        problem = f"The files store the unit {name!r} in different types."
        raise SourceMissing(problem, "Store it in the same type in all of them.", column=name)


def _unreadable(name: str, stored: ir.Value, declared: str) -> SourceMissing:
    problem = f"Column {name!r} is stored as {stored.type()}, which cannot be {declared}."
    return SourceMissing(problem, "Declare another type, or convert the column first.", column=name)
