"""Subset selection on labels: the response is a set of classes, of which the true one is likelier to be a
member.

Ye and Barg, "Optimal schemes for discrete distribution estimation under locally differential privacy" (2018);
Wang et al., "Mutual information optimally local private discrete distribution estimation" (2016). Below ε =
ln(K − 1) a set of about K/(e^ε + 1) classes says more of a label than one class does; above it the best set
has one member, and the method is randomized response.

Why it is ε-differentially private. For a size k, the true class is put in with probability p, and the rest is
a uniform choice among the other classes. So P(S | y) = p/C(K−1, k−1) for y ∈ S and (1 − p)/C(K−1, k)
otherwise; the ratio of the two is p(K − k)/((1 − p)k), at most e^ε if p ≤ k·e^ε/(k·e^ε + K − k). p is the
largest multiple of 2^−60 below that. A label that is none of the classes is answered for by a uniform choice
of k classes, P(S) = 1/C(K, k), between the two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tacit import _validate, events
from tacit.errors import InvalidValue
from tacit.labels.response import Float64, Int64
from tacit.mechanisms.randomized_response import favoured
from tacit.randomness import Source, bernoulli, uniform

__all__ = ["SubsetResponse"]


@dataclass(frozen=True)
class SubsetResponse:
    """A random set of classes for each label.

    Guarantee: ε-differential privacy for each label; the event is ``Pure(ε)``.

    >>> SubsetResponse(10, 1.0).size, SubsetResponse(10, 2.0).size
    (3, 1)
    """

    categories: int
    epsilon: float

    def __post_init__(self) -> None:
        _validate.count("categories", self.categories, 2)
        if _validate.epsilon(self.epsilon) < 2.0**-30:  # a step of p, 2^−60, is worth more than the least ε's
            raise InvalidValue("epsilon", self.epsilon, "at least 2^-30")

    @property
    def size(self) -> int:
        """How many classes are in a response: K/(e^ε + 1), rounded, at least one and not all."""
        best = round(self.categories / (math.exp(min(self.epsilon, 700.0)) + 1))
        return max(1, min(best, self.categories - 1))

    @property
    def inclusion(self) -> Fraction:
        """The probability that the true class is in the response, which errs private."""
        return favoured(self.epsilon, self.size, self.categories - self.size)

    @property
    def event(self) -> events.Event:
        """What the responses of all rows cost, for one label."""
        return events.Pure(self.epsilon)

    def respond(self, codes: Int64, source: Source) -> Int64:
        """A row of 0 and 1 for each code, 1 for the classes in the set; −1 is a label that is no class."""
        known, first = codes >= 0, np.maximum(codes, 0)
        listed = np.broadcast_to(np.arange(self.categories), (len(codes), self.categories)).copy()
        listed[np.arange(len(codes)), first], listed[:, 0] = 0, first
        included = bernoulli(source, self.inclusion, len(codes))[:, None]
        others = _shuffled(listed, 1, self.size + 1, source)
        anything = _shuffled(listed, 0, self.size, source)[:, : self.size]
        taken = np.where(included, others[:, : self.size], others[:, 1 : self.size + 1])
        members = np.zeros_like(listed)
        np.put_along_axis(members, np.where(known[:, None], taken, anything), 1, axis=1)
        return members

    def log_likelihood(self, responses: Int64) -> Float64:
        """log P(set | class) for every row and class, but for a constant of the row."""
        return self.epsilon * responses.astype(np.float64)

    def chances(self) -> tuple[Fraction, Fraction, Fraction]:
        """P(set | label), exactly: for a label in the set, for another class, and for what is no class."""
        others, size = self.categories - 1, self.size
        return (
            self.inclusion / math.comb(others, size - 1),
            (1 - self.inclusion) / math.comb(others, size),
            Fraction(1, math.comb(self.categories, size)),
        )


def _shuffled(listed: Int64, first: int, last: int, source: Source) -> Int64:
    """The rows with places [first, last) filled by a uniform choice from all places from ``first`` on."""
    rows, shuffled = np.arange(len(listed)), listed.copy()
    for place in range(first, last):
        chosen = place + uniform(source, listed.shape[1] - place, len(listed))
        shuffled[rows, place], shuffled[rows, chosen] = shuffled[rows, chosen], shuffled[rows, place]
    return shuffled
