"""The columns that a file says it has: their names, and the types in which they are stored.

Only metadata and the first line are shown. The first line of a CSV is taken for its names. If the file has no
such line, it is somebody's row, which no program can tell for sure: messages say where it is odd, not what
it is. The engine's own messages are withheld, for they may quote rows.
"""

from __future__ import annotations

import csv
import glob
import gzip
import re
from dataclasses import dataclass
from pathlib import Path

from tacit.errors import SourceMissing

__all__ = ["StoredColumn", "column_names", "files_at", "is_parquet", "stored_columns"]

_TYPES = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"), "integer"),
    **dict.fromkeys(("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"), "integer"),
    **dict.fromkeys(("DECIMAL", "DOUBLE", "FLOAT"), "number"),
    **dict.fromkeys(("DATE", "TIMESTAMP"), "date"),
    **dict.fromkeys(("ENUM", "VARCHAR"), "category"),
    **dict.fromkeys(("TIME", "UUID"), "text"),
    "BOOLEAN": "boolean",
}
"""As what a column of DuckDB's type may be declared."""
_LOOKS_LIKE_A_VALUE = re.compile(r"[-+]?[.,]*\d[\d.,]*(e[-+]?\d+)?%?|\d+[-/.:]\d+.*|true|false|.*@.*", re.I)


@dataclass(frozen=True)
class StoredColumn:
    """A column of a file: its name, empty if it has none, and the family of DuckDB's type for it."""

    name: str
    stored: str

    @property
    def type(self) -> str | None:
        """The type of :class:`~tacit.schema.Column` that it may be declared as; None if there is none."""
        return _TYPES.get(self.stored)


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


def stored_columns(files: list[Path], delimiter: str, *, header: bool) -> list[StoredColumn]:
    """The columns of files that are alike. Types of a CSV are guessed from its values, and so are private.

    A first line that looks like values is refused unless ``header`` says that it holds names.
    """
    found = _parquet(files) if is_parquet(files[0]) else _csv(files, delimiter, header)
    return [StoredColumn(name, _family(engine)) for name, engine in found]


def column_names(file: Path, delimiter: str) -> list[str]:
    """The names in the metadata of a Parquet file, or in the first line of a CSV, which may be a row."""
    return [name for name, _ in _parquet([file])] if is_parquet(file) else _first_line(file, delimiter)


def _family(engine: str) -> str:
    return "LIST" if engine.endswith("]") else (re.match("[A-Z]*", engine) or [""])[0]


def _parquet(files: list[Path]) -> list[tuple[str, str]]:
    return _describe("read_parquet(?)", [[glob.escape(str(file)) for file in files]], "Parquet")


def _csv(files: list[Path], delimiter: str, header: bool) -> list[tuple[str, str]]:
    names = _header(files[0], delimiter)
    for position, name in enumerate(names, 1):
        if not header and _LOOKS_LIKE_A_VALUE.fullmatch(name):
            raise SourceMissing(
                f"The first line of {files[0]} looks like values, not like names (see entry {position}).",
                "Add a line of names to the file; or, if these are the names, header=True.",
            )
    reader = (
        "read_csv(?, delim=?, header=true, skip=0, quote='\"', escape='\"', comment='', strict_mode=false)"
    )
    columns = _describe(reader, [[glob.escape(str(file)) for file in files], delimiter], "CSV")
    if len(columns) != len(names):
        raise SourceMissing(
            f"The first line of {files[0]} has {len(names)} entries, but the rows below have another number.",
            "Give every column a name.",
        )
    return [(name, engine) for name, (_, engine) in zip(names, columns, strict=True)]


def _describe(reader: str, parameters: list[object], kind: str) -> list[tuple[str, str]]:
    """Names and types, by DuckDB. Its messages are withheld: they may quote rows."""
    import duckdb

    with duckdb.connect(
        config={"autoinstall_known_extensions": False, "autoload_known_extensions": False}
    ) as engine:
        try:
            rows = engine.execute(f"DESCRIBE SELECT * FROM {reader}", parameters).fetchall()
        except duckdb.Error:
            raise SourceMissing(
                f"The file cannot be read as {kind}; why is not shown, as that may quote rows.",
                "Check that it is whole"
                + (", with as many values in each row as names." if kind == "CSV" else "."),
            ) from None
    return [(str(row[0]), str(row[1])) for row in rows]


def _first_line(file: Path, delimiter: str, errors: str = "surrogateescape") -> list[str]:
    """The first line of a CSV that is not blank, which may be a row; empty if there is none.

    The pinned dialect keeps rows from passing for it.
    """
    try:
        with (gzip.open if file.suffix == ".gz" else open)(
            file, "rt", encoding="utf-8-sig", newline="", errors=errors
        ) as opened:
            line = next((line for line in csv.reader(opened, delimiter=delimiter) if line), [])
    except csv.Error:
        return []
    except (OSError, EOFError, UnicodeDecodeError):
        raise SourceMissing(f"{file} is neither a CSV of UTF-8 text nor Parquet.", "Convert it.") from None
    return [name.strip() for name in line]


def _header(file: Path, delimiter: str) -> list[str]:
    """The names in the first line of a CSV, for the curator: messages say where it is odd, not what it is."""
    names = _first_line(file, delimiter, errors="strict")
    if not any(names):
        raise SourceMissing(f"{file} has no line of column names.", "Add one.")
    if len(names) == 1 and (other := [mark for mark in ";\t|," if mark in names[0]]):
        raise SourceMissing(
            f"The first line of {file} has no {delimiter!r}, but it has {other[0]!r}.",
            f"Add delimiter={other[0]!r}.",
        )
    seen: dict[str, int] = {}
    for position, name in enumerate(names, 1):
        if name and seen.setdefault(name.casefold(), position) != position:
            raise SourceMissing(
                f"Columns {seen[name.casefold()]} and {position} of {file} have the same name.",
                "Rename one (case does not count); or add a line of names, if that is no such line.",
            )
    return names
