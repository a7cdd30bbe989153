"""``tacit schema``: start a schema from a file's column names, and check one.

Neither command prints a value of a row. Both take the first line of a CSV as its column names; a CSV
without such a line would have its first row read as names, which no program can tell for sure.
``init``, which prints names and is for the curator of the data, therefore refuses a first line that looks
like values. ``check`` says no more about that line than which declared columns it names.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tacit.cli import options
from tacit.data.headers import StoredColumn, column_names, files_at, is_parquet, stored_columns
from tacit.errors import InvalidValue, SourceMissing
from tacit.jobs.files import spare
from tacit.schema import Column, Schema, key, quoted, write

__all__ = ["app"]

app = typer.Typer(help="Write down what is publicly known about a table.", no_args_is_help=True)

Delimiter = Annotated[str, typer.Option(help=r"What separates the values of a CSV; \t is a tab.")]

_OPEN = {
    "integer": "# bounds = [?, ?]             # or, for codes: categories = [?, ?]",
    "number": "# bounds = [?, ?]",
    "date": "# bounds = [?, ?]             # dates such as 2020-01-31",
    "category": '# categories = ["?", "?"]     # for free text and identifiers: type = "text"',
}


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
    files = files_at(source)
    columns = stored_columns(files, _one(delimiter), header=header)
    text = _template(source, columns, is_parquet(files[0]))
    if out is None:
        typer.echo(text, nl=False)
        return
    spare(out, overwrite, source)
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
    file = files_at(source)[0]
    parquet = is_parquet(file)
    there = column_names(file, delimiter)
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


def _template(source: str, columns: list[StoredColumn], parquet: bool) -> str:
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
    for position, column in enumerate(columns, 1):
        if not column.name:
            lines += [f"# Column {position} has no name, and is left out.", ""]
        elif column.type is None:
            lines += [f"# {quoted(column.name)} is left out: a schema cannot describe {column.stored}.", ""]
        else:
            declared += 1
            lines += [f"[columns.{key(column.name)}]", f"type = {quoted(column.type)}"]
            lines += [_OPEN[column.type], ""] if column.type in _OPEN else [""]
    if not declared:
        raise SourceMissing(f"{source} has no column that a schema can describe.", "Name another file.")
    return "\n".join(lines[:-1]) + "\n"


def _one(delimiter: str) -> str:
    tab = {"\\t": "\t", "tab": "\t"}.get(delimiter, delimiter)
    if len(tab) != 1 or tab in '"\r\n\0':
        raise InvalidValue("delimiter", delimiter, "one character", "Write ';' or '\\t', with the quotes.")
    return tab
