"""Random convolutions, pools, products, reductions and recurrent layers, seeded."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .instances import floats, make
from .layout_instances import index
from .proofs import Instance


def window_attrs(rng: np.random.Generator, rank: int, *, ceil: bool, run: bool) -> dict:
    attrs: dict[str, object] = {"strides": rng.integers(1, 4, rank).tolist()}
    if rng.random() < 0.5:
        attrs["dilations"] = rng.integers(1, 3, rank).tolist()
    mode = rng.choice(["NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"])
    if mode == "NOTSET":
        # The reference pools take symmetric padding only up to half a window.
        pads = rng.integers(0, 2, rank).tolist()
        attrs["pads"] = [*pads, *pads] if run else rng.integers(0, 2, 2 * rank).tolist()
    else:
        attrs["auto_pad"] = str(mode)
    if ceil:
        attrs["ceil_mode"] = int(rng.integers(0, 2))
    return attrs


def convolutions(run: bool) -> Iterator[Instance]:
    for seed in range(160):
        rng = np.random.default_rng(seed)
        rank = int(rng.integers(1, 4 if not run else 3))
        group = int(rng.choice([1, 2]))
        spatial = tuple(rng.integers(6, 11, rank).tolist())
        kernel = tuple(rng.integers(1, 4, rank).tolist())
        attrs = window_attrs(rng, rank, ceil=False, run=run)
        x = floats((2, 2 * group, *spatial))
        weight = floats((3 * group, 2, *kernel), 1)
        yield make("Conv", x, weight, group=group, **attrs)
        weight = floats((2 * group, 3, *kernel), 1)
        more = {} if seed % 3 else {"output_padding": [0] * rank}
        if not run or "auto_pad" not in attrs:
            yield make("ConvTranspose", x, weight, group=group, **attrs, **more)
        ints = (v.astype(np.uint8) for v in (x, floats((3 * group, 2, *kernel), 1)))
        yield make("ConvInteger", *ints, opset=10, group=group, **attrs)


def pools(run: bool) -> Iterator[Instance]:
    for seed in range(160):
        rng = np.random.default_rng(1000 + seed)
        rank = int(rng.integers(1, 4 if not run else 3))
        x = floats((1, 2, *rng.integers(6, 11, rank).tolist()))
        kernel = rng.integers(2, 4, rank).tolist()
        attrs = window_attrs(rng, rank, ceil=not run, run=run)
        if run:
            # The reference pools count windows differently under `auto_pad`.
            attrs.pop("auto_pad", None)
        yield make("MaxPool", x, kernel_shape=kernel, outputs=1 + seed % 2, **attrs)
        yield make("AveragePool", x, kernel_shape=kernel, **attrs)
        yield make("LpPool", x, kernel_shape=kernel, **attrs)
        for op_type in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"):
            if not run or rank > 1:  # the reference GlobalMaxPool drops an axis at rank 3
                yield make(op_type, x)


def products(_run: bool) -> Iterator[Instance]:
    pairs = (
        ((2, 3), (3, 4)),
        ((3,), (3, 4)),
        ((2, 3), (3,)),
        ((3,), (3,)),
        ((5, 1, 2, 3), (4, 3, 2)),
        ((2, 2, 3), (3, 4)),
    )
    for a, b in pairs:
        yield make("MatMul", floats(a), floats(b))
    for flip_a in (0, 1):
        for flip_b in (0, 1):
            a, b = floats((2, 3)), floats((3, 4))
            yield make(
                "Gemm",
                a.T if flip_a else a,
                b.T if flip_b else b,
                floats((4,)),
                transA=flip_a,
                transB=flip_b,
            )
    for equation, shapes in (
        ("ij,jk->ik", ((2, 3), (3, 4))),
        ("bij,bjk", ((2, 3, 4), (2, 4, 5))),
        ("...ij,...jk->...ik", ((2, 5, 3, 4), (5, 4, 2))),
        ("ij->ji", ((2, 3),)),
        ("ii->i", ((3, 3),)),
        ("i,j,k->kji", ((2,), (3,), (4,))),
        ("...i->...", ((2, 3, 4),)),
    ):
        yield make("Einsum", *(floats(s) for s in shapes), equation=equation)


def reductions(_run: bool) -> Iterator[Instance]:
    x = floats((2, 3, 4))
    for op_type in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2", "ReduceProd"):
        for keep in (0, 1):
            for axes in ((0,), (-1,), (0, 2), (1, -1)):
                yield make(op_type, x, index(*axes), keepdims=keep)
            yield make(op_type, x, keepdims=keep)
            yield make(op_type, x, keepdims=keep, noop_with_empty_axes=1)
            yield make(op_type, x, opset=11, axes=[1], keepdims=keep)
    for op_type in ("ArgMax", "ArgMin"):
        for axis in (0, -1):
            for keep in (0, 1):
                yield make(op_type, x, axis=axis, keepdims=keep)
    for axis in (0, 1, -1):
        yield make("TopK", x, index(2), axis=axis, outputs=2)
        yield make("Gather", x, index(0, 1), axis=axis)
        yield make("Gather", x, np.array(1), axis=axis)
        yield make("Softmax", x, axis=axis)
        yield make("CumSum", x, np.array(axis))
        yield make("LayerNormalization", x, floats(x.shape[axis:]), outputs=3, axis=axis)
        yield make(
            "OneHot", np.array([[0, 1]]), np.array(5), np.array([0, 1], np.float32), axis=axis
        )


def recurrences(_run: bool) -> Iterator[Instance]:
    for op_type, gates, outputs in (("RNN", 1, 2), ("GRU", 3, 2), ("LSTM", 4, 3)):
        for directions in (1, 2):
            w, r = floats((directions, gates * 5, 3)), floats((directions, gates * 5, 5))
            way = "bidirectional" if directions == 2 else "forward"
            if directions == 1:  # the reference kernels run one direction
                yield make(op_type, floats((7, 2, 3)), w, r, hidden_size=5, outputs=outputs)
            for layout in (0, 1):
                found = make(
                    op_type,
                    floats((7, 2, 3)),
                    w,
                    r,
                    hidden_size=5,
                    outputs=outputs,
                    direction=way,
                    layout=layout,
                    truth=None,
                )
                if not _run:
                    yield found


def every_window_instance(*, run: bool = False) -> list[Instance]:
    groups = (convolutions, pools, products, reductions, recurrences)
    return [instance for group in groups for instance in group(run)]
