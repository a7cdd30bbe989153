"""The road from private rows to a student, which all classifiers of this package take.

1. **plan**: public facts (queries, classes, ε, δ) make an :class:`~tacit.pate.planning.AnswerPlan`.
2. **agreement**: relation and unit are those of the ledger, or the fit is refused.
3. **charge**: the event of the worst case is charged, durably, in one piece.
4. **rows**: only now are the private rows read.
5. **answers**: noisy answers to some of the public queries; votes and teachers are thrown away.
6. **student**: fitted to public inputs and released answers, outside the charge: post-processing.

**What is released**: which of the queries were answered, their answers, and the student, which is computed
from these. Nothing else is kept: no row, no teacher, no vote.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from tacit import _validate
from tacit.data import given
from tacit.data.declared import declared_classes
from tacit.errors import CannotLearn, InvalidValue
from tacit.guarantee import Guarantee
from tacit.ledger import Payment
from tacit.models.claims import checked_guarantee
from tacit.models.description import Description
from tacit.models.telling import Telling
from tacit.pate.planning import AnswerPlan
from tacit.pate.student import check_student, from_parts, taught, to_parts
from tacit.randomness import Source
from tacit.relations import Relation, Unit

__all__ = ["AnswerRate", "Answering", "PrivateRows", "Queries", "Read"]

PUBLIC = "the queries are public: they were chosen without the private rows"
CHOSEN = "the parameters were chosen without the data"
NEVER_SAVED = ("ledger", "random_state", "teacher", "student")
"""Parameters that are not written into model files as they are; a student of a known class is, as its
parts."""

Int64 = NDArray[np.int64]


@dataclass(frozen=True)
class PrivateRows:
    """Private rows as they were read, inside the charge. They must not be kept."""

    matrix: NDArray[Any]
    labels: Int64
    """Places among the declared classes, −1 for rows that count nowhere."""
    units: NDArray[Any] | None
    groups: NDArray[Any] | None = None


Read = Callable[[], tuple[Any, Any, Any]]
"""Reads the private rows: (X, y, units), with None for units that there are none of."""


@dataclass(frozen=True)
class AnswerRate:
    """Of the queries that the student takes for one class, how many were asked and how many answered."""

    label: Any
    asked: int
    answered: int
    """Those that were answered, with whatever class."""
    answers: int
    """Answers that name this class."""

    @property
    def rate(self) -> float:
        """The share that was answered; NaN where none was asked."""
        return self.answered / self.asked if self.asked else float("nan")


@dataclass(frozen=True)
class Queries:
    """Public queries, one for each row of the matrix."""

    matrix: NDArray[Any]
    named: Mapping[str, Any]
    """``n_features_in_`` and, where the queries have names, ``feature_names_in_``."""


def _student_has_probabilities(self: Any) -> bool:
    return hasattr(getattr(self, "student_", None) or self.student, "predict_proba")


class Answering(ClassifierMixin, Telling):  # type: ignore[misc]
    """Base of the classifiers that answer public queries privately and teach a student the answers."""

    title: ClassVar[str]
    released: ClassVar[tuple[str, ...]] = (
        "classes_", "queries_", "asked_", "answered_", "answers_", "student_seed_", "n_features_in_",
        "feature_names_in_",
    )  # fmt: skip

    def _planned(self, queries: int, payment: Payment) -> AnswerPlan:
        """What will be asked, answered and paid, from public facts."""
        raise NotImplementedError

    def _answers(
        self, plan: AnswerPlan, queries: NDArray[Any], rows: PrivateRows, source: Source, tell: Any
    ) -> Int64:
        """A class for each query, −1 where there is no answer. Raises nothing that rows decide."""
        raise NotImplementedError

    def _assumptions(self, plan: AnswerPlan) -> tuple[str, ...]:
        return ()

    def plan(self, queries: int) -> AnswerPlan:
        """What ``fit`` with so many public queries will ask, answer and cost. Reads no data."""
        return self._planned(_validate.count("queries", queries, 1), self._agreed(self._by_unit()))

    def fit(self, X: Any, y: Any, queries: Any, units: Any = None) -> Any:
        """Answer public ``queries`` from private rows, and teach the student; the charge comes first.

        ``queries`` are public rows of the same features as X. ``units`` names the unit of each private row.
        A row with a value that is not finite, an undeclared label or no unit contributes nothing.
        """
        return self._fit_given(X, y, queries, units, None)

    def _fit_given(self, X: Any, y: Any, queries: Any, units: Any, groups: Any) -> Any:
        asked = self._public(queries)
        width = asked.matrix.shape[1]
        given.require_numbers(X)
        given.require_targets(y, self.classes)
        names = asked.named.get("feature_names_in_")
        if names is not None and hasattr(X, "columns") and list(X.columns) != list(names):
            raise InvalidValue("queries", "named otherwise", "with the columns of X, in the same order")
        if given.width_of(X, width) != width:
            raise InvalidValue("queries", f"{width} columns", "as many as X has")
        rows = self._rows(X, y, units, groups, asked)
        return self._fit(asked, units is not None, lambda: rows, given.assumed(X, width), None)

    def fit_rows(
        self,
        queries: Any,
        read: Read,
        *,
        assumptions: Sequence[str] = (),
        tell: Callable[[int, int], None] | None = None,
    ) -> Any:
        """As ``fit``, from private rows that ``read`` fetches, once, and only after the charge.

        ``read`` returns (X, y, units): units are expected where the ledger's unit is a column.
        ``assumptions`` are added to those of the guarantee; ``tell`` is told how many of how many teachers
        are done.
        """
        asked = self._public(queries)

        def rows() -> PrivateRows:
            X, y, units = read()
            return self._rows(X, y, units, None, asked)

        return self._fit(asked, self._by_unit(), rows, assumptions, tell)

    def _fit(
        self,
        asked: Queries,
        by_unit: bool,
        read: Callable[[], PrivateRows],
        assumptions: Sequence[str],
        tell: Callable[[int, int], None] | None,
    ) -> Any:
        payment = self._agreed(by_unit)
        plan = self._planned(len(asked.matrix), payment)
        self._check()
        if self.verbose:
            print(plan)
            tell = tell or _printed
        for doubt in plan.doubts:
            warnings.warn(doubt, CannotLearn, stacklevel=4)
        source = Source(self.random_state)
        kind = "seeded" if source.seeded else "exact"
        label = self.label or self.title
        with payment.charge(plan.event, label, noise=kind, delta=plan.delta):
            self._forget()
            rows = read()
            if (rows.units is not None) is not by_unit:
                needed = "one per row, as the ledger says" if by_unit else "left out"
                raise InvalidValue("units", None if by_unit else "given", needed)
            order = np.argsort(source.words(len(asked.matrix)), kind="stable")[: plan.asked]
            found = self._answers(plan, asked.matrix[order], rows, source, tell)
            del rows
        told = np.flatnonzero(found >= 0)[: plan.answered]
        self._keep(plan, payment, asked, order, told, found[told], kind, assumptions)
        self.student_seed_ = source.bits(31)
        return self.teach(self.student)

    def _keep(
        self, plan: AnswerPlan, payment: Payment, asked: Queries, order: Any, told: Any, found: Any,
        kind: str, assumptions: Sequence[str],
    ) -> None:  # fmt: skip
        """Set what is released: queries are put in order until there are enough answers, and no further."""
        for name, fact in asked.named.items():
            setattr(self, name, fact)
        self.classes_ = np.array(declared_classes(self.classes))
        self.queries_ = asked.matrix
        stopped = int(told[-1]) + 1 if len(told) == plan.answered else plan.asked
        self.asked_ = order[:stopped].astype(np.int64)
        self.answered_, self.answers_ = order[told].astype(np.int64), found.astype(np.int64)
        self.event_ = plan.event
        assumed = (CHOSEN, PUBLIC, *self._assumptions(plan), *assumptions)

        def promise(epsilon: float, event: Any, more: tuple[str, ...] = ()) -> Guarantee:
            return Guarantee(
                epsilon, plan.delta, event, payment.relation, payment.unit, kind, (*assumed, *more)
            )

        self.guarantee_ = promise(plan.epsilon, plan.event)
        if plan.groups:
            self.group_guarantees_ = {
                each.name: promise(each.epsilon, each.event, (f"of the people of group {each.name!r}",))
                for each in plan.groups
            }

    def teach(self, student: Any) -> Any:
        """Fit a student to the released answers: post-processing, as often as you like.

        Call it with another student, or after loading a file whose student's class the file could not hold.
        """
        check_is_fitted(self, "guarantee_")
        check_student(student, self.semi_supervised)
        self.student = student
        self.student_ = taught(
            student, self.queries_, self.answered_, self.answers_, self.classes_,
            semi_supervised=self.semi_supervised, seed=self.student_seed_,
        )  # fmt: skip
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The student's prediction; where answers named a single class or none, that class or the first."""
        check_is_fitted(self, "guarantee_")
        matrix = validate_data(self, X, reset=False)
        if getattr(self, "student_", None) is None:
            if not hasattr(self, "student_"):
                raise InvalidValue("student", None, "taught", "Call teach(student) on the loaded model.")
            usual = self.classes_[self.answers_[0] if len(self.answers_) else 0]
            return np.full(len(matrix), usual)
        return np.asarray(self.student_.predict(matrix))

    @available_if(_student_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The student's probabilities, one column for each declared class."""
        check_is_fitted(self, "student_")
        matrix = validate_data(self, X, reset=False)
        chances = np.zeros((len(matrix), len(self.classes_)))
        if self.student_ is None:
            chances[:, self.answers_[0] if len(self.answers_) else 0] = 1.0
            return chances
        columns = given.places(np.asarray(self.student_.classes_), self.classes_.tolist())
        chances[:, columns] = self.student_.predict_proba(matrix)
        return chances

    def answer_rates(self) -> list[AnswerRate]:
        """How often each class was answered: from what was released, so it costs nothing.

        The class of a query without an answer is not known; the student's prediction stands in for it. A
        class that is answered far less often than others is one that teachers disagree about, often because
        few of their rows are of it: the student will be worse for it, too.
        """
        taken = given.places(self.predict(self.queries_[self.asked_]), self.classes_.tolist())
        answered = np.isin(self.asked_, self.answered_)
        return [
            AnswerRate(
                label,
                int((taken == i).sum()),
                int((answered & (taken == i)).sum()),
                int((self.answers_ == i).sum()),
            )
            for i, label in enumerate(self.classes_.tolist())
        ]

    def describe(self, names: Sequence[str] | None = None) -> Description:
        """What the fitted model says of itself; all of it is public or was released."""
        check_is_fitted(self, "guarantee_")
        asked, answers = len(self.asked_), len(self.answers_)
        facts = [
            *self._facts(),
            ("student", type(self.student).__name__ if self.student is not None else "not in the file"),
            ("queries", f"{asked} asked, {answers} answered ({answers / max(asked, 1):.0%})"),
        ]
        if hasattr(self, "student_"):
            facts += [
                (f"class {each.label}", f"{each.asked} asked, {each.answered} answered ({each.rate:.0%})")
                for each in self.answer_rates()
                if each.asked
            ]
        return Description(self.title, tuple(facts), tuple(self.classes_.tolist()))

    def _facts(self) -> tuple[tuple[str, str], ...]:
        return ()

    def _check(self) -> None:
        """Refuse, before the charge, a student that cannot be fitted."""
        check_student(self.student, self.semi_supervised)

    def _public(self, queries: Any) -> Queries:
        """The public queries as numbers, which must all be finite."""
        matrix = given.declared_matrix(queries, None)
        if not len(matrix) or not np.isfinite(matrix).all():
            raise InvalidValue("queries", "empty or not all finite", "finite numbers, one row or more")
        aside = BaseEstimator()
        validate_data(aside, queries if hasattr(queries, "columns") else matrix, skip_check_array=True)
        return Queries(matrix, vars(aside))

    def _rows(self, X: Any, y: Any, units: Any, groups: Any, asked: Queries) -> PrivateRows:
        """The private rows in one form, by types and shapes alone."""
        width = asked.matrix.shape[1]
        matrix = given.declared_matrix(X, width)
        if matrix.shape[1] != width:
            raise InvalidValue("X", f"{matrix.shape[1]} columns", f"{width}, as the queries have")
        labels = given.places(given.column("y", y, len(matrix)), declared_classes(self.classes))
        finite = np.isfinite(matrix).all(axis=1)
        return PrivateRows(
            matrix,
            np.where(finite, labels, -1),
            None if units is None else given.column("units", units, len(matrix)),
            None if groups is None else given.column("groups", groups, len(matrix)),
        )

    def _by_unit(self) -> bool:
        """Whether rows will come with the name of their unit, as far as the ledger tells."""
        return getattr(getattr(self.ledger, "unit", None), "column", None) is not None

    def _agreed(self, by_unit: bool) -> Payment:
        most = _validate.count("rows_per_unit", self.rows_per_unit, 1)
        unit = Unit("unit", most) if by_unit else Unit()
        return Payment.agreed(self.ledger, relation=Relation.of(self.relation), unit=unit, named=False)

    def _to_saved(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Parameters and what was released, for a model file: never a teacher."""
        params = {name: each for name, each in self.get_params(deep=False).items() if name not in NEVER_SAVED}
        params.pop("aggregator", None)
        params["classes"] = declared_classes(self.classes)
        for name in ("epsilon", "n_teachers"):
            if isinstance(params.get(name), Mapping):
                params[name] = None
        found = {name: getattr(self, name) for name in self.released if hasattr(self, name)}
        groups = [(name, each.to_json()) for name, each in getattr(self, "group_guarantees_", {}).items()]
        return {
            "params": params,
            "attributes": found,
            "student": to_parts(self.student),
            "groups": groups,
        }, {}

    @classmethod
    def _from_saved(cls, state: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Any:
        if set(NEVER_SAVED) & set(state["params"]):
            raise ValueError("a parameter that is not saved")
        model = cls(student=None, **state["params"])
        for name, value in state["attributes"].items():
            if name not in cls.released:
                raise ValueError("an attribute that is not saved")
            setattr(model, name, value)
        if state["groups"]:
            model.group_guarantees_ = {name: checked_guarantee(each) for name, each in state["groups"]}
        if state["student"] is not None:
            model.student = from_parts(state["student"])
            model.student_ = taught(
                model.student, model.queries_, model.answered_, model.answers_, model.classes_,
                semi_supervised=model.semi_supervised, seed=model.student_seed_,
            )  # fmt: skip
        return model


def _printed(done: int, of: int) -> None:
    if done == of or done % max(1, of // 10) == 0:
        print(f"{done} of {of} teachers have voted")
