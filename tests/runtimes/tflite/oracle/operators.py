"""Models of one operator that computes or moves numbers, each in the types it takes."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from tests.runtimes.tflite.oracle.parts import (
    ALL,
    FLOAT,
    NARROW,
    Dims,
    Model,
    bias,
    convolution,
    ints,
    one,
    scales,
    weights,
)


def convolutions(rng: Random, kind: str) -> Iterator[tuple[str, bytes]]:
    """The four layers with weights by channel, with and without a bias."""
    for deep in (False, True):
        # The interpreter itself crashes on float DEPTHWISE_CONV_2D without a bias, and on others.
        for with_bias in (True,) if deep else (True, False):
            made, side, c = Model(), rng.randint(1, 6), rng.randint(1, 40)
            n = c if deep else rng.randint(1, 120)
            x = made.real(kind, (1, side, side, c))
            y = convolution(
                made, kind, x, side, (c, n), k=rng.choice((1, 3)), deep=deep, with_bias=with_bias
            )
            yield (
                ("depthwise" if deep else "conv") + "/bias" * with_bias,
                made.ends([x], [y]).bytes(),
            )
    for with_bias in (True, False):
        made, side, c, n = Model(), rng.randint(1, 4), rng.randint(1, 9), rng.randint(1, 40)
        w = made.const(weights(kind), 1, (n, 2, 2, c), scales(kind, n))
        b = [made.const(bias(kind), 0, (n,), scales(kind, n, 0.0005))] if with_bias else []
        yield (
            f"TRANSPOSE_CONV/{len(b)}",
            one(
                "TRANSPOSE_CONV",
                [ints(made, [1, 2 * side, 2 * side, n]), w, (kind, (1, side, side, c)), *b],
                [(kind, (1, 2 * side, 2 * side, n))],
                "TransposeConvOptions",
                made,
                strideH=2,
                strideW=2,
            ),
        )
    for by_channel in (False, True) if kind == "INT8" else (False,):
        made, c, n = Model(), rng.randint(1, 30), rng.randint(2, 90)
        w = made.const(weights(kind), 1, (n, c), scales(kind, n if by_channel else 1))
        product = 1e-5 if kind == "INT16" else 0.0005  # of the scales of input and weights
        b = made.const(bias(kind), 0, (n,), scales(kind, n if by_channel else 1, product))
        yield (
            f"FULLY_CONNECTED/{by_channel}",
            one(
                "FULLY_CONNECTED",
                [(kind, (1, c)), w, b],
                [(kind, (1, n))],
                "FullyConnectedOptions",
                made,
            ),
        )


def elementwise(rng: Random, kind: str) -> Iterator[tuple[str, bytes]]:
    """Operators of one and two operands of one shape."""
    dims = (1, rng.randint(1, 9), rng.randint(2, 30))
    fixed = {
        "LOGISTIC": {"INT8": (1 / 256, -128), "INT16": (1 / 32768, 0)},
        "TANH": {"INT8": (1 / 128, 0), "INT16": (1 / 32768, 0)},
        "LOG_SOFTMAX": {"INT8": (16 / 256, 127)},
        "L2_NORMALIZATION": {"INT8": (1 / 128, 0)},
        "SOFTMAX": {"INT8": (1 / 256, -128), "INT16": (1 / 32768, 0)},
    }
    for name, types, options in UNARY:
        if kind in types:
            quantised = fixed.get(name, {}).get(kind, ())
            made = {"beta": 1.0} if name == "SOFTMAX" else {}
            made |= {"alpha": 0.1} if name == "LEAKY_RELU" else {}
            yield name, one(name, [(kind, dims)], [(kind, dims, *quantised)], options, **made)
    for name, types, options in BINARY:
        if kind not in types:
            continue
        yield name, one(name, [(kind, dims)] * 2, [(kind, dims)], options)
        if name not in ("FLOOR_DIV", "FLOOR_MOD"):
            made = Model()
            constant = made.const(kind, 1, (1, 1, dims[2]))
            yield (
                f"{name}/const",
                one(name, [(kind, dims), constant], [(kind, dims)], options, made),
            )
    for name, types in COMPARISONS:
        if kind in types:
            yield name, one(name, [(kind, dims)] * 2, [("BOOL", dims)])


UNARY = (
    ("ABS", ALL, "AbsOptions"),
    ("RSQRT", ALL, ""),
    ("NEG", FLOAT, "NegOptions"),
    ("SQRT", FLOAT, ""),
    ("SQUARE", FLOAT, "SquareOptions"),
    ("LOG", FLOAT, ""),
    ("EXP", FLOAT, "ExpOptions"),
    ("SIN", FLOAT, ""),
    ("COS", FLOAT, "CosOptions"),
    ("CEIL", FLOAT, ""),
    ("FLOOR", FLOAT, ""),
    ("ROUND", FLOAT, ""),
    ("LOGISTIC", ALL, ""),
    ("TANH", ALL, ""),
    ("ELU", NARROW, ""),
    ("RELU", ALL, ""),
    ("RELU6", ALL, ""),
    ("HARD_SWISH", NARROW, "HardSwishOptions"),
    ("ZEROS_LIKE", ("INT8", "FLOAT32"), ""),
    ("L2_NORMALIZATION", NARROW, "L2NormOptions"),
    ("LOG_SOFTMAX", NARROW, "LogSoftmaxOptions"),
    ("LEAKY_RELU", ALL, "LeakyReluOptions"),
    ("SOFTMAX", ALL, "SoftmaxOptions"),
)
BINARY = (
    ("ADD", ALL, "AddOptions"),
    ("SUB", ALL, "SubOptions"),
    ("MUL", ALL, "MulOptions"),
    ("DIV", NARROW, "DivOptions"),
    ("MAXIMUM", NARROW, "MaximumMinimumOptions"),
    ("MINIMUM", NARROW, "MaximumMinimumOptions"),
    ("SQUARED_DIFFERENCE", NARROW, "SquaredDifferenceOptions"),
    ("FLOOR_DIV", FLOAT, "FloorDivOptions"),
    ("FLOOR_MOD", FLOAT, "FloorModOptions"),
    ("PRELU", NARROW, ""),
)
COMPARISONS = (
    ("EQUAL", NARROW),
    ("NOT_EQUAL", NARROW),
    ("GREATER", ALL),
    ("GREATER_EQUAL", NARROW),
    ("LESS", ALL),
    ("LESS_EQUAL", NARROW),
)


def reductions(rng: Random, kind: str) -> Iterator[tuple[str, bytes]]:
    """Sums, extremes and pools."""
    side, c = 2 * rng.randint(1, 4), rng.randint(1, 9)
    x: tuple[str, Dims] = kind, (1, side, side, c)
    for name in ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN"):
        if kind != "INT16" or name in ("MEAN", "SUM"):
            made = Model()
            axes = ints(made, [1, 2])
            yield name, one(name, [x, axes], [(kind, (1, c))], "ReducerOptions", made)
    for name in ("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D"):
        if name != "L2_POOL_2D" or kind == "FLOAT32":
            yield (
                name,
                one(
                    name,
                    [x],
                    [(kind, (1, side // 2, side // 2, c))],
                    "Pool2DOptions",
                    strideH=2,
                    strideW=2,
                    filterHeight=2,
                    filterWidth=2,
                    padding=1,
                ),
            )
    for name in ("ARG_MAX", "ARG_MIN"):
        if kind != "INT16":
            made = Model()
            axis = ints(made, [3])
            options = name.title().replace("_", "") + "Options"
            yield name, one(name, [x, axis], [("INT32", x[1][:3])], options, made, outputType=2)
    if kind != "INT16":
        made = Model()
        axis = ints(made, 1)
        yield (
            "CUMSUM",
            one("CUMSUM", [(kind, (4, c)), axis], [(kind, (4, c))], "CumsumOptions", made),
        )


def moves(rng: Random, kind: str) -> Iterator[tuple[str, bytes]]:
    """Operators that move bytes."""
    n, a, b = rng.randint(2, 6), rng.randint(2, 9), rng.randint(3, 9)
    for count in (n, 2):
        yield (
            f"CONCATENATION/{count}",
            one(
                "CONCATENATION",
                [(kind, (1, a))] * count,
                [(kind, (1, a * count))],
                "ConcatenationOptions",
                axis=1,
            ),
        )
    for name, into, out, options, fields in (
        ("PACK", [(kind, (a,))] * n, [(kind, (n, a))], "PackOptions", {"valuesCount": n}),
        ("UNPACK", [(kind, (n, a))], [(kind, (a,))] * n, "UnpackOptions", {"num": n}),
        ("ADD_N", [(kind, (a,))] * n, [(kind, (a,))], "AddNOptions", {}),
    ):
        if name != "ADD_N" or kind != "INT16":
            yield name, one(name, into, out, options, **fields)
    if kind == "INT16":
        yield from _indexed(kind, a, b)
        return
    made = Model()
    yield (
        "SPLIT",
        one(
            "SPLIT",
            [ints(made, 1), (kind, (1, a * n))],
            [(kind, (1, a))] * n,
            "SplitOptions",
            made,
            numSplits=n,
        ),
    )
    made = Model()
    sizes, axis = ints(made, [a] * n), ints(made, 1)
    yield (
        "SPLIT_V",
        one(
            "SPLIT_V",
            [(kind, (1, a * n)), sizes, axis],
            [(kind, (1, a))] * n,
            "SplitVOptions",
            made,
            numSplits=n,
        ),
    )
    yield from _indexed(kind, a, b)


def _indexed(kind: str, a: int, b: int) -> Iterator[tuple[str, bytes]]:
    """Operators with operands that say where."""
    rows: list[tuple[str, tuple[str, ...], list[Any], Dims, Dims, str, dict[str, Any]]] = [
        ("RESHAPE", ALL, [[1, a * b]], (1, a, b), (1, a * b), "ReshapeOptions",
         {"newShape": [1, a * b]}),
        ("SQUEEZE", ALL, [], (1, a, b), (a, b), "SqueezeOptions", {"squeezeDims": [0]}),
        ("EXPAND_DIMS", NARROW, [[0]], (a, b), (1, a, b), "ExpandDimsOptions", {}),
        ("TRANSPOSE", ALL, [[2, 0, 1]], (2, a, b), (b, 2, a), "TransposeOptions", {}),
        ("GATHER", NARROW, [[0, 1]], (a, b), (2, b), "GatherOptions", {"axis": 0}),
        ("GATHER_ND", NARROW, [[[0], [1]]], (a, b), (2, b), "GatherNdOptions", {}),
        ("SLICE", ALL, [[0, 1], [2, 2]], (a, b), (2, 2), "SliceOptions", {}),
        ("STRIDED_SLICE", ALL, [[0, 1], [2, 3], [1, 1]], (a, b), (2, 2), "StridedSliceOptions",
         {}),
        ("REVERSE_V2", ALL, [[0]], (a, b), (a, b), "ReverseV2Options", {}),
        ("BROADCAST_TO", ALL, [[a, b]], (1, b), (a, b), "BroadcastToOptions", {}),
        ("PAD", ALL, [[[1, 1], [0, 2]]], (a, b), (a + 2, b + 2), "PadOptions", {}),
        ("MIRROR_PAD", NARROW, [[[1, 1], [0, 2]]], (a, b), (a + 2, b + 2), "MirrorPadOptions",
         {}),
        ("RESIZE_BILINEAR", NARROW, [[2 * a, 2 * b]], (1, a, b, 2), (1, 2 * a, 2 * b, 2),
         "ResizeBilinearOptions", {}),
        ("RESIZE_NEAREST_NEIGHBOR", ALL, [[2 * a, 2 * b]], (1, a, b, 2), (1, 2 * a, 2 * b, 2),
         "ResizeNearestNeighborOptions", {}),
        ("SPACE_TO_BATCH_ND", NARROW, [[2, 2], [[0, 0], [0, 0]]], (1, 4, 4, a), (4, 2, 2, a),
         "SpaceToBatchNDOptions", {}),
        ("BATCH_TO_SPACE_ND", NARROW, [[2, 2], [[0, 0], [0, 0]]], (4, 2, 2, a), (1, 4, 4, a),
         "BatchToSpaceNDOptions", {}),
        ("SPACE_TO_DEPTH", NARROW, [], (1, 4, 4, a), (1, 2, 2, 4 * a), "SpaceToDepthOptions",
         {"blockSize": 2}),
        ("DEPTH_TO_SPACE", NARROW, [], (1, 2, 2, 4 * a), (1, 4, 4, a), "DepthToSpaceOptions",
         {"blockSize": 2}),
    ]  # fmt: skip
    for name, types, values, before, after, options, fields in rows:
        if kind in types:
            made = Model()
            where = [ints(made, value) for value in values]
            if name == "BROADCAST_TO":
                data = one(name, [(kind, before), *where], [(kind, after)], options, made)
            else:
                data = one(name, [(kind, before), *where], [(kind, after)], options, made, **fields)
            yield name, data
    yield from _mixed(kind, a, b)


def _mixed(kind: str, a: int, b: int) -> Iterator[tuple[str, bytes]]:
    """Operators whose operands are of several kinds."""
    made = Model()
    if kind != "INT16":
        pads, zero = ints(made, [[1, 1], [0, 2]]), made.const(kind, 0, (1,))
        yield (
            "PADV2",
            one(
                "PADV2",
                [(kind, (a, b)), pads, zero],
                [(kind, (a + 2, b + 2))],
                "PadV2Options",
                made,
            ),
        )
    yield (
        "SELECT_V2",
        one(
            "SELECT_V2",
            [("BOOL", (a, b)), (kind, (a, b)), (kind, (a, b))],
            [(kind, (a, b))],
            "SelectV2Options",
        ),
    )
    yield "SHAPE", one("SHAPE", [(kind, (a, b))], [("INT32", (2,))], "ShapeOptions", outType=2)
    yield (
        "CAST",
        one(
            "CAST",
            [(kind, (a, b))],
            [("INT32", (a, b))],
            "CastOptions",
            inDataType={"FLOAT32": 0, "INT16": 7, "INT8": 9}[kind],
            outDataType=2,
        ),
    )
    for adjoint in (False, True):
        left, right = ((2, b, 3), (2, a, b)) if adjoint else ((2, 3, b), (2, b, a))
        yield (
            f"BATCH_MATMUL/{adjoint}",
            one(
                "BATCH_MATMUL",
                [(kind, left), (kind, right)],
                [(kind, (2, 3, a))],
                "BatchMatMulOptions",
                adjX=adjoint,
                adjY=adjoint,
            ),
        )
    if kind == "INT16":
        yield (
            "QUANTIZE",
            one("QUANTIZE", [("FLOAT32", (a, b))], [(kind, (a, b))], "QuantizeOptions"),
        )
        return
    made = Model()
    yield (
        "FILL",
        one("FILL", [ints(made, [a, b]), (kind, ())], [(kind, (a, b))], "FillOptions", made),
    )
    made = Model()
    start = ints(made, [1, 0])
    yield (
        "DYNAMIC_UPDATE_SLICE",
        one(
            "DYNAMIC_UPDATE_SLICE",
            [(kind, (a, b)), (kind, (1, b)), start],
            [(kind, (a, b))],
            "DynamicUpdateSliceOptions",
            made,
        ),
    )
    made = Model()
    table = made.const(kind, 1, (a, b), scales(kind, 1))
    yield (
        "EMBEDDING_LOOKUP",
        one(
            "EMBEDDING_LOOKUP",
            [("INT32", (2,)), table],
            [(kind, (2, b), 0.01, 0)] if kind == "INT8" else [(kind, (2, b))],
            made=made,
        ),
    )
    if kind == "INT8":
        yield (
            "DEQUANTIZE",
            one("DEQUANTIZE", [(kind, (a, b))], [("FLOAT32", (a, b))], "DequantizeOptions"),
        )
        yield (
            "QUANTIZE",
            one("QUANTIZE", [("FLOAT32", (a, b))], [(kind, (a, b))], "QuantizeOptions"),
        )
