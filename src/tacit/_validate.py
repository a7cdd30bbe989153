"""Range checks, each naming the parameter and its value."""

from __future__ import annotations

import math
import numbers
import warnings
from typing import Any

from tacit.errors import InvalidValue, WeakPrivacy


def finite(name: str, value: Any, requirement: str = "a finite number") -> float:
    """A finite real number, as float."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InvalidValue(name, value, requirement)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InvalidValue(name, value, requirement)
    return number


def positive(name: str, value: Any) -> float:
    """A finite number above zero."""
    requirement = "a finite number above 0"
    number = finite(name, value, requirement)
    if number <= 0:
        raise InvalidValue(name, value, requirement)
    return number


def non_negative(name: str, value: Any) -> float:
    """A finite number, zero or more."""
    if finite(name, value) < 0:
        raise InvalidValue(name, value, "0 or more")
    return float(value)


def probability(name: str, value: Any) -> float:
    """A number in (0, 1]."""
    if not 0 < finite(name, value) <= 1:
        raise InvalidValue(name, value, "in (0, 1]")
    return float(value)


def open_probability(name: str, value: Any) -> float:
    """A number in (0, 1)."""
    if not 0 < finite(name, value) < 1:
        percent = f"Write {value / 100:g} for {value:g} %." if 5 <= value < 100 else ""
        raise InvalidValue(name, value, "in (0, 1)", percent)
    return float(value)


def delta(value: Any, name: str = "delta") -> float:
    """A failure probability in [0, 1)."""
    if not 0 <= finite(name, value) < 1:
        raise InvalidValue(name, value, "in [0, 1)", "Use 0 for pure differential privacy.")
    return float(value)


def epsilon(value: Any, name: str = "epsilon") -> float:
    """A privacy parameter above zero."""
    return positive(name, value)


def count(name: str, value: Any, minimum: int = 0) -> int:
    """A whole number, ``minimum`` or more."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < minimum:
        raise InvalidValue(name, value, f"a whole number, {minimum} or more")
    return int(value)


def choice(name: str, value: Any, options: tuple[str, ...]) -> str:
    """One of a closed list of words."""
    if value not in options:
        raise InvalidValue(name, value, "one of " + ", ".join(map(repr, options)))
    return str(value)


LARGE_EPSILON = 10.0
"""Above it, ε promises next to nothing: odds may change by a factor of more than 22,000."""


def warn_if_weak(epsilon: float, delta: float = 0.0, population: Any = None, *, stacklevel: int = 3) -> None:
    """Warn of a finite ε above 10, and of a δ above 1/population where the population is a known number.

    It is a warning and no refusal: the arithmetic holds for every ε and δ. An infinite ε says itself that
    nothing is promised.
    """
    if LARGE_EPSILON < epsilon < math.inf:
        factor = f"{math.exp(epsilon):.2g}" if epsilon < 700 else "more than 1e300"
        warnings.warn(
            f"ε = {epsilon:g} promises little: what one person adds may change the odds of any outcome by a "
            f"factor of {factor}. Up to 1 protects well; choose at most {LARGE_EPSILON:g} "
            "(docs/choosing.md).",
            WeakPrivacy,
            stacklevel=stacklevel,
        )
    if isinstance(population, int) and population > 0 and delta * population > 1:
        warnings.warn(
            f"δ = {delta:g} is above 1/population = {1 / population:.3g}: publishing a row of somebody "
            f"picked at random has such a δ. Choose one far below, such as {_far_below(population)} "
            "(docs/choosing.md).",
            WeakPrivacy,
            stacklevel=stacklevel,
        )


def _far_below(population: int) -> str:
    """A power of ten that is at most a hundredth of 1/population."""
    return f"{10.0 ** -(math.ceil(math.log10(population)) + 2):g}"
