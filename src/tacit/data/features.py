"""Public facts about a matrix of features, and the matrix that carries them down a pipeline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InvalidValue

__all__ = ["PAID_APART", "Features", "Known", "box", "declared_width", "known"]

PAID_APART = "the features were made from the same rows by a private step, whose cost comes on top: "


@dataclass(frozen=True)
class Features:
    """What is publicly known of each feature, and of all of a row together.

    ``norm`` bounds the ℓ2 norm of a row; without it, the corner of the box that is farthest from zero does.

    >>> Features(("age", "sex"), (-1.0, 0.0), (1.0, 1.0)).largest_norm
    1.4142135623730951
    """

    names: tuple[str, ...]
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    norm: float | None = None
    columns: tuple[str, ...] | None = None
    """The column of the table that each feature was made of; those of one category share theirs."""
    paid: str | None = None
    """What the features cost, in words, where a private step made them from the same rows."""

    def __post_init__(self) -> None:
        if not len(self.names) == len(self.lower) == len(self.upper):
            raise InvalidValue("bounds", len(self.lower), f"one pair for each of {len(self.names)} features")
        bounds = zip(self.lower, self.upper, strict=True)
        if not all(math.isfinite(a) and math.isfinite(b) and a <= b for a, b in bounds):
            raise InvalidValue("bounds", "of the features", "finite, lower first")
        if self.norm is not None and not 0 < self.norm < math.inf:
            raise InvalidValue("norm", self.norm, "a finite number above 0")
        if self.columns is not None and len(self.columns) != len(self.names):
            raise InvalidValue("columns", len(self.columns), f"one for each of {len(self.names)} features")

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What a guarantee of a fit to these features assumes: that their own cost is counted too."""
        return () if self.paid is None else (f"{PAID_APART}{self.paid}",)

    @property
    def largest_norm(self) -> float:
        """The smallest bound on a row's ℓ2 norm that these facts imply."""
        corner = math.sqrt(sum(max(abs(a), abs(b)) ** 2 for a, b in zip(self.lower, self.upper, strict=True)))
        return corner if self.norm is None else min(corner, self.norm)


class Known(np.ndarray[Any, np.dtype[np.float64]]):
    """A matrix that carries its :class:`Features`.

    Rows may be taken from it and the facts stay; with other columns they are gone. Nothing
    relies on the rows keeping to them: estimators clip every row to these bounds all the same.
    """

    features: Features | None

    def __array_finalize__(self, origin: Any) -> None:
        features = getattr(origin, "features", None)
        fits = features is not None and self.ndim == 2 and self.shape[1] == len(features.names)
        self.features = features if fits else None


def known(matrix: NDArray[np.float64], features: Features) -> Known:
    """``matrix`` with its facts."""
    result = np.asarray(matrix, dtype=np.float64).view(Known)
    if result.ndim != 2 or result.shape[1] != len(features.names):
        raise InvalidValue("matrix", result.shape, f"of {len(features.names)} columns")
    result.features = features
    return result


def box(bounds: Any, width: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lower and upper bounds of each feature, from a pair of numbers or of arrays."""
    requirement = "a pair (lower, upper) of numbers, or of one number per feature"
    if isinstance(bounds, str) or not isinstance(bounds, Sequence) or len(bounds) != 2:
        raise InvalidValue("bounds", bounds, requirement)
    try:
        lower, upper = (np.broadcast_to(np.asarray(b, dtype=float), (width,)).copy() for b in bounds)
    except (TypeError, ValueError):
        raise InvalidValue("bounds", bounds, f"{requirement}, of which there are {width}") from None
    if not (np.isfinite(lower).all() and np.isfinite(upper).all() and (lower < upper).all()):
        raise InvalidValue("bounds", bounds, "finite, lower below upper")
    if not (lower / 2 < upper / 2).all():
        raise InvalidValue("bounds", bounds, "so far apart that their halves differ", "Change the scale.")
    return lower, upper


def declared_width(bounds: Any, categories: Any = None) -> int | None:
    """The number of features that bounds or categories declare, None where they declare none.

    >>> declared_width((0, [1, 2])), declared_width((0, 1), [None, 3, None]), declared_width((0, 1))
    (2, 3, None)
    """
    if isinstance(categories, Sequence) and not isinstance(categories, (str, bytes)):
        return len(categories)
    if isinstance(bounds, str) or not isinstance(bounds, Sequence):
        return None
    shapes = {np.shape(bound) for bound in bounds} - {()}
    return shapes.pop()[0] if len(shapes) == 1 else None
