"""The page about a model: true to the model, to what was charged and measured; and the attack it bounds."""

from __future__ import annotations

import dataclasses
import html
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
from tacit.drawing import trees
from tacit.errors import InvalidValue
from tacit.estimators import DecisionTree, LogisticRegression
from tacit.evaluation import evaluate
from tacit.guarantee import ceiling
from tacit.models import Description
from tacit.relations import Unit
from tacit.report import Branch, Section, plots, render
from tacit.report.facts import Facts, Spending
from tacit.report.membership import Tradeoff, in_words, odds
from tacit.report.model import model_page
from tacit.report.wording import tree_of

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


NAMED = """
[about]
data = "Register of the Northern Hospital"
responsible = "Data office <data@hospital.example>"

[unit]
name = "patient"

[columns.x]
type = "number"
bounds = [0, 1]

[columns.y]
type = "category"
categories = ["no", "yes"]
"""


def named(**chosen: Any) -> Facts:
    maker = Preprocessor(Schema.from_toml(NAMED), target="y")
    frame = {"x": np.linspace(0, 1, 200)}
    model = LogisticRegression(1.0, 1e-6, classes=["no", "yes"], random_state=1)
    model.fit(maker.fit_transform(frame), np.where(frame["x"] > 0.5, "yes", "no"))
    model.guarantee_ = dataclasses.replace(model.guarantee_, noise="float64")
    return Facts.of(Pipeline([("preprocessor", maker), ("model", model)]), "m.tacit", **chosen)


def box(page: str) -> str:
    text = page.split('<div class="summary">')[1].split("<h2>")[0]
    return html.unescape(re.sub("<[^>]*>", " ", text))


def test_the_box_says_what_for_whom_at_which_cost_and_who_answers_for_it(tmp_path: Path) -> None:
    facts = named()
    with Ledger.open(tmp_path / "study.db", Budget(3.0, 1e-5)) as ledger:
        for event, label in ((events.Pure(0.5), "counts"), (facts.guarantee.event, "the model")):
            with ledger.charge(event, label, delta=None if label == "counts" else 1e-6):
                pass
        spent = ledger.spent().epsilon
        page = model_page(facts, [Spending.of(ledger)])
    told = box(page)
    assert "With ε = 1, whoever studies this model can become at most 73.2% sure" in told
    assert "one given patient" in told
    assert "one patient (one row is one patient)" in told
    assert "logistic regression of y, in the file m.tacit" in told
    assert f"ε = {float(ceiling(spent, 4)):g} of 3 spent on them in all, in 2 charges to “default”" in told
    assert "Register of the Northern Hospital" in told
    assert "Data office <data@hospital.example>" in told
    assert "charged as entry" in told
    assert re.search(r"written on \d+ \w+ \d{4} by tacit \d", told)


def test_the_box_names_what_is_not_known() -> None:
    told = box(model_page(Facts.of(fitted(2, tested=False))))
    assert "no ledger was given" in told
    assert "not named" in told
    assert "promises nothing" in told  # the noise was seeded
    told = box(model_page(named(unit_name="guest", responsible="Ms Example")))
    assert "one guest (one row is one guest)" in told
    assert "Ms Example" in told


def test_a_charge_for_other_people_is_told_apart(tmp_path: Path) -> None:
    facts = named()
    with Ledger.open(tmp_path / "study.db", Budget(3.0), unit=Unit("family", 4)) as ledger:
        with ledger.charge(events.Pure(0.5), "counts"):
            pass
        told = box(model_page(facts, [Spending.of(ledger)]))
    assert "this model is not among the charges" in told
    assert "that ledger protects one family (at most 4 rows)" in told


def test_the_event_is_a_tree_in_words_folded_away() -> None:
    run = events.Repeat(events.PoissonSampled(0.004, events.Gaussian(1.1)), 3510)
    both = events.Compose((run, events.Compose((events.Laplace(2.0), events.Laplace(2.0)))))
    tree = tree_of(both, Unit(name="patient"))
    assert [one.text for one in tree.below] == ["3,510 times:", "2 times:"]
    assert "each patient is with a probability of 0.4%" in tree.below[0].below[0].text
    assert tree.below[1].below[0].text.endswith("one patient can make, so ε = 0.5")
    page = model_page(named())
    folded = re.search("<details>.*?</details>", page, re.DOTALL)
    assert folded
    assert "Gaussian noise" in folded.group()
    assert "ObjectivePerturbation(" not in page


KINDS = [
    events.Gaussian(1.0), events.Laplace(1.0), events.Pure(1.0), events.Approximate(1.0, 1e-6),
    events.ZeroConcentrated(0.5), events.BoundedRange(1.0), events.RandomizedResponse(1.0, 3),
    events.Renyi((2.0,), (0.5,)), events.ObjectivePerturbation(1.0, 0.1), events.Repeat(events.Pure(1.0), 3),
    events.PoissonSampled(0.1, events.Gaussian(1.0)), events.Compose((events.Pure(1.0), events.Pure(2.0))),
    events.SampledWithoutReplacement(10, 100, events.Gaussian(1.0)), events.Parallel((events.Pure(1.0),)),
    events.BestOf(events.Pure(1.0), 0.0, 0.1), events.BestOfPoisson(events.Pure(1.0), 5.0),
    events.OneOf((events.Pure(1.0), events.Pure(2.0))), events.Shuffled(events.Pure(1.0), 100),
]  # fmt: skip


def test_every_kind_of_event_has_words() -> None:
    def lines(branch: Branch) -> list[str]:
        return [branch.text, *(line for below in branch.below for line in lines(below))]

    known = [getattr(events, name) for name in events.__all__]
    kinds = {one for one in known if isinstance(one, type)} - {events.Event}
    assert {type(event) for event in KINDS} == kinds
    for event in KINDS:
        assert not [line for line in lines(tree_of(event)) if f"{type(event).__name__}:" in line]


def test_doubtful_coefficients_are_marked() -> None:
    model = fitted(2, tested=False)
    estimator = model.steps[-1][1]
    estimator.coef_ = np.array([[3.0, 1.1, 0.2]])
    estimator.coef_error_ = np.full(3, 0.5)
    page = model_page(Facts.of(model))
    rows = re.findall(r"<tr><td>(.*?)</td>.*?<td>([^<]*)</td></tr>", page.split("All coefficients")[1])
    assert [mark for _, mark in rows] == ["", "may be chance", "may be 0"]
    assert "pale: cannot be told from zero" in page
    without = model_page(Facts.of(fitted(2, tested=False)))
    assert "no coefficient can be told from noise" in without


def test_drawings_follow_the_page_and_keep_odd_names(tmp_path: Path) -> None:
    """No colour of its own that would vanish in the dark, no formula parsed in a name, no markup let in."""
    names = ["a$b$", "$\\frac", "</svg><script>alert(1)</script>", "ordinary"]
    drawn = plots.embedded(plots.coefficient_figure(names, [1.0, -0.5, 0.2, 0.1], title="<b>"), "bars")
    for svg in (drawn.wide, drawn.narrow):
        assert not re.search(r"#(000000|222222|555555|dddddd|ffffff)|<script|http|DejaVu", svg)
        assert "var(--ink)" in svg
        assert "$\\frac" in svg
    assert drawn.caption == "<b>"
    page = render("t", "l", [Section("h", figure=drawn)])
    assert "&lt;b&gt;" in page
    assert "<script" not in page
    ids = re.findall(r'id="([^"]+)"', drawn.wide), re.findall(r'id="([^"]+)"', drawn.narrow)
    assert not set(ids[0]) & set(ids[1])


def test_the_page_has_a_dark_a_narrow_and_a_printed_form() -> None:
    page = render("t", "l", [Section("h", table=(("a_b",), [["long_name=value"]]))])
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page
    assert "max-width: 37rem" in page
    assert '"Segoe UI"' in page  # the style is not escaped
    assert '<div class="scroll"' in page  # a wide table scrolls, not the page
    assert "long_<wbr>name=<wbr>value" in page


def grown(leaves: int = 2, transform: str = "identity") -> Any:
    """A tree that splits by age, from 20 to 60, at a quarter; or by a category of many values."""
    schema = Schema(
        {
            "age <y>": Column("number", bounds=(20, 60)),
            "ward": Column("category", categories=tuple(f"w{place}" for place in range(leaves))),
            "y": Column("category", categories=("no", "yes")),
        }
    )
    rng = np.random.default_rng(1)
    size = 400 * leaves
    wards = rng.integers(leaves, size=size)
    frame = {"age <y>": rng.uniform(20, 60, size), "ward": np.array([f"w{place}" for place in wards])}
    late = wards % 2 == 1 if leaves > 2 else frame["age <y>"] >= (30 if transform == "identity" else 22.5)
    maker = Preprocessor(schema, target="y", transforms={"age <y>": transform})
    model = DecisionTree(50.0, classes=["no", "yes"], depth=1, bins=4, random_state=1)
    model.fit(maker.fit_transform(frame), np.where(late, "yes", "no"))
    return Pipeline([("preprocessor", maker), ("model", model)])


@pytest.mark.filterwarnings("ignore::tacit.errors.WeakPrivacy")
@pytest.mark.parametrize(("transform", "edge"), [("identity", "30"), ("sqrt", "22.5")])
def test_a_tree_is_drawn_and_listed_in_the_units_of_the_table(transform: str, edge: str) -> None:
    facts = Facts.of(grown(transform=transform))
    assert facts.description.tree is not None
    assert trees.text(facts.description.tree).startswith(f"age <y> < {edge}: no (")
    page = model_page(facts)
    section = page.split("<h2>The tree</h2>")[1].split("<h2>")[0]
    assert re.search(rf'<text [^>]*>age &lt;y&gt; ≥ {edge}: yes \(\d+ %\), \d+ rows</text>', section)
    listed = section.split('<ul class="tree narrow">')[1]
    assert f"<li>age &lt;y&gt; ≥ {edge}: yes (" in listed
    assert "no number can be told from noise" in page


@pytest.mark.filterwarnings("ignore::tacit.errors.WeakPrivacy")
def test_a_tree_with_many_leaves_is_folded_away() -> None:
    page = model_page(Facts.of(grown(leaves=45)))
    section = page.split("<h2>The tree</h2>")[1].split("<h2>")[0]
    assert "<svg" not in section
    assert "<summary>The tree of 46 leaves</summary>" in section
    assert "<li>ward = w7: yes (" in section
