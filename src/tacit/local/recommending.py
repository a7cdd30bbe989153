"""Which frequency oracle to use: the one of least variance, and why."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from tacit.local.hadamard import HadamardResponse
from tacit.local.hashing import LocalHashing
from tacit.local.oracle import FrequencyOracle
from tacit.local.response import RandomizedResponse
from tacit.local.subset import SubsetSelection
from tacit.local.unary import OptimizedUnary, SymmetricUnary

__all__ = ["ORACLES", "Recommendation", "recommend"]

ORACLES: tuple[type[FrequencyOracle], ...] = (
    RandomizedResponse, HadamardResponse, LocalHashing, OptimizedUnary, SymmetricUnary, SubsetSelection,
)  # fmt: skip
"""The oracles that are compared."""

TIE = 1.05
"""Variances that differ by less than this factor count as equal; the smaller report decides."""


@dataclass(frozen=True)
class Recommendation:
    """The oracle, why it was chosen, and the comparison behind it.

    ``deviations`` are the standard deviations of one estimated frequency from 10,000 reports, if all
    categories are equally frequent; ``report_bits`` are the sizes of one report. Both are by name of the
    oracle.
    """

    oracle: FrequencyOracle
    reason: str
    deviations: dict[str, float]
    report_bits: dict[str, float]

    def __str__(self) -> str:
        return self.reason


def recommend(*, categories: Sequence[Hashable] | int, epsilon: float = 1.0) -> Recommendation:
    """The frequency oracle of least variance at this number of categories and ε, and why.

    Oracles whose variances are within 5 % of the least one count as equally good, and the one with the
    smallest report is chosen among them. Nothing private is read. The variances are those of the module
    docstrings, at frequency 1/k for each of k categories.

    >>> print(recommend(categories=4, epsilon=2.0).reason)
    RandomizedResponse: with few categories, ... A frequency from 10,000 reports of 2 bits has the ...
    >>> oracle = recommend(categories=10_000, epsilon=1.0).oracle
    >>> type(oracle).__name__, oracle.hash_range
    ('LocalHashing', 3)
    """
    made = [kind(categories=categories, epsilon=epsilon) for kind in ORACLES]
    reports = 10_000
    deviations = {
        type(oracle).__name__: float(oracle.variance(1 / oracle.size, reports)) ** 0.5 for oracle in made
    }
    sizes = {type(oracle).__name__: oracle.report_bits for oracle in made}
    least = min(deviations, key=lambda name: deviations[name])
    good = [
        oracle for oracle in made if deviations[type(oracle).__name__] ** 2 <= TIE * deviations[least] ** 2
    ]
    chosen = min(good, key=lambda oracle: _held(oracle.report_bits))
    name = type(chosen).__name__
    reason = (
        f"{name}: {_WHY[name]} A frequency from {reports:,} reports of {_bits(sizes[name])} has the "
        f"standard deviation {deviations[name]:.3g}"
    )
    if deviations[name] > deviations[least] * (1 + 1e-9):
        reason += f"; the least is {deviations[least]:.3g}, by {least} with {_bits(sizes[least])}"
    return Recommendation(chosen, f"{reason}.", deviations, sizes)


_WHY = {
    "RandomizedResponse": "with few categories, the true one is reported often enough.",
    "HadamardResponse": "one number of few bits says of every category whether it is supported.",
    "LocalHashing": "a hash has few values, of which the true one is kept often, and few bits are sent.",
    "OptimizedUnary": "every category has a bit of its own.",
    "SymmetricUnary": "every category has a bit of its own.",
    "SubsetSelection": "a set of categories says more than one category or a hash does.",
}


def _held(bits: float) -> int:
    """The number of bits that hold a report; logarithms of whole numbers are rounded to them."""
    return math.ceil(bits - 1e-6)


def _bits(bits: float) -> str:
    held = _held(bits)
    return f"{held} bit{'s' if held != 1 else ''}"
