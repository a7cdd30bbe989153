"""What may be expected of a fit, by public facts: who cannot learn anything is told before the charge."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit import Budget, Ledger
from tacit.errors import BudgetExceeded, CannotLearn
from tacit.estimators import LinearRegression, LogisticRegression
from tacit.estimators.linear.losses import Logistic
from tacit.estimators.linear.noise.exponential import Exponential, NoisyChoice
from tacit.estimators.linear.noise.objective import NoisyObjective
from tacit.estimators.linear.noise.output import NoisyOutput
from tacit.estimators.linear.noise.place import Problem
from tacit.estimators.linear.rows import ScaledRows, Space
from tacit.randomness import Source

PLACES = ("objective", "output", "functional", "gradient", "input", "exponential")


def told(population: Any, place: str = "objective", epsilon: float = 1.0, **more: Any) -> Any:
    facts = {"bounds": (-1, 1), "classes": [0, 1], "random_state": 1}
    return LogisticRegression(epsilon, 1e-6, noise=place, population=population, **{**facts, **more})


def data(size: int, width: int = 2, seed: int = 1) -> tuple[Any, Any]:
    generator = np.random.default_rng(seed)
    x = generator.uniform(-1, 1, size=(size, width))
    return x, (x[:, 0] + 0.2 * generator.normal(size=size) > 0.3).astype(int)


class TestDoubts:
    @pytest.mark.parametrize("place", PLACES)
    def test_few_rows_are_told_before_the_charge(self, place: str, tmp_path: Path) -> None:
        rows = 4
        with Ledger.open(tmp_path / "poor.db", Budget(0.5, 1e-5)) as ledger:
            said = r"4 rows could give .* ε = .* instead of 1"
            with pytest.warns(CannotLearn, match=said) as found, pytest.raises(BudgetExceeded):
                told(rows, place, ledger=ledger).fit(*data(rows))
            assert not ledger.entries()
        assert "2 features" in str(found[0].message)

    @pytest.mark.parametrize("place", PLACES)
    def test_what_it_asks_for_is_enough(self, place: str) -> None:
        (doubt,) = told(4, place).plan(2).doubts
        rows = int(re.search(r"times the rows \((\d+)\)", doubt)[1])  # type: ignore[index]
        assert not told(rows, place).plan(2).doubts
        epsilon = float(re.search(r"ε = ([\d.e+]+)", doubt)[1])  # type: ignore[index]
        assert not told(4, place, epsilon).plan(2).doubts

    def test_no_doubt_without_a_declared_number(self) -> None:
        for population in (None, "dp"):
            planned = told(population).plan(2)
            assert not planned.doubts
            assert re.fullmatch(r"takes about \d+ rows or more to learn from", planned.expected[0])
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                told(population).fit(*data(4))

    def test_the_number_of_rows_that_are_there_is_not_looked_at(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error", CannotLearn)
            told(10_000).fit(*data(4))
        with pytest.warns(CannotLearn):
            told(4).fit(*data(1000))

    @pytest.mark.parametrize(("rows", "width", "learns"), [(100, 40, False), (5000, 3, True)])
    def test_it_is_true(self, rows: int, width: int, learns: bool) -> None:
        """Where it warns, a model is no better than the larger class; where it learns, nothing is said."""
        x, y = data(4000, width, seed=3)
        larger = max(y.mean(), 1 - y.mean())
        gained = []
        for seed in range(10):
            model = told(rows, epsilon=0.2, random_state=seed)
            assert bool(model.plan(width).doubts) is not learns
            model.fit(*data(rows, width, seed=10 + seed))
            gained.append(float((model.predict(x) == y).mean()) - larger)
        assert np.mean(gained) > 0.1 if learns else np.mean(gained) < 0.01

    def test_regression(self) -> None:
        facts: dict[str, Any] = {"bounds": (-1, 1), "target_bounds": (-1, 1)}
        assert LinearRegression(0.1, population=50, **facts).plan(10).doubts
        assert not LinearRegression(1.0, population=50_000, **facts).plan(10).doubts


class TestExpectations:
    @pytest.mark.parametrize("kind", [NoisyObjective, NoisyOutput, NoisyChoice])
    @pytest.mark.parametrize("delta", [0.0, 1e-6])
    def test_the_mean_loss_is_below_its_bound(self, kind: Any, delta: float) -> None:
        if kind is NoisyChoice and delta:
            pytest.skip("has no δ")
        loss, rows = Logistic(), 300
        x, y = data(rows)
        space = Space.of(np.full(2, -1.0), np.full(2, 1.0), None, intercept=True)
        scaled = ScaledRows(x, y[:, None].astype(float), space)
        noise = Exponential(cells=9) if kind is NoisyChoice else None
        place = kind(Problem(loss, 3, 1.0, delta, population=rows), noise)
        numbers = [float(each) for each in re.findall(r"\d[\d.e-]*", place.expected())]
        above, penalty = numbers if len(numbers) == 2 else (numbers[0], 0.0)
        block, targets = next(scaled.blocks())
        best = np.array([[3.0], [0.0], [-1.0]])
        reference = float(loss.value(block @ best, targets).mean()) + penalty * float(np.square(best).sum())
        if kind is NoisyChoice:
            losses = [loss.value(block @ point[:, None], targets).mean() for point in place.points]
            reference = float(min(losses))
        found = [
            float(loss.value(block @ place.solve(scaled, Source(seed)), targets).mean()) for seed in range(60)
        ]
        assert np.mean(found) <= reference + above * 1.1 + 0.01

    def test_a_line_for_every_place(self) -> None:
        for place in PLACES:
            assert "beside a signal of at most" in told(1000, place).plan(2).expected[0]
