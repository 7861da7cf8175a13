"""ONNX models of a few nodes, counted without a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from peakfold.analysis import Cost, CostOptions, cost_of
from peakfold.frontends import Bindings
from peakfold.frontends.onnx.file import normalise
from peakfold.frontends.onnx.graph import build_graph
from peakfold.ir import Graph
from peakfold.transform import Fold

MS = "com.microsoft"
Node = tuple[Any, ...]


def node(spec: Node) -> onnx.NodeProto:
    """``(op, inputs, outputs, {attributes}, domain)``, the last two optional."""
    op, inputs, outputs, *rest = spec
    attrs = dict(rest[0]) if rest else {}
    domain = rest[1] if len(rest) > 1 else ""
    name = attrs.pop("name", outputs.split()[0])
    return helper.make_node(
        op,
        ["" if word == "_" else word for word in inputs.split()],
        outputs.split(),
        name=name,
        domain=domain,
        **attrs,
    )


def info(name: str, shape: Sequence[int | str], dtype: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, dtype, shape)


def values(name: str, array: Any, dtype: type | None = None) -> TensorProto:
    return onnx.numpy_helper.from_array(np.asarray(array, dtype), name)


def zeros(name: str, shape: Sequence[int], dtype: int = TensorProto.FLOAT) -> TensorProto:
    """A stored tensor of a type numpy may not have, all zeros."""
    bits = {TensorProto.INT4: 4, TensorProto.UINT4: 4}.get(dtype)
    width = bits or 8 * helper.tensor_dtype_to_np_dtype(dtype).itemsize
    count = (int(np.prod(shape)) * width + 7) // 8
    return TensorProto(name=name, dims=shape, data_type=dtype, raw_data=bytes(count))


def body(
    name: str,
    nodes: Sequence[Node],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    stored: Sequence[TensorProto] = (),
) -> onnx.GraphProto:
    return helper.make_graph([node(n) for n in nodes], name, inputs, outputs, stored)


def graph_of(
    nodes: Sequence[Node],
    inputs: Mapping[str, Any],
    stored: Sequence[TensorProto] = (),
    *,
    outputs: Sequence[str] = ("y",),
    opset: int = 17,
    dims: Sequence[str] = (),
    functions: Sequence[onnx.FunctionProto] = (),
    more: Mapping[str, int] | None = None,
) -> Graph:
    """An IR graph; an input is a shape (float32) or ``(shape, type)``."""
    infos = [
        info(name, *spec)
        if isinstance(spec[1:2], tuple) and len(spec) == 2 and isinstance(spec[0], tuple)
        else info(name, spec)
        for name, spec in inputs.items()
    ]
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    opsets = {"": opset, MS: 1, **(more or {})}
    model = helper.make_model(
        helper.make_graph([node(n) for n in nodes], "case", infos, results, stored),
        opset_imports=[helper.make_opsetid(d, v) for d, v in opsets.items()],
        ir_version=10,
        functions=functions,
    )
    graph, _ = build_graph(normalise(model), Bindings.parse(tuple(dims), ()))
    return graph


def count(*args: Any, causal: str = "full", trips: Any = None, **more: Any) -> Cost:
    """What a model of a few nodes costs, after folding."""
    graph = graph_of(*args, **more)
    options = CostOptions(causal=causal, trips=trips or {})
    return cost_of(Fold()(graph), options, original=graph)


def macs(*args: Any, **more: Any) -> int | None:
    found = count(*args, **more)
    assert found.unsupported() == {} or found.total().figures.macs is None, found.unsupported()
    return found.total().figures.macs
