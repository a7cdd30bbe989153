"""``tacit ledger``: create, read, verify and export ledgers."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Annotated

import typer
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tacit import _validate
from tacit.cli import options
from tacit.cli.common import described, down, say, show_json, up, wants_json
from tacit.errors import LedgerCorrupted, TacitError
from tacit.jobs.files import spare
from tacit.ledger import Budget, Ledger, Line
from tacit.ledger.budget import BETTER, RULES
from tacit.relations import Unit
from tacit.report.spending import statement

__all__ = ["app"]

app = typer.Typer(help="Create, read, verify and export privacy ledgers.", no_args_is_help=True)

WIDE = 120
"""From this width on a table has room for the event of each charge."""

Location = Annotated[str, typer.Argument(help="Path of the ledger, or a database URL.", show_default=False)]


@app.command()
def init(
    location: Location,
    epsilon: Annotated[float, typer.Option(help="The most ε that may be spent, over all charges.")],
    delta: Annotated[float, typer.Option(help="The most δ that may be spent, over all charges.")] = 0.0,
    dataset: Annotated[str, typer.Option(help="Name of the dataset.")] = "default",
    relation: Annotated[
        str | None,
        typer.Option(help="add_remove or replace_one; add_remove if left out, for labels replace_one."),
    ] = None,
    unit: Annotated[
        str | None, typer.Option(help="Column that names whom to protect; a row if left out.")
    ] = None,
    rows_per_unit: Annotated[int, typer.Option(help="The most rows that count for one unit.")] = 1,
    protect: Annotated[
        str,
        typer.Option(
            help="What to protect of a row: all of it, or only its label where the features are public.",
            metavar="row|label",
        ),
    ] = "row",
    filter: Annotated[
        str,
        typer.Option(help="How charges add up: basic, renyi or gaussian.", metavar="basic|renyi|gaussian"),
    ] = "basic",
) -> None:
    """Create a ledger, or add a dataset to one.

    The rule by which charges add up is fixed with the budget. With basic the
    ε's and the δ's add up, as anybody can check by hand. renyi counts many
    small releases tighter; gaussian is tight for Gaussian noise without
    sampling, and takes little else. tacit plan --ledger compares them.
    """
    _validate.choice("protect", protect, ("row", "label"))
    protected = Unit(unit, rows_per_unit, part=None if protect == "row" else protect)
    with Ledger.open(
        location, Budget(epsilon, delta), relation=relation, unit=protected, dataset=dataset, filter=filter
    ) as ledger:
        typer.echo(
            f"{ledger.location}: {dataset!r} may spend {ledger.budget}, "
            f"under {ledger.relation} of one {ledger.unit}{_bare(ledger.unit)}."
        )
        typer.echo(f"Rule: {filter}: {RULES[filter]}. It is {BETTER[filter]}.")
        if delta == 0:
            typer.echo("The other rules, renyi and gaussian, need a budget with a δ.")
            return
        others = (f"--filter {name} is {text}" for name, text in BETTER.items() if name != filter)
        typer.echo(f"{'; '.join(others)}.")
        typer.echo("The rule stays. tacit plan --ledger compares them for what you intend to release.")


@app.command()
def show(
    location: Location,
    dataset: options.OnlyDataset = None,
    last: Annotated[int, typer.Option(help="How many of the latest charges to list.", min=0)] = 20,
    format: options.Format = "table",
) -> None:
    """Show budget and rule, each charge with its ε and δ, the running total, and what remains.

    In JSON every charge is listed, with its event.
    """
    in_json = wants_json(format)
    names = [dataset] if dataset else Ledger.datasets_in(location)
    with ExitStack() as stack:
        ledgers = [stack.enter_context(Ledger.open(location, dataset=name)) for name in names]
        if in_json:
            place = {"ledger": ledgers[0].location, "head": ledgers[0].head()}
            show_json({**place, "datasets": [statement(each) for each in ledgers]})
            return
        console = Console()
        for each in ledgers:
            _show(console, each, last)


def _bare(unit: Unit) -> str:
    """What a reader must know of a ledger that protects less than rows."""
    return "" if unit.part is None else "; the features are not protected"


def _show(console: Console, ledger: Ledger, last: int) -> None:
    spent, fixed = ledger.spent(), ledger.fixed_in_advance()
    lines, many = ledger.history(last), len(ledger.entries())
    rule = ledger.filter
    facts = [
        ("budget", str(ledger.budget)),
        ("rule", "fixed by the first charge" if rule is None else f"{rule}: {RULES[rule]}"),
        ("protects", f"{ledger.relation} of one {ledger.unit}{_bare(ledger.unit)}"),
        ("spent", f"ε = {up(spent.epsilon)}, δ = {up(spent.delta)}"),
        ("remaining", f"ε = {down(ledger.remaining())}, δ = {down(ledger.remaining_delta())}{_about(rule)}"),
        ("or", f"ε = {up(fixed.epsilon)} at δ = {up(fixed.delta)}, were all charges fixed in advance"),
        ("charges", str(many)),
        ("noise", spent.noise),
        *(("assuming", text) for text in spent.assumptions),
        ("head", ledger.head()),
    ]
    say(console, f"{ledger.location}: {ledger.dataset}")
    summary = Table(show_header=False, box=None, pad_edge=False)
    for name, value in facts:
        summary.add_row(name, escape(value))
    console.print(summary, highlight=False)
    if not many:
        return
    shares = [(part.label, str(part.charges), f"{part.share:.1%}") for part in ledger.by_label()]
    console.print(_table(console.width, "By label", ["label", "charges", "share of cost"], shares))
    if lines:
        title = "Entries" if len(lines) == many else f"The last {len(lines)} of {many} entries"
        if rule in ("renyi", "gaussian"):
            title += f"; ε in all is at δ = {up(ledger.budget.delta)}"
        console.print(_charges(console.width, title, lines, rule))


def _about(rule: str | None) -> str:
    """What the rest of the δ is for, where charges may not take it."""
    kept = {"renyi": "the rest", "gaussian": "all"}.get(rule or "")
    return "" if kept is None else f" for charges; {kept} of δ states the total"


def _charges(width: int, title: str, lines: list[Line], rule: str | None) -> Table:
    wide, added_up = width >= WIDE, rule not in ("renyi", "gaussian")
    counted = ["ε", "δ"] if added_up else ["μ²", "ε alone"] if rule == "gaussian" else ["ε alone", "δ alone"]
    names = ["label", *(["event"] if wide else []), "entry", "time", *counted, "ε in all"]
    names += ["δ in all"] if added_up else []
    rows = []
    for line in lines:
        entry = line.entry
        cost = [entry.cost.epsilon, entry.cost.delta]
        if rule == "gaussian":
            cost = [entry.cost.renyi, entry.cost.epsilon]
        label = entry.label
        if entry.scope is not None:
            label = f"{label} ({entry.scope}: {entry.partition})" if wide else f"{entry.partition}: {label}"
        time = entry.time[: 19 if wide else 10].replace("T", " ")
        event = [described(entry.event)] if wide else []
        spent = [line.epsilon, line.delta] if added_up else [line.epsilon]
        rows.append([label, *event, str(entry.number), time, *map(_digits, (*cost, *spent))])
    return _table(width, title, names, rows)


def _table(width: int, title: str, names: list[str], rows: Sequence[Sequence[str]]) -> Table:
    """A table as wide as the terminal at most: of texts that do not fit, only the labels are cut short."""
    widths = [max(map(cell_len, column)) for column in zip(names, *rows, strict=True)]
    others = sum(each + 3 for each in widths[1:])
    table = Table(title=title, title_justify="left", box=box.ROUNDED)
    room = max(8, width - others - 4)
    table.add_column(names[0], no_wrap=True, width=min(widths[0], room), overflow="ellipsis")
    for name, needed in zip(names[1:], widths[1:], strict=True):
        left = name in ("event", "time")
        table.add_column(name, no_wrap=True, min_width=needed, justify="left" if left else "right")
    for row in rows:
        table.add_row(*map(escape, row))
    return table


def _digits(value: float) -> str:
    return up(value, 4) if math.isfinite(value) else "∞"


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
