"""The samplers have exactly the probabilities they state, and these tests would notice otherwise.

Seeds are fixed, and each test on a sample raises a false alarm with probability under 1e-6 over
the choice of seed.
"""

import math
import os
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from tacit import randomness
from tacit.errors import InvalidValue
from tacit.randomness import (
    MAX_SCALE,
    Source,
    bernoulli,
    bernoulli_exp,
    discrete_gaussian,
    discrete_laplace,
    exp_bounds,
    geometric,
    uniform,
)

ALARM = 1e-6
SIZE = 200_000
VARIANCES = [Fraction(1, 8), Fraction(1, 3), Fraction(1), Fraction(9, 2), Fraction(100)]
SCALES = [Fraction(1, 3), Fraction(1), Fraction(7, 3), Fraction(10)]


def laplace_pmf(scale, k):
    return math.tanh(0.5 / scale) * np.exp(-np.abs(k) / float(scale))


def gaussian_pmf(variance, k):
    reach = math.ceil(40 * math.sqrt(variance)) + 1
    total = math.fsum(math.exp(-j * j / (2 * float(variance))) for j in range(-reach, reach + 1))
    return np.exp(-np.square(k) / (2 * float(variance))) / total


def p_value(sample, pmf, reach):
    """Pearson's chi-square over −reach … reach and the two tails, rare cells merged."""
    k = np.arange(-reach, reach + 1)
    inside = pmf(k)
    outside = (1 - inside.sum()) / 2
    expected = np.concatenate([[outside], inside, [outside]]) * len(sample)
    observed = np.bincount(np.clip(sample, -reach - 1, reach + 1) + reach + 1, minlength=2 * reach + 3)
    rare = expected < 10
    observed, expected = (np.append(cells[~rare], cells[rare].sum()) for cells in (observed, expected))
    kept = expected > 1
    statistic = ((observed - expected)[kept] ** 2 / expected[kept]).sum()
    return stats.chi2.sf(statistic, kept.sum() - 1)


@pytest.mark.parametrize("scale", SCALES, ids=str)
def test_discrete_laplace_is_exact_and_the_test_has_power(scale):
    sample = discrete_laplace(Source(random_state=11), scale, SIZE)
    reach = math.ceil(12 * scale) + 2
    assert p_value(sample, lambda k: laplace_pmf(scale, k), reach) > ALARM
    for factor in (Fraction(2, 3), Fraction(3, 2)):
        assert p_value(sample, lambda k, f=factor: laplace_pmf(scale * f, k), reach) < ALARM


@pytest.mark.parametrize("variance", VARIANCES, ids=str)
def test_discrete_gaussian_is_exact_and_the_test_has_power(variance):
    sample = discrete_gaussian(Source(random_state=12), variance, SIZE)
    reach = math.ceil(8 * math.sqrt(variance)) + 2
    assert p_value(sample, lambda k: gaussian_pmf(variance, k), reach) > ALARM
    for factor in (Fraction(4, 9), Fraction(9, 4)):
        assert p_value(sample, lambda k, f=factor: gaussian_pmf(variance * f, k), reach) < ALARM


def test_slightly_wrong_samplers_are_noticed():
    generator = np.random.default_rng(13)
    rounded = np.rint(generator.laplace(0, 2, SIZE)).astype(int)
    assert p_value(rounded, lambda k: laplace_pmf(2, k), 30) < ALARM
    two_zeros = geometric(Source(random_state=1), Fraction(1, 10), SIZE) * generator.choice([-1, 1], SIZE)
    assert p_value(two_zeros, lambda k: laplace_pmf(10, k), 120) < ALARM
    rounded = np.rint(generator.normal(0, 1, SIZE)).astype(int)
    assert p_value(rounded, lambda k: gaussian_pmf(1, k), 8) < ALARM


@pytest.mark.parametrize("exponent", [20, 30, 40, 52])
def test_large_scales_have_the_right_shape_and_even_low_digits(exponent):
    scale = 2**exponent + 1
    laplace = discrete_laplace(Source(random_state=14), Fraction(scale), SIZE)
    gaussian = discrete_gaussian(Source(random_state=15), Fraction(scale) ** 2, SIZE)
    for sample, law in ((laplace, stats.laplace), (gaussian, stats.norm)):
        assert stats.kstest(sample / scale, law.cdf).pvalue > ALARM
        for factor in (2 / 3, 3 / 2):
            assert stats.kstest(sample / scale, law(scale=factor).cdf).pvalue < ALARM
        assert stats.chisquare(np.bincount(sample & 255, minlength=256)).pvalue > ALARM
        assert stats.chisquare(np.bincount(sample >> (exponent - 12) & 15, minlength=16)).pvalue > ALARM
        assert abs(int((sample > 0).sum()) - SIZE / 2) < 5 * math.sqrt(SIZE) / 2


@pytest.fixture
def coarse(monkeypatch):
    """Settings under which the branches taken once in thousands of draws are taken often."""
    samplers = (randomness._geometric, randomness._laplace, randomness._gaussian)
    for sampler in samplers:
        sampler.cache_clear()
    for name in ("_GATE", "_TAIL", "_REACH"):
        monkeypatch.setattr(randomness, name, 1)
    yield
    for sampler in samplers:
        sampler.cache_clear()


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize("scale", [Fraction(40), Fraction(1000)], ids=str)
def test_rare_branches_are_exact_too(scale):
    sampler = randomness._Geometric(1 / scale)
    sample = sampler.draw(Source(random_state=16), 20_000)
    edges = np.unique(np.rint(-float(scale) * np.log(np.linspace(1, 0.02, 40))).astype(int))
    tails = np.exp(-edges / float(scale))
    observed, _ = np.histogram(sample, [*edges, np.inf])
    expected = len(sample) * np.append(-np.diff(tails), tails[-1])
    assert stats.chisquare(observed, expected).pvalue > ALARM

    gaussian = randomness._Gaussian(Fraction(25)).draw(Source(random_state=17), 15_000)
    assert p_value(gaussian, lambda k: gaussian_pmf(25, k), 40) > ALARM


def exact(text_of_x):
    with localcontext() as context:
        context.prec = 80
        return (-Decimal(text_of_x.numerator) / Decimal(text_of_x.denominator)).exp()


POINTS = [Fraction(x) for x in ("0", "1/3", "1", "31/7", "50", "150")] + [Fraction(1, 2**60)]


@pytest.mark.parametrize("x", POINTS, ids=str)
def test_exp_bounds_enclose_and_are_close(x):
    for bits in (1, 16, 80, 200):
        low, high = exp_bounds(x, bits)
        with localcontext() as context:
            context.prec = 80
            assert low <= exact(x) * 2**bits <= high
        assert high - low <= 3


@pytest.mark.parametrize("x", POINTS[1:], ids=str)
def test_digits_agree_with_decimal_arithmetic(x):
    with localcontext() as context:
        context.prec = 80
        e = exact(x)
        assert randomness._exp_digits(x, 80) == int(e * 2**80)
        assert randomness._logistic_digits(x, 80) == int(e / (1 + e) * 2**80)


def test_binary_digits_of_the_geometric_multiply_to_its_probabilities():
    """Every outcome of the digit tree, for a rate with twelve digits before the remainder."""
    sampler = randomness._Geometric(Fraction(1, 100))
    assert (sampler.low, sampler.high) == (0, 12)
    with localcontext() as context:
        context.prec = 60
        ratio = exact(Fraction(1, 100))
        ones = [1 / (1 + ratio ** -(2**j)) for j in range(12)]
        for k in range(0, 4096, 7):
            product = 1 - ratio**4096
            for j, one in enumerate(ones):
                product *= one if k >> j & 1 else 1 - one
            assert abs(product / ((1 - ratio) * ratio**k) - 1) < Decimal("1e-50")
    for j, one in enumerate(ones):
        assert sampler.chances.digits[j](64) == int(one * 2**64)


class Scripted(Source):
    """A source that answers with given words, in order."""

    def __init__(self, *answers):
        super().__init__(random_state=0)
        self.answers = list(answers)

    def words(self, shape, dtype=np.uint64):
        return np.array(self.answers.pop(0), dtype=dtype).reshape(shape)

    def bits(self, count):
        return self.answers.pop(0)


@pytest.mark.parametrize("x", [Fraction(1, 1000), Fraction(1, 2), Fraction(3)], ids=str)
def test_every_sixteen_bit_draw_is_decided_right(x):
    """Of all 65536 draws ⌊P·2^16⌋ succeed and one is left open, which 64 more bits settle."""
    threshold = randomness._exp_digits(x, 16)
    second = randomness._exp_digits(x, 80) & (2**64 - 1)
    chances = randomness._Chances([lambda bits: randomness._exp_digits(x, bits)])
    for more, settled in ((second - 1, True), (second + 1, False)):
        flips = chances.flip(Scripted(np.arange(65536), [more]), np.zeros(1, dtype=np.int64), 65536)
        assert flips.sum() == threshold + settled
        assert flips[:threshold].all()
    third = randomness._exp_digits(x, 144) & (2**64 - 1)
    for more, settled in ((third - 1, True), (third + 1, False)):
        flips = chances.flip(Scripted([threshold], [second], more), np.zeros(1, dtype=np.int64), 1)
        assert flips[0] == settled


def test_certainty_is_certain():
    assert bernoulli_exp(Source(random_state=1), Fraction(0), 300_000).all()
    assert bernoulli(Source(random_state=1), Fraction(1), 300_000).all()
    assert not bernoulli(Source(random_state=1), Fraction(0), 300_000).any()


@pytest.mark.parametrize("variance", [*VARIANCES, Fraction(12345, 7), Fraction(4**30), Fraction(4**51, 3)])
def test_gaussian_acceptance_is_bounded_as_claimed(variance):
    """0 ≤ γ − bound < 2^−11, for every proposal where that is feasible."""
    sampler = randomness._Gaussian(variance)
    if sampler.reach < 3000:
        y = np.arange(sampler.reach + 1)
    else:
        y = np.append(np.linspace(0, sampler.reach, 2000).astype(np.int64), sampler.reach)
    bounds = sampler.lower(y)
    for each, bound in zip(y.tolist(), bounds.tolist(), strict=True):
        assert 0 <= sampler.exponent(each) - Fraction(bound, 4096) < Fraction(1, 2**11)
    assert bounds.max() < 2**18


@pytest.mark.parametrize("bound", [1, 2, 3, 10, 256, 1000])
def test_uniform(bound):
    sample = uniform(Source(random_state=18), bound, 100_000)
    assert sample.min() >= 0
    assert sample.max() == bound - 1
    if bound > 1:
        assert stats.chisquare(np.bincount(sample, minlength=bound)).pvalue > ALARM
    assert uniform(Source(), 2**62, 3).max() < 2**62


@pytest.mark.parametrize("p", [Fraction(x) for x in ("1/3", "1/2", "1/1000", "999/1000")], ids=str)
def test_bernoulli(p):
    hits = int(bernoulli(Source(random_state=19), p, SIZE).sum())
    assert stats.binomtest(hits, SIZE, float(p)).pvalue > ALARM
    x = Fraction(-math.log(p))
    hits = int(bernoulli_exp(Source(random_state=20), x, SIZE).sum())
    assert stats.binomtest(hits, SIZE, float(p)).pvalue > ALARM


@pytest.mark.fresh
def test_os_entropy_never_repeats_and_seeds_do():
    draws = {discrete_laplace(Source(), Fraction(2**40), 4).tobytes() for _ in range(20)}
    assert len(draws) == 20
    same = [discrete_gaussian(Source(random_state=5), Fraction(9), 50).tolist() for _ in range(2)]
    assert same[0] == same[1] != discrete_gaussian(Source(random_state=6), Fraction(9), 50).tolist()
    assert Source().uniforms(1) != Source().uniforms(1)
    assert Source(random_state=5).uniforms(1) == Source(random_state=5).uniforms(1)


@pytest.mark.fresh
def test_a_forked_process_draws_its_own_bits():
    source = Source()
    source.words(8)
    reader, writer = os.pipe()
    for _ in range(2):
        child = os.fork()
        if not child:
            os.write(writer, source.words(8).tobytes())
            os._exit(0)
        os.waitpid(child, 0)
    draws = {os.read(reader, 64), os.read(reader, 64), source.words(8).tobytes()}
    assert len(draws) == 3
    assert {len(draw) for draw in draws} == {64}
    os.close(reader)
    os.close(writer)


def test_sizes_and_bad_parameters():
    assert discrete_laplace(Source(), Fraction(3), 0).shape == (0,)
    assert np.abs(discrete_laplace(Source(random_state=1), Fraction(MAX_SCALE), 1000)).max() < 2**60
    assert not discrete_gaussian(Source(), Fraction(1, 10**6), 100).any()
    for call in (
        lambda: Source(random_state=-1),
        lambda: Source(random_state=1.5),
        lambda: Source(random_state=True),
        lambda: uniform(Source(), 0, 1),
        lambda: uniform(Source(), 2**63, 1),
        lambda: bernoulli(Source(), Fraction(3, 2), 1),
        lambda: bernoulli_exp(Source(), Fraction(-1), 1),
        lambda: geometric(Source(), Fraction(0), 1),
        lambda: geometric(Source(), Fraction(1, 2**55), 1),
        lambda: discrete_laplace(Source(), Fraction(MAX_SCALE + 1), 1),
        lambda: discrete_laplace(Source(), Fraction(-1), 1),
        lambda: discrete_gaussian(Source(), Fraction(0), 1),
        lambda: discrete_gaussian(Source(), Fraction(4**54), 1),
        lambda: discrete_laplace(Source(), Fraction(1), -1),
    ):
        with pytest.raises(InvalidValue):
            call()
