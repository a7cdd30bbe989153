"""Scores to bounds: rules, directions, ties, and how often each raises a false alarm."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, norm

from calls import calls
from tacit import audit
from tacit.errors import InvalidValue

GRID = audit.Bonferroni(np.linspace(-3, 3, 13))
ENDS = audit.Bonferroni([audit.Extremes(n, n) for n in (10, 30, 100)])


def test_one_run_fdp_against_two_implementations(shared_dir: Path) -> None:
    vectors = json.loads((shared_dir / "vectors" / "auditing.json").read_text())
    rows = [row for row in vectors["one_run_eps"] if "eps_fdp_gaussian" in row]
    assert len(rows) > 10
    for row in rows:
        options = {"delta": row["delta"], "confidence": 1 - row["significance"]}
        ours = audit.one_run_fdp(canaries=row["m"], guesses=row["r"], correct=row["v"], **options)
        assert ours.epsilon == pytest.approx(row["eps_fdp_gaussian"], rel=1e-6, abs=1e-6), row
    for row in vectors["fdp_two_implementations"]["rows"]:
        ours = audit.one_run_fdp(
            canaries=row["m"], guesses=row["c_cap"], correct=row["c"], delta=row["delta"], confidence=0.95
        )
        assert ours.epsilon == pytest.approx(row["eps_jax_privacy_fdp"], rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(
    ("guesses", "correct", "delta", "expected"),
    [(100, 75, 1e-5, 1.00592), (100, 75, 1e-6, 1.15027), (100, 100, 1e-5, 5.54903)],
)
def test_one_run_fdp_values(guesses: int, correct: int, delta: float, expected: float) -> None:
    result = audit.one_run_fdp(canaries=1000, guesses=guesses, correct=correct, delta=delta, confidence=0.95)
    assert result.epsilon == pytest.approx(expected, abs=1e-5)
    weaker = audit.one_run(canaries=1000, guesses=guesses, correct=correct, delta=delta, confidence=0.95)
    assert weaker.epsilon < result.epsilon


def test_one_run_fdp_at_the_ends() -> None:
    options: dict[str, Any] = {"delta": 1e-5, "confidence": 0.95}
    assert audit.one_run_fdp(canaries=100, guesses=100, correct=50, **options).epsilon == 0
    assert audit.one_run_fdp(canaries=100, guesses=100, correct=0, **options).epsilon == 0
    found = [audit.one_run_fdp(canaries=100, guesses=50, correct=n, **options).epsilon for n in range(51)]
    assert found == sorted(found)


@pytest.mark.parametrize("method", ["clopper_pearson", "gaussian"])
@pytest.mark.parametrize("rule", [audit.Fixed(0.5), audit.Split(seed=1), GRID])
def test_direction_does_not_matter(rule: Any, method: str) -> None:
    generator = np.random.default_rng(2)
    inside, outside = generator.normal(1.5, 1, 800), generator.normal(0, 1, 800)
    options: dict[str, Any] = {"rule": rule, "method": method, "delta": 1e-5, "confidence": 0.95}
    plain = audit.from_scores(inside, outside, **options)
    if isinstance(rule, audit.Fixed):
        options["rule"] = audit.Fixed(-rule.value)
    turned = audit.from_scores(-inside, -outside, high="out", **options)
    assert turned.epsilon == plain.epsilon > 1
    assert plain.rule
    assert plain.hypotheses == (13 if rule is GRID else 1)


def test_bonferroni_is_the_best_of_its_shares() -> None:
    generator = np.random.default_rng(3)
    inside, outside = generator.normal(1, 1, 500), generator.normal(0, 1, 500)
    options: dict[str, Any] = {"method": "clopper_pearson", "delta": 0.0}
    each = [
        audit.from_scores(inside, outside, rule=audit.Fixed(t), confidence=1 - 0.05 / 13, **options).epsilon
        for t in GRID.options
    ]
    assert audit.from_scores(inside, outside, rule=GRID, confidence=0.95, **options).epsilon == max(each)


def test_ties_are_broken_without_the_coins() -> None:
    """All scores are equal, and the canaries that are in stand first: position must not decide."""
    included = np.arange(2000) < 1000
    result = audit.from_canaries(
        np.zeros(2000), included, rule=audit.Extremes(500, 500), method="one_run", delta=0.0, confidence=0.999
    )
    assert result.epsilon == 0


def false_alarms(method: str, rule: Any, trials: int = 300) -> int:
    """How many of so many audits of scores that say nothing find an ε above 0."""
    generator = np.random.default_rng(4)
    options: dict[str, Any] = {"rule": rule, "method": method, "delta": 1e-5, "confidence": 0.95}
    found = 0
    for _ in range(trials):
        scores = generator.normal(size=400)
        if method.startswith("one_run"):
            found += audit.from_canaries(scores, generator.random(400) < 0.5, **options).epsilon > 0
        else:
            found += audit.from_scores(scores[:200], scores[200:], **options).epsilon > 0
    return found


@pytest.mark.parametrize(
    ("method", "rule"),
    [
        ("clopper_pearson", audit.Split(seed=1)),
        ("clopper_pearson", GRID),
        ("gaussian", audit.Fixed(0.0)),
        ("gaussian", GRID),
        ("one_run", audit.Extremes(50, 50)),
        ("one_run", ENDS),
        ("one_run_fdp", audit.Extremes(50, 50)),
        ("one_run_fdp", ENDS),
    ],
)
def test_false_alarms_are_as_rare_as_stated(method: str, rule: Any) -> None:
    assert false_alarms(method, rule) <= binom.isf(1e-6, 300, 0.05)


def test_numbers_of_guesses_chosen_on_the_tested_scores_raise_more_alarms() -> None:
    """The twin tries many numbers of guesses and keeps the best, with no share of the confidence for each."""
    generator = np.random.default_rng(5)
    options: dict[str, Any] = {"method": "one_run", "delta": 0.0, "confidence": 0.95}
    found = 0
    for _ in range(200):
        scores, included = generator.normal(size=400), generator.random(400) < 0.5
        each = [
            audit.from_canaries(scores, included, rule=audit.Extremes(n), **options).epsilon
            for n in range(10, 400, 10)
        ]
        found += max(each) > 0
    assert found > binom.isf(1e-6, 200, 0.05)


def test_power_at_one_deviation() -> None:
    """The figures of the notes: μ = 1, δ = 1e-5, 1000 runs a side, where ε is 4.38."""
    scores = norm.ppf((np.arange(1000) + 0.5) / 1000)
    grid = audit.Bonferroni(np.linspace(-2, 3, 6))
    options: dict[str, Any] = {"rule": grid, "delta": 1e-5, "confidence": 0.95}
    assert 2.8 < audit.from_scores(scores + 1, scores, method="gaussian", **options).epsilon < 4.377
    assert 0.8 < audit.from_scores(scores + 1, scores, method="clopper_pearson", **options).epsilon < 2


@pytest.mark.parametrize("method", ["one_run", "one_run_fdp", "clopper_pearson", "gaussian"])
def test_many_scores_take_no_more_calls_than_few(method: str) -> None:
    """Scores are sorted and counted as arrays, so that ten thousand a side take a fraction of a second."""
    generator = np.random.default_rng(6)

    def audited(size: int) -> None:
        included = generator.random(size) < 0.5
        scores = generator.normal(size=size) + included
        options: dict[str, Any] = {"method": method, "delta": 1e-7, "confidence": 0.95}
        if method.startswith("one_run"):
            audit.from_canaries(scores, included, rule=audit.Extremes(size // 10, size // 10), **options)
        else:
            audit.from_scores(scores[included], scores[~included], rule=audit.Split(seed=0), **options)

    assert calls(audited, 20_000) < 2 * calls(audited, 2_000)


@pytest.mark.parametrize(
    "options",
    [
        {"rule": audit.Extremes(1), "method": "gaussian"},
        {"rule": None, "method": "gaussian"},
        {"rule": audit.Bonferroni([audit.Extremes(1)]), "method": "gaussian"},
        {"rule": GRID, "method": "one_run"},
        {"rule": GRID, "method": "gaussian", "high": "up"},
    ],
)
def test_what_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        audit.from_scores([1.0, 2.0], [0.0, 1.0], delta=1e-5, confidence=0.95, **options)


@pytest.mark.parametrize(
    ("scores", "included", "rule"),
    [
        ([1.0, math.nan], [True, False], audit.Extremes(1)),
        ([1.0, 2.0], [1, 0], audit.Extremes(1)),
        ([1.0, 2.0], [True], audit.Extremes(1)),
        ([1.0, 2.0], [True, False], audit.Extremes(3)),
        ([1.0, 2.0], [True, False], audit.Fixed(0.5)),
        ([1.0, 2.0], [True, False], GRID),
    ],
)
def test_which_canaries_are_refused(scores: Any, included: Any, rule: Any) -> None:
    with pytest.raises(InvalidValue):
        audit.from_canaries(
            scores, np.array(included), rule=rule, method="one_run", delta=0.0, confidence=0.95
        )


def test_options_that_make_no_rule() -> None:
    for options in ([], [math.nan]):
        with pytest.raises(InvalidValue):
            audit.Bonferroni(options)
    with pytest.raises(InvalidValue):
        audit.Extremes(0, 0)


def test_a_verdict_in_words() -> None:
    counts = {"true_positives": 900, "positives": 1000, "false_positives": 100, "negatives": 1000}
    result = audit.clopper_pearson(**counts, delta=0.0, confidence=0.95)
    assert result.verdict == "no ε was claimed"
    assert "refuted" in result.against(1.0).verdict
    assert "consistent" in result.against(5.0).verdict
    assert json.loads(json.dumps(result.against(1.0).to_dict()))["claimed"] == 1.0
