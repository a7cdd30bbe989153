"""``tacit local``: a private column into reports that anybody may see, and reports into frequencies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tacit import _validate, jobs
from tacit.cli import completion, options, spending
from tacit.cli.common import described, say, show_json, status, wants_json

if TYPE_CHECKING:
    from tacit.local import Frequencies

__all__ = ["app"]

app = typer.Typer(
    help="Randomize a column into reports, and estimate frequencies from reports.", no_args_is_help=True
)


@app.command()
def randomize(
    source: options.Source,
    column: Annotated[
        str,
        typer.Option(help="The column to randomize.", show_default=False, autocompletion=completion.columns),
    ],
    schema: options.SchemaFile,
    epsilon: Annotated[float, typer.Option(help="ε of each report.", show_default=False)],
    ledger: options.LedgerPlace,
    out: Annotated[Path, typer.Option(help="CSV file to write reports to.", show_default=False)],
    method: Annotated[
        str,
        typer.Option(
            help="How reports are made: see above.",
            autocompletion=completion.oracles,
        ),
    ] = "recommended",
    delta: Annotated[
        float, typer.Option(help="Above 0, charge the file as shuffled reports at this δ.")
    ] = 0.0,
    dataset: options.Dataset = "default",
    dry_run: options.DryRun = False,
    label: options.Label = None,
    overwrite: options.Overwrite = False,
    delimiter: options.Delimiter = None,
    seed: options.Seed = None,
    quiet: options.Quiet = False,
    format: options.Format = "table",
) -> None:
    """Turn a column into randomized reports, one for each row, and pay for it from a ledger.

    The file of reports is a CSV with one column, and beside it, with .toml
    after its name, lies a description: the method, ε and the categories. Both
    may be given to anybody. The reports are in random order.

    Methods:

        randomized-response  a category; best for few
        hadamard-response    a number of few bits
        local-hashing        a number of few bits; best for many categories
        subset-selection     a set of categories; the least variance
        optimized-unary      a bit for each category
        symmetric-unary      a bit for each category
        recommended          the one with the least variance and small reports

    The schema declares the categories of the column. A missing or undeclared
    value is replaced by a category that is drawn at random. The file shows how
    many rows there are: a ledger for add_remove needs the schema's population,
    and just so many reports are made.

    Every run makes new reports of the same rows, and is charged anew. With
    --delta the charge is that of reports that nobody can attribute: much less
    than ε for a large table, for whoever sees nothing but the file.
    """
    in_json = wants_json(format)
    with jobs.plan_local_randomize(
        source, column=column, schema=schema, epsilon=epsilon, ledger=ledger, method=method, delta=delta,
        out=out, overwrite=overwrite, dataset=dataset, label=label, delimiter=delimiter, random_state=seed,
    ) as job:  # fmt: skip
        console = Console(quiet=quiet or in_json)
        _show_plan(console, job)
        plan = _plan_facts(job)
        made = spending.carried_out(console, job, plan, dry_run, in_json)
        if made is None:
            return
        spending.settled(console, made.guarantee, job.payment.ledger, ())
        say(
            console,
            f"{len(made.reports):,} reports written to {made.path}, and how they were made beside it.",
        )
        if in_json:
            show_json({
                **plan, "reports": len(made.reports), "path": made.path,
                "guarantee": json.loads(made.guarantee.to_json()),
            })  # fmt: skip
        if made.path != out:
            raise typer.Exit(2)


@app.command()
def estimate(
    reports: Annotated[
        Path, typer.Argument(help="A CSV file that tacit local randomize wrote.", show_default=False)
    ],
    confidence: Annotated[float, typer.Option(help="Confidence of each interval.")] = 0.95,
    format: options.Format = "table",
) -> None:
    """Estimate how frequent each category is, from a file of reports; spends nothing.

    The description beside the reports says how they were made. Estimates are
    unbiased, and may be below 0 or above 1; intervals are within. Lines that
    hold no report of the method are left out, and counted.
    """
    in_json = wants_json(format)
    _validate.open_probability("confidence", confidence)
    with status(f"Reading {reports}"):
        found = jobs.local_estimate(reports)
    if in_json:
        show_json(_facts(found, confidence))
        return
    table = Table("category", "frequency", f"{100 * confidence:g}% interval", title=escape(str(reports)))
    table.title_justify = "left"
    for row in _rows(found, confidence):
        table.add_row(
            escape(str(row["category"])), f"{row['frequency']:.4f}", f"{row['low']:.4f} to {row['high']:.4f}"
        )
    console = Console()
    console.print(table)
    left_out = f"; {found.refused:,} lines hold no report and were left out" if found.refused else ""
    say(console, f"From {found.reports:,} reports{left_out}. Nothing was charged.", str(found.guarantee))


def _show_plan(console: Console, job: jobs.RandomizeJob) -> None:
    many = "a report for each row" if job.population is None else f"{job.population:,} reports"
    say(console, f"{many[0].upper()}{many[1:]} of {job.column}, by {type(job.oracle).__name__}:")
    say(console, f"  {described(job.dues[0].event)}, {job.oracle.size} categories", "")
    if job.reason:
        say(console, job.reason, "")


def _plan_facts(job: jobs.RandomizeJob) -> dict[str, Any]:
    (due,) = job.dues
    return {
        "label": job.label,
        "column": job.column,
        "method": type(job.oracle).__name__,
        "reason": job.reason or None,
        "categories": job.oracle.categories,
        "population": job.population,
        "epsilon": due.epsilon,
        "delta": due.delta,
        "noise": due.noise,
        "event": json.loads(due.event.to_json()),
        "ledgers": spending.balances(job),
    }


def _rows(found: Frequencies, confidence: float) -> list[dict[str, Any]]:
    low, high = found.interval(confidence)
    return [
        {"category": name, "frequency": float(value), "low": float(least), "high": float(most)}
        for name, value, least, most in zip(found.categories, found.value, low, high, strict=True)
    ]


def _facts(found: Frequencies, confidence: float) -> dict[str, Any]:
    return {
        "frequencies": _rows(found, confidence),
        "confidence": confidence,
        "reports": found.reports,
        "refused": found.refused,
        "guarantee": json.loads(found.guarantee.to_json()),
    }
