"""The page about a model: true to the model, to what was charged and measured; and the attack it bounds."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline

from tacit import Budget, Column, Guarantee, Ledger, Schema, events
from tacit.data.preprocessor import Preprocessor
from tacit.errors import InvalidValue
from tacit.estimators import LogisticRegression
from tacit.evaluation import evaluate
from tacit.models import Description
from tacit.report.facts import Facts, Spending
from tacit.report.membership import Tradeoff, in_words, odds
from tacit.report.model import model_page

CLASSES = ("no", "yes", "perhaps")


def fitted(classes: int, epsilon: float = 1.0, *, tested: bool = True) -> Any:
    rng = np.random.default_rng(1)
    frame = {"x": rng.uniform(0, 1, 3000), "<b>": rng.choice(["l", "m"], 3000)}
    labels = np.array(CLASSES)[np.minimum((frame["x"] * classes).astype(int), classes - 1)]
    schema = Schema(
        {
            "x": Column("number", bounds=(0, 1)),
            "<b>": Column("category", categories=("l", "m")),
            "y": Column("category", categories=CLASSES[:classes]),
        }
    )
    maker = Preprocessor(schema, target="y")
    model = LogisticRegression(epsilon, 1e-6, classes=list(CLASSES[:classes]), random_state=1)
    model.fit(maker.fit_transform(frame), labels)
    pipeline = Pipeline([("preprocessor", maker), ("model", model)])
    if tested:
        groups = {"<b>": (frame["<b>"], ["l", "m"])}
        found = evaluate(pipeline, frame, labels, epsilon=1.0, groups=groups, random_state=1)
        pipeline.evaluations_ = (found,)
    return pipeline


@pytest.mark.parametrize("classes", [2, 3])
def test_the_page_says_what_the_model_is(classes: int, tmp_path: Path) -> None:
    model = fitted(classes)
    with Ledger.open(tmp_path / "study.db", Budget(3.0, 1e-5)) as ledger:
        with ledger.charge(events.Pure(1.5), "one <i>thing</i>"):
            pass
        page = model_page(Facts.of(model, "m.tacit"), [Spending.of(ledger)])
    assert model.steps[-1][1].guarantee_.statement() in page
    assert "SEEDED" in page
    assert "one &lt;i&gt;thing&lt;/i&gt;" in page
    assert "1 charge spent ε = 1.5 of it in all; ε = 1.5 remains" in page
    evaluation = model.evaluations_[0]
    assert f"{evaluation.figures['accuracy']:.3f}" in page
    assert "By &lt;b&gt;" in page
    assert "penalty" in page
    assert page.count("<svg") >= 6
    assert not re.search('<script|<link|https?:|src="(?!data:)', page)
    shown = re.findall(r"<td>([^<]*)</td><td>(-?\d+\.\d{3})</td></tr>", page.split("All coefficients")[1])
    values = [float(value) for _, value in shown]
    assert len(values) == model.steps[-1][1].coef_.size
    assert [abs(value) for value in values] == sorted(map(abs, values), reverse=True)


def test_without_a_test_or_a_ledger_it_says_so() -> None:
    page = model_page(Facts.of(fitted(2, tested=False)))
    assert "Measured: nothing." in page
    assert "No ledger was given" in page
    assert "no curve" in page
    assert "Intervals are not available" in page


def test_intervals_of_coefficients_are_shown_where_there_are_some() -> None:
    model = fitted(2, tested=False)
    estimator = model.steps[-1][1]
    estimator.coef_error_ = np.full(estimator.coef_.shape[1], 0.25)
    facts = Facts.of(model)
    assert all(one.high - one.low == pytest.approx(2 * 1.959964 * 0.25) for one in facts.description.weights)
    page = model_page(facts)
    assert "The 95% intervals include the privacy noise;" in page


class Counter(BaseEstimator):
    """A model of a class that no report knows: it says what it is by describe()."""

    guarantee_ = Guarantee(1.0, 0.0, events.Pure(1.0))

    def describe(self) -> Description:
        return Description("private <counter>", (("cells", "12"),), ("no", "yes"))


def test_a_model_of_any_class_is_shown_by_its_description(tmp_path: Path) -> None:
    facts = Facts.of(Counter(), "count.tacit")
    page = model_page(facts)
    assert "Private &lt;counter&gt;" in page
    assert '<th scope="row">cells</th><td>12</td>' in page
    assert Counter.guarantee_.statement() in page
    assert "oefficient" not in page
    assert "What was trained" not in page
    with pytest.raises(InvalidValue, match=r"describe\(\)"):
        Facts.of(BaseEstimator())


def test_features_of_a_pipeline_go_by_the_names_of_its_schema() -> None:
    facts = Facts.of(fitted(3, tested=False))
    assert facts.description.title == "logistic regression of y"
    assert {one.feature for one in facts.description.weights} == {"x", "<b>=l", "<b>=m"}
    assert {one.output for one in facts.description.weights} == set(CLASSES)
    alone = Facts.of(facts.model)
    assert {one.feature for one in alone.description.weights} == {f"feature {place}" for place in range(3)}


def test_models_at_several_epsilons_make_a_curve() -> None:
    page = model_page(Facts.of(fitted(2), "one"), others=[Facts.of(fitted(2, 0.5), "half")])
    assert "Each point is a model of its own" in page
    assert "<td>half</td><td>0.5</td>" in page


@pytest.mark.parametrize("noise_multiplier", [0.5, 1.0, 4.0])
def test_the_attack_on_gaussian_noise_is_the_known_one(noise_multiplier: float) -> None:
    """Φ(Φ⁻¹(1 − α) − μ) is exact; a bound from finitely many (ε, δ) is below, and near."""
    event = events.Gaussian(noise_multiplier)
    from tacit import accounting

    guarantee = Guarantee(accounting.epsilon(event, 1e-6), 1e-6, event)
    attack = Tradeoff.of(guarantee)
    for rate in (0.001, 0.01, 0.1, 0.3, 0.5, 0.9):
        exact = norm.cdf(norm.isf(rate) - 1 / noise_multiplier)
        assert exact - 0.02 < attack.missed(rate) <= exact + 1e-9


def test_the_attack_by_epsilon_and_delta_alone() -> None:
    stated = Tradeoff(((1.0, 1e-3),))
    assert stated.power(0.0) == pytest.approx(1e-3)
    assert stated.power(0.01) == pytest.approx(1e-3 + math.e * 0.01)
    assert stated.power(0.9) == pytest.approx(1 - (1 - 1e-3 - 0.9) / math.e)
    assert stated.power(1.0) == 1.0
    assert Tradeoff(((800.0, 0.0),)).power(0.5) == 1.0


def test_words_for_every_kind_of_guarantee() -> None:
    pure = Guarantee(1.0, 0.0, events.Pure(1.0), "replace_one")
    text = " ".join(in_words(pure, Tradeoff.of(pure)))
    assert "replace it by any other" in text
    assert "δ" not in text
    assert odds(pure) == pytest.approx(math.e / (1 + math.e))
    nothing = dataclasses.replace(pure, epsilon=math.inf)
    assert "Nothing is promised" in in_words(nothing, Tradeoff.of(nothing))[0]
    model = fitted(2, tested=False)
    model.steps[-1][1].guarantee_ = nothing
    assert "Nothing is promised" in model_page(Facts.of(model))
