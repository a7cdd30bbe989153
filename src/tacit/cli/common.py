"""How commands print: lines, numbers and events in words, progress, and text that goes to a file."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.markup import escape

from tacit import _validate, events
from tacit.errors import InvalidValue
from tacit.guarantee import Guarantee, ceiling, floor

if TYPE_CHECKING:
    from tacit.evaluation import Evaluation

__all__ = [
    "as_json",
    "chosen_format",
    "deliver",
    "described",
    "down",
    "made_facts",
    "pair",
    "say",
    "show_json",
    "status",
    "transforms_of",
    "up",
    "wants_json",
]


def say(console: Console, *lines: str) -> None:
    """Print lines as they are."""
    for line in lines:
        console.print(line, markup=False, highlight=False)


def wants_json(format: str) -> bool:
    """Whether ``--format`` asks for JSON rather than tables; any other word is refused."""
    return _validate.choice("format", format, ("table", "json")) == "json"


def chosen_format(format: str | None, out: Path | None, formats: tuple[str, ...]) -> str:
    """The format that was asked for, else the one that the file's ending names, else the first."""
    if format is not None:
        return _validate.choice("format", format, formats)
    ending = out.suffix.lower().removeprefix(".") if out else ""
    return ending if ending in formats else formats[0]


def as_json(data: Any) -> str:
    """What a command found as JSON that any reader takes.

    Numbers that are not finite are None or, if infinite, text; dates and paths are text.

    >>> print(as_json({"ends": (0.5, float("inf")), "mean": float("nan")}), end="")
    {
      "ends": [
        0.5,
        "inf"
      ],
      "mean": null
    }
    """
    return json.dumps(_of_json(data), allow_nan=False, ensure_ascii=False, indent=2) + "\n"


def _of_json(value: Any) -> Any:
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, Mapping):
        return {str(key): _of_json(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_of_json(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value if value is None or isinstance(value, str | int | float) else str(value)


def show_json(data: Any) -> None:
    """Print what a command found as JSON on standard output, and nothing else with it."""
    typer.echo(as_json(data), nl=False)


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


def made_facts(
    path: Path | None, guarantee: Guarantee | None, evaluation: Evaluation | None
) -> dict[str, Any]:
    """A model that was made, for JSON: its file, its guarantee, and how good it is where that was tested."""
    return {
        "model": path,
        "guarantee": None if guarantee is None else json.loads(guarantee.to_json()),
        "evaluation": None if evaluation is None else evaluation.to_dict(),
    }


def pair(guarantee: Guarantee) -> str:
    """ε and δ, rounded up."""
    failure = f", δ = {up(guarantee.delta)}" if guarantee.delta else ""
    return f"ε = {up(guarantee.epsilon)}{failure}"


def up(value: float, digits: int = 6) -> str:
    """A number to so many digits, rounded up."""
    return f"{float(ceiling(value, digits)):g}"


def down(value: float, digits: int = 6) -> str:
    """A number to so many digits, rounded down."""
    return f"{float(floor(value, digits)):g}"


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
