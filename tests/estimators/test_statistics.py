"""Least squares from noisy moments: sensitivities, noise, audits, and what is computed from the release."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import gammainc, k1, roots_genlaguerre
from scipy.stats import norm

from tacit import accounting, audit, events
from tacit.errors import InvalidValue, TacitError
from tacit.estimators.linear.losses import Logistic, Squared
from tacit.estimators.linear.noise.place import Problem
from tacit.estimators.linear.noise.statistics import (
    GaussianMoments,
    Moments,
    NoisyStatistics,
    Statistics,
    WishartMoments,
    solve,
)
from tacit.estimators.linear.rows import ScaledRows, Space
from tacit.randomness import Source
from tacit.relations import Relation, Unit

DATA = Path(__file__).parents[3] / "shared" / "data"
FALSE_ALARM = 1e-6


def unit_space(width: int, intercept: bool = False) -> Space:
    """Inside rows are raw rows, clipped to norm 1, or scaled together with a constant."""
    return Space.of(np.full(width, -1.0), np.full(width, 1.0), 1.0, intercept=intercept)


def rows_of(x: Any, y: Any, intercept: bool = False) -> ScaledRows:
    x = np.asarray(x, dtype=float)
    return ScaledRows(x, np.asarray(y, dtype=float)[:, None], unit_space(x.shape[1], intercept))


def wishart_scale(noise: Any) -> float:
    """1/r of the Wishart noise of a release."""
    return float(noise._mechanism._scale)


def task(width: int, epsilon: float = 1.0, delta: float = 0.0, **more: Any) -> Problem:
    return Problem(Squared(), width, epsilon, delta, **{"intercept": False, **more})


def linear_data(n: int = 4000, d: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, d)) / math.sqrt(d)
    return x, np.clip(x @ np.linspace(0.8, -0.4, d) + 0.1 + 0.1 * rng.normal(size=n), -1, 1)


def of_one(noise: Any, x: np.ndarray, s: float) -> Moments:
    return Moments.of(rows_of(x[None], [s]), lambda targets: targets)


def unit_vectors(rng: np.random.Generator, d: int) -> np.ndarray:
    """Rows at the bound, sometimes with equal entries, sometimes with few."""
    x = rng.choice([rng.normal(size=d), np.sign(rng.normal(size=d)), np.eye(d)[rng.integers(d)]])
    return x / np.linalg.norm(x) * rng.choice([1.0, 1.0, rng.uniform()])


class TestSensitivity:
    @pytest.mark.parametrize("extended", [False, True])
    @pytest.mark.parametrize("kind", [GaussianMoments, WishartMoments])
    @pytest.mark.parametrize("relation", list(Relation))
    def test_random_search_reaches_it_and_never_more(self, kind, relation, extended):
        d = 3
        noise = kind(task(d, 1.0, 1e-6, relation=relation), extended)
        claim, largest, rng = noise.of_a_row(relation), 0.0, np.random.default_rng(1)
        nothing = Moments(np.zeros((d, d)), np.zeros(d), 0.0, 0.0)
        for _ in range(1500):
            x, other = unit_vectors(rng, d), unit_vectors(rng, d)
            s, t = (rng.choice([-1.0, 1.0, rng.uniform(-1, 1)]) for _ in range(2))
            first = of_one(noise, x, s)
            second = nothing
            if relation is Relation.REPLACE_ONE and rng.uniform() < 0.9:
                second = of_one(noise, other, t)
            largest = max(largest, self.distance(noise, first, second))
        assert largest <= claim * (1 + 1e-12)
        for x, other, s, t in self.worst(noise):
            second = of_one(noise, other, t) if relation is Relation.REPLACE_ONE else nothing
            largest = max(largest, self.distance(noise, of_one(noise, x, s), second))
        assert claim * 0.99 <= largest <= claim * (1 + 1e-12)

    @staticmethod
    def distance(noise, first: Moments, second: Moments) -> float:
        if isinstance(noise, GaussianMoments):
            between = noise._coordinates(first, math.sqrt(2)) - noise._coordinates(second, math.sqrt(2))
            return float(np.linalg.norm(between))
        return float(np.abs(np.linalg.eigvalsh(noise._whole(first) - noise._whole(second))).sum())

    @staticmethod
    def worst(noise):
        """Rows at the cosine that the docstring finds, with opposite signs."""
        for cosine in (0.0, noise.ratio**2 / 2, noise.ratio**2):
            x, other = np.eye(3)[0], np.array([cosine, math.sqrt(1 - cosine**2), 0.0])
            yield x, other, 1.0, -1.0

    @pytest.mark.parametrize("kind", [GaussianMoments, WishartMoments])
    def test_a_unit_of_several_rows_counts_as_often(self, kind):
        one, five = (kind(task(2, 1.0, 1e-6, unit=u)) for u in (Unit(), Unit("person", 5)))
        assert five.sensitivity == pytest.approx(5 * one.sensitivity)
        assert five.spread == pytest.approx(5 * one.spread)

    def test_rows_that_do_not_count_are_not_counted(self):
        x = np.array([[0.5, 0.0], [np.nan, np.inf], [0.1, 0.2]])
        found = Moments.of(rows_of(x, [1.0, 1.0, np.nan], intercept=True), lambda y: y)
        assert (found.count, found.square) == (1.0, 1.0)


class TestNoise:
    @pytest.mark.parametrize("width", [2, 3, 5, 20, 50])
    def test_wishart_has_less_noise_than_other_pure_mechanisms(self, width):
        """The variance of Eθ − e for ‖θ‖ = 1: half that of the diagonal of E, and that of e."""
        noise = WishartMoments(task(width))
        ours = noise.spread**2 / 2 + noise.vector_spread**2
        ratio = np.linspace(0.1, 8.0, 200)
        radius = math.sqrt(width * (width + 3) / 2 + 1) * np.sqrt(1 + ratio**2)
        laplace = math.sqrt(2) * ((width + 1) / 2 + ratio * math.sqrt(width))
        assert ours < (radius**2 * (1 / 2 + 1 / ratio**2)).min()
        assert ours < (laplace**2 * (1 + 1 / ratio**2)).min()

    @pytest.mark.parametrize("extended", [False, True])
    @pytest.mark.parametrize("kind", [GaussianMoments, WishartMoments])
    def test_simulated_noise_is_that_of_a_release(self, kind, extended):
        """The same second moments, entry by entry, as stated and as released."""
        noise = kind(task(3, 1.0, 1e-6), extended)
        zero = Moments(np.zeros((3, 3)), np.zeros(3), 0.0, 0.0)
        source = Source(1)
        released = [noise(zero, source) for _ in range(4000)]
        many = noise.simulate(40_000, source)
        for matrices, vectors in (
            (np.array([r.matrix for r in released]), np.array([r.vector for r in released])),
            (many.matrix, many.vector),
        ):
            expected = np.full((3, 3), noise.spread / math.sqrt(2))
            np.fill_diagonal(expected, noise.spread)
            assert matrices.std(axis=0) == pytest.approx(expected, rel=0.12)
            assert vectors.std(axis=0) == pytest.approx(np.full(3, noise.vector_spread), rel=0.12)
            assert (matrices == matrices.swapaxes(1, 2)).all()
        if extended:
            for name in ("square", "count"):
                spread = np.std([getattr(r, name) for r in released])
                assert np.std(getattr(many, name)) == pytest.approx(spread, rel=0.12)

    @pytest.mark.parametrize(
        ("delta", "cdf"),
        [
            (1e-6, lambda points, noise, factor: norm.cdf(points / (noise.spread * factor))),
            (0.0, lambda points, noise, part: difference_cdf(points / (wishart_scale(noise) * part), 1.5)),
        ],
        ids=["gaussian", "wishart"],
    )
    def test_scale(self, delta, cdf):
        """A diagonal entry: not two thirds of the noise, nor one and a half times as much."""
        place = NoisyStatistics(task(1, 1.0, delta))
        rows, source = rows_of(np.zeros((0, 1)), np.zeros(0)), Source(3)
        samples = []
        for _ in range(6000):
            place.solve(rows, source)
            samples.append(place.noisy.matrix[0, 0])
        points = np.sort(samples)
        allowed = math.sqrt(math.log(2 / FALSE_ALARM) / (2 * points.size))
        steps = np.arange(1, points.size + 1) / points.size
        distance = {f: np.abs(cdf(points, place.release, f) - steps).max() for f in (1.0, 2 / 3, 3 / 2)}
        assert distance[1.0] <= allowed < min(distance[2 / 3], distance[3 / 2])


def difference_cdf(points: np.ndarray, shape: float) -> np.ndarray:
    """P(G − G′ ≤ point) for independent Gamma(shape) variables, by quadrature over G′, for the upper half."""
    nodes, weights = roots_genlaguerre(64, shape - 1)
    upper = gammainc(shape, np.abs(points)[:, None] + nodes) @ (weights / weights.sum())
    return np.where(points < 0, 1 - upper, upper)


class TestAudit:
    """Worst-case neighbours: a row at the bound more, and a row whose target is flipped."""

    @staticmethod
    def scores(place: NoisyStatistics, rows: Any, direction: np.ndarray, runs: int, seed: int) -> np.ndarray:
        """What is released, along the direction in which the neighbours differ."""
        source, found, exact = Source(seed), [], Moments.of(rows, lambda y: y)
        for _ in range(runs):
            noisy = place.release(exact, source)
            whole = [noisy.matrix[0, 0], noisy.vector[0], 0.0 if noisy.square is None else noisy.square]
            found.append(np.dot(whole, direction))
        return np.array(found)

    def proven(self, place, with_it, without, direction, runs, delta, seed) -> float:
        inside = self.scores(place, with_it, direction, runs, seed)
        outside = self.scores(place, without, direction, runs, seed + 1)
        options: dict[str, float] = {"delta": delta, "confidence": 0.99}
        if not delta:
            guesses = audit.choose_threshold(inside, outside, rule=audit.Split(seed=0), **options)
            return audit.clopper_pearson(**guesses.counts(), **options).epsilon
        exact = (Moments.of(rows, lambda y: y) for rows in (with_it, without))
        middle = np.mean([np.dot([m.matrix[0, 0], m.vector[0], 0.0], direction) for m in exact])
        guesses = audit.choose_threshold(inside, outside, rule=audit.Fixed(float(middle)), **options)
        return audit.gaussian(**guesses.counts(), **options).epsilon

    PAIRS = (
        ("outlier", Relation.ADD_REMOVE, ([[1.0]], [1.0]), ([[0.0]], [0.0])),
        ("flipped", Relation.REPLACE_ONE, ([[1.0]], [1.0]), ([[1.0]], [-1.0])),
    )

    @pytest.mark.parametrize(("name", "relation", "one", "other"), PAIRS, ids=["outlier", "flipped"])
    def test_gaussian(self, monkeypatch, name, relation, one, other):
        delta = 1e-5
        place = NoisyStatistics(task(1, 4.0, delta, relation=relation))
        direction = np.array([1.0, 1.0, 0.0]) if name == "outlier" else np.array([0.0, 1.0, 0.0])
        pair = rows_of(*one), rows_of(*other)
        claim = accounting.epsilon(place.event, delta)
        sound = self.proven(place, *pair, direction, 2000, delta, 1)
        assert 0.5 * claim < sound <= claim if name == "outlier" else sound <= claim
        original = GaussianMoments.of_a_row
        monkeypatch.setattr(GaussianMoments, "of_a_row", lambda self, r: original(self, r) * 2 / 3)
        twin = NoisyStatistics(task(1, 4.0, delta, relation=relation))
        assert twin.event == place.event
        assert self.proven(twin, *pair, direction, 2000, delta, 3) > claim

    @pytest.mark.parametrize("name", ["outlier", "flipped"])
    def test_wishart(self, monkeypatch, name):
        """One row more at the bound, or one whose target is flipped.

        The score adds up likelihood ratios along the eigenvectors of the difference, where the noise is a
        difference of two Gamma(3/2) variables, of density ∝ |a|·K₁(|a|). A flipped target moves two
        directions by half as much each, which takes more runs to see: that twin has half of the noise.
        """
        relation = Relation.ADD_REMOVE if name == "outlier" else Relation.REPLACE_ONE
        z = np.array([1.0, WishartMoments.ratio])
        if name == "outlier":
            second, axes = ([[0.0]], [0.0]), [z / np.linalg.norm(z)]
            centres = [(z @ z, 0.0)]
        else:
            second, axes = ([[1.0]], [-1.0]), [np.array([1.0, sign]) / math.sqrt(2) for sign in (1, -1)]
            centres = [((axis @ z) ** 2, (axis @ (z * [1, -1])) ** 2) for axis in axes]
        pair = [Moments.of(rows_of(*data), lambda y: y) for data in (([[1.0]], [1.0]), second)]

        def log_density(points: np.ndarray, place: Statistics) -> np.ndarray:
            a = np.maximum(np.abs(points) / wishart_scale(place.release), 1e-9)
            return np.log(a * k1(a))

        def scores(place: Statistics, exact: Moments, seed: int) -> np.ndarray:
            source = Source(seed)
            wholes = np.array([place.release._whole(place.release(exact, source)) for _ in range(8000)])
            score = np.zeros(len(wholes))
            for axis, (first, other) in zip(axes, centres, strict=True):
                along = np.einsum("nij,i,j->n", wholes, axis, axis)
                score += log_density(along - first, place) - log_density(along - other, place)
            return score

        def proven(place: Statistics, seed: int) -> float:
            found = [scores(place, exact, seed + k) for k, exact in enumerate(pair)]
            options = {"delta": 0.0, "confidence": 0.99}
            guesses = audit.choose_threshold(*found, rule=audit.Split(seed=0), **options)
            return audit.clopper_pearson(**guesses.counts(), **options).epsilon

        place = NoisyStatistics(task(1, 2.0, relation=relation))
        claim = accounting.epsilon(place.event, 0.0)
        assert 0.3 * claim < proven(place, 1) <= claim
        original = WishartMoments.of_a_row
        share = 2 / 3 if name == "outlier" else 1 / 2
        monkeypatch.setattr(WishartMoments, "of_a_row", lambda self, r: original(self, r) * share)
        twin = NoisyStatistics(task(1, 2.0, relation=relation))
        assert twin.event == place.event
        assert proven(twin, 3) > claim


class TestSolution:
    @pytest.mark.parametrize("penalty", [None, 3.0])
    @pytest.mark.parametrize("intercept", [False, True])
    @pytest.mark.parametrize("delta", [0.0, 1e-6])
    def test_large_epsilon_is_least_squares(self, delta, intercept, penalty):
        x, y = linear_data()
        rows = rows_of(x, y, intercept)
        inside = np.vstack([block for block, _ in rows.blocks()])
        ridge = (penalty or 0.0) * np.eye(rows.width)
        if intercept:
            ridge[-1, -1] = 0.0
        exact = np.linalg.solve(inside.T @ inside + ridge, inside.T @ y)
        place = NoisyStatistics(task(rows.width, 1e6, delta, intercept=intercept, penalty=penalty))
        assert place.solve(rows, Source(1))[:, 0] == pytest.approx(exact, abs=1e-4)

    def test_of_an_exact_release_is_exact(self):
        x, y = linear_data()
        exact = Moments(x.T @ x, x.T @ y)
        found, matrix = solve(exact, 0.0, 0.0, intercept=False)
        assert found == pytest.approx(np.linalg.lstsq(x, y, rcond=None)[0], abs=1e-9)
        assert matrix == pytest.approx(exact.matrix)

    def test_repetitions_are_solved_as_one_by_one(self):
        rng = np.random.default_rng(1)
        matrices, vectors = rng.normal(size=(5, 4, 4)), rng.normal(size=(5, 4))
        matrices = matrices + matrices.swapaxes(1, 2)
        for intercept in (False, True):
            together = solve(Moments(matrices, vectors), 0.3, 0.1, intercept)
            for i in range(5):
                alone = solve(Moments(matrices[i], vectors[i]), 0.3, 0.1, intercept)
                assert together[0][i] == pytest.approx(alone[0])
                assert together[1][i] == pytest.approx(alone[1])

    @pytest.mark.parametrize("delta", [0.0, 1e-6])
    @pytest.mark.parametrize(
        "x", [np.zeros((0, 4)), np.zeros((7, 4)), np.eye(4)[:2], np.full((3, 4), np.nan)],
        ids=["none", "zeros", "fewer than features", "not finite"],
    )  # fmt: skip
    def test_odd_rows(self, delta, x):
        for intercept in (False, True):
            rows = rows_of(x, np.ones(len(x)), intercept)
            problem = task(rows.width, 1.0, delta, intercept=intercept)
            place = NoisyStatistics(problem, Statistics(residuals=True))
            weights = place.solve(rows, Source(1))
            lower, upper = place.intervals()
            assert weights.shape == (rows.width, 1)
            assert np.isfinite(weights).all()
            assert np.isfinite([lower, upper]).all()
            assert (lower < upper).all()
            assert np.abs(weights).max() < 50

    def test_order_of_rows_does_not_matter(self):
        x, y = linear_data()
        place = NoisyStatistics(task(3))
        first, second = (place.solve(rows_of(x[::k], y[::k]), Source(1)) for k in (1, -1))
        assert first == pytest.approx(second, abs=1e-8)

    def test_housing(self):
        file = DATA / "california-housing" / "cal_housing.data.xz"
        if not file.exists():
            pytest.skip("the California housing data are not there")
        raw = np.loadtxt(file, delimiter=",", skiprows=1)
        x, y = raw[:, :-1], raw[:, -1]
        space = Space.of(x.min(axis=0), x.max(axis=0), None, intercept=True)
        rows = ScaledRows(x, (y / 255_000 - 1)[:, None], space)
        inside = np.vstack([block for block, _ in rows.blocks()])
        for delta in (0.0, 1e-6):
            place = NoisyStatistics(Problem(Squared(), 9, 1.0, delta))
            errors = inside @ place.solve(rows, Source(1))[:, 0] - (y / 255_000 - 1)
            assert 1 - np.mean(errors**2) / np.var(y / 255_000) > 0.5


class TestIntervals:
    @pytest.mark.parametrize("delta", [0.0, 1e-6])
    def test_cover_the_exact_weights_under_privacy_noise(self, delta):
        x, y = linear_data(20_000)
        rows = rows_of(x, y, intercept=True)
        inside = np.vstack([block for block, _ in rows.blocks()])
        exact = np.linalg.lstsq(inside, y, rcond=None)[0]
        place = NoisyStatistics(task(4, 1.0, delta, intercept=True))
        covered = []
        for seed in range(60):
            place.solve(rows, Source(seed))
            lower, upper = place.intervals(0.9)
            covered.append((lower <= exact) & (exact <= upper))
        assert 0.82 <= np.mean(covered) <= 0.96

    def test_cover_the_truth_with_residuals(self):
        place = NoisyStatistics(task(3, 20.0), Statistics(residuals=True))
        truth = np.array([0.8, 0.2, -0.4])
        covered, narrow = [], []
        for seed in range(60):
            x, y = linear_data(3000, seed=seed)
            rows = rows_of(x, y - 0.1)
            place.solve(rows, Source(seed))
            lower, upper = place.intervals(0.9)
            covered.append((lower <= truth) & (truth <= upper))
            plain = NoisyStatistics(task(3, 20.0))
            plain.solve(rows, Source(seed))
            low, high = plain.intervals(0.9)
            narrow.append((low <= truth) & (truth <= high))
        assert 0.82 <= np.mean(covered) <= 0.97
        assert np.mean(narrow) < np.mean(covered)

    def test_same_each_time_and_wider_for_more_confidence(self):
        x, y = linear_data()
        place = NoisyStatistics(task(3))
        place.solve(rows_of(x, y), Source(1))
        first, again, wide = place.intervals(0.9), place.intervals(0.9), place.intervals(0.99)
        assert (first[0] == again[0]).all()
        assert (wide[0] < first[0]).all()
        assert (wide[1] > first[1]).all()

    def test_before_a_release(self):
        with pytest.raises(TacitError, match="no release"):
            NoisyStatistics(task(3)).intervals()


class TestPublic:
    def test_events(self):
        assert NoisyStatistics(task(3, 0.7)).event == events.Pure(0.7)
        place = NoisyStatistics(task(3, 1.0, 1e-6))
        assert accounting.epsilon(place.event, 1e-6) == pytest.approx(1.0)
        assert (place.kind, NoisyStatistics(task(3)).kind) == ("exact", "float64")
        assert NoisyStatistics(task(3, 1.0, 1e-6), Statistics(mechanism="wishart")).event == events.Pure(1.0)

    @pytest.mark.parametrize(
        "options",
        [{"residual": True}, {"residuals": 1}, {"mechanism": "laplacian"}, {"mechanism": "gaussian"}],
    )
    def test_options_are_checked(self, options):
        with pytest.raises((InvalidValue, TypeError)):
            NoisyStatistics(task(3), Statistics(**options))

    def test_only_least_squares(self):
        with pytest.raises(InvalidValue, match="logistic"):
            NoisyStatistics(Problem(Logistic(), 3, 1.0))
