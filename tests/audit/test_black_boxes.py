"""Audits that make the runs themselves: sound mechanisms pass, broken ones and other people's are refuted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit import audit, mechanisms
from tacit.errors import InvalidValue

SURE: dict[str, Any] = {"confidence": 1 - 1e-6}


def test_a_sound_mechanism_passes_and_half_its_noise_does_not() -> None:
    pairs = (np.zeros(3), np.array([0.0, 1.0, 0.0]))
    for epsilon, refuted in ((1.0, False), (3.0, True)):
        noisy = mechanisms.Laplace(1.0, epsilon=epsilon)
        result = audit.audit_mechanism(noisy, pairs, runs=3000, delta=0.0, claimed=1.0, **SURE)
        assert result.contradicts(1.0) is refuted
        assert ("refuted" in result.verdict) is refuted


def test_the_worst_pair_is_searched() -> None:
    """The twin adds noise to counts below 10 only."""
    generator = np.random.default_rng(1)

    def twin(count: float) -> float:
        return count + (generator.laplace(scale=1.0) if count < 10 else 0.0)

    pairs = [(float(n), float(n + 1)) for n in (0, 3, 6, 12)]
    assert audit.audit_mechanism(twin, pairs, runs=2000, delta=0.0, **SURE).contradicts(4.0)
    assert not audit.audit_mechanism(twin, pairs[:2], runs=2000, delta=0.0, **SURE).contradicts(1.0)


def test_outputs_that_differ_in_spread_alone() -> None:
    generator = np.random.default_rng(2)
    result = audit.audit_mechanism(
        lambda scale: generator.normal(scale=scale), (1.0, 20.0), runs=4000, delta=1e-5, **SURE
    )
    assert result.epsilon > 1


def test_labels_are_counted_one_by_one() -> None:
    response = mechanisms.RandomizedResponse(categories=4, epsilon=2.0, random_state=3)
    result = audit.audit_mechanism(lambda label: response([label])[0], (0, 3), runs=3000, delta=0.0, **SURE)
    assert 1.2 < result.epsilon <= 2.0


def test_a_score_of_ones_own() -> None:
    noisy = mechanisms.Laplace(1.0, epsilon=1.0, random_state=4)
    result = audit.audit_mechanism(
        lambda count: {"count": float(noisy(count))}, (1.0, 0.0), score=lambda told: told["count"],
        runs=3000, delta=0.0, **SURE,
    )  # fmt: skip
    assert 0.3 < result.epsilon <= 1.0


class Mean:
    """An estimator in scikit-learn's manner that claims ε = 1 for the mean of a column in [0, 1]."""

    def __init__(self, noise: float, generator: np.random.Generator) -> None:
        self.noise, self.generator = noise, generator

    def fit(self, X: np.ndarray) -> Mean:
        self.mean_ = X.mean(axis=0) + self.generator.laplace(scale=self.noise, size=X.shape[1])
        self.n_features_in_ = X.shape[1]
        return self


@pytest.mark.parametrize(("noise", "refuted"), [(0.1, False), (0.02, True)])
def test_an_estimator_of_others(noise: float, refuted: bool) -> None:
    """Ten rows, one replaced: the mean moves by 0.1, so noise of scale 0.1 gives ε = 1."""
    generator = np.random.default_rng(5)
    pair = audit.neighbouring(np.zeros((10, 1)), None, [1.0], relation="replace_one")
    result = audit.audit_estimator(
        lambda: Mean(noise, generator), pair, runs=4000, delta=0.0, relation="replace_one", **SURE
    )
    assert result.contradicts(1.0) is refuted
    assert result.relation == "replace_one"


def test_neighbours_of_both_relations() -> None:
    X, y = np.zeros((3, 2)), np.array(["a", "b", "a"])
    more, fewer = audit.neighbouring(X, y, [1.0, 1.0], "b", relation="add_remove")
    assert (len(more[0]), len(fewer[0]), more[1].tolist()) == (4, 3, ["a", "b", "a", "b"])
    other, same = audit.neighbouring(X, y, [1.0, 1.0], "b", relation="replace_one")
    assert (len(other[0]), len(same[0]), other[1].tolist()) == (3, 3, ["a", "b", "b"])
    with pytest.raises(InvalidValue):
        audit.neighbouring(np.zeros((0, 1)), None, [1.0], relation="replace_one")


@pytest.mark.parametrize(("clipped", "refuted"), [(True, False), (False, True)])
@pytest.mark.parametrize("runs", [1, 3])
def test_a_training_run_without_clipping_is_refuted(clipped: bool, refuted: bool, runs: int) -> None:
    """One noisy step on the sum of the gradients, which point each canary's own way."""
    generator = np.random.default_rng(6)
    size = 20.0

    def train(included: np.ndarray) -> np.ndarray:
        gradients = included * (1.0 if clipped else size)
        return gradients + generator.normal(scale=2.0, size=included.size)

    result = audit.audit_training(
        train, canaries=600, rule=audit.Extremes(100, 100), method="one_run", delta=1e-9, runs=runs,
        claimed=2.0, seed=1, **SURE,
    )  # fmt: skip
    assert result.contradicts(2.0) is refuted
    assert result.hypotheses == runs


def test_what_is_refused() -> None:
    noisy = mechanisms.Laplace(1.0, epsilon=1.0)
    options: dict[str, Any] = {"runs": 40, "delta": 0.0, "confidence": 0.95}
    for neighbours in ([], 3.0, [(1.0,)], (1.0, 2.0, 3.0)):
        with pytest.raises((InvalidValue, TypeError)):
            audit.audit_mechanism(noisy, neighbours, **options)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="finite"):
        audit.audit_mechanism(lambda _: float("nan"), (0.0, 1.0), **options)
    with pytest.raises(InvalidValue, match="one shape"):
        audit.audit_mechanism(lambda n: np.zeros(np.random.default_rng().integers(1, 9)), (0, 1), **options)
    with pytest.raises(InvalidValue, match="released"):
        audit.audit_estimator(lambda: _Nothing(), ((0,), (1,)), **options)


class _Nothing:
    def fit(self, data: Any) -> _Nothing:
        return self
