"""The private search: who pays, what is released, and twins that do not pay for the choice."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.pipeline import make_pipeline

import tacit
from tacit import Budget, Ledger, accounting, events
from tacit._stopping import NegativeBinomial, Poisson, Stopping
from tacit.data.preprocessor import Preprocessor
from tacit.errors import BudgetExceeded, InvalidValue
from tacit.estimators import GradientBoosting, LogisticRegression, NaiveBayes, PrivateSearch, Ridge
from tacit.estimators.private import PrivateRows
from tacit.estimators.trials import drawn, held_out, stopping_of
from tacit.evaluation.rowlocal import parts_with_products
from tacit.randomness import Source
from tacit.schema import Column, Schema

DRAW = np.random.default_rng(3)
X = DRAW.uniform(-1, 1, size=(3000, 2))
Y = (np.abs(X[:, 0]) > 0.5).astype(int)
BAYES = NaiveBayes(classes=[0, 1], bounds=(-1, 1))
GRID = {"bins": [2, 16]}


@pytest.fixture(scope="module")
def fitted() -> Any:
    return PrivateSearch(BAYES, GRID, 2.0, trials=12, stopping="geometric", random_state=2).fit(X, Y)


# --------------------------------------------------------------------------- what is released


def test_it_finds_what_matters(fitted: Any) -> None:
    """Two bins cannot tell the middle from the ends."""
    assert fitted.best_params_ == {"bins": 16}
    assert fitted.best_estimator_.bins == 16
    assert fitted.best_score_ > 0.85
    assert (fitted.predict(X) == Y).mean() > 0.85
    assert fitted.predict_proba(X).shape == (3000, 2)
    assert not hasattr(fitted, "decision_function")
    assert fitted.classes_.tolist() == [0, 1]


def test_nothing_else_is_kept(fitted: Any) -> None:
    """Neither the number of trials, nor a trial that lost, nor rows are left on the search."""
    known = {"best_estimator_", "best_params_", "best_score_", "event_", "guarantee_", "n_features_in_"}
    assert {name for name in vars(fitted) if name.endswith("_")} == known
    assert {name for name in vars(fitted) if not name.endswith("_")} == set(fitted.get_params(deep=False))
    best = fitted.best_estimator_
    left = set(vars(best)) - set(best.get_params()) - set(best.released) - {"event_", "guarantee_", "_copied"}
    assert not left


def test_the_score_has_fixed_precision(fitted: Any) -> None:
    assert fitted.best_score_ * 2**20 == round(fitted.best_score_ * 2**20)


def test_the_best_estimator_carries_the_guarantee_of_the_search(fitted: Any, tmp_path: Path) -> None:
    assert fitted.best_estimator_.guarantee_ == fitted.guarantee_
    assert fitted.guarantee_.epsilon == 2.0
    assert fitted.best_estimator_.epsilon < 1.0
    assert any("grid" in each for each in fitted.guarantee_.assumptions)
    tacit.save(fitted, tmp_path / "best.tacit")
    loaded = tacit.load(tmp_path / "best.tacit")
    assert type(loaded) is NaiveBayes
    assert loaded.guarantee_ == fitted.guarantee_
    assert loaded.predict(X).tolist() == fitted.predict(X).tolist()


def test_in_a_pipeline(tmp_path: Path) -> None:
    schema = Schema({"x": Column("number", bounds=(-1, 1)), "z": Column("number", bounds=(-1, 1))})
    rows = {"x": X[:, 0], "z": X[:, 1]}
    search = PrivateSearch(NaiveBayes(classes=[0, 1]), GRID, 2.0, trials=6, random_state=1)
    model = make_pipeline(Preprocessor(schema), search).fit(rows, Y)
    tacit.save(model, tmp_path / "pipeline.tacit")
    loaded = tacit.load(tmp_path / "pipeline.tacit")
    assert loaded.predict(rows).tolist() == model.predict(rows).tolist()
    assert loaded[-1].guarantee_ == model[-1].guarantee_


def test_it_is_what_it_searches(fitted: Any) -> None:
    assert is_classifier(fitted)
    assert is_regressor(PrivateSearch(Ridge(), {}))
    assert parts_with_products(fitted) == []
    assert tacit.evaluate(fitted, X, Y, epsilon=1.0, random_state=1).accuracy > 0.8
    assert not hasattr(clone(fitted), "best_estimator_")


# --------------------------------------------------------------------------- who pays


def test_one_charge_before_any_row(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "study.db", Budget(1.0)) as ledger:
        own = BAYES.set_params(ledger=None)
        search = PrivateSearch(own, GRID, 1.0, trials=20, ledger=ledger, stopping="geometric")

        def read() -> Any:
            assert [entry.event for entry in ledger.entries()] == [search.plan(2).event]
            return X, Y, None

        search.fit_rows(2, read)
        assert len(ledger.entries()) == 1
        assert ledger.spent().epsilon <= 1.0
        ledger.verify()
        with pytest.raises(BudgetExceeded):
            search.fit(X, Y)


def test_a_ledger_of_the_estimator_alone_is_refused(tmp_path: Path) -> None:
    """It was left out without a word: ε was spent, and no ledger told of it."""
    with Ledger.open(tmp_path / "other.db", Budget(1.0)) as other:
        own = NaiveBayes(classes=[0, 1], bounds=(-1, 1), ledger=other)
        with pytest.raises(InvalidValue, match="ledger of the estimator"):
            PrivateSearch(own, GRID, 1.0, trials=3).fit(X, Y)
        assert not other.entries()
        PrivateSearch(own, GRID, 1.0, trials=3, ledger=other).fit(X, Y)
        assert len(other.entries()) == 1


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize(("stopping", "times"), [("logarithmic", 2.0), ("geometric", 3.0), (-0.5, 1.5)])
def test_a_trial_gets_its_share(stopping: Any, times: float, relation: str) -> None:
    """The search costs (2 + η) trials at δ = 0 and no more, under either relation."""
    planned = PrivateSearch(BAYES, GRID, 0.1, stopping=stopping, trials=50, relation=relation).plan(2)
    own = planned.parts[0][1]
    assert 0.1 / times * (1 - 1e-6) <= own < 1.1 * 0.1 / times
    match planned.event:
        case events.BestOf(event=events.OneOf(events=parts)):
            assert max(accounting.epsilon(part, 0.0, relation=relation) for part in parts) <= own * (1 + 1e-9)
        case other:
            raise AssertionError(other)


def test_the_costliest_candidate_counts() -> None:
    """Candidates with events of their own kinds are all in the event, and it costs what was asked for."""
    model = LogisticRegression(classes=[0, 1], norm=1.0)
    planned = PrivateSearch(model, {"noise": ["objective", "output"]}, 1.0, 1e-6, trials=5).plan(2)
    parts = planned.event.event.events  # type: ignore[attr-defined]
    assert len(parts) == 3
    for part in parts:
        alone = events.BestOf(events.OneOf((part,)), planned.event.eta, planned.event.gamma)  # type: ignore[attr-defined]
        assert accounting.epsilon(alone, 1e-6) <= 1 + 1e-6
    assert 0.99 < accounting.epsilon(planned.event, 1e-6) <= 1.0


def test_the_population_of_a_fit_is_the_part_that_is_fitted() -> None:
    model = GradientBoosting(classes=[0, 1], bounds=(-1, 1), population=3000)
    search = PrivateSearch(model, {"rounds": [2]}, 1.0, 1e-6, trials=2, test_share=0.25, random_state=1)
    assert search.fit(X, Y).best_estimator_.population == 2250
    assert model.population == 3000


def test_no_search_in_a_search_and_no_own_parameters_in_the_grid() -> None:
    for name in ("epsilon", "ledger", "classes", "random_state", "relation"):
        with pytest.raises(InvalidValue, match="grid"):
            PrivateSearch(BAYES, {name: [1]}).plan(2)
    with pytest.raises(InvalidValue, match="at most 1000"):
        PrivateSearch(BAYES, {"bins": list(range(2, 64)), "variance_floor": [0.1] * 17}).plan(2)


# --------------------------------------------------------------------------- the draws


@pytest.mark.parametrize(
    "stopping",
    [NegativeBinomial(0.0, 0.1), NegativeBinomial(1.0, 0.25), NegativeBinomial(-0.5, 0.2), Poisson(2.5)],
    ids=str,
)  # fmt: skip
def test_the_number_of_trials(stopping: Stopping) -> None:
    """Pearson's χ² of 2500 draws at a false alarm of 1e-6; the draws of a mean 1.3 times as large fail it."""
    source = Source(11)
    wrong = Poisson(stopping.mean * 1.3) if isinstance(stopping, Poisson) else dataclasses.replace(
        stopping, gamma=stopping.gamma / 1.6)  # fmt: skip
    assert statistic(stopping, [drawn(stopping, source) for _ in range(2500)]) < 60
    assert statistic(stopping, [drawn(wrong, source) for _ in range(2500)]) > 60


def statistic(stopping: Stopping, draws: list[int]) -> float:
    """χ² over the numbers that are expected ten times or more, and all others together: at most 15 cells."""
    found, total, seen, expected = Counter(draws), 0.0, 0, 0.0
    for number, chance in stopping.chances():
        mean = float(chance) * len(draws)
        if (mean < 10 and number > stopping.mean) or number > 14:
            break
        total += (found[number] - mean) ** 2 / mean
        seen, expected = seen + found[number], expected + mean
    return total + (len(draws) - seen - (len(draws) - expected)) ** 2 / (len(draws) - expected)


class Digits(Source):
    """A source of chosen bits."""

    def __init__(self, *given: int) -> None:
        super().__init__(0)
        self.given = list(given)

    def bits(self, count: int) -> int:
        return self.given.pop(0)


def test_a_draw_on_the_edge_takes_more_digits() -> None:
    """Geometric with γ = ½: U below ½ is 1, above it 2; where 128 digits leave it open, the next decide."""
    half = NegativeBinomial(1.0, 0.5)
    edge = 1 << 127
    assert drawn(half, Digits(edge - 2)) == 1
    assert drawn(half, Digits(edge + 1)) == 2
    assert drawn(half, Digits(edge - 1, (1 << 64) - 1, 0)) == 1
    assert drawn(half, Digits(edge, 0, 0, 1)) == 2


def test_stopping_has_the_mean_that_was_asked_for() -> None:
    for stopping in ("logarithmic", "geometric", "poisson", -0.5, 3.0):
        for trials in (1.0, 2.0, 100.0):
            assert stopping_of(stopping, trials).mean == pytest.approx(trials, rel=1e-9)


def test_coins_are_of_units_and_depend_on_no_other() -> None:
    rows = PrivateRows(X[:6], Y[:6], None, None, np.array(["a", "b", "a", None, "b", "c"], dtype=object))
    shares = np.mean([held_out(rows, 0.25, Source(seed)) for seed in range(400)], axis=0)
    assert np.all(np.abs(shares - 0.25) < 0.11)
    for seed in range(20):
        coins = held_out(rows, 0.5, Source(seed))
        assert coins[0] == coins[2]
        assert coins[1] == coins[4]


def test_a_row_is_fitted_or_scores() -> None:
    """Every row is in one part in all trials; weights, labels and units go with their rows."""
    seen: list[tuple[set[float], set[float]]] = []

    class Watched(PrivateSearch):
        def _trial(self, recipe: Any, fitted: PrivateRows, scored: PrivateRows, source: Source) -> Any:
            seen.append((set(fitted.matrix[:, 0]), set(scored.matrix[:, 0])))
            assert (np.abs(fitted.matrix[:, 0]) > 0.5).astype(int).tolist() == list(fitted.targets)  # type: ignore[arg-type]
            return super()._trial(recipe, fitted, scored, source)

    Watched(BAYES, GRID, 1.0, trials=20, random_state=2, stopping="geometric").fit(X, Y)
    assert len(seen) > 1
    assert all(parts == seen[0] for parts in seen)
    assert not seen[0][0] & seen[0][1]
    assert seen[0][0] | seen[0][1] == set(X[:, 0])
    assert 450 < len(seen[0][1]) < 750


def test_no_trial_releases_a_model_of_no_rows() -> None:
    """A Poisson number may be 0: what is released then is drawn as if there were no rows."""
    search = PrivateSearch(BAYES, GRID, 50.0, trials=1, stopping="poisson")
    models = [clone(search).set_params(random_state=seed) for seed in range(12)]
    with pytest.warns(tacit.errors.WeakPrivacy):
        totals = [model.fit(X, Y).best_estimator_.class_count_.sum() for model in models]
    assert 1 <= sum(abs(total) < 100 for total in totals) <= 9
    assert all(abs(total) < 100 or abs(total - 2400) < 200 for total in totals)


@pytest.mark.parametrize("eta", [1e-7, 1e-80, -1e-90, 5e-324])
def test_an_eta_whose_probabilities_cannot_be_computed_is_refused_before_the_charge(
    eta: float, tmp_path: Path
) -> None:
    """η/(γ^−η − 1) is a division by zero in the precision with which K is drawn."""
    with Ledger.open(tmp_path / "study.db", Budget(9.0)) as ledger:
        with pytest.raises(InvalidValue, match="away from 0"):
            PrivateSearch(BAYES, GRID, 1.0, trials=3, stopping=eta, ledger=ledger).fit(X, Y)
        assert not ledger.entries()
    for least in (1e-6, -1e-6):
        found = [drawn(stopping_of(least, 3), Source(seed)) for seed in range(200)]
        assert found == [drawn(stopping_of("logarithmic", 3), Source(seed)) for seed in range(200)]
