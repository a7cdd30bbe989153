"""What all linear models share: from public facts to an event, to the charge, to the rows, to weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from tacit import _validate, events
from tacit.data import given
from tacit.data.arithmetic import products
from tacit.data.features import Features, box
from tacit.data.units import bounded_groups
from tacit.errors import InvalidValue, TacitError
from tacit.estimators.linear.curvature import CurvaturePurchase, weight_covariance
from tacit.estimators.linear.losses import Loss
from tacit.estimators.linear.newton import minimise
from tacit.estimators.linear.noise import Place, Task, place_of
from tacit.estimators.linear.rows import Rows, Space
from tacit.estimators.purchases import BoundsPurchase, CountPurchase
from tacit.guarantee import Guarantee
from tacit.ledger import Ledger
from tacit.models.description import CONFIDENCE, Description, Weight, numbered
from tacit.randomness import Source
from tacit.relations import Relation, Unit

__all__ = ["LinearModel", "Planned"]

Array = NDArray[np.float64]

COUNT_SHARE, BOUNDS_SHARE = 0.02, 0.1
"""The parts of ε that n="dp" and bounds="dp" spend."""
USUAL_ROWS = 10_000
"""What is planned with until the number of rows has been bought."""


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


@dataclass(frozen=True)
class _Prepared:
    """A plan with everything that carries it out; without a place there is no noise."""

    planned: Planned
    space: Space
    place: Place | None = None
    count: CountPurchase | None = None
    box: BoundsPurchase | None = None
    curvature: CurvaturePurchase | None = None


class LinearModel(BaseEstimator):  # type: ignore[misc]
    """Base of the private linear models. Parameters are public; only ``fit`` sees private rows."""

    _usual_penalty = 1.0
    """What scikit-learn's model penalises with if nothing is said."""
    _title = "linear model"

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
          penalty 1.768, noise 1.768 per weight of the gradient
        """
        return self._prepare(features, groups=self.rows_per_group > 1).planned

    def _prepare(self, described: int | Features, *, groups: bool) -> _Prepared:
        features = described if isinstance(described, Features) else None
        width = len(features.names) if features is not None else _validate.count("features", described, 1)
        relation, unit = self._protected(groups)
        epsilon, delta = self._epsilon(), _validate.delta(self.delta)
        space = self._space(features, width)
        if math.isinf(epsilon):
            nothing = events.WITHOUT_PRIVACY
            planned = Planned(epsilon, delta, relation, unit, (), ("no privacy",), nothing, "float64")
            return _Prepared(planned, space)
        shares = self._shares()
        costs = {name: share * epsilon for name, share in shares.items()}
        count = box = curvature = None
        bought: list[events.Event] = []
        rows = None if self.n == "dp" else self._public_rows()
        if "n" in shares:
            count = CountPurchase(costs["n"], relation, unit)
            bought.append(count.event)
            rows = USUAL_ROWS
        left = delta
        if "bounds" in shares:
            box = BoundsPurchase(costs["bounds"], shares["bounds"] * delta, width, relation, unit)
            bought.append(box.event)
            left -= shares["bounds"] * delta
        interval_delta = shares.get("intervals", 0.0) * delta
        task = Task(
            self._loss(), space.width, epsilon - math.fsum(costs.values()), left - interval_delta, relation,
            unit, penalty=self._penalty(space), rows=rows, intercept=space.intercept > 0,
            options=self._options(),
        )  # fmt: skip
        place = place_of(self.noise, task)
        if "intervals" in shares:
            curvature = CurvaturePurchase(costs["intervals"], interval_delta, task)
            bought.append(curvature.event)
        event = events.Compose((place.event, *bought)) if bought else place.event
        parts = ((self.noise, task.epsilon), *costs.items())
        planned = Planned(epsilon, delta, relation, unit, parts, tuple(place.notes), event, place.kind)
        return _Prepared(planned, space, place, count, box, curvature)

    def _shares(self) -> dict[str, float]:
        """Which part of ε buys what is not declared."""
        shares = {}
        if isinstance(self.n, str):
            _validate.choice("n", self.n, ("dp",))
            shares["n"] = COUNT_SHARE
        if isinstance(self.bounds, str):
            _validate.choice("bounds", self.bounds, ("dp",))
            shares["bounds"] = BOUNDS_SHARE
        if getattr(self, "intervals", 0.0):
            shares["intervals"] = _validate.open_probability("intervals", self.intervals)
            if self._loss().outputs > 1:
                raise InvalidValue("intervals", self.intervals, "0 where there are more than two classes")
            if self.noise not in ("objective", "output"):
                places = "0 unless noise is in the objective or on the output"
                raise InvalidValue("intervals", self.intervals, places)
        if math.fsum(shares.values()) >= 1:
            raise InvalidValue("intervals", shares, "such that a part of ε is left for the fit")
        return shares

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
        if isinstance(self.bounds, str):
            lower, upper = np.full(width, -1.0), np.full(width, 1.0)
        elif self.bounds is not None:
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
                "Say what is publicly known: bounds=(lower, upper) of the features, norm= of a row, or a "
                "Preprocessor before. Or buy them with a part of ε: bounds='dp'.",
            )
        return Space.of(lower, upper, norm, intercept=intercept)

    def _declared_width(self) -> int | None:
        """The number of features that the bounds declare, None where they declare none."""
        if self.bounds is None or isinstance(self.bounds, str) or not isinstance(self.bounds, Sequence):
            return None
        shapes = {np.shape(bound) for bound in self.bounds} - {()}
        return shapes.pop()[0] if len(shapes) == 1 else None

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
        are used. In a list, a row of another length than the bounds declare, or than most rows have,
        contributes nothing either.
        """
        features = getattr(X, "features", None)
        matrix = given.declared_matrix(X, self._declared_width())
        validate_data(self, X if hasattr(X, "columns") else matrix, skip_check_array=True)
        labels = given.column("y", y, len(matrix))
        described = features if isinstance(features, Features) else matrix.shape[1]
        prepared = self._prepare(described, groups=groups is not None)
        planned, space, place = prepared.planned, prepared.space, prepared.place
        if self.verbose:
            print(planned)
        source = Source(self.random_state)
        with self._charge(planned):
            keep = None
            if groups is not None:
                named = given.column("groups", groups, len(matrix))
                keep = bounded_groups(named, planned.unit.rows, source)
            if prepared.box is not None:
                bounds = prepared.box.buy(matrix, keep, source)
                space = Space.of(*bounds, None, intercept=space.intercept > 0)
            if prepared.count is not None and place is not None:
                used = len(matrix) if keep is None else int(keep.sum())
                place = place.for_rows(prepared.count.buy(used, source))
            rows = Rows(matrix, self._targets(labels), space, keep)
            weights = self._without_noise(rows, space) if place is None else place.solve(rows, source)
            errors = self._errors(prepared, place, rows, weights, source)
        self._keep(*space.outside(weights))
        self.bounds_ = None if self.bounds is None else np.array([space.lower, space.upper])
        if errors is not None:
            self._keep_errors(space, errors)
        self.event_ = planned.event
        kind = "seeded" if source.seeded else planned.kind
        self.guarantee_ = Guarantee(
            planned.epsilon, planned.delta, planned.event, planned.relation, planned.unit, kind,
            ("the parameters of the model were chosen without the data",
             *given.assumed(X, self._declared_width())),
        )  # fmt: skip
        return self

    def describe(self) -> Description:
        """What may be said of the fitted model: title, classes, coefficients with their intervals, if any."""
        check_is_fitted(self, "coef_")
        values = np.atleast_2d(self.coef_)
        names = getattr(self, "feature_names_in_", numbered(values.shape[1]))
        classes = tuple(getattr(self, "classes_", ()))
        errors = getattr(self, "coef_error_", None)
        spread = np.full(values.shape, np.nan) if errors is None else np.reshape(errors, values.shape)
        reach = ndtri((1 + CONFIDENCE) / 2) * spread
        outputs = [str(label) for label in classes] if len(values) > 1 else [""]
        weights = [
            Weight(output, str(name), float(value), *([] if errors is None else [value - wide, value + wide]))
            for output, line, wides in zip(outputs, values, reach, strict=True)
            for name, value, wide in zip(names, line.tolist(), wides.tolist(), strict=True)
        ]
        weights.sort(key=lambda one: -abs(one.value))
        return Description(self._title, (), classes, tuple(weights))

    def _errors(
        self, prepared: _Prepared, place: Place | None, rows: Rows, weights: Array, source: Source
    ) -> Array | None:
        """The covariance of the weights of one output, where it is public or was bought."""
        if place is None or prepared.curvature is None:
            return None if place is None else place.covariance()
        hessian = prepared.curvature.buy(rows, weights, source)
        return weight_covariance(self._loss(), hessian, place.penalty, *place.spreads())

    def _keep_errors(self, space: Space, covariance: Array) -> None:
        """Standard errors of coefficients and intercept, privacy noise included."""
        coefficients, intercepts = space.outside(np.eye(space.width))
        moved = np.column_stack([coefficients, intercepts]).T * self._unit_of_target()
        errors = np.sqrt(np.einsum("ij,jk,ik->i", moved, covariance, moved))
        self.coef_error_, self.intercept_error_ = errors[:-1], float(errors[-1])

    def _unit_of_target(self) -> float:
        """What a target of 1 inside is outside."""
        return 1.0

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
        chosen = self._penalty(space)
        penalty = np.full(rows.width, self._usual_penalty / space.radius**2 if chosen is None else chosen)
        if space.intercept > 0:
            penalty[-1] = 0.0
        tilt = np.zeros((rows.width, rows.outputs))
        return minimise(self._loss(), rows, penalty, tilt, 1e-7)

    def _scores(self, X: Any) -> Array:
        """The scores of each row, from that row alone."""
        check_is_fitted(self, "coef_")
        matrix = validate_data(self, X, dtype="numeric", reset=False, accept_sparse=False)
        if self.bounds_ is not None:
            matrix = np.clip(matrix, *self.bounds_)
        scores: Array = products(matrix, np.atleast_2d(self.coef_).T) + self.intercept_
        return scores
