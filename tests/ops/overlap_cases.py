"""Random one-operator models for every kind that may overlap its input, with their loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np

from . import loops
from .one_op import OneOp, Value

SCALE = {"int8": 0.05, "uint8": 0.05, "int16": 0.0005, "int32": 0.0001, "float32": None}
WIDTH = {"int8": 1, "uint8": 1, "bool": 1, "int16": 2, "int32": 4, "float32": 4}


@dataclass(frozen=True)
class Case:
    """A model of one operator and the loops of its kernel."""

    model: OneOp
    walk: Callable[[], loops.Walk]

    @property
    def x(self) -> Value:
        return next(value for value in self.model.inputs if value.data is None)

    @property
    def y(self) -> Value:
        return self.model.output

    @property
    def counts(self) -> tuple[int, int]:
        return prod(self.x.shape), prod(self.y.shape)

    @property
    def widths(self) -> tuple[int, int]:
        return WIDTH[self.x.dtype], WIDTH[self.y.dtype]

    def feed(self, rng: np.random.Generator) -> np.ndarray:
        if self.x.dtype == "float32":
            return rng.normal(size=self.x.shape).astype(np.float32)
        kind = np.dtype(self.x.dtype)
        low, high = np.iinfo(kind).min, np.iinfo(kind).max
        return rng.integers(low, high, self.x.shape, kind, endpoint=True)


def value(shape: tuple[int, ...], dtype: str, scale: float | None = None) -> Value:
    scale = scale or SCALE[dtype]
    return Value(shape, dtype, scale=scale, zero=3 if dtype == "int8" else 0)


def weights(rng: np.random.Generator, shape: tuple[int, ...], channels: int, dtype: str):
    """A filter and a bias that belong to an input of this type."""
    if dtype == "float32":
        filters = rng.normal(size=shape).astype(np.float32)
        bias = rng.normal(size=channels).astype(np.float32)
        return Value(shape, "float32", filters), Value((channels,), "float32", bias)
    filters = rng.integers(-127, 128, shape).astype(np.int8)
    step = SCALE[dtype] * 0.01
    wide = "int64" if dtype == "int16" else "int32"
    bias = rng.integers(-99, 99, channels).astype(wide)
    return (
        Value(shape, "int8", filters, (0.01,) * channels),
        Value((channels,), wide, bias, (step,) * channels),
    )


def image(rng: np.random.Generator, kernel: tuple[int, int], dilation: tuple[int, int]):
    """Batches, rows, columns; large enough for a window without padding."""
    low = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    return (int(rng.integers(1, 3)), *(int(n + rng.integers(0, 6)) for n in low))


def windows(rng: np.random.Generator, *, dilated: bool):
    """A window and an image: (batch, rows, columns), output rows and columns, attributes."""
    kernel = tuple(int(k) for k in rng.integers(1, 4, 2))
    dilation = tuple(int(d) for d in rng.integers(1, 3, 2)) if dilated else (1, 1)
    stride = tuple(int(s) for s in rng.choice([1, 1, 1, 2, 3], 2)) if dilation == (1, 1) else (1, 1)
    same = bool(rng.integers(2))
    batch, *size = image(rng, kernel, dilation)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    if same:
        out = [-(-n // s) for n, s in zip(size, stride, strict=True)]
        before = [
            max(0, (o - 1) * s + r - n) // 2
            for o, s, r, n in zip(out, stride, reach, size, strict=True)
        ]
    else:
        out = [(n - r) // s + 1 for n, r, s in zip(size, reach, stride, strict=True)]
        before = [0, 0]
    walk = {"kernel": kernel, "stride": stride, "dilation": dilation, "before": tuple(before)}
    fields = {"padding": 0 if same else 1, "strideH": stride[0], "strideW": stride[1]}
    return (batch, *size), tuple(out), walk, fields


def conv(rng: np.random.Generator, dtype: str) -> Case:
    (batch, *size), out, walk, fields = windows(rng, dilated=True)
    groups = int(rng.integers(1, 3)) if dtype == "int8" else 1
    depth, filters = groups * int(rng.integers(1, 5)), groups * int(rng.integers(1, 5))
    x, y = (batch, *size, depth), (batch, *out, filters)
    w, b = weights(rng, (filters, *walk["kernel"], depth // groups), filters, dtype)
    fields |= {"dilationHFactor": walk["dilation"][0], "dilationWFactor": walk["dilation"][1]}
    model = OneOp("CONV_2D", (value(x, dtype), w, b), value(y, dtype), "Conv2D", fields)

    def channels(filter_: int) -> range:
        first = filter_ // (filters // groups) * (depth // groups)
        return range(first, first + depth // groups)

    return Case(model, partial(loops.window, x, y, **walk, channels=channels))


def depthwise(rng: np.random.Generator, dtype: str) -> Case:
    (batch, *size), out, walk, fields = windows(rng, dilated=True)
    depth, multiplier = int(rng.integers(1, 5)), int(rng.integers(1, 4))
    x, y = (batch, *size, depth), (batch, *out, depth * multiplier)
    w, b = weights(rng, (1, *walk["kernel"], depth * multiplier), depth * multiplier, dtype)
    if w.scale is not None:
        w = Value(w.shape, w.dtype, w.data, w.scale, axis=3)
    fields |= {
        "dilationHFactor": walk["dilation"][0],
        "dilationWFactor": walk["dilation"][1],
        "depthMultiplier": multiplier,
    }
    model = OneOp(
        "DEPTHWISE_CONV_2D", (value(x, dtype), w, b), value(y, dtype), "DepthwiseConv2D", fields
    )
    return Case(
        model,
        partial(
            loops.window,
            x,
            y,
            **walk,
            channels=lambda c: range(c // multiplier, c // multiplier + 1),
        ),
    )


def pool(code: str, rng: np.random.Generator, dtype: str) -> Case:
    (batch, *size), out, walk, fields = windows(rng, dilated=False)
    depth = int(rng.integers(1, 5))
    x, y = (batch, *size, depth), (batch, *out, depth)
    fields |= {"filterHeight": walk["kernel"][0], "filterWidth": walk["kernel"][1]}
    model = OneOp(code, (value(x, dtype),), value(y, dtype), "Pool2D", fields)
    return Case(model, partial(loops.window, x, y, **walk, channels=lambda c: range(c, c + 1)))


def dense(rng: np.random.Generator, dtype: str) -> Case:
    count, depth, units = (int(n) for n in rng.integers(1, 8, 3))
    w, b = weights(rng, (units, depth), units, dtype)
    if w.scale is not None:
        w = Value(w.shape, w.dtype, w.data, w.scale[0])
        b = Value(b.shape, b.dtype, b.data, b.scale[0])
    model = OneOp(
        "FULLY_CONNECTED",
        (value((count, depth), dtype), w, b),
        value((count, units), dtype),
        "FullyConnected",
        {"keepNumDims": True},
    )
    return Case(model, partial(loops.rows, count, depth, units))


def shape(rng: np.random.Generator, rank: int = 4) -> tuple[int, ...]:
    return tuple(int(n) for n in rng.integers(1, 5, rank))


def convert(code: str, rng: np.random.Generator, pair: str) -> Case:
    source, result = pair.split(">")
    dims = (int(rng.integers(1, 60)), *shape(rng, 2))  # enough for kernels that read ahead
    model = OneOp(
        code,
        (value(dims, source),),
        value(dims, result, SCALE[result] and SCALE[result] * 1.5),
        "Cast" if code == "CAST" else "",
    )
    return Case(model, partial(loops.elementwise, prod(dims)))


def softmax(rng: np.random.Generator, pair: str) -> Case:
    source, result = pair.split(">")
    dims = shape(rng, 2)
    out = {
        "int8": Value(dims, "int8", scale=1 / 256, zero=-128),
        "float32": Value(dims, "float32"),
        "int16": Value(
            dims,
            "int16",
            scale=1 / 65536 if source == "int8" else 1 / 32768,
            zero=-32768 if source == "int8" else 0,
        ),
    }[result]
    model = OneOp("SOFTMAX", (value(dims, source),), out, "Softmax", {"beta": 1.0})
    return Case(model, partial(loops.softmax, *dims))


def pad(rng: np.random.Generator, dtype: str) -> Case:
    dims = shape(rng)
    around = rng.integers(0, 3, (4, 2)).astype(np.int32)
    out = tuple(int(n + a + b) for n, (a, b) in zip(dims, around, strict=True))
    model = OneOp(
        "PAD", (value(dims, dtype), Value((4, 2), "int32", around)), value(out, dtype), "Pad"
    )
    return Case(model, partial(loops.pad, dims, out, tuple(int(n) for n in around[:, 0])))


def strided(rng: np.random.Generator, dtype: str) -> Case:
    dims = tuple(int(n) for n in rng.integers(1, 7, 4))
    begin = tuple(int(rng.integers(0, n)) for n in dims)
    step = tuple(int(n) for n in rng.integers(1, 3, 4))
    end = tuple(int(rng.integers(b + 1, n + 1)) for b, n in zip(begin, dims, strict=True))
    out = tuple(-(-(e - b) // s) for b, e, s in zip(begin, end, step, strict=True))
    words = [Value((4,), "int32", np.array(v, np.int32)) for v in (begin, end, step)]
    model = OneOp("STRIDED_SLICE", (value(dims, dtype), *words), value(out, dtype), "StridedSlice")
    return Case(model, partial(loops.strided, dims, out, begin, step))


def sliced(rng: np.random.Generator, dtype: str) -> Case:
    dims = tuple(int(n) for n in rng.integers(1, 7, 4))
    begin = tuple(int(rng.integers(0, n)) for n in dims)
    out = tuple(int(rng.integers(1, n - b + 1)) for b, n in zip(begin, dims, strict=True))
    words = [Value((4,), "int32", np.array(v, np.int32)) for v in (begin, out)]
    model = OneOp("SLICE", (value(dims, dtype), *words), value(out, dtype), "Slice")
    return Case(model, partial(loops.strided, dims, out, begin, (1, 1, 1, 1)))


def resize(code: str, rng: np.random.Generator, dtype: str) -> Case:
    dims = (1, *shape(rng, 3))
    out = (1, *(int(n) for n in rng.integers(1, 10, 2)), dims[3])
    align, half = bool(rng.integers(2)), bool(rng.integers(2))
    half = half and not align
    name = "ResizeBilinear" if code == "RESIZE_BILINEAR" else "ResizeNearestNeighbor"
    size = Value((2,), "int32", np.array(out[1:3], np.int32))
    model = OneOp(
        code,
        (value(dims, dtype), size),
        value(out, dtype),
        name,
        {"alignCorners": align, "halfPixelCenters": half},
        3,
    )
    walk = partial(loops.bilinear, floats=dtype == "float32")
    walk = loops.nearest if code == "RESIZE_NEAREST_NEIGHBOR" else walk
    return Case(model, partial(walk, dims, out, align=align, half=half))


def transposed(rng: np.random.Generator, dtype: str) -> Case:
    (batch, *out), size, walk, fields = windows(rng, dilated=False)
    depth, filters = (int(n) for n in rng.integers(1, 5, 2))
    x, y = (batch, *size, depth), (batch, *out, filters)
    w, b = weights(rng, (filters, *walk["kernel"], depth), filters, dtype)
    words = Value((4,), "int32", np.array(y, np.int32))
    model = OneOp(
        "TRANSPOSE_CONV",
        (words, w, value(x, dtype), b),
        value(y, dtype),
        "TransposeConv",
        fields,
        3,
    )
    return Case(model, partial(loops.scattered, x, y))


Maker = Callable[[np.random.Generator, str], Case]
MAKERS: dict[str, tuple[Maker, tuple[str, ...]]] = {
    "CONV_2D": (conv, ("int8", "int16", "float32")),
    "DEPTHWISE_CONV_2D": (depthwise, ("int8", "int16", "float32")),
    "AVERAGE_POOL_2D": (partial(pool, "AVERAGE_POOL_2D"), ("int8", "int16", "float32")),
    "MAX_POOL_2D": (partial(pool, "MAX_POOL_2D"), ("int8", "int16", "float32")),
    "L2_POOL_2D": (partial(pool, "L2_POOL_2D"), ("float32",)),
    "FULLY_CONNECTED": (dense, ("int8", "int16", "float32")),
    "QUANTIZE": (partial(convert, "QUANTIZE"), (
        "float32>int8", "float32>int16", "int8>int16", "int16>int8", "int8>int32", "int16>int32",
        "int32>int8", "int32>int16")),
    "DEQUANTIZE": (partial(convert, "DEQUANTIZE"), (
        "int8>float32", "int16>float32", "uint8>float32")),
    "CAST": (partial(convert, "CAST"), (
        "int8>float32", "float32>int8", "int16>int32", "int32>int16", "float32>int16",
        "int16>float32", "int8>int32", "int32>int8")),
    "SOFTMAX": (softmax, ("int8>int16", "int8>int8", "float32>float32", "int16>int16")),
    "PAD": (pad, ("int8", "float32", "int16")),
    "STRIDED_SLICE": (strided, ("int8", "float32", "int16", "int32")),
    "SLICE": (sliced, ("int8", "float32", "int16", "int32")),
    "RESIZE_NEAREST_NEIGHBOR": (partial(resize, "RESIZE_NEAREST_NEIGHBOR"), ("int8", "float32")),
    "RESIZE_BILINEAR": (partial(resize, "RESIZE_BILINEAR"), ("int8",)),
    "TRANSPOSE_CONV": (transposed, ("int8", "int16")),
}  # fmt: skip


def cases(code: str, dtype: str, count: int, seed: int = 0) -> Iterator[Case]:
    """Random cases of one operator and type."""
    make, _ = MAKERS[code]
    rng = np.random.default_rng([seed, *code.encode(), *dtype.encode()])
    for _ in range(count):
        yield make(rng, dtype)
