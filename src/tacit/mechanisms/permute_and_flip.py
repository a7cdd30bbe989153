"""Permute-and-flip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.mechanisms._selection import Selection
from tacit.randomness import geometric, uniform


@dataclass(frozen=True)
class PermuteAndFlip(Selection):
    """Selects a high score; in expectation never worse than :class:`Exponential` (McKenna and Sheldon 2020).

    In random order, each index is accepted with probability exp(−ε·gap / 2·sensitivity), where gap
    is its distance from the best score; the first accepted one is returned. ``sensitivity`` bounds
    how far one score can move between neighbours; ``monotone`` says that all of them move the
    same way, and drops the 2.

    Guarantee: ε-differential privacy (as they prove), charged as ``Pure(ε)``: unlike the
    exponential mechanism it does not have ε-bounded range, see :class:`tacit.events.BoundedRange`.

    The draw is exact: all coins are flipped at once and one of the accepted indices is picked
    uniformly, which is the first in a random order. The best score is always among them.

    >>> choose = PermuteAndFlip(sensitivity=1.0, epsilon=2.0, random_state=1)
    >>> choose([10.0, 12.0, 3.0]), choose.event
    (1, Pure(epsilon=2.0))
    """

    def __call__(self, scores: NDArray[Any] | Sequence[Any]) -> int:
        """The selected index."""
        steps = self._steps(scores)
        gaps = steps.max() - steps
        accepted = np.nonzero(geometric(self._source, self._rate(), gaps.size) >= gaps)[0]
        return int(accepted[uniform(self._source, accepted.size, 1)[0]])
