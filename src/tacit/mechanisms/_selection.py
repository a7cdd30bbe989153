"""What the mechanisms that select an index share: scores on the grid, and the weight of a step."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar

from tacit import _validate, events
from tacit.errors import InvalidValue
from tacit.mechanisms import _grid
from tacit.mechanisms._base import Int64, Mechanism, score_values


@dataclass(frozen=True)
class Selection(Mechanism):
    """Base of the selecting mechanisms.

    Scores are rounded to a grid of step g ≤ 2^−20 sensitivities, which keeps their order, and
    neighbours' scores are then at most m = ⌊sensitivity/g + 1⌋ steps apart; m takes the place of
    the sensitivity in what follows. Scores beyond ±2^60 steps (2^38 sensitivities) are clamped.
    """

    sensitivity: float
    epsilon: float
    monotone: bool = False
    event: events.Pure | events.BoundedRange = field(init=False, repr=False, compare=False)

    charged: ClassVar[type[events.Pure | events.BoundedRange]] = events.Pure
    """The event that a selection is charged as, at the ε of the mechanism."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep("sensitivity", _grid.real_sensitivity(self.sensitivity))
        self._keep("epsilon", _validate.epsilon(self.epsilon))
        if not isinstance(self.monotone, bool):
            raise InvalidValue("monotone", self.monotone, "True or False")
        if not 2.0**-28 <= self.epsilon <= 2.0**100:
            raise InvalidValue("epsilon", self.epsilon, "in [2^-28, 2^100]")
        self._keep("event", self.charged(self.epsilon))

    @property
    def _exponent(self) -> int:
        return _grid.grid_exponent(self.sensitivity, 1)

    def _rate(self) -> Fraction:
        """ε/2m, or ε/m where all scores move the same way: the weight of one step."""
        steps = math.floor(_grid.in_steps(self.sensitivity, self._exponent) + 1)
        return Fraction(self.epsilon) / (steps if self.monotone else 2 * steps)

    def _steps(self, scores: Any) -> Int64:
        return _grid.to_grid(score_values(scores), self._exponent)
