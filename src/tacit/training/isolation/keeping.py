"""The closed table of operations that keep examples apart, each with the rule of where they then lie.

A rule is given where the examples lie in each argument and says where they lie in each result. An operation
that is not in the table, or not for these arguments, is :class:`~tacit.training.tape.OtherRows`: the batch is
then computed one example at a time. What certainly depends on several examples, such as a sum over them, is
``MIXED``, and stays so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from tacit.training.isolation.operations import MAKES, overloads
from tacit.training.isolation.places import COUNTED, MIXED, PUBLIC, Found, Rows
from tacit.training.isolation.recording import Ref
from tacit.training.tape import OtherRows

_SCHEMAS: dict[Any, tuple[tuple[str, Any], ...]] = {}


class Call:
    """An operation of a trace, its arguments by name, and where the examples lie in them."""

    def __init__(self, entry: Any, place: Callable[[Ref], Found], examples: int) -> None:
        self.func, given, named, self.outs = entry
        self.examples = examples
        self._place = place
        schema = _SCHEMAS.get(self.func)
        if schema is None:
            schema = tuple((each.name, each.default_value) for each in self.func._schema.arguments)
            _SCHEMAS[self.func] = schema
        self.values = {name: default for name, default in schema}
        self.values.update(zip((name for name, _ in schema), given, strict=False))
        self.values.update(named)

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def at(self, name: str) -> Found:
        """Where the examples lie in an argument; nowhere in one that was not given."""
        value = self.values[name]
        return self._place(value) if isinstance(value, Ref) else PUBLIC

    def each(self, *names: str) -> list[tuple[Ref, Found]]:
        """The tensors among these arguments, or all, and where the examples lie in each."""
        chosen = [self.values.get(name) for name in names] if names else list(self.values.values())
        flat: list[Any] = []
        for value in chosen:
            flat.extend(value if type(value) is tuple else (value,))
        return [(value, self._place(value)) for value in flat if isinstance(value, Ref)]

    def public(self, *names: str) -> None:
        """These arguments must hold no examples."""
        if any(found != PUBLIC for _, found in self.each(*names)):
            raise OtherRows

    def same(self, found: Found) -> list[Found]:
        """Every result has its examples there."""
        return [found] * len(self.outs)


Rule = Callable[[Call], list[Found]]


def combined(rows: Iterable[Rows]) -> Rows:
    """One place for examples that lie at the same one in several tensors."""
    every = list(rows)
    blocks = {each.block for each in every if each.block is not None}
    if len({each.dimension for each in every}) != 1 or len(blocks) > 1:
        raise OtherRows
    return Rows(every[0].dimension, blocks.pop() if blocks else None, any(each.data for each in every))


def over(found: Rows) -> str:
    """What comes of adding up, or otherwise joining, examples."""
    if not found.data:
        raise OtherRows
    return MIXED


def broadcast(tensors: Iterable[tuple[Ref, Found]], shape: tuple[int, ...]) -> Found:
    """Where the examples lie in what tensors make when broadcast to a shape."""
    rows = []
    for ref, found in tensors:
        if isinstance(found, Rows):
            dimension = found.dimension + len(shape) - len(ref.size)
            if dimension < 0 or shape[dimension] != ref.size[found.dimension]:
                raise OtherRows
            rows.append(found._replace(dimension=dimension))
    return combined(rows) if rows else PUBLIC


def _elementwise(call: Call) -> list[Found]:
    shape = call.outs[0].size
    if any(each is not None and each.size != shape for each in call.outs):
        raise OtherRows
    return call.same(broadcast(call.each(), shape))


def _dims(value: Any, rank: int) -> set[int]:
    if value is None or value in ((), []):
        return set(range(rank))
    return {each % max(rank, 1) for each in (value if type(value) is tuple else (value,))}


def _reduction(call: Call) -> list[Found]:
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
        raise OtherRows
    return first  # type: ignore[return-value]


def _along(call: Call) -> list[Found]:
    """Softmax and sums of what came before, along a dimension of arguments of one shape."""
    found = broadcast(call.each(), call.outs[0].size)
    if not isinstance(found, Rows):
        return call.same(found)
    if found.dimension in _dims(call["dim"], len(call.outs[0].size)):
        return call.same(over(found))
    return call.same(found)


def _moving(name: str) -> Rule:
    """Entries put in another order, picked or dropped along dimensions that examples do not lie along."""

    def rule(call: Call) -> list[Found]:
        ref, found = _only(call)
        if found.dimension in _dims(call[name], len(ref.size)):
            raise OtherRows
        return call.same(found)

    return rule


def _gather(call: Call) -> list[Found]:
    """Also scatter: index and source have the examples where the tensor has them."""
    shape = call.values["self"].size
    rows = [(ref, found) for ref, found in call.each() if isinstance(found, Rows)]
    place = combined(found for _, found in rows)
    long = {
        ref.size[place.dimension] for ref, _ in call.each() if len(ref.size) == len(shape)
    }
    if place.dimension in _dims(call["dim"], len(shape)) or len(long) != 1:
        raise OtherRows
    if any(len(ref.size) != len(shape) for ref, _ in rows):
        raise OtherRows
    return call.same(place)


def _product(call: Call, left: str, right: str) -> Found:
    """Where the examples are in a product of matrices, or of as many of each."""
    a, b = call.at(left), call.at(right)
    rank = len(call[left].size)
    if rank == 3 and isinstance(a, Rows) and isinstance(b, Rows) and a.dimension == b.dimension == 0:
        return combined((a, b))
    if isinstance(a, Rows) and isinstance(b, Rows):
        if a.data and b.data or (a.dimension, b.dimension) == (rank - 1, rank - 2):
            return over(a)
        raise OtherRows
    if isinstance(a, Rows):
        return over(a) if a.dimension == rank - 1 else a
    if isinstance(b, Rows):
        inner = max(0, len(call[right].size) - 2)
        return over(b) if b.dimension == inner else b
    return PUBLIC


def _matrices(left: str, right: str, added: str = "") -> Rule:
    def rule(call: Call) -> list[Found]:
        found = _product(call, left, right)
        if not added or found == MIXED:
            return [found]
        (out,) = call.outs
        return [broadcast([(out, found), (call[added], call.at(added))], out.size)]

    return rule


def _vector(call: Call) -> list[Found]:
    a, b = call.at("self"), call.at("vec")
    if isinstance(a, Rows) and b == PUBLIC:
        return [over(a) if a.dimension == 1 else a]
    raise OtherRows


def _patches(call: Call) -> list[Found]:
    """Patches of images, and images of patches; examples first."""
    ref, found = _only(call)
    if found.dimension or {len(ref.size), len(call.outs[0].size)} != {3, 4}:
        raise OtherRows
    return call.same(found)


def _images(trailing: int, *sources: str) -> Rule:
    """Operations within each image: on the last dimensions of the arguments, all of which have the examples."""

    def rule(call: Call) -> list[Found]:
        tensors = call.each(*sources) if sources else call.each()
        rows = [(ref, found) for ref, found in tensors if isinstance(found, Rows)]
        place = combined(found for _, found in rows)
        if any(place.dimension >= len(ref.size) - trailing for ref, _ in rows):
            raise OtherRows
        if any(each is not None and place.dimension >= len(each.size) - trailing for each in call.outs):
            raise OtherRows
        return call.same(place)

    return rule


def _convolution(call: Call) -> list[Found]:
    found = call.at("input")
    call.public("weight", "bias")
    if not isinstance(found, Rows) or found.dimension:
        raise OtherRows
    return [found]


def _convolution_backward(call: Call) -> list[Found]:
    call.public("weight")
    found = combined(f for _, f in call.each("grad_output", "input") if isinstance(f, Rows))
    if found.dimension:
        raise OtherRows
    return [found, MIXED, MIXED]


def _padded(call: Call) -> list[Found]:
    ref, found = _only(call)
    if found.dimension >= len(ref.size) - len(call["pad"]) // 2:
        raise OtherRows
    return [found]


def _layer_norm(call: Call) -> list[Found]:
    call.public("weight", "bias")
    found = call.at("input")
    if not isinstance(found, Rows):
        raise OtherRows
    if found.dimension >= len(call["input"].size) - len(call["normalized_shape"]):
        return call.same(over(found))
    return call.same(found)


def _norm_backward(*sources: str) -> Rule:
    def rule(call: Call) -> list[Found]:
        call.public("weight")
        found = combined(f for _, f in call.each(*sources) if isinstance(f, Rows))
        if found.dimension >= len(call["input"].size) - len(call.values.get("normalized_shape") or ()):
            raise OtherRows
        if "group" in call.values and found.dimension:
            raise OtherRows
        return [found, *[MIXED] * (len(call.outs) - 1)]

    return rule


def _group_norm(call: Call) -> list[Found]:
    call.public("weight", "bias")
    found = call.at("input")
    if not isinstance(found, Rows) or found.dimension or call["N"] != call["input"].size[0]:
        raise OtherRows
    return call.same(found)


def _batch_norm(call: Call) -> list[Found]:
    found = call.at("input")
    training = call.values.get("training", False)
    if not isinstance(found, Rows) or found.dimension > 1:
        raise OtherRows
    if any(isinstance(f, Rows) and f.data for _, f in call.each("weight", "bias")):
        raise OtherRows
    if found.dimension == 1:
        # Every channel is normalised by itself: InstanceNorm has its examples among the channels.
        return [found, *[found._replace(dimension=0)] * (len(call.outs) - 1)]
    call.public("running_mean", "running_var")
    return call.same(over(found)) if training else [found, *[PUBLIC] * (len(call.outs) - 1)]


def _batch_norm_backward(call: Call) -> list[Found]:
    found = combined(f for _, f in call.each("grad_out", "input") if isinstance(f, Rows))
    statistics = call.each("save_mean", "save_invstd") if call["train"] else ()
    if any(isinstance(f, Rows) and f.data for _, f in call.each("weight")):
        raise OtherRows
    if found.dimension == 1 and all(f == PUBLIC or isinstance(f, Rows) for _, f in statistics):
        return [found, *[MIXED] * (len(call.outs) - 1)]
    if found.dimension or call["train"]:
        raise OtherRows
    return [found, *[MIXED] * (len(call.outs) - 1)]


def _embedding(call: Call) -> list[Found]:
    call.public("weight")
    return [call.at("indices")]


def _index(call: Call) -> list[Found]:
    """Lookups in a public table, picks within an example, and one pick for each example."""
    subject, indices = call["self"], call["indices"]
    found = call.at("self")
    given = [(place, each) for place, each in enumerate(indices) if each is not None]
    if any(each.dtype in (torch.bool, torch.uint8) for _, each in given):
        raise OtherRows
    places = [place for place, _ in given]
    together = places == list(range(places[0], places[0] + len(places)))
    kinds = [call._place(each) for _, each in given]
    wide = max(len(each.size) for _, each in given)
    (out,) = call.outs
    if found == PUBLIC and together and COUNTED not in kinds:
        shape = tuple(out.size[places[0] : places[0] + wide])
        picked = broadcast([(each, kind) for (_, each), kind in zip(given, kinds, strict=True)], shape)
        return [picked._replace(dimension=picked.dimension + places[0]) if isinstance(picked, Rows) else picked]
    if not isinstance(found, Rows):
        raise OtherRows
    if all(kind == PUBLIC for kind in kinds) and together and found.dimension not in places:
        shift = wide - len(places) if places[0] < found.dimension else 0
        return [found._replace(dimension=found.dimension + shift)]
    return [_one_each(call, subject, found, given, kinds, together)]


def _one_each(
    call: Call, subject: Ref, found: Rows, given: list[tuple[int, Ref]], kinds: list[Found], together: bool
) -> Rows:
    """x[arange(n), ...]: the first index counts the examples, and the others have them first."""
    (place, counted), *others = given
    rest = [kind for kind in kinds[1:] if kind != PUBLIC]
    if place or found.dimension or found.block not in (1, None) or not together or kinds[0] != COUNTED:
        raise OtherRows
    ranks = {len(each.size) for _, each in given}
    if len(ranks) != 1 or counted.size[0] != call.examples or counted.size[1:].count(1) != len(counted.size) - 1:
        raise OtherRows
    if counted.stride[0] != 1 or counted.offset or subject.size[0] != call.examples:
        raise OtherRows
    if any(not isinstance(kind, Rows) or kind.dimension or kind.block not in (1, None) for kind in rest):
        raise OtherRows
    return Rows(0, 1, found.data or any(isinstance(kind, Rows) and kind.data for kind in rest))


def _index_put(call: Call) -> list[Found]:
    """The way back of one pick for each example."""
    subject, indices = call["self"], call["indices"]
    if any(each is None or each.dtype in (torch.bool, torch.uint8) for each in indices):
        raise OtherRows
    found, values = call.at("self"), call.at("values")
    given = list(enumerate(indices))
    kinds = [call._place(each) for each in indices]
    base = found if isinstance(found, Rows) else Rows(0, None, False)
    _one_each(call, subject, base, given, kinds, True)
    if isinstance(values, Rows):
        if values.dimension or values.block not in (1, None) or len(call["values"].size) < len(indices[0].size):
            raise OtherRows
    elif values != PUBLIC:
        raise OtherRows
    return [Rows(0, 1, True)]


def _concatenated(call: Call) -> list[Found]:
    (out,) = call.outs
    tensors = [(ref, found) for ref, found in call.each() if ref.size != (0,)]
    rows = combined(found for _, found in tensors if isinstance(found, Rows))
    long = {ref.size[rows.dimension] for ref, _ in tensors}
    if rows.dimension == call["dim"] % len(out.size) or len(long) != 1:
        raise OtherRows
    return [rows]


def _stacked(call: Call) -> list[Found]:
    (out,) = call.outs
    rows = combined(found for _, found in call.each() if isinstance(found, Rows))
    return [rows._replace(dimension=rows.dimension + (call["dim"] % len(out.size) <= rows.dimension))]


def _repeated(call: Call) -> list[Found]:
    ref, found = _only(call)
    return [found._replace(dimension=found.dimension + len(call["repeats"]) - len(ref.size))]


def _loss(call: Call) -> list[Found]:
    """Losses by entry; a loss of the batch as a whole is of all of its examples."""
    if call["reduction"]:
        return call.same(over(combined(found for _, found in call.each() if isinstance(found, Rows))))
    return _elementwise(call)


def _log_likelihood(call: Call) -> list[Found]:
    call.public("weight")
    found = combined(f for _, f in call.each("self", "target") if isinstance(f, Rows))
    if found.dimension or len(call["self"].size) < 2:
        raise OtherRows
    return call.same(over(found)) if call["reduction"] else [found, PUBLIC]


def _log_likelihood_backward(call: Call) -> list[Found]:
    call.public("weight", "total_weight")
    tensors = call.each("grad_output", "self", "target")
    found = combined(f for _, f in tensors if isinstance(f, Rows))
    if call["reduction"] or found.dimension:
        raise OtherRows
    return [found]


def _attention(*sources: str) -> Rule:
    """Attention of (examples, heads, positions, width), within an example or within a head."""

    def rule(call: Call) -> list[Found]:
        tensors = [(ref, found) for ref, found in call.each(*sources) if isinstance(found, Rows)]
        found = combined(each for _, each in tensors)
        query = call["query"].size
        if found.dimension > 1 or any(len(ref.size) < 3 for ref, _ in tensors):
            raise OtherRows
        if any(ref.size[found.dimension] != query[found.dimension] for ref, _ in tensors):
            raise OtherRows
        mask = call.values.get("attn_mask")
        if isinstance(mask, Ref):
            kind = call.at("attn_mask")
            if kind != PUBLIC:
                broadcast([(mask, kind), (call["query"], found)], (*query[:3], mask.size[-1]))
        return call.same(found)

    return rule


def _taken_back(call: Call) -> list[Found]:
    """A gradient put where a slice or a choice was taken from."""
    ref, found = call.each("grad_output")[0]
    sizes, dim = call["input_sizes"], call["dim"] % len(call["input_sizes"])
    if not isinstance(found, Rows):
        raise OtherRows
    dimension = found.dimension
    if len(sizes) > len(ref.size) and dim <= dimension:
        dimension += 1
    if dimension == dim or sizes[dimension] != ref.size[found.dimension]:
        raise OtherRows
    return [found._replace(dimension=dimension)]


def _halved(call: Call) -> list[Found]:
    """Gated linear units, along a dimension that examples do not lie along."""
    rows = [found for _, found in call.each() if isinstance(found, Rows)]
    place = combined(rows)
    if place.dimension == call["dim"] % len(call.outs[0].size):
        raise OtherRows
    return call.same(place)


def _transformed(call: Call) -> list[Found]:
    """Fourier transforms."""
    ref, found = _only(call)
    if found.dimension in _dims(call["dim"], len(ref.size)):
        return call.same(over(found))
    return call.same(found)


_UNARY = (
    "neg abs sign sgn exp exp2 expm1 log log2 log10 log1p sqrt rsqrt square reciprocal sin cos tan asin acos "
    "atan sinh cosh tanh asinh acosh atanh sigmoid erf erfc erfinv lgamma digamma floor ceil round trunc frac "
    "relu relu6 leaky_relu elu celu selu gelu silu mish hardtanh hardswish hardsigmoid softplus threshold "
    "nan_to_num clamp clamp_min clamp_max isnan isinf logical_not bitwise_not logit sinc positive softshrink "
    "hardshrink angle conj_physical special_i0 i0 deg2rad rad2deg"
)
_BINARY = (
    "add sub rsub mul div true_divide floor_divide remainder fmod addcmul addcdiv lerp atan2 hypot pow eq ne lt "
    "le gt ge logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor maximum minimum fmax fmin "
    "logaddexp logaddexp2 xlogy copysign heaviside float_power masked_fill"
)
_OTHERS = (
    "clone _to_copy contiguous where.self where.ScalarSelf where.ScalarOther where.Scalar bernoulli.default "
    "bernoulli.p bernoulli_.float bernoulli_.Tensor native_dropout log_sigmoid_forward _prelu_kernel copy copy_ "
    "fill fill_ zero_ uniform_ normal_ exponential_ random_ complex polar "
    "threshold_backward sigmoid_backward tanh_backward gelu_backward silu_backward elu_backward mish_backward "
    "leaky_relu_backward hardtanh_backward hardswish_backward hardsigmoid_backward softplus_backward "
    "log_sigmoid_backward native_dropout_backward _prelu_kernel_backward logit_backward softshrink_backward "
    "hardshrink_backward"
)


def _in_place(names: str) -> str:
    return " ".join(f"{name} {name}_" for name in names.split())


_GROUPS: tuple[tuple[Rule, str], ...] = (
    (_elementwise, f"{_in_place(_UNARY)} {_in_place(_BINARY)} {_OTHERS}"),
    (
        _reduction,
        "sum mean amax amin prod var std var_mean std_mean logsumexp any all linalg_vector_norm norm argmax argmin "
        "max.dim min.dim max.default min.default median.dim median.default nansum aminmax count_nonzero "
        "kthvalue mode",
    ),
    (
        _along,
        "cumsum cumprod logcumsumexp cummax cummin _safe_softmax _softmax _log_softmax _softmax_backward_data "
        "_log_softmax_backward_data cumsum_ cumprod_",
    ),
    (_moving("dim"), "sort topk index_select"),
    (_moving("dims"), "flip roll"),
    (_gather, "gather scatter scatter_ scatter_add scatter_add_ scatter_reduce"),
    (_matrices("self", "mat2"), "mm bmm"),
    (_matrices("mat1", "mat2", "self"), "addmm addmm_"),
    (_matrices("batch1", "batch2", "self"), "baddbmm baddbmm_"),
    (_vector, "mv"),
    (_convolution, "convolution _convolution convolution_overrideable"),
    (_convolution_backward, "convolution_backward"),
    (_padded, "constant_pad_nd"),
    (
        _images(1),
        "max_pool1d avg_pool1d adaptive_avg_pool1d adaptive_max_pool1d reflection_pad1d replication_pad1d "
        "upsample_linear1d upsample_nearest1d reflection_pad1d_backward replication_pad1d_backward",
    ),
    (
        _images(2),
        "max_pool2d max_pool2d_with_indices avg_pool2d _adaptive_avg_pool2d adaptive_max_pool2d "
        "fractional_max_pool2d reflection_pad2d replication_pad2d upsample_bilinear2d upsample_nearest2d "
        "upsample_bicubic2d _upsample_bilinear2d_aa _upsample_nearest_exact2d tril triu "
        "max_pool2d_with_indices_backward avg_pool2d_backward _adaptive_avg_pool2d_backward "
        "adaptive_max_pool2d_backward reflection_pad2d_backward replication_pad2d_backward "
        "upsample_bilinear2d_backward upsample_nearest2d_backward upsample_bicubic2d_backward "
        "_upsample_bilinear2d_aa_backward _upsample_nearest_exact2d_backward",
    ),
    (
        _images(3),
        "max_pool3d_with_indices avg_pool3d _adaptive_avg_pool3d pixel_shuffle pixel_unshuffle channel_shuffle "
        "max_pool3d_with_indices_backward avg_pool3d_backward _adaptive_avg_pool3d_backward reflection_pad3d "
        "replication_pad3d upsample_trilinear3d upsample_nearest3d reflection_pad3d_backward "
        "replication_pad3d_backward upsample_trilinear3d_backward upsample_nearest3d_backward",
    ),
    (_patches, "im2col col2im"),
    (_layer_norm, "native_layer_norm _fused_rms_norm"),
    (_norm_backward("grad_out", "input", "mean", "rstd"), "native_layer_norm_backward native_group_norm_backward"),
    (_norm_backward("grad_out", "input", "rstd"), "_fused_rms_norm_backward"),
    (_group_norm, "native_group_norm"),
    (
        _batch_norm,
        "native_batch_norm _native_batch_norm_legit.no_stats _native_batch_norm_legit_no_training cudnn_batch_norm "
        "_batch_norm_no_update",
    ),
    (_batch_norm_backward, "native_batch_norm_backward"),
    (_embedding, "embedding"),
    (_index, "index.Tensor _unsafe_index.Tensor"),
    (_index_put, "index_put index_put_ _unsafe_index_put _index_put_impl_"),
    (_concatenated, "cat"),
    (_stacked, "stack"),
    (_repeated, "repeat"),
    (_loss, "mse_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits soft_margin_loss"),
    (_loss, "mse_loss_backward smooth_l1_loss_backward huber_loss_backward binary_cross_entropy_backward"),
    (_log_likelihood, "nll_loss_forward nll_loss2d_forward"),
    (_log_likelihood_backward, "nll_loss_backward nll_loss2d_backward"),
    (
        _attention("query", "key", "value"),
        "_scaled_dot_product_flash_attention_for_cpu",
    ),
    (
        _attention("query", "key", "value", "grad_out", "out", "logsumexp"),
        "_scaled_dot_product_flash_attention_for_cpu_backward",
    ),
    (_taken_back, "slice_backward select_backward"),
    (_halved, "glu glu_backward"),
    (_transformed, "_fft_r2c _fft_c2r _fft_c2c"),
)

KEEPING: dict[Any, Rule] = {
    overload: rule for rule, names in _GROUPS for overload in overloads(names)
}
"""Every operation that keeps examples apart for some arguments, by its overload."""

SIZES: dict[Any, tuple[str, ...]] = {
    **dict.fromkeys(MAKES, ("size", "stride")),
    **dict.fromkeys(overloads("arange"), ("end",)),
    **dict.fromkeys(overloads("repeat"), ("repeats",)),
    **dict.fromkeys(overloads("slice_backward select_backward"), ("input_sizes",)),
    **dict.fromkeys(overloads("native_group_norm native_group_norm_backward"), ("N",)),
    **dict.fromkeys(
        overloads(
            "upsample_linear1d_backward upsample_nearest1d_backward upsample_bilinear2d_backward "
            "upsample_nearest2d_backward upsample_bicubic2d_backward _upsample_bilinear2d_aa_backward "
            "_upsample_nearest_exact2d_backward upsample_trilinear3d_backward upsample_nearest3d_backward"
        ),
        ("input_size",),
    ),
}
"""Arguments that are numbers of entries and hence may grow with the batch; no other number may."""
