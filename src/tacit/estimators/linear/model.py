"""LinearModel: what all private linear models share, on the skeleton of :mod:`tacit.estimators.private`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from sklearn.utils.validation import check_is_fitted, validate_data

from tacit import _validate, events
from tacit.data import given
from tacit.data.arithmetic import products
from tacit.data.features import Features
from tacit.errors import InvalidValue
from tacit.estimators.blocks import PrivateRows, Rows, added
from tacit.estimators.linear import noise as places
from tacit.estimators.linear.curvature import CurvaturePurchase, weight_covariance
from tacit.estimators.linear.losses import Loss
from tacit.estimators.linear.newton import minimise
from tacit.estimators.linear.noise.place import Noise, Place, Problem
from tacit.estimators.linear.rows import ScaledBlocks, ScaledRows, Space, complete
from tacit.estimators.linear.weights import (
    CLASS_SHARE,
    ClassPurchase,
    class_counts,
    class_weights,
    inverses,
    largest_weight,
    row_weights,
)
from tacit.estimators.private import PrivateEstimator, Public, Recipe
from tacit.estimators.purchases import Purchases
from tacit.models.description import Weight
from tacit.randomness import Source

__all__ = ["LinearModel"]

Array = NDArray[np.float64]

USUAL_POPULATION = 10_000
"""The number of rows that is planned with until it has been bought."""
CONFIDENCE = 0.95
"""Of the intervals of coefficients."""
DROWNED, CLEAR = 0.5, 0.05
"""Noise beside the largest signal, as norms: a fit with more than the first cannot be expected to learn
anything, as only rows that all say the same give the largest signal. On Adult, with noise at any place,
accuracy is that of the larger class from there on; with the second, and noise in the objective, about half of
what can be won over it is won (``benchmarks/learning.py``)."""


@dataclass(frozen=True)
class LinearRecipe(Recipe):
    """How a linear model will be fitted: the scaled rows, the place of the noise, and what is bought."""

    space: Space = None  # type: ignore[assignment]
    place: Place | None = None
    """None where there is to be no noise."""
    bought: Purchases | None = None
    curvature: CurvaturePurchase | None = None
    sizes: ClassPurchase | None = None
    """The purchase of the sizes of the classes, where their weights are to be balanced."""


class LinearModel(PrivateEstimator):
    """Base of the private linear models: scores xᵀθ + constant, with noise at one of several places."""

    fits_without_noise = True
    fits_tables = True
    buys_population = True
    released: ClassVar[tuple[str, ...]] = (
        "coef_", "intercept_", "coef_error_", "intercept_error_", "bounds_",
        "n_features_in_", "feature_names_in_",
    )  # fmt: skip
    predicts_from: ClassVar[tuple[str, ...]] = ("coef_", "intercept_", "bounds_", "norm")
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

    def fit(self, X: Any, y: Any = None, units: Any = None, sample_weight: Any = None) -> Any:
        """Fit to private rows in memory; the charge is made before they are used.

        A value that is not finite is missing, and counts as the middle of its bounds (as 0 where only a norm
        is known), as in ``predict``; a row without any value, or with a target outside what is declared,
        contributes nothing. ``units`` names the unit of each row, of which at most ``rows_per_unit`` rows,
        chosen at random, are used. ``sample_weight`` says how much each row counts; weights are clipped to
        [0, ``weight_bound``]. In a list, a row of another length than the bounds declare, or than most rows
        have, contributes nothing either.
        """
        if sample_weight is None and self.weight_bound != 1:
            advice = "Hand weights over, or leave weight_bound= out."
            raise InvalidValue("weight_bound", self.weight_bound, "1 without sample_weight", advice)
        errors = bool(getattr(self, "interval_share", 0.0)) or self._residuals()
        if sample_weight is not None and errors:
            needed = "left out where standard errors are bought: those of weighted rows are not known"
            raise InvalidValue("sample_weight", "given", needed)
        return self._fit_taken(self._taken(X, y, units, sample_weight))

    def _fits_tables(self) -> bool:
        """Not with individual accounting, which has to know the rows again in every pass."""
        return super()._fits_tables() and getattr(self._noise(), "participations", None) is None

    def _residuals(self) -> bool:
        """Whether standard errors come with the statistics."""
        return bool(getattr(self._noise(), "residuals", False))

    def _class_weights(self) -> Array | None:
        """The declared weight of each class, where there are some."""
        if getattr(self, "class_weight", None) is None:
            return None
        if getattr(self, "interval_share", 0.0):
            raise InvalidValue("class_weight", self.class_weight, "left out where interval_share= is given")
        return class_weights(self.class_weight, self._labels())

    def _labels(self) -> list[Any]:
        """The declared classes, none for a number."""
        return []

    def _balanced(self) -> bool:
        return isinstance(getattr(self, "class_weight", None), str) and self._class_weights() is None

    def _recipe(self, public: Public) -> LinearRecipe:
        noise, space = self._noise(), self._space(public.features, public.width)
        if math.isinf(public.epsilon):
            return LinearRecipe(events.WITHOUT_PRIVACY, "float64", (), ("no privacy",), space)
        others = dict(self._other_shares(noise))
        sizes = None
        if self._balanced():
            others["classes"] = CLASS_SHARE
            spent = CLASS_SHARE * public.epsilon
            sizes = ClassPurchase(spent, tuple(self._labels()), public.relation, public.unit)
        bought = Purchases.of(public, population=self.population, bounds=self.bounds, others=others)
        problem = Problem(
            self._loss(), space.width, bought.epsilon, bought.delta, public.relation, public.unit,
            penalty=self._weighed(self._penalty(space)), population=self._planned_population(),
            intercept=space.intercept > 0,
        )  # fmt: skip
        place = noise.place(problem)
        curvature = None
        costs = bought.costs
        if sizes is not None:
            costs = (*costs, sizes.event)
        if "intervals" in others:
            share = others["intervals"]
            curvature = CurvaturePurchase(share * public.epsilon, share * public.delta, problem)
            costs = (*costs, curvature.event)
        event = events.Compose((place.event, *costs)) if costs else place.event
        parts = ((noise.name, bought.epsilon), *bought.parts)
        expected, doubts = self._outlook(public, place)
        return LinearRecipe(
            event, place.kind, parts, tuple(place.notes), space, place, bought, curvature, sizes,
            expected=expected, doubts=doubts,
        )  # fmt: skip

    def _outlook(self, public: Public, place: Place) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What may be expected of the fit, and why it cannot learn anything, from public facts alone.

        Where the number of rows is not declared, there is no doubt, only how many rows it would take.
        """
        declared = self.population is not None and not isinstance(self.population, str)
        rows = self.population if declared else USUAL_POPULATION
        supposed = copy(place)
        supposed.problem = replace(place.problem, population=rows)
        found = supposed.noise_and_signal()
        if found is None:
            return (), ()
        noise, signal = found
        ratio = noise / signal
        if not declared:
            return (f"takes about {math.ceil(rows * ratio / CLEAR)} rows or more to learn from",), ()
        lines = (f"noise of norm {noise:.3g} beside a signal of at most {signal:.3g}", place.expected())
        expected = tuple(line for line in lines if line is not None)
        if ratio < DROWNED:
            return expected, ()
        more = math.ceil(ratio / CLEAR)
        doubt = (
            f"This fit cannot be expected to learn anything: its noise has an expected norm of {noise:.3g}, "
            f"and {rows} rows could give a signal of {signal:.3g} if they all said the same, less as they "
            "differ. "
            f"About {more} times the rows ({rows * more}), or ε = {public.epsilon * more:.3g} instead of "
            f"{public.epsilon:.3g}, would do; so would fewer columns: there are {public.width} features."
        )
        return expected, (doubt,)

    def _weighed(self, penalty: float | None) -> float | None:
        """λ beside weights that were divided by their bound."""
        bound = largest_weight(self.weight_bound, self._class_weights())
        return None if penalty is None else penalty / bound

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
        if isinstance(self.bounds, str):
            norm = None if self.norm is None else _validate.positive("norm", self.norm)
            return Space.of(np.full(width, -1.0), np.full(width, 1.0), norm, intercept=intercept)
        return Space.declared(
            width, bounds=self.bounds, norm=self.norm, features=features, intercept=intercept,
            otherwise="Or buy them with a part of ε: bounds='dp'.",
        )  # fmt: skip

    def _usual_label(self) -> str:
        name = self._noise().name
        where = "adaptive noise" if name == "adaptive" else f"noise in the {name}"
        return f"{type(self).__name__} with {where}"

    def _carry_out(self, recipe: LinearRecipe, rows: Rows, source: Source) -> None:
        space, place = recipe.space, recipe.place
        if recipe.bought is not None and place is not None:
            bounds = recipe.bought.buy_bounds(rows, source)
            if bounds is not None:
                space = Space.of(*bounds, None, intercept=space.intercept > 0)
            population = recipe.bought.buy_population(rows, source)
            if population is not None:
                place = place.for_population(population)
        classes = self._balance(recipe, rows, source)

        def scale(block: PrivateRows) -> ScaledRows:
            targets = np.asarray(block.targets)
            counted = self._row_weights(block, targets, classes)
            return ScaledRows(block.matrix, self._targets(targets), space, block.keep, counted)

        scaled = ScaledBlocks(rows.each(scale), space, self._loss().outputs)
        weights = self._without_noise(scaled, space) if place is None else place.solve(scaled, source)
        covariance = self._covariance(recipe, place, scaled, weights, source)
        self._keep(*space.unscaled(weights))
        self.bounds_ = None if self.bounds is None else np.array([space.lower, space.upper])
        if covariance is not None:
            self._keep_errors(space, covariance)

    def _balance(self, recipe: LinearRecipe, rows: Rows, source: Source) -> Array | None:
        """The weight of each class, declared or from their sizes; None where all weigh the same."""
        if recipe.sizes is None and not self._balanced():
            return self._class_weights()
        labels = self._labels()
        counts = added(rows.each(lambda block: class_counts(np.asarray(block.targets), block.keep, labels)))
        return inverses(counts) if recipe.sizes is None else recipe.sizes.buy(counts, source)

    def _row_weights(
        self, rows: PrivateRows, targets: NDArray[Any], classes: Array | None
    ) -> Array | None:
        """How much each row counts, from 0 to 1; None where all count alike."""
        of_row = None if classes is None else given.places(targets, self._labels())
        return row_weights(len(rows.matrix), rows.weights, float(self.weight_bound), classes, of_row)

    def _covariance(
        self, recipe: LinearRecipe, place: Place | None, rows: ScaledRows, weights: Array, source: Source
    ) -> Array | None:
        """The covariance of the weights of one output, where it is public or was bought."""
        if place is None or recipe.curvature is None:
            return None if place is None else place.covariance()
        hessian = recipe.curvature.buy(rows, weights, source)
        return weight_covariance(hessian, place.penalty, weights, *place.spreads())

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
        chosen = self._weighed(self.usual_penalty / space.radius**2 if chosen is None else chosen)
        penalty = np.full(rows.width, chosen)
        if space.intercept > 0:
            penalty[-1] = 0.0
        tilt = np.zeros((rows.width, rows.outputs))
        return minimise(self._loss(), rows, penalty, tilt, 1e-7)

    def _scores(self, X: Any) -> Array:
        """The scores of each row, from that row alone: attributes with an axis for rows raise."""
        check_is_fitted(self, "coef_")
        matrix = self._complete(X)
        weights = np.atleast_2d(self.coef_).T
        constants = np.broadcast_to(self.intercept_, weights.shape[1:])
        return np.asarray(products(matrix, weights) + constants)

    def _complete(self, X: Any) -> Array:
        """Rows of numbers as ``fit`` reads them: what is not finite is the middle of the bounds.

        Nothing is read from text here; a frame of text, unlike one with missing numbers, is refused.
        """
        given.require_numbers(X)
        found = validate_data(
            self, X, dtype="numeric", reset=False, accept_sparse=False, ensure_all_finite=False
        )
        matrix = np.array(found, dtype=np.float64)
        middle = np.zeros(matrix.shape[1])
        if self.bounds_ is None:
            complete(matrix, middle)
            return matrix
        lower, upper = np.reshape(self.bounds_, (2, matrix.shape[1]))
        if self.norm is None or isinstance(self.bounds, str):
            middle = lower / 2 + upper / 2
        complete(matrix, middle)
        return np.asarray(np.clip(matrix, lower, upper))

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
        """As the skeleton does; typed noise as its name and settings, weights of classes as pairs."""
        state, arrays = super()._to_saved()
        if isinstance(state["params"].get("class_weight"), Mapping):
            state["params"]["class_weight"] = [list(pair) for pair in self.class_weight.items()]
        if isinstance(self.noise, Noise):
            state["params"]["noise"] = self.noise.to_dict()
        return state, arrays

    @classmethod
    def _from_saved(cls, state: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Any:
        params = dict(state["params"])
        if isinstance(params.get("class_weight"), (list, tuple)):
            params["class_weight"] = dict(map(tuple, params["class_weight"]))
        if isinstance(params.get("noise"), Mapping):
            params["noise"] = places.noise_from_dict(params["noise"])
        return super()._from_saved({**state, "params": params}, arrays)
