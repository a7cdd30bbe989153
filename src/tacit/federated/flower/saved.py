"""Saved: the model, the node table and the wrapped strategy's state, as arrays for the rounds' checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from tacit.errors import ModelUnreadable

__all__ = ["Saved"]

_FACTS = "facts"


@dataclass(frozen=True)
class Saved:
    """What a server that was started again goes on from: released, public, or the server's own."""

    model: ArrayRecord
    nodes: tuple[int, ...]
    strategy: Mapping[str, Any]

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Named arrays, as :attr:`tacit.federated.Rounds.state` keeps them."""
        arrays: dict[str, NDArray[Any]] = {}
        facts = {
            "nodes": list(self.nodes),
            "model": _packed(self.model, arrays),
            "strategy": {name: _packed(value, arrays) for name, value in self.strategy.items()},
        }
        return {_FACTS: np.frombuffer(json.dumps(facts).encode(), np.uint8), **arrays}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Saved:
        """What :meth:`to_arrays` gave."""
        try:
            facts = json.loads(arrays[_FACTS].tobytes())
            strategy = {name: _unpacked(value, arrays) for name, value in facts["strategy"].items()}
            return cls(_unpacked(facts["model"], arrays), tuple(facts["nodes"]), strategy)
        except (KeyError, TypeError, ValueError):
            raise ModelUnreadable(
                "The checkpoint was not written by a private strategy of Flower.",
                "Name another checkpoint.",
            ) from None


def _packed(value: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    """A value as JSON, with its arrays put beside it."""
    if isinstance(value, np.ndarray):
        name = f"array{len(arrays)}"
        arrays[name] = value
        return ["array", name]
    if isinstance(value, ArrayRecord):
        return ["record", [[name, _packed(each.numpy(), arrays)] for name, each in value.items()]]
    if isinstance(value, dict):
        return ["dict", [[name, _packed(each, arrays)] for name, each in value.items()]]
    if isinstance(value, list):
        return ["list", [_packed(each, arrays) for each in value]]
    return ["value", value]


def _unpacked(packed: Any, kept: Mapping[str, NDArray[Any]]) -> Any:
    kind, value = packed
    match kind:
        case "array":
            return kept[value]
        case "record":
            return ArrayRecord({name: Array(_unpacked(each, kept)) for name, each in value})
        case "dict":
            return {name: _unpacked(each, kept) for name, each in value}
        case "list":
            return [_unpacked(each, kept) for each in value]
    return value
