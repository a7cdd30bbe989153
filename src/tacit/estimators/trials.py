"""The parts of a private search: how many trials there are, which rows score them, and the private score."""

from __future__ import annotations

import dataclasses
import math
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier

from tacit import _validate, events
from tacit._stopping import NegativeBinomial, Poisson, Stopping, gamma_of_mean
from tacit.data.declared import declared_classes, declared_target_bounds
from tacit.data.units import unit_numbers
from tacit.errors import InvalidValue
from tacit.estimators.private import PrivateEstimator, PrivateRows, Public
from tacit.evaluation.measuring import noise_for
from tacit.evaluation.tally import Tally
from tacit.mechanisms import DiscreteGaussian, DiscreteLaplace
from tacit.randomness import Source, bernoulli

__all__ = ["PrivateScore", "best_of", "drawn", "held_out", "stopping_of"]

NAMED = {"geometric": 1.0, "logarithmic": 0.0}
"""η by name."""
BINS = {"accuracy": 2, "auroc": 20}
"""Bins of the score of two classes: accuracy needs its two sides of one half, AUROC an order."""
PRECISION = 2.0**-20
"""Scores are rounded to multiples of this, so that they are ordered by what is released of them."""
_FIRST_BITS = 128
LEAST_ETA = 1e-6
"""The least |η| beside 0. The probabilities of K are quotients of η by γ^−η − 1, which loses as many digits
as η has zeros, and :func:`drawn` computes 25 digits more than it relies on."""


def stopping_of(stopping: Any, trials: Any) -> Stopping:
    """The distribution of the number of trials, by its name or its η and by its mean.

    >>> stopping_of("geometric", 4)
    NegativeBinomial(eta=1.0, gamma=0.25)
    """
    mean = _validate.finite("trials", trials)
    if mean < 1:
        raise InvalidValue("trials", trials, "an expected number of 1 or more")
    if stopping == "poisson":
        return Poisson(mean)
    if isinstance(stopping, str):
        eta = NAMED[_validate.choice("stopping", stopping, (*NAMED, "poisson"))]
    elif (eta := _validate.finite("stopping", stopping)) <= -1:
        advice = "The names are geometric, logarithmic and poisson."
        raise InvalidValue("stopping", stopping, "above -1, or a name", advice)
    if 0 < abs(eta) < LEAST_ETA:
        advice = f"Use 0, which is the limit, or at least {LEAST_ETA:g}."
        raise InvalidValue("stopping", stopping, f"0, or {LEAST_ETA:g} or more away from 0", advice)
    if mean == 1:
        return NegativeBinomial(eta, 1.0)
    gamma = 1 / mean if eta == 1 else gamma_of_mean(eta, mean)
    return NegativeBinomial(eta, gamma)


def best_of(event: events.Event, stopping: Stopping) -> events.Event:
    """The event of the best of so many trials, each of which costs ``event``."""
    if isinstance(stopping, Poisson):
        return events.BestOfPoisson(event, stopping.mean)
    return events.BestOf(event, stopping.eta, stopping.gamma)


def drawn(stopping: Stopping, source: Source) -> int:
    """A number of trials with exactly the probabilities of ``stopping``.

    A uniform number is compared with sums of probabilities; where its digits so far, or the digits of a sum,
    leave open on which side it lies, more of both are computed.

    >>> [drawn(NegativeBinomial(1.0, 0.25), Source(seed)) for seed in range(6)]
    [2, 1, 6, 1, 5, 10]
    """
    bits, digits = _FIRST_BITS, source.bits(_FIRST_BITS)
    while True:
        with localcontext() as context:
            context.prec = bits // 3 + 30
            low, high = (Decimal(each) / Decimal(1 << bits) for each in (digits, digits + 1))
            slack, total = Decimal(10) ** -(bits // 3 + 5), Decimal(0)
            for number, chance in stopping.chances():
                total += chance
                if high < total - slack:
                    return number
                if low < total + slack:
                    break
        bits, digits = bits + 64, digits << 64 | source.bits(64)


def held_out(rows: PrivateRows, share: float, source: Source) -> NDArray[np.bool_]:
    """Which rows are for scoring: each unit draws for itself, and all of its rows go with it."""
    if rows.units is None:
        return bernoulli(source, Fraction(share), len(rows.matrix))
    number = unit_numbers(rows.units)
    coins = bernoulli(source, Fraction(share), int(number.max(initial=-1)) + 2)
    return np.asarray(coins[number])


@dataclasses.dataclass(frozen=True)
class PrivateScore:
    """A figure of merit on rows that a model was not fitted to, from noisy counts: one real number.

    Rows are tallied as by :func:`tacit.evaluate`, each by itself, and the figure is computed from the noisy
    tally alone.
    """

    figure: str
    tally: Tally
    noise: DiscreteLaplace | DiscreteGaussian

    @classmethod
    def of(cls, estimator: PrivateEstimator, figure: Any, public: Public) -> PrivateScore:
        """The score of an estimator's kind, with noise that costs the ε and δ of ``public``."""
        tally = _tally(estimator, figure)
        noise = noise_for(tally, public.epsilon, public.delta, public.relation, public.unit)
        return cls(figure or ("r2" if tally.kind == "regression" else "accuracy"), tally, noise)

    def __call__(self, model: Any, rows: PrivateRows, source: Source) -> float:
        """The noisy score; where the noise leaves it undefined, the lowest that there is."""
        exact, _ = self.tally.measure(model, rows.matrix, np.asarray(rows.targets), {}, rows.keep, False)
        noisy = dataclasses.replace(self.noise, random_state=source)(exact)
        value = float(self.tally.figures(noisy)[self.figure])
        low, high = -1.0 if self.figure == "r2" else 0.0, 1.0
        return low if math.isnan(value) else round(min(max(value, low), high) / PRECISION) * PRECISION


def _tally(estimator: PrivateEstimator, figure: Any) -> Tally:
    """The cells that the figure is computed from, one block of them where there are classes."""
    if not is_classifier(estimator):
        _validate.choice("scoring", figure or "r2", ("r2",))
        bounds = declared_target_bounds(getattr(estimator, "target_bounds", None))
        return Tally("regression", (), 0, "none", {}, bounds)
    classes = tuple(declared_classes(getattr(estimator, "classes", None)))
    if len(classes) > 2:
        _validate.choice("scoring", figure or "accuracy", ("accuracy",))
        return Tally("more classes", classes, 2, "none", {})
    wanted = _validate.choice("scoring", figure or "accuracy", tuple(BINS))
    scored = "probability" if hasattr(estimator, "predict_proba") else "decision"
    return Tally("two classes", classes, BINS[wanted], scored, {})
