"""Prices: the mechanisms of a fit that selects, measures and generates, calibrated to cost (ε, δ) in all.

A fit of d columns in T rounds makes 1 + 2T releases, one after the other, each of which may depend on what
was released before:

==================  =========================================  ====================================
release             sensitivity of one row, ``add_remove``     event
==================  =========================================  ====================================
one-way marginals   d in ℓ1, √d in ℓ2, as one vector           ``ZeroConcentrated``, or ``Pure``
T choices           1 in each score                            ``BoundedRange`` each
T marginals         1 in ℓ1, 1 in ℓ2                           ``ZeroConcentrated``, or ``Pure`` each
==================  =========================================  ====================================

Under ``replace_one`` a row leaves one cell and enters another: ℓ1 sensitivities and scores double, ℓ2 grows
by √2. A unit of k rows multiplies all of them by k. For δ > 0 the noise is discrete Gaussian and the event is
calibrated by the tightest accountant; for δ = 0 it is discrete Laplace, and the ε of all steps add up.
The number of rounds and the shares are public.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tacit import accounting, events
from tacit.errors import TacitError
from tacit.estimators.counting import moved
from tacit.estimators.private import Public
from tacit.mechanisms import DiscreteGaussian, DiscreteLaplace, Exponential

__all__ = ["Noise", "Prices", "within_claim"]

Noise = DiscreteGaussian | DiscreteLaplace

ONE_WAY, CHOICE = 0.2, 0.15
"""The shares of ρ (of ε for δ = 0) that buy all one-way marginals, and all choices."""


@dataclass(frozen=True)
class Round:
    """The mechanisms of one round: choose a marginal, measure it."""

    choice: Exponential
    noise: Noise


@dataclass(frozen=True)
class Prices:
    """The mechanisms of a fit.

    >>> from tacit.relations import Relation, Unit
    >>> public = Public(1.0, 0.0, Relation.ADD_REMOVE, Unit(), width=3)
    >>> bought = Prices.of(public, columns=3, rounds=2)
    >>> round(accounting.epsilon(bought.event, 0.0), 6), round(bought.one_way.deviation, 1)
    (1.0, 21.2)
    """

    one_way: Noise
    each: Round | None
    """None where there are no rounds."""
    rounds: int

    @property
    def event(self) -> events.Event:
        """All steps together."""
        if self.each is None:
            return self.one_way.event
        steps = (self.each.choice.event, self.each.noise.event)
        return events.Compose((self.one_way.event, *(events.Repeat(step, self.rounds) for step in steps)))

    @property
    def parts(self) -> tuple[tuple[str, float], ...]:
        """What ε is spent on, where the ε of the steps add up."""
        if not isinstance(self.one_way, DiscreteLaplace):
            return ()
        found = [("one-way", self.one_way.epsilon)]
        if self.each is not None and isinstance(self.each.noise, DiscreteLaplace):
            found.append(("choices", self.rounds * self.each.choice.epsilon))
            found.append(("two-way", self.rounds * self.each.noise.epsilon))
        return tuple(found)

    @classmethod
    def of(cls, public: Public, *, columns: int, rounds: int) -> Prices:
        """The mechanisms that (ε, δ) buys for so many columns and rounds."""
        if public.delta == 0:
            made = _pure(public, columns, rounds)
        else:
            noise = accounting.calibrate(
                lambda noise: _gaussian(public, columns, rounds, noise).event,
                epsilon=public.epsilon, delta=public.delta, relation=public.relation,
            )  # fmt: skip
            made = _gaussian(public, columns, rounds, noise)
        within_claim(public, made.event)
        return made


def _shares(rounds: int) -> tuple[float, float, float]:
    return (ONE_WAY, CHOICE, 1.0 - ONE_WAY - CHOICE) if rounds else (1.0, 0.0, 0.0)


def _pure(public: Public, columns: int, rounds: int) -> Prices:
    """Discrete Laplace noise and choices whose ε add up to just below that of the fit."""
    together, alone = moved(public.relation, public.unit, columns)[0], moved(public.relation, public.unit)[0]
    first, choices, pairs = (share * public.epsilon * (1 - 1e-9) for share in _shares(rounds))
    one_way = DiscreteLaplace(round(together), first)
    if not rounds:
        return Prices(one_way, None, 0)
    each = Round(Exponential(alone, choices / rounds), DiscreteLaplace(round(alone), pairs / rounds))
    return Prices(one_way, each, rounds)


def _gaussian(public: Public, columns: int, rounds: int, noise: float) -> Prices:
    """Discrete Gaussian noise, and choices, whose ρ add up to that of one with this noise multiplier."""
    alone = moved(public.relation, public.unit)
    first, choices, pairs = (share * 0.5 / noise**2 for share in _shares(rounds))
    together = moved(public.relation, public.unit, columns)[1]
    one_way = DiscreteGaussian(together, noise_multiplier=math.sqrt(0.5 / first))
    if not rounds:
        return Prices(one_way, None, 0)
    each = Round(
        Exponential(alone[0], math.sqrt(8 * choices / rounds)),
        DiscreteGaussian(alone[1], noise_multiplier=math.sqrt(0.5 * rounds / pairs)),
    )
    return Prices(one_way, each, rounds)


def within_claim(public: Public, event: events.Event) -> None:
    """Raise if an event costs more than the fit is to cost."""
    if not accounting.epsilon(event, public.delta, relation=public.relation) <= public.epsilon * (1 + 1e-9):
        raise TacitError("The steps of the fit would cost more than was asked for.", "Please report this.")
