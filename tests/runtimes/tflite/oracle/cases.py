"""Small .tflite models for the interpreter: every operator it has, each in the types it takes.

Shapes and channels are drawn from a seed, so that the same number always gives the same models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import numpy as np
from flatbuffers import flexbuffers

from tests.runtimes.tflite.build import TYPES, Build

ALL = ("INT8", "INT16", "FLOAT32")
WIDE, NARROW, FLOAT = ("INT16", "FLOAT32"), ("INT8", "FLOAT32"), ("FLOAT32",)
Dims = tuple[int, ...]


class Model(Build):
    """A model of one main graph, with shorter words than the builder's."""

    def real(self, kind: str, dims: Dims, **more: Any) -> int:
        """A tensor of a graph's own; quantised unless its numbers are real."""
        return self.tensor(kind, dims, **more)

    def const(self, kind: str, values: Any, dims: Dims | None = None, scale: Any = None) -> int:
        """A constant, quantised only if scales are given."""
        array = np.broadcast_to(np.asarray(values, TYPES[kind]), dims or np.shape(values))
        at = self.tensor(kind, array.shape, array, scale=scale)
        if scale is None and not (kind in ALL and kind != "FLOAT32"):
            self.graph.tensors[at].quantization = None
        return at

    def custom(self, at: int, **options: Any) -> None:
        """Options of a custom operator."""
        made = flexbuffers.Builder()
        with made.Map():
            for name, value in options.items():
                made.Key(name)
                kinds = {bool: made.Bool, float: made.Float, int: made.Int}
                kinds[type(value)](value)
        self.graph.operators[at].customOptions = list(made.Finish())


def one(
    name: str, operands: Sequence[int | tuple[Any, ...]], results: Sequence[tuple[Any, ...]],
    options: str = "", made: Model | None = None, custom: dict[str, Any] | None = None,
    **fields: Any,
) -> bytes:  # fmt: skip
    """A model of one operator; operands are kinds and dims, or tensors that `made` has."""
    made = made or Model()
    inputs = [o if isinstance(o, int) else made.tensor(o[0], o[1]) for o in operands]
    fresh = [t for t, o in zip(inputs, operands, strict=True) if not isinstance(o, int)]
    outputs = [
        made.tensor(kind, dims, **({"scale": more[0], "zero": more[1]} if more else {}))
        for kind, dims, *more in results
    ]
    at = made.op(name, inputs, outputs, options, **fields)
    if custom is not None:
        made.custom(at, **custom)
    return made.ends(fresh, outputs).bytes()


def ints(made: Model, values: Any) -> int:
    """A constant of 32-bit integers."""
    return made.const("INT32", values)


def bias(kind: str) -> str:
    """The type of a bias beside inputs of a type."""
    return {"INT8": "INT32", "INT16": "INT64", "FLOAT32": "FLOAT32"}[kind]


def scales(kind: str, count: int, one: float = 0.01) -> Any:
    """So many scales for quantised weights."""
    return None if kind == "FLOAT32" else [one] * count


def weights(kind: str) -> str:
    """The type of weights beside inputs of a type."""
    return "FLOAT32" if kind == "FLOAT32" else "INT8"


def convolution(
    made: Model, kind: str, x: int, side: int, channels: tuple[int, int], *, k: int, deep: bool,
    with_bias: bool = True, by_channel: bool = True,
) -> int:  # fmt: skip
    """A convolution by channel; its result."""
    c, n = channels
    dims = (1, k, k, n) if deep else (n, k, k, c)
    w = made.const(weights(kind), 1, dims, scales(kind, n if by_channel else 1))
    if kind != "FLOAT32":
        made.graph.tensors[w].quantization.quantizedDimension = 3 if deep else 0
    b = made.const(bias(kind), 0, (n,), scales(kind, n, 0.0005)) if with_bias else -1
    y = made.real(kind, (1, side, side, n))
    name, more = ("DEPTHWISE_CONV_2D", {"depthMultiplier": 1}) if deep else ("CONV_2D", {})
    options = "DepthwiseConv2DOptions" if deep else "Conv2DOptions"
    made.op(name, [x, w, b], [y], options, strideH=1, strideW=1, dilationHFactor=1,
            dilationWFactor=1, **more)  # fmt: skip
    return y


def convolutions(rng: Random, kind: str) -> Iterator[tuple[str, bytes]]:
    """The four layers with weights by channel, with and without a bias."""
    for deep in (False, True):
        # The interpreter itself crashes on float DEPTHWISE_CONV_2D without a bias, and on others.
        for with_bias in (True,) if deep else (True, False):
            made, side, c = Model(), rng.randint(1, 6), rng.randint(1, 40)
            n = c if deep else rng.randint(1, 120)
            x = made.real(kind, (1, side, side, c))
            y = convolution(made, kind, x, side, (c, n), k=rng.choice((1, 3)), deep=deep,
                            with_bias=with_bias)  # fmt: skip
            yield ("depthwise" if deep else "conv") + "/bias" * with_bias, made.ends(
                [x], [y]).bytes()  # fmt: skip
    for with_bias in (True, False):
        made, side, c, n = Model(), rng.randint(1, 4), rng.randint(1, 9), rng.randint(1, 40)
        w = made.const(weights(kind), 1, (n, 2, 2, c), scales(kind, n))
        b = [made.const(bias(kind), 0, (n,), scales(kind, n, 0.0005))] if with_bias else []
        yield f"TRANSPOSE_CONV/{len(b)}", one(
            "TRANSPOSE_CONV",
            [ints(made, [1, 2 * side, 2 * side, n]), w, (kind, (1, side, side, c)), *b],
            [(kind, (1, 2 * side, 2 * side, n))], "TransposeConvOptions", made, strideH=2,
            strideW=2)  # fmt: skip
    for by_channel in (False, True) if kind == "INT8" else (False,):
        made, c, n = Model(), rng.randint(1, 30), rng.randint(2, 90)
        w = made.const(weights(kind), 1, (n, c), scales(kind, n if by_channel else 1))
        product = 1e-5 if kind == "INT16" else 0.0005  # of the scales of input and weights
        b = made.const(bias(kind), 0, (n,), scales(kind, n if by_channel else 1, product))
        yield f"FULLY_CONNECTED/{by_channel}", one(
            "FULLY_CONNECTED", [(kind, (1, c)), w, b], [(kind, (1, n))], "FullyConnectedOptions",
            made)  # fmt: skip


def elementwise(rng: Random, kind: str) -> Iterator[tuple[str, bytes]]:
    """Operators of one and two operands of one shape."""
    dims = (1, rng.randint(1, 9), rng.randint(2, 30))
    fixed = {
        "LOGISTIC": {"INT8": (1 / 256, -128), "INT16": (1 / 32768, 0)},
        "TANH": {"INT8": (1 / 128, 0), "INT16": (1 / 32768, 0)},
        "LOG_SOFTMAX": {"INT8": (16 / 256, 127)}, "L2_NORMALIZATION": {"INT8": (1 / 128, 0)},
        "SOFTMAX": {"INT8": (1 / 256, -128), "INT16": (1 / 32768, 0)},
    }  # fmt: skip
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
            yield f"{name}/const", one(name, [(kind, dims), constant], [(kind, dims)], options,
                                       made)  # fmt: skip
    for name, types in COMPARISONS:
        if kind in types:
            yield name, one(name, [(kind, dims)] * 2, [("BOOL", dims)])


UNARY = (
    ("ABS", ALL, "AbsOptions"), ("RSQRT", ALL, ""), ("NEG", FLOAT, "NegOptions"),
    ("SQRT", FLOAT, ""), ("SQUARE", FLOAT, "SquareOptions"), ("LOG", FLOAT, ""),
    ("EXP", FLOAT, "ExpOptions"), ("SIN", FLOAT, ""), ("COS", FLOAT, "CosOptions"),
    ("CEIL", FLOAT, ""), ("FLOOR", FLOAT, ""), ("ROUND", FLOAT, ""), ("LOGISTIC", ALL, ""),
    ("TANH", ALL, ""), ("ELU", NARROW, ""), ("RELU", ALL, ""), ("RELU6", ALL, ""),
    ("HARD_SWISH", NARROW, "HardSwishOptions"), ("ZEROS_LIKE", ("INT8", "FLOAT32"), ""),
    ("L2_NORMALIZATION", NARROW, "L2NormOptions"), ("LOG_SOFTMAX", NARROW, "LogSoftmaxOptions"),
    ("LEAKY_RELU", ALL, "LeakyReluOptions"), ("SOFTMAX", ALL, "SoftmaxOptions"),
)  # fmt: skip
BINARY = (
    ("ADD", ALL, "AddOptions"), ("SUB", ALL, "SubOptions"), ("MUL", ALL, "MulOptions"),
    ("DIV", NARROW, "DivOptions"), ("MAXIMUM", NARROW, "MaximumMinimumOptions"),
    ("MINIMUM", NARROW, "MaximumMinimumOptions"),
    ("SQUARED_DIFFERENCE", NARROW, "SquaredDifferenceOptions"),
    ("FLOOR_DIV", FLOAT, "FloorDivOptions"), ("FLOOR_MOD", FLOAT, "FloorModOptions"),
    ("PRELU", NARROW, ""),
)  # fmt: skip
COMPARISONS = (
    ("EQUAL", NARROW), ("NOT_EQUAL", NARROW), ("GREATER", ALL), ("GREATER_EQUAL", NARROW),
    ("LESS", ALL), ("LESS_EQUAL", NARROW),
)  # fmt: skip


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
            yield name, one(name, [x], [(kind, (1, side // 2, side // 2, c))], "Pool2DOptions",
                            strideH=2, strideW=2, filterHeight=2, filterWidth=2,
                            padding=1)  # fmt: skip
    for name in ("ARG_MAX", "ARG_MIN"):
        if kind != "INT16":
            made = Model()
            axis = ints(made, [3])
            options = name.title().replace("_", "") + "Options"
            yield name, one(name, [x, axis], [("INT32", x[1][:3])], options, made, outputType=2)
    if kind != "INT16":
        made = Model()
        axis = ints(made, 1)
        yield "CUMSUM", one("CUMSUM", [(kind, (4, c)), axis], [(kind, (4, c))], "CumsumOptions",
                            made)  # fmt: skip


def moves(rng: Random, kind: str) -> Iterator[tuple[str, bytes]]:
    """Operators that move bytes."""
    n, a, b = rng.randint(2, 6), rng.randint(2, 9), rng.randint(3, 9)
    for count in (n, 2):
        yield f"CONCATENATION/{count}", one(
            "CONCATENATION", [(kind, (1, a))] * count, [(kind, (1, a * count))],
            "ConcatenationOptions", axis=1)  # fmt: skip
    for name, into, out, options, fields in (
        ("PACK", [(kind, (a,))] * n, [(kind, (n, a))], "PackOptions", {"valuesCount": n}),
        ("UNPACK", [(kind, (n, a))], [(kind, (a,))] * n, "UnpackOptions", {"num": n}),
        ("ADD_N", [(kind, (a,))] * n, [(kind, (a,))], "AddNOptions", {}),
    ):  # fmt: skip
        if name != "ADD_N" or kind != "INT16":
            yield name, one(name, into, out, options, **fields)
    if kind == "INT16":
        yield from _indexed(kind, a, b)
        return
    made = Model()
    yield "SPLIT", one("SPLIT", [ints(made, 1), (kind, (1, a * n))], [(kind, (1, a))] * n,
                       "SplitOptions", made, numSplits=n)  # fmt: skip
    made = Model()
    sizes, axis = ints(made, [a] * n), ints(made, 1)
    yield "SPLIT_V", one("SPLIT_V", [(kind, (1, a * n)), sizes, axis], [(kind, (1, a))] * n,
                         "SplitVOptions", made, numSplits=n)  # fmt: skip
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
                data = one(name, [(kind, before), *where], [(kind, after)], options, made,
                           **fields)  # fmt: skip
            yield name, data
    yield from _mixed(kind, a, b)


def _mixed(kind: str, a: int, b: int) -> Iterator[tuple[str, bytes]]:
    """Operators whose operands are of several kinds."""
    made = Model()
    if kind != "INT16":
        pads, zero = ints(made, [[1, 1], [0, 2]]), made.const(kind, 0, (1,))
        yield "PADV2", one("PADV2", [(kind, (a, b)), pads, zero], [(kind, (a + 2, b + 2))],
                           "PadV2Options", made)  # fmt: skip
    yield "SELECT_V2", one("SELECT_V2", [("BOOL", (a, b)), (kind, (a, b)), (kind, (a, b))],
                           [(kind, (a, b))], "SelectV2Options")  # fmt: skip
    yield "SHAPE", one("SHAPE", [(kind, (a, b))], [("INT32", (2,))], "ShapeOptions", outType=2)
    yield "CAST", one("CAST", [(kind, (a, b))], [("INT32", (a, b))], "CastOptions",
                      inDataType={"FLOAT32": 0, "INT16": 7, "INT8": 9}[kind],
                      outDataType=2)  # fmt: skip
    for adjoint in (False, True):
        left, right = ((2, b, 3), (2, a, b)) if adjoint else ((2, 3, b), (2, b, a))
        yield f"BATCH_MATMUL/{adjoint}", one(
            "BATCH_MATMUL", [(kind, left), (kind, right)], [(kind, (2, 3, a))],
            "BatchMatMulOptions", adjX=adjoint, adjY=adjoint)  # fmt: skip
    if kind == "INT16":
        yield "QUANTIZE", one("QUANTIZE", [("FLOAT32", (a, b))], [(kind, (a, b))],
                              "QuantizeOptions")  # fmt: skip
        return
    made = Model()
    yield "FILL", one("FILL", [ints(made, [a, b]), (kind, ())], [(kind, (a, b))], "FillOptions",
                      made)  # fmt: skip
    made = Model()
    start = ints(made, [1, 0])
    yield "DYNAMIC_UPDATE_SLICE", one(
        "DYNAMIC_UPDATE_SLICE", [(kind, (a, b)), (kind, (1, b)), start], [(kind, (a, b))],
        "DynamicUpdateSliceOptions", made)  # fmt: skip
    made = Model()
    table = made.const(kind, 1, (a, b), scales(kind, 1))
    yield "EMBEDDING_LOOKUP", one("EMBEDDING_LOOKUP", [("INT32", (2,)), table],
                                  [(kind, (2, b), 0.01, 0)] if kind == "INT8" else
                                  [(kind, (2, b))], made=made)  # fmt: skip
    if kind == "INT8":
        yield "DEQUANTIZE", one("DEQUANTIZE", [(kind, (a, b))], [("FLOAT32", (a, b))],
                                "DequantizeOptions")  # fmt: skip
        yield "QUANTIZE", one("QUANTIZE", [("FLOAT32", (a, b))], [(kind, (a, b))],
                              "QuantizeOptions")  # fmt: skip


def logic(rng: Random) -> Iterator[tuple[str, bytes]]:
    """Truth values, shapes, and subgraphs."""
    a = rng.randint(2, 9)
    for name in ("LOGICAL_AND", "LOGICAL_OR"):
        yield name, one(name, [("BOOL", (a,))] * 2, [("BOOL", (a,))])
    yield "LOGICAL_NOT", one("LOGICAL_NOT", [("BOOL", (a,))], [("BOOL", (a,))])
    made = Model()
    yield "REDUCE_ALL", one("REDUCE_ALL", [("BOOL", (4, a)), ints(made, [1])], [("BOOL", (4,))],
                            "ReducerOptions", made)  # fmt: skip
    yield "BROADCAST_ARGS", one("BROADCAST_ARGS", [("INT32", (2,))] * 2, [("INT32", (2,))])
    yield "IF", branches(8 * a)
    yield "WHILE", loop(8 * a)
    yield "CALL_ONCE", once(a)
    yield "IF/deep", branches(a, deep=True)
    yield "IF/twice", branches(a, twice=True)


def branches(n: int, *, deep: bool = False, twice: bool = False) -> bytes:
    """An IF over two subgraphs of one operator; with another inside, or run twice."""
    made = Model()
    go, x, y = (
        made.tensor("BOOL", (1,)),
        made.tensor("FLOAT32", (1, n)),
        made.tensor("FLOAT32", (1, n)),
    )
    fields = {"thenSubgraphIndex": 1, "elseSubgraphIndex": 2}
    made.op("IF", [go, x], [y], "IfOptions", **fields)
    last = y
    if twice:
        last = made.tensor("FLOAT32", (1, n))
        made.op("IF", [go, y], [last], "IfOptions", **fields)
    made.ends([go, x], [last])
    for kind in ("RELU", "NEG") * (2 if deep else 1):
        made.subgraph()
        a, b = made.tensor("FLOAT32", (1, n)), made.tensor("FLOAT32", (1, n))
        made.op(kind, [a], [b])
        if deep and len(made.model.subgraphs) == 2:
            c, yes = made.tensor("FLOAT32", (1, n)), made.const("BOOL", [True])
            made.op("IF", [yes, b], [c], "IfOptions", thenSubgraphIndex=3, elseSubgraphIndex=4)
            made.ends([a], [c])
        else:
            made.ends([a], [b])
    return made.bytes()


def loop(n: int) -> bytes:
    """A WHILE that adds one until a limit, and passes a value through."""
    made = Model()
    given = [made.tensor("FLOAT32", (1,)), made.tensor("FLOAT32", (1, n))]
    taken = [made.tensor("FLOAT32", (1,)), made.tensor("FLOAT32", (1, n))]
    made.op("WHILE", given, taken, "WhileOptions", condSubgraphIndex=1, bodySubgraphIndex=2)
    made.ends(given, taken)
    made.subgraph()
    a, b, go = (
        made.tensor("FLOAT32", (1,)),
        made.tensor("FLOAT32", (1, n)),
        made.tensor("BOOL", (1,)),
    )
    made.op("LESS", [a, made.const("FLOAT32", [3.0])], [go])
    made.ends([a, b], [go])
    made.subgraph()
    a, b, c = (made.tensor("FLOAT32", (1,)), made.tensor("FLOAT32", (1, n)),
               made.tensor("FLOAT32", (1,)))  # fmt: skip
    made.op("ADD", [a, made.const("FLOAT32", [1.0])], [c], "AddOptions")
    made.ends([a, b], [c, b])
    return made.bytes()


def once(n: int) -> bytes:
    """A variable that a subgraph sets once."""
    made = Model()
    x, handle = made.tensor("FLOAT32", (1, n)), made.tensor("RESOURCE", ())
    value, y = made.tensor("FLOAT32", (1, n)), made.tensor("FLOAT32", (1, n))
    made.op("CALL_ONCE", [], [], "CallOnceOptions", initSubgraphIndex=1)
    made.op("VAR_HANDLE", [], [handle], "VarHandleOptions", sharedName="v", container="")
    made.op("READ_VARIABLE", [handle], [value], "ReadVariableOptions")
    made.op("ADD", [x, value], [y], "AddOptions")
    made.ends([x], [y])
    made.subgraph()
    handle, two = made.tensor("RESOURCE", ()), made.const("FLOAT32", 2, (1, n))
    made.op("VAR_HANDLE", [], [handle], "VarHandleOptions", sharedName="v", container="")
    made.op("ASSIGN_VARIABLE", [handle, two], [], "AssignVariableOptions")
    made.ends([], [])
    return made.bytes()


def recurrent(rng: Random, kind: str) -> Iterator[tuple[str, bytes]]:
    """SVDF and LSTM."""
    n, units, size = rng.randint(2, 9), 2 * rng.randint(1, 6), rng.randint(2, 9)
    small = kind == "INT8"
    state = "INT16" if small else "FLOAT32"
    made = Model()
    w = made.const(kind, 1, (2 * units, n), scales(kind, 1))
    time = made.const(state, 1, (2 * units, size), scales(kind, 1))
    b = made.const(bias(kind), 0, (units,), scales(kind, 1, 1e-5))  # of state and time
    kept = made.tensor(state, (1, 2 * units * size), variable=True)
    yield "SVDF", one("SVDF", [(kind, (1, n)), w, time, b, kept], [(kind, (1, units))],
                      "SVDFOptions", made, rank=2)  # fmt: skip
    made = Model()
    into = [made.const(kind, 1, (units, n), scales(kind, 1)) for _ in range(4)]
    back = [made.const(kind, 1, (units, units), scales(kind, 1)) for _ in range(4)]
    plus = [made.const("INT32" if small else "FLOAT32", 0, (units,), scales(kind, 1, 0.0005))
            for _ in range(4)]  # fmt: skip
    hidden = made.tensor(kind, (1, units), variable=True, scale=1 / 128 if small else None)
    cell = made.tensor(state, (1, units), variable=True, scale=1 / 32768 if small else None)
    x = made.tensor(kind, (1, 5, n))
    y = made.tensor(kind, (1, 5, units), scale=1 / 128 if small else None)
    between = [made.tensor(state, (0,), scale=1 / 4096) for _ in range(4)] if small else []
    between += [made.tensor(kind, (0,), scale=1 / 128)] if small else []
    absent = [-1, -1, -1]
    inputs = [x, *into, *back, *absent, *plus, -1, -1, hidden, cell, *absent, -1]
    at = made.op("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, [y], "UnidirectionalSequenceLSTMOptions",
                 fusedActivationFunction=4, cellClip=10.0, timeMajor=False)  # fmt: skip
    made.graph.operators[at].intermediates = between or None
    yield "LSTM", made.ends([x], [y]).bytes()


def signals(rng: Random) -> Iterator[tuple[str, bytes]]:
    """Custom operators of audio front ends, and the detection head."""
    points = 2 ** rng.randint(5, 8)
    for kind, number in (("INT16", 7), ("INT32", 2), ("FLOAT32", 0)):
        more = {"fft_length": points, "T": number}
        yield f"SignalRfft/{kind}", one("SignalRfft", [(kind, (points,))],
                                        [(kind, (points + 2,))], custom=more)  # fmt: skip
        yield f"SignalIrfft/{kind}", one("SignalIrfft", [(kind, (points + 2,))],
                                         [(kind, (points,))], custom=more)  # fmt: skip
    n, step = 4 * rng.randint(1, 5), 4 * rng.randint(1, 3)
    yield "SignalDelay", one("SignalDelay", [("INT16", (2, n))], [("INT16", (2, n))],
                             custom={"delay_length": 3})  # fmt: skip
    yield "SignalFramer", one(
        "SignalFramer", [("INT16", (1, step))], [("INT16", (1, 1, 2 * step)), ("BOOL", ())],
        custom={"frame_size": 2 * step, "frame_step": step, "prefill": 1})  # fmt: skip
    yield "SignalStacker", one(
        "SignalStacker", [("INT16", (n,))], [("INT16", (3 * n,)), ("BOOL", ())],
        custom={"num_channels": n, "stacker_left_context": 1, "stacker_right_context": 1,
                "stacker_step": 1})  # fmt: skip
    for kind, number in (("INT16", 7), ("FLOAT32", 0)):
        yield f"SignalOverlapAdd/{kind}", one(
            "SignalOverlapAdd", [(kind, (1, 1, 2 * step))], [(kind, (1, step))],
            custom={"frame_step": step, "T": number})  # fmt: skip
    yield "CIRCULAR_BUFFER", one("CIRCULAR_BUFFER", [("INT8", (1, 1, 1, n))],
                                 [("INT8", (1, 6, 1, n))], custom={"cycles_max": 1})  # fmt: skip
    boxes, classes, most = rng.randint(4, 9), rng.randint(2, 4), rng.randint(1, 3)
    made = Model()
    anchors = made.const("FLOAT32", 1, (boxes, 4))
    yield "TFLite_Detection_PostProcess", one(
        "TFLite_Detection_PostProcess",
        [("FLOAT32", (1, boxes, 4)), ("FLOAT32", (1, boxes, classes + 1)), anchors],
        [("FLOAT32", (1, most, 4)), ("FLOAT32", (1, most)), ("FLOAT32", (1, most)),
         ("FLOAT32", (1,))], made=made,
        custom={"max_detections": most, "max_classes_per_detection": 1, "detections_per_class": 1,
                "num_classes": classes, "nms_score_threshold": 0.0, "nms_iou_threshold": 0.5,
                "y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0,
                "use_regular_nms": False})  # fmt: skip


def network(seed: int) -> bytes:
    """A network of several layers."""
    rng = Random(seed)
    made, kind = Model(), rng.choice(("INT8", "INT8", "INT8", "FLOAT32", "INT16"))
    side, c = rng.choice((1, 2, 4, 6)), rng.choice((1, 3, 8, 16))
    first = x = made.real(kind, (1, side, side, c))
    for _ in range(rng.randint(1, 7)):
        layer: Callable[..., tuple[int, int, int]] = rng.choice(_LAYERS)
        x, side, c = layer(rng, made, kind, x, side, c)
    if x == first:
        x, side, c = _conv(rng, made, kind, x, side, c)
    if kind != "INT16" and side * side * c < 4000 and rng.random() < 0.5:
        x = _head(rng, made, kind, x, side * side * c)
    return made.ends([first], [x]).bytes()


def _conv(rng: Random, made: Model, kind: str, x: int, side: int, c: int) -> tuple[int, int, int]:
    n = rng.choice((1, 5, 16, 40, 96, 200))
    y = convolution(made, kind, x, side, (c, n), k=rng.choice((1, 3)), deep=False,
                    with_bias=rng.random() < 0.8, by_channel=rng.random() < 0.8)  # fmt: skip
    return y, side, n


def _deep(rng: Random, made: Model, kind: str, x: int, side: int, c: int) -> tuple[int, int, int]:
    return convolution(made, kind, x, side, (c, c), k=3, deep=True), side, c


def _sum(rng: Random, made: Model, kind: str, x: int, side: int, c: int) -> tuple[int, int, int]:
    name = rng.choice(("ADD", "MUL"))
    other = x if rng.random() < 0.5 else made.const(kind, 1, (1, 1, 1, c))
    y = made.real(kind, (1, side, side, c))
    made.op(name, [x, other], [y], f"{name.title()}Options")
    return y, side, c


def _pool(rng: Random, made: Model, kind: str, x: int, side: int, c: int) -> tuple[int, int, int]:
    if side < 2:
        return x, side, c
    y = made.real(kind, (1, side // 2, side // 2, c))
    made.op("AVERAGE_POOL_2D", [x], [y], "Pool2DOptions", strideH=2, strideW=2, filterHeight=2,
            filterWidth=2, padding=1)  # fmt: skip
    return y, side // 2, c


def _join(rng: Random, made: Model, kind: str, x: int, side: int, c: int) -> tuple[int, int, int]:
    if c > 200:
        return x, side, c
    y = made.real(kind, (1, side, side, 2 * c))
    made.op("CONCATENATION", [x, x], [y], "ConcatenationOptions", axis=3)
    return y, side, 2 * c


def _grow(rng: Random, made: Model, kind: str, x: int, side: int, c: int) -> tuple[int, int, int]:
    if side > 8:
        return x, side, c
    y = made.real(kind, (1, 2 * side, 2 * side, c))
    made.op("RESIZE_NEAREST_NEIGHBOR", [x, ints(made, [2 * side, 2 * side])], [y],
            "ResizeNearestNeighborOptions")  # fmt: skip
    return y, 2 * side, c


def _unary(rng: Random, made: Model, kind: str, x: int, side: int, c: int) -> tuple[int, int, int]:
    y = made.real(kind, (1, side, side, c))
    made.op(rng.choice(("RELU", "RELU6")), [x], [y])
    return y, side, c


_LAYERS = (_conv, _conv, _deep, _sum, _pool, _join, _grow, _unary)


def _head(rng: Random, made: Model, kind: str, x: int, c: int) -> int:
    n, by_channel = rng.choice((2, 10)), rng.random() < 0.5
    flat, y = made.real(kind, (1, c)), made.real(kind, (1, n))
    made.op("RESHAPE", [x, ints(made, [1, c])], [flat], "ReshapeOptions", newShape=[1, c])
    w = made.const(weights(kind), 1, (n, c), scales(kind, n if by_channel else 1))
    b = made.const(bias(kind), 0, (n,), scales(kind, n if by_channel else 1, 0.0005))
    made.op("FULLY_CONNECTED", [flat, w, b], [y], "FullyConnectedOptions")
    z = made.tensor(kind, (1, n), scale=1 / 256 if kind == "INT8" else None,
                    zero=-128 if kind == "INT8" else 0)  # fmt: skip
    made.op("SOFTMAX", [y], [z], "SoftmaxOptions", beta=1.0)
    return z


NETWORKS = 60


def cases(seed: int = 0) -> dict[str, bytes]:
    """Every model by name."""
    made: dict[str, bytes] = {}
    for kind in ALL:
        rng = Random(f"{seed}{kind}")
        for group in (convolutions, elementwise, reductions, moves):
            made |= {f"{name}/{kind}": data for name, data in group(rng, kind)}
        if kind != "INT16":
            made |= {f"{name}/{kind}": data for name, data in recurrent(rng, kind)}
    rng = Random(seed)
    made |= dict(logic(rng)) | dict(signals(rng))
    return made | {f"network/{n}": network(1000 * seed + n) for n in range(NETWORKS)}
