"""The closed table: every operation that keeps examples apart, with its rule."""

from __future__ import annotations

from typing import Any

from tacit.training.isolation import rules
from tacit.training.isolation.calls import Rule
from tacit.training.isolation.operations import MAKES, overloads

_UNARY = """
    neg abs sign sgn exp exp2 expm1 log log2 log10 log1p sqrt rsqrt square reciprocal sin cos tan
    asin acos atan sinh cosh tanh asinh acosh atanh sigmoid erf erfc erfinv lgamma digamma floor
    ceil round trunc frac relu relu6 leaky_relu elu celu selu gelu silu mish hardtanh hardswish
    hardsigmoid softplus threshold nan_to_num clamp clamp_min clamp_max isnan isinf logical_not
    bitwise_not logit sinc positive softshrink hardshrink angle conj_physical special_i0 i0 deg2rad
    rad2deg
    """
_BINARY = """
    add sub rsub mul div true_divide floor_divide remainder fmod addcmul addcdiv lerp atan2 hypot
    pow eq ne lt le gt ge logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor
    maximum minimum fmax fmin logaddexp logaddexp2 xlogy copysign heaviside float_power masked_fill
    """
_OTHERS = """
    clone _to_copy contiguous where.self where.ScalarSelf where.ScalarOther where.Scalar
    bernoulli.default bernoulli.p bernoulli_.float bernoulli_.Tensor native_dropout
    log_sigmoid_forward _prelu_kernel copy copy_ fill fill_ zero_ uniform_ normal_ exponential_
    random_ complex polar threshold_backward sigmoid_backward tanh_backward gelu_backward
    silu_backward elu_backward mish_backward leaky_relu_backward hardtanh_backward
    hardswish_backward hardsigmoid_backward softplus_backward log_sigmoid_backward
    native_dropout_backward _prelu_kernel_backward logit_backward softshrink_backward
    hardshrink_backward
    """


def _in_place(names: str) -> str:
    return " ".join(f"{name} {name}_" for name in names.split())


_GROUPS: tuple[tuple[Rule, str], ...] = (
    (rules.elementwise, f"{_in_place(_UNARY)} {_in_place(_BINARY)} {_OTHERS}"),
    (
        rules.reduction,
        """
        sum mean amax amin prod var std var_mean std_mean logsumexp any all linalg_vector_norm norm
        argmax argmin max.dim min.dim max.default min.default median.dim median.default nansum aminmax
        count_nonzero kthvalue mode
        """,
    ),
    (
        rules.along,
        """
        cumsum cumprod logcumsumexp cummax cummin _safe_softmax _softmax _log_softmax
        _softmax_backward_data _log_softmax_backward_data cumsum_ cumprod_
        """,
    ),
    (rules.moving("dim"), "sort topk index_select"),
    (rules.moving("dims"), "flip roll"),
    (rules.gather, "gather scatter scatter_ scatter_add scatter_add_ scatter_reduce"),
    (rules.matrices("self", "mat2"), "mm bmm"),
    (rules.matrices("mat1", "mat2", "self"), "addmm addmm_"),
    (rules.matrices("batch1", "batch2", "self"), "baddbmm baddbmm_"),
    (rules.vector, "mv"),
    (rules.convolution, "convolution convolution_overrideable"),
    (rules.convolution_backward, "convolution_backward"),
    (rules.padded, "constant_pad_nd"),
    (
        rules.images(1),
        """
        max_pool1d avg_pool1d adaptive_avg_pool1d adaptive_max_pool1d reflection_pad1d replication_pad1d
        upsample_linear1d upsample_nearest1d reflection_pad1d_backward replication_pad1d_backward
        """,
    ),
    (
        rules.images(2),
        """
        max_pool2d max_pool2d_with_indices avg_pool2d _adaptive_avg_pool2d adaptive_max_pool2d
        fractional_max_pool2d reflection_pad2d replication_pad2d upsample_bilinear2d upsample_nearest2d
        upsample_bicubic2d _upsample_bilinear2d_aa _upsample_nearest_exact2d tril triu
        max_pool2d_with_indices_backward avg_pool2d_backward _adaptive_avg_pool2d_backward
        adaptive_max_pool2d_backward reflection_pad2d_backward replication_pad2d_backward
        upsample_bilinear2d_backward upsample_nearest2d_backward upsample_bicubic2d_backward
        _upsample_bilinear2d_aa_backward _upsample_nearest_exact2d_backward
        """,
    ),
    (
        rules.images(3),
        """
        max_pool3d_with_indices avg_pool3d _adaptive_avg_pool3d pixel_shuffle pixel_unshuffle
        channel_shuffle max_pool3d_with_indices_backward avg_pool3d_backward
        _adaptive_avg_pool3d_backward reflection_pad3d replication_pad3d upsample_trilinear3d
        upsample_nearest3d reflection_pad3d_backward replication_pad3d_backward
        upsample_trilinear3d_backward upsample_nearest3d_backward
        """,
    ),
    (rules.patches, "im2col col2im"),
    (rules.layer_norm, "native_layer_norm _fused_rms_norm"),
    (
        rules.norm_backward("mean", "rstd"),
        "native_layer_norm_backward native_group_norm_backward",
    ),
    (rules.norm_backward("rstd"), "_fused_rms_norm_backward"),
    (rules.group_norm, "native_group_norm"),
    (
        rules.batch_norm,
        """
        native_batch_norm _native_batch_norm_legit.no_stats _native_batch_norm_legit_no_training
        cudnn_batch_norm _batch_norm_no_update
        """,
    ),
    (rules.batch_norm_backward, "native_batch_norm_backward"),
    (rules.embedding, "embedding"),
    (rules.index, "index.Tensor _unsafe_index.Tensor"),
    (rules.index_put, "index_put index_put_ _unsafe_index_put _index_put_impl_"),
    (rules.concatenated, "cat"),
    (rules.stacked, "stack"),
    (rules.repeated, "repeat"),
    (
        rules.loss,
        """
        mse_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits
        soft_margin_loss
        """,
    ),
    (
        rules.loss,
        """
        mse_loss_backward smooth_l1_loss_backward huber_loss_backward binary_cross_entropy_backward
        """,
    ),
    (rules.log_likelihood, "nll_loss_forward nll_loss2d_forward"),
    (rules.log_likelihood_backward, "nll_loss_backward nll_loss2d_backward"),
    (
        rules.attention("query", "key", "value"),
        "_scaled_dot_product_flash_attention_for_cpu",
    ),
    (
        rules.attention("query", "key", "value", "grad_out", "out", "logsumexp"),
        "_scaled_dot_product_flash_attention_for_cpu_backward",
    ),
    (rules.taken_back, "slice_backward select_backward"),
    (rules.halved, "glu glu_backward"),
    (rules.transformed, "_fft_r2c _fft_c2r _fft_c2c"),
)

KEEPING: dict[Any, Rule] = {overload: rule for rule, names in _GROUPS for overload in overloads(names)}
"""Every operation that keeps examples apart for some arguments, by its overload."""

SIZES: dict[Any, tuple[str, ...]] = {
    **dict.fromkeys(MAKES, ("size", "stride")),
    **dict.fromkeys(overloads("arange"), ("end",)),
    **dict.fromkeys(overloads("repeat"), ("repeats",)),
    **dict.fromkeys(overloads("slice_backward select_backward"), ("input_sizes",)),
    **dict.fromkeys(overloads("native_group_norm native_group_norm_backward"), ("N",)),
    **dict.fromkeys(
        overloads(
            """
        upsample_linear1d_backward upsample_nearest1d_backward upsample_bilinear2d_backward
        upsample_nearest2d_backward upsample_bicubic2d_backward _upsample_bilinear2d_aa_backward
        _upsample_nearest_exact2d_backward upsample_trilinear3d_backward upsample_nearest3d_backward
        """
        ),
        ("input_size",),
    ),
}
"""Arguments that are numbers of entries and hence may grow with the batch; no other number may."""
