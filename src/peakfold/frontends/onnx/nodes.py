"""Small questions about ONNX nodes: attributes, order, captured names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto

from peakfold.errors import ModelError
from peakfold.ir import AttrValue

_MAX_LIST = 1024
"""Longer attribute lists are tables (label encoders, tree ensembles), not op semantics."""


def where(node: NodeProto) -> str:
    """How errors and notes call a node."""
    return f"op {node.name or first(node.output)!r} ({node.op_type})"


def first(names: Sequence[str]) -> str:
    """The first name that is given, or an empty string."""
    return next((name for name in names if name), "")


def attributes(node: NodeProto) -> dict[str, AttrValue]:
    """The attributes that semantics can need: numbers, strings and short lists of them."""
    attrs: dict[str, AttrValue] = {}
    for item in node.attribute:
        if item.type == AttributeProto.INT:
            attrs[item.name] = item.i
        elif item.type == AttributeProto.FLOAT:
            attrs[item.name] = item.f
        elif item.type == AttributeProto.STRING:
            attrs[item.name] = item.s.decode("utf-8", "replace")
        elif item.type == AttributeProto.INTS and len(item.ints) <= _MAX_LIST:
            attrs[item.name] = tuple(item.ints)
        elif item.type == AttributeProto.FLOATS and len(item.floats) <= _MAX_LIST:
            attrs[item.name] = tuple(item.floats)
        elif item.type == AttributeProto.STRINGS and len(item.strings) <= _MAX_LIST:
            attrs[item.name] = tuple(s.decode("utf-8", "replace") for s in item.strings)
    return attrs


def bodies(node: NodeProto) -> dict[str, GraphProto]:
    """Subgraphs by attribute name."""
    return {item.name: item.g for item in node.attribute if item.type == AttributeProto.GRAPH}


def constant_tensor(node: NodeProto) -> TensorProto:
    """The stored tensor of a `Constant` node, whichever attribute form it uses.

    Raises:
        ModelError: no value attribute that this reader knows.
    """
    for item in node.attribute:
        if item.name == "value":
            stored: TensorProto = item.t
            return stored
        if item.name == "sparse_value":
            dense = TensorProto(data_type=item.sparse_tensor.values.data_type)
            dense.dims.extend(item.sparse_tensor.dims)
            return dense
        if item.name in ("value_int", "value_ints"):
            scalar = item.name == "value_int"
            array = np.array(item.i if scalar else list(item.ints), dtype=np.int64)
            return onnx.numpy_helper.from_array(array)
        if item.name in ("value_float", "value_floats"):
            scalar = item.name == "value_float"
            array = np.array(item.f if scalar else list(item.floats), dtype=np.float32)
            return onnx.numpy_helper.from_array(array)
        if item.name in ("value_string", "value_strings"):
            strings = [item.s] if item.name == "value_string" else list(item.strings)
            dims = [] if item.name == "value_string" else [len(strings)]
            return onnx.helper.make_tensor("", TensorProto.STRING, dims, strings)
    raise ModelError("a Constant without a value", where=where(node))


def captured(graph: GraphProto) -> tuple[str, ...]:
    """Names a body uses and does not define, in order of first use, nested bodies included."""
    defined = {t.name for t in graph.initializer} | {info.name for info in graph.input}
    defined |= {sparse.values.name for sparse in graph.sparse_initializer}
    defined |= {name for node in graph.node for name in node.output}
    used: dict[str, None] = {}
    for node in graph.node:
        used.update(dict.fromkeys(name for name in node.input if name))
        for body in bodies(node).values():
            used.update(dict.fromkeys(captured(body)))
    used.update(dict.fromkeys(info.name for info in graph.output if info.name))
    return tuple(name for name in used if name not in defined)


def sorted_nodes(nodes: Iterable[NodeProto]) -> list[NodeProto]:
    """Nodes in an order that makes every value before it is read; file order where it does.

    Raises:
        ModelError: a cycle, with a node on it.
    """
    pending = list(nodes)
    maker = {name: at for at, node in enumerate(pending) for name in node.output if name}
    needs: list[set[int]] = []
    for at, node in enumerate(pending):
        names = [*node.input, *(n for body in bodies(node).values() for n in captured(body))]
        needs.append({maker[name] for name in names if name in maker})
        if at in needs[at]:
            raise ModelError("reads its own output", where=where(node))
    if all(max(need, default=-1) < at for at, need in enumerate(needs)):
        return pending
    return _kahn(pending, needs)


def _kahn(nodes: list[NodeProto], needs: list[set[int]]) -> list[NodeProto]:
    import heapq

    users: list[list[int]] = [[] for _ in nodes]
    for at, need in enumerate(needs):
        for before in need:
            users[before].append(at)
    missing = [len(need) for need in needs]
    ready = [at for at, count in enumerate(missing) if count == 0]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        at = heapq.heappop(ready)
        order.append(at)
        for after in users[at]:
            missing[after] -= 1
            if missing[after] == 0:
                heapq.heappush(ready, after)
    if len(order) < len(nodes):
        stuck = next(at for at, count in enumerate(missing) if count > 0)
        raise ModelError("lies on a cycle, or behind one", where=where(nodes[stuck]))
    return [nodes[at] for at in order]
