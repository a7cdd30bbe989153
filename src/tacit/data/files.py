"""CSV and Parquet files as tables of an embedded DuckDB, opened by their metadata alone.

DuckDB would guess the dialect and the types of a CSV file from its rows, and refuse rows that do not
fit its guess; both depend on the data. Here the first line gives the names, every column is read as
text, and what becomes of the text is decided row by row (see :mod:`tacit.data.cleaning.rule`). A line
that has too few fields or is longer than 2 MB is left out, and one that is not UTF-8 wherever the
query needs that field; surplus fields are ignored. It is read in one piece: DuckDB's parallel reader
guesses where rows begin, and one quoted line break at such a place would cost millions of rows.

Delimiter, decimal mark and encoding are those of the schema (:class:`tacit.schema.Dialect`). DuckDB reads
UTF-8, and raises on a byte that another of its encodings does not have. So text in any other encoding is
first copied, as UTF-8 and bit by bit, to the engine's private folder, once it is paid for; a byte that
the encoding does not have becomes U+FFFD.

Of a Parquet file only the columns that are asked for are named to DuckDB, which otherwise looks at the
extremes of all of them, and fails on a time that it cannot hold. If one that is asked for is of such a type,
Arrow copies the columns into a table of DuckDB's, once (:func:`_copied`).

What a row is, the file says: a quotation mark that opens and does not close makes one row of many, and
text in a Parquet file that is not UTF-8 cannot be read at all. That files keep to their format is an
assumption of every guarantee, see :func:`well_formed`.
"""

from __future__ import annotations

import csv
import glob
import gzip
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import ibis.expr.types as ir
import pyarrow as pa
import pyarrow.parquet as pq

from tacit.data.frames import cast, readable
from tacit.errors import SourceMissing
from tacit.schema import Dialect

__all__ = [
    "DELIMITERS",
    "Part",
    "dialect_of",
    "first_line",
    "is_csv",
    "paths_of",
    "tables_of",
    "unchanged",
    "well_formed",
]

DELIMITERS = (",", ";", "\t", "|")
"""The usual ones."""


class Part(NamedTuple):
    """A stored table, and under which name it has each of its columns."""

    table: ir.Table
    names: Mapping[str, str]
    untyped: Collection[str] = ()
    """Columns whose type the file does not tell: all of a CSV, and those that are all missing."""
    decimal: str = "."
    """The decimal mark in untyped columns."""
    absent: Mapping[str, str] = MappingProxyType({})
    """For columns of objects, the column that tells which of their values are missing."""


Load = Callable[[], None]
_Layout = tuple[Dialect | None, tuple[str, ...], tuple[tuple[str, bool], ...]]
"""Dialect (None for Parquet), names, and of each column its type and whether Arrow has to read it."""

_TEXT = tuple(f".{end}{packed}" for end in ("csv", "tsv", "txt", "dat", "data") for packed in ("", ".gz"))
_PARQUET = (".parquet", ".pq")
_READABLE = "Name CSV (.csv, .tsv, .txt, also .gz) or Parquet (.parquet) files."


def well_formed(encoding: str = "utf-8") -> str:
    """What is assumed of files."""
    written = encoding.upper() if encoding.startswith("utf") else encoding
    return f"the files keep to their format: quotation marks closed, text in {written}"


def dialect_of(path: str, declared: Dialect) -> Dialect:
    """How a file is written: as declared, but that a file called ``.tsv`` has tabs, not commas."""
    tabs = declared.delimiter == "," and path.lower().removesuffix(".gz").endswith(".tsv")
    return replace(declared, delimiter="\t") if tabs else declared


def is_csv(path: str) -> bool:
    """Whether a file is CSV, by its ending."""
    return path.lower().endswith(_TEXT)


def paths_of(source: Any) -> list[str] | None:
    """The files meant by a path, a glob or a list of them; None if it is neither."""
    if isinstance(source, (str, os.PathLike)):
        return _found(os.fspath(source))
    if not isinstance(source, (list, tuple)) or not source:
        return None
    if not all(isinstance(part, (str, os.PathLike)) for part in source):
        return None
    return list(dict.fromkeys(path for part in source for path in _found(os.fspath(part))))


def _found(name: str | bytes) -> list[str]:
    path = os.path.expanduser(os.fsdecode(name))
    if os.path.isfile(path):
        return [os.path.abspath(path)]
    if os.path.isdir(path):
        inside = os.path.join(os.fsdecode(name), "*.parquet")
        raise SourceMissing(f"{path!r} is a folder.", f"Name the files in it: {inside!r}.", path=path)
    if glob.has_magic(path):
        files = sorted(file for file in glob.glob(path, recursive=True) if os.path.isfile(file))
        if files:
            return [os.path.abspath(file) for file in files]
        raise SourceMissing(f"No file matches {path!r}.", "Check folder and pattern.", path=path)
    folder = os.path.dirname(os.path.abspath(path))
    advice = "Check the name." if os.path.isdir(folder) else f"There is no folder {folder!r}."
    raise SourceMissing(f"There is no file {path!r}.", advice, path=path)


@contextmanager
def unchanged(paths: Sequence[str]) -> Iterator[None]:
    """Raise :class:`~tacit.errors.SourceMissing` if a file is written to or replaced in the meantime.

    A query may read a file twice, first to count the rows of each person and then to add them up.
    """
    before = [_stamp(path) for path in paths]
    yield
    for path, seen in zip(paths, before, strict=True):
        if _stamp(path) != seen:
            problem = f"{path!r} has changed while it was read."
            raise SourceMissing(problem, "Ask again when nobody writes to it.", path=path)


def _stamp(path: str) -> tuple[int, ...] | None:
    """What changes when a file is written to or replaced; None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def tables_of(
    connection: Any,
    paths: Sequence[str],
    dialect: Dialect,
    wanted: Collection[str | None],
    unit: Collection[str | None] = (),
) -> tuple[list[Part], Load]:
    """One table for all files that have the same columns, in the same order and of the same types.

    Of Parquet files it has the ``wanted`` columns only, of which ``unit`` tell people apart. The second
    result is to be called before the tables are read.
    """
    alike: dict[_Layout, list[str]] = {}
    for path in paths:
        alike.setdefault(_layout(path, dialect, wanted, unit), []).append(path)
    parts: list[Part] = []
    loads: list[Load] = []
    for (written, names, kinds), files in alike.items():
        place = f"files{len(parts)}"
        if written is not None:
            if written.encoding != "utf-8":
                files, load = _transcoded(connection, place, files, written.encoding)
                loads.append(load)
            parts.append(_csv(connection, place, files, names, written))
        elif any(by_arrow for _, by_arrow in kinds):
            part, load = _copied(connection, place, files, names)
            parts.append(part)
            loads.append(load)
        else:
            parts.append(_parquet(connection, place, files, names))
        if written is None:
            missing = [name for name, (kind, _) in zip(names, kinds, strict=True) if kind == "null"]
            parts[-1] = parts[-1]._replace(untyped=missing)

    def load_all() -> None:
        for load in loads:
            load()

    return parts, load_all


def _layout(
    path: str, dialect: Dialect, wanted: Collection[str | None], unit: Collection[str | None]
) -> _Layout:
    lowered = path.lower()
    try:
        if lowered.endswith(_PARQUET):
            with pq.ParquetFile(path) as file:
                stored, columns = file.schema_arrow, file.schema
                _distinct(path, stored.names, [name.lower() for name in stored.names])
                leaves = [columns.column(place) for place in range(len(columns))]
                old = {leaf.path for leaf in leaves if leaf.physical_type == "INT96"}
            kinds = {name: stored.field(name).type for name in stored.names if name in wanted}
            _require_told_apart(kinds, unit)
            by_arrow = [_by_arrow(kind) or name in old for name, kind in kinds.items()]
            return None, tuple(kinds), tuple(zip(map(str, kinds.values()), by_arrow, strict=True))
        if lowered.endswith(_TEXT):
            written = dialect_of(path, dialect)
            if not os.path.getsize(path):
                problem = f"{path!r} is empty: it has no first line of column names."
                raise SourceMissing(problem, "Name another file.", path=path)
            names = _header(path, written)
            return written, _distinct(path, names, names), ()
    except UnicodeError:
        problem = f"{path!r} is not text in {dialect.encoding}, as is declared."
        raise SourceMissing(problem, "Declare its encoding in the schema, under [csv].", path=path) from None
    except (OSError, EOFError, pa.ArrowException) as error:
        reason = f": {error.strerror}" if isinstance(error, OSError) and error.strerror else ""
        raise SourceMissing(f"{path!r} cannot be read{reason}.", _READABLE, path=path) from None
    raise SourceMissing(f"{path!r} is no kind of file that is known by its ending.", _READABLE, path=path)


def _require_told_apart(kinds: Mapping[str, pa.DataType], unit: Collection[str | None]) -> None:
    """Refuse decimals of more than 38 digits as a unit: DuckDB reads them as floats, two people as one."""
    for name, kind in kinds.items():
        if name in unit and pa.types.is_decimal(kind) and kind.precision > 38:
            problem = f"Column {name!r} is stored as {kind}, which cannot be the unit."
            raise SourceMissing(problem, "Store it as text, or with at most 38 digits.", column=name)


def first_line(path: str, dialect: Dialect, errors: str = "surrogateescape") -> list[str]:
    """The entries of the first line, without surrounding blanks; none if it cannot be read."""
    start: Any = gzip.open if path.lower().endswith(".gz") else open
    encoding = "utf-8-sig" if dialect.encoding == "utf-8" else dialect.encoding
    with start(path, "rt", encoding=encoding, errors=errors, newline="") as lines, suppress(csv.Error):
        return [name.strip() for name in next(csv.reader(lines, delimiter=dialect.delimiter), [])]
    return []


def _header(path: str, dialect: Dialect) -> tuple[str, ...]:
    """The names in the first line, empty for one that stands there twice or is not in the encoding.

    If the file has no line of names, this is somebody's row. So nothing in it is complained of here: whether
    the declared columns are among the names is all that matters.
    """
    names = first_line(path, dialect, "surrogateescape" if dialect.encoding == "utf-8" else "replace")
    times = Counter(names)
    return tuple(name if times[name] == 1 and _is_text(name) else "" for name in names) or ("",)


def _is_text(name: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" or character == "\ufffd" for character in name)


def _distinct(path: str, names: Sequence[str], seen: Sequence[str]) -> tuple[str, ...]:
    """The names, if no two are seen as the same."""
    twice = [name for name, times in Counter(filter(None, seen)).items() if times > 1]
    if twice:
        problem = f"{path!r} has more than one column {twice[0]!r}."
        raise SourceMissing(problem, "Rename all but one of them.", path=path)
    return tuple(names)


def _transcoded(connection: Any, name: str, paths: Sequence[str], encoding: str) -> tuple[list[str], Load]:
    """Empty files in the engine's private folder, and what copies the text of these into them as UTF-8."""
    ((folder,),) = connection.con.execute("SELECT current_setting('temp_directory')").fetchall()
    copies = [os.path.join(folder, f"{name}-{place}.csv") for place, _ in enumerate(paths)]
    os.makedirs(folder, exist_ok=True)
    for copy in copies:
        open(copy, "wb").close()

    def load() -> None:
        for path, copy in zip(paths, copies, strict=True):
            start: Any = gzip.open if path.lower().endswith(".gz") else open
            with (
                start(path, "rt", encoding=encoding, errors="replace", newline="") as text,
                open(copy, "w", encoding="utf-8", errors="replace", newline="") as written,
            ):
                while piece := text.read(1 << 20):
                    written.write(piece)

    return copies, load


def _csv(connection: Any, view: str, paths: Sequence[str], names: Sequence[str], dialect: Dialect) -> Part:
    stored = {name: f"c{place}" for place, name in enumerate(names) if name}
    columns = ", ".join(f"'c{place}': 'VARCHAR'" for place in range(len(names)))
    files = ", ".join(_quoted(glob.escape(path)) for path in paths)
    connection.con.execute(
        f"CREATE TEMP VIEW {view} AS SELECT * FROM read_csv([{files}], columns = {{{columns}}}, "
        f"auto_detect = false, header = true, delim = {_quoted(dialect.delimiter)}, quote = '\"', "
        "escape = '\"', ignore_errors = true, strict_mode = false, parallel = false, "
        "hive_partitioning = false)"
    )
    return Part(connection.table(view), stored, stored, dialect.decimal)


def _parquet(connection: Any, view: str, paths: Sequence[str], names: Sequence[str]) -> Part:
    """``can_have_nan``: DuckDB 2 otherwise answers isnan(x) from minimum and maximum, which leave NaN out."""
    files = ", ".join(_quoted(glob.escape(path)) for path in paths)
    columns = ", ".join('"' + name.replace('"', '""') + '"' for name in names)
    connection.con.execute(
        f"CREATE TEMP VIEW {view} AS SELECT {columns or '1 AS nothing'} FROM "
        f"read_parquet([{files}], hive_partitioning = false, can_have_nan = true)"
    )
    return Part(connection.table(view), {name: name for name in names if name})


def _by_arrow(stored: pa.DataType) -> bool:
    """Whether DuckDB may fail on a value of this type in a Parquet file, or Ibis does not know its type.

    DuckDB multiplies milliseconds by a thousand, and Ibis has no name for nanoseconds with a zone.
    """
    if not pa.types.is_timestamp(stored):
        return False
    return stored.unit == "ms" or (stored.unit == "ns" and stored.tz is not None)


def _copied(connection: Any, name: str, paths: Sequence[str], names: Sequence[str]) -> tuple[Part, Load]:
    """An empty table with these columns, and what copies them from the files into it, batch by batch."""
    with pq.ParquetFile(paths[0]) as file:
        stored = {column: file.schema_arrow.field(column).type for column in names}
    kinds = {column: kind if pa.types.is_decimal(kind) else readable(kind) for column, kind in stored.items()}
    layout = pa.schema(kinds.items())

    def batches() -> Iterator[pa.RecordBatch]:
        for path in paths:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(columns=list(names)):
                    columns = [cast(batch.column(column), kind, exact=True) for column, kind in kinds.items()]
                    yield pa.record_batch(columns, schema=layout)

    def fill(rows: pa.Table | pa.RecordBatchReader) -> None:
        connection.con.register("incoming", rows)
        connection.con.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT * FROM incoming")
        connection.con.unregister("incoming")

    fill(layout.empty_table())
    part = Part(connection.table(name), {column: column for column in names})
    return part, lambda: fill(pa.RecordBatchReader.from_batches(layout, batches()))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
