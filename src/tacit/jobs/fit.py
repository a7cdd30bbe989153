"""A fit and a test as jobs: what is public about them is known first, and rows are read inside the charge."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tacit import events
from tacit.errors import TacitError
from tacit.jobs.same import digest_of, refusal
from tacit.ledger import Ledger
from tacit.relations import Unit

if TYPE_CHECKING:
    from tacit.data.preprocessor import Preprocessor
    from tacit.estimators.linear.base import Planned
    from tacit.evaluation.evaluate import Evaluation
    from tacit.schema import Schema

__all__ = ["Job", "Say", "Trial"]

Say = Callable[[str], None]
"""Told what is being done, for whoever shows progress; nothing of what is said depends on the rows."""
PUBLIC = "what the schema says was known without the data"


@dataclass
class Job:
    """A fit that is planned: everything about it is public but the rows, which are read inside the charge."""

    maker: Preprocessor
    estimator: Any
    planned: Planned
    book: Ledger
    label: str
    opened: Any = None
    source: str = ""
    fitted_to: str = ""
    """A digest of the rows that were read, once they were."""

    @property
    def schema(self) -> Schema:
        """What is public about the rows."""
        known: Schema = self.maker.schema
        return known

    @property
    def columns(self) -> list[str]:
        """The columns that are read."""
        unread = set(self.maker.exclude)
        return [name for name in self.schema if name not in unread]

    @property
    def kind(self) -> str:
        """The kind of noise, as the ledger is told."""
        return self.planned.kind if self.estimator.random_state is None else "seeded"

    def find(self, source: str, delimiter: str, stack: ExitStack) -> None:
        """Find the file and its columns; no row is read."""
        from tacit.data.reading import prepare

        self.source = source
        self.opened = prepare(source, self.schema, self.columns, delimiter=delimiter)
        stack.callback(self.opened.close)

    def run(self, say: Say) -> Any:
        """Charge, read, fit: a pipeline with its guarantee."""
        from sklearn.pipeline import Pipeline

        from tacit.data.reading import UNIT, private_rows

        assumptions = (PUBLIC, *self.opened.assumptions)
        planned = self.planned
        with self.book.charge(planned.event, self.label, delta=planned.delta or None, noise=self.kind):
            say("Reading the rows")
            frame = private_rows(self.opened, self.schema, self.columns)
            self.fitted_to = _digest(frame, self.maker)
            matrix = self.maker.fit(frame).transform(frame)
            say(f"Fitting the {self.label}")
            whose = frame[UNIT] if UNIT in frame.columns else None
            self.estimator.fit(matrix, self.maker.target_values(frame), groups=whose)
        made = self.estimator.guarantee_
        if made.event != planned.event:
            raise TacitError("The fit did something else than what was charged.", "Please report this.")
        self.estimator.guarantee_ = replace(
            made, unit=self.book.unit, assumptions=(*made.assumptions, *assumptions)
        )
        return Pipeline([("preprocessor", self.maker), ("model", self.estimator)])


@dataclass
class Trial:
    """A measurement on other rows: private and charged, or public."""

    job: Any
    book: Ledger
    source: str
    epsilon: float | None
    groups: list[str]
    label: str
    opened: Any = None

    @property
    def schema(self) -> Schema:
        """What is public about the rows; nobody is told apart in public ones."""
        known: Schema = self.job.schema
        return known if self.epsilon is not None else replace(known, unit=Unit())

    @property
    def columns(self) -> list[str]:
        """The columns that are read."""
        return list(dict.fromkeys([*self.job.columns, *self.groups]))

    @property
    def event(self) -> events.Event:
        """What a private measurement is charged as."""
        return events.Pure(float(self.epsilon or 0.0))

    @property
    def seeded(self) -> bool:
        """Whether the noise is repeatable, for tests."""
        return bool(self.job.estimator.random_state is not None)

    @property
    def others(self) -> bool:
        """Whether the rows have to be those of others: public ones, or paid for from another budget."""
        return self.epsilon is None or self.book is not self.job.book

    def find(self, delimiter: str, stack: ExitStack) -> None:
        """Find the file and its columns; no row is read."""
        from tacit.data.reading import prepare

        self.opened = prepare(self.source, self.schema, self.columns, delimiter=delimiter)
        stack.callback(self.opened.close)

    def run(self, model: Any, say: Say) -> Evaluation:
        """Charge, read, measure."""
        say(f"Testing it on {self.source}")
        if self.epsilon is None:
            return self._measured(model)
        with self.book.charge(self.event, self.label, noise="seeded" if self.seeded else "exact"):
            found = self._measured(model)
        made = found.guarantee
        if made is None or made.event != self.event:
            raise TacitError("The test did something else than what was charged.", "Please report this.")
        return replace(found, guarantee=replace(made, unit=self.book.unit))

    def _measured(self, model: Any) -> Evaluation:
        from tacit.data.reading import UNIT, private_rows
        from tacit.evaluation.evaluate import evaluate

        frame = private_rows(self.opened, self.schema, self.columns)
        maker, unit = self.job.maker, self.schema.unit
        if self.others and _digest(frame, maker) == self.job.fitted_to:
            raise refusal(self.source)
        by = {name: type(maker)(self.schema, target=name) for name in self.groups}
        return evaluate(
            model,
            frame,
            maker.target_values(frame),
            epsilon=self.epsilon,
            public=self.epsilon is None,
            label=self.label,
            groups_of={name: (each.target_values(frame), each.classes or ()) for name, each in by.items()},
            target_bounds=maker.target_bounds,
            random_state=self.job.estimator.random_state,
            relation=self.book.relation,
            groups=frame[UNIT] if UNIT in frame.columns else None,
            rows_per_group=unit.rows,
        )


def _digest(frame: Any, maker: Preprocessor) -> str:
    """Of the rows as the model sees them, however they are written."""
    features = maker.transform(frame) + 0.0
    return digest_of(zip(map(bytes, features), maker.target_values(frame).tolist(), strict=True))
