"""What all places have in common: a public task in, an event out, and only then the rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from tacit import events
from tacit.errors import InvalidValue
from tacit.estimators.linear.losses import Loss
from tacit.estimators.linear.rows import Rows
from tacit.randomness import Source
from tacit.relations import Relation, Unit, norm_sensitivity

__all__ = ["Place", "Task"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Task:
    """What is to be fitted, in public facts alone.

    ``loss`` and ``width`` (coordinates of an inside row, the intercept last where there is one); ``penalty``
    λ of λ/2‖Θ‖² beside the *sum* of losses, None to let the place choose; ``rows`` the public number of
    rows, if known; ``options`` the place's own settings.
    """

    loss: Loss
    width: int
    epsilon: float
    delta: float = 0.0
    relation: Relation = Relation.ADD_REMOVE
    unit: Unit = field(default_factory=Unit)
    penalty: float | None = None
    rows: int | None = None
    intercept: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """How many weights there are."""
        return self.width * self.loss.outputs

    def sensitivity(self, bound: float) -> float:
        """How far one unit moves, in ℓ2, a sum over rows of vectors of norm at most ``bound``."""
        return self.unit.rows * norm_sensitivity(bound, self.relation)


class Place:
    """A place where noise enters. Made from a task, it has an event; given rows, it has weights.

    Subclasses set ``name``, the ``losses`` they fit and the ``settings`` they take, and in ``__init__``,
    from the task alone, ``event``, ``kind`` ("exact" or "float64" noise) and ``notes``: lines that tell what
    was chosen, all of it public.
    """

    name: ClassVar[str]
    losses: ClassVar[tuple[type[Loss], ...]]
    settings: ClassVar[tuple[str, ...]] = ()

    event: events.Event
    kind: str = "float64"
    penalty: float = 0.0

    def __init__(self, task: Task) -> None:
        self.task = task
        self.notes: list[str] = []
        for option in task.options:
            if option not in self.settings:
                known = ", ".join(self.settings) or "none"
                raise InvalidValue("options", option, f"known to noise={self.name!r}: {known}")
        if not isinstance(task.loss, self.losses):
            loss = type(task.loss).__name__.lower()
            raise InvalidValue("noise", self.name, f"a place where {loss} loss can be fitted")

    def solve(self, rows: Rows, source: Source) -> Array:
        """Weights (width, outputs) for inside rows. Called once, after the event was charged."""
        raise NotImplementedError

    def for_rows(self, rows: int) -> Place:
        """The same place, of the same event, for a number of rows that was bought in the meantime."""
        made = type(self)(replace(self.task, rows=rows, options={**self.task.options, **self.fixed()}))
        assert made.event == self.event
        return made

    def fixed(self) -> Mapping[str, Any]:
        """Settings that were chosen by the number of rows, and are part of the event."""
        return {}

    def spreads(self) -> tuple[float, float]:
        """Standard deviation per weight of noise in the objective, and of noise on the weights."""
        return 0.0, 0.0

    def covariance(self) -> Array | None:
        """The covariance of the weights, privacy noise and sampling together, where it is public."""
        return None


def gaussians(source: Source, shape: tuple[int, ...]) -> Array:
    """Standard normal numbers from the cryptographic stream."""
    return np.asarray(ndtri(source.uniforms(math.prod(shape)))).reshape(shape)


def radial(source: Source, shape: tuple[int, ...]) -> Array:
    """A vector with density ∝ e^{−‖v‖₂}: a uniform direction times a Gamma radius, in any shape."""
    size = math.prod(shape)
    direction = gaussians(source, shape)
    radius = -float(np.log(source.uniforms(size)).sum())
    return np.asarray(radius * direction / math.sqrt(float(np.square(direction).sum())))
