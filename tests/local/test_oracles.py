"""Frequency oracles: the exact law of reports, estimates, intervals, and what clients may send."""

from __future__ import annotations

import collections
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

import tacit
from contract.local_cases import overkeeping
from tacit import local
from tacit.errors import InvalidValue
from tacit.local import bits
from tacit.local.hashing import hashed
from tacit.local.recommending import ORACLES
from tacit.randomness import Source, exp_bounds
from tacit.tables.lines import answer_of

Law = dict[Any, Fraction]
KINDS = [pytest.param(kind, id=kind.__name__) for kind in ORACLES]
NOT_DECLARED = [None, math.nan, -1, 10**30, 2.5, "2", [1, 2]]


def check_laws(laws: list[Law], epsilon: float) -> Fraction:
    """Probabilities add up to 1, and no ratio of two laws exceeds e^ε; the worst ratio · e^−ε, from above."""
    precision = 400
    _, shrunk = exp_bounds(Fraction(epsilon), precision)
    worst = Fraction(0)
    for law in laws:
        assert sum(law.values()) == 1, "probabilities do not add up to 1"
    for one in laws:
        for other in laws:
            for report in one.keys() | other.keys():
                first, second = one.get(report, Fraction(0)), other.get(report, Fraction(0))
                assert second > 0 or first == 0, f"a report that only one value can cause, at ε = {epsilon}"
                if second:
                    worst = max(worst, first / second * Fraction(shrunk, 1 << precision))
    assert worst <= 1, f"a ratio above e^ε by the factor {float(worst)}"
    return worst


@pytest.mark.parametrize("epsilon", [2.0**-30, 0.1, 0.5, 1.0, 2.0, 4.0, 12.0])
@pytest.mark.parametrize("kind", KINDS)
def test_no_report_is_more_than_e_to_the_epsilon_times_as_likely(kind: Any, epsilon: float) -> None:
    for k in (2, 3, 6):
        more = {"hash_range": 5} if kind is local.LocalHashing and epsilon > 4 else {}
        oracle = kind(categories=k, epsilon=epsilon, **more)
        worst = check_laws([oracle.law(value) for value in (*range(k), None)], epsilon)
        assert worst > 1 - 1e-6, "the budget is not used up"


@pytest.mark.parametrize("kind", KINDS)
def test_twins_are_caught_by_their_laws(kind: Any) -> None:
    """One keeps the true value too often; one sends its report twice."""
    oracle, twin = kind(categories=3, epsilon=1.0), overkeeping(kind)(categories=3, epsilon=1.0)
    with pytest.raises(AssertionError, match="above e"):
        check_laws([twin.law(value) for value in range(3)], 1.0)
    laws = [oracle.law(value) for value in range(3)]
    twice = [{(a, b): law[a] * law[b] for a in law for b in law} for law in laws]
    with pytest.raises(AssertionError, match="above e"):
        check_laws(twice, 1.0)


def test_a_hash_function_chosen_by_the_value_is_caught() -> None:
    oracle = local.LocalHashing(categories=3, epsilon=1.0)
    g = oracle.hash_range
    laws = []
    for value in range(3):
        own = {report: p for report, p in oracle.law(value).items() if report // g == value}
        total = sum(own.values())
        laws.append({report: p / total for report, p in own.items()})
    with pytest.raises(AssertionError, match="only one value"):
        check_laws(laws, 1.0)


def reported(oracle: Any, value: Any, runs: int) -> collections.Counter[Any]:
    reports = oracle.randomize(np.full(runs, value))
    return collections.Counter([row.tobytes() for row in reports] if reports.ndim == 2 else reports.tolist())


def p_value(found: collections.Counter[Any], law: Law, runs: int) -> float:
    """That of the χ² test, with rare reports pooled; every report has to be possible."""
    assert set(found) <= {report for report, chance in law.items() if chance}
    common = [report for report, chance in law.items() if chance * runs >= 10]
    observed = [found[report] for report in common]
    expected = [float(law[report]) * runs for report in common]
    rest = runs - sum(expected)
    if rest >= 10:
        observed, expected = [*observed, runs - sum(observed)], [*expected, rest]
    statistic = sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True))
    return float(stats.chi2.sf(statistic, len(expected) - 1))


@pytest.mark.parametrize("kind", KINDS)
def test_reports_follow_the_law(kind: Any) -> None:
    runs = 30_000
    for k, epsilon in ((2, 0.5), (5, 1.0), (9, 3.0)):
        oracle = kind(categories=k, epsilon=epsilon, random_state=k)
        found = reported(oracle, k - 1, runs)
        assert p_value(found, oracle.law(k - 1), runs) > 1e-6
        assert p_value(reported(oracle, -1, runs), oracle.law(None), runs) > 1e-6
        if k == 5:
            assert p_value(found, oracle.law(0), runs) < 1e-6
            other = overkeeping(kind)(categories=k, epsilon=epsilon)
            assert p_value(found, other.law(k - 1), runs) < 1e-6


def test_sets_that_start_from_random_bits_are_uniform() -> None:
    """For 16 members or more, sets are made of bits and resized: each other category is as likely."""
    oracle = local.SubsetSelection(categories=60, epsilon=0.5, random_state=1)
    runs = 20_000
    rows = oracle.randomize(np.full(runs, 7))
    assert oracle.members >= 16
    assert (bits.row_weights(rows) == oracle.members).all()
    others = np.delete(bits.column_counts(rows, 60), 7)
    expected = runs * float(oracle.other)
    away = np.abs(others - expected).max() / math.sqrt(expected * (1 - float(oracle.other)))
    assert away < stats.norm.isf(1e-6 / 118)
    assert abs(bits.column_counts(rows, 60)[7] - runs * float(oracle.keep)) < 5 * math.sqrt(runs / 4)
    pairs = np.unpackbits(rows, axis=1, bitorder="little")[:, [1, 2]].all(axis=1).mean()
    members, inside = oracle.members, float(oracle.keep)
    both = inside * (members - 1) * (members - 2) + (1 - inside) * members * (members - 1)
    assert abs(pairs - both / (59 * 58)) < 5 * math.sqrt(0.25 / runs)


class Following(Source):
    """A stream of numbers that agree with a threshold in the first digits, and then differ."""

    def __init__(self, digits: int, agreeing: int) -> None:
        super().__init__(1)
        self.digits, self.agreeing, self.drawn = digits, agreeing, 0

    def words(self, shape: Any, dtype: Any = np.uint64) -> Any:
        digit = self.digits >> (59 - self.drawn) & 1 if self.drawn < 60 else 0
        self.drawn += 1
        if self.drawn > self.agreeing:
            digit = 1 - digit
        return np.full(shape, ~np.uint64(0) if digit else np.uint64(0))


@pytest.mark.parametrize("chance", [0, 1, 2**59, 2**60 - 1, 0x123456789ABCDEF, 3 << 40])
def test_bits_compare_all_sixty_digits(chance: int) -> None:
    for agreeing in range(60):
        rows = bits.bernoulli_rows(Following(chance, agreeing), Fraction(chance, 2**60), 3, 64)
        below = chance >> (59 - agreeing) & 1
        assert (rows == (255 if below else 0)).all()
    assert not bits.bernoulli_rows(Following(chance, 60), Fraction(chance, 2**60), 3, 64).any()


def test_bits_have_their_chance_in_every_column() -> None:
    runs, chance = 40_000, Fraction(int(0.3 * 2**60), 2**60)
    rows = bits.bernoulli_rows(Source(3), chance, runs, 21)
    counts = bits.column_counts(rows, 21)
    assert (counts == np.unpackbits(rows, axis=1, bitorder="little")[:, :21].sum(axis=0)).all()
    assert not (rows[:, -1] >> 5).any()
    assert np.abs(counts - 0.3 * runs).max() < stats.norm.isf(1e-6 / 42) * math.sqrt(runs * 0.21)
    with pytest.raises(InvalidValue):
        bits.bernoulli_rows(Source(3), Fraction(1, 3), 1, 8)


@pytest.mark.parametrize(("k", "g"), [(2, 2), (50, 2), (30, 3), (100, 5), (7, 11), (300, 7), (60_000, 53)])
def test_hashing_counts_what_agrees(k: int, g: int) -> None:
    """The transform counts the same as the definition, with the last digit inside the table and outside."""
    oracle = local.LocalHashing(categories=k, epsilon=1.0, hash_range=g, random_state=1)
    reports = np.random.default_rng(1).integers(0, g ** (oracle.digits + 1), 300)
    vectors, answers = np.divmod(reports, g)
    some = np.arange(k) if k < 1000 else np.random.default_rng(2).integers(0, k, 500)
    expected = [(hashed(vectors, np.full(300, v), g, oracle.digits) == answers).sum() for v in some]
    assert (oracle._counted(reports).supporting[some] == expected).all()


def test_hadamard_counts_signs() -> None:
    oracle = local.HadamardResponse(categories=11, epsilon=2.5, random_state=1)
    assert oracle.blocks > 1
    reports = np.random.default_rng(1).integers(0, oracle.blocks * oracle.order, 500)
    counted = oracle._counted(reports)
    for code in range(11):
        inside = reports // oracle.order == code % oracle.blocks
        odd = np.bitwise_count(reports % oracle.order & (1 + code // oracle.blocks)) % 2
        assert counted.supporting[code] == np.where(inside, 1 - 2 * odd.astype(int), 0).sum()
        assert counted.in_block[code] == inside.sum()


@pytest.mark.parametrize("kind", KINDS)
def test_estimates_are_unbiased_with_the_stated_variance(kind: Any) -> None:
    repetitions, n, k = 2000, 60, 6
    values = np.array([0] * 30 + [1] * 20 + [5] * 10)
    truth = np.bincount(values, minlength=k) / n
    for epsilon in (1.0, 3.0):
        oracle = kind(categories=k, epsilon=epsilon, random_state=1)
        parts = np.split(oracle.randomize(np.tile(values, repetitions)), repetitions)
        found = np.array([oracle.frequencies(oracle._counted(part)) for part in parts])
        if isinstance(oracle, local.HadamardResponse):
            block = np.arange(k) % oracle.blocks
            stated = oracle.variance(truth, n, block=np.bincount(block, weights=truth)[block])
        else:
            stated = oracle.variance(truth, n)
        error = np.sqrt(stated / repetitions)
        assert (np.abs(found.mean(axis=0) - truth) < 5.7 * error).all()
        assert np.abs(found.var(axis=0) / stated - 1).max() < 5.7 * math.sqrt(3 / repetitions)


def missed(oracle: Any, values: Any, repetitions: int, *, simultaneous: bool) -> int:
    """How many repetitions have an interval that misses: the first category's, or any one."""
    truth = np.bincount(values, minlength=oracle.size) / len(values)
    count = 0
    for part in np.split(oracle.randomize(np.tile(values, repetitions)), repetitions):
        low, high = oracle.estimate(part).interval(0.9, simultaneous=simultaneous)
        assert ((low <= high) & (low >= 0) & (high <= 1)).all()
        wrong = (truth < low) | (truth > high)
        count += int(wrong.any() if simultaneous else wrong[0])
    return count


@pytest.mark.parametrize("kind", KINDS)
def test_intervals_cover(kind: Any) -> None:
    """At few reports and at many, one interval and all at once: at most a tenth is missed."""
    repetitions = 250
    most = stats.binom.isf(1e-7, repetitions, 0.1)
    for n, epsilon in ((3, 1.0), (400, 1.0), (400, 3.5)):
        oracle = kind(categories=5, epsilon=epsilon, random_state=n)
        values = np.arange(n) % 3
        for simultaneous in (False, True):
            assert missed(oracle, values, repetitions, simultaneous=simultaneous) <= most


def test_intervals_for_less_noise_do_not_cover() -> None:
    """The check of coverage has power: intervals of a tenth of the width are found out."""
    oracle = local.OptimizedUnary(categories=5, epsilon=1.0, random_state=1)
    boastful = local.OptimizedUnary(categories=5, epsilon=5.0)
    values, repetitions, wrong = np.arange(400) % 3, 250, 0
    truth = np.bincount(values, minlength=5) / 400
    for part in np.split(oracle.randomize(np.tile(values, repetitions)), repetitions):
        low, high = boastful.estimate(part).interval(0.9)
        wrong += int(truth[0] < low[0] or truth[0] > high[0])
    assert wrong > stats.binom.isf(1e-7, repetitions, 0.1)


@pytest.mark.parametrize("kind", KINDS)
class TestWhatClientsSend:
    def test_values_that_are_no_category_raise_nothing_and_draw_as_much(self, kind: Any) -> None:
        one, other = (kind(categories=4, epsilon=1.0, random_state=1) for _ in range(2))
        reports = one.randomize(NOT_DECLARED)
        other.randomize([0, 1, 2, 3, 0, 1, 2])
        assert len(reports) == len(NOT_DECLARED)
        if not isinstance(one, local.SubsetSelection):
            assert one._source.bits(64) == other._source.bits(64)

    def test_names(self, kind: Any) -> None:
        names = ["red", "green", "blue"]
        oracle = kind(categories=names, epsilon=8.0, random_state=1)
        found = oracle.estimate(oracle.randomize(["blue"] * 500 + ["red"] * 500 + ["pink"] * 3))
        assert found.categories == tuple(names)
        assert np.abs(found.value - [0.5, 0.0, 0.5]).max() < 0.1
        assert "red" not in str(found.guarantee)

    def test_nobody(self, kind: Any) -> None:
        oracle = kind(categories=4, epsilon=1.0)
        none = oracle.randomize([])
        assert len(none) == 0
        with pytest.raises(InvalidValue, match="at least one"):
            oracle.estimate(none)

    def test_reports_that_cannot_be_are_counted_out(self, kind: Any) -> None:
        oracle = kind(categories=5, epsilon=1.0, random_state=1)
        sound = oracle.randomize(np.arange(100) % 5)
        if sound.ndim == 2:
            hostile = np.concatenate([sound, np.full((7, 1), 255, dtype=np.uint8)])
        else:
            hostile = np.concatenate([sound, np.array([-1, 10**15, -(10**15), 10**9, 2**62, -5, -7])])
        one, other = oracle.estimate(sound), oracle.estimate(hostile)
        assert (one.value == other.value).all()
        assert (one.refused, other.refused, other.reports) == (0, 7, 100)

    def test_release(self, kind: Any) -> None:
        oracle = kind(categories=4, epsilon=1.0)
        release = oracle.estimate(oracle.randomize([0, 1, 2, 3] * 20))
        guarantee = release.guarantee
        assert (guarantee.epsilon, guarantee.delta, guarantee.noise) == (1.0, 0.0, "exact")
        assert tacit.accounting.epsilon(oracle.event, 0.0, relation="replace_one") <= 1.0 + 1e-12
        assert "replace_one of one row, which is one person" in guarantee.statement()
        assert "whether somebody reports is not hidden" in guarantee.statement()
        simple = release.on_simplex()
        assert simple.value.min() >= 0
        assert simple.value.sum() == pytest.approx(1)
        low, high = simple.interval()
        assert ((low <= simple.value) & (simple.value <= high)).all()
        assert release.non_negative().value.min() >= 0
        assert release.non_negative().reports == 80
        assert list(release.to_frame().index) == [0, 1, 2, 3]
        assert [line.keys for line in answer_of(release, 0.9).lines] == [(0,), (1,), (2,), (3,)]
        assert str(release)


def test_reports_of_objects_and_floats() -> None:
    oracle = local.RandomizedResponse(categories=3, epsilon=1.0)
    assert oracle.estimate([0, 1.0, 2, None, "1", math.nan, 1.5]).refused == 4
    with pytest.raises(InvalidValue):
        local.OptimizedUnary(categories=30, epsilon=1.0).law(0)
    with pytest.raises(InvalidValue):
        local.LocalHashing(categories=30, epsilon=1.0, hash_range=4)


def test_recommended_is_the_best_up_to_a_twentieth() -> None:
    for k in (2, 5, 40, 3000):
        for epsilon in (0.3, 1.0, 3.0):
            made = local.recommend(categories=k, epsilon=epsilon)
            name = type(made.oracle).__name__
            assert made.deviations[name] ** 2 <= 1.05 * min(made.deviations.values()) ** 2
            assert name in made.reason
            assert made.deviations["SubsetSelection"] <= min(made.deviations.values()) * (1 + 1e-9)
    assert isinstance(local.recommend(categories=["a", "b"], epsilon=1.0).oracle, local.RandomizedResponse)


def test_the_client_needs_neither_pandas_nor_ibis(tmp_path: Any) -> None:
    import subprocess
    import sys

    program = (
        "import sys; from tacit.local import OptimizedUnary; "
        "OptimizedUnary(categories=3, epsilon=1.0).randomize([1]); "
        "sys.exit(any(name in sys.modules for name in ('pandas', 'ibis', 'sklearn', 'torch')))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize("dtype", [np.uint8, np.uint64, np.int16, np.float32, np.bool_, object])
def test_values_of_every_type(dtype: Any) -> None:
    oracle = local.RandomizedResponse(categories=300, epsilon=50.0, random_state=1)
    assert oracle.randomize(np.array([0, 1, 1], dtype=dtype)).tolist() == [0, 1, 1]
    assert len(oracle.randomize(np.array([0, 1, 1], dtype=complex))) == 3
    with pytest.raises(InvalidValue, match="mask"):
        oracle.randomize(np.ma.masked_array([0, 1], mask=[True, False]))
