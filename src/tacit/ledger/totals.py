"""Exact sums of costs.

Every float is a decimal number, so sums of floats can be kept without rounding: a total does
not depend on the order of the charges, does not drift over any number of them, and can be
compared for equality when a ledger is verified. It is rounded once, upwards, when it is handed
to the filter.

>>> from fractions import Fraction
>>> total = Total()
>>> for _ in range(10):
...     total += filters.Cost(epsilon=0.1)
>>> Fraction(total.epsilon) == 10 * Fraction(0.1), total.cost().epsilon
(True, 1.0000000000000002)
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow

from tacit.accounting import filters

__all__ = ["Total"]

# Floats reach from 2**-1074 to 2**1024: exact sums of them need under 1,500 digits.
_EXACT = Context(prec=2000, Emax=10**6, Emin=-(10**6), traps=[Inexact, InvalidOperation, Overflow])


@dataclass(frozen=True)
class Total:
    """The exact sum of some costs, component by component."""

    epsilon: Decimal = Decimal(0)
    delta: Decimal = Decimal(0)
    renyi: Decimal = Decimal(0)
    renyi_delta: Decimal = Decimal(0)

    def __add__(self, cost: filters.Cost) -> Total:
        return self._combine(_EXACT.add, cost)

    def replace(self, old: filters.Cost, new: filters.Cost) -> Total:
        """This total with a summand ``old`` grown to ``new``. Infinity, once added, stays."""
        return self._combine(_subtract, old) + new

    def _combine(self, operation: Callable[[Decimal, Decimal], Decimal], cost: filters.Cost) -> Total:
        pairs = zip(vars(self).values(), vars(cost).values(), strict=True)
        return Total(*(operation(a, Decimal(b)) for a, b in pairs))

    def cost(self) -> filters.Cost:
        """The total in floats, none below the exact value."""
        return filters.Cost(*map(_round_up, vars(self).values()))

    def to_json(self) -> str:
        """One line of JSON, every component in full; equal totals have equal text."""
        texts = {name: format(_EXACT.normalize(value), "f") for name, value in vars(self).items()}
        return json.dumps(texts, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Total:
        """The total that ``text`` describes; ValueError, TypeError or ArithmeticError if none."""
        total = cls(**{name: Decimal(value) for name, value in json.loads(text).items()})
        if not all(value >= 0 for value in vars(total).values()):
            raise ValueError(f"{text} is not a total")
        return total


def _subtract(total: Decimal, summand: Decimal) -> Decimal:
    return total if total.is_infinite() else _EXACT.subtract(total, summand)


def _round_up(value: Decimal) -> float:
    nearest = float(value)
    return nearest if Decimal(nearest) >= value else math.nextafter(nearest, math.inf)
