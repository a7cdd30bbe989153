"""``tacit compare``: models at several ε on public rows: utility, attacks, and gaps between groups."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from tacit import jobs
from tacit.cli import completion, options
from tacit.cli.common import say, show_json, status, wants_json
from tacit.errors import InvalidValue

__all__ = ["compare"]


def compare(
    source: options.Source,
    test: Annotated[str, typer.Argument(help="Rows to measure on.", show_default=False)],
    schema: options.SchemaFile,
    target: Annotated[
        str,
        typer.Option(help="The column to predict.", show_default=False, autocompletion=completion.columns),
    ],
    model: Annotated[
        list[str],
        typer.Option(
            help="A model of tacit fit; may be repeated.",
            show_default=False,
            autocompletion=completion.models,
        ),
    ],
    epsilon: Annotated[
        str, typer.Option(metavar="ε,ε,…", help="The ε to fit at: 0.1,1,8.", show_default=False)
    ],
    public: Annotated[
        bool, typer.Option("--public", help="All these rows are public: nothing is charged.")
    ] = False,
    delta: options.Delta = 0.0,
    seeds: Annotated[int, typer.Option(help="How many fits of each kind.")] = 3,
    groups_by: Annotated[
        str | None,
        typer.Option(metavar="COLUMN,…", help="Measure gaps between these groups.", show_default=False),
    ] = None,
    out: options.Page = None,
    overwrite: options.Overwrite = False,
    delimiter: options.Delimiter = None,
    format: options.Format = "table",
) -> None:
    """Compare models at several ε on public rows: utility, attacks, and who pays.

    Every model is fitted several times at every ε and measured on the test
    rows; a membership attack tries to tell both files apart. The rows have to
    be public, and --public says so: exact measurements of many fits to private
    rows would be covered by no guarantee.
    """
    json = wants_json(format)
    try:
        costs = [float(part) for part in epsilon.split(",")]
    except ValueError:
        raise InvalidValue("epsilon", epsilon, "numbers with commas between them") from None
    with status("Fitting the models"):
        found = jobs.compare(
            source, test, schema=schema, target=target, models=model, epsilons=costs, public=public,
            delta=delta, seeds=seeds, groups_by=groups_by.split(",") if groups_by else (), out=out,
            overwrite=overwrite, delimiter=delimiter,
        )  # fmt: skip
    rows = found.summary()
    if json:
        show_json({"figure": found.figure, "rows": rows, "page": found.path})
        return
    table = Table("model", "ε", found.figure, "attack AUROC", "found at 1 %", "most allowed")
    for name in rows[0]["gaps"]:
        table.add_column(f"gap: {name}")
    for row in rows:
        spread = "" if row["deviation"] is None else f" ± {row['deviation']:.3f}"
        table.add_row(
            row["model"], f"{row['epsilon']:g}", f"{row['utility']:.3f}{spread}",
            f"{row['attack_auroc']:.3f}", f"{row['members_found']:.2%}", f"{row['allowed']:.2%}",
            *(f"{gap:.3f}" for gap in row["gaps"].values()),
        )  # fmt: skip
    console = Console()
    console.print(table)
    if found.path is not None:
        say(console, f"Page written to {found.path}")
