"""RAPPOR and heavy hitters: domains that nobody lists, and reports that are sent again and again."""

from __future__ import annotations

import collections
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

from local.test_oracles import check_laws, p_value
from tacit import events
from tacit.errors import InvalidValue
from tacit.local import HeavyHitters, Rappor

TINY: dict[str, Any] = {"bits": 5, "hashes": 2, "cohorts": 3}
NAMES = ("ash", "birch", "cedar", "date", "elm", None, math.nan)


class TestRappor:
    @pytest.mark.parametrize("epsilon", [2.0**-20, 0.7, 3.0])
    @pytest.mark.parametrize("report", [None, 0.25, 1.0])
    def test_laws_of_permanent_responses_and_reports(self, epsilon: float, report: float | None) -> None:
        one = None if report is None else report * epsilon
        rappor = Rappor(epsilon=epsilon, report_epsilon=one, **TINY)
        worst = check_laws([rappor.law(name, permanent=True) for name in NAMES], epsilon)
        assert worst > 1 - 1e-6
        assert check_laws([rappor.law(name) for name in NAMES], one or epsilon) > 1 - 1e-6
        assert rappor.event == events.Pure(epsilon)
        assert rappor.report_event == events.Pure(one or epsilon)

    def test_filters_that_differ_in_fewer_bits_are_not_the_worst(self) -> None:
        """Twin: flips sized for h differing bits, although two filters differ in 2h."""
        sound = Rappor(epsilon=1.0, **TINY)
        laws = [Rappor(epsilon=2.0, **TINY).law(name, permanent=True) for name in NAMES]
        assert sound.permanent_flip > Rappor(epsilon=2.0, **TINY).permanent_flip
        with pytest.raises(AssertionError, match="above e"):
            check_laws(laws, 1.0)

    def test_reports_follow_the_law(self) -> None:
        rappor, runs = Rappor(epsilon=3.0, report_epsilon=1.0, random_state=1, **TINY), 30_000
        for permanent in (True, False):
            draw = rappor.permanent if permanent else rappor.randomize
            drawn = draw(["elm"] * runs)
            found = collections.Counter(row.tobytes() for row in drawn)
            assert p_value(found, rappor.law("elm", permanent=permanent), runs) > 1e-6
            assert p_value(found, rappor.law("elm", permanent=not permanent), runs) < 1e-6

    def test_reports_from_one_memory_average_to_the_memory_and_to_no_more(self) -> None:
        rappor = Rappor(epsilon=2.0, report_epsilon=0.5, bits=8, hashes=1, cohorts=1, random_state=1)
        memory = rappor.permanent(["elm"])
        kept = memory.copy()
        reports = np.concatenate([rappor.report(memory) for _ in range(2000)])
        assert (memory == kept).all()
        ones = np.unpackbits(reports[:, 2:], axis=1, bitorder="little").mean(axis=0) > 0.5
        assert (ones == np.unpackbits(memory[0, 2:], bitorder="little").astype(bool)).all()

    def test_frequencies_and_intervals(self) -> None:
        rappor = Rappor(epsilon=4.0, report_epsilon=3.0, bits=32, cohorts=8, random_state=5)
        values = ["ash"] * 500 + ["birch"] * 300 + ["cedar"] * 200
        truth = np.array([0.5, 0.3, 0.2, 0.0])
        wrong = {False: 0, True: 0}
        estimates = []
        for _ in range(60):
            found = rappor.estimate(rappor.randomize(values), ["ash", "birch", "cedar", "date"])
            estimates.append(found.value)
            for simultaneous in wrong:
                low, high = found.interval(0.9, simultaneous=simultaneous)
                missed = (truth < low) | (truth > high)
                wrong[simultaneous] += int(missed.any() if simultaneous else missed[0])
        assert max(wrong.values()) <= stats.binom.isf(1e-7, 60, 0.1)
        assert np.abs(np.mean(estimates, axis=0) - truth).max() < 0.05
        assert np.min(estimates) >= 0

    def test_what_clients_send(self) -> None:
        rappor = Rappor(epsilon=2.0, bits=12, cohorts=4, random_state=1)
        sound = rappor.randomize([None, 3.5, b"\xff", "a" * 10_000, object(), "\ud800"])
        hostile = np.full((2, sound.shape[1]), 255, dtype=np.uint8)
        found = rappor.estimate(np.concatenate([sound, hostile]), ["x", "y"])
        assert (found.reports, found.refused) == (6, 2)
        assert len(rappor.randomize([])) == 0
        with pytest.raises(InvalidValue, match="Bloom filters"):
            rappor.estimate(sound, range(1000))
        with pytest.raises(InvalidValue):
            rappor.report(np.zeros((2, 2), dtype=np.uint8))


class TestHeavyHitters:
    @pytest.mark.parametrize("epsilon", [2.0**-20, 0.7, 1.0])
    def test_law(self, epsilon: float) -> None:
        hitters = HeavyHitters(bits=2, step=1, epsilon=epsilon)
        assert check_laws([hitters.law(value) for value in range(4)], epsilon) > 1 - 1e-6

    def test_a_group_chosen_by_the_value_is_caught(self) -> None:
        hitters = HeavyHitters(bits=2, step=1, epsilon=1.0)
        laws = []
        for value in range(4):
            own = {report: p * 2 for report, p in hitters.law(value).items() if report[0] == value % 2}
            laws.append(own)
        assert all(sum(law.values(), Fraction(0)) == 1 for law in laws)
        with pytest.raises(AssertionError, match="only one value"):
            check_laws(laws, 1.0)

    def test_reports_follow_the_law(self) -> None:
        hitters, runs = HeavyHitters(bits=2, step=1, epsilon=1.0, random_state=1), 30_000
        laws = [hitters.law(value) for value in range(4)]
        found = collections.Counter(map(tuple, hitters.randomize(np.full(runs, 2)).tolist()))
        assert p_value(found, laws[2], runs) > 1e-6
        assert p_value(found, laws[3], runs) < 1e-6
        anything = collections.Counter(map(tuple, hitters.randomize(np.full(runs, -3)).tolist()))
        mixed = {report: sum(law[report] for law in laws) / 4 for report in laws[0]}
        assert p_value(anything, mixed, runs) > 1e-6

    def test_finds_frequent_numbers_with_intervals_and_nothing_else(self) -> None:
        rng = np.random.default_rng(1)
        frequent = [3_000_000_000, 17, 2**32 - 1]
        values = np.concatenate(
            [np.repeat(frequent, [6000, 4000, 3000]), rng.integers(0, 2**32, 7000)]
        )
        hitters = HeavyHitters(bits=32, epsilon=3.0, random_state=1)
        found = hitters.estimate(hitters.randomize(values))
        assert list(found.categories) == frequent
        low, high = found.interval()
        assert ((low < [0.3, 0.2, 0.15]) & (high > [0.3, 0.2, 0.15]) & (low > 0)).all()
        assert np.abs(found.value - [0.3, 0.2, 0.15]).max() < 0.05
        assert found.guarantee.epsilon == 3.0
        nothing = hitters.estimate(hitters.randomize(rng.integers(0, 2**32, 4000)))
        assert nothing.categories == ()
        assert nothing.value.shape == (0,)

    def test_texts(self) -> None:
        hitters = HeavyHitters(bits=48, text=True, epsilon=4.0, kept=8, random_state=2)
        values = ["señor"] * 4000 + ["yes"] * 3000 + [None] * 2000 + ["a much longer text"] * 2500
        found = hitters.estimate(hitters.randomize(values))
        assert set(found.categories) == {"señor", "yes", "", "a much"}

    def test_what_clients_send(self) -> None:
        hitters = HeavyHitters(bits=16, epsilon=2.0, random_state=1)
        sound = hitters.randomize([1, None, math.nan, 2**80, "x", [1], -4] * 10)
        hostile = np.full((3, sound.shape[1]), 99, dtype=sound.dtype)
        assert hitters.estimate(np.concatenate([sound, hostile])).refused == 3
        with pytest.raises(InvalidValue):
            hitters.estimate(sound[:, 1:])
        with pytest.raises(InvalidValue, match="last group"):
            hitters.estimate(sound[:0])
        with pytest.raises(InvalidValue):
            hitters.law(0)
