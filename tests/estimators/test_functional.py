"""The functional mechanism: sensitivities, noise, audits, repairs, and the polynomial itself."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import laplace

from tacit import accounting, audit, events
from tacit.errors import InvalidValue
from tacit.estimators.linear.losses import HuberHinge, Logistic, Loss, Squared
from tacit.estimators.linear.noise.functional import (
    Functional,
    LaplaceMoments,
    NoisyPolynomial,
    logistic_curvature,
)
from tacit.estimators.linear.noise.place import Problem
from tacit.estimators.linear.noise.statistics import Moments
from tacit.estimators.linear.rows import ScaledRows, Space
from tacit.randomness import Source
from tacit.relations import Relation, Unit

FALSE_ALARM = 1e-6
PAPER = {"mechanism": "laplace"}


def rows_of(x: Any, y: Any, intercept: bool = False) -> ScaledRows:
    x = np.asarray(x, dtype=float)
    width = x.shape[1]
    space = Space.of(np.full(width, -1.0), np.full(width, 1.0), 1.0, intercept=intercept)
    return ScaledRows(x, np.asarray(y, dtype=float)[:, None], space)


def task(width: int, epsilon: float = 1.0, delta: float = 0.0, loss: Loss | None = None, **more: Any):
    return Problem(loss or Logistic(), width, epsilon, delta, **{"intercept": False, **more})


def labelled(n: int = 4000, d: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, d)) / math.sqrt(d)
    return x, (rng.uniform(size=n) < 1 / (1 + np.exp(-4 * x @ np.linspace(1, -0.5, d)))).astype(float)


class TestSensitivity:
    """ℓ1 of the triangle of xxᵀ and ρ·xs."""

    @staticmethod
    def vector(noise: LaplaceMoments, x: np.ndarray, s: float) -> np.ndarray:
        return noise._coordinates(Moments(np.outer(x, x), x * s), 1.0)

    @staticmethod
    def rows(rng: np.random.Generator, d: int) -> np.ndarray:
        angles = rng.choice([rng.uniform(0, 2 * np.pi, d), rng.choice([1, 5, 9, 13], d) * np.pi / 8])
        pair = np.array([np.cos(angles), np.sin(angles)])
        if rng.uniform() < 0.3:
            pair = rng.normal(size=(2, d))
        return pair / np.linalg.norm(pair, axis=1, keepdims=True)

    @pytest.mark.parametrize("d", [1, 2, 5, 14])
    def test_adding_a_row(self, d):
        noise = LaplaceMoments(task(d))
        claim = noise.of_a_row(Relation.ADD_REMOVE)
        rng = np.random.default_rng(1)
        found = [np.abs(self.vector(noise, x, 1.0)).sum() for _ in range(300) for x in self.rows(rng, d)]
        found.append(np.abs(self.vector(noise, np.full(d, d**-0.5), -1.0)).sum())
        assert max(found) <= claim * (1 + 1e-12)
        assert max(found) >= 0.99 * claim

    @pytest.mark.parametrize("d", [1, 2, 4, 8, 16])
    def test_replacing_a_row(self, d):
        noise = LaplaceMoments(task(d, relation=Relation.REPLACE_ONE))
        claim = noise.of_a_row(Relation.REPLACE_ONE)
        rng = np.random.default_rng(2)
        found = []
        for _ in range(1000):
            x, other = self.rows(rng, d)
            other = rng.choice([1.0, 0.8, 0.5]) * other
            for sign in (1.0, -1.0):
                found.append(np.abs(self.vector(noise, x, 1.0) - self.vector(noise, other, sign)).sum())
        halves = np.arange(d) % 2
        first = np.where(halves, math.cos(np.pi / 8), math.cos(5 * np.pi / 8)) / math.sqrt(max(d, 2) / 2)
        second = np.where(halves, math.sin(np.pi / 8), math.sin(5 * np.pi / 8)) / math.sqrt(max(d, 2) / 2)
        for blend in np.linspace(-1, 1, 201):
            other = blend * first + math.sqrt(1 - blend**2) * second
            other = other / max(1.0, np.linalg.norm(other))
            for sign in (1.0, -1.0):
                moved = self.vector(noise, first, 1.0) - self.vector(noise, other, sign)
                found.append(np.abs(moved).sum())
        assert max(found) <= claim * (1 + 1e-12)
        assert max(found) >= (0.85 if d > 1 else 0.6) * claim
        assert claim < 2 * noise.of_a_row(Relation.ADD_REMOVE)

    def test_units(self):
        one, five = (LaplaceMoments(task(2, unit=u)) for u in (Unit(), Unit("person", 5)))
        assert five.sensitivity == pytest.approx(5 * one.sensitivity)

    def test_far_below_the_paper(self):
        """Its 2(1 + d)², for least squares, is in the coefficients ½xxᵀ (both triangles), xy and y²."""
        noise = LaplaceMoments(task(14, loss=Squared()))
        assert noise.of_a_row(Relation.REPLACE_ONE) < 2 * (1 + math.sqrt(14)) ** 2 / 1.5


class TestNoise:
    def test_scale(self):
        place = NoisyPolynomial(task(1), Functional(**PAPER))
        rows, source, samples = rows_of(np.zeros((0, 1)), np.zeros(0)), Source(3), []
        for _ in range(4000):
            place.solve(rows, source)
            samples.append(place.noisy.matrix[0, 0])
        points = np.sort(samples)
        allowed = math.sqrt(math.log(2 / FALSE_ALARM) / (2 * points.size))
        steps = np.arange(1, points.size + 1) / points.size
        scale = place.release.sensitivity
        distance = {f: np.abs(laplace.cdf(points / (scale * f)) - steps).max() for f in (1.0, 2 / 3, 3 / 2)}
        assert distance[1.0] <= allowed < min(distance[2 / 3], distance[3 / 2])

    def test_simulation(self):
        noise = LaplaceMoments(task(3))
        source, zero = Source(1), Moments(np.zeros((3, 3)), np.zeros(3))
        released = np.array([noise(zero, source).vector for _ in range(3000)])
        many = noise.simulate(30_000, source)
        assert released.std() == pytest.approx(noise.vector_spread, rel=0.1)
        assert many.vector.std() == pytest.approx(noise.vector_spread, rel=0.1)
        assert many.matrix[:, 0, 1].std() == pytest.approx(noise.spread / math.sqrt(2), rel=0.1)


class TestAudit:
    """An outlier at the bound, and a flipped label; each score is a likelihood ratio."""

    def proven(self, place: Any, one: Any, other: Any, score: Any, runs: int, seed: int) -> float:
        found = []
        for k, rows in enumerate((one, other)):
            source, exact = Source(seed + k), Moments.of(rows, place._signs)
            found.append(np.array([score(place, place.release(exact, source)) for _ in range(runs)]))
        options = {"delta": 0.0, "confidence": 0.99}
        guesses = audit.choose_threshold(*found, rule=audit.Split(seed=1), **options)
        return audit.clopper_pearson(**guesses.counts(), **options).epsilon

    @pytest.mark.parametrize("name", ["outlier", "flipped"])
    def test_laplace(self, monkeypatch, name):
        relation = Relation.ADD_REMOVE if name == "outlier" else Relation.REPLACE_ONE
        one, other = rows_of([[1.0]], [1.0]), rows_of([[0.0 if name == "outlier" else 1.0]], [0.0])

        def score(place: NoisyPolynomial, noisy: Moments) -> float:
            ratio, scale = place.release.ratio, place.release.sensitivity
            matrix, vector = noisy.matrix[0, 0], noisy.vector[0] * ratio
            low = -ratio if name == "flipped" else 0.0
            along = abs(vector - low) - abs(vector - ratio)
            return float(along if name == "flipped" else along + abs(matrix) - abs(matrix - 1)) / scale

        place = NoisyPolynomial(task(1, 2.0, relation=relation), Functional(**PAPER))
        claim = accounting.epsilon(place.event, 0.0)
        sound = self.proven(place, one, other, score, 4000, 1)
        assert 0.4 * claim < sound <= claim
        original = LaplaceMoments.of_a_row
        whole = 2 * LaplaceMoments.ratio / place.release.of_a_row(relation)
        share = 2 / 3 if name == "outlier" else 2 / 3 * whole
        monkeypatch.setattr(LaplaceMoments, "of_a_row", lambda self, r: original(self, r) * share)
        twin = NoisyPolynomial(task(1, 2.0, relation=relation), Functional(**PAPER))
        assert twin.event == place.event
        assert self.proven(twin, one, other, score, 4000, 3) > claim


class TestWishartDensity:
    def test_ratio_is_bounded_and_reached(self):
        """f(E + P)/f(E) by Monte Carlo over W, on one sample for both, for 2 × 2 matrices."""
        rng = np.random.default_rng(2)
        roots = rng.normal(size=(200_000, 2, 3)) / math.sqrt(4)  # density ∝ e^{−2·tr W}, r = 1
        w = roots @ roots.swapaxes(1, 2)

        def log_density(e: np.ndarray) -> float:
            a, b, c = w[:, 0, 0] + e[0, 0], w[:, 0, 1] + e[0, 1], w[:, 1, 1] + e[1, 1]
            inside = (a * c >= b * b) & (a + c >= 0)
            return math.log(inside.mean()) - float(np.trace(e))

        largest = 0.0
        for _ in range(60):
            e = rng.normal(size=(2, 2)) * 0.6
            e = (e + e.T) / 2
            z = rng.normal(size=2)
            p = np.outer(z, z) / (z @ z)
            loss = log_density(e + p) - log_density(e)
            assert abs(loss) <= 1 + 0.05
            largest = max(largest, abs(loss))
        assert largest > 0.8
        assert log_density(np.eye(2) * 9) - log_density(np.eye(2) * 8) == pytest.approx(-2.0)


class TestSolution:
    @pytest.mark.parametrize("regularisation", [True, False])
    @pytest.mark.parametrize("mechanism", ["laplace", "wishart", "gaussian"])
    @pytest.mark.parametrize("loss", [Logistic(), Squared()])
    @pytest.mark.parametrize("penalty", [None, 2.0])
    def test_large_epsilon_is_the_minimum_of_the_polynomial(self, loss, mechanism, regularisation, penalty):
        x, y = labelled()
        rows = rows_of(x, y, intercept=True)
        options = {"mechanism": mechanism, "regularisation": regularisation}
        delta = 1e-6 if mechanism == "gaussian" else 0.0
        problem = task(4, 1e6, delta, loss, intercept=True, penalty=penalty)
        place = NoisyPolynomial(problem, Functional(**options))
        inside = np.vstack([block for block, _ in rows.blocks()])
        ridge = np.diag([penalty or 0.0] * 3 + [0.0])
        if isinstance(loss, Logistic):
            q = logistic_curvature()
            exact = np.linalg.solve(2 * q * inside.T @ inside + ridge, inside.T @ (y - 0.5))
        else:
            exact = np.linalg.solve(inside.T @ inside + ridge, inside.T @ y)
        assert place.solve(rows, Source(1))[:, 0] == pytest.approx(exact, abs=2e-4)

    def test_the_polynomial_fits_better_than_taylor(self):
        scores = np.linspace(-4, 4, 801)
        even = np.log(2 * np.cosh(scores / 2))
        q = logistic_curvature()
        fits = [np.std(even - a * scores**2) for a in (q, 1 / 8, 1.1 * q, 0.9 * q)]
        assert fits[0] == min(fits)

    @pytest.mark.parametrize("options", [{}, PAPER], ids=["wishart", "laplace"])
    @pytest.mark.parametrize("delta", [0.0, 1e-6])
    def test_predicts(self, delta, options):
        x, y = labelled(20_000)
        place = NoisyPolynomial(task(3, 1.0, delta), Functional(**options))
        weights = place.solve(rows_of(x, y), Source(1))[:, 0]
        best = np.linspace(1, -0.5, 3)
        assert weights @ best / np.linalg.norm(weights) / np.linalg.norm(best) > 0.97

    @pytest.mark.parametrize("options", [{}, PAPER, {"regularisation": False}])
    @pytest.mark.parametrize(
        "x", [np.zeros((0, 4)), np.zeros((7, 4)), np.eye(4)[:2], np.full((3, 4), np.nan)],
        ids=["none", "zeros", "fewer than features", "not finite"],
    )  # fmt: skip
    def test_odd_rows(self, x, options):
        for intercept in (False, True):
            rows = rows_of(x, np.ones(len(x)), intercept)
            weights = NoisyPolynomial(task(rows.width, intercept=intercept), Functional(**options)).solve(
                rows, Source(2)
            )
            assert weights.shape == (rows.width, 1)
            assert np.isfinite(weights).all()

    def test_one_class_only(self):
        x, y = labelled()
        place = NoisyPolynomial(task(4, intercept=True))
        weights = place.solve(rows_of(x, np.zeros_like(y), intercept=True), Source(1))
        assert weights[-1, 0] < 0

    def test_trimming_drops_what_is_below_the_noise(self):
        """A direction without data has no weight; with it, one of its sign."""
        x = np.zeros((3000, 2))
        x[:, 0] = np.linspace(-1, 1, 3000)
        place = NoisyPolynomial(task(2, 1.0, 1e-6, Squared()), Functional(regularisation=False))
        weights = place.solve(rows_of(x, x[:, 0]), Source(1))[:, 0]
        assert weights[0] == pytest.approx(1, abs=0.05)
        assert abs(weights[1]) < 0.05


class TestPublic:
    def test_events(self):
        assert NoisyPolynomial(task(3, 0.7)).event == events.Pure(0.7)
        assert NoisyPolynomial(task(3, 0.5), Functional(**PAPER)).event == events.Laplace(2.0)
        assert accounting.epsilon(NoisyPolynomial(task(3, 1.0, 1e-6)).event, 1e-6) == pytest.approx(1.0)
        assert NoisyPolynomial(task(3), Functional(**PAPER)).kind == "exact"

    @pytest.mark.parametrize(
        "options",
        [
            {"regularization": True},
            {"regularisation": "yes"},
            {"mechanism": "norm"},
            {"mechanism": "gaussian"},
        ],
    )
    def test_options_are_checked(self, options):
        with pytest.raises((InvalidValue, TypeError)):
            NoisyPolynomial(task(3), Functional(**options))

    def test_only_these_losses(self):
        with pytest.raises(InvalidValue, match="huberhinge"):
            NoisyPolynomial(task(3, loss=HuberHinge()))
