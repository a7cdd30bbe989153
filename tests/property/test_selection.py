"""The best of a random number of runs, against its exact distribution for small mechanisms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.special import logsumexp

from tacit import accounting, events
from tacit._stopping import NegativeBinomial, Poisson, Stopping
from tacit.accounting import rdp
from tacit.accounting.filters import BudgetFilter, Cost
from tacit.accounting.terms import resolve
from tacit.errors import InvalidValue, UnsupportedEvent

ORDERS = np.array([1.05, 1.5, 2.0, 3.0, 5.0, 9.0, 20.0, 60.0, 300.0])
BASE = rdp.ORDERS[:150:4]
STOPPINGS: list[Stopping] = [
    *(NegativeBinomial(eta, gamma) for eta in (-0.7, 0.0, 1.0, 3.0) for gamma in (0.001, 0.2, 1.0)),
    *map(Poisson, (0.3, 2.0, 10.0)),
]


def generating(stopping: Stopping, x: float) -> float:
    """E x^K, from the probabilities of K one by one."""
    total, left = 0.0, 1.0
    for k, chance in stopping.chances():
        total, left = total + float(chance) * x**k, left - float(chance)
        if left * x**k < 1e-14:
            return total
    raise AssertionError("the probabilities end")


def closed(stopping: Stopping, x: float) -> float:
    """E x^K in closed form."""
    if isinstance(stopping, Poisson):
        return math.exp(stopping.mean * (x - 1))
    if stopping.gamma == 1:
        return x
    rest = 1 - (1 - stopping.gamma) * x
    if stopping.eta == 0:
        return math.log(rest) / math.log(stopping.gamma)
    return (rest**-stopping.eta - 1) / (stopping.gamma**-stopping.eta - 1)


def best(stopping: Stopping, chances: np.ndarray, groups: list[list[int]]) -> np.ndarray:
    """The distribution of the best of K draws, ``groups`` being outputs of equal score, the worst first."""
    found, below = [], 0.0
    for group in groups:
        own = float(chances[group].sum())
        mass = closed(stopping, below + own) - closed(stopping, below)
        found += [mass * float(chances[i]) / own for i in group]
        below += own
    nothing = [closed(stopping, 0.0)] if isinstance(stopping, Poisson) else []
    return np.array(found + nothing)


def renyi(p: np.ndarray, q: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """The larger of both directions."""
    logs = np.log(p), np.log(q)
    return np.array([
        max(logsumexp(a * one + (1 - a) * two) / (a - 1) for one, two in (logs, logs[::-1])) for a in orders
    ])  # fmt: skip


def event_of(stopping: Stopping, base: events.Event) -> events.Event:
    if isinstance(stopping, Poisson):
        return events.BestOfPoisson(base, stopping.mean)
    return events.BestOf(base, stopping.eta, stopping.gamma)


@pytest.mark.parametrize("stopping", STOPPINGS, ids=str)
def test_the_distribution_of_the_number_of_runs(stopping: Stopping) -> None:
    for x in (0.0, 0.3, 0.8):
        assert generating(stopping, x) == pytest.approx(closed(stopping, x), abs=1e-9)
        assert stopping.missed(1 - x) == pytest.approx(closed(stopping, x), abs=1e-9)
    step = 1e-6 * getattr(stopping, "gamma", 1.0)
    assert (1 - closed(stopping, 1 - step)) / step == pytest.approx(stopping.mean, rel=1e-3)


@pytest.mark.parametrize("stopping", STOPPINGS, ids=str)
def test_no_small_mechanism_is_worse_than_its_bound(stopping: Stopping) -> None:
    draw = np.random.default_rng(5)
    closest = 0.0
    for _ in range(6):
        size, epsilon = int(draw.integers(2, 7)), float(draw.choice([0.05, 0.5, 3.0]))
        p = np.maximum(draw.dirichlet(np.ones(size)), 1e-9)
        q = p * np.exp(draw.uniform(0, epsilon, size))
        p, q = p / p.sum(), q / q.sum()
        places = draw.permutation(size).tolist()
        cut = int(draw.integers(1, size + 1))
        groups = [places[:cut], *([place] for place in places[cut:])]
        exact = renyi(best(stopping, p, groups), best(stopping, q, groups), ORDERS)
        loss = float(np.abs(np.log(p / q)).max())
        for base in (
            events.Renyi(tuple(BASE), tuple(renyi(p, q, BASE) * (1 + 1e-9) + 1e-12)),
            events.Pure(loss * (1 + 1e-12)),
        ):
            bound = rdp.curve(resolve(event_of(stopping, base), "add_remove"), ORDERS).divergences
            assert (exact <= bound * (1 + 1e-9) + 1e-9).all()
            closest = max(closest, float((exact / bound).max()))
    assert closest > 0.5


def worst_pair(epsilon: float) -> tuple[np.ndarray, np.ndarray]:
    """An output of next to no probability, above which are 1/(1 + e^ε) of all outputs, or e^ε/(1 + e^ε)."""
    low, tiny = 1 / (1 + math.exp(epsilon)), 1e-7
    one = np.array([1 - low - tiny, tiny, low])
    return one, np.array([low - tiny * math.exp(-epsilon), tiny * math.exp(-epsilon), 1 - low])


def loss_of(stopping: Stopping, pair: tuple[np.ndarray, np.ndarray]) -> float:
    """The exact largest loss of the best of K."""
    one, two = (best(stopping, each, [[i] for i in range(len(each))]) for each in pair)
    return float(np.abs(np.log(one / two)).max())


@pytest.mark.parametrize("stopping", STOPPINGS, ids=str)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_the_pure_bound_is_attained(stopping: Stopping, epsilon: float) -> None:
    bound = accounting.epsilon(event_of(stopping, events.Pure(epsilon)), 0.0)
    assert loss_of(stopping, worst_pair(epsilon)) == pytest.approx(bound, rel=2e-3)


def test_a_search_that_is_not_paid_for_is_found_out() -> None:
    """The best of a geometric number of runs of ε = 1, charged as one run, as two, and as it should be."""
    exact = loss_of(NegativeBinomial(1.0, 0.01), worst_pair(1.0))
    assert 2.0 < exact <= accounting.epsilon(events.BestOf(events.Pure(1.0), 1.0, 0.01), 0.0) < 3.0


def test_a_fixed_number_of_runs_is_no_random_one() -> None:
    """Whether all of 400 runs give the worse of two outputs has a loss of 400ε; charged is at most 3ε."""
    epsilon, runs = 0.1, 400
    chances = 0.5, 0.5 * math.exp(-epsilon)
    exact = runs * math.log(chances[0] / chances[1])
    assert exact > 10 * accounting.epsilon(events.BestOf(events.Pure(epsilon), 1.0, 1 / runs), 0.0)
    pair = np.array([chances[0], 1 - chances[0]]), np.array([chances[1], 1 - chances[1]])
    assert loss_of(NegativeBinomial(1.0, 1 / runs), pair) <= 3 * epsilon


def test_failures_add_up_over_the_runs() -> None:
    event = events.BestOf(events.Approximate(0.1, 1e-7), 1.0, 0.1)
    curve = rdp.curve(resolve(event, "add_remove"))
    assert 1e-6 <= curve.failure <= 1.001e-6
    assert math.isinf(accounting.epsilon(event, 9e-7))
    assert accounting.epsilon(event, 2e-6) <= 0.31


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_one_of_several_costs_the_worst(relation: str) -> None:
    several = events.OneOf((events.Laplace(2.0), events.Pure(0.3), events.Gaussian(5.0)))
    for method in ("pld", "rdp"):
        costs = [accounting.epsilon(one, 1e-6, relation=relation, method=method) for one in several.events]
        found = accounting.epsilon(several, 1e-6, relation=relation, method=method)
        assert max(costs) * (1 - 1e-9) <= found <= 1.2 * max(costs)


@pytest.mark.parametrize("sample", [
    lambda inner: events.PoissonSampled(0.1, inner),
    lambda inner: events.SampledWithoutReplacement(10, 100, inner),
    lambda inner: events.PoissonSampled(0.1, events.OneOf((inner, events.Pure(1.0)))),
])  # fmt: skip
def test_a_search_on_a_secret_sample_is_refused(sample: Any) -> None:
    for inner in (events.BestOf(events.Pure(0.1), 0.0, 0.1), events.BestOfPoisson(events.Pure(0.1), 3.0)):
        with pytest.raises(UnsupportedEvent):
            accounting.epsilon(sample(inner), 1e-6)


def test_accountants_that_know_no_search_refuse() -> None:
    event = events.BestOf(events.Gaussian(8.0), 0.0, 0.1)
    for method in ("pld", "zcdp", "moments"):
        with pytest.raises(UnsupportedEvent):
            accounting.epsilon(event, 1e-6, method=method)
    with pytest.raises(UnsupportedEvent, match="best of several runs"):
        BudgetFilter(1.0, 1e-6).admit(event, lambda cost: cost, "gaussian")
    admitted = BudgetFilter(2.0, 1e-6).admit(event, lambda cost: cost, "basic", 1e-6)
    assert admitted is not None
    assert admitted.cost != Cost()


@pytest.mark.parametrize("bad", [
    lambda: events.BestOf(events.Pure(1.0), -1.0, 0.1), lambda: events.BestOf(events.Pure(1.0), 0.0, 0.0),
    lambda: events.BestOf(events.Pure(1.0), math.nan, 0.1), lambda: events.BestOf("Pure", 0.0, 0.1),
    lambda: events.BestOfPoisson(events.Pure(1.0), 0.0), lambda: events.OneOf(events.Pure(1.0)),
])  # fmt: skip
def test_bad_values_are_refused(bad: Any) -> None:
    with pytest.raises(InvalidValue):
        bad()
