"""A training run, from files of private examples to a saved network."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from tacit import _validate
from tacit.errors import TacitError
from tacit.jobs import books, files, testing
from tacit.jobs.job import whole
from tacit.relations import Unit

if TYPE_CHECKING:
    from tacit.jobs.networks import Trained, TrainJob

__all__ = ["plan_train", "train"]


def plan_train(
    source: str | os.PathLike[str] | None = None,
    *,
    architecture: str,
    epsilon: float,
    delta: float,
    population: int,
    ledger: books.Place,
    dataset: str | None = None,
    out: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    classes: int | None = None,
    images: str | os.PathLike[str] | None = None,
    labels: str | os.PathLike[str] | None = None,
    inputs: str | None = None,
    targets: str | None = None,
    size: tuple[int, int] | None = None,
    grey: bool = False,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    epochs: float | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
    momentum: float | None = None,
    optimizer: str | None = None,
    clip_norm: float | None = None,
    clipping: str | None = None,
    average: float | str | None = None,
    sampling: str | None = None,
    test: str | os.PathLike[str] | None = None,
    test_epsilon: float | None = None,
    test_public: bool = False,
    test_dataset: str | None = None,
    label: str | None = None,
    report: str | os.PathLike[str] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = False,
    random_state: int | None = None,
) -> TrainJob:
    """Plan :func:`train`: check what is public, find files and noise; nothing is read or charged."""
    _validate.epsilon(epsilon)
    _validate.delta(delta)
    _validate.count("population", population, 1)
    testing.check_options(test, test_epsilon, test_public, test_dataset)
    saved, page, run = (None if path is None else Path(path) for path in (out, report, checkpoint))
    _check_files(saved, page, run, resume, overwrite, [source, images, labels, test, ledger])
    from tacit.models.registry import SAFETENSORS, require

    require(SAFETENSORS)
    from tacit.data.examples import find
    from tacit.jobs.networks import TrainJob, started_with

    start = started_with(
        run if resume else None,
        architecture=architecture, epsilon=epsilon, delta=delta, population=population, classes=classes,
        inputs=inputs, targets=targets, size=size, grey=grey or None,
        mean=None if mean is None else tuple(mean), std=None if std is None else tuple(std),
        epochs=epochs, batch_size=batch_size, lr=lr, momentum=momentum, optimizer=optimizer,
        clip_norm=clip_norm, clipping=clipping, average=average, sampling=sampling, dataset=dataset,
        label=label, seed=random_state,
    )  # fmt: skip
    if (source is None) == (images is None):
        raise TacitError(
            "The examples must be named once.", "Give a file or a folder, or images= with labels=."
        )
    if labels is not None and images is None:
        raise TacitError("labels= are those of images=.", "Name the file of images with images=.")
    found = find(Path(source or images or ""), start.where, None if labels is None else Path(labels))
    with ExitStack() as stack:
        told = str(start.options["label"])
        payment = books.agreed(
            ledger, start.options["dataset"], unit=Unit(), delta=delta, label=told, stack=stack
        )
        job = TrainJob(start, found, payment, resume=resume)
        if test is not None:
            other = payment
            if test_epsilon is not None:
                other = books.another(payment, ledger, test_dataset, unit=Unit(), stack=stack)
            job.add_test(other, Path(test), test_epsilon, start.where)
        job.out, job.report, job.checkpoint, job.overwrite = saved, page, run, overwrite
        return job.holding(stack)


@whole(plan_train)
def train(job: TrainJob) -> Trained:
    """Train a private network of a named architecture on a file of private examples: charge, then read.

    ``source`` is an .npz file, an idx file of images or a folder of either, or of a folder by class;
    ``architecture`` is ``"linear"``, ``"mlp"``, ``"cnn"``, ``"scattering"`` or ``"resnet"``, whose recipe
    gives every setting that is left out. ``population``, the number of examples, and ``classes`` are public
    and declared. The network is written to ``out`` and a page about it to ``report``, if these are given.
    ``checkpoint`` is written at every epoch; ``resume=True`` goes on with the run in it, which was paid for
    when it was started.

    ``test`` names examples of others to measure the network on, as in :func:`fit`. Guarantee: that of
    :class:`tacit.training.Trainer`, for one example, under the relation of the ledger.
    """
    job.check()
    made = job.run()
    job.write_report(made)
    return made


def _check_files(
    out: Path | None,
    report: Path | None,
    checkpoint: Path | None,
    resume: bool,
    overwrite: bool,
    used: Sequence[object],
) -> None:
    given = [path.resolve() for path in (out, report, checkpoint) if path is not None]
    if len(set(given)) != len(given):
        raise TacitError("out=, report= and checkpoint= name the same file.", "Name different files.")
    for path in (out, report):
        if path is not None:
            files.writable(path, overwrite, *used)
    if resume and (checkpoint is None or not checkpoint.exists()):
        missing = "no checkpoint=" if checkpoint is None else f"no file {checkpoint}"
        raise TacitError(f"There is {missing} to go on from.", "Leave resume= out to begin a run.")
    if checkpoint is not None and not resume:
        if checkpoint.exists():
            raise TacitError(
                f"{checkpoint} holds a run already.",
                "Add resume=True to go on with it, or name another file.",
            )
        files.writable(checkpoint, overwrite=True)
