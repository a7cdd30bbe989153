"""The data-dependent cost with noise: its sensitivity by brute force, its price by quadrature."""

from __future__ import annotations

import itertools
import math
from typing import ClassVar

import mpmath as mp
import numpy as np
import pytest

from tacit.errors import BudgetExceeded, InvalidValue, TacitError
from tacit.ledger import Budget, Ledger
from tacit.pate import ConfidentGNMax, GNMax, InteractiveGNMax, LNMax, sanitise
from tacit.pate import local_sensitivity as local
from tacit.pate.sanitising import sanitising_cost, sanitising_scale, smooth_sensitivity


def divergence(order: float, mean: float, first: float, second: float) -> float:
    """Rényi divergence of N(0, first²) from N(mean, second²), by quadrature."""
    mp.mp.dps = 20

    def integrand(x: mp.mpf) -> mp.mpf:
        return mp.e ** (order * mp.log(mp.npdf(x, 0, first)) - (order - 1) * mp.log(mp.npdf(x, mean, second)))

    return float(mp.log(mp.quad(integrand, mp.linspace(-80 * first, 80 * first, 41))) / (order - 1))


class TestPrice:
    BETA, SCALE, ORDER = 0.0329, 6.23, 14.0

    def test_the_published_price_is_too_low(self):
        """Two neighbours as smooth sensitivity allows them, and theorem 23 at its authors' constants."""
        narrow = math.exp(-self.BETA)
        true = divergence(self.ORDER, narrow, self.SCALE, self.SCALE * narrow)
        spread = self.BETA * self.ORDER - 0.5 * math.log(1 - 2 * self.ORDER * self.BETA)
        published = self.ORDER * math.exp(2 * self.BETA) / self.SCALE**2 + spread / (self.ORDER - 1)
        assert published == pytest.approx(0.5184, abs=1e-4)
        assert true == pytest.approx(1.6071, abs=1e-4)
        assert sanitising_cost([self.ORDER], self.BETA, self.SCALE)[0] == pytest.approx(true, rel=1e-9)

    @pytest.mark.parametrize("ratio", [-1.0, -0.5, 0.0, 0.5, 1.0])
    @pytest.mark.parametrize(("order", "beta", "scale"), [(5.0, 0.04, 3.0), (14.0, 0.02, 6.0)])
    def test_no_neighbours_exceed_the_price(self, order, beta, scale, ratio):
        change = math.exp(ratio * beta)
        true = divergence(order, min(1.0, change), scale, scale * change)
        assert true <= sanitising_cost([order], beta, scale)[0] * (1 + 1e-9)

    def test_scale_inverts_price(self):
        scale = sanitising_scale(10.0, 0.02, 0.4)
        assert sanitising_cost([10.0], 0.02, scale)[0] == pytest.approx(0.4, rel=1e-12)

    def test_what_cannot_be_bought(self):
        with pytest.raises(InvalidValue, match="beta"):
            sanitising_scale(20.0, 0.03, 1.0)
        with pytest.raises(InvalidValue, match="cost"):
            sanitising_scale(10.0, 0.045, 0.01)
        with pytest.raises(InvalidValue, match="confidence"):
            sanitise(GNMax(20.0, teachers=100), [[90, 10]], order=5.0, cost=0.05, beta=0.04, confidence=0.999)


def all_votes(teachers: int, classes: int) -> list[tuple[int, ...]]:
    return [v for v in itertools.product(range(teachers + 1), repeat=classes) if sum(v) == teachers]


def next_to(votes: tuple[int, ...]) -> list[tuple[int, ...]]:
    found = []
    for giver, taker in itertools.permutations(range(len(votes)), 2):
        if votes[giver]:
            moved = list(votes)
            moved[giver] -= 1
            moved[taker] += 1
            found.append(tuple(moved))
    return found


@pytest.mark.parametrize("directions", ["one", "both"])
@pytest.mark.parametrize(("classes", "teachers", "sigma", "order"), [(2, 40, 8.0, 4.0), (3, 15, 3.0, 3.0)])
@pytest.mark.parametrize("tests", [False, True])
def test_smooth_sensitivity_by_brute_force(classes, teachers, sigma, order, directions, tests):
    """On every vote vector: above every change to a neighbour, and within e^β of every neighbour's."""
    beta = 0.05
    aggregator = (
        ConfidentGNMax(teachers * 0.7, 3.0, sigma, teachers=teachers)
        if tests
        else GNMax(sigma, teachers=teachers)
    )
    found = {
        votes: smooth_sensitivity(aggregator, [votes], order=order, beta=beta, directions=directions)
        for votes in all_votes(teachers, classes)
    }
    moved = 0.0
    for votes, (cost, smooth) in found.items():
        for other in next_to(votes):
            other_cost, other_smooth = found[other]
            assert abs(cost - other_cost) <= smooth * (1 + 1e-9) + 1e-15, (votes, other)
            assert other_smooth <= smooth * math.exp(beta) * (1 + 1e-9), (votes, other)
            moved = max(moved, abs(cost - other_cost) / smooth if smooth else 0.0)
    assert moved > 0.3  # the bound is not far away where it matters
    most = aggregator.rdp([(teachers, *(0,) * (classes - 1))], [order]).divergences[0]
    assert max(cost for cost, _ in found.values()) == pytest.approx(most, rel=1e-9)


@pytest.mark.parametrize(
    ("aggregator", "classes", "order"),
    [
        (GNMax(1.0, teachers=12), 3, 1.5),  # the cost jumps at q₀, from 0.74 to 1.5
        (GNMax(1.5, teachers=12), 3, 2.0),
        (ConfidentGNMax(8.4, 1.3, 1.0, teachers=12), 2, 8.0),  # tests cost less near a height of 0 alone
    ],
)
@pytest.mark.parametrize("directions", ["one", "both"])
def test_smooth_sensitivity_where_little_noise_makes_the_cost_jump(aggregator, classes, order, directions):
    beta = 0.2 / order
    found = {
        votes: smooth_sensitivity(aggregator, [votes], order=order, beta=beta, directions=directions)
        for votes in all_votes(aggregator.teachers, classes)
    }
    for votes, (cost, smooth) in found.items():
        for other in next_to(votes):
            assert abs(cost - found[other][0]) <= smooth * (1 + 1e-9) + 1e-15, (votes, other)
            assert found[other][1] <= smooth * math.exp(beta) * (1 + 1e-9), (votes, other)


def test_costs_agree_with_the_aggregator():
    aggregator = ConfidentGNMax(180, 30, 20, teachers=250)
    votes = np.random.default_rng(3).multinomial(250, [0.8, 0.1, 0.05, 0.05], size=30)
    mask = np.arange(30) % 2 == 0
    for directions in ("one", "both"):
        cost, _ = smooth_sensitivity(
            aggregator, votes, order=8.0, beta=0.01, answered=mask, directions=directions
        )
        direct = aggregator.rdp(votes, [8.0], data_dependent=True, directions=directions, answered=mask)
        assert cost == pytest.approx(direct.divergences[0], rel=1e-9)


class TestRelease:
    TEACHERS = GNMax(40.0, teachers=250)
    VOTES = ((240, 10, 0),) * 300
    HOW: ClassVar = {"order": 14.0, "cost": 0.3, "delta": 1e-5}

    def test_upper_bound_as_often_as_stated(self):
        teachers, votes, how = GNMax(8.0, teachers=40), [[31, 9]], {"order": 4.0, "cost": 0.3, "delta": 1e-5}
        true, _ = smooth_sensitivity(teachers, votes, order=4.0, beta=0.2 / 4)
        found = [
            sanitise(teachers, votes, **how, confidence=0.9, random_state=seed).divergence
            for seed in range(60)
        ]
        assert 44 <= sum(value >= true for value in found) <= 59

    def test_charged_and_stated(self, tmp_path):
        with Ledger.open(tmp_path / "rich.db", Budget(3.0, 1e-4), filter="renyi") as ledger:
            given = sanitise(self.TEACHERS, self.VOTES, **self.HOW, ledger=ledger, random_state=1)
            (entry,) = ledger.entries()
            assert entry.event == given.own.event
        assert given.cost == pytest.approx(0.3)
        guarantee = given.guarantee(1e-5)
        assert guarantee.epsilon == given.epsilon(1e-5)
        assert "upper bound with probability 0.95" in guarantee.statement()
        assert guarantee.noise == "seeded"

    def test_refused_without_budget(self, tmp_path):
        with Ledger.open(tmp_path / "poor.db", Budget(0.1, 1e-4)) as ledger:
            with pytest.raises(BudgetExceeded):
                sanitise(self.TEACHERS, lambda: pytest.fail("read"), classes=3, ledger=ledger, **self.HOW)
            assert not ledger.entries()

    def test_one_direction_is_no_guarantee(self):
        given = sanitise(self.TEACHERS, self.VOTES, **self.HOW, directions="one", random_state=1)
        with pytest.raises(TacitError, match="one direction"):
            given.guarantee(1e-5)

    def test_conditions_are_checked_before_anything_is_charged(self, tmp_path):
        weak = GNMax(20.0, teachers=250)
        with Ledger.open(tmp_path / "rich.db", Budget(3.0, 1e-4)) as ledger:
            with pytest.raises(TacitError, match=r"C6 .* sigma = 20, 10 classes and order 25") as caught:
                sanitise(weak, [[250] + [0] * 9], order=25.0, cost=0.3, delta=1e-5, ledger=ledger)
            assert caught.value.conditions == (True, False)
            assert not ledger.entries()

    @pytest.mark.parametrize("aggregator", [LNMax(teachers=250), InteractiveGNMax(teachers=250)])
    def test_only_where_the_sensitivity_is_known(self, aggregator):
        with pytest.raises(TacitError, match="not known"):
            sanitise(aggregator, self.VOTES, **self.HOW)

    def test_little_noise_is_refused(self):
        with pytest.raises(TacitError):
            sanitise(GNMax(0.3, teachers=9), [[9, 0]], order=2.0, cost=0.3, delta=1e-5)


def test_plateau_is_where_the_bounds_meet():
    from tacit.pate.bounds import gaussian_divergence

    start = local.plateau_start(40.0, 14.0)
    below, above = gaussian_divergence([start - 1e-6, start + 1e-6], 40.0, [14.0])[:, 0]
    assert below < 14 / 1600 == above
