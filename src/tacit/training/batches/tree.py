"""Inputs and targets as the model takes them: tensors in tuples, lists and mappings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor

from tacit.errors import InvalidValue

_CONSTANTS = (bool, int, float, complex, str, bytes, type(None))


def arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments of the model: a tuple is the former, a mapping the latter."""
    if isinstance(inputs, tuple | list):
        return tuple(inputs), {}
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (inputs,), {}


def tensors(tree: Any) -> Iterator[Tensor]:
    """Every tensor of the tree."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, tuple | list):
        for value in tree:
            yield from tensors(value)
    elif isinstance(tree, Mapping):
        for value in tree.values():
            yield from tensors(value)


def mapped(function: Callable[[Any], Any], tree: Any) -> Any:
    """The tree with ``function`` applied to every leaf."""
    if isinstance(tree, Tensor):
        return function(tree)
    if isinstance(tree, tuple | list):
        values = [mapped(function, value) for value in tree]
        return values if isinstance(tree, list) else tuple(values)
    if isinstance(tree, Mapping):
        return {key: mapped(function, value) for key, value in tree.items()}
    return function(tree)


def zipped(function: Callable[[list[Any]], Any], trees: list[Any]) -> Any:
    """One tree from several of the same shape, with ``function`` applied to the list of their leaves."""
    first = trees[0]
    if isinstance(first, Mapping):
        return {key: zipped(function, [each[key] for each in trees]) for key in first}
    if isinstance(first, tuple | list):
        values = [zipped(function, list(leaves)) for leaves in zip(*trees, strict=True)]
        return values if isinstance(first, list) else tuple(values)
    return function(trees)


def shape(tree: Any) -> Any:
    """A key that two trees share if they differ only in the number and the values of their examples."""
    if isinstance(tree, Mapping):
        return "map", tuple((key, shape(value)) for key, value in tree.items())
    if isinstance(tree, tuple | list):
        return type(tree).__name__, tuple(shape(value) for value in tree)
    if isinstance(tree, Tensor):
        return tree.shape[1:], tree.dtype, tree.device
    return tree if isinstance(tree, bool | int | float | str | None) else id(tree)


def _unfollowed(tree: Any) -> str | None:
    """The type of a part of the tree that may hold examples outside of tensors, if there is one."""
    if isinstance(tree, tuple | list | Mapping):
        values = list(tree.values()) if isinstance(tree, Mapping) else list(tree)
        constants = [each for each in values if isinstance(each, _CONSTANTS) and each is not None]
        if constants and next(tensors(values), None) is None:
            return type(tree).__name__
        return next((found for found in map(_unfollowed, values) if found is not None), None)
    return None if isinstance(tree, (Tensor, *_CONSTANTS)) else type(tree).__name__


def batched(leaf: Any) -> bool:
    """Whether a leaf holds one entry for each example."""
    return isinstance(leaf, Tensor) and leaf.dim() > 0


def examples(inputs: Any, targets: Any) -> int:
    """The number of examples, on which all tensors must agree.

    What belongs to examples must be in tensors, whose rows are followed through the model. A number or a word
    beside them is taken for a constant; a list of numbers, an array or another object is refused, for it may
    hold something of each example that a model could give to the others unseen.
    """
    for each in (inputs, targets):
        unfollowed = _unfollowed(each)
        if unfollowed is not None:
            raise InvalidValue(
                "inputs and targets",
                f"{unfollowed} without tensors",
                "tensors with one entry per example along their first dimension",
                "Make a tensor of what belongs to the examples, in the data set or its collate function.",
            )
    sizes = {leaf.shape[0] for leaf in tensors((inputs, targets)) if leaf.dim() > 0}
    if len(sizes) != 1:
        raise InvalidValue(
            "inputs and targets",
            "tensors of different lengths" if sizes else "no tensor",
            "tensors with one entry per example along their first dimension",
            "Put the examples first; a tensor shared by all examples belongs in the model.",
        )
    return sizes.pop()


def cut(inputs: Any, targets: Any, size: int) -> tuple[Any, list[Any]]:
    """The pair of the first ``size`` entries, and a list with the pair of the others, if there are any."""
    if examples(inputs, targets) <= size:
        return (inputs, targets), []

    def part(some: slice) -> Any:
        return mapped(lambda leaf: leaf[some] if batched(leaf) else leaf, (inputs, targets))

    return part(slice(size)), [part(slice(size, None))]
