"""Guarantee: what may be promised about a release, carried along with it.

>>> from tacit import events
>>> g = Guarantee(epsilon=0.5, delta=0.0, event=events.Laplace(2.0))
>>> print(g.statement())
(ε = 0.5, δ = 0)-differentially private under add_remove of one row; exact noise.
>>> Guarantee.from_json(g.to_json()) == g
True
>>> from tacit.relations import LABEL
>>> print(Guarantee(1.0, 0.0, events.RandomizedResponse(1.0, 10), "replace_one", LABEL).statement())
(ε = 1, δ = 0)-differentially private under replace_one of one label; the features are not protected; ...
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any

from tacit import _validate, events
from tacit.errors import InvalidValue, MalformedEvent, TacitError
from tacit.relations import Relation, Unit, relation_for

__all__ = ["NOISE_KINDS", "Guarantee", "above", "ceiling", "floor"]

NOISE_KINDS = ("exact", "float64", "float32", "seeded")
"""``exact``: integer samplers on OS entropy, the proof holds to the bit. ``float64`` and ``float32``:
continuous noise in floating point of that width on OS entropy, the proof is about real numbers.
``seeded``: reproducible noise for tests; whoever knows the seed can subtract it, so there is no
privacy. A sum of releases is of the last of its kinds."""


def ceiling(value: float, digits: int) -> Decimal:
    """A finite number to this many significant digits, from above but for the rounding of a sum.

    >>> str(ceiling(2.828427, 4)), str(ceiling(0.1 + 0.2, 4))
    ('2.829', '0.3')
    """
    least = Decimal(value) * (1 - Decimal("1e-12"))
    return Context(prec=digits, rounding=ROUND_CEILING).create_decimal(least).normalize()


def floor(value: float, digits: int) -> Decimal:
    """A finite number to this many significant digits, from below but for the rounding of a difference.

    >>> str(floor(2.828427, 4)), str(floor(1.0 - 0.9, 4))
    ('2.828', '0.1')
    """
    most = Decimal(value) * (1 + Decimal("1e-12"))
    return Context(prec=digits, rounding=ROUND_FLOOR).create_decimal(most).normalize()


def above(value: float, digits: int) -> str:
    """A number as it is printed where it must not be less than it is: :func:`ceiling`, or ∞.

    >>> above(2.00001, 4), above(1e-5, 4), above(float("inf"), 4)
    ('2.001', '1e-05', '∞')
    """
    return f"{float(ceiling(value, digits)):.{digits}g}" if math.isfinite(value) else "∞"


@dataclass(frozen=True)
class Guarantee:
    """An (ε, δ) promise with all that is needed to state, check and recompute it.

    ``epsilon`` may be infinite, which promises nothing; it is stored as the word ``"inf"``.
    """

    epsilon: float
    delta: float
    event: events.Event
    relation: Relation = Relation.ADD_REMOVE
    unit: Unit = field(default_factory=Unit)
    noise: str = "exact"
    assumptions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not (isinstance(self.epsilon, (int, float)) and self.epsilon >= 0):
            raise InvalidValue("epsilon", self.epsilon, "0 or more")
        object.__setattr__(self, "epsilon", float(self.epsilon))
        object.__setattr__(self, "delta", _validate.delta(self.delta))
        object.__setattr__(self, "relation", relation_for(self.unit, self.relation))
        object.__setattr__(self, "assumptions", tuple(self.assumptions))
        _validate.choice("noise", self.noise, NOISE_KINDS)

    @property
    def price(self) -> str:
        """ε and δ alone, rounded up.

        >>> Guarantee(0.5, 1e-6, events.Pure(0.5)).price
        'ε = 0.5, δ = 1e-06'
        """
        return f"ε = {above(self.epsilon, 6)}, δ = {above(self.delta, 6)}"

    def statement(self) -> str:
        """The guarantee in one sentence, with its assumptions."""
        noise = {
            "exact": "exact noise",
            "float64": "float64 noise",
            "float32": "float32 noise",
            "seeded": "SEEDED NOISE, FOR TESTS ONLY: no privacy against whoever knows the seed",
        }[self.noise]
        bare = "" if self.unit.part is None else "; the features are not protected"
        text = (
            f"({self.price})-differentially private under "
            f"{self.relation} of one {self.unit}{bare}; {noise}."
        )
        if self.assumptions:
            text += " Assuming: " + "; ".join(self.assumptions) + "."
        return text

    __str__ = statement

    def to_json(self) -> str:
        """One line of JSON, keys sorted."""
        data = {
            "epsilon": "inf" if math.isinf(self.epsilon) else self.epsilon,
            "delta": self.delta,
            "event": json.loads(self.event.to_json()),
            "relation": str(self.relation),
            "unit": self.unit.to_dict(),
            "noise": self.noise,
            "assumptions": list(self.assumptions),
        }
        return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Guarantee:
        """The guarantee that ``text`` describes, checked field by field."""
        try:
            data: dict[str, Any] = json.loads(text)
            epsilon = data.pop("epsilon")
            event = events.from_json(json.dumps(data.pop("event")))
            unit = Unit(**data.pop("unit"))
            return cls(epsilon=math.inf if epsilon == "inf" else epsilon, event=event, unit=unit, **data)
        except (TacitError, TypeError, ValueError, KeyError, AttributeError) as error:
            raise MalformedEvent(f"This text is not a guarantee: {error}") from error
