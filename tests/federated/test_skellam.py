"""Skellam noise is drawn with its exact probabilities, and is as private as the theorem says."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from scipy import integrate, special, stats

from tacit.errors import InvalidValue
from tacit.federated import skellam as module
from tacit.federated.skellam import needed_variance, skellam
from tacit.randomness import Source

ALARM = 1e-6
VARIANCES = [Fraction(1, 9), Fraction(1), Fraction(50), Fraction(31_415, 10)]


def pmf(k: np.ndarray, variance: float) -> np.ndarray:
    """e^−v·I_k(v), by SciPy's Bessel functions."""
    return special.ive(np.abs(k), variance)


def precise_tail(j: int, variance: Fraction, terms: int = 400) -> Decimal:
    """P(X ≥ j) of the difference of two Poisson variables, summed in 80 decimals: no Bessel functions."""
    with localcontext() as context:
        context.prec = 80
        mean = Decimal(variance.numerator) / Decimal(2 * variance.denominator)
        poisson = [(-mean).exp()]
        for k in range(1, terms):
            poisson.append(poisson[-1] * mean / k)
        upto = [Decimal(0)]
        for p in poisson:
            upto.append(upto[-1] + p)
        return sum((p * upto[k - j + 1] for k, p in enumerate(poisson) if k >= j), Decimal(0))


@pytest.mark.parametrize("variance", VARIANCES)
def test_draws_have_the_probabilities_of_skellam(variance: Fraction) -> None:
    draws = skellam(Source(random_state=3), variance, 200_000)
    points = np.unique(draws)
    exact = np.cumsum(pmf(np.arange(points.min(), points.max() + 1), float(variance)))[points - points.min()]
    empirical = np.searchsorted(np.sort(draws), points, side="right") / draws.size
    distance = np.abs(empirical - exact).max()
    allowed = math.sqrt(math.log(2 / ALARM) / (2 * draws.size))
    assert distance < allowed
    wrong = np.cumsum(pmf(np.arange(points.min(), points.max() + 1), 1.1 * float(variance) + 0.05))
    assert np.abs(empirical - wrong[points - points.min()]).max() > allowed, (
        "ten percent would pass unnoticed"
    )


@pytest.mark.parametrize("variance", [Fraction(1, 9), Fraction(50), Fraction(301, 3)])
def test_bounds_enclose_the_tail_to_many_digits(variance: Fraction) -> None:
    bounds = module._Bounds(variance, 160)
    for j in (1, 2, 7, 30):
        low, high = bounds.tail(j, 120)
        with localcontext() as context:
            context.prec = 80
            exact = precise_tail(j, variance) * Decimal(2) ** 120
            assert Decimal(low) - 1 <= exact <= Decimal(high) + 1
            assert Decimal(high - low) <= max(Decimal(2), exact * Decimal(2) ** -60)


def test_a_draw_that_its_first_digits_leave_open_is_settled_by_more() -> None:
    sampler = module._Sampler(Fraction(50))
    places = np.arange(len(sampler.thresholds))
    for place in (20, len(places) // 2, len(places) - 20):
        k, drawn = sampler.first + place, int(sampler.thresholds[place])
        settled = {sampler._settle(Source(seed), drawn) for seed in range(24)}
        assert settled == {k, k + 1}, "U < F(k) or not, as further digits say"
    assert sampler._settle(Source(1), 0) <= sampler.first
    assert sampler._settle(Source(1), 2**64 - 1) >= sampler.first + len(places) - 1


class Scripted(Source):
    """Sixteen-bit words that all lie in one cell of the table, and longer words as given."""

    def __init__(self, cell: int, word: int) -> None:
        super().__init__(1)
        self.cell, self.word = cell, word

    def words(self, shape, dtype=np.uint64):
        if np.dtype(dtype) == np.uint16:
            return np.full(shape, self.cell, dtype=np.uint16)
        if np.dtype(dtype) == np.uint64:
            return np.full(shape, self.word, dtype=np.uint64)
        return super().words(shape, dtype)


@pytest.mark.parametrize("place", [30, 69, 100])
def test_a_draw_is_the_first_k_whose_distribution_function_exceeds_it(place: int) -> None:
    sampler = module._Sampler(Fraction(50))
    threshold = int(sampler.thresholds[place])
    for drawn, expected in ((threshold - 1, place), (threshold + 1, place + 1)):
        source = Scripted(drawn >> 48, (drawn & (2**48 - 1)) << 16)
        assert sampler.draw(source, 1)[0] == sampler.first + expected


def increments(variance: float) -> np.ndarray:
    """w(x+1) − w(x) for x ≥ −1, w = Φ⁻¹∘F, as far as float64 tells tails apart."""
    reach = int(45 * math.sqrt(variance) + 400)
    tails = np.cumsum(pmf(np.arange(reach, -1, -1), variance))[::-1]  # P(X ≥ k)
    w = -special.ndtri(tails[tails > 1e-280])
    return np.concatenate([[2 * w[1]], np.diff(w)[1:]])


@pytest.mark.parametrize("effective", [1.0, 2.5, 30.0, 1e3, 1e6])
def test_no_threshold_tells_a_shift_better_than_the_gaussian_of_the_theorem(effective: float) -> None:
    needed = float(needed_variance(Fraction(effective)))
    largest = increments(needed).max()
    assert largest <= 1 / math.sqrt(effective)
    assert 1 / largest**2 - effective < 5, "the theorem gives away at most a few squared steps"
    short = increments(0.98 * effective).max()
    assert short > 1 / math.sqrt(effective), "with 98 percent of the variance it would not hold"


def test_the_constant_of_the_theorem() -> None:
    """τ(1) − 1 ≤ 0.51 and ρ(u) ≥ 1 − 1/(4u), by quadrature."""

    def rho(u: float) -> float:
        c = u**-0.5
        # sinh(cs/2)·e^(−s²/2) in a form that does not overflow
        inside = integrate.quad(
            lambda s: -0.5 * math.expm1(-c * s) * math.exp(c * s / 2 - s * s / 2), 0, c, epsrel=1e-12
        )[0]
        return 4 * inside / c**3

    assert all(rho(u) >= 1 - 1 / (4 * u) for u in (0.3, 1.0, 3.0, 100.0))
    middle = integrate.quad(lambda u: 1 / rho(u) - 1, 0.02, 1.0, epsrel=1e-10)[0]
    assert middle + 0.02 / rho(0.02) - 0.02 <= 0.51, (
        "1/ρ grows with u, so the part below 0.02 is at most that"
    )
    assert rho(0.02) > rho(0.05) > rho(0.1)


def test_hockey_stick_divergences_stay_below_the_gaussian_in_two_dimensions() -> None:
    """A shift by (12, 8), of length √208: δ(ε) of the noise by summation, against the analytic Gaussian."""
    effective = 400.0
    k = np.arange(-400, 401)
    p = pmf(k, float(needed_variance(Fraction(effective))))
    joint = np.outer(p, p)
    moved = np.outer(np.roll(p, 12), np.roll(p, 8))
    mean = math.sqrt(208 / effective)
    for epsilon in (0.0, 0.3, 1.0, 2.0):
        delta = np.maximum(joint - math.exp(epsilon) * moved, 0).sum()
        gaussian = stats.norm.cdf(mean / 2 - epsilon / mean) - math.exp(epsilon) * stats.norm.cdf(
            -mean / 2 - epsilon / mean
        )
        assert 0.9 * gaussian < delta <= gaussian


@pytest.mark.parametrize("variance", [Fraction(0), Fraction(-1), Fraction(2**44 + 1)])
def test_impossible_variances_are_refused(variance: Fraction) -> None:
    with pytest.raises(InvalidValue):
        skellam(Source(1), variance, 1)
    with pytest.raises(InvalidValue):
        needed_variance(Fraction(1, 2))
    with pytest.raises(InvalidValue):
        needed_variance(Fraction(1e308) ** 2)


def test_noise_that_no_table_holds_is_the_sum_of_several_draws(monkeypatch) -> None:
    monkeypatch.setattr(module, "LARGEST_VARIANCE", 20)
    draws = skellam(Source(random_state=4), Fraction(50), 50_000)
    k = np.arange(-80, 81)
    upto = np.cumsum(pmf(k, 50.0))
    empirical = np.searchsorted(np.sort(draws), k, side="right") / draws.size
    allowed = math.sqrt(math.log(2 / ALARM) / (2 * draws.size))
    assert np.abs(empirical - upto).max() < allowed
    assert np.abs(empirical - np.cumsum(pmf(k, 100 / 3))).max() > allowed, "two parts of three are noticed"


@pytest.mark.parametrize("effective", [1.0, 2.5, 9.7])
@pytest.mark.parametrize("shift", [(1, 0, 0), (1, 1, 1), (2, -1, 1), (3, 2, 1)])
def test_hockey_stick_divergences_in_three_dimensions_and_both_directions(effective: float, shift) -> None:
    reach = 44
    p = pmf(np.arange(-reach, reach + 1), float(needed_variance(Fraction(effective))))
    moved = [np.roll(p, by) for by in shift]
    first = np.einsum("i,j,k", p, p, p)
    second = np.einsum("i,j,k", *moved)
    mean = math.sqrt(sum(by * by for by in shift) / effective)
    for epsilon in (0.1, 1.0, 3.0):
        gaussian = stats.norm.cdf(mean / 2 - epsilon / mean) - math.exp(epsilon) * stats.norm.cdf(
            -mean / 2 - epsilon / mean
        )
        for one, other in ((first, second), (second, first)):
            assert np.maximum(one - math.exp(epsilon) * other, 0).sum() <= gaussian
