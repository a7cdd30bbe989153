"""Answers, what they cost, and the road that charges them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtr

from tacit import accounting, events
from tacit.errors import BudgetExceeded, InvalidValue, TacitError
from tacit.ledger import Budget, Ledger
from tacit.pate import ConfidentGNMax, GNMax, GumbelMax, InteractiveGNMax, LNMax
from tacit.relations import Unit

VOTES = np.array([[240, 8, 2], [10, 220, 20], [90, 80, 80], [0, 0, 250]])
ALL = [
    GNMax(4.0),
    LNMax(1.0),
    GumbelMax(2.0),
    ConfidentGNMax(180, 6.0, 4.0),
    InteractiveGNMax(100, 6.0, 4.0, teachers=250),
]
NAMED = [type(each).__name__ for each in ALL]


def context(aggregator: object, rows: int = len(VOTES), classes: int = 3) -> dict[str, np.ndarray]:
    interactive = isinstance(aggregator, InteractiveGNMax)
    return {"student": np.full((rows, classes), 1 / classes)} if interactive else {}


class TestAnswers:
    @pytest.mark.parametrize("aggregator", ALL, ids=NAMED)
    def test_clear_votes_win(self, aggregator):
        labels = aggregator.answer(VOTES, random_state=1, **context(aggregator))
        assert labels[[0, 1, 3]].tolist() == [0, 1, 2]
        assert labels[2] == (-1 if aggregator.tests else labels[2])
        assert labels.dtype == np.int64

    @pytest.mark.parametrize("aggregator", ALL, ids=NAMED)
    def test_no_queries(self, aggregator):
        nothing = np.zeros((0, 3), dtype=int)
        given = context(aggregator, 0)
        assert aggregator.answer(nothing, **given).shape == (0,)
        assert (aggregator.rdp(nothing, [2.0], data_dependent=True, **given).divergences == 0).all()

    @pytest.mark.parametrize("aggregator", ALL, ids=NAMED)
    def test_a_class_without_votes_is_a_class(self, aggregator):
        votes = np.array([[250, 0, 0]] * 3)
        given = context(aggregator, 3)
        assert aggregator.answer(votes, random_state=1, **given).tolist() == [0, 0, 0]
        assert np.isfinite(aggregator.rdp(votes, [512.0], data_dependent=True, **given).divergences).all()

    @pytest.mark.parametrize("aggregator", ALL, ids=NAMED)
    def test_input_stays_as_it_is(self, aggregator):
        votes = VOTES.copy()
        aggregator.answer(votes, random_state=1, **context(aggregator))
        aggregator.rdp(votes, [2.0], data_dependent=True, **context(aggregator))
        assert np.array_equal(votes, VOTES)

    @pytest.mark.parametrize(
        "aggregator",
        [GNMax(2.0**20), GNMax(2.0**-20), LNMax(2.0**-16), LNMax(2.0**20), GumbelMax(2.0**-28),
         ConfidentGNMax(0.0, 2.0**20, 2.0**20)],
        ids=str,
    )  # fmt: skip
    def test_the_largest_and_the_least_noise(self, aggregator):
        """No number of queries makes an answer fail after the charge, whatever the noise."""
        votes = np.tile([[52, 48]], (70_000, 1))
        labels = aggregator.answer(votes, random_state=5)
        assert set(np.unique(labels)) <= {-1, 0, 1}
        assert labels.shape == (70_000,)

    def test_noise_beyond_that_is_refused(self):
        for kind, values in ((GNMax, (2.0**21, 2.0**-21)), (LNMax, (2.0**-17, 2.0**21))):
            for value in values:
                with pytest.raises(InvalidValue):
                    kind(value)

    def test_chances_of_two_classes(self):
        """Exact chances against 200,000 answers; five standard deviations are once in a million."""
        runs = 200_000
        votes = np.tile([[52, 48]], (runs, 1))
        lose = (2 + 0.25 * 4) / (4 * math.exp(0.25 * 4))
        for aggregator, chance in (
            (GNMax(3.0), ndtr(4 / (3 * math.sqrt(2)))),
            (LNMax(0.25), 1 - lose),
            (GumbelMax(0.5), 1 / (1 + math.exp(-0.5 * 4 / 2))),
        ):
            won = (aggregator.answer(votes, random_state=2) == 0).mean()
            assert abs(won - chance) < 5 * math.sqrt(chance * (1 - chance) / runs), aggregator

    def test_chances_of_many_classes(self):
        runs, votes = 100_000, np.array([10, 8, 7, 3, 0])
        labels = GumbelMax(0.6).answer(np.tile(votes, (runs, 1)), random_state=3)
        weights = np.exp(0.3 * votes)
        chances = weights / weights.sum()
        counts = np.bincount(labels, minlength=5)
        assert (np.abs(counts - runs * chances) < 5.2 * np.sqrt(runs * chances * (1 - chances))).all()

    def test_chances_of_passing(self):
        aggregator, runs = ConfidentGNMax(200, 150, 40), 100_000
        passed = aggregator.answer(np.tile([[214, 30, 6]], (runs, 1)), random_state=4) >= 0
        chance = ndtr(14 / 150)
        assert abs(passed.mean() - chance) < 5 * math.sqrt(chance * (1 - chance) / runs)
        assert aggregator._test_chances(np.array([[214, 30, 6]]), None)[0] == pytest.approx(chance)

    def test_a_confident_student_is_reinforced(self):
        aggregator = InteractiveGNMax(100, 1.0, 1.0, confidence=0.9, teachers=250)
        student = np.array([[0.96, 0.02, 0.02], [0.02, 0.96, 0.02], [0.5, 0.3, 0.2], [0.95, 0.05, 0.0]])
        assert aggregator.answer(VOTES, student=student, random_state=1).tolist() == [0, 1, -1, 2]
        given = aggregator.release(VOTES, student=student, answers=4, delta=1e-5, random_state=1)
        assert given.passed.tolist() == [False, False, False, True]
        assert (given.asked, given.answered) == (4, 1)


class TestEvents:
    def test_confident(self):
        event = ConfidentGNMax(200, 150, 40).event(asked=640, answered=283)
        assert event == events.Compose(
            (
                events.Repeat(events.Gaussian(150.0), 640),
                events.Repeat(events.Gaussian(40 / math.sqrt(2)), 283),
            )
        )

    def test_gumbel_is_cheaper_than_gaussian_of_the_same_deviation(self):
        """π²/12 of the zCDP of GNMax."""
        epsilon = 0.1
        deviation = (2 / epsilon) * math.pi / math.sqrt(6)
        gumbel, gaussian = epsilon**2 / 8, 1 / deviation**2
        assert gumbel / gaussian == pytest.approx(0.8224670334241132, rel=1e-12)
        orders = np.array([2.0, 4.0])
        assert (GumbelMax(epsilon).rdp([[1, 0]], orders).divergences <= gumbel * orders * (1 + 1e-9)).all()

    def test_laplace_is_pure(self):
        assert accounting.epsilon(LNMax(0.1).event(asked=10), 0.0) == pytest.approx(2.0)

    @pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
    def test_both_relations_cost_the_same(self, relation):
        event = ConfidentGNMax().event(asked=640, answered=283)
        assert accounting.epsilon(event, 1e-5, relation=relation) == accounting.epsilon(event, 1e-5)

    def test_rdp_is_that_of_the_event(self):
        aggregator, mask = ConfidentGNMax(180, 6.0, 4.0), np.array([True, True, False, True])
        found = aggregator.rdp(VOTES, [2.0, 9.5], answered=mask).divergences
        assert found == pytest.approx([2 * (4 / 72 + 3 / 16), 9.5 * (4 / 72 + 3 / 16)], rel=1e-12)

    def test_every_query_of_a_plain_aggregator_is_answered(self):
        with pytest.raises(InvalidValue, match="every query is answered"):
            GNMax().event(asked=3, answered=2)


class TestRelease:
    def test_stops_after_so_many_answers(self):
        aggregator = ConfidentGNMax(100, 1.0, 1.0)
        given = aggregator.release(np.tile(VOTES[:1], (20, 1)), answers=7, delta=1e-5, random_state=1)
        assert given.answered == 7
        assert given.labels.tolist() == [0] * 7 + [-1] * 13
        assert given.charged == (aggregator.event(asked=20, answered=7),)
        assert given.guarantee.event == given.charged[0]
        assert given.guarantee.epsilon == accounting.epsilon(given.charged[0], 1e-5)
        assert "each row is seen by one teacher" in str(given)

    def test_charges_tests_first_and_then_the_answers(self, tmp_path):
        aggregator = ConfidentGNMax(180, 60.0, 40.0)
        seen = []

        def read() -> np.ndarray:
            seen.append([entry.event for entry in ledger.entries()])
            return VOTES

        with Ledger.open(tmp_path / "study.db", Budget(3.0, 1e-5), filter="renyi") as ledger:
            given = aggregator.release(read, asked=4, ledger=ledger, delta=1e-7, random_state=1)
            charged = [entry.event for entry in ledger.entries()]
            assert ledger.spent().epsilon < 3.0
        tests = events.Repeat(events.Gaussian(60.0), 4)
        assert seen == [[tests]]
        assert charged == [tests, events.Repeat(events.Gaussian(40 / math.sqrt(2)), given.answered)]
        assert tuple(charged) == given.charged
        assert (given.guarantee.epsilon, given.guarantee.delta) == (3.0, 1e-5)
        accounting.check_claim(given.guarantee)
        assert "the rows decided" in given.guarantee.statement()

    def test_no_answers_no_second_charge(self, tmp_path):
        with Ledger.open(tmp_path / "study.db", Budget(3.0, 1e-5), filter="renyi") as ledger:
            given = ConfidentGNMax(10_000, 60.0, 40.0).release(VOTES, ledger=ledger, delta=1e-7)
            assert len(ledger.entries()) == len(given.charged) == 1
        assert given.labels.tolist() == [-1] * 4

    def test_answers_beyond_the_budget_are_refused(self, tmp_path):
        with Ledger.open(tmp_path / "study.db", Budget(0.5, 1e-5), filter="renyi") as ledger:
            with pytest.raises(BudgetExceeded):
                ConfidentGNMax(100, 200.0, 2.0).release(VOTES, ledger=ledger, delta=1e-7)
            assert [entry.event for entry in ledger.entries()] == [events.Repeat(events.Gaussian(200.0), 4)]

    def test_malformed_votes_cost_nothing(self, tmp_path):
        with Ledger.open(tmp_path / "study.db", Budget(3.0, 1e-5)) as ledger:
            for bad in ([[1.5, 2.0]], [[-1, 3]], [1, 2], [[100, 1]]):
                with pytest.raises(InvalidValue, match="votes"):
                    GNMax(4.0, teachers=250).release(bad, ledger=ledger, delta=1e-6)
            with pytest.raises(InvalidValue, match="student"):
                InteractiveGNMax(teachers=250).release(VOTES, answers=1, ledger=ledger, delta=1e-6)
            assert not ledger.entries()

    def test_a_function_that_returns_malformed_votes_was_charged(self, tmp_path):
        with Ledger.open(tmp_path / "study.db", Budget(3.0, 1e-5)) as ledger:
            for bad in (lambda: [[1.5, 2.0]], lambda: VOTES):
                with pytest.raises(InvalidValue, match="votes"):
                    GNMax(40.0).release(bad, asked=1, ledger=ledger, delta=1e-6)
            assert len(ledger.entries()) == 2

    def test_the_unit_of_the_ledger_is_stated(self, tmp_path):
        unit = Unit("patient", 5)
        with Ledger.open(
            tmp_path / "study.db", Budget(3.0, 1e-5), relation="replace_one", unit=unit
        ) as ledger:
            given = GNMax(40.0).release(VOTES, ledger=ledger, delta=1e-6)
        assert given.guarantee.unit == unit
        assert "each patient (at most 5 rows) is seen by one teacher" in given.guarantee.statement()
        assert given.guarantee.noise == "exact"

    def test_a_ledger_of_another_relation_is_refused(self, tmp_path):
        with (
            Ledger.open(tmp_path / "study.db", Budget(3.0, 1e-5)) as ledger,
            pytest.raises(TacitError, match="add_remove"),
        ):
            GNMax(40.0).release(VOTES, ledger=ledger, delta=1e-6, relation="replace_one")

    def test_pure_aggregators_need_no_delta(self):
        assert LNMax(0.1).release(VOTES, random_state=1).guarantee.epsilon == pytest.approx(0.8)
        assert GumbelMax(0.1).release(VOTES, random_state=1).guarantee.epsilon == pytest.approx(0.4)


def test_noise_inside_the_maximum_is_worth_two_answers():
    """max_j(n_j + N) and argmax_j(n_j + N) of one noisy vector: what they reveal is a Gaussian of σ/√2.

    Two classes, a tie against one vote moved: the winner alone shows a shift of √2/σ, where the test is
    charged a shift of 1/σ. At σ = 1 and ε = 1.05 that takes δ = 0.27, and the test is given 0.14.
    """
    epsilon = 1.05
    tie, moved = 0.5, ndtr(-2 / math.sqrt(2))
    needed = tie - math.exp(epsilon) * moved
    assert needed > 0.27 > 0.14 > accounting.delta(events.Gaussian(1.0), epsilon)
    assert needed < accounting.delta(events.Gaussian(1 / math.sqrt(2)), epsilon) + 1e-9
