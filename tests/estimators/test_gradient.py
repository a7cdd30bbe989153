"""Noise in the updates: sensitivity, noise, event and audits of gradient descent.

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
from tacit.estimators.linear.noise import gradient
from tacit.estimators.linear.noise.gradient import Gradient, NoisyGradients, clipped_sum
from tacit.estimators.linear.noise.place import Problem
from tacit.estimators.linear.rows import ScaledRows, Space
from tacit.mechanisms import Gaussian, Norm
from tacit.randomness import Source
from tacit.relations import Relation, Unit

ALARM = 1e-6
LOSSES = [Logistic(), Logistic(cap=0.6), HuberHinge(), HuberHinge(3), Softmax(3), Squared()]


def made(X, targets, norm=1.0, intercept=False):
    width = np.shape(X)[1]
    space = Space.of(np.full(width, -np.inf), np.full(width, np.inf), norm, intercept=intercept)
    return ScaledRows(np.asarray(X, float), np.asarray(targets, float), space)


def task(loss, width, epsilon=1.0, delta=1e-6, *, intercept=False, rows=100, **more):
    return Problem(loss, width, epsilon, delta, population=rows, intercept=intercept, **more)


def targets(loss, rng, size):
    if isinstance(loss, Squared):
        return rng.choice([-1.0, 1.0, 0.3], size=(size, 1))
    if isinstance(loss, Softmax):
        return np.eye(loss.outputs)[rng.integers(loss.outputs, size=size)]
    signs = rng.choice([0.0, 1.0], size=(size, loss.outputs))
    return signs if isinstance(loss, Logistic) else 2 * signs - 1


def unit_rows(rng, size, width):
    x = rng.normal(size=(size, width))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("clip_norm", [None, 0.4])
def test_sensitivity(loss, clip_norm):
    """No row moves the sum by more than the clip norm; some, at the bound and badly wrong, do by as much."""
    options = {} if clip_norm is None else {"clip_norm": clip_norm}
    place = NoisyGradients(task(loss, 4), Gradient(**options))
    assert place.sensitivity == place.clip_norm
    rng = np.random.default_rng(1)
    moved, other_way = [], []
    for scale in (0.1, 3.0, 100.0):
        weights = rng.normal(size=(4, loss.outputs)) * scale
        x, y = unit_rows(rng, 400, 4), targets(loss, rng, 400)
        every = [clipped_sum(loss, weights, x[i : i + 1], y[i : i + 1], place.clip_norm) for i in range(400)]
        moved += [np.linalg.norm(one) for one in every]
        other_way += [np.linalg.norm(a - b) for a in every[:60] for b in every[:60]]
        whole = clipped_sum(loss, weights, x, y, place.clip_norm)
        assert np.allclose(whole, sum(every), atol=1e-9)
    assert 0.99 * place.clip_norm < max(moved) <= place.clip_norm * (1 + 1e-12)
    assert max(other_way) <= 2 * place.clip_norm * (1 + 1e-12)
    replaced = NoisyGradients(task(loss, 4, relation=Relation.REPLACE_ONE), Gradient(**options))
    assert replaced.sensitivity == 2 * place.clip_norm
    assert max(other_way) > 1.7 * place.clip_norm or isinstance(loss, Softmax)
    group = NoisyGradients(task(loss, 4, unit=Unit("who", 3)), Gradient(**options))
    assert group.sensitivity == 3 * place.clip_norm


def nothing(width, outputs=1):
    return made(np.full((5, width), np.nan), np.zeros((5, outputs)))


BARE = {"steps": 1, "momentum": 0.0, "learning_rate": 1.0}


def noise_of(place, width, runs, seed, rows=None):
    source = Source(seed)
    data = nothing(width) if rows is None else rows
    return np.array([place.solve(data, source)[:, 0] for _ in range(runs)])


@pytest.mark.parametrize(
    ("relation", "unit"),
    [(Relation.ADD_REMOVE, Unit()), (Relation.REPLACE_ONE, Unit()), (Relation.ADD_REMOVE, Unit("who", 3))],
    ids=["row", "replaced", "group"],
)
@pytest.mark.parametrize("steps", [1, 4])
def test_gaussian_noise_has_the_stated_scale(relation, unit, steps):
    options = {**BARE, "steps": steps, "average": False}
    place = NoisyGradients(task(Logistic(), 40, rows=1, relation=relation, unit=unit), Gradient(**options))
    noise = noise_of(place, 40, 100, 3).ravel()
    multiplier = place.event.event.noise_multiplier
    moved = unit.rows * (2 if relation is Relation.REPLACE_ONE else 1)
    stated = multiplier * moved * math.sqrt(steps)
    assert stats.kstest(noise, stats.norm(scale=stated).cdf).pvalue > ALARM
    for factor in (2 / 3, 3 / 2):
        assert stats.kstest(noise, stats.norm(scale=factor * stated).cdf).pvalue < ALARM


def test_sampled_noise_is_divided_by_the_expected_number_of_rows():
    options = {**BARE, "sampling_rate": 0.1, "steps": 1}
    place = NoisyGradients(task(Logistic(), 40, rows=50), Gradient(**options))
    stated = place.event.event.event.noise_multiplier / 5
    noise = noise_of(place, 40, 100, 4).ravel()
    assert stats.kstest(noise, stats.norm(scale=stated).cdf).pvalue > ALARM
    for factor in (2 / 3, 3 / 2):
        assert stats.kstest(noise, stats.norm(scale=factor * stated).cdf).pvalue < ALARM


def test_pure_noise_has_a_gamma_radius():
    place = NoisyGradients(task(Logistic(), 3, 0.5, 0.0, rows=1), Gradient(**BARE))
    radius = np.linalg.norm(noise_of(place, 3, 2000, 5), axis=1)
    assert stats.kstest(radius, stats.gamma(3, scale=2.0).cdf).pvalue > ALARM
    for factor in (2 / 3, 3 / 2):
        assert stats.kstest(radius, stats.gamma(3, scale=2.0 * factor).cdf).pvalue < ALARM


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("rate", [1.0, 0.2])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 7.0])
def test_the_event_spends_what_was_asked_for(relation, delta, rate, epsilon):
    if delta == 0 and rate < 1:
        return
    options = {"steps": 7, "sampling_rate": rate}
    place = NoisyGradients(task(Logistic(), 3, epsilon, delta, relation=relation), Gradient(**options))
    spent = accounting.epsilon(place.event, delta, relation=relation)
    assert epsilon * 0.999 < spent <= epsilon
    assert place.event.times == 7
    assert isinstance(place.event.event, events.PoissonSampled) == (rate < 1)
    assert place.kind == "float64"


def test_each_row_is_sampled_by_its_own_coin_anew_in_every_step():
    """One row of gradient 1 at the start, no noise to speak of: the weight is the number of heads."""
    options = {**BARE, "steps": 4, "sampling_rate": 0.25, "learning_rate": 1e-6, "average": False}
    place = NoisyGradients(task(Squared(), 1, 10.0, 0.5, rows=4), Gradient(**options))
    place._mechanism = Gaussian(1.0, noise_multiplier=1e-8)
    rows, source = made([[1.0]], [[1.0]]), Source(6)
    heads = np.array([place.solve(rows, source)[0, 0] for _ in range(1500)]) / 1e-6
    assert np.allclose(heads, np.rint(heads), atol=1e-4)
    counts = np.bincount(np.rint(heads).astype(int), minlength=5)
    assert stats.chisquare(counts, stats.binom(4, 0.25).pmf(np.arange(5)) * 1500).pvalue > ALARM


def audited(place, inside, outside, score, runs, seed, kind, rule=None):
    source = Source(seed)
    rule = audit.Split(seed=1) if rule is None else rule
    scores = [np.array([score(place.solve(r, source)) for _ in range(runs)]) for r in (inside, outside)]
    delta = place.problem.delta
    guesses = audit.choose_threshold(*scores, rule=rule, delta=delta, confidence=1 - ALARM)
    return kind(**guesses.counts(), delta=delta, confidence=1 - ALARM)


def first(weights):
    return float(weights[0, 0])


OUTLIER = made([[1.0]], [[1.0]]), made([[np.nan]], [[1.0]])
FLIPPED = made([[1.0]], [[1.0]]), made([[1.0]], [[0.0]])


@pytest.mark.parametrize(
    ("pair", "relation", "middle"),
    [(OUTLIER, Relation.ADD_REMOVE, 5e-4), (FLIPPED, Relation.REPLACE_ONE, 0.0)],
    ids=["outlier", "flipped"],
)
def test_audit_gaussian(pair, relation, middle, monkeypatch):
    """At the start the slope of either label is ±1/2: a clip norm of 1/2 is met in full, in both steps."""
    options = {**BARE, "steps": 2, "clip_norm": 0.5, "learning_rate": 1e-3}
    place = NoisyGradients(task(Logistic(), 1, 4.0, 1e-5, rows=1, relation=relation), Gradient(**options))
    rule = audit.Fixed(middle)
    result = audited(place, *pair, first, 2000, 7, audit.gaussian, rule)
    assert 2.0 < result.epsilon < 4.0
    less = Gaussian(place.sensitivity * 2 / 3, noise_multiplier=place._mechanism.event.noise_multiplier)
    monkeypatch.setattr(place, "_mechanism", less)
    assert audited(place, *pair, first, 2000, 8, audit.gaussian, rule).contradicts(4.0)


def test_individual_rows_add_what_they_can_pay_for():
    """The squared norms of what each row adds stay within its budget, whatever its gradients are."""
    rng = np.random.default_rng(4)
    x, y = unit_rows(rng, 60, 3) * rng.uniform(0, 1, (60, 1)), rng.choice([0.0, 1.0], (60, 1))
    for counted in (1.0, rng.uniform(0, 1, (60, 1))):
        spent, added = gradient.Spent(Logistic(), 0.5, 2), np.zeros(60)
        for _ in range(40):
            weights = rng.normal(size=(3, 1)) * 3
            able = spent.pay(0, weights, x, y, counted)
            slope = Logistic().slope(x @ weights, y)
            norms = np.minimum(np.linalg.norm(x, axis=1) * np.abs(slope[:, 0]), 0.5) * np.reshape(counted, -1)
            added += np.square(norms * able[:, 0])
        assert added.max() <= 2 * 0.5**2
        assert added.max() > 1.9 * 0.5**2
        assert (added < 0.1).any()


def test_rounding_does_not_decide_which_rows_leave():
    """How a product of matrices rounds a row depends on the other rows, so a row must not leave by it."""
    x = np.linspace(1 - 4e-16, 1 + 4e-16, 9)[:, None] * math.sqrt(0.4 / (1 + 1e-9)) * np.eye(3)[:1]
    y, spent = np.ones((9, 1)), gradient.Spent(Logistic(), 0.5, 2)
    factors = np.array([spent.pay(0, np.zeros((3, 1)), x, y, 1.0)[:, 0] for _ in range(12)])
    assert (np.ptp(factors, axis=1) < 1e-12).all()
    assert (factors[:4] == 1).all()
    assert (factors[-1] < 1e-3).all()
    assert np.square(factors * 0.5 * x[:, 0]).sum(axis=0).max() <= 2 * 0.5**2


def test_individual_rows_are_one_release():
    place = NoisyGradients(task(Logistic(), 4), Gradient(steps=40, participations=10))
    plain = NoisyGradients(task(Logistic(), 4), Gradient(steps=10))
    assert isinstance(place.event, events.Gaussian)
    assert accounting.epsilon(place.event, 1e-6) <= 1.0
    assert accounting.epsilon(place.event, 1e-6) == pytest.approx(1.0, rel=1e-5)
    assert place._mechanism.event.noise_multiplier == plain._mechanism.event.noise_multiplier
    for options in ({"sampling_rate": 0.5}, {"participations": 0}):
        with pytest.raises(InvalidValue, match="participations"):
            NoisyGradients(task(Logistic(), 4), Gradient(**{"participations": 3, **options}))
    with pytest.raises(InvalidValue, match="δ = 0"):
        NoisyGradients(task(Logistic(), 4, delta=0.0), Gradient(participations=3))


def test_audit_individual(monkeypatch):
    """A twin in which a row leaves one step late is caught."""
    options = {**BARE, "steps": 2, "clip_norm": 0.5, "learning_rate": 1e-3, "participations": 1}
    place = NoisyGradients(task(Logistic(), 1, 4.0, 1e-5, rows=1), Gradient(**options))
    result = audited(place, *OUTLIER, first, 3000, 7, audit.gaussian, audit.Fixed(2.5e-4))
    assert 1.0 < result.epsilon < 4.0
    sound = gradient.Spent.__init__
    late_by_one = lambda self, *facts: sound(self, *facts[:2], facts[2] + 1)  # noqa: E731
    monkeypatch.setattr(gradient.Spent, "__init__", late_by_one)
    late = audited(place, *OUTLIER, first, 3000, 8, audit.gaussian, audit.Fixed(5e-4))
    assert late.contradicts(4.0)


def test_audit_pure(monkeypatch):
    options = {**BARE, "clip_norm": 0.5}
    place = NoisyGradients(task(Logistic(), 1, 2.0, 0.0, rows=1), Gradient(**options))
    result = audited(place, *OUTLIER, first, 6000, 9, audit.clopper_pearson)
    assert 1.5 < result.epsilon < 2.0
    monkeypatch.setattr(place, "_mechanism", replace(place._mechanism, sensitivity=place.sensitivity * 2 / 3))
    assert isinstance(place._mechanism, Norm)
    assert audited(place, *OUTLIER, first, 6000, 10, audit.clopper_pearson).contradicts(2.0)


def test_audit_sampled(monkeypatch):
    """A twin that takes every row, with the noise of a sample, is caught."""
    options = {**BARE, "clip_norm": 0.5, "sampling_rate": 0.1, "steps": 2, "learning_rate": 1e-3}
    place = NoisyGradients(task(Logistic(), 1, 1.0, 1e-3, rows=1), Gradient(**options))
    result = audited(place, *OUTLIER, first, 1200, 11, audit.clopper_pearson)
    assert not result.contradicts(1.0)
    monkeypatch.setattr(gradient, "bernoulli", lambda source, p, size: np.ones(size, dtype=bool))
    assert audited(place, *OUTLIER, first, 1200, 12, audit.clopper_pearson).contradicts(1.0)


def test_audit_without_clipping(monkeypatch):
    """Squared loss has no bound of its own: without the clip, weights far off give the row away."""
    place = NoisyGradients(task(Squared(), 1, 1.0, 1e-3, rows=1), Gradient(steps=6, learning_rate=0.5))
    assert not audited(place, *OUTLIER, first, 300, 13, audit.clopper_pearson).contradicts(1.0)
    monkeypatch.setattr(
        gradient, "clipped_sum", lambda loss, w, x, y, clip_norm, _: 50 * x.T @ loss.slope(x @ w, y)
    )
    assert audited(place, *OUTLIER, lambda w: abs(first(w)), 300, 14, audit.clopper_pearson).contradicts(1.0)


def data_for(loss, rng, size=400):
    x = rng.normal(size=(size, 2)) * 0.6
    if isinstance(loss, Squared):
        return x, np.clip(x @ [[0.4], [-0.2]] + 0.1, -1, 1)
    if loss.outputs > 1:
        cell = np.argmax(np.column_stack([x, np.zeros(size)]) + rng.gumbel(size=(size, 3)), axis=1)
        one_hot = np.eye(3)[cell]
        return x, 2 * one_hot - 1 if isinstance(loss, HuberHinge) else one_hot
    one = (rng.random((size, 1)) < 1 / (1 + np.exp(-2 * x[:, :1]))).astype(float)
    return x, one if isinstance(loss, Logistic) else 2 * one - 1


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_much_epsilon_gives_the_fit_without_noise(loss, rate):
    rows = made(*data_for(loss, np.random.default_rng(15)), norm=3.0, intercept=True)
    options = {"steps": 600, "sampling_rate": rate, "decay": "linear"}
    epsilon = 1e7 if rate == 1 else 100.0
    problem = task(loss, 3, epsilon, 1e-3, rows=400, penalty=4.0, intercept=True)
    place = NoisyGradients(problem, Gradient(**options))
    if rate < 1:
        place._mechanism = Gaussian(1.0, noise_multiplier=1e-6)
    exact = minimise(loss, rows, np.full(3, 4.0), np.zeros((3, loss.outputs)), 1e-9)
    found = place.solve(rows, Source(16))
    close = 0.01 if rate == 1 else 0.1
    assert np.linalg.norm(found - exact) < close * (1 + np.linalg.norm(exact))


@pytest.mark.parametrize("decay", [None, "none", "sqrt", "linear"])
@pytest.mark.parametrize("average", [True, False])
def test_the_path_follows_its_options(decay, average):
    """Without noise to speak of, two rows and the recurrence by hand."""
    options = {"steps": 5, "average": average, "momentum": 0.5, "learning_rate": 0.3}
    options |= {} if decay is None else {"decay": decay}
    place = NoisyGradients(task(Squared(), 1, 1e9, 0.5, rows=2, penalty=0.2), Gradient(**options))
    found = place.solve(made([[1.0], [0.5]], [[1.0], [0.4]]), Source(17))
    w = v = 0.0
    path = []
    for t in range(1, 6):
        v = 0.5 * v + ((w - 1) + 0.5 * (0.5 * w - 0.4)) / 2 + 0.1 * w
        w -= 0.3 * {"sqrt": t**-0.5, "linear": (6 - t) / 5}.get(decay, 1.0) * v
        path.append(w)
    assert found[0, 0] == pytest.approx(np.mean(path[2:]) if average else path[-1], abs=1e-4)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("size", [0, 1, 2, 30])
def test_ordinary_inputs(loss, delta, size):
    """No rows, fewer than coordinates, one class only, rows of zeros and rows that do not count."""
    rng = np.random.default_rng(18)
    x = odd_rows(rng, size, 4)
    y = np.repeat(targets(loss, rng, 1), size, axis=0)
    place = NoisyGradients(task(loss, 5, 1.0, delta, intercept=True, rows=max(size, 1)))
    weights = place.solve(made(x, y, intercept=True), Source(19))
    assert weights.shape == (5, loss.outputs)
    assert np.isfinite(weights).all()


def test_every_row_counts_once_whatever_the_block(monkeypatch):
    from tacit.estimators.linear import rows as rows_module

    x, y = data_for(Logistic(), np.random.default_rng(20))
    whole = NoisyGradients(task(Logistic(), 2, rows=400)).solve(made(x, y), Source(21))
    monkeypatch.setattr(rows_module, "BLOCK", 64)
    assert np.allclose(NoisyGradients(task(Logistic(), 2, rows=400)).solve(made(x, y), Source(21)), whole)


def test_a_path_that_runs_away_stays_finite():
    """Far too long steps: what comes out is useless, but no overflow tells of the rows."""
    options = {"learning_rate": 1e200, "steps": 30}
    for loss in LOSSES:
        place = NoisyGradients(task(loss, 2, penalty=1.0), Gradient(**options))
        rng = np.random.default_rng(23)
        weights = place.solve(made(rng.normal(size=(9, 2)), targets(loss, rng, 9)), Source(24))
        assert np.isfinite(weights).all()


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"step": 3}, "step"),
        ({"steps": 0}, "steps"),
        ({"steps": 2.5}, "steps"),
        ({"sampling_rate": 0.0}, "sampling_rate"),
        ({"sampling_rate": 1.5}, "sampling_rate"),
        ({"clip_norm": 0.0}, "clip_norm"),
        ({"clip_norm": math.inf}, "clip_norm"),
        ({"learning_rate": "fast"}, "learning_rate"),
        ({"learning_rate": -1.0}, "learning_rate"),
        ({"decay": "cosine"}, "decay"),
        ({"momentum": 1.0}, "momentum"),
        ({"momentum": -0.1}, "momentum"),
        ({"average": "tail"}, "average"),
    ],
)
def test_bad_options(options, what):
    with pytest.raises((InvalidValue, TypeError), match=what):
        NoisyGradients(task(Logistic(), 2), Gradient(**options))


def test_refusals():
    with pytest.raises(InvalidValue, match=r'population="dp"'):
        NoisyGradients(task(Logistic(), 2, rows=None))
    with pytest.raises(InvalidValue, match="sampled together"):
        NoisyGradients(task(Logistic(), 2, unit=Unit("who", 2)), Gradient(sampling_rate=0.5))
    with pytest.raises(InvalidValue, match="1 where δ = 0"):
        NoisyGradients(task(Logistic(), 2, delta=0.0), Gradient(sampling_rate=0.5))


def test_nothing_is_chosen_by_the_data():
    """All that is public is settled before rows are seen, and is the same for the same task."""
    one, two = (NoisyGradients(task(Logistic(), 8, rows=5000)) for _ in range(2))
    facts = (one.steps, one.learning_rate, one.event, one.notes)
    rng = np.random.default_rng(22)
    one.solve(made(rng.normal(size=(50, 8)), rng.integers(0, 2, (50, 1))), Source(1))
    assert facts == (one.steps, one.learning_rate, one.event, one.notes)
    assert facts == (two.steps, two.learning_rate, two.event, two.notes)
