"""com.microsoft operators that keep something between calls, and searches over a decoder.

Keys and values grow by what is new, or their buffer is as long as it was; states of linear
attention and of causal convolutions keep their size.
"""

from __future__ import annotations

from typing import Final

from peakfold.ir.types import DTYPES, Shape
from peakfold.ops.inference import CannotTell, dims, dtype, given, integer, sizes
from peakfold.ops.rules import Types, count, elements, number, per_input, same, tells, unknown, zero
from peakfold.ops.spec import Context, OpSpec, OutputType

INT32: Final = DTYPES["int32"]


def _as(ctx: Context, position: int) -> OutputType:
    return dtype(ctx, position), dims(ctx, position)


@tells
def _one_step(ctx: Context) -> Types:
    # One new token; keys and values of all before it lie in a buffer, or are copied.
    batch, steps, hidden = dims(ctx)
    width = number(dims(ctx, 2)[-1]) if given(ctx, 2) and len(dims(ctx, 2)) == 3 else hidden
    result = (dtype(ctx), (batch, steps, width))
    if not given(ctx, 5) or not given(ctx, 6):
        return (result,)
    more = 0 if integer(ctx, "past_present_share_buffer", 0) else number(steps)
    kept = []
    for at in (5, 6):
        *first, length, size = dims(ctx, at)
        kept.append((dtype(ctx, at), (*first, number(length) + more, size)))
    return (result, *kept)


@tells
def _sparse(ctx: Context) -> Types:
    # The kernel writes into the buffers of the past.
    batch, steps, hidden = dims(ctx)
    if not given(ctx, 1):
        heads, groups = integer(ctx, "num_heads"), integer(ctx, "kv_num_heads")
        hidden = number(hidden) // (heads + 2 * groups) * heads
    return ((dtype(ctx), (batch, steps, hidden)), _as(ctx, 3), _as(ctx, 4))


@tells
def _linear(ctx: Context) -> Types:
    batch, steps, keys = dims(ctx, 1)
    groups = integer(ctx, "kv_num_heads")
    key, value = number(keys) // groups, number(dims(ctx, 2)[2]) // groups
    result = (dtype(ctx), (batch, steps, max(integer(ctx, "q_num_heads"), groups) * value))
    state = _as(ctx, 3) if given(ctx, 3) else (dtype(ctx), (batch, groups, key, value))
    return (result, state)


@tells
def _delta(ctx: Context) -> Types:
    # The state lies values first: (batch, heads, value size, key size).
    if not given(ctx, 2):
        raise CannotTell
    batch, _, heads, width = dims(ctx, 2)
    if given(ctx, 3):
        batch = number(dims(ctx, 3)[0]) - 1
    state: Shape = (batch, heads, width, dims(ctx)[3])
    return (_as(ctx, 2), _as(ctx, 6) if given(ctx, 6) else (dtype(ctx), state))


@tells
def _causal(ctx: Context) -> Types:
    if given(ctx, 3):
        return (_as(ctx, 0), _as(ctx, 3))
    layout = ("channels_last", "state_channels_last", "state_length", "state_window")
    if any(integer(ctx, name, 0) for name in layout) or integer(ctx, "ndim", 1) != 1:
        raise CannotTell
    batch, channels, _ = dims(ctx)
    kept = (number(dims(ctx, 1)[-1]) - 1) * integer(ctx, "dilation", 1)
    return (_as(ctx, 0), (dtype(ctx), (batch, channels, kept)))


@tells
def _causal_packed(ctx: Context) -> Types:
    return (_as(ctx, 0), _as(ctx, 4))


@count
def _depthwise_macs(ctx: Context) -> int:
    # One filter per channel: every element meets its taps.
    return elements(ctx) * sizes(ctx, 1)[-1]


@tells
def _attending_lstm(ctx: Context) -> Types:
    steps, batch, _ = dims(ctx)
    directions, hidden = number(dims(ctx, 2)[0]), number(dims(ctx, 2)[2])
    last = (dtype(ctx), (directions, batch, hidden))
    return ((dtype(ctx), (steps, directions, batch, hidden)), last, last)


@tells
def _found(ctx: Context) -> Types:
    return ((INT32, (dims(ctx)[0], integer(ctx, "max_length"))),)


@tells
def _beams(ctx: Context) -> Types:
    batch, longest = dims(ctx)[0], integer(ctx, "max_length")
    returned, beams = integer(ctx, "num_return_sequences"), integer(ctx, "num_beams")
    element = dtype(ctx, 5) if given(ctx, 5) else DTYPES["float32"]
    scores = None
    if not integer(ctx, "model_type", 0) and integer(ctx, "vocab_size", -1) > 0:
        steps = longest - number(dims(ctx)[1])
        scores = (element, (steps, batch, beams, integer(ctx, "vocab_size")))
    return ((INT32, (batch, returned, longest)), (element, (batch, returned)), scores)


@count
def _state_macs(ctx: Context) -> int:
    # Each token's key meets its value in the state, and its query the state.
    _, steps, keys = sizes(ctx, 1)
    groups = integer(ctx, "kv_num_heads")
    width = sizes(ctx, 2)[2] // groups
    heads = max(integer(ctx, "q_num_heads"), groups)
    return sizes(ctx, 1)[0] * steps * width * (keys + keys // groups * heads)


ROWS: Final = (
    OpSpec("decoder_masked_multi_head_attention", _one_step, workspace=unknown, macs=unknown,
           other_ops=unknown, engine="matrix"),
    OpSpec("sparse_attention", _sparse, workspace=unknown, macs=unknown, other_ops=unknown,
           engine="matrix"),
    OpSpec("ms_linear_attention", _linear, workspace=unknown, macs=_state_macs, other_ops=unknown,
           engine="matrix"),
    OpSpec("gated_delta_net", _delta, workspace=unknown, macs=unknown, other_ops=unknown,
           engine="matrix"),
    OpSpec("ms_causal_conv_with_state", _causal, workspace=unknown, macs=_depthwise_macs,
           other_ops=unknown),
    OpSpec("varlen_causal_conv_with_state", _causal_packed, workspace=unknown,
           macs=_depthwise_macs, other_ops=unknown),
    OpSpec("mrotary_embedding", same(), workspace=unknown, macs=zero, other_ops=per_input(3)),
    OpSpec("attn_lstm", _attending_lstm, workspace=unknown, macs=unknown, other_ops=unknown,
           engine="matrix"),
    *(
        OpSpec(kind, _found, workspace=unknown, macs=unknown, other_ops=unknown, pure=False)
        for kind in ("greedy_search", "sampling")
    ),
    *(
        OpSpec(kind, _beams, workspace=unknown, macs=unknown, other_ops=unknown, pure=False)
        for kind in ("beam_search", "whisper_beam_search")
    ),
)  # fmt: skip
