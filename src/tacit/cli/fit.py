"""``tacit fit``: a private model from a file of private rows, paid for from a ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tacit import jobs
from tacit.cli import completion, options, spending
from tacit.cli.common import described, made_facts, say, show_json, transforms_of, wants_json
from tacit.cli.inspect import tested
from tacit.estimators.registry import ESTIMATORS

__all__ = ["fit"]


def fit(
    source: options.Source,
    schema: options.SchemaFile,
    model: Annotated[
        str,
        typer.Option(
            help=f"One of {', '.join(ESTIMATORS)}: see above.",
            show_default=False,
            autocompletion=completion.models,
        ),
    ],
    epsilon: Annotated[float, typer.Option(help="ε to spend on the fit.", show_default=False)],
    ledger: options.LedgerPlace,
    out: Annotated[Path, typer.Option(help="File to write the model to.", show_default=False)],
    target: Annotated[
        str | None,
        typer.Option(
            help="The column to predict; none for kmeans and pca.",
            show_default=False, autocompletion=completion.columns,
        ),
    ] = None,
    clusters: Annotated[
        int | None, typer.Option(help="How many, for kmeans.", show_default="8")
    ] = None,
    components: Annotated[
        int | None, typer.Option(help="How many, for pca.", show_default="2")
    ] = None,
    delta: options.Delta = 0.0,
    dataset: options.Dataset = "default",
    noise: Annotated[
        str | None,
        typer.Option(help="Where noise enters: objective, output, …", show_default="the model's own"),
    ] = None,
    interval_share: Annotated[
        float, typer.Option(help="The share of ε that buys intervals of the coefficients: 0.1, say.")
    ] = 0.0,
    buy_population: Annotated[
        bool,
        typer.Option("--buy-population", help="Buy the number of rows with a share of ε; gradient needs it."),
    ] = False,
    norm: Annotated[
        float | None, typer.Option(help="Shorten rows to this ℓ2 norm.", show_default="√(columns)")
    ] = None,
    transform: options.Transform = None,
    exclude: options.Exclude = None,
    test: options.Test = None,
    test_share: Annotated[
        float | None,
        typer.Option(
            help="Or set this share of the rows aside, 0.2 say, and measure on those, with --test-epsilon.",
            rich_help_panel=options.TEST,
            show_default=False,
        ),
    ] = None,
    test_epsilon: options.TestEpsilon = None,
    test_public: options.TestPublic = False,
    test_dataset: options.TestDataset = None,
    groups_by: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN,…",
            help="Measure by these columns too.",
            rich_help_panel=options.TEST,
            show_default=False,
        ),
    ] = None,
    dry_run: options.DryRun = False,
    label: options.Label = None,
    overwrite: options.Overwrite = False,
    delimiter: options.Delimiter = None,
    seed: options.Seed = None,
    quiet: options.Quiet = False,
    format: options.Format = "table",
) -> None:
    """Fit a private model to a file, and pay for it from a ledger.

    The schema says what is public: categories become one feature each, numbers
    are scaled by their bounds. The target of a classifier has declared
    categories, which are its classes; that of a regression has bounds.

    Models that classify:

        logistic           coefficients and probabilities; where to begin
        svc                coefficients and a margin, no probabilities
        naive-bayes        counts by class; few rows, little ε
        decision-tree      one small tree, to be read
        random-trees       many trees with random splits, only leaves cost
        gradient-boosting  a sum of curves, one per column; often the best

    Models that predict a number, and gradient-boosting too:

        linear             least squares
        ridge              least squares with a penalty

    Models that need no target:

        kmeans             clusters, by their centres
        pca                principal components

    The ledger is charged before a row is read. With --dry-run nothing is
    charged, read or written, and the exit code is 2 if the budget would not
    suffice. A refused charge changes nothing.

    With --test the model is measured on rows that were not used to fit it:
    charged with --test-epsilon, or free if the rows are public. The rows that
    the model was fitted to are refused, whatever their file is called.
    With --test-share rows of the same file are set aside: each goes to one
    side by a keyed hash of its unit, or of its content where no unit is
    declared, before anything else is read. Both parts are charged.
    """
    in_json = wants_json(format)
    with jobs.plan_fit(
        source, schema=schema, target=target, model=model, epsilon=epsilon, ledger=ledger, delta=delta,
        dataset=dataset, out=out, overwrite=overwrite, noise=noise, interval_share=interval_share,
        n_clusters=clusters, n_components=components, buy_population=buy_population, norm=norm,
        transforms=transforms_of(transform or ()), exclude=exclude or (), test=test,
        test_epsilon=test_epsilon, test_public=test_public, test_dataset=test_dataset,
        groups_by=_names(groups_by), label=label, delimiter=delimiter, random_state=seed,
        test_share=test_share,
    ) as job:  # fmt: skip
        console = Console(quiet=quiet or in_json)
        _show_plan(console, job, dry_run)
        plan = spending.plan_facts(job, features=list(job.maker.features.names))
        made = spending.carried_out(console, job, plan, dry_run, in_json)
        if made is None:
            return
        if made.evaluation is not None:
            console.print(tested(made.evaluation))
        spending.settled(console, made.guarantee, job.payment.ledger, job.dues[1:])
        say(console, f"Model written to {made.path}")
        if in_json:
            show_json({**plan, **made_facts(made.path, made.guarantee, made.evaluation)})
        if made.path != out:
            raise typer.Exit(2)


def _names(given: str | None) -> list[str]:
    return [name.strip() for name in given.split(",")] if given else []


def _show_plan(console: Console, job: jobs.FitJob, dry_run: bool) -> None:
    features, used = job.maker.features, len(job.maker.columns)
    say(console, f"A {job.label}, from {len(features.names)} features of {used} columns, will spend", "")
    say(console, *(f"  {line}" for line in str(job.planned).splitlines()), "")
    if job.side is not None and job.test is not None:
        whom = job.payment.unit.column or "row"
        aside = f"A share of {job.side.split.share:g} of the rows is set aside by a keyed hash of each {whom}"
        say(console, f"{aside}, to measure it on with ε = {job.test.epsilon:g}.", "")
    if dry_run:
        (due, *_) = job.dues
        say(console, f"Noise: {due.noise}, {described(due.event)}.", "", job.maker.describe(), "")
        if job.planned.expected:
            say(console, "Expected, from public facts:", *(f"  {line}" for line in job.planned.expected), "")
        for doubt in job.planned.doubts:
            spending.warn(doubt)
