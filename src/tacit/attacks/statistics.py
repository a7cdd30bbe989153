"""Attacks on statistics: averaging repeated answers, differences of answers, and linear reconstruction.

A single noisy count says little. Many of them, about the same people, say everything unless a budget stops
them: the fundamental law of information recovery (Dinur and Nissim 2003).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linprog, lsq_linear
from scipy.special import ndtri

from tacit import _validate
from tacit.errors import BudgetExceeded, InvalidValue, TacitError

__all__ = ["Averaged", "Reconstructed", "average", "difference", "queries_needed", "reconstruct"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Averaged:
    """What averaging so many answers gave. ``refused`` says whether a budget stopped the questions."""

    value: float
    standard_error: float
    answers: int
    refused: bool


def average(ask: Callable[[], float], times: int) -> Averaged:
    """Ask the same question ``times`` times, and average the answers.

    Noise that is drawn afresh averages out: its standard error shrinks as 1/√times. A ledger refuses by
    :class:`tacit.errors.BudgetExceeded`, and the attack ends with what it has.

    >>> answers = iter([3.0, 5.0, 4.0, 4.0])
    >>> average(lambda: next(answers), 4).value
    4.0
    """
    asked = _validate.count("times", times, 1)
    found: list[float] = []
    refused = False
    for _ in range(asked):
        try:
            found.append(float(ask()))
        except BudgetExceeded:
            refused = True
            break
    spread = float(np.std(found, ddof=1)) / math.sqrt(len(found)) if len(found) > 1 else math.inf
    return Averaged(math.fsum(found) / len(found) if found else math.nan, spread, len(found), refused)


def queries_needed(scale: float, *, confidence: float = 0.95) -> int:
    """How many answers with Laplace noise of this ``scale`` give a whole number away.

    The average must be within ½ of it: 8·scale²·z² answers, z being the normal quantile of ``confidence``.

    >>> queries_needed(2.0)
    123
    """
    deviation = float(ndtri(0.5 + _validate.open_probability("confidence", confidence) / 2))
    return math.ceil(8 * _validate.positive("scale", scale) ** 2 * deviation**2)


def difference(everybody: float, everybody_else: float) -> float:
    """What one person contributes, from two answers that differ in that person alone.

    Exact answers about all employees and about all but one reveal the salary of that one, although neither
    question names a person.

    >>> difference(4_210_000.0, 4_150_000.0)
    60000.0
    """
    return float(everybody) - float(everybody_else)


@dataclass(frozen=True)
class Reconstructed:
    """A secret bit for each person, as reconstructed, and the numbers between 0 and 1 before rounding."""

    bits: NDArray[np.int64]
    values: Array

    def agreement(self, truth: ArrayLike) -> float:
        """The share of people whose bit is right."""
        secret = np.asarray(truth)
        if secret.shape != self.bits.shape:
            raise InvalidValue("truth", secret.shape, f"one bit for each of {self.bits.size} people")
        return float((self.bits == secret).mean())


def reconstruct(subsets: ArrayLike, answers: ArrayLike, *, method: str = "least_squares") -> Reconstructed:
    """Secret bits of n people from noisy counts over subsets of them (Dinur and Nissim 2003).

    ``subsets`` (questions, people) says who was counted in each question, ``answers`` the noisy count of
    ones among them. ``method`` ``"least_squares"`` looks for numbers in [0, 1] that fit best in the square;
    ``"linear_program"`` for those whose largest error is smallest, as in the paper. Rounded, they are right
    for almost all people where the noise is well below √n and there are several times as many questions as
    people; noise above √n leaves them at chance.

    >>> rng = np.random.default_rng(1)
    >>> secret, subsets = rng.integers(0, 2, 40), rng.integers(0, 2, (200, 40))
    >>> reconstruct(subsets, subsets @ secret + rng.normal(size=200)).agreement(secret)
    1.0
    """
    who, told = np.asarray(subsets, dtype=np.float64), np.asarray(answers, dtype=np.float64)
    if who.ndim != 2 or told.shape != (len(who),) or not who.size:
        raise InvalidValue("answers", told.shape, "one for each row of subsets")
    if not (np.isfinite(who).all() and np.isfinite(told).all()):
        raise InvalidValue("answers", "NaN or infinite", "finite")
    if _validate.choice("method", method, ("least_squares", "linear_program")) == "least_squares":
        values = lsq_linear(who, told, bounds=(0.0, 1.0)).x
    else:
        values = _smallest_largest_error(who, told)
    return Reconstructed((values >= 0.5).astype(np.int64), np.asarray(values))


def _smallest_largest_error(who: Array, told: Array) -> Array:
    """The numbers in [0, 1] that minimise max |subsets·x − answers|, by a linear program."""
    people = who.shape[1]
    error = np.ones((len(who), 1))
    above, below = np.hstack([who, -error]), np.hstack([-who, -error])
    found = linprog(
        np.append(np.zeros(people), 1.0),
        A_ub=np.vstack([above, below]),
        b_ub=np.concatenate([told, -told]),
        bounds=[(0.0, 1.0)] * people + [(0.0, None)],
    )
    if found.x is None:
        raise TacitError(f"The linear program was not solved: {found.message}", 'Use method="least_squares".')
    return np.asarray(found.x[:people])
