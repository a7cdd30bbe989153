"""Mechanisms: the noise has the stated law, the events are upper bounds, the intervals cover.

Seeds are fixed, and each test on a sample raises a false alarm with probability under 1e-6 over
the choice of seed.
"""

import copy
import math
import os
import pickle
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from scipy import stats

from tacit import _gaussian, events, mechanisms
from tacit.errors import BudgetExceeded
from tacit.mechanisms._grid import WIDENED
from tacit.mechanisms.randomized_response import favoured
from tacit.randomness import Source, exp_bounds

ALARM = 1e-6
SIZE = 100_000


def discrete_profile(pmf, shift, epsilon):
    """δ(ε) between noise and noise shifted by whole steps, summed over a lattice that holds it all."""
    return np.maximum(pmf[shift:] - np.exp(epsilon) * pmf[:-shift], 0).sum() + pmf[:shift].sum()


@pytest.mark.parametrize("a", [0.03, 0.2, 1.0, 3.0])
def test_discrete_laplace_reveals_no_more_than_continuous_with_one_step_more(a):
    reach = math.ceil(60 / a) + 40
    k = np.arange(-reach, reach + 1)
    pmf = math.tanh(a / 2) * np.exp(-a * np.abs(k))
    exceeded = False
    for shift in (1, 2, 3, 7, 20):
        for epsilon in np.linspace(0, (shift + 1) * a, 57):
            discrete = discrete_profile(pmf, shift, epsilon)
            assert discrete <= -np.expm1(min(0, (epsilon - (shift + 1) * a) / 2)) + 1e-12
            exceeded |= discrete > -np.expm1(min(0, (epsilon - shift * a) / 2)) + 1e-12
    assert exceeded, "without the extra step the bound would be false"


@pytest.mark.parametrize("sigma", [1.0, 1.7, 5.0, 40.0])
def test_discrete_gaussian_reveals_no_more_than_continuous_with_one_step_more(sigma):
    reach = math.ceil(38 * sigma)
    k = np.arange(-reach, reach + 1)
    pmf = np.exp(-(k**2) / (2 * sigma**2))
    pmf /= pmf.sum()
    exceeded = False
    for shift in (1, 2, 3, 7, 20, 60):
        if shift > 12 * sigma:
            continue
        for epsilon in np.linspace(0, (shift / sigma) ** 2 / 2 + 8 * shift / sigma, 61):
            discrete = discrete_profile(pmf, shift, epsilon)
            assert discrete <= float(_gaussian.profile(sigma / (shift + 1), epsilon)) * (1 + 1e-9) + 1e-14
            exceeded |= discrete > float(_gaussian.profile(sigma / shift, epsilon)) * (1 + 1e-9) + 1e-14
    assert exceeded, "without the extra step the bound would be false"


def test_vectors_reveal_no_more_than_one_coordinate_with_the_whole_distance():
    """Shifts (1, 1, 2) of discrete Laplace noise against a single shift by 4."""
    a = 0.4
    k = np.arange(-60, 61)
    pmf = math.tanh(a / 2) * np.exp(-a * np.abs(k))
    joint = pmf[:, None, None] * pmf[:, None] * pmf
    loss = a * (np.abs(k - 1) - np.abs(k))
    total = loss[:, None, None] + loss[:, None] + a * (np.abs(k - 2) - np.abs(k))
    for epsilon in np.linspace(0, 1.6, 9):
        vector = (joint * np.maximum(0, -np.expm1(epsilon - total))).sum()
        assert vector <= discrete_profile(pmf, 4, epsilon) + 1e-9


@pytest.mark.parametrize("sensitivity", [1.0, 0.37, 3e7])
@pytest.mark.parametrize("shape", [(SIZE,), (SIZE // 10, 10)])
def test_laplace_and_gaussian_noise_have_the_stated_scale(sensitivity, shape):
    values = np.linspace(-50, 50, SIZE).reshape(shape) * sensitivity
    laplace = mechanisms.Laplace(sensitivity, epsilon=0.25, random_state=21)
    gaussian = mechanisms.Gaussian(sensitivity, noise_multiplier=1.5, random_state=22)
    for mechanism, law, scale in ((laplace, stats.laplace, 4.0), (gaussian, stats.norm, 1.5)):
        released = mechanism(values)
        assert released.shape == values.shape
        assert released.dtype == np.float64
        noise = (released - values).ravel() / (sensitivity * scale)
        assert stats.kstest(noise, law.cdf).pvalue > ALARM
        for factor in (2 / 3, 3 / 2):
            assert stats.kstest(noise, law(scale=factor).cdf).pvalue < ALARM


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 10.0, 1e4, 1e9])
def test_extreme_scales(epsilon):
    noise = mechanisms.Laplace(1.0, epsilon=epsilon, random_state=23)(np.zeros(1000))
    assert stats.kstest(noise * epsilon, stats.laplace.cdf).pvalue > ALARM


@pytest.mark.parametrize(
    ("norm", "dimension"), [(2, 1), (2, 5), ("inf", 1), ("inf", 4), (1, 3)], ids=lambda x: str(x)
)
def test_norm_noise_has_a_gamma_radius(norm, dimension):
    mechanism = mechanisms.Norm(2.0, 0.5, norm=norm, random_state=24)
    noise = np.array([mechanism(np.zeros(dimension)) for _ in range(3000)])
    order = np.inf if norm == "inf" else norm
    radius = np.linalg.norm(noise, ord=order, axis=1)
    assert stats.kstest(radius, stats.gamma(dimension, scale=4.0).cdf).pvalue > ALARM
    for factor in (2 / 3, 3 / 2):
        assert stats.kstest(radius, stats.gamma(dimension, scale=4.0 * factor).cdf).pvalue < ALARM
    assert abs((noise > 0).mean() - 0.5) < 5 / math.sqrt(3000 * dimension)
    low, high = mechanism.interval(0.9, coordinates=dimension)
    assert ((noise >= low) & (noise <= high)).all(axis=1).mean() > 0.9 - 5 * math.sqrt(0.09 / 3000)


INTERVALS = [
    mechanisms.Laplace(2.0, epsilon=0.7, random_state=25),
    mechanisms.Gaussian(2.0, epsilon=0.7, delta=1e-5, random_state=26),
    mechanisms.DiscreteLaplace(1, 2.0, random_state=27),
    mechanisms.DiscreteLaplace(3, 0.1, random_state=28),
    mechanisms.DiscreteGaussian(1.0, noise_multiplier=0.6, random_state=29),
    mechanisms.DiscreteGaussian(5.0, noise_multiplier=3e4, random_state=30),
]


@pytest.mark.parametrize("mechanism", INTERVALS, ids=repr)
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_intervals_cover_at_the_stated_rate_and_hardly_more(mechanism, confidence):
    noise = -mechanism(np.zeros(SIZE, dtype=np.int64))
    low, high = mechanism.interval(confidence)
    spread = 5 * math.sqrt(confidence * (1 - confidence) / SIZE)
    covered = ((noise >= low) & (noise <= high)).mean()
    assert covered > confidence - spread
    if isinstance(low, int):
        inner = ((noise > low) & (noise < high)).mean()
        assert inner < confidence + spread or high > 10_000
    else:
        assert covered < confidence + spread
    wide = mechanism.interval(confidence, coordinates=100)
    rows = noise.reshape(-1, 100)
    assert ((rows >= wide[0]) & (rows <= wide[1])).all(axis=1).mean() > confidence - spread * 10


def test_gaussian_calibrations():
    """Golden: σ = 4.2247 for (1, 1e-6), from the analytic condition of Balle and Wang 2018."""
    analytic = mechanisms.Gaussian(1.0, epsilon=1.0, delta=1e-6)
    assert analytic.event.noise_multiplier == pytest.approx(4.224679, abs=1e-5)
    classical = mechanisms.Gaussian(1.0, epsilon=1.0, delta=1e-6, calibration="classical")
    assert classical.event.noise_multiplier == pytest.approx(math.sqrt(2 * math.log(1.25e6)))


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-6), (4.0, 1e-9), (20.0, 1e-3)])
def test_discrete_gaussian_meets_its_epsilon_exactly(epsilon, delta):
    """By the exact profile, summed, which the zCDP conversion must bound."""
    mechanism = mechanisms.DiscreteGaussian(1.0, epsilon=epsilon, delta=delta)
    rho = mechanism.event.rho
    orders = 1 + np.logspace(-3, 5, 20_000)
    converted = rho * orders + np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)
    assert converted.min() == pytest.approx(epsilon, rel=1e-5)
    sigma = math.sqrt(0.5 / rho)
    k = np.arange(-math.ceil(38 * sigma) - 2, math.ceil(38 * sigma) + 3)
    pmf = np.exp(-(k**2) / (2 * sigma**2))
    assert discrete_profile(pmf / pmf.sum(), 1, epsilon) <= delta


SCORES = [3.0, 1.0, 2.5, 0.0]


def exponential_table(rate):
    weights = np.exp(rate * np.array(SCORES))
    return weights / weights.sum()


def permute_and_flip_table(rate):
    accept = np.exp(-rate * (max(SCORES) - np.array(SCORES)))
    table = np.zeros(len(SCORES))
    for order in permutations(range(len(SCORES))):
        left = 1.0
        for i in order:
            table[i] += left * accept[i] / math.factorial(len(SCORES))
            left *= 1 - accept[i]
    return table


def noisy_max_table(rate):
    """Continuous Laplace noise of scale 1/rate, integrated; the grid is 2^21 steps fine."""
    x = np.linspace(-40, 45, 100_001)
    scores = np.array(SCORES)[:, None]
    law = stats.laplace(scale=1 / rate)
    density, cdf = law.pdf(x - scores), law.cdf(x - scores)
    others = np.array([np.delete(cdf, i, axis=0).prod(axis=0) for i in range(len(SCORES))])
    return np.trapezoid(density * others, x, axis=1)


SELECTIONS = [
    (mechanisms.Exponential, exponential_table),
    (mechanisms.PermuteAndFlip, permute_and_flip_table),
    (mechanisms.ReportNoisyMax, noisy_max_table),
]


@pytest.mark.parametrize(("kind", "table"), SELECTIONS, ids=lambda x: x.__name__)
@pytest.mark.parametrize("monotone", [False, True])
def test_selection_follows_its_table_and_the_test_has_power(kind, table, monotone):
    choose = kind(0.5, 0.6, monotone=monotone, random_state=31)
    counts = np.bincount([choose(SCORES) for _ in range(8000)], minlength=len(SCORES))
    rate = 0.6 / 0.5 if monotone else 0.3 / 0.5
    probabilities = table(rate)
    assert probabilities.sum() == pytest.approx(1, abs=1e-6)
    assert stats.chisquare(counts, probabilities / probabilities.sum() * 8000).pvalue > ALARM
    for factor in (2 / 3, 3 / 2):
        wrong = table(rate * factor)
        assert stats.chisquare(counts, wrong / wrong.sum() * 8000).pvalue < ALARM


@pytest.mark.parametrize(("kind", "_table"), SELECTIONS, ids=lambda x: x.__name__)
def test_selection_ignores_a_common_shift_and_survives_huge_scores(kind, _table):
    far = [kind(1.0, 1.0, random_state=32)(np.array([5.0, 6.0, 7.0]) + 1e8) for _ in range(3)]
    near = [kind(1.0, 1.0, random_state=32)([5.0, 6.0, 7.0]) for _ in range(3)]
    assert far == near
    assert kind(1.0, 1.0)([1e300, -1e300]) == 0
    assert kind(1.0, 1.0)([2.0]) == 0


@pytest.mark.parametrize("epsilon", [2.0**-30, 0.1, 1.0, math.log(3), 5.0, 45.0])
@pytest.mark.parametrize("k", [2, 3, 10, 2**20])
def test_randomized_response_odds_never_exceed_the_bound(epsilon, k):
    keep = favoured(epsilon, 1, k - 1)
    odds = keep * (k - 1) / (1 - keep)
    _, high = exp_bounds(Fraction(epsilon), 300)
    assert 1 <= odds <= Fraction(2**300, high)
    if epsilon < 30:
        assert odds > Fraction(2**300, high) * (1 - Fraction(k, 2**25))


def test_randomized_response_table_and_estimates():
    ask = mechanisms.RandomizedResponse(1.0, categories=["a", "b", "c"], random_state=33)
    _, counts = np.unique(ask(np.full(SIZE, "b")), return_counts=True)
    keep = math.e / (math.e + 2)
    assert stats.chisquare(counts, SIZE * np.array([(1 - keep) / 2, keep, (1 - keep) / 2])).pvalue > ALARM

    truth = ["a"] * 40 + ["b"] * 100 + ["c"] * 360
    low, covered, mean = [], 0, np.zeros(3)
    for _ in range(200):
        estimate = ask.estimate(ask(truth), confidence=0.8)
        mean += estimate.frequencies / 200
        covered += ((estimate.low <= [0.08, 0.2, 0.72]) & (estimate.high >= [0.08, 0.2, 0.72])).mean() / 200
        low.append(estimate.low)
    assert np.abs(mean - [0.08, 0.2, 0.72]).max() < 0.02
    assert covered > 0.8
    assert np.mean(low, axis=0)[2] > 0.55


def test_sparse_vector_stops_for_good():
    above = mechanisms.SparseVector(1.0, 2.0, threshold=1000.0, hits=3, random_state=34)
    answers = [above(value) for value in [0.0] * 5 + [1e6] * 3]
    assert answers == [False] * 5 + [True] * 3
    assert above.remaining == 0
    for value in (0.0, 1e6):
        with pytest.raises(BudgetExceeded, match="3 positive"):
            above(value)


def test_sparse_vector_noise_is_that_of_algorithm_7():
    """Lyu, Su and Li 2017: Δ/ε1, 2cΔ/ε2 (cΔ/ε2 if monotone), cΔ/ε3, and ε1 : ε2 = 1 : (2c)^(2/3)."""
    for monotone, factor in ((False, 2), (True, 1)):
        above = mechanisms.SparseVector(
            2.0, 1.5, threshold=0.0, hits=4, monotone=monotone, answers=0.25, random_state=35
        )
        threshold, query, answer = above._scales
        steps = 2**21 + 1
        shares = [steps / threshold, factor * 4 * steps / query, 4 * steps / answer]
        assert sum(shares) == Fraction(1.5)
        assert shares[2] == Fraction(1.5) / 4
        assert float(shares[1] / shares[0]) == pytest.approx((factor * 4) ** (2 / 3))


def test_sparse_vector_is_private_on_a_worst_case():
    """How often the second query is the first positive, on neighbours one apart, within e^ε."""
    counts = []
    for values in ((0.0, 1.0), (1.0, 0.0)):
        source, hits = Source(random_state=36), 0
        for _ in range(1500):
            above = mechanisms.SparseVector(1.0, 1.0, threshold=0.5, random_state=source)
            hits += not above(values[0]) and bool(above(values[1]))
        counts.append(hits)
    high, low = (stats.binomtest(c, 1500).proportion_ci(0.999) for c in counts)
    assert high.low / low.high <= math.e
    assert counts[0] > counts[1]


def test_sparse_vector_answers_with_fresh_noise():
    source = Source(random_state=37)
    errors = []
    for _ in range(1000):
        above = mechanisms.SparseVector(1.0, 2.0, threshold=0.0, answers=0.5, random_state=source)
        errors.append(above(1e5) - 1e5)
    assert stats.kstest(errors, stats.laplace.cdf).pvalue > ALARM
    assert mechanisms.SparseVector(1.0, 2.0, threshold=0.0, answers=0.5)(-1e5) is None


def test_sparse_vector_cannot_be_multiplied():
    above = mechanisms.SparseVector(1.0, 1.0, threshold=0.0)
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied"):
            duplicate(above)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            above(1.0)
        except BudgetExceeded:
            os.write(writer, b"refused")
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    assert os.read(reader, 16) == b"refused"
    os.close(reader)


def test_events_and_kinds_of_noise():
    table = [
        (mechanisms.Laplace(2.0, epsilon=0.5), events.Laplace(2.0), "exact"),
        (mechanisms.Laplace(2.0, scale=3.0), events.Laplace(3.0), "exact"),
        (mechanisms.Gaussian(2.0, noise_multiplier=1.25), events.Gaussian(1.25), "exact"),
        (mechanisms.Norm(1.0, 0.5, norm=1), events.Laplace(2.0), "exact"),
        (mechanisms.Norm(1.0, 0.5, norm=2), events.Pure(0.5), "float64"),
        (mechanisms.Norm(1.0, 0.5, norm="inf"), events.Pure(0.5), "float64"),
        (mechanisms.DiscreteLaplace(2, 0.5), events.Pure(0.5), "exact"),
        (mechanisms.DiscreteGaussian(2.0, noise_multiplier=0.5), events.ZeroConcentrated(2.0), "exact"),
        (mechanisms.Exponential(1.0, 0.5), events.BoundedRange(0.5), "exact"),
        (mechanisms.PermuteAndFlip(1.0, 0.5), events.Pure(0.5), "exact"),
        (mechanisms.ReportNoisyMax(1.0, 0.5), events.Pure(0.5), "exact"),
        (mechanisms.SparseVector(1.0, 0.5, threshold=0.0), events.Pure(0.5), "exact"),
        (mechanisms.RandomizedResponse(0.5, 4), events.RandomizedResponse(0.5, 4), "exact"),
    ]
    for mechanism, event, noise in table:
        assert mechanism.event == event
        assert mechanism.noise == noise
        assert events.from_json(mechanism.event.to_json()) == event
    assert mechanisms.Laplace(1.0, epsilon=1.0, random_state=0).noise == "seeded"
    assert float(WIDENED) < 1 + 1e-6


def test_unseeded_mechanisms_differ_from_call_to_call():
    laplace = mechanisms.Laplace(1.0, epsilon=1.0)
    assert len({laplace(0.0) for _ in range(20)}) == 20
    seeded = mechanisms.Laplace(1.0, epsilon=1.0, random_state=3)
    assert seeded(0.0) != seeded(0.0)
    assert seeded == mechanisms.Laplace(1.0, epsilon=1.0, random_state=3)
