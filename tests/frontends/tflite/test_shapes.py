"""Shape rules of TFLite's kinds against LiteRT: one operator a model, its result's shape open."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from peakfold.frontends import load

from .tflite_models import Builder

SCRIPT = Path(__file__).with_name("litert_shapes.py")


@dataclass
class X:
    """A graph input of a shape and type."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    variable: bool = False


@dataclass
class Case:
    builtin: str
    operands: tuple[Any, ...]
    options: str = ""
    fields: dict[str, Any] = field(default_factory=dict)
    results: tuple[str, ...] = ("float32",)

    def data(self) -> bytes:
        owner = Builder()
        graph = owner.graph()
        inputs = []
        for operand in self.operands:
            if operand is None:
                inputs.append(-1)
            elif isinstance(operand, X) and operand.variable:
                inputs.append(graph.tensor(operand.shape, operand.dtype, variable=True))
            elif isinstance(operand, X):
                inputs.append(graph.input(operand.shape, operand.dtype))
            else:
                array = np.asarray(operand)
                name = {"int64": "int32", "float64": "float32"}.get(str(array.dtype))
                inputs.append(graph.constant(array, name or str(array.dtype)))
        outputs = [graph.tensor((), kind, has_rank=False) for kind in self.results]
        graph.op(self.builtin, inputs, outputs, self.options, **self.fields)
        graph.outputs(*outputs)
        return owner.data()


def weights(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def wide(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def windows() -> Iterator[Case]:
    image = X((2, 11, 8, 4))
    for padding in (0, 1):
        for step in (1, 2, 3):
            more = {"padding": padding, "strideH": step, "strideW": 1 + step % 2}
            for dilation in (1, 2) if step == 1 else (1,):
                spread = {"dilationHFactor": dilation, "dilationWFactor": 1}
                yield Case(
                    "CONV_2D",
                    (image, weights(6, 3, 2, 4), weights(6)),
                    "Conv2DOptions",
                    {**more, **spread},
                )
                yield Case(
                    "DEPTHWISE_CONV_2D",
                    (image, weights(1, 3, 2, 8), weights(8)),
                    "DepthwiseConv2DOptions",
                    {**more, **spread, "depthMultiplier": 2},
                )
            yield Case("CONV_2D", (image, weights(6, 3, 2, 2), weights(6)), "Conv2DOptions", more)
            for pool in ("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D"):
                yield Case(
                    pool, (image,), "Pool2DOptions", {**more, "filterHeight": 3, "filterWidth": 2}
                )
            deep = {**more, "strideD": 2}
            yield Case(
                "CONV_3D", (X((1, 5, 6, 7, 2)), weights(2, 3, 2, 2, 3)), "Conv3DOptions", deep
            )
    yield Case(
        "TRANSPOSE_CONV",
        (wide(1, 8, 8, 3), weights(3, 3, 3, 4), X((1, 4, 4, 4))),
        "TransposeConvOptions",
        {"padding": 0, "strideH": 2, "strideW": 2},
    )
    yield Case("RESIZE_BILINEAR", (image, wide(5, 9)), "ResizeBilinearOptions")
    yield Case("RESIZE_NEAREST_NEIGHBOR", (image, wide(5, 9)), "ResizeNearestNeighborOptions")


def dense() -> Iterator[Case]:
    for keep in (False, True):
        yield Case(
            "FULLY_CONNECTED",
            (X((2, 3, 4)), weights(5, 4), None),
            "FullyConnectedOptions",
            {"keepNumDims": keep},
        )
    yield Case("FULLY_CONNECTED", (X((2, 6)), weights(5, 4), weights(5)), "FullyConnectedOptions")
    for adj_x in (False, True):
        for adj_y in (False, True):
            left, right = ((4, 2) if adj_x else (2, 4)), ((3, 4) if adj_y else (4, 3))
            yield Case(
                "BATCH_MATMUL",
                (X((5, 1, *left)), X((1, 6, *right))),
                "BatchMatMulOptions",
                {"adjX": adj_x, "adjY": adj_y},
            )
    state = X((2, 12 * 3), variable=True)
    yield Case(
        "SVDF",
        (X((2, 5)), weights(12, 5), weights(12, 3), weights(6), state),
        "SVDFOptions",
        {"rank": 2},
    )
    yield Case(
        "RNN",
        (X((2, 5)), weights(4, 5), weights(4, 4), weights(4), X((2, 4), variable=True)),
        "RNNOptions",
    )
    for major in (False, True):
        sequence = X((3, 2, 5))
        batch = 2 if major else 3
        hidden = X((batch, 4), variable=True)
        cell = (weights(4, 5), weights(4, 4), weights(4))
        yield Case(
            "UNIDIRECTIONAL_SEQUENCE_RNN",
            (sequence, *cell, hidden),
            "SequenceRNNOptions",
            {"timeMajor": major},
        )
        units, kept = 6, 3
        gates = (
            *(weights(units, 5),) * 4,
            *(weights(units, kept),) * 4,
            None,
            None,
            None,
            *(weights(units),) * 4,
        )
        states = X((batch, kept), variable=True), X((batch, units), variable=True)
        yield Case(
            "UNIDIRECTIONAL_SEQUENCE_LSTM",
            (sequence, *gates, weights(kept, units), None, *states, *(None,) * 4),
            "UnidirectionalSequenceLSTMOptions",
            {"timeMajor": major, "fusedActivationFunction": 4},
        )
        for merge in (False, True):
            backward = X((batch, 4), variable=True)
            yield Case(
                "BIDIRECTIONAL_SEQUENCE_RNN",
                (sequence, *cell, hidden, *cell, backward, None, None, None),
                "BidirectionalSequenceRNNOptions",
                {"timeMajor": major, "mergeOutputs": merge},
                ("float32",) if merge else ("float32",) * 2,
            )
            there = (*gates, weights(kept, units), None)
            four = tuple(X((batch, n), variable=True) for n in (kept, units, kept, units))
            yield Case(
                "BIDIRECTIONAL_SEQUENCE_LSTM",
                (sequence, *there, *there, *four, None, *(None,) * 8),
                "BidirectionalSequenceLSTMOptions",
                {"timeMajor": major, "mergeOutputs": merge, "fusedActivationFunction": 4},
                ("float32",) if merge else ("float32",) * 2,
            )
    yield Case("EMBEDDING_LOOKUP", (wide(0, 2, 1), weights(4, 5, 2)))


def strided() -> Iterator[Case]:
    rng = np.random.default_rng(5)
    x = X((4, 5, 1, 6))
    for _ in range(30):
        rank = int(rng.integers(1, 5))
        begin = rng.integers(-2, 2, rank)
        end = rng.integers(2, 6, rank)
        step = rng.choice([1, 2, 3], rank)
        if rank > 2:
            begin[2], end[2] = 0, 1
        masks = {
            "beginMask": int(rng.integers(0, 2**rank)),
            "endMask": int(rng.integers(0, 2**rank)),
        }
        which = int(rng.integers(0, 5))
        if which == 0:
            masks["ellipsisMask"] = 1 << int(rng.integers(0, rank))
        elif which == 1:
            masks["newAxisMask"] = 1 << int(rng.integers(0, rank))
        elif which == 2:
            masks["shrinkAxisMask"] = int(rng.integers(0, 2**rank))
            step[:] = 1
        yield Case(
            "STRIDED_SLICE",
            (x, wide(*begin), wide(*end), wide(*step)),
            "StridedSliceOptions",
            masks,
        )
    back = (wide(-1, 4), wide(-5, 0), wide(-1, -2))
    yield Case("STRIDED_SLICE", (x, *back), "StridedSliceOptions")
    yield Case("STRIDED_SLICE", (x, *back), "StridedSliceOptions", {"beginMask": 3, "endMask": 3})
    yield Case(
        "STRIDED_SLICE",
        (x, wide(1, -2), wide(2, 2), wide(1, 1)),
        "StridedSliceOptions",
        {"offset": True},
    )


def layouts() -> Iterator[Case]:
    x = X((2, 3, 4))
    yield Case("SLICE", (x, wide(0, 1, 2), wide(-1, 2, -1)))
    for axis in (0, 1, -1):
        yield Case(
            "SPLIT",
            (np.int32(axis), X((6, 6, 6))),
            "SplitOptions",
            {"numSplits": 3},
            ("float32",) * 3,
        )
        yield Case(
            "SPLIT_V",
            (X((6, 6, 6)), wide(1, -1, 3), np.int32(axis)),
            "SplitVOptions",
            {"numSplits": 3},
            ("float32",) * 3,
        )
        yield Case("PACK", (x, x, x), "PackOptions", {"axis": axis, "valuesCount": 3})
        number = (2, 3, 4)[axis]
        yield Case(
            "UNPACK", (x,), "UnpackOptions", {"axis": axis, "num": number}, ("float32",) * number
        )
        yield Case("CONCATENATION", (x, x), "ConcatenationOptions", {"axis": axis})
        yield Case("GATHER", (x, wide(0, 1)), "GatherOptions", {"axis": axis})
        yield Case("CUMSUM", (x, np.int32(axis)), "CumsumOptions")
        yield Case("EXPAND_DIMS", (x, np.int32(axis)), "ExpandDimsOptions")
        yield Case(
            "ONE_HOT",
            (wide(0, 1, 2), np.int32(4), np.float32(1), np.float32(0)),
            "OneHotOptions",
            {"axis": max(axis, -1) if axis < 1 else 1},
        )
        for kind in ("ARG_MAX", "ARG_MIN"):
            yield Case(
                kind,
                (x, np.int32(axis)),
                kind.title().replace("_", "") + "Options",
                {"outputType": 2},
                ("int32",),
            )
        for keep in (False, True):
            for kind in ("SUM", "MEAN", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"):
                yield Case(kind, (x, wide(axis)), "ReducerOptions", {"keepDims": keep})
            for kind in ("REDUCE_ANY", "REDUCE_ALL"):
                yield Case(
                    kind,
                    (X((2, 3, 4), "bool"), wide(axis, 1 if axis != 1 else 0)),
                    "ReducerOptions",
                    {"keepDims": keep},
                    ("bool",),
                )
    yield Case(
        "GATHER",
        (X((2, 3, 4)), np.zeros((2, 5), np.int32)),
        "GatherOptions",
        {"axis": 1, "batchDims": 1},
    )
    yield Case("GATHER_ND", (x, np.zeros((5, 2), np.int32)), "GatherNdOptions")
    yield Case(
        "SCATTER_ND", (np.array([[1], [3]], np.int32), X((2, 4)), wide(6, 4)), "ScatterNdOptions"
    )
    yield Case(
        "SPARSE_TO_DENSE", (wide(1, 3), wide(6), X((2,)), np.float32(0)), "SparseToDenseOptions"
    )
    yield Case("FILL", (wide(3, 2), np.float32(1)), "FillOptions")
    yield Case("RANGE", (np.int32(2), np.int32(11), np.int32(3)), "RangeOptions", {}, ("int32",))
    yield Case("TILE", (x, wide(1, 2, 3)), "TileOptions")
    yield Case("REVERSE_V2", (x, wide(1)), "ReverseV2Options")
    yield Case("TOPK_V2", (x, np.int32(2)), "TopKV2Options", {}, ("float32", "int32"))
    yield Case("BROADCAST_TO", (X((3, 1)), wide(2, 3, 5)), "BroadcastToOptions")
    yield Case("BROADCAST_ARGS", (wide(3, 1), wide(2, 3, 5)), "", {}, ("int32",))
    yield Case("TRANSPOSE", (x, wide(2, 0, 1)), "TransposeOptions")
    yield Case("SQUEEZE", (X((1, 3, 1)),), "SqueezeOptions", {"squeezeDims": [0]})
    yield Case("SQUEEZE", (X((1, 3, 1)),), "SqueezeOptions", {"squeezeDims": [-1]})
    yield Case("SQUEEZE", (X((1, 3, 1)),), "SqueezeOptions")
    yield Case("RESHAPE", (x, wide(4, -1)), "ReshapeOptions")
    yield Case("RESHAPE", (x,), "ReshapeOptions", {"newShape": [-1, 6]})
    yield Case("SHAPE", (x,), "ShapeOptions", {"outType": 2}, ("int32",))
    yield Case("RANK", (x,), "RankOptions", {}, ("int32",))
    yield Case("PAD", (x, np.array([[1, 0], [0, 2], [3, 4]], np.int32)), "PadOptions")
    yield Case(
        "PADV2", (x, np.array([[1, 0], [0, 2], [3, 4]], np.int32), np.float32(1)), "PadV2Options"
    )
    yield Case(
        "MIRROR_PAD",
        (x, np.array([[1, 0], [0, 2], [1, 1]], np.int32)),
        "MirrorPadOptions",
        {"mode": 1},
    )
    square = X((4, 4, 6, 8))
    yield Case("SPACE_TO_DEPTH", (square,), "SpaceToDepthOptions", {"blockSize": 2})
    yield Case("DEPTH_TO_SPACE", (square,), "DepthToSpaceOptions", {"blockSize": 2})
    yield Case(
        "SPACE_TO_BATCH_ND",
        (square, wide(2, 3), np.array([[1, 1], [0, 3]], np.int32)),
        "SpaceToBatchNDOptions",
    )
    yield Case(
        "BATCH_TO_SPACE_ND",
        (square, wide(2, 2), np.array([[1, 1], [0, 3]], np.int32)),
        "BatchToSpaceNDOptions",
    )
    yield Case("MATRIX_DIAG", (x,), "MatrixDiagOptions")
    yield Case("MATRIX_SET_DIAG", (X((2, 3, 4)), X((2, 3))), "MatrixSetDiagOptions")
    yield Case("DYNAMIC_UPDATE_SLICE", (x, X((1, 2, 2)), wide(0, 1, 1)))
    yield Case("SELECT", (X((2,), "bool"), X((2, 3)), X((2, 3))), "SelectOptions")
    yield Case("SELECT_V2", (X((1, 3), "bool"), X((2, 1)), X((2, 3))), "SelectV2Options")
    yield Case("ZEROS_LIKE", (x,), "ZerosLikeOptions")
    yield Case("REVERSE_SEQUENCE", (x, wide(1, 2)), "ReverseSequenceOptions", {"seqDim": 1})
    for kind in ("MAX", "MIN", "SUM", "PROD"):
        yield Case(f"UNSORTED_SEGMENT_{kind}", (X((4, 3)), wide(0, 1, 1, 0), np.int32(5)))
    yield Case("RFFT2D", (X((2, 8, 16)), wide(8, 16)), "Rfft2dOptions", {}, ("complex64",))
    yield Case(
        "NON_MAX_SUPPRESSION_V4",
        (X((6, 4)), X((6,)), np.int32(3), np.float32(0.5), np.float32(-1)),
        "NonMaxSuppressionV4Options",
        {},
        ("int32", "int32"),
    )
    yield Case(
        "NON_MAX_SUPPRESSION_V5",
        (X((6, 4)), X((6,)), np.int32(3), np.float32(0.5), np.float32(-1), np.float32(0)),
        "NonMaxSuppressionV5Options",
        {},
        ("int32", "float32", "int32"),
    )
    yield Case("BUCKETIZE", (x,), "BucketizeOptions", {"boundaries": [0.0, 1.0]}, ("int32",))


def elementwise() -> Iterator[Case]:
    pair = X((2, 1, 4)), X((3, 1))
    for kind in (
        "ADD",
        "SUB",
        "MUL",
        "DIV",
        "MAXIMUM",
        "MINIMUM",
        "POW",
        "FLOOR_DIV",
        "FLOOR_MOD",
        "SQUARED_DIFFERENCE",
    ):
        yield Case(kind, pair)
    for kind in ("LESS", "GREATER", "EQUAL", "NOT_EQUAL", "LESS_EQUAL", "GREATER_EQUAL"):
        yield Case(kind, pair, "", {}, ("bool",))
    for kind in (
        "ABS",
        "CEIL",
        "COS",
        "ELU",
        "EXP",
        "FLOOR",
        "GELU",
        "HARD_SWISH",
        "LOG",
        "LOGISTIC",
        "NEG",
        "RELU",
        "RELU6",
        "RELU_0_TO_1",
        "RELU_N1_TO_1",
        "ROUND",
        "RSQRT",
        "SIGN",
        "SIN",
        "SQRT",
        "SQUARE",
        "TANH",
        "LOG_SOFTMAX",
    ):
        yield Case(kind, (X((2, 3)),))
    yield Case("SOFTMAX", (X((2, 3)),), "SoftmaxOptions", {"beta": 1.0})
    yield Case("LEAKY_RELU", (X((2, 3)),), "LeakyReluOptions", {"alpha": 0.1})
    yield Case("L2_NORMALIZATION", (X((2, 3)),), "L2NormOptions")
    yield Case(
        "LOCAL_RESPONSE_NORMALIZATION",
        (X((1, 2, 2, 3)),),
        "LocalResponseNormalizationOptions",
        {"radius": 2},
    )
    yield Case("CAST", (X((2, 3)),), "CastOptions", {}, ("int32",))
    yield Case("PRELU", (X((2, 2, 3)), weights(1, 1, 3)))
    yield Case("ADD_N", (X((2, 3)),) * 3, "AddNOptions")
    yield Case("BITCAST", (X((2, 3)),), "BitcastOptions", {}, ("int32",))
    yield Case("BITCAST", (X((2, 3)),), "BitcastOptions", {}, ("int16",))
    yield Case("BITCAST", (X((3, 4), "uint8"),), "BitcastOptions", {}, ("int32",))
    for kind in ("LOGICAL_AND", "LOGICAL_OR"):
        yield Case(kind, (X((2, 3), "bool"), X((2, 3), "bool")), "", {}, ("bool",))
    yield Case("LOGICAL_NOT", (X((2, 3), "bool"),), "", {}, ("bool",))


CASES = [*windows(), *dense(), *strided(), *layouts(), *elementwise()]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """What LiteRT says of every case; a case that ends the process is left out and named."""
    folder = tmp_path_factory.mktemp("cases")
    for number, case in enumerate(CASES):
        (folder / f"{number:03}.tflite").write_bytes(case.data())
    found: dict[str, Any] = {}
    waiting = {path.stem for path in folder.glob("*.tflite")}
    while waiting - set(found):
        run = subprocess.run(
            [sys.executable, str(SCRIPT), str(folder)], capture_output=True, text=True, check=False
        )
        lines = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
        assert lines, run.stderr
        for line in lines:
            if "start" not in line:
                found[line["file"]] = line
        last = lines[-1]
        if "start" in last:
            found[last["file"]] = {"error": "the process ended"}
            (folder / f"{last['file']}.tflite").rename(folder / f"{last['file']}.ended")
    return folder, found


def test_every_shape_rule_agrees_with_the_interpreter(told):
    folder, found = told
    wrong, refused = [], []
    for number, case in enumerate(CASES):
        said = found[f"{number:03}"]
        if "error" in said:
            refused.append((case.builtin, said["error"]))
            continue
        graph = load(folder / f"{number:03}.tflite").graph
        ours = [
            list(graph[name].shape or ("?",)) if graph[name].shape is not None else None
            for name in graph.outputs
        ]
        theirs = said["shapes"]
        ours = [[] if shape == ["?"] else shape for shape in ours]
        if ours != theirs:
            wrong.append((case, ours, theirs))
    print(f"{len(CASES)} cases, {len(refused)} refused by the interpreter: {refused}")
    assert not wrong, "\n".join(map(str, wrong))
    assert len(refused) <= 2
