"""Logistic regression and least squares from local reports; :mod:`tacit.local.protocol` has the argument."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin, RegressorMixin

from tacit.data import given
from tacit.data.declared import declared_classes, declared_target_bounds
from tacit.evaluation import register_rowwise
from tacit.local.protocol import Array, LocalModel
from tacit.models.registry import register
from tacit.models.scores import ComparesScores

__all__ = ["LocalLinearRegression", "LocalLogisticRegression"]


class LocalLogisticRegression(ClassifierMixin, LocalModel, ComparesScores):  # type: ignore[misc]
    """Logistic regression from one randomized gradient of each person, for two classes or more.

    Relation: ``replace_one`` of one person's row. Event: ``Pure(ε)``, with the argument of
    :mod:`tacit.local.protocol`. Nobody but the person themselves sees the row; ``fit`` plays all people and
    the collector, and :meth:`protocol` has what both need to do it over a network.

    ``epsilon``
        of the one report that each person sends.
    ``classes``
        all labels there may be.
    ``bounds``, ``norm``
        what is publicly known of the features: (lower, upper), numbers or one per feature, by which they are
        scaled to [−1, 1]; or the largest ℓ2 norm of a row, to which rows are clipped. A
        :class:`~tacit.estimators.Preprocessor` before it in a pipeline hands both over. Rows are divided by
        their largest norm, so that gradients have a length of at most 1 (√2 for more than two classes).
    ``steps``
        how many groups people are divided into. More steps take longer, since the groups report one after
        the other, and go farther.
    ``clip_norm``
        the length to which gradients of rows of length 1 are clipped, 0.45 if left out (0.9 for more than two
        classes): shorter means less noise, and less weight for rows that are far off.
    ``learning_rate``
        how far each step goes; left out, it is chosen to suit the noise, from public facts.
    ``ledger``, ``label``, ``random_state``
        where it is charged, and under which name; a seed, for tests.

    The defaults were chosen on Adult's training rows (``benchmarks/local_means.py``).

    >>> import numpy as np
    >>> X, public = np.random.default_rng(1).normal(size=(2, 5000, 2)); y = X[:, 0] > 0
    >>> model = LocalLogisticRegression(epsilon=2.0, norm=3.0, classes=[False, True], random_state=1)
    >>> bool(np.mean(model.fit(X, y).predict(public) == (public[:, 0] > 0)) > 0.9), model.event_
    (True, Pure(epsilon=2.0))
    """

    title = "logistic regression from local reports"
    released = (*LocalModel.released, "classes_")
    predicts_from = (*LocalModel.predicts_from, "classes_")
    reach, fastest = 20.0, 16.0

    def __init__(
        self, epsilon: float = 1.0, *, classes: Any = None, bounds: Any = None, norm: float | None = None,
        steps: int = 50, clip_norm: float | None = None, learning_rate: float | None = None,
        fit_intercept: bool = True, ledger: Any = None, label: str | None = None,
        random_state: int | None = None,
    ) -> None:  # fmt: skip
        self.epsilon, self.classes, self.bounds, self.norm = epsilon, classes, bounds, norm
        self.steps, self.clip_norm, self.learning_rate = steps, clip_norm, learning_rate
        self.fit_intercept, self.ledger, self.label = fit_intercept, ledger, label
        self.random_state = random_state

    def _outputs(self) -> int:
        classes = len(declared_classes(self.classes))
        return 1 if classes == 2 else classes

    def _usual_clip_norm(self) -> float:
        return 0.45 if self._outputs() == 1 else 0.9

    def _targets(self, y: NDArray[Any]) -> Array:
        classes = declared_classes(self.classes)
        codes = given.places(y, classes)
        targets = (codes[:, None] == np.arange(len(classes))).astype(np.float64)
        targets[codes < 0] = np.nan
        return np.asarray(targets[:, 1:] if len(classes) == 2 else targets)

    def _residuals(self, scores: Array, targets: Array) -> Array:
        return np.asarray((expit(scores) if self._outputs() == 1 else softmax(scores, axis=1)) - targets)

    def _keep(self, coefficients: Array, intercepts: Array) -> None:
        self.classes_ = np.array(declared_classes(self.classes))
        self.coef_, self.intercept_ = coefficients, intercepts

    def predict_proba(self, X: Any) -> Array:
        """The probability of each class."""
        scores = self._scores(X)
        if scores.shape[1] > 1:
            return np.asarray(softmax(scores, axis=1))
        return np.hstack([expit(-scores), expit(scores)])


class LocalLinearRegression(RegressorMixin, LocalModel):  # type: ignore[misc]
    """Least squares from one randomized gradient of each person.

    Relation: ``replace_one`` of one person's row. Event: ``Pure(ε)``, with the argument of
    :mod:`tacit.local.protocol`. ``target_bounds``, (lower, upper), are scaled to [−1, 1], and targets outside
    are clipped to them. The other parameters are those of :class:`LocalLogisticRegression`; ``clip_norm`` is
    0.25 if left out. The defaults were chosen on training rows of California housing and wine quality.

    >>> import numpy as np
    >>> X, public = np.random.default_rng(1).uniform(-1, 1, size=(2, 20000, 2)); y = 3 * X[:, 0] + 5
    >>> model = LocalLinearRegression(epsilon=2.0, bounds=(-1, 1), target_bounds=(0, 10), random_state=1)
    >>> bool(np.abs(model.fit(X, y).predict(public) - 3 * public[:, 0] - 5).mean() < 0.3)
    True
    """

    title = "least squares from local reports"
    released = (*LocalModel.released, "target_bounds_")
    predicts_from = (*LocalModel.predicts_from, "target_bounds_")
    reach, fastest = 5.0, 4.0

    def __init__(
        self, epsilon: float = 1.0, *, target_bounds: Any = None, bounds: Any = None,
        norm: float | None = None, steps: int = 50, clip_norm: float | None = None,
        learning_rate: float | None = None, fit_intercept: bool = True, ledger: Any = None,
        label: str | None = None, random_state: int | None = None,
    ) -> None:  # fmt: skip
        self.epsilon, self.target_bounds, self.bounds, self.norm = epsilon, target_bounds, bounds, norm
        self.steps, self.clip_norm, self.learning_rate = steps, clip_norm, learning_rate
        self.fit_intercept, self.ledger, self.label = fit_intercept, ledger, label
        self.random_state = random_state

    def _outputs(self) -> int:
        declared_target_bounds(self.target_bounds)
        return 1

    def _usual_clip_norm(self) -> float:
        return 0.25

    def _scale(self) -> tuple[float, float]:
        """The middle of the bounds of the target, and the distance from it to either."""
        lower, upper = declared_target_bounds(self.target_bounds)
        return lower / 2 + upper / 2, upper / 2 - lower / 2

    def _targets(self, y: NDArray[Any]) -> Array:
        middle, half = self._scale()
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(np.clip((given.real(y) - middle) / half, -1.0, 1.0))[:, None]

    def _residuals(self, scores: Array, targets: Array) -> Array:
        return np.asarray(scores - targets)

    def _keep(self, coefficients: Array, intercepts: Array) -> None:
        middle, half = self._scale()
        self.target_bounds_ = np.array([middle - half, middle + half])
        self.coef_, self.intercept_ = coefficients[0] * half, float(middle + half * intercepts[0])

    def predict(self, X: Any) -> Array:
        """The target of each row, within its bounds."""
        scores = np.clip(self._scores(X)[:, 0], -1.0, 1.0)
        lower, upper = np.asarray(self.target_bounds_)
        return np.asarray(lower / 2 + upper / 2 + scores * (upper / 2 - lower / 2))


for _tag, _model in (
    ("local-logistic-regression", LocalLogisticRegression),
    ("local-linear-regression", LocalLinearRegression),
):
    register(_tag, _model, _model.released)
    register_rowwise(_model, _model.predicts_from)
