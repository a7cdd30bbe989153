"""Network: a PyTorch module with scikit-learn's interface, as a teacher or a student."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from tacit import _validate
from tacit._extras import needed
from tacit.errors import InvalidValue

__all__ = ["Network"]


class Network(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A PyTorch module that is trained with Adam and the cross-entropy, without privacy of its own.

    A teacher needs none: its votes are protected. Neither does a student, which learns from public inputs and
    released answers. To train a network on private rows directly, use :class:`tacit.training.Trainer`.

    ``module`` is a function without arguments that makes the module, or a module, which is copied; it maps
    a batch of inputs to one score per class. ``shape`` is that of one input, for rows that are flattened
    images.

    >>> from torch import nn
    >>> X = np.random.default_rng(1).normal(size=(200, 2))
    >>> model = Network(lambda: nn.Linear(2, 2), epochs=20, learning_rate=0.1, random_state=1)
    >>> float(np.mean(model.fit(X, X[:, 0] > 0).predict(X) == (X[:, 0] > 0))) > 0.9
    True
    """

    def __init__(
        self,
        module: Callable[[], Any] | Any = None,
        *,
        epochs: int = 10,
        batch_size: int = 64,
        learning_rate: float = 1e-3,
        shape: tuple[int, ...] | None = None,
        random_state: int | None = None,
    ) -> None:
        self.module = module
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.shape = shape
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Network:
        """Train a new module on rows and labels."""
        torch = _torch()
        size, rate = _validate.count("batch_size", self.batch_size, 1), self.learning_rate
        self.classes_, places = np.unique(np.asarray(y), return_inverse=True)
        inputs, targets = self._tensor(X), torch.from_numpy(places.astype(np.int64))
        with torch.random.fork_rng(devices=[]):
            if self.random_state is not None:
                torch.manual_seed(self.random_state)
            module = self._made()
            module.train()
            optimizer = torch.optim.Adam(module.parameters(), lr=rate)
            for _ in range(_validate.count("epochs", self.epochs, 1)):
                for batch in torch.randperm(len(inputs)).split(size):
                    loss = torch.nn.functional.cross_entropy(module(inputs[batch]), targets[batch])
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
        self.module_ = module.eval()
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probability of each of the classes that ``fit`` saw."""
        check_is_fitted(self)
        torch = _torch()
        with torch.no_grad():
            parts = [self.module_(part) for part in self._tensor(X).split(1024)]
            scores = torch.cat(parts)[:, : len(self.classes_)]
        return np.asarray(torch.softmax(scores, dim=1).numpy(), dtype=np.float64)

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])

    def _made(self) -> Any:
        torch = _torch()
        if isinstance(self.module, torch.nn.Module):
            return copy.deepcopy(self.module)
        if not callable(self.module):
            raise InvalidValue("module", self.module, "a PyTorch module, or a function that makes one")
        return self.module()

    def _tensor(self, X: Any) -> Any:
        matrix = np.ascontiguousarray(np.asarray(X), dtype=np.float32)
        if self.shape is not None:
            matrix = matrix.reshape(len(matrix), *self.shape)
        return _torch().from_numpy(matrix)


def _torch() -> Any:
    with needed("Networks as teachers"):
        import torch
    return torch
