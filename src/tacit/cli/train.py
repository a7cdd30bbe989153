"""``tacit train``: a private network from files of private examples, paid for from a ledger."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tacit import _validate, jobs
from tacit.cli import completion, embedding, options, spending
from tacit.cli.common import (
    described,
    made_facts,
    pair,
    say,
    show_json,
    status,
    transforms_of,
    wants_json,
)
from tacit.cli.inspect import tested
from tacit.errors import InvalidValue

if TYPE_CHECKING:
    from tacit.jobs.job import Say
    from tacit.jobs.networks import Trained, TrainJob

__all__ = ["train"]

TABLE = "A table"
SOURCE = "Where images and arrays are"
HOW = "How it is trained (by default as suits the architecture)"


def train(
    epsilon: Annotated[float, typer.Option(help="ε to spend on the run.", show_default=False)],
    delta: Annotated[float, typer.Option(help="δ to spend; the noise is Gaussian.", show_default=False)],
    ledger: options.LedgerPlace,
    out: Annotated[Path, typer.Option(help="File to write the network to.", show_default=False)],
    source: Annotated[
        Path | None,
        typer.Argument(
            help="A CSV or Parquet file, with --schema and --target; an .npz file, an idx file of images, or "
            "a folder: of idx files, or of a folder by class.",
            show_default=False,
        ),
    ] = None,
    architecture: Annotated[
        str | None,
        typer.Option(
            help="linear, mlp or autoencoder; for images also cnn, scattering, patches or resnet.",
            show_default="linear, on --features", autocompletion=completion.architectures,
        ),
    ] = None,
    features: embedding.Features = None,
    pixels: embedding.Pixels = None,
    mirrored: embedding.Mirrored = False,
    text: embedding.Text = None,
    tokens: embedding.Tokens = None,
    cache: embedding.Cache = None,
    population: Annotated[
        int | None,
        typer.Option(
            help="How many examples there are, as far as is public.", show_default="the schema's"
        ),
    ] = None,
    schema: Annotated[
        Path | None,
        typer.Option(
            help="What is public about the table; see tacit schema.", rich_help_panel=TABLE,
            show_default=False,
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            help="The column to predict.", rich_help_panel=TABLE, show_default=False,
            autocompletion=completion.columns,
        ),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN", help="Make no feature of it; may be repeated.", rich_help_panel=TABLE,
            autocompletion=completion.columns,
        ),
    ] = None,
    transform: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=log1p|sqrt", help="Transform a number before scaling; may be repeated.",
            rich_help_panel=TABLE,
        ),
    ] = None,
    classes: Annotated[
        int | None,
        typer.Option(help="How many classes there are; public.", show_default="10, or the folders"),
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option(help="idx file of images, as the source.", rich_help_panel=SOURCE, show_default=False),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(help="idx file with their labels.", rich_help_panel=SOURCE, show_default="beside it"),
    ] = None,
    inputs: Annotated[
        str | None,
        typer.Option(help="Array of inputs in .npz.", rich_help_panel=SOURCE, show_default="x, images, …"),
    ] = None,
    targets: Annotated[
        str | None,
        typer.Option(help="Array of labels in .npz.", rich_help_panel=SOURCE, show_default="y, labels, …"),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(
            metavar="SIDE|HxW", help="Make images in folders this large.", rich_help_panel=SOURCE,
            show_default=False,
        ),
    ] = None,
    grey: Annotated[
        bool, typer.Option("--grey", help="Make images in folders grey.", rich_help_panel=SOURCE)
    ] = False,
    mean: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER,…", rich_help_panel=SOURCE, show_default="0",
            help="Subtract this, one for all or for each channel; public. Bytes are divided by 255 before.",
        ),
    ] = None,
    std: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER,…", help="Then divide by this.", rich_help_panel=SOURCE, show_default="1"
        ),
    ] = None,
    epochs: Annotated[
        float | None,
        typer.Option(help="Passes over the data, in expectation.", rich_help_panel=HOW, show_default=False),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(help="Expected size of a batch.", rich_help_panel=HOW, show_default=False),
    ] = None,
    lr: Annotated[
        float | None, typer.Option(help="Learning rate.", rich_help_panel=HOW, show_default=False)
    ] = None,
    momentum: Annotated[
        float | None, typer.Option(help="Momentum of sgd.", rich_help_panel=HOW, show_default=False)
    ] = None,
    optimizer: Annotated[
        str | None, typer.Option(help="sgd, adam or adamw.", rich_help_panel=HOW, show_default=False)
    ] = None,
    clip_norm: Annotated[
        float | None,
        typer.Option(help="Length that gradients are cut to.", rich_help_panel=HOW, show_default=False),
    ] = None,
    clipping: Annotated[
        str | None,
        typer.Option(
            help="flat, per-layer, automatic or quantile.", rich_help_panel=HOW, show_default="flat"
        ),
    ] = None,
    average: Annotated[
        str | None,
        typer.Option(
            help="Average of the weights: a decay such as 0.99, tail or none.",
            rich_help_panel=HOW, show_default=False,
        ),
    ] = None,
    fading: Annotated[
        str | None,
        typer.Option(
            help="What the learning rate does over the run: none, or 'to zero'.", rich_help_panel=HOW,
            show_default=False,
        ),
    ] = None,
    sampling: Annotated[
        str | None,
        typer.Option(
            help="poisson, shuffle, fixed, cyclic or ordered.", rich_help_panel=HOW, show_default="poisson"
        ),
    ] = None,
    noise: Annotated[
        str | None,
        typer.Option(
            help="independent, or correlated: steps take back noise of earlier steps; without sampling.",
            rich_help_panel=HOW, show_default="independent",
        ),
    ] = None,
    bands: Annotated[
        int | None,
        typer.Option(
            help="How many steps correlated noise reaches.", rich_help_panel=HOW, show_default="up to 32"
        ),
    ] = None,
    test: options.Test = None,
    test_epsilon: options.TestEpsilon = None,
    test_public: options.TestPublic = False,
    test_dataset: options.TestDataset = None,
    dataset: Annotated[
        str | None, typer.Option(help="The dataset in the ledger.", show_default="default")
    ] = None,
    label: options.Label = None,
    report: Annotated[
        Path | None, typer.Option(help="HTML page to write about it.", show_default=False)
    ] = None,
    dry_run: options.DryRun = False,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Write the run here at every epoch.", show_default=False)
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --checkpoint.")] = False,
    overwrite: options.Overwrite = False,
    seed: options.Seed = None,
    quiet: options.Quiet = False,
    format: options.Format = "table",
) -> None:  # fmt: skip
    """Train a private network on a file of examples, and pay for it from a ledger.

    A table, CSV or Parquet, is read by its schema: categories become one
    feature each, numbers are scaled by their bounds. A target with declared
    categories is learnt as classes, one with bounds as a number; a row whose
    target is neither adds nothing. Images and arrays need no schema.

    With --features only a small network is trained, on numbers that a fixed
    public function makes of each image or text: wavelets, or a network that was
    trained on public data and is installed as a package; nothing is downloaded.

    What is public is declared: how many examples and classes there are. Names,
    shapes and types in the header of the file are taken as public, and so are
    the names of folders by class; this is printed. An example whose label is
    not from 0 to classes − 1 adds nothing, and neither does an image that
    cannot be decoded.

    The ledger is charged before an example is used; whether the files are whole
    is looked at before. With --dry-run nothing is charged, read or written, and
    the exit code is 2 if the budget would not suffice. A refused charge changes
    nothing.

    With --resume a run goes on as it was started: options that are left out are
    what they were, and one that differs is refused.

    Accuracy on the examples it was trained on is not shown: it would leak.
    With --test the network is measured on others: charged with --test-epsilon,
    or free if they are public.
    """
    in_json = wants_json(format)
    with status("Finding the noise"):
        job = jobs.plan_train(
            source, architecture=architecture, epsilon=epsilon, delta=delta, population=population,
            ledger=ledger, schema=schema, target=target, exclude=exclude or (),
            transforms=transforms_of(transform or ()), features=features, pixels=pixels,
            mirrored=mirrored or None, text=text,
            tokens=tokens, cache=cache, dataset=dataset, out=out, overwrite=overwrite,
            classes=classes, images=images, labels=labels, inputs=inputs, targets=targets, size=_side(size),
            grey=grey, mean=_numbers("mean", mean), std=_numbers("std", std), epochs=epochs,
            batch_size=batch_size, lr=lr, momentum=momentum, optimizer=optimizer, clip_norm=clip_norm,
            clipping=clipping, average=average, fading=fading, sampling=sampling, noise=noise, bands=bands,
            test=test, test_epsilon=test_epsilon, test_public=test_public, test_dataset=test_dataset,
            label=label, report=report, checkpoint=checkpoint, resume=resume, random_state=seed,
        )  # fmt: skip
    with job:
        console = Console(quiet=quiet or in_json)
        _show_plan(console, job)
        embedding.show_cache(console, job)
        plan = _plan_facts(job)
        if dry_run and in_json:
            show_json(plan)
        elif dry_run:
            _show_dry(console, job)
        with spending.refusals(job.payment.ledger):
            job.afford()
            if dry_run:
                return
            with status("Looking whether the files are whole"):
                job.check()
            with embedding.counter(console, job) as seen:
                bar = False if console.quiet else None
                made = job.run(_teller(console), spending.warn, bar=bar, seen=seen)
        _show_made(console, job, made)
        if in_json:
            done = {"stopped": made.stopped, "steps_done": made.steps}
            show_json({**plan, **done, **made_facts(made.path, made.guarantee, made.evaluation)})
        if made.stopped:
            raise typer.Exit(130)
        if made.path != out:
            raise typer.Exit(2)


def _numbers(name: str, text: str | None) -> tuple[float, ...] | None:
    """Numbers between commas."""
    if text is None:
        return None
    try:
        return tuple(_validate.finite(name, float(part)) for part in text.split(","))
    except ValueError:
        raise InvalidValue(name, text, "a number, or one for each channel between commas") from None


def _side(text: str | None) -> tuple[int, int] | None:
    """Height and width from 32 or 28x32."""
    if text is None:
        return None
    parts = text.lower().split("x")
    if len(parts) > 2 or not all(part.isdecimal() and 0 < int(part) < 10_000 for part in parts):
        raise InvalidValue("size", text, "a number of pixels, or height and width, such as 28x32")
    return int(parts[0]), int(parts[-1])


def _show_plan(console: Console, job: TrainJob) -> None:
    network = job.network
    table = Table(title=escape(f"A {network.title} on {job.found.name}"), show_header=False)
    table.title_justify = "left"
    for name, value in (*network.made_of, *job.settings.described(job.planned)):
        table.add_row(name, escape(value))
    table.add_row("spends", escape(pair(job.planned.guarantee())))
    table.add_row("protects", escape(f"{job.planned.relation} of one {job.planned.unit}"))
    console.print(table)
    if network.maker is not None:
        about = "is missing or not declared" if network.classes_ else "is missing"
        target = network.maker.target
        say(console, f"Taken as public: {job.found.known}. A row whose {target} {about} adds nothing.")
        return
    other = (
        "An image that cannot be decoded adds nothing."
        if job.found.classes
        else f"An example whose label is not from 0 to {len(network.classes_) - 1} adds nothing."
    )
    say(console, f"Taken as public: {job.found.known}. {other}")


def _plan_facts(job: TrainJob) -> dict[str, Any]:
    """What the run will do and cost, for JSON."""
    planned = job.planned
    return {
        "network": job.network.title,
        "settings": dict((*job.network.made_of, *job.settings.described(planned))),
        "guarantee": json.loads(planned.guarantee().to_json()),
        "protects": f"{planned.relation} of one {planned.unit}",
        "public": job.found.known,
        "ledgers": [] if job.resume else spending.balances(job),
    }


def _show_dry(console: Console, job: TrainJob) -> None:
    say(console, f"Event: {described(job.planned.event)}.")
    if job.resume:
        say(
            console,
            "The run would go on from its checkpoint. Nothing was charged, and no examples were read.",
        )
    else:
        spending.show_balances(console, job)


def _teller(console: Console) -> Say:
    """Says what is done in lines of standard error, which leave the bar of the steps alone."""

    def tell(text: str) -> None:
        if sys.stderr.isatty() and not console.quiet:
            print(f"{text} …", file=sys.stderr)

    return tell


def _show_made(console: Console, job: TrainJob, made: Trained) -> None:
    steps = f"Stopped after step {made.steps} of {job.planned.steps}"
    if made.guarantee is None:
        say(console, f"{steps}. The run is paid for: go on with --checkpoint {job.checkpoint} --resume.")
        return
    if made.evaluation is not None:
        console.print(tested(made.evaluation))
    when, tests = ("for the whole run", job.dues) if job.resume else ("now", job.dues[1:])
    spending.settled(console, made.guarantee, job.payment.ledger, tests, when)
    if job.test is None:
        say(
            console,
            "Not tested: accuracy on the examples it was trained on would leak. --test measures on others.",
        )
    say(console, f"Model written to {made.path}")
    if job.report is not None:
        with status(f"Drawing {job.report}"):
            job.write_report(made)
        say(console, f"Report written to {job.report}")
    if made.stopped:
        say(console, f"{steps}; all are charged.")
