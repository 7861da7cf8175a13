"""The `overlap` column: kinds whose reference kernels let a result lie over part of an operand.

Traced from the loops of TensorFlow Lite Micro's reference kernels, batch, rows, columns,
channels; see `peakfold.ops.overlap` for the method. Kinds that are not here do not bear it, or
gain nothing: the mean and the other reductions clear their results before they read; a matrix
product of one row, a mean over rows and columns, and LSTM or SVDF cells read all of their input
for each result; concatenation, packing and transposition write in another order than they read;
a float transposed convolution adds up in its result, which it clears first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import floor, prod
from types import MappingProxyType
from typing import Final

from peakfold.ir.graph import OverlapFact
from peakfold.ops.inference import CannotTell, integer, ints, needed, operand, produced, sizes, text
from peakfold.ops.overlap import (
    Starts,
    Windows,
    channel_reach,
    elementwise_distance,
    padding_distance,
    positions,
    window_distance,
    window_starts,
)
from peakfold.ops.rules import STOPS
from peakfold.ops.spec import Context, OverlapRule

_Image = tuple[int, int, int, int]
_LONGEST: Final = 2**18
"""Of all dimensions together: tracing takes a step per row and column."""


def _below(position: int, rule: Callable[[Context, int, int], int]) -> OverlapRule:
    """A rule for one operand: the distance from bytes per element of operand and result.

    It claims nothing where it cannot tell, for elements that are no whole bytes, and where the
    distance leaves no byte in common.
    """

    def told(ctx: Context) -> tuple[OverlapFact, ...]:
        try:
            source, result = operand(ctx, position), ctx.outputs[0]
            if result is None or None in (source.nbytes, result.nbytes):
                return ()
            if sum((*sizes(ctx, position), *produced(ctx))) > _LONGEST:
                return ()
            distance = rule(ctx, _width(source.dtype.bits), _width(result.dtype.bits))
        except STOPS:
            return ()
        gains = source.nbytes and distance < (result.nbytes or 0)
        return (OverlapFact(position, distance),) if gains else ()

    return told


def _width(bits: int | None) -> int:
    if bits is None or bits % 8:
        raise CannotTell
    return bits // 8


def _image(shape: tuple[int, ...]) -> _Image:
    batch, rows, columns, channels = shape
    return batch, rows, columns, channels


def _slid(
    ctx: Context,
    taps: tuple[int, int],
    starts: Callable[[int, int], Sequence[int]],
    source: int,
    result: int,
) -> int:
    """A window that slides over an image.

    Args:
        ctx: the op.
        taps: rows and columns of the window.
        starts: first input channel that each output channel reads, from their numbers.
        source: bytes of an input element.
        result: bytes of an output element.
    """
    batch, *size, channels = _image(sizes(ctx))
    _, *out, filters = _image(produced(ctx))
    places = [_axis(ctx, axis, size[at], out[at], taps[at]) for at, axis in enumerate(("h", "w"))]
    first = [start * source for start in starts(channels, positions(filters))]
    return window_distance(
        Windows(
            batches=batch,
            rows=places[0],
            columns=places[1],
            in_image=(size[0], size[1]),
            in_pixel=channels * source,
            out_pixel=filters * result,
            reach=channel_reach(first, result),
        )
    )


def _axis(ctx: Context, axis: str, size: int, count: int, taps: int) -> Starts:
    stride = integer(ctx, f"stride_{axis}")
    dilation = integer(ctx, f"dilation_{axis}_factor", 1)
    padding = text(ctx, "padding", "same")
    if stride < 1 or dilation < 1 or padding not in ("same", "valid"):
        raise CannotTell
    # What SAME adds lies half in front of the data, the odd one behind.
    added = max(0, (count - 1) * stride + (taps - 1) * dilation + 1 - size)
    before = added // 2 if padding == "same" else 0
    return window_starts(size, count, kernel=taps, stride=stride, dilation=dilation, before=before)


def _conv(ctx: Context, source: int, result: int) -> int:
    _, *taps, depth = _image(sizes(ctx, 1))

    def starts(channels: int, filters: int) -> list[int]:
        groups = channels // depth
        if channels % depth or filters % groups:
            raise CannotTell
        return [at // (filters // groups) * depth for at in range(filters)]

    return _slid(ctx, (taps[0], taps[1]), starts, source, result)


def _depthwise(ctx: Context, source: int, result: int) -> int:
    _, *taps, _ = _image(sizes(ctx, 1))

    def starts(channels: int, filters: int) -> list[int]:
        if filters % channels:
            raise CannotTell
        return [at // (filters // channels) for at in range(filters)]

    return _slid(ctx, (taps[0], taps[1]), starts, source, result)


def _pool(ctx: Context, source: int, result: int) -> int:
    taps = (integer(ctx, "filter_height"), integer(ctx, "filter_width"))
    return _slid(ctx, taps, lambda _channels, filters: range(filters), source, result)


def _dense(ctx: Context, source: int, result: int) -> int:
    units, depth = sizes(ctx, 1)
    count = prod(sizes(ctx)) // depth
    return window_distance(
        Windows(
            batches=1,
            rows=range(count),
            columns=(0,),
            in_image=(count, 1),
            in_pixel=depth * source,
            out_pixel=units * result,
            reach=channel_reach((0,) * positions(units), result),
        )
    )


def _each(ctx: Context, source: int, result: int) -> int:
    return elementwise_distance(prod(sizes(ctx)), source, result)


def _softmax(ctx: Context, source: int, result: int) -> int:
    # A row is read twice before any of it is written, then element by element.
    if integer(ctx, "axis", -1) not in (-1, len(sizes(ctx)) - 1):
        raise CannotTell
    return _each(ctx, source, result)


def _pad(ctx: Context, source: int, _result: int) -> int:
    shape, pads = sizes(ctx), needed(ints(ctx, "pads"))
    constant = text(ctx, "mode", "constant") == "constant" and ints(ctx, "axes") is None
    if not constant or len(pads) != 2 * len(shape) or min(pads, default=0) < 0:
        raise CannotTell
    return padding_distance(shape, pads[: len(shape)], pads[len(shape) :], source)


def _forward(_ctx: Context, _source: int, _result: int) -> int:
    # Elements are copied one by one, and each comes from its own place or from one behind it.
    return 0


def _strided(ctx: Context, source: int, result: int) -> int:
    if min(needed(ints(ctx, "strides")), default=1) < 1:
        raise CannotTell
    return _forward(ctx, source, result)


def _resized(ctx: Context, columns: Starts, rows: Starts, whole: bool, source: int) -> int:
    batch, *size, channels = _image(sizes(ctx))
    pixel = channels * source
    return window_distance(
        Windows(
            batches=batch,
            rows=rows,
            columns=columns,
            in_image=(size[0], size[1]),
            in_pixel=pixel,
            out_pixel=pixel,
            # A pixel that is copied at once must not meet its own copy.
            reach=pixel if whole else channel_reach(range(0, pixel, source), source),
        )
    )


def _nearest(ctx: Context, source: int, _result: int) -> int:
    rows, columns = (_sampled(ctx, axis, _nearest_place) for axis in (1, 2))
    return _resized(ctx, columns, rows, True, source)


def _bilinear(ctx: Context, source: int, _result: int) -> int:
    place = _fixed_place if operand(ctx, 0).dtype.name == "int8" else _float_place
    rows, columns = (_sampled(ctx, axis, place) for axis in (1, 2))
    return _resized(ctx, columns, rows, False, source)


def _sampled(ctx: Context, axis: int, place: Callable[[int, int, int, bool, bool], int]) -> Starts:
    size, count = sizes(ctx)[axis], produced(ctx)[axis]
    align = bool(integer(ctx, "align_corners", 0))
    half = bool(integer(ctx, "half_pixel_centers", 0))
    return [place(at, size, count, align, half) for at in range(positions(count))]


def _float_scale(size: int, count: int, align: bool) -> float:
    import numpy as np

    if align and count > 1:
        return float(np.float32(size - 1) / np.float32(count - 1))
    return float(np.float32(size) / np.float32(count))


def _nearest_place(at: int, size: int, count: int, align: bool, half: bool) -> int:
    import numpy as np

    scale = np.float32(_float_scale(size, count, align))
    place = float((np.float32(at) + np.float32(0.5 if half else 0)) * scale)
    return max(0, min(floor(place + 0.5) if align else floor(place), size - 1))


def _float_place(at: int, size: int, count: int, align: bool, half: bool) -> int:
    # How a compiler rounds a product and a sum differs, so a sample that falls on a pixel may
    # read the one before it, too.
    scale = _float_scale(size, count, align)
    place = (at + 0.5) * scale - 0.5 if half else at * scale
    return max(0, floor(place - 1e-5 * (size + 1)))


def _fixed_place(at: int, size: int, count: int, align: bool, half: bool) -> int:
    scale = (1024 * size + count // 2) // count
    if align and count > 1:
        scale = (1024 * (size - 1) + (count - 1) // 2) // (count - 1)
    return max(0, at * scale + (scale // 2 - 512 if half else 0)) // 1024


def _unless_float(ctx: Context, source: int, result: int) -> int:
    # Integers are added up in scratch, and nothing is written before all has been read.
    if operand(ctx, 2).dtype.name not in ("int8", "int16"):
        raise CannotTell
    return _forward(ctx, source, result)


OVERLAPS: Final[Mapping[str, OverlapRule]] = MappingProxyType(
    {
        "average_pool_2d": _below(0, _pool),
        "cast": _below(0, _each),
        "conv_2d": _below(0, _conv),
        "depthwise_conv_2d": _below(0, _depthwise),
        "dequantize": _below(0, _each),
        "fully_connected": _below(0, _dense),
        "l2_pool_2d": _below(0, _pool),
        "max_pool_2d": _below(0, _pool),
        "pad": _below(0, _pad),
        "quantize": _below(0, _each),
        "resize_bilinear": _below(0, _bilinear),
        "resize_nearest_neighbor": _below(0, _nearest),
        "softmax": _below(0, _softmax),
        "strided_slice": _below(0, _strided),
        "tfl_slice": _below(0, _forward),
        "transpose_conv": _below(2, _unless_float),
    }
)
"""Kind -> operands that its result may lie partly over, where a target names the kind."""
