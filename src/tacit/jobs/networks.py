"""A training run and a test of its network: examples are read once they are paid for.

This is the one module of :mod:`tacit.jobs` that needs PyTorch; the others import it where they use it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from tacit import _validate
from tacit.data.examples import Found, Where, find, valid_labels
from tacit.data.given import places
from tacit.data.preprocessor import Preprocessor
from tacit.data.reading import prepare
from tacit.data.texts import TextColumn
from tacit.errors import InvalidValue, TacitError
from tacit.guarantee import Guarantee
from tacit.jobs import files
from tacit.jobs.job import Due, Job, Say, silent, warned
from tacit.jobs.reporting import write_page
from tacit.jobs.same import digest_of, refusal, refuse_same_file
from tacit.jobs.tabular import RowExamples
from tacit.jobs.testing import ModelTest, RowTest
from tacit.ledger import Payment
from tacit.relations import Relation
from tacit.schema import Schema
from tacit.training import Plan, Trainer
from tacit.training.features.cache import FeatureCache
from tacit.training.features.fixed import Seen
from tacit.training.features.registry import Chosen, made, side_of
from tacit.training.networks.later import Later
from tacit.training.networks.network import Network, Preparation
from tacit.training.networks.settings import Settings, average_of, resumed, seeded_start

if TYPE_CHECKING:
    from tacit.evaluation import Evaluation

__all__ = ["ExampleTest", "Start", "TrainJob", "Trained", "started_with"]

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
    told = "run" if given["target"] is None else f"network of {given['target']}"
    on = "" if given["features"] is None else f" {given['features']}"
    return Start({**_USUAL, "label": f"{given['architecture']}{on} {told}", **chosen})


@dataclass(frozen=True)
class Start:
    """Options of a run by name: those given or, of a run that goes on, those it was started with."""

    options: Mapping[str, Any]

    @property
    def where(self) -> Where:
        """How to find the examples."""
        known = self.options
        size = known.get("size")
        if size is None and "features" in known:
            side = side_of(known["features"], known.get("pixels"))
            size = None if side is None else (side, side)
        return Where(
            known.get("inputs"), known.get("targets"), None if size is None else tuple(size), known["grey"],
            classes=tuple(map(str, known.get("names", ()))),
        )  # fmt: skip

    @property
    def maker(self) -> Preprocessor | None:
        """What makes examples of the rows of a table; None for files of examples."""
        known = self.options
        if known.get("schema") is None:
            return None
        if "features" in known:
            return TextColumn(
                Schema.from_toml(known["schema"]), target=known.get("target"), text=known.get("text")
            )
        schema, excluded = Schema.from_toml(known["schema"]), list(known.get("exclude", ()))
        if schema.unit.column in schema.columns:
            excluded.append(str(schema.unit.column))
        target, transforms = known.get("target"), known.get("transforms")
        return Preprocessor(schema, target=target, transforms=transforms, exclude=excluded)

    def features(self, shape: tuple[int, ...]) -> Chosen | None:
        """The fixed features of examples of this shape; a run that goes on needs those it began with."""
        known = self.options
        if "features" not in known:
            return None
        settings = {name: known.get(name) for name in ("pixels", "tokens", "precision", "mirrored")}
        chosen = Chosen.of(made(known["features"], shape, **settings), shape)
        if known.get("features_digest", chosen.digest) != chosen.digest:
            raise InvalidValue(
                "features", known["features"], "those of the weights that the run was started with",
                "Install the version of their package that it was started with.",
            )  # fmt: skip
        return chosen

    def planned(self, found: Found | RowExamples, payment: Payment) -> tuple[Network, Settings, Plan]:
        """A network for these examples and the run with its noise; nothing is read or charged."""
        known = self.options
        if tuple(known.get("shape", found.shape)) != found.shape:
            shape = tuple(known["shape"])
            raise InvalidValue("examples", found.shape, f"of the shape {shape}, as when the run was started")
        architecture, population = known["architecture"], known["population"]
        features = self.features(found.shape)
        settings = Settings.of(
            architecture, population, features is not None, **{name: known.get(name) for name in _SETTINGS}
        )
        if features is not None:
            known = {**known, "features_digest": features.digest, **features.settings}
        if isinstance(found, RowExamples):
            network = Network.of_table(architecture, found.maker, features)
            started = {**known, "shape": found.shape}
        else:
            names = tuple(known["names"] if "names" in known else self._classes(found))
            prepare = Preparation(tuple(known["mean"]), tuple(known["std"]))
            network = (
                Network.new(architecture, found.shape, names, prepare)
                if features is None
                else Network.on_features(architecture, features, names)
            )
            started = {**known, "classes": len(names), "names": names, "shape": found.shape}
        plan = settings.plan(
            population=population, epsilon=known["epsilon"], delta=known["delta"], relation=payment.relation,
            unit=payment.unit, started=started,
        )  # fmt: skip
        if payment.relation is Relation.REPLACE_ONE and found.private_rows != population:
            raise InvalidValue(
                "population", population, "the number of examples in the file, which is public here"
            )
        return network, settings, plan

    def _classes(self, found: Found) -> Sequence[Any]:
        count = self.options.get("classes")
        if count is not None and found.classes and count != len(found.classes):
            raise InvalidValue("classes", count, f"{len(found.classes)}, the number of folders, or left out")
        return found.classes or range(10 if count is None else _validate.count("classes", count, 2))


@dataclass(frozen=True)
class Trained:
    """What a training run made: a network with its guarantee, how good it is, and where it is kept."""

    model: Network
    guarantee: Guarantee | None
    """None if the run was stopped and goes on from its checkpoint: then there is no release yet."""
    evaluation: Evaluation | None
    """Its figures on the examples of ``test=``, if there were any and the run was not stopped."""
    path: Path | None
    """The file of the network; another than ``out=`` where that could not be written at last."""
    steps: int
    """How many steps were taken."""
    stopped: bool
    """Whether the run was interrupted before its last step; all steps are charged."""


class TrainJob(Job):
    """A training run that is planned: everything about it is public but the examples."""

    unread = "examples"

    def __init__(self, start: Start, found: Found | RowExamples, payment: Payment, *, resume: bool) -> None:
        self.found = found
        self.payment = payment
        self.label = str(start.options["label"])
        self.seed: int | None = start.options.get("seed")
        self.network, self.settings, self.planned = start.planned(found, payment)
        self.resume = resume
        self.test: ExampleTest | NetworkRowTest | None = None
        self.out: Path | None = None
        self.report: Path | None = None
        self.checkpoint: Path | None = None
        self.cache: FeatureCache | None = None
        """Where feature rows are kept; None if they are not."""
        self.overwrite = False
        planned = self.planned
        kind = "float32" if self.seed is None else "seeded"
        run = Due(payment, planned.event, self.label, planned.epsilon, planned.delta, kind)
        super().__init__([] if resume else [run])

    def add_test(self, payment: Payment, path: Path, epsilon: float | None, where: Where) -> None:
        """Measure the network on the examples at a path, whose classes go by the names of the network's."""
        others = epsilon is None or payment is not self.payment
        label = f"test of the {self.label}"
        test = ExampleTest.of(self.network, payment, path, epsilon, label, self.seed, where, others=others)
        if isinstance(self.found, RowExamples):
            raise InvalidValue("test", str(path), "rows of a table, as the network is trained on")
        if test.found.identity == self.found.identity and others:
            raise refusal(str(path), "examples")
        test.trained_on = self.found
        self._add(test)

    def add_row_test(self, payment: Payment, source: str, epsilon: float | None, stack: ExitStack) -> None:
        """Measure the network on the rows of another file of the same columns."""
        if not isinstance(self.found, RowExamples):
            raise InvalidValue("test", source, "examples of the kind that the network is trained on")
        others = epsilon is None or payment is not self.payment
        label = f"test of the {self.label}"
        test = NetworkRowTest(payment, source, epsilon, label, self.seed, others, self.found.maker, ())
        test.opened = prepare(source, test.schema, test.columns)
        stack.callback(test.opened.close)
        self.found.test = test
        self._add(test)

    def _add(self, test: ExampleTest | NetworkRowTest) -> None:
        self.test = test
        due = test.due("the test" if self.dues else "")
        self.dues = self.dues if due is None else (*self.dues, due)

    def check(self) -> None:
        """Go through the files, and raise if one of them is damaged; nothing is kept of the examples."""
        self.found.check()
        if self.cache is not None and self.network.features is not None:
            self.cache.check(self.network.features.adapter)
        if isinstance(self.test, ExampleTest):
            self.test.found.check()
        elif self.test is not None and self.test.others:
            refuse_same_file(self.found.name, self.test.source)

    def run(
        self, say: Say = silent, warn: Say = warned, *, bar: bool | None = False, seen: Seen | None = None
    ) -> Trained:  # fmt: skip
        """Charge, read, train, save; then test, and save the figures too: no failure loses what was paid for.

        ``bar`` shows the progress of the steps, None only on a terminal; ``seen`` is told how many of the
        examples have their features.
        """
        from tacit import save

        network, place, found = self.network, self.out, None
        trainer = self._trained(say, bar, seen)
        steps, stopped = trainer.step_number, trainer.step_number < self.planned.steps
        if stopped and self.checkpoint is not None:
            return Trained(network, None, None, None, steps, stopped)
        if network.guarantee_ is None:
            raise TacitError("The run ended without a guarantee.", "Please report this.")
        if place is not None:
            place = files.kept(
                lambda path, over: save(network, path, overwrite=over), place, self.overwrite, warn
            )
        if self.test is not None and not stopped:
            with files.rescued(lambda path: save(network, path), place, "model.safetensors", warn):
                found = self.test.run(network, say)
            network.evaluations_ = (found,)
            if place is not None:
                place = files.kept(lambda path, _: save(network, path, overwrite=True), place, True, warn)
        return Trained(network, network.guarantee_, found, place, steps, stopped)

    def write_report(self, made: Trained) -> None:
        """Write the page about the network to ``report=``, if that was given and the run has ended."""
        if self.report is None or made.guarantee is None:
            return
        books = dict.fromkeys(
            [self.payment.ledger, *([] if self.test is None else [self.test.payment.ledger])]
        )
        name = "network" if made.path is None else made.path.name
        write_page(self.report, made.model, name, books, overwrite=self.overwrite)

    def _trained(self, say: Say, bar: bool | None, seen: Seen | None) -> Trainer:
        """Charge, read, train. The network holds what was released, and its guarantee."""
        network = self.network
        if self.seed is not None:
            seeded_start(network, self.seed)
        trainer = self.settings.trainer(
            network, self.planned, self.payment.ledger,
            label=self.label, progress="public" if bar is None else bar, checkpoint=self.checkpoint,
            random_state=self.seed,
        )  # fmt: skip
        fixed, _ = network.split()
        examples = Later(
            self.found, len(network.classes_), network.prepare, fixed, say,
            features=network.features, cache=self.cache, seen=seen,
        )  # fmt: skip
        trainer.fit(examples, resume=self.resume)
        made = trainer.guarantee
        network.guarantee_ = replace(made, assumptions=(*made.assumptions, *self._known()))
        network.run = self.settings.described(self.planned)
        if trainer.step_number < self.planned.steps:
            network.run += (("stopped", f"after step {trainer.step_number}"),)
        return trainer

    def _known(self) -> tuple[str, ...]:
        """What the guarantee takes as public, in words."""
        many = f"how many there are ({self.planned.population})"
        if self.network.features is not None:
            many += f", the features {self.network.features.described()}"
        if isinstance(self.found, RowExamples):
            about = f"known without the rows: {many} and {self.found.known}"
            return about, *self.found.opened.assumptions
        return (f"known without the examples: {many}, their classes and {self.found.known}",)


@dataclass
class ExampleTest(ModelTest):
    """A measurement of a network on other examples."""

    found: Found
    trained_on: Found | None = None
    """The examples that the network was trained on; None if they are not known."""

    @classmethod
    def of(
        cls, network: Network, payment: Payment, path: Path, epsilon: float | None, label: str,
        seed: int | None, where: Where | None = None, *, others: bool = False,
    ) -> ExampleTest:  # fmt: skip
        """Find the examples at a path, which must be of the network's shape and classes; none is read."""
        where, shape = where or Where(), network.shape
        if len(shape) == 3:
            where = replace(where, size=shape[1:], grey=shape[0] == 1)
        found = find(path, replace(where, test=True, classes=tuple(map(str, network.classes_))))
        if found.shape != shape:
            raise InvalidValue("test", found.shape, f"examples of the shape {shape}")
        return cls(payment, str(path), epsilon, label, seed, others, found)

    def run(self, model: Any, say: Say) -> Evaluation:
        """Charge, read, measure; classes go by their names."""
        return replace(super().run(model, say), classes=tuple(model.classes_))

    def _measured(self, model: Any) -> Any:
        """A classifier of the network's probabilities, which are computed where the examples are read."""
        return Scores(len(model.classes_))

    def _read(self, model: Any) -> tuple[Any, Any, Any, Any]:
        """Probabilities and labels of the private examples. Called inside the charge."""
        inputs, labels = self.found.read()
        if labels is None:
            raise TacitError(f"{self.source} holds no labels.", "Name a file with labels.")
        known = self.trained_on if self.others else None
        if known is not None and _digest(inputs, labels) == _digest(*known.read()):
            raise refusal(self.source, "examples")
        return model.predict_proba(inputs), valid_labels(labels, len(model.classes_)), None, None


@dataclass
class NetworkRowTest(RowTest):
    """A measurement of a network of a table on other rows of it."""

    def run(self, model: Any, say: Say) -> Evaluation:
        """Charge, read, measure; classes go by their names."""
        return replace(super().run(model, say), classes=tuple(model.classes_))

    def _measured(self, model: Any) -> Any:
        """A model of the network's answers, which are computed where the rows are read, each by itself."""
        return Scores(len(model.classes_)) if model.classes_ else Answers()

    def _read(self, model: Any) -> tuple[Any, Any, Any, Any]:
        """Answers and targets of the private rows. Called inside the charge."""
        frame, targets, units, labels = super()._read(model)
        if model.classes_:
            return model.predict_proba(frame), places(targets, model.classes_), units, labels
        return model.predict(frame)[:, None], targets, units, labels


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


class Answers(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A regressor of rows that are its predictions already."""

    def predict(self, X: Any) -> Any:
        """The only column."""
        return X[:, 0]
