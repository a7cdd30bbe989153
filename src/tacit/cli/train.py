"""``tacit train``: a private network from files of private examples, paid for from a ledger."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tacit import _validate
from tacit.cli import options, spending
from tacit.cli.common import described, opened, pair, show_refusal, status
from tacit.cli.inspect import tested
from tacit.cli.spending import say
from tacit.errors import BudgetExceeded, InvalidValue, TacitError
from tacit.ledger import Ledger
from tacit.models import save as keep
from tacit.models.registry import SAFETENSORS, require
from tacit.relations import Unit
from tacit.schema import write

if TYPE_CHECKING:
    from tacit.jobs.train import Found, NetworkTrial, Run, Where

__all__ = ["train"]

SOURCE = "Where the examples are"
HOW = "How it is trained (by default as suits the architecture)"


def train(
    architecture: Annotated[
        str, typer.Option(help="linear, mlp, cnn, scattering or resnet.", show_default=False)
    ],
    epsilon: Annotated[float, typer.Option(help="ε to spend on the run.", show_default=False)],
    delta: Annotated[float, typer.Option(help="δ to spend; the noise is Gaussian.", show_default=False)],
    population: Annotated[
        int, typer.Option(help="How many examples there are, as far as is public.", show_default=False)
    ],
    ledger: options.LedgerPlace,
    save: Annotated[
        Path, typer.Option("--save", "--out", help="File to write the network to.", show_default=False)
    ],
    source: Annotated[
        Path | None,
        typer.Argument(
            help="An .npz file, an idx file of images, or a folder: of idx files, or of a folder by class.",
            show_default=False,
        ),
    ] = None,
    classes: Annotated[
        int | None,
        typer.Option(help="How many classes there are; public.", show_default="10, or the folders"),
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option(help="idx file of images, instead.", rich_help_panel=SOURCE, show_default=False),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(help="Its file of labels.", rich_help_panel=SOURCE, show_default="beside it"),
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
        float | None, typer.Option(help="Of sgd.", rich_help_panel=HOW, show_default=False)
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
            help="Of the weights: a decay such as 0.99, tail or none.",
            rich_help_panel=HOW, show_default=False,
        ),
    ] = None,
    sampling: Annotated[
        str | None,
        typer.Option(help="poisson, shuffle or fixed.", rich_help_panel=HOW, show_default="poisson"),
    ] = None,
    test: Annotated[
        Path | None,
        typer.Option(help="Examples to measure it on.", show_default=False, rich_help_panel=options.TEST),
    ] = None,
    test_epsilon: options.TestEpsilon = None,
    test_public: options.TestPublic = False,
    test_dataset: options.TestDataset = None,
    dataset: Annotated[
        str | None, typer.Option(help="The dataset in the ledger.", show_default="default")
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="Of the charge, in the ledger.", show_default="the architecture")
    ] = None,
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
) -> None:  # fmt: skip
    """Train a private network on a file of examples, and pay for it from a ledger.

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
    _validate.epsilon(epsilon)
    _validate.delta(delta)
    _validate.count("population", population, 1)
    spending.check_test(None if test is None else str(test), test_epsilon, test_public, test_dataset)
    _check_files(save, report, checkpoint, resume, overwrite)
    require(SAFETENSORS)
    from tacit.jobs import train as runs

    start = runs.started_with(
        checkpoint if resume else None,
        architecture=architecture, epsilon=epsilon, delta=delta, population=population, classes=classes,
        inputs=inputs, targets=targets, size=_side(size), grey=grey or None, mean=_numbers("mean", mean),
        std=_numbers("std", std), epochs=epochs, batch_size=batch_size, lr=lr, momentum=momentum,
        optimizer=optimizer, clip_norm=clip_norm, clipping=clipping, average=average, sampling=sampling,
        dataset=dataset, label=label, seed=seed,
    )  # fmt: skip
    found = _found(source, images, labels, start.where)
    with ExitStack() as stack:
        book = stack.enter_context(_ledger(ledger, start.options["dataset"], delta))
        with status("Finding the noise"):
            job = start.run(found, book)
        trial = None
        if test is not None:
            other = book
            if test_epsilon is not None and test_dataset is not None and test_dataset != book.dataset:
                other = stack.enter_context(_ledger(ledger, test_dataset, 0.0))
            trial = job.trial(other, test, test_epsilon, start.where)
        console = Console(quiet=quiet)
        _show_plan(console, job)
        charged = trial if trial is not None and trial.epsilon is not None else None
        due, tested_too = (charged, None) if resume else (job, trial)
        then = 0.0 if due is None else spending.after(due, tested_too)
        if dry_run:
            _show_dry(console, job, trial, then, resume)
        if due is not None and then is None:
            spending.refuse(due, tested_too, "examples")
        if not dry_run:
            with status("Looking whether the files are whole"):
                found.check()
                if trial is not None:
                    trial.found.check()
            _run(job, trial, console, save, report, checkpoint, resume, overwrite)


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


def _found(source: Path | None, images: Path | None, labels: Path | None, where: Where) -> Found:
    from tacit.jobs import train as runs

    if (source is None) == (images is None):
        raise TacitError(
            "The examples must be named once.", "Give a file or a folder, or --images with --labels."
        )
    if labels is not None and images is None:
        raise TacitError("--labels are those of --images.", "Name the file of images with --images.")
    return runs.find(source or images or Path(), where, labels)


def _ledger(location: str, dataset: str, delta: float) -> Ledger:
    book = opened(location, dataset, None, delta)
    try:
        if book.unit != Unit():
            raise TacitError(
                f"The ledger protects one {book.unit}; a training run protects one row, that is one example.",
                "Make a ledger for rows: tacit ledger init, without --unit.",
            )
        spending.check_delta(book, delta, "training", "Ask for less.")
    except TacitError:
        book.close()
        raise
    return book


def _check_files(
    save: Path, report: Path | None, checkpoint: Path | None, resume: bool, overwrite: bool
) -> None:
    given = [path.resolve() for path in (save, report, checkpoint) if path is not None]
    if len(set(given)) != len(given):
        raise TacitError("--save, --report and --checkpoint name the same file.", "Name different files.")
    for path in (save, report):
        if path is not None:
            spending.writable(path, overwrite)
    if resume and (checkpoint is None or not checkpoint.exists()):
        missing = "no --checkpoint" if checkpoint is None else f"no file {checkpoint}"
        raise TacitError(f"There is {missing} to go on from.", "Leave --resume out to begin a run.")
    if checkpoint is not None and not resume:
        if checkpoint.exists():
            raise TacitError(
                f"{checkpoint} holds a run already.", "Add --resume to go on with it, or name another file."
            )
        spending.writable(checkpoint, overwrite=True)


def _show_plan(console: Console, job: Run) -> None:
    network = job.network
    table = Table(title=escape(f"A {network.title} on {job.found.name}"), show_header=False)
    table.title_justify = "left"
    for name, value in (*network.made_of, *job.settings.described(job.planned)):
        table.add_row(name, escape(value))
    table.add_row("spends", escape(pair(job.planned.guarantee())))
    table.add_row("protects", escape(f"{job.planned.relation} of one {job.planned.unit}"))
    console.print(table)
    other = (
        "An image that cannot be decoded adds nothing."
        if job.found.classes
        else f"An example whose label is not from 0 to {len(network.classes_) - 1} adds nothing."
    )
    say(console, f"Taken as public: {job.found.known}. {other}")


def _show_dry(
    console: Console, job: Run, trial: NetworkTrial | None, then: float | None, resume: bool
) -> None:
    say(console, f"Event: {described(job.planned.event)}.")
    if resume:
        say(
            console,
            "The run would go on from its checkpoint. Nothing was charged, and no examples were read.",
        )
    else:
        spending.show_balance(console, job, trial, then, "examples")


def _run(
    job: Run, trial: NetworkTrial | None, console: Console, save: Path, report: Path | None,
    checkpoint: Path | None, resume: bool, overwrite: bool,
) -> None:  # fmt: skip
    """Train, save, test, and save again: what was paid for is not lost if the test fails."""
    network, place = job.network, save

    def tell(text: str) -> None:
        if sys.stderr.isatty() and not console.quiet:
            print(f"{text} …", file=sys.stderr)

    try:
        bar = False if console.quiet else None
        trainer = job.train(tell, bar=bar, checkpoint=checkpoint, resume=resume)
        stopped = trainer.step_number < job.planned.steps
        if stopped and checkpoint is not None:
            say(console, f"Stopped after step {trainer.step_number} of {job.planned.steps}. The run is paid "
                f"for: go on with --checkpoint {checkpoint} --resume.")  # fmt: skip
            raise typer.Exit(130)
        place = spending.kept(lambda path, over: keep(network, path, overwrite=over), save, overwrite)
        if trial is not None and not stopped:
            with spending.progress(console) as tell_test:
                found = trial.run(network, tell_test)
            network.evaluations_ = (found,)
            place = spending.kept(lambda path, _: keep(network, path, overwrite=True), place, True)
            console.print(tested(found))
    except BudgetExceeded as error:
        show_refusal(error, job.book)
        raise typer.Exit(2) from error
    assert network.guarantee_ is not None
    spending.settled(console, network.guarantee_, job, trial, "for the whole run" if resume else "now")
    if trial is None:
        say(console, "Not tested: accuracy on the examples it was trained on would leak. "
            "--test measures on others.")  # fmt: skip
    say(console, f"Model written to {place}")
    if report is not None:
        _write_report(job, place, report, trial, overwrite)
        say(console, f"Report written to {report}")
    if stopped:
        say(console, f"Stopped after step {trainer.step_number} of {job.planned.steps}; all are charged.")
        raise typer.Exit(130)
    if place != save:
        raise typer.Exit(2)


def _write_report(job: Run, model: Path, report: Path, trial: NetworkTrial | None, overwrite: bool) -> None:
    from tacit.report.facts import Facts, Spending
    from tacit.report.model import model_page

    books = [job.book, *([] if trial is None or trial.book is job.book else [trial.book])]
    with status(f"Drawing {report}"):
        page = model_page(Facts.of(job.network, model.name), [Spending.of(book) for book in books])
    write(report, page, overwrite=overwrite)
