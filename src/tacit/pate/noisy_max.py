"""Aggregators that answer every query: the class with the most votes, after noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import _validate, events
from tacit.errors import InvalidValue
from tacit.mechanisms import Gaussian, Laplace
from tacit.pate.aggregator import ROOT, Aggregator
from tacit.pate.bounds import (
    Array,
    log_q_gaussian,
    log_q_gumbel,
    log_q_laplace,
    total_gaussian,
    total_pure,
)
from tacit.pate.votes import Int64, Labels
from tacit.randomness import Source, geometric, uniform

__all__ = ["GNMax", "GumbelMax", "LNMax", "chosen", "in_blocks"]

BLOCK = 1 << 16
"""Noise is drawn for about so many numbers at a time: the more, the finer is the grid of the noise."""

LARGEST = 2.0**20
"""The largest deviation or scale of noise; with it, a block of numbers still has its exact noise."""


@dataclass(frozen=True)
class GNMax(Aggregator):
    """The class with the most votes after Gaussian noise N(0, σ²) on each count (Papernot et al. 2018).

    Relation and sensitivity: see :class:`Aggregator`; √2 in ℓ2. Event: ``Gaussian(sigma/√2)`` for each query,
    Rényi divergence λ/σ². The noise is exact (:class:`tacit.mechanisms.Gaussian`), on a grid that is finer
    than for one query alone, so the event holds for each query by itself.

    >>> teachers = GNMax(sigma=40)
    >>> teachers.answer([[214, 30, 6], [20, 30, 200]], random_state=1).tolist()
    [0, 2]
    >>> round(teachers.rdp([[214, 30, 6]] * 100, [14.0]).epsilon(1e-5), 2)
    1.48
    >>> teachers.release([[214, 30, 6]] * 100, delta=1e-5, random_state=1).guarantee.delta
    1e-05
    """

    sigma: float = 40.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep("sigma", checked_sigma("sigma", self.sigma))

    def _answer_event(self) -> events.Event:
        return events.Gaussian(self.sigma / ROOT)

    def _labels(self, votes: Int64, source: Source) -> Labels:
        return gaussian_winners(votes, self.sigma, source)

    def _log_q(self, gaps: Int64) -> Array:
        return log_q_gaussian(gaps, self.sigma)

    def _answer_cost(self, log_q: Array, weights: Array, orders: Array) -> Array:
        return total_gaussian(log_q, weights, self.sigma, orders)


@dataclass(frozen=True)
class LNMax(Aggregator):
    """The class with the most votes after Laplace noise of scale 1/γ on each count (Papernot et al. 2017).

    Relation and sensitivity: see :class:`Aggregator`. Event: one vote moves, which shifts two counts by 1
    each, so that each query costs ``Laplace(1/gamma)`` twice: 2γ-differential privacy, and less in Rényi
    divergence than all that is 2γ-private. The noise is exact (:class:`tacit.mechanisms.Laplace`).

    >>> LNMax(gamma=0.1).answer([[214, 30, 6], [20, 30, 200]], random_state=1).tolist()
    [0, 2]
    >>> LNMax(gamma=0.1).event(asked=100)
    Repeat(event=Repeat(event=Laplace(scale=10.0), times=2), times=100)
    """

    gamma: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep("gamma", _validate.positive("gamma", self.gamma))
        if not 2.0**-16 <= self.gamma <= LARGEST:
            raise InvalidValue("gamma", self.gamma, "in [2^-16, 2^20]")

    def _answer_event(self) -> events.Event:
        return events.Repeat(events.Laplace(1 / self.gamma), 2)

    def _labels(self, votes: Int64, source: Source) -> Labels:
        mechanism = Laplace(1.0, scale=1 / self.gamma, random_state=source)
        return in_blocks(votes, lambda block: mechanism(block).argmax(axis=1))

    def _log_q(self, gaps: Int64) -> Array:
        return log_q_laplace(gaps, self.gamma)

    def _answer_cost(self, log_q: Array, weights: Array, orders: Array) -> Array:
        return total_pure(log_q, weights, 2 * self.gamma, orders)


@dataclass(frozen=True)
class GumbelMax(Aggregator):
    """The class with the most votes after Gumbel noise of scale 2/ε on each count, for each query.

    That is the exponential mechanism (McSherry and Talwar 2007): class j wins with probability ∝ e^{ε·n_j/2}.
    Relation and sensitivity: see :class:`Aggregator`. Event: ``BoundedRange(epsilon)`` for each query, since
    one count rises by 1 and another falls by 1, so that the loss spans ε: ε-differential privacy and
    ε²/8-zCDP. At the same standard deviation of the noise that is 0.82 of what GNMax costs. The choice is
    exact: a class is proposed uniformly and accepted with probability e^{−ε·gap/2}.

    >>> GumbelMax(epsilon=0.1).answer([[214, 30, 6], [20, 30, 200]], random_state=1).tolist()
    [0, 2]
    """

    epsilon: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep("epsilon", _validate.epsilon(self.epsilon))
        if not 2.0**-28 <= self.epsilon <= 2.0**28:
            raise InvalidValue("epsilon", self.epsilon, "in [2^-28, 2^28]")

    def _answer_event(self) -> events.Event:
        return events.BoundedRange(self.epsilon)

    def _labels(self, votes: Int64, source: Source) -> Labels:
        return chosen(votes, self.epsilon, source)

    def _log_q(self, gaps: Int64) -> Array:
        return log_q_gumbel(gaps, self.epsilon)

    def _answer_cost(self, log_q: Array, weights: Array, orders: Array) -> Array:
        return total_pure(log_q, weights, self.epsilon, orders)


def checked_sigma(name: str, value: float) -> float:
    """A standard deviation that leaves room for the grid of the noise."""
    sigma = _validate.positive(name, value)
    if not 1 / LARGEST <= sigma <= LARGEST:
        raise InvalidValue(name, value, "in [2^-20, 2^20]")
    return sigma


def gaussian_winners(votes: Int64, sigma: float, source: Source) -> Labels:
    """The class with the most votes of each query, after noise N(0, σ²) on each count."""
    mechanism = Gaussian(ROOT, noise_multiplier=sigma / ROOT, random_state=source)
    return in_blocks(votes, lambda block: mechanism(block).argmax(axis=1))


def chosen(scores: Int64, epsilon: float, source: Source) -> Labels:
    """A column of each row, with probability ∝ e^{ε·score/2}, exactly, for whole scores.

    Each row is an exponential mechanism of its own. In every round a column is proposed for each row that is
    still open, and accepted if a geometric variable of rate ε/2 reaches the distance from the best score.
    """
    labels = np.empty(len(scores), dtype=np.int64)
    gaps = scores.max(axis=1, keepdims=True) - scores
    rate = Fraction(epsilon) / 2
    undecided = np.arange(len(scores))
    while undecided.size:
        proposed = uniform(source, scores.shape[1], undecided.size)
        accepted = geometric(source, rate, undecided.size) >= gaps[undecided, proposed]
        labels[undecided[accepted]] = proposed[accepted]
        undecided = undecided[~accepted]
    return labels


def in_blocks(rows: NDArray[Any], function: Callable[[NDArray[Any]], NDArray[Any]]) -> NDArray[Any]:
    """``function`` of a few thousand rows at a time; each row gets noise of its own."""
    step = max(1, BLOCK // math.prod(rows.shape[1:]))
    starts = range(0, max(len(rows), 1), step)
    return np.concatenate([function(rows[start : start + step]) for start in starts])
