"""Plain numpy kernels where `onnx.reference` is too slow for whole networks.

Windows are walked tap by tap: a tap is one position of the kernel, and one strided view of the
input holds what all outputs read there. The ordinary run and the arena run use the same kernels,
so that their results can be compared bit for bit; tests hold each kernel against
`onnx.reference`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Args = Sequence[Any]
"""Operands by position; `None` is an absent optional one."""

Run = Callable[[Args], tuple[Any, ...]]
Into = Callable[[Args, Array], None]


@dataclass(frozen=True, slots=True)
class Kernel:
    """How one op is computed.

    Attributes:
        name: for reports.
        run: results from operands, in arrays of their own.
        into: writes result 0 element by element, so that the result may be the very memory of
            an operand of the same layout; `None` when there is no such kernel.
        over: writes result 0 in the order that the op's `overlap` fact is about, so that the
            result may lie over part of an operand; `None` when there is no such kernel.
    """

    name: str
    run: Run
    into: Into | None = None
    over: Into | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """The geometry of a sliding window over the spatial axes.

    Attributes:
        kernel, strides, dilations: per axis.
        before: padding at the low end of each axis.
        after: padding at the high end that the model asks for.
        out: outputs per axis.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    out: tuple[int, ...]

    @classmethod
    def of(cls, attrs: Mapping[str, Any], kernel: Sequence[int], size: Sequence[int]) -> Window:
        """The window of a convolution or pooling node.

        Args:
            attrs: the node's attributes.
            kernel: taps per spatial axis.
            size: elements per spatial axis of the input.

        Example:
            >>> w = Window.of({"auto_pad": b"SAME_UPPER", "strides": [2]}, [3], [5])
            >>> w.before, w.after, w.out
            ((1,), (1,), (3,))
        """
        axes = len(kernel)
        strides = tuple(attrs.get("strides") or (1,) * axes)
        dilations = tuple(attrs.get("dilations") or (1,) * axes)
        pads = tuple(attrs.get("pads") or (0,) * (2 * axes))
        mode = attrs.get("auto_pad", b"NOTSET")
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
        if mode in (b"SAME_UPPER", b"SAME_LOWER"):
            out = [-(-n // s) for n, s in zip(size, strides, strict=True)]
            need = [
                max(0, (o - 1) * s + r - n)
                for o, s, r, n in zip(out, strides, reach, size, strict=True)
            ]
            low = [(n + (mode == b"SAME_LOWER")) // 2 for n in need]
            pads = (*low, *(n - at for n, at in zip(need, low, strict=True)))
        elif mode == b"VALID":
            pads = (0,) * (2 * axes)
        room = [n + pads[at] + pads[at + axes] - reach[at] for at, n in enumerate(size)]
        out = [r // s + 1 for r, s in zip(room, strides, strict=True)]
        if attrs.get("ceil_mode", 0):
            out = [-(-r // s) + 1 for r, s in zip(room, strides, strict=True)]
            # A window that starts behind the input and its low padding does not count.
            out = [
                o - ((o - 1) * s >= n + pads[at])
                for at, (o, s, n) in enumerate(zip(out, strides, size, strict=True))
            ]
        return cls(tuple(kernel), strides, dilations, pads[:axes], pads[axes:], tuple(out))

    def padded(self, x: Array, value: float) -> Array:
        """The input with its padding; the input itself when there is none."""
        last = [
            (o - 1) * s + (k - 1) * d + 1
            for o, s, k, d in zip(self.out, self.strides, self.kernel, self.dilations, strict=True)
        ]
        sizes = x.shape[2:]
        after = [
            max(a, stop - n - b)
            for a, stop, n, b in zip(self.after, last, sizes, self.before, strict=True)
        ]
        if not any(self.before) and not any(after):
            return x
        around = [(0, 0), (0, 0), *zip(self.before, after, strict=True)]
        return np.pad(x, around, constant_values=value)

    def taps(self, padded: Array) -> Iterator[Array]:
        """What all outputs read at each tap, as views of shape (n, channels, *out)."""
        for tap in product(*map(range, self.kernel)):
            yield padded[self.touched(tap)]

    def touched(self, tap: Sequence[int]) -> tuple[Any, ...]:
        """An index of what the outputs' windows touch of the padded input at one tap."""
        return (
            ...,
            *(
                slice(t * d, t * d + (o - 1) * s + 1, s)
                for t, d, o, s in zip(tap, self.dilations, self.out, self.strides, strict=True)
            ),
        )


def plain_kernel(kind: str, attrs: Mapping[str, Any], opset: int, floating: bool) -> Kernel | None:
    """The kernel of our own for a node with one result, or `None` where there is none.

    Args:
        kind: the op kind.
        attrs: attributes of the ONNX node.
        opset: version of the standard operators.
        floating: whether the first operand is float32 or float64.
    """
    if kind == "zip_map":
        return Kernel(kind, zip_map(attrs))
    makers: dict[str, Callable[[Mapping[str, Any]], Run | None]] = {
        "conv": conv,
        "conv_transpose": conv_transpose,
        "max_pool": max_pool,
        "average_pool": average_pool,
        "lrn": lrn,
        "resize": nearest,
    }
    if opset < 13:
        makers["softmax"] = flat_softmax
    run = makers[kind](attrs) if floating and kind in makers else None
    return None if run is None else Kernel(kind, run)


def conv(attrs: Mapping[str, Any]) -> Run:
    """Convolution with groups, strides, dilations and padding: im2col and one product."""

    def run(args: Args) -> tuple[Array, ...]:
        x, w = args[0], args[1]
        bias = args[2] if len(args) > 2 else None
        group = attrs.get("group", 1)
        window = Window.of(attrs, w.shape[2:], x.shape[2:])
        padded = window.padded(x, 0)
        n, channels = x.shape[:2]
        taps, points = int(np.prod(window.kernel)), int(np.prod(window.out))
        plain = taps == 1 and padded is x and window.out == x.shape[2:]
        if plain:
            cols = x  # a 1x1 convolution reads its operand where it lies
        else:
            cols = np.empty((n, channels, taps, *window.out), x.dtype)
            for at, part in enumerate(window.taps(padded)):
                cols[:, :, at] = part
        cols = cols.reshape(n, group, channels // group * taps, points)
        out = np.matmul(w.reshape(group, w.shape[0] // group, -1), cols)
        out = out.reshape(n, w.shape[0], *window.out)
        if bias is not None:
            out += bias.reshape(-1, *(1,) * len(window.out))
        return (out,)

    return run


def conv_transpose(attrs: Mapping[str, Any]) -> Run | None:
    """Transposed convolution: one product, then every tap is added where it belongs."""
    if attrs.get("auto_pad", b"NOTSET") != b"NOTSET" or "output_shape" in attrs:
        return None

    def run(args: Args) -> tuple[Array, ...]:
        x, w = args[0], args[1]
        bias = args[2] if len(args) > 2 else None
        group, axes = attrs.get("group", 1), x.ndim - 2
        kernel, n = w.shape[2:], x.shape[0]
        strides = attrs.get("strides") or (1,) * axes
        dilations = attrs.get("dilations") or (1,) * axes
        pads = attrs.get("pads") or (0,) * (2 * axes)
        more = attrs.get("output_padding") or (0,) * axes
        full = [
            (size - 1) * s + (k - 1) * d + 1 + extra
            for size, s, k, d, extra in zip(
                x.shape[2:], strides, kernel, dilations, more, strict=True
            )
        ]
        columns = np.matmul(
            np.swapaxes(w.reshape(group, w.shape[0] // group, -1), 1, 2),
            x.reshape(n, group, x.shape[1] // group, -1),
        ).reshape(n, group * w.shape[1], -1, *x.shape[2:])
        out = np.zeros((n, group * w.shape[1], *full), x.dtype)
        window = Window(
            tuple(kernel), tuple(strides), tuple(dilations), (0,) * axes, (0,) * axes, x.shape[2:]
        )
        for at, tap in enumerate(product(*map(range, kernel))):
            out[window.touched(tap)] += columns[:, :, at]
        crop: Any = [slice(pads[at], size - pads[at + axes]) for at, size in enumerate(full)]
        out = np.ascontiguousarray(out[(..., *crop)])
        if bias is not None:
            out += bias.reshape(-1, *(1,) * axes)
        return (out,)

    return run


def max_pool(attrs: Mapping[str, Any]) -> Run:
    """Max pooling without indices."""

    def run(args: Args) -> tuple[Array, ...]:
        x = args[0]
        window = Window.of(attrs, attrs["kernel_shape"], x.shape[2:])
        taps = window.taps(window.padded(x, -np.inf))
        out = next(taps).copy()
        for part in taps:
            np.maximum(out, part, out=out)
        return (out,)

    return run


def average_pool(attrs: Mapping[str, Any]) -> Run:
    """Average pooling; padding counts only where the node says so."""

    def run(args: Args) -> tuple[Array, ...]:
        x = args[0]
        window = Window.of(attrs, attrs["kernel_shape"], x.shape[2:])
        taps = window.taps(window.padded(x, 0))
        out = next(taps).copy()
        for part in taps:
            out += part
        count = np.ones((), x.dtype)
        whole = bool(attrs.get("count_include_pad", 0))
        for axis, size in enumerate(x.shape[2:]):
            count = np.multiply.outer(count, _counted(window, axis, size, whole))
        out /= count.astype(x.dtype)
        return (out,)

    return run


def _counted(window: Window, axis: int, size: int, whole: bool) -> Array:
    """How many taps of each output along one axis lie in what is counted."""
    low = 0 if whole else window.before[axis]
    high = window.before[axis] + size + (window.after[axis] if whole else 0)
    first = np.arange(window.out[axis])[:, None] * window.strides[axis]
    at = first + np.arange(window.kernel[axis]) * window.dilations[axis]
    count: Array = np.count_nonzero((at >= low) & (at < high), axis=1)
    return count


def lrn(attrs: Mapping[str, Any]) -> Run:
    """Local response normalisation over channels."""

    def run(args: Args) -> tuple[Array, ...]:
        x, size = args[0], attrs["size"]
        low = (size - 1) // 2
        square = np.zeros((x.shape[0], x.shape[1] + size - 1, *x.shape[2:]), x.dtype)
        np.square(x, out=square[:, low : low + x.shape[1]])
        total = square[:, : x.shape[1]].copy()
        for at in range(1, size):
            total += square[:, at : at + x.shape[1]]
        alpha, beta, bias = (
            attrs.get(name, default)
            for name, default in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0))
        )
        total *= x.dtype.type(alpha / size)
        total += x.dtype.type(bias)
        return (x / total ** x.dtype.type(beta),)

    return run


def nearest(attrs: Mapping[str, Any]) -> Run | None:
    """Resize by the nearest pixel at or before, origin on origin: pixels are repeated."""
    how = (
        attrs.get("mode", b"nearest"),
        attrs.get("coordinate_transformation_mode"),
        attrs.get("nearest_mode"),
    )
    if how != (b"nearest", b"asymmetric", b"floor") or "axes" in attrs:
        return None

    def run(args: Args) -> tuple[Array, ...]:
        x = args[0]
        scales = args[2] if len(args) > 2 else None
        sizes = args[3] if len(args) > 3 else None
        if scales is not None and scales.size:
            factors = np.asarray(scales, np.float64)
            lengths = np.floor(np.array(x.shape) * factors).astype(np.int64)
        else:
            lengths = np.asarray(sizes)
            factors = lengths / np.array(x.shape)
        out = x
        for axis, (length, factor) in enumerate(zip(lengths, factors, strict=True)):
            if length != x.shape[axis]:
                at = np.floor(np.arange(length) / factor).astype(np.int64)
                out = np.take(out, np.minimum(at, x.shape[axis] - 1), axis)
        return (np.array(out),)

    return run


def flat_softmax(attrs: Mapping[str, Any]) -> Run:
    """Softmax before opset 13: over all axes from `axis` (1 by default) on, taken as one."""

    def run(args: Args) -> tuple[Array, ...]:
        x = args[0]
        axis = attrs.get("axis", 1) % max(x.ndim, 1)
        rows = x.reshape(int(np.prod(x.shape[:axis])), -1)
        powers = np.exp(rows - rows.max(axis=1, keepdims=True))
        powers /= powers.sum(axis=1, keepdims=True)
        return (powers.reshape(x.shape),)

    return run


def zip_map(attrs: Mapping[str, Any]) -> Run:
    """One mapping from class labels to probabilities a row; its result is no tensor."""
    names = attrs.get("classlabels_int64s") or [
        label.decode() for label in attrs.get("classlabels_strings", ())
    ]

    def run(args: Args) -> tuple[Any, ...]:
        return ([dict(zip(names, row, strict=True)) for row in args[0].tolist()],)

    return run
