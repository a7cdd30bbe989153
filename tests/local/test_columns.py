"""Reports as a column of a private table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import tacit
from tacit import local
from tacit.errors import InvalidValue
from tacit.tables.release import Answer, Release

NAMES = ("a", "b", "c", "d")
TRUE = np.array([0.55, 0.25, 0.15, 0.05])
PEOPLE = 2000
ORACLE = local.RandomizedResponse(categories=NAMES, epsilon=1.5, random_state=1)


def shown(values: np.ndarray) -> pd.Series:
    return pd.Series(values, index=list(NAMES))


def histogram_of(counts: np.ndarray, scale: float, rng: np.random.Generator) -> Release:
    """Counts with Laplace noise of this scale, and the intervals that go with it."""
    noisy = counts + rng.laplace(0, scale, counts.size)

    def interval(confidence: float, simultaneous: bool) -> tuple[np.ndarray, np.ndarray]:
        miss = (1 - confidence) / (counts.size if simultaneous else 1)
        reach = scale * np.log(1 / miss)
        return noisy - reach, noisy + reach

    return Release("histogram(answer)", ORACLE.guarantee, Answer(noisy, interval, shown))


def missed(oracle: local.RandomizedResponse, runs: int) -> np.ndarray:
    """In how many runs an interval of 90 % misses: some category, and the first one."""
    rng = np.random.default_rng(1)
    answers = np.repeat(np.arange(4), (TRUE * PEOPLE).astype(int))
    missing = np.zeros(2)
    for _ in range(runs):
        counts = np.bincount(ORACLE.randomize(np.array(NAMES)[answers]), minlength=4)
        found = local.frequencies_of(histogram_of(counts, 3.0, rng), oracle)
        for place, together in enumerate((True, False)):
            low, high = found.interval(0.9, simultaneous=together)
            outside = (low > TRUE) | (high < TRUE)
            missing[place] += outside.any() if together else outside[0]
    return missing


def test_intervals_cover_responses_and_noise():
    """At most 10 % of 200 intervals miss, but for a chance of 1e-6; with a wrong ε nearly all do."""
    assert np.all(missed(ORACLE, 200) <= 44)
    wrong = local.RandomizedResponse(categories=NAMES, epsilon=0.5)
    assert np.all(missed(wrong, 50) >= 40)


def test_a_table_of_reports(tmp_path: Path):
    """The table is charged for its noise, and the estimate is near the truth."""
    answers = np.repeat(np.array(NAMES), (TRUE * 20_000).astype(int))
    reports = local.Reports(ORACLE, ORACLE.randomize(answers), "answer")
    schema = tacit.Schema({"answer": tacit.Column("category", categories=NAMES)})
    with tacit.Ledger.open(tmp_path / "study.db", tacit.Budget(1.0)) as ledger:
        frame = pd.DataFrame({"answer": reports.texts()})
        with tacit.tables.open(frame, schema=schema, ledger=ledger, random_state=1) as table:
            found = local.frequencies_of(table.histogram("answer", epsilon=0.5), ORACLE)
        assert ledger.spent().epsilon == 0.5
    assert found.guarantee.epsilon == 0.5
    assert found.value == pytest.approx(reports.estimate().value, abs=0.01)
    assert found.value == pytest.approx(TRUE, abs=0.04)
    low, high = found.interval(0.95)
    plain_low, plain_high = reports.estimate().interval(0.95)
    assert np.all(low <= plain_low)
    assert np.all(high >= plain_high)


def test_refusals():
    counts = histogram_of(np.array([1.0, 2.0, 3.0, 4.0]), 1.0, np.random.default_rng(1))
    with pytest.raises(InvalidValue, match="RandomizedResponse"):
        local.frequencies_of(counts, local.OptimizedUnary(categories=NAMES, epsilon=1.0))
    with pytest.raises(InvalidValue, match="categories of the oracle"):
        local.frequencies_of(counts, local.RandomizedResponse(categories=("a", "z"), epsilon=1.0))
