"""PATEClassifier: private aggregation of teacher ensembles, from rows to a student."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.data.declared import declared_classes
from tacit.data.units import unit_numbers
from tacit.errors import InvalidValue
from tacit.ledger import Payment
from tacit.pate.answering import Answering, PrivateRows
from tacit.pate.partition import drawn_teachers, strictest_groups
from tacit.pate.planning import AnswerPlan, plan_answers
from tacit.pate.teachers import STATELESS, Votes, check_estimator, checked_jobs, collect_votes
from tacit.randomness import Source

__all__ = ["PATEClassifier"]

BY_GROUP = (
    "neighbours differ in one unit of the same group; which units belong to which group is not protected"
)


class PATEClassifier(Answering):
    """A classifier that learns from noisy votes of teachers, of which each saw other private rows.

    **Relation and sensitivity.** Every unit (or row, where no ``units`` are given) draws its teacher
    independently and uniformly, so a unit that is added, removed or replaced changes the rows of one
    teacher, and with them at most one vote per query (:mod:`tacit.pate.partition`,
    :mod:`tacit.pate.teachers`). All rows of a unit go to the same teacher: the guarantee for a unit does
    not depend on how many rows it has.

    **Event.** Of the public queries ``n_queries`` are asked in random order, until ``n_answers`` of them were
    answered. Both are fixed in advance, and the worst case is charged before any row is read: for
    :class:`~tacit.pate.ConfidentGNMax`, ``n_queries`` tests of the threshold and ``n_answers`` noisy
    maxima (:mod:`tacit.pate.planning`).

    **Released**: which queries were answered, their answers, and the student. Teachers and votes are thrown
    away. The student is fitted to public inputs and released answers, so its parameters may be tuned, and
    it may be fitted again (:meth:`teach`), at no cost.

    Parameters
    ----------
    teacher, student
        Any estimators with ``fit`` and ``predict``: scikit-learn's, this library's without a ledger (a
        teacher needs no noise of its own, so scikit-learn's are better), or a PyTorch module in
        :class:`~tacit.pate.Network`.
    n_teachers
        How many teachers. More teachers make the same noise matter less, with fewer rows for each.
    aggregator
        An aggregator of :mod:`tacit.pate` with noise and threshold; the budget decides how many answers it
        gives. Left out, both are planned from public facts.
    epsilon, delta
        The budget. ``epsilon`` and ``n_teachers`` may be mappings of the same groups of people, each with
        an ε of its own; then ``fit`` takes ``groups``, and ``group_guarantees_`` says what each was
        promised.
    classes
        All labels there may be; labels outside are ignored.
    n_queries, n_answers
        How many queries are asked and how many answered at most; left out, they are planned.
    semi_supervised
        How the student uses public inputs without an answer: None, ``"self-training"``,
        ``"propagation"`` or ``"discriminant-propagation"`` (:mod:`tacit.pate.student`).
    relation, rows_per_unit, ledger, label, random_state
        As for the estimators. ``rows_per_unit`` is what the guarantee and the ledger say of a unit; no row
        is dropped.
    n_jobs
        How many processes train teachers, None for one on each core. With 1, teachers are trained here.
    verbose
        Print the plan, and how many teachers have voted.

    Papernot, Abadi, Erlingsson, Goodfellow and Talwar 2017; Papernot, Song, Mironov, Raghunathan, Talwar and
    Erlingsson 2018.

    >>> from sklearn.datasets import make_blobs
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = make_blobs(6000, centers=3, random_state=1)
    >>> model = PATEClassifier(
    ...     LogisticRegression(), LogisticRegression(), n_teachers=100, epsilon=2.0, delta=1e-5,
    ...     classes=[0, 1, 2], random_state=1,
    ... )
    >>> print(model.plan(queries=1000))  # doctest: +ELLIPSIS
    ε = ..., δ = 1e-05, add_remove
      100 teachers, ... queries, at most ... answers
      ConfidentGNMax(...)
    >>> model = model.fit(X[:5000], y[:5000], queries=X[5000:])
    >>> float(np.mean(model.predict(X[5000:]) == y[5000:])) > 0.9
    True
    """

    title = "student of private teachers"

    def __init__(
        self,
        teacher: Any = None,
        student: Any = None,
        *,
        n_teachers: int | Mapping[Any, int] = 250,
        aggregator: Any = None,
        epsilon: float | Mapping[Any, float] = 1.0,
        delta: float = 0.0,
        classes: Any = None,
        n_queries: int | None = None,
        n_answers: int | None = None,
        semi_supervised: str | None = None,
        relation: str = "add_remove",
        rows_per_unit: int = 1,
        ledger: Any = None,
        label: str | None = None,
        n_jobs: int | None = 1,
        verbose: bool = False,
        random_state: int | None = None,
    ) -> None:
        self.teacher = teacher
        self.student = student
        self.n_teachers = n_teachers
        self.aggregator = aggregator
        self.epsilon = epsilon
        self.delta = delta
        self.classes = classes
        self.n_queries = n_queries
        self.n_answers = n_answers
        self.semi_supervised = semi_supervised
        self.relation = relation
        self.rows_per_unit = rows_per_unit
        self.ledger = ledger
        self.label = label
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, X: Any, y: Any, queries: Any, units: Any = None, groups: Any = None) -> Any:
        """Train teachers on private rows, answer public ``queries``, and teach the student; the charge
        comes first.

        ``queries`` are public rows of the same features as X. ``units`` names the unit of each private row,
        and ``groups`` its group where ``epsilon`` is a mapping. A row with a value that is not finite, an
        undeclared label or group, or no unit contributes nothing.
        """
        if (groups is not None) is not isinstance(self.epsilon, Mapping):
            needed = "given, one for each row" if groups is None else "left out where epsilon is one number"
            raise InvalidValue("groups", None if groups is None else "given", needed)
        return self._fit_given(X, y, queries, units, groups)

    def _planned(self, queries: int, payment: Payment) -> AnswerPlan:
        return plan_answers(
            self.aggregator, queries=queries, teachers=self.n_teachers,
            classes=len(declared_classes(self.classes)),
            epsilon=self.epsilon, delta=self.delta, relation=payment.relation, asked=self.n_queries,
            answers=self.n_answers,
        )  # fmt: skip

    def _answers(
        self, plan: AnswerPlan, queries: NDArray[Any], rows: PrivateRows, source: Source, tell: Any
    ) -> NDArray[np.int64]:
        seeds = [source.bits(31) for _ in range(plan.teachers)]
        teachers = self._partition(plan, rows, source)
        public = Votes(self.teacher, queries, tuple(declared_classes(self.classes)))
        mine = [np.flatnonzero(teachers == place) for place in range(plan.teachers)]
        parts = [(rows.matrix[places], rows.labels[places]) for places in mine]
        weights = [each.votes for each in plan.groups for _ in range(each.teachers)] or None
        votes = collect_votes(public, parts, seeds, weights=weights, n_jobs=self.n_jobs, tell=tell)
        return np.asarray(plan.aggregator.answer(votes, random_state=source))

    def _partition(self, plan: AnswerPlan, rows: PrivateRows, source: Source) -> NDArray[np.int64]:
        """The teacher of each row, −1 for a row that counts nowhere."""
        count = len(rows.labels)
        groups = np.zeros(count, dtype=np.int64)
        if rows.groups is not None:
            groups = strictest_groups(rows.units, rows.groups, [each.name for each in plan.groups])
        units = np.arange(count) if rows.units is None else unit_numbers(rows.units)
        sizes = [each.teachers for each in plan.groups] or [plan.teachers]
        return np.where(rows.labels >= 0, drawn_teachers(units, groups, sizes, source), -1)

    def _assumptions(self, plan: AnswerPlan) -> tuple[str, ...]:
        return (STATELESS, BY_GROUP) if plan.groups else (STATELESS,)

    def _check(self) -> None:
        check_estimator("teacher", self.teacher)
        checked_jobs(self.n_jobs)
        super()._check()

    def _facts(self) -> tuple[tuple[str, str], ...]:
        return () if self.n_teachers is None else (("teachers", str(self.n_teachers)),)
