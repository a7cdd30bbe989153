"""Membership attacks: on simulated signals with known answers, and on real models."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import roc_auc_score

import tacit
from calls import calls
from tacit import attacks, datasets
from tacit.errors import InvalidValue
from tacit.estimators import LogisticRegression, Preprocessor


def simulated(apart: float, examples: int = 3000, models: int = 32, seed: int = 1) -> tuple[Any, ...]:
    """Signals that are normal around a mean of each example's own, ``apart`` higher where it is in."""
    generator = np.random.default_rng(seed)
    middle = generator.normal(scale=3.0, size=examples)
    inside = np.zeros((models, examples), dtype=bool)
    for column in inside.T:
        column[generator.permutation(models)[: models // 2]] = True
    shadows = generator.normal(size=inside.shape) + middle + apart * inside
    member = generator.random(examples) < 0.5
    target = generator.normal(size=examples) + middle + apart * member
    return target, shadows, inside, member


@pytest.mark.parametrize("variance", ["each", "fixed"])
@pytest.mark.parametrize("mode", ["online", "offline"])
def test_lira_reaches_what_theory_allows(variance: str, mode: str) -> None:
    """Two normal distributions 2 apart: the best AUROC is Φ(2/√2)."""
    target, shadows, inside, member = simulated(2.0)
    scores = attacks.lira(target, shadows, inside, variance=variance, mode=mode)
    found = attacks.MembershipScores(scores, member)
    assert norm.cdf(2 / math.sqrt(2)) - 0.06 < found.auroc < norm.cdf(2 / math.sqrt(2)) + 0.02
    alone = attacks.MembershipScores(target, member)
    assert alone.auroc < 0.75  # the signal alone says little, since examples differ by more


def test_lira_finds_nothing_where_there_is_nothing() -> None:
    target, shadows, inside, member = simulated(0.0)
    found = attacks.MembershipScores(attacks.lira(target, shadows, inside, variance="fixed"), member)
    assert abs(found.auroc - 0.5) < 0.05


def test_lira_takes_as_many_calls_for_many_examples_as_for_few() -> None:
    """It computes with arrays, so that 64 shadow models and 50,000 examples take a fraction of a second."""
    few, many = (simulated(1.0, examples=examples, models=64)[:3] for examples in (500, 5_000))
    assert calls(attacks.lira, *many, variance="each") == calls(attacks.lira, *few, variance="each")


@pytest.mark.parametrize("mode", ["online", "offline"])
def test_rmia_beats_the_signal_alone(mode: str) -> None:
    target, shadows, inside, member = simulated(2.0)
    others, their, _, _ = simulated(0.0, seed=2)
    probability = norm.cdf
    scores = attacks.rmia(
        probability(target / 3), probability(shadows / 3), inside,
        population=probability(others / 3), population_shadows=probability(their / 3), mode=mode,
    )  # fmt: skip
    found = attacks.MembershipScores(scores, member).auroc
    assert found > attacks.MembershipScores(target, member).auroc + 0.05
    assert 0 <= scores.min() <= scores.max() <= 1


def test_the_curve_agrees_with_scikit_learn() -> None:
    generator = np.random.default_rng(3)
    member = generator.random(500) < 0.3
    scores = np.round(generator.normal(size=500) + member, 1)  # with ties
    found = attacks.MembershipScores(scores, member)
    assert found.auroc == pytest.approx(roc_auc_score(member, scores))
    false, hits = found.roc
    assert np.trapezoid(hits, false) == pytest.approx(found.auroc)
    for allowed in (0.0, 0.01, 0.1, 1.0):
        at = found.found(allowed)
        assert at.false_alarms <= allowed * at.others + 1e-9
        assert at.low <= at.rate <= at.high
        for values, compared in ((found.untied, operator.eq), (scores, operator.ge)):
            most = max(
                (values[member] >= t).sum()
                for t in [*np.unique(values), math.inf]
                if (values[~member] >= t).mean() <= allowed
            )
            assert compared(at.members_found, most)
    assert (np.diff(scores[np.argsort(found.untied)]) >= 0).all()


def test_shadow_attack_learns_what_members_look_like() -> None:
    generator = np.random.default_rng(4)

    def predictions(member: np.ndarray, labels: np.ndarray) -> np.ndarray:
        sure = np.where(member, generator.beta(9, 1, member.size), generator.beta(4, 3, member.size))
        table = np.repeat(((1 - sure) / 2)[:, None], 3, axis=1)
        table[np.arange(labels.size), labels] = sure
        return table

    labels, inside = generator.integers(0, 3, 3000), generator.random(3000) < 0.5
    own, member = generator.integers(0, 3, 600), generator.random(600) < 0.5
    scores = attacks.shadow_attack(predictions(member, own), own, predictions(inside, labels), labels, inside)
    assert attacks.MembershipScores(scores, member).auroc > 0.85
    everybody = np.ones(3000, dtype=bool)
    nobody = attacks.shadow_attack(
        predictions(member, own), own, predictions(everybody, labels), labels, everybody
    )
    assert (nobody == 1.0).all()  # every shadow row is a member: nothing can be learnt


@pytest.fixture(scope="module")
def adult() -> tuple[Any, Any, Any]:
    """A thousand rows of Adult, half of which are members."""
    files = datasets.adult()
    rows = pd.read_csv(files.train, nrows=1000)
    maker = Preprocessor(tacit.Schema.load(files.schema), target="income")
    return np.asarray(maker.fit_transform(rows)), np.asarray(maker.target_values(rows)), maker


def attacked(make: Any, adult: tuple[Any, Any, Any], shadows: int = 16) -> attacks.MembershipScores:
    """LiRA with shadow models against a model of half of the rows."""
    X, y, maker = adult
    places = (y == maker.classes[1]).astype(int)

    def seen(model: Any) -> np.ndarray:
        return attacks.signal(model.predict_proba(X), places)

    member = np.zeros(len(X), dtype=bool)
    member[np.random.default_rng(5).permutation(len(X))[: len(X) // 2]] = True
    signals, inside = attacks.train_shadows(
        lambda rows: make().fit(X[rows], y[rows]), seen, examples=len(X), models=shadows, seed=6
    )
    target = seen(make().fit(X[member], y[member]))
    return attacks.MembershipScores(attacks.lira(target, signals, inside, variance="fixed"), member)


def test_an_overfitted_model_gives_its_members_away(adult: tuple[Any, Any, Any]) -> None:
    """At least ten times the false alarms, at 1 % of them."""
    found = attacked(lambda: RandomForestClassifier(30, bootstrap=False, random_state=0), adult).found(0.01)
    assert found.rate >= 10 * 0.01
    assert found.low > 0.05


def test_a_private_model_does_not(adult: tuple[Any, Any, Any]) -> None:
    _, _, maker = adult
    make = lambda: LogisticRegression(1.0, classes=maker.classes, norm=1.0)  # noqa: E731
    scores = attacked(make, adult, shadows=8)
    assert scores.found(0.01, confidence=1 - 1e-6).low <= math.e * 0.01
    assert abs(scores.auroc - 0.5) < 0.16  # six deviations of chance, at 500 a side


@pytest.mark.parametrize(
    "call",
    [
        lambda: attacks.signal([[math.nan, 0.5]]),
        lambda: attacks.signal([[0.5, 0.5]], [2]),
        lambda: attacks.signal([[0.5, 0.5]], [0.5]),
        lambda: attacks.lira([1.0], [[1.0], [2.0]], [[True], [True]], variance="each"),
        lambda: attacks.lira([1.0], [[1.0], [2.0]], [[1], [0]], variance="each"),
        lambda: attacks.lira([1.0], [[1.0], [2.0]], [[True], [False]], variance="some"),
        lambda: attacks.signal([[2.0, -1.0]], [0]),
        lambda: attacks.signal([[0.2, 0.2]]),
        lambda: attacks.lira([1.0], [[1.0], [2.0]], [[True], [False]], variance="each"),
        lambda: attacks.rmia(
            [2.0], [[0.5]], [[False]], population=[0.5], population_shadows=[[0.5]], mode="offline"
        ),
        lambda: attacks.shadow_attack([[0.5, 0.5]], ["a"], [[0.5, 0.5]], [0], [True]),
        lambda: attacks.train_shadows(list, list, examples=4, models=3, seed=0),
        lambda: attacks.MembershipScores(np.ones(3), np.ones(3, dtype=bool)),
        lambda: attacks.MembershipScores(np.array([1.0, math.nan]), np.array([True, False])),
        lambda: attacks.loss_threshold(["a"]),
    ],
)
def test_what_is_refused(call: Any) -> None:
    with pytest.raises(InvalidValue):
        call()
