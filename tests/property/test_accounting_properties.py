"""What must hold for every event: validity, monotonicity, repetition, purity, relations."""

from __future__ import annotations

import itertools
import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tacit import accounting, errors, events
from tacit.accounting import pld
from tacit.accounting.terms import resolve

leaves = st.one_of(
    st.floats(0.3, 30).map(events.Gaussian),
    st.floats(0.3, 30).map(events.Laplace),
    st.floats(0.01, 3).map(events.Pure),
    st.floats(0.01, 3).map(events.BoundedRange),
    st.tuples(st.floats(0.01, 3), st.integers(2, 9)).map(lambda t: events.RandomizedResponse(*t)),
    st.tuples(st.floats(0.01, 3), st.floats(0, 1e-8)).map(lambda t: events.Approximate(*t)),
    st.floats(1e-4, 1).map(events.ZeroConcentrated),
)
sampled = st.one_of(
    st.tuples(st.floats(1e-4, 1.0), leaves).map(lambda t: events.PoissonSampled(*t)),
    st.tuples(st.integers(1, 40), leaves).map(lambda t: events.SampledWithoutReplacement(t[0], 40, t[1])),
)
simple = st.one_of(leaves, sampled)
anything = st.one_of(
    simple,
    st.tuples(simple, st.integers(0, 50)).map(lambda t: events.Repeat(*t)),
    st.lists(simple, max_size=3).map(lambda es: events.Compose(tuple(es))),
    st.lists(simple, min_size=1, max_size=3).map(lambda es: events.Parallel(tuple(es))),
    st.lists(simple, min_size=1, max_size=3).map(lambda es: events.OneOf(tuple(es))),
    st.tuples(simple, st.floats(-0.9, 3), st.floats(1e-3, 1)).map(lambda t: events.BestOf(*t)),
    st.tuples(simple, st.floats(0.1, 30)).map(lambda t: events.BestOfPoisson(*t)),
)
relations = st.sampled_from(["add_remove", "replace_one"])
deltas = st.sampled_from([1e-3, 1e-5, 1e-7])
few = settings(max_examples=60, deadline=None, derandomize=True, phases=(Phase.explicit, Phase.generate))


@few
@given(anything, relations)
def test_json_round_trip(event, relation):
    again = events.from_json(event.to_json())
    assert again == event
    assert again.to_json() == event.to_json()


@few
@given(simple, st.integers(1, 6), relations, deltas)
def test_repetition_costs_what_a_list_costs(event, times, relation, delta):
    once_more = accounting.compare(events.Repeat(event, times), delta, relation=relation)
    listed = accounting.compare(events.Compose((event,) * times), delta, relation=relation)
    nested = accounting.compare(
        events.Compose((events.Repeat(event, times - 1), event)), delta, relation=relation
    )
    assert once_more == listed == nested


@few
@given(anything, relations)
def test_epsilon_falls_as_delta_grows_and_back(event, relation):
    answers = [accounting.epsilon(event, delta, relation=relation) for delta in (1e-9, 1e-7, 1e-5, 1e-3)]
    for tighter, looser in itertools.pairwise(answers):
        assert looser <= tighter * (1 + 1e-3) or math.isinf(tighter)
    if 0 < answers[2] < 50:
        assert accounting.delta(event, answers[2], relation=relation) <= 1e-5 * (1 + 1e-2)


@few
@given(anything, relations, deltas)
def test_more_events_never_cost_less(event, relation, delta):
    alone = accounting.epsilon(event, delta, relation=relation)
    more = events.Compose((event, events.Gaussian(5.0)))
    assert accounting.epsilon(more, delta, relation=relation) >= alone * (1 - 1e-3)


@few
@given(st.lists(st.floats(0.05, 1.5), min_size=2, max_size=8), deltas)
def test_loss_distribution_against_enumeration(epsilons, delta):
    """Randomized responses composed exactly, outcome by outcome."""
    masses = {0.0: 1.0}
    for epsilon in epsilons:
        keep = 1 / (1 + math.exp(-epsilon))
        masses = _convolved(masses, {epsilon: keep, -epsilon: 1 - keep})
    event = events.Compose(tuple(events.Pure(epsilon) for epsilon in epsilons))
    answer = accounting.epsilon(event, delta, method="pld")
    exact = sum(m * max(0.0, -math.expm1(answer - loss)) for loss, m in masses.items())
    assert exact <= delta * (1 + 1e-9)
    below = answer * 0.99
    assert sum(m * max(0.0, -math.expm1(below - loss)) for loss, m in masses.items()) > delta or answer == 0


def _convolved(a, b):
    result: dict[float, float] = {}
    for (x, p), (y, q) in itertools.product(a.items(), b.items()):
        result[x + y] = result.get(x + y, 0.0) + p * q
    return result


@few
@given(st.floats(0.4, 20), st.integers(2, 2000), deltas)
def test_loss_distribution_against_gaussian_closed_form(noise, times, delta):
    """The FFT road, forced by an almost free companion, against the exact merged Gaussian."""
    exact = accounting.epsilon(events.Gaussian(noise), delta, method="pld")
    split = events.Repeat(events.Gaussian(noise * math.sqrt(times)), times)
    assert accounting.epsilon(split, delta, method="pld") == pytest.approx(exact, rel=1e-9)
    convolved = accounting.epsilon(
        events.Compose((events.Gaussian(noise), events.Pure(1e-7))), delta, method="pld"
    )
    assert exact * (1 - 1e-9) <= convolved <= exact * 1.004 + 2e-7


@few
@given(st.floats(0.05, 0.95), st.floats(0.3, 3), st.floats(0.01, 2.0))
def test_amplification_of_a_pure_event_is_exact(rate, inner, epsilon):
    """One-sided sampling of randomized response, computed on its two outcomes."""
    keep = 1 / (1 + math.exp(-inner))
    p0 = np.array([1 - keep, keep])
    p1 = p0[::-1]
    mixed = (1 - rate) * p0 + rate * p1
    forward = np.maximum(mixed - math.exp(epsilon) * p0, 0).sum()
    backward = np.maximum(p0 - math.exp(epsilon) * mixed, 0).sum()
    terms = resolve(events.PoissonSampled(rate, events.Pure(inner)), "add_remove")
    assert pld.delta(terms, epsilon) == pytest.approx(max(forward, backward), rel=1e-9, abs=1e-15)


@few
@given(simple, relations, deltas)
def test_sampling_never_costs_more(event, relation, delta):
    whole = accounting.epsilon(event, delta, relation=relation)
    part = accounting.epsilon(events.PoissonSampled(0.3, event), delta, relation=relation)
    assert part <= whole * (1 + 1e-3) + 1e-9


@few
@given(st.lists(leaves, min_size=1, max_size=4), deltas)
def test_parallel_is_the_worst_part_or_the_two_worst(parts, delta):
    together = events.Parallel(tuple(parts))
    singles = [accounting.epsilon(part, delta) for part in parts]
    assert accounting.epsilon(together, delta) >= max(singles) * (1 - 1e-3)
    if len(parts) > 1:
        pairs = [accounting.epsilon(events.Compose(pair), delta) for pair in itertools.combinations(parts, 2)]
        assert accounting.epsilon(together, delta, relation="replace_one") >= max(pairs) * (1 - 1e-3)


def test_parallel_over_many_different_parts_stays_valid():
    parts = tuple(events.Pure(0.01 * i) for i in range(1, 40))
    assert accounting.epsilon(events.Parallel(parts), 0.0) == pytest.approx(0.39)
    moved = accounting.epsilon(events.Parallel(parts), 0.0, relation="replace_one")
    assert 0.77 <= moved <= 0.78 * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 8.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5])
def test_calibration_is_private_and_within_a_thousandth(epsilon, delta):
    def run(noise):
        return events.Repeat(events.PoissonSampled(0.02, events.Gaussian(noise)), 300)

    noise = accounting.calibrate(run, epsilon=epsilon, delta=delta)
    assert accounting.epsilon(run(noise), delta) <= epsilon
    assert accounting.epsilon(run(noise * 0.999), delta) > epsilon


def test_calibration_of_pure_noise_is_exact():
    assert accounting.calibrate(events.Laplace, epsilon=0.5, delta=0.0) == pytest.approx(2.0, rel=1e-4)


def test_asking_twice_gives_the_same_answer():
    event = events.Repeat(events.PoissonSampled(0.01, events.Gaussian(1.0)), 100)
    first = accounting.compare(event, 1e-5)
    accounting.epsilon(event, 1e-9)
    accounting.delta(event, 1.0)
    assert accounting.compare(event, 1e-5) == first


def test_one_accountant_failing_leaves_the_others(monkeypatch):
    def broken(terms, delta):
        raise MemoryError

    event = events.Repeat(events.Gaussian(5.0), 10)
    monkeypatch.setitem(accounting.METHODS, "pld", broken)
    answers = accounting.compare(event, 1e-5)
    assert "pld" not in answers
    assert accounting.epsilon(event, 1e-5) == min(answers.values())


def test_extremes_stay_finite_bounded_and_quiet():
    for event in (
        events.Gaussian(1e-3),
        events.Repeat(events.Gaussian(1e3), 10**9),
        events.Repeat(events.PoissonSampled(1e-6, events.Gaussian(0.3)), 10**6),
        events.Repeat(events.PoissonSampled(0.5, events.Gaussian(0.2)), 1000),
        events.Repeat(events.Pure(30.0), 10),
        events.Repeat(events.Laplace(1e-2), 3),
        events.Compose((events.Pure(1e-6), events.Pure(20.0), events.Gaussian(0.5))),
    ):
        epsilon = accounting.epsilon(event, 1e-6)
        assert math.isfinite(epsilon)
        assert epsilon >= 0


def test_events_known_by_their_curve_alone():
    event = events.Compose((events.Renyi((2.0, 8.0, 32.0), (0.1, 0.3, 1.0)), events.Gaussian(4.0)))
    answers = accounting.compare(event, 1e-5)
    assert "pld" not in answers
    assert "zcdp" not in answers
    with pytest.raises(errors.UnsupportedEvent, match="Rényi"):
        accounting.epsilon(event, 1e-5, method="pld")


@pytest.mark.parametrize(
    "bad",
    [
        lambda: accounting.epsilon(events.Gaussian(1.0), -1e-5),
        lambda: accounting.epsilon(events.Gaussian(1.0), 1.0),
        lambda: accounting.epsilon(events.Gaussian(1.0), float("nan")),
        lambda: accounting.epsilon(events.Gaussian(1.0), 1e-5, relation="swap"),
        lambda: accounting.epsilon(events.Gaussian(1.0), 1e-5, method="magic"),
        lambda: accounting.epsilon("gaussian", 1e-5),
        lambda: accounting.delta(events.Gaussian(1.0), -0.1),
        lambda: accounting.calibrate(events.Gaussian, epsilon=0.0, delta=1e-5),
        lambda: accounting.calibrate(events.Gaussian, epsilon=math.inf, delta=1e-5),
        lambda: accounting.calibrate(1.0, epsilon=1.0, delta=1e-5),
        lambda: accounting.group(1.0, 0.1, 0),
        lambda: events.Gaussian(0.0),
        lambda: events.Gaussian(float("nan")),
        lambda: events.Laplace(-1.0),
        lambda: events.Pure(0.0),
        lambda: events.Pure(math.inf),
        lambda: events.Approximate(1.0, 1.0),
        lambda: events.Renyi((2.0,), (0.1, 0.2)),
        lambda: events.Renyi((0.5,), (0.1,)),
        lambda: events.Renyi((3.0, 2.0), (0.1, 0.1)),
        lambda: events.PoissonSampled(0.0, events.Gaussian(1.0)),
        lambda: events.PoissonSampled(0.5, "gaussian"),
        lambda: events.SampledWithoutReplacement(11, 10, events.Gaussian(1.0)),
        lambda: events.Repeat(events.Gaussian(1.0), -1),
        lambda: events.Repeat(events.Gaussian(1.0), 1.5),
        lambda: events.Compose(events.Gaussian(1.0)),
        lambda: events.RandomizedResponse(1.0, 1),
    ],
)
def test_bad_values_are_named(bad):
    with pytest.raises(errors.InvalidValue, match=r"must be .*, got"):
        bad()


def test_calibration_without_an_answer():
    with pytest.raises(errors.CalibrationError, match="delta"):
        accounting.calibrate(events.Gaussian, epsilon=1.0, delta=0.0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "3",
        '{"is":"gauss","noise_multiplier":1}',
        '{"is":"gaussian"}',
        '{"is":"gaussian","noise_multiplier":1,"extra":2}',
        '{"is":"gaussian","noise_multiplier":NaN}',
        '{"is":"gaussian","noise_multiplier":1e999}',
        '{"is":"gaussian","noise_multiplier":-1}',
        '{"is":"gaussian","noise_multiplier":true}',
        '{"is":"gaussian","noise_multiplier":"1"}',
        '{"is":"gaussian","noise_multiplier":1,"noise_multiplier":9}',
        '{"is":"compose","events":{"is":"pure","epsilon":1}}',
        '{"is":"repeat","times":2,"event":null}',
        '{"is":["gaussian"],"noise_multiplier":1}',
        '{"is":"repeat","times":1,"event":' * 5000 + "1" + "}" * 5000,
        '{"is":"repeat","times":1,"event":' * 70 + '{"is":"pure","epsilon":1}' + "}" * 70,
    ],
)
def test_tampered_events_are_refused(text):
    with pytest.raises(errors.MalformedEvent):
        events.from_json(text)


def test_memory_is_bounded():
    """A million steps at a tiny rate, the case that exhausts accountants with a fixed grid."""
    event = events.Repeat(events.PoissonSampled(1e-5, events.Gaussian(0.5)), 10**6)
    tracemalloc.start()
    try:
        accounting.epsilon(event, 1e-6, method="pld")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 600e6
