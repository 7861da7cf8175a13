"""A checked `ModelProto` -> a `Graph`: one pass over the nodes that knows types and regions.

Shapes come from onnx's rule for the node, from the registry's own rule where onnx leaves a
hole, from what the file declares, and from the user's ``--shape``, in this order. A tensor
whose shape none of them gives keeps `shape=None`; planners refuse it by name.
"""

from __future__ import annotations

from dataclasses import replace

from onnx import NodeProto, TypeProto

from peakfold.errors import ModelError, UsageError
from peakfold.frontends.onnx import control as onnx_control
from peakfold.frontends.onnx.bounds import every_node
from peakfold.frontends.onnx.dims import apart, derived_dims, named, symbols
from peakfold.frontends.onnx.file import OnnxFile
from peakfold.frontends.onnx.infer import compare, declare_outputs
from peakfold.frontends.onnx.names import STANDARD, onnx_kind
from peakfold.frontends.onnx.nodes import (
    attributes,
    bodies,
    captured,
    constant_tensor,
    first,
    sorted_nodes,
    where,
)
from peakfold.frontends.onnx.old import modern
from peakfold.frontends.onnx.scope import RANDOM_STATE, Scope
from peakfold.frontends.onnx.values import Value
from peakfold.ir import AttrValue, Graph, Op, Role
from peakfold.ir.bindings import Bindings
from peakfold.ops import VALUE_INPUTS

_RANDOM = frozenset(
    {
        "random_normal",
        "random_normal_like",
        "random_uniform",
        "random_uniform_like",
        "bernoulli",
        "multinomial",
    }
)


def build_graph(file: OnnxFile, bindings: Bindings) -> tuple[Graph, Bindings]:
    """The IR graph of a model, and the bindings with every symbol that given shapes imply.

    Raises:
        UsageError: ``--dim`` or ``--shape`` name nothing, or contradict the model.
        ModelError: a node whose inputs are missing or whose shapes do not fit.
    """
    proto = file.model.graph
    scope = Scope(file, proto, [bindings], list(file.notes), set())
    scope.visits[0] += 60 * sum(1 for _ in every_node(proto.node))
    _inputs(scope, bindings)
    walk(scope)
    unknown = sorted(set(bindings.shapes) - scope.seen)
    if unknown:
        raise UsageError(f"--shape names no tensor of the model: {unknown[0]!r}")
    return scope.close(proto.name or "onnx"), scope.bindings[0]


def _inputs(scope: Scope, bindings: Bindings) -> None:
    """Declare the inputs, with the numbers that the user's options give their dimensions.

    Raises:
        UsageError: an option names nothing, or contradicts the model.
    """
    types: dict[str, TypeProto] = {}
    for info in scope.proto.input:
        # Up to IR version 3 every initializer is listed as an input too.
        if info.name not in scope.static:
            types[info.name] = named(info.name, info.type, given=info.name in bindings.shapes)
    known = {symbol for kind in types.values() for symbol in symbols(kind)}
    scope.inputs += types
    scope.notes += apart(types, bindings)
    known |= {symbol for kind in types.values() for symbol in symbols(kind)}
    _check_dims(bindings, known - {""})
    for _ in range(2):  # a shape given for a later input may bind a symbol of an earlier
        for name, kind in types.items():
            scope.declare(name, kind)
    more, wrong = derived_dims(types, scope.bindings[0])
    scope.doubts |= wrong
    if more:
        scope.bindings[0] = scope.bindings[0].with_dims(more)
        for name, kind in types.items():
            scope.declare(name, kind)
    for name in types:
        shape = scope.type_of(name)[1]
        if shape and shape[0] == 0 and name not in bindings.shapes:
            scope.doubts[name] = (
                f"input {name!r}: its leading dimension is 0, so nothing is computed; "
                f"--shape {name}= gives it a size"
            )


def _check_dims(bindings: Bindings, known: set[str]) -> None:
    for name in sorted(set(bindings.dims) - known):
        listed = ", ".join(sorted(known)) or "none"
        raise UsageError(
            f"--dim: no dimension of the model is called {name!r}", hint=f"its symbols: {listed}"
        )


def walk(scope: Scope) -> None:
    """Add every node of the scope's graph.

    Raises:
        ModelError: a cycle, or a node that cannot be understood.
    """
    weights = (info for info in scope.proto.input if info.name in scope.static)
    stated = (*weights, *scope.proto.value_info, *scope.proto.output)
    declared = {info.name: info for info in stated}
    scope.visits[0] -= len(scope.proto.node)
    if scope.visits[0] < 0:
        raise ModelError("its loops nest so that their bodies would be walked too often")
    for node in sorted_nodes(scope.proto.node):
        old = scope.file.old and node.domain in STANDARD
        for part in modern(scope, node) if old else (node,):
            _add_node(scope, part, declared)
    compare(scope, declared)


def _add_node(scope: Scope, node: NodeProto, declared: onnx_control.Declared) -> None:
    inputs, outputs = tuple(node.input), tuple(node.output)  # every access makes an object
    _check_names(scope, node, inputs, outputs)
    if node.domain in STANDARD and node.op_type == "Constant" and outputs:
        scope.store(outputs[0], constant_tensor(node), Role.CONSTANT)
        return
    if node.domain in STANDARD and onnx_control.add_control(scope, node, declared, walk):
        reads = {*inputs, *(n for body in bodies(node).values() for n in captured(body))}
        if not scope.bounded.isdisjoint(reads):
            scope.bounded.update(filter(None, outputs))
        return
    kind = onnx_kind(node.op_type, node.domain)
    data = _known_inputs(scope, inputs, kind)
    attrs = attributes(node) | _value_attrs(inputs, kind, data)
    if kind == "dropout" and scope.file.opset() < 10:
        attrs["mask_dtype"] = scope.type_of(inputs[0])[0].name
    if kind == "nchwc_reorder_input" and scope.file.block:
        attrs["nchwc_block"] = scope.file.block
    op = Op(node.name or first(outputs), kind, inputs, outputs, attrs)
    if inside := bodies(node):
        # No rule for this body: its captures are operands, what it needs inside is unknown.
        inner = [name for body in inside.values() for name in captured(body)]
        op = replace(op, inputs=(*op.inputs, *dict.fromkeys(inner)))
        scope.notes.append(f"{where(node)}: its body is not analysed")
    if node.domain == "ai.onnx.ml":
        kept = sum(len(a.floats) for a in node.attribute)
        if kept:
            scope.notes.append(
                f"{where(node)}: {kept} numbers kept in its attributes are no parameters here"
            )
    if kind in _RANDOM and "seed" not in attrs:
        op = replace(op, reads=(RANDOM_STATE,), writes=(RANDOM_STATE,))
    declare_outputs(scope, node, op, data, declared)
    _remember_maker(scope, node, op)
    scope.add(op)


def _remember_maker(scope: Scope, node: NodeProto, op: Op) -> None:
    """Note what made the results, and which of them are no larger than is said."""
    if scope.bounded and not scope.bounded.isdisjoint(op.operands):
        scope.bounded.update(op.results)
    for name in op.results:
        scope.values.made_by[name] = node
        if name in scope.bounded and (value := scope.values.get(name)) is not None:
            scope.settle(name, scope.type_of(name)[0], value.shape)  # all of it is known, after all
            scope.bounded.discard(name)
            scope.limits.pop(name, None)


def _check_names(
    scope: Scope, node: NodeProto, inputs: tuple[str, ...], outputs: tuple[str, ...]
) -> None:
    read, made = set(inputs), set(outputs)
    for name in (*inputs, *outputs):
        if name and name in made and scope.defines(name):
            raise ModelError(f"makes {name!r}, which exists already", where=where(node))
        if name in read and name and scope.proto_of(name) is None:
            raise ModelError(f"reads {name!r}, which nothing makes", where=where(node))


def _known_inputs(scope: Scope, inputs: tuple[str, ...], kind: str) -> dict[str, Value]:
    """Known values of the inputs that decide shapes, by tensor name."""
    data: dict[str, Value] = {}
    for at in VALUE_INPUTS.get(kind, {}):
        name = inputs[at] if at < len(inputs) else ""
        value = scope.values.get(name) if name else None
        if value is not None:
            data[name] = value
    return data


def _value_attrs(
    inputs: tuple[str, ...], kind: str, data: dict[str, Value]
) -> dict[str, AttrValue]:
    """Known shape-like inputs as attributes, so that old and new opsets look alike."""
    attrs: dict[str, AttrValue] = {}
    for at, name in VALUE_INPUTS.get(kind, {}).items():
        value = data.get(inputs[at]) if at < len(inputs) else None
        if value is not None and value.ndim <= 1:
            attrs[name] = value.item() if value.ndim == 0 else tuple(value.tolist())
    return attrs
