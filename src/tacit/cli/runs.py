"""A training run and a test of its network as jobs: examples are read once they are paid for.

This is the one module of the command line that needs PyTorch; commands import it where they use it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sklearn.base import BaseEstimator, ClassifierMixin

from tacit.cli.jobs import Say, Trial
from tacit.errors import InvalidValue
from tacit.estimators.evaluation import Evaluation, evaluate
from tacit.ledger import Ledger
from tacit.training import Plan, Trainer
from tacit.training.networks import Later, Network, Preparation, network_at
from tacit.training.settings import Settings, seeded_start
from tacit.training.sources import Found, Where, find, valid_labels

__all__ = [
    "Found",
    "Network",
    "NetworkTrial",
    "Preparation",
    "Run",
    "Settings",
    "Where",
    "find",
    "network_at",
]


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


@dataclass
class NetworkTrial(Trial):
    """A measurement of a network on other examples: private and charged, or public."""

    found: Any = None
    seed: int | None = None

    @property
    def seeded(self) -> bool:
        """Whether the noise is repeatable, for tests."""
        return self.seed is not None

    def check(self, network: Network) -> None:
        """Refuse examples of another shape than those the network was trained on."""
        if self.found.shape != network.shape:
            raise InvalidValue("test", self.found.shape, f"examples of the shape {network.shape}")

    def _measured(self, model: Any) -> Evaluation:
        inputs, labels = self.found.read()
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


class Scores(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier of rows that are the probabilities of classes already."""

    def __init__(self, classes: int) -> None:
        self.classes = classes
        self.classes_ = tuple(range(classes))

    def predict_proba(self, X: Any) -> Any:
        """The rows."""
        return X
