"""Which kernels an op runs on: kinds of ONNX, TFLite and ATen in the groups of latency models."""

from __future__ import annotations

from typing import Final, cast

from peakfold.device import Group
from peakfold.ir import Graph, Op
from peakfold.ops import lookup

# "group: kinds"; what is not listed goes by its engine.
_TABLE: Final = """
conv: conv_transpose conv_3d conv_3d_transpose transpose_conv convolution_2d_transpose_bias
    deform_conv deform_conv2d stablehlo_convolution
depthwise: depthwise_conv_2d
attention: attention multi_head_attention group_query_attention ms_attention qattention
    flex_attention sdpa flex_sdpa
batch_norm: batch_normalization
norm: layer_normalization group_normalization group_norm instance_normalization
    rms_normalization lp_normalization l2_normalization simplified_layer_normalization
    skip_layer_normalization skip_simplified_layer_normalization embed_layer_normalization
    mean_variance_normalization lrn
softmax: softmax log_softmax hardmax bias_softmax qlinear_softmax
activation: gelu fast_gelu quick_gelu bias_gelu sigmoid qlinear_sigmoid tanh hard_swish
    hard_sigmoid mish elu selu celu softplus erf exp exp2 expm1 log log1p log2 log_sigmoid
    pow sqrt rsqrt swish sin cos
reduce: reduction moments ranking scan_elements top_k reduce_any reduce_all cum_sum cum_prod
    arg_max arg_min qlinear_reduce_mean
resize: resize upsample grid_sample affine_grid interpolate sample_grid resize_bilinear
    resize_nearest_neighbor
"""
# Convolutions whose weight's first axes say what they are: channels out, channels in a group.
_DENSE: Final = {
    "conv": 1,
    "fused_conv": 1,
    "conv_integer": 1,
    "qlinear_conv": 3,
    "nhwc_conv": 1,
    "nhwc_fused_conv": 1,
    "nchwc_conv": 1,
}


def _read(table: str) -> dict[str, Group]:
    found: dict[str, Group] = {}
    group: Group = "elementwise"
    for word in table.split():
        if word.endswith(":"):
            group = cast(Group, word[:-1])
        else:
            found[word] = group
    return found


_GROUP_OF: Final = _read(_TABLE)


def group_of(op: Op, graph: Graph) -> Group:
    """The group of an op.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> g = parse_graph("peakfold-graph 1\\ninput x: float32[1,8,4,4]\\n"
        ...                 "parameter w: float32[8,1,3,3]\\n"
        ...                 "y: float32[1,8,4,4] = conv(x, w, group=8)\\noutput y")
        >>> group_of(g.ops[0], g)
        'depthwise'
    """
    if op.kind in _DENSE:
        return _convolution(op, graph, _DENSE[op.kind])
    if op.kind == "conv_2d":
        return _channels_last(op, graph)
    if op.kind in _GROUP_OF:
        return _GROUP_OF[op.kind]
    if "pool" in op.kind or op.kind.startswith("reduce_"):
        return "reduce"
    engine = lookup(op.kind).engine
    if engine == "matrix":
        live = [name for name in op.operands if name and not graph.by_name[name].role.static]
        return "bmm" if len(live) > 1 and len(op.inputs) < 3 else "matmul"
    return "copy" if engine in ("copy", "none") else "elementwise"


def _convolution(op: Op, graph: Graph, position: int) -> Group:
    """By the weight, `[out, in / groups, *window]`."""
    shape = _shape(op, graph, position)
    groups = op.attrs.get("group", 1)
    if len(shape) < 2 or not isinstance(groups, int):
        return "conv"
    if groups > 1:
        return "depthwise" if shape[1] == 1 else "group_conv"
    return _by_window(shape[1], shape[2:])


def _channels_last(op: Op, graph: Graph) -> Group:
    """By TFLite's weight, `[out, *window, in]`."""
    shape = _shape(op, graph, 1)
    return "conv" if len(shape) < 2 else _by_window(shape[-1], shape[1:-1])


def _by_window(channels: int, window: tuple[int, ...]) -> Group:
    if all(size == 1 for size in window):
        return "pointwise"
    return "stem" if channels <= 4 else "conv"


def _shape(op: Op, graph: Graph, position: int) -> tuple[int, ...]:
    """A weight's shape; empty when it is absent or open."""
    name = op.inputs[position] if position < len(op.inputs) else ""
    shape = graph.by_name[name].shape if name else None
    sizes = tuple(size for size in shape or () if isinstance(size, int))
    return sizes if len(sizes) == len(shape or ()) else ()
