"""Model extraction: a copy of a model from its answers.

A linear model that answers with numbers is a system of linear equations, and as many questions as it has
weights solve it (Tramèr et al. 2016). Any other model can be imitated by one that is trained on its answers,
as well as the number of questions allows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import _validate
from tacit.errors import InvalidValue

__all__ = ["Distilled", "LinearCopy", "distil", "solve_linear"]

Array = NDArray[np.float64]
_LEAST = 1e-15
"""A probability this close to 0 was rounded, and its logarithm says little about the weights."""


@dataclass(frozen=True)
class LinearCopy:
    """Weights (outputs, features) and intercepts of a linear model, and how many questions gave them.

    For class probabilities of k > 2 classes they are those of each class against the first.
    """

    weights: Array
    intercepts: Array
    questions: int

    def decision(self, X: ArrayLike) -> Array:
        """The linear scores of rows."""
        return np.asarray(np.asarray(X, dtype=np.float64) @ self.weights.T + self.intercepts)


def solve_linear(
    answer: Callable[[Array], ArrayLike],
    *,
    features: int,
    kind: str,
    lower: ArrayLike = 0.0,
    upper: ArrayLike = 1.0,
    questions: int | None = None,
    seed: int = 0,
) -> LinearCopy:
    """The weights of a linear or logistic model from its prediction function ``answer``, by equations.

    ``kind`` is ``"regression"``, where ``answer(rows)`` gives numbers, or ``"probability"``, where it gives
    class probabilities (rows, classes), whose log-ratios are linear in the features. Rows are drawn
    uniformly between ``lower`` and ``upper``; features + 1 of them suffice for exact answers, and
    more average rounding or noise out. Answers with a probability of 0 or 1 give no equation and are left
    out; where too few others remain, the attack is refused with the advice to ask elsewhere.

    >>> copy = solve_linear(lambda rows: rows @ [2.0, -1.0] + 0.5, features=2, kind="regression")
    >>> copy.weights.round(6).tolist(), copy.intercepts.round(6).tolist(), copy.questions
    ([[2.0, -1.0]], [0.5], 3)
    """
    width = _validate.count("features", features, 1)
    how = _validate.choice("kind", kind, ("regression", "probability"))
    asked = width + 1 if questions is None else _validate.count("questions", questions, width + 1)
    generator = np.random.default_rng(_validate.count("seed", seed))
    low, high = (np.broadcast_to(np.asarray(end, dtype=np.float64), (width,)) for end in (lower, upper))
    rows = generator.uniform(low, high, size=(asked, width))
    told = np.asarray(answer(rows), dtype=np.float64)
    if told.ndim not in (1, 2) or told.shape[0] != asked or not np.isfinite(told).all():
        raise InvalidValue("answers", told.shape, f"finite numbers, one row for each of {asked} questions")
    if how == "probability":
        if told.ndim != 2 or told.shape[1] < 2:
            raise InvalidValue("answers", told.shape, "probabilities of two classes or more in each row")
        usable = (told > _LEAST).all(axis=1)
        if usable.sum() <= width:
            needed = f"{width + 1} answers or more with no probability of 0 or 1"
            advice = "Ask nearer to the model's border, with other lower= and upper=, or ask more questions."
            raise InvalidValue("answers", int(usable.sum()), needed, advice)
        rows, logs = rows[usable], np.log(told[usable])
        told = logs[:, 1:] - logs[:, :1]
    equations = np.column_stack([rows, np.ones(len(rows))])
    solved, *_ = np.linalg.lstsq(equations, told.reshape(len(rows), -1), rcond=None)
    return LinearCopy(np.asarray(solved[:-1].T, dtype=float), np.asarray(solved[-1], dtype=float), asked)


@dataclass(frozen=True)
class Distilled:
    """A model that imitates another, and on how many of the last questions both agree."""

    model: Any
    questions: int
    fidelity: float
    """The share of the questions held back on which the copy says the same; 0.1 of all are held back."""


def distil(
    answer: Callable[[Array], ArrayLike],
    copy: Any,
    draw: Callable[[int, np.random.Generator], ArrayLike],
    *,
    questions: int,
    rounds: int = 4,
    seed: int = 0,
) -> Distilled:
    """Train ``copy``, a classifier with ``fit`` and ``predict``, on the answers of a black box.

    ``answer(rows)`` returns labels, ``draw(n, generator)`` n rows to ask about, and ``questions`` is the
    query budget. After the first of ``rounds``, rows are drawn in excess and those near the copy's own
    border are asked first, where it has ``predict_proba``.
    """
    budget, turns = _validate.count("questions", questions, 20), _validate.count("rounds", rounds, 1)
    generator = np.random.default_rng(_validate.count("seed", seed))
    held = max(budget // 10, 1)
    test = np.asarray(draw(held, generator))
    truth = np.asarray(answer(test))
    parts = np.diff(np.linspace(0, budget - held, turns + 1).round().astype(int))
    rows: list[NDArray[Any]] = []
    labels: list[NDArray[Any]] = []
    fitted = False
    for size in parts.tolist():
        if not size:
            continue
        new = np.asarray(draw(4 * size if fitted else size, generator))
        if fitted and hasattr(copy, "predict_proba"):
            best = -np.sort(-np.asarray(copy.predict_proba(new)), axis=1)
            new = new[np.argsort(best[:, 0] - best[:, 1], kind="stable")[:size]]
        new = new[:size]
        rows.append(new)
        labels.append(np.asarray(answer(new)))
        told = np.concatenate(labels)
        if len(np.unique(told)) > 1:
            copy.fit(np.concatenate(rows), told)
            fitted = True
    if not fitted:
        raise InvalidValue("draw", "rows of one class", "rows on which the black box says several things")
    return Distilled(copy, budget, float((np.asarray(copy.predict(test)) == truth).mean()))
