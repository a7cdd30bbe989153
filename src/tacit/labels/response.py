"""Randomized response on labels, and what a response says of the true label.

Relation and unit: neighbours have the same rows with the same features, and differ in the label of one row
(``replace_one`` of one label). Every label is randomized on its own, so what is shown of one label is bounded
by the largest ratio of two rows of a table: P(response | label) for every label and response. That table is
:meth:`Response.table`, in exact fractions, and no ratio in it exceeds e^ε.

>>> import math
>>> mechanism = Response(categories=10, epsilon=1.0)
>>> table = mechanism.table()
>>> worst = max(table[a][r] / table[b][r] for a in range(10) for b in range(10) for r in range(10))
>>> float(worst) <= math.e
True
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tacit import events
from tacit.mechanisms import RandomizedResponse
from tacit.randomness import Source, uniform

__all__ = ["Float64", "Int64", "Response", "posterior", "responded"]

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]


def responded(codes: Int64, categories: int, epsilon: float, source: Source) -> Int64:
    """A response for each of ``codes``: 0 … categories − 1, or −1 for a label that is none of the classes.

    Guarantee: ε-differential privacy for each label, to the bit
    (:class:`tacit.mechanisms.RandomizedResponse`). A label that is none of the classes is answered for
    uniformly: P = 1/k, between the two probabilities e^ε/(e^ε + k − 1) and 1/(e^ε + k − 1) of all other
    labels, so no ratio is above e^ε. As many random numbers are drawn for it as for others.
    """
    if categories == 1:
        return np.zeros_like(codes)
    anything = uniform(source, categories, codes.size)
    mechanism = RandomizedResponse(epsilon, categories, random_state=source)
    responses = np.asarray(mechanism(np.where(codes < 0, 0, codes)), dtype=np.int64)
    return np.where(codes < 0, anything, responses)


@dataclass(frozen=True)
class Response:
    """Randomized response over all classes (Warner 1965).

    Guarantee: ε-differential privacy for each label; the event is ``RandomizedResponse(ε, K)``.

    >>> Response(10, 1.0).event
    RandomizedResponse(epsilon=1.0, categories=10)
    """

    categories: int
    epsilon: float

    @property
    def event(self) -> events.Event:
        """What the responses of all rows cost, for one label."""
        return RandomizedResponse(self.epsilon, self.categories).event

    def respond(self, codes: Int64, source: Source) -> Int64:
        """A response for each code, −1 for labels that are none of the classes."""
        return responded(codes, self.categories, self.epsilon, source)

    def table(self) -> tuple[tuple[Fraction, ...], ...]:
        """P(response | label), exactly: a row for each class, and a last one for what is none of them."""
        keep = RandomizedResponse(self.epsilon, self.categories).keep_probability
        other = (1 - keep) / (self.categories - 1)
        known = range(self.categories)
        rows = tuple(tuple(keep if a == b else other for b in known) for a in known)
        return (*rows, (Fraction(1, self.categories),) * self.categories)

    def log_likelihood(self, responses: Int64) -> Float64:
        """log P(response | class) for every row and class, but for a constant of the row."""
        told = np.zeros((len(responses), self.categories))
        told[np.arange(len(responses)), responses] = self.epsilon
        return told


def posterior(log_likelihood: Float64, prior: Float64) -> Float64:
    """P(class | response) ∝ prior · likelihood, row by row; post-processing of the responses.

    >>> responses = np.array([0, 2])
    >>> posterior(Response(3, 1.0).log_likelihood(responses), np.array([0.2, 0.7, 0.1])).round(3).tolist()
    [[0.405, 0.521, 0.074], [0.171, 0.597, 0.232]]
    """
    with np.errstate(divide="ignore"):
        logarithms = log_likelihood + np.log(prior)
    weights = np.exp(logarithms - logarithms.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))
