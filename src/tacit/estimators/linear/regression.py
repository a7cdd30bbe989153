"""Private linear regression with scikit-learn's interface: least squares and ridge."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin

from tacit import _validate
from tacit.data.declared import declared_target_bounds
from tacit.data.given import real
from tacit.estimators.linear.losses import Loss, Squared
from tacit.estimators.linear.model import Array, LinearModel
from tacit.estimators.linear.noise.place import Noise
from tacit.estimators.linear.rows import Space

__all__ = ["LinearRegression", "Ridge"]


class LinearRegression(RegressorMixin, LinearModel):  # type: ignore[misc]
    """Private least squares, with the target clipped to public bounds.

    Relation: ``add_remove`` or ``replace_one`` of one row, or of one unit of at most ``rows_per_unit`` rows.
    Sensitivity, event and paper are those of the place where noise enters, by default ``"adaptive"``: centre
    and scale of the rows are bought with a part of ε, and rows clipped to them give noisy gradients (δ > 0)
    or moments; a row, scaled to ‖x‖ ≤ 1 and ``|y|`` ≤ 1, moves the sums of the centre by at most 1.353 in ℓ2,
    the histograms of the scale by √2 and each step by √1.09. The event is three ``Gaussian`` for δ > 0, and
    ``Pure``, ``Laplace`` and ``Pure`` for δ = 0, composed (Tang et al. 2023; Amin et al. 2023). The fit is
    that of Huber's loss where noise is large, and tends to least squares with more rows or a larger ε.
    :mod:`tacit.estimators.noise` has the other places; ``"statistics"`` releases (Σxxᵀ, Σxy) once.

    ``target_bounds``
        (lower, upper) of the target, publicly known; targets outside are clipped, and one that is not finite
        makes its row contribute nothing.
    ``weight_bound``
        the public bound to which ``sample_weight`` of ``fit`` is clipped. A row of weight w moves the
        released sums by w/``weight_bound`` of what a row can: the noise is that of rows of the largest weight
        (:mod:`tacit.estimators.linear.weights`). Parameters otherwise as in :class:`LogisticRegression`. With
        ``noise=noise.Statistics(residuals=True)`` there are standard errors, ``coef_error_`` and
        ``intercept_error_``.

    >>> import numpy as np
    >>> X, public = np.random.default_rng(1).uniform(-1, 1, (2, 2000, 2)); y = X @ [1.0, -0.5] + 0.25
    >>> model = LinearRegression(1.0, 1e-6, bounds=(-1, 1), target_bounds=(-2, 2), random_state=1).fit(X, y)
    >>> model.score(public, public @ [1.0, -0.5] + 0.25) > 0.9
    True
    """

    title = "linear regression"
    usual_penalty = 0.0

    def __init__(
        self, epsilon: float = 1.0, delta: float = 0.0, *, noise: str | Noise = "adaptive",
        target_bounds: Any = None, bounds: Any = None, norm: float | None = None,
        population: int | str | None = None, fit_intercept: bool = True, relation: str = "add_remove",
        rows_per_unit: int = 1, ledger: Any = None, label: str | None = None, verbose: bool = False,
        random_state: int | None = None, weight_bound: float = 1.0,
    ) -> None:  # fmt: skip
        self.weight_bound = weight_bound
        self.epsilon, self.delta, self.noise, self.target_bounds = epsilon, delta, noise, target_bounds
        self.bounds, self.norm, self.population = bounds, norm, population
        self.fit_intercept, self.relation, self.rows_per_unit = fit_intercept, relation, rows_per_unit
        self.ledger, self.label, self.verbose, self.random_state = ledger, label, verbose, random_state

    def _loss(self) -> Loss:
        declared_target_bounds(self.target_bounds)
        return Squared()

    def _penalty(self, space: Space) -> float | None:
        return None

    def _targets(self, y: NDArray[Any]) -> Array:
        lower, upper = declared_target_bounds(self.target_bounds)
        values = real(y)
        with np.errstate(invalid="ignore", over="ignore"):
            inside = (np.clip(values, lower, upper) - (lower + upper) / 2) / ((upper - lower) / 2)
        return np.where(np.isfinite(values), np.clip(inside, -1.0, 1.0), np.nan)[:, None]

    def _keep(self, coefficients: Array, intercepts: Array) -> None:
        lower, upper = declared_target_bounds(self.target_bounds)
        middle, half = (lower + upper) / 2, (upper - lower) / 2
        self.coef_ = coefficients[0] * half
        self.intercept_ = float(intercepts[0] * half + (middle if self.fit_intercept else 0.0))

    def _target_scale(self) -> float:
        lower, upper = declared_target_bounds(self.target_bounds)
        return (upper - lower) / 2

    def predict(self, X: Any) -> Array:
        """The expected target of each row."""
        return self._scores(X)[:, 0]


class Ridge(LinearRegression):
    """Private least squares with a penalty ``alpha`` on the squared coefficients, as in scikit-learn.

    Relation, sensitivity, event and paper as for :class:`LinearRegression`: the penalty is public. Without
    ``alpha`` a penalty is chosen that suits the noise. Parameters otherwise as in :class:`LinearRegression`.

    >>> import numpy as np
    >>> X, public = np.random.default_rng(1).uniform(-1, 1, (2, 2000, 2)); y = X @ [1.0, -0.5] + 0.25
    >>> model = Ridge(1.0, alpha=1.0, bounds=(-1, 1), target_bounds=(-2, 2), random_state=1).fit(X, y)
    >>> model.score(public, public @ [1.0, -0.5] + 0.25) > 0.9
    True
    """

    title = "ridge regression"
    usual_penalty = 1.0

    def __init__(
        self, epsilon: float = 1.0, delta: float = 0.0, *, alpha: float | None = None,
        noise: str | Noise = "adaptive", target_bounds: Any = None, bounds: Any = None,
        norm: float | None = None, population: int | str | None = None, fit_intercept: bool = True,
        relation: str = "add_remove", rows_per_unit: int = 1, ledger: Any = None, label: str | None = None,
        verbose: bool = False, random_state: int | None = None, weight_bound: float = 1.0,
    ) -> None:  # fmt: skip
        super().__init__(
            epsilon, delta, noise=noise, target_bounds=target_bounds, bounds=bounds, norm=norm,
            population=population, fit_intercept=fit_intercept, relation=relation,
            rows_per_unit=rows_per_unit, ledger=ledger, label=label, verbose=verbose,
            random_state=random_state, weight_bound=weight_bound,
        )  # fmt: skip
        self.alpha = alpha

    def _penalty(self, space: Space) -> float | None:
        if self.alpha is None:
            return None
        return float(_validate.non_negative("alpha", self.alpha) / space.radius**2)
