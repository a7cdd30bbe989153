"""The exponential mechanism."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import events
from tacit.mechanisms._selection import Selection
from tacit.randomness import geometric, uniform


@dataclass(frozen=True)
class Exponential(Selection):
    """Selects index i with probability ∝ exp(ε·score_i / 2·sensitivity) (McSherry and Talwar 2007).

    ``sensitivity`` bounds how far one score can move between neighbours; ``monotone`` says that
    all of them move the same way, and drops the 2.

    Guarantee: ε-bounded range, hence ε-differential privacy. The privacy loss of i is
    rate·(score_i − score'_i) plus a constant, and rate·(score_i − score'_i) spans at most ε over i
    (Durfee and Rogers 2019).

    The draw is exact: an index is proposed uniformly and accepted with probability
    exp(−rate·gap), where gap is its distance from the best score in grid steps; a geometric
    variable of that rate is at least gap with just this probability. Time grows with how
    concentrated the scores are, on average at most n proposals for n candidates.

    >>> choose = Exponential(sensitivity=1.0, epsilon=2.0, random_state=1)
    >>> choose([10.0, 12.0, 3.0]), choose.event
    (1, BoundedRange(epsilon=2.0))
    """

    charged = events.BoundedRange

    def __call__(self, scores: NDArray[Any] | Sequence[Any]) -> int:
        """The selected index."""
        steps = self._steps(scores)
        gaps = steps.max() - steps
        while True:
            proposed = uniform(self._source, gaps.size, max(gaps.size, 16))
            accepted = geometric(self._source, self._rate(), proposed.size) >= gaps[proposed]
            if accepted.any():
                return int(proposed[np.argmax(accepted)])
