"""The filter of Gaussian differential privacy: tight for Gaussian noise, and never below the truth."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from tacit import accounting, events
from tacit.accounting import filters, gdp
from tacit.accounting.terms import resolve
from tacit.errors import BudgetExceeded, InvalidValue, UnsupportedEvent

BUDGETS = [(0.1, 1e-8), (1.0, 1e-6), (3.0, 1e-5), (8.0, 1e-9)]
quick = settings(max_examples=40, deadline=None, derandomize=True)


def trade_off(mu: float, alpha: np.ndarray) -> np.ndarray:
    return norm.cdf(norm.ppf(1 - alpha) - mu)


@pytest.mark.parametrize("epsilon", [1e-9, 1e-3, 0.1, 0.999, 1.0, 3.0, 20.0, 300.0])
def test_a_pure_event_is_converted_at_the_smallest_mu(epsilon):
    """Against 200 digits; and the trade-off function of N(0, 1) and N(μ, 1) is nowhere above the event's."""
    with mpmath.workdps(200):
        exact = -2 * mpmath.sqrt(2) * mpmath.erfinv(2 / (1 + mpmath.exp(epsilon)) - 1)
        assert exact <= gdp.pure(epsilon) <= exact * (1 + 1e-12)
    if epsilon < 10:
        alpha = np.linspace(1e-6, 1 - 1e-6, 4001)
        least = np.maximum(np.maximum(1 - math.exp(epsilon) * alpha, math.exp(-epsilon) * (1 - alpha)), 0)
        assert (trade_off(gdp.pure(epsilon), alpha) <= least + 1e-12).all()
        kink = np.array([1 / (1 + math.exp(epsilon))])
        assert trade_off(0.999 * gdp.pure(epsilon), kink) > kink, "a smaller μ does not hold"


@pytest.mark.parametrize("event", [
    events.Laplace(0.7), events.BoundedRange(1.5), events.Pure(0.4), events.RandomizedResponse(2.0, 5),
    events.PoissonSampled(0.2, events.Pure(2.0)),
], ids=lambda event: type(event).__name__)  # fmt: skip
@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_the_profile_of_a_converted_event_is_below_that_of_its_gaussian(event, relation):
    """δ(ε) of the event, by its loss distribution, never exceeds δ(ε) of N(0, 1) against N(μ, 1)."""
    mu = math.sqrt(gdp.squared(resolve(event, relation)))
    for epsilon in np.linspace(0, 2, 9):
        own = accounting.delta(event, epsilon, relation=relation, method="pld")
        assert own <= accounting.delta(events.Gaussian(1 / mu), epsilon, method="pld") * (1 + 1e-9)


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_gaussian_releases_spend_exactly_the_budget(epsilon, delta):
    """What is calibrated to the whole budget fits, and 1 % less noise does not; in parts as in one."""
    noise = accounting.calibrate(events.Gaussian, epsilon=epsilon, delta=delta)
    rule = filters.BudgetFilter(epsilon, delta)
    total = filters.Cost()
    parts = [2.0, 4.0, 4.0, 8.0, 8.0, 4.0, 4.0, 4.0, 2.0 * math.sqrt(2)]
    assert math.fsum(1 / part**2 for part in parts) <= 1
    parts.append(1 / math.sqrt(1 - math.fsum(1 / part**2 for part in parts)))
    for part in parts:
        admitted = rule.admit(events.Gaussian(noise * part), lambda cost, t=total: t + cost, "gaussian")
        assert admitted is not None
        total = total + admitted.cost
    assert rule.spent(total, "gaussian") == pytest.approx(epsilon, rel=2e-3)
    assert rule.admit(events.Gaussian(noise * 20), lambda cost: total + cost, "gaussian") is None
    assert rule.admit(events.Gaussian(noise * 0.99), lambda cost: cost, "gaussian") is None


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_it_admits_more_gaussian_releases_than_the_renyi_filter(epsilon, delta):
    event = events.Gaussian(20 * accounting.calibrate(events.Gaussian, epsilon=epsilon, delta=delta))
    counts = {}
    for mode in ("basic", "renyi", "gaussian"):
        rule, total, count = filters.BudgetFilter(epsilon, delta), filters.Cost(), 0
        cost = next(iter(rule.quotes(event, lambda cost: cost, mode, delta / 400))).cost
        while rule.spent(total + cost, mode) <= epsilon:
            total, count = total + cost, count + 1
        counts[mode] = count
    assert counts["gaussian"] in (399, 400)
    assert counts["basic"] < counts["renyi"] < 0.95 * counts["gaussian"]


releases = st.one_of(
    st.floats(1.0, 60.0).map(events.Gaussian),
    st.floats(1.0, 60.0).map(events.Laplace),
    st.floats(0.01, 0.5).map(events.BoundedRange),
    st.tuples(st.floats(2.0, 60.0), st.integers(1, 9)).map(
        lambda t: events.Repeat(events.Gaussian(t[0]), t[1])
    ),
    st.tuples(st.floats(2.0, 60.0), st.floats(2.0, 60.0)).map(
        lambda t: events.Parallel((events.Gaussian(t[0]), events.Laplace(t[1])))
    ),
)  # fmt: skip


@quick
@given(
    st.lists(releases, min_size=1, max_size=15),
    st.sampled_from(BUDGETS),
    st.sampled_from(["add_remove", "replace_one"]),
)
def test_what_is_admitted_is_private_by_loss_distributions_too(sequence, budget, relation):
    """PLD composition of what was admitted never finds more than the filter counted."""
    epsilon, delta = budget
    rule, total, admitted = filters.BudgetFilter(epsilon, delta, relation), filters.Cost(), []
    for event in sequence:
        got = rule.admit(event, lambda cost, t=total: t + cost, "gaussian")
        if got is not None:
            total = total + got.cost
            admitted.append(event)
    spent = rule.spent(total, "gaussian")
    assert spent <= epsilon
    fixed = accounting.epsilon(events.Compose(tuple(admitted)), delta, relation=relation)
    assert fixed <= spent * (1 + 1e-3) + 1e-9


def best_test(rng, chooses, mu_squared, steps, runs):
    """Log-likelihood ratios of N(μᵢ, 1) against N(0, 1) under an adaptive choice of μᵢ², both worlds."""
    ratios = []
    for b in (0, 1):
        left, log_ratio = np.full(runs, mu_squared), np.zeros(runs)
        for step in range(steps):
            share = np.minimum(chooses(step, log_ratio, left), left)
            mu = np.sqrt(share)
            seen = b * mu + rng.standard_normal(runs)
            log_ratio += mu * seen - share / 2
            left = left - share
        ratios.append(log_ratio)
    return ratios


@pytest.mark.parametrize("chooses", [
    lambda step, seen, left: np.where(seen > 0.3, left, left / 20),
    lambda step, seen, left: np.where(seen < 0, left / 2, left / 50),
    lambda step, seen, left: left / (30 - step),
], ids=["rushes when it goes well", "spends when behind", "evenly"])  # fmt: skip
@pytest.mark.parametrize("counts", [True, False], ids=["filter", "twin"])
def test_adaptive_choices_gain_nothing(chooses, counts):
    """The best test on an adaptive sequence is no better than on one Gaussian release of the whole μ².

    The twin counts a third of what it spends, and is found out.
    """
    rng, runs, epsilon, mu_squared = np.random.default_rng(7), 100_000, 1.0, 1.0
    steps = 30
    null, other = best_test(rng, chooses, mu_squared * (1 if counts else 3), steps, runs)
    allowed = accounting.delta(events.Gaussian(1 / math.sqrt(mu_squared)), epsilon)
    found = (other > epsilon).mean() - math.exp(epsilon) * (null > epsilon).mean()
    slack = 6 * (1 + math.exp(epsilon)) / (2 * math.sqrt(runs))
    assert bool(found <= allowed + slack) is counts


NOT_GAUSSIAN = [
    events.PoissonSampled(0.01, events.Gaussian(1.0)),
    events.SampledWithoutReplacement(10, 1000, events.Gaussian(1.0)),
    events.Approximate(0.1, 1e-9),
    events.ZeroConcentrated(0.01),
    events.Renyi((2.0, 4.0), (0.1, 0.2)),
    events.Compose((events.Gaussian(9.0), events.ZeroConcentrated(0.01))),
    events.Parallel((events.Gaussian(9.0), events.Approximate(0.1, 1e-9))),
]


@pytest.mark.parametrize("event", NOT_GAUSSIAN, ids=str)
@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_other_events_are_refused_with_the_repair(event, relation):
    rule = filters.BudgetFilter(3.0, 1e-6, relation)
    with pytest.raises(UnsupportedEvent, match=r"filter='basic' or filter='renyi'"):
        rule.admit(event, lambda cost: cost, "gaussian")
    assert not filters.GaussianFilter.for_budget(3.0, 1e-6, relation).admits(event)


@pytest.mark.parametrize("event", [events.Gaussian(1e-200), events.Pure(1e5), events.Gaussian(1e-320)])
def test_extreme_noise_is_refused_and_not_free(event):
    rule = filters.BudgetFilter(3.0, 1e-6)
    assert rule.admit(event, lambda cost: cost, "gaussian") is None


@pytest.mark.parametrize("event", [events.Gaussian(1e200), events.Laplace(1e200), events.Laplace(1e300)])
def test_nothing_but_nothing_is_free(event):
    got = filters.BudgetFilter(3.0, 1e-6).admit(event, lambda cost: cost, "gaussian")
    assert got is not None
    assert 0 < got.cost.renyi < 1e-300
    assert 0 <= got.epsilon < 1e-100
    nothing = filters.BudgetFilter(3.0, 1e-6).admit(events.Compose(()), lambda cost: cost, "gaussian")
    assert nothing is not None
    assert nothing.cost == filters.Cost()


def test_a_scope_under_replace_one_counts_both_of_its_worst_parts():
    """A unit that moves leaves one part and enters another: their μ² add up."""
    rule = filters.BudgetFilter(3.0, 1e-6, "replace_one")
    got = rule.admit(events.Gaussian(10.0), lambda cost: cost, "gaussian", partitioned=True)
    both = filters.worst([got.cost, got.cost, filters.Cost(renyi=1e-9)], "replace_one")
    assert both.renyi == pytest.approx(2 / 100)


def test_the_simple_filter_stops():
    rule = filters.GaussianFilter.for_budget(1.0, 1e-6)
    noise = 10 / math.sqrt(rule.limit)
    for _ in range(100):
        rule.charge(events.Gaussian(noise))
    with pytest.raises(BudgetExceeded, match="left"):
        rule.charge(events.Gaussian(noise))


def test_without_a_delta_there_is_no_gaussian_budget():
    with pytest.raises(InvalidValue, match="delta"):
        filters.GaussianFilter.for_budget(1.0, 0.0)
