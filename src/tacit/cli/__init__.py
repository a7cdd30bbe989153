"""The command ``tacit``: argument parsing and printing only.

An error that tacit understands is one line on standard error and exit code 2; an interrupt is
exit code 130.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated

import typer

from tacit import errors
from tacit.cli import fit, inspect, ledger, model_report, plan, predict, query, schema, train

__all__ = ["app", "main"]

app = typer.Typer(
    name="tacit",
    help="Differential privacy: plan what to spend, ask private data, fit models, and keep the ledger.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(ledger.app, name="ledger")
app.add_typer(schema.app, name="schema")
app.command()(plan.plan)
app.command()(query.query)
app.command()(fit.fit)
app.command()(train.train)
app.command()(predict.predict)
app.command()(inspect.inspect)
app.command()(model_report.report)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tacit {version('tacit')}")
        raise typer.Exit


@app.callback()
def _options(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command with the arguments of the process, and exit."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        app()
    except errors.TacitError as error:
        print("tacit: " + " ".join(str(error).split()), file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
