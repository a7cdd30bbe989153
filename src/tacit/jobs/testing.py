"""A test of a model on other rows, as a job or a part of one: private and charged, or public and free."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit import _validate, events
from tacit.errors import InvalidValue, TacitError
from tacit.jobs import books
from tacit.jobs.job import Due, Job, Say, silent, whole
from tacit.jobs.opening import named_network, opened_model
from tacit.jobs.same import digest_of, refusal
from tacit.ledger import Payment
from tacit.relations import Unit

if TYPE_CHECKING:
    from tacit.data.preprocessor import Preprocessor
    from tacit.data.splitting import Side
    from tacit.evaluation import Evaluation
    from tacit.schema import Schema

__all__ = [
    "EvaluateJob",
    "ModelTest",
    "RowTest",
    "check_options",
    "columns_of",
    "declared",
    "digest",
    "evaluate",
    "plan_evaluate",
]


def check_options(
    test: Any, epsilon: float | None, public: bool, dataset: Any, groups: Any = None, share: Any = None
) -> None:
    """Refuse options of a test that do not go together."""
    if epsilon is not None:
        _validate.epsilon(epsilon)
    if share is not None:
        _check_share(test, epsilon, public, dataset)
    elif test is None:
        given = {"test_epsilon": epsilon, "test_public": public, "test_dataset": dataset, "groups_by": groups}
        for name, value in given.items():
            if value:
                raise TacitError(f"{name}= is for rows to test on.", "Name them with test=.")
    elif (epsilon is None) == (not public):
        raise TacitError(
            "test= needs either test_epsilon= or test_public=.",
            "Give test_epsilon=0.2, say, for private rows; test_public=True for rows that anyone may see.",
        )
    elif public and dataset:
        raise TacitError("test_dataset= is where private rows are charged.", "Leave it or test_public= out.")


def _check_share(test: Any, epsilon: float | None, public: bool, dataset: Any) -> None:
    """The share that is set aside is private, of the same people as the rest, and paid for like it."""
    for name, value in {"test": test, "test_public": public, "test_dataset": dataset}.items():
        if value:
            raise TacitError(
                f"test_share= sets rows of the same table aside, and does not go with {name}=.",
                f"Leave {name}= out, or test_share=.",
            )
    if epsilon is None:
        advice = "Give test_epsilon=0.2, say: the rows that are set aside are as private as the others."
        raise TacitError("test_share= needs test_epsilon=.", advice)


def declared(groups: Sequence[str], schema: Schema) -> list[str]:
    """These columns, once each; their categories must be declared."""
    for name in groups:
        if schema[name].categories is None:
            advice = "Declare its categories in the schema; to read them off the rows would leak."
            raise InvalidValue("groups_by", name, "a column with declared categories", advice)
    return list(dict.fromkeys(groups))


@dataclass
class ModelTest:
    """A measurement on other rows: private and charged, or public."""

    payment: Payment
    source: str
    epsilon: float | None
    """ε to spend; None for public rows."""
    label: str
    seed: int | None
    others: bool
    """Whether the rows must be those of others: they are public, or paid for from another budget."""

    @property
    def event(self) -> events.Event:
        """What a private measurement is charged as."""
        return events.Pure(float(self.epsilon or 0.0))

    def due(self, called: str = "") -> Due | None:
        """The charge for a private measurement, which a refusal may call otherwise than by its label."""
        if self.epsilon is None:
            return None
        noise = "exact" if self.seed is None else "seeded"
        return Due(self.payment, self.event, self.label, self.epsilon, 0.0, noise, called)

    def run(self, model: Any, say: Say) -> Evaluation:
        """Charge, read, measure."""
        from tacit.evaluation import evaluate_rows

        say(f"Testing it on {self.source}")
        found = evaluate_rows(
            self._measured(model),
            lambda: self._read(model),
            epsilon=self.epsilon,
            public=self.epsilon is None,
            ledger=None if self.epsilon is None else self.payment.ledger,
            label=self.label,
            random_state=self.seed,
            relation=self.payment.relation,
            **self._public(),
        )
        if self.epsilon is not None and (found.guarantee is None or found.guarantee.event != self.event):
            raise TacitError("The test did something else than what was planned.", "Please report this.")
        return found

    def _public(self) -> dict[str, Any]:
        """What is public about the rows, for the evaluation."""
        return {}

    def _measured(self, model: Any) -> Any:
        """The model that is measured on the rows that were read."""
        return model

    def _read(self, model: Any) -> tuple[Any, Any, Any, Any]:
        """The private rows: inputs, targets, units and labels of groups. Called inside the charge."""
        raise NotImplementedError


@dataclass
class RowTest(ModelTest):
    """A measurement of a pipeline on the rows of a table."""

    maker: Preprocessor
    groups: Sequence[str]
    opened: Any = None
    side: Side | None = None
    """The part of the rows that is read, where the table was split; None for all of them."""
    fitted_to: str | None = None
    """A digest of the rows that the model was fitted to, once they were read; None if they are not known."""

    @property
    def schema(self) -> Schema:
        """What is public about the rows; nobody is told apart in public ones."""
        known: Schema = self.maker.schema
        return known if self.epsilon is not None else replace(known, unit=Unit())

    @property
    def columns(self) -> list[str]:
        """The columns that are read."""
        return list(dict.fromkeys([*columns_of(self.maker), *self.groups]))

    def find(self, delimiter: str | None, stack: ExitStack) -> None:
        """Find the file and its columns; no row is read."""
        from tacit.data.reading import prepare

        columns = self.columns if self.side is None else list(self.schema)
        self.opened = prepare(self.source, self.schema, columns, delimiter=delimiter)
        stack.callback(self.opened.close)

    def run(self, model: Any, say: Say) -> Evaluation:
        """Charge, read, measure; a file that was closed is refused before the charge."""
        from tacit.data.splitting import SPLIT

        self.opened.require_open()
        found = super().run(model, say)
        if found.guarantee is None:
            return found
        assumed = (*found.guarantee.assumptions, *self.opened.assumptions)
        if self.side is not None:
            assumed = (*assumed, SPLIT)
        return replace(found, guarantee=replace(found.guarantee, assumptions=assumed))

    def _public(self) -> dict[str, Any]:
        """Bounds of the target, the groups' categories, and whether units have several rows."""
        return {
            "groups": {name: maker.classes or () for name, maker in self._by.items()},
            "target_bounds": self.maker.target_bounds,
            "units": self.schema.unit.column is not None,
            "rows_per_unit": self.schema.unit.rows,
        }

    @property
    def _by(self) -> dict[str, Preprocessor]:
        from tacit.data.preprocessor import Preprocessor

        return {name: Preprocessor(self.schema, target=name) for name in self.groups}

    def _read(self, model: Any) -> tuple[Any, Any, Any, Any]:
        """The private rows. Called inside the charge."""
        from tacit.data.reading import UNIT, private_rows

        frame, maker = private_rows(self.opened, self.schema, self.columns, side=self.side), self.maker
        if self.others and self.fitted_to is not None and digest(frame, maker) == self.fitted_to:
            raise refusal(self.source)
        units = frame[UNIT] if UNIT in frame.columns else None
        labels = {name: each.target_values(frame) for name, each in self._by.items()}
        return frame, maker.target_values(frame), units, labels


def columns_of(maker: Preprocessor) -> list[str]:
    """The columns that are read for a preprocessor's features and target."""
    unread = set(maker.exclude)
    return [name for name in maker.schema if name not in unread]


def digest(frame: Any, maker: Preprocessor) -> str:
    """A digest of rows as the model sees them, however they are written."""
    return digest_of(zip(maker.contents(frame), maker.target_values(frame).tolist(), strict=True))


class EvaluateJob(Job):
    """A test of a saved model that is planned: everything about it is public but the rows."""

    def __init__(self, model: Any, test: ModelTest) -> None:
        super().__init__([test.due()])
        self.model = model
        self.test = test

    def run(self, say: Say = silent) -> Evaluation:
        """Charge, read, measure."""
        return self.test.run(self.model, say)


def plan_evaluate(
    model: str | os.PathLike[str],
    source: str | os.PathLike[str],
    *,
    ledger: books.Place | None = None,
    epsilon: float | None = None,
    public: bool = False,
    dataset: str = "default",
    groups_by: Sequence[str] = (),
    label: str | None = None,
    delimiter: str | None = None,
    random_state: int | None = None,
) -> EvaluateJob:
    """Plan :func:`evaluate`: load the model, find the columns of the file; no row is read."""
    if (epsilon is None) == (not public):
        advice = "Give epsilon=0.2, say, for private rows; public=True for rows that anyone may see."
        raise TacitError("An evaluation needs either epsilon= or public=.", advice)
    if epsilon is not None:
        _validate.epsilon(epsilon)
        if ledger is None:
            raise TacitError("Private rows are paid for from a ledger.", "Name it with ledger=.")
    from tacit.models import description_of

    fitted, maker = opened_model(model)
    with ExitStack() as stack:
        unit = Unit() if maker is None else maker.schema.unit
        told = label or f"test of {Path(model).name}"
        payment = Payment.agreed(None)
        if epsilon is not None and ledger is not None:
            payment = books.agreed(ledger, dataset, unit=unit, delta=0.0, label=told, stack=stack)
        if maker is None:
            from tacit.jobs.networks import ExampleTest

            network = named_network(fitted, Path(model))
            test: ModelTest = ExampleTest.of(network, payment, Path(source), epsilon, told, random_state)
        else:
            groups = declared(groups_by, maker.schema)
            kind = RowTest
            if description_of(fitted).tensors:
                from tacit.jobs.networks import NetworkRowTest as kind
            test = kind(payment, os.fspath(source), epsilon, told, random_state, public, maker, groups)
            test.find(delimiter, stack)
        return EvaluateJob(fitted, test).holding(stack)


@whole(plan_evaluate)
def evaluate(job: EvaluateJob) -> Evaluation:
    """Measure a saved model on the rows of a file: charge, then read.

    ``model`` is a file that :func:`fit` or :func:`train` wrote. The rows are read by the schema inside it.
    Private rows are charged to ``ledger`` with ``epsilon``, as :func:`tacit.evaluate` describes; with
    ``public=True`` they are free. Rows that the model was fitted to are not public, whatever their file is
    called: this function has not seen them, and cannot tell.
    """
    return job.run()
