"""What all mechanisms share: a source of random bits, and the checks on what they are called with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from tacit import _validate
from tacit.errors import InvalidValue
from tacit.randomness import Source

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

CLIP_FIRST = "Clip or impute before the statistic is computed; this check reads the private value."
_EXACT_FLOATS = 2**53


@dataclass(frozen=True)
class Mechanism:
    """Base of all mechanisms.

    ``random_state`` is a seed, for tests (see :class:`tacit.randomness.Source`), or a source that
    several mechanisms draw from.
    """

    random_state: int | Source | None = field(default=None, kw_only=True)
    _source: Source = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        given = self.random_state
        self._keep("_source", given if isinstance(given, Source) else Source(given))

    def _keep(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @property
    def noise(self) -> str:
        """The kind of noise, one of :data:`tacit.guarantee.NOISE_KINDS`."""
        return "seeded" if self._source.seeded else "exact"


@dataclass(frozen=True)
class RealMechanism(Mechanism):
    """Base of mechanisms that add noise to real numbers, one or an array of them."""

    @overload
    def __call__(self, value: float) -> float: ...
    @overload
    def __call__(self, value: NDArray[Any] | Sequence[Any]) -> Float64: ...
    def __call__(self, value: Any) -> float | Float64:
        """The value with noise: a float for a scalar, else float64 of the same shape."""
        values, scalar = real_values(value)
        result = self._noisy(values)
        return float(result) if scalar else result

    def _noisy(self, values: Float64) -> Float64:
        """The values with noise, in the same shape."""
        raise NotImplementedError


def normals(source: Source, shape: tuple[int, ...]) -> Float64:
    """Standard normal numbers in float64: for noise that is proven to rounding only, and for simulations."""
    return np.asarray(ndtri(source.uniforms(math.prod(shape)))).reshape(shape)


def exactly_one(**options: Any) -> str:
    """The name of the single option that is given."""
    given = [name for name, value in options.items() if value is not None]
    if len(given) != 1:
        names = " or ".join(options)
        raise InvalidValue(names, " and ".join(given) or None, "given, exactly one of them")
    return given[0]


def tail(confidence: float, coordinates: int) -> float:
    """The probability each of ``coordinates`` may miss its interval with (Bonferroni)."""
    level = _validate.open_probability("confidence", confidence)
    return (1 - level) / _validate.count("coordinates", coordinates, 1)


def real_values(value: Any) -> tuple[Float64, bool]:
    """A statistic as float64, and whether it was a scalar.

    Integers beyond 2^53, which float64 cannot hold one by one, are clipped there, so that
    conversion never widens a difference. Wider floats, booleans, complex numbers, objects, NaN
    and infinities are refused with an error that does not show the value.
    """
    array = _array(value, _EXACT_FLOATS)
    if array.dtype.kind in "iu":
        low = 0 if array.dtype.kind == "u" else -_EXACT_FLOATS
        if array.dtype.itemsize == 8:
            array = np.clip(array, low, _EXACT_FLOATS)
    elif array.dtype.kind != "f" or array.dtype.itemsize > 8:
        raise InvalidValue("value", _Described(array), "real numbers in float64 or narrower")
    result = array.astype(np.float64)
    if not np.isfinite(result).all():
        raise InvalidValue("value", _Described(array), "finite, without NaN", CLIP_FIRST)
    return result, array.ndim == 0


def whole_values(value: Any, limit: int) -> tuple[Int64, bool]:
    """A statistic of integers clipped to ±limit, as int64, and whether it was a scalar."""
    array = _array(value, limit)
    if array.dtype.kind not in "iu" and array.size:
        raise InvalidValue(
            "value", _Described(array), "integers", "Use Laplace or Gaussian for real numbers."
        )
    low = 0 if array.dtype.kind == "u" else -limit
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8:
        array = np.clip(array, low, limit)
    return array.astype(np.int64), array.ndim == 0


def score_values(scores: Any) -> Float64:
    """One score per candidate, at least one."""
    array, _ = real_values(scores)
    if array.ndim != 1 or not array.size:
        raise InvalidValue("scores", _Described(array), "a non-empty sequence, one score per candidate")
    return array


def _array(value: Any, limit: int) -> NDArray[Any]:
    """The value as an array. Python integers, which know no bound, are clipped to ±limit first."""
    if isinstance(value, np.ma.MaskedArray):
        raise InvalidValue("value", type(value), "without a mask", "Fill what is masked by a public rule.")
    try:
        array = np.asarray(value if isinstance(value, np.ndarray) else _clipped(value, limit))
    except ValueError:
        raise InvalidValue("value", type(value), "a number or a rectangular array") from None
    if array.dtype.kind == "b":
        raise InvalidValue("value", _Described(array), "numbers", "Count or sum the booleans first.")
    return array


def _clipped(value: Any, limit: int) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return min(max(value, -limit), limit)
    if isinstance(value, (list, tuple)):
        return [_clipped(item, limit) for item in value]
    return value


class _Described:
    """An array in an error message: its shape and type, never its private content."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.text = f"an array of shape {array.shape} and type {array.dtype}"

    def __repr__(self) -> str:
        return self.text
