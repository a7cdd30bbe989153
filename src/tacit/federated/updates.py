"""Updates: what a client sends, flattened to one vector, checked and clipped.

Every report becomes a vector on a public grid whose norm is at most a public bound, with certainty, whatever
was sent: NaN, infinity, a wrong shape, numbers of another kind or nothing at all become the zero vector.
No rule here raises because of a report, and none looks at another report.

Why the bound is exact. The norm of a vector of d numbers is computed in float64 with a relative error of less
than (d + 8)·2⁻⁵², and the factor that scales the vector to ``clip_norm`` is shrunk by as much. The result is
then cut off, towards zero, to multiples of a power of two g, which shortens it further. Sums of up to
2⁵³·g ÷ clip_norm such vectors are exact in float64, in any order: adding or removing one client moves them by
exactly that client's vector.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import _validate
from tacit.errors import InvalidValue

__all__ = ["Updates", "accepted"]

Vector = NDArray[np.float64]
Shapes = Sequence[tuple[int, ...]]

_EXACT = 52
_LEAST, _MOST = 1e-140, 1e140
"""Between these norms no square overflows, and none that matters underflows; shorter vectors are zero."""


class Updates:
    """The declared shapes of a model's parameters, and the way from arrays to a vector and back.

    >>> updates = Updates([(2,), (1, 2)])
    >>> updates.flatten([[1.0, 2.0], [[3.0, 4.0]]])
    array([1., 2., 3., 4.])
    >>> updates.flatten([[1.0, 2.0]]) is None, updates.unflatten(np.arange(4.0))
    (True, [array([0., 1.]), array([[2., 3.]])])
    """

    def __init__(self, shapes: Shapes) -> None:
        try:
            self.shapes = tuple(
                tuple(_validate.count("shapes", int(side)) for side in shape) for shape in shapes
            )
        except (TypeError, ValueError):
            raise InvalidValue("shapes", shapes, "a tuple of whole numbers for each array") from None
        self._sizes = tuple(math.prod(shape) for shape in self.shapes)
        self.dimension = sum(self._sizes)
        if not self.dimension:
            raise InvalidValue("shapes", self.shapes, "of at least one number in all")

    @classmethod
    def like(cls, arrays: Sequence[Any]) -> Updates:
        """Shapes as those of public arrays."""
        return cls([np.shape(each) for each in arrays])

    def flatten(self, arrays: Any, out: Vector | None = None) -> Vector | None:
        """All numbers in one vector; None where they are not of the declared shapes or no real numbers.

        ``out`` is a vector to write them to.
        """
        try:
            given = list(arrays)
            if len(given) != len(self.shapes):
                return None
            whole = np.empty(self.dimension) if out is None else out
            first = 0
            for each, shape, size in zip(given, self.shapes, self._sizes, strict=True):
                array = np.asarray(each)
                if array.shape != shape or array.dtype.kind not in "fiub":
                    return None
                with np.errstate(all="ignore"):
                    whole[first : first + size] = array.reshape(-1)
                first += size
        except Exception:
            return None
        return whole

    def unflatten(self, vector: Vector) -> list[Vector]:
        """Arrays of the declared shapes."""
        parts = np.split(np.asarray(vector, np.float64), np.cumsum(self._sizes)[:-1])
        return [part.reshape(shape).copy() for part, shape in zip(parts, self.shapes, strict=True)]


def grid(clip_norm: float, most: int) -> float:
    """A power of two: sums of ``most`` multiples of it, of norm ≤ clip_norm, are exact in float64."""
    return math.ldexp(1.0, math.frexp(clip_norm * most)[1] - _EXACT)


def within(vector: Vector | None, clip_norm: float) -> bool:
    """Whether an update needs no clipping; one that counts as zero needs none."""
    if vector is None:
        return True
    length = _length(vector)
    return length <= clip_norm or not bool(np.isfinite(vector).all())


def in_steps(vector: Vector, clip_norm: float, step: float) -> Vector:
    """The vector scaled to norm ≤ clip_norm, in whole steps of a grid; zero where it is not finite.

    It is overwritten: a thousand updates of a large model should not need memory of their own.
    """
    length = _length(vector)
    shrunk = 1 - (vector.size + 8) * 2.0**-52
    if _LEAST < length <= clip_norm * shrunk:
        factor = 1.0
    elif _LEAST < length < _MOST:
        factor = clip_norm / length * shrunk
    else:
        with np.errstate(all="ignore"):
            largest = float(np.max(np.abs(vector), initial=0.0))
        if length <= _LEAST or not math.isfinite(largest):
            vector.fill(0.0)
            return vector
        np.ldexp(vector, -math.frexp(largest)[1], out=vector)
        factor = clip_norm / _length(vector) * shrunk
    np.multiply(vector, factor / step, out=vector)
    return np.trunc(vector, out=vector)


def accepted(vector: Vector, clip_norm: float, most: int = 1) -> Vector:
    """The vector scaled to norm ≤ clip_norm, on a grid; zero where it is not finite.

    Up to ``most`` of them add up exactly in float64.

    >>> accepted(np.array([3.0, 4.0]), 1.0).round(6), accepted(np.array([np.nan, 1.0]), 1.0)
    (array([0.6, 0.8]), array([0., 0.]))
    >>> accepted(np.array([3e300, 4e300]), 1.0).round(6), accepted(np.array([3e-320, 0.0]), 1.0)
    (array([0.6, 0.8]), array([0., 0.]))
    """
    step = grid(clip_norm, most)
    return in_steps(np.array(vector, np.float64), clip_norm, step) * step


def _length(vector: Vector) -> float:
    """The ℓ2 norm; infinite where a square overflows, NaN where an entry is."""
    with np.errstate(all="ignore"):
        return math.sqrt(float(np.dot(vector, vector)))
