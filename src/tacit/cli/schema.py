"""``tacit schema``: start a schema from a file's column names, and check one.

Neither command prints a value of a row. ``check`` prints exact counts of rows for a curator who asks for
them, and says that they are private; for everybody else it buys noisy ones. Both take the first line of a
CSV as its column names; a CSV without such a line would have its first row read as names, which no program
can tell for sure.
``init``, which prints names and is for the curator of the data, therefore refuses a first line that looks
like values. ``check`` says no more about that line than which declared columns it names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tacit._toml import key, quoted
from tacit._writing import write
from tacit.cli import options
from tacit.cli.common import pair, say, show_json, status, wants_json
from tacit.data.headers import (
    StoredColumn,
    column_names,
    files_at,
    guessed_dialect,
    is_parquet,
    stored_columns,
)
from tacit.errors import InvalidValue, SourceMissing
from tacit.jobs.files import spare
from tacit.schema import Column, Dialect, Schema

__all__ = ["app"]

app = typer.Typer(help="Write down what is publicly known about a table.", no_args_is_help=True)

_OPEN = {
    "integer": "# bounds = [?, ?]             # or, for codes: categories = [?, ?]",
    "number": "# bounds = [?, ?]",
    "date": "# bounds = [?, ?]             # dates such as 2020-01-31",
    "category": '# categories = [?, ?]         # such as ["a", "b"]; free text, identifiers: type = "text"',
}


_DIALECT = ("delimiter", "decimal", "encoding")


def _one(delimiter: str | None) -> str | None:
    if delimiter is None:
        return None
    tab = {"\\t": "\t", "tab": "\t"}.get(delimiter, delimiter)
    if len(tab) != 1 or tab in '"\r\n\0':
        raise InvalidValue("delimiter", delimiter, "one character", "Write ';' or '\\t', with the quotes.")
    return tab


@app.command()
def init(
    source: Annotated[
        str,
        typer.Argument(help="A CSV or Parquet file, or a pattern such as 'part-*.csv'.", show_default=False),
    ],
    out: options.Out = None,
    overwrite: options.Overwrite = False,
    delimiter: Annotated[
        str | None,
        typer.Option(
            help=r"What separates the values of a CSV; \t is a tab.", callback=_one, show_default="guessed"
        ),
    ] = None,
    header: Annotated[
        bool,
        typer.Option("--header", help="The first line of the CSV is names, though they look like values."),
    ] = False,
) -> None:
    """Make a template that names columns and types, for a person to fill in.

    Bounds and categories are left open: what a schema says counts as public,
    so reading them from the data would leak. The types of a Parquet file are
    those in its metadata; the types of a CSV are guessed from its values, as
    are its delimiter, decimal mark and encoding, and are to be checked.

    The first line of a CSV must hold the column names, and is shown. If it
    held the first row instead, that row would be shown: add a line of names
    first.
    """
    files = files_at(source)
    written = None if is_parquet(files[0]) else guessed_dialect(files, delimiter)
    columns, dialect = stored_columns(files, written or Dialect(), header=header, told=delimiter is not None)
    text = _template(source, columns, written and dialect)
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
    curator: Annotated[
        bool,
        typer.Option(
            "--curator", help="Count exactly what does not fit: NOT PRIVATE, for the curator's eyes."
        ),
    ] = False,
    ledger: Annotated[
        str | None, typer.Option(help="Count with noise, charged to this ledger.", show_default=False)
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="ε to spend on that.", show_default=False)] = None,
    delta: options.Delta = 0.0,
    dataset: options.Dataset = "default",
    delimiter: options.Delimiter = None,
    seed: options.Seed = None,
    format: options.Format = "table",
) -> None:
    """Validate a schema, and show what it says and what it leaves open.

    With --source, the names of that file's columns and the types in which a
    Parquet file stores them are compared, and nothing else of it is read.
    Exits with 1 if a declared column is absent.

    How many values are missing, outside of bounds or categories, or not of
    the type at all, --curator counts exactly. These numbers are private: they
    are printed, never stored, and not to be passed on. With --ledger and
    --epsilon the same shares are bought with noise, and may be published.
    """
    declared = Schema.load(schema)
    if (curator or ledger or epsilon is not None) and source is None:
        raise InvalidValue("source", None, "given, to count in", "Add source=data.csv.")
    if curator and (ledger or epsilon is not None):
        raise InvalidValue("curator", True, "left out where a ledger pays", "Take one of the two.")
    if (ledger is None) != (epsilon is None):
        raise InvalidValue("epsilon", epsilon, "given with ledger=, and only then", "Such as epsilon=0.1.")
    console = Console(quiet=wants_json(format))
    _show(console, schema, declared)
    facts = _facts(declared)
    if source is not None:
        if delimiter is not None:
            declared = replace(declared, csv=replace(declared.csv, delimiter=delimiter))
        facts["source"] = _compare(console, declared, source)
        if curator:
            facts["counts"] = _count(console, declared, source)
        elif ledger is not None and epsilon is not None:
            facts["shares"] = _buy(console, declared, source, ledger, dataset, (epsilon, delta), seed)
        elif not is_parquet(files_at(source)[0]):
            say(console, _UNSEEN)
    if console.quiet:
        show_json(facts)


def _facts(schema: Schema) -> dict[str, Any]:
    """What the schema says, for JSON."""
    return {
        "population": schema.population,
        "unit": schema.unit.to_dict(),
        "columns": {name: vars(column) for name, column in schema.columns.items()},
    }


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


def _compare(console: Console, schema: Schema, source: str) -> dict[str, Any]:
    """Names, and the types in which they are stored, by what opens the file for every other command."""
    from tacit.data.files import dialect_of
    from tacit.data.source import connect, unnamed_advice

    files = files_at(source)
    file, parquet = files[0], is_parquet(files[0])
    written = dialect_of(str(file), schema.csv)
    there = column_names(file, written)
    wanted = dict.fromkeys([*schema, *([schema.unit.column] if schema.unit.column is not None else [])])
    absent = [name for name in wanted if name not in there]
    if absent:
        alike = {name.strip().casefold(): name for name in there} if parquet else {}
        hints = [
            f"{quoted(name)} is spelled {quoted(alike[name.strip().casefold()])} there."
            for name in absent
            if name.strip().casefold() in alike
        ]
        read = "" if parquet else f" in its first line, read with --delimiter {written.delimiter!r}"
        if not parquet:
            hints = [unnamed_advice(schema, [str(path) for path in files], written)]
        typer.echo(" ".join([f"{source} lacks {_names(absent)}{read}.", *hints]), err=True)
        raise typer.Exit(1)
    connect([str(path) for path in files], schema).close()
    more = len(set(there) - set(wanted))
    rest = f" Columns that are not declared, and are never read: {more}." if more else ""
    say(console, f"{source} has every declared column.{rest}")
    return {"name": source, "undeclared_columns": more}


_UNSEEN = (
    "A CSV states no types: whether its values are what the schema says, --curator counts, for your eyes "
    "only; --ledger and --epsilon buy the same with noise."
)
_NOT_PRIVATE = (
    "NOT PRIVATE: exact counts for the curator's eyes. Do not publish them, store them or pass them on."
)
_KINDS = ("missing", "outside", "not of the type")


def _count(console: Console, schema: Schema, source: str) -> dict[str, Any]:
    from tacit.jobs import curator_check

    found = curator_check(source, schema)
    say(console, "", _NOT_PRIVATE)
    table = Table("column", *(f"{kind}" for kind in _KINDS))
    for name, counts in found.columns.items():
        cells = [f"{count:,} ({count / max(found.rows, 1):.1%})" if count else "" for count in counts]
        table.add_row(escape(_shown(name)), *cells)
    console.print(table)
    say(console, f"Rows: {found.rows:,}. Empty cells are zeros. Outside means bounds or categories.")
    if found.not_text:
        advice = f"is the encoding {schema.csv.encoding}?"
        say(
            console,
            f"Left out, as they are not text in the declared encoding: {found.not_text:,} lines; {advice}",
        )
    if found.too_short:
        say(console, f"Left out, as they have fewer values than there are names: {found.too_short:,} lines.")
    say(console, _NOT_PRIVATE)
    columns = {name: dict(zip(_KINDS, counts, strict=True)) for name, counts in found.columns.items()}
    left_out = {"not_text": found.not_text, "too_short": found.too_short}
    return {"warning": _NOT_PRIVATE, "rows": found.rows, "columns": columns, "left_out": left_out}


def _buy(
    console: Console,
    schema: Schema,
    source: str,
    ledger: str,
    dataset: str,
    cost: tuple[float, float],
    seed: int | None,
) -> dict[str, Any]:
    from tacit import jobs
    from tacit.cli import spending

    with jobs.plan_query(
        source, ["check()"], schema=schema, ledger=ledger, epsilon=cost[0], delta=cost[1], dataset=dataset,
        random_state=seed,
    ) as job:  # fmt: skip
        book = job.dues[0].ledger
        with spending.refusals(book), status(f"Checking {source}"):
            answered = job.run()
        (release,) = answered.releases
        shares, (low, high) = release.value, release.interval()
        table = Table("column", *_KINDS, title="Share of values, with 95 % intervals", title_justify="left")
        for name in shares.index:
            cells = [
                f"{shares.at[name, kind]:.1%} ({100 * low.at[name, kind]:.1f} … {high.at[name, kind]:.1%})"
                if high.at[name, kind]
                else ""
                for kind in _KINDS
            ]
            table.add_row(escape(_shown(name)), *cells)
        console.print(table)
        say(
            console,
            f"{answered.guarantee}",
            f"Charged now: {pair(answered.guarantee)} to {book.location}, {book.dataset}.",
        )
        ends = {
            name: {kind: [shares.at[name, kind], low.at[name, kind], high.at[name, kind]] for kind in _KINDS}
            for name in shares.index
        }
        return {"columns": ends, "guarantee": json.loads(answered.guarantee.to_json())}


def _shown(value: object) -> str:
    return text if (text := str(value)).isprintable() and text.strip() == text != "" else quoted(text)


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(_shown, names))


def _template(source: str, columns: list[StoredColumn], dialect: Dialect | None) -> str:
    origin = (
        ["The types are those that the file itself states."]
        if dialect is None
        else [
            "The types, and how the file is written, were GUESSED FROM VALUES in it: check each of them, and",
            "keep this file with the curator of the data until that is done.",
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
    lines += ["# count for one of them; and what the pages of reports call one of them.", "# [unit]"]
    lines += ["# column = ?", "# rows = ?", '# name = ?                  # such as "patient"', ""]
    lines += ["# For the pages of reports: what the data are, and who answers for them.", "# [about]"]
    lines += ['# data = ?                  # such as "Visits of 2025"', "# responsible = ?", ""]
    if dialect is not None:
        lines += ["[csv]", *(f"{part} = {quoted(getattr(dialect, part))}" for part in _DIALECT), ""]
    declared = 0
    for position, column in enumerate(columns, 1):
        if not column.name:
            lines += [f"# Column {position} has no name, and is left out.", ""]
        elif column.type is None:
            lines += [f"# {quoted(column.name)} is left out: a schema cannot describe {column.stored}.", ""]
        else:
            declared += 1
            lines += [f"[columns.{key(column.name)}]", f"type = {quoted(column.type)}"]
            lines += ["# A word stands for missing values here: they are read as missing."] * column.gaps
            lines += [_OPEN[column.type], ""] if column.type in _OPEN else [""]
    if not declared:
        raise SourceMissing(f"{source} has no column that a schema can describe.", "Name another file.")
    return "\n".join(lines[:-1]) + "\n"
