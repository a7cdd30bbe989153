"""Filters stop in time, whatever is chosen next; and admit what fits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit import accounting, errors, events
from tacit.accounting import filters

quick = settings(max_examples=80, deadline=None, derandomize=True)
choices = st.one_of(
    st.floats(1, 60).map(events.Gaussian),
    st.floats(1, 60).map(events.Laplace),
    st.floats(0.01, 0.5).map(events.BoundedRange),
    st.tuples(st.floats(0.01, 0.5), st.floats(0, 1e-7)).map(lambda t: events.Approximate(*t)),
    st.tuples(st.floats(0.01, 0.3), st.floats(0.8, 8)).map(
        lambda t: events.PoissonSampled(t[0], events.Gaussian(t[1]))
    ),
)


def fill(rule, sequence, declared=None):
    """Charge a sequence until the first refusal; the admitted events, the total and the mode."""
    total, mode, admitted = filters.Cost(), None, []
    for event in sequence:
        so_far = total
        admission = rule.admit(event, lambda cost, so_far=so_far: so_far + cost, mode, declared)
        if admission is None:
            break
        total, mode = total + admission.cost, admission.mode
        admitted.append(event)
        assert admission.epsilon <= rule.epsilon
        assert rule.spent(total, mode) <= rule.epsilon * (1 + 1e-11)
    return admitted, total, mode


@quick
@given(st.lists(choices, min_size=1, max_size=25), st.sampled_from([0.5, 1.0, 3.0]))
def test_what_is_admitted_fits_the_budget(sequence, epsilon):
    """Fixed in advance, the tightest accountant can only find less than the filter did."""
    rule = filters.BudgetFilter(epsilon, 1e-6)
    admitted, total, mode = fill(rule, sequence)
    fixed = accounting.epsilon(events.Compose(tuple(admitted)), 1e-6)
    assert fixed <= rule.spent(total, mode) * (1 + 1e-3) + 1e-12


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize(("epsilon", "share", "count"), [(1.0, 0.1, 10), (0.3, 0.1, 3), (1.0, 1 / 3, 3)])
def test_decimal_shares_add_up_to_the_whole(delta, epsilon, share, count):
    admitted, _, _ = fill(filters.BudgetFilter(epsilon, delta), [events.Laplace(1 / share)] * (count + 5))
    assert len(admitted) == count


def test_many_small_gaussians_go_as_far_as_the_renyi_filter():
    rule = filters.BudgetFilter(1.0, 1e-6)
    admitted, _, mode = fill(rule, [events.Gaussian(50.0)] * 1000)
    best = filters.RenyiFilter.for_budget(1.0, 1e-6)
    while best.admits(events.Gaussian(50.0)):
        best.charge(events.Gaussian(50.0))
    assert mode == "renyi"
    assert len(admitted) >= 0.93 * best.spent / best.price(events.Gaussian(50.0))


def test_a_run_calibrated_to_the_whole_budget_fits_once():
    def run(noise):
        return events.Repeat(events.PoissonSampled(0.01, events.Gaussian(noise)), 1000)

    noise = accounting.calibrate(run, epsilon=2.0, delta=1e-5)
    admitted, total, mode = fill(filters.BudgetFilter(2.0, 1e-5), [run(noise)] * 2)
    assert (len(admitted), mode, total.delta) == (1, "basic", 1e-5)


def test_two_runs_with_half_the_budget_each():
    def run(noise):
        return events.Repeat(events.PoissonSampled(0.01, events.Gaussian(noise)), 1000)

    noise = accounting.calibrate(run, epsilon=1.0, delta=5e-6)
    admitted, _, _ = fill(filters.BudgetFilter(2.0, 1e-5), [run(noise)] * 3, declared=5e-6)
    assert len(admitted) == 2


def test_a_refusal_does_not_depend_on_the_order_of_asking():
    rule = filters.BudgetFilter(1.0, 1e-6)
    assert rule.admit(events.Pure(2.0), lambda cost: cost) is None
    assert rule.admit(events.Pure(1.0), lambda cost: cost) is not None


def test_partition_under_replace_one_is_priced_at_the_worse_relation():
    """A fixed-size batch costs more when a unit is replaced than when one is added; and sampling
    by coin the other way round, per unit of its own sensitivity."""
    rule = filters.BudgetFilter(3.0, 1e-5, "replace_one")
    event = events.Repeat(events.PoissonSampled(0.05, events.Gaussian(1.5)), 50)
    plain = rule.admit(event, lambda cost: cost)
    parted = rule.admit(event, lambda cost: cost, partitioned=True)
    assert plain is not None
    assert parted is not None
    assert parted.cost.renyi > plain.cost.renyi
    assert parted.cost.epsilon > plain.cost.epsilon


def test_worst_partition():
    costs = [filters.Cost(1.0, 0.1, 0.2, 0.0), filters.Cost(0.5, 0.3, 0.1, 0.0), filters.Cost(0.2)]
    assert filters.worst(costs, "add_remove") == filters.Cost(1.0, 0.3, 0.2, 0.0)
    assert filters.worst(costs, "replace_one") == filters.Cost(1.5, 0.4, pytest.approx(0.3), 0.0)
    assert filters.worst([], "add_remove") == filters.Cost()


@pytest.mark.parametrize(
    "rule",
    [
        filters.PureFilter(0.3),
        filters.ZeroConcentratedFilter(0.02),
        filters.RenyiFilter(8.0, 0.1),
    ],
)
def test_simple_filters_stop(rule):
    event = events.Laplace(10.0)
    count = 0
    while rule.admits(event):
        rule.charge(event)
        count += 1
    assert count == math.floor(rule.limit / rule.price(event) * (1 + 1e-9))
    with pytest.raises(errors.BudgetExceeded, match="left"):
        rule.charge(event)
    assert rule.spent <= rule.limit * (1 + 1e-11)


def test_renyi_filter_for_a_budget_ends_private():
    rule = filters.RenyiFilter.for_budget(2.0, 1e-6)
    event = events.PoissonSampled(0.02, events.Gaussian(1.0))
    count = int(rule.limit / rule.price(event))
    assert accounting.epsilon(events.Repeat(event, count), 1e-6) <= 2.0


def test_individual_filter_lets_people_drop_out_one_by_one():
    people = filters.IndividualRenyiFilter.for_budget(4, epsilon=1.0, delta=1e-6)
    norms = np.array([1.0, 0.5, 0.1, 0.0])
    rounds = np.zeros(4, dtype=int)
    for _ in range(400):
        rounds += people.admit(people.gaussian_cost(norms, standard_deviation=20.0))
    assert rounds[0] < rounds[1] < rounds[2]
    assert rounds[3] == 400
    assert rounds[1] == pytest.approx(4 * rounds[0], abs=4)
    assert (people.spent <= people.limit).all()
    for norm, count in zip(norms[:3], rounds[:3], strict=True):
        event = events.Repeat(events.Gaussian(20.0 / norm), int(count))
        assert accounting.epsilon(event, 1e-6) <= 1.0


def test_individual_filter_leaves_out_whom_it_cannot_price():
    """An error here would depend on one person's data."""
    people = filters.IndividualRenyiFilter(4, order=4.0, limit=1.0)
    assert people.admit([0.1, -1.0, float("nan"), math.inf]).tolist() == [True, False, False, False]
    assert people.spent.tolist() == [0.1, 0.0, 0.0, 0.0]
    with pytest.raises(errors.InvalidValue, match="shape"):
        people.admit([0.1])
