"""What answers cost in Rényi divergence, and whether that number may be published."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit import _validate, events
from tacit.accounting.rdp import Curve
from tacit.errors import TacitError
from tacit.guarantee import Guarantee
from tacit.pate.bounds import Array
from tacit.pate.releasing import seen_by_one
from tacit.relations import Relation, Unit, relation_for

__all__ = ["RenyiCost"]

CONVERSIONS = ("tight", "classic")


@dataclass(frozen=True, eq=False)
class RenyiCost:
    """Rényi divergences of all answers together, one per order.

    ``releasable`` is True if the numbers were computed from public facts alone: from the parameters, from how
    many queries were asked, and from which were answered. If they were computed from the votes it is False:
    the cost is itself a statistic of the private rows. Such a cost may steer the curator's decisions, and it
    becomes no :class:`tacit.Guarantee`; :func:`tacit.pate.sanitise` releases it with noise.

    ``directions`` is ``"both"``, or ``"one"`` for the published bound, which covers D(M(D)‖M(D′)) and not
    D(M(D′)‖M(D)). ``expected`` says that every answer was weighted with its probability, as in the tables of
    the paper: that is the mean cost over runs, and the cost of none of them.

    >>> from tacit.pate import GNMax
    >>> cost = GNMax(sigma=40).rdp([[190, 10]] * 100, [2.0, 14.0], data_dependent=True)
    >>> cost.releasable, round(cost.epsilon(1e-5), 2)
    (False, 0.65)
    >>> cost.guarantee(1e-5, noise="exact")
    Traceback (most recent call last):
    ...
    tacit.errors.TacitError: This cost was computed from the votes, which are private. ...
    """

    orders: Array
    divergences: Array
    releasable: bool
    directions: str = "both"
    expected: bool = False
    assumptions: tuple[str, ...] = ()

    def epsilons(self, delta: float, *, conversion: str = "tight") -> Array:
        """The ε that each order certifies at ``delta``.

        ``"tight"`` is the conversion of Canonne, Kamath and Steinke (2020), ``"classic"`` that of Mironov
        (2017), D + ln(1/δ)/(α−1), with which the papers on PATE computed their tables.
        """
        level = _validate.open_probability("delta", delta)
        if _validate.choice("conversion", conversion, CONVERSIONS) == "tight":
            return Curve(self.orders, self.divergences).epsilons(level)
        return np.asarray(self.divergences - math.log(level) / (self.orders - 1))

    def epsilon(self, delta: float, *, conversion: str = "tight") -> float:
        """The smallest ε that any of the orders certifies at ``delta``. Private unless ``releasable``."""
        return float(self.epsilons(delta, conversion=conversion).min())

    def order(self, delta: float, *, conversion: str = "tight") -> float:
        """The order that certifies :meth:`epsilon`."""
        return float(self.orders[int(self.epsilons(delta, conversion=conversion).argmin())])

    @property
    def event(self) -> events.Renyi:
        """The answers as an event that is known by this curve; refused where it is private."""
        self._require_releasable()
        rising = np.argsort(self.orders)
        return events.Renyi(tuple(self.orders[rising].tolist()), tuple(self.divergences[rising].tolist()))

    def guarantee(
        self, delta: float, *, noise: str, relation: Relation | str = "add_remove", unit: Unit | None = None
    ) -> Guarantee:
        """The guarantee of these answers at ``delta``; refused where the cost is private.

        ``noise`` is the kind of noise with which the answers were drawn, which a cost cannot know:
        ``"exact"``, or ``"seeded"`` if a ``random_state`` was given.
        """
        event = self.event
        protected = unit or Unit()
        kind = relation_for(protected, relation)
        assumptions = (seen_by_one(protected, kind), *self.assumptions)
        return Guarantee(self.epsilon(delta), delta, event, kind, protected, noise, assumptions)

    def _require_releasable(self) -> None:
        if not self.releasable:
            raise TacitError(
                "This cost was computed from the votes, which are private.",
                "Publish the data-independent cost (data_dependent=False), or release this one with "
                "tacit.pate.sanitise, which is charged.",
            )
