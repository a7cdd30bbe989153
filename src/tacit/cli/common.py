"""How commands print: lines, numbers and events in words, progress, and text that goes to a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape

from tacit import events
from tacit.errors import InvalidValue
from tacit.guarantee import Guarantee, ceiling

__all__ = ["deliver", "described", "pair", "say", "status", "transforms_of", "up"]


def say(console: Console, *lines: str) -> None:
    """Print lines as they are."""
    for line in lines:
        console.print(line, markup=False, highlight=False)


@contextmanager
def status(text: str) -> Iterator[None]:
    """Show what is being done on the terminal's standard error, and remove it when it is done."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(f"{escape(text)} …"):
        yield


def deliver(text: str, out: Path | None, what: str) -> None:
    """Write the text to the file, or to standard output if there is none or it cannot be written."""
    if out is None:
        typer.echo(text, nl=False)
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        typer.echo(text, nl=False)
        typer.echo(f"tacit: {out} cannot be written: {error.strerror}. The {what} are above.", err=True)
        raise typer.Exit(2) from error


def pair(guarantee: Guarantee) -> str:
    """ε and δ, rounded up."""
    failure = f", δ = {up(guarantee.delta)}" if guarantee.delta else ""
    return f"ε = {up(guarantee.epsilon)}{failure}"


def up(value: float, digits: int = 6) -> str:
    """A number to so many digits, rounded up."""
    return f"{float(ceiling(value, digits)):g}"


def described(event: events.Event) -> str:
    """The event in short: its parts, and their numbers to four digits."""
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


def transforms_of(given: Iterable[str]) -> dict[str, str]:
    """What to do to columns before scaling, from words such as capital_gain=log1p."""
    found = {}
    for text in given:
        column, sign, how = text.rpartition("=")
        if not sign or not column or not how:
            raise InvalidValue("transform", text, "a column and what to do, such as capital_gain=log1p")
        found[column] = how
    return found
