"""Classifiers that compare scores, one for each class, or a single one for two classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ComparesScores"]


class ComparesScores:
    """What classifiers share whose ``_scores`` has a column per class, or one column for two classes."""

    classes_: NDArray[Any]

    def _scores(self, X: Any) -> NDArray[np.float64]:
        """The scores of each row."""
        raise NotImplementedError

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Scores: one per row for two classes (positive for the second), else one per class."""
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """The class with the highest score."""
        scores = self._scores(X)
        best = (scores[:, 0] > 0).astype(int) if scores.shape[1] == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[best])
