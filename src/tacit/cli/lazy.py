"""Commands that are imported when they are asked for: ``tacit --help`` imports none of them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

__all__ = ["COMMANDS", "Command", "LazyGroup"]


@dataclass(frozen=True)
class Command:
    """A command by name, with what ``tacit --help`` says of it and the module in which it lives.

    The module holds a function of the command's name or, for a command that has commands of its own, a
    Typer called ``app``.
    """

    name: str
    help: str
    module: str

    def loaded(self) -> Any:
        """The command itself, imported."""
        home = import_module(self.module)
        if hasattr(home, "app"):
            group = get_group(home.app)
            group.name = self.name
            return group
        alone = typer.Typer(add_completion=False)
        alone.command(self.name)(getattr(home, self.name))
        return get_command(alone)


COMMANDS = {
    command.name: command
    for command in (
        Command("plan", "Plan what to spend, before any data are touched.", "tacit.cli.plan"),
        Command(
            "query", "Ask questions of a private table, and pay for them from a ledger.", "tacit.cli.query"
        ),
        Command("fit", "Fit a private model to a file, and pay for it from a ledger.", "tacit.cli.fit"),
        Command(
            "synthesize",
            "Make a synthetic table of a private file, and pay for it from a ledger.",
            "tacit.cli.synthesize",
        ),
        Command(
            "train",
            "Train a private network on a file of examples, and pay for it from a ledger.",
            "tacit.cli.train",
        ),
        Command(
            "pate",
            "Answer public queries from the votes of private teachers, and teach a student.",
            "tacit.cli.pate",
        ),
        Command(
            "local",
            "Randomize a column into reports, and estimate frequencies from reports.",
            "tacit.cli.local",
        ),
        Command(
            "predict",
            "Predict the target of other rows with a saved model; spends nothing.",
            "tacit.cli.predict",
        ),
        Command(
            "inspect",
            "Show the guarantee of a saved model, what it was made from, and its coefficients or layers.",
            "tacit.cli.inspect",
        ),
        Command(
            "report",
            "Write a page about a saved model: guarantee, cost, utility, coefficients.",
            "tacit.cli.model_report",
        ),
        Command(
            "attack",
            "Attack a model: guess which rows it was fitted to, and count how often that is right.",
            "tacit.cli.attack",
        ),
        Command(
            "audit",
            "Turn the scores of an attack into a lower bound on ε, and compare it with a claim.",
            "tacit.cli.audit",
        ),
        Command(
            "compare",
            "Compare models at several ε on public rows: utility, attacks, and who pays.",
            "tacit.cli.compare",
        ),
        Command("ledger", "Create, read, verify and export privacy ledgers.", "tacit.cli.ledger"),
        Command("schema", "Write down what is publicly known about a table.", "tacit.cli.schema"),
        Command(
            "serve", "Hold data for others, who ask within grants and never see a row.", "tacit.cli.serve"
        ),
    )
}
"""In the order in which ``tacit --help`` lists them; a test compares each with the command itself."""


class LazyGroup(TyperGroup):
    """The group of :data:`COMMANDS`: help lists stand-ins, and the command that is run is imported."""

    asked: ClassVar[Any] = None
    """The command that was run last, in this process."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, command in COMMANDS.items():
            self.commands[name] = TyperCommand(name, short_help=command.help)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the arguments name, imported, and the arguments that are its own."""
        name, found, rest = super().resolve_command(ctx, args)
        if name in COMMANDS:
            LazyGroup.asked = found = COMMANDS[name].loaded()
        return name, found, rest
