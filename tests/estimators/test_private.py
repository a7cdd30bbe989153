"""The skeleton of the estimators: what is read when, by whom, and what is said of it afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import tacit
from tacit import Budget, Ledger, Unit
from tacit.data.features import Features, known
from tacit.errors import InvalidValue, TacitError
from tacit.estimators import LinearRegression, LogisticRegression, noise
from tacit.estimators.linear.noise import PLACES, noise_from_dict, noise_of
from tacit.estimators.private import CHOSEN

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
