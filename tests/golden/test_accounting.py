"""Accounting against published numbers and independent implementations."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from tacit import accounting, events
from tacit.accounting import pld, profiles, rdp
from tacit.accounting.terms import resolve


def training(rate: float, noise: float, steps: int) -> events.Event:
    return events.Repeat(events.PoissonSampled(rate, events.Gaussian(noise)), steps)


MNIST = training(256 / 60000, 1.1, 3510)


def test_mnist_run_by_each_accountant():
    """dp-accounting 0.6: PLD 1.1329 at interval 1e-4, RDP 1.2804."""
    answers = accounting.compare(MNIST, 1e-5)
    assert answers["pld"] == pytest.approx(1.1329, abs=2e-4)
    assert answers["rdp"] == pytest.approx(1.2804, abs=1e-4)
    assert accounting.epsilon(MNIST, 1e-5) == min(answers.values()) == answers["pld"]


def test_small_rate_needs_a_fine_grid():
    """A fixed grid of 1e-3 gives 0.41 and one of 1e-4 gives 0.2488; dp-accounting at 2e-5: 0.24394."""
    epsilon = accounting.epsilon(training(1e-4, 0.8, 100_000), 1e-6)
    assert 0.2430 < epsilon < 0.24394


def test_abadi_et_al():
    """q = 0.01, σ = 4, 10⁴ steps, δ = 1e-5: their figure says 1.26, the tight value is 0.947."""
    assert accounting.epsilon(training(0.01, 4.0, 10_000), 1e-5) == pytest.approx(0.947, abs=5e-4)


def test_calibration_of_the_mnist_run():
    """dp-accounting's PLD calibration gives 0.8385."""
    noise = accounting.calibrate(lambda z: training(256 / 60000, z, 3510), epsilon=2.0, delta=1e-5)
    assert noise == pytest.approx(0.8385, rel=1e-3)
    assert accounting.epsilon(training(256 / 60000, noise, 3510), 1e-5) <= 2.0


def test_two_hundred_steps_of_a_tenth():
    """(0.1, 1e-5) two hundred times: basic composition gives (20, 2e-3)."""
    event = events.Repeat(events.Approximate(0.1, 1e-5), 200)
    answers = accounting.compare(event, 1e-2)
    assert answers["basic"] == pytest.approx(20.0)
    assert accounting.compare(event, 1.99e-3) == {}
    drv = 0.1 * math.sqrt(2 * 200 * math.log(1 / 8e-3)) + 200 * 0.1 * math.tanh(0.05)
    assert answers["advanced"] == pytest.approx(drv)
    assert answers["pld"] == pytest.approx(answers["optimal"], rel=1e-4)
    assert answers["pld"] < answers["advanced"] < answers["basic"]


def test_gaussian_moments_in_closed_form():
    """Figure 3 of the tutorial: σ² = 1, Δ = 0.01, T = 1000, δ = 1e-5; eqs 53–55 minimised numerically.

    Its eq. 59 has −ε where minimising gives −ε/2; the root printed there is larger.
    """
    variance, sensitivity, steps, delta = 1.0, 0.01, 1000, 1e-5
    answers = accounting.compare(events.Repeat(events.Gaussian(100.0), steps), delta)
    t = np.geomspace(1e-2, 1e3, 200_001)
    moments = steps * sensitivity**2 / (2 * variance) * (t + t * t)
    assert np.exp(np.min(moments - t * answers["moments"])) == pytest.approx(delta, rel=1e-6)
    a, c = variance / (2 * steps * sensitivity**2), steps * sensitivity**2 / (8 * variance) + math.log(delta)
    assert answers["moments"] < (1 + math.sqrt(1 - 4 * a * c)) / (2 * a)
    assert answers["pld"] < answers["zcdp"] < answers["moments"] < answers["advanced"] < answers["basic"]


def test_gaussian_profile():
    """Balle and Wang: μ = 1 at δ = 1e-5 is ε = 4.377178."""
    assert accounting.epsilon(events.Gaussian(1.0), 1e-5) == pytest.approx(4.377178, abs=1e-6)


def test_few_shot_generation(shared_dir):
    rows = json.loads((shared_dir / "vectors" / "algorithms.json").read_text())["tang_fewshot_pld"]
    for row in rows:
        epsilon = accounting.epsilon(training(row["q"], row["sigma"], row["T"]), row["delta"])
        assert epsilon == pytest.approx(row["eps"], rel=2e-3), row


def test_sampling_without_replacement():
    """dp-accounting's RDP accountant, replace-one: 2.4329."""
    event = events.Repeat(events.SampledWithoutReplacement(256, 60000, events.Gaussian(1.1)), 3510)
    answers = accounting.compare(event, 1e-5, relation="replace_one")
    assert answers["rdp"] == pytest.approx(2.43294, abs=1e-4)
    assert answers["pld"] < answers["rdp"]


@pytest.mark.parametrize(
    ("rate", "noise", "steps", "delta"),
    [(0.02, 0.8, 200, 1e-6), (0.3, 3.0, 50, 1e-5), (0.9, 2.0, 7, 1e-8)],
)
def test_between_optimistic_and_pessimistic_loss_distributions(rate, noise, steps, delta):
    """dp-accounting brackets the truth: never below its optimistic answer, at most 0.5 % above it."""
    peer = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")

    def bound(pessimistic: bool) -> float:
        step = peer.from_gaussian_mechanism(
            noise,
            sampling_prob=rate,
            pessimistic_estimate=pessimistic,
            use_connect_dots=pessimistic,
            value_discretization_interval=1e-4 if pessimistic else 2e-5,
        )
        return step.self_compose(steps).get_epsilon_for_delta(delta)

    epsilon = accounting.epsilon(training(rate, noise, steps), delta, method="pld")
    assert bound(False) <= epsilon <= 1.005 * bound(True)


@pytest.mark.parametrize(("rate", "noise", "steps"), [(256 / 60000, 1.1, 3510), (0.2, 2.0, 30)])
def test_replace_one_against_the_peer(rate, noise, steps):
    """With noise per unit of the replace-one sensitivity the units sit at ±½."""
    peer = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    relation = peer.NeighborRel.REPLACE_ONE
    step = peer.from_gaussian_mechanism(
        noise, sensitivity=0.5, sampling_prob=rate, neighboring_relation=relation
    )
    expected = step.self_compose(steps).get_epsilon_for_delta(1e-5)
    answer = accounting.epsilon(training(rate, noise, steps), 1e-5, relation="replace_one")
    assert answer == pytest.approx(expected, rel=2e-3)


def test_laplace_and_randomized_response_composed():
    peer = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    laplace = peer.from_laplace_mechanism(10.0, value_discretization_interval=1e-4).self_compose(200)
    answer = accounting.epsilon(events.Repeat(events.Laplace(10.0), 200), 1e-5, method="pld")
    assert answer == pytest.approx(laplace.get_epsilon_for_delta(1e-5), rel=1e-3)
    response = peer.from_randomized_response(
        4 / (math.exp(0.5) + 3), 4, value_discretization_interval=1e-4
    ).self_compose(20)
    answer = accounting.epsilon(events.Repeat(events.RandomizedResponse(0.5, 4), 20), 1e-5, method="pld")
    assert answer == pytest.approx(response.get_epsilon_for_delta(1e-5), rel=2e-3)


@pytest.mark.parametrize("order", [1.1, 1.5, 2.0, 2.5, 7.0, 33.3])
def test_sampled_gaussian_curve_by_high_precision_quadrature(order):
    mpmath = pytest.importorskip("mpmath")
    q, z = mpmath.mpf("0.01"), mpmath.mpf("0.7")

    def density(x):
        return mpmath.npdf(x, 0, z) * ((1 - q) + q * mpmath.exp((2 * x - 1) / (2 * z * z))) ** order

    with mpmath.workdps(30):
        moment = mpmath.quad(density, [-9, -2, 0, 1, 2, 4, 8, 16, 32, 48])
        expected = float(mpmath.log(moment) / (order - 1))
    terms = resolve(events.PoissonSampled(0.01, events.Gaussian(0.7)), "add_remove")
    answer = rdp.curve(terms, np.array([order])).divergences[0]
    assert expected * (1 - 1e-12) <= answer <= expected * (1 + 3e-9)


@pytest.mark.parametrize(("rate", "noise", "epsilon"), [(0.01, 1.0, 0.001), (0.3, 0.5, 0.1), (0.3, 0.5, 1.0)])
def test_opposite_gaussians_by_quadrature(rate, noise, epsilon):
    from scipy.integrate import quad
    from scipy.stats import norm

    def excess(y):
        base = (1 - rate) * norm.pdf(y, 0, noise)
        up, down = norm.pdf(y, 0.5, noise), norm.pdf(y, -0.5, noise)
        return max(base + rate * up - math.exp(epsilon) * (base + rate * down), 0.0)

    expected = quad(excess, -10 * noise, 10 * noise + 1, limit=2000, epsabs=1e-13)[0]
    assert profiles.opposite_gaussians(rate, noise, np.array([epsilon]))[0] == pytest.approx(
        expected, rel=1e-5
    )


def test_opposite_is_the_worst_direction():
    """Monte-Carlo-free check in two dimensions: no angle and no length beats the opposite pair."""
    q, z, epsilon = 0.2, 0.6, 0.3
    grid = np.linspace(-4.5, 4.5, 601)
    y = np.stack(np.meshgrid(grid, grid), axis=-1)
    cell = (grid[1] - grid[0]) ** 2

    def density(mean):
        return np.exp(-np.square(y - mean).sum(axis=-1) / (2 * z * z)) / (2 * math.pi * z * z)

    def divergence(x, other):
        p = (1 - q) * density([0, 0]) + q * density(x)
        r = (1 - q) * density([0, 0]) + q * density(other)
        return np.maximum(p - math.exp(epsilon) * r, 0).sum() * cell

    worst = profiles.opposite_gaussians(q, z, np.array([epsilon]))[0]
    assert divergence([0.5, 0], [-0.5, 0]) == pytest.approx(worst, rel=1e-3)
    for angle in np.linspace(0, math.pi, 9):
        for length in (0.2, 0.5):
            other = [length * math.cos(angle), length * math.sin(angle)]
            assert divergence([0.5, 0], other) <= worst * (1 + 1e-3)


def test_bounded_range_profile_by_search():
    """The envelope over all two-point distributions with losses t and t − ε."""
    epsilon = 1.3
    for at in (0.0, 0.4, 1.0):
        t = np.linspace(0, epsilon, 20001)
        p = -np.expm1(t - epsilon) / -math.expm1(-epsilon)
        best = np.max(np.maximum(p - math.exp(at) * p * np.exp(-t), 0))
        terms = resolve(events.BoundedRange(epsilon), "add_remove")
        assert pld.delta(terms, at) == pytest.approx(best, rel=1e-6)
        order = 4.0
        moment = np.max(p * np.exp(t * 3) + (1 - p) * np.exp((t - epsilon) * 3))
        curve = rdp.curve(terms, np.array([order])).divergences[0]
        assert curve == pytest.approx(math.log(moment) / 3, rel=1e-6)


def test_seed_and_tight_group_privacy():
    epsilon, delta = accounting.group(0.5, 1e-6, 4)
    assert epsilon == 2.0
    assert delta == pytest.approx(1e-6 * sum(math.exp(0.5 * i) for i in range(4)))
    assert delta < 4 * math.exp(1.5) * 1e-6


@pytest.mark.parametrize("times", [2, 5, 7, 12])
def test_loss_distribution_equals_the_optimal_theorem(times):
    """Two independent computations of the same exact quantity, also where bounded losses pile up."""
    answers = accounting.compare(events.Repeat(events.Approximate(0.1, 1e-5), times), 1e-2)
    assert answers["pld"] == pytest.approx(answers["optimal"], rel=1e-5)


@pytest.mark.parametrize(
    ("event", "divergences", "epsilon"),
    [
        (events.BestOf(events.Gaussian(8.0), 1.0, 0.1), (0.796964, 0.845169, 1.057441), 1.1266253),
        (events.BestOf(events.Gaussian(8.0), 0.0, 0.0269182596), (0.604450, 0.652655, 0.864927), 0.9341114),
        (events.BestOfPoisson(events.Gaussian(8.0), 10.0), (0.712511, 0.911043, 1.206607), 1.2131248),
    ],
    ids=["geometric", "logarithmic", "poisson"],
)
def test_the_best_of_a_random_number_of_runs(event, divergences, epsilon):
    """dp-accounting 0.6, RepeatAndSelectDpEvent of a mean of 10 runs: orders 16, 32 and 64, ε at δ = 1e-6."""
    found = rdp.curve(resolve(event, "add_remove"), np.array([16.0, 32.0, 64.0])).divergences
    assert found == pytest.approx(divergences, abs=1e-6)
    assert accounting.epsilon(event, 1e-6, method="rdp") == pytest.approx(epsilon, abs=1e-6)


def test_the_best_of_pure_runs():
    """Liu and Talwar 2019: 3ε for a geometric number of runs; Papernot and Steinke 2022: (2 + η)ε."""
    for eta, times in ((1.0, 3.0), (0.0, 2.0), (-0.5, 1.5)):
        event = events.BestOf(events.Pure(0.01), eta, 1e-9)
        assert times * 0.01 * 0.999 < accounting.epsilon(event, 0.0) <= times * 0.01
