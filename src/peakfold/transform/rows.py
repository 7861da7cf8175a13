"""Which rows of its operands an op needs for some rows of its result.

Rows are one spatial axis of an image: axis 2 of ONNX's layout (batch, channels, rows, columns),
axis 1 of TFLite's (batch, rows, columns, channels). An op is local when a range of result rows
follows from a range of operand rows; a patch of the network is then computed from a patch of
its input and a halo (MCUNetV2, arXiv 2110.15352: patch-based inference).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from peakfold.interval import Interval
from peakfold.ir.graph import AttrValue
from peakfold.ops import lookup
from peakfold.ops.spec import Context, concrete

_ONNX_WINDOWS: Final = frozenset({"conv", "max_pool", "average_pool"})
_TFLITE_WINDOWS: Final = frozenset(
    {"conv_2d", "depthwise_conv_2d", "max_pool_2d", "average_pool_2d"}
)
_ROWS_OF: Final = {**dict.fromkeys(_ONNX_WINDOWS, 2), **dict.fromkeys(_TFLITE_WINDOWS, 1)}


@dataclass(frozen=True, slots=True)
class Patch:
    """How an op computes some rows of its result.

    Attributes:
        needs: per operand that is cut, the rows it reads.
        rows: the result rows that running it on them gives; at least the asked ones, since a
            window op with ``same`` padding also makes rows at a cut that are wrong.
        attrs: attributes that change.
    """

    needs: Mapping[int, Interval]
    rows: Interval
    attrs: Mapping[str, AttrValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Window:
    size: int
    result: int
    taps: int
    stride: int
    before: int
    after: int

    def reads(self, rows: Interval) -> Interval:
        """Operand rows under the windows of some result rows, the padding cut off."""
        first = rows.start * self.stride - self.before
        last = (rows.stop - 1) * self.stride - self.before + self.taps
        return Interval(max(first, 0), min(last, self.size))


def row_axis(kind: str) -> int | None:
    """The axis of rows that a window op's layout has, or `None` for other kinds.

    Example:
        >>> row_axis("conv"), row_axis("conv_2d"), row_axis("add")
        (2, 1, None)
    """
    return _ROWS_OF.get(kind)


def patch_of(ctx: Context, axis: int, rows: Interval) -> Patch | None:
    """How to compute some rows of result 0, or `None` where the op is not local.

    Args:
        ctx: the op; shapes known.
        axis: the axis of rows.
        rows: the result rows that are asked for.

    Example:
        >>> from peakfold.ir.graph import Op, Tensor
        >>> from peakfold.ir.types import DTYPES
        >>> x, w, y = (Tensor(n, DTYPES["float32"], s) for n, s in (
        ...     ("x", (1, 3, 8, 8)), ("w", (4, 3, 3, 3)), ("y", (1, 4, 8, 8))))
        >>> op = Op("n", "conv", ("x", "w"), ("y",), {"pads": (1, 1, 1, 1)})
        >>> patch = patch_of(Context(op, (x, w), (y,)), 2, Interval(0, 4))
        >>> patch.needs[0], patch.attrs
        (Interval(start=0, stop=5), {'pads': (1, 1, 0, 1), 'auto_pad': 'NOTSET'})
    """
    kind = ctx.op.kind
    if kind in _ROWS_OF:
        if _ROWS_OF[kind] != axis:
            return None
        return _onnx_patch(ctx, rows) if axis == 2 else _tflite_patch(ctx, rows)
    if kind == "pad":
        return _padded(ctx, axis, rows)
    if kind == "concat":
        return _joined(ctx, axis, rows)
    return _elementwise(ctx, axis, rows)


def _elementwise(ctx: Context, axis: int, rows: Interval) -> Patch | None:
    spec, result = lookup(ctx.op.kind), ctx.out_shape()
    if not spec.known or not spec.inplace_inputs(ctx) or result is None or axis >= len(result):
        return None
    needs = {}
    for at, operand in enumerate(ctx.inputs):
        shape = concrete(operand)
        if operand is None or shape is None:
            continue
        place = axis - len(result) + len(shape)
        if place < 0 or shape[place] == 1:
            continue  # broadcast over the rows: read whole
        if operand.role.static or len(shape) != len(result):
            return None
        needs[at] = rows
    return Patch(needs, rows)


def _joined(ctx: Context, axis: int, rows: Interval) -> Patch | None:
    result = ctx.out_shape()
    joins = ctx.int_attr("axis", 0)
    if result is None or joins % len(result) == axis:
        return None
    if any(t is not None and t.role.static for t in ctx.inputs):
        return None
    return Patch(dict.fromkeys(range(len(ctx.inputs)), rows), rows)


def _padded(ctx: Context, axis: int, rows: Interval) -> Patch | None:
    shape, pads, mode = ctx.shape(0), ctx.ints("pads"), ctx.attr("mode")
    if shape is None or pads is None or len(pads) != 2 * len(shape) or min(pads) < 0:
        return None
    if mode not in (None, "constant") or ctx.ints("axes") is not None:
        return None
    before = pads[axis]
    inside = Interval(max(rows.start - before, 0), min(rows.stop - before, shape[axis]))
    if inside.start >= inside.stop:
        return None  # a patch of nothing but padding
    changed = list(pads)
    changed[axis] = max(before - rows.start, 0)
    changed[axis + len(shape)] = max(rows.stop - before - shape[axis], 0)
    return Patch({0: inside}, rows, {"pads": tuple(changed)})


def _onnx_patch(ctx: Context, rows: Interval) -> Patch | None:
    window = _onnx_window(ctx)
    if window is None:
        return None
    reads = window.reads(rows)
    rank = len(ctx.shape(0) or ()) - 2
    pads = list(ctx.ints("pads") or (0,) * (2 * rank))
    top = max(window.before - rows.start * window.stride, 0)
    end = (rows.stop - 1) * window.stride - window.before + window.taps
    pads[0], pads[rank] = top, max(end - window.size, 0)
    return Patch({0: reads}, rows, {"pads": tuple(pads), "auto_pad": "NOTSET"})


def _onnx_window(ctx: Context) -> _Window | None:
    shape, result = ctx.shape(0), ctx.out_shape()
    taps = ctx.ints("kernel_shape")
    if taps is None:
        filters = ctx.shape(1) if ctx.op.kind == "conv" else None
        taps = None if filters is None else filters[2:]
    if shape is None or result is None or not taps or ctx.int_attr("ceil_mode", 0):
        return None
    # Automatic padding depends on the size of what it pads; columns would change, too.
    if ctx.attr("auto_pad") not in (None, "NOTSET", "", "VALID"):
        return None
    if len(ctx.op.results) > 1:
        return None  # a pool's indices count from the start of the whole image
    rank = len(shape) - 2
    pads = ctx.ints("pads") or (0,) * (2 * rank)
    averages_padding = ctx.op.kind == "average_pool" and any(pads)
    if len(pads) != 2 * rank or averages_padding:
        return None
    stride = (ctx.ints("strides") or (1,) * rank)[0]
    dilation = (ctx.ints("dilations") or (1,) * rank)[0]
    reach = (taps[0] - 1) * dilation + 1
    return _Window(shape[2], result[2], reach, stride, pads[0], pads[rank])


def _tflite_patch(ctx: Context, rows: Interval) -> Patch | None:
    shape, result = ctx.shape(0), ctx.out_shape()
    if shape is None or result is None:
        return None
    pool = ctx.op.kind.endswith("pool_2d")
    filters = None if pool else ctx.shape(1)
    if filters is None and not pool:
        return None
    if len(shape) != 4 or (filters is not None and len(filters) != 4):
        return None
    taps = ctx.int_attr("filter_height", 1) if filters is None else filters[1]
    reach = (taps - 1) * ctx.int_attr("dilation_h_factor", 1) + 1
    stride = ctx.int_attr("stride_h", 1)
    same = ctx.attr("padding") != "valid"
    before = _same_padding(shape[1], reach, stride) if same else 0
    window = _Window(shape[1], result[1], reach, stride, before, 0)
    if not same:
        return Patch({0: window.reads(rows)}, rows)
    return _aligned(window, rows)


def _same_padding(size: int, reach: int, stride: int) -> int:
    """Rows that ``same`` padding puts before the data."""
    return max((-(-size // stride) - 1) * stride + reach - size, 0) // 2


def _aligned(window: _Window, rows: Interval) -> Patch | None:
    """The smallest cut on which an op with ``same`` padding makes the asked rows rightly.

    The op pads the cut as if it were the image. Rows whose window meets that padding are wrong,
    unless the image ends there; they are made and dropped.
    """
    least = window.reads(rows)
    for extra in range(2 * window.stride + 2):
        for above in range(extra + 1):
            start, stop = least.start - above, least.stop + extra - above
            if start < 0 or stop > window.size:
                continue
            before = _same_padding(stop - start, window.taps, window.stride)
            shift = start - before + window.before
            first, made = shift // window.stride, -(-(stop - start) // window.stride)
            if shift % window.stride == 0 and first <= rows.start and first + made >= rows.stop:
                return Patch({0: Interval(start, stop)}, Interval(first, first + made))
    return None
