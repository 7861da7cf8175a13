"""ATen operator names -> op kinds of the registry. Data only; torch is not imported.

An operator that is missing here is either decomposed into operators that are listed (when
torch defines it through others) or becomes an unknown kind under its own name, which is
counted and shown. Views need no entry: they are recognised by their storage.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from peakfold.ir import AttrValue

Attrs = dict[str, AttrValue]

# "kind: names", names without overload, namespace and the underscore of an in-place form.
_TABLE: Final = """
conv: conv1d conv2d conv3d convolution _convolution conv_depthwise3d mkldnn_convolution
    thnn_conv2d slow_conv3d _slow_conv2d_forward _conv_depthwise2d
conv_transpose: conv_transpose1d conv_transpose2d conv_transpose3d
conv_backward: convolution_backward
linear: linear mkldnn_linear
packed_linear: _weight_int8pack_mm _weight_int4pack_mm linear_dynamic linear_relu_dynamic
    linear_dynamic_fp16 _dyn_quant_matmul_4bit fbgemm_linear_int8_weight
    fbgemm_linear_fp16_weight qlinear_pointwise linear_relu _weight_int4pack_mm_for_cpu
    _weight_int4pack_mm_with_scales_and_zeros
matmul: matmul mm bmm mv dot vdot _int_mm _scaled_mm linalg_matmul
grouped_matmul: _grouped_mm grouped_mm_fallback
addmm: addmm baddbmm addmv addbmm _addmm_activation sspaddmm
outer: outer ger
bilinear: bilinear
trilinear: _trilinear
sdpa: scaled_dot_product_attention _scaled_dot_product_flash_attention
    _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_cudnn_attention
    _scaled_dot_product_efficient_attention _scaled_dot_product_attention_math
    _scaled_dot_product_fused_attention_overrideable _flash_attention_forward
    _efficient_attention_forward _scaled_dot_product_attention_math_for_mps
sdpa_backward: _scaled_dot_product_flash_attention_backward
    _scaled_dot_product_flash_attention_for_cpu_backward
    _scaled_dot_product_efficient_attention_backward
    _scaled_dot_product_cudnn_attention_backward
rnn_layers: lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell
    mkldnn_rnn_layer quantized_lstm quantized_gru quantized_lstm_cell_dynamic
    quantized_gru_cell_dynamic quantized_rnn_tanh_cell_dynamic quantized_rnn_relu_cell_dynamic
encoder_layer: _transformer_encoder_layer_fwd _native_multi_head_attention
deform_conv2d: deform_conv2d
batch_normalization: batch_norm native_batch_norm cudnn_batch_norm _native_batch_norm_legit
    _native_batch_norm_legit_no_training _batch_norm_impl_index _batch_norm_with_update
    _batch_norm_no_update
layer_normalization: layer_norm native_layer_norm
group_normalization: group_norm native_group_norm
instance_normalization: instance_norm
rms_normalization: rms_norm _fused_rms_norm
norm_backward: native_layer_norm_backward native_group_norm_backward native_batch_norm_backward
    batch_norm_backward
weight_norm: _weight_norm _weight_norm_interface
softmax: softmax _softmax _safe_softmax
log_softmax: log_softmax _log_softmax
relu: relu
gelu: gelu
sigmoid: sigmoid
tanh: tanh
swish: silu
hard_swish: hardswish
hard_sigmoid: hardsigmoid
elu: elu
celu: celu
selu: selu
mish: mish
softplus: softplus
leaky_relu: leaky_relu
relu6: relu6
clip: clamp clip hardtanh clamp_min clamp_max
prelu: prelu _prelu_kernel
abs: abs
acos: acos
acosh: acosh
asin: asin
asinh: asinh
atan: atan
atanh: atanh
ceil: ceil
cos: cos
cosh: cosh
erf: erf
exp: exp
exp2: exp2
expm1: expm1
floor: floor
log: log
log1p: log1p
log2: log2
log_sigmoid: log_sigmoid
neg: neg negative
reciprocal: reciprocal
round: round
rsqrt: rsqrt
sign: sign
sin: sin
sinh: sinh
sqrt: sqrt
square: square
tan: tan
trunc: trunc fix
not: logical_not
bitwise_not: bitwise_not
is_nan: isnan
is_inf: isinf
add: add
sub: sub subtract
mul: mul multiply
div: div divide true_divide
pow: pow
mod: fmod
and: logical_and
or: logical_or
xor: logical_xor
bitwise_and: bitwise_and __and__
bitwise_or: bitwise_or __or__
bitwise_xor: bitwise_xor __xor__
equal: eq
greater: gt greater
greater_or_equal: ge greater_equal
less: lt less
less_or_equal: le less_equal
max: maximum
min: minimum
where: where
masked_fill: masked_fill
elementwise: rsub log10 erfc erfinv digamma lgamma frac sgn logit floor_divide remainder ne
    not_equal atan2 arctan2 hypot copysign fmax fmin heaviside xlogy special_expit nan_to_num
    threshold hardshrink softshrink angle i0 special_i0 polygamma isfinite bitwise_left_shift
    bitwise_right_shift __lshift__ __rshift__ conj_physical signbit isposinf isneginf deg2rad
    rad2deg complex polar gcd special_entr special_ndtr isclose sigmoid_backward tanh_backward
    threshold_backward hardtanh_backward max_pool2d_with_indices_backward
elementwise2: addcmul addcdiv lerp glu gelu_backward silu_backward masked_scatter
    hardswish_backward leaky_relu_backward elu_backward _softmax_backward_data
    _log_softmax_backward_data native_dropout_backward dist hardsigmoid_backward mse_loss
    l1_loss smooth_l1_loss huber_loss nll_loss nll_loss_nd nll_loss_forward nll_loss2d_forward
elementwise3: binary_cross_entropy binary_cross_entropy_with_logits kl_div mish_backward
    softplus_backward
softmax_cross_entropy_loss: cross_entropy_loss
random_dropout: dropout native_dropout feature_dropout alpha_dropout feature_alpha_dropout rrelu
    rrelu_with_noise
random_fill: rand randn randint randperm rand_like randn_like randint_like normal uniform
    bernoulli random exponential log_normal multinomial poisson cauchy geometric
reduce_sum: sum
reduce_mean: mean
reduce_prod: prod
reduce_max: amax
reduce_min: amin
reduce_log_sum_exp: logsumexp
arg_max: argmax
arg_min: argmin
reduction: max min any all nansum count_nonzero bincount aminmax trace histc nanmean
reduce_l2: norm linalg_vector_norm frobenius_norm linalg_norm renorm
moments: var std var_mean std_mean
cum_sum: cumsum
cum_prod: cumprod
scan_elements: cummax cummin logcumsumexp _cummax_helper diff
top_k: topk
ranking: sort argsort msort kthvalue median nanmedian mode quantile nanquantile _unique2
    unique_dim unique_consecutive unique_dim_consecutive searchsorted bucketize isin nms
window_pool: max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d
    max_pool2d_with_indices max_pool3d_with_indices max_pool1d_with_indices mkldnn_max_pool2d
    avg_pool2d_backward
adaptive_pool: adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d _adaptive_avg_pool2d
    _adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d
    _adaptive_avg_pool2d_backward
interpolate: upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d
    _upsample_nearest_exact2d _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d
    upsample_trilinear3d upsample_bicubic2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa
sample_grid: grid_sampler grid_sampler_2d grid_sampler_3d _grid_sampler_2d_cpu_fallback
roi_align: roi_align
max_roi_pool: roi_pool ps_roi_align ps_roi_pool
col2im: col2im
windows: im2col pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle
    max_unpool2d
copy: clone contiguous reshape flatten copy lift_fresh lift_fresh_copy detach_copy detach
    view_copy _unsafe_view to_dense alias_copy expand_copy permute_copy flip rot90 resolve_conj
    resolve_neg lift data slice_copy masked_select set_data _reshape_copy fliplr flipud
cast: _to_copy to type_as _cast_Float
concat: cat concat concatenate
stack: stack hstack vstack dstack
repeat: repeat tile repeat_interleave
roll: roll
trilu: tril triu
pad: pad constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d
    replication_pad2d replication_pad3d _pad_circular _pad_enum
filled: zeros ones full empty zeros_like ones_like full_like empty_like new_zeros new_ones
    new_full new_empty new_empty_strided empty_strided zero fill eye scalar_tensor tensor
    tril_indices triu_indices empty_permuted _efficientzerotensor fill_diagonal
sequence: arange linspace logspace range
gather: embedding index_select embedding_renorm
gather_elements: gather take_along_dim take
index: index _unsafe_index
index_put: index_put _unsafe_index_put _index_put_impl index_fill index_copy put
scatter_elements: scatter scatter_add scatter_reduce index_add index_reduce
put_slice: slice_scatter select_scatter diagonal_scatter as_strided_scatter slice_backward
    select_backward
one_hot: one_hot
packed_gather: embedding_byte embedding_4bit
packed_bag: embedding_bag_byte embedding_bag_4bit
embedding_bag: embedding_bag _embedding_bag _embedding_bag_forward_only
euclidean_distance: _euclidean_dist
pairwise_distance: _cdist_forward _pdist_forward
fft: fft_fft fft_ifft fft_rfft fft_irfft fft_hfft fft_ihfft fft_fft2 fft_ifft2 fft_rfft2
    fft_irfft2 fft_fftn fft_ifftn fft_rfftn fft_irfftn _fft_c2c _fft_r2c _fft_c2r
quantize_linear: quantize_per_tensor quantize_per_channel
dequantize_linear: dequantize dequantize_per_tensor dequantize_per_channel
nonzero_rows: nonzero nonzero_numpy nonzero_static argwhere
read_value: item _local_scalar_dense is_nonzero
flex_sdpa: flex_attention
"""


def _read(table: str) -> Mapping[str, str]:
    found: dict[str, str] = {}
    kind = ""
    for word in table.split():
        if word.endswith(":"):
            kind = word[:-1]
        else:
            found[word] = kind
    return MappingProxyType(found)


KIND_OF: Final[Mapping[str, str]] = _read(_TABLE)
"""ATen name (no overload, no in-place underscore) -> kind."""

IGNORED: Final = frozenset(
    {"_assert_async", "_assert_scalar", "_assert_tensor_metadata", "_functional_assert_async",
     "_functional_sym_constrain_range", "_functional_sym_constrain_range_for_size",
     "_guards_fn", "_make_dep_token", "_print", "_version", "sym_constrain_range",
     "sym_constrain_range_for_size", "sym_numel", "sym_size", "sym_storage_offset",
     "sym_stride", "version"}
)  # fmt: skip
"""Operators without a tensor result that only check or ask."""

INLINED: Final = frozenset(
    {"wrap_with_set_grad_enabled", "wrap_with_autocast", "tag_activation_checkpoint", "wrap",
     "wrap_activation_checkpoint", "invoke_subgraph", "hints_wrapper", "strict_mode",
     "checkpoint", "inline_asm_elementwise"}
)  # fmt: skip
"""Operators of a higher order that run their body once, as if it stood in their place."""

_RENAMED: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "batch_normalization": {"training": "training_mode", "train": "training_mode"},
        "concat": {"dim": "axis", "axis": "axis"},
        "conv": {"groups": "group"},
        "conv_transpose": {"groups": "group"},
        "gather": {"dim": "axis"},
        "gather_elements": {"dim": "axis"},
    }
)

_SEQ_FIRST: Final = frozenset({"_flash_attention_forward", "_efficient_attention_forward"})
_MODES: Final = ("nearest", "bilinear", "trilinear", "bicubic", "linear")
_KNOWN_DOMAINS: Final = frozenset(
    {
        "aten",
        "torchvision",
        "quantized",
        "quantized_decomposed",
        "onednn",
        "higher_order",
        "transformers",
    }
)


def torch_kind(domain: str, name: str, attrs: Mapping[str, AttrValue]) -> tuple[str, Attrs]:
    """Kind and attributes of an operator.

    Args:
        domain: the namespace: ``aten``, ``torchvision``, `` quantized``, ...
        name: the name without overload; a trailing underscore (in place) is dropped.
        attrs: its arguments that are no tensors, by schema name.

    Returns:
        The registry kind, or ``domain::name`` for an operator nobody listed.

    Example:
        >>> torch_kind("aten", "relu_", {})[0], torch_kind("mine", "warp", {})[0]
        ('relu', 'mine::warp')
        >>> torch_kind("aten", "convolution", {"transposed": True})[0]
        'conv_transpose'
    """
    bare = base_name(name)
    kind = KIND_OF.get(bare) if domain in _KNOWN_DOMAINS else None
    if kind is None:
        return f"{domain}::{name}", dict(attrs)
    if kind == "conv" and attrs.get("transposed"):
        kind = "conv_transpose"
    renamed = _RENAMED.get(kind, {})
    found = {renamed.get(key, key): value for key, value in attrs.items()}
    return kind, found | _implied(kind, bare, found)


def base_name(name: str) -> str:
    """The name of the functional form: ``add_`` is ``add``, ``__and__`` stays."""
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


def _implied(kind: str, name: str, attrs: Mapping[str, AttrValue]) -> Attrs:
    """Attributes that the name itself states."""
    if kind in ("window_pool", "adaptive_pool"):
        return {"axes": next((c for c in "123" if f"{c}d" in name), "2")}
    if kind == "interpolate":
        mode = next(mode for mode in _MODES if mode in name)
        return {"mode": f"{mode}_aa" if name.endswith("_aa") else mode}
    if kind == "rnn_layers":
        if name == "mkldnn_rnn_layer":
            return {"cell": {2: "lstm", 3: "gru"}.get(_whole(attrs.get("mode")), "rnn")}
        return {"cell": next((cell for cell in ("lstm", "gru") if cell in name), "rnn")}
    if kind == "sdpa" and name in _SEQ_FIRST:
        return {"layout": "seq_first"}
    if kind == "fft":
        real = any(part in name for part in ("r2c", "c2r", "_rfft", "_irfft", "hfft"))
        return {"field": "real" if real else "complex"}
    if kind == "batch_normalization" and ("no_training" in name or "no_update" in name):
        return {"training_mode": 0}
    if kind == "scatter_elements" and ("add" in name or "reduce" in name):
        return {"reduction": "add"}
    return {}


def _whole(value: AttrValue | None) -> int:
    return value if isinstance(value, int) else 0
