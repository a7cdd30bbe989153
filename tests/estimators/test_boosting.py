"""Gradient boosting: sensitivity on worst-case rows, noise, audits with broken twins, odd input, quality.

Seeds are fixed, and each test on a sample raises a false alarm with probability under 1e-6 over the choice of
seed.
"""

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.pipeline import Pipeline

import tacit
from tacit import Column, Schema, accounting, audit, events
from tacit.errors import InvalidValue
from tacit.estimators import GradientBoosting, Preprocessor
from tacit.estimators.boosting import rounds as boosting
from tacit.estimators.boosting.layout import Layout
from tacit.estimators.boosting.residuals import GRID, Residuals
from tacit.estimators.boosting.rounds import Rounds, cell_sums
from tacit.estimators.coding import Coding
from tacit.estimators.private import PrivateRows, Public
from tacit.randomness import Source
from tacit.relations import Relation, Unit
from tacit.report.facts import Facts
from tacit.report.plots import shape_figure
from tacit.report.shape import _drawn

ALARM = 1e-6
PUBLIC = Public(1.0, 1e-6, Relation.ADD_REMOVE, Unit(), 3)
LAYOUT = Layout(Coding.of(PUBLIC, bounds=(-1, 1), categories=[None, 3, None], bins=5))
LOSSES = [Residuals(2, 0.5), Residuals(2, 1.0), Residuals(3, 0.7), Residuals(0, 0.5)]


def planned(residuals=LOSSES[0], *, delta=1e-6, relation="add_remove", rows=1, pairs=0, **more):
    unit = Unit() if rows == 1 else Unit("unit", rows)
    settings = {"epsilon": 1.0, "population": 100, "rounds": 1, "learning_rate": 1.0, "depth": 3, **more}
    return Rounds(
        LAYOUT, residuals, delta=delta, relation=Relation.of(relation), unit=unit, pairs=pairs, **settings
    )


def sums(plan, matrix, targets, terms):
    """The exact vector that a first round adds noise to."""
    codes = LAYOUT.codes(matrix)
    path = boosting._Path(plan, codes, targets, Source(1))
    if terms == "all":
        path.add(plan.candidates[: plan.chosen])
    constant, found = path._sums(path.codes, path.splits)
    return np.concatenate([constant, *(each.ravel() for each in found)])


def worst_targets(residuals):
    return np.arange(residuals.classes, dtype=float) if residuals.classes else np.array([-1.0, 1.0])


@pytest.mark.parametrize("residuals", LOSSES, ids=repr)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("pairs", [0, 2])
def test_no_row_moves_the_sums_further_than_the_sensitivity(residuals, delta, pairs):
    """In all cells of all columns; where the residual reaches its bound at zero scores, a row comes close."""
    plan = planned(residuals, delta=delta, pairs=pairs)
    order = 1 if delta == 0 else 2
    grid = np.array([[a, b, c] for a in np.linspace(-1, 1, 5) for b in range(4) for c in (-1.0, 1.0, np.nan)])
    sizes = [
        np.linalg.norm(sums(plan, row[None], np.array([target]), "all"), order)
        for row in grid
        for target in worst_targets(residuals)
    ]
    assert max(sizes) <= plan.sensitivity
    if order == 2 and not pairs and residuals.bound == 0.5:
        assert max(sizes) > 0.999 * plan.sensitivity


def test_sensitivity_of_a_replaced_row_and_of_a_unit():
    one = planned().sensitivity
    assert planned(relation="replace_one").sensitivity == pytest.approx(2 * one)
    assert planned(rows=3).sensitivity == pytest.approx(3 * one)
    row = np.array([[1.0, 0, 1.0]])
    moved = sums(planned(), row, np.array([1.0]), "main") - sums(planned(), row, np.array([0.0]), "main")
    assert 0.999 * 2 * one < np.linalg.norm(moved) <= 2 * one


@pytest.mark.parametrize("residuals", LOSSES, ids=repr)
def test_residuals_are_bounded_and_on_the_grid(residuals):
    rng = np.random.default_rng(1)
    scores = np.concatenate([rng.normal(scale=s, size=(200, residuals.outputs)) for s in (0.1, 3, 1e3, 1e9)])
    targets = rng.choice(worst_targets(residuals), size=len(scores))
    found = residuals.of(scores, targets)
    assert (found == np.rint(found)).all()
    for order in (1, 2):
        assert np.linalg.norm(found / GRID, order, axis=1).max() <= residuals.largest(order)
    alone = np.concatenate([residuals.of(scores[i : i + 1], targets[i : i + 1]) for i in range(50)])
    assert (alone == found[:50]).all()


def test_sums_do_not_depend_on_the_order_of_rows():
    """Whole multiples of 2^-20 add up exactly, so that the last bits say nothing of who stands where."""
    rng = np.random.default_rng(2)
    matrix = np.column_stack([rng.uniform(-1, 1, 3000), rng.integers(0, 4, 3000), rng.uniform(-1, 1, 3000)])
    targets = rng.integers(0, 2, 3000).astype(float)
    order = rng.permutation(3000)
    plan = planned()
    assert (sums(plan, matrix, targets, "main") == sums(plan, matrix[order], targets[order], "main")).all()


@pytest.mark.parametrize("delta", [0.0, 1e-3])
@pytest.mark.parametrize("less", [1.0, 2 / 3])
def test_the_scale_of_the_noise(delta, less, monkeypatch):
    """On nobody, the constants of many classes are noise alone; two thirds of it are found out."""
    settings = {"classes": list(range(3000)), "bounds": (-1, 1), "population": 1, "rounds": 1, "bins": 2}
    model = GradientBoosting(1.0, delta, learning_rate=1.0, random_state=1, **settings)
    recipe = model._recipe(model._public(1, model._agreed(False)))
    made = Rounds._noise

    def weaker(self, sensitivity, share, times):
        return made(self, sensitivity * less, share, times)

    monkeypatch.setattr(Rounds, "_noise", weaker)
    model._carry_out(recipe, PrivateRows(np.zeros((0, 1)), np.zeros(0), None), Source(1))
    monkeypatch.undo()
    exact = stats.norm(scale=recipe.rounds.deviation)
    if delta == 0:
        exact = stats.laplace(scale=recipe.rounds.deviation / math.sqrt(2))
    passes = stats.kstest(model.intercept_, exact.cdf).pvalue > ALARM
    assert passes if less == 1 else not passes


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("interactions", [0, 3])
def test_the_event_costs_what_was_asked(delta, relation, interactions):
    given = {"classes": [0, 1], "bounds": (-1, 1), "population": 5000, "interactions": interactions}
    model = GradientBoosting(0.7, delta, relation=relation, **given)
    spent = accounting.epsilon(model.plan(4).event, delta, relation=relation)
    assert 0.69 < spent <= 0.7 * (1 + 1e-9)


def released(model, rows, targets, runs, seed):
    """Model after model, from one recipe."""
    recipe = model._recipe(model._public(rows.shape[1], model._agreed(False)))
    source = Source(seed)
    for _ in range(runs):
        model._carry_out(recipe, PrivateRows(rows, targets, None), source)
        yield model


def chosen_pairs(runs, seed, more):
    """How often the pair (0, 1) is chosen among three: without the second row, the sums are for (0, 2)."""
    rows = np.array([[1.0, np.nan, 1.0], [1.0, 1.0, np.nan]])[: 1 + more]
    given = {"classes": [0, 1], "bounds": (-1, 1), "population": 10, "rounds": 2, "bins": 2}
    model = GradientBoosting(0.5, 0.0, interactions=1, **given)
    found = released(model, rows, np.ones(1 + more), runs, seed)
    return np.array([(each.pairs_[0] == [0, 1]).all() for each in found])


def claimed(inside, outside, epsilon, delta=0.0):
    """What Clopper–Pearson proves of the test "this event happened"."""
    return audit.clopper_pearson(
        true_positives=int(inside.sum()), positives=len(inside), false_positives=int(outside.sum()),
        negatives=len(outside), delta=delta, confidence=1 - ALARM,
    ).contradicts(epsilon)  # fmt: skip


def test_the_choice_of_pairs_is_paid_for(monkeypatch):
    """One row more barely moves the choice; a twin that chooses by exact sums is found out."""
    assert not claimed(chosen_pairs(150, 1, 1), chosen_pairs(150, 2, 0), 0.5)
    choose = Rounds._choose

    def free(self, path, codes, source):
        return choose(dataclasses.replace(self, epsilon=math.inf), path, codes, source)

    monkeypatch.setattr(Rounds, "_choose", free)
    monkeypatch.setattr(boosting._Path, "walk", lambda self, rounds: None)
    assert claimed(chosen_pairs(150, 1, 1), chosen_pairs(150, 2, 0), 0.5)


# ----------------------------------------------------------------------------------------- odd input


def data(rows=3000, seed=1):
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(-1, 1, rows), rng.integers(0, 3, rows), rng.uniform(-1, 1, rows)])
    score = 6 * (np.abs(X[:, 0]) > 0.5) + 2 * (X[:, 1] == 1) - 4
    return X, (rng.uniform(size=rows) < 1 / (1 + np.exp(-score))).astype(int)


GIVEN = {"bounds": (-1, 1), "categories": [None, 3, None], "population": 3000}


@pytest.fixture(scope="module")
def fitted():
    return GradientBoosting(2.0, 1e-6, classes=[0, 1], random_state=1, **GIVEN).fit(*data())


def test_it_learns_what_no_line_could(fitted):
    X, y = data(seed=2)
    assert fitted.score(X, y) > 0.85
    assert fitted.predict_proba(X).sum(axis=1) == pytest.approx(1)
    number, code, noise = fitted.shape_functions_
    assert number.effects[[0, -1]].min() > number.effects[127] + 2
    assert code.effects.argmax() == 1
    assert noise.spread < number.spread / 4
    assert number.edges[[0, -1]].tolist() == [-1, 1]


def test_three_classes():
    X, _ = data()
    y = np.digitize(X[:, 0], [-0.4, 0.4])
    model = GradientBoosting(2.0, 1e-6, classes=[0, 1, 2], random_state=1, **GIVEN).fit(X, y)
    assert model.score(X, y) > 0.85
    assert model.decision_function(X).shape == (3000, 3)


def test_regression():
    X, _ = data()
    y = 5 + 4 * np.abs(X[:, 0])
    model = GradientBoosting(2.0, 1e-6, task="regression", target_bounds=(0, 10), random_state=1, **GIVEN)
    assert is_regressor(model)
    assert not hasattr(model, "predict_proba")
    assert model.fit(X, y).score(X, y) > 0.6
    assert is_classifier(clone(model).set_params(task="classification"))


def test_a_pair_is_found():
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, size=(4000, 3))
    y = (X[:, 0] * X[:, 2] > 0).astype(int)
    model = GradientBoosting(
        4.0, 1e-6, classes=[0, 1], bounds=(-1, 1), population=4000, interactions=1, random_state=1
    ).fit(X, y)
    assert model.pairs_.tolist() == [[0, 2]]
    assert model.score(X, y) > 0.8
    assert model.shape_functions_[-1].columns == ("feature 0", "feature 2")


def test_missing_values_and_undeclared_categories_contribute_nothing(fitted):
    X = np.array([[np.nan, 7.0, np.inf], [-np.inf, np.nan, np.nan]])
    assert fitted.decision_function(X) == pytest.approx(np.repeat(fitted.intercept_, 2))
    rows, y = data()
    rows[::3, 0] = np.nan
    again = GradientBoosting(2.0, 1e-6, classes=[0, 1], random_state=1, **GIVEN).fit(rows, y)
    assert again.effects_.shape == fitted.effects_.shape
    assert again.rounds_ == fitted.rounds_


@pytest.mark.parametrize(
    ("X", "y"),
    [
        (np.zeros((0, 3)), np.zeros(0)),
        (np.ones((50, 3)), np.ones(50)),
        (np.full((50, 3), np.nan), np.zeros(50)),
        (np.ones((3, 3)), np.array([7, 8, 9])),
        (np.array([[1e308, -1e308, np.inf]]), np.array([1])),
    ],
    ids=["nobody", "one class, constant columns", "nothing known", "labels not declared", "far outside"],
)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_no_row_decides_on_shapes_or_rounds(fitted, X, y, delta):
    model = GradientBoosting(2.0, delta, classes=[0, 1], random_state=1, **GIVEN).fit(X, y)
    assert model.effects_.shape == fitted.effects_.shape
    assert np.isfinite(model.effects_).all()
    if delta:
        assert model.rounds_ == fitted.rounds_


def test_what_the_rows_of_a_frame_are_made_of_is_one_column():
    """One-hot features of a category are one column: at most one counts, whatever a row says."""
    schema = Schema({
        "age": Column("integer", bounds=(0, 100)), "sex": Column("category", categories=("f", "m")),
        "town": Column("category", categories=("a", "b", "c"), other="d"),
    })  # fmt: skip
    made = Preprocessor(schema)
    model = GradientBoosting(1.0, 1e-6, classes=[0, 1], population=100, random_state=1)
    X = made.fit_transform({"age": [1, 50, 99], "sex": ["f", "m", "?"], "town": ["a", "d", None]})
    model.fit(X, [0, 1, 1])
    assert [shape.columns for shape in model.shape_functions_] == [("feature 0",), ("sex",), ("town",)]
    assert [len(shape.effects) for shape in model.shape_functions_] == [255, 2, 4]
    assert "over 3 columns" in str(model.plan(made.features))
    everything = np.ones((1, 7))
    assert np.isfinite(model.decision_function(everything)).all()


def test_shapes_are_described_in_the_units_of_the_table():
    schema = Schema({
        "gain": Column("integer", bounds=(0, 1000)), "sex": Column("category", categories=("f", "m")),
        "y": Column("category", categories=("no", "yes")),
    })  # fmt: skip
    maker = Preprocessor(schema, target="y", transforms={"gain": "log1p"})
    rows = {"gain": np.arange(1000), "sex": ["f", "m"] * 500}
    model = GradientBoosting(1.0, 1e-6, classes=["no", "yes"], population=1000, random_state=1)
    model.fit(maker.fit_transform(rows), np.where(np.arange(1000) > 100, "yes", "no"))
    said = Facts.of(Pipeline([("preprocessor", maker), ("model", model)]))
    drawn = {one.column: _drawn(said, one) for one in said.description.shapes}
    assert set(drawn) == {"gain", "sex"}
    assert sorted(drawn["sex"].cells) == ["f", "m"]
    assert drawn["gain"].edges[0] == 0
    assert drawn["gain"].edges[-1] == pytest.approx(1000)
    steps = np.diff(drawn["gain"].effects)
    assert 40 < drawn["gain"].edges[1 + int(np.argmax(steps))] < 250
    assert len(shape_figure(list(drawn.values())).axes) == 2


def test_neither_rounds_nor_depth_depend_on_what_is_bought():
    given = {"classes": [0, 1], "bounds": (-1, 1)}
    few = GradientBoosting(1.0, 1e-6, random_state=1, **given).fit(np.zeros((1, 1)), [0])
    many = GradientBoosting(1.0, 1e-6, random_state=1, **given).fit(np.zeros((20_000, 1)), np.zeros(20_000))
    assert few.rounds_ == many.rounds_
    assert few.event_ == many.event_
    assert isinstance(few.event_, events.Compose)


def test_bad_parameters_say_what_to_do():
    with pytest.raises(InvalidValue, match="bounds"):
        GradientBoosting(classes=[0, 1]).plan(2)
    with pytest.raises(InvalidValue, match="at most 255"):
        GradientBoosting(classes=[0, 1], bounds=(0, 1), bins=256).plan(2)


def test_without_noise():
    X, y = data()
    model = GradientBoosting(math.inf, classes=[0, 1], **GIVEN).fit(X, y)
    assert model.score(X, y) > 0.87


def test_saved_and_loaded(fitted, tmp_path):
    X, _ = data(100)
    tacit.save(fitted, tmp_path / "model.tacit")
    loaded = tacit.load(tmp_path / "model.tacit")
    assert (loaded.decision_function(X) == fitted.decision_function(X)).all()
    assert loaded.shape_functions_[0].columns == ("feature 0",)


def test_memory_is_bounded():
    """Codes take a byte, and residuals are computed in blocks."""
    import tracemalloc

    X = np.random.default_rng(1).uniform(-1, 1, size=(200_000, 60))
    model = GradientBoosting(1.0, 1e-6, classes=[0, 1], bounds=(-1, 1), population=200_000, rounds=2)
    y = (X[:, 0] > 0).astype(int)
    tracemalloc.start()
    model.fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.5 * X.nbytes


def test_sums_in_cells():
    codes = [np.array([0, 1, 1]), np.array([2, 0, 2])]
    found = cell_sums(codes, np.array([[1.0], [2.0], [4.0]]), [2, 3])
    assert [each.ravel().tolist() for each in found] == [[1, 6], [2, 0, 5]]
