"""Noise on the input: cells, sensitivity, noise and audits of the perturbed histogram.

Seeds are fixed, and each test on a sample raises a false alarm with probability under 1e-6 over the
choice of seed.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from odd_rows import odd_rows
from tacit import accounting, audit, events
from tacit.errors import InvalidValue
from tacit.estimators.linear.losses import HuberHinge, Logistic, Softmax, Squared
from tacit.estimators.linear.newton import minimise
from tacit.estimators.linear.noise import histogram
from tacit.estimators.linear.noise.histogram import Input, NoisyHistogram
from tacit.estimators.linear.noise.place import Problem
from tacit.estimators.linear.rows import ScaledRows, Space
from tacit.mechanisms import DiscreteGaussian, DiscreteLaplace
from tacit.randomness import Source
from tacit.relations import Relation, Unit

ALARM = 1e-6
LOSSES = [Logistic(), Logistic(cap=0.6), HuberHinge(), HuberHinge(3), Softmax(3), Squared()]


def made(X, targets, intercept=True, norm=None):
    width = np.shape(X)[1]
    reach = np.inf if norm else 1.0
    space = Space.of(np.full(width, -reach), np.full(width, reach), norm, intercept=intercept)
    return ScaledRows(np.asarray(X, float), np.asarray(targets, float), space)


def task(loss, width, epsilon=1.0, delta=0.0, *, intercept=True, rows=None, **more):
    return Problem(loss, width, epsilon, delta, population=rows, intercept=intercept, **more)


def targets(loss, rng, size):
    if isinstance(loss, Squared):
        return rng.uniform(-1, 1, size=(size, 1))
    numbers = rng.integers(max(loss.outputs, 2), size=size)
    if loss.outputs == 1:
        return (numbers if isinstance(loss, Logistic) else 2 * numbers - 1)[:, None].astype(float)
    one_hot = np.eye(loss.outputs)[numbers]
    return 2 * one_hot - 1 if isinstance(loss, HuberHinge) else one_hot


def counts(place, rows):
    return place._counts(rows, *histogram._box(rows.space))


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("intercept", [True, False])
def test_sensitivity(loss, intercept):
    """One row more is one count more, whatever it holds; one replaced moves two counts, or none."""
    rng = np.random.default_rng(1)
    place = NoisyHistogram(task(loss, 2 + intercept, intercept=intercept), Input(cells=5))
    x, y = rng.normal(size=(80, 2)) * rng.choice([0.1, 1, 1e9], size=(80, 1)), targets(loss, rng, 80)
    x[0], x[1], x[2] = 1.0, -1.0, [1e300, -1e300]
    every = np.array([counts(place, made(x[i : i + 1], y[i : i + 1], intercept)) for i in range(80)])
    assert (every.sum(axis=1) == 1).all()
    assert (every >= 0).all()
    assert np.array_equal(counts(place, made(x, y, intercept)), every.sum(axis=0))
    apart = np.abs(every[:, None] - every).sum(axis=2)
    assert set(np.unique(apart)) == {0, 2}
    lost = made([[np.nan, np.nan], [-np.inf, np.inf]], y[:2], intercept)
    assert not counts(place, lost).any()
    assert place.total == every.shape[1] == 25 * (5 if isinstance(loss, Squared) else max(loss.outputs, 2))


@pytest.mark.parametrize(
    ("relation", "rows", "delta", "expected"),
    [
        (Relation.ADD_REMOVE, 1, 0.0, DiscreteLaplace(1, 1.0)),
        (Relation.REPLACE_ONE, 1, 0.0, DiscreteLaplace(2, 1.0)),
        (Relation.ADD_REMOVE, 3, 0.0, DiscreteLaplace(3, 1.0)),
        (Relation.REPLACE_ONE, 3, 1e-6, DiscreteLaplace(6, 1.0)),
        (Relation.REPLACE_ONE, 3, 0.2, DiscreteGaussian(3 * math.sqrt(2), epsilon=1.0, delta=0.2)),
    ],
    ids=["row", "replaced", "group", "groups", "gaussian"],
)
def test_noise_has_the_stated_scale(relation, rows, delta, expected, monkeypatch):
    unit = Unit("who", rows) if rows > 1 else Unit()
    place = NoisyHistogram(task(Logistic(), 2, 1.0, delta, relation=relation, unit=unit), Input(cells=400))
    assert type(place.event) is type(expected.event)
    assert 0.99 < accounting.epsilon(place.event, delta, relation=relation) <= 1.0
    seen = []
    monkeypatch.setattr(histogram, "without_negatives", lambda noisy: seen.append(noisy) or noisy * 0)
    source = Source(2)
    for _ in range(10):
        place.solve(made(np.zeros((0, 1)), np.zeros((0, 1))), source)
    noise = np.concatenate(seen)
    spread = float(np.square(noise).mean()) ** 0.5
    fourth = 3 + 3 * isinstance(expected, DiscreteLaplace) + 1
    allowed = 5 * math.sqrt(fourth / noise.size) / 2
    assert abs(spread / place.spread - 1) < allowed
    for factor in (2 / 3, 3 / 2):
        assert abs(spread / (factor * place.spread) - 1) > allowed
    if isinstance(expected, DiscreteGaussian):
        assert place.spread == pytest.approx(expected.sensitivity / math.sqrt(2 * expected.event.rho))
    else:
        assert place.spread == pytest.approx(math.sqrt(2) * expected.sensitivity, rel=0.05)


def noisy_counts(place, rows, runs, seed, monkeypatch):
    """Everything that is released, before it is post-processed."""
    seen = []
    with monkeypatch.context() as patch:
        patch.setattr(histogram, "without_negatives", lambda noisy: seen.append(noisy.copy()) or noisy * 0)
        patch.setattr(histogram, "minimum", lambda *_: np.zeros((1, 1)))
        source = Source(seed)
        for _ in range(runs):
            place.solve(rows, source)
    return np.array(seen)


def audited(place, inside, outside, score, runs, seed, monkeypatch):
    sides = ((inside, seed), (outside, seed + 1))
    scores = [score(noisy_counts(place, rows, runs, stream, monkeypatch)) for rows, stream in sides]
    guesses = audit.choose_threshold(*scores, rule=audit.Split(seed=1), delta=0.0, confidence=1 - ALARM)
    return audit.clopper_pearson(**guesses.counts(), delta=0.0, confidence=1 - ALARM)


FEW = [[-0.2]] * 3
OUTLIER = made([*FEW, [1e9]], [[0.0]] * 3 + [[1.0]]), made(FEW, [[0.0]] * 3)
FLIPPED = made([*FEW, [1e9]], [[0.0]] * 3 + [[1.0]]), made([*FEW, [1e9]], [[0.0]] * 4)


@pytest.mark.parametrize(
    ("pair", "relation", "score"),
    [
        (OUTLIER, Relation.ADD_REMOVE, lambda c: c[:, 3]),
        (FLIPPED, Relation.REPLACE_ONE, lambda c: np.clip(c[:, 3], 0, 1) - np.clip(c[:, 1], 0, 1)),
    ],
    ids=["outlier", "flipped"],
)
def test_audit(pair, relation, score, monkeypatch):
    place = NoisyHistogram(task(Logistic(), 2, 2.0, relation=relation), Input(cells=2))
    result = audited(place, *pair, score, 4000, 3, monkeypatch)
    assert 1.2 < result.epsilon < 2.0
    monkeypatch.setattr(place, "_mechanism", replace(place._mechanism, epsilon=3.0))
    assert audited(place, *pair, score, 4000, 5, monkeypatch).contradicts(2.0)


@pytest.mark.audit
def test_audit_of_the_weights():
    """The same neighbours, seen through the fit alone: less is learnt, and nothing is refuted."""
    place = NoisyHistogram(task(Logistic(), 2, 2.0), Input(cells=2))
    source = Source(7)
    scores = [[float(place.solve(rows, source)[0, 0]) for _ in range(1500)] for rows in OUTLIER]
    guesses = audit.choose_threshold(*scores, rule=audit.Split(seed=1), delta=0.0, confidence=1 - ALARM)
    result = audit.clopper_pearson(**guesses.counts(), delta=0.0, confidence=1 - ALARM)
    assert 0.0 < result.epsilon < 2.0


def data_for(loss, rng, size):
    x = rng.uniform(-1, 1, size=(size, 2))
    if isinstance(loss, Squared):
        return x, np.clip(x @ [[0.5], [-0.2]] + 0.1, -1, 1)
    if loss.outputs > 1:
        cell = np.argmax(np.column_stack([3 * x, np.zeros(size)]) + rng.gumbel(size=(size, 3)), axis=1)
        one_hot = np.eye(3)[cell]
        return x, 2 * one_hot - 1 if isinstance(loss, HuberHinge) else one_hot
    one = (rng.random((size, 1)) < 1 / (1 + np.exp(-4 * x[:, :1]))).astype(float)
    return x, one if isinstance(loss, Logistic) else 2 * one - 1


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("norm", [None, 1.5])
def test_much_epsilon_gives_the_fit_without_noise(loss, norm):
    rows = made(*data_for(loss, np.random.default_rng(8), 3000), norm=norm)
    place = NoisyHistogram(task(loss, 3, 1e4, penalty=1.0), Input(cells=40))
    exact = minimise(loss, rows, np.full(3, 1.0), np.zeros((3, loss.outputs)), 1e-8)
    found = place.solve(rows, Source(9))
    assert np.linalg.norm(found - exact) < 0.03 * np.linalg.norm(exact)


@pytest.mark.parametrize("loss", [Logistic(), Squared()], ids=repr)
def test_a_usual_epsilon_on_the_default_grid(loss):
    """Little is lost in the mean loss on ten thousand rows; most of what can be won is won."""
    rows = made(*data_for(loss, np.random.default_rng(10), 10_000))
    place = NoisyHistogram(task(loss, 3, 1.0, rows=10_000))
    x, y = next(rows.blocks())
    exact = minimise(loss, rows, np.full(3, 1e-3), np.zeros((3, 1)), 1e-6)
    best, none = (loss.value(x @ theta, y).mean() for theta in (exact, np.zeros((3, 1))))
    for seed in range(3):
        mine = loss.value(x @ place.solve(rows, Source(seed)), y).mean()
        assert mine - best < 0.02 * (none - best)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("size", [0, 1, 2, 30])
@pytest.mark.parametrize("intercept", [True, False])
def test_ordinary_inputs(loss, size, intercept):
    """No rows, fewer than coordinates, one class only, rows of zeros and rows that do not count."""
    rng = np.random.default_rng(11)
    x = odd_rows(rng, size, 3)
    y = np.repeat(targets(loss, rng, 1), size, axis=0)
    place = NoisyHistogram(task(loss, 3 + intercept, 0.5, intercept=intercept))
    for seed in range(4):
        weights = place.solve(made(x, y, intercept), Source(seed))
        assert weights.shape == (3 + intercept, loss.outputs)
        assert np.isfinite(weights).all()


def test_counts_without_negatives():
    rng = np.random.default_rng(12)
    for _ in range(50):
        noisy = rng.normal(size=30) * 5 + rng.choice([0, 3], size=30)
        kept = histogram.without_negatives(noisy)
        assert (kept >= 0).all()
        assert kept.sum() == pytest.approx(max(noisy.sum(), 0.0), abs=1e-9)
        other = rng.dirichlet(np.full(30, 0.1), size=200) * max(noisy.sum(), 0.0)
        assert (np.square(other - noisy).sum(axis=1) >= np.square(kept - noisy).sum() - 1e-9).all()


def test_centres_are_where_rows_are_counted():
    """A row at the centre of a cell is counted there, for every cell and every kind of target."""
    for loss in LOSSES:
        place = NoisyHistogram(task(loss, 3), Input(cells=4))
        space = made(np.zeros((1, 2)), np.zeros((1, loss.outputs))).space
        box = histogram._box(space)
        x, y = place._centres(np.arange(place.total), *box, space.intercept / space.radius)
        rows = made(x[:, :2] * space.radius, y)
        assert np.array_equal(counts(place, rows), np.ones(place.total, dtype=int))


def test_kind_and_notes():
    place = NoisyHistogram(task(Logistic(), 3))
    assert place.kind == "exact"
    assert isinstance(place.event, events.Pure)
    assert str(place.total) in place.notes[0]


@pytest.mark.parametrize("options", [{"cell": 3}, {"cells": 0}, {"cells": 2.5}, {"cells": "many"}])
def test_bad_options(options):
    with pytest.raises((InvalidValue, TypeError)):
        NoisyHistogram(task(Logistic(), 2), Input(**options))


def test_too_many_cells():
    with pytest.raises(InvalidValue, match=r"2\^20.*objective"):
        NoisyHistogram(task(Logistic(), 31))
    with pytest.raises(InvalidValue, match=r"2\^20"):
        NoisyHistogram(task(Logistic(), 4), Input(cells=100))
    for epsilon in (1e-3, 1.0, 1e3):
        for features in range(1, 15):
            assert NoisyHistogram(task(Logistic(), features + 1, epsilon, rows=10**6)).total <= 2**16


def test_the_grid_grows_with_what_is_known():
    sizes = [NoisyHistogram(task(Logistic(), 2, epsilon, rows=n)).cells for epsilon, n in
             [(0.1, 1000), (1.0, 1000), (1.0, 100_000)]]  # fmt: skip
    assert sizes == sorted(set(sizes))
    assert stats.kendalltau(sizes, [1, 2, 3]).statistic == 1.0
