"""The skeleton of the estimators: what is read when, by whom, and what is said of it afterwards."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import tacit
from tacit import Budget, Ledger, Unit, accounting, events
from tacit.data.features import Features, known
from tacit.errors import InvalidValue, TacitError
from tacit.estimators import LinearRegression, LogisticRegression, noise
from tacit.estimators.linear.noise import PLACES, noise_from_dict, noise_of
from tacit.estimators.private import CHOSEN, PrivateEstimator, PrivateRows, Public, Recipe
from tacit.estimators.purchases import Purchases
from tacit.mechanisms import euclidean_noise
from tacit.randomness import Source
from tacit.relations import norm_sensitivity

X = np.random.default_rng(1).uniform(-1, 1, (60, 2))
Y = (X[:, 0] > 0).astype(int)


def model(**more: Any) -> LogisticRegression:
    return LogisticRegression(**{"classes": [0, 1], "bounds": (-1, 1), "random_state": 1, **more})


class TestRowsAreReadLate:
    def test_the_same_weights_either_way(self) -> None:
        there = model().fit(X, Y)
        late = model().fit_rows(2, lambda: (X, Y, None))
        assert there.coef_.tolist() == late.coef_.tolist()
        assert there.guarantee_ == late.guarantee_

    def test_features_are_public(self) -> None:
        features = Features(("a", "b"), (-1.0, -1.0), (1.0, 1.0))
        there = model(bounds=None).fit(known(X, features), Y)
        late = model(bounds=None).fit_rows(features, lambda: (X, Y, None))
        assert there.coef_.tolist() == late.coef_.tolist()

    def test_a_refusal_by_public_facts_reads_nothing(self) -> None:
        def read() -> Any:
            raise AssertionError("the rows were read")

        for bad in ({"classes": None}, {"bounds": None}, {"noise": "gradient"}, {"epsilon": -1.0}):
            with pytest.raises(InvalidValue):
                model(**bad).fit_rows(2, read)

    def test_rows_of_another_width_are_refused_and_the_charge_stands(self, tmp_path: Path) -> None:
        with Ledger.open(tmp_path / "a.db", Budget(2.0)) as ledger:
            with pytest.raises(InvalidValue, match="as was planned"):
                model(ledger=ledger).fit_rows(3, lambda: (X, Y, None))
            assert ledger.spent().epsilon == 1.0

    def test_units_come_exactly_where_they_are_expected(self, tmp_path: Path) -> None:
        who = np.arange(60) // 3
        assert model(rows_per_unit=2).fit_rows(2, lambda: (X, Y, who)).guarantee_.unit == Unit("unit", 2)
        with pytest.raises(InvalidValue, match="units"):
            model(rows_per_unit=2).fit_rows(2, lambda: (X, Y, None))
        with pytest.raises(InvalidValue, match="units"):
            model().fit_rows(2, lambda: (X, Y, who))
        with Ledger.open(tmp_path / "a.db", Budget(3.0), unit=Unit("patient", 1)) as ledger:
            assert model(ledger=ledger).plan(2).unit == Unit("patient", 1)
            made = model(ledger=ledger).fit_rows(2, lambda: (X, Y, who))
            assert made.guarantee_.unit == Unit("patient", 1)
            with pytest.raises(TacitError, match="protects one patient"):
                model(ledger=ledger).fit(X, Y)

    def test_assumptions_are_added(self) -> None:
        made = model().fit_rows(2, lambda: (X, Y, None), assumptions=["the file was complete"])
        assert made.guarantee_.assumptions[0] == CHOSEN
        assert made.guarantee_.assumptions[-1] == "the file was complete"


class TestDescription:
    def test_weights_with_intervals(self) -> None:
        made = model(interval_share=0.1).fit(X, Y)
        said = made.describe(["age", "height"])
        assert said.title == "logistic regression"
        assert said.classes == (0, 1)
        assert ("noise", "objective") in said.facts
        assert {weight.feature: weight.value for weight in said.weights} == {
            "age": made.coef_[0, 0], "height": made.coef_[0, 1],
        }  # fmt: skip
        for weight in said.weights:
            assert weight.low is not None
            assert weight.high is not None
            error = made.coef_error_[["age", "height"].index(weight.feature)]
            assert weight.high - weight.value == pytest.approx(1.96 * error, rel=1e-3)
            assert weight.value - weight.low == pytest.approx(1.96 * error, rel=1e-3)

    def test_one_weight_per_class(self) -> None:
        said = model(classes=["a", "b", "c"]).fit(X, np.array(["a", "b", "c"])[Y]).describe()
        assert {weight.label for weight in said.weights} == {
            f"feature {j} → {label}" for j in (0, 1) for label in "abc"
        }
        assert all(weight.low is None for weight in said.weights)

    def test_names_have_to_fit(self) -> None:
        with pytest.raises(InvalidValue, match="one for each of 2"):
            model().fit(X, Y).describe(["age"])


class TestNoise:
    @pytest.mark.parametrize("name", PLACES)
    def test_a_name_is_its_default_settings(self, name: str) -> None:
        assert noise_of(name) == PLACES[name]()
        assert noise_from_dict(PLACES[name]().to_dict()) == PLACES[name]()

    @pytest.mark.parametrize("given", [None, 3, "gradients", {"steps": 3}, noise.Gradient])
    def test_anything_else_is_refused(self, given: Any) -> None:
        with pytest.raises(InvalidValue, match="objective"):
            noise_of(given)

    def test_settings_are_kept_by_clones_and_files(self, tmp_path: Path) -> None:
        chosen = noise.Gradient(steps=7, momentum=0.5)
        made = model(delta=1e-6, noise=chosen, population=60)
        assert clone(made).noise == chosen
        assert made.get_params()["noise"] == chosen
        assert "7 steps" in made.plan(2).notes[0]
        made.fit(X, Y)
        tacit.save(made, tmp_path / "a.tacit")
        again = tacit.load(tmp_path / "a.tacit")
        assert again.noise == chosen
        assert again.predict(X).tolist() == made.predict(X).tolist()
        assert made.event_.times == 7

    def test_settings_cannot_be_changed_or_misspelt(self) -> None:
        with pytest.raises(AttributeError):
            noise.Gradient().steps = 3  # type: ignore[misc]
        with pytest.raises(TypeError):
            noise.Gradient(step=3)  # type: ignore[call-arg]

    def test_residuals_give_standard_errors(self) -> None:
        settings: dict[str, Any] = {"bounds": (-1, 1), "target_bounds": (0, 1), "random_state": 1}
        plain = LinearRegression(**settings).fit(X, Y)
        more = LinearRegression(noise=noise.Statistics(residuals=True), **settings).fit(X, Y)
        assert not hasattr(plain, "coef_error_")
        assert (more.coef_error_ > 0).all()


@dataclass(frozen=True)
class MeansRecipe(Recipe):
    bought: Purchases | None = None
    mechanism: Any = None


class Means(PrivateEstimator):
    """Means of features, without a target: all that clusters and components need of the skeleton."""

    title = "means"
    released = ("means_", "bounds_", "n_features_in_", "feature_names_in_")
    supervised = False

    def __init__(
        self, epsilon: float = 1.0, delta: float = 0.0, *, bounds: Any = None, population: Any = None,
        relation: str = "add_remove", rows_per_unit: int = 1, ledger: Any = None, label: str | None = None,
        verbose: bool = False, random_state: int | None = None,
    ) -> None:  # fmt: skip
        self.epsilon, self.delta, self.bounds, self.population = epsilon, delta, bounds, population
        self.relation, self.rows_per_unit, self.ledger, self.label = relation, rows_per_unit, ledger, label
        self.verbose, self.random_state = verbose, random_state

    def _recipe(self, public: Public) -> MeansRecipe:
        bought = Purchases.of(public, population=self.population, bounds=self.bounds)
        bound = np.sqrt(public.width)
        moved = public.unit.rows * norm_sensitivity(bound, public.relation)
        noise = euclidean_noise(moved, bought.epsilon, bought.delta)
        event = events.Compose((noise.event, *bought.costs))
        return MeansRecipe(event, "float64", (("sums", bought.epsilon), *bought.parts), (), bought, noise)

    def _carry_out(self, recipe: Any, rows: PrivateRows, source: Source) -> None:
        lower, upper = recipe.bought.buy_bounds(rows, source)
        count = recipe.bought.buy_population(rows, source)
        matrix = rows.matrix if rows.keep is None else rows.matrix[rows.keep]
        scaled = np.clip((matrix - (lower + upper) / 2) / ((upper - lower) / 2), -1, 1)
        sums = replace(recipe.mechanism, random_state=source)(np.nan_to_num(scaled).sum(axis=0))
        self.bounds_ = np.array([lower, upper])
        self.means_ = (lower + upper) / 2 + sums / count * (upper - lower) / 2


class TestAnEstimatorWithoutATarget:
    X = np.random.default_rng(3).uniform([2, -7], [6, 1], (20_000, 2))

    def test_it_buys_what_is_not_public(self) -> None:
        made = Means(5.0, bounds="dp", population="dp", random_state=1).fit(self.X)
        assert made.means_ == pytest.approx(self.X.mean(axis=0), abs=0.1)
        assert accounting.epsilon(made.event_, 0.0) == pytest.approx(5.0)
        assert [part for part, _ in made.plan(2).parts] == ["sums", "population", "bounds"]
        assert made.describe().title == "means"

    def test_people_and_a_ledger(self, tmp_path: Path) -> None:
        who = np.arange(20_000) // 4
        with Ledger.open(tmp_path / "a.db", Budget(20.0), unit=Unit("patient", 2)) as ledger:
            made = Means(9.0, bounds="dp", population="dp", rows_per_unit=2, ledger=ledger, random_state=1)
            made.fit_rows(2, lambda: (self.X, None, who))
            assert made.guarantee_.unit == Unit("patient", 2)
            assert [entry.label for entry in ledger.entries()] == ["means"]
            assert ledger.spent().epsilon == pytest.approx(9.0)
        assert made.means_ == pytest.approx(self.X.mean(axis=0), abs=0.2)

    def test_infinite_epsilon_is_for_those_that_say_so(self) -> None:
        with pytest.raises(InvalidValue, match="epsilon"):
            Means(np.inf, bounds="dp", population="dp").fit(self.X)
