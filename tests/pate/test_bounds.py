"""Rényi bounds of answers against the divergences themselves, in both directions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

import mpmath as mp
import numpy as np
import pytest

from tacit.errors import InvalidValue, TacitError
from tacit.pate import ConfidentGNMax, GNMax, GumbelMax, LNMax, bounds

ORDERS = (1.5, 2.0, 4.0, 8.0, 20.5, 64.0)


def renyi(first: Iterable[mp.mpf], second: Iterable[mp.mpf], order: float) -> mp.mpf:
    total = sum(p * (p / q) ** (mp.mpf(order) - 1) for p, q in zip(first, second, strict=True))
    return mp.log(total) / (mp.mpf(order) - 1)


def gaussian_pair(first: int, second: int, sigma: float) -> list[mp.mpf]:
    """The chances of two classes by GNMax: the difference of two normals."""
    gap = mp.mpf(first - second)
    return [mp.erfc(-gap / (2 * sigma)) / 2, mp.erfc(gap / (2 * sigma)) / 2]


def laplace_pair(first: int, second: int, gamma: float) -> list[mp.mpf]:
    """The chances of two classes by LNMax: the difference of two Laplace variables."""
    gap = mp.mpf(abs(first - second)) * mp.mpf(gamma)
    lose = (2 + gap) / (4 * mp.e**gap)
    return [1 - lose, lose] if first >= second else [lose, 1 - lose]


def gumbel_pair(first: int, second: int, epsilon: float) -> list[mp.mpf]:
    odds = mp.e ** (mp.mpf(epsilon) * (second - first) / 2)
    return [1 / (1 + odds), odds / (1 + odds)]


def neighbours(votes: tuple[int, int]) -> list[tuple[int, int]]:
    first, second = votes
    return [pair for pair in ((first - 1, second + 1), (first + 1, second - 1)) if min(pair) >= 0]


@pytest.mark.parametrize(
    ("aggregator", "chances"),
    [
        (GNMax(2.0), lambda a, b: gaussian_pair(a, b, 2.0)),
        (GNMax(10.0), lambda a, b: gaussian_pair(a, b, 10.0)),
        (LNMax(0.2), lambda a, b: laplace_pair(a, b, 0.2)),
        (GumbelMax(0.4), lambda a, b: gumbel_pair(a, b, 0.4)),
    ],
    ids=lambda value: str(value) if not callable(value) else "",
)
@pytest.mark.parametrize("votes", [(40, 10), (30, 20), (26, 24), (25, 25), (50, 0), (49, 1)])
def test_both_directions_of_two_classes(aggregator, chances, votes):
    mp.mp.dps = 60
    found = aggregator.rdp([votes], ORDERS, data_dependent=True).divergences
    fixed = aggregator.rdp([votes], ORDERS).divergences
    here = chances(*votes)
    for other in neighbours(votes):
        there = chances(*other)
        for order, bound, ceiling in zip(ORDERS, found, fixed, strict=True):
            true = max(renyi(here, there, order), renyi(there, here, order))
            assert true <= bound * (1 + 1e-9), (votes, other, order)
            assert bound <= ceiling * (1 + 1e-12)


def test_the_published_bound_covers_one_direction_only():
    """The counterexample: σ = 2, votes (40, 10) and (39, 11), order 8."""
    mp.mp.dps = 40
    one = GNMax(2.0).rdp([[40, 10]], [8.0], data_dependent=True, directions="one").divergences[0]
    both = GNMax(2.0).rdp([[40, 10]], [8.0], data_dependent=True).divergences[0]
    here, there = gaussian_pair(40, 10, 2.0), gaussian_pair(39, 11, 2.0)
    assert renyi(here, there, 8.0) < one == pytest.approx(0.003236513061405636, rel=1e-9)
    reverse = float(renyi(there, here, 8.0))
    assert one < reverse < both
    assert reverse == pytest.approx(0.04485844729231625, rel=1e-9)
    assert both == pytest.approx(0.10737123543647656, rel=1e-9)


@pytest.mark.parametrize("height", [2, 8, 15, 16, 17, 25, 28])
def test_both_directions_of_the_test(height):
    mp.mp.dps = 40
    sigma, threshold = 2.0, 16
    aggregator = ConfidentGNMax(threshold, sigma, 1.0)
    votes = np.array([[height, 0]])
    found = aggregator._test_cost(votes, None, np.array(ORDERS), True)

    def chances(top: int) -> list[mp.mpf]:
        pass_ = mp.erfc(mp.mpf(threshold - top) / (sigma * mp.sqrt(2))) / 2
        return [pass_, mp.erfc(mp.mpf(top - threshold) / (sigma * mp.sqrt(2))) / 2]

    here = chances(height)
    for other in (height - 1, height + 1):
        there = chances(other)
        for order, bound in zip(ORDERS, found, strict=True):
            assert max(renyi(here, there, order), renyi(there, here, order)) <= bound * (1 + 1e-9)


@pytest.mark.parametrize("log_q", ["gaussian", "laplace", "gumbel"])
def test_worst_gaps_are_worst(log_q):
    """q of every neighbour of random votes, by moving each vote to each class."""
    bound = {
        "gaussian": bounds.log_q_gaussian,
        "laplace": bounds.log_q_laplace,
        "gumbel": bounds.log_q_gumbel,
    }
    parameter = {"gaussian": 3.0, "laplace": 0.3, "gumbel": 0.5}[log_q]
    generator = np.random.default_rng(5)
    for votes in generator.multinomial(30, [0.5, 0.25, 0.15, 0.1], size=40):
        gaps = bounds.gaps_of(votes[None])
        worst = bound[log_q](bounds.worst_gaps(gaps), parameter)[0]
        others = [votes]
        for giver, taker in itertools.permutations(range(4), 2):
            if votes[giver]:
                moved = votes.copy()
                moved[[giver, taker]] += (-1, 1)
                others.append(moved)
        for other in others:
            found = bound[log_q](bounds.gaps_of(other[None]), parameter)[0]
            assert found <= worst + 1e-12 or worst >= math.log(0.5) - 1e-12


class TestNumbers:
    """From q = 1 to far below 1e-300, orders to 512 and beyond, whole or not."""

    LOGS = (-1e-12, -0.1, -math.log(2), -1.0, -5.0, -30.0, -230.0, math.log(1e-300), -5000.0, -1e6)

    @pytest.mark.parametrize("sigma", [0.1, 1.0, 5.0, 40.0, 1000.0])
    def test_gaussian(self, sigma):
        mp.mp.dps = 500
        orders = (1.0001, 1.5, 2, 7.3, 64, 512)
        found = bounds.gaussian_divergence(self.LOGS, sigma, orders)
        assert np.isfinite(found).all()
        for log, row in zip(self.LOGS, found, strict=True):
            for order, value in zip(orders, row, strict=True):
                if log > -1000:
                    exact = theorem_6(log, sigma, order)
                    assert value == pytest.approx(float(exact), rel=1e-8, abs=1e-290), (log, order)

    def test_pure(self):
        found = bounds.pure_divergence(self.LOGS, 0.3, (1.0001, 2, 64, 512))
        assert ((found >= 0) & (found <= 0.3)).all()
        assert (np.diff(found, axis=0) <= 1e-15).all()  # a smaller q costs less

    def test_unanimous_votes_cost_nothing_to_speak_of(self):
        cost = GNMax(1.0).rdp([[5000, 0, 0]] * 100, [2.0, 512.0], data_dependent=True).divergences
        assert (cost >= 0).all()
        assert (cost < 1e-300).all()

    def test_equal_votes_cost_what_they_cost_without_looking(self):
        aggregator = GNMax(40.0)
        votes = np.full((50, 10), 25)
        dependent = aggregator.rdp(votes, ORDERS, data_dependent=True).divergences
        assert dependent == pytest.approx(aggregator.rdp(votes, ORDERS).divergences, rel=1e-12)

    @pytest.mark.parametrize("orders", [[1.0], [0.5, 2.0], [], [math.nan], [math.inf], "two", [[2.0]]])
    def test_bad_orders(self, orders):
        with pytest.raises(InvalidValue, match="orders"):
            GNMax().rdp([[1, 0]], orders)

    def test_bad_logarithms(self):
        for logs in ([0.5], [math.nan]):
            with pytest.raises(InvalidValue, match="log_q"):
                bounds.gaussian_divergence(logs, 1.0, [2.0])


def theorem_6(log_q: float, sigma: float, order: float) -> mp.mpf:
    """Theorem 6 as it is printed, in 500 digits."""
    q, variance, order = mp.e ** mp.mpf(log_q), mp.mpf(sigma) ** 2, mp.mpf(order)
    ceiling = order / variance
    second = mp.mpf(sigma) * mp.sqrt(-mp.mpf(log_q))
    first = second + 1
    if not (second > 1 and order < first):
        return ceiling
    eps_first, eps_second = first / variance, second / variance
    ratio = first / (first - 1) * second / (second - 1)
    if not (-mp.log(q) > eps_second and mp.log(q) <= (second - 1) * eps_second - second * mp.log(ratio)):
        return ceiling
    a = (1 - q) / (1 - (q * mp.e**eps_second) ** (1 - 1 / second))
    b = mp.e**eps_first * q ** (-1 / (first - 1))
    return min(ceiling, mp.log((1 - q) * a ** (order - 1) + q * b ** (order - 1)) / (order - 1))


class TestCost:
    VOTES = ((240, 10), (200, 50), (130, 120))

    def test_sums_over_queries(self):
        aggregator = ConfidentGNMax(180, 20, 10)
        mask = np.array([True, False, True])
        for how in ({}, {"data_dependent": True}, {"data_dependent": True, "directions": "one"}):
            whole = aggregator.rdp(self.VOTES, ORDERS, answered=mask, **how).divergences
            parts = [
                aggregator.rdp([row], ORDERS, answered=np.array([given]), **how).divergences
                for row, given in zip(self.VOTES, mask, strict=True)
            ]
            assert whole == pytest.approx(np.sum(parts, axis=0), rel=1e-12)

    def test_only_public_costs_become_guarantees(self):
        aggregator = GNMax(20)
        private = aggregator.rdp(self.VOTES, ORDERS, data_dependent=True)
        for wanted in (lambda: private.event, lambda: private.guarantee(1e-5, noise="exact")):
            with pytest.raises(TacitError, match="private"):
                wanted()
        public = aggregator.rdp(self.VOTES, ORDERS)
        guarantee = public.guarantee(1e-5, noise="seeded")
        assert guarantee.epsilon == public.epsilon(1e-5)
        assert guarantee.noise == "seeded"
        with pytest.raises(InvalidValue, match="noise"):
            public.guarantee(1e-5, noise="none")
        assert "each row is seen by one teacher" in guarantee.statement()

    def test_expected_costs_are_private(self):
        """The probability of an answer is computed from the votes, with data-independent costs as well."""
        assert not ConfidentGNMax().rdp(self.VOTES, ORDERS, answered="expected").releasable
        assert GNMax().rdp(self.VOTES, ORDERS, answered="expected").releasable

    @pytest.mark.parametrize("answered", [[1, 0, 1], [True], "some", [[True] * 3]])
    def test_bad_masks(self, answered):
        with pytest.raises(InvalidValue, match="answered"):
            ConfidentGNMax().rdp(self.VOTES, ORDERS, answered=answered)

    def test_bad_words(self):
        with pytest.raises(InvalidValue, match="directions"):
            GNMax().rdp(self.VOTES, ORDERS, directions="two")
        with pytest.raises(InvalidValue, match="conversion"):
            GNMax().rdp(self.VOTES, ORDERS).epsilon(1e-5, conversion="old")
        with pytest.raises(InvalidValue, match="student"):
            GNMax().rdp(self.VOTES, ORDERS, student=[[0.5, 0.5]] * 3)


def test_an_aggregator_that_answers_everything_is_not_charged_for_less():
    with pytest.raises(InvalidValue, match="answered"):
        GNMax(1.0).rdp([[3, 1]] * 100, [2.0, 8.0], answered=np.zeros(100, dtype=bool))
    all_of_them = GNMax(1.0).rdp([[3, 1]] * 100, [2.0], answered=np.ones(100, dtype=bool))
    assert all_of_them.divergences == GNMax(1.0).rdp([[3, 1]] * 100, [2.0]).divergences


def test_what_is_assumed_of_the_teachers_depends_on_the_relation():
    """By a hash of its content a replaced record may go to another teacher, and two votes move."""
    cost = GNMax(40.0).rdp([[3, 1]], [2.0])
    assert "without looking at other rows" in cost.guarantee(1e-5, noise="exact").assumptions[0]
    for given in (cost.guarantee(1e-5, noise="exact", relation="replace_one"), GNMax(40.0).release(
        [[3, 1]], delta=1e-5, relation="replace_one").guarantee):  # fmt: skip
        assert "by nothing that replacing it may change" in given.assumptions[0]
