"""The columns that a file says it has: their names, the types in which they are stored, how it is written.

Only metadata and the first line are shown. The first line of a CSV is taken for its names. If the file has no
such line, it is somebody's row, which no program can tell for sure: messages say where it is odd, not what
it is. The engine's own messages are withheld, for they may quote rows.

How a CSV is written, and the types of its columns, are guessed from its values, for the curator. Types are
guessed with the reader's own rule (:mod:`tacit.data.cleaning.rule`), on all rows: a column is of a type if
the reader reads each of its values so, but for the usual words for missing values.
"""

from __future__ import annotations

import codecs
import csv
import glob
import gzip
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from tacit.errors import SourceMissing
from tacit.schema import Column, Dialect, Schema

__all__ = [
    "StoredColumn",
    "column_names",
    "files_at",
    "guessed_dialect",
    "is_parquet",
    "odd_lines",
    "stored_columns",
]

_TYPES = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"), "integer"),
    **dict.fromkeys(("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"), "integer"),
    **dict.fromkeys(("DECIMAL", "DOUBLE", "FLOAT"), "number"),
    **dict.fromkeys(("DATE", "TIMESTAMP"), "date"),
    **dict.fromkeys(("ENUM", "VARCHAR"), "category"),
    "UUID": "text",
    "BOOLEAN": "boolean",
}
"""As what a column of DuckDB's type may be declared."""
_SAMPLE = 500
"""The rows of which delimiter and shape are guessed."""
_MISSING = ("na", "n/a", "#n/a", "nan", "null", "none", "nil", "?", "-", "--", ".")
"""Words, in lower case, that stand for a missing value in a column of another type than text."""
_LOOKS_LIKE_A_VALUE = re.compile(r"[-+]?[.,]*\d[\d.,]*(e[-+]?\d+)?%?|\d+[-/.:]\d+.*|true|false|.*@.*", re.I)


@dataclass(frozen=True)
class StoredColumn:
    """A column of a file: its name, empty if it has none, and as what it may be declared."""

    name: str
    type: str | None
    """The type of :class:`~tacit.schema.Column` that it may be declared as; None if there is none."""
    stored: str = ""
    """The family of DuckDB's type for it, in a Parquet file."""
    gaps: bool = False
    """Whether a word stands in it for missing values, in a CSV: the reader takes it for missing."""


def files_at(source: str) -> list[Path]:
    """The files that a path or a pattern names, of which there is at least one."""
    path = Path(source)
    if path.is_dir():
        raise SourceMissing(
            f"{source} is a folder.", f"Name its files: {path / '*.parquet'} or {path / '*.csv'}"
        )
    found = [path] if path.is_file() else [Path(name) for name in sorted(glob.glob(source, recursive=True))]
    files = [file for file in found if file.is_file()]
    if not files:
        raise SourceMissing(f"There is no file at {source}.", "Name a CSV or Parquet file.")
    return files


def is_parquet(file: Path) -> bool:
    """Whether the file is Parquet, by its first bytes."""
    try:
        with file.open("rb") as opened:
            start = opened.read(4)
    except OSError as error:
        raise SourceMissing(
            f"{file} cannot be read: {error.strerror}.", "Name a file you may read."
        ) from None
    if not start:
        raise SourceMissing(f"{file} is empty.", "Name a CSV or Parquet file.")
    if file.suffix == ".parquet" and start != b"PAR1":
        raise SourceMissing(f"{file} is not a Parquet file, in spite of its name.", "Name another file.")
    return start == b"PAR1"


def guessed_dialect(files: list[Path], delimiter: str | None = None) -> Dialect:
    """How CSV files are written, guessed from their bytes and first rows; the decimal mark is still a point.

    The encoding is UTF-8 if all of them are, UTF-16 if they begin with its byte order mark, else that of
    Windows or, if it does not have one of the bytes, Latin-1.
    """
    encoding = _encoding(files)
    if delimiter is not None:
        return Dialect(delimiter, encoding=encoding)
    found = {}
    for mark in (",", ";", "\t", "|"):
        rows = list(itertools.islice(_rows(files[0], Dialect(mark, encoding=encoding)), _SAMPLE))
        lengths = Counter(map(len, rows))
        width = len(rows[0]) if rows else 0
        found[mark] = (lengths[width] / len(rows), width) if width > 1 else (0.0, 0)
    return Dialect(max(found, key=lambda mark: found[mark]), encoding=encoding)


def stored_columns(
    files: list[Path], dialect: Dialect, *, header: bool, told: bool = False
) -> tuple[list[StoredColumn], Dialect]:
    """The columns of files that are alike, and the dialect with its decimal mark.

    Types and the decimal mark of a CSV are guessed from its values, and so are private. A first line that
    looks like values is refused unless ``header`` says that it holds names; ``told`` says that the
    delimiter was given.
    """
    if is_parquet(files[0]):
        found = [(name, _family(engine)) for name, engine in _parquet(files)]
        return [StoredColumn(name, _TYPES.get(family), family) for name, family in found], dialect
    names = _names(files[0], dialect, header, told)
    guessed, decimal = _guessed([str(file) for file in files], [name for name in names if name], dialect)
    columns = [guessed.get(name, StoredColumn(name, None)) for name in names]
    return columns, replace(dialect, decimal=decimal)


def column_names(file: Path, dialect: Dialect) -> list[str]:
    """The names in the metadata of a Parquet file, or in the first line of a CSV, which may be a row."""
    return [name for name, _ in _parquet([file])] if is_parquet(file) else _first_line(file, dialect)


def odd_lines(path: str, declared: Dialect) -> tuple[int, int]:
    """How many lines of a CSV are not text in its encoding, and how many are too short. PRIVATE."""
    from tacit.data.files import dialect_of

    rows = _rows(Path(path), dialect_of(path, declared))
    width = len(next(rows, ()))
    bad = short = 0
    for row in rows:
        bad += any("\udc80" <= character <= "\udcff" for value in row for character in value)
        short += len(row) < width
    return bad, short


def _encoding(files: list[Path]) -> str:
    with _reading(files[0], "rb") as opened:
        start = opened.read(4)
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    for encoding in ("utf-8", "cp1252"):
        if all(_is_in(file, encoding) for file in files):
            return encoding
    return "latin-1"


def _is_in(file: Path, encoding: str) -> bool:
    """Whether a file is text in an encoding, from its first byte to its last; text holds no zeros."""
    decoder = codecs.getincrementaldecoder(encoding)()
    with _reading(file, "rb") as opened, suppress(UnicodeDecodeError):
        while piece := opened.read(1 << 20):
            if b"\0" in piece:
                raise _not_text(file)
            decoder.decode(piece)
        decoder.decode(b"", final=True)
        return True
    return False


def _not_text(file: Path) -> SourceMissing:
    return SourceMissing(f"{file} is neither a CSV of text nor Parquet.", "Convert it.")


class _reading:
    """An open file, unpacked, whose faults are told without what it holds."""

    def __init__(self, file: Path, mode: str, **options: Any) -> None:
        self.file, self.mode, self.options = file, mode, options

    def __enter__(self) -> IO[Any]:
        start: Any = gzip.open if self.file.suffix == ".gz" else open
        self.opened = start(self.file, self.mode, **self.options)
        opened: IO[Any] = self.opened
        return opened

    def __exit__(self, kind: type[BaseException] | None, error: Any, traceback: Any) -> None:
        self.opened.close()
        if kind is not None and issubclass(kind, (OSError, EOFError)):
            raise _not_text(self.file) from None


def _rows(file: Path, dialect: Dialect, *, strict: bool = False) -> Iterator[list[str]]:
    """The rows of a CSV that are not blank, the first included; those before the first odd one, if strict."""
    encoding = "utf-8-sig" if dialect.encoding == "utf-8" else dialect.encoding
    with _reading(file, "rt", encoding=encoding, newline="", errors="surrogateescape") as opened:
        try:
            yield from filter(None, csv.reader(opened, delimiter=dialect.delimiter, strict=strict))
        except csv.Error:
            if strict:
                raise


def _first_line(file: Path, dialect: Dialect) -> list[str]:
    return [name.strip() for name in next(_rows(file, dialect), [])]


def _family(engine: str) -> str:
    return "LIST" if engine.endswith("]") else (re.match("[A-Z]*", engine) or [""])[0]


def _parquet(files: list[Path]) -> list[tuple[str, str]]:
    """Names and types, by DuckDB. Its messages are withheld: they may quote rows."""
    import duckdb

    with duckdb.connect(
        config={"autoinstall_known_extensions": False, "autoload_known_extensions": False}
    ) as engine:
        try:
            named = [[glob.escape(str(file)) for file in files]]
            rows = engine.execute("DESCRIBE SELECT * FROM read_parquet(?)", named).fetchall()
        except duckdb.Error:
            raise SourceMissing(
                "The file cannot be read as Parquet; why is not shown, as that may quote rows.",
                "Check that it is whole.",
            ) from None
    return [(str(row[0]), str(row[1])) for row in rows]


def _names(file: Path, dialect: Dialect, header: bool, told: bool) -> list[str]:
    """The names in the first line of a CSV, for the curator: messages say where it is odd, not what it is."""
    names = _first_line(file, dialect)
    if not any(names):
        raise SourceMissing(f"{file} has no line of column names.", "Add one.")
    if told and len(names) == 1 and (other := [mark for mark in ";\t|," if mark in names[0]]):
        raise SourceMissing(
            f"The first line of {file} has no {dialect.delimiter!r}, but it has {other[0]!r}.",
            f"Add delimiter={other[0]!r}.",
        )
    seen: dict[str, int] = {}
    for position, name in enumerate(names, 1):
        if not header and _LOOKS_LIKE_A_VALUE.fullmatch(name):
            raise SourceMissing(
                f"The first line of {file} looks like values, not like names (see entry {position}).",
                "Add a line of names to the file; or, if these are the names, header=True.",
            )
        if name and seen.setdefault(name.casefold(), position) != position:
            raise SourceMissing(
                f"Columns {seen[name.casefold()]} and {position} of {file} have the same name.",
                "Rename one (case does not count); or add a line of names, if that is no such line.",
            )
    try:
        lengths = Counter(map(len, itertools.islice(_rows(file, dialect, strict=True), 1, _SAMPLE)))
    except csv.Error:
        raise SourceMissing(
            "The file cannot be read as CSV; why is not shown, as that may quote rows.",
            "Check that quotation marks are closed, and that those inside of a value are written twice.",
        ) from None
    if lengths and lengths.most_common(1)[0][0] != len(names):
        raise SourceMissing(
            f"The first line of {file} has {len(names)} entries, but the rows below have another number.",
            "Give every column a name, and check the delimiter.",
        )
    return names


_POINT, _COMMA = ".", ","


def _guessed(paths: list[str], names: list[str], dialect: Dialect) -> tuple[Mapping[str, StoredColumn], str]:
    """The type that the reader reads each column as, by what it makes of every value; the decimal mark."""
    from tacit.data.cleaning.expressions import parsed, pointed, whole
    from tacit.data.source import connect

    text, number = Column("text"), Column("number")
    opened = connect(paths, Schema(dict.fromkeys(names, text), csv=dialect))
    try:
        table = opened.table
        read: dict[str, Any] = {}
        for place, name in enumerate(names):
            value = table[name]
            truth = parsed(value, Column("boolean"), opened.backend)
            read[f"{place} there"], read[f"{place} boolean"] = value, truth
            read[f"{place} date"] = parsed(value, Column("date"), opened.backend)
            for mark in (_POINT, _COMMA):
                read[f"{place} number{mark}"] = parsed(pointed(value, number, mark), number, opened.backend)
        once = table.select(**read).view()
        sums = {name: once[name].count() for name in read}
        for place, _ in enumerate(names):
            truth, word = once[f"{place} boolean"], once[f"{place} there"].lower()
            sums[f"{place} gaps"] = (word.isin(_MISSING) & truth.isnull()).sum()
            sums[f"{place} yes"], sums[f"{place} no"] = truth.sum(), (~truth).sum()
            for mark in (_POINT, _COMMA):
                sums[f"{place} integer{mark}"] = whole(once[f"{place} number{mark}"]).count()
        counts = opened.run(once.aggregate(**sums)).fillna(0).iloc[0]
    finally:
        opened.close()
    places = range(len(names))
    only = {
        mark: sum(int(counts[f"{place} number{mark}"] - counts[f"{place} integer{mark}"]) for place in places)
        for mark in (_POINT, _COMMA)
    }
    decimal = _COMMA if only[_COMMA] > only[_POINT] else _POINT
    made = {}
    for place, name in enumerate(names):
        there, gaps = int(counts[f"{place} there"]), int(counts[f"{place} gaps"])
        kinds = (f"integer{decimal}", f"number{decimal}", "boolean", "date")
        fitting = [kind for kind in kinds if 0 < there - gaps == int(counts[f"{place} {kind}"])]
        if not (counts[f"{place} yes"] and counts[f"{place} no"]):
            fitting = [kind for kind in fitting if kind != "boolean"]
        kind = fitting[0].removesuffix(decimal) if fitting else "category"
        made[name] = StoredColumn(name, kind, gaps=bool(fitting and gaps))
    return made, decimal
