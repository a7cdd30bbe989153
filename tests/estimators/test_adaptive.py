"""Least squares that buy centre and scale first: sensitivities, noise, audits, and what the fit is worth."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tacit import accounting, audit
from tacit.estimators import LinearRegression, Ridge
from tacit.estimators.linear.losses import Squared
from tacit.estimators.linear.noise import adaptive, centring
from tacit.estimators.linear.noise.adaptive import AdaptiveLeastSquares
from tacit.estimators.linear.noise.centring import Centre, CentredRows, Scale, ShortenedRows
from tacit.estimators.linear.noise.place import Problem
from tacit.estimators.linear.rows import ScaledRows, Space
from tacit.randomness import Source
from tacit.relations import Relation, Unit

D = 3
SPACE = Space.of(np.full(D, -1.0), np.full(D, 1.0), None, intercept=True)
AT = Centre(100.0, 100.0, 0.2, np.array([0.3, -0.2, 0.1]), 0.2, 0.25)
"""A centre as it may be released."""
CLIP_NORM = 0.1


def problem(epsilon: float = 1.0, delta: float = 1e-6, **more: Any) -> Problem:
    return Problem(Squared(), D + 1, epsilon, delta, **more)


def rows_of(x: Any, y: Any, weights: Any = None) -> ScaledRows:
    x, y = np.atleast_2d(np.asarray(x, dtype=float)), np.atleast_1d(np.asarray(y, dtype=float))
    return ScaledRows(x, y[:, None], SPACE, None, weights)


def drawn(rng: np.random.Generator) -> tuple[np.ndarray, float]:
    """A row and its target, often at the bounds."""
    corner, inner = rng.choice([-1.0, 1.0], D), rng.uniform(-1, 1, D)
    return (corner if rng.uniform() < 0.5 else inner), float(rng.choice([-1.0, 1.0, rng.uniform(-1, 1)]))


def centre_part(place: AdaptiveLeastSquares, rows: ScaledRows) -> np.ndarray:
    weights = np.concatenate([place._sums[:2], np.full(D, place._sums[2]), place._sums[3:]])
    return Centre.sums(rows, D) * weights


def scale_part(place: AdaptiveLeastSquares, rows: ScaledRows) -> np.ndarray:
    return Scale.counts(CentredRows(rows, AT)).ravel()


def step_part(place: AdaptiveLeastSquares, rows: ScaledRows) -> np.ndarray:
    weights = np.array([0.7, -1.5, 0.2, 0.4])
    return adaptive._clipped_gradient(CentredRows(rows, AT), weights, CLIP_NORM)


PARTS = {
    "centre": (centre_part, lambda place: place._centre.sensitivity),
    "scale": (scale_part, lambda place: place._scale.sensitivity),
    "step": (step_part, lambda place: place.problem.sensitivity(place._watched)),
}


class TestSensitivity:
    @pytest.mark.parametrize("relation", list(Relation))
    @pytest.mark.parametrize("part", PARTS)
    def test_random_search_comes_near_and_never_beyond(self, part: str, relation: Relation) -> None:
        place = AdaptiveLeastSquares(problem(relation=relation))
        released, claimed = PARTS[part]
        rng, largest = np.random.default_rng(1), 0.0
        for _ in range(400):
            first = released(place, rows_of(*drawn(rng)))
            other = np.zeros_like(first)
            if relation is Relation.REPLACE_ONE:
                other = released(place, rows_of(*drawn(rng)))
            largest = max(largest, float(np.linalg.norm(first - other)))
        claim = claimed(place)
        assert largest <= claim
        assert largest >= (0.9 if relation is Relation.ADD_REMOVE else 0.6) * claim

    def test_closed_forms(self) -> None:
        place = AdaptiveLeastSquares(problem())
        assert place._centre.sensitivity == pytest.approx(math.sqrt(0.25 + 1 + 0.49 + 0.09), rel=1e-5)
        assert place._scale.sensitivity == pytest.approx(math.sqrt(2))
        assert place._watched == pytest.approx(math.sqrt(1.09), rel=1e-5)
        pure = AdaptiveLeastSquares(problem(delta=0.0))
        assert pure._scale.sensitivity == pytest.approx(2.0)

    def test_what_is_public_is_not_bought(self) -> None:
        known = AdaptiveLeastSquares(problem(population=1000))
        without = AdaptiveLeastSquares(replace(problem(population=1000), intercept=False))
        assert known._centre.sensitivity == pytest.approx(math.sqrt(1 + 0.49 + 0.09), rel=1e-5)
        assert without._centre.sensitivity == pytest.approx(0.3, rel=1e-5)
        assert known.event == AdaptiveLeastSquares(problem()).event

    def test_a_unit_counts_as_often_as_it_has_rows(self) -> None:
        one, five = (AdaptiveLeastSquares(problem(unit=u)) for u in (Unit(), Unit("person", 5)))
        for name in ("_centre", "_scale"):
            assert getattr(five, name).sensitivity == pytest.approx(5 * getattr(one, name).sensitivity)
        assert five._deviation() == pytest.approx(5 * one._deviation())

    @pytest.mark.parametrize("part", PARTS)
    def test_a_weighted_row_moves_less(self, part: str) -> None:
        place, (released, _) = AdaptiveLeastSquares(problem()), PARTS[part]
        whole, half = (released(place, rows_of(np.ones(D), 1.0, np.array([w]))) for w in (1.0, 0.5))
        assert half == pytest.approx(whole / 2)

    def test_rows_for_moments_are_within_the_bounds(self) -> None:
        """Those that are shortened keep the direction of (x, s): their relation is the same."""
        rng = np.random.default_rng(2)
        rows = rows_of(rng.uniform(-1, 1, (200, D)), rng.uniform(-1, 1, 200))
        centred = CentredRows(rows, AT)
        weighted = ShortenedRows(centred, 0.3, 0.2)
        x, s, _ = next(weighted.weighted())
        z, residuals, _, _ = next(centred.blocks())
        assert np.linalg.norm(x, axis=1).max() <= 1 + 1e-15
        assert np.abs(s).max() <= 1
        factor = x[:, -1] * weighted.radius / weighted.constant
        assert factor.min() < 0.5 < factor.max() <= 1 + 1e-15
        assert x[:, :D] == pytest.approx(factor[:, None] * z[:, :D] / (0.3 * weighted.radius))
        assert s[:, 0] == pytest.approx(factor * residuals / 0.2)

    @pytest.mark.parametrize("row", [np.full(D, np.nan), np.full(D, np.inf)])
    def test_a_row_that_does_not_count_moves_nothing(self, row: np.ndarray) -> None:
        place = AdaptiveLeastSquares(problem())
        for released, _ in PARTS.values():
            assert not released(place, rows_of(row, 1.0)).any()
            assert not released(place, rows_of(np.ones(D), np.nan)).any()


class TestEvents:
    @pytest.mark.parametrize("epsilon", [0.05, 1.0, 10.0])
    @pytest.mark.parametrize("delta", [0.0, 1e-6])
    def test_the_parts_add_up(self, epsilon: float, delta: float) -> None:
        event = AdaptiveLeastSquares(problem(epsilon, delta)).event
        assert epsilon * 0.999 < accounting.epsilon(event, delta) <= epsilon

    def test_an_overspent_split_costs_more(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The broken twin: shares of σ instead of 1/σ²."""
        place = AdaptiveLeastSquares(problem())
        whole = accounting.epsilon(place.event, 1e-6)
        shares = {True: (0.12**0.5, 0.06**0.5), False: (0.15, 0.1)}
        monkeypatch.setattr(adaptive, "SHARES", shares)
        spent = AdaptiveLeastSquares(problem()).event.events[:2]
        twin = replace(place.event, events=(*spent, place.event.events[2]))
        assert accounting.epsilon(twin, 1e-6) > 1.1 * whole

    def test_the_steps_cost_what_one_release_would(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The mechanisms that a descent makes have multipliers σ₃·√T: Σ 1/σ² = 1/σ₃²."""
        made: list[Any] = []
        original = adaptive.Gaussian

        def watched(*args: Any, **named: Any) -> Any:
            made.append(original(*args, **named))
            return made[-1]

        place = AdaptiveLeastSquares(problem())
        monkeypatch.setattr(adaptive, "Gaussian", watched)
        calls: list[int] = []
        step = adaptive._clipped_gradient
        monkeypatch.setattr(adaptive, "_clipped_gradient", lambda *a: calls.append(1) or step(*a))
        x, y = data(4000)
        place.solve(rows_of(x, y), Source(1))
        assert len(made) == 1
        assert len(calls) > 1
        assert len(calls) / made[0].event.noise_multiplier**2 <= 1 / place._last**2
        assert made[0].sensitivity >= math.sqrt(1.09)


def data(n: int, noise: float = 0.1, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = np.clip(rng.normal(size=(n, D)) * 0.2 + [0.5, -0.6, 0.0], -1, 1)
    return x, np.clip(x @ [0.5, -0.3, 0.4] - 0.4 + noise * rng.normal(size=n), -1, 1)


class TestAudit:
    """One row at the bounds among none, seen in each release along the direction in which it moves that."""

    @staticmethod
    def proven(part: str, shrunk: float, seed: int) -> tuple[float, float]:
        place = AdaptiveLeastSquares(problem(4.0, 1e-5))
        released, claimed = PARTS[part]
        with_it, without = (released(place, rows_of(np.ones((n, D)), np.ones(n))) for n in (1, 0))
        direction = with_it / np.linalg.norm(with_it)
        multiplier = {"centre": 0, "scale": 1, "step": 2}[part]
        noise = place.event.events[multiplier].noise_multiplier
        reach = claimed(place) * shrunk
        mechanism = adaptive.Gaussian(reach, noise_multiplier=noise, random_state=Source(seed))
        found = [np.array([mechanism(exact) @ direction for _ in range(600)]) for exact in (with_it, without)]
        options: dict[str, float] = {"delta": 1e-5, "confidence": 0.99}
        middle = float(np.linalg.norm(with_it)) / 2
        guesses = audit.choose_threshold(*found, rule=audit.Fixed(middle), **options)
        event = place.event.events[multiplier]
        return audit.gaussian(**guesses.counts(), **options).epsilon, accounting.epsilon(event, 1e-5)

    @pytest.mark.parametrize("part", PARTS)
    def test_each_release(self, part: str) -> None:
        shown, claim = self.proven(part, 1.0, 1)
        assert shown <= claim
        shown, claim = self.proven(part, 0.3, 3)
        assert shown > claim


class TestFit:
    @pytest.mark.parametrize("alpha", [1e4, 1e9, 1e300])
    def test_a_large_penalty_leaves_the_mean(self, alpha: float) -> None:
        """Steps that took no account of the penalty ran away: to 1e9, the limit of the weights."""
        x, y = data(2000)
        made = Ridge(1.0, 1e-6, alpha=alpha, bounds=(-1, 1), target_bounds=(-1, 1), random_state=1).fit(x, y)
        assert np.abs(made.coef_).max() < 0.1
        assert made.intercept_ == pytest.approx(y.mean(), abs=0.05)

    @pytest.mark.parametrize("delta", [0.0, 1e-6])
    @pytest.mark.parametrize("intercept", [False, True])
    def test_large_epsilon_is_least_squares(self, delta: float, intercept: bool) -> None:
        x, y = data(4000)
        made = LinearRegression(
            1e6, delta, bounds=(-1, 1), target_bounds=(-1, 1), fit_intercept=intercept, random_state=1
        ).fit(x, y)
        columns = np.column_stack([x, np.ones(len(x))]) if intercept else x
        exact = np.linalg.lstsq(columns, y, rcond=None)[0]
        assert made.coef_ == pytest.approx(exact[:D], abs=2e-3)
        assert made.intercept_ == pytest.approx(exact[D] if intercept else 0.0, abs=2e-3)

    @pytest.mark.parametrize(("epsilon", "least"), [(0.1, 0.6), (1.0, 0.66)])
    def test_learns_from_rows_far_from_the_middle_of_their_bounds(self, epsilon: float, least: float) -> None:
        """Where noise on sums of products for rows at the bounds learns much less."""
        x, y = data(5000)
        scores: dict[str, list[float]] = {"adaptive": [], "statistics": []}
        for place, found in scores.items():
            for seed in range(5):
                made = LinearRegression(
                    epsilon, 1e-6, bounds=(-1, 1), target_bounds=(-1, 1), noise=place, random_state=seed
                )
                found.append(made.fit(x, y).score(x, y))
        assert np.mean(scores["adaptive"]) > max(least, np.mean(scores["statistics"]))

    @pytest.mark.parametrize("delta", [0.0, 1e-6])
    def test_where_there_is_nothing_to_learn_it_stays_with_the_mean(self, delta: float) -> None:
        x, _ = data(5000)
        y = np.clip(0.3 + 0.3 * np.random.default_rng(1).normal(size=5000), -1, 1)
        found = []
        for epsilon in (0.05, 0.1, 1.0):
            for seed in range(4):
                made = LinearRegression(
                    epsilon, delta, bounds=(-1, 1), target_bounds=(-1, 1), random_state=seed
                ).fit(x, y)
                found.append(made.score(x, y))
        assert np.mean(found) > -0.06

    def test_penalties_shrink(self) -> None:
        x, y = data(4000)
        facts: dict[str, Any] = {"bounds": (-1, 1), "target_bounds": (-1, 1), "random_state": 1}
        for delta in (0.0, 1e-6):
            sizes = [
                np.linalg.norm(Ridge(10.0, delta, alpha=alpha, **facts).fit(x, y).coef_)
                for alpha in (0.0, 300.0, 1e5)
            ]
            assert sizes[0] > 1.2 * sizes[1] > 2 * sizes[2]

    def test_a_bought_population_keeps_the_event(self) -> None:
        x, y = data(4000)
        made = LinearRegression(
            1.0, 1e-6, bounds=(-1, 1), target_bounds=(-1, 1), population="dp", random_state=1
        ).fit(x, y)
        assert made.score(x, y) > 0.5

    def test_the_order_of_rows_does_not_matter(self) -> None:
        x, y = data(4000)
        place = AdaptiveLeastSquares(problem())
        first, second = (place.solve(rows_of(x[::k], y[::k]), Source(1)) for k in (1, -1))
        assert first == pytest.approx(second, abs=1e-6)

    def test_rows_that_are_not_kept_in_memory_give_the_same(self, monkeypatch: pytest.MonkeyPatch) -> None:
        x, y = data(4000)
        place = AdaptiveLeastSquares(problem())
        first = place.solve(rows_of(x, y), Source(1))
        monkeypatch.setattr(centring, "KEPT_BYTES", 0)
        assert place.solve(rows_of(x, y), Source(1)) == pytest.approx(first, abs=1e-12)
