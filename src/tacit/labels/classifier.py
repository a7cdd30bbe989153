"""Any classifier, fitted to randomized labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin

from tacit import _validate, events
from tacit.data.declared import declared_classes
from tacit.data.given import places
from tacit.errors import InvalidValue
from tacit.labels.alibi import NoisyOneHot
from tacit.labels.learning import (
    fit_hard,
    fit_soft,
    open_to_all,
    permutation,
    probabilities,
    require_classifier,
    taken,
)
from tacit.labels.prior import ResponseWithPrior, denoised, usable_prior
from tacit.labels.private import PRIOR, LabelPrivateEstimator
from tacit.labels.response import Float64, Int64, Response
from tacit.labels.subset import SubsetResponse
from tacit.randomness import Source

__all__ = ["METHODS", "LabelPrivateClassifier"]

METHODS = {
    "alibi": "noise on one-hot labels, with the model's predictions as the prior (ALIBI)",
    "subset": "a random set of classes for each label, best at small ε",
    "response": "randomized response, learnt from with the forward-corrected likelihood",
    "prior": "randomized response among the likeliest classes of a public prior (RRWithPrior)",
    "lp-1st": "randomized response, learnt from as if responses were labels (LP-1ST)",
    "lp-2st": "randomized response on one part, RRWithPrior with the model of it on the other (LP-2ST)",
}
"""What each method does to the labels."""


class LabelPrivateClassifier(ClassifierMixin, LabelPrivateEstimator):  # type: ignore[misc]
    """A classifier whose training labels are private, and whose features are not.

    Relation: ``replace_one`` of one label. Two data sets are neighbours if they have the same rows with the
    same features in the same order, and differ in the label of one row.

    Event: one randomizer is applied to each label, once. ``"alibi"`` adds Laplace noise to one-hot rows, of
    ℓ1 sensitivity 2: ``Laplace(1/ε)``; for ``delta`` above 0 Gaussian noise, of ℓ2 sensitivity √2.
    ``"response"`` and ``"lp-1st"``: ``RandomizedResponse(ε, K)``. ``"subset"``, ``"prior"`` and ``"lp-2st"``:
    ``Pure(ε)``. For LP-2ST: which rows are in which part is drawn without the labels, so the label that
    differs is in the same part in both data sets. If it is in the second part, all that is made of the first
    is equal, hence the prior is, and RRWithPrior is ε-DP; if it is in the first, its response is ε-DP and the
    second part is computed from that response and from equal labels. Each label is randomized once, and the
    parts cost no more together than alone.

    Proof for the base: it is fitted to the features and to responses. Its result is a function of both and of
    randomness that does not depend on the labels: post-processing of the responses, whatever the base does.
    No label is kept on this object. A label outside ``classes``, or a missing one, is randomized like any
    other: as a uniform response, or as a row of zeros with noise.

    Parameters. ``base``: any scikit-learn classifier; all methods but ``"lp-1st"`` need ``predict_proba`` and
    a ``fit`` with ``sample_weight``, or :class:`tacit.labels.Perceptron`. ``method``: one of :data:`METHODS`.
    ``classes``: all labels there may be. ``prior``, for ``"prior"`` alone: public probabilities of the
    classes, one row for all labels or a row for each, or a classifier that was fitted to public data.
    ``rounds`` and ``folds``: how often the posterior is computed anew, and how many parts predict for each
    other. ``first_part``: the share of rows in the first part of LP-2ST.

    Papers: Ghazi et al. 2021 (RRWithPrior, LP-1ST, LP-2ST), Malek et al. 2021 (ALIBI), Ye and Barg 2018
    (subsets).

    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(1)
    >>> y = rng.integers(0, 3, 600)
    >>> X = np.eye(3)[y] * 3 + rng.normal(size=(600, 3))
    >>> model = LabelPrivateClassifier(LogisticRegression(), epsilon=1.0, classes=[0, 1, 2], random_state=1)
    >>> print(model.fit(X, y).guarantee_)  # doctest: +ELLIPSIS
    (ε = 1, δ = 0)-differentially private under replace_one of one label; the features are not protected; ...
    >>> bool(np.mean(model.predict(X) == y) > 0.8), model.event_
    (True, Laplace(scale=1.0))
    """

    title = "classifier with private labels"

    def __init__(
        self,
        base: Any,
        epsilon: float = 1.0,
        delta: float = 0.0,
        *,
        method: str = "alibi",
        classes: Any = None,
        prior: Any = None,
        rounds: int = 4,
        folds: int = 3,
        first_part: float = 0.5,
        ledger: Any = None,
        label: str | None = None,
        random_state: int | None = None,
    ) -> None:
        self.base = base
        self.epsilon = epsilon
        self.delta = delta
        self.method = method
        self.classes = classes
        self.prior = prior
        self.rounds = rounds
        self.folds = folds
        self.first_part = first_part
        self.ledger = ledger
        self.label = label
        self.random_state = random_state

    def _planned(self, X: Any, rows: int) -> tuple[float, float, events.Event]:
        epsilon, delta = _validate.epsilon(self.epsilon), _validate.delta(self.delta)
        _validate.choice("method", self.method, tuple(METHODS))
        if delta and self.method != "alibi":
            advice = "Only ALIBI has a form with Gaussian noise: set delta=0."
            raise InvalidValue("delta", delta, f"0 for method={self.method!r}", advice)
        _validate.count("rounds", self.rounds, 1)
        _validate.count("folds", self.folds, 2)
        _validate.open_probability("first_part", self.first_part)
        if (self.prior is None) is (self.method == "prior"):
            advice = "Public probabilities of the classes, for method='prior' alone."
            raise InvalidValue("prior", type(self.prior).__name__, f"fit for method={self.method!r}", advice)
        require_classifier(self.base, soft=self.method != "lp-1st")
        return epsilon, delta, self._randomizer(X, rows).event

    def _randomizer(self, X: Any, rows: int) -> Any:
        """What is done to the labels; of LP-2ST to those of the first part."""
        categories, epsilon = len(declared_classes(self.classes)), float(self.epsilon)
        if self.method == "alibi":
            return NoisyOneHot(categories, epsilon, float(self.delta))
        if self.method == "subset":
            return SubsetResponse(categories, epsilon)
        if self.method == "prior":
            return self._with_prior(X, rows, categories)
        if self.method == "lp-2st":
            return _TwoStages(categories, epsilon)
        return Response(categories, epsilon)

    def _with_prior(self, X: Any, rows: int, categories: int) -> ResponseWithPrior:
        if hasattr(self.prior, "predict_proba"):
            found = np.zeros((rows, categories))
            known = places(np.asarray(self.prior.classes_), declared_classes(self.classes))
            predicted = np.asarray(self.prior.predict_proba(X))
            found[:, known[known >= 0]] = predicted[:, known >= 0]
            return ResponseWithPrior(float(self.epsilon), usable_prior(found))
        made = ResponseWithPrior(float(self.epsilon), self.prior)
        if made.prior.shape not in ((1, categories), (rows, categories)):
            shape = f"an array of shape {made.prior.shape}"
            raise InvalidValue(
                "prior", shape, f"a column for each of {categories} classes, a row for all or each"
            )
        return made

    def _learn(self, X: Any, labels: NDArray[Any], source: Source) -> None:
        classes = declared_classes(self.classes)
        codes = places(labels, classes)
        randomizer = self._randomizer(X, len(codes))
        prior, rounds = None, self.rounds
        if self.method == "lp-2st":
            told, prior = self._two_stages(X, codes, randomizer, source)
        else:
            responses = randomizer.respond(codes, source)
            told = randomizer.log_likelihood(responses)
        del codes, labels
        if self.method == "prior":
            told, rounds = told + np.log(open_to_all(randomizer.prior)), 1
        if self.method == "lp-1st":
            self.base_ = fit_hard(self.base, X, responses)
        else:
            self.base_ = fit_soft(self.base, X, told, rounds, self.folds, source, prior)
        self.classes_ = np.asarray(classes)

    def _two_stages(
        self, X: Any, codes: Int64, randomizer: _TwoStages, source: Source
    ) -> tuple[Float64, Float64]:
        """log P(response | class): of randomized response, then of RRWithPrior; and the prior of each row."""
        rows, categories = len(codes), randomizer.categories
        order = permutation(rows, source)
        first, second = np.split(order, [max(1, min(rows - 1, round(rows * self.first_part)))])
        response = Response(categories, randomizer.epsilon)
        told = np.empty((rows, categories))
        responses = response.respond(codes[first], source)
        told[first] = response.log_likelihood(responses)
        if hasattr(self.base, "fit_responses"):
            model = fit_soft(self.base, taken(X, first), told[first], self.rounds, self.folds, source)
            prior = probabilities(model, taken(X, second), categories)
        else:
            model = fit_hard(self.base, taken(X, first), responses)
            prior = denoised(probabilities(model, taken(X, second), categories), randomizer.epsilon)
        informed = ResponseWithPrior(randomizer.epsilon, prior)
        told[second] = informed.log_likelihood(informed.respond(codes[second], source))
        known = np.full((rows, categories), 1 / categories)
        known[second] = open_to_all(prior)
        return told, known

    def predict_proba(self, X: Any) -> Float64:
        """P(class | x), a column for each of ``classes_``.

        A base that was fitted to responses, by LP-1ST, predicts responses; they are turned into labels by
        :func:`tacit.labels.denoised`.
        """
        X = self._checked(X)
        found = probabilities(self.base_, X, len(self.classes_))
        if self.method == "lp-1st" and hasattr(self.base_, "predict_proba"):
            return denoised(found, self.epsilon)
        return found

    def predict(self, X: Any) -> NDArray[Any]:
        """The likeliest of ``classes_`` for each row."""
        X = self._checked(X)
        return np.asarray(self.classes_[np.argmax(probabilities(self.base_, X, len(self.classes_)), axis=1)])

    def _assumptions(self) -> tuple[str, ...]:
        return (PRIOR,) if self.method == "prior" else ()

    def _facts(self) -> tuple[tuple[str, str], ...]:
        return ("method", f"{self.method}: {METHODS[self.method]}"), ("base", type(self.base).__name__)


class _TwoStages:
    """The randomizers of LP-2ST: each label is randomized once, by one of two that are both ε-private."""

    def __init__(self, categories: int, epsilon: float) -> None:
        self.categories, self.epsilon = categories, epsilon
        self.event = events.Pure(epsilon)
