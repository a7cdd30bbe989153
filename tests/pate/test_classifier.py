"""PATEClassifier: the partition, the teachers, the charge, what is left behind, and files."""

from __future__ import annotations

import gc
import logging
import os
import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import make_blobs
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import tacit
from tacit import Budget, BudgetExceeded, Ledger, Unit, accounting
from tacit.errors import CannotLearn, InvalidValue, NotCovered
from tacit.models import telling
from tacit.pate import ConfidentGNMax, GNMax, InteractiveGNMax, PATEClassifier
from tacit.pate import classifier as home
from tacit.pate.partition import drawn_teachers, strictest_groups
from tacit.pate.planning import grown, plan_answers
from tacit.pate.student import KINDS, from_parts, propagated, to_parts
from tacit.pate.teachers import Votes, collect_votes, trained_votes
from tacit.randomness import Source

X, Y = make_blobs(1600, centers=[[0, 0], [4, 0], [0, 4]], random_state=1)
PRIVATE, LABELS, PUBLIC, TRUTH = X[:1200], Y[:1200], X[1200:], Y[1200:]
CLASSES = [0, 1, 2]


class Nearest(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Nearest class mean: quick, and deterministic."""

    def fit(self, X: Any, y: Any) -> Nearest:
        self.classes_ = np.unique(y)
        self.means_ = np.array([X[y == each].mean(axis=0) for each in self.classes_])
        return self

    def predict(self, X: Any) -> Any:
        return self.classes_[np.square(X[:, None] - self.means_).sum(axis=2).argmin(axis=1)]


def pate(**changed: Any) -> PATEClassifier:
    given = {
        "teacher": Nearest(), "student": LogisticRegression(), "n_teachers": 40, "epsilon": 3.0,
        "delta": 1e-5, "classes": CLASSES, "random_state": 1,
    }  # fmt: skip
    return PATEClassifier(**given | changed)


@pytest.fixture(scope="module")
def fitted() -> PATEClassifier:
    return pate().fit(PRIVATE, LABELS, PUBLIC)


def counts_of(monkeypatch: pytest.MonkeyPatch, model: PATEClassifier, *rows: Any, **more: Any) -> Any:
    """The private counts of votes of a fit, which nobody else sees."""
    seen: list[Any] = []
    original = collect_votes

    def spy(*given: Any, **options: Any) -> Any:
        seen.append(original(*given, **options))
        return seen[-1]

    with monkeypatch.context() as patch:
        patch.setattr(home, "collect_votes", spy)
        model.fit(*rows, **more)
    (votes,) = seen
    return votes


# ----------------------------------------------------------------- the road


def test_a_student_learns_and_its_guarantee_is_what_was_asked_for(fitted: PATEClassifier) -> None:
    assert np.mean(fitted.predict(PUBLIC) == TRUTH) > 0.9
    assert fitted.guarantee_.epsilon <= 3.0
    assert accounting.epsilon(fitted.event_, 1e-5) <= 3.0
    assert fitted.predict_proba(PUBLIC).shape == (400, 3)
    assert len(fitted.answers_) <= fitted.plan(400).answered
    assert set(fitted.answered_) <= set(fitted.asked_)


def test_the_event_is_the_worst_case_and_the_teachers_stop_when_it_is_reached() -> None:
    model = pate(aggregator=ConfidentGNMax(1, 10, 10), n_queries=30, n_answers=7, epsilon=9.0).fit(
        PRIVATE, LABELS, PUBLIC
    )
    assert model.event_ == ConfidentGNMax(1, 10, 10).event(asked=30, answered=7)
    assert len(model.answers_) == 7
    assert model.asked_[-1] == model.answered_[-1]
    assert len(model.asked_) < 30


def test_an_aggregator_answers_as_long_as_the_budget_lasts() -> None:
    plan = pate(aggregator=GNMax(20.0), epsilon=1.0).plan(400)
    more = GNMax(20.0).event(asked=plan.answered + 1)
    assert plan.epsilon <= 1.0 < accounting.epsilon(more, 1e-5)
    plan = pate(aggregator=ConfidentGNMax(20, 60, 20), epsilon=1.0).plan(100)
    assert plan.asked == 100
    assert plan.epsilon <= 1.0
    worse = ConfidentGNMax(20, 60, 20).event(asked=100, answered=plan.answered + 1)
    assert accounting.epsilon(worse, 1e-5) > 1.0


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_plans_never_overspend(delta: float, relation: str) -> None:
    for epsilon in (0.1, 1.0, 8.0):
        plan = plan_answers(
            queries=500, teachers=250, classes=10, epsilon=epsilon, delta=delta, relation=relation
        )
        assert accounting.epsilon(plan.event, delta, relation=relation) <= epsilon
        assert plan.event == plan.aggregator.event(asked=plan.asked, answered=plan.answered)


def test_a_plan_that_can_teach_nothing_says_so_before_the_charge() -> None:
    with pytest.warns(CannotLearn, match="a third of all 3 votes"):
        pate(n_teachers=3, epsilon=0.5).fit(PRIVATE, LABELS, PUBLIC)


@pytest.mark.parametrize("way", ["self-training", "propagation", "discriminant-propagation"])
def test_unanswered_queries_teach_too(way: str) -> None:
    model = pate(semi_supervised=way, n_queries=12, n_answers=12).fit(PRIVATE, LABELS, PUBLIC)
    assert np.mean(model.predict(PUBLIC) == TRUTH) > 0.9


def test_propagation_outvotes_a_wrong_answer() -> None:
    rng = np.random.default_rng(1)
    ends = np.repeat([[5.0, 0.0], [0.0, 5.0]], 50, axis=0) + rng.normal(0, 0.3, (100, 2))
    answered, answers = np.array([0, 10, 20, 30, 60, 70]), np.array([0, 0, 0, 1, 1, 1])
    found = propagated(ends, answered, answers, 2)
    assert (found == np.repeat([0, 1], 50)).all()


def test_answer_rates_are_by_class(fitted: PATEClassifier) -> None:
    rates = fitted.answer_rates()
    assert [each.label for each in rates] == CLASSES
    assert sum(each.asked for each in rates) == len(fitted.asked_)
    assert sum(each.answered for each in rates) == sum(each.answers for each in rates) == len(fitted.answers_)
    assert any(name == "class 2" for name, _ in fitted.describe().facts)


# ----------------------------------------------------------------- one unit, one vote


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_one_row_moves_one_vote(monkeypatch: pytest.MonkeyPatch, relation: str) -> None:
    """The last row is removed or replaced by the farthest row there is: with the same draws, one vote
    moves."""
    rows, labels = np.vstack([PRIVATE, [[90.0, 90.0]]]), np.append(LABELS, 2)
    model = pate(relation=relation, n_queries=50, n_answers=50)
    votes = counts_of(monkeypatch, model, rows, labels, queries=PUBLIC)
    if relation == "add_remove":
        rows, labels = rows[:-1], labels[:-1]
    else:
        rows, labels = np.vstack([rows[:-1], [[-90.0, -90.0]]]), np.append(labels[:-1], 0)
    moved = np.abs(votes - counts_of(monkeypatch, model, rows, labels, queries=PUBLIC)).sum(axis=1)
    assert moved.max() == 2


def test_a_row_that_two_teachers_learn_from_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken twin: parts that overlap. Its votes move twice as far, and the test above would say so."""

    def twice(model: Any, plan: Any, queries: Any, rows: Any, source: Source, tell: Any) -> Any:
        teachers = model._partition(plan, rows, source)
        parts = [
            (rows.matrix[mine], rows.labels[mine])
            for place in range(plan.teachers)
            for mine in [np.isin(teachers, [place, (place + 1) % plan.teachers])]
        ]
        votes = home.collect_votes(Votes(model.teacher, queries, tuple(CLASSES)), parts, [1] * len(parts))
        return plan.aggregator.answer(votes, random_state=source)

    monkeypatch.setattr(PATEClassifier, "_answers", twice)
    rows, labels = np.vstack([PRIVATE, [[90.0, 90.0]]]), np.append(LABELS, 2)
    model = pate(n_queries=50, n_answers=50)
    votes = counts_of(monkeypatch, model, rows, labels, queries=PUBLIC)
    moved = np.abs(votes - counts_of(monkeypatch, model, rows[:-1], labels[:-1], queries=PUBLIC)).sum(axis=1)
    assert moved.max() == 4


def test_teachers_are_drawn_independently_and_uniformly() -> None:
    """A cut of a shuffled range, in which equal parts give rows away, would never give two rows to one of
    two."""
    together, draws = 0, 4000
    source = Source(random_state=5)
    for _ in range(draws):
        first, second = drawn_teachers(np.arange(2), np.zeros(2, dtype=np.int64), [2], source)
        together += int(first == second)
    assert binomtest(together, draws, 0.5).pvalue > 1e-6
    assert binomtest(0, draws, 0.5).pvalue < 1e-6


def test_rows_of_a_unit_stay_together_and_rows_without_one_count_nowhere() -> None:
    units = np.array([3, 3, 9, 9, 9, -1])
    teachers = drawn_teachers(units, np.zeros(6, dtype=np.int64), [500], Source(random_state=1))
    assert len(set(teachers[:2])) == len(set(teachers[2:5])) == 1
    assert teachers[5] == -1


def test_a_unit_of_many_rows_moves_one_vote(monkeypatch: pytest.MonkeyPatch) -> None:
    units = np.append(np.arange(1200) // 4, [5000] * 60).astype(object)
    rows, labels = np.vstack([PRIVATE, np.full((60, 2), 90.0)]), np.append(LABELS, [2] * 60)
    model = pate(n_queries=50, n_answers=50)
    votes = counts_of(monkeypatch, model, rows, labels, queries=PUBLIC, units=units)
    units[-60:] = None
    other = counts_of(monkeypatch, model, rows, labels, queries=PUBLIC, units=units)
    assert np.abs(votes - other).sum(axis=1).max() <= 2
    assert "one unit" in str(model.guarantee_)


# ----------------------------------------------------------------- teachers that fail


class Fails(Nearest):
    """Fails in one of many ways on a row that is far out, and on no other."""

    def __init__(self, how: str = "raises") -> None:
        self.how = how

    def fit(self, X: Any, y: Any) -> Fails:
        self.bad_ = bool(np.abs(X).max() > 50)
        if self.bad_ and self.how == "raises":
            raise ValueError(f"secret {X.max()}")
        if self.bad_ and self.how == "exits":
            raise SystemExit(3)
        if self.bad_ and self.how == "stops":
            raise GeneratorExit
        if self.bad_ and self.how == "talks":
            print(X.max())
            logging.getLogger("teacher").error("%s", X.max())
            warnings.warn(f"secret {X.max()}", UserWarning, stacklevel=2)
        super().fit(X, y)
        return self

    def predict(self, X: Any) -> Any:
        if self.bad_ and self.how == "few":
            return super().predict(X)[:-1]
        if self.bad_ and self.how == "scribbles":
            X *= -1
        if self.bad_ and self.how == "strange":
            return np.array(["?"] * len(X))
        if self.bad_ and self.how == "draws":
            return np.random.randint(0, 3, len(X))  # noqa: NPY002
        return super().predict(X)


@pytest.mark.parametrize("how", ["raises", "exits", "stops", "talks", "few", "scribbles", "strange", "draws"])
def test_what_a_teacher_does_with_a_row_decides_nothing_but_its_votes(
    how: str,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows, labels = np.vstack([PRIVATE, [[90.0, 90.0]]]), np.append(LABELS, 2)
    model = pate(teacher=Fails(how), n_queries=30, n_answers=30)
    random.seed(4)
    np.random.seed(4)  # noqa: NPY002
    before = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    votes = counts_of(monkeypatch, model, rows, labels, queries=PUBLIC)
    other = counts_of(monkeypatch, model, PRIVATE, LABELS, queries=PUBLIC)
    assert np.abs(votes - other).sum(axis=1).max() <= 2
    assert (votes.sum(axis=1) == 40).all()
    assert capfd.readouterr() == ("", "")
    assert not caplog.records
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before  # noqa: NPY002


def test_teachers_without_rows_or_with_one_class_vote_by_a_public_rule() -> None:
    public = Votes(Nearest(), PUBLIC, tuple(CLASSES))
    none = np.empty((0, 2)), np.empty(0, dtype=np.int64)
    drawn = trained_votes(public, *none, 7)
    assert (drawn == trained_votes(public, *none, 7)).all()
    assert set(drawn) == {0, 1, 2}
    assert set(trained_votes(public, PRIVATE[:5], np.full(5, 2), 7)) == {2}


def test_more_teachers_than_rows_and_no_rows_at_all() -> None:
    model = pate(n_teachers=60, aggregator=GNMax(5.0), epsilon=50.0, n_queries=10)
    for rows in (5, 0):
        model.fit(PRIVATE[:rows], LABELS[:rows], PUBLIC)
        assert len(model.answers_) == 10


def test_odd_rows_and_labels_contribute_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.vstack([PRIVATE, [[np.nan, 1.0], [np.inf, 0.0], [1.0, 1.0]]])
    labels = np.append(LABELS.astype(object), [0, 1, "none of them"])
    model = pate(n_queries=20, n_answers=20)
    votes = counts_of(monkeypatch, model, rows, labels, queries=PUBLIC)
    assert (votes == counts_of(monkeypatch, model, PRIVATE, LABELS, queries=PUBLIC)).all()


class Ends(Nearest):
    """Ends its process on a row that is far out."""

    def fit(self, X: Any, y: Any) -> Ends:
        if np.abs(X).max() > 50:
            os._exit(3)
        super().fit(X, y)
        return self


def test_processes_give_the_same_votes_and_a_teacher_that_ends_one_votes_at_random() -> None:
    parts = [(PRIVATE[:300], LABELS[:300])]
    public, seeds = Votes(Ends(), PUBLIC[:40], tuple(CLASSES)), [1, 2]
    here = collect_votes(public, parts, seeds)
    far = np.vstack([PRIVATE[:300], [[90.0, 90.0]]]), np.append(LABELS[:300], 2)
    told: list[tuple[int, int]] = []
    there = collect_votes(public, [*parts, far], seeds, n_jobs=2, tell=lambda *done: told.append(done))
    random_votes = np.eye(3, dtype=np.int64)[trained_votes(public, PRIVATE[:0], LABELS[:0], 2)]
    assert (there == here + random_votes).all()
    assert told == [(1, 2), (2, 2)]


# ----------------------------------------------------------------- charge before rows


def test_the_charge_stands_before_rows_are_read_and_a_refusal_reads_nothing(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "study.db", budget=Budget(epsilon=4.0, delta=1e-4)) as ledger:
        found: list[int] = []

        def read() -> Any:
            found.append(len(ledger.entries()))
            return PRIVATE, LABELS, None

        model = pate(ledger=ledger, random_state=None)
        model.fit_rows(PUBLIC, read)
        assert found == [1]
        assert ledger.entries()[0].event == model.event_
        answers = model.answers_
        with pytest.raises(BudgetExceeded):
            model.fit_rows(PUBLIC, read)
        assert found == [1]
        assert model.answers_ is answers


def test_units_are_those_of_the_ledger(tmp_path: Path) -> None:
    budget = Budget(epsilon=4.0, delta=1e-4)
    with Ledger.open(tmp_path / "people.db", budget=budget, unit=Unit("person", 5)) as ledger:
        with pytest.raises(tacit.TacitError, match="one person"):
            pate(ledger=ledger).fit(PRIVATE, LABELS, PUBLIC)
        model = pate(ledger=ledger, rows_per_unit=5, random_state=None)
        model.fit(PRIVATE, LABELS, PUBLIC, units=np.arange(1200) // 5)
        assert model.guarantee_.unit == Unit("person", 5)
        with pytest.raises(InvalidValue, match="units"):
            pate(ledger=ledger, rows_per_unit=5, epsilon=0.1).fit_rows(
                PUBLIC, lambda: (PRIVATE, LABELS, None)
            )


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"teacher": None}, "teacher"),
        ({"student": LogisticRegression}, "student"),
        ({"classes": None}, "classes"),
        ({"classes": [1]}, "classes"),
        ({"n_teachers": 0}, "n_teachers"),
        ({"n_teachers": {"a": 1}}, "n_teachers"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"aggregator": "gnmax"}, "aggregator"),
        ({"aggregator": InteractiveGNMax(teachers=40)}, "aggregator"),
        ({"aggregator": GNMax(0.01)}, "aggregator"),
        ({"aggregator": GNMax(9.0, teachers=39)}, "aggregator"),
        ({"n_queries": 401}, "asked"),
        ({"n_answers": 9, "n_queries": 8}, "answers"),
        ({"n_answers": 5, "aggregator": GNMax(0.1), "n_queries": 5}, "answers"),
        ({"semi_supervised": "magic"}, "semi_supervised"),
        ({"n_jobs": 0}, "n_jobs"),
    ],
)
def test_bad_parameters_are_refused_before_rows_are_read(changed: dict[str, Any], named: str) -> None:
    def read() -> Any:
        raise AssertionError("rows were read")

    with pytest.raises(InvalidValue, match=named):
        pate(**changed).fit_rows(PUBLIC, read)


def test_an_estimator_with_a_ledger_is_no_teacher(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "study.db", budget=Budget(epsilon=1.0)) as ledger:
        teacher = tacit.estimators.LogisticRegression(classes=CLASSES, ledger=ledger)
        with pytest.raises(InvalidValue, match="without a ledger"):
            pate(teacher=teacher).fit(PRIVATE, LABELS, PUBLIC)


def test_queries_must_be_public_numbers_of_the_same_features() -> None:
    for queries in (PUBLIC[:, :1], PUBLIC[:0], np.array([[np.nan, 1.0]])):
        with pytest.raises(InvalidValue, match="queries"):
            pate().fit(PRIVATE, LABELS, queries)


# ----------------------------------------------------------------- what is left behind


def reachable(root: Any) -> list[Any]:
    found, seen, left = [], set(), [root]
    while left:
        one = left.pop()
        if id(one) in seen or isinstance(one, type) or (callable(one) and hasattr(one, "__code__")):
            continue
        seen.add(id(one))
        found.append(one)
        left.extend(gc.get_referents(one))
    return found


def test_no_row_teacher_or_vote_is_left_behind(fitted: PATEClassifier) -> None:
    secret = 123.456789
    rows = PRIVATE.copy()
    rows[::7, 1] = secret
    model = pate().fit(rows, LABELS, PUBLIC)
    assert not any(isinstance(each, np.ndarray) and np.any(each == secret) for each in reachable(vars(model)))
    teachers = [each for each in reachable(vars(model)) if isinstance(each, Nearest)]
    assert teachers == [model.teacher]
    assert not hasattr(model.teacher, "means_")
    known = {*PATEClassifier.released, "event_", "guarantee_", "student_"}
    assert {name for name in vars(model) if name.endswith("_")} <= known


def test_a_fit_that_fails_leaves_nothing() -> None:
    model = pate().fit(PRIVATE, LABELS, PUBLIC)

    def read() -> Any:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        model.fit_rows(PUBLIC, read)
    assert not [name for name in vars(model) if name.endswith("_")]


def test_a_student_that_fails_leaves_the_answers_that_were_paid_for() -> None:
    class Broken(Nearest):
        def fit(self, X: Any, y: Any) -> Any:
            raise RuntimeError("no")

    model = pate(student=Broken())
    with pytest.raises(RuntimeError):
        model.fit(PRIVATE, LABELS, PUBLIC)
    assert len(model.answers_)
    assert np.mean(model.teach(Nearest()).predict(PUBLIC) == TRUTH) > 0.9


def test_where_all_answers_are_alike_the_student_says_that_class() -> None:
    model = pate(n_queries=5, n_answers=5).fit(PRIVATE, np.full(1200, 2), PUBLIC)
    model.answers_[:] = 2
    model.teach(LogisticRegression())
    assert set(model.predict(PUBLIC)) == {2}
    assert (model.predict_proba(PUBLIC)[:, 2] == 1).all()


# ----------------------------------------------------------------- files


@pytest.mark.parametrize(
    "student",
    [
        LogisticRegression(C=2.0),
        RandomForestClassifier(10, max_depth=3),
        make_pipeline(StandardScaler(), DecisionTreeClassifier(max_depth=2)),
    ],
    ids=["logistic", "forest", "pipeline"],
)
def test_a_model_is_saved_without_its_teachers(student: Any, tmp_path: Path) -> None:
    model = pate(random_state=None, student=student).fit(PRIVATE, LABELS, PUBLIC)
    tacit.save(model, tmp_path / "student.tacit")
    loaded = tacit.load(tmp_path / "student.tacit")
    assert loaded.guarantee_ == model.guarantee_
    assert loaded.teacher is None
    assert (loaded.predict(X) == model.predict(X)).all()
    assert loaded.describe() == model.describe()
    assert b"Nearest" not in (tmp_path / "student.tacit").read_bytes()


def test_a_student_of_an_unknown_class_is_taught_again(tmp_path: Path, fitted: PATEClassifier) -> None:
    model = pate(student=Nearest()).fit(PRIVATE, LABELS, PUBLIC)
    tacit.save(model, tmp_path / "student.tacit")
    loaded = tacit.load(tmp_path / "student.tacit")
    with pytest.raises(InvalidValue, match="teach"):
        loaded.predict(X)
    assert loaded.describe().classes == (0, 1, 2)
    assert (loaded.teach(Nearest()).predict(X) == model.predict(X)).all()


def test_only_known_classes_become_parts() -> None:
    assert to_parts(Nearest()) is None
    assert to_parts(make_pipeline(StandardScaler(), Nearest())) is None
    assert to_parts(LogisticRegression(class_weight={0: 1.0})) is None
    with pytest.raises(KeyError):
        from_parts({"kind": "os:system", "params": {}})
    assert len(set(KINDS.values())) == len(KINDS)


# ----------------------------------------------------------------- budgets of groups

GROUPS = np.where(np.arange(1200) % 3 == 0, "strict", "lax")


def by_group(**changed: Any) -> PATEClassifier:
    given = {"n_teachers": {"lax": 40, "strict": 20}, "epsilon": {"lax": 4.0, "strict": 1.0}}
    return pate(**given | changed)


def test_each_group_is_promised_its_own_budget(tmp_path: Path) -> None:
    model = by_group().fit(PRIVATE, LABELS, PUBLIC, groups=GROUPS)
    promised = model.group_guarantees_
    for name, epsilon in (("strict", 1.0), ("lax", 4.0)):
        assert promised[name].epsilon <= epsilon
        assert accounting.epsilon(promised[name].event, 1e-5) <= epsilon
    assert model.guarantee_.epsilon == promised["lax"].epsilon
    assert np.mean(model.predict(PUBLIC) == TRUTH) > 0.8
    tacit.save(model, tmp_path / "student.tacit")
    assert tacit.load(tmp_path / "student.tacit").group_guarantees_ == promised


def test_a_person_moves_the_counts_by_the_votes_of_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the noise multiplier of the group's event is the noise over just that."""
    rows, labels = np.vstack([PRIVATE, [[90.0, 90.0]]]), np.append(LABELS, 2)
    model = by_group(n_queries=40, n_answers=20)
    plan = model.plan(400)
    for group, votes in ((each.name, each.votes) for each in plan.groups):
        groups = np.append(GROUPS, group)
        counts = counts_of(monkeypatch, model, rows, labels, queries=PUBLIC, groups=groups)
        replaced = np.vstack([PRIVATE, [[0.0, 4.0]]])
        other = counts_of(monkeypatch, model, replaced, labels, queries=PUBLIC, groups=groups)
        assert np.abs(counts - other).max() == votes
        (tests, answers) = model.group_guarantees_[group].event.events
        assert tests.event.noise_multiplier == pytest.approx(plan.aggregator.sigma_threshold / votes)
        assert answers.event.noise_multiplier == pytest.approx(
            plan.aggregator.sigma_answer / (2**0.5 * votes)
        )


def test_a_unit_of_several_groups_belongs_to_the_strictest() -> None:
    units = np.array(["a", "a", "b", "c", "c"], dtype=object)
    groups = np.array(["lax", "strict", "lax", "lax", "unknown"], dtype=object)
    assert strictest_groups(units, groups, ["strict", "lax"]).tolist() == [0, 0, 1, -1, -1]


def test_groups_need_noise_that_scales_and_a_group_for_each_row() -> None:
    with pytest.raises(InvalidValue, match="groups"):
        by_group().fit(PRIVATE, LABELS, PUBLIC)
    with pytest.raises(InvalidValue, match="groups"):
        pate().fit(PRIVATE, LABELS, PUBLIC, groups=GROUPS)
    with pytest.raises(InvalidValue, match="delta"):
        by_group(delta=0.0).plan(100)
    with pytest.raises(InvalidValue, match="GNMax"):
        grown(tacit.pate.LNMax(0.1), 2.0)


def test_scores_on_private_rows_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for every other estimator, once in a process: an exact score is covered by no guarantee."""
    model = pate().fit(PRIVATE, LABELS, PUBLIC)
    monkeypatch.setattr(telling, "_told", set())
    with pytest.warns(NotCovered, match=r"tacit\.evaluate"):
        model.score(PRIVATE, LABELS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.score(PRIVATE, LABELS)
