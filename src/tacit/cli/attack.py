"""``tacit attack``: how well a membership attack tells the rows of a model from other rows."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from tacit import jobs
from tacit.cli import options
from tacit.cli.common import say, show_json, status, wants_json
from tacit.errors import SourceMissing

__all__ = ["attack"]


def attack(
    members: Annotated[str, typer.Option(help="Rows that the model was fitted to.", show_default=False)],
    others: Annotated[str, typer.Option(help="Rows that it was not fitted to.", show_default=False)],
    model: Annotated[
        Path | None,
        typer.Argument(help="A model that tacit fit or train wrote.", show_default="saved predictions"),
    ] = None,
    out: options.Page = None,
    overwrite: options.Overwrite = False,
    delimiter: options.Delimiter = None,
    format: options.Format = "table",
) -> None:
    """Attack a model: guess which rows it was fitted to, and count how often that is right.

    Without a model, both files are CSV files of predictions of any model: one
    probability per class, in a column of its name, and the true class in the
    column label, if it is known. Of a model without probabilities they have
    the columns prediction and label alone.

    Both files need rows of the same kind, from the same source and time.

    This is for whoever holds the data. The numbers are exact, no guarantee
    covers them, and nothing is charged: do not publish them.
    """
    json = wants_json(format)
    if model is None:
        for path in map(Path, (members, others)):
            if path.is_file() and not path.stat().st_size:
                raise SourceMissing(f"{path} is empty.", "Name a CSV file of predictions.", path=str(path))
    with status("Attacking the model"):
        found = jobs.attack(
            model, members=members, others=others, out=out, overwrite=overwrite, delimiter=delimiter
        )
    from tacit.report.attack import found_table, verdict
    from tacit.report.membership import percent_up

    rows = found_table(found.scores, found.guarantee)
    if json:
        show_json(
            {
                "auroc": found.scores.auroc,
                "signal": found.signal,
                "left_out": found.left_out,
                "shared": found.shared,
                "verdict": verdict(found.scores, found.guarantee),
                "found": [
                    {**asdict(each), "rate": each.rate, "allowed_by_guarantee": bound} for each, bound in rows
                ],
                "page": found.path,
            }
        )
        return
    console = Console()
    table = Table("false alarms", "members found", "share", "95 % interval")
    if found.guarantee is not None:
        table.add_column("most allowed by ε")
    for each, bound in rows:
        told = [f"{each.allowed:.1%}", f"{each.members_found} of {each.members}", f"{each.rate:.2%}"]
        told.append(f"{each.low:.2%} – {each.high:.2%}")
        table.add_row(*told, *([] if bound is None else [percent_up(bound)]))
    console.print(table)
    say(console, verdict(found.scores, found.guarantee))
    say(console, f"The attack looks at {found.signal}, of each row by itself.")
    if found.left_out:
        say(console, f"{found.left_out} rows have a target that is not declared, and were left out.")
    if found.shared:
        say(console, f"{found.shared} of the other rows equal a row of the members.")
    if found.path is not None:
        say(console, f"Page written to {found.path}: for the curator, not for publication.")
