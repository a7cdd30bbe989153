"""What is bought before a fit: the number of rows, and the bounds of the features."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tacit import accounting, audit, events
from tacit.errors import InvalidValue
from tacit.estimators import purchases
from tacit.estimators.purchases import EDGES, BoundsPurchase, CountPurchase
from tacit.mechanisms import DiscreteLaplace
from tacit.randomness import Source
from tacit.relations import Relation, Unit

GROUP = Unit("person", 3)


def histograms(matrix: np.ndarray) -> np.ndarray:
    return np.array([purchases._histogram(column, None) for column in np.asarray(matrix, dtype=float).T])


def proven(scores: list[np.ndarray], delta: float = 0.0, middle: float = 0.0) -> float:
    options = {"delta": delta, "confidence": 0.99}
    rule = audit.Fixed(middle) if delta else audit.Split(seed=1)
    guesses = audit.choose_threshold(*scores, rule=rule, **options)
    bound = audit.gaussian if delta else audit.clopper_pearson
    return bound(**guesses.counts(), **options).epsilon


class TestCount:
    def test_noise(self):
        """Discrete Laplace of scale 1/ε: its mean distance tells it from two thirds and three halves."""
        source, purchase = Source(1), CountPurchase(0.5)
        found = np.array([purchase.buy(1000, source) for _ in range(6000)]) - 1000
        ratio = math.exp(-0.5)
        expected = 2 * ratio / (1 - ratio**2)
        assert np.abs(found).mean() == pytest.approx(expected, rel=0.08)

    def test_groups_count_with_all_their_rows(self):
        source = Source(1)
        found = np.array([CountPurchase(0.5, unit=GROUP).buy(1000, source) for _ in range(4000)]) - 1000
        ratio = math.exp(-0.5 / 3)
        assert np.abs(found).mean() == pytest.approx(2 * ratio / (1 - ratio**2), rel=0.08)

    def test_what_is_public_is_free(self):
        purchase = CountPurchase(0.5, Relation.REPLACE_ONE)
        assert purchase.buy(17, Source(1)) == 17
        assert accounting.epsilon(purchase.event, 0.0) == 0.0

    def test_how_many_rows_meet_a_condition_is_not_public(self):
        """One that meets it may be replaced by one that does not."""
        purchase = CountPurchase(0.5, Relation.REPLACE_ONE, whole=False)
        assert purchase.event == events.Pure(0.5)
        assert len({purchase.buy(17, Source(seed)) for seed in range(20)}) > 1

    def test_groups_may_be_replaced_by_larger_ones(self):
        purchase = CountPurchase(0.5, Relation.REPLACE_ONE, GROUP)
        assert purchase.event == events.Pure(0.5)
        assert len({purchase.buy(17, Source(seed)) for seed in range(20)}) > 1

    def test_at_least_one(self):
        assert {CountPurchase(0.05).buy(0, Source(seed)) for seed in range(30)} >= {1}
        assert min(CountPurchase(0.05).buy(0, Source(seed)) for seed in range(30)) == 1

    def test_audit(self, monkeypatch):
        def scores(purchase: CountPurchase, seed: int) -> list[np.ndarray]:
            sources = Source(seed), Source(seed + 1)
            return [
                np.array([purchase.buy(n, source) for _ in range(6000)], dtype=float)
                for n, source in zip((101, 100), sources, strict=True)
            ]

        purchase = CountPurchase(1.0)
        assert 0.5 < proven(scores(purchase, 1)) <= 1.0
        less = property(lambda self: DiscreteLaplace(self.unit.rows, 1.5 * self.epsilon))
        monkeypatch.setattr(CountPurchase, "_mechanism", less)
        assert proven(scores(purchase, 3)) > 1.0

    @pytest.mark.parametrize("arguments", [(0.0,), (math.nan,), (1.0, "swap")])
    def test_bad_input(self, arguments):
        with pytest.raises(InvalidValue):
            CountPurchase(*arguments)


class TestCells:
    def test_every_value_is_within_its_cell(self):
        values = np.concatenate(
            [EDGES, np.nextafter(EDGES, 0), np.random.default_rng(1).normal(size=500) * 1e3, [0.0, -0.0]]
        )
        for value in values[np.abs(values) < EDGES[-1]]:
            counts = purchases._histogram(np.array([value]), None)
            assert counts.sum() == 1
            assert counts.shape == (EDGES.size - 1,)
            cell = int(counts.argmax())
            assert EDGES[cell] <= value <= EDGES[cell + 1]

    def test_nothing_for_what_is_not_finite_or_not_kept(self):
        column = np.array([np.nan, np.inf, -np.inf, 3.0, 4.0])
        assert purchases._histogram(column, None).sum() == 2
        assert purchases._histogram(column, np.array([True] * 4 + [False])).sum() == 1

    def test_huge_values_count_in_the_last_cell(self):
        counts = purchases._histogram(np.array([1e300, -1e300]), None)
        assert counts[0] == counts[-1] == 1


class TestBounds:
    @pytest.mark.parametrize("relation", list(Relation))
    @pytest.mark.parametrize("unit", [Unit(), GROUP], ids=["row", "group"])
    @pytest.mark.parametrize("delta", [0.0, 1e-6])
    def test_sensitivity(self, relation, unit, delta):
        """Reached by rows that hit the same cells, replaced by rows that hit others; never more."""
        d = 4
        purchase = BoundsPurchase(1.0, delta, d, relation, unit)
        claim = purchase._mechanism.sensitivity
        rng = np.random.default_rng(1)
        largest = 0.0
        for trial in range(300):
            first = rng.choice([1.0, -3.0, 1e9, 0.0, np.nan], size=(unit.rows, d))
            second = rng.choice([1.0, -3.0, 1e9, 0.0, np.nan], size=(unit.rows, d))
            if trial == 0:
                first, second = np.ones((unit.rows, d)), np.full((unit.rows, d), -5.0)
            moved = histograms(first) - (histograms(second) if relation is Relation.REPLACE_ONE else 0)
            largest = max(largest, np.abs(moved).sum() if delta == 0 else np.linalg.norm(moved))
        assert 0.99 * claim <= largest <= claim * (1 + 1e-12)

    @pytest.mark.parametrize("delta", [0.0, 1e-6])
    def test_finds_them(self, delta):
        rng = np.random.default_rng(1)
        x = np.column_stack([
            rng.uniform(20, 90, 20_000), rng.normal(size=20_000), -rng.uniform(0, 1e6, 20_000),
            np.full(20_000, 5.0), np.zeros(20_000),
        ])  # fmt: skip
        purchase = BoundsPurchase(1.0, delta, 5)
        lower, upper = purchase.buy(purchase.counts(x, None), Source(1))
        assert (lower[0], upper[0]) == (16.0, 128.0)
        assert lower[1] in (-4.0, -8.0)
        assert upper[1] in (4.0, 8.0)
        assert lower[2] == -(2.0**20)
        assert -5e4 < upper[2] < 0
        assert (lower[3], upper[3]) == (4.0, 8.0)
        assert (lower[4], upper[4]) == (-(2.0**-20), 2.0**-20)

    @pytest.mark.parametrize("delta", [0.0, 1e-6])
    def test_noise_alone_finds_nothing(self, delta):
        """Each of 300 features is wrong with probability 1/100 at most: 3 of them on average, 15 never."""
        purchase = BoundsPurchase(1.0, delta, 300)
        lower, upper = purchase.buy(purchase.counts(np.full((3, 300), np.nan), None), Source(1))
        assert np.count_nonzero((lower != -1) | (upper != 1)) < 15
        assert np.isfinite(lower).all()
        assert np.isfinite(upper).all()
        assert (lower < upper).all()
        assert (purchase.buy(purchase.counts(np.zeros((0, 300)), None), Source(1))[0] == lower).all()

    @pytest.mark.parametrize("delta", [0.0, 1e-6])
    def test_threshold_follows_the_noise(self, delta):
        one, other = (BoundsPurchase(e, delta, 3).threshold for e in (0.5, 1.0))
        assert one > 1.5 * other

    @pytest.mark.parametrize("delta", [0.0, 1e-5])
    def test_audit(self, monkeypatch, delta):
        """The neighbour's row is where no other is; all its cells together are what is looked at."""
        d, epsilon = 2, 2.0
        row = np.full((1, d), 1e9)
        cells = histograms(row).astype(bool)
        kept: list[np.ndarray] = []

        class Spy:
            def __init__(self, mechanism):
                self.mechanism = mechanism

            def __call__(self, counts):
                kept.append(self.mechanism(counts))
                return kept[-1]

        monkeypatch.setattr(purchases, "replace", lambda made, random_state: Spy(remade(made, random_state)))
        factor = 1.0

        def remade(made, source):
            if delta == 0:
                return DiscreteLaplace(made.sensitivity, factor * made.epsilon, random_state=source)
            return purchases.Gaussian(
                made.sensitivity / factor, noise_multiplier=made.event.noise_multiplier, random_state=source
            )

        def scores(seed: int) -> list[np.ndarray]:
            purchase = BoundsPurchase(epsilon, delta, d)
            found = []
            for k, matrix in enumerate((row, np.zeros((0, d)))):
                kept.clear()
                source = Source(seed + k)
                for _ in range(1500):
                    purchase.buy(purchase.counts(matrix, None), source)
                seen = np.array([noisy[cells] for noisy in kept], dtype=float)
                found.append(np.clip(seen, 0, 1).sum(axis=1) if delta == 0 else seen.sum(axis=1))
            return found

        claim = accounting.epsilon(BoundsPurchase(epsilon, delta, d).event, delta)
        assert 0.3 * claim < proven(scores(1), delta, d / 2) <= claim
        factor = 1.5
        assert proven(scores(3), delta, d / 2) > claim

    def test_events(self):
        assert BoundsPurchase(0.3, 0.0, 7).event == events.Pure(0.3)
        assert accounting.epsilon(BoundsPurchase(0.3, 1e-6, 7).event, 1e-6) == pytest.approx(0.3)

    @pytest.mark.parametrize(
        "arguments", [(0.0, 0.0, 1), (1.0, 1.0, 1), (1.0, 0.0, 0), (1.0, 0.0, 1, "swap")]
    )
    def test_bad_input(self, arguments):
        with pytest.raises(InvalidValue):
            BoundsPurchase(*arguments)

    def test_wrong_width(self):
        with pytest.raises(InvalidValue, match="3 columns"):
            BoundsPurchase(1.0, 0.0, 3).counts(np.zeros((2, 2)), None)
