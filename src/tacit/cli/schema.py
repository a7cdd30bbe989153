"""``tacit schema``: start a schema from a file's column names, and check one.

Neither command prints a value of a row. Both take the first line of a CSV as its column names; a CSV
without such a line would have its first row read as names, which no program can tell for sure.
``init``, which prints names and is for the curator of the data, therefore refuses a first line that looks
like values. ``check`` says no more about that line than which declared columns it names.
"""

from __future__ import annotations

import csv
import glob
import gzip
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tacit.cli import options
from tacit.errors import InvalidValue, SourceMissing
from tacit.schema import Column, Schema, key, quoted, write

__all__ = ["app"]

app = typer.Typer(help="Write down what is publicly known about a table.", no_args_is_help=True)

Delimiter = Annotated[str, typer.Option(help=r"What separates the values of a CSV; \t is a tab.")]

_TYPES = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"), "integer"),
    **dict.fromkeys(("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"), "integer"),
    **dict.fromkeys(("DECIMAL", "DOUBLE", "FLOAT"), "number"),
    **dict.fromkeys(("DATE", "TIMESTAMP"), "date"),
    **dict.fromkeys(("ENUM", "VARCHAR"), "category"),
    **dict.fromkeys(("TIME", "UUID"), "text"),
    "BOOLEAN": "boolean",
}
_OPEN = {
    "integer": "# bounds = [?, ?]             # or, for codes: categories = [?, ?]",
    "number": "# bounds = [?, ?]",
    "date": "# bounds = [?, ?]             # dates such as 2020-01-31",
    "category": '# categories = ["?", "?"]     # for free text and identifiers: type = "text"',
}
_LOOKS_LIKE_A_VALUE = re.compile(r"[-+]?[.,]*\d[\d.,]*(e[-+]?\d+)?%?|\d+[-/.:]\d+.*|true|false|.*@.*", re.I)


@app.command()
def init(
    source: Annotated[
        str,
        typer.Argument(help="A CSV or Parquet file, or a pattern such as 'part-*.csv'.", show_default=False),
    ],
    out: options.Out = None,
    overwrite: options.Overwrite = False,
    delimiter: Delimiter = ",",
    header: Annotated[
        bool,
        typer.Option("--header", help="The first line of the CSV is names, though they look like values."),
    ] = False,
) -> None:
    """Make a template that names columns and types, for a person to fill in.

    Bounds and categories are left open: what a schema says counts as public,
    so reading them from the data would leak. The types of a Parquet file are
    those in its metadata; the types of a CSV are guessed from its values, and
    are to be checked.

    The first line of a CSV must hold the column names, and is shown. If it
    held the first row instead, that row would be shown: add a line of names
    first.
    """
    files = _files(source)
    parquet = _is_parquet(files[0])
    columns = _parquet(files) if parquet else _csv(files, _one(delimiter), header)
    text = _template(source, columns, parquet)
    if out is None:
        typer.echo(text, nl=False)
        return
    write(out, text, overwrite=overwrite)
    typer.echo(f"{out} waits for bounds and categories. Fill it in, then: tacit schema check {out}")


@app.command()
def check(
    schema: Annotated[Path, typer.Argument(help="The TOML file.", show_default=False)],
    source: Annotated[
        str | None, typer.Option(help="A CSV or Parquet file that should have these columns.")
    ] = None,
    delimiter: Delimiter = ",",
) -> None:
    """Validate a schema, and show what it says and what it leaves open.

    With --source, the column names of that file are compared, and nothing else
    of it is read. Exits with 1 if a declared column is absent.
    """
    declared = Schema.load(schema)
    console = Console()
    _show(console, schema, declared)
    if source is not None:
        _compare(declared, source, _one(delimiter))


def _show(console: Console, path: Path, schema: Schema) -> None:
    table = Table("column", "type", "bounds or categories", "missing", title_justify="left")
    table.title = escape(f"{path}: {len(schema.columns)} columns")
    for name, column in schema.columns.items():
        missing = "" if column.missing is None else f"counts as {_shown(column.missing)}"
        table.add_row(escape(_shown(name)), column.type, escape(_known(column)), escape(missing))
    console.print(table)
    rows = "private, not declared" if schema.population is None else f"{schema.population:,}, public"
    lines = [f"Number of rows: {rows}.", f"Protects: one {_shown(schema.unit)}."]
    unbounded = [
        name
        for name, column in schema.columns.items()
        if column.type in ("integer", "number", "date")
        and column.bounds is None
        and column.categories is None
    ]
    if unbounded:
        lines.append(
            f"Without bounds: {_names(unbounded)}. Sums, means, quantiles and the like need bounds: declare "
            "them, give them with the question, or buy them with budget."
        )
    unlisted = [
        name for name, column in schema.columns.items() if column.type == "category" and not column.categories
    ]
    if unlisted:
        lines.append(
            f"Without categories: {_names(unlisted)}. Counts by them need the categories: declare them, or "
            "buy the frequent ones with budget (δ > 0)."
        )
    for line in lines:
        console.print(escape(line), highlight=False)


def _known(column: Column) -> str:
    parts = []
    if column.bounds is not None:
        parts.append(f"from {column.bounds[0]} to {column.bounds[1]}")
    if column.categories is not None:
        first = ", ".join(_shown(value) for value in column.categories[:8])
        parts.append(f"{first}, … ({len(column.categories)})" if len(column.categories) > 8 else first)
    if column.other is not None:
        parts.append(f"others as {_shown(column.other)}")
    return "; ".join(parts)


def _compare(schema: Schema, source: str, delimiter: str) -> None:
    file = _files(source)[0]
    parquet = _is_parquet(file)
    there = [name for name, _ in _parquet([file])] if parquet else _first_line(file, delimiter)
    wanted = dict.fromkeys([*schema, *([schema.unit.column] if schema.unit.column is not None else [])])
    absent = [name for name in wanted if name not in there]
    if absent and not parquet:
        typer.echo(
            f"{source} lacks {_names(absent)} in its first line, read with --delimiter {delimiter!r}.",
            err=True,
        )
        raise typer.Exit(1)
    if absent:
        alike = {name.strip().casefold(): name for name in there}
        hints = [
            f"{quoted(name)} is spelled {quoted(alike[name.strip().casefold()])} there."
            for name in absent
            if name.strip().casefold() in alike
        ]
        typer.echo(" ".join([f"{source} lacks {_names(absent)}.", *hints]), err=True)
        raise typer.Exit(1)
    more = len(set(there) - set(wanted))
    rest = f" Columns that are not declared, and are never read: {more}." if more else ""
    typer.echo(f"{source} has every declared column.{rest}")


def _shown(value: object) -> str:
    return text if (text := str(value)).isprintable() and text.strip() == text != "" else quoted(text)


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(_shown, names))


def _template(source: str, columns: list[tuple[str, str]], parquet: bool) -> str:
    origin = (
        ["The types are those that the file itself states."]
        if parquet
        else [
            "The types were GUESSED FROM VALUES in the file: check each of them, and keep this file with the",
            "curator of the data until that is done.",
        ]
    )
    prose = [
        f"Schema of {quoted(Path(source).name)}: a template, to be filled in by a person.",
        "",
        "Whatever a schema says counts as public. Write what a codebook, a form or common sense says, never",
        "what the rows say: a bound read from the data is somebody's value. So bounds and categories are",
        "left open here: replace each ?, and take away the # before it. What is not public stays out.",
        "",
        *origin,
        "",
        "Any column may also have",
        "    missing = ...    a constant that stands in for missing values",
        "and, beside its categories, a category may have",
        '    other = "..."    the label under which undeclared values are counted',
        "Take out columns that nobody needs: what is not declared is never read.",
    ]
    lines = [f"# {line}".rstrip() for line in prose]
    lines += ["", "# The number of rows, if it is public:", "# population = ?", ""]
    lines += [
        "# Whom to protect, if not single rows: the column that tells people apart, and the most rows that"
    ]
    lines += ["# count for one of them.", "# [unit]", '# column = "?"', "# rows = ?", ""]
    declared = 0
    for position, (name, engine) in enumerate(columns, 1):
        base = "LIST" if engine.endswith("]") else (re.match("[A-Z]*", engine) or [""])[0]
        kind = _TYPES.get(base)
        if not name:
            lines += [f"# Column {position} has no name, and is left out.", ""]
        elif kind is None:
            lines += [f"# {quoted(name)} is left out: a schema cannot describe {base}.", ""]
        else:
            declared += 1
            lines += [f"[columns.{key(name)}]", f"type = {quoted(kind)}"]
            lines += [_OPEN[kind], ""] if kind in _OPEN else [""]
    if not declared:
        raise SourceMissing(f"{source} has no column that a schema can describe.", "Name another file.")
    return "\n".join(lines[:-1]) + "\n"


def _one(delimiter: str) -> str:
    tab = {"\\t": "\t", "tab": "\t"}.get(delimiter, delimiter)
    if len(tab) != 1 or tab in '"\r\n\0':
        raise InvalidValue("delimiter", delimiter, "one character", "Write ';' or '\\t', with the quotes.")
    return tab


def _files(source: str) -> list[Path]:
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


def _is_parquet(file: Path) -> bool:
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


def _parquet(files: list[Path]) -> list[tuple[str, str]]:
    return _describe("read_parquet(?)", [[glob.escape(str(file)) for file in files]], "Parquet")


def _csv(files: list[Path], delimiter: str, header: bool) -> list[tuple[str, str]]:
    names = _header(files[0], delimiter)
    for position, name in enumerate(names, 1):
        if not header and _LOOKS_LIKE_A_VALUE.fullmatch(name):
            raise SourceMissing(
                f"The first line of {files[0]} looks like values, not like names (see entry {position}).",
                "Add a line of names to the file; or, if these are the names, --header.",
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
            f"Add --delimiter {other[0]!r}.",
        )
    seen: dict[str, int] = {}
    for position, name in enumerate(names, 1):
        if name and seen.setdefault(name.casefold(), position) != position:
            raise SourceMissing(
                f"Columns {seen[name.casefold()]} and {position} of {file} have the same name.",
                "Rename one (case does not count); or add a line of names, if that is no such line.",
            )
    return names
