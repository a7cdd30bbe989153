"""Learning from randomized labels with any classifier. All of it is post-processing.

What the responses say is a matrix of log-likelihoods, log P(response | class), a row for each example.
Whoever fits a classifier here sees that matrix and the features, and never a label, so that nothing here can
weaken the guarantee.

With q the model's own prediction, the posterior q·likelihood is the target of the next fit. This is
expectation maximisation for the *forward-corrected* likelihood Σ log Σ_c P(response | c)·q_c(x) of the
responses (Patrini et al. 2017), and it is what ALIBI does with noisy one-hot rows. A classifier with a method
``fit_responses(X, log_likelihood)``, such as :class:`tacit.labels.Perceptron`, takes the matrix as it is. For
any other the target of a row is written as K weighted copies of it, one for each class; predictions on a row
come from models that were fitted to other rows, so that a model that remembers its training rows does not
confirm itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.dummy import DummyClassifier
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import has_fit_parameter

from tacit.errors import InvalidValue
from tacit.labels.prior import usable_prior
from tacit.labels.response import Float64, Int64, posterior
from tacit.randomness import Source

__all__ = [
    "fit_hard",
    "fit_soft",
    "open_to_all",
    "permutation",
    "probabilities",
    "require_classifier",
    "taken",
]

_LEAST = 0.01
"""A prior is mixed with this much of the uniform one: a class that a model rules out may come back."""


def require_classifier(base: Any, *, soft: bool) -> None:
    """Refuse, before anything is charged, a base that cannot learn what a method will hand to it."""
    if isinstance(base, type) or not (hasattr(base, "get_params") and is_classifier(base)):
        raise InvalidValue(
            "base", type(base).__name__, "a classifier with scikit-learn's interface",
            "For example sklearn.linear_model.LogisticRegression().",
        )  # fmt: skip
    if not soft:
        return
    if not hasattr(base, "predict_proba"):
        advice = "Choose another base, or method='lp-1st', which needs predictions of classes only."
        raise InvalidValue("base", type(base).__name__, "able to predict_proba for this method", advice)
    if not (hasattr(base, "fit_responses") or has_fit_parameter(base, "sample_weight")):
        advice = (
            "Choose a base whose fit takes sample_weight, put a pipeline around this estimator, not inside "
            "it, use tacit.labels.Perceptron, or method='lp-1st', which needs no weights."
        )
        raise InvalidValue(
            "base", type(base).__name__, "able to learn from weighted rows for this method", advice
        )


def permutation(rows: int, source: Source) -> Int64:
    """The places of the rows in a random order, which no label has a part in."""
    return np.argsort(source.words(rows), kind="stable").astype(np.int64)


def taken(X: Any, places: Int64) -> Any:
    """These rows of X, whatever kind of matrix it is."""
    return _safe_indexing(X, places)


def probabilities(model: Any, X: Any, categories: int) -> Float64:
    """P(class | x) by a fitted classifier whose classes are codes; 0 for classes that it never met."""
    found = np.zeros((X.shape[0] if hasattr(X, "shape") else len(X), categories))
    if hasattr(model, "predict_proba"):
        found[:, np.asarray(model.classes_, dtype=np.int64)] = model.predict_proba(X)
    else:
        found[np.arange(len(found)), np.asarray(model.predict(X), dtype=np.int64)] = 1.0
    return usable_prior(found)


def fit_hard(base: Any, X: Any, responses: Int64) -> Any:
    """A copy of ``base`` fitted to responses as if they were labels; a constant where all are the same."""
    if len(np.unique(responses)) < 2:
        return DummyClassifier(strategy="prior").fit(X, responses)
    return clone(base).fit(X, responses)


def fit_soft(
    base: Any,
    X: Any,
    log_likelihood: Float64,
    rounds: int,
    folds: int,
    source: Source,
    prior: Float64 | None = None,
) -> Any:
    """A copy of ``base`` fitted to what responses say, in ``rounds`` rounds of posteriors.

    The first posterior starts from ``prior``, a row for each example, or from the uniform one.
    """
    if hasattr(base, "fit_responses"):
        return clone(base).fit_responses(X, log_likelihood)
    rows, categories = log_likelihood.shape
    if prior is None:
        prior = np.full((rows, categories), 1 / categories)
    fold = np.empty(rows, dtype=np.int64)
    fold[permutation(rows, source)] = np.arange(rows) % folds
    for _ in range(rounds - 1):
        targets = posterior(log_likelihood, prior)
        predicted = np.empty_like(targets)
        for each in range(folds):
            inside, outside = np.flatnonzero(fold == each), np.flatnonzero(fold != each)
            model = _fit_weighted(base, taken(X, outside), targets[outside])
            predicted[inside] = probabilities(model, taken(X, inside), categories)
        prior = open_to_all(predicted)
    return _fit_weighted(base, X, posterior(log_likelihood, prior))


def open_to_all(prior: Float64) -> Float64:
    """The prior with a little of the uniform one, so that no class is ruled out for good."""
    return np.asarray((1 - _LEAST) * prior + _LEAST / prior.shape[1])


def _fit_weighted(base: Any, X: Any, targets: Float64) -> Any:
    rows, categories = targets.shape
    repeated = np.repeat(np.arange(rows), categories)
    classes = np.tile(np.arange(categories), rows)
    return clone(base).fit(taken(X, repeated), classes, sample_weight=targets.ravel())
