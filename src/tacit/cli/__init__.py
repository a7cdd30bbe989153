"""The command ``tacit``: argument parsing and printing only; :mod:`tacit.jobs` does the work.

An error that tacit understands is one line on standard error and exit code 2, and so is a file or a folder
that the operating system refuses; an interrupt is exit code 130.
A command is imported when it is run, so that help comes at once.
"""

from __future__ import annotations

import sys
import warnings
from typing import Annotated

import typer

from tacit import _extras, errors
from tacit._version import __version__
from tacit.cli import lazy, wording

__all__ = ["app", "main"]

app = typer.Typer(
    name="tacit",
    cls=lazy.LazyGroup,
    help="Differential privacy: plan what to spend, ask private data, fit models, and keep the ledger.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tacit {__version__}")
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
    warnings.showwarning = wording.warned
    try:
        app(prog_name="tacit")
    except errors.TacitError as error:
        print(wording.told(error), file=sys.stderr)
        sys.exit(2)
    except ModuleNotFoundError as error:
        clear = _extras.missing(error, "Some parts of this command")
        if clear is None:
            raise
        print(wording.told(clear), file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        if error.filename is None:
            raise
        refused = errors.TacitError(
            f"{error.filename} cannot be used: {error.strerror}.", "Name another file or folder."
        )
        print(wording.told(refused), file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
