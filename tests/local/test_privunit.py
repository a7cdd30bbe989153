"""PrivUnit: the ratio of densities, the mean and the variance of reports, and vectors that are none."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import betainc

from tacit.errors import InvalidValue
from tacit.local import PrivUnit
from tacit.local.privunit import Cap
from tacit.randomness import exp_bounds

DIMENSIONS = (2, 3, 10, 100, 10_000)
EPSILONS = (0.1, 1.0, 4.0, 12.0)
FALSE_ALARM = 1e-7


def density(dimension: int) -> Any:
    """The density of a coordinate of a uniform direction, up to a factor; by t = sin(angle) for d = 2."""
    return lambda angle: math.cos(angle) ** (dimension - 2)


def moments(cap: Cap) -> tuple[float, float]:
    """The mean and the mean square of T by numerical integration over the angle, apart from the library."""
    weight = density(cap.dimension)
    total = quad(weight, -math.pi / 2, math.pi / 2, limit=400)[0]

    def above(angle: float) -> float:
        return quad(weight, angle, math.pi / 2, limit=400)[0] / total

    low, high = 0.0, math.pi / 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if above(middle) > float(cap.share) else (low, middle)

    def integral(power: int, start: float, end: float) -> float:
        return quad(lambda a: math.sin(a) ** power * weight(a), start, end, limit=400)[0] / total

    inside, share = float(cap.inside), float(cap.share)
    found = [
        inside / share * integral(power, low, math.pi / 2)
        + (1 - inside) / (1 - share) * integral(power, -math.pi / 2, low)
        for power in (1, 2)
    ]
    return found[0], found[1]


class TestCap:
    @pytest.mark.parametrize("dimension", DIMENSIONS)
    @pytest.mark.parametrize("epsilon", EPSILONS)
    def test_the_ratio_of_densities_is_at_most_e_to_the_epsilon(self, dimension: int, epsilon: float) -> None:
        cap = Cap.best(dimension, epsilon)
        one, other = cap.inside / cap.share, (1 - cap.inside) / (1 - cap.share)
        _, high = exp_bounds(Fraction(epsilon), 300)
        assert other * 2**300 >= one * high
        assert float(one / other) > math.exp(epsilon) * (1 - 1e-9)

    @pytest.mark.parametrize("dimension", [2, 3, 10, 60])
    @pytest.mark.parametrize("epsilon", [0.5, 4.0])
    def test_moments_by_integration(self, dimension: int, epsilon: float) -> None:
        cap = Cap.best(dimension, epsilon)
        mean, square = moments(cap)
        assert math.isclose(cap.mean, mean, rel_tol=1e-6)
        assert math.isclose(cap.mean_square, square, rel_tol=1e-6)

    @pytest.mark.parametrize("epsilon", EPSILONS)
    def test_the_best_share(self, epsilon: float) -> None:
        """No other share does better: not the half sphere of Duchi et al., nor those of other splits."""
        best = Cap.best(50, epsilon)
        for share in (0.5, *(math.exp(-epsilon * part) / 2 for part in (0.1, 0.5, 0.9, 1.0))):
            assert Cap(50, epsilon, Fraction(share)).mean <= best.mean * (1 + 1e-9)
        assert best.mean > 1.05 * Cap(50, epsilon, Fraction(1, 2)).mean or epsilon < 2

    def test_inner_products_follow_their_law(self) -> None:
        """By the distance of distribution functions; a cap of another ε is told apart."""
        mechanism = PrivUnit(dimension=5, epsilon=2.0, random_state=3)
        direction = np.array([0.6, 0.0, 0.0, 0.8, 0.0])
        runs = 40_000
        reports = mechanism.randomize(np.tile(7 * direction, (runs, 1)))
        found = np.sort(reports @ direction / mechanism.length)
        upto = np.arange(1, runs + 1) / runs

        def distance(cap: Cap) -> float:
            tails = betainc(2.0, 2.0, np.clip((1 - found) / 2, 0, 1))
            share, inside = float(cap.share), float(cap.inside)
            above = np.where(
                tails < share, inside * tails / share, inside + (1 - inside) * (tails - share) / (1 - share)
            )
            return float(np.abs(1 - above - upto).max())

        allowed = math.sqrt(math.log(2 / FALSE_ALARM) / (2 * runs)) + 1e-4
        assert distance(mechanism.cap) < allowed
        assert distance(Cap.best(5, 2.5)) > allowed

    def test_the_rest_of_a_report_has_no_preference(self) -> None:
        mechanism = PrivUnit(dimension=6, epsilon=3.0, random_state=4)
        runs = 40_000
        reports = mechanism.randomize(np.tile([0.0, 0.0, 2.0, 0.0, 0.0, 0.0], (runs, 1)))
        across = np.delete(reports, 2, axis=1) / mechanism.length
        variance = (1 - mechanism.cap.mean_square) / 5
        assert np.abs(across.mean(axis=0)).max() < 6 * math.sqrt(variance / runs)
        assert np.abs(np.square(across).mean(axis=0) / variance - 1).max() < 0.05
        correlations = np.corrcoef(across.T) - np.eye(5)
        assert np.abs(correlations).max() < 6 / math.sqrt(runs)


class TestReports:
    @pytest.mark.parametrize(("dimension", "runs"), [(2, 40_000), (10, 20_000), (300, 3_000)])
    @pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
    def test_unbiased_with_the_stated_variance(self, dimension: int, runs: int, epsilon: float) -> None:
        rng = np.random.default_rng(dimension)
        vector = rng.normal(size=dimension)
        vector *= 1.2 / np.linalg.norm(vector)
        mechanism = PrivUnit(dimension=dimension, epsilon=epsilon, clip_norm=2.0, random_state=6)
        reports = mechanism.randomize(np.tile(vector, (runs, 1))).astype(np.float64)
        squares = np.square(reports - vector).sum(axis=1)
        assert squares.std() / squares.mean() / math.sqrt(runs) < 0.02
        assert math.isclose(squares.mean(), mechanism.variance(1.2), rel_tol=0.05)
        error = np.linalg.norm(reports.mean(axis=0) - vector)
        assert error < 1.5 * math.sqrt(mechanism.variance(1.2, runs) * (1 + 30 / dimension))

    def test_all_reports_have_one_length(self) -> None:
        mechanism = PrivUnit(dimension=4, epsilon=1.0, clip_norm=3.0, random_state=1)
        rows = np.random.default_rng(1).normal(size=(5000, 4)) * np.logspace(-300, 300, 5000)[:, None]
        reports = mechanism.randomize(rows)
        assert reports.dtype == np.float32
        assert np.allclose(np.linalg.norm(reports, axis=1), mechanism.length, rtol=1e-5)

    def test_intervals_cover(self) -> None:
        rng = np.random.default_rng(2)
        vectors = rng.normal(size=(3000, 3)) / 4 + [0.9, 0.0, 0.0]
        truth = (vectors / np.maximum(1.0, np.linalg.norm(vectors, axis=1))[:, None]).mean(axis=0)
        mechanism = PrivUnit(dimension=3, epsilon=2.0, clip_norm=1.0, random_state=3)
        narrow = 0
        for _ in range(30):
            found = mechanism.estimate(mechanism.randomize(vectors))
            low, high = found.interval(0.95, simultaneous=True)
            assert ((low <= truth) & (truth <= high)).all()
            narrow += bool((np.abs(found.value - truth) > 0.2 * (high - low) / 2).any())
        assert narrow > 10

    def test_hostile_reports_are_left_out_and_counted(self) -> None:
        mechanism = PrivUnit(dimension=3, epsilon=1.0, random_state=1)
        reports = mechanism.randomize(np.ones((50, 3))).astype(np.float64)
        bad = [[1e9, 0, 0], [math.nan, 0, 0], [math.inf, 0, 0], [0, 0, 0], [mechanism.length * 1.01, 0, 0]]
        found = mechanism.estimate(np.vstack([reports, bad]))
        assert (found.reports, found.refused) == (50, 5)
        assert np.allclose(found.value, reports.mean(axis=0))
        with pytest.raises(InvalidValue, match="at least one"):
            mechanism.estimate(bad)

    def test_one_vector_is_one_report(self) -> None:
        mechanism = PrivUnit(dimension=3, epsilon=1.0, random_state=1)
        assert mechanism.randomize(np.array([1.0, 2.0, 3.0])).shape == (3,)
        assert mechanism.randomize(np.empty((0, 3))).shape == (0, 3)


class TestVectors:
    @pytest.mark.parametrize("clip_norm", [None, 1.0])
    def test_no_vector_is_randomized_like_zero(self, clip_norm: float | None) -> None:
        def reports(rows: Any) -> np.ndarray:
            return PrivUnit(dimension=2, epsilon=1.0, clip_norm=clip_norm, random_state=8).randomize(rows)

        odd = [[math.nan, 1.0], [math.inf, 1.0], [None, 1], ["x", 1], [1.0], "12", None, {}]
        assert np.array_equal(reports(odd), reports(np.zeros((len(odd), 2))))

    @pytest.mark.parametrize("clip_norm", [None, 1.0])
    def test_zero_has_mean_zero(self, clip_norm: float | None) -> None:
        mechanism = PrivUnit(dimension=2, epsilon=6.0, clip_norm=clip_norm, random_state=8)
        mean = mechanism.estimate(mechanism.randomize(np.zeros((40_000, 2)))).value
        assert np.linalg.norm(mean) < 6 * math.sqrt(mechanism.variance(0.0, 40_000))

    def test_long_vectors_are_clipped(self) -> None:
        def reports(scale: float) -> np.ndarray:
            mechanism = PrivUnit(dimension=2, epsilon=1.0, clip_norm=1.0, random_state=8)
            return mechanism.randomize(np.tile([3.0 * scale, 4.0 * scale], (100, 1)))

        assert np.allclose(reports(1e300), reports(0.2), rtol=1e-5)
        assert not np.allclose(reports(0.02), reports(0.2))

    @pytest.mark.parametrize(
        "parameters",
        [
            {"dimension": 1}, {"dimension": 2.5}, {"epsilon": 0}, {"epsilon": 1e4}, {"clip_norm": 0.0},
            {"clip_norm": math.inf}, {"clip_norm": 1e40},
        ],
        ids=str,
    )  # fmt: skip
    def test_parameters_are_checked(self, parameters: dict[str, Any]) -> None:
        with pytest.raises(InvalidValue):
            PrivUnit(**{"dimension": 3, "epsilon": 1.0, **parameters})

    def test_a_wrong_number_of_columns(self) -> None:
        with pytest.raises(InvalidValue, match="3 columns"):
            PrivUnit(dimension=3, epsilon=1.0).randomize(np.zeros((4, 2)))

    def test_the_guarantee_says_float64(self) -> None:
        assert PrivUnit(dimension=3, epsilon=1.0).guarantee.noise == "float64"
