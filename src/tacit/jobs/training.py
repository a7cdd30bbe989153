"""A training run, from files of private examples to a saved network."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit import _validate
from tacit.errors import InvalidValue, TacitError
from tacit.jobs import books, files, testing
from tacit.jobs.job import whole
from tacit.jobs.tabular import RowExamples, check_unit
from tacit.relations import Unit

if TYPE_CHECKING:
    from tacit.jobs.networks import Trained, TrainJob
    from tacit.schema import Schema

__all__ = ["plan_train", "train"]

_TABLES = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet", ".pq")


def plan_train(
    source: str | os.PathLike[str] | None = None,
    *,
    architecture: str | None = None,
    epsilon: float,
    delta: float,
    population: int | None = None,
    ledger: books.Place,
    schema: Schema | str | os.PathLike[str] | None = None,
    target: str | None = None,
    exclude: Sequence[str] = (),
    transforms: Mapping[str, str] | None = None,
    features: str | None = None,
    pixels: int | None = None,
    mirrored: bool | None = None,
    text: str | None = None,
    tokens: int | None = None,
    cache: str | os.PathLike[str] | None = None,
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
    fading: str | None = None,
    sampling: str | None = None,
    noise: str | None = None,
    bands: int | None = None,
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
    testing.check_options(test, test_epsilon, test_public, test_dataset)
    saved, page, run = (None if path is None else Path(path) for path in (out, report, checkpoint))
    _check_files(saved, page, run, resume, overwrite, [source, schema, images, labels, test, ledger])
    arrays: dict[str, Any] = {
        "images": images, "labels": labels, "inputs": inputs, "targets": targets, "size": size,
        "grey": grey or None, "mean": None if mean is None else tuple(mean),
        "std": None if std is None else tuple(std), "classes": classes,
    }  # fmt: skip
    chosen = {
        "features": features, "pixels": pixels, "mirrored": mirrored or None, "text": text, "tokens": tokens,
    }  # fmt: skip
    known = None if schema is None else _known(schema, target, arrays)
    if known is None and not resume:
        _check_no_table(source, target, exclude, transforms, text)
    if not resume:
        architecture = _with_features(architecture, chosen, known, exclude, transforms, mean, std)
    if population is None and known is not None:
        population = known.population
    if population is not None or not resume:
        _check_population(population)
    from tacit.models.registry import SAFETENSORS, require

    require(SAFETENSORS)
    from tacit.data.examples import find
    from tacit.jobs.networks import TrainJob, started_with

    start = started_with(
        run if resume else None,
        architecture=architecture, epsilon=epsilon, delta=delta, population=population,
        **{name: value for name, value in arrays.items() if name not in ("images", "labels")},
        schema=None if known is None else known.to_toml(), target=target,
        exclude=list(exclude) or None, transforms=dict(transforms or {}) or None, **chosen,
        epochs=epochs, batch_size=batch_size, lr=lr, momentum=momentum, optimizer=optimizer,
        clip_norm=clip_norm, clipping=clipping, average=average, fading=fading, sampling=sampling,
        noise=noise, bands=bands, dataset=dataset, label=label, seed=random_state,
    )  # fmt: skip
    if (source is None) == (images is None):
        raise TacitError(
            "The examples must be named once.", "Give a file or a folder, or images= with labels=."
        )
    if labels is not None and images is None:
        raise TacitError("labels= are those of images=.", "Name the file of images with images=.")
    maker = start.maker
    unit = Unit() if maker is None else maker.schema.unit
    if maker is None:
        found: Any = find(Path(source or images or ""), start.where, None if labels is None else Path(labels))
    else:
        check_unit(unit)
    with ExitStack() as stack:
        told = str(start.options["label"])
        payment = books.agreed(
            ledger, start.options["dataset"], unit=unit, delta=delta, label=told, stack=stack
        )
        if maker is not None:
            found = RowExamples(os.fspath(source or ""), maker, payment.relation, start.options.get("seed"))
            found.find(stack)
        job = TrainJob(start, found, payment, resume=resume)
        if test is not None:
            other = payment
            if test_epsilon is not None:
                other = books.another(payment, ledger, test_dataset, unit=unit, stack=stack)
            if maker is None:
                job.add_test(other, Path(test), test_epsilon, start.where)
            else:
                job.add_row_test(other, os.fspath(test), test_epsilon, stack)
        job.out, job.report, job.checkpoint, job.overwrite = saved, page, run, overwrite
        job.cache = _cache(cache, job)
        return job.holding(stack)


@whole(plan_train)
def train(job: TrainJob) -> Trained:
    """Train a private network of a named architecture on a file of private examples: charge, then read.

    ``source`` is an .npz file, an idx file of images or a folder of either, or of a folder by class; or, with
    ``schema`` and ``target``, a CSV or Parquet file, whose rows become examples as in :func:`fit`: a target
    with declared categories is learnt as classes, one with bounds as a number, and columns to ``exclude``
    make no feature (:mod:`tacit.jobs.tabular` says whom that protects).
    ``architecture`` is ``"linear"``, ``"mlp"``, ``"autoencoder"``, ``"cnn"``, ``"scattering"``, ``"patches"``
    or ``"resnet"``, whose recipe gives every setting that is left out; tables take the first three, and
    ``features`` the first two, where ``"linear"`` may be left out. ``features`` are fixed and public
    (:mod:`tacit.training.features`): of images ``"efficientnet-lite0"``, which are made ``pixels`` wide and,
    if ``mirrored``, averaged with their mirror images, or ``"scattering"``; of the column ``text`` of a table
    ``"minilm"``, of at most ``tokens`` tokens each. Feature rows are kept in the folder ``cache``, that of
    the user's caches if None, and nowhere with ``"none"``; they are private.
    ``population``, the number of examples, and ``classes`` are public and declared, by the schema of a table.
    The network is written to ``out`` and a page about it to ``report``, if these are given.
    ``checkpoint`` is written at every epoch; ``resume=True`` goes on with the run in it, which was paid for
    when it was started.

    ``test`` names examples of others to measure the network on, as in :func:`fit`. Guarantee: that of
    :class:`tacit.training.Trainer`, for one example, under the relation of the ledger.
    """
    job.check()
    made = job.run()
    job.write_report(made)
    return made


def _known(schema: Any, target: str | None, arrays: Mapping[str, Any]) -> Schema:
    """The schema of a table; options of images and arrays are refused."""
    from tacit.schema import Schema

    for name, value in arrays.items():
        if value is not None:
            advice = "Leave it out, or schema=: the schema says what the columns of a table hold."
            raise TacitError(f"{name}= is for images and arrays, not for a table.", advice)
    if target is None:
        raise TacitError("A table needs target=, the column to predict.", "Name a column of the schema.")
    return schema if isinstance(schema, Schema) else Schema.load(schema)


def _with_features(
    architecture: str | None, chosen: Mapping[str, Any], known: Schema | None, exclude: Sequence[str],
    transforms: Mapping[str, str] | None, mean: Any, std: Any,
) -> str:  # fmt: skip
    """The architecture, linear on features if it is left out; what does not go with features is refused."""
    name = chosen["features"]
    if name is None:
        for option in ("pixels", "mirrored", "text", "tokens"):
            if chosen[option] is not None:
                raise TacitError(f"{option}= is for features.", "Name them with features=, or leave it out.")
        if architecture is None:
            advice = "Give architecture='linear', or features= for a linear network on fixed features."
            raise InvalidValue("architecture", None, "given", advice)
        return architecture
    from tacit.models.registry import SAFETENSORS, require

    require(SAFETENSORS)
    from tacit.training.features.registry import kind_of, names

    kind = kind_of(name)
    if (kind == "text") != (known is not None):
        fitting = ", ".join(names("image" if known is None else "text"))
        what = "images need other features" if known is None else "tables have features of their text alone"
        more = "" if known is not None else ", or give schema= and target= of a table"
        advice = f"Use {fitting}{more}."
        raise InvalidValue("features", name, f"of what is trained on: {what}", advice)
    if exclude or transforms:
        advice = "Leave them out: of a table only text= and target= are read."
        raise TacitError("exclude= and transforms= do not go with features=.", advice)
    if mean is not None or std is not None:
        advice = "Leave them out: features scale images in their own way."
        raise TacitError("mean= and std= do not go with features=.", advice)
    return architecture or "linear"


def _cache(place: str | os.PathLike[str] | None, job: TrainJob) -> Any:
    """Where feature rows are kept, None for nowhere."""
    if job.network.features is None:
        if place is not None:
            raise TacitError("cache= is for features.", "Name them with features=, or leave it out.")
        return None
    if place is not None and os.fspath(place) == "none":
        return None
    from tacit.training.features.cache import FeatureCache, usual_folder

    return FeatureCache(usual_folder() if place is None else place)


def _check_population(population: Any) -> None:
    if population is None:
        raise InvalidValue(
            "population", None, "declared: how many examples there are, as far as is public",
            "Give population=, or declare it in the schema of a table.",
        )  # fmt: skip
    _validate.count("population", population, 1)


def _check_no_table(source: Any, *options: Any) -> None:
    """Refuse a table without its schema, and options of a table where there is none."""
    table = source is not None and os.fspath(source).lower().endswith(_TABLES)
    if table or any(options):
        what = f"{source} is a table" if table else "target=, exclude=, transforms= and text= are for tables"
        advice = "Name its schema with schema= and the column to predict with target=; see tacit schema init."
        raise TacitError(f"{what}, which needs a schema.", advice)


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
