"""``tacit report``: one page about a model: what it promises, what it cost, how good it is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tacit.cli.common import status
from tacit.errors import TacitError
from tacit.ledger import Ledger
from tacit.schema import write

__all__ = ["report"]


def report(
    model: Annotated[Path, typer.Argument(help="A model that tacit fit or train wrote.", show_default=False)],
    out: Annotated[Path, typer.Option(help="HTML page to write.", show_default=False)],
    ledger: Annotated[
        str | None,
        typer.Option(help="List what was charged: path of the ledger, or a URL.", show_default=False),
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="Only this dataset.", show_default="all")] = None,
    compare: Annotated[
        list[Path] | None,
        typer.Option(help="Another model of the same target, for utility against ε; may be repeated."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the page.")] = False,
) -> None:
    """Write a page about a saved model: guarantee, cost, utility, coefficients.

    The page needs no other file and no network. Nothing is read but the model,
    the ledger and the models to compare; whatever is shown about the data was
    charged when it was measured, or measured on public rows.
    """
    from tacit.models import load
    from tacit.report.facts import Facts, Spending
    from tacit.report.model import model_page

    if out.exists() and not overwrite:
        raise TacitError(f"{out} exists and was left as it is.", "Name another file, or add --overwrite.")
    facts = Facts.of(load(model), model.name)
    others = [Facts.of(load(path), path.name) for path in compare or ()]
    spending = []
    if ledger is not None:
        for name in [dataset] if dataset else Ledger.datasets_in(ledger):
            with Ledger.open(ledger, dataset=name) as book:
                spending.append(Spending.of(book))
    with status(f"Drawing {out}"):
        page = model_page(facts, spending, others)
    write(out, page, overwrite=overwrite)
    Console().print(f"Report written to {out}", markup=False, highlight=False)
