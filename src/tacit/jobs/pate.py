"""PATE from files: answers to votes that lie in a file, and a student from a table of private rows."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit import _validate, accounting
from tacit.errors import CannotLearn, InvalidValue, SourceMissing
from tacit.guarantee import Guarantee
from tacit.jobs import books, files, testing
from tacit.jobs.fitting import PUBLIC, Fitted
from tacit.jobs.job import Due, Job, Say, silent, warned, whole
from tacit.jobs.predicting import feature_rows

if TYPE_CHECKING:
    from tacit.data.preprocessor import Preprocessor
    from tacit.ledger import Payment
    from tacit.pate.planning import AnswerPlan
    from tacit.schema import Schema

__all__ = [
    "AnsweredVotes",
    "PateFitJob",
    "VotesJob",
    "pate_answer",
    "pate_fit",
    "plan_pate_answer",
    "plan_pate_fit",
]


@dataclass(frozen=True)
class AnsweredVotes:
    """What was released for the votes of a file."""

    labels: Sequence[int]
    """A class for each query, numbered from 0; −1 for a query that has no answer."""
    guarantee: Guarantee
    path: Path | None
    """The file that was written, if there was one."""


class VotesJob(Job):
    """Votes in a file that will be answered: what is known of them before is how many they are."""

    unread = "votes"

    def __init__(
        self,
        source: Path,
        shape: tuple[int, int],
        plan: AnswerPlan,
        payment: Payment,
        label: str,
        seed: int | None,
    ) -> None:
        self.source = source
        self.shape = shape
        """How many queries and classes there are."""
        self.plan = plan
        self.payment = payment
        self.label = label
        self.seed = seed
        self.out: Path | None = None
        self.overwrite = False
        kind = "exact" if seed is None else "seeded"
        super().__init__([Due(payment, plan.event, label, plan.epsilon, plan.delta, kind)])

    def run(self, say: Say = silent, warn: Say = warned) -> AnsweredVotes:
        """Charge, read the votes, answer, write."""
        plan, payment = self.plan, self.payment
        made = plan.aggregator.release(
            lambda: self._read(say), asked=plan.asked, answers=plan.answered, ledger=payment.ledger,
            delta=plan.delta,
            relation=payment.relation, unit=payment.unit, label=self.label, random_state=self.seed,
        )  # fmt: skip
        place = self.out
        if place is not None:
            place = files.kept(lambda path, _: _write(path, made.labels), place, self.overwrite, warn)
        return AnsweredVotes(made.labels.tolist(), made.guarantee, place)

    def _read(self, say: Say) -> Any:
        """The private votes. They are read inside the charge."""
        say("Reading the votes")
        votes = _votes_in(self.source)
        if votes.shape != self.shape:
            raise InvalidValue(
                "votes", "of another shape", f"{self.shape[0]} queries by {self.shape[1]} classes"
            )
        return votes


def plan_pate_answer(
    votes: str | os.PathLike[str],
    *,
    aggregator: Any,
    ledger: books.Place,
    delta: float = 0.0,
    epsilon: float | None = None,
    answers: int | None = None,
    queries: int | None = None,
    classes: int | None = None,
    dataset: str = "default",
    out: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    label: str | None = None,
    random_state: int | None = None,
) -> VotesJob:
    """Plan :func:`pate_answer`: how many answers there will be and what they cost; no vote is read."""
    from tacit.pate.planning import AnswerPlan, plan_answers

    source = Path(votes)
    shape = _shape(source, queries, classes)
    _validate.delta(delta)
    told = label or f"answers to {shape[0]} queries"
    with ExitStack() as stack:
        payment = books.agreed(ledger, dataset, unit=None, delta=delta, label=told, stack=stack)
        if epsilon is None:
            most = shape[0] if answers is None else _validate.count("answers", answers, 1)
            if most > shape[0]:
                raise InvalidValue("answers", most, f"at most the number of queries, {shape[0]}")
            event = aggregator.event(asked=shape[0], answered=most)
            cost = accounting.epsilon(event, delta, relation=payment.relation)
            plan = AnswerPlan(aggregator, shape[0], most, event, cost, delta, payment.relation, 0)
        else:
            plan = plan_answers(
                aggregator, queries=shape[0], teachers=1, classes=shape[1], epsilon=epsilon, delta=delta,
                relation=payment.relation, asked=shape[0], answers=answers,
            )  # fmt: skip
        if math.isinf(plan.epsilon):
            raise InvalidValue("delta", delta, "above 0 for Gaussian noise")
        job = VotesJob(source, shape, plan, payment, told, random_state)
        if out is not None:
            job.out, job.overwrite = Path(out), overwrite
            files.writable(job.out, overwrite, votes, ledger)
        return job.holding(stack)


@whole(plan_pate_answer)
def pate_answer(job: VotesJob) -> AnsweredVotes:
    """Answer public queries from a file of votes: charge, then read the votes.

    ``votes`` is an .npy file of counts, one row for each query and one column for each class, whose shape
    is taken as public; or a CSV file of the same without a header, for which ``queries`` and ``classes``
    say the shape. ``aggregator`` is one of :mod:`tacit.pate`. At most ``answers`` queries are answered, or
    as many as ``epsilon`` allows; all of them otherwise, and the worst case is charged. ``out`` is a CSV
    file: the number of each query and its answer, empty for none.

    Guarantee: that of the aggregator, if each unit of the ledger was among the data of one teacher alone.
    """
    return job.run()


class PateFitJob(Job):
    """A student that is planned: everything about it is public but the rows, which are read inside the
    charge."""

    def __init__(
        self, source: str, maker: Preprocessor, queries: Any, estimator: Any, payment: Payment, label: str
    ) -> None:
        self.source = source
        self.maker = maker
        self.estimator = estimator
        self.payment = payment
        self.label = label
        self.out: Path | None = None
        self.overwrite = False
        self._queries = queries
        self._opened: Any = None
        self.plan = plan = estimator.plan(len(queries))
        kind = "exact" if estimator.random_state is None else "seeded"
        super().__init__([Due(payment, plan.event, label, plan.epsilon, plan.delta, kind)])

    @property
    def columns(self) -> list[str]:
        """The columns that are read."""
        return testing.columns_of(self.maker)

    def find(self, delimiter: str | None, stack: ExitStack) -> None:
        """Find the file and its columns; no row is read."""
        from tacit.data.reading import prepare

        self._opened = prepare(self.source, self.maker.schema, self.columns, delimiter=delimiter)
        stack.callback(self._opened.close)

    def run(self, say: Say = silent, warn: Say = warned) -> Fitted:
        """Charge, read, train teachers, answer, teach the student, save."""
        from sklearn.pipeline import Pipeline

        from tacit import save

        self._opened.require_open()
        for doubt in self.plan.doubts:
            warn(doubt)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CannotLearn)  # it was told of already
            self.estimator.fit_rows(
                self._queries, lambda: self._read(say), assumptions=(PUBLIC, *self._opened.assumptions),
                tell=lambda done, of: say(f"{done} of {of} teachers have voted"),
            )  # fmt: skip
        model = Pipeline([("preprocessor", self.maker), ("model", self.estimator)])
        place = self.out
        if place is not None:
            place = files.kept(
                lambda path, over: save(model, path, overwrite=over), place, self.overwrite, warn
            )
        return Fitted(model, self.estimator.guarantee_, None, place)

    def _read(self, say: Say) -> tuple[Any, Any, Any]:
        """The private rows: features, targets and units. The estimator calls this inside the charge."""
        from tacit.data.reading import UNIT, private_rows

        say("Reading the rows")
        maker = self.maker
        frame = private_rows(self._opened, maker.schema, self.columns)
        matrix = maker.fit(frame).transform(frame)
        return matrix, maker.target_values(frame), frame[UNIT] if UNIT in frame.columns else None


def plan_pate_fit(
    source: str | os.PathLike[str],
    *,
    schema: Schema | str | os.PathLike[str],
    target: str,
    queries: str | os.PathLike[str],
    epsilon: float,
    delta: float,
    ledger: books.Place,
    teacher: str | Any = "forest",
    student: str | Any = "forest",
    n_teachers: int = 250,
    n_queries: int | None = None,
    n_answers: int | None = None,
    semi_supervised: str | None = None,
    dataset: str = "default",
    out: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    transforms: Mapping[str, str] | None = None,
    exclude: Sequence[str] = (),
    label: str | None = None,
    delimiter: str | None = None,
    n_jobs: int | None = 1,
    random_state: int | None = None,
) -> PateFitJob:
    """Plan :func:`pate_fit`: noise, answers and price; the public queries are read, no private row is."""
    from tacit.data.preprocessor import Preprocessor
    from tacit.pate.classifier import PATEClassifier
    from tacit.schema import Schema

    known = schema if isinstance(schema, Schema) else Schema.load(schema)
    excluded = list(exclude)
    if known.unit.column in known.columns:
        excluded.append(str(known.unit.column))
    maker = Preprocessor(known, target=target, transforms=transforms or None, exclude=excluded)
    if maker.classes is None:
        advice = "Declare its categories in the schema."
        raise InvalidValue(f"target {target!r}", known[target].type, "declared with categories", advice)
    told = label or f"student of {n_teachers} teachers of {target}"
    with ExitStack() as stack:
        payment = books.agreed(ledger, dataset, unit=known.unit, delta=delta, label=told, stack=stack)
        estimator = PATEClassifier(
            _named("teacher", teacher), _named("student", student), n_teachers=n_teachers, epsilon=epsilon,
            delta=delta, classes=list(maker.classes), n_queries=n_queries, n_answers=n_answers,
            semi_supervised=semi_supervised, relation=str(payment.relation), rows_per_unit=payment.unit.rows,
            ledger=payment.ledger, label=told, n_jobs=n_jobs, random_state=random_state,
        )  # fmt: skip
        frame = feature_rows(maker, queries, delimiter)
        job = PateFitJob(
            os.fspath(source), maker, maker.fit(frame).transform(frame), estimator, payment, told
        )
        if out is not None:
            job.out, job.overwrite = Path(out), overwrite
            files.writable(job.out, overwrite, source, schema, ledger, queries)
        job.find(delimiter, stack)
        return job.holding(stack)


@whole(plan_pate_fit)
def pate_fit(job: PateFitJob) -> Fitted:
    """Train teachers on a file of private rows, and a student on their answers to public ones: charge, then
    read.

    ``source`` is a CSV or Parquet file, or a pattern of several, and ``queries`` another with public rows
    of the same columns, whose target may be absent. ``teacher`` and ``student`` are names of
    :data:`tacit.pate.student.KINDS` that classify, or estimators. The model is written to ``out``, if that
    is given, without its teachers. Guarantee: that of :class:`tacit.pate.PATEClassifier`, under the
    relation and for the unit of the ledger.
    """
    return job.run()


def _named(role: str, estimator: Any) -> Any:
    """An estimator by its name, with scikit-learn's defaults; anything else as it is."""
    from sklearn.base import is_classifier

    from tacit.pate.student import KINDS, known

    if not isinstance(estimator, str):
        return estimator
    names = tuple(tag for tag in KINDS if tag != "pipeline" and is_classifier(known(tag)()))
    return known(_validate.choice(role, estimator, names))()


def _shape(source: Path, queries: int | None, classes: int | None) -> tuple[int, int]:
    """How many queries and classes a file of votes is said to have; no vote is read."""
    import numpy as np

    if not source.is_file():
        raise SourceMissing(f"There is no file {source}.", "Name an .npy or CSV file of votes.")
    if source.suffix != ".npy":
        if queries is None or classes is None:
            advice = "Say both: a CSV file tells its shape only to whoever reads the votes."
            raise InvalidValue(
                "queries" if queries is None else "classes", None, "given for a CSV file", advice
            )
        return _validate.count("queries", queries, 1), _validate.count("classes", classes, 2)
    try:
        with source.open("rb") as stream:
            version = np.lib.format.read_magic(stream)
            reader = (
                np.lib.format.read_array_header_1_0
                if version == (1, 0)
                else np.lib.format.read_array_header_2_0
            )
            found = reader(stream)[0]
    except ValueError:
        raise InvalidValue("votes", str(source), "an .npy file of numbers") from None
    if len(found) != 2:
        raise InvalidValue("votes", f"of shape {found}", "a matrix: queries by classes")
    for name, given, known in (("queries", queries, found[0]), ("classes", classes, found[1])):
        if given not in (None, known):
            raise InvalidValue(name, given, f"{known}, as the file says, or left out")
    return int(found[0]), int(found[1])


def _votes_in(source: Path) -> Any:
    import numpy as np

    try:
        if source.suffix == ".npy":
            return np.load(source, allow_pickle=False)
        return np.loadtxt(source, delimiter=",", ndmin=2)
    except ValueError:
        pass
    raise InvalidValue("votes", str(source), "numbers, one row for each query", "The charge stands.")


def _write(path: Path, labels: Any) -> None:
    lines = (f"{query},{label if label >= 0 else ''}" for query, label in enumerate(labels.tolist()))
    path.write_text("\n".join(["query,answer", *lines]) + "\n", encoding="utf-8")
