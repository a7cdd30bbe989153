"""Private linear models with scikit-learn's interface."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin, RegressorMixin

from tacit import _validate
from tacit.data.features import box
from tacit.data.given import places, real
from tacit.errors import InvalidValue
from tacit.estimators.linear.base import Array, LinearModel
from tacit.estimators.linear.losses import HuberHinge, Logistic, Loss, Softmax, Squared

__all__ = ["LinearRegression", "LinearSVC", "LogisticRegression", "Ridge"]


class LinearClassifier(ClassifierMixin, LinearModel):  # type: ignore[misc]
    """Base of the classifiers: scores, and the declared classes."""

    def _declared(self) -> list[Any]:
        if self.classes is None:
            advice = "List all labels there may be; to read them off the data would leak."
            raise InvalidValue("classes", None, "declared", advice)
        found = list(np.asarray(self.classes).ravel().tolist())
        if len(found) < 2 or len(set(found)) != len(found):
            raise InvalidValue("classes", self.classes, "two different labels or more")
        return found

    def _targets(self, y: NDArray[Any]) -> Array:
        classes = self._declared()
        numbers = places(y, classes)
        if len(classes) == 2:
            targets = numbers[:, None].astype(float)
        else:
            targets = (numbers[:, None] == np.arange(len(classes))).astype(float)
        targets[numbers < 0] = np.nan
        return targets

    def _keep(self, coefficients: Array, intercepts: Array) -> None:
        self.classes_ = np.array(self._declared())
        if isinstance(self._loss(), Softmax):
            intercepts = intercepts - intercepts.mean()
        self.coef_, self.intercept_ = coefficients, intercepts

    def decision_function(self, X: Any) -> Array:
        """Scores: one per row for two classes (positive for the second), else one per class."""
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """The class with the highest score."""
        scores = self._scores(X)
        best = (scores[:, 0] > 0).astype(int) if scores.shape[1] == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[best])


class LogisticRegression(LinearClassifier):
    """Logistic regression, for two classes or more.

    ``epsilon``, ``delta``
        the whole cost of ``fit``. ``epsilon=math.inf`` fits without noise, like scikit-learn with the same C.
    ``noise``
        where it enters; see :mod:`tacit.estimators.linear.noise` for the proof of each place.
    ``classes``
        all labels there may be; rows with others contribute nothing.
    ``bounds``, ``norm``
        what is publicly known of the features: (lower, upper), numbers or one per feature, by which they
        are scaled to [−1, 1]; or the largest ℓ2 norm of a row, to which rows are clipped. A
        :class:`~tacit.estimators.Preprocessor` before it in a pipeline hands both over.
        With ``bounds="dp"`` a tenth of ε buys bounds.
    ``n``
        the public number of rows, for places that need it; ``"dp"`` buys it with a fiftieth of ε.
    ``C``
        the inverse of the penalty, as in scikit-learn; chosen to suit the noise if left out.
    ``slope``
        with two classes, how hard a badly predicted row may pull, 1 being as hard as in plain logistic
        regression (see :class:`~tacit.estimators.linear.losses.Logistic`). Left out, ½ up to ε = ½,
        rising to 1 at ε = 8.
    ``relation``, ``rows_per_group``
        who is protected from what; groups are given to ``fit``.
    ``ledger``, ``label``
        where it is charged, and under which name.
    ``intervals``
        the part of ε that buys standard errors, ``coef_error_`` and ``intercept_error_``, with sampling and
        privacy noise in them (for two classes).

    >>> import numpy as np
    >>> X = np.random.default_rng(1).normal(size=(500, 2)); y = X[:, 0] > 0
    >>> model = LogisticRegression(epsilon=1.0, norm=3.0, classes=[False, True], random_state=1).fit(X, y)
    >>> model.score(X, y) > 0.9, model.guarantee_.epsilon
    (True, 1.0)
    """

    _title = "logistic regression"

    def __init__(
        self, epsilon: float = 1.0, delta: float = 0.0, *, noise: str = "objective", classes: Any = None,
        bounds: Any = None, norm: float | None = None, n: int | None = None, C: float | None = None,
        fit_intercept: bool = True, relation: str = "add_remove", rows_per_group: int = 1, ledger: Any = None,
        label: str | None = None, options: Any = None, slope: float | None = None, intervals: float = 0.0,
        verbose: bool = False, random_state: int | None = None,
    ) -> None:  # fmt: skip
        self.slope, self.intervals = slope, intervals
        self.epsilon, self.delta, self.noise, self.classes = epsilon, delta, noise, classes
        self.bounds, self.norm, self.n, self.C, self.fit_intercept = bounds, norm, n, C, fit_intercept
        self.relation, self.rows_per_group, self.ledger, self.label = relation, rows_per_group, ledger, label
        self.options, self.verbose, self.random_state = options, verbose, random_state

    def _loss(self) -> Loss:
        classes = len(self._declared())
        return Logistic(cap=self._cap()) if classes == 2 else Softmax(classes)

    def _cap(self) -> float:
        """Half of the full slope up to ε = ½, all of it from ε = 8 on, or where errors are to be unbiased."""
        if self.slope is not None:
            return _validate.probability("slope", self.slope)
        if self.noise not in ("objective", "output", "gradient") or self.intervals:
            return 1.0
        return float(np.interp(math.log(self._epsilon()), [math.log(0.5), math.log(8.0)], [0.5, 1.0]))

    def predict_proba(self, X: Any) -> Array:
        """The probability of each class."""
        scores = self._scores(X)
        if scores.shape[1] == 1:
            positive = expit(scores)
            return np.hstack([1 - positive, positive])
        return np.asarray(softmax(scores, axis=1))

    def predict_log_proba(self, X: Any) -> Array:
        """Its logarithm."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X)))


class LinearSVC(LinearClassifier):
    """Linear support vector classification with the corner of the hinge rounded (Huber).

    ``corner``
        how far from the corner the hinge is rounded. Parameters otherwise as in
        :class:`LogisticRegression`; with more than two classes one output each, fitted together.
    """

    _title = "linear support vector classifier"

    def __init__(
        self, epsilon: float = 1.0, delta: float = 0.0, *, noise: str = "objective", classes: Any = None,
        bounds: Any = None, norm: float | None = None, n: int | None = None, C: float | None = None,
        fit_intercept: bool = True, corner: float = 0.5, relation: str = "add_remove",
        rows_per_group: int = 1, ledger: Any = None, label: str | None = None, options: Any = None,
        verbose: bool = False, random_state: int | None = None,
    ) -> None:  # fmt: skip
        self.epsilon, self.delta, self.noise, self.classes = epsilon, delta, noise, classes
        self.bounds, self.norm, self.n, self.C, self.fit_intercept = bounds, norm, n, C, fit_intercept
        self.relation, self.rows_per_group, self.ledger, self.label = relation, rows_per_group, ledger, label
        self.corner, self.options, self.verbose, self.random_state = corner, options, verbose, random_state

    def _loss(self) -> Loss:
        classes = len(self._declared())
        return HuberHinge(1 if classes == 2 else classes, _validate.positive("corner", self.corner))

    def _targets(self, y: NDArray[Any]) -> Array:
        return 2 * super()._targets(y) - 1


class LinearRegression(RegressorMixin, LinearModel):  # type: ignore[misc]
    """Least squares, with the target clipped to public bounds.

    ``target_bounds``
        (lower, upper) of the target, publicly known; targets outside are clipped, and one that is not finite
        makes its row contribute nothing. Parameters otherwise as in :class:`LogisticRegression`. With
        ``options={"residuals": True}`` there are standard errors, ``coef_error_`` and ``intercept_error_``.

    >>> import numpy as np
    >>> X = np.random.default_rng(1).uniform(-1, 1, size=(2000, 2)); y = X @ [1.0, -0.5] + 0.25
    >>> model = LinearRegression(1.0, 1e-6, bounds=(-1, 1), target_bounds=(-2, 2), random_state=1).fit(X, y)
    >>> model.score(X, y) > 0.9
    True
    """

    _title = "linear regression"

    def __init__(
        self, epsilon: float = 1.0, delta: float = 0.0, *, noise: str = "statistics",
        target_bounds: Any = None, bounds: Any = None, norm: float | None = None, n: int | None = None,
        fit_intercept: bool = True, relation: str = "add_remove", rows_per_group: int = 1, ledger: Any = None,
        label: str | None = None, options: Any = None, verbose: bool = False, random_state: int | None = None,
    ) -> None:  # fmt: skip
        self.epsilon, self.delta, self.noise, self.target_bounds = epsilon, delta, noise, target_bounds
        self.bounds, self.norm, self.n, self.fit_intercept = bounds, norm, n, fit_intercept
        self.relation, self.rows_per_group, self.ledger, self.label = relation, rows_per_group, ledger, label
        self.options, self.verbose, self.random_state = options, verbose, random_state

    _usual_penalty = 0.0

    def _loss(self) -> Loss:
        self._target_range()
        return Squared()

    def _penalty(self, space: Any) -> float | None:
        return None

    def _target_range(self) -> tuple[float, float]:
        if self.target_bounds is None:
            raise InvalidValue(
                "target_bounds", None, "given", "Say between which values the target is known to lie."
            )
        lower, upper = box(self.target_bounds, 1)
        return float(lower[0]), float(upper[0])

    def _targets(self, y: NDArray[Any]) -> Array:
        lower, upper = self._target_range()
        values = real(y)
        with np.errstate(invalid="ignore", over="ignore"):
            inside = (np.clip(values, lower, upper) - (lower + upper) / 2) / ((upper - lower) / 2)
        return np.where(np.isfinite(values), np.clip(inside, -1.0, 1.0), np.nan)[:, None]

    def _keep(self, coefficients: Array, intercepts: Array) -> None:
        lower, upper = self._target_range()
        middle, half = (lower + upper) / 2, (upper - lower) / 2
        self.coef_ = coefficients[0] * half
        self.intercept_ = float(intercepts[0] * half + (middle if self.fit_intercept else 0.0))

    def _unit_of_target(self) -> float:
        lower, upper = self._target_range()
        return (upper - lower) / 2

    def predict(self, X: Any) -> Array:
        """The expected target of each row."""
        return self._scores(X)[:, 0]


class Ridge(LinearRegression):
    """Least squares with a penalty ``alpha`` on the squared coefficients, as in scikit-learn.

    Without ``alpha`` one is chosen that suits the noise. Parameters otherwise as in
    :class:`LinearRegression`.
    """

    _usual_penalty = 1.0

    _title = "ridge regression"

    def __init__(
        self, epsilon: float = 1.0, delta: float = 0.0, *, alpha: float | None = None,
        noise: str = "statistics", target_bounds: Any = None, bounds: Any = None, norm: float | None = None,
        n: int | None = None, fit_intercept: bool = True, relation: str = "add_remove",
        rows_per_group: int = 1, ledger: Any = None, label: str | None = None, options: Any = None,
        verbose: bool = False, random_state: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            epsilon, delta, noise=noise, target_bounds=target_bounds, bounds=bounds, norm=norm, n=n,
            fit_intercept=fit_intercept, relation=relation, rows_per_group=rows_per_group, ledger=ledger,
            label=label, options=options, verbose=verbose, random_state=random_state,
        )  # fmt: skip
        self.alpha = alpha

    def _penalty(self, space: Any) -> float | None:
        if self.alpha is None:
            return None
        return float(_validate.non_negative("alpha", self.alpha) / space.radius**2)
