"""``tacit report``: one page about a model or a ledger: what is promised, what it cost, how good it is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tacit import jobs
from tacit.cli import options
from tacit.cli.common import say, status

__all__ = ["report"]


def report(
    model: Annotated[
        str,
        typer.Argument(help="A model that tacit fit or train wrote; or a ledger.", show_default=False),
    ],
    out: Annotated[Path, typer.Option(help="HTML page to write.", show_default=False)],
    ledger: Annotated[
        str | None,
        typer.Option(help="List what was charged: path of the ledger, or a URL.", show_default=False),
    ] = None,
    dataset: options.OnlyDataset = None,
    compare: Annotated[
        list[Path] | None,
        typer.Option(help="Another model of the same target, for utility against ε; may be repeated."),
    ] = None,
    responsible: Annotated[
        str | None,
        typer.Option(help="The person or office that answers for the data.", show_default="as in the schema"),
    ] = None,
    unit_name: Annotated[
        str | None,
        typer.Option(
            help="What people call one of those who are protected: patient.", show_default="as in the schema"
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            help="Of a synthesizer: rows to compare its rows with, pair of columns by pair.",
            show_default=False,
        ),
    ] = None,
    against_public: Annotated[
        bool, typer.Option("--against-public", help="The rows of --against are public.")
    ] = False,
    curator: Annotated[
        bool,
        typer.Option(
            "--curator", help="The rows of --against are private: a page for the curator's eyes, NOT PRIVATE."
        ),
    ] = False,
    delimiter: options.Delimiter = None,
    audit: Annotated[
        list[Path] | None,
        typer.Option(help="An audit, from tacit audit --format json; may be repeated.", show_default=False),
    ] = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Write a page about a saved model: guarantee, cost, utility, coefficients.

    The page needs no other file and no network. Nothing is read but the model,
    the ledger and the models to compare; whatever is shown about the data was
    charged when it was measured, or measured on public rows.

    Given a ledger instead of a model, write a page for whoever is responsible
    for the data: who is protected, what was released when, what it cost, what
    remains, and whether the record verifies.
    """
    with status(f"Drawing {out}"):
        jobs.report(
            model, out=out, ledger=ledger, dataset=dataset, compare=compare or (),
            responsible=responsible, unit_name=unit_name, overwrite=overwrite, against=against,
            against_public=against_public, curator=curator, delimiter=delimiter,
            audits=audit or (),
        )  # fmt: skip
    say(Console(), f"Report written to {out}")
    if curator:
        say(Console(), "NOT PRIVATE: it has exact distances, for the curator's eyes. Do not pass it on.")
