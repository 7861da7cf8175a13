"""Convolutions: sliding-window arithmetic, shapes and exact multiply-accumulates.

Scratch is unknown: it is nothing for a direct kernel and many times the input for im2col,
Winograd or an FFT.
"""

from __future__ import annotations

from math import prod
from typing import Final

from peakfold.ir.types import DTYPES, Dim, DType, Shape
from peakfold.ops.inference import (
    CannotTell,
    Misfit,
    dims,
    dtype,
    given,
    integer,
    ints,
    produced,
    sizes,
    text,
)
from peakfold.ops.rules import Types, count, elements, number, tells, unknown, zero
from peakfold.ops.spec import Context, CountRule, Engine, EngineRule, OpSpec, ShapeRule

Ints = tuple[int, ...]


def per_axis(ctx: Context, name: str, rank: int, default: int = 1) -> Ints:
    """One integer per spatial axis."""
    found = ints(ctx, name)
    found = found or (default,) * rank
    if len(found) != rank:
        raise CannotTell
    return found


def pads_of(ctx: Context, rank: int) -> list[tuple[int, int]]:
    """Padding before and after every spatial axis."""
    found = ints(ctx, "pads") or (0,) * (2 * rank)
    if len(found) != 2 * rank:
        raise CannotTell
    return [(found[at], found[at + rank]) for at in range(rank)]


def window_count(
    size: int,
    kernel: int,
    stride: int,
    dilation: int,
    pad: tuple[int, int],
    *,
    ceil: bool = False,
) -> int:
    """Positions a window takes along an axis.

    ``floor((size + pads - dilation * (kernel - 1) - 1) / stride) + 1``, rounded up with `ceil`.

    Raises:
        CannotTell: the window does not fit, or with `ceil` the last one would start in the
            padding behind the data: pools keep that window before version 22 and drop it since.

    Example:
        >>> window_count(224, 7, 2, 1, (3, 3)), window_count(5, 2, 2, 1, (0, 0), ceil=True)
        (112, 3)
    """
    room = size + sum(pad) - dilation * (kernel - 1) - 1
    if stride < 1 or room < 0:
        raise CannotTell
    positions = (-(-room // stride) if ceil else room // stride) + 1
    if ceil and (positions - 1) * stride >= size + pad[0]:
        raise CannotTell
    return positions


def windows(ctx: Context, spatial: tuple[Dim, ...], kernel: Ints) -> tuple[Dim, ...]:
    """Output size of every spatial axis, `auto_pad`, strides and dilations applied.

    An axis that the window leaves as it is may be a symbol.
    """
    rank = len(spatial)
    if len(kernel) != rank:
        raise CannotTell
    strides, dilations = per_axis(ctx, "strides", rank), per_axis(ctx, "dilations", rank)
    for name, given_steps in (("strides", strides), ("dilations", dilations)):
        if any(step < 1 for step in given_steps):
            raise Misfit(f"{name} {list(given_steps)}")
    auto, ceil = text(ctx, "auto_pad", "NOTSET"), bool(integer(ctx, "ceil_mode", 0))
    pads = pads_of(ctx, rank) if auto in ("NOTSET", "") else [(0, 0)] * rank
    out: list[Dim] = []
    for size, k, stride, dilation, pad in zip(
        spatial, kernel, strides, dilations, pads, strict=True
    ):
        if auto.startswith("SAME"):
            if ceil and dilation * (k - 1) + 1 < stride:
                raise CannotTell  # versions before 22 count one window more
            out.append(size if stride == 1 else -(-number(size) // stride))
        elif isinstance(size, str) and stride == 1 and sum(pad) == dilation * (k - 1):
            out.append(size)
        else:
            out.append(window_count(number(size), k, stride, dilation, pad, ceil=ceil))
    return tuple(out)


def channels_first(shape: Shape, last: int) -> Shape:
    """A shape whose channels are last, with them behind the batch; as it is unless `last`.

    Example:
        >>> channels_first((1, 32, 48, 3), 1), arranged((1, 3, 32, 48), 1)
        ((1, 3, 32, 48), (1, 32, 48, 3))
    """
    return (shape[0], shape[-1], *shape[1:-1]) if last else shape


def arranged(shape: Shape, last: int) -> Shape:
    """The other way round."""
    return (shape[0], *shape[2:], shape[1]) if last else shape


def conv_rule(
    weight: int, result: DType | None = None, result_of: int = 0, *, last: int = 0
) -> ShapeRule:
    """Shape rule of a convolution of input 0 with the weight at `weight`.

    The element type is `result`, or that of input `result_of`. Weights are (filters, channels,
    window) whatever the data's layout: channels last with `last`, or by ``channels_last``.
    """

    def rule(ctx: Context) -> Types:
        at_end = last or integer(ctx, "channels_last", 0)
        batch, channels, *spatial = channels_first(dims(ctx), at_end)
        filters, each, *kernel = dims(ctx, weight)
        _require_groups(integer(ctx, "group", 1), channels, each, filters)
        taps = ints(ctx, "kernel_shape") or tuple(number(k) for k in kernel)
        element = dtype(ctx, result_of) if result is None else result
        shape = (batch, filters, *windows(ctx, tuple(spatial), taps))
        return ((element, arranged(shape, at_end)),)

    return tells(rule)


def _require_groups(groups: int, channels: Dim, each: Dim, filters: Dim) -> None:
    """Groups split channels and filters evenly, and weights have the channels of one.

    Raises:
        Misfit: they do not.
    """
    if groups < 1:
        raise Misfit(f"{groups} groups")
    if isinstance(channels, int) and isinstance(each, int) and each * groups != channels:
        raise Misfit(f"{groups} groups of {each} channels for {channels}")
    if isinstance(filters, int) and filters % groups:
        raise Misfit(f"{filters} filters in {groups} groups")


def conv_macs(weight: int) -> CountRule:
    """One multiply-accumulate per output element and per weight of its filter.

    ``N * Cout * prod(out) * (Cin / g) * prod(kernel)``, padding counted as if it were data
    (the count of the MobileNet and ResNet papers). Bias is not included.

    Example:
        >>> from peakfold.ir.graph import Op, Tensor
        >>> from peakfold.ir.types import DTYPES
        >>> x, w, y = (Tensor(n, DTYPES["float32"], s) for n, s in (
        ...     ("x", (1, 64, 56, 56)), ("w", (128, 64, 3, 3)), ("y", (1, 128, 56, 56))))
        >>> conv_macs(1)(Context(Op("n", "conv", ("x", "w"), ("y",)), (x, w), (y,)))
        231211008
    """

    def rule(ctx: Context) -> int:
        filters, *taps = sizes(ctx, weight)
        return prod(produced(ctx)) * prod(taps) if filters else 0

    return count(rule)


def conv_engine(weight: int) -> EngineRule:
    """The vector engine for depthwise convolutions, the matrix engine for all others.

    A filter that sees one channel of many leaves a matrix engine next to nothing to contract.
    """

    def rule(ctx: Context) -> Engine:
        shape, group = ctx.shape(weight), ctx.int_attr("group", 1)
        if shape is None or len(shape) < 3 or group < 2:
            return "matrix"
        seen = shape[0] // group if ctx.op.kind == "conv_transpose" else shape[1]
        return "vector" if seen == 1 else "matrix"

    return rule


def bias_at(position: int) -> CountRule:
    """One addition per output element when the bias operand is given."""
    return count(lambda ctx: prod(produced(ctx)) if given(ctx, position) else 0)


@tells
def conv_transpose(ctx: Context) -> Types:
    """Shape rule of the convolution turned round; weights at position 1."""
    batch, _, *spatial = dims(ctx)
    _, filters, *kernel = dims(ctx, 1)
    rank = len(spatial)
    strides, dilations = per_axis(ctx, "strides", rank), per_axis(ctx, "dilations", rank)
    channels = number(filters) * integer(ctx, "group", 1)
    stated = ints(ctx, "output_shape")
    if stated:
        # Early models state all dimensions, later ones only the spatial ones.
        return ((dtype(ctx), (batch, channels, *stated[len(stated) - rank :])),)
    extra, auto = per_axis(ctx, "output_padding", rank, 0), text(ctx, "auto_pad", "NOTSET")
    pads = pads_of(ctx, rank) if auto in ("NOTSET", "") else [(0, 0)] * rank
    out: list[Dim] = []
    for size, k, stride, dilation, add, pad in zip(
        spatial, kernel, strides, dilations, extra, pads, strict=True
    ):
        reach = (number(k) - 1) * dilation + 1
        if auto.startswith("SAME"):
            if reach < stride:
                raise CannotTell  # would need negative padding: implementations differ
            out.append(number(size) * stride)
        else:
            out.append(stride * (number(size) - 1) + add + reach - sum(pad))
    return ((dtype(ctx), (batch, channels, *out)),)


@count
def conv_transpose_macs(ctx: Context) -> int:
    """Multiply-accumulates of `conv_transpose`."""
    # Every input element meets every weight of its channel: Cin * Cout/g * K per position.
    _, *taps = sizes(ctx, 1)
    return prod((elements(ctx), *taps))


@count
def _deform_conv_other(ctx: Context) -> int:
    # Each sampled value is a weighted sum of its 2^n neighbours: a product and an addition
    # for each; then the mask's product, and the bias.
    _, *taps = sizes(ctx, 1)
    batch, channels, *spatial = sizes(ctx)
    out = produced(ctx)
    sampled = batch * channels * prod(taps[1:]) * prod(out[2:])
    per_sample = 2 * (1 << len(spatial)) + given(ctx, 4)
    return sampled * per_sample + (prod(out) if given(ctx, 3) else 0)


@tells
def _causal_conv(ctx: Context) -> Types:
    shape = batch, channels, _ = dims(ctx)
    carried = number(dims(ctx, 1)[-1]) - 1
    return ((dtype(ctx), shape), (dtype(ctx), (batch, channels, carried)))


@tells
def _col2im(ctx: Context) -> Types:
    batch, columns, _ = dims(ctx)
    image, block = ints(ctx, "image_shape"), ints(ctx, "block_shape")
    if image is None or block is None or number(columns) % prod(block):
        raise CannotTell
    return ((dtype(ctx), (batch, number(columns) // prod(block), *image)),)


_CONV: Final = OpSpec(
    "conv",
    conv_rule(1),
    workspace=unknown,
    macs=conv_macs(1),
    other_ops=bias_at(2),
    engine="matrix",
    engine_if=conv_engine(1),
)

ROWS: Final = (
    _CONV,
    OpSpec("conv_transpose", conv_transpose, workspace=unknown, macs=conv_transpose_macs,
           other_ops=bias_at(2), engine="matrix", engine_if=conv_engine(1)),
    OpSpec("deform_conv", conv_rule(1), workspace=unknown, macs=conv_macs(1),
           other_ops=_deform_conv_other, engine="matrix", engine_if=conv_engine(1)),
    OpSpec("conv_integer", conv_rule(1, DTYPES["int32"]), workspace=unknown, macs=conv_macs(1),
           other_ops=zero, engine="matrix", engine_if=conv_engine(1)),
    OpSpec("causal_conv_with_state", _causal_conv, workspace=unknown, macs=conv_macs(1),
           other_ops=bias_at(2), engine="matrix", engine_if=conv_engine(1)),
    # Overlapping columns are added up: one addition per column element.
    OpSpec("col2im", _col2im, workspace=zero, macs=zero,
           other_ops=count(elements), engine="vector"),
)  # fmt: skip
