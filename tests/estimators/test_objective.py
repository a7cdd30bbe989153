"""Objective perturbation: its privacy loss never exceeds what the event says, and its fit is a minimum."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad

from tacit import _objective, accounting, audit, events
from tacit.errors import CalibrationError
from tacit.estimators.linear import newton
from tacit.estimators.linear.losses import HuberHinge, Logistic, Loss, Softmax, Squared
from tacit.estimators.linear.newton import minimise
from tacit.estimators.linear.noise.objective import NoisyObjective
from tacit.estimators.linear.noise.output import NoisyOutput
from tacit.estimators.linear.noise.place import Problem
from tacit.estimators.linear.rows import ScaledRows, Space
from tacit.randomness import Source
from tacit.relations import Relation, Unit

Array = Any


def rows_of(x: Array, y: Array, intercept: bool = False) -> ScaledRows:
    width = x.shape[1]
    space = Space.of(np.full(width, -np.inf), np.full(width, np.inf), 1.0, intercept=intercept)
    return ScaledRows(x, np.atleast_2d(y.T).T.astype(float), space)


def targets(loss: Loss, generator: np.random.Generator, size: int) -> Array:
    if isinstance(loss, Softmax):
        return np.eye(loss.outputs)[generator.integers(loss.outputs, size=size)]
    if isinstance(loss, HuberHinge):
        return generator.choice([-1.0, 1.0], size=(size, loss.outputs))
    return generator.integers(2, size=(size, 1)).astype(float)


def unit_rows(generator: np.random.Generator, size: int, width: int) -> Array:
    x = generator.normal(size=(size, width))
    return x / np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True))


LOSSES = [
    Logistic(), Logistic(cap=0.5), Logistic(cap=0.3),
    HuberHinge(1, 0.5), HuberHinge(3, 0.2),
    Softmax(3), Softmax(5),
]  # fmt: skip


@pytest.mark.parametrize("loss", LOSSES, ids=str)
class TestLosses:
    def test_derivatives(self, loss: Loss) -> None:
        generator = np.random.default_rng(1)
        scores, y = generator.normal(size=(40, loss.outputs)) * 2, targets(loss, generator, 40)
        for k in range(loss.outputs):
            step = np.zeros(loss.outputs)
            step[k] = 1e-6
            numeric = (loss.value(scores + step, y) - loss.value(scores - step, y)) / 2e-6
            assert loss.slope(scores, y)[:, k] == pytest.approx(numeric, abs=1e-7)

    def test_bounds_hold_and_are_reached(self, loss: Loss) -> None:
        generator = np.random.default_rng(2)
        scores, y = generator.normal(size=(4000, loss.outputs)) * 6, targets(loss, generator, 4000)
        norms = np.linalg.norm(loss.slope(scores, y), axis=1)
        assert norms.max() <= loss.lipschitz + 1e-12
        assert norms.max() >= 0.95 * loss.lipschitz

    def test_log_determinant(self, loss: Loss) -> None:
        """det(H + second derivative ⊗ xxᵀ)/det H is at most e^c, and comes close where H is smallest."""
        generator, penalty, width = np.random.default_rng(3), 0.3, 2
        worst = 0.0
        for trial in range(300):
            x = unit_rows(generator, 1, width)[0]
            if trial % 2:
                x = x / np.linalg.norm(x)
            scores = generator.normal(size=(1, loss.outputs)) * generator.choice([0.0, 0.1, 2.0])
            y = targets(loss, generator, 1)
            if isinstance(loss, Softmax):
                p = loss.slope(scores, np.zeros_like(scores))[0]
                second = np.diag(p) - np.outer(p, p)
            else:
                second = np.diag(loss.weights(scores, y)[0])
            change = np.linalg.slogdet(
                penalty * np.eye(width * loss.outputs) + np.kron(second, np.outer(x, x))
            )[1] - width * loss.outputs * math.log(penalty)
            worst = max(worst, change)
        assert worst <= loss.log_determinant(penalty) + 1e-12
        if not isinstance(loss, HuberHinge):
            assert worst >= 0.9 * loss.log_determinant(penalty)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("replaced", [False, True])
def test_the_loss_never_exceeds_its_bound(loss: Loss, replaced: bool) -> None:
    """For drawn noise, the exact log-ratio of the two densities at the exact minimum against the bound."""
    generator = np.random.default_rng(4)
    width, penalty, spread = 3, 0.7, 1.3
    x, y = unit_rows(generator, 6, width), targets(loss, generator, 6)
    more = unit_rows(generator, 2, width)
    more /= np.linalg.norm(more, axis=1, keepdims=True)
    labels = targets(loss, generator, 2)
    many = 2 if replaced else 1
    one = rows_of(np.vstack([x, more[:1]]), np.vstack([y, labels[:1]]))
    other = rows_of(np.vstack([x, more[1:]]), np.vstack([y, labels[1:]])) if replaced else rows_of(x, y)
    largest = many * loss.lipschitz / spread
    c = loss.log_determinant(penalty)
    span = np.linalg.qr(np.vstack([more[:1], more[1:]])[:many].T)[0]
    seen, closest = 0, -math.inf
    for first, second in ((one, other), (other, one)):
        for _ in range(150):
            tilt = spread * generator.normal(size=(width, loss.outputs))
            theta = minimise(loss, first, np.full(width, penalty), tilt, 1e-9)
            away = -gradient(loss, second, penalty, theta)
            log_ratio = (np.square(away).sum() - np.square(tilt).sum()) / (2 * spread**2)
            log_ratio += log_determinant(loss, first, penalty, theta)
            log_ratio -= log_determinant(loss, second, penalty, theta)
            inside = span.T @ tilt / spread
            if isinstance(loss, Softmax):
                inside = inside - inside.mean(axis=1, keepdims=True)
            bound = c + largest * np.linalg.norm(inside) + largest**2 / 2
            assert log_ratio <= bound + 1e-6
            closest = max(closest, log_ratio / bound)
            seen += log_ratio > 0
    assert seen > 20
    assert closest > 0.15


def gradient(loss: Loss, rows: ScaledRows, penalty: float, theta: Array) -> Array:
    total = penalty * theta
    for x, y in rows.blocks():
        total = total + x.T @ loss.slope(x @ theta, y)
    return total


def log_determinant(loss: Loss, rows: ScaledRows, penalty: float, theta: Array) -> float:
    hessian = penalty * np.eye(theta.size)
    for x, y in rows.blocks():
        scores = x @ theta
        for row, score, target in zip(x, scores, y, strict=True):
            if isinstance(loss, Softmax):
                p = loss.slope(score[None], np.zeros((1, loss.outputs)))[0]
                second = np.diag(p) - np.outer(p, p)
            else:
                second = np.diag(loss.weights(score[None], target[None])[0])
            hessian += np.kron(second, np.outer(row, row))
    return float(np.linalg.slogdet(hessian)[1])


@pytest.mark.parametrize(("penalty", "spread"), [(0.5, 1.0), (2.0, 3.0), (20.0, 8.0)])
def test_the_profile_against_the_exact_density(penalty: float, spread: float) -> None:
    """One weight, one row more: δ(ε) by quadrature, in both directions."""
    loss = Logistic()
    empty = rows_of(np.array([[0.3]]), np.array([[1.0]]))
    fuller = rows_of(np.array([[0.3], [1.0]]), np.array([[1.0], [0.0]]))

    def density(rows: ScaledRows, theta: float) -> float:
        at = np.array([[theta]])
        b = -gradient(loss, rows, penalty, at)[0, 0]
        log = log_determinant(loss, rows, penalty, at) - b * b / (2 * spread**2)
        return math.exp(log) / (spread * math.sqrt(2 * math.pi))

    event = events.ObjectivePerturbation(spread, loss.log_determinant(penalty))
    reach = 12 * spread / penalty
    total = quad(lambda t: density(fuller, t), -reach, reach, limit=200)[0]
    assert total == pytest.approx(1.0, abs=1e-6)
    closest = 0.0
    for epsilon in (0.0, 0.1, 0.5, 1.0):
        claimed = accounting.delta(event, epsilon, method="pld")
        assert claimed == pytest.approx(
            float(_objective.profile(spread, event.log_determinant, 1, epsilon)), rel=1e-6
        )
        for p, q in ((fuller, empty), (empty, fuller)):
            exact = quad(
                lambda t, p=p, q=q, e=epsilon: max(density(p, t) - math.exp(e) * density(q, t), 0.0),
                -reach, reach, limit=400,
            )[0]  # fmt: skip
            assert exact <= claimed + 1e-9
            closest = max(closest, exact / claimed if claimed > 1e-9 else 0.0)
    assert closest > 0.2


def test_a_profile_is_twice_a_gaussian_one() -> None:
    from tacit._gaussian import profile

    for epsilon in (1.0, 2.0):
        assert _objective.profile(4.0, 0.1, 1, epsilon) == pytest.approx(2 * profile(4.0, epsilon - 0.1))


@pytest.mark.parametrize("directions", [1, 2, 7])
def test_moments_and_profile_by_simulation(directions: int) -> None:
    """E e^{(α−1)loss} and E(1 − e^{ε−loss})₊ of a sample of the loss that bounds."""
    length = np.linalg.norm(np.random.default_rng(5).normal(size=(400_000, directions)), axis=1)
    losses = 0.05 + length / 3 + 1 / 18
    divergence = _objective.divergence(3.0, 0.05, directions, np.array([1.5, 3.0]))
    for order, found in zip((1.5, 3.0), divergence, strict=True):
        assert found == pytest.approx(math.log(np.exp((order - 1) * losses).mean()) / (order - 1), rel=5e-3)
    for epsilon in (0.0, 0.3, 0.6):
        simulated = np.maximum(1 - np.exp(epsilon - losses), 0).mean()
        assert float(_objective.profile(3.0, 0.05, directions, epsilon)) == pytest.approx(simulated, rel=2e-2)


def task(loss: Loss, epsilon: float = 1.0, delta: float = 0.0, **more: Any) -> Problem:
    return Problem(loss, 3, epsilon, delta, **more)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("unit", [Unit(), Unit("who", 3)])
@pytest.mark.parametrize("place", [NoisyObjective, NoisyOutput])
def test_the_event_costs_what_was_asked(
    loss: Loss, delta: float, relation: Relation, unit: Unit, place: type[NoisyObjective | NoisyOutput]
) -> None:
    for epsilon in (0.1, 3.0):
        made = place(task(loss, epsilon, delta, relation=relation, unit=unit))
        spent = accounting.epsilon(made.event, delta, relation=relation)
        assert 0.97 * epsilon <= spent <= epsilon * (1 + 1e-9)


def test_twice_the_rows_need_twice_the_noise() -> None:
    for delta in (0.0, 1e-6):
        for place in (NoisyObjective, NoisyOutput):
            units = (Unit(), Unit("who", 3))
            one, three = (place(task(Logistic(), 1.0, delta, penalty=50.0, unit=unit)) for unit in units)
            replaced = place(task(Logistic(), 1.0, delta, penalty=50.0, relation=Relation.REPLACE_ONE))
            assert three.spread > 2.99 * one.spread
            assert replaced.spread > 1.99 * one.spread


def test_a_penalty_that_costs_more_than_there_is() -> None:
    for delta in (0.0, 1e-6):
        with pytest.raises(CalibrationError, match="smaller C"):
            NoisyObjective(task(Logistic(), 0.1, delta, penalty=1.0))


def test_a_solver_that_stops_early_changes_nothing_that_the_noise_is_not_made_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the same noise, weights differ by no more than two points within γ/λ of the minimum can."""
    generator = np.random.default_rng(6)
    few, many = (rows_of(unit_rows(generator, n, 3), targets(Logistic(), generator, n)) for n in (50, 90))
    places = [place(task(Logistic(), 1.0, 1e-6)) for place in (NoisyObjective, NoisyOutput)]
    before = [place.solve(rows, Source(1)) for place in places for rows in (few, many)]
    monkeypatch.setattr(newton, "MOST_STEPS", 0)
    after = [place.solve(rows, Source(1)) for place in places for rows in (few, many)]
    allowed = [2 * place._tolerance / place.penalty for place in places for _ in range(2)]
    for one, other, most in zip(before, after, allowed, strict=True):
        assert 0 < np.linalg.norm(one - other) <= most


@pytest.mark.parametrize("loss", [*LOSSES, Squared()], ids=str)
def test_minima(loss: Loss) -> None:
    generator = np.random.default_rng(7)
    y = targets(loss, generator, 200)
    rows = rows_of(unit_rows(generator, 200, 3) * 3, y)
    tilt = generator.normal(size=(3, loss.outputs))
    theta = minimise(loss, rows, np.full(3, 0.2), tilt, 1e-8)
    assert np.linalg.norm(gradient(loss, rows, 0.2, theta) + tilt) <= 1e-8


def test_both_ways_to_a_newton_step_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(8)
    rows = rows_of(unit_rows(generator, 300, 5), targets(Logistic(), generator, 300))
    tilt = np.zeros((5, 1))
    direct = minimise(Logistic(), rows, np.full(5, 0.1), tilt, 1e-9)
    monkeypatch.setattr(newton, "DIRECT", 1)
    assert minimise(Logistic(), rows, np.full(5, 0.1), tilt, 1e-9) == pytest.approx(direct, abs=1e-6)


class Released:
    """One weight, released for no rows or for one at the bound: numbers that tell the two apart."""

    def __init__(self, place: type[NoisyObjective | NoisyOutput], delta: float, epsilon: float) -> None:
        self.place = place(Problem(Logistic(cap=0.5), 1, epsilon, delta, penalty=3.0))
        self.rows = [rows_of(np.ones((size, 1)), np.ones((size, 1))) for size in (1, 0)]

    def scores(self, runs: int) -> list[Array]:
        source = Source(1)
        return [np.array([self.place.solve(rows, source)[0, 0] for _ in range(runs)]) for rows in self.rows]


@pytest.mark.parametrize("place", [NoisyObjective, NoisyOutput])
@pytest.mark.parametrize("delta", [0.0, 0.02])
def test_an_audit_stays_below_the_claim_and_catches_a_twin(place: type[Any], delta: float) -> None:
    """The twin spends two or, for Gaussian noise, three times the ε that it claims."""
    epsilon, confidence = 2.0, 1 - 1e-6
    bound = audit.clopper_pearson if delta == 0 else audit.gaussian
    found = []
    excess = 3 if delta > 0 else 2
    for spent in (epsilon, excess * epsilon):
        inside, outside = Released(place, delta, spent).scores(1200)
        rule = audit.Split(seed=0)
        guesses = audit.choose_threshold(inside, outside, rule=rule, delta=delta, confidence=confidence)
        found.append(bound(**guesses.counts(), delta=delta, confidence=confidence))
    assert not found[0].contradicts(epsilon)
    assert found[1].contradicts(epsilon), found


def test_noise_alone_has_its_scale() -> None:
    """Without rows the minimum is −b/λ, and what is on the output is the noise itself."""
    rows = rows_of(np.zeros((0, 3)), np.zeros((0, 1)))
    for place in (NoisyObjective, NoisyOutput):
        for delta in (0.0, 1e-6):
            made = place(task(Logistic(), 1.0, delta))
            source = Source(2)
            draws = np.array([made.solve(rows, source)[:, 0] for _ in range(1200)])
            spread = made.spread / (made.penalty if place is NoisyObjective else 1)
            ratio = np.sqrt(np.square(draws).mean()) / spread
            assert 0.9 < ratio < 1.1
