"""What several commands share: opening a ledger, refusals, balances, files and numbers in words."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tacit import events
from tacit.errors import BudgetExceeded, LedgerMissing
from tacit.guarantee import Guarantee, ceiling
from tacit.ledger import Ledger

if TYPE_CHECKING:
    from tacit.schema import Schema

__all__ = [
    "balance",
    "deliver",
    "described",
    "opened",
    "pair",
    "show_refusal",
    "status",
    "up",
]


def opened(location: str, dataset: str, schema: Schema | None, delta: float) -> Ledger:
    """The ledger there, or how to make it."""
    try:
        return Ledger.open(location, dataset=dataset)
    except LedgerMissing as error:
        options = ["--epsilon", "1", *(["--delta", "1e-6"] if delta else [])]
        options += [] if dataset == "default" else ["--dataset", dataset]
        if schema is not None and schema.unit.column is not None:
            options += ["--unit", schema.unit.column, "--rows", str(schema.unit.rows)]
        place: str = error.location  # type: ignore[attr-defined]
        command = shlex.join(["tacit", "ledger", "init", place, *options])
        raise LedgerMissing(
            error.problem, f"Make it with the ε that may be spent in all: {command}", location=place
        ) from None


def show_refusal(error: BudgetExceeded, ledger: Ledger) -> None:
    """Why a charge was refused, and what the budget went to."""
    typer.echo("tacit: " + " ".join(str(error).split()), err=True)
    shares = ledger.by_label()
    if shares:
        table = Table("label", "charges", "share of cost", title="Spent on", title_justify="left")
        for part in shares:
            table.add_row(escape(part.label), str(part.charges), f"{part.share:.1%}")
        Console(stderr=True).print(table)


@contextmanager
def status(text: str) -> Iterator[None]:
    """What is being done, on the terminal's standard error, gone when it is done."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(f"{escape(text)} …"):
        yield


def deliver(text: str, out: Path | None) -> None:
    """Write to the file, or to standard output if there is none or, at last, it cannot be written."""
    if out is None:
        typer.echo(text, nl=False)
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        typer.echo(text, nl=False)
        typer.echo(f"tacit: {out} cannot be written: {error.strerror}. The answers are above.", err=True)
        raise typer.Exit(2) from error


def pair(guarantee: Guarantee) -> str:
    """ε and δ, rounded up."""
    failure = f", δ = {up(guarantee.delta)}" if guarantee.delta else ""
    return f"ε = {up(guarantee.epsilon)}{failure}"


def up(value: float, digits: int = 6) -> str:
    """A number to so many digits, rounded up."""
    return f"{float(ceiling(value, digits)):g}"


def described(event: events.Event) -> str:
    """The event in short: what it is made of, numbers to four digits."""
    match event:
        case events.Compose(events=parts):
            counted = Counter(described(part) for part in parts)
            return " + ".join(f"{times} × {part}" if times > 1 else part for part, times in counted.items())
        case events.Repeat(event=part, times=times):
            return f"{times} × {described(part)}"
    values = ", ".join(map(_described_value, vars(event).values()))
    return f"{type(event).__name__}({values})"


def _described_value(value: Any) -> str:
    if isinstance(value, events.Event):
        return described(value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def balance(ledger: Ledger, spent: float, remaining: float, after: float | None, left: float | None) -> Table:
    """What is spent and what remains, now and after the charge."""
    table = Table("ε", "now", "afterwards", title=escape(f"{ledger.location}: {ledger.dataset}"))
    table.title_justify = "left"
    for name, now, then in (("spent", spent, after), ("remaining", remaining, left)):
        table.add_row(name, f"{now:.6g}", "refused" if then is None else f"{then:.6g}")
    return table
