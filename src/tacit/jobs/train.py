"""A training run and a test of its network as jobs: examples are read once they are paid for.

This is the one module of the command line that needs PyTorch; commands import it where they use it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

from tacit import _validate
from tacit.data.examples import Found, Where, find, valid_labels
from tacit.errors import InvalidValue
from tacit.evaluation import Evaluation, evaluate
from tacit.jobs.fit import Say, Trial
from tacit.jobs.same import digest_of, refusal
from tacit.ledger import Ledger
from tacit.relations import Relation
from tacit.training import Plan, Trainer
from tacit.training.networks.network import Later, Network, Preparation
from tacit.training.networks.settings import Settings, average_of, resumed, seeded_start

__all__ = [
    "Found",
    "Network",
    "NetworkTrial",
    "Run",
    "Start",
    "Where",
    "find",
    "started_with",
]

_USUAL = {"mean": (0.0,), "std": (1.0,), "grey": False, "dataset": "default"}
_SETTINGS = tuple(each.name for each in fields(Settings))


def started_with(checkpoint: Path | None, **given: Any) -> Start:
    """What a run is started with: the options given (not None) and the usual ones; or, of a run that goes on
    from a checkpoint, what it was started with, from which options must not differ."""
    if given["average"] is not None:
        given["average"] = average_of(given["average"]) or "none"
    if checkpoint is not None:
        return Start(resumed(checkpoint, given))
    chosen = {name: value for name, value in given.items() if value is not None}
    return Start({**_USUAL, "label": f"{given['architecture']} run", **chosen})


@dataclass(frozen=True)
class Start:
    """Options of a run by name: what the command was told or, of a run that goes on, all it was made of."""

    options: Mapping[str, Any]

    @property
    def where(self) -> Where:
        """How to find the examples."""
        known = self.options
        size = known.get("size")
        return Where(
            known.get("inputs"), known.get("targets"), None if size is None else tuple(size), known["grey"],
            classes=tuple(map(str, known.get("names", ()))),
        )  # fmt: skip

    def run(self, found: Found, book: Ledger) -> Run:
        """The run on these examples, with its noise; nothing is read or charged."""
        known = self.options
        if tuple(known.get("shape", found.shape)) != found.shape:
            shape = tuple(known["shape"])
            raise InvalidValue("examples", found.shape, f"of the shape {shape}, as when the run was started")
        names = tuple(known["names"] if "names" in known else self._classes(found))
        prepare = Preparation(tuple(known["mean"]), tuple(known["std"]))
        architecture, population = known["architecture"], known["population"]
        settings = Settings.of(architecture, population, **{name: known.get(name) for name in _SETTINGS})
        network = Network.new(architecture, found.shape, names, prepare)
        plan = settings.plan(
            population=population, epsilon=known["epsilon"], delta=known["delta"], relation=book.relation,
            started={**known, "classes": len(names), "names": names, "shape": found.shape},
        )  # fmt: skip
        if book.relation is Relation.REPLACE_ONE and found.rows != population:
            raise InvalidValue(
                "population", population, "the number of examples in the file, which is public here"
            )
        return Run(found, network, settings, plan, book, known["label"], known.get("seed"))

    def _classes(self, found: Found) -> Sequence[Any]:
        count = self.options.get("classes")
        if count is not None and found.classes and count != len(found.classes):
            raise InvalidValue("classes", count, f"{len(found.classes)}, the number of folders, or left out")
        return found.classes or range(10 if count is None else _validate.count("classes", count, 2))


@dataclass
class Run:
    """A training run that is planned: everything about it is public but the examples."""

    found: Found
    network: Network
    settings: Settings
    planned: Plan
    book: Ledger
    label: str
    seed: int | None = None

    def train(self, say: Say, *, bar: bool | None, checkpoint: Path | None, resume: bool) -> Trainer:
        """Charge, read, train. The network holds what came of it, and its guarantee."""
        network = self.network
        if self.seed is not None:
            seeded_start(network, self.seed)
        trainer = self.settings.trainer(
            network, self.planned, self.book,
            label=self.label, progress="public" if bar is None else bar, checkpoint=checkpoint,
            random_state=self.seed,
        )  # fmt: skip
        fixed, _ = network.split()
        examples = Later(self.found, len(network.classes_), network.prepare, fixed, say)
        trainer.fit(examples, resume=resume)
        made = trainer.guarantee
        known = f"known without the examples: how many there are ({self.planned.population}), their classes"
        network.guarantee_ = replace(made, assumptions=(*made.assumptions, f"{known} and {self.found.known}"))
        network.run = self.settings.described(self.planned)
        if trainer.step_number < self.planned.steps:
            network.run += (("stopped", f"after step {trainer.step_number}"),)
        return trainer

    def trial(self, book: Ledger, path: Path, epsilon: float | None, where: Where) -> NetworkTrial:
        """A test of the network on the examples at a path, whose classes go by the names of the network's."""
        shape, names = self.network.shape, tuple(map(str, self.network.classes_))
        if len(shape) == 3:
            where = replace(where, size=shape[1:], grey=shape[0] == 1)
        found = find(path, replace(where, test=True, classes=names))
        if found.identity == self.found.identity and (epsilon is None or book is not self.book):
            raise InvalidValue(
                "--test", str(path), "other examples than the ones trained on",
                "What is measured on the training examples has to be paid for: use --test-epsilon alone.",
            )  # fmt: skip
        if found.shape != shape:
            raise InvalidValue("test", found.shape, f"examples of the shape {shape}")
        label = f"test of the {self.label}"
        return NetworkTrial(self, book, str(path), epsilon, [], label, found=found, seed=self.seed)


@dataclass
class NetworkTrial(Trial):
    """A measurement of a network on other examples: private and charged, or public."""

    found: Any = None
    seed: int | None = None

    @property
    def seeded(self) -> bool:
        """Whether the noise is repeatable, for tests."""
        return self.seed is not None

    @property
    def planned(self) -> NetworkTrial:
        """What it spends, as the work that is left of a run already paid for."""
        return self

    @property
    def delta(self) -> float:
        """δ it spends: none."""
        return 0.0

    def _measured(self, model: Any) -> Evaluation:
        inputs, labels = self.found.read()
        if self.others and _digest(inputs, labels) == _digest(*self.job.found.read()):
            raise refusal(self.source)
        found = evaluate(
            Scores(len(model.classes_)),
            model.predict_proba(inputs),
            valid_labels(labels, len(model.classes_)),
            epsilon=self.epsilon,
            public=self.epsilon is None,
            label=self.label,
            random_state=self.seed,
            relation=self.book.relation,
        )
        return replace(found, classes=tuple(model.classes_))


def _digest(inputs: Any, labels: Any) -> str:
    """Of examples in any order, whatever type their numbers are stored in."""
    rows = zip(inputs, labels, strict=True)
    return digest_of((np.asarray(each, dtype=np.float64).tobytes(), str(label)) for each, label in rows)


class Scores(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier of rows that are the probabilities of classes already."""

    def __init__(self, classes: int) -> None:
        self.classes = classes
        self.classes_ = tuple(range(classes))

    def predict_proba(self, X: Any) -> Any:
        """The rows."""
        return X
