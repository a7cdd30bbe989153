"""Scoring private rows with a model: from the table that the caller hands over to numbers for each row.

Public facts (the model, the names and the number of columns) are checked first, by :meth:`Scorer.check`;
:meth:`Scorer.scores` reads rows. :mod:`tacit.evaluation.alone` makes sure that a row's answer depends on no
other row.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from tacit.data import given
from tacit.data.features import Features, box
from tacit.data.preprocessor import Preprocessor
from tacit.errors import EngineFailed, InvalidValue
from tacit.evaluation.alone import FORGETFUL, MatrixScorer, Read, called, copied, one_by_one, silence
from tacit.evaluation.rowlocal import parts_with_products, untouched

__all__ = ["Read", "Scorer"]

Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class Scorer:
    """Which method of a model scores rows, how its output is read, and how X reaches the model.

    A pipeline that begins with a :class:`Preprocessor` takes any X that the preprocessor reads; every other
    model gets a matrix of numbers, clipped to ``bounds`` where some are given or X carries
    :class:`~tacit.data.features.Features`.
    """

    model: Any
    method: str
    width: int
    read: Read
    bounds: Any = None

    def check_unread(self) -> None:
        """Refuse a model that cannot score the columns it was fitted to; there are no rows yet.

        Models that do not say how many columns they take, or that tell them apart by name, are checked once X
        is there.
        """
        columns = getattr(self.model, "n_features_in_", None)
        numbered = columns is not None and not hasattr(self.model, "feature_names_in_")
        if self._maker is not None or self._reads_its_own or numbered:
            self.check(np.zeros((0, columns or 0)), 0)

    def check(self, X: Any, rows: int) -> None:
        """Refuse, by public facts alone, what cannot be scored; code of unknown classes is not run."""
        if _height(X) != rows:
            raise InvalidValue("X", "another number of rows", "as many rows as y")
        if self._reads_its_own:
            copied(self.model)
            return
        if self._maker is None:
            given.require_numbers(X)
        elif hasattr(X, "columns"):
            self._maker.require(X)
        scorer = self._matrix_scorer(X)
        known = getattr(scorer.model, "n_features_in_", scorer.columns)
        if known != scorer.columns:
            raise InvalidValue("X", f"{scorer.columns} columns", f"of the {known} columns of the model")
        self._limits(X, scorer.columns)
        if parts_with_products(scorer.model) is None:
            copied(scorer.model)
        else:
            scorer.check()

    def assumed(self, X: Any) -> tuple[str, ...]:
        """Assumptions about the model: none, if all of its classes are known."""
        known = not self._reads_its_own and parts_with_products(self._matrix_scorer(X).model) is not None
        return () if known else (FORGETFUL,)

    def scores(self, X: Any, rows: int, public: bool) -> tuple[Float64, NDArray[np.bool_]]:
        """The answers (rows, width), NaN where there are none, and which rows hold nothing but numbers."""
        everything = np.ones(rows, dtype=bool)
        if rows == 0:
            return np.zeros((0, self.width)), everything
        if self._reads_its_own:
            if public:
                return self._at_once(self.model, X, rows), everything
            with silence():
                found = one_by_one(
                    copied(self.model), rows, self.width, lambda model, i: self._called(model, _row(X, i), 1)
                )
            return found, everything
        scorer = self._matrix_scorer(X)
        made = X if self._maker is None else self._maker.transform(X)
        matrix, valid = self._numbers(made, scorer.columns)
        if public:
            handed = matrix if scorer.frame is None else scorer.frame(matrix)
            return self._at_once(scorer.model, handed, rows), valid
        return scorer.of(matrix), valid

    @property
    def _maker(self) -> Preprocessor | None:
        """The preprocessor that the model begins with: it reads each value by itself."""
        if type(self.model) is not Pipeline or not untouched(self.model):
            return None
        steps = self.model.steps
        if type(steps) is not list or not all(type(step) is tuple for step in steps):
            return None
        maker = steps[0][1]
        return maker if type(maker) is Preprocessor and parts_with_products(maker) is not None else None

    @property
    def _reads_its_own(self) -> bool:
        """Whether the model is a pipeline of its own kind, or with a preprocessor of its own kind."""
        if self._maker is not None or not isinstance(self.model, Pipeline):
            return False
        return isinstance(self.model.steps[0][1], Preprocessor)

    def _matrix_scorer(self, X: Any) -> MatrixScorer:
        """The part of the model that gets numbers, and how it is called."""
        maker, model, names = self._maker, self.model, X
        if maker is not None:
            model = self.model[1:] if len(self.model.steps) > 2 else self.model.steps[1][1]
            names = maker.transform({str(name): np.zeros(0, object) for name in maker.columns})
            columns = len(maker.features.names)
        else:
            columns = given.width_of(X, getattr(model, "n_features_in_", None))
        return MatrixScorer(model, self.method, self.read, self.width, columns, _frames(names))

    def _limits(self, X: Any, columns: int) -> tuple[Float64, Float64] | None:
        """Public bounds of the columns."""
        if self.bounds is not None:
            return box(self.bounds, columns)
        features = getattr(X, "features", None)
        if isinstance(features, Features) and len(features.names) == columns:
            return np.array(features.lower), np.array(features.upper)
        return None

    def _numbers(self, X: Any, columns: int) -> tuple[Float64, NDArray[np.bool_]]:
        """X within its bounds, zeros for rows that hold what is not finite; and which rows do not."""
        with np.errstate(all="ignore"):
            matrix = np.array(given.declared_matrix(X, columns), dtype=np.float64, order="C")
        valid = np.asarray(np.isfinite(matrix).all(axis=1))
        matrix[~valid] = 0.0
        limits = self._limits(X, columns)
        if limits is not None:
            np.clip(matrix, *limits, out=matrix)
        return matrix, valid

    def _called(self, model: Any, X: Any, rows: int) -> Float64 | None:
        return called(model, self.method, X, self.read, (rows, self.width))

    def _at_once(self, model: Any, X: Any, rows: int) -> Float64:
        """The answers for public rows: all at once, and an error where the model fails."""
        with silence():
            found = self._called(model, X, rows)
        if found is None:
            raise EngineFailed(
                "The model could not score the rows; what it said is withheld, for it may quote them.",
                "Check that the model takes input of this shape.",
                engine=type(model).__name__,
            )
        return found


def _frames(X: Any) -> Callable[[Float64], Any] | None:
    """How a frame like X is made of numbers, where X is a frame of pandas' kind."""
    if not (hasattr(X, "columns") and hasattr(X, "iloc")):
        return None
    kind, columns = type(X), X.columns
    return lambda numbers: kind(numbers, columns=columns)


def _height(X: Any) -> int:
    """How many rows X has."""
    if isinstance(X, Mapping):
        return len(next(iter(X.values()))) if X else 0
    return len(X)


def _row(X: Any, i: int) -> Any:
    """One row of X, as a table of the same kind that knows neither its place nor the others."""
    if isinstance(X, Mapping):
        return {name: _row(values, i) for name, values in X.items()}
    if hasattr(X, "iloc"):
        return X.iloc[i : i + 1].copy().reset_index(drop=True)
    return copy.copy(X[i : i + 1])
