"""Individual budgets of Gaussian releases: by how much a gradient is shortened where little is left.

A person whose gradients of norms n₁, n₂, … enter Gaussian sums pays Σ n², in units of the squared clip norm.
The budget holds if a gradient that costs more than what is left is left out, but then rounding decides: how a
product of matrices rounds a row's gradient may depend on the other rows, so one row more could make other
rows leave that would have stayed, each with a whole gradient. Here a gradient is shortened to what is left,
and what a row adds is a continuous function of its norm and of what is left: rounding moves it by no more
than 8 times the size of the rounding.

>>> affordable(np.array([0.25, 0.25, 1.0, 0.0]), np.array([2.0, 0.09, 0.0, 0.0]))
array([1. , 0.6, 0. , 1. ])
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]
_LITTLE = 2.0**-6


def affordable(prices: Float64, left: Float64) -> Float64:
    """The factors by which gradients are shortened so that each costs at most what its row has left.

    ``prices`` are the squared norms of the gradients, and a gradient times f costs f² of its price. The
    longest norm that may be added is √left, and 8·left where left < 1/64: the slope of the square root has
    no bound at 0. A price that is not a number is given the factor 0.
    """
    rest = np.maximum(left, 0.0)
    longest = np.where(rest < _LITTLE, rest / math.sqrt(_LITTLE), np.sqrt(rest))
    norms = np.where(np.isnan(prices), np.inf, np.sqrt(prices))
    return np.divide(longest, norms, out=np.ones_like(norms), where=norms > longest)
