"""The power-of-two grid on which real-valued noise is exact.

A statistic is clamped to a huge public range, rounded to a multiple of g = 2^exponent, given
integer noise, and multiplied by g again. All that follows the integer sum is post-processing.
Rounding moves a difference by at most one step in each coordinate. The grid is so fine that all
the steps a proof needs on top of the sensitivity, ``extra`` of them, make up less than 2^−20 of
it; mechanisms therefore calibrate to ``WIDENED`` × sensitivity, whatever the shape.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from tacit import _validate
from tacit.errors import InvalidValue
from tacit.mechanisms._base import Float64, Int64

SLACK_BITS = 20
WIDENED = 1 + Fraction(1, 2**SLACK_BITS)
"""What rounding costs: noise is scaled to this multiple of the sensitivity."""

STEPS = 2**60
"""Values on a single-word grid are clamped to this many steps, 2^38 sensitivities or more."""

_LIMB = 40
_LIMIT = 100


def real_sensitivity(value: Any) -> float:
    """A sensitivity that leaves room for the grid within float64."""
    sensitivity = _validate.positive("sensitivity", value)
    if not 2.0**-400 <= sensitivity <= 2.0**400:
        raise InvalidValue("sensitivity", value, "between 2^-400 and 2^400", "Measure in another unit.")
    return sensitivity


def pure_scale(sensitivity: Any, epsilon: Any) -> tuple[float, float]:
    """A sensitivity and an ε whose ratio, the scale of the noise, leaves room within float64."""
    found, level = real_sensitivity(sensitivity), _validate.epsilon(epsilon)
    if not 2.0**-500 <= found / level <= 2.0**500:
        raise InvalidValue("epsilon", level, "such that sensitivity/ε is in [2^-500, 2^500]")
    return found, level


def grid_exponent(sensitivity: float, extra: int, noise: float = 1.0) -> int:
    """The grid 2^exponent with extra · 2^exponent ≤ 2^−20 · sensitivity, finer where noise < 1.

    ``noise`` is the scale of the noise per unit of sensitivity: with little noise, rounding to
    2^−20 of the sensitivity would be the larger error of the two.
    """
    fine = min(0, max(-SLACK_BITS, math.frexp(noise)[1] - 1))
    return math.frexp(sensitivity)[1] - 1 + fine - SLACK_BITS - extra.bit_length()


def in_steps(amount: float | Fraction, exponent: int) -> Fraction:
    """A real amount in grid steps, exactly."""
    return Fraction(amount) / Fraction(2) ** exponent


def to_grid(values: Float64, exponent: int) -> Int64:
    """The nearest grid points, in steps, clamped to ±2^60."""
    limit = math.ldexp(1.0, exponent + 60)
    return np.rint(np.ldexp(np.clip(values, -limit, limit), -exponent)).astype(np.int64)


def add_steps(values: Float64, noise: Int64, exponent: int) -> Float64:
    """values rounded to the grid, plus noise, as float64; values are clamped to ±2^100 steps.

    The sum is held exactly in two words, high·2^40 + low with 0 ≤ low < 2^40, and that pair
    alone determines the result.
    """
    limit = math.ldexp(1.0, exponent + _LIMIT)
    steps = np.rint(np.ldexp(np.clip(values, -limit, limit), -exponent))
    high = np.floor(np.ldexp(steps, -_LIMB))
    total = (steps - np.ldexp(high, _LIMB)).astype(np.int64) + noise
    carried = high.astype(np.int64) + (total >> _LIMB)
    low = total & ((1 << _LIMB) - 1)
    result: Float64 = np.ldexp(np.ldexp(carried.astype(np.float64), _LIMB) + low, exponent)
    return result
