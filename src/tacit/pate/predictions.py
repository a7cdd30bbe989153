"""What aggregators of the teachers' predictions share, where a prediction is more than one class.

Predictions are one array with the teacher as its first axis. They are private; their shape is public. A
record is seen by one teacher, so a neighbour differs in the predictions of one teacher, on every query.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import _validate, events
from tacit.errors import InvalidValue
from tacit.guarantee import Guarantee
from tacit.pate.releasing import agreed, guarantee_of, source_of
from tacit.pate.votes import as_array, described
from tacit.randomness import Source
from tacit.relations import Relation, Unit

__all__ = ["PredictionAggregator", "Predictions"]


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions that may be published: ``values``, one row or number per query, and their ``guarantee``."""

    values: NDArray[Any]
    guarantee: Guarantee

    @property
    def asked(self) -> int:
        """How many queries were asked; all of them were answered."""
        return len(self.values)


@dataclass(frozen=True)
class PredictionAggregator:
    """Base of the aggregators of predictions: every query is answered."""

    teachers: int = field(kw_only=True)

    def __post_init__(self) -> None:
        self._keep("teachers", _validate.count("teachers", self.teachers, 1))

    def _keep(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _answer_event(self) -> events.Event:
        """One answer."""
        raise NotImplementedError

    def _shape(self) -> tuple[int, ...]:
        """The shape of one prediction of one teacher."""
        return ()

    def _combined(self, predictions: NDArray[Any], source: Source) -> NDArray[Any]:
        """One prediction per query, by noise from ``source``."""
        raise NotImplementedError

    def event(self, *, asked: int) -> events.Event:
        """What is charged for ``asked`` queries."""
        return events.Repeat(self._answer_event(), _validate.count("asked", asked))

    def answer(self, predictions: ArrayLike, *, random_state: int | Source | None = None) -> NDArray[Any]:
        """One prediction per query. The mechanism alone: whoever calls it charges :meth:`event`."""
        return self._combined(self._checked(predictions), source_of(random_state))

    def release(
        self,
        predictions: ArrayLike | Callable[[], ArrayLike],
        *,
        asked: int | None = None,
        ledger: Any = None,
        delta: float = 0.0,
        relation: Relation | str | None = None,
        unit: Unit | None = None,
        label: str | None = None,
        random_state: int | Source | None = None,
    ) -> Predictions:
        """Predictions that are charged before those of the teachers are used, with their guarantee.

        ``predictions`` is an array, or a function that returns one and is called inside the charge; then
        ``asked`` says how many queries it has.
        """
        read: Callable[[], NDArray[Any]]
        if callable(predictions):
            function, queries = predictions, _validate.count("asked", asked)

            def read() -> NDArray[Any]:
                return self._checked(function(), queries)

        else:
            given = self._checked(predictions, asked)
            queries = given.shape[1]

            def read() -> NDArray[Any]:
                return given

        source = source_of(random_state)
        payment = agreed(ledger, relation, unit)
        event = self.event(asked=queries)
        guarantee = guarantee_of(event, delta, payment, source)
        name = label or f"{type(self).__name__} on {queries} queries"
        with payment.charge(event, name, noise=guarantee.noise, delta=delta):
            values = self._combined(read(), source)
        return Predictions(values, guarantee)

    def _checked(self, predictions: Any, queries: int | None = None) -> NDArray[Any]:
        """An array of shape (teachers, queries, …). Its shape and type are checked, no value is read."""
        array = as_array("predictions", predictions)
        asked = array.shape[1] if array.ndim > 1 else 0
        wanted = (self.teachers, asked if queries is None else queries, *self._shape())
        if array.ndim < 2 or array.shape != wanted:
            shown = ", ".join(
                ["queries" if queries is None and i == 1 else str(n) for i, n in enumerate(wanted)]
            )
            raise InvalidValue("predictions", described(array), f"of shape ({shown})")
        return np.asarray(array)
