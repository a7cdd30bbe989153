"""Rules of the operations that keep examples apart: where they lie in the results, by where in the arguments.

A rule raises :class:`~.unproved.Unproved` where it cannot tell: the batch is then computed one
example at a time. What certainly depends on several examples, such as a sum over them, is ``MIXED``, and
stays so. Which operation has which rule is in :mod:`.table`.
"""

from __future__ import annotations

from typing import Any

import torch

from tacit.training.isolation.calls import Call, Rule, broadcast, combined, over
from tacit.training.isolation.places import COUNTED, MIXED, PUBLIC, Found, Rows
from tacit.training.isolation.recording import Ref
from tacit.training.isolation.unproved import Unproved


def elementwise(call: Call) -> list[Found]:
    shape = call.outs[0].size
    if any(each is not None and each.size != shape for each in call.outs):
        raise Unproved
    return call.same(broadcast(call.each(), shape))


def _dims(value: Any, rank: int) -> set[int]:
    if value is None or value in ((), []):
        return set(range(rank))
    return {each % max(rank, 1) for each in (value if type(value) is tuple else (value,))}


def reduction(call: Call) -> list[Found]:
    ref, found = _only(call)
    dims = _dims(call.values.get("dim"), len(ref.size))
    if found.dimension in dims:
        return call.same(over(found))
    if not call.values.get("keepdim"):
        found = found._replace(dimension=found.dimension - sum(each < found.dimension for each in dims))
    return call.same(found)


def _only(call: Call) -> tuple[Ref, Rows]:
    """The argument that comes first, the only one with examples."""
    first, *rest = call.each()
    if not isinstance(first[1], Rows) or any(found != PUBLIC for _, found in rest):
        raise Unproved
    return first  # type: ignore[return-value]


def along(call: Call) -> list[Found]:
    """Softmax and sums of what came before, along a dimension of arguments of one shape."""
    found = broadcast(call.each(), call.outs[0].size)
    if not isinstance(found, Rows):
        return call.same(found)
    if found.dimension in _dims(call["dim"], len(call.outs[0].size)):
        return call.same(over(found))
    return call.same(found)


def moving(name: str) -> Rule:
    """Entries put in another order, picked or dropped along dimensions that examples do not lie along."""

    def rule(call: Call) -> list[Found]:
        ref, found = _only(call)
        if found.dimension in _dims(call[name], len(ref.size)):
            raise Unproved
        return call.same(found)

    return rule


def gather(call: Call) -> list[Found]:
    """Also scatter: index and source have the examples where the tensor has them."""
    shape = call.values["self"].size
    rows = [(ref, found) for ref, found in call.each() if isinstance(found, Rows)]
    place = combined(found for _, found in rows)
    long = {ref.size[place.dimension] for ref, _ in call.each() if len(ref.size) == len(shape)}
    if place.dimension in _dims(call["dim"], len(shape)) or len(long) != 1:
        raise Unproved
    if any(len(ref.size) != len(shape) for ref, _ in rows):
        raise Unproved
    return call.same(place)


def _product(call: Call, left: str, right: str) -> Found:
    """Where the examples are in a product of matrices, or of as many of each."""
    a, b = call.at(left), call.at(right)
    rank = len(call[left].size)
    if rank == 3 and isinstance(a, Rows) and isinstance(b, Rows) and a.dimension == b.dimension == 0:
        return combined((a, b))
    if isinstance(a, Rows) and isinstance(b, Rows):
        if (a.data and b.data) or (a.dimension, b.dimension) == (rank - 1, rank - 2):
            return over(a)
        raise Unproved
    if isinstance(a, Rows):
        return over(a) if a.dimension == rank - 1 else a
    if isinstance(b, Rows):
        inner = max(0, len(call[right].size) - 2)
        return over(b) if b.dimension == inner else b
    return PUBLIC


def matrices(left: str, right: str, added: str = "") -> Rule:
    def rule(call: Call) -> list[Found]:
        found = _product(call, left, right)
        if not added or found == MIXED:
            return [found]
        (out,) = call.outs
        return [broadcast([(out, found), (call[added], call.at(added))], out.size)]

    return rule


def vector(call: Call) -> list[Found]:
    a, b = call.at("self"), call.at("vec")
    if isinstance(a, Rows) and b == PUBLIC:
        return [over(a) if a.dimension == 1 else a]
    raise Unproved


def patches(call: Call) -> list[Found]:
    """Patches of images, and images of patches; examples first."""
    ref, found = _only(call)
    if found.dimension or {len(ref.size), len(call.outs[0].size)} != {3, 4}:
        raise Unproved
    return call.same(found)


def images(trailing: int, *sources: str) -> Rule:
    """Operations within each image, on the last dimensions; the examples lie along one before them."""

    def rule(call: Call) -> list[Found]:
        tensors = call.each(*sources) if sources else call.each()
        rows = [(ref, found) for ref, found in tensors if isinstance(found, Rows)]
        place = combined(found for _, found in rows)
        if any(place.dimension >= len(ref.size) - trailing for ref, _ in rows):
            raise Unproved
        if any(each is not None and place.dimension >= len(each.size) - trailing for each in call.outs):
            raise Unproved
        return call.same(place)

    return rule


def convolution(call: Call) -> list[Found]:
    found = call.at("input")
    call.public("weight", "bias")
    if not isinstance(found, Rows) or found.dimension:
        raise Unproved
    return [found]


def convolution_backward(call: Call) -> list[Found]:
    call.public("weight")
    found = combined(f for _, f in call.each("grad_output", "input") if isinstance(f, Rows))
    if found.dimension:
        raise Unproved
    return [found, MIXED, MIXED]


def padded(call: Call) -> list[Found]:
    ref, found = _only(call)
    if found.dimension >= len(ref.size) - len(call["pad"]) // 2:
        raise Unproved
    return [found]


def layer_norm(call: Call) -> list[Found]:
    call.public("weight", "bias")
    found = call.at("input")
    if not isinstance(found, Rows):
        raise Unproved
    if found.dimension >= len(call["input"].size) - len(call["normalized_shape"]):
        return call.same(over(found))
    return call.same(found)


def norm_backward(*statistics: str) -> Rule:
    """The way back of a norm; its kernels take statistics of any shape for those of the way there."""

    def rule(call: Call) -> list[Found]:
        call.public("weight")
        found = combined(f for _, f in call.each("grad_out", "input", *statistics) if isinstance(f, Rows))
        size = call["input"].size
        if "group" in call.values:
            if found.dimension:
                raise Unproved
            own = (call["N"], call["group"])
        else:
            lead = len(size) - len(call["normalized_shape"])
            if found.dimension >= lead:
                raise Unproved
            own = (*size[:lead], *[1] * (len(size) - lead))
        if call["grad_out"].size != size or any(ref.size != own for ref, _ in call.each(*statistics)):
            raise Unproved
        return [found, *[MIXED] * (len(call.outs) - 1)]

    return rule


def group_norm(call: Call) -> list[Found]:
    call.public("weight", "bias")
    found = call.at("input")
    if not isinstance(found, Rows) or found.dimension or call["N"] != call["input"].size[0]:
        raise Unproved
    return call.same(found)


def batch_norm(call: Call) -> list[Found]:
    found = call.at("input")
    training = call.values.get("training", False)
    if not isinstance(found, Rows) or found.dimension > 1:
        raise Unproved
    if any(isinstance(f, Rows) and f.data for _, f in call.each("weight", "bias")):
        raise Unproved
    if not training:
        _check_channels(call, found, _RUNNING)
    if found.dimension == 1:
        # Every channel is normalised by itself: InstanceNorm has its examples among the channels.
        return [found, *[found._replace(dimension=0)] * (len(call.outs) - 1)]
    call.public("running_mean", "running_var")
    return call.same(over(found)) if training else [found, *[PUBLIC] * (len(call.outs) - 1)]


def batch_norm_backward(call: Call) -> list[Found]:
    found = combined(f for _, f in call.each("grad_out", "input") if isinstance(f, Rows))
    if any(isinstance(f, Rows) and f.data for _, f in call.each("weight")):
        raise Unproved
    _check_channels(call, found, ("save_mean", "save_invstd") if call["train"] else _RUNNING)
    if found.dimension == 1:
        return [found, *[MIXED] * (len(call.outs) - 1)]
    if found.dimension or call["train"]:
        raise Unproved
    return [found, *[MIXED] * (len(call.outs) - 1)]


_RUNNING = ("running_mean", "running_var")


def _check_channels(call: Call, found: Rows, statistics: tuple[str, ...]) -> None:
    """Statistics must be one for each channel: public, or of the example that the channel belongs to."""
    for ref, kind in call.each(*statistics):
        if ref.size != call["input"].size[1:2]:
            raise Unproved
        if isinstance(kind, Rows):
            combined([found, kind._replace(dimension=kind.dimension + 1)])


def embedding(call: Call) -> list[Found]:
    call.public("weight")
    return [call.at("indices")]


def index(call: Call) -> list[Found]:
    """Lookups in a public table, picks within an example, and one pick for each example."""
    subject, indices = call["self"], call["indices"]
    found = call.at("self")
    given = [(place, each) for place, each in enumerate(indices) if each is not None]
    if any(each.dtype in (torch.bool, torch.uint8) for _, each in given):
        raise Unproved
    places = [place for place, _ in given]
    together = places == list(range(places[0], places[0] + len(places)))
    kinds = [call.place(each) for _, each in given]
    wide = max(len(each.size) for _, each in given)
    (out,) = call.outs
    if found == PUBLIC and together and COUNTED not in kinds:
        shape = tuple(out.size[places[0] : places[0] + wide])
        picked = broadcast([(each, kind) for (_, each), kind in zip(given, kinds, strict=True)], shape)
        if isinstance(picked, Rows):
            picked = picked._replace(dimension=picked.dimension + places[0])
        return [picked]
    if not isinstance(found, Rows):
        raise Unproved
    if all(kind == PUBLIC for kind in kinds) and together and found.dimension not in places:
        shift = wide - len(places) if places[0] < found.dimension else 0
        return [found._replace(dimension=found.dimension + shift)]
    return [_one_each(call, subject, found, given, kinds, together)]


def _one_each(
    call: Call, subject: Ref, found: Rows, given: list[tuple[int, Ref]], kinds: list[Found], together: bool
) -> Rows:
    """x[arange(n), ...]: the first index counts the examples, and the others have them first."""
    place, counted = given[0]
    rest = [kind for kind in kinds[1:] if kind != PUBLIC]
    if place or found.dimension or found.block not in (1, None) or not together or kinds[0] != COUNTED:
        raise Unproved
    ranks = {len(each.size) for _, each in given}
    if len(ranks) != 1 or counted.size[0] != call.examples or any(each != 1 for each in counted.size[1:]):
        raise Unproved
    if counted.stride[0] != 1 or counted.offset or subject.size[0] != call.examples:
        raise Unproved
    if any(not isinstance(kind, Rows) or kind.dimension or kind.block not in (1, None) for kind in rest):
        raise Unproved
    return Rows(0, 1, found.data or any(isinstance(kind, Rows) and kind.data for kind in rest))


def index_put(call: Call) -> list[Found]:
    """The way back of one pick for each example."""
    subject, indices = call["self"], call["indices"]
    if any(each is None or each.dtype in (torch.bool, torch.uint8) for each in indices):
        raise Unproved
    found, values = call.at("self"), call.at("values")
    given = list(enumerate(indices))
    kinds = [call.place(each) for each in indices]
    base = found if isinstance(found, Rows) else Rows(0, None, False)
    _one_each(call, subject, base, given, kinds, True)
    if isinstance(values, Rows):
        short = len(call["values"].size) < len(indices[0].size)
        if values.dimension or values.block not in (1, None) or short:
            raise Unproved
    elif values != PUBLIC:
        raise Unproved
    return [Rows(0, 1, True)]


def concatenated(call: Call) -> list[Found]:
    (out,) = call.outs
    tensors = [(ref, found) for ref, found in call.each() if ref.size != (0,)]
    rows = combined(found for _, found in tensors if isinstance(found, Rows))
    long = {ref.size[rows.dimension] for ref, _ in tensors}
    if rows.dimension == call["dim"] % len(out.size) or len(long) != 1:
        raise Unproved
    return [rows]


def stacked(call: Call) -> list[Found]:
    (out,) = call.outs
    rows = combined(found for _, found in call.each() if isinstance(found, Rows))
    return [rows._replace(dimension=rows.dimension + (call["dim"] % len(out.size) <= rows.dimension))]


def repeated(call: Call) -> list[Found]:
    ref, found = _only(call)
    return [found._replace(dimension=found.dimension + len(call["repeats"]) - len(ref.size))]


def loss(call: Call) -> list[Found]:
    """Losses by entry; a loss of the batch as a whole is of all of its examples."""
    if call["reduction"]:
        return call.same(over(combined(found for _, found in call.each() if isinstance(found, Rows))))
    return elementwise(call)


def log_likelihood(call: Call) -> list[Found]:
    call.public("weight")
    found = combined(f for _, f in call.each("self", "target") if isinstance(f, Rows))
    if found.dimension or len(call["self"].size) < 2:
        raise Unproved
    return call.same(over(found)) if call["reduction"] else [found, PUBLIC]


def log_likelihood_backward(call: Call) -> list[Found]:
    call.public("weight", "total_weight")
    tensors = call.each("grad_output", "self", "target")
    found = combined(f for _, f in tensors if isinstance(f, Rows))
    if call["reduction"] or found.dimension:
        raise Unproved
    return [found]


def attention(*sources: str) -> Rule:
    """Attention of (examples, heads, positions, width), within an example or within a head."""

    def rule(call: Call) -> list[Found]:
        tensors = [(ref, found) for ref, found in call.each(*sources) if isinstance(found, Rows)]
        found = combined(each for _, each in tensors)
        query = call["query"].size
        if found.dimension > 1 or any(len(ref.size) < 3 for ref, _ in tensors):
            raise Unproved
        if any(ref.size[found.dimension] != query[found.dimension] for ref, _ in tensors):
            raise Unproved
        # On the way back kernels take what they are given for what came out on the way there.
        if any(ref.size[:3] != query[:3] for ref, _ in call.each("grad_out", "out", "logsumexp")):
            raise Unproved
        mask = call.values.get("attn_mask")
        if isinstance(mask, Ref):
            kind = call.at("attn_mask")
            if kind != PUBLIC:
                broadcast([(mask, kind), (call["query"], found)], (*query[:3], mask.size[-1]))
        return call.same(found)

    return rule


def taken_back(call: Call) -> list[Found]:
    """A gradient put where a slice or a choice was taken from."""
    ref, found = call.each("grad_output")[0]
    sizes, dim = call["input_sizes"], call["dim"] % len(call["input_sizes"])
    if not isinstance(found, Rows):
        raise Unproved
    dimension = found.dimension
    if len(sizes) > len(ref.size) and dim <= dimension:
        dimension += 1
    if dimension == dim or sizes[dimension] != ref.size[found.dimension]:
        raise Unproved
    return [found._replace(dimension=dimension)]


def halved(call: Call) -> list[Found]:
    """Gated linear units, along a dimension that examples do not lie along."""
    rows = [found for _, found in call.each() if isinstance(found, Rows)]
    place = combined(rows)
    if place.dimension == call["dim"] % len(call.outs[0].size):
        raise Unproved
    return call.same(place)


def transformed(call: Call) -> list[Found]:
    """Fourier transforms."""
    ref, found = _only(call)
    if found.dimension in _dims(call["dim"], len(ref.size)):
        return call.same(over(found))
    return call.same(found)
