"""One training run with many canaries, audited against a whole trade-off curve.

Mahloujifar, Melis and Chaudhuri 2025, "Auditing f-differential privacy in one run": a mechanism whose
trade-off curve is that of two normal distributions μ apart leaves less room for correct guesses than its
(ε, δ) at a single δ does, so the same guesses prove more. The price is the assumption that the curve is
Gaussian.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from tacit import _validate
from tacit.audit.bounds import FAIR_COINS, GAUSSIAN, checked_guesses, gaussian_epsilon
from tacit.audit.result import AuditResult

__all__ = ["one_run_fdp"]

_TRIED = 256
"""How many separations μ are tested at once."""
_REFINEMENTS = 4
_LARGEST = 64.0
"""No separation above this is claimed: its ε at δ = 1e-5 is above 2000."""


def one_run_fdp(*, canaries: int, guesses: int, correct: int, delta: float, confidence: float) -> AuditResult:
    """As :func:`tacit.audit.one_run`, but tighter, and valid only where the mechanism is Gaussian.

    Guarantee: if a fair coin of its own decided whether each canary was put in, and the trade-off curve of
    the mechanism is at least that of two normal distributions μ apart, the result exceeds ε(μ, δ) with
    probability at most 1 − ``confidence``. The number of ``guesses`` must be fixed beforehand.

    A separation μ is refuted where a bound on the joint probability of "at least so many correct", built up
    guess by guess from the curve, exceeds the number of guesses that were made. The largest μ below which
    all are refuted is found by search from below, so that rounding makes the result smaller.

    ``delta`` must be above 0, since Gaussian noise has no ε at δ = 0.

    >>> result = one_run_fdp(canaries=1000, guesses=100, correct=75, delta=1e-5, confidence=0.95)
    >>> round(result.epsilon, 5)
    1.00592
    """
    counts = checked_guesses(canaries, guesses, correct)
    dlt = _validate.open_probability("delta", delta)
    level = _validate.open_probability("confidence", confidence)
    total, made = counts["canaries"], counts["guesses"]
    epsilon, most = (
        gaussian_epsilon(refuted_separation(total, made, right, 1 - level), dlt)
        for right in (counts["correct"], made)
    )
    assumption = f"{GAUSSIAN}, and {FAIR_COINS}"
    return AuditResult(epsilon, dlt, level, "one_run_fdp", assumption, counts, most=max(most, epsilon))


def refuted_separation(canaries: int, guesses: int, correct: int, significance: float) -> float:
    """The end of the first stretch of separations, from 0 on, that so many correct guesses refute."""
    low, high = 0.0, _LARGEST
    if not _refuted(np.zeros(1), canaries, guesses, correct, significance)[0]:
        return 0.0
    for _ in range(_REFINEMENTS):
        tried = np.linspace(low, high, _TRIED)
        stands = np.flatnonzero(~_refuted(tried, canaries, guesses, correct, significance))
        if not stands.size:
            return high
        first = int(stands[0])
        low, high = float(tried[first - 1]), float(tried[first])
    return low


def _refuted(
    separations: NDArray[np.float64], canaries: int, guesses: int, correct: int, significance: float
) -> NDArray[np.bool_]:
    """Which separations μ are refuted.

    ``right`` and ``wrong`` bound how much probability, per canary, is on correct and on incorrect guesses
    when at least i are correct, i going down from ``correct``. The curve says how much must be on the
    incorrect ones; what it adds to them carries over to the correct ones of the next i. A separation whose
    curve asks for nothing more at the first i asks for nothing later either.
    """
    found = np.zeros(separations.size, dtype=bool)
    left = np.arange(separations.size)
    mu = separations
    right = np.full(left.size, significance * correct / canaries)
    wrong = np.full(left.size, significance * (guesses - correct) / canaries)
    most = guesses / canaries
    for i in range(correct - 1, -1, -1):
        asked = np.maximum(wrong, ndtr(ndtri(right) - mu))
        grown = asked - wrong
        right, wrong = np.minimum(1.0, right + i / (guesses - i) * grown), asked
        over, going = right + wrong > most, grown > 0
        if over.any() or not going.all():
            found[left[over]] = True
            stay = going & ~over
            if not stay.any():
                break
            left, mu, right, wrong = left[stay], mu[stay], right[stay], wrong[stay]
    return found
