"""What all linear models share: from public facts to an event, to the charge, to the rows, to weights."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from tacit import _validate, events
from tacit.errors import InvalidValue, TacitError
from tacit.estimators.facts import Features
from tacit.estimators.losses import Loss
from tacit.estimators.newton import minimise
from tacit.estimators.noise import Place, Task, place_of
from tacit.estimators.rows import Rows, Space, bounded_groups
from tacit.guarantee import Guarantee
from tacit.ledger import Ledger
from tacit.randomness import Source
from tacit.relations import Relation, Unit

__all__ = ["LinearModel", "Planned"]

Array = NDArray[np.float64]

WITHOUT_PRIVACY = events.Pure(sys.float_info.max)
"""What a fit with epsilon = ∞ is recorded as."""


@dataclass(frozen=True)
class Planned:
    """What a fit will do and cost, known before any data are: print it."""

    epsilon: float
    delta: float
    relation: Relation
    unit: Unit
    parts: tuple[tuple[str, float], ...]
    notes: tuple[str, ...]
    event: events.Event
    kind: str

    def __str__(self) -> str:
        lines = [f"ε = {self.epsilon:g}, δ = {self.delta:g}, {self.relation} of one {self.unit}"]
        lines += [f"  {what:<12} ε = {cost:.4g}" for what, cost in self.parts]
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])


class LinearModel(BaseEstimator):  # type: ignore[misc]
    """Base of the private linear models. Parameters are public; only ``fit`` sees private rows."""

    _usual_penalty = 1.0
    """What scikit-learn's model penalises with if nothing is said."""

    def _loss(self) -> Loss:
        """The loss that the public parameters amount to."""
        raise NotImplementedError

    def _targets(self, y: NDArray[Any]) -> Array:
        """Targets (rows, outputs), NaN for a row that is not to count."""
        raise NotImplementedError

    def _keep(self, coefficients: Array, intercepts: Array) -> None:
        """Set ``coef_`` and ``intercept_`` in scikit-learn's shapes."""
        raise NotImplementedError

    def plan(self, features: int | Features) -> Planned:
        """What ``fit`` on this many features will do and cost. Reads no data.

        >>> from tacit.estimators import LogisticRegression
        >>> print(LogisticRegression(epsilon=1.0, norm=1.0, classes=[0, 1]).plan(4))
        ε = 1, δ = 0, add_remove of one row
          objective    ε = 1
          penalty 2.694, noise 2.694 per weight of the gradient
        """
        return self._prepare(features, groups=self.rows_per_group > 1)[0]

    def _prepare(self, given: int | Features, *, groups: bool) -> tuple[Planned, Place | None, Space]:
        features = given if isinstance(given, Features) else None
        width = len(features.names) if features is not None else _validate.count("features", given, 1)
        relation, unit = self._protected(groups)
        space = self._space(features, width)
        epsilon = self._epsilon()
        delta = _validate.delta(self.delta)
        notes: list[str] = []
        if math.isinf(epsilon):
            planned = Planned(epsilon, delta, relation, unit, (), ("no privacy",), WITHOUT_PRIVACY, "float64")
            return planned, None, space
        task = Task(
            self._loss(), space.width, epsilon, delta, relation, unit,
            penalty=self._penalty(space), rows=self._public_rows(), intercept=space.intercept > 0,
            options=self._options(),
        )  # fmt: skip
        place = place_of(self.noise, task)
        parts = ((self.noise, epsilon),)
        planned = Planned(
            epsilon, delta, relation, unit, parts, (*notes, *place.notes), place.event, place.kind
        )
        return planned, place, space

    def _epsilon(self) -> float:
        if isinstance(self.epsilon, float) and math.isinf(self.epsilon) and self.epsilon > 0:
            return math.inf
        return _validate.epsilon(self.epsilon)

    def _options(self) -> Mapping[str, Any]:
        if self.options is None:
            return {}
        if not isinstance(self.options, Mapping):
            raise InvalidValue("options", self.options, "names with values")
        return self.options

    def _public_rows(self) -> int | None:
        return None if self.n is None else _validate.count("n", self.n, 1)

    def _penalty(self, space: Space) -> float | None:
        """λ for inside rows, from C for outside ones."""
        if self.C is None:
            return None
        return 1 / (_validate.positive("C", self.C) * space.radius**2)

    def _space(self, features: Features | None, width: int) -> Space:
        intercept = bool(self.fit_intercept)
        norm = None if self.norm is None else _validate.positive("norm", self.norm)
        if self.bounds is not None:
            lower, upper = box(self.bounds, width)
        elif features is not None:
            lower, upper = np.array(features.lower), np.array(features.upper)
            norm = features.largest_norm if norm is None else norm
        else:
            lower, upper = np.full(width, -np.inf), np.full(width, np.inf)
        if norm is None and self.bounds is None:
            raise InvalidValue(
                "bounds",
                None,
                "given, or norm=",
                "Say what is publicly known: bounds=(lower, upper) of the features, norm= of a row, "
                "or a Preprocessor before.",
            )
        return Space.of(lower, upper, norm, intercept=intercept)

    def _protected(self, groups: bool) -> tuple[Relation, Unit]:
        relation = Relation.of(self.relation)
        most = _validate.count("rows_per_group", self.rows_per_group, 1)
        unit = Unit("group", most) if groups else Unit()
        if self.ledger is None:
            return relation, unit
        if not isinstance(self.ledger, Ledger):
            raise InvalidValue("ledger", self.ledger, "a tacit.Ledger")
        if self.ledger.relation is not relation:
            raise TacitError(
                f"The ledger promises privacy under {self.ledger.relation}, not {relation}.",
                f"Set relation={str(self.ledger.relation)!r}, or open another ledger.",
            )
        if (self.ledger.unit.column is not None) != groups or self.ledger.unit.rows != unit.rows:
            raise TacitError(
                f"The ledger protects one {self.ledger.unit}, not one {unit}.",
                "Give fit the groups= that the ledger's unit names, and as many rows_per_group.",
            )
        return relation, self.ledger.unit

    def fit(self, X: Any, y: Any, groups: Any = None) -> Any:
        """Fit to private rows; the charge is made before they are read.

        Rows with a value that is not finite, or with a target outside what is declared, contribute nothing.
        ``groups`` names the unit of each row, of which at most ``rows_per_group`` rows, chosen at random,
        are used.
        """
        features = getattr(X, "features", None)
        matrix = validate_data(
            self, X, dtype="numeric", ensure_all_finite=False, ensure_min_samples=0, accept_sparse=False
        )
        labels = _column(y, len(matrix))
        described = features if isinstance(features, Features) else matrix.shape[1]
        planned, place, space = self._prepare(described, groups=groups is not None)
        if self.verbose:
            print(planned)
        source = Source(self.random_state)
        with self._charge(planned):
            keep = None
            if groups is not None:
                keep = bounded_groups(_column(groups, len(matrix)), planned.unit.rows, source)
            rows = Rows(matrix, self._targets(labels), space, keep)
            weights = self._without_noise(rows, space) if place is None else place.solve(rows, source)
        self._keep(*space.outside(weights))
        self.event_ = planned.event
        kind = "seeded" if source.seeded else planned.kind
        self.guarantee_ = Guarantee(
            planned.epsilon, planned.delta, planned.event, planned.relation, planned.unit, kind,
            ("the parameters of the model were chosen without the data",),
        )  # fmt: skip
        return self

    def _charge(self, planned: Planned) -> AbstractContextManager[Any]:
        if self.ledger is None:
            return nullcontext()
        if math.isinf(planned.epsilon):
            raise InvalidValue("epsilon", math.inf, "finite where a ledger is charged")
        kind = planned.kind if self.random_state is None else "seeded"
        label = self.label or f"{type(self).__name__} with noise in the {self.noise}"
        charge: AbstractContextManager[Any] = self.ledger.charge(
            planned.event, label, delta=planned.delta or None, noise=kind
        )
        return charge

    def _without_noise(self, rows: Rows, space: Space) -> Array:
        given = self._penalty(space)
        penalty = np.full(rows.width, self._usual_penalty / space.radius**2 if given is None else given)
        if space.intercept > 0:
            penalty[-1] = 0.0
        tilt = np.zeros((rows.width, rows.outputs))
        return minimise(self._loss(), rows, penalty, tilt, 1e-7)

    def _scores(self, X: Any) -> Array:
        check_is_fitted(self, "coef_")
        matrix = validate_data(self, X, dtype="numeric", reset=False, accept_sparse=False)
        return np.asarray(matrix @ np.atleast_2d(self.coef_).T + self.intercept_)


def box(bounds: Any, width: int) -> tuple[Array, Array]:
    """Lower and upper bounds of each feature, from a pair of numbers or of arrays."""
    requirement = "a pair (lower, upper) of numbers, or of one number per feature"
    if isinstance(bounds, str) or not isinstance(bounds, Sequence) or len(bounds) != 2:
        raise InvalidValue("bounds", bounds, requirement)
    try:
        lower, upper = (np.broadcast_to(np.asarray(b, dtype=float), (width,)).copy() for b in bounds)
    except (TypeError, ValueError):
        raise InvalidValue("bounds", bounds, f"{requirement}, of which there are {width}") from None
    if not (np.isfinite(lower).all() and np.isfinite(upper).all() and (lower < upper).all()):
        raise InvalidValue("bounds", bounds, "finite, lower below upper")
    return lower, upper


def _column(values: Any, rows: int) -> NDArray[Any]:
    array = np.asarray(values)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or len(array) != rows:
        raise InvalidValue("y", array.shape, f"one value for each row of X, ({rows},)")
    return array
