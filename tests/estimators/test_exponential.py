"""Noise in the choice of weights: the range of losses, exact totals, probabilities and audits.

Seeds are fixed, and each test on a sample raises a false alarm with probability under 1e-6 over the
choice of seed.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from tacit import audit, events
from tacit.errors import InvalidValue
from tacit.estimators.linear.losses import HuberHinge, Logistic, Softmax, Squared
from tacit.estimators.linear.newton import minimise
from tacit.estimators.linear.noise.exponential import STEPS, Exponential, NoisyChoice, lattice, loss_range
from tacit.estimators.linear.noise.place import Problem
from tacit.estimators.linear.rows import ScaledRows, Space
from tacit.randomness import Source
from tacit.relations import Relation, Unit

ALARM = 1e-6
LOSSES = [Logistic(), Logistic(cap=0.6), HuberHinge(), Squared()]


def made(X, targets, intercept=False, norm=1.0):
    width = np.shape(X)[1]
    space = Space.of(np.full(width, -np.inf), np.full(width, np.inf), norm, intercept=intercept)
    return ScaledRows(np.asarray(X, float), np.asarray(targets, float), space)


def task(loss, width, epsilon=1.0, *, intercept=False, **more):
    return Problem(loss, width, epsilon, intercept=intercept, **more)


def targets(loss, rng, size):
    if isinstance(loss, Squared):
        return np.clip(rng.uniform(-2, 2, (size, 1)), -1, 1)
    signs = rng.choice([0.0, 1.0], size=(size, 1))
    return signs if isinstance(loss, Logistic) else 2 * signs - 1


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("radius", [0.3, 1.0, 1.2, 8.0])
def test_the_range_of_a_loss(loss, radius):
    """The closed form is what a search over scores and targets finds, no less and no more."""
    scores = np.linspace(-radius, radius, 2001)[:, None]
    options = {Logistic: (0.0, 1.0), HuberHinge: (-1.0, 1.0), Squared: np.linspace(-1, 1, 41)}[type(loss)]
    spans = [np.ptp(loss.value(scores, np.full_like(scores, y))) for y in options]
    assert max(spans) == pytest.approx(loss_range(loss, radius), rel=1e-6)
    assert max(spans) <= loss_range(loss, radius) * (1 + 1e-12)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("rows", [1, 5])
def test_sensitivity(loss, width, rows):
    """Over all points, one unit's steps span at most the sensitivity; some row, at the bound, nearly that."""
    rng = np.random.default_rng(1)
    unit = Unit("who", rows) if rows > 1 else Unit()
    place = NoisyChoice(task(loss, width, unit=unit), Exponential(cells=7))
    x = rng.normal(size=(300, width))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    x[: 2 * width] = np.vstack([np.eye(width), -np.eye(width)])
    y = targets(loss, rng, 300)
    y[0] = 1.0
    spans = np.array([np.ptp(place.totals(made(x[i : i + 1], y[i : i + 1]))) for i in range(300)]) * rows
    assert STEPS * 0.999 < spans.max() <= place._choose.sensitivity == STEPS + 2 * rows
    far = place.totals(made(1e9 * x[:1], y[:1]))
    assert np.ptp(far) * rows <= place._choose.sensitivity
    assert np.ptp(place.totals(made([[np.nan] * width], y[:1]))) == 0


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_totals_are_exact(loss):
    """The total of many rows is the sum of their own, to the bit, in any order and any company."""
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(157, 2)), targets(loss, rng, 157)
    place = NoisyChoice(task(loss, 3, intercept=True))
    whole = place.totals(made(x, y, True))
    assert whole.dtype == np.int64
    order = rng.permutation(157)
    assert np.array_equal(whole, place.totals(made(x[order], y[order], True)))
    alone = sum(place.totals(made(x[i : i + 1], y[i : i + 1], True)) for i in range(157))
    assert np.array_equal(whole, alone)
    block, targets_ = next(made(x, y, True).blocks())
    exact = sum(loss.value(block @ point[:, None], targets_).sum() for point in place.points[:1])
    assert whole[0] * place._step == pytest.approx(exact, abs=157 * place._step)


def few_rows(loss):
    rng = np.random.default_rng(3)
    return made(rng.normal(size=(12, 2)), targets(loss, rng, 12))


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize(
    ("relation", "rows", "factor"),
    [(Relation.ADD_REMOVE, 1, 1.0), (Relation.REPLACE_ONE, 1, 0.5), (Relation.ADD_REMOVE, 2, 0.5)],
    ids=["row", "replaced", "group"],
)
def test_points_have_the_stated_probabilities(loss, relation, rows, factor):
    unit = Unit("who", rows) if rows > 1 else Unit()
    options = {"radius": 4.0, "cells": 5}
    place = NoisyChoice(task(loss, 2, 6.0, relation=relation, unit=unit), Exponential(**options))
    data, source = few_rows(loss), Source(4)
    block, y = next(data.blocks())
    totals = np.array([loss.value(block @ point[:, None], y).sum() for point in place.points])
    drawn = np.array([place.solve(data, source)[:, 0] for _ in range(2500)])
    index = np.array([int(np.abs(place.points - d).sum(axis=1).argmin()) for d in drawn])
    assert np.array_equal(place.points[index], drawn)
    counts = np.bincount(index, minlength=len(place.points))

    def p_value(scale):
        chances = np.exp(-scale * 6.0 * factor * (totals - totals.min()) / loss_range(loss, 4.0))
        expected = chances / chances.sum() * counts.sum()
        rare = expected < 5
        pooled = [np.append(v[~rare], v[rare].sum()) for v in (counts, expected)]
        return stats.chisquare(pooled[0], pooled[1] + 1e-9, sum_check=False).pvalue

    assert p_value(1.0) > ALARM
    for scale in (2 / 3, 3 / 2):
        assert p_value(scale) < ALARM


def audited(place, inside, outside, runs, seed):
    """Each run draws anew; the totals, which are the same in all of them, are computed once."""
    source, scores = Source(seed), []
    for rows in (inside, outside):
        totals = NoisyChoice.totals(place, rows)
        place.totals = lambda _, totals=totals: totals
        scores.append([float(place.solve(rows, source)[0, 0]) for _ in range(runs)])
    guesses = audit.choose_threshold(*scores, rule=audit.Fixed(0.0), delta=0.0, confidence=1 - ALARM)
    return audit.clopper_pearson(**guesses.counts(), delta=0.0, confidence=1 - ALARM)


@pytest.mark.parametrize("relation", list(Relation))
def test_audit(relation):
    """Two points, and rows at the bound that tip the scales.

    Under ``replace_one`` the label of one row is flipped. The twin draws at 3/2 of the rate.
    """
    inside, outside = made([[1.0]] * 2, [[0.0], [1.0]]), made([[1.0]], [[0.0]])
    if relation is Relation.REPLACE_ONE:
        outside = made([[1.0]] * 2, [[0.0]] * 2)
    place = NoisyChoice(task(Logistic(), 1, 3.0, relation=relation), Exponential(cells=2, radius=1.0))
    result = audited(place, inside, outside, 2500, 5)
    assert 1.7 < result.epsilon < 3.0
    place._choose = replace(place._choose, epsilon=4.5)
    assert audited(place, inside, outside, 6000, 6).contradicts(3.0)


def test_audit_of_two_ways_without_the_factor():
    """Replacing a row moves scores both ways: to take them for monotone is caught."""
    inside, outside = made([[1.0]] * 2, [[0.0], [1.0]]), made([[1.0]] * 2, [[0.0]] * 2)
    place = NoisyChoice(
        task(Logistic(), 1, 2.0, relation=Relation.REPLACE_ONE), Exponential(cells=2, radius=1.0)
    )
    place._choose = replace(place._choose, monotone=True)
    assert audited(place, inside, outside, 3000, 7).contradicts(2.0)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_the_worst_neighbours_are_within_epsilon(loss):
    """From the exact probabilities, over many pairs: the log ratio never exceeds ε, and comes close."""
    rng = np.random.default_rng(8)
    place = NoisyChoice(task(loss, 2, 1.5), Exponential(cells=7, radius=3.0))
    rate = 1.5 / place._choose.sensitivity

    def log_chances(rows):
        weight = -rate * place.totals(rows)
        return weight - np.log(np.exp(weight - weight.max()).sum()) - weight.max()

    worst = 0.0
    for trial in range(120):
        size = int(rng.integers(0, 30))
        aim = rng.normal(size=2)
        aim /= np.linalg.norm(aim)
        y = targets(loss, rng, 1) if trial % 2 else np.array([[-1.0 if isinstance(loss, Squared) else 1.0]])
        x = rng.normal(size=(size, 2)) if trial % 3 else np.repeat(-aim[None], size, axis=0)
        labels = np.repeat(y, size, axis=0)
        one = log_chances(made(x, labels))
        more = log_chances(made(np.vstack([x, aim]), np.vstack([labels, y])))
        worst = max(worst, float(np.abs(one - more).max()))
    assert 1.2 < worst <= 1.5


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_much_epsilon_gives_the_fit_without_noise(loss):
    rng = np.random.default_rng(9)
    x = rng.uniform(-1, 1, size=(800, 1))
    noisy = x + rng.normal(size=x.shape)
    y = np.clip(0.5 * x + 0.1, -1, 1) if isinstance(loss, Squared) else (noisy > 0).astype(float)
    rows = made(x, 2 * y - 1 if isinstance(loss, HuberHinge) else y, intercept=True)
    place = NoisyChoice(task(loss, 2, 1e6, intercept=True))
    exact = minimise(loss, rows, np.full(2, 1e-3), np.zeros((2, 1)), 1e-8)
    spacing = 2 * place.radius / (place.cells - 1)
    assert np.linalg.norm(exact) < place.radius
    assert np.abs(place.solve(rows, Source(10)) - exact).max() <= 1.5 * spacing


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("size", [0, 1, 2, 30])
def test_ordinary_inputs(loss, size):
    """No rows, fewer than coordinates, one class only, rows of zeros and rows that do not count."""
    rng = np.random.default_rng(11)
    x = np.where(rng.random((size, 2)) < 0.5, 0.0, 7.0)
    x[::3] = 0.0
    x[1::3, 0] = np.nan
    place = NoisyChoice(task(loss, 3, intercept=True))
    weights = place.solve(made(x, np.repeat(targets(loss, rng, 1), size, axis=0), True), Source(12))
    assert weights.shape == (3, 1)
    assert np.linalg.norm(weights) <= place.radius * (1 + 1e-9)


def test_event_kind_and_notes():
    place = NoisyChoice(task(Logistic(), 2, 0.7))
    assert place.event == events.BoundedRange(0.7)
    assert place.kind == "exact"
    assert str(len(place.points)) in place.notes[0]


def test_the_lattice_lies_in_the_ball():
    points = lattice(2.0, 21, 2)
    assert (np.linalg.norm(points, axis=1) <= 2.0 * (1 + 1e-12)).all()
    assert len(points) == pytest.approx(math.pi * 10**2, rel=0.05)
    assert {(0.0, 0.0), (2.0, 0.0), (-2.0, 0.0)} <= set(map(tuple, points.tolist()))


@pytest.mark.parametrize(
    "options",
    [{"cell": 3}, {"cells": 1}, {"cells": 2.5}, {"radius": 0.0}, {"radius": 1e7}, {"cells": 100}],
)
def test_bad_options(options):
    with pytest.raises((InvalidValue, TypeError)):
        NoisyChoice(task(Logistic(), 3), Exponential(**options))


def test_refusals():
    with pytest.raises(InvalidValue, match="Markov chain would void the guarantee"):
        NoisyChoice(task(Logistic(), 4))
    with pytest.raises(InvalidValue, match="two classes"):
        NoisyChoice(task(HuberHinge(3), 2))
    with pytest.raises(InvalidValue, match="softmax"):
        NoisyChoice(task(Softmax(3), 1))
