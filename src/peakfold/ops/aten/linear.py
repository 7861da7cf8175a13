"""Products as ATen spells them: linear layers, fused additions, attention, whole recurrent layers.

Rows take operands in the order of the ATen schema (tensors only, lists flattened) and attributes
under its argument names. Convolutions and plain products use the rows of ONNX, which ask for
nothing but operand positions.
"""

from __future__ import annotations

from math import prod
from typing import Final

from peakfold.ops.inference import CannotTell, given, integer, ints, needed, produced, sizes, text
from peakfold.ops.rules import broadcast, count, elements, masks, number, per_output, unknown, zero
from peakfold.ops.spec import Context, OpSpec
from peakfold.ops.standard.attention import masked_pairs
from peakfold.ops.standard.matmul import matmul_macs


@count
def _linear_macs(ctx: Context) -> int:
    # The weight is (out, in), or (in,) for a single output without an axis of its own.
    return prod(produced(ctx)) * sizes(ctx, 1)[-1]


@count
def _linear_other(ctx: Context) -> int:
    return prod(produced(ctx)) if given(ctx, 2) else 0


@count
def _packed_macs(ctx: Context) -> int:
    # The weight is packed for a kernel: the product is told by its input and result alone.
    return prod(produced(ctx)) * sizes(ctx)[-1]


@count
def _bilinear_macs(ctx: Context) -> int:
    # One per weight and row; the shorter product with the second input is in `other_ops`.
    return prod(sizes(ctx)[:-1]) * prod(sizes(ctx, 2))


@count
def _bilinear_other(ctx: Context) -> int:
    # Per row and output: a multiplication and an addition per feature of the second input.
    second = 2 * sizes(ctx, 1)[-1] * prod(produced(ctx))
    return second + (prod(produced(ctx)) if given(ctx, 3) else 0)


@count
def _trilinear_macs(ctx: Context) -> int:
    # Three operands, each with axes of length 1 put in where `expandN` says, are multiplied
    # and summed: one multiply-accumulate per point of their common shape.
    common = broadcast(*(_expanded(ctx, at) for at in range(3)))
    return prod(number(dim) for dim in common)


def _expanded(ctx: Context, at: int) -> tuple[int, ...]:
    shape, put = list(sizes(ctx, at)), ints(ctx, f"expand{at + 1}") or ()
    for axis in sorted(put):
        shape.insert(axis, 1)
    return tuple(shape)


@count
def _trilinear_other(ctx: Context) -> int:
    return _trilinear_macs(ctx) or 0


def attention_macs(ctx: Context) -> int:
    """Scores and their product with the values, over the full square of positions.

    Queries ``(..., L, E)``, keys ``(..., S, E)``, values ``(..., S, Ev)``; grouped queries
    (GQA) have more heads than keys, so heads are counted from the result. ``is_causal`` stays
    an attribute: who halves the square says so.
    """
    width, values = sizes(ctx, 0)[-1], sizes(ctx, 2)
    return _score_count(ctx) * (width + values[-1])


def _score_count(ctx: Context) -> int:
    seq_first = text(ctx, "layout", "heads_first") == "seq_first"
    keys = sizes(ctx, 1)[-3 if seq_first else -2]
    return prod(produced(ctx)[:-1]) * keys


@masks
def _masked(ctx: Context) -> tuple[int, int]:
    # Query i sees keys 0 to i, whatever their number (torch's upper left alignment).
    if not integer(ctx, "is_causal", 0) or text(ctx, "layout", "heads_first") != "heads_first":
        return 0, 0
    *heads, steps, _ = produced(ctx)
    keys = sizes(ctx, 1)[-2]
    hidden = prod(heads) * masked_pairs(steps, keys, 0)
    return hidden * (sizes(ctx)[-1] + sizes(ctx, 2)[-1]), hidden * (6 + given(ctx, 3))


@count
def _attention_other(ctx: Context) -> int:
    # Softmax (5) and the scale, as for the ONNX operator; a mask is one addition.
    return _score_count(ctx) * (6 + given(ctx, 3))


@count
def _attention_backward_macs(ctx: Context) -> int:
    # grad_out, query, key, value: the scores are computed again, then one product each for
    # the gradients of values, probabilities, queries and keys.
    out, query, value = sizes(ctx, 0), sizes(ctx, 1), sizes(ctx, 3)
    scores = prod(out[:-1]) * sizes(ctx, 2)[-2]
    return scores * (3 * query[-1] + 2 * value[-1])


def _weights(ctx: Context) -> list[tuple[int, ...]]:
    """Shapes of a recurrent layer's weight operands, biases included."""
    first = integer(ctx, "first_weight")
    last = first + integer(ctx, "weights", len(ctx.inputs) - first)
    return [sizes(ctx, at) for at in range(first, last) if given(ctx, at)]


def _rows(ctx: Context) -> int:
    """Cell evaluations per layer and direction: steps times batch, as the input has them."""
    return elements(ctx) // sizes(ctx)[-1]


@count
def _recurrent_macs(ctx: Context) -> int:
    # Every matrix (input, state, projection; each layer and direction) is applied whole at
    # every step.
    return _rows(ctx) * sum(prod(shape) for shape in _weights(ctx) if len(shape) == 2)


_GATES: Final = (("rnn", 1, 0), ("gru", 3, 4), ("lstm", 4, 4))


@count
def _recurrent_other(ctx: Context) -> int:
    # Per gate and unit an activation, and one addition per bias; then the state's arithmetic.
    cell = text(ctx, "cell", "")
    known = [(gates, state) for name, gates, state in _GATES if name == cell]
    if not known:
        raise CannotTell
    gates, state = known[0]
    shapes = _weights(ctx)
    matrices = [shape for shape in shapes if len(shape) == 2]
    biases = sum(prod(shape) for shape in shapes if len(shape) == 1)
    # Input matrices come first of each group; state matrices have as many rows.
    gate_units = max(shape[0] for shape in matrices)
    groups = sum(shape[0] == gate_units for shape in matrices) // 2
    return _rows(ctx) * (biases + groups * (gate_units + gate_units // gates * state))


@count
def _encoder_macs(ctx: Context) -> int:
    # Fused fast paths: every matrix meets every position, then scores and their product.
    batch, length, width = sizes(ctx)
    matrices = [sizes(ctx, at) for at in range(1, len(ctx.inputs)) if given(ctx, at)]
    linear = sum(prod(shape) for shape in matrices if len(shape) == 2)
    return batch * length * (linear + 2 * length * width)


@count
def _convolution_backward_macs(ctx: Context) -> int:
    # Each gradient asked for repeats the forward products: grad_out, input, weight.
    asked = needed(ints(ctx, "output_mask"))
    transposed = integer(ctx, "transposed", 0)
    taps = prod(sizes(ctx, 2)[1:])
    forward = prod(sizes(ctx, 1) if transposed else sizes(ctx, 0)) * taps
    return forward * (bool(asked[0]) + bool(asked[1]))


@count
def _convolution_backward_other(ctx: Context) -> int:
    return elements(ctx) if needed(ints(ctx, "output_mask"))[2] else 0


@count
def _grouped_macs(ctx: Context) -> int:
    # Rows fall into groups, each with a matrix of its own: every row meets one matrix. Without
    # rows in groups (a 3-D left operand) it is a batched product; two 2-D operands contract
    # group by group, which together is their whole length.
    left, right = sizes(ctx), sizes(ctx, 1)
    if len(left) == 2 and len(right) == 2:
        return prod(left) * right[-1]
    return prod(left) * right[-1] if len(left) in (2, 3) else 0


@count
def _euclidean_macs(ctx: Context) -> int:
    # One product of rows that are widened by their squared norm and by a one.
    return prod(produced(ctx)) * (sizes(ctx)[-1] + 2)


@count
def _deform_macs(ctx: Context) -> int:
    return prod(produced(ctx)) * prod(sizes(ctx, 1)[1:])


@count
def _deform_other(ctx: Context) -> int:
    # Every sampled value is a weighted sum of 4 neighbours (8), perhaps masked (1); then bias.
    if len(produced(ctx)) < 3:
        raise CannotTell
    batch, _, *spatial = produced(ctx)
    kernel = prod(sizes(ctx, 1)[2:])
    sampled = batch * sizes(ctx)[1] * kernel * prod(spatial)
    return sampled * (8 + given(ctx, 3)) + prod(produced(ctx)) * given(ctx, 4)


_SDPA_MACS: Final = count(attention_macs)

ROWS: Final = (
    OpSpec("linear", macs=_linear_macs, other_ops=_linear_other, workspace=unknown,
           engine="matrix"),
    # Packed, quantised weights: a scale and a zero point or bias per output.
    OpSpec("packed_linear", macs=_packed_macs, other_ops=per_output(2), workspace=unknown,
           engine="matrix"),
    OpSpec("grouped_matmul", macs=_grouped_macs, other_ops=zero, workspace=unknown,
           engine="matrix"),
    # The added operand comes first; alpha and beta are not counted.
    OpSpec("addmm", macs=matmul_macs(1, 2), other_ops=per_output(), workspace=unknown,
           engine="matrix"),
    OpSpec("bilinear", macs=_bilinear_macs, other_ops=_bilinear_other, workspace=unknown,
           engine="matrix"),
    OpSpec("trilinear", macs=_trilinear_macs, other_ops=_trilinear_other, workspace=unknown),
    OpSpec("sdpa", macs=_SDPA_MACS, other_ops=_attention_other, masked=_masked,
           workspace=unknown, engine="matrix"),
    # The score and mask functions are sub-programs: only the two products are counted, over
    # the full square.
    OpSpec("flex_sdpa", macs=_SDPA_MACS, other_ops=unknown, workspace=unknown, engine="matrix"),
    OpSpec("sdpa_backward", macs=_attention_backward_macs, other_ops=unknown,
           workspace=unknown, engine="matrix"),
    OpSpec("rnn_layers", macs=_recurrent_macs, other_ops=_recurrent_other, workspace=unknown,
           engine="matrix"),
    OpSpec("encoder_layer", macs=_encoder_macs, other_ops=unknown, workspace=unknown,
           engine="matrix"),
    OpSpec("conv_backward", macs=_convolution_backward_macs,
           other_ops=_convolution_backward_other, workspace=unknown, engine="matrix"),
    OpSpec("deform_conv2d", macs=_deform_macs, other_ops=_deform_other, workspace=unknown,
           engine="matrix"),
    # Clamped to zero, then the square root; the norms are one product and sum per element.
    OpSpec("euclidean_distance", macs=_euclidean_macs, other_ops=per_output(2),
           workspace=unknown, engine="matrix"),
    OpSpec("outer", macs=zero, other_ops=per_output(), workspace=zero),
)  # fmt: skip
