"""Places where noise enters the fit of a linear model: what they have in common.

:class:`Noise` is what a user writes: a place and its settings, as in ``noise.Gradient(steps=100)``.
:class:`Problem` is what is to be fitted, in public facts. Both together make a :class:`Place`, which has an
event at once, and weights once the event was charged and the rows were read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tacit import events
from tacit.errors import InvalidValue, TacitError
from tacit.estimators.linear.losses import Loss
from tacit.estimators.linear.rows import ScaledRows
from tacit.randomness import Source
from tacit.relations import Relation, Unit, norm_sensitivity

__all__ = ["Noise", "Place", "Problem", "mean_loss"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Problem:
    """What is to be fitted, in public facts alone.

    ``loss`` and ``width`` (coordinates of a scaled row, the intercept last where there is one); ``penalty``
    λ of λ/2‖Θ‖² beside the *sum* of losses, None to let the place choose; ``population`` the public number
    of rows, if known.
    """

    loss: Loss
    width: int
    epsilon: float
    delta: float = 0.0
    relation: Relation = Relation.ADD_REMOVE
    unit: Unit = field(default_factory=Unit)
    penalty: float | None = None
    population: int | None = None
    intercept: bool = True

    @property
    def size(self) -> int:
        """How many weights there are."""
        return self.width * self.loss.outputs

    def sensitivity(self, bound: float) -> float:
        """How far one unit moves, in ℓ2, a sum over rows of vectors of norm at most ``bound``."""
        return self.unit.rows * norm_sensitivity(bound, self.relation)


@dataclass(frozen=True)
class Noise:
    """A place where noise enters, with its settings; all of them are public."""

    name: ClassVar[str]

    def place(self, problem: Problem) -> Place:
        """The place, made for ``problem``; refuses what it cannot fit."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Name and settings in plain values, for a model file."""
        return {"name": self.name, **dataclasses.asdict(self)}

    def _check_flag(self, setting: str) -> None:
        value = getattr(self, setting)
        if not isinstance(value, bool):
            raise InvalidValue(setting, value, "True or False")


class Place:
    """A place where noise enters. Made from a problem, it has an event; given rows, it has weights.

    Subclasses set the class of their ``settings`` and the ``losses`` that they fit, and in ``__init__``,
    from the problem alone, ``event``, ``kind`` ("exact" or "float64" noise) and ``notes``: lines that say
    which values were chosen, all of them public.
    """

    settings: ClassVar[type[Noise]]
    losses: ClassVar[tuple[type[Loss], ...]]

    event: events.Event
    kind: str = "float64"
    penalty: float = 0.0

    def __init__(self, problem: Problem, noise: Any = None) -> None:
        self.problem = problem
        self.noise: Any = self.settings() if noise is None else noise
        self.notes: list[str] = []
        if not isinstance(problem.loss, self.losses):
            loss = type(problem.loss).__name__.lower()
            raise InvalidValue("noise", self.noise.name, f"a place where {loss} loss can be fitted")

    def solve(self, rows: ScaledRows, source: Source) -> Array:
        """Weights (width, outputs) for scaled rows. Called once, after the event was charged."""
        raise NotImplementedError

    def for_population(self, population: int) -> Place:
        """The same place, of the same event, for a number of rows that was bought in the meantime."""
        settings = replace(self.noise, **self.fixed())
        made = type(self)(replace(self.problem, population=population), settings)
        if made.event != self.event:
            problem = "With the number of rows that was bought, the fit would cost something else."
            raise TacitError(problem, "Please report this.")
        return made

    def fixed(self) -> Mapping[str, Any]:
        """Settings that were chosen by the number of rows, and are part of the event."""
        return {}

    def spreads(self) -> tuple[float, float]:
        """Standard deviation per weight of noise in the objective, and of noise on the weights."""
        return 0.0, 0.0

    def noise_and_signal(self) -> tuple[float, float] | None:
        """The expected norm of the noise, and the largest norm of what it hides that the rows could give.

        Both are known from public facts; None where the number of rows is not, or no such bound is known.
        """
        return None

    def expected(self) -> str | None:
        """How good the weights can be expected to be, in one line, where theory tells from public facts."""
        return None

    def covariance(self) -> Array | None:
        """The covariance of the weights, privacy noise and sampling together, where it is public."""
        return None


def mean_loss(above: float, penalty: float) -> str:
    """A bound of the mean loss, in one line: what noise adds at most on average, and the penalty."""
    beside = f"{above:.3g} + {penalty:.3g}·‖w‖²"
    return f"mean loss expected at most {beside} above that of any weights w of scaled rows"
