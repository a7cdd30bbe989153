"""Audit bounds against values from independent implementations and from the papers."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, norm

from tacit import audit
from tacit.audit import bounds
from tacit.errors import InvalidValue


@pytest.fixture(scope="module")
def vectors(shared_dir: Path) -> dict[str, Any]:
    return json.loads((shared_dir / "vectors" / "auditing.json").read_text())


def counts(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "true_positives": row["tp"],
        "positives": row["n_pos"],
        "false_positives": row["fp"],
        "negatives": row["n_neg"],
        "delta": row["delta"],
        "confidence": 1 - row["significance"],
    }


def test_rate_bounds(vectors):
    for row in vectors["clopper_pearson_upper"]:
        assert bounds.rate_bound(row["k"], row["n"], row["significance"]) == pytest.approx(
            row["out"], rel=1e-9
        )


def test_clopper_pearson(vectors):
    for row in vectors["eps_clopper_pearson_explicit_threshold"]:
        result = audit.clopper_pearson(**counts(row))
        assert result.epsilon == pytest.approx(row["eps_two_sided"], rel=1e-9, abs=1e-12), row


def test_gaussian_separation(vectors):
    for row in vectors["gdp_mu_from_rates"]:
        assert bounds.separation(row["fnr"], row["fpr"]) == pytest.approx(row["mu"], rel=1e-9)


def test_gaussian_epsilon(vectors):
    for row in vectors["gdp_eps_from_mu"]:
        assert bounds.gaussian_epsilon(row["mu"], row["delta"]) == pytest.approx(row["eps"], rel=1e-8)


def test_gaussian(vectors):
    for row in vectors["eps_gdp_single_threshold"]:
        assert audit.gaussian(**counts(row)).epsilon == pytest.approx(row["eps"], rel=1e-7), row


def test_one_run_p_values(vectors):
    for row in vectors["one_run_p_value"]:
        ours = bounds.one_run_p_value(row["m"], row["r"], row["v"], row["eps"], row["delta"])
        assert ours == pytest.approx(row["p"], rel=1e-7, abs=1e-14), row


def test_one_run(vectors):
    for row in vectors["one_run_eps"]:
        result = audit.one_run(
            canaries=row["m"],
            guesses=row["r"],
            correct=row["v"],
            delta=row["delta"],
            confidence=1 - row["significance"],
        )
        assert result.epsilon == pytest.approx(row["eps_steinke"], rel=1e-6, abs=1e-7), row


@pytest.mark.parametrize(
    ("m", "r", "v", "delta", "printed"),
    [
        (100, 100, 75, 0.0, 0.702),
        (100, 100, 75, 1e-4, 0.699),
        (1000, 100, 75, 1e-4, 0.673),
        (100_000, 1510, 1439, 1e-5, 2.67585),
    ],
)
def test_one_run_as_printed(m, r, v, delta, printed):
    result = audit.one_run(canaries=m, guesses=r, correct=v, delta=delta, confidence=0.95)
    assert result.epsilon == pytest.approx(printed, abs=5e-4)


def test_no_signal_is_no_finding(vectors):
    """|μ| in place of max(μ, 0) reports a large ε where there is none: the recorded buggy values."""
    rows = [row for row in vectors["auditor_on_scores"] if "shift=0" in row["name"]]
    assert any(value > 1 for row in rows for value in row["eps_gdp_bonferroni_pypi_2_0_0_BUGGY"].values())
    scores = norm.ppf((np.arange(1000) + 0.5) / 1000)
    for threshold in (-1.0, 0.0, 1.0, 3.0):
        hits = int((scores >= threshold).sum())
        for method in (audit.gaussian, audit.clopper_pearson):
            result = method(
                true_positives=hits,
                positives=1000,
                false_positives=hits,
                negatives=1000,
                delta=1e-5,
                confidence=0.95,
            )
            assert result.epsilon == 0


@pytest.mark.parametrize(
    ("tp", "fp", "expected"), [(500, 0, 4.90559), (0, 500, 0.0), (500, 500, 0.0), (0, 0, 0.0)]
)
def test_clopper_pearson_at_the_ends(tp, fp, expected):
    result = audit.clopper_pearson(
        true_positives=tp, positives=500, false_positives=fp, negatives=500, delta=0.0, confidence=0.95
    )
    assert result.epsilon == pytest.approx(expected, abs=1e-5)


def test_guessing_out_counts_too():
    """Few false negatives prove as much as few false positives."""
    seen = {"delta": 1e-3, "confidence": 0.95, "positives": 1000, "negatives": 1000}
    one = audit.clopper_pearson(true_positives=500, false_positives=10, **seen)
    other = audit.clopper_pearson(true_positives=990, false_positives=500, **seen)
    assert one.epsilon == other.epsilon > 3


def test_one_run_without_delta_is_a_beta_quantile():
    with_some = audit.one_run(canaries=1000, guesses=100, correct=90, delta=1e-300, confidence=0.99)
    without = audit.one_run(canaries=1000, guesses=100, correct=90, delta=0.0, confidence=0.99)
    assert with_some.epsilon == pytest.approx(without.epsilon, rel=1e-9)
    assert audit.one_run(canaries=9, guesses=9, correct=0, delta=0.0, confidence=0.9).epsilon == 0


def test_many_canaries_drive_the_one_run_bound_to_zero():
    few = audit.one_run(canaries=1000, guesses=1000, correct=800, delta=1e-6, confidence=0.95)
    many = audit.one_run(canaries=10**7, guesses=1000, correct=800, delta=1e-2, confidence=0.95)
    assert few.epsilon > 1
    assert many.epsilon == 0


class TestFalseAlarms:
    """On mechanisms whose ε is known, bounds exceed it no more often than stated."""

    def test_split_is_honest_where_reuse_is_not(self):
        """No signal, 1000 runs a side, nominal 5 %: a threshold tested where it was chosen fails."""
        generator = np.random.default_rng(5)
        n, trials, split, reused = 1000, 150, 0, 0
        for trial in range(trials):
            inside, outside = np.sort(generator.normal(size=(2, n)), axis=1)
            guesses = audit.choose_threshold(
                inside, outside, rule=audit.Split(seed=trial), delta=0.0, confidence=0.95
            )
            split += audit.clopper_pearson(**guesses.counts(), delta=0.0, confidence=0.95).epsilon > 0
            thresholds = np.concatenate([inside, outside])
            missed = np.searchsorted(inside, thresholds)
            alarms = n - np.searchsorted(outside, thresholds)
            proven = bounds.rates_epsilon(
                bounds.rate_bound(missed, n, 0.025), bounds.rate_bound(alarms, n, 0.025), 0.0
            )
            reused += proven.max() > 0
        assert split <= 0.01 * trials
        assert reused > 0.05 * trials

    def test_clopper_pearson_on_randomized_response(self):
        """Exactly, by summing over all outcomes of 40 runs a side."""
        n, keep = 40, 1 / (1 + math.exp(-1.0))
        wrong = 0.0
        for tp in range(n + 1):
            for fp in range(n + 1):
                result = audit.clopper_pearson(
                    true_positives=tp, positives=n, false_positives=fp, negatives=n, delta=0.0, confidence=0.9
                )
                if result.contradicts(1.0):
                    wrong += binom.pmf(tp, n, keep) * binom.pmf(fp, n, 1 - keep)
        assert 0 < wrong <= 0.1

    def test_one_run_on_randomized_response(self):
        """Exactly, by summing over all numbers of correct guesses."""
        keep = 1 / (1 + math.exp(-1.0))
        results = [
            audit.one_run(canaries=200, guesses=200, correct=v, delta=0.0, confidence=0.95)
            for v in range(201)
        ]
        wrong = sum(binom.pmf(v, 200, keep) for v, result in enumerate(results) if result.contradicts(1.0))
        assert 0.01 < wrong <= 0.05


GOOD = {
    "true_positives": 5,
    "positives": 10,
    "false_positives": 1,
    "negatives": 10,
    "delta": 1e-5,
    "confidence": 0.9,
}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("true_positives", 11),
        ("true_positives", -1),
        ("true_positives", 5.0),
        ("true_positives", True),
        ("positives", 0),
        ("false_positives", 11),
        ("false_positives", None),
        ("negatives", 0),
        ("delta", 1.0),
        ("delta", -0.1),
        ("delta", math.nan),
        ("confidence", 1.0),
        ("confidence", 0),
        ("confidence", "0.9"),
    ],
)
@pytest.mark.parametrize("method", [audit.clopper_pearson, audit.gaussian])
def test_bad_counts(method, name, value):
    with pytest.raises(InvalidValue, match=name):
        method(**{**GOOD, name: value})


def test_gaussian_needs_delta():
    with pytest.raises(InvalidValue, match="delta"):
        audit.gaussian(**{**GOOD, "delta": 0.0})


@pytest.mark.parametrize(
    ("name", "value"),
    [("guesses", 101), ("guesses", 0), ("correct", 60), ("canaries", 0), ("delta", 2), ("confidence", 1)],
)
def test_bad_one_run(name, value):
    good = {"canaries": 100, "guesses": 50, "correct": 40, "delta": 0.0, "confidence": 0.95}
    with pytest.raises(InvalidValue):
        audit.one_run(**{**good, name: value})


@pytest.mark.parametrize(
    ("inside", "outside", "rule"),
    [
        ([1.0, math.nan], [0.0, 1.0], audit.Split(seed=0)),
        ([1.0, math.inf], [0.0, 1.0], audit.Fixed(0.5)),
        ([], [0.0], audit.Fixed(0.5)),
        ([[1.0]], [0.0], audit.Fixed(0.5)),
        (["a"], [0.0], audit.Fixed(0.5)),
        ([1.0], [0.0, 2.0], audit.Split(seed=0)),
        ([1.0, 2.0], [0.0, 2.0], 0.5),
        ([1.0, 2.0], [0.0, 2.0], None),
    ],
)
def test_bad_scores(inside, outside, rule):
    with pytest.raises(InvalidValue):
        audit.choose_threshold(inside, outside, rule=rule, delta=0.0, confidence=0.95)


def test_threshold_has_no_default():
    with pytest.raises(TypeError, match="rule"):
        audit.choose_threshold([1.0], [0.0], delta=0.0, confidence=0.95)


def test_ties_are_guesses_in():
    guesses = audit.choose_threshold([1, 1, 0], [1, 0, 0], rule=audit.Fixed(1.0), delta=0.0, confidence=0.95)
    assert (guesses.true_positives, guesses.false_positives) == (2, 1)
