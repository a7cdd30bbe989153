"""A network of fully connected layers that learns from randomized labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn

from tacit import _validate
from tacit.errors import InvalidValue
from tacit.labels.loss import ResponseLoss

__all__ = ["Perceptron"]

Float64 = NDArray[np.float64]


class Perceptron(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A multi-layer perceptron for :class:`~tacit.labels.LabelPrivateClassifier`.

    It makes no promise of its own: it is the base that learns from responses, by
    :class:`~tacit.labels.ResponseLoss`, with Adam, a learning rate that falls to 0 along a cosine, dropout,
    and weights averaged over the steps. Fitted to plain labels with :meth:`fit`, it is an ordinary classifier
    without privacy.

    ``dropout`` is the probability that a hidden unit is left out in a step; inputs are left out with 0.4
    times that. Weights of labels at small ε are fitted to noise sooner or later: dropout of 0.5 helps against
    it.

    >>> from tacit.labels import LabelPrivateClassifier
    >>> rng = np.random.default_rng(1)
    >>> y = rng.integers(0, 3, 500)
    >>> X = np.eye(3)[y] * 3 + rng.normal(size=(500, 3))
    >>> base = Perceptron(hidden=(16,), epochs=20, batch_size=50, learning_rate=0.01, random_state=1)
    >>> model = LabelPrivateClassifier(base, epsilon=2.0, classes=[0, 1, 2], random_state=1).fit(X, y)
    >>> bool(np.mean(model.predict(X) == y) > 0.85)
    True
    """

    def __init__(
        self,
        hidden: Sequence[int] = (256,),
        *,
        epochs: int = 15,
        batch_size: int = 256,
        learning_rate: float = 1e-3,
        dropout: float = 0.0,
        average: float = 0.998,
        random_state: int | None = None,
    ) -> None:
        self.hidden = hidden
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.dropout = dropout
        self.average = average
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Perceptron:
        """Fit to plain labels, without privacy."""
        classes, codes = np.unique(np.asarray(y), return_inverse=True)
        if len(classes) < 2:
            raise InvalidValue("y", len(classes), "of two classes or more")
        certain = np.where(codes[:, None] == np.arange(len(classes)), 0.0, -100.0)
        self.fit_responses(X, certain)
        self.classes_ = classes
        return self

    def fit_responses(self, X: Any, log_likelihood: Float64) -> Perceptron:
        """Fit to log P(response | class), a row for each example; ``classes_`` are 0 … K − 1."""
        inputs = torch.from_numpy(np.ascontiguousarray(validate_data(self, X, dtype=np.float32)))
        told = torch.from_numpy(np.asarray(log_likelihood, dtype=np.float32))
        generator = torch.Generator()
        if self.random_state is None:
            generator.seed()
        else:
            generator.manual_seed(self.random_state)
        rows, categories = told.shape
        weights = self._start(inputs.shape[1], categories, generator)
        averaged = [each.detach().clone() for each in weights]
        optimizer = torch.optim.Adam(weights, lr=_validate.positive("learning_rate", self.learning_rate))
        size = min(_validate.count("batch_size", self.batch_size, 1), rows)
        steps = _validate.count("epochs", self.epochs, 1) * (rows // size)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * min(step / steps, 1.0)))
        )
        loss, taken = ResponseLoss(), 0
        for _ in range(self.epochs):
            order = torch.randperm(rows, generator=generator)
            for first in range(0, rows - size + 1, size):
                batch = order[first : first + size]
                optimizer.zero_grad()
                loss(self._logits(inputs[batch], weights, generator), told[batch]).backward()
                optimizer.step()
                schedule.step()
                taken += 1
                kept = min(self.average, taken / (taken + 10))
                with torch.no_grad():
                    for mean, each in zip(averaged, weights, strict=True):
                        mean.mul_(kept).add_(each, alpha=1 - kept)
        self.weights_ = [each.numpy().copy() for each in averaged]
        self.classes_ = np.arange(categories)
        return self

    def predict_proba(self, X: Any) -> Float64:
        """P(class | x), a column for each of ``classes_``."""
        check_is_fitted(self)
        inputs = torch.from_numpy(np.ascontiguousarray(validate_data(self, X, dtype=np.float32, reset=False)))
        with torch.no_grad():
            logits = self._logits(inputs, [torch.from_numpy(each) for each in self.weights_], None)
            return np.asarray(torch.softmax(logits.double(), dim=-1).numpy())

    def predict(self, X: Any) -> NDArray[Any]:
        """The likeliest of ``classes_`` for each row."""
        found = self.predict_proba(X)
        return np.asarray(self.classes_[np.argmax(found, axis=1)])

    def _start(self, width: int, categories: int, generator: torch.Generator) -> list[torch.Tensor]:
        """Weights and biases of each layer, uniform within 1/√inputs."""
        sizes = [width, *(_validate.count("hidden", each, 1) for each in self.hidden), categories]
        made = []
        for inputs, outputs in pairwise(sizes):
            reach = 1 / math.sqrt(inputs)
            for shape in ((outputs, inputs), (outputs,)):
                drawn = (2 * torch.rand(shape, generator=generator) - 1) * reach
                made.append(drawn.requires_grad_())
        return made

    def _logits(
        self, inputs: torch.Tensor, weights: Sequence[torch.Tensor], generator: torch.Generator | None
    ) -> torch.Tensor:
        """The outputs of the last layer; with a generator units are left out at random, as in training."""
        found = self._thinned(inputs, 0.4 * self.dropout, generator)
        for place in range(0, len(weights), 2):
            if place:
                found = self._thinned(torch.relu(found), self.dropout, generator)
            found = nn.functional.linear(found, weights[place], weights[place + 1])
        return found

    @staticmethod
    def _thinned(found: torch.Tensor, share: float, generator: torch.Generator | None) -> torch.Tensor:
        if generator is None or not share:
            return found
        return found * (torch.rand(found.shape, generator=generator) >= share) / (1 - share)
