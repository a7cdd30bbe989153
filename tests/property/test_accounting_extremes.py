"""Accounting at the edges, where an upper bound most easily stops being one.

Each case has an independent truth: an enumeration, a single part that a composition cannot undercut,
or a limit theorem.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tacit import accounting, events
from tacit.accounting import filters, pld, rdp
from tacit.accounting.terms import resolve


def response_delta(epsilon: float, times: int, at: float) -> float:
    """δ(at) of randomized response repeated, term by term."""
    total = 0.0
    for flips in range(times + 1):
        loss = (times - 2 * flips) * epsilon
        if loss > at:
            log_mass = (
                math.lgamma(times + 1)
                - math.lgamma(flips + 1)
                - math.lgamma(times - flips + 1)
                + (times - flips) * epsilon
                - times * math.log1p(math.exp(epsilon))
            )
            total += math.exp(log_mass) * -math.expm1(at - loss)
    return total


@pytest.mark.parametrize("at", [0.0, 0.1, 0.5, 1.0, 2.9])
@pytest.mark.parametrize(
    "other", [events.Gaussian(1.0), events.PoissonSampled(0.9, events.Gaussian(1.0)), events.Laplace(2.0)]
)
@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_a_composition_costs_at_least_its_parts(at, other, relation):
    together = accounting.delta(events.Compose((events.Pure(3.0), other)), at, relation=relation)
    alone = [accounting.delta(part, at, relation=relation) for part in (events.Pure(3.0), other)]
    assert together >= max(alone) * (1 - 1e-9)


@pytest.mark.parametrize(
    ("epsilon", "times", "at"),
    [(1.0, 30, 15.0), (1.0, 30, 19.0), (1.0, 30, 3.0), (3.65065e-5, 3000, 0.0146531), (0.220707, 1000, 60.0),
     (1e-4, 5, 1e-4), (0.5, 12, 0.0)],
)  # fmt: skip
def test_delta_of_randomized_response(epsilon, times, at):
    truth = response_delta(epsilon, times, at)
    answer = accounting.delta(events.Repeat(events.Pure(epsilon), times), at, method="pld")
    assert truth * (1 - 1e-9) <= answer <= truth * 1.005


@settings(max_examples=150, deadline=None, derandomize=True, phases=(Phase.generate,))
@given(st.floats(-6, 0.5), st.integers(2, 400), st.floats(-18, -0.5))
def test_epsilon_of_randomized_response(log_epsilon, times, log_delta):
    epsilon, delta = 10**log_epsilon, 10**log_delta
    answer = accounting.epsilon(events.Repeat(events.Pure(epsilon), times), delta, method="pld")
    assert response_delta(epsilon, times, answer) <= delta * (1 + 1e-9)
    if answer > 0:
        assert response_delta(epsilon, times, answer * 0.995) > delta


@pytest.mark.parametrize(("rate", "inner"), [(0.1, 3.0), (0.5, 2.0), (0.9, 1.0)])
@pytest.mark.parametrize("at", [0.2, 1.0])
def test_moving_between_two_sampled_parts(rate, inner, at):
    """Under replace_one a unit leaves one part and enters the other, which are opposite directions."""
    keep = 1 / (1 + math.exp(-inner))
    out = np.array([1 - keep, keep])
    mixed = (1 - rate) * out + rate * out[::-1]
    before, after = np.outer(mixed, out).ravel(), np.outer(out, mixed).ravel()
    truth = np.maximum(before - math.exp(at) * after, 0).sum()
    part = events.PoissonSampled(rate, events.Pure(inner))
    answer = accounting.delta(events.Parallel((part, part)), at, relation="replace_one")
    assert truth * (1 - 1e-9) <= answer <= 1.0


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (events.PoissonSampled(1e-4, events.Gaussian(1e4)), 1e-8 * math.expm1(1e-8)),
        (events.PoissonSampled(1e-6, events.Gaussian(100.0)), 1e-12 * math.expm1(1e-4)),
        (events.PoissonSampled(1e-9, events.Gaussian(1.0)), 1e-18 * math.expm1(1.0)),
        (events.Pure(1e-8), 1e-16),
        (events.Laplace(1e8), 1e-16),
        (events.BoundedRange(1e-8), 0.25e-16),
        (events.PoissonSampled(1e-6, events.Pure(0.01)), None),
        (events.SampledWithoutReplacement(1, 10**6, events.Gaussian(1.0)), None),
    ],
)
@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_tiny_divergences_are_not_lost(event, expected, relation):
    """Where losses are tiny, D(α) is α/2 times the variance of the loss; rounding must not eat it."""
    orders = np.array([1.01, 1.5, 2.0, 2.5, 4.0])
    divergences = rdp.curve(resolve(event, relation), orders).divergences
    assert (divergences > 0).all()
    if expected is not None and relation == "add_remove":
        assert divergences == pytest.approx(orders * expected / 2, rel=0.3)
        assert (divergences >= 0.999 * orders * expected / 2).all()


def test_zero_is_not_certified_from_a_divergence_that_rounded_away():
    event = events.Repeat(events.PoissonSampled(1e-4, events.Gaussian(1e4)), 10**6)
    truth = 0.5 * math.erf(1e-5 / math.sqrt(8)) * 2
    assert accounting.delta(event, 0.0, method="rdp") >= truth
    assert accounting.epsilon(event, truth * 0.9, method="rdp") > 0


def test_no_filter_gives_a_refund():
    rule = filters.RenyiFilter(1.30078825180431, 1.0)
    rule.charge(events.Repeat(events.Pure(1e-8), 10**15))
    assert rule.spent > 0


def test_losses_in_the_thousands():
    event = events.PoissonSampled(0.5, events.Repeat(events.Laplace(1e-3), 2))
    assert accounting.epsilon(event, 1e-6, method="pld") > 1990
    assert accounting.epsilon(events.Repeat(events.Laplace(1e-3), 3), 1e-6) > 2990


@pytest.mark.parametrize("times", [10**6, 10**12, 10**18])
def test_huge_counts(times):
    """n samples at rate n^−½ tend to one Gaussian of multiplier (e−1)^−½; no answer may be below it."""
    event = events.Repeat(events.PoissonSampled(times**-0.5, events.Gaussian(1.0)), times)
    limit = accounting.epsilon(events.Gaussian(1 / math.sqrt(math.e - 1)), 1e-5)
    assert accounting.epsilon(event, 1e-5) >= limit * 0.999
    admission = filters.BudgetFilter(1.0, 1e-5).admit(event, lambda cost: cost)
    assert admission is None


@pytest.mark.parametrize("noise", [1e4, 1e8, 1e10, 1e12])
def test_gaussian_profile_at_huge_noise(noise):
    """δ(0) is the total variation, 2Φ(1/2z) − 1."""
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(40):
        truth = float(2 * mpmath.ncdf(1 / (2 * mpmath.mpf(noise))) - 1)
    assert truth <= accounting.delta(events.Gaussian(noise), 0.0, method="pld") <= truth * (1 + 1e-2)


def test_bounded_losses_end_where_they_end():
    event = events.Repeat(events.SampledWithoutReplacement(628, 1000, events.Pure(1.5502413355948803)), 10000)
    near = events.Repeat(events.SampledWithoutReplacement(628, 1000, events.Pure(1.55)), 10000)
    assert accounting.epsilon(event, 1e-12) == pytest.approx(accounting.epsilon(near, 1e-12), rel=1e-2)


@pytest.mark.parametrize(
    ("epsilon", "times", "delta"), [(1e-4, 5, 5e-5), (1e-5, 10, 1e-5), (1.146e-6, 5, 1.046e-6)]
)
def test_small_losses_at_a_delta_close_to_everything(epsilon, times, delta):
    answer = accounting.epsilon(events.Repeat(events.Pure(epsilon), times), delta, method="pld")
    assert response_delta(epsilon, times, answer) <= delta
    assert response_delta(epsilon, times, answer * 0.99) > delta


@pytest.mark.parametrize(
    "event",
    [
        events.Compose((events.Repeat(events.Pure(1e-12), 10), events.Repeat(events.Laplace(3.0), 5))),
        events.Compose((events.Pure(1e-12), events.PoissonSampled(0.1, events.Gaussian(1.0)))),
        events.Repeat(events.Pure(1e-200), 3),
        events.PoissonSampled(0.01, events.Gaussian(0.01)),
        events.Gaussian(1e-4),
    ],
)
@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_mixed_and_extreme_scales_have_an_answer(event, relation):
    epsilon = accounting.epsilon(event, 1e-5, relation=relation)
    assert math.isfinite(epsilon)
    assert accounting.delta(event, epsilon, relation=relation) <= 1.01e-5


@settings(max_examples=60, deadline=None, derandomize=True, phases=(Phase.generate,))
@given(
    st.lists(
        st.one_of(
            st.floats(-1, 2).map(lambda x: events.Gaussian(10**x)),
            st.floats(-1, 2).map(lambda x: events.Laplace(10**x)),
            st.floats(-3, 0.5).map(lambda x: events.Pure(10**x)),
            st.tuples(st.floats(-3, -0.01), st.floats(-0.3, 1)).map(
                lambda t: events.PoissonSampled(10 ** t[0], events.Gaussian(10 ** t[1]))
            ),
        ),
        min_size=2,
        max_size=4,
    ),
    st.floats(-3, 1),
    st.sampled_from(["add_remove", "replace_one"]),
)
def test_delta_of_random_compositions_is_not_below_a_part(parts, log_epsilon, relation):
    at = 10**log_epsilon
    whole = accounting.delta(events.Compose(tuple(parts)), at, relation=relation)
    for size in (1, 2):
        for some in itertools.combinations(parts, size):
            assert whole >= accounting.delta(events.Compose(some), at, relation=relation) * (1 - 6e-3) - 1e-15


def test_a_delta_near_the_smallest_number_is_found():
    """The search for δ ends where its lower end would be 0."""
    event = events.PoissonSampled(10**-0.02, events.Gaussian(36.0))
    for epsilon in np.linspace(0.9, 1.1, 9):
        assert 0 <= accounting.delta(event, float(epsilon)) < 1e-200


def test_inverse_of_each_other_over_many_scales():
    event = events.Repeat(events.PoissonSampled(0.02, events.Gaussian(1.0)), 200)
    terms = resolve(event, "add_remove")
    for delta in (0.1, 1e-2, 1e-6, 1e-12, 1e-30, 1e-100):
        epsilon = pld.epsilon(terms, delta)
        assert pld.delta(terms, epsilon) == pytest.approx(delta, rel=2e-2)


@pytest.mark.parametrize("epsilon", [299.0, 301.0, 710.0, 1e4, 1e300])
@pytest.mark.parametrize("kind", [events.Pure, events.BoundedRange, lambda e: events.Approximate(e, 1e-9)])
def test_a_promise_that_promises_nothing_is_still_a_number(kind, epsilon: float) -> None:
    """ε beyond where e^ε overflows: every accountant answers or declines, none fails."""
    answers = accounting.compare(kind(epsilon), 1e-6)
    assert epsilon * 0.99 <= min(answers.values()) <= answers["rdp"] <= epsilon * (1 + 1e-9)
    assert accounting.compare(events.Repeat(kind(epsilon), 3), 1e-6)


@pytest.mark.parametrize("noise_multiplier", [1e-3, 1e-2])
def test_hardly_any_noise_is_accounted_without_a_warning(noise_multiplier: float) -> None:
    """Steps of the grid wider than 709 overflow e^gap, whose inverse is then 0, as it should be."""
    event = events.Repeat(events.PoissonSampled(1024 / 65349, events.Gaussian(noise_multiplier)), 383)
    assert 0.5 / noise_multiplier**2 < accounting.epsilon(event, 1e-5) < 383 / noise_multiplier**2
