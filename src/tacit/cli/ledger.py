"""``tacit ledger``: create, read, verify and export ledgers."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tacit.cli import options
from tacit.errors import LedgerCorrupted, TacitError
from tacit.jobs.files import spare
from tacit.ledger import Budget, Entry, Ledger
from tacit.relations import Unit

__all__ = ["app"]

app = typer.Typer(help="Create, read, verify and export privacy ledgers.", no_args_is_help=True)

Location = Annotated[str, typer.Argument(help="Path of the ledger, or a database URL.", show_default=False)]


@app.command()
def init(
    location: Location,
    epsilon: Annotated[float, typer.Option(help="The most ε that may be spent, over all charges.")],
    delta: Annotated[float, typer.Option(help="The most δ that may be spent, over all charges.")] = 0.0,
    dataset: Annotated[str, typer.Option(help="Name of the dataset.")] = "default",
    relation: Annotated[str, typer.Option(help="add_remove or replace_one.")] = "add_remove",
    unit: Annotated[
        str | None, typer.Option(help="Column that names whom to protect; a row if left out.")
    ] = None,
    rows_per_unit: Annotated[int, typer.Option(help="The most rows that count for one unit.")] = 1,
    filter: Annotated[str | None, typer.Option(help="Force the renyi or the basic filter.")] = None,
) -> None:
    """Create a ledger, or add a dataset to one."""
    budget = Budget(epsilon, delta, filter)
    protected = Unit(unit, rows_per_unit)
    with Ledger.open(location, budget, relation=relation, unit=protected, dataset=dataset) as ledger:
        typer.echo(
            f"{ledger.location}: {dataset!r} may spend {ledger.budget}, "
            f"under {ledger.relation} of one {ledger.unit}."
        )


@app.command()
def show(
    location: Location,
    dataset: options.OnlyDataset = None,
    last: Annotated[int, typer.Option(help="How many of the latest entries to list.", min=0)] = 20,
) -> None:
    """Show budgets, what was spent, on what, and what remains."""
    console = Console()
    for name in [dataset] if dataset else Ledger.datasets_in(location):
        with Ledger.open(location, dataset=name) as ledger:
            _show(console, ledger, last)


def _show(console: Console, ledger: Ledger, last: int) -> None:
    spent, fixed = ledger.spent(), ledger.fixed_in_advance()
    entries = ledger.entries()
    summary = Table(
        title=escape(f"{ledger.location}: {ledger.dataset}"), show_header=False, title_justify="left"
    )
    summary.add_row("budget", escape(str(ledger.budget)))
    summary.add_row("protects", escape(f"{ledger.relation} of one {ledger.unit}"))
    summary.add_row("spent", f"ε = {spent.epsilon:.6g} (valid whatever order and choice of charges)")
    summary.add_row("", f"ε = {fixed.epsilon:.6g} (had every charge been fixed in advance)")
    summary.add_row("remaining", f"ε = {ledger.remaining():.6g}")
    summary.add_row("charges", str(len(entries)))
    summary.add_row("noise", spent.noise)
    for assumption in spent.assumptions:
        summary.add_row("assuming", escape(assumption))
    summary.add_row("head", ledger.head())
    console.print(summary)
    if not entries:
        return
    labels = Table("label", "charges", "share of cost", title="By label", title_justify="left")
    for part in ledger.by_label():
        labels.add_row(escape(part.label), str(part.charges), f"{part.share:.1%}")
    console.print(labels)
    if last:
        console.print(_table(entries[-last:], len(entries)))


def _table(entries: list[Entry], count: int) -> Table:
    title = "Entries" if len(entries) == count else f"The last {len(entries)} of {count} entries"
    table = Table("entry", "time", "label", "scope", "event", title=title, title_justify="left")
    for entry in entries:
        scope = "" if entry.scope is None else f"{entry.scope}: {entry.partition}"
        table.add_row(
            str(entry.number), entry.time[:19], escape(entry.label), escape(scope), escape(str(entry.event))
        )
    return table


@app.command()
def verify(
    location: Location,
    head: Annotated[str | None, typer.Option(help="A head written down earlier.", show_default=False)] = None,
) -> None:
    """Recompute every hash and total. Exits with 1 if anything was altered."""
    try:
        with Ledger.open(location, dataset=Ledger.datasets_in(location)[0]) as ledger:
            typer.echo(f"{ledger.location}: verified, head {ledger.verify(head)}")
    except LedgerCorrupted as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error


@app.command()
def export(
    location: Location,
    out: options.Out = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Write every entry of every dataset as a line of JSON, hashes included."""
    if out is not None:
        spare(out, overwrite, location)
    with ExitStack() as stack:
        ledger = stack.enter_context(Ledger.open(location, dataset=Ledger.datasets_in(location)[0]))
        try:
            target = stack.enter_context(out.open("w", encoding="utf-8")) if out else sys.stdout
        except OSError as error:
            raise TacitError(f"{out} cannot be written: {error.strerror}.", "Name another file.") from error
        for line in ledger.export():
            target.write(line + "\n")
