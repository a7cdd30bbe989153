"""Range checks, each naming the parameter and its value."""

from __future__ import annotations

import math
import numbers
from typing import Any

from tacit.errors import InvalidValue


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
        raise InvalidValue(name, value, "in (0, 1)")
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
