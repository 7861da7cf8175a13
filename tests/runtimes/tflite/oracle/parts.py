"""What models of the oracle are made of: quantised tensors, one operator, a convolution."""

from __future__ import annotations

from collections.abc import Sequence
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
    name: str,
    operands: Sequence[int | tuple[Any, ...]],
    results: Sequence[tuple[Any, ...]],
    options: str = "",
    made: Model | None = None,
    custom: dict[str, Any] | None = None,
    **fields: Any,
) -> bytes:
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
    made: Model,
    kind: str,
    x: int,
    side: int,
    channels: tuple[int, int],
    *,
    k: int,
    deep: bool,
    with_bias: bool = True,
    by_channel: bool = True,
) -> int:
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
    made.op(
        name,
        [x, w, b],
        [y],
        options,
        strideH=1,
        strideW=1,
        dilationHFactor=1,
        dilationWFactor=1,
        **more,
    )
    return y
