"""PrivateNeighbors: sensitivity, the event under both relations, sampling, and an audit with a broken
twin."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.datasets import make_blobs
from sklearn.linear_model import LogisticRegression

import tacit
from tacit import Budget, BudgetExceeded, Ledger, Unit, accounting, audit, events
from tacit.errors import CannotLearn, InvalidValue
from tacit.pate import GNMax, PrivateNeighbors
from tacit.pate.answering import PrivateRows
from tacit.randomness import Source

X, Y = make_blobs(1600, centers=[[0, 0], [4, 0], [0, 4]], random_state=1)
PRIVATE, LABELS, PUBLIC, TRUTH = X[:1200], Y[:1200], X[1200:], Y[1200:]


def neighbours(**changed: Any) -> PrivateNeighbors:
    given = {
        "student": LogisticRegression(), "n_neighbors": 30, "sampling_rate": 0.2, "n_queries": 25,
        "epsilon": 2.0, "delta": 1e-5, "classes": [0, 1, 2], "random_state": 1,
    }  # fmt: skip
    return PrivateNeighbors(**given | changed)


def counts(model: PrivateNeighbors, rows: PrivateRows, monkeypatch: pytest.MonkeyPatch, seed: int = 3) -> Any:
    """The private counts for the first public queries, before noise."""
    found: list[Any] = []
    with monkeypatch.context() as patch:
        patch.setattr(GNMax, "answer", lambda self, votes, **_: found.append(votes) or np.zeros(len(votes)))
        model._answers(model.plan(400), PUBLIC[:25], rows, Source(seed), None)
    return found[0]


def test_a_student_learns_and_a_file_keeps_it(tmp_path: Path) -> None:
    model = neighbours().fit(PRIVATE, LABELS, PUBLIC)
    assert np.mean(model.predict(PUBLIC) == TRUTH) > 0.9
    assert accounting.epsilon(model.event_, 1e-5) <= 2.0
    assert len(model.answers_) == 25
    tacit.save(model, tmp_path / "student.tacit")
    assert (tacit.load(tmp_path / "student.tacit").predict(X) == model.predict(X)).all()


@pytest.mark.parametrize("rows_per_unit", [1, 3])
@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_the_noise_is_what_the_event_needs(relation: str, rows_per_unit: int, tmp_path: Path) -> None:
    """Entering moves counts by √2·m; PoissonSampled takes that for half of it under ``replace_one``."""
    unit = Unit("person", rows_per_unit)
    place = tmp_path / "study.db"
    with Ledger.open(place, Budget(epsilon=9.0, delta=1e-3), relation=relation, unit=unit) as ledger:
        plan = neighbours(relation=relation, rows_per_unit=rows_per_unit, ledger=ledger).plan(400)
    sampled = plan.event.event
    assert sampled.rate == 0.2
    entering = plan.aggregator.sigma / (math.sqrt(2) * rows_per_unit)
    at_half = sampled.event.noise_multiplier * (2 if relation == "replace_one" else 1)
    assert entering == pytest.approx(at_half)
    assert entering >= at_half
    assert accounting.epsilon(plan.event, 1e-5, relation=relation) <= 2.0


@pytest.mark.parametrize("many", [1, 4])
def test_a_unit_moves_the_counts_by_its_rows_and_pushes_as_many_out(
    many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rows are sampled, and the last unit is removed: worst case, its rows lie on a query."""
    rows = np.vstack([PRIVATE, *[PUBLIC[:1]] * many])
    labels, units = np.append(LABELS, [(Y[1200] + 1) % 3] * many), np.append(np.arange(1200), [5000] * many)
    model = neighbours(sampling_rate=1.0, rows_per_unit=many)
    with_them = counts(model, PrivateRows(rows, labels, units), monkeypatch)
    without = counts(model, PrivateRows(rows[:1200], labels[:1200], units[:1200]), monkeypatch)
    moved = np.linalg.norm(with_them - without, axis=1)
    assert moved.max() == pytest.approx(math.sqrt(2) * many)
    bounded = counts(neighbours(sampling_rate=1.0), PrivateRows(rows, labels, units), monkeypatch)
    assert np.linalg.norm(bounded - without, axis=1).max() <= math.sqrt(2) + 1e-9


def test_every_query_has_a_sample_of_its_own_with_the_rate_of_the_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = neighbours(n_neighbors=2000, sampling_rate=0.25)
    votes = counts(model, PrivateRows(PRIVATE, LABELS, None), monkeypatch).sum(axis=1)
    assert len(set(votes)) > 10
    assert binomtest(int(votes.sum()), 25 * 1200, 0.25).pvalue > 1e-6
    assert binomtest(int(votes.sum()), 25 * 1200, 0.27).pvalue < 1e-6


def test_odd_rows_count_nowhere_and_decide_no_error() -> None:
    rows = np.vstack([PRIVATE[:50], [[np.nan, 0], [np.inf, 1], [1e308, -1e308], [1.7e308, 1.7e308]]])
    labels = np.append(LABELS[:50].astype(object), [0, 1, 2, None])
    neighbours().fit(rows, labels, PUBLIC)
    neighbours().fit(PRIVATE[:0], LABELS[:0], PUBLIC)


def test_a_refused_budget_reads_nothing(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "study.db", budget=Budget(epsilon=1.0, delta=1e-4)) as ledger:
        with pytest.raises(BudgetExceeded):
            neighbours(ledger=ledger, random_state=None).fit_rows(
                PUBLIC, lambda: pytest.fail("rows were read")
            )
        assert not ledger.entries()


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"sampling_rate": 0.0}, "sampling_rate"),
        ({"n_neighbors": 0}, "n_neighbors"),
        ({"n_queries": 500}, "n_queries"),
    ],
)
def test_bad_parameters_are_refused(changed: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidValue, match=named):
        neighbours(**changed).plan(400)


def test_too_much_noise_is_told_before_the_charge() -> None:
    with pytest.warns(CannotLearn):
        neighbours(n_neighbors=2).fit(PRIVATE, LABELS, PUBLIC)


# ----------------------------------------------------------------- an audit


def answered(sigma: float, present: bool, trials: int, seed: int) -> int:
    """How often the answer is the class of a row that lies on the query, among one other neighbour.

    The sample always holds the row, so this is GNMax on worst-case neighbours: (1, 0) against (0, 1).
    """
    rows = np.array([[0.0], [1.0]])[0 if present else 1 :]
    labels = np.array([0, 1])[0 if present else 1 :]
    model = neighbours(n_neighbors=1, sampling_rate=1.0, classes=[0, 1], n_queries=trials)
    plan = tacit.pate.AnswerPlan(
        GNMax(sigma), trials, trials, events.Gaussian(1.0), 1.0, 0.0, tacit.Relation.ADD_REMOVE, 1
    )
    found = model._answers(plan, np.zeros((trials, 1)), PrivateRows(rows, labels, None), Source(seed), None)
    return int((found == 0).sum())


@pytest.mark.parametrize(
    ("broken", "found"), [(1.0, False), (2 / 3, True)], ids=["as claimed", "broken twin"]
)
def test_an_audit_stays_below_the_claim_and_finds_too_little_noise(broken: float, found: bool) -> None:
    trials, noise, delta = 4000, 1.0, 1e-5
    claimed = accounting.epsilon(events.Gaussian(noise), delta)
    sigma = noise * math.sqrt(2) * broken
    result = audit.gaussian(
        true_positives=answered(sigma, True, trials, 11), positives=trials,
        false_positives=answered(sigma, False, trials, 12), negatives=trials, delta=delta,
        confidence=1 - 1e-6,
    )  # fmt: skip
    assert (result.epsilon > claimed) is found
