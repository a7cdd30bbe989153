"""Where the examples lie in a tensor, and which bytes of a storage are whose.

Of a storage that holds examples, the byte at address o belongs to example (o ÷ k) mod n, for one number k:
in a dense tensor, in any order of its dimensions, k is the stride of the dimension of the examples. What a
view of the storage has its examples along follows from its offset, sizes and strides alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tacit.training.isolation.recording import Ref


class Rows(NamedTuple):
    """Examples along a dimension: entry i of it belongs to example (i ÷ block) mod n.

    Without ``data`` the tensor holds nothing of the examples, but the dimension is as long as the batch; its
    ``block`` is then None.
    """

    dimension: int
    block: int | None
    data: bool = True


class Owned(NamedTuple):
    """The owner of the byte at o of a storage is example (o ÷ ``stride``) mod n.

    Without ``data`` the storage holds nothing of the examples, but the same for each of them.
    """

    stride: int
    data: bool = True


PUBLIC = "public"
"""Depends on no example."""
MIXED = "mixed"
"""Depends on several examples at once."""
COUNTED = "counted"
"""Depends on no example, but on the places of examples in the batch."""
UNCLEAR = "unclear"
"""Depends on how many examples there are, or on which place each has, in a way that cannot be followed."""
Owner = Owned | str
Found = Rows | str


def located(owned: Owned, examples: int, ref: Ref) -> Rows | None:
    """The dimension along which a view has all the examples in order, if there is one."""
    k, item = owned.stride, ref.dtype.itemsize
    start = ref.offset * item
    if (start // k) % examples:
        return None
    within = start % k
    found = None
    for dimension, (length, step) in enumerate(zip(ref.size, ref.stride, strict=True)):
        stride = step * item
        if length == 1 or stride % (k * examples) == 0:
            continue
        if length * stride <= k:
            within += (length - 1) * stride
            continue
        if found is not None or k % stride or length % (examples * (k // stride)):
            return None
        block = k // stride
        found = Rows(dimension, block)
        within += (block - 1) * stride
    return found._replace(data=owned.data) if found and within < k else None


def owning(rows: Rows, examples: int, ref: Ref) -> Owned | None:
    """The owners in a new storage, of which this tensor has its examples along a dimension."""
    if rows.block is None:
        return None
    owned = Owned(ref.stride[rows.dimension] * ref.dtype.itemsize * rows.block, rows.data)
    if not owned.stride or located(owned, examples, ref) != rows:
        return None
    return owned


def within_example(owned: Owned, examples: int, ref: Ref) -> Any:
    """Which part of each example a view is, which must not depend on how many there are."""
    k, item = owned.stride, ref.dtype.itemsize
    whole = k * examples
    dims: list[Any] = []
    for length, step in zip(ref.size, ref.stride, strict=True):
        stride = step * item
        if length == 1:
            dims.append(1)
        elif stride % whole == 0:
            dims.append((length, stride // whole))
        elif length * stride <= k:
            dims.append((length, "within", stride))
        else:
            dims.append((length / examples, "examples", stride))
    start = ref.offset * item
    return start // whole, start % k, dims


def fixed(ref: Ref) -> Any:
    """Which part of its storage a view is, but for dimensions that repeat one entry."""
    places = zip(ref.size, ref.stride, strict=True)
    return ref.offset, [(length, step) if step else 0 for length, step in places if length > 1]


def refs(entry: Any) -> list[Ref]:
    """The tensors of an entry of a trace, in order."""
    found: list[Ref] = []
    waiting = [entry]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Ref):
            found.append(each)
        elif isinstance(each, tuple):
            waiting.extend(reversed(each))
    return found
