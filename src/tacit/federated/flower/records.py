"""Records: a model's arrays between Flower's messages and the lists that the rounds work with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from tacit.errors import InvalidValue

__all__ = ["Layout"]

_HEADER = 4096
"""More bytes than NumPy's header of an array of any model takes."""

Arrays = list[NDArray[np.float64]]


@dataclass(frozen=True)
class Layout:
    """The names, shapes and kinds of a model's arrays: public facts, the same for every client.

    Only arrays of real floating-point numbers are learned. Whole numbers, such as the step counter of
    PyTorch's batch normalization, keep the values of the first model: a client's own count of steps is
    private, and a noisy one is of no use.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    kinds: tuple[str, ...]

    @classmethod
    def of(cls, model: ArrayRecord) -> Layout:
        """The layout of a public model."""
        learned = [
            (name, array) for name, array in model.items() if _is_real(array.dtype) and 0 not in array.shape
        ]
        if not learned:
            raise InvalidValue(
                "initial_arrays",
                list(model),
                "a model with at least one array of floating-point numbers",
                "Send the parameters of the model, as ArrayRecord(model.state_dict()) does.",
            )
        names, arrays = zip(*learned, strict=True)
        return cls(
            names, tuple(tuple(array.shape) for array in arrays), tuple(array.dtype for array in arrays)
        )

    @property
    def dimension(self) -> int:
        """The number of learned parameters."""
        return sum(math.prod(shape) for shape in self.shapes)

    def read(self, record: object) -> Arrays | None:
        """The learned arrays in float64, or None where the record does not have this layout.

        Nothing that a client put into the record makes this raise.
        """
        if not isinstance(record, ArrayRecord):
            return None
        found: Arrays = []
        for name, shape, kind in zip(self.names, self.shapes, self.kinds, strict=True):
            array = record.get(name)
            if array is None or not self._fits(array, shape, kind):
                return None
            try:
                values = array.numpy()
                if values.shape != shape or values.dtype.kind != "f":
                    return None
                with np.errstate(all="ignore"):
                    found.append(values.astype(np.float64))
            except Exception:
                return None
        return found

    def model(self, arrays: Sequence[NDArray[np.float64]], rest: ArrayRecord) -> ArrayRecord:
        """A model of these arrays, in the kinds of the first model; ``rest`` gives what is not learned."""
        made = dict(zip(self.names, zip(arrays, self.kinds, strict=True), strict=True))
        return ArrayRecord(
            {name: _stored(*made[name]) if name in made else array for name, array in rest.items()}
        )

    def update(self, arrays: Sequence[NDArray[np.float64]]) -> ArrayRecord:
        """An update, in single precision unless the model has more."""
        kinds = [np.promote_types(kind, np.float32).name for kind in self.kinds]
        return ArrayRecord(
            {name: _stored(array, kind) for name, array, kind in zip(self.names, arrays, kinds, strict=True)}
        )

    @staticmethod
    def _fits(array: Array, shape: tuple[int, ...], kind: str) -> bool:
        try:
            bytes_of_one = np.dtype(kind).itemsize
            return (
                tuple(array.shape) == shape
                and _is_real(array.dtype)
                and len(array.data) <= math.prod(shape) * max(bytes_of_one, 8) + _HEADER
            )
        except Exception:
            return False


def _stored(array: NDArray[np.float64], kind: str) -> Array:
    with np.errstate(over="ignore"):
        return Array(np.asarray(array, dtype=kind))


def _is_real(kind: str) -> bool:
    try:
        return np.dtype(kind).kind == "f"
    except TypeError:
        return False
