"""Amplification by shuffling, against other people's code and against all laws of small batches in exact
fractions.

``FMT`` are brackets (lower and upper bound on ε) of the authors' script, apple/ml-shuffling-amplification,
run with 16 halvings; its line p = e^−ε₀ was replaced by 2/(e^ε₀ + 1), the chance of a clone in the paper of
2023. ``WANG`` are brackets of wangsw/PrivacyAmplification, amplificationLB and UB with the parameters of a
general randomizer and 18 halvings.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from tacit import accounting, events
from tacit.accounting import shuffling
from tacit.errors import UnsupportedEvent

PEERS = {
    (4.0, 10**5, 1e-6): ((0.118153, 0.123398), (0.118148, 0.118165)),
    (1.0, 10**4, 1e-6): ((0.043206, 0.045375), (0.043205, 0.043210)),
    (2.0, 10**5, 1e-8): ((0.043677, 0.045068), (0.043670, 0.043892)),
    (6.0, 10**5, 1e-6): ((0.357042, 0.371657), (0.357009, 0.357056)),
    (0.5, 10**6, 1e-9): ((0.002426, 0.002505), (0.002426, 0.002440)),
}


@pytest.mark.parametrize(("local", "reports", "delta"), PEERS)
def test_peers(local: float, reports: int, delta: float):
    fmt, wang = PEERS[local, reports, delta]
    found = accounting.epsilon(events.Shuffled(events.Pure(local), reports), delta)
    assert wang[0] <= found <= min(fmt[1], wang[1] * 1.001)
    assert found >= fmt[0] * (1 - 1e-4)


Law = dict[tuple[int, ...], Fraction]


def law(values: tuple[int, ...], categories: int, growth: Fraction) -> Law:
    """How likely each histogram of the responses of these people is."""
    chance = 1 / (growth + categories - 1)
    found: Law = {(0,) * categories: Fraction(1)}
    for value in values:
        longer: Law = {}
        for counts, probability in found.items():
            for category in range(categories):
                after = (*counts[:category], counts[category] + 1, *counts[category + 1 :])
                share = chance * growth if category == value else chance
                longer[after] = longer.get(after, Fraction(0)) + probability * share
        found = longer
    return found


def hockey_stick(first: Law, second: Law, growth: Fraction) -> Fraction:
    return sum(
        (max(p - growth * second.get(counts, 0), Fraction(0)) for counts, p in first.items()), Fraction(0)
    )


def worst(categories: int, local: Fraction, reports: int, growth: Fraction) -> float:
    """The largest δ over all values of the others."""
    others = itertools.combinations_with_replacement(range(categories), reports - 1)
    found = max(
        hockey_stick(law((0, *rest), categories, local), law((1, *rest), categories, local), growth)
        for rest in others
    )
    return float(found)


def bound(event: events.RandomizedResponse | events.Pure, reports: int, growth: Fraction) -> float:
    return float(shuffling.profile(events.Shuffled(event, reports), np.array([math.log(growth)]))[0])


@pytest.mark.parametrize(
    ("categories", "local", "reports"),
    [(2, 3, 1), (2, 3, 2), (2, 3, 9), (2, 20, 12), (3, 3, 5), (3, 20, 5), (4, 8, 4)],
)
@pytest.mark.parametrize("growth", [Fraction(1), Fraction(21, 20), Fraction(3, 2), Fraction(5, 2)])
def test_every_small_batch(categories: int, local: int, reports: int, growth: Fraction):
    """The bound is never below the truth. It is near
    where there is a third category, which the others can all have."""
    truth = worst(categories, Fraction(local), reports, growth)
    own = bound(events.RandomizedResponse(math.log(local), categories), reports, growth)
    general = bound(events.Pure(math.log(local)), reports, growth)
    assert truth <= own * (1 + 1e-9)
    assert own <= general * (1 + 1e-9)
    if categories > 2 or reports <= 2:
        assert own == pytest.approx(truth, rel=0.06)
    else:
        assert own < 1.5 * truth


def test_binary_responses_are_the_worst_randomizer():
    """For two categories the bounds are one; more categories cost less, and twice the reports cost less."""
    general = events.Shuffled(events.Pure(3.0), 1000)
    costs = [
        accounting.epsilon(events.Shuffled(events.RandomizedResponse(3.0, k), 1000), 1e-6)
        for k in (2, 3, 10, 100)
    ]
    assert costs[0] == accounting.epsilon(general, 1e-6)
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] < costs[0] / 1.5
    assert accounting.epsilon(events.Shuffled(events.Pure(3.0), 2000), 1e-6) < costs[0]


def test_blocks_bound_the_exact_sum(monkeypatch: pytest.MonkeyPatch):
    """Blocks of counts give no less than the sum over all counts, and at most a little more."""

    def costs() -> list[float]:
        shuffling._blocks.cache_clear()
        kinds = (events.Pure(2.0), events.RandomizedResponse(2.0, 8))
        return [accounting.epsilon(events.Shuffled(kind, 600), 1e-6, method="pld") for kind in kinds]

    blocks = costs()
    monkeypatch.setattr(shuffling, "EXACT", 10**6)
    monkeypatch.setattr(shuffling, "WIDTH", 0.9)
    exact = costs()
    shuffling._blocks.cache_clear()
    for coarse, fine in zip(blocks, exact, strict=True):
        assert fine <= coarse <= fine * 1.02


@pytest.mark.parametrize("trials", [10, 1000, 20_000])
def test_tails_are_as_accurate_as_is_allowed_for(trials: int):
    """Against sums of whole numbers."""
    spread = math.sqrt(trials) / 2
    for deviations in (-3, 0, 2, 6, 15):
        least = min(max(round(trials / 2 + deviations * spread), 1), trials)
        ways = math.comb(trials, least)
        total = ways
        for k in range(least, trials):
            ways = ways * (trials - k) // (k + 1)
            total += ways
        exact = Fraction(total, 2**trials)
        found = Fraction(float(shuffling._at_least(np.array([float(least)]), np.array([float(trials)]))[0]))
        assert abs(found / exact - 1) <= shuffling.TAIL_ERROR * (math.sqrt(trials) + 5)


def test_many_rounds_compose():
    """Ten rounds by the loss distribution cost less than by Rényi, and that less than ten times one round."""
    once = events.Shuffled(events.Pure(2.0), 10_000)
    ten = events.Repeat(once, 10)
    tight = accounting.epsilon(ten, 1e-6, method="pld")
    renyi = accounting.epsilon(ten, 1e-6, method="rdp")
    assert accounting.epsilon(once, 1e-6) < tight < renyi < 1.15 * tight
    assert renyi < 10 * accounting.epsilon(once, 1e-7)


def test_renyi_divergence_of_a_small_batch():
    """Against the Rényi divergence of the pair of the proof, summed over all counts."""
    local, reports, growth = 1.5, 30, math.exp(1.5)
    clone = 1 / (growth + 1)
    orders = np.array([1.5, 2.0, 8.0, 64.0])
    exact = np.zeros(orders.size)
    for a in range(reports + 1):
        for b in range(reports + 1 - a):
            ways = math.comb(reports, a) * math.comb(reports - a, b)
            base = ways * clone ** (a + b) * (1 - 2 * clone) ** (reports - a - b) / reports
            one, other = base * (a * growth + b), base * (a + b * growth)
            if a + b:
                exact += other * (one / other) ** orders
    exact = np.log(exact) / (orders - 1)
    found = shuffling.divergence(events.Shuffled(events.Pure(local), reports), orders)
    assert np.all(exact <= found)
    assert found == pytest.approx(exact, rel=0.02)


@pytest.mark.parametrize("reports", [1, 2, 10**8, 10**12])
@pytest.mark.parametrize("local", [1e-6, 0.1, 5.0, 30.0, 500.0])
def test_extremes(local: float, reports: int):
    """Never above the cost of a report that is not shuffled, never negative, falling in ε."""
    event = events.Shuffled(events.Pure(local), reports)
    at = np.linspace(0, local, 7)
    deltas = shuffling.profile(event, at)
    assert np.all(deltas >= 0)
    assert np.all(np.diff(deltas) <= 0)
    assert deltas[-1] == 0
    assert accounting.epsilon(event, 1e-9) <= local
    assert accounting.epsilon(event, 0.0) == local
    assert np.all(np.isfinite(shuffling.divergence(event, np.array([1.01, 2.0, 1e7]))))


def test_a_poisson_sample_is_refused():
    """How many were sampled would show in the number of reports."""
    shuffled = events.Shuffled(events.Pure(1.0), 100)
    for inner in (shuffled, events.Compose((shuffled, events.Gaussian(1.0)))):
        with pytest.raises(UnsupportedEvent, match="SampledWithoutReplacement"):
            accounting.epsilon(events.PoissonSampled(0.1, inner), 1e-6)


def test_a_sample_mixes_no_more_reports_than_it_has_people():
    mixed = events.Shuffled(events.Pure(1.0), 1000)
    accounting.epsilon(events.SampledWithoutReplacement(1000, 5000, mixed), 1e-6)
    for inner in (mixed, events.Compose((events.Gaussian(1.0), mixed)), events.Parallel((mixed, mixed))):
        with pytest.raises(UnsupportedEvent, match="cannot mix more than 10 reports"):
            accounting.epsilon(events.SampledWithoutReplacement(10, 100, inner), 1e-6)


@pytest.mark.parametrize("loss", [1e-15, 1e-12, 1e-9])
def test_tiny_losses_keep_their_digits(loss: float):
    """For ε and ε₀ far below 1, δ(ε)/ε₀ depends on ε/ε₀ alone."""
    event = events.Shuffled(events.Pure(loss), 2)
    larger = events.Shuffled(events.Pure(1e-5), 2)
    for share in (0.0, 0.25, 0.5, 0.9):
        scaled = accounting.delta(larger, share * 1e-5) / 1e-5
        assert accounting.delta(event, share * loss) / loss == pytest.approx(scaled, rel=1e-4)


@pytest.mark.parametrize("loss", [1e4, 1e6])
def test_losses_beyond_all_hiding_cost_what_one_report_costs(loss: float):
    event = events.Shuffled(events.Pure(loss), 100)
    assert shuffling.profile(event, np.linspace(0, loss, 50))[-1] == 0
    assert (shuffling.divergence(event, np.array([2.0, 50.0])) == loss).all()
    assert loss * (1 - 1e-5) <= accounting.epsilon(event, 1e-6) <= loss
