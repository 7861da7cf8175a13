"""What of an ONNX model is bounded before a foreign library works on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto

from peakfold.errors import ModelError
from peakfold.ir import check_nesting

MAX_NODES: Final = 1_000_000
"""Nodes of a model, bodies included and local functions inlined."""
MAX_TENSORS: Final = 1_000_000
"""Stored tensors of one graph."""
MAX_CALLS: Final = 100
"""How deep local functions may call each other: onnx's inliner recurses."""

_Key = tuple[str, str, str]


def check_versions(model: ModelProto, where: str) -> None:
    """Refuse version numbers that no C integer holds.

    Raises:
        ModelError: the first such number.
    """
    if not 1 <= model.ir_version < 2**31:
        raise ModelError(f"its IR version is {model.ir_version}", where=where)
    for entry in model.opset_import:
        if not 1 <= entry.version < 2**31:
            raise ModelError(f"opset version {entry.version} of {entry.domain!r}", where=where)


def check_names(graph: GraphProto, where: str, depth: int = 0) -> int:
    """Refuse names that are not UTF-8, which protobuf hands out as bytes, and deep bodies.

    Args:
        graph: the graph.
        where: the model, for errors.
        depth: how many bodies lie around it.

    Returns:
        Nodes of the graph and its bodies.

    Raises:
        ModelError: the first such name, or bodies that nest too deep.
    """
    check_nesting(depth, where)
    if len(graph.initializer) > MAX_TENSORS:
        raise ModelError(f"it stores more than {MAX_TENSORS} tensors", where=where)
    names: list[object] = [graph.name]
    for info in (*graph.input, *graph.output, *graph.value_info):
        names.append(info.name)
        names += [dim.dim_param for dim in info.type.tensor_type.shape.dim]
    names += [tensor.name for tensor in graph.initializer]
    names += [sparse.values.name for sparse in graph.sparse_initializer]
    _require(names, where)
    return check_nodes(graph.node, where, depth)


def check_nodes(nodes: Iterable[NodeProto], where: str, depth: int = 0) -> int:
    """The same for the nodes of a graph or of a function."""
    count = 0
    for node in nodes:
        count += 1
        names = [node.name, node.op_type, node.domain, *node.input, *node.output]
        _require([*names, *(item.name for item in node.attribute)], where)
        for item in node.attribute:
            if item.type == AttributeProto.GRAPH:
                count += check_names(item.g, where, depth + 1)
    if count > MAX_NODES:
        raise ModelError(f"it has more than {MAX_NODES} nodes", where=where)
    return count


def _require(names: list[object], where: str) -> None:
    for name in names:
        if not isinstance(name, str):
            raise ModelError(f"the name {name!r} is not text", where=where)


def every_node(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Nodes and the nodes of their bodies."""
    for node in nodes:
        yield node
        for item in node.attribute:
            if item.type == AttributeProto.GRAPH:
                yield from every_node(item.g.node)


def check_functions(model: ModelProto, where: str) -> None:
    """Refuse local functions that inlined would be endless, or too many nodes.

    A function that calls another twice, which calls a third twice, doubles at each step.

    Raises:
        ModelError: a function that calls itself, a chain that is too long, or too many nodes.
    """
    functions = {(f.domain, f.name, f.overload): f for f in model.functions}
    for function in model.functions:
        check_nodes(function.node, where)
    done: dict[_Key, tuple[int, int]] = {}
    open_: set[_Key] = set()

    def inlined(nodes: Iterable[NodeProto]) -> tuple[int, int]:
        """Nodes when all calls are inlined, and how deep they call."""
        count = height = 0
        for node in every_node(nodes):
            count += 1
            key = (node.domain, node.op_type, node.overload)
            if key in functions:
                nodes_of, below = called(key)
                count, height = count + nodes_of, max(height, below + 1)
            if count > MAX_NODES or height > MAX_CALLS:
                what = f"its functions make more than {MAX_NODES} nodes"
                deep = f"its functions call each other more than {MAX_CALLS} deep"
                raise ModelError(what if count > MAX_NODES else deep, where=where)
        return count, height

    def called(key: _Key) -> tuple[int, int]:
        if key not in done:
            if key in open_:
                raise ModelError(f"function {key[1]!r} calls itself", where=where)
            if len(open_) > MAX_CALLS:
                raise ModelError(
                    f"its functions call each other more than {MAX_CALLS} deep", where=where
                )
            open_.add(key)
            done[key] = inlined(functions[key].node)
            open_.discard(key)
        return done[key]

    inlined(model.graph.node)
