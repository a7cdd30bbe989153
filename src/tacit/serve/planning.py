"""What an analyst may ask for, by kind: questions, fits, training runs, synthetic tables, measurements.

Each is a job of :mod:`tacit.jobs`, planned here from public facts: nothing is charged and no row is read.
Questions, fits and synthetic tables are made of files and of tables of Spark, whose rows stay where they are;
training runs and measurements read files alone.
A grant lists what it allows besides statistics by name: a model or a synthesizer by its own,
:data:`NETWORK` for training runs and :data:`EVALUATION` for the measurement of an earlier model on the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit import jobs
from tacit.errors import InvalidValue
from tacit.ledger import Ledger
from tacit.ledger.book import check_name
from tacit.randomness import Source
from tacit.schema import Schema
from tacit.serve import sources
from tacit.serve.grammar import question_of
from tacit.serve.service import Service

if TYPE_CHECKING:
    from tacit.jobs.job import Job
    from tacit.serve.store.holdings import Dataset

__all__ = ["EVALUATION", "JOBS", "NETWORK", "allowed", "named", "planned"]

NETWORK, EVALUATION = "network", "evaluation"
JOBS = ("fit", "train", "synthesize", "evaluate")
"""The kinds that a worker carries out."""
MOST_CELLS, MOST_NUMBERS = 10_000_000, 250_000
"""What is counted and what is answered at most for one request; a million answered numbers take gigabytes."""
MOST_STEPS = 100_000
"""The most steps of a training run."""
FIT = (
    "model", "target", "noise", "n_clusters", "n_components", "interval_share", "buy_population", "norm",
    "exclude", "label", "test_share", "test_epsilon", "groups_by",
)  # fmt: skip
TRAIN = (
    "architecture", "target", "population", "exclude", "epochs", "batch_size", "lr", "momentum", "optimizer",
    "clip_norm", "clipping", "average", "sampling", "noise", "bands", "label",
)  # fmt: skip
SYNTHESIZE = ("method", "rows", "bins", "exclude", "rounds", "label")
ARCHITECTURES = ("linear", "mlp", "autoencoder")
"""Networks of tables."""


def allowed() -> tuple[str, ...]:
    """All names that a grant may list besides statistics."""
    from tacit.estimators.registry import ESTIMATORS, SYNTHESIZERS

    return (*ESTIMATORS, *SYNTHESIZERS, NETWORK, EVALUATION)


def named(kind: str, body: Mapping[str, Any]) -> str:
    """The name by which a grant allows a job."""
    if kind == "fit":
        return str(body["model"])
    return {"train": NETWORK, "evaluate": EVALUATION}.get(kind) or str(body.get("method", "marginals"))


@contextmanager
def planned(
    service: Service,
    dataset: Dataset,
    ledger: Ledger,
    kind: str,
    body: Mapping[str, Any],
    folder: Path | None = None,
    model: Path | None = None,
) -> Iterator[Job]:
    """The job that a request asks for, planned. ``model`` is the file of the model that is to be measured."""
    if kind != "questions" and "label" in body:
        check_name("label", body["label"])
    known, schema = sources.checked(service, dataset), _schema(dataset.schema)
    price = {"epsilon": body["epsilon"], "delta": body.get("delta", 0.0)}
    shared: dict[str, Any] = {"schema": schema, "ledger": ledger, **price}
    with ExitStack() as stack:
        if kind == "questions":
            yield stack.enter_context(_questions(service, dataset, known, schema, body, shared))
            return
        source: Any = sources.for_job(known, dataset, kind)
        if kind == "fit":
            chosen = {name: body[name] for name in FIT if name in body}
            out = None if folder is None else folder / "model.tacit"
            yield stack.enter_context(jobs.plan_fit(source, out=out, **chosen, **shared))
        elif kind == "train":
            yield stack.enter_context(_training(source, body, folder, shared, stack))
        elif kind == "evaluate":
            if price["delta"]:
                raise InvalidValue("delta", price["delta"], "left out: a measurement takes ε alone")
            if model is None:
                raise InvalidValue("request", body.get("request"), "a request of yours that has made a model")
            options = {name: body[name] for name in ("groups_by", "label") if name in body}
            options.setdefault("label", f"test of the model of request {str(body['request'])[:8]}")
            yield stack.enter_context(
                jobs.plan_evaluate(model, source, ledger=ledger, epsilon=price["epsilon"], **options)
            )
        else:
            yield stack.enter_context(_synthesis(source, schema, body, folder, shared))


@contextmanager
def _questions(
    service: Service,
    dataset: Dataset,
    known: sources.Files | sources.SparkTable,
    schema: Schema,
    body: Mapping[str, Any],
    shared: Any,
) -> Iterator[Job]:
    confidence = body.get("confidence", 0.95)
    asked = [question_of(one, confidence) for one in body["questions"]]
    key = dataset.name, dataset.schema, dataset.stamp
    with (
        service.keeping.source(key, lambda: sources.opened(known, dataset, schema)) as kept,
        jobs.plan_query(kept, asked, confidence=confidence, **shared) as job,
    ):
        _require_small(job)
        yield job


def _training(
    source: str, body: Mapping[str, Any], folder: Path | None, shared: Any, stack: ExitStack
) -> Job:
    """A training run on the rows. PyTorch's own random numbers, the first weights above all, follow from bits
    of a :class:`~tacit.randomness.Source`, so that a second attempt repeats the run."""
    chosen = {name: body[name] for name in TRAIN if name in body}
    if chosen.get("architecture") not in ARCHITECTURES:
        wanted = f"one of {', '.join(ARCHITECTURES)}"
        raise InvalidValue("architecture", chosen.get("architecture"), wanted)
    from tacit.training.isolation.generators import generators_seeded

    stack.enter_context(generators_seeded(Source().bits(63)))
    out = None if folder is None else folder / "model.safetensors"
    job = jobs.plan_train(source, out=out, **chosen, **shared)
    if job.planned.steps > MOST_STEPS:
        job.close()
        advice = "Take larger batches, or fewer epochs."
        raise InvalidValue("steps", job.planned.steps, f"at most {MOST_STEPS}", advice)
    return job


def _synthesis(
    source: Any, schema: Schema, body: Mapping[str, Any], folder: Path | None, shared: Any
) -> jobs.SynthesizeJob:
    chosen = {name: body[name] for name in SYNTHESIZE if name in body}
    if "rows" not in chosen and schema.population is None:
        advice = "Say how many rows the synthetic table is to have."
        raise InvalidValue("rows", None, "given where the number of rows is not public", advice)
    places: dict[str, Any] = {}
    if folder is not None:
        places = {"out": folder / "table.csv", "model_out": folder / "model.tacit"}
    return jobs.plan_synthesize(source, **places, **chosen, **shared)


@lru_cache(maxsize=64)
def _schema(text: str) -> Schema:
    return Schema.from_toml(text)


def _require_small(job: jobs.QueryJob) -> None:
    """Refuse questions that would fill the memory of the process, which answers others too."""
    for size, most, what in zip(
        job.batch.sizes(), (MOST_CELLS, MOST_NUMBERS), ("counted", "answered"), strict=True
    ):
        if size > most:
            advice = "Group by fewer columns or into fewer bins, or ask fewer questions at a time."
            raise InvalidValue("questions", size, f"such that at most {most} numbers are {what}", advice)
