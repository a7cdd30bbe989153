"""Encoding of updates: the norm bound holds for every input, the noise is as large as it must be."""

import math
from fractions import Fraction

import numpy as np
import pytest

from tacit import accounting, events
from tacit.errors import InvalidValue
from tacit.federated.distributed import DistributedNoise, Encoder, _rotated
from tacit.federated.skellam import LARGEST_VARIANCE, needed_variance
from tacit.randomness import Source


def noise_of(**changes) -> DistributedNoise:
    return DistributedNoise(
        **{"clip_norm": 1.0, "bits": 18, "summands": 100, "honest": 90, "noise_multiplier": 1.0, **changes}
    )


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return noise_of().encoder(3000, seed=5)


COUNTED = ("1e300", "1e-320", "largest float", "spike", "long spike", "gaussian", "float32")


def hard_vectors(dimension: int) -> dict[str, np.ndarray]:
    """Updates that are hard to bound: long, tiny, spiky, of half steps, not numbers."""
    random = np.random.default_rng(7)
    spike = np.zeros(dimension)
    spike[3] = 1.0
    broken = random.normal(size=dimension)
    broken[7] = np.nan
    return {
        "1e300": np.full(dimension, 1e300),
        "1e-320": np.full(dimension, 1e-320),
        "largest float": np.full(dimension, np.finfo(float).max),
        "spike": spike,
        "long spike": -1e9 * spike,
        "gaussian": random.normal(size=dimension),
        "float32": random.normal(size=dimension).astype(np.float32),
        "zero": np.zeros(dimension),
        "nan": broken,
        "infinite": np.where(np.arange(dimension) == 2, -np.inf, 1.0),
        "too short": np.ones(dimension - 1),
        "a matrix": np.ones((dimension, 1)),
        "text": np.array(["1.0"] * (dimension - 1) + ["x"]),
        "objects": np.array([object()] * dimension),
        "complex": np.full(dimension, 1 + 1j),
        "beyond float64": np.full(dimension, np.longdouble(np.finfo(float).max) * 2),
    }


@pytest.mark.parametrize("name", hard_vectors(8))
def test_no_update_exceeds_the_bound(encoder: Encoder, name: str) -> None:
    source = Source(random_state=1)
    for _ in range(8):
        whole = encoder.rounded(hard_vectors(3000)[name], source)
        assert sum(int(k) ** 2 for k in whole) <= encoder.largest_square
        if name not in COUNTED:
            assert not whole.any(), "counts as a zero update"
    bound = (1 + Fraction(encoder.noise.slack)) * encoder.steps
    assert encoder.largest_square <= bound**2 < encoder.largest_square + 1


def test_rounding_that_exceeds_the_bound_is_drawn_again(encoder: Encoder, monkeypatch) -> None:
    """Halves of steps, all rounded up, exceed it; the last resort rounds towards zero."""

    class Upwards(Source):
        drawn = 0

        def words(self, shape, dtype=np.uint64):
            self.drawn += 1
            return np.full(shape, np.iinfo(dtype).max, dtype=dtype)

    turned = np.full(encoder.width, 0.5)
    turned[0] = math.sqrt(encoder.steps**2 - encoder.width / 4)
    monkeypatch.setattr(encoder, "_turned", lambda vector: turned)
    ceiled = int(np.ceil(turned).astype(int) @ np.ceil(turned).astype(int))
    assert ceiled > encoder.largest_square, "the test has power: unchecked rounding breaks the bound"
    source = Upwards(1)
    whole = encoder.rounded(np.zeros(3000), source)
    assert source.drawn == 32
    assert np.array_equal(whole, np.trunc(turned))
    monkeypatch.setattr(encoder, "_turned", lambda vector: turned * 3)
    assert not encoder.rounded(np.zeros(3000), source).any()


def test_rounding_is_unbiased_and_mostly_accepted_at_once(encoder: Encoder) -> None:
    vector = np.random.default_rng(3).normal(size=3000)
    exact = encoder._turned(vector)
    source = Source(random_state=2)
    mean = np.mean([encoder.rounded(vector, source) for _ in range(400)], axis=0)
    assert np.abs(mean - exact).max() < 6 * 0.5 / math.sqrt(400)


def test_the_rotation_is_orthonormal_and_its_own_inverse() -> None:
    values = np.random.default_rng(1).normal(size=4096)
    turned = _rotated(values, 2048)
    assert np.allclose(_rotated(turned, 2048), values)
    assert np.isclose(turned @ turned, values @ values)
    assert np.isclose(turned[:2048] @ turned[:2048], values[:2048] @ values[:2048]), "blocks do not mix"
    spike = np.zeros(2048)
    spike[77] = 1.0
    assert np.allclose(np.abs(_rotated(spike, 2048)), 1 / math.sqrt(2048))


def test_the_sum_decodes_to_the_sum_of_clipped_updates_with_the_stated_noise() -> None:
    noise = noise_of(summands=8, honest=8)
    encoder = noise.encoder(2500, seed=3)
    random = np.random.default_rng(5)
    updates = random.normal(size=(8, 2500)) * 0.01
    updates[0] *= 1000.0
    source = Source(random_state=4)
    total = sum(encoder.encode(update, source) for update in updates) % np.uint64(2**18)
    clipped = [u / max(1.0, np.linalg.norm(u)) for u in updates]
    error = encoder.decode(total) - np.sum(clipped, axis=0)
    expected = noise.deviation(2500)
    assert abs(error.std() / expected - 1) < 6 / math.sqrt(2 * 2500)
    assert 1.0 < expected < 1.01, "noise_multiplier × clip_norm, but for rounding and slack"


def test_shares_of_the_fewest_honest_clients_make_the_noise_that_is_claimed() -> None:
    for relation, factor in (("add_remove", 1), ("replace_one", 2)):
        noise = noise_of(relation=relation, noise_multiplier=0.7)
        for dimension in (1, 3000):
            encoder = noise.encoder(dimension, seed=1)
            target = (Fraction(0.7) * factor) ** 2 * encoder.largest_square
            for cohort in (1, 7, 63, 99, 100):
                least = noise.fewest(cohort) * noise.share(dimension, cohort)
                assert least >= needed_variance(target)
                assert cohort * noise.share(dimension, cohort) == 100 * noise.share(dimension)
        assert math.isclose(noise.sensitivity, factor * (1 + 2**-8), rel_tol=1e-12)


def test_missing_shares_are_replaced() -> None:
    noise = noise_of(summands=10, honest=5)
    encoder = noise.encoder(2000, seed=1)
    source = Source(random_state=6)
    some = sum(encoder.encode(np.zeros(2000), source, cohort=8) for _ in range(5)) % np.uint64(2**18)
    full = encoder.top_up(some, 5, source, cohort=8)
    ratio = encoder.decode(full).var() / encoder.decode(some).var()
    assert abs(ratio - 8 / 5) < 0.4
    with pytest.raises(InvalidValue):
        encoder.top_up(some, 9, source, cohort=8)


def test_events_are_those_of_the_gaussian_and_sampling_is_claimed_with_care() -> None:
    noise = noise_of(noise_multiplier=2.0)
    assert noise.event == events.Gaussian(2.0)
    assert noise.sampled(0.1) == events.PoissonSampled(0.1, events.Gaussian(2.0))
    replaced = noise_of(noise_multiplier=2.0, relation="replace_one").sampled(0.1)
    careful = accounting.epsilon(events.Repeat(replaced, 10), 1e-5, relation="replace_one")
    gaussian = events.Repeat(noise.sampled(0.1), 10)
    assert careful > accounting.epsilon(gaussian, 1e-5, relation="replace_one")
    assert careful < accounting.epsilon(events.Repeat(noise.event, 10), 1e-5, relation="replace_one")


def test_wrap_around_is_bounded_and_the_bound_means_something() -> None:
    noise = noise_of(summands=20, honest=20, bits=15)
    encoder = noise.encoder(1024, seed=9)
    update = np.ones(1024) / 32
    source = Source(random_state=8)
    total = sum(encoder.rounded(update, source) for _ in range(20))
    assert noise.wrap_probability(1024) < 1e-3
    assert np.abs(total).max() < 2**14
    needed = noise.bits_needed(1024)
    assert noise.wrap_probability(1024, bits=needed) <= 1e-6 < noise.wrap_probability(1024, bits=needed - 1)
    deviation = np.sqrt(float(20 * noise.share(1024)))
    few = math.floor(math.log2(4 * deviation))
    with pytest.raises(InvalidValue, match="bits"):
        noise_of(summands=20, honest=20, bits=few).encoder(1024, seed=9)


@pytest.mark.parametrize(
    "wrong",
    [
        {"clip_norm": 0.0}, {"clip_norm": math.nan}, {"bits": 3}, {"bits": 63}, {"summands": 0}, {"honest":
        0}, {"honest": 101}, {"noise_multiplier": 0.0}, {"noise_multiplier": 1e-9}, {"slack": 0.0},
        {"slack": 2.0}, {"relation": "other"}, {"bits": 18.5},
    ],
    ids=str,
)  # fmt: skip
def test_bad_parameters_are_refused(wrong: dict) -> None:
    with pytest.raises(InvalidValue):
        noise_of(**wrong)


def test_cohorts_and_totals_of_the_wrong_size_are_refused(encoder: Encoder) -> None:
    with pytest.raises(InvalidValue):
        encoder.encode(np.zeros(3000), Source(1), cohort=101)
    for total in (np.zeros(3000, dtype=np.int64), np.zeros(encoder.width)):
        with pytest.raises(InvalidValue):
            encoder.decode(total)


def test_a_small_cohort_whose_shares_no_table_holds_can_still_take_part() -> None:
    """Shares grow as the cohort shrinks, which is known only when the round has been paid for."""
    noise = noise_of(bits=30, noise_multiplier=40.0, summands=1000, honest=900)
    assert noise.share(10) < LARGEST_VARIANCE < noise.share(10, 3)
    sent = noise.encoder(10, seed=1).encode(np.zeros(10), Source(random_state=1), cohort=3).astype(np.int64)
    drawn = np.where(sent >= 2**29, sent - 2**30, sent)
    assert abs(drawn.var() / float(noise.share(10, 3)) - 1) < 6 * math.sqrt(2 / len(drawn))


def test_noise_beyond_all_bounds_is_refused_in_terms_of_the_parameters() -> None:
    for multiplier in (1e10, 1e200):
        with pytest.raises(InvalidValue, match="noise_multiplier"):
            noise_of(noise_multiplier=multiplier).encoder(10, seed=1)
