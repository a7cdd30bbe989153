"""Duchi, Piecewise and Hybrid: exact laws, unbiased values, the papers' variances, intervals, odd values."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tacit import audit
from tacit.errors import InvalidValue
from tacit.local import Duchi, Hybrid, Piecewise
from tacit.local.numbers import NumberMechanism
from tacit.local.piecewise import piecewise_windows
from tacit.local.windows import Mixture, Windows
from tacit.randomness import exp_bounds

KINDS: tuple[type[NumberMechanism], ...] = (Duchi, Piecewise, Hybrid)
EPSILONS = (0.5, 1.0, 2.0, 4.0)
NUMBERS = (-1.0, -0.3, 0.0, 0.5, 1.0)


def within(epsilon: Fraction, one: Fraction, other: Fraction) -> bool:
    """Whether one/other is at most e^ε, decided with 300 bits."""
    _, high = exp_bounds(epsilon, 300)
    return other * 2**300 >= one * high


def parts(randomizer: Windows | Mixture) -> list[Windows]:
    return [randomizer] if isinstance(randomizer, Windows) else [randomizer.first, randomizer.second]


class TestLaws:
    @pytest.mark.parametrize(("cells", "width"), [(2, 1), (16, 5), (7, 3), (9, 8)])
    @pytest.mark.parametrize("epsilon", [0.01, 1.0, 5.0])
    def test_every_pair_of_places_and_every_report(self, cells: int, width: int, epsilon: float) -> None:
        windows = Windows(cells, width, Fraction(epsilon))
        laws = [windows.table(place) for place in range(cells - width + 1)]
        assert all(sum(law) == 1 for law in laws)
        ratios = [
            (one[report], other[report]) for one in laws for other in laws for report in range(cells)
        ]
        assert all(within(windows.epsilon, *pair) for pair in ratios)
        largest = max(one / other for one, other in ratios)
        assert largest == 1 or largest > math.exp(epsilon) * (1 - 1e-12)

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("epsilon", EPSILONS)
    def test_every_place_has_the_same_two_probabilities(self, kind: Any, epsilon: float) -> None:
        """So a pair of probabilities covers every pair of places, on which the guarantee rests."""
        mechanism = kind(bounds=(-1, 1), epsilon=epsilon)
        for windows in parts(mechanism._randomizer):
            outside = (1 - windows.inside) / (windows.cells - windows.width)
            assert within(Fraction(epsilon), windows.inside / windows.width, outside)
            for place in {0, 1, (windows.cells - windows.width) // 2, windows.cells - windows.width}:
                law = windows.table(place)
                assert sum(law) == 1
                assert law.count(outside) == windows.cells - windows.width
                assert law.count(windows.inside / windows.width) == windows.width

    @pytest.mark.parametrize("kind", KINDS)
    def test_numbers_between_places(self, kind: Any) -> None:
        mechanism = kind(bounds=(0, 1), epsilon=1.0)
        laws = [mechanism.law(value) for value in (0.0, 0.123456, 0.5, 1.0, math.nan)]
        for one in laws:
            assert sum(one.values()) == 1
            for other in laws:
                pairs = {(one[report], other[report]) for report in one}
                assert all(within(Fraction(1), *pair) for pair in pairs)

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("epsilon", [0.1, 1.0, 6.0])
    def test_unbiased(self, kind: Any, epsilon: float) -> None:
        mechanism = kind(bounds=(-3, 5), epsilon=epsilon)
        for value in (-3.0, -1.2345, 1.0, 4.99, 5.0):
            law = mechanism.law(value)
            values = mechanism.values(np.array(list(law)))
            mean = math.fsum(float(p) * v for p, v in zip(law.values(), values, strict=True))
            assert math.isclose(mean, value, abs_tol=1e-9 * mechanism.values(np.array([0]))[0] ** 2)

    @pytest.mark.parametrize("kind", KINDS)
    def test_reports_follow_the_law(self, kind: Any) -> None:
        """By the distance of distribution functions, which exceeds the bound once in 10⁷ runs."""
        mechanism = kind(bounds=(0, 1), epsilon=1.5, random_state=5)
        runs = 60_000
        reports = mechanism.randomize(np.full(runs, 0.2345))
        exact = np.cumsum([float(p) for p in mechanism.law(0.2345).values()])
        found = np.cumsum(np.bincount(reports, minlength=exact.size)) / runs
        allowed = math.sqrt(math.log(2e7) / (2 * runs))
        assert np.abs(found - exact).max() < allowed
        wrong = np.cumsum([float(p) for p in mechanism.law(0.6).values()])
        assert np.abs(found - wrong).max() > allowed


class TestVariance:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("epsilon", EPSILONS)
    def test_empirical(self, kind: Any, epsilon: float) -> None:
        """Of 100,000 reports the standard error of a variance is below 1 %."""
        mechanism = kind(bounds=(-1, 1), epsilon=epsilon, random_state=2)
        for number in (0.0, 1.0):
            values = mechanism.values(mechanism.randomize(np.full(100_000, number)))
            squares = np.square(values - number)
            if mechanism.variance(number) > 0.2:
                assert squares.std() / squares.mean() / math.sqrt(squares.size) < 0.02
            assert math.isclose(squares.mean(), mechanism.variance(number), rel_tol=0.05)

    @pytest.mark.parametrize("epsilon", EPSILONS)
    @pytest.mark.parametrize("number", NUMBERS)
    def test_papers(self, epsilon: float, number: float) -> None:
        """Formulas of Duchi et al. 2018 and of Wang et al. 2019 (lemma 1, section III-C), written anew."""
        root, power = math.exp(epsilon / 2), math.exp(epsilon)
        duchi = ((power + 1) / (power - 1)) ** 2 - number**2
        piecewise = number**2 / (root - 1) + (root + 3) / (3 * (root - 1) ** 2)
        share = 1 - 1 / root if epsilon > 0.61 else 0.0
        expected = {Duchi: duchi, Piecewise: piecewise, Hybrid: share * piecewise + (1 - share) * duchi}
        for kind, variance in expected.items():
            found = kind(bounds=(-1, 1), epsilon=epsilon).variance(number)
            assert math.isclose(found, variance, rel_tol=2e-3)

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("epsilon", [0.1, 0.7, 2.0, 7.0])
    def test_the_largest(self, kind: Any, epsilon: float) -> None:
        mechanism = kind(bounds=(-1, 1), epsilon=epsilon)
        found = mechanism._randomizer.variance(np.linspace(-1, 1, 20_001))
        assert found.max() <= mechanism.largest_variance() * (1 + 1e-9)
        assert mechanism.largest_variance() <= found.max() * (1 + 1e-4)

    def test_the_hybrid_is_the_best_of_the_three(self) -> None:
        for epsilon in (0.3, 0.61, 0.7, 1.0, 2.0, 4.0, 8.0):
            duchi, piecewise, hybrid = (
                kind(bounds=(-1, 1), epsilon=epsilon).largest_variance() for kind in KINDS
            )
            assert hybrid <= min(duchi, piecewise) * (1 + 1e-6)

    def test_units_and_numbers_of_reports(self) -> None:
        mechanism = Hybrid(bounds=(100, 300), epsilon=1.0)
        unit = Hybrid(bounds=(-1, 1), epsilon=1.0)
        assert math.isclose(mechanism.variance(250, 50), unit.variance(0.5) * 100**2 / 50)
        several = Hybrid(bounds=([0, 0], [1, 2]), epsilon=1.0)
        assert np.allclose(several.variance([1.0, 2.0], 10), unit.variance(1.0) * np.array([0.25, 1]) / 5)


class TestEstimates:
    @pytest.mark.parametrize("kind", KINDS)
    def test_intervals_cover(self, kind: Any) -> None:
        """At 60 reports and at 2,000. Bernstein's bound misses far less often than allowed."""
        rng = np.random.default_rng(3)
        for people in (60, 2000):
            values = rng.choice([0.0, 0.1, 1.0], size=people)
            mechanism = kind(bounds=(0, 1), epsilon=1.0, random_state=people)
            missed = narrow = 0
            for _ in range(200):
                found = mechanism.estimate(mechanism.randomize(values))
                low, high = found.interval(0.9)
                missed += not low <= values.mean() <= high
                narrow += not abs(found.value - values.mean()) <= 0.2 * (high - low) / 2
            assert missed <= 20
            assert narrow > 20 or people == 60

    def test_attributes_cover_at_once(self) -> None:
        rng = np.random.default_rng(4)
        values = rng.uniform(size=(900, 6)) ** 2 * 10
        mechanism = Hybrid(bounds=([0] * 6, 10), epsilon=5.0, random_state=1)
        assert mechanism.asked == 2
        for _ in range(20):
            low, high = mechanism.estimate(mechanism.randomize(values)).interval(0.95, simultaneous=True)
            assert ((low <= values.mean(axis=0)) & (values.mean(axis=0) <= high)).all()

    def test_attributes_are_asked_for_alike(self) -> None:
        mechanism = Piecewise(bounds=([0] * 5, 1), epsilon=5.0, random_state=1)
        reports = mechanism.randomize(np.full((40_000, 5), 0.75))
        asked = reports >= 0
        assert (asked.sum(axis=1) == 2).all()
        assert np.abs(asked.mean(axis=0) - 0.4).max() < 6 * math.sqrt(0.24 / 40_000)
        found = mechanism.estimate(reports)
        assert np.abs(found.value - 0.75).max() < 6 * math.sqrt(mechanism.variance([0.75] * 5, 40_000)[0])

    def test_the_split_adds_up_to_epsilon(self) -> None:
        for epsilon in (0.7, 5.0, 7.7, 23.0):
            mechanism = Hybrid(bounds=([0] * 7, 1), epsilon=epsilon)
            assert mechanism._randomizer.first.epsilon * mechanism.asked == Fraction(epsilon) or (
                mechanism.asked == 1
            )

    def test_hostile_reports_are_left_out_and_counted(self) -> None:
        one = Duchi(bounds=(0, 1), epsilon=1.0, random_state=1)
        found = one.estimate([0, 1, 1, 2, -1, 10**9, math.nan, math.inf, None, "x", 0.5])
        assert (found.reports, found.refused) == (3, 8)
        several = Duchi(bounds=([0, 0, 0], 1), epsilon=1.0, random_state=1)
        rows = [[0, -1, -1], [-1, -1, 1], [0, 1, -1], [-1, -1, -1], [7, -1, -1], [0, math.nan, -1]]
        found = several.estimate([*rows, [0], "010"])
        assert (found.reports, found.refused) == (2, 6)
        assert np.isnan(found.value[1])
        assert found.interval()[0][1] == 0
        assert found.interval()[1][1] == 1

    def test_guarantee(self) -> None:
        mechanism = Hybrid(bounds=(0, 1), epsilon=1.0)
        found = mechanism.estimate(mechanism.randomize([0.5] * 10)).guarantee
        assert (found.epsilon, found.delta, found.noise) == (1.0, 0.0, "exact")
        assert str(found.relation) == "replace_one"
        assert "reports once" in found.statement()


class TestValues:
    ODD: tuple[Any, ...] = (math.nan, None, "text", object(), [], {}, 3j, b"1")

    @pytest.mark.parametrize("kind", KINDS)
    def test_odd_values_are_the_middle_or_a_bound(self, kind: Any) -> None:
        def reports(values: list[Any]) -> list[int]:
            return kind(bounds=(0, 10), epsilon=1.0, random_state=9).randomize(values).tolist()

        assert reports(list(self.ODD)) == reports([5.0] * len(self.ODD))
        assert reports([math.inf, 1e308, 10**400, 11]) == reports([10.0] * 4)
        assert reports([-math.inf, -1e308, -1e-300]) == reports([0.0] * 3)

    def test_odd_rows(self) -> None:
        def reports(values: Any) -> list[Any]:
            return Hybrid(bounds=([0, 0], 10), epsilon=6.0, random_state=9).randomize(values).tolist()

        assert reports([[1, None], [1], "12", 7, [math.inf, "x"]]) == reports(
            [[1, 5], [5, 5], [5, 5], [5, 5], [10, 5]]
        )

    @pytest.mark.parametrize("kind", KINDS)
    def test_nobody(self, kind: Any) -> None:
        mechanism = kind(bounds=(0, 1), epsilon=1.0)
        assert mechanism.randomize([]).shape == (0,)
        with pytest.raises(InvalidValue, match="at least one"):
            mechanism.estimate([])

    @pytest.mark.parametrize(
        "bounds", [None, 3, (1, 0), (0, math.nan), (0, 0), "ab", ([0, 1], [2]), ([], [])]
    )
    def test_bounds_are_checked(self, bounds: Any) -> None:
        with pytest.raises(InvalidValue):
            Duchi(bounds=bounds, epsilon=1.0)

    def test_wide_bounds_and_large_epsilon(self) -> None:
        wide = Piecewise(bounds=(-1.7e308, 1.7e308), epsilon=30.0, random_state=1)
        reports = wide.randomize([0.0, 1e308, -1.7e308])
        assert np.allclose(wide.values(reports) / 1e308, [0, 1, -1.7], atol=1e-3)
        with pytest.raises(InvalidValue, match="at most 60"):
            Piecewise(bounds=(0, 1), epsilon=100.0)

    def test_a_wrong_number_of_columns(self) -> None:
        with pytest.raises(InvalidValue, match="3 columns"):
            Duchi(bounds=([0, 0, 0], 1), epsilon=1.0).randomize(np.zeros((4, 2)))


class TestLastBits:
    """The published piecewise mechanism in float64, which tells numbers apart by their last bits."""

    SMALL = 2.0**-7

    @staticmethod
    def naive(number: float, runs: int, seed: int) -> tuple[np.ndarray, float, float]:
        """Reports of the mechanism as it is published, its window's lower end and width."""
        rng = np.random.default_rng(seed)
        root = math.exp(0.5)
        C = (root + 1) / (root - 1)
        low, width = (C + 1) / 2 * number - (C - 1) / 2, C - 1
        within = low + width * rng.random(runs)
        ends = rng.random(runs) * (2 * C - width)
        outside = np.where(-C + ends < low, -C + ends, -C + ends + width)
        return np.where(rng.random(runs) < root / (root + 1), within, outside), low, width

    @classmethod
    def impossible(cls, reports: np.ndarray, low: float, width: float) -> np.ndarray:
        """Small reports that no 53-bit uniform draw within the window of a number produces."""
        guess = np.rint((reports - low) / width * 2.0**53)
        made = [low + width * ((guess + shift) * 2.0**-53) for shift in range(-3, 4)]
        return (np.abs(reports) < cls.SMALL) & ~np.any([reports == each for each in made], axis=0)

    def test_the_naive_twin_is_caught(self) -> None:
        runs = 100_000
        own, low, width = self.naive(0.0, runs, 1)
        other, *_ = self.naive(0.1, runs, 2)
        found = audit.clopper_pearson(
            true_positives=int(self.impossible(other, low, width).sum()), positives=runs,
            false_positives=int(self.impossible(own, low, width).sum()), negatives=runs,
            delta=0.0, confidence=1 - 1e-6,
        )  # fmt: skip
        assert found.epsilon > 1.5 > 1.0

    def test_ours_has_the_same_reports_for_all_numbers(self) -> None:
        mechanism = Piecewise(bounds=(-1, 1), epsilon=1.0, random_state=1)
        assert all(chance > 0 for value in (0.0, 0.1, 1.0) for chance in mechanism.law(value).values())
        reports = mechanism.randomize(np.full(1000, 0.1))
        assert reports.dtype == np.int64
        assert set(mechanism.values(reports)) <= set(mechanism.values(np.arange(4096)))


def test_windows_of_the_piecewise_mechanism() -> None:
    for epsilon in (0.01, 1.0, 12.0, 20.0, 40.0):
        windows = piecewise_windows(Fraction(epsilon))
        assert windows.width >= 8
        share = windows.width / windows.cells
        assert math.isclose(share, 1 / (math.exp(epsilon / 2) + 1), rel_tol=0.15)
