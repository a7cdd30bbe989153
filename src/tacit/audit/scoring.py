"""From scores to a lower bound on ε: the threshold rule and the bound in one call.

A score says how much a run, or a canary, looks as if the unit had been in. Both functions take the rule by
which scores become guesses and the method by which guesses become a bound; neither has a default, since a
rule that was chosen by looking at the scores, or a method whose assumption does not hold, makes the
confidence a fiction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import _validate
from tacit.audit.bounds import clopper_pearson, gaussian, one_run
from tacit.audit.fdp import one_run_fdp
from tacit.audit.result import AuditResult
from tacit.audit.threshold import (
    Bonferroni,
    Extremes,
    Fixed,
    Split,
    choose_threshold,
    guesses_at,
    scores_of,
)
from tacit.errors import InvalidValue

__all__ = ["from_canaries", "from_scores"]

MANY_RUNS: Mapping[str, Callable[..., AuditResult]] = {
    "clopper_pearson": clopper_pearson,
    "gaussian": gaussian,
}
ONE_RUN: Mapping[str, Callable[..., AuditResult]] = {"one_run": one_run, "one_run_fdp": one_run_fdp}
DIRECTIONS = ("in", "out")


def from_scores(
    scores_in: ArrayLike,
    scores_out: ArrayLike,
    *,
    rule: Fixed | Split | Bonferroni,
    method: str,
    delta: float,
    confidence: float,
    high: str = "in",
) -> AuditResult:
    """A lower bound on ε from one score per run: ``scores_in`` of runs with the unit, ``scores_out`` without.

    ``rule`` is :class:`Fixed`, :class:`Split` or :class:`Bonferroni`; ``method`` is ``"clopper_pearson"``,
    which assumes nothing, or ``"gaussian"``. ``high`` says what a high score means. A score equal to the
    threshold is a guess "in", whatever ``high`` is; NaN and infinities are refused.

    Guarantee: if the runs are independent, an (ε, δ)-differentially private mechanism (of Gaussian
    trade-off, for ``"gaussian"``) yields a result above its ε with probability at most 1 − ``confidence``.

    >>> rng = np.random.default_rng(1)
    >>> inside, outside = rng.normal(1, 1, 4000), rng.normal(0, 1, 4000)
    >>> grid = Bonferroni(np.linspace(-2, 3, 11))
    >>> result = from_scores(inside, outside, rule=grid, method="gaussian", delta=1e-5, confidence=0.95)
    >>> print(f"{result.epsilon:.2f}", result.hypotheses)
    3.80 11
    """
    bound = MANY_RUNS[_validate.choice("method", method, tuple(MANY_RUNS))]
    sign = -1.0 if _validate.choice("high", high, DIRECTIONS) == "out" else 1.0
    inside, outside = sign * scores_of("scores_in", scores_in), sign * scores_of("scores_out", scores_out)
    level = _validate.open_probability("confidence", confidence)
    if isinstance(rule, Bonferroni):
        if isinstance(rule.options[0], Extremes):
            raise InvalidValue("rule", rule, "a Bonferroni of thresholds, where every run has one score")
        share = 1 - (1 - level) / len(rule.options)
        results = [
            bound(**guesses_at(sign * float(each), inside, outside).counts(), delta=delta, confidence=share)
            for each in rule.options
        ]
        return _best(results, rule, level)
    signed = Fixed(sign * rule.value) if isinstance(rule, Fixed) else rule
    guesses = choose_threshold(inside, outside, rule=signed, delta=delta, confidence=level)
    found = bound(**guesses.counts(), delta=delta, confidence=level)
    return replace(found, rule=_told(rule))


def from_canaries(
    scores: ArrayLike,
    included: ArrayLike,
    *,
    rule: Extremes | Bonferroni,
    method: str,
    delta: float,
    confidence: float,
    high: str = "in",
    seed: int = 0,
) -> AuditResult:
    """A lower bound on ε from one run: a score for each canary, and whether a fair coin had put it in.

    ``rule`` is :class:`Extremes`, or a :class:`Bonferroni` of several; ``method`` is ``"one_run"`` or
    ``"one_run_fdp"``, which assumes a Gaussian trade-off. ``high`` says what a high score means; ``seed``
    draws the order of equal scores.

    Guarantee: if an independent fair coin decided for each canary, an (ε, δ)-differentially private
    mechanism yields a result above its ε with probability at most 1 − ``confidence``.

    >>> rng = np.random.default_rng(1)
    >>> included = rng.random(1000) < 0.5
    >>> scores = rng.normal(size=1000) + 2 * included
    >>> options = {"method": "one_run", "delta": 1e-6, "confidence": 0.95}
    >>> print(f"{from_canaries(scores, included, rule=Extremes(100, 100), **options).epsilon:.2f}")
    3.22
    """
    bound = ONE_RUN[_validate.choice("method", method, tuple(ONE_RUN))]
    sign = -1.0 if _validate.choice("high", high, DIRECTIONS) == "out" else 1.0
    values, coins = sign * scores_of("scores", scores), _coins(included)
    if coins.size != values.size:
        raise InvalidValue("included", coins.size, f"one for each of the {values.size} scores")
    level = _validate.open_probability("confidence", confidence)
    options: Any = rule.options if isinstance(rule, Bonferroni) else (rule,)
    if not all(isinstance(each, Extremes) for each in options):
        needed = "Extremes(highest, lowest) or a Bonferroni of them"
        raise InvalidValue("rule", rule, needed, "There is no default.")
    drawn = np.random.default_rng(_validate.count("seed", seed)).permutation(values.size)
    order = np.lexsort((drawn, values))
    share = 1 - (1 - level) / len(options)
    results = []
    for each in options:
        guesses = each.highest + each.lowest
        if guesses > values.size:
            raise InvalidValue("rule", each, f"at most {values.size} guesses, one per canary")
        right = coins[order[values.size - each.highest :]].sum() + (~coins[order[: each.lowest]]).sum()
        results.append(
            bound(canaries=values.size, guesses=guesses, correct=int(right), delta=delta, confidence=share)
        )
    return _best(results, rule, level)


def _best(results: list[AuditResult], rule: Any, confidence: float) -> AuditResult:
    best = max(results, key=lambda each: each.epsilon)
    return replace(
        best, confidence=confidence, rule=_told(rule), hypotheses=len(results), most=most_of(results)
    )


def most_of(results: list[AuditResult]) -> float | None:
    """What the best of several tests would have proved had all its guesses been right."""
    return max((each.most for each in results if each.most is not None), default=None)


def _told(rule: Any) -> str:
    """A threshold rule in words."""
    match rule:
        case Fixed(value=value):
            return f"a threshold of {value:g}, fixed beforehand"
        case Split():
            return "a threshold chosen on one half of the runs and tested on the other"
        case Extremes(highest=highest, lowest=lowest):
            return f"the {highest} highest scores guessed in, the {lowest} lowest guessed out"
        case _:
            return f"the best of {len(rule.options)} options fixed beforehand, the confidence shared"


def _coins(included: ArrayLike) -> NDArray[np.bool_]:
    found = np.asarray(included)
    if found.ndim != 1 or found.dtype != bool:
        raise InvalidValue("included", f"{found.dtype} of shape {found.shape}", "one boolean per canary")
    return found
