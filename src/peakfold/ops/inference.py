"""Operands whose values decide shapes, and how row functions read them.

A front end writes the known value of such an operand into ``op.attrs`` under the name below,
as a number for a scalar and a tuple for a vector, so an operator that takes ``axes`` as an
attribute in one version and as an operand in the next looks the same to every row. Row
functions read attributes only. An operand that is present while its attribute is not has a
value nobody knows: the readers here then stop the rule, which answers "cannot tell".

Attributes that hold a tensor (``value`` of Constant and ConstantOfShape) have no form in the
IR: a front end writes ``value_dtype`` (the element type's name; float32 for a ConstantOfShape
without a value) and, for Constant, ``value_shape``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from peakfold.ir.graph import Op, Tensor
from peakfold.ir.types import DTYPES, DType, Shape
from peakfold.ops.spec import Context, concrete

_AXES: Final[Mapping[int, str]] = MappingProxyType({1: "axes"})
_REDUCTIONS: Final = (
    "reduce_l1",
    "reduce_l2",
    "reduce_log_sum",
    "reduce_log_sum_exp",
    "reduce_max",
    "reduce_mean",
    "reduce_min",
    "reduce_prod",
    "reduce_sum",
    "reduce_sum_square",
)

# TFLite hands over as operands what its options do not hold.
_TFLITE: Final[Mapping[str, Mapping[int, str]]] = {
    "arg_max": {1: "axis"},
    "arg_min": {1: "axis"},
    "batch_to_space_nd": {1: "block_shape", 2: "crops"},
    "broadcast_to": {1: "shape"},
    "conv_3d_transpose": {0: "output_shape"},
    "dilate": {1: "dilations"},
    "fill": {0: "dims"},
    "non_max_suppression_v4": {2: "max_output_size"},
    "non_max_suppression_v5": {2: "max_output_size"},
    "random_standard_normal": {0: "shape"},
    "reduce_all": _AXES,
    "reduce_any": _AXES,
    "resize_bilinear": {1: "size"},
    "resize_nearest_neighbor": {1: "size"},
    "reverse_v2": _AXES,
    "rfft2d": {1: "fft_length"},
    "space_to_batch_nd": {1: "block_shape", 2: "paddings"},
    "sparse_to_dense": {1: "output_shape"},
    "split_v": {1: "split", 2: "axis"},
    "strided_slice": {1: "begin", 2: "end", 3: "strides"},
    "tfl_multinomial": {1: "num_samples"},
    "tfl_random_uniform": {0: "shape"},
    "tfl_scatter_nd": {2: "shape"},
    "tfl_slice": {1: "begin", 2: "size"},
    "tfl_split": {0: "axis"},
    "transpose": {1: "perm"},
    "transpose_conv": {0: "output_shape"},
    "unsorted_segment_max": {2: "num_segments"},
    "unsorted_segment_min": {2: "num_segments"},
    "unsorted_segment_prod": {2: "num_segments"},
    "unsorted_segment_sum": {2: "num_segments"},
}

VALUE_INPUTS: Final[Mapping[str, Mapping[int, str]]] = MappingProxyType(
    {
        "affine_grid": {1: "size"},
        "beam_search": {1: "max_length", 3: "num_beams", 4: "num_return_sequences"},
        "blackman_window": {0: "size"},
        "center_crop_pad": {1: "shape"},
        "col2im": {1: "image_shape", 2: "block_shape"},
        "constant_of_shape": {0: "shape"},
        "conv_transpose_with_dynamic_pads": {2: "pads"},
        "crop_and_resize": {3: "crop_size"},
        "cum_prod": {1: "axis"},
        "cum_sum": {1: "axis"},
        "dft": {1: "dft_length", 2: "axis"},
        "bias_dropout": {4: "training_mode"},
        "dropout": {1: "ratio", 2: "training_mode"},
        "expand": {1: "shape"},
        "expand_dims": {1: "axis"},
        "greedy_search": {1: "max_length"},
        "group_query_attention": {6: "total_sequence_length"},
        "hamming_window": {0: "size"},
        "hann_window": {0: "size"},
        "loop": {0: "m"},
        "matmul_fp_q4": {2: "b_shape"},
        "max_unpool": {2: "output_shape"},
        "mel_weight_matrix": {0: "num_mel_bins", 1: "dft_length"},
        "one_hot": {1: "depth"},
        "pad": {1: "pads", 3: "axes"},
        "range": {0: "start", 1: "limit", 2: "delta"},
        **dict.fromkeys(_REDUCTIONS, _AXES),
        "reshape": {1: "shape"},
        # Version 10 has (X, scales): the row reads a lone position 1 as scales.
        "resize": {1: "roi", 2: "scales", 3: "sizes"},
        "sampling": {1: "max_length"},
        "slice": {1: "starts", 2: "ends", 3: "axes", 4: "steps"},
        "split": {1: "split"},
        "squeeze": _AXES,
        "stft": {1: "frame_step", 3: "frame_length"},
        "tile": {1: "repeats"},
        "top_k": {1: "k"},
        "trilu": {1: "k"},
        "unsqueeze": _AXES,
        "upsample": {1: "scales"},
        "whisper_beam_search": {1: "max_length", 3: "num_beams", 4: "num_return_sequences"},
        **_TFLITE,
    }
)
"""Kind -> operand position -> attribute name, for every operand whose value decides a shape."""

_SCALES: Final[Mapping[int, str]] = MappingProxyType({1: "scale", 2: "scale"})
_INDICES: Final[Mapping[int, str]] = MappingProxyType({1: "index"})
_STATES: Final[Mapping[int, str]] = MappingProxyType({4: "index", 5: "state", 6: "state"})
_QLINEAR: Final[Mapping[int, str]] = MappingProxyType(
    {1: "scale", 2: "scale", 4: "scale", 5: "scale", 6: "scale", 7: "scale"}
)

NOT_WEIGHTS: Final[Mapping[str, Mapping[int, str]]] = MappingProxyType(
    {
        "batch_normalization": {3: "statistic", 4: "statistic"},
        "conv_integer": {2: "scale", 3: "scale"},
        "dequantize_linear": _SCALES,
        "dynamic_quantize_lstm": {
            3: "index",
            4: "state",
            5: "state",
            8: "scale",
            9: "scale",
            10: "scale",
            11: "scale",
        },
        "dynamic_quantize_matmul": {2: "scale", 3: "scale"},
        "gather": _INDICES,
        "gather_elements": _INDICES,
        "gather_nd": _INDICES,
        "group_query_attention": {5: "index", 6: "index", 7: "table", 8: "table"},
        "gru": _STATES,
        "lstm": _STATES,
        "matmul_bnb4": {2: "scale"},
        "matmul_integer": {2: "scale", 3: "scale"},
        "matmul_integer_to_float": {2: "scale", 3: "scale", 4: "scale", 5: "scale"},
        "matmul_nbits": {2: "scale", 3: "scale", 4: "index"},
        "ms_rotary_embedding": {1: "index", 2: "table", 3: "table"},
        "qattention": {3: "scale", 4: "scale", 6: "scale", 7: "scale", 8: "state"},
        "qgemm": {1: "scale", 2: "scale", 4: "scale", 5: "scale", 7: "scale", 8: "scale"},
        "qlinear_add": _QLINEAR,
        "qlinear_conv": _QLINEAR,
        "qlinear_matmul": _QLINEAR,
        "qlinear_mul": _QLINEAR,
        "qmoe": {3: "scale", 6: "scale", 9: "scale"},
        "quantize_linear": _SCALES,
        "rnn": _STATES,
        "rotary_embedding": {1: "table", 2: "table", 3: "index"},
        "scatter": _INDICES,
        "scatter_elements": _INDICES,
        "scatter_nd": _INDICES,
    }
)
"""Kind -> operand position -> what a stored tensor there is, where it is no weight.

``statistic``: moments that training estimates and no gradient reaches; ``scale``: scales and zero
points of a quantised tensor; ``index``: positions and lengths; ``table``: sines and cosines of
positions; ``state``: the first value of a recurrence.
"""

_EXPERTS: Final = (2, 5, 8)  # matrices of the experts of `qmoe`, packed

# Numbers of the ONNX TensorProto.DataType enumeration (onnx.proto), for attributes such as
# Cast's `to`. A front end may write the element type's name instead.
_CODES: Final[Mapping[int, str]] = MappingProxyType(
    {
        1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64",
        8: "string", 9: "bool", 10: "float16", 11: "float64", 12: "uint32", 13: "uint64",
        14: "complex64", 15: "complex128", 16: "bfloat16", 17: "float8e4m3fn",
        18: "float8e4m3fnuz", 19: "float8e5m2", 20: "float8e5m2fnuz", 21: "uint4", 22: "int4",
        23: "float4e2m1", 24: "float8e8m0", 25: "uint2", 26: "int2",
    }
)  # fmt: skip


def held_weights(op: Op, position: int, stored: int | None) -> int | None:
    """How many weights a stored operand holds.

    Some operators keep weights of a few bits in bytes, several in each element of their tensor.

    Args:
        op: the reader.
        position: of the operand.
        stored: elements of its tensor.

    Example:
        >>> bits = Op("y", "matmul_nbits", ("x", "w", "s"), ("y",), {"K": 64, "N": 32, "bits": 4})
        >>> held_weights(bits, 1, 1024), held_weights(bits, 2, 64)
        (2048, 64)
    """
    if op.kind in ("matmul_nbits", "matmul_bnb4") and position == 1:
        rows, columns = op.attrs.get("K"), op.attrs.get("N")
        if isinstance(rows, int) and isinstance(columns, int):
            return rows * columns
    if op.kind == "qmoe" and position in _EXPERTS and stored is not None:
        bits = op.attrs.get("expert_weight_bits", 4)
        return stored * (8 // bits if isinstance(bits, int) and 0 < bits <= 8 else 1)
    return stored


class CannotTell(Exception):
    """Raised inside a row function to stop it; never leaves the registry."""


class Misfit(CannotTell):
    """The same where operands contradict each other, so that no result exists; says how."""


def given(ctx: Context, position: int) -> bool:
    """Whether an optional operand is present."""
    return position < len(ctx.inputs) and ctx.inputs[position] is not None


def wanted(ctx: Context, position: int) -> bool:
    """Whether somebody asked for an output."""
    return position < len(ctx.op.outputs) and bool(ctx.op.outputs[position])


def operand(ctx: Context, position: int) -> Tensor:
    """The operand at `position`; stops the rule when it is absent."""
    tensor = ctx.inputs[position] if position < len(ctx.inputs) else None
    if tensor is None:
        raise CannotTell
    return tensor


def dtype(ctx: Context, position: int = 0) -> DType:
    """Element type of an operand; stops the rule for opaque values (sequences, optionals)."""
    found = operand(ctx, position).dtype
    if found.name == "opaque":
        raise CannotTell
    return found


def dims(ctx: Context, position: int = 0) -> Shape:
    """Shape of an operand, symbols allowed; stops the rule when it is not known."""
    shape = operand(ctx, position).shape
    if shape is None:
        raise CannotTell
    return shape


def sizes(ctx: Context, position: int = 0) -> tuple[int, ...]:
    """Shape of an operand in numbers; stops the rule when a dimension is a symbol."""
    shape = concrete(operand(ctx, position))
    if shape is None:
        raise CannotTell
    return shape


def produced(ctx: Context) -> tuple[int, ...]:
    """Shape of output 0 in numbers, for rules that run after shape inference."""
    shape = ctx.out_shape(0)
    if shape is None:
        raise CannotTell
    return shape


def _present(ctx: Context, name: str) -> bool:
    if name in ctx.op.attrs:
        return True
    for position, known_as in VALUE_INPUTS.get(ctx.op.kind, {}).items():
        if known_as == name and given(ctx, position):
            raise CannotTell
    return False


def numbers(ctx: Context, name: str) -> tuple[float, ...] | None:
    """A list of numbers, `None` when not given; stops the rule when its value is unknown."""
    if not _present(ctx, name):
        return None
    value = ctx.op.attrs[name]
    if isinstance(value, int | float):
        return (value,)
    if not isinstance(value, tuple):
        raise CannotTell
    found = tuple(v for v in value if not isinstance(v, str))
    if len(found) != len(value):
        raise CannotTell
    return found


def ints(ctx: Context, name: str) -> tuple[int, ...] | None:
    """A list of integers, `None` when not given; a lone number is a list of one.

    Raises:
        CannotTell: the operand is there but its value is not known, or it is not integral.

    Example:
        >>> from peakfold.ir.graph import Op
        >>> ctx = Context(Op("n", "squeeze", ("x",), ("y",), {"axes": (0, 2)}), (None,), ())
        >>> ints(ctx, "axes"), ints(ctx, "steps")
        ((0, 2), None)
    """
    found = numbers(ctx, name)
    if found is None:
        return None
    # OneHot's depth may be written as a floating-point number.
    if any(v != int(v) for v in found):
        raise CannotTell
    return tuple(int(v) for v in found)


def needed(values: tuple[int, ...] | None) -> tuple[int, ...]:
    """`values`; stops the rule when they were not given."""
    if values is None:
        raise CannotTell
    return values


def integer(ctx: Context, name: str, default: int | None = None) -> int:
    """One integer; stops the rule when it is unknown, or not given without a default."""
    found = ints(ctx, name)
    if found is None:
        if default is None:
            raise CannotTell
        return default
    if len(found) != 1:
        raise CannotTell
    return found[0]


def text(ctx: Context, name: str, default: str) -> str:
    """A string attribute."""
    value = ctx.op.attrs.get(name, default)
    if not isinstance(value, str):
        raise CannotTell
    return value


def named_dtype(ctx: Context, name: str) -> DType | None:
    """An element type given as its name or its ONNX number; `None` when not given (or 0).

    Raises:
        CannotTell: a number or name that is no element type.

    Example:
        >>> from peakfold.ir.graph import Op
        >>> ctx = Context(Op("n", "cast", ("x",), ("y",), {"to": 10}), (None,), ())
        >>> str(named_dtype(ctx, "to"))
        'float16'
    """
    value = ctx.op.attrs.get(name)
    if value is None or value == 0:
        return None
    key = _CODES.get(value) if isinstance(value, int) else value
    if not isinstance(key, str) or key not in DTYPES:
        raise CannotTell
    return DTYPES[key]
