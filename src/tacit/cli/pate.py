"""``tacit pate``: answers to public queries from private votes, and students that learn from them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from tacit import _validate, jobs
from tacit.cli import completion, options, spending
from tacit.cli.common import described, made_facts, say, show_json, transforms_of, wants_json
from tacit.errors import InvalidValue

__all__ = ["app"]

app = typer.Typer(
    help="Answer public queries from the votes of private teachers, and teach a student.",
    no_args_is_help=True,
)

AGGREGATORS = ("confident", "gnmax", "lnmax")
OPTIONS = {"answered": "answers", "asked": "ask"}
"""The options whose arguments of the library have other names, by those names."""


@app.command()
def answer(
    votes: Annotated[
        Path, typer.Argument(help="Votes: .npy or CSV, a row for each query.", show_default=False)
    ],
    aggregator: Annotated[
        str,
        typer.Option(
            help="confident (a threshold, then Gaussian noise), gnmax (Gaussian) or lnmax (Laplace).",
            show_default=False,
            autocompletion=lambda incomplete: [name for name in AGGREGATORS if name.startswith(incomplete)],
        ),
    ],
    ledger: options.LedgerPlace,
    threshold: Annotated[
        float | None,
        typer.Option(help="Of confident: votes that the largest count must have.", show_default=False),
    ] = None,
    sigma_threshold: Annotated[
        float | None,
        typer.Option(help="Of confident: noise of the test of the threshold.", show_default=False),
    ] = None,
    sigma: Annotated[
        float | None, typer.Option(help="Noise of the counts, for confident and gnmax.", show_default=False)
    ] = None,
    gamma: Annotated[
        float | None, typer.Option(help="Of lnmax: 1 / the scale of the noise.", show_default=False)
    ] = None,
    answers: Annotated[
        int | None, typer.Option(help="Answer at most so many queries.", show_default="all")
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(help="Answer as many as this ε allows, in the worst case.", show_default=False),
    ] = None,
    delta: options.Delta = 0.0,
    queries: Annotated[
        int | None, typer.Option(help="How many queries a CSV file holds.", show_default="what .npy says")
    ] = None,
    classes: Annotated[
        int | None, typer.Option(help="How many classes a CSV file holds.", show_default="what .npy says")
    ] = None,
    dataset: options.Dataset = "default",
    out: Annotated[
        Path | None, typer.Option(help="CSV file to write answers to.", show_default="standard output")
    ] = None,
    dry_run: options.DryRun = False,
    label: options.Label = None,
    overwrite: options.Overwrite = False,
    seed: options.Seed = None,
    quiet: options.Quiet = False,
    format: options.Format = "table",
) -> None:
    """Answer public queries from a file of votes, and pay for it from a ledger.

    The file holds how many teachers voted for each class: a row for each
    query, a column for each class. Every person must have been among the data
    of one teacher alone. The shape of the file is public; for a CSV file, say
    it with --queries and --classes.

    The worst case is charged before a vote is read: a test of the threshold
    for every query, and as many noisy answers as --answers or --epsilon allow.
    An empty answer is a query that teachers disagreed about, or that came
    after the last answer that was paid for.
    """
    in_json = wants_json(format)
    chosen = _aggregator(
        aggregator,
        {"threshold": threshold, "sigma_threshold": sigma_threshold, "sigma": sigma, "gamma": gamma},
    )
    with _named_by_option():
        planned = jobs.plan_pate_answer(
            votes, aggregator=chosen, ledger=ledger, delta=delta, epsilon=epsilon, answers=answers,
            queries=queries, classes=classes, dataset=dataset, out=out, overwrite=overwrite, label=label,
            random_state=seed,
        )  # fmt: skip
    with planned as job:
        to_stdout = out is None
        console = Console(quiet=quiet or in_json, stderr=to_stdout and not dry_run)
        say(
            console, f"{job.label.capitalize()}, at most {job.plan.answered}: {described(job.plan.event)}", ""
        )
        plan = _plan_facts(job)
        made = spending.carried_out(console, job, plan, dry_run, in_json)
        if made is None:
            return
        spending.settled(console, made.guarantee, job.payment.ledger, ())
        if in_json:
            show_json(
                {**plan, "answers": _told(made.labels), "guarantee": json.loads(made.guarantee.to_json())}
            )
        elif to_stdout:
            typer.echo("query,answer")
            for query, found in enumerate(_told(made.labels)):
                typer.echo(f"{query},{'' if found is None else found}")
        else:
            say(console, f"Answers written to {made.path}")
        if made.path != out:
            raise typer.Exit(2)


@app.command()
def fit(
    source: options.Source,
    schema: options.SchemaFile,
    target: Annotated[
        str,
        typer.Option(help="The column to predict.", show_default=False, autocompletion=completion.columns),
    ],
    queries: Annotated[
        Path,
        typer.Option(help="Public rows of the same columns; the target may be absent.", show_default=False),
    ],
    epsilon: Annotated[float, typer.Option(help="ε to spend on the answers.", show_default=False)],
    delta: Annotated[float, typer.Option(help="δ to spend: above 0.", show_default=False)],
    ledger: options.LedgerPlace,
    out: Annotated[Path, typer.Option(help="File to write the model to.", show_default=False)],
    teachers: Annotated[int, typer.Option(help="How many teachers.")] = 250,
    teacher: Annotated[
        str, typer.Option(help="forest, logistic, gradient-boosting, …", autocompletion=completion.students)
    ] = "forest",
    student: Annotated[
        str, typer.Option(help="forest, logistic, gradient-boosting, …", autocompletion=completion.students)
    ] = "forest",
    ask: Annotated[
        int | None, typer.Option(help="Ask at most so many queries.", show_default="planned")
    ] = None,
    answers: Annotated[
        int | None, typer.Option(help="Answer at most so many.", show_default="planned")
    ] = None,
    semi_supervised: Annotated[
        str | None,
        typer.Option(
            metavar="self-training|propagation|…",
            help="Learn from unanswered queries too.",
            show_default=False,
        ),
    ] = None,
    dataset: options.Dataset = "default",
    transform: options.Transform = None,
    exclude: options.Exclude = None,
    jobs_: Annotated[int, typer.Option("--jobs", help="Train teachers in so many processes.")] = 1,
    dry_run: options.DryRun = False,
    label: options.Label = None,
    overwrite: options.Overwrite = False,
    delimiter: options.Delimiter = None,
    seed: options.Seed = None,
    quiet: options.Quiet = False,
    format: options.Format = "table",
) -> None:
    """Train teachers on a private file, and a student on their answers to public rows.

    Each row, or each unit of the schema, goes to one teacher, drawn at random.
    Teachers vote on the public rows of --queries; noisy answers of those they
    agree about teach the student, which is all that is kept.

    The ledger is charged before a private row is read. With --dry-run nothing
    is charged or written, and the exit code is 2 if the budget would not
    suffice.
    """
    in_json = wants_json(format)
    with _named_by_option():
        planned = jobs.plan_pate_fit(
            source, schema=schema, target=target, queries=queries, epsilon=epsilon, delta=delta,
            ledger=ledger, teacher=teacher, student=student, n_teachers=teachers, n_queries=ask,
            n_answers=answers, semi_supervised=semi_supervised, dataset=dataset, out=out, overwrite=overwrite,
            transforms=transforms_of(transform or ()), exclude=exclude or (), label=label,
            delimiter=delimiter, n_jobs=jobs_, random_state=seed,
        )  # fmt: skip
    with planned as job:
        console = Console(quiet=quiet or in_json)
        say(
            console,
            f"A {job.label} will spend",
            "",
            *(f"  {line}" for line in str(job.plan).splitlines()),
            "",
        )
        plan = _plan_facts(job)
        made = spending.carried_out(console, job, plan, dry_run, in_json)
        if made is None:
            return
        for name, fact in made.model[-1].describe().facts:
            say(console, f"{name}: {fact}")
        spending.settled(console, made.guarantee, job.payment.ledger, ())
        say(console, f"Model written to {made.path}")
        if in_json:
            facts = dict(made.model[-1].describe().facts)
            show_json({**plan, **made_facts(made.path, made.guarantee, None), "facts": facts})
        if made.path != out:
            raise typer.Exit(2)


@contextmanager
def _named_by_option() -> Iterator[None]:
    """Within, an error about an argument of the library names the option that was given."""
    try:
        yield
    except InvalidValue as error:
        given = vars(error)
        if given["name"] not in OPTIONS:
            raise
        raise InvalidValue(OPTIONS[given["name"]], given["value"], given["requirement"]) from error


def _told(labels: Any) -> list[int | None]:
    return [label if label >= 0 else None for label in labels]


def _aggregator(name: str, given: dict[str, float | None]) -> Any:
    """The aggregator that the options describe; each needs its own, and takes no other."""
    from tacit.pate import ConfidentGNMax, GNMax, LNMax

    needed = {
        "confident": ("threshold", "sigma_threshold", "sigma"),
        "gnmax": ("sigma",),
        "lnmax": ("gamma",),
    }
    wanted = needed[_validate.choice("aggregator", name, AGGREGATORS)]
    for option, value in given.items():
        if (value is not None) is not (option in wanted):
            raise InvalidValue(option, value, f"{'given' if value is None else 'left out'} for {name}")
    values: dict[str, Any] = {option: value for option, value in given.items() if value is not None}
    if name == "confident":
        return ConfidentGNMax(sigma_answer=values.pop("sigma"), **values)
    return GNMax(**values) if name == "gnmax" else LNMax(**values)


def _plan_facts(job: jobs.VotesJob | jobs.PateFitJob) -> dict[str, Any]:
    """What will be asked and paid, for JSON."""
    from tacit.pate.planning import shown

    plan = job.plan
    return {
        "label": job.label,
        "aggregator": shown(plan.aggregator),
        "queries": plan.asked,
        "most_answers": plan.answered,
        "epsilon": plan.epsilon,
        "delta": plan.delta,
        "protects": f"{plan.relation} of one {job.payment.unit}",
        "doubts": list(plan.doubts),
        "noise": job.dues[0].noise,
        "event": json.loads(plan.event.to_json()),
        "ledgers": spending.balances(job),
    }
