"""Private linear classifiers with scikit-learn's interface: logistic regression and the linear SVC."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin

from tacit import _validate
from tacit.data.declared import declared_classes
from tacit.data.given import places
from tacit.estimators.linear.losses import HuberHinge, Logistic, Loss, Softmax
from tacit.estimators.linear.model import Array, LinearModel
from tacit.estimators.linear.noise.place import Noise
from tacit.models.scores import ComparesScores

__all__ = ["LinearSVC", "LogisticRegression"]


class LinearClassifier(ClassifierMixin, LinearModel, ComparesScores):  # type: ignore[misc]
    """Base of the classifiers: scores, and the declared classes."""

    released = (*LinearModel.released, "classes_")
    predicts_from = (*LinearModel.predicts_from, "classes_")

    def _labels(self) -> list[Any]:
        return declared_classes(self.classes)

    def _targets(self, y: NDArray[Any]) -> Array:
        classes = declared_classes(self.classes)
        numbers = places(y, classes)
        if len(classes) == 2:
            targets = numbers[:, None].astype(float)
        else:
            targets = (numbers[:, None] == np.arange(len(classes))).astype(float)
        targets[numbers < 0] = np.nan
        return targets

    def _keep(self, coefficients: Array, intercepts: Array) -> None:
        self.classes_ = np.array(declared_classes(self.classes))
        if isinstance(self._loss(), Softmax):
            intercepts = intercepts - intercepts.mean()
        self.coef_, self.intercept_ = coefficients, intercepts


class LogisticRegression(LinearClassifier):
    """Private logistic regression, for two classes or more.

    Relation: ``add_remove`` or ``replace_one`` of one row, or of one unit of at most ``rows_per_unit`` rows.
    Sensitivity, event and paper are those of the place where noise enters, by default ``"objective"``:
    one row changes the gradient of the objective by at most ``slope`` in ℓ2 (√2 for more than two classes),
    twice that where it is replaced; the event is ``Pure(ε)`` for δ = 0 (Chaudhuri, Monteleoni and
    Sarwate 2011) and ``ObjectivePerturbation`` with a ``Gaussian`` for δ > 0 (Redberg, Koskela and
    Wang 2023). :mod:`tacit.estimators.noise` has the others.

    ``epsilon``, ``delta``
        the whole cost of ``fit``. ``epsilon=math.inf`` fits without noise, like scikit-learn with the same C.
    ``noise``
        the place where noise enters, by its name, or with settings: ``noise.Gradient(steps=100)`` of
        :mod:`tacit.estimators.noise`.
    ``classes``
        all labels there may be; rows with others contribute nothing.
    ``bounds``, ``norm``
        what is publicly known of the features: (lower, upper), numbers or one per feature, by which they
        are scaled to [−1, 1]; or the largest ℓ2 norm of a row, to which rows are clipped. A
        :class:`~tacit.estimators.Preprocessor` before it in a pipeline hands both over.
        With ``bounds="dp"`` a tenth of ε buys bounds.
    ``population``
        the public number of rows, for places that need it; ``"dp"`` buys it with a fiftieth of ε.
    ``C``
        the inverse of the penalty, as in scikit-learn; chosen to suit the noise if left out.
    ``slope``
        with two classes, how hard a badly predicted row may pull, 1 being as hard as in plain logistic
        regression (see :class:`~tacit.estimators.linear.losses.Logistic`). Left out, ½ up to ε = ½,
        rising to 1 at ε = 8.
    ``relation``, ``rows_per_unit``
        who is protected from what; the units of the rows are given to ``fit``.
    ``ledger``, ``label``
        where it is charged, and under which name.
    ``class_weight``, ``weight_bound``
        how much the rows of each class count, ``{label: weight}``, 1 for a label that is left out; or
        ``"balanced"``, inversely to the sizes of the classes, which a twentieth of ε buys (the rarest class
        counts 1). ``sample_weight`` of ``fit`` is clipped to [0, ``weight_bound``], which is public. One row
        moves the weighted objective by at most the largest weight times what it moves it without weights, and
        the noise grows with that weight (:mod:`tacit.estimators.linear.weights` has the argument for every
        place of noise): rows that weigh less than the heaviest are drowned by so much more noise.
    ``interval_share``
        the part of ε that buys standard errors, ``coef_error_`` and ``intercept_error_``, which include
        sampling and privacy noise (for two classes).

    >>> import numpy as np
    >>> X, public = np.random.default_rng(1).normal(size=(2, 500, 2)); y = X[:, 0] > 0
    >>> model = LogisticRegression(epsilon=1.0, norm=3.0, classes=[False, True], random_state=1).fit(X, y)
    >>> model.score(public, public[:, 0] > 0) > 0.9, model.guarantee_.epsilon
    (True, 1.0)
    """

    title = "logistic regression"

    def __init__(
        self, epsilon: float = 1.0, delta: float = 0.0, *, noise: str | Noise = "objective",
        classes: Any = None, bounds: Any = None, norm: float | None = None,
        population: int | str | None = None, C: float | None = None, fit_intercept: bool = True,
        relation: str = "add_remove", rows_per_unit: int = 1, ledger: Any = None, label: str | None = None,
        slope: float | None = None, interval_share: float = 0.0, verbose: bool = False,
        random_state: int | None = None, class_weight: Any = None, weight_bound: float = 1.0,
    ) -> None:  # fmt: skip
        self.class_weight, self.weight_bound = class_weight, weight_bound
        self.slope, self.interval_share, self.population = slope, interval_share, population
        self.epsilon, self.delta, self.noise, self.classes = epsilon, delta, noise, classes
        self.bounds, self.norm, self.C, self.fit_intercept = bounds, norm, C, fit_intercept
        self.relation, self.rows_per_unit, self.ledger, self.label = relation, rows_per_unit, ledger, label
        self.verbose, self.random_state = verbose, random_state

    def _loss(self) -> Loss:
        classes = len(declared_classes(self.classes))
        return Logistic(cap=self._cap()) if classes == 2 else Softmax(classes)

    def _cap(self) -> float:
        """Half of the full slope up to ε = ½, all of it from ε = 8 on, or where errors are to be unbiased."""
        if self.slope is not None:
            return _validate.probability("slope", self.slope)
        if self._noise().name not in ("objective", "output", "gradient") or self.interval_share:
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
        """The logarithm of the probability of each class."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X)))


class LinearSVC(LinearClassifier):
    """Private linear support vector classification, with the corner of the hinge rounded (Huber).

    Relation, event and paper as for :class:`LogisticRegression`. Sensitivity: one row changes the gradient
    of the objective by at most 1 in ℓ2, √K for K > 2 classes, and twice that where it is replaced.

    ``corner``
        how far from the corner the hinge is rounded. Parameters otherwise as in
        :class:`LogisticRegression`; with more than two classes one output each, fitted together.

    >>> import numpy as np
    >>> X, public = np.random.default_rng(1).normal(size=(2, 500, 2)); y = X[:, 0] > 0
    >>> model = LinearSVC(epsilon=1.0, norm=3.0, classes=[False, True], random_state=1).fit(X, y)
    >>> model.score(public, public[:, 0] > 0) > 0.9
    True
    """

    title = "linear support vector classifier"

    def __init__(
        self, epsilon: float = 1.0, delta: float = 0.0, *, noise: str | Noise = "objective",
        classes: Any = None, bounds: Any = None, norm: float | None = None,
        population: int | str | None = None, C: float | None = None, fit_intercept: bool = True,
        corner: float = 0.5, relation: str = "add_remove", rows_per_unit: int = 1, ledger: Any = None,
        label: str | None = None, verbose: bool = False, random_state: int | None = None,
        class_weight: Any = None, weight_bound: float = 1.0,
    ) -> None:  # fmt: skip
        self.class_weight, self.weight_bound = class_weight, weight_bound
        self.epsilon, self.delta, self.noise, self.classes = epsilon, delta, noise, classes
        self.bounds, self.norm, self.C, self.fit_intercept = bounds, norm, C, fit_intercept
        self.relation, self.rows_per_unit, self.ledger, self.label = relation, rows_per_unit, ledger, label
        self.population, self.corner = population, corner
        self.verbose, self.random_state = verbose, random_state

    def _loss(self) -> Loss:
        classes = len(declared_classes(self.classes))
        return HuberHinge(1 if classes == 2 else classes, _validate.positive("corner", self.corner))

    def _targets(self, y: NDArray[Any]) -> Array:
        return 2 * super()._targets(y) - 1
