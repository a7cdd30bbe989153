"""Adaptive Laplace noise on records: what holds, and why the published mechanism (AdLM) does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import tacit
from tacit import accounting
from tacit.errors import BudgetExceeded, InvalidValue, TacitError
from tacit.local import AdaptiveLaplace, AdaptiveLaplaceRecords
from tacit.local.adaptive import PARTS, _parts, noisy_relevance
from tacit.mechanisms import Laplace
from tacit.randomness import Source

BOUNDS = ([0, -1, 0], [1, 1, 10])
DECLARED: dict[str, Any] = {
    "epsilon": 3.0,
    "bounds": BOUNDS,
    "relevance": [4, 1, 1],
    "classes": ["no", "yes"],
}


# ----------------------------------------------------------------- what was wrong with the published one


def test_relevance_from_a_network_of_the_same_rows_moves_far_more_than_was_claimed() -> None:
    """The published sensitivity of the mean relevance is 2d/n; a single row decides it here."""
    rows, width = 100, 2

    def mean_relevance(first: np.ndarray) -> np.ndarray:
        X = np.vstack([first, np.ones((rows - 1, width))])
        y = np.append(1.0, np.tile([1.0, -1.0], rows)[: rows - 1])
        y[-1] = 0.0
        weights = y @ X  # one step of a linear network from zero: the other rows cancel
        scores = weights * X
        return np.mean(scores / np.abs(scores).sum(axis=1, keepdims=True).clip(1e-12), axis=0)

    moved = np.abs(mean_relevance(np.array([1.0, 0.0])) - mean_relevance(np.array([0.0, 1.0]))).sum()
    claimed = 2 * width / rows
    assert moved > 45 * claimed


def test_noise_that_a_batch_shares_hides_no_difference() -> None:
    random = np.random.default_rng(1)
    batch = random.uniform(size=(32, 5))
    published = batch + random.laplace(scale=2 * 5 * 32 / 0.1, size=5) / 32  # one draw for all rows
    assert np.abs(published - batch).min() > 0.5
    np.testing.assert_allclose(published[0] - published[1], batch[0] - batch[1], atol=1e-10)
    own, _ = AdaptiveLaplace(epsilon=10.0, bounds=(0, 1), features=5).randomize(batch)
    assert np.abs((own[0] - own[1]) - (batch[0] - batch[1])).max() > 1e-3


def test_noise_on_the_coefficients_of_a_loss_cancels_when_the_network_moves() -> None:
    """Σ y_i h(x_i; θ) with the same noise at two θ gives Σ y_i (h(x_i; θ) − h(x_i; θ')), and so labels."""
    random = np.random.default_rng(2)
    X, y = random.normal(size=(20, 20)), random.integers(0, 2, 20)
    noise = random.laplace(scale=1e4)

    def coefficient(step: int) -> float:
        hidden = np.tanh(X @ random_weights[step])
        return float(y @ hidden) + noise

    random_weights = random.normal(size=(21, 20))
    seen = np.array([coefficient(step) - coefficient(0) for step in range(1, 21)])
    hidden = np.tanh(X @ random_weights.T)
    found = np.linalg.solve((hidden[:, 1:] - hidden[:, :1]).T, seen)
    assert np.array_equal(found.round(), y)


def test_independent_noise_of_the_published_size_costs_many_times_the_claim() -> None:
    """Lap(2d·h/ε)/|L| on each record, |L| = 1800 and h = 32: |L|/(2h) = 28 times ε."""
    batch, hidden, width, epsilon = 1800, 32, 784, 0.1
    scale = 2 * width * hidden / epsilon / batch
    assert width / scale == pytest.approx(28.125 * epsilon)


# ----------------------------------------------------------------- what holds


def test_epsilon_is_the_sum_of_its_parts() -> None:
    event = AdaptiveLaplace(**DECLARED).event
    assert 2.99999 < accounting.epsilon(event, 0.0, relation="replace_one") <= 3.0
    bought = AdaptiveLaplaceRecords(**{**DECLARED, "relevance": lambda row: row})
    bought.fit(np.zeros((5, 3)), ["no"] * 5)
    assert len(bought.event_.events) == 3
    assert 2.99999 < accounting.epsilon(bought.event_, 0.0, relation="replace_one") <= 3.0
    assert bought.event_.events[0].scale == pytest.approx(1 / 0.3, rel=1e-9)


def test_two_worst_records_are_apart_by_what_is_paid() -> None:
    """Σ range_j/scale_j is ε2, which the log-likelihood ratio of two corners never exceeds."""
    made = AdaptiveLaplace(**DECLARED)
    apart = np.array([1.0, 2.0, 10.0])
    assert (apart / made.scales).sum() == pytest.approx(3.0 * 0.7, rel=1e-5)
    assert made.weights.sum() == pytest.approx(3.0)
    assert made.weights[0] > 3 * made.weights[1]


@pytest.mark.parametrize("factor", [2 / 3, 1.0, 3 / 2])
def test_the_scale_of_the_noise(factor: float) -> None:
    made = AdaptiveLaplace(**DECLARED, random_state=3)
    records, _ = made.randomize(np.tile([0.5, 0.0, 5.0], (20_000, 1)), ["no"] * 20_000)
    for feature, scale in enumerate(made.scales):
        found = stats.kstest(records[:, feature], "laplace", ([0.5, 0.0, 5.0][feature], scale * factor))
        assert bool(found.pvalue > 1e-6) is (factor == 1.0)


def test_labels_are_kept_as_often_as_is_paid() -> None:
    made = AdaptiveLaplace(**DECLARED, random_state=3)
    _, labels = made.randomize(np.zeros((40_000, 3)), ["yes"] * 40_000)
    kept = np.exp(0.9) / (np.exp(0.9) + 1)
    assert np.mean(labels) == pytest.approx(kept, abs=5 * np.sqrt(kept * (1 - kept) / 40_000))


def test_records_lie_on_a_grid_that_does_not_depend_on_the_record() -> None:
    """The last bits of a float tell what noise was added to; a multiple of a public step does not."""
    made = AdaptiveLaplace(epsilon=1.0, bounds=(0, 1), features=2, random_state=1)
    exponent, _ = made._noise._on_grid(2)
    for value in (0.0, 1 / 3, 1.0):
        steps = made.randomize(np.full((2000, 2), value))[0] / 2 * 2.0**-exponent
        np.testing.assert_array_equal(steps, np.rint(steps))


@pytest.mark.parametrize(
    "row",
    [
        [np.nan] * 3, [np.inf, -np.inf, 0], [1e308, -1e308, 5e-324], [None, "a", "7"], [0.5], "text", None,
        [0.5, [1, 2], {}],
    ],
    ids=str,
)  # fmt: skip
def test_odd_records_count_within_the_bounds(row: Any) -> None:
    odd = [row, [0.5, 0.0, 5.0]]
    made = AdaptiveLaplaceRecords(**DECLARED, random_state=1).fit(odd, [SystemError, "yes"])
    records, _ = AdaptiveLaplace(**{**DECLARED, "epsilon": 1e6}).randomize(odd, [row, "yes"])
    assert made.records_.shape == (2, 3)
    assert np.isfinite(made.records_).all()
    assert set(made.labels_) <= {"no", "yes"}
    assert (records >= np.array(BOUNDS[0]) - 0.01).all()
    assert (records <= np.array(BOUNDS[1]) + 0.01).all()
    np.testing.assert_allclose(records[1], [0.5, 0.0, 5.0], atol=0.01)


def test_one_record_moves_no_other() -> None:
    first, second = np.zeros((4, 3)), np.zeros((4, 3))
    second[0] = np.nan, 1e300, -5
    made = [AdaptiveLaplaceRecords(**DECLARED, random_state=7).fit(X, ["no"] * 4).records_
            for X in (first, second)]  # fmt: skip
    np.testing.assert_array_equal(made[0][1:], made[1][1:])


# ----------------------------------------------------------------- relevance that is bought


def worst(row: np.ndarray) -> Any:
    """A function that does all that a function of one row may do."""
    kind = int(row[0] * 10)
    if kind == 1:
        raise ValueError(row)
    if kind == 2:
        return [np.nan, np.inf, -1e308]
    if kind == 3:
        return "text"
    if kind == 4:
        return [1.0]
    if kind == 5:
        row[:] = 1e9  # its own copy
        return [0.0, 0.0, 0.0]
    return [1e308, 1e308, -1e308] if kind == 6 else [5e-324, 0.0, 0.0]


@pytest.mark.parametrize("kind", range(8))
def test_the_relevance_of_a_row_is_at_most_one_in_all(kind: int) -> None:
    parts = _parts(worst, np.array([kind / 10 + 0.01, 0.0, 0.0]))
    assert parts.dtype == np.int64
    assert (parts >= 0).all()
    assert parts.sum() <= PARTS
    if kind in (0, 6, 7):
        assert parts.sum() >= PARTS - 4
    else:
        assert parts.sum() == 0 or kind == 2


def test_a_replaced_row_moves_the_total_by_at_most_two() -> None:
    one, other = (_parts(lambda row: row, np.array(row)) for row in ([1.0, 0.0], [0.0, 3.0]))
    assert np.abs(one - other).sum() <= 2 * PARTS
    assert np.abs(one - other).sum() > 1.99 * PARTS


@pytest.mark.parametrize("factor", [2 / 3, 1.0, 3 / 2])
def test_the_noise_on_the_relevance(factor: float) -> None:
    rows, paid = np.ones((4, 1000)), Laplace(2.0, epsilon=0.5)
    drawn = noisy_relevance(lambda row: np.append(row[0], 0 * row[1:]), rows, paid, Source(1))[1:]
    found = stats.kstest(drawn[drawn > 0], "expon", (0.0, factor * 4.0))
    assert bool(found.pvalue > 1e-6) is (factor == 1.0)


def test_a_feature_that_matters_gets_less_noise() -> None:
    random = np.random.default_rng(1)
    X = random.uniform([0, -1, 0], [1, 1, 10], size=(500, 3))
    made = AdaptiveLaplaceRecords(
        epsilon=2.0, bounds=BOUNDS, relevance=lambda row: [0, abs(row[1]), 0.01 * row[0]], random_state=1
    ).fit(X)
    assert made.weights_[1] > 2
    assert made.scales_[1] / 2 < made.scales_[0]
    assert not hasattr(made, "labels_")


# ----------------------------------------------------------------- habits


def test_the_ledger_is_charged_first_and_refuses(tmp_path: Path) -> None:
    with tacit.Ledger.open(tmp_path / "a.db", budget=tacit.Budget(5.0), relation="replace_one") as ledger:
        model = AdaptiveLaplaceRecords(**DECLARED, ledger=ledger).fit(np.zeros((3, 3)), ["no"] * 3)
        assert ledger.spent().epsilon == pytest.approx(3.0)
        kept = model.records_
        with pytest.raises(BudgetExceeded):
            model.fit_rows(3, lambda: pytest.fail("rows were read"))
        np.testing.assert_array_equal(model.records_, kept)
    with tacit.Ledger.open(tmp_path / "b.db", budget=tacit.Budget(5.0)) as rows, pytest.raises(TacitError):
        AdaptiveLaplaceRecords(**DECLARED, ledger=rows).fit(np.zeros((3, 3)), ["no"] * 3)


def test_a_failed_fit_leaves_nothing() -> None:
    model = AdaptiveLaplaceRecords(**DECLARED).fit(np.zeros((3, 3)), ["no"] * 3)
    with pytest.raises(InvalidValue):
        model.fit_rows(3, lambda: (np.zeros((2, 4)), ["no"] * 2))
    assert not [name for name in vars(model) if name.endswith("_")]


@pytest.mark.parametrize("relevance", [[4, 1, 1], lambda row: row], ids=["given", "bought"])
def test_saving_keeps_records_and_guarantee(tmp_path: Path, relevance: Any) -> None:
    frame = pd.DataFrame({"a": [0.0, 1.0], "b": [0.5, -0.5], "c": [1.0, 9.0]})
    model = AdaptiveLaplaceRecords(**{**DECLARED, "relevance": relevance}).fit(frame, ["no", "yes"])
    tacit.save(model, tmp_path / "records.tacit")
    again = tacit.load(tmp_path / "records.tacit")
    np.testing.assert_array_equal(again.records_, model.records_)
    np.testing.assert_array_equal(again.labels_, model.labels_)
    assert again.guarantee_ == model.guarantee_
    assert "not hidden" in str(model.guarantee_)
    assert model.describe().weights[0].feature in "abc"


def test_the_bounds_of_a_preprocessor() -> None:
    schema = tacit.Schema(
        {
            "age": tacit.Column("integer", bounds=(0, 100)),
            "ill": tacit.Column("category", categories=["n", "y"]),
        }
    )
    maker = tacit.estimators.Preprocessor(schema, target="ill")
    X = maker.fit_transform(pd.DataFrame({"age": [1, 99], "ill": ["n", "y"]}))
    made = AdaptiveLaplaceRecords(4.0, classes=["n", "y"]).fit(X, ["n", "y"])
    assert made.n_features_in_ == 1


def test_bought_relevance_without_a_floor_is_refused_before_the_charge(tmp_path: Path) -> None:
    """Noise may take a feature's relevance to 0, and nothing could be released for what was paid."""
    declared: dict[str, Any] = {**DECLARED, "relevance": lambda row: row, "floor": 0.0}
    with tacit.Ledger.open(tmp_path / "c.db", budget=tacit.Budget(5.0), relation="replace_one") as ledger:
        with pytest.raises(InvalidValue, match="floor"):
            AdaptiveLaplaceRecords(**declared, ledger=ledger).fit(np.zeros((5, 3)), ["no"] * 5)
        assert not ledger.entries()
