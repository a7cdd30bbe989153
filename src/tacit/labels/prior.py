"""Randomized response with a prior, and how a prior is had from randomized labels.

:class:`ResponseWithPrior` is RRWithPrior of Ghazi, Golowich, Kumar, Manurangsi and Zhang, "Deep Learning with
Label Differential Privacy" (NeurIPS 2021): for a row with prior p, the response is randomized among the k
likeliest classes alone, where k maximises the probability P(top k) · e^ε/(e^ε + k − 1) of a true response.

Why it is ε-differentially private. The order of the classes and k are functions of the prior, and not of the
label; the prior must come from public data, from other rows, or have been paid for. Given k, a label in the
top k is answered with probability e^ε/(e^ε + k − 1) for itself and 1/(e^ε + k − 1) for each other of the k;
any other label with probability 1/k for each, which lies between the two. So no ratio exceeds e^ε; where k =
1 the response says nothing. A prior that was fitted to the very labels that it is used for voids this proof.

The published code of the method (google-research, label_dp) adds up one class too few before it weighs k, and
so picks k = 1 for a uniform prior at ε = 0.5, where k = K is best. Here k is the one of the paper.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from tacit import _validate, events
from tacit.errors import InvalidValue
from tacit.labels.response import Float64, Int64, Response, responded
from tacit.randomness import Source

__all__ = ["ResponseWithPrior", "denoised", "usable_prior"]


def denoised(reported: Any, epsilon: float) -> Float64:
    """The probabilities of labels, from those of their randomized responses, row by row.

    A model that is fitted to responses predicts p̃ = (p·(e^ε − 1) + 1)/(e^ε + K − 1). Inverted, clipped to
    [0, 1] and scaled to add up to 1 it is a prior; without this step RRWithPrior takes too many classes.

    >>> denoised([[0.5, 0.25, 0.25]], 1.0).round(3).tolist()
    [[0.791, 0.105, 0.105]]
    """
    told = np.asarray(reported, dtype=np.float64)
    grown = math.exp(_validate.epsilon(epsilon))
    return usable_prior((told * (grown + told.shape[-1] - 1) - 1) / (grown - 1))


def usable_prior(values: Any) -> Float64:
    """Rows of probabilities that add up to 1: negative and missing ones count as 0, and rows of zeros as
    uniform.

    >>> usable_prior([[0.5, -0.1, 0.5], [0.0, np.nan, 0.0]]).round(3).tolist()
    [[0.5, 0.0, 0.5], [0.333, 0.333, 0.333]]
    """
    found = np.asarray(values, dtype=np.float64)
    found = np.clip(np.where(np.isfinite(found), found, 0.0), 0.0, 1.0)
    total = found.sum(axis=-1, keepdims=True)
    uniform = np.full_like(found, 1 / found.shape[-1])
    return np.asarray(np.where(total > 0, found / np.where(total > 0, total, 1.0), uniform))


@dataclass(frozen=True)
class ResponseWithPrior:
    """Randomized response among the likeliest classes of each row.

    Guarantee: ε-differential privacy for each label, given the prior; the event is ``Pure(ε)``, which
    dominates the response among k classes for every k. ``prior`` is one row for all labels, or one row for
    each.

    >>> mechanism = ResponseWithPrior(2.0, np.array([0.6, 0.2, 0.1, 0.05, 0.05]))
    >>> mechanism.sizes.tolist(), mechanism.event
    ([3], Pure(epsilon=2.0))
    """

    epsilon: float
    prior: Any

    def __post_init__(self) -> None:
        _validate.epsilon(self.epsilon)
        found = np.atleast_2d(np.asarray(self.prior, dtype=np.float64))
        if found.ndim != 2 or found.shape[1] < 2 or not (np.isfinite(found) & (found >= 0)).all():
            raise InvalidValue(
                "prior", f"an array of shape {found.shape}", "probabilities, a column for each class",
                "Give one row for all labels, or one row for each, without gaps.",
            )  # fmt: skip
        object.__setattr__(self, "prior", usable_prior(found))

    @property
    def event(self) -> events.Event:
        """What the responses of all rows cost, for one label."""
        return events.Pure(self.epsilon)

    @property
    def order(self) -> Int64:
        """The classes of each row of the prior, the likeliest first; of equally likely ones the first."""
        return np.argsort(-self.prior, axis=1, kind="stable")

    @property
    def sizes(self) -> Int64:
        """k for each row of the prior: how many classes a response is chosen from."""
        grown = math.exp(min(self.epsilon, 700.0))
        among = np.arange(self.prior.shape[1])
        top = np.cumsum(np.take_along_axis(self.prior, self.order, axis=1), axis=1)
        return np.asarray(np.argmax(top * (grown / (grown + among)), axis=1) + 1)

    def respond(self, codes: Int64, source: Source) -> Int64:
        """A response for each code, −1 for labels that are none of the classes."""
        order, sizes = self._for(len(codes))
        ranks = np.argmax(order == codes[:, None], axis=1)
        outside = (codes < 0) | (ranks >= sizes)
        ranks = np.where(outside, -1, ranks)
        chosen = np.zeros(len(codes), dtype=np.int64)
        for size in range(1, order.shape[1] + 1):
            rows = np.flatnonzero(sizes == size)
            chosen[rows] = responded(ranks[rows], size, self.epsilon, source)
        return np.take_along_axis(order, chosen[:, None], axis=1)[:, 0]

    def log_likelihood(self, responses: Int64) -> Float64:
        """log P(response | class) for every row and class."""
        order, sizes = self._for(len(responses))
        ranks = np.argsort(order, axis=1)
        inside = ranks < sizes[:, None]
        total = np.log(math.exp(min(self.epsilon, 700.0)) + sizes - 1.0)
        same = np.arange(order.shape[1]) == responses[:, None]
        told = np.where(same, self.epsilon, 0.0) - total[:, None]
        return np.where(inside, told, -np.log(sizes)[:, None])

    def table(self, row: int = 0) -> tuple[tuple[Fraction, ...], ...]:
        """P(response | label) for one row of the prior, exactly; the last line is for what is no class."""
        order, size = self.order[row].tolist(), int(self.sizes[row])
        categories = len(order)
        inner = ((Fraction(1),),) if size == 1 else Response(size, self.epsilon).table()
        lines = []
        for label in (*range(categories), -1):
            place = order.index(label) if label >= 0 else categories
            chances = inner[place] if place < size else (Fraction(1, size),) * size
            line = dict(zip(order, chances, strict=False))
            lines.append(tuple(line.get(response, Fraction(0)) for response in range(categories)))
        return tuple(lines)

    def _for(self, rows: int) -> tuple[Int64, Int64]:
        if len(self.prior) not in (1, rows):
            raise InvalidValue("prior", f"{len(self.prior)} rows", f"one row for all labels, or {rows}")
        width = self.prior.shape[1]
        return np.broadcast_to(self.order, (rows, width)), np.broadcast_to(self.sizes, (rows,))
