"""Releasing the data-dependent cost: smooth sensitivity and Gaussian noise.

The cost f of answers, computed from the votes, may have a large sensitivity at some votes and a small one at
these. A smooth bound SS_β = max_d e^{−βd} Σ LS(d) of the local sensitivity (Nissim, Raskhodnikova and Smith
2007) changes by a factor of e^β at most between neighbours, and f + SS_β·N(0, s²) is released.

**What the release costs.** Between neighbours the deviations differ by a factor r ∈ [e^{−β}, e^β], and the
means by no more than the smaller SS_β. The Rényi divergence of two Gaussians, with x = 1 − e^{−2β}, is then
at most

    λ(1−x)/(2s²(1−λx)) + [λ ln(1−x) − ln(1−λx)]/(2(λ−1)),    λx < 1,

reached where the second distribution is the narrower one; both terms rise with x. Theorem 23 of Papernot et
al. (2018) states λe^{2β}/s² + [βλ − ½ln(1−2λβ)]/(λ−1) instead, which is too small: for β = 0.0329, s = 6.23,
λ = 14, the constants of its authors, it is 0.518, and two such Gaussians have divergence 1.607 (tests/pate
computes it by quadrature). The bound above is the one that is charged here.

**What the released number says.** It bounds the Rényi divergence of these answers between the votes and
their neighbours, in both directions: a statement about these data, where a :class:`tacit.Guarantee` is about
all data. f + c·SS_β is released rather than f, so that the number is an upper bound with the stated
confidence: c·SS_β changes by at most c(e^β − 1)·SS_β, which widens the noise by κ = 1 + c(e^β − 1), and c =
zsκ at the normal quantile z of the confidence.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr, ndtri

from tacit import _validate, events
from tacit.accounting.rdp import Curve
from tacit.errors import InvalidValue, TacitError
from tacit.guarantee import Guarantee
from tacit.mechanisms import normals
from tacit.pate import local_sensitivity as local
from tacit.pate.aggregator import DIRECTIONS, Aggregator
from tacit.pate.bounds import Array, gaps_of, gaussian_divergence, log_q_gaussian, log_q_threshold, worst_gaps
from tacit.pate.confident import ConfidentGNMax, InteractiveGNMax
from tacit.pate.noisy_max import GNMax
from tacit.pate.releasing import CHOSEN_BY_ROWS, agreed, guarantee_of, source_of
from tacit.pate.votes import Int64, checked_votes
from tacit.randomness import Source
from tacit.relations import Relation, Unit

__all__ = ["Sanitised", "sanitise", "sanitising_cost", "sanitising_scale", "smooth_sensitivity"]


def sanitising_cost(orders: ArrayLike, beta: float, scale: float) -> Array:
    """The Rényi divergence of f + SS_β·N(0, scale²) at each order; infinite from order 1/(1 − e^{−2β}) on.

    >>> sanitising_cost([14.0, 20.0], beta=0.0329, scale=6.23).round(3).tolist()
    [1.607, inf]
    """
    at, narrow, s = np.asarray(orders, dtype=float), -math.expm1(-2 * beta), scale
    wide = math.expm1(2 * beta)
    with np.errstate(divide="ignore", invalid="ignore"):
        left = np.where(at * narrow < 1, 1 - at * narrow, np.nan)
        falling = at * (1 - narrow) / (2 * s * s * left) + _spread(at, -narrow)
    rising = at / (2 * s * s) + _spread(at, wide)
    return np.where(np.isnan(left), np.inf, np.maximum(falling, rising))


def _spread(at: Array, change: float) -> Array:
    """The divergence that is due to variances alone, the second (1 + change) times the first."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((at * math.log1p(change) - np.log1p(at * change)) / (2 * (at - 1)))


def sanitising_scale(order: float, beta: float, cost: float) -> float:
    """The s at which the release costs ``cost`` at ``order``."""
    narrow = -math.expm1(-2 * beta)
    if order * narrow >= 1:
        raise InvalidValue("beta", beta, f"such that order·(1 − e^−2β) is below 1 at order {order:g}")
    rest = cost - float(_spread(np.array([order]), -narrow)[0])
    if rest <= 0:
        raise InvalidValue("cost", cost, f"larger at beta = {beta:g}", "Or choose a smaller beta.")
    return math.sqrt(order * (1 - narrow) / (2 * rest * (1 - order * narrow)))


@dataclass(frozen=True)
class Sanitised:
    """A data-dependent cost that was released: with probability ``confidence`` an upper bound of the true
    one.

    ``divergence`` is the released number, at ``order``; ``cost`` is what its own release costs there, and
    :meth:`epsilon` counts both. ``guarantee`` of its own is that of releasing the number, which was charged.
    """

    order: float
    divergence: float
    cost: float
    confidence: float
    directions: str
    own: Guarantee
    assumptions: tuple[str, ...] = ()

    releasable = True

    def epsilon(self, delta: float) -> float:
        """ε of the answers together with this number, at ``delta``."""
        total = np.array([self.divergence + self.cost])
        return Curve(np.array([self.order]), total).epsilon(_validate.open_probability("delta", delta))

    def guarantee(self, delta: float) -> Guarantee:
        """The answers and this number at ``delta``, with what has to be assumed."""
        if self.directions != "both":
            raise TacitError(
                "This cost covers one direction only, and is no guarantee.", "Use directions='both'."
            )
        event = events.Renyi((self.order,), (self.divergence + self.cost,))
        own = self.own
        assumptions = (
            *own.assumptions,
            *self.assumptions,
            f"ε holds for these votes and their neighbours, and is an upper bound with probability "
            f"{self.confidence:g}",
        )
        return Guarantee(self.epsilon(delta), delta, event, own.relation, own.unit, own.noise, assumptions)


def smooth_sensitivity(
    aggregator: Aggregator,
    votes: ArrayLike,
    *,
    order: float,
    beta: float,
    answered: ArrayLike | str | None = None,
    directions: str = "both",
) -> tuple[float, float]:
    """The data-dependent cost at ``order`` and its smooth sensitivity. Both are private."""
    counts = aggregator._checked(votes)
    both = _validate.choice("directions", directions, DIRECTIONS) == "both"
    sigma, teachers = _answer_sigma(aggregator), _teachers(aggregator)
    _check_public(aggregator, counts.shape[1], order, both)
    weights = aggregator._weights(counts, None, answered)
    gaps = gaps_of(counts)
    log_q = log_q_gaussian(worst_gaps(gaps) if both else gaps, sigma)
    total = float(weights @ local.cost(log_q, sigma, order))
    counted = weights > 0
    sensitivity = weights[counted] @ local.answer_sensitivity(counts[counted], teachers, sigma, order)
    if isinstance(aggregator, ConfidentGNMax):
        tests, of_tests = _tests(aggregator, counts, teachers, order, both)
        total, sensitivity = total + tests, sensitivity + of_tests
    if both:  # the cost is a maximum over neighbours: its sensitivity within d votes is that within d + 1
        sensitivity = np.append(sensitivity[1:], sensitivity[-1])
    return total, float((np.exp(-beta * np.arange(len(sensitivity))) * sensitivity).max())


def _tests(
    aggregator: ConfidentGNMax, counts: Int64, teachers: int, order: float, both: bool
) -> tuple[float, Array]:
    """The cost of all tests at ``order``, and its sensitivity within 0, 1, … votes."""
    heights, threshold, sigma = counts.max(axis=1), aggregator.threshold, aggregator.sigma_threshold
    log_q = log_q_threshold(heights, threshold, sigma)
    if both:
        beside = [log_q_threshold(heights + step, threshold, sigma) for step in (-1, 1)]
        log_q = np.maximum.reduce([log_q, *beside])
    cost = gaussian_divergence(log_q, math.sqrt(2) * sigma, [order]).sum()
    found = local.threshold_sensitivity(heights, teachers, threshold, sigma, order, beyond=int(both))
    return float(cost), found.sum(axis=0)


def sanitise(
    aggregator: Aggregator,
    votes: ArrayLike | Callable[[], ArrayLike],
    *,
    order: float,
    cost: float,
    classes: int | None = None,
    beta: float | None = None,
    answered: ArrayLike | None = None,
    directions: str = "both",
    confidence: float = 0.95,
    delta: float = 0.0,
    ledger: Any = None,
    relation: Relation | str | None = None,
    unit: Unit | None = None,
    label: str | None = None,
    random_state: int | Source | None = None,
) -> Sanitised:
    """Release the data-dependent cost of answers that were given, with noise, and charge for that.

    ``votes`` is an array, or a function that returns one and is called inside the charge; then ``classes``
    says how many classes it has. ``answered`` says which queries were answered, as booleans, for an
    aggregator that tests; it was released with the labels. ``order``, ``cost`` (the Rényi divergence that
    the release may cost at that order) and ``beta`` are public: chosen beforehand, and not by looking at the
    votes. Conditions C5 and C6 are checked for these parameters before anything is charged. Noise is float64:
    its scale depends on the votes, and no grid of integers is fixed beforehand.

    Event: ``Renyi``, the curve of :func:`sanitising_cost`.

    >>> teachers, votes = GNMax(sigma=40, teachers=250), [[240, 10, 0]] * 300
    >>> given = sanitise(teachers, votes, order=14.0, cost=0.3, delta=1e-5, random_state=1)
    >>> given.epsilon(1e-5) < teachers.rdp(votes, [9.0]).epsilon(1e-5)
    True
    """
    at, price = float(_validate.finite("order", order)), _validate.positive("cost", cost)
    if at <= 1:
        raise InvalidValue("order", order, "above 1")
    smooth = 0.2 / at if beta is None else _validate.positive("beta", beta)
    scale = sanitising_scale(at, smooth, price)
    level = _validate.open_probability("confidence", confidence)
    shift = _shift(level, scale, smooth)
    if not callable(votes):
        counts = aggregator._checked(votes)
        classes = counts.shape[1] if classes is None else classes
    _validate.choice("directions", directions, DIRECTIONS)
    _check_public(aggregator, _validate.count("classes", classes, 2), at, directions == "both")
    if isinstance(answered, str):
        raise InvalidValue("answered", answered, "booleans, one per query", "Pass labels >= 0.")
    payment, source = agreed(ledger, relation, unit), source_of(random_state)
    event = _event(at, smooth, scale)
    guarantee = guarantee_of(event, delta, payment, source, "float64")
    name = label or f"cost of {type(aggregator).__name__}"
    with payment.charge(event, name, noise=guarantee.noise, delta=delta):
        read = checked_votes(votes() if callable(votes) else counts, classes=classes)
        total, sensitivity = smooth_sensitivity(
            aggregator, read, order=at, beta=smooth, answered=answered, directions=directions
        )
        widened = 1 + shift * math.expm1(smooth)
        noise = float(normals(source, (1,))[0])
        released = total + sensitivity * (shift + widened * scale * noise)
    own = float(sanitising_cost([at], smooth, scale)[0])
    chosen = (CHOSEN_BY_ROWS,) if answered is not None else ()
    return Sanitised(at, max(released, 0.0), own, level, directions, guarantee, chosen)


def _shift(confidence: float, scale: float, beta: float) -> float:
    """c with c = z·s·(1 + c(e^β − 1)), in units of the smooth sensitivity."""
    reach = max(float(ndtri(confidence)), 0.0) * scale
    room = 1 - reach * math.expm1(beta)
    if room <= 0:
        raise InvalidValue(
            "confidence",
            confidence,
            "lower at this cost and beta",
            "Or choose a smaller beta or a larger cost.",
        )
    return reach / room


def _event(order: float, beta: float, scale: float) -> events.Renyi:
    """The release at orders up to where its divergence ends."""
    end = 1 / -math.expm1(-2 * beta)
    orders = np.unique(np.append(1 + (end - 1) * np.geomspace(1e-3, 0.98, 60), order))
    return events.Renyi(tuple(orders.tolist()), tuple(sanitising_cost(orders, beta, scale).tolist()))


def _check_public(aggregator: Aggregator, classes: int, order: float, both: bool) -> None:
    """What has to hold of the parameters for the sensitivity to be proven."""
    sigma = _answer_sigma(aggregator)
    local.require_conditions(sigma, classes, order, _teachers(aggregator))
    if both and float(log_ndtr(-1 / (sigma * math.sqrt(2)))) < local.plateau_start(sigma, order):
        raise TacitError(
            f"With sigma = {sigma:g} a lead of one vote is nearly sure to win, and the sensitivity of the "
            "cost in both directions is unknown.",
            "Use more noise, or publish the data-independent cost.",
        )


def _answer_sigma(aggregator: Aggregator) -> float:
    if isinstance(aggregator, GNMax):
        return aggregator.sigma
    if isinstance(aggregator, ConfidentGNMax) and not isinstance(aggregator, InteractiveGNMax):
        return aggregator.sigma_answer
    raise TacitError(
        f"The smooth sensitivity of {type(aggregator).__name__} is not known.",
        "Publish its data-independent cost; GNMax and ConfidentGNMax can be sanitised.",
    )


def _teachers(aggregator: Aggregator) -> int:
    if aggregator.teachers is None:
        raise InvalidValue("teachers", None, "declared", "Make the aggregator with teachers=…")
    return aggregator.teachers
