"""Metrics: figures that clients report beside their updates, bought with a part of the budget.

A client's loss, accuracy or number of examples is as private as its update. A metric that is declared in the
plan is released as a noisy mean in every round, and paid for by a little more noise on the updates; a figure
that is not declared is not read at all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit import _validate
from tacit.errors import InvalidValue

__all__ = ["Metric"]


@dataclass(frozen=True)
class Metric:
    """A number that each client of a cohort reports, with public bounds.

    ``noise`` is the standard deviation of the noise on the released mean, in halves of the range
    [``lower``, ``upper``]: 0.05 on an accuracy in [0, 1] is 0.025, twice as much under ``replace_one``, and a
    little more under "aggregator", where more clients add noise than have to. A smaller ``noise`` leaves less
    of the budget to the updates.

    Guarantee: a report is clamped to the bounds and enters as s = (value − middle) ÷ half of the range, in
    [−1, 1]; a report that is missing, no number or not finite enters as 0. The release is middle +
    half × (Σ s + noise) ÷ the expected cohort, whatever the number of reports. One client moves Σ s by at
    most 1, so the metric alone has the noise multiplier ``noise`` × cohort, and
    :meth:`tacit.federated.FederatedPlan.noise_for_sum` accounts for it together with the updates.

    >>> Metric("accuracy", 0.0, 1.0).scaled({"accuracy": 0.75}), Metric("loss", 0.0, 10.0).scaled({})
    (0.5, 0.0)
    """

    name: str
    lower: float
    upper: float
    noise: float = 0.05

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and self.name.strip()):
            raise InvalidValue("name", self.name, "a word", "Write Metric('loss', 0.0, 10.0).")
        object.__setattr__(self, "lower", _validate.finite("lower", self.lower))
        object.__setattr__(self, "upper", _validate.finite("upper", self.upper))
        if not (self._middle_and_half[1] > 0 and math.isfinite(self.upper - self.lower)):
            raise InvalidValue("bounds", (self.lower, self.upper), "ordered, lower first, and a finite span")
        object.__setattr__(self, "noise", _validate.positive("noise", self.noise))

    def scaled(self, reported: Any) -> float:
        """What a client's report adds to the sum, in [−1, 1]; 0 for whatever is no finite number."""
        try:
            value = reported.get(self.name) if isinstance(reported, Mapping) else None
            if isinstance(value, np.ndarray) and value.shape == ():
                value = value[()]
            if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
                return 0.0
            number = float(value)
        except Exception:
            return 0.0
        if not math.isfinite(number):
            return 0.0
        middle, half = self._middle_and_half
        return min(max((min(max(number, self.lower), self.upper) - middle) / half, -1.0), 1.0)

    def mean(self, noisy_share: float) -> float:
        """The released mean, within the bounds, from (Σ s + noise) ÷ the expected cohort."""
        middle, half = self._middle_and_half
        return min(max(middle + half * noisy_share, self.lower), self.upper)

    @property
    def _middle_and_half(self) -> tuple[float, float]:
        return self.lower / 2 + self.upper / 2, self.upper / 2 - self.lower / 2
