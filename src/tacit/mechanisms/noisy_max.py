"""Report noisy max."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.mechanisms._selection import Selection
from tacit.randomness import discrete_laplace


@dataclass(frozen=True)
class ReportNoisyMax(Selection):
    """Adds discrete Laplace noise of scale 2·sensitivity/ε to each score and returns the largest's index.

    (Dwork and Roth 2014, claim 3.9.) ``sensitivity`` bounds how far one score can move between
    neighbours; ``monotone`` says that all of them move the same way, and drops the 2. Of the
    three selecting mechanisms it wastes most; it is here because its noise is the simplest.

    Guarantee: ε-differential privacy. Fix the noise of all but i. Of equal noisy scores the
    lowest index wins, so i is returned exactly when its own noise reaches the integer
    max(1 + best noisy score before i, best noisy score after i) − score_i. Between neighbours
    that integer moves by at most 2m grid steps (m if monotone), and P(N ≥ c + s) ≥ e^(−s/scale)·P(N ≥ c)
    for the discrete Laplace; integrate over the other noises. Ties are thus part of the argument,
    not an exception to it.

    >>> choose = ReportNoisyMax(sensitivity=1.0, epsilon=2.0, random_state=1)
    >>> choose([10.0, 12.0, 3.0]), choose.event
    (1, Pure(epsilon=2.0))
    """

    def __call__(self, scores: NDArray[Any] | Sequence[Any]) -> int:
        """The selected index."""
        steps = self._steps(scores)
        return int(np.argmax(steps + discrete_laplace(self._source, 1 / self._rate(), steps.size)))
