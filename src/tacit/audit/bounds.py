"""From counts of right and wrong guesses to lower bounds on ε."""

from __future__ import annotations

import itertools
import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import betainccinv, betaincinv, log_ndtr, ndtri
from scipy.stats import binom

from tacit import _validate
from tacit.audit.result import AuditResult
from tacit.errors import InvalidValue

__all__ = ["clopper_pearson", "gaussian", "one_run"]

NO_ASSUMPTION = "none"
GAUSSIAN = "the mechanism is Gaussian"
FAIR_COINS = "an independent fair coin for each canary decided whether it was included"

_PROBES = 32


def clopper_pearson(
    *,
    true_positives: int,
    positives: int,
    false_positives: int,
    negatives: int,
    delta: float,
    confidence: float,
) -> AuditResult:
    """ε from the guesses "in" among ``positives`` runs with a unit and ``negatives`` without it.

    Guarantee: if the runs are independent and the rule behind the guesses was fixed before they were
    seen, an (ε, δ)-differentially private mechanism yields a result above its ε with probability at
    most 1 − ``confidence``. Nothing else is assumed.

    The false negative and false positive rates get exact upper bounds (Clopper and Pearson 1934),
    each at half of 1 − confidence; ε is the larger of ln((1 − FNR − δ)/FPR) and, guessing "out",
    ln((1 − FPR − δ)/FNR), for which the same two bounds serve (Jagielski et al. 2020).

    >>> result = clopper_pearson(true_positives=900, positives=1000, false_positives=100, negatives=1000,
    ...                          delta=1e-5, confidence=0.95)
    >>> round(result.epsilon, 5)
    1.98969
    """
    counts = _counts(true_positives, positives, false_positives, negatives)
    dlt, level = _validate.delta(delta), _validate.open_probability("confidence", confidence)
    miss, alarm = _rates(counts, level)
    epsilon = float(rates_epsilon(miss, alarm, dlt))
    most = float(rates_epsilon(*_rates(_all_right(counts), level), dlt))
    return AuditResult(epsilon, dlt, level, "clopper_pearson", NO_ASSUMPTION, counts, most=most)


def gaussian(
    *, true_positives: int, positives: int, false_positives: int, negatives: int,
    delta: float, confidence: float,
) -> AuditResult:  # fmt: skip
    """As :func:`clopper_pearson`, but far tighter, and valid only where the mechanism is Gaussian.

    Guarantee: if the trade-off between error rates is that of two normal distributions μ apart
    (μ-Gaussian differential privacy; Dong, Roth and Su 2022), the result exceeds its ε(δ) with
    probability at most 1 − ``confidence``. μ is bounded below by Φ⁻¹(1 − FPR) − Φ⁻¹(FNR) at the upper
    bounds of both rates, or 0, and turned into ε by δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ).

    ``delta`` must be above 0, since Gaussian noise has no ε at δ = 0.

    >>> result = gaussian(true_positives=950, positives=1000, false_positives=50, negatives=1000,
    ...                   delta=1e-5, confidence=0.9)
    >>> round(result.epsilon, 3)
    17.126
    """
    counts = _counts(true_positives, positives, false_positives, negatives)
    dlt, level = (
        _validate.open_probability("delta", delta),
        _validate.open_probability("confidence", confidence),
    )
    epsilon, most = (
        gaussian_epsilon(max(separation(*_rates(each, level)), 0.0), dlt)
        for each in (counts, _all_right(counts))
    )
    return AuditResult(epsilon, dlt, level, "gaussian", GAUSSIAN, counts, most=most)


def one_run(*, canaries: int, guesses: int, correct: int, delta: float, confidence: float) -> AuditResult:
    """ε from one run into which each of ``canaries`` was put or not by a fair coin of its own.

    ``guesses`` is for how many canaries the attack said "in" or "out" instead of abstaining, and
    ``correct`` how many of those were right. The number of guesses must be fixed beforehand.

    Guarantee: if the coins were independent and fair, an (ε, δ)-differentially private mechanism
    yields a result above its ε with probability at most 1 − ``confidence`` (Steinke, Nasr and
    Jagielski 2023, "Privacy auditing with one training run", theorem 5.2).

    Keep 2·canaries·δ far below 1 − confidence: failures of δ are paid for each canary, so that more
    canaries can drive the bound to 0.

    >>> round(one_run(canaries=100, guesses=100, correct=75, delta=1e-4, confidence=0.95).epsilon, 3)
    0.699
    """
    counts = checked_guesses(canaries, guesses, correct)
    dlt, level = _validate.delta(delta), _validate.open_probability("confidence", confidence)
    total, made = counts["canaries"], counts["guesses"]
    epsilon, most = (
        _one_run_epsilon(total, made, right, dlt, 1 - level) for right in (counts["correct"], made)
    )
    return AuditResult(epsilon, dlt, level, "one_run", FAIR_COINS, counts, most=max(most, epsilon))


def rate_bound(successes: ArrayLike, trials: ArrayLike, significance: float) -> NDArray[np.float64]:
    """The Clopper–Pearson upper bound of a rate, exceeded by the truth with at most ``significance``."""
    k, n = np.asarray(successes, dtype=float), np.asarray(trials, dtype=float)
    bound = betainccinv(k + 1, np.maximum(n - k, 1.0), significance)
    return np.asarray(np.where(k >= n, 1.0, bound))


def rates_epsilon(miss: ArrayLike, alarm: ArrayLike, delta: float) -> NDArray[np.float64]:
    """The ε that error rates of at most ``miss`` (false negatives) and ``alarm`` prove."""
    first, second = np.asarray(miss, dtype=float), np.asarray(alarm, dtype=float)
    ratio = np.maximum((1 - first - delta) / second, (1 - second - delta) / first)
    return np.asarray(np.log(np.maximum(ratio, 1.0)))


def separation(miss: float, alarm: float) -> float:
    """How far apart, in standard deviations, two normal distributions with these error rates are."""
    return float(-ndtri(alarm) - ndtri(miss)) if max(miss, alarm) < 1 else -math.inf


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The ε at which two normal distributions ``mu`` apart have this δ; 0 where δ covers them.

    Solved for ln δ, since δ underflows long before ε gets large.
    """
    if mu <= 0:
        return 0.0

    def excess(epsilon: float) -> float:
        reached = float(log_ndtr(mu / 2 - epsilon / mu))
        loss = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu)) - reached
        return reached + math.log(max(-math.expm1(min(loss, 0.0)), 1e-300)) - math.log(delta)

    if excess(0.0) <= 0:
        return 0.0
    high = mu * mu / 2 + mu
    while excess(high) > 0:
        high *= 2
    return float(brentq(excess, 0.0, high, xtol=1e-13, rtol=1e-13))


def one_run_p_value(canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """How likely so many correct guesses are, at most, under (epsilon, delta)."""
    hits = binom(guesses, 1 / (1 + math.exp(-epsilon)))
    p = float(hits.sf(correct - 1))
    if delta and correct:
        below = np.cumsum(hits.pmf(np.arange(correct - 1, -1, -1)))
        p += 2 * canaries * delta * float(np.max(below / np.arange(1, correct + 1)))
    return min(1.0, p)


@lru_cache(maxsize=1024)  # all guesses right, which is the same question in every audit of one shape
def _one_run_epsilon(canaries: int, guesses: int, correct: int, delta: float, significance: float) -> float:
    """The end of the first stretch of ε, from 0 on, whose p-values are all below ``significance``.

    Without δ the p-value is a binomial tail and inverts to a beta quantile, which δ can only lower.
    """
    if correct == 0:
        return 0.0
    kept = float(betaincinv(correct, guesses - correct + 1, significance))
    if kept <= 0.5:
        return 0.0
    top = math.log(kept) - math.log1p(-kept)
    if delta == 0:
        return top

    def excess(epsilon: float) -> float:
        return one_run_p_value(canaries, guesses, correct, epsilon, delta) - significance

    if excess(0.0) >= 0:
        return 0.0
    probes = np.linspace(0.0, top, _PROBES).tolist()
    for low, high in itertools.pairwise(probes):
        if excess(high) >= 0:
            return float(brentq(excess, low, high, xtol=1e-13, rtol=1e-13))
    return top


def _rates(counts: dict[str, int], confidence: float) -> tuple[float, float]:
    share = (1 - confidence) / 2
    missed = counts["positives"] - counts["true_positives"]
    miss = float(rate_bound(missed, counts["positives"], share))
    return miss, float(rate_bound(counts["false_positives"], counts["negatives"], share))


def _all_right(counts: dict[str, int]) -> dict[str, int]:
    """The counts of as many guesses, all of them right."""
    return {**counts, "true_positives": counts["positives"], "false_positives": 0}


def _counts(true_positives: int, positives: int, false_positives: int, negatives: int) -> dict[str, int]:
    of_in, of_out = _validate.count("positives", positives, 1), _validate.count("negatives", negatives, 1)
    return {
        "true_positives": _up_to("true_positives", true_positives, "positives", of_in),
        "positives": of_in,
        "false_positives": _up_to("false_positives", false_positives, "negatives", of_out),
        "negatives": of_out,
    }


def checked_guesses(canaries: int, guesses: int, correct: int) -> dict[str, int]:
    """The counts of a run with many canaries, each at most the one before."""
    total = _validate.count("canaries", canaries, 1)
    made = _up_to("guesses", guesses, "canaries", total, minimum=1)
    return {"canaries": total, "guesses": made, "correct": _up_to("correct", correct, "guesses", made)}


def _up_to(name: str, value: int, of: str, limit: int, minimum: int = 0) -> int:
    number = _validate.count(name, value, minimum)
    if number > limit:
        raise InvalidValue(name, value, f"at most {of}, {limit}")
    return number
