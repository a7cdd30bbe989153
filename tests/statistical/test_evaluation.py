"""Audits of private evaluations on worst-case neighbours, and twins that must be caught.

Everything in an evaluation comes from one vector of noisy counts or sums, which is what the audits see.
The rows go through the real evaluation once; then the noise alone is drawn again and again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from contract.registry import Case, Make, Noise, Pair, check_audit, register
from contract.table_questions import Scales
from tacit import audit, events
from tacit.errors import InvalidValue
from tacit.evaluation import Evaluation, alone, evaluate, evaluate_rows, tally
from tacit.evaluation import measuring as evaluation
from tacit.ledger import Ledger
from tacit.relations import Relation, Unit


class Says(ClassifierMixin, BaseEstimator):
    """Predicts the class that a row holds in its first column, and is sure of it."""

    def __init__(self, classes: int = 2) -> None:
        self.classes, self.classes_ = classes, np.arange(classes)

    def fit(self, X: Any, y: Any) -> Says:
        return self

    def predict(self, X: Any) -> Any:
        return X[:, 0].astype(int)


class Sure(Says):
    def predict_proba(self, X: Any) -> Any:
        return np.eye(len(self.classes_))[self.predict(X)]


class Relative(Says):
    """Scores a row by how far it is above the mean of the rows it is called with."""

    def predict_proba(self, X: Any) -> Any:
        score = expit(4 * (X[:, 0] - X[:, 0].mean() + 0.1))
        return np.column_stack([1 - score, score])


class First(RegressorMixin, BaseEstimator):
    def fit(self, X: Any, y: Any) -> First:
        return self

    def predict(self, X: Any) -> Any:
        return X[:, 0]


@dataclass(frozen=True)
class Row:
    """What is predicted, what is true, the group it is counted in and the unit it belongs to."""

    said: float
    true: float
    sex: str = "F"
    who: str = "someone"


Rows = tuple[Row, ...]
BASE: Rows = (Row(0, 0, "F", "a"), Row(1, 0, "M", "b"), Row(1, 1, "X", "c"))
STEPS = 2**20
"""Sums of regressions are counted in steps of 2⁻²⁰."""


@dataclass(frozen=True)
class Question:
    """An evaluation and its worst-case neighbours.

    ``cells`` is how many of the vector there are in all and ``reach`` how far one unit may move it, in ℓ1
    or, with ``delta``, in ℓ2.
    """

    model: Any
    more: Rows
    fewer: Rows
    cells: int
    reach: float
    epsilon: float
    delta: float = 0.0
    options: dict[str, Any] = field(default_factory=dict)
    runs: int = 20_000

    @property
    def relation(self) -> str:
        return self.options.get("relation", "add_remove")

    def asked(self, rows: Rows, random_state: int | None) -> Any:
        """The real evaluation."""
        inputs, targets, units, labels = self.columns(rows)
        options = {name: value for name, value in self.options.items() if name != "by_sex"}
        if labels is not None:
            options["groups"] = {"sex": (labels["sex"], ["F", "M"])}
        return evaluate(
            self.model, inputs, targets, epsilon=self.epsilon, delta=self.delta,
            random_state=random_state, units=units, **options,
        )  # fmt: skip

    def read(self, ledger: Ledger, access: Callable[[], Rows], random_state: int | None) -> Any:
        """The real evaluation of rows that are read once they are paid for."""
        options = {name: value for name, value in self.options.items() if name != "by_sex"}
        if "by_sex" in self.options:
            options["groups"] = {"sex": ["F", "M"]}
        return evaluate_rows(
            self.model, lambda: self.columns(access()), epsilon=self.epsilon, delta=self.delta,
            ledger=ledger, random_state=random_state, units="rows_per_unit" in self.options, **options,
        )  # fmt: skip

    def columns(self, rows: Rows) -> tuple[Any, Any, Any, Any]:
        """Inputs, targets, units and labels of groups, each None where there are none."""
        inputs = np.array([[row.said] for row in rows], dtype=float).reshape(-1, 1)
        units = np.array([row.who for row in rows]) if "rows_per_unit" in self.options else None
        labels = {"sex": [row.sex for row in rows]} if "by_sex" in self.options else None
        return inputs, np.array([row.true for row in rows]), units, labels

    @property
    def unit(self) -> Unit:
        most = self.options.get("rows_per_unit")
        return Unit() if most is None else Unit("who", most)


@dataclass(frozen=True)
class Often:
    """Noise that is added to one vector many times, and is ``less`` times as large as it claims."""

    claimed: Any
    runs: int
    less: float

    @property
    def event(self) -> events.Event:
        return self.claimed.event

    @property
    def noise(self) -> str:
        return self.claimed.noise

    def __call__(self, exact: np.ndarray) -> np.ndarray:
        claimed = self.claimed
        size: dict[str, Any] = {"epsilon": claimed.epsilon / self.less}
        if isinstance(claimed.event, events.ZeroConcentrated):
            size = {"noise_multiplier": self.less / math.sqrt(2 * claimed.event.rho)}
        made = type(claimed)(claimed.sensitivity, **size, random_state=claimed.random_state)
        return made(np.broadcast_to(exact, (self.runs, len(exact))))


@dataclass(frozen=True)
class Evaluating:
    """An evaluation as a mechanism: from rows to the noisy vectors behind its figures."""

    question: Question
    random_state: int | None
    less: float = 1.0

    @property
    def event(self) -> events.Event:
        """The event that the evaluation claims, on any rows."""
        return self.question.asked(BASE, self.random_state).guarantee.event

    @property
    def noise(self) -> str:
        return str(self.question.asked(BASE, self.random_state).guarantee.noise)

    def __call__(self, rows: Rows) -> np.ndarray:
        return self.many(rows, 1)[0]

    def many(self, rows: Rows, runs: int, noisy: Callable[..., Any] | None = None) -> np.ndarray:
        """Vectors, one in each line."""
        sound = evaluation.noise_for

        def noise(*given: Any) -> Often:
            return (noisy or Often)(sound(*given), runs, self.less)

        def vector(task: Any, released: np.ndarray, free: Any, *rest: Any) -> np.ndarray:
            assert not free.figures, "a figure without noise"
            assert not free.ends, "an interval without noise"
            return released

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(evaluation, "noise_for", noise)
            patch.setattr(evaluation, "_evaluation", vector)
            return self.question.asked(rows, self.random_state)

    def exact(self, rows: Rows) -> np.ndarray:
        """The vector without noise; which rows of a unit are kept makes no difference to ours."""

        class Silent(Often):
            def __call__(self, exact: np.ndarray) -> np.ndarray:
                return exact

        return self.many(rows, 1, Silent)


def runs_of(make: Make, rows: Rows, times: int, seed: int | None) -> np.ndarray:
    return make(seed).many(rows, times)


def case_of(name: str) -> Case:
    question = QUESTIONS[name]

    def making(less: float) -> Make:
        return lambda random_state: Evaluating(question, random_state, less)

    told = question.asked(BASE, 1).guarantee
    assert told.epsilon == question.epsilon
    gaussian = isinstance(told.event, events.ZeroConcentrated)
    scale = question.reach / (math.sqrt(2 * told.event.rho) if gaussian else question.epsilon)
    scales = Scales(((scale, question.cells),), gaussian=gaussian)

    def loss(seen: np.ndarray) -> np.ndarray:
        """The log-likelihood ratio, for Laplace noise in parts of the most it can be."""
        one, other = (making(1.0)(1).exact(rows).astype(float) for rows in (question.more, question.fewer))
        if gaussian:
            return (seen - (one + other) / 2) @ (one - other)
        return (np.abs(seen - other) - np.abs(seen - one)).sum(axis=1) / np.abs(one - other).sum()

    def draw(make: Make, runs: int, seed: int | None) -> np.ndarray:
        made = make(seed)
        several = made.many(BASE, -(-runs // question.cells)) - made.exact(BASE)
        assert several.shape[1] == question.cells
        return several.ravel().astype(float)

    rule = audit.Split(seed=0) if gaussian else audit.Fixed(1 - 1e-9)
    return Case(
        name=name, event=told.event, delta=told.delta, make=making(1.0), broken=making(2 / 3),
        pair=Pair(question.more, question.fewer, loss, runs_of, (question.runs,) * 2, rule),
        noise=Noise(draw, scales.cdf, 20_000), relation=question.relation, data=question.more,
        release=lambda ledger, made, access: made.question.read(ledger, access, made.random_state),
        unit=question.unit, covers=frozenset({"evaluate", "evaluate_rows"}), bad_inputs=bad_inputs(question),
    )  # fmt: skip


def bad_inputs(question: Question) -> tuple[Any, ...]:
    """Parameters that are refused."""
    bad = [("epsilon", value) for value in (0, -1.0, math.nan, math.inf, "1", None)]
    bad += [("delta", value) for value in (-1e-9, 1.0, math.nan, "0")]
    return tuple(
        (f"{name}={value!r}", partial(replace(question, **{name: value}).asked, BASE, 1), InvalidValue)
        for name, value in bad
    )


HERS = (Row(1, 0, "F", "she"),) * 5
"""A unit of five rows, of which two are used."""
RIGHT, WRONG = (*BASE, Row(1, 1, "M")), (*BASE, Row(1, 0, "F"))
OFF, ON = (*BASE, Row(0, 1)), (*BASE, Row(0, 0))
SEX, REPLACED = {"by_sex": True, "bins": 2}, {"relation": "replace_one"}
BOUNDS = {"target_bounds": (0.0, 1.0)}
QUESTIONS = {
    "two classes": Question(Sure(), RIGHT, BASE, 101, 1, 1.0),
    "two classes by sex": Question(Sure(), RIGHT, BASE, 14, 2, 2.0, options=SEX),
    "two classes by sex, replaced": Question(Sure(), RIGHT, WRONG, 14, 4, 3.0, options={**SEX, **REPLACED}),
    "two classes, only predicted": Question(Says(), RIGHT, BASE, 101, 1, 1.0),
    "three classes": Question(Sure(3), RIGHT, BASE, 31, 2, 2.0),
    "three classes by sex": Question(Sure(3), RIGHT, BASE, 36, 3, 3.0, options=SEX),
    "three classes, only predicted": Question(Says(3), RIGHT, BASE, 10, 1, 1.0),
    "three classes, only predicted, replaced": Question(Says(3), RIGHT, WRONG, 10, 2, 2.0, options=REPLACED),
    "a unit of two rows": Question(
        Sure(), BASE + HERS, BASE, 14, 4, 2.0, options={**SEX, "rows_per_unit": 2}
    ),
    "a regression": Question(First(), OFF, BASE, 6, 6 * STEPS, 2.0, options=BOUNDS, runs=200_000),
    "a regression, replaced": Question(
        First(), OFF, ON, 6, 6 * STEPS, 2.0, options={**BOUNDS, **REPLACED}, runs=200_000
    ),
    "two classes by sex, Gaussian": Question(
        Sure(), RIGHT, WRONG, 14, 2.0, 2.0, 0.05, {**SEX, **REPLACED}, 50_000
    ),
    "three classes by sex, Gaussian": Question(
        Sure(3), RIGHT, BASE, 36, math.sqrt(3), 2.0, 0.05, SEX, 50_000
    ),
    "a regression, Gaussian": Question(
        First(), OFF, BASE, 6, math.sqrt(6) * STEPS, 2.0, 0.05, BOUNDS, 50_000
    ),
}
EQUAL = tuple(Row(0.5, 1, "F", str(i)) for i in range(8))
QUESTIONS["a model that looks at all rows"] = Question(
    Relative(), (*EQUAL, Row(9, 1, "F", "far")), EQUAL, 101, 1, 1.0
)
NAMES = list(QUESTIONS)


for name in NAMES:
    register(replace(case_of(name), name=f"evaluation of {name}"))


@pytest.mark.parametrize("name", NAMES)
def test_evaluations_claim_what_was_asked_for(name: str) -> None:
    assert case_of(name).epsilon <= QUESTIONS[name].epsilon


def loosest(name: str) -> float:
    """How much of the reach the neighbours use."""
    question, made = QUESTIONS[name], case_of(name).make(1)
    moved = (made.exact(question.more) - made.exact(question.fewer)).astype(float)
    return float(np.linalg.norm(moved, 2 if question.delta else 1)) / question.reach


@pytest.mark.parametrize("name", NAMES)
def test_the_worst_case_is_allowed_for_and_worst(name: str) -> None:
    """A replaced row of a regression cannot move u by 2 and u² at all, for which the noise allows."""
    expected = 5 / 6 if name == "a regression, replaced" else 1.0
    assert loosest(name) == pytest.approx(expected, rel=1e-12)


# ------------------------------------------------------------------------------------- twins of the rows


def test_units_that_are_not_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "bounded_units", lambda groups, most, source: np.ones(len(groups), bool))
    with pytest.raises(AssertionError, match="claims"):
        check_audit(case_of("a unit of two rows"))


def test_rows_that_are_scored_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounding by the number of rows is a small case of this: one row more changes the cells of others."""
    monkeypatch.setattr(alone.MatrixScorer, "of", lambda asked, rows: asked._answers(rows, asked.model))
    with pytest.raises(AssertionError, match="claims"):
        check_audit(case_of("a model that looks at all rows"))


class NoClipping:
    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def clip(self, values: Any, *bounds: Any) -> Any:
        return values


def test_targets_that_are_not_clipped(monkeypatch: pytest.MonkeyPatch) -> None:
    far = replace(QUESTIONS["a regression"], more=(*BASE, Row(-5, 5)))
    monkeypatch.setitem(QUESTIONS, "far", far)
    check_audit(case_of("far"))
    monkeypatch.setattr(tally, "np", NoClipping())
    with pytest.raises(AssertionError, match="claims"):
        check_audit(case_of("far"))


def test_blocks_that_are_counted_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The noise of a single histogram, however many there are."""
    single = replace(QUESTIONS["three classes by sex"], reach=1)
    monkeypatch.setitem(QUESTIONS, "single", single)
    monkeypatch.setattr(tally.Tally, "sensitivity", lambda task, relation, norm: 1.0)
    with pytest.raises(AssertionError, match="claims"):
        check_audit(case_of("single"))


def test_a_relation_that_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    sensitivity = tally.Tally.sensitivity
    monkeypatch.setattr(
        tally.Tally, "sensitivity", lambda task, relation, norm: sensitivity(task, Relation.ADD_REMOVE, norm)
    )
    for name in ("two classes by sex, replaced", "two classes by sex, Gaussian"):
        with pytest.raises(AssertionError, match="claims"):
            check_audit(case_of(name))


# ------------------------------------------------------------------------------ nothing but the vector


def published(name: str, rows: Rows) -> dict[str, Any]:
    """All that an evaluation says, where the noisy vector happens to be the same whatever the rows are."""
    sound, question = evaluation.noise_for, QUESTIONS[name]

    class Same:
        def __init__(self, claimed: Any) -> None:
            self.claimed, self.event, self.noise = claimed, claimed.event, claimed.noise

        def __call__(self, exact: np.ndarray) -> np.ndarray:
            if exact.ndim == 1:
                return np.arange(len(exact)) * (STEPS if "regression" in name else 1)
            return self.claimed(exact)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "noise_for", lambda *given: Same(sound(*given)))
        return question.asked(rows, 1).to_dict()


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("a unit")])
def test_all_that_is_published_comes_from_the_vector(name: str) -> None:
    question = QUESTIONS[name]
    assert published(name, question.more) == published(name, question.fewer)


def test_a_number_of_rows_that_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    def telling(task: Any, vector: np.ndarray, free: Any, *rest: Any) -> Evaluation:
        return replace(sound(task, vector, free, *rest), rows=float(counted.pop()))

    def counting(task: tally.Tally, model: Any, X: Any, y: Any, *rest: Any) -> Any:
        counted.append(len(y))
        return measure(task, model, X, y, *rest)

    counted: list[int] = []
    sound, measure = evaluation._evaluation, tally.Tally.measure
    monkeypatch.setattr(evaluation, "_evaluation", telling)
    monkeypatch.setattr(tally.Tally, "measure", counting)
    question = QUESTIONS["two classes"]
    assert published("two classes", question.more) != published("two classes", question.fewer)
