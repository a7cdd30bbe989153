"""How passes over batches of several sizes compare: the same operations, on tensors that grow evenly."""

from __future__ import annotations

from typing import Any, NamedTuple

from tacit.training.batches import tree
from tacit.training.isolation.places import refs
from tacit.training.isolation.recording import Ref
from tacit.training.isolation.table import SIZES

Trace = list[Any]


def zeros(pair: Any, size: int) -> Any:
    """Inputs and targets of so many examples, of the same shapes and types, that hold nothing but zeros."""

    def made(leaf: Any) -> Any:
        return leaf.new_zeros(size, *leaf.shape[1:]) if tree.batched(leaf) else leaf

    return tree.mapped(made, pair)


def even(two: Any, three: Any, some: Any, count: int) -> bool:
    """Whether an entry is that of two and of three examples, with sizes that grow evenly."""
    if type(two) is not tuple or type(three) is not tuple or type(some) is not tuple:
        return False
    if not len(two) == len(three) == len(some) or two[0] != three[0] or two[0] != some[0]:
        return False
    if type(two[0]) is str:
        return _alike(two[1:], three[1:], some[1:], count)
    func, given, named, outs = two
    loose = SIZES.get(func, ())
    names = [each.name for each in func._schema.arguments]
    parts = list(zip(names, given, three[1], some[1], strict=False))
    if not len(given) == len(three[1]) == len(some[1]):
        return False
    for mine, theirs, other in zip(named, three[2], some[2], strict=False):
        if not mine[0] == theirs[0] == other[0]:
            return False
        parts.append((mine[0], mine[1], theirs[1], other[1]))
    if not len(named) == len(three[2]) == len(some[2]):
        return False
    for name, a, b, c in parts:
        if name in loose and not isinstance(a, Ref):
            if not _grows(a, b, c, count):
                return False
        elif not _alike(a, b, c, count):
            return False
    return _alike(outs, three[3], some[3], count)


def _alike(two: Any, three: Any, some: Any, count: int) -> bool:
    """Whether three values are the same but for where tensors lie, which grows evenly."""
    if isinstance(two, Ref):
        if not isinstance(three, Ref) or not isinstance(some, Ref):
            return False
        if not two.number == three.number == some.number or not two.dtype == three.dtype == some.dtype:
            return False
        if not len(two.size) == len(three.size) == len(some.size) or not _grows(
            two.size, three.size, some.size, count
        ):
            return False
        return _grows(two.offset, three.offset, some.offset, count) and all(
            some.size[at] == 1 or _grows(two.stride[at], three.stride[at], some.stride[at], count)
            for at in range(len(two.size))
        )
    if isinstance(two, tuple):
        if not isinstance(three, tuple) or not isinstance(some, tuple):
            return False
        return len(two) == len(three) == len(some) and all(
            _alike(a, b, c, count) for a, b, c in zip(two, three, some, strict=True)
        )
    if type(two) is not type(three) or type(two) is not type(some):
        return False
    return bool(two == three and two == some)


def _grows(two: Any, three: Any, some: Any, count: int) -> bool:
    if isinstance(two, tuple):
        if not isinstance(three, tuple) or not isinstance(some, tuple):
            return False
        return len(two) == len(three) == len(some) and all(
            _grows(a, b, c, count) for a, b, c in zip(two, three, some, strict=True)
        )
    if type(two) is int and type(three) is int and type(some) is int:
        return some == two + (three - two) * (count - 2)
    return bool(two == three == some)


class Sized(NamedTuple):
    """The dimensions of a tensor as long as the batch, None where unclear; and how it lies in tiny ones."""

    grow: tuple[int, ...] | None
    two: Ref
    three: Ref


def sizes_of(two: Trace, three: Trace) -> list[list[Sized]]:
    """How each tensor of each entry grows with the batch."""
    found: list[list[Sized]] = []
    for mine, theirs in zip(two, three, strict=True):
        row: list[Sized] = []
        for a, b in zip(refs(mine), refs(theirs), strict=True):
            grow = tuple(at for at in range(len(a.size)) if a.size[at] != b.size[at])
            # As long as the batch, or a multiple of it.
            whole = all(3 * a.size[at] == 2 * b.size[at] for at in grow)
            row.append(Sized(grow if whole else None, a, b))
        found.append(row)
    return found
