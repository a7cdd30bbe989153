"""Cases of ``benchmarks/coverage.py``: what is repeated, with which seed, and the lines it makes."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

LOWEST, HIGHEST = 0.93, 0.97
LONGER = 4
"""How many times as often a case is repeated, with another seed, if it came out below :data:`LOWEST`."""

Array = NDArray[Any]
Found = Mapping[str, tuple[Array, Array]]
"""For each name: which intervals held the truth, and how wide they were."""


@dataclass(frozen=True)
class Line:
    """One line of the table. ``first`` is what a case showed that had to be repeated."""

    what: str
    setting: str
    coverage: float
    width: float
    repetitions: int
    reason: str
    first: float | None = None

    @property
    def verdict(self) -> str:
        """Too low, as it should be, or wider, with the reason."""
        again = "" if self.first is None else f"(first run {100 * self.first:.1f} %) "
        if self.coverage < LOWEST:
            return f"{again}UNDER"
        return again + ("" if self.coverage <= HIGHEST else self.reason or "wider, reason unknown")


@dataclass(frozen=True)
class Case:
    """A release that can be repeated: ``measured(seed, repetitions)`` says what its intervals held.

    ``part`` is the share of the repetitions it is worth; those of numbers that are quickly made are many.
    """

    what: str
    setting: str
    measured: Callable[[int, int], Found]
    reasons: Mapping[str, str] = field(default_factory=dict)
    part: float = 1.0

    def lines(self, repetitions: int) -> Iterator[Line]:
        """One line for each name; below the lowest coverage, that of a longer run with a seed of its own.

        The longer run replaces the first one and is not added to it: a case was not repeated for nothing,
        and the first run alone is no fair sample of it.
        """
        many = max(2, round(repetitions * self.part))
        found = self.measured(self._seed("first"), many)
        low = [name for name, (held, _) in found.items() if np.mean(held) < LOWEST]
        again = self.measured(self._seed("again"), LONGER * many) if low else {}
        for name, (held, widths) in found.items():
            first = None
            if name in low:
                first, times = float(np.mean(held)), LONGER * many
                held, widths = again[name]
            else:
                times = many
            middle = float(np.median(np.nan_to_num(widths, posinf=np.inf)))
            reason = self.reasons.get(name, self.reasons.get("", ""))
            yield Line(name, self.setting, float(np.mean(held)), middle, times, reason, first)

    def _seed(self, run: str) -> int:
        """A seed that no other case has, the same in every run of the benchmark."""
        return zlib.crc32(f"{self.what}|{self.setting}|{run}".encode())
