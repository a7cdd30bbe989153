"""Values of models as JSON and arrays, and back; nothing in a file is executed."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.data.features import Features
from tacit.errors import InvalidValue
from tacit.models.container import KINDS
from tacit.schema import Schema

__all__ = ["decoded", "encoded"]

Array = NDArray[Any]


def encoded(value: Any, arrays: list[Array]) -> Any:
    """A value in JSON's terms; a type that JSON lacks becomes an object whose only key begins with ``~``.

    Arrays are appended to ``arrays``, and the value holds their place.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"~float": repr(value)}
    if isinstance(value, Mapping):
        if not all(isinstance(name, str) and not name.startswith("~") for name in value):
            raise InvalidValue("keys", list(value), "text that does not begin with ~")
        return {name: encoded(each, arrays) for name, each in value.items()}
    if isinstance(value, list):
        return [encoded(each, arrays) for each in value]
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "O" and value.ndim == 1:
            return {"~objects": [encoded(each, arrays) for each in value.tolist()]}
        if value.dtype.kind not in KINDS:
            raise InvalidValue("array", str(value.dtype), "of numbers, truth values or text")
        arrays.append(np.asarray(value))
        return {"~array": len(arrays) - 1}
    for tag, (kind, encode, _) in _CODEC.items():
        if isinstance(value, kind):
            return {tag: encode(value, arrays)}
    raise InvalidValue("value", type(value).__name__, "of a type that can be saved")


def decoded(value: Any, arrays: Sequence[Any]) -> Any:
    """The value that :func:`encoded` wrote; a code that is not in the closed list raises."""
    if isinstance(value, list):
        return [decoded(each, arrays) for each in value]
    if not isinstance(value, dict):
        return value
    if len(value) != 1 or not (tag := next(iter(value))).startswith("~"):
        return {name: decoded(each, arrays) for name, each in value.items()}
    content = value[tag]
    if tag == "~array":
        if not 0 <= content < len(arrays):
            raise ValueError("no such array")
        return arrays[content]
    if tag == "~float":
        return {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}[content]
    if tag == "~objects":
        made = np.empty(len(content), dtype=object)
        made[:] = decoded(content, arrays)
        return made
    return _CODEC[tag][2](content, arrays)


_CODEC: dict[str, tuple[type[Any], Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "~tuple": (
        tuple,
        lambda value, arrays: encoded(list(value), arrays),
        lambda content, arrays: tuple(decoded(content, arrays)),
    ),
    "~schema": (Schema, lambda value, _: value.to_toml(), lambda content, _: Schema.from_toml(content)),
    "~date": (
        datetime.date,
        lambda value, _: value.isoformat(),
        lambda content, _: datetime.date.fromisoformat(content),
    ),
    "~features": (
        Features,
        lambda value, arrays: encoded(asdict(value), arrays),
        lambda content, arrays: Features(**decoded(content, arrays)),
    ),
}
