"""Generated instances of TFLite's kinds; truths are written from the operators' definitions.

The node's type is the kind itself: the bridge reads attributes and operands, never the name.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .instances import PAIRS, SHAPES, floats, integers, make
from .layout_instances import index
from .proofs import Instance


def level(scale: float, zero: int) -> object:
    def run(x, *_):
        real = (x.astype(np.float32) - 3) * 0.5
        return (np.clip(np.rint(real / scale) + zero, -128, 127).astype(np.int8),)

    return run


EDGES = np.array([0.3, 0.5, 0.7], np.float32)


def in_buckets(x):
    return (np.searchsorted(EDGES, x, "right").astype(np.int32),)


def elementwise() -> Iterator[Instance]:
    unary = {
        "cbrt": np.cbrt,
        "fake_quant": lambda x: np.rint(np.clip(x, 0.2, 0.8) * 255) / 255,
        "relu6": lambda x: np.clip(x * 9 - 1, 0, 6),
        "relu_0_to_1": lambda x: np.clip(x * 2 - 0.5, 0, 1),
        "relu_n1_to_1": lambda x: np.clip(x * 3 - 2, -1, 1),
        "rsqrt": lambda x: 1 / np.sqrt(x),
        "square": np.square,
    }
    binary = {
        "atan2": np.arctan2,
        "floor_div": lambda a, b: np.floor(a / b * 7),
        "squared_difference": lambda a, b: np.square(a - b),
        "add": lambda a, b: np.clip(a + b, 0, 1.2),
    }
    for shape in SHAPES:
        for kind, f in unary.items():
            yield make(kind, floats(shape), truth=lambda x, f=f: (f(x).astype(np.float32),))
        yield make("quantize", integers(shape, np.int8), truth=level(0.25, 1), to="int8")
        yield make("bucketize", floats(shape), boundaries=EDGES.tolist(), truth=in_buckets)
        yield make(
            "stablehlo_clamp",
            np.float32(0.3),
            floats(shape),
            np.float32(0.7),
            truth=lambda low, x, high: (np.clip(x, low, high),),
        )
        yield make(
            "tfl_select",
            floats(shape, 3) > 0.5,
            floats(shape),
            floats(shape, 1),
            truth=lambda c, a, b: (np.where(c, a, b),),
        )
    yield make(
        "tfl_select",
        np.array([True, False]),
        floats((2, 3)),
        floats((2, 3), 1),
        truth=lambda c, a, b: (np.where(c[:, None], a, b),),
    )
    for one, two in PAIRS:
        for a, b in ((one, two), (two, one)):
            for kind, f in binary.items():
                more = {"fused_activation": "relu_n1_to_1"} if kind == "add" else {}
                yield make(
                    kind,
                    floats(a),
                    floats(b, 1),
                    **more,
                    truth=lambda x, y, f=f: (f(x, y).astype(np.float32),),
                )
            bytes_of = integers(a, np.uint8), integers(b, np.uint8, 1)
            yield make("not_equal", *bytes_of, truth=lambda x, y: (x != y,))
            yield make("stablehlo_compare", *bytes_of, truth=lambda x, y: (x < y,))


def updates() -> Iterator[Instance]:
    def updated(x, part, *start):
        out = x.copy()
        corner = [int(v) for v in np.concatenate([np.atleast_1d(s) for s in start])]
        out[tuple(slice(c, c + n) for c, n in zip(corner, part.shape, strict=True))] = part
        return (out,)

    x, part = floats((3, 4)), floats((2, 2), 1)
    yield make("dynamic_update_slice", x, part, index(1, 2), truth=updated)
    yield make("stablehlo_dynamic_update_slice", x, part, np.int64(0), np.int64(1), truth=updated)


def bits() -> Iterator[Instance]:
    for shape in ((2, 3), (4,), (1, 2, 4)):
        x = floats(shape)
        yield make("tfl_bitcast", x, to="int32", truth=lambda v: (v.view(np.int32),))
        yield make(
            "tfl_bitcast", x, to="uint8", truth=lambda v: (v.view(np.uint8).reshape(*v.shape, 4),)
        )
        small = integers((*shape, 4), np.uint8)
        yield make(
            "tfl_bitcast",
            small,
            to="int32",
            truth=lambda v: (v.view(np.int32).reshape(v.shape[:-1]),),
        )


def strided(x, begin, end, step, masks):
    """A strided slice by numpy's own indexing, entry by entry (positive steps).

    A masked begin starts at 0 even where the axis is dropped: TensorFlow ignores the mask
    there, the interpreters' kernels do not.
    """
    items: list[object] = []
    for at in range(len(begin)):
        on = {name: mask >> at & 1 for name, mask in masks.items()}
        if on["ellipsis"]:
            items.append(Ellipsis)
        elif on["new_axis"]:
            items.append(None)
        elif on["shrink_axis"]:
            items.append(0 if on["begin"] else int(begin[at]))
        else:
            low = None if on["begin"] else int(begin[at])
            high = None if on["end"] else int(end[at])
            items.append(slice(low, high, int(step[at])))
    return (x[tuple(items)].copy(),)


def slices() -> Iterator[Instance]:
    rng = np.random.default_rng(11)
    names = ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    for shape in ((6,), (4, 3), (1, 5), (1, 4, 3), (2, 3, 2)):
        x = floats(shape)
        for _ in range(60):
            rank = int(rng.integers(1, len(shape) + 1))
            masks = dict.fromkeys(names, 0)
            for name in names[:2]:
                masks[name] = int(rng.integers(0, 2**rank))
            odd = int(rng.integers(0, 6))
            if odd == 0 and rank < len(shape) + 1:
                masks["ellipsis"] = 1 << int(rng.integers(0, rank))
            elif odd == 1:
                masks["new_axis"] = 1 << int(rng.integers(0, rank))
            elif odd == 2:
                masks["shrink_axis"] = int(rng.integers(0, 2**rank))
            step = rng.choice([1, 1, 1, 2], rank)
            begin = rng.integers(0, 2, rank)
            begin = np.where(np.array(shape[:rank]) < 2, 0, begin)
            end = begin + rng.integers(1, 4, rank)
            if masks["shrink_axis"] and masks["shrink_axis"] == 2 ** len(shape) - 1:
                masks["shrink_axis"] = 1
            if masks["shrink_axis"] and len(shape) == 1:
                masks["shrink_axis"] = 0
            given = {f"{k}_mask": v for k, v in masks.items()}
            yield make(
                "strided_slice",
                x,
                index(*begin),
                index(*end),
                index(*step),
                **given,
                truth=lambda v, a, b, s, m=masks: strided(v, a, b, s, m),
            )
        begin = tuple(int(n > 1) for n in shape)
        size = tuple(n - b for n, b in zip(shape, begin, strict=True))
        for where, length in (
            (begin, size),
            (begin, (-1,) * len(shape)),
            ((0,) * len(shape), size),
        ):
            yield make("tfl_slice", x, index(*where), index(*length), truth=boxed)
        stop = [b + n for b, n in zip(begin, size, strict=True)]
        for step in (1, 2):
            yield make(
                "stablehlo_slice",
                x,
                start_indices=list(begin),
                limit_indices=stop,
                strides=[step] * len(shape),
                truth=lambda v, a=begin, b=stop, s=step: (
                    v[tuple(slice(p, q, s) for p, q in zip(a, b, strict=True))].copy(),
                ),
            )


def boxed(x, begin, size):
    ends = [n if s < 0 else b + s for b, s, n in zip(begin, size, x.shape, strict=True)]
    return (x[tuple(slice(int(b), int(e)) for b, e in zip(begin, ends, strict=True))].copy(),)


def cuts() -> Iterator[Instance]:
    for shape, axis in (((6, 2), 0), ((1, 6, 2), 1), ((2, 6), 1), ((1, 1, 6), -1)):
        x = floats(shape)
        yield make(
            "tfl_split",
            np.int32(axis),
            x,
            outputs=3,
            truth=lambda a, v: tuple(p.copy() for p in np.split(v, 3, int(a))),
        )
        for parts in ((1, 2, 3), (2, -1, 1)):
            yield make("split_v", x, index(*parts), np.int32(axis), outputs=3, truth=pieces)
    for shape, axis in (((3, 2), 0), ((1, 3, 2), 1), ((2, 3), 1), ((3, 1), 0)):
        x = floats(shape)
        parts = [floats(shape, seed) for seed in range(2)]
        yield make(
            "unpack",
            x,
            outputs=shape[axis],
            axis=axis,
            truth=lambda v, a=axis: tuple(np.moveaxis(v, a, 0).copy()),
        )
        yield make("pack", *parts, axis=axis, truth=lambda *v, a=axis: (np.stack(v, a),))
        yield make("pack", x, axis=axis, truth=lambda v, a=axis: (np.expand_dims(v, a),))


def pieces(x, parts, axis):
    rest = x.shape[int(axis)] - sum(int(p) for p in parts if p >= 0)
    ends = np.cumsum([rest if p < 0 else p for p in parts])[:-1]
    return tuple(p.copy() for p in np.split(x, ends, int(axis)))


def blocks() -> Iterator[Instance]:
    def deeper(x, block):
        n, h, w, c = x.shape
        x = x.reshape(n, h // block, block, w // block, block, c)
        return (x.transpose(0, 1, 3, 2, 4, 5).reshape(n, h // block, w // block, c * block**2),)

    def wider(x, block):
        n, h, w, c = x.shape
        x = x.reshape(n, h, w, block, block, c // block**2).transpose(0, 1, 3, 2, 4, 5)
        return (x.reshape(n, h * block, w * block, c // block**2),)

    for shape in ((1, 2, 2, 4), (2, 4, 4, 4)):
        x = floats(shape)
        for block in (1, 2):
            yield make(
                "tfl_space_to_depth", x, block_size=block, truth=lambda v, b=block: deeper(v, b)
            )
            yield make(
                "tfl_depth_to_space", x, block_size=block, truth=lambda v, b=block: wider(v, b)
            )
        for size in (shape[1:3], (shape[1] * 2, shape[2] * 2)):
            yield make("resize_nearest_neighbor", x, index(*size), truth=nearest)
        for perm in ((0, 1, 2, 3), (1, 0, 2, 3), (0, 3, 1, 2), (2, 1, 0, 3)):
            yield make(
                "stablehlo_transpose",
                x,
                permutation=list(perm),
                truth=lambda v, p=perm: (np.ascontiguousarray(v.transpose(p)),),
            )


def nearest(x, size):
    rows, columns = (
        np.arange(int(n)) * m // int(n) for n, m in zip(size, x.shape[1:3], strict=True)
    )
    return (np.ascontiguousarray(x[:, rows][:, :, columns]),)


def every_tflite_instance() -> Iterator[Instance]:
    for group in (elementwise, updates, bits, slices, cuts, blocks):
        yield from group()
