"""LinearModel: what all private linear models share, on the skeleton of :mod:`tacit.estimators.private`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from sklearn.utils.validation import check_is_fitted, validate_data

from tacit import _validate, events
from tacit.data import given
from tacit.data.arithmetic import products
from tacit.data.features import Features, box
from tacit.errors import InvalidValue
from tacit.estimators.linear import noise as places
from tacit.estimators.linear.curvature import CurvaturePurchase, weight_covariance
from tacit.estimators.linear.losses import Loss
from tacit.estimators.linear.newton import minimise
from tacit.estimators.linear.noise.place import Noise, Place, Problem
from tacit.estimators.linear.rows import ScaledRows, Space
from tacit.estimators.private import PrivateEstimator, PrivateRows, Public, Recipe
from tacit.estimators.purchases import Purchases
from tacit.models.description import Weight
from tacit.randomness import Source

__all__ = ["LinearModel"]

Array = NDArray[np.float64]

USUAL_POPULATION = 10_000
"""The number of rows that is planned with until it has been bought."""
CONFIDENCE = 0.95
"""Of the intervals of coefficients."""


@dataclass(frozen=True)
class LinearRecipe(Recipe):
    """How a linear model will be fitted: the scaled rows, the place of the noise, and what is bought."""

    space: Space = None  # type: ignore[assignment]
    place: Place | None = None
    """None where there is to be no noise."""
    bought: Purchases | None = None
    curvature: CurvaturePurchase | None = None


class LinearModel(PrivateEstimator):
    """Base of the private linear models: scores xᵀθ + constant, with noise at one of several places."""

    fits_without_noise = True
    released: ClassVar[tuple[str, ...]] = (
        "coef_", "intercept_", "coef_error_", "intercept_error_", "bounds_",
        "n_features_in_", "feature_names_in_",
    )  # fmt: skip
    predicts_from: ClassVar[tuple[str, ...]] = ("coef_", "intercept_", "bounds_")
    usual_penalty: ClassVar[float] = 1.0
    """The penalty of scikit-learn's model where none is given."""

    def _loss(self) -> Loss:
        """The loss that the public parameters amount to."""
        raise NotImplementedError

    def _targets(self, y: NDArray[Any]) -> Array:
        """Targets (rows, outputs), NaN for a row that is not to count."""
        raise NotImplementedError

    def _keep(self, coefficients: Array, intercepts: Array) -> None:
        """Set ``coef_`` and ``intercept_`` in scikit-learn's shapes."""
        raise NotImplementedError

    def _noise(self) -> Noise:
        """Where noise enters, with its settings."""
        return places.noise_of(self.noise)

    def _recipe(self, public: Public) -> LinearRecipe:
        noise, space = self._noise(), self._space(public.features, public.width)
        if math.isinf(public.epsilon):
            return LinearRecipe(events.WITHOUT_PRIVACY, "float64", (), ("no privacy",), space)
        others = self._other_shares(noise)
        bought = Purchases.of(public, population=self.population, bounds=self.bounds, others=others)
        problem = Problem(
            self._loss(), space.width, bought.epsilon, bought.delta, public.relation, public.unit,
            penalty=self._penalty(space), population=self._planned_population(),
            intercept=space.intercept > 0,
        )  # fmt: skip
        place = noise.place(problem)
        curvature, costs = None, bought.costs
        if "intervals" in others:
            share = others["intervals"]
            curvature = CurvaturePurchase(share * public.epsilon, share * public.delta, problem)
            costs = (*costs, curvature.event)
        event = events.Compose((place.event, *costs)) if costs else place.event
        parts = ((noise.name, bought.epsilon), *bought.parts)
        return LinearRecipe(event, place.kind, parts, tuple(place.notes), space, place, bought, curvature)

    def _other_shares(self, noise: Noise) -> Mapping[str, float]:
        """The part of ε that buys standard errors."""
        share = getattr(self, "interval_share", 0.0)
        if not share:
            return {}
        if self._loss().outputs > 1:
            raise InvalidValue("interval_share", share, "0 where there are more than two classes")
        if noise.name not in ("objective", "output"):
            needed = "0 unless noise is in the objective or on the output"
            raise InvalidValue("interval_share", share, needed)
        return {"intervals": _validate.open_probability("interval_share", share)}

    def _planned_population(self) -> int | None:
        if self.population is None:
            return None
        if self.population == "dp":
            return USUAL_POPULATION
        return _validate.count("population", self.population, 1)

    def _penalty(self, space: Space) -> float | None:
        """λ for scaled rows, from C for rows as they are given."""
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
        if self.bounds is None or isinstance(self.bounds, str) or not isinstance(self.bounds, Sequence):
            return None
        shapes = {np.shape(bound) for bound in self.bounds} - {()}
        return shapes.pop()[0] if len(shapes) == 1 else None

    def _usual_label(self) -> str:
        return f"{type(self).__name__} with noise in the {self._noise().name}"

    def _carry_out(self, recipe: LinearRecipe, rows: PrivateRows, source: Source) -> None:
        space, place = recipe.space, recipe.place
        if recipe.bought is not None and place is not None:
            bounds = recipe.bought.buy_bounds(rows, source)
            if bounds is not None:
                space = Space.of(*bounds, None, intercept=space.intercept > 0)
            population = recipe.bought.buy_population(rows, source)
            if population is not None:
                place = place.for_population(population)
        scaled = ScaledRows(rows.matrix, self._targets(np.asarray(rows.targets)), space, rows.keep)
        weights = self._without_noise(scaled, space) if place is None else place.solve(scaled, source)
        covariance = self._covariance(recipe, place, scaled, weights, source)
        self._keep(*space.unscaled(weights))
        self.bounds_ = None if self.bounds is None else np.array([space.lower, space.upper])
        if covariance is not None:
            self._keep_errors(space, covariance)

    def _covariance(
        self, recipe: LinearRecipe, place: Place | None, rows: ScaledRows, weights: Array, source: Source
    ) -> Array | None:
        """The covariance of the weights of one output, where it is public or was bought."""
        if place is None or recipe.curvature is None:
            return None if place is None else place.covariance()
        hessian = recipe.curvature.buy(rows, weights, source)
        return weight_covariance(hessian, place.penalty, *place.spreads())

    def _keep_errors(self, space: Space, covariance: Array) -> None:
        """Standard errors of coefficients and intercept, privacy noise included."""
        coefficients, intercepts = space.unscaled(np.eye(space.width))
        moved = np.column_stack([coefficients, intercepts]).T * self._target_scale()
        errors = np.sqrt(np.einsum("ij,jk,ik->i", moved, covariance, moved))
        self.coef_error_, self.intercept_error_ = errors[:-1], float(errors[-1])

    def _target_scale(self) -> float:
        """The change of the target, in its own units, that a change of 1 in the scaled target stands for."""
        return 1.0

    def _without_noise(self, rows: ScaledRows, space: Space) -> Array:
        chosen = self._penalty(space)
        penalty = np.full(rows.width, self.usual_penalty / space.radius**2 if chosen is None else chosen)
        if space.intercept > 0:
            penalty[-1] = 0.0
        tilt = np.zeros((rows.width, rows.outputs))
        return minimise(self._loss(), rows, penalty, tilt, 1e-7)

    def _scores(self, X: Any) -> Array:
        """The scores of each row, from that row alone; NaN for a row that a fit would skip."""
        check_is_fitted(self, "coef_")
        given.require_numbers(X)
        matrix = given.declared_matrix(X, self.n_features_in_)
        validate_data(self, X if hasattr(X, "columns") else matrix, reset=False, skip_check_array=True)
        matrix = np.where(np.isfinite(matrix).all(axis=1)[:, None], matrix, np.nan)
        if self.bounds_ is not None:
            matrix = np.clip(matrix, *np.reshape(self.bounds_, (2, matrix.shape[1])))
        weights = np.atleast_2d(self.coef_).T
        constants = np.broadcast_to(self.intercept_, weights.shape[1:])
        return np.asarray(products(matrix, weights) + constants)

    def _facts(self) -> tuple[tuple[str, str], ...]:
        return (("noise", self._noise().name), ("features", str(self.n_features_in_)))

    def _weights(self, names: Sequence[str]) -> tuple[Weight, ...]:
        """Every coefficient, the largest first, with an interval that includes the privacy noise, if any."""
        values = np.atleast_2d(self.coef_)
        low, high = self._intervals(values)
        outputs = [str(label) for label in np.asarray(self.classes_).tolist()] if len(values) > 1 else [""]
        found = [
            Weight(output, feature, float(values[i, j]), low and low[i][j], high and high[i][j])
            for i, output in enumerate(outputs)
            for j, feature in enumerate(names)
        ]
        return tuple(sorted(found, key=lambda one: -abs(one.value)))

    def _intervals(self, values: Array) -> tuple[Any, Any]:
        """Values less and plus so many standard errors, which include the privacy noise."""
        errors = getattr(self, "coef_error_", None)
        if errors is None:
            return None, None
        width = ndtri((1 + CONFIDENCE) / 2) * np.asarray(errors, dtype=float).reshape(values.shape)
        return (values - width).tolist(), (values + width).tolist()

    def _to_saved(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """As the skeleton does, with typed noise as its name and settings."""
        state, arrays = super()._to_saved()
        if isinstance(self.noise, Noise):
            state["params"]["noise"] = self.noise.to_dict()
        return state, arrays

    @classmethod
    def _from_saved(cls, state: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Any:
        params = dict(state["params"])
        if isinstance(params.get("noise"), Mapping):
            params["noise"] = places.noise_from_dict(params["noise"])
        return super()._from_saved({**state, "params": params}, arrays)
