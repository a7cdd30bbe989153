"""``tacit synthesize``: a synthetic table from a file of private rows, paid for from a ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from tacit import jobs
from tacit.cli import options, spending
from tacit.cli.common import described, made_facts, say, show_json, transforms_of, wants_json
from tacit.errors import InvalidValue

__all__ = ["synthesize"]


def synthesize(
    source: options.Source,
    schema: options.SchemaFile,
    epsilon: Annotated[float, typer.Option(help="ε to spend on the table.", show_default=False)],
    ledger: options.LedgerPlace,
    out: Annotated[
        Path, typer.Option(help="File to write the table to: CSV, or .parquet.", show_default=False)
    ],
    delta: options.Delta = 0.0,
    dataset: options.Dataset = "default",
    method: Annotated[
        str, typer.Option(metavar="marginals|histogram", help="How the table is made: see above.")
    ] = "marginals",
    rows: Annotated[
        int | None,
        typer.Option(help="How many rows to make.", show_default="the schema's population, or a noisy count"),
    ] = None,
    model_out: Annotated[
        Path | None,
        typer.Option(help="File to write the model to, which can make more rows.", show_default=False),
    ] = None,
    bins: Annotated[
        int | None, typer.Option(help="How many bins a number is cut into.", show_default="the method's own")
    ] = None,
    cut: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=EDGE,EDGE,…", help="Public edges of the bins of a number; may be repeated."
        ),
    ] = None,
    transform: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=log1p|sqrt", help="Bins of equal width on this scale; may be repeated."
        ),
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Leave it out; may be repeated.")
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(help="How many pairs of columns are measured.", show_default="twice the columns"),
    ] = None,
    dry_run: options.DryRun = False,
    label: options.Label = None,
    overwrite: options.Overwrite = False,
    delimiter: options.Delimiter = None,
    seed: options.Seed = None,
    quiet: options.Quiet = False,
    format: options.Format = "table",
) -> None:
    """Make a synthetic table of a private file, and pay for it from a ledger.

    The table has the columns of the schema, and rows that resemble the private
    ones: they are drawn from noisy counts, and none of them is a copy.

    Methods:

        marginals  measures all columns, and the pairs that matter most
        histogram  counts every combination of cells; for few columns

    The schema says what is public. Every column needs categories or bounds, or
    is left out. Numbers are cut into bins, and drawn evenly within them. A
    missing or undeclared value is a category of its own.

    The ledger is charged before a row is read. With --dry-run nothing is
    charged, read or written, and the exit code is 2 if the budget would not
    suffice. The guarantee covers the table, however it is used and by whom.
    """
    in_json = wants_json(format)
    with jobs.plan_synthesize(
        source, schema=schema, epsilon=epsilon, ledger=ledger, delta=delta, dataset=dataset, method=method,
        rows=rows, out=out, model_out=model_out, overwrite=overwrite, bins=_bins(bins, cut or ()),
        transforms=transforms_of(transform or ()), exclude=exclude or (), rounds=rounds, label=label,
        delimiter=delimiter, random_state=seed,
    ) as job:  # fmt: skip
        console = Console(quiet=quiet or in_json)
        _show_plan(console, job, dry_run)
        plan = spending.plan_facts(job, columns=job.columns)
        made = spending.carried_out(console, job, plan, dry_run, in_json)
        if made is None:
            return
        spending.settled(console, made.guarantee, job.payment.ledger, ())
        say(console, f"{len(made.table)} synthetic rows written to {made.path}")
        if made.model_path is not None:
            say(console, f"Model written to {made.model_path}")
        if in_json:
            facts = made_facts(made.model_path, made.guarantee, None)
            show_json({**plan, **facts, "table": made.path, "rows": len(made.table)})
        if made.path != out or made.model_path != model_out:
            raise typer.Exit(2)


def _bins(number: int | None, cuts: Any) -> Any:
    """A number of bins for all, or the edges of some columns."""
    if not cuts:
        return number
    found: dict[str, Any] = {}
    for cut in cuts:
        name, equals, edges = cut.rpartition("=")
        try:
            found[name] = [float(edge) for edge in edges.split(",")]
        except ValueError:
            equals = ""
        if not equals or not name:
            raise InvalidValue("cut", cut, "written COLUMN=EDGE,EDGE", "Write cut='gain=1,1000,10000'.")
    if number is not None:
        raise InvalidValue("bins", number, "left out where cut is given")
    return found


def _show_plan(console: Console, job: jobs.SynthesizeJob, dry_run: bool) -> None:
    say(console, f"A {job.label} of {len(job.columns)} columns will spend", "")
    say(console, *(f"  {line}" for line in str(job.planned).splitlines()), "")
    if dry_run:
        (due,) = job.dues
        say(console, f"Noise: {due.noise}, {described(due.event)}.", "")
        for doubt in job.planned.doubts:
            spending.warn(doubt)
