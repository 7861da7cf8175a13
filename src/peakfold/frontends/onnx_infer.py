"""Types of a node's outputs: onnx's rule, then the registry's, then the file's declaration."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
from onnx import NodeProto, TypeProto, ValueInfoProto
from onnx.checker import ValidationError
from onnx.shape_inference import InferenceError, infer_node_outputs

from peakfold.errors import ModelError
from peakfold.frontends.onnx_names import onnx_kind
from peakfold.frontends.onnx_nodes import STANDARD, where
from peakfold.frontends.onnx_scope import Scope
from peakfold.frontends.onnx_types import (
    dtype_and_shape,
    is_complete,
    tensor_of_value,
    tensor_type,
)
from peakfold.frontends.onnx_values import MAX_ELEMENTS, Value
from peakfold.ir import OPAQUE, Op, Role, Tensor, element_count
from peakfold.ops import VALUE_INPUTS, Context, lookup


def infer_outputs(
    scope: Scope,
    node: NodeProto,
    op: Op,
    data: Mapping[str, Value],
    declared: Mapping[str, ValueInfoProto],
) -> dict[str, TypeProto | None]:
    """The best type known of every output.

    Args:
        scope: types of the inputs.
        node: the node.
        op: the same as an IR op, with known values in its attributes.
        data: known values of inputs that decide shapes.
        declared: the file's own ``value_info`` and outputs.

    Raises:
        ModelError: shapes that do not fit this op, by onnx's rule and no other says better.
    """
    found, failure = _onnx_rule(scope, node, data)
    names = [name for name in node.output if name]
    if not all(is_complete(found.get(name)) for name in names):
        for name, proto in _registry_rule(scope, op).items():
            found[name] = _better(found.get(name), proto)
    for name in names:
        if name in declared and not is_complete(found.get(name)):
            found[name] = _better(found.get(name), declared[name].type)
    if failure and not all(is_complete(found.get(name)) for name in names):
        raise ModelError(f"its shapes do not fit: {failure}", where=where(node))
    return {name: found.get(name) for name in names}


def _better(one: TypeProto | None, other: TypeProto | None) -> TypeProto | None:
    """The more complete of two types; the first where they are equally so."""
    if one is None or other is None or is_complete(one):
        return other if one is None else one
    if is_complete(other):
        return other
    (dtype, shape), (other_dtype, other_shape) = dtype_and_shape(one), dtype_and_shape(other)
    if dtype.bits is None:
        return other
    if shape is None and other_shape is not None and other_dtype == dtype:
        return other
    return one


def _onnx_rule(
    scope: Scope, node: NodeProto, data: Mapping[str, Value]
) -> tuple[dict[str, TypeProto | None], str]:
    """Onnx's answer and, where it refuses the node, its reason."""
    domain = "" if node.domain in STANDARD else node.domain
    inputs = {name: scope.proto_of(name) for name in node.input if name}
    if any(proto is None or _untyped(proto) for proto in inputs.values()):
        return {}, ""
    if _absurd_shape_input(scope, node):
        return {}, "an input that lists dimensions or axes has too many elements"
    try:
        schema = onnx.defs.get_schema(node.op_type, scope.file.opset(domain), domain)
    except onnx.defs.SchemaError:
        return {}, ""
    try:
        found = infer_node_outputs(
            schema,
            node,
            inputs,  # type: ignore[arg-type]  # no value is None here
            {name: tensor_of_value(name, value) for name, value in data.items()},
            opset_imports=list(scope.file.model.opset_import),
            ir_version=scope.file.model.ir_version,
        )
    except ValidationError as error:
        reason = " ".join(str(error).split())[:200]
        # Exporters run ahead of schemas in element types; anything else is no such op.
        if "unsupported type" not in reason:
            raise ModelError(f"is not a valid node: {reason}", where=where(node)) from None
        return {}, reason
    except InferenceError as error:
        return {}, " ".join(str(error).split())[:200]
    except (ValueError, RuntimeError):
        return {}, ""
    return dict(found), ""


def _untyped(proto: TypeProto) -> bool:
    """Whether nothing is known of a value: an op before it has no rule."""
    kind = proto.WhichOneof("value")
    return kind is None or (kind == "tensor_type" and proto.tensor_type.elem_type == 0)


def _absurd_shape_input(scope: Scope, node: NodeProto) -> bool:
    """Whether a shape-like input is so long that onnx would build a type of that rank."""
    positions = VALUE_INPUTS.get(onnx_kind(node.op_type, node.domain), {})
    for at in positions:
        _, shape = scope.type_of(node.input[at]) if at < len(node.input) else (None, None)
        count = None if shape is None else element_count(shape)
        if count is not None and count > MAX_ELEMENTS:
            return True
    return False


def _registry_rule(scope: Scope, op: Op) -> dict[str, TypeProto]:
    rule = lookup(op.kind).shape
    if rule is None:
        return {}
    inputs = tuple(scope.tensor(name, Role.ACTIVATION) if name else None for name in op.inputs)
    asked = tuple(Tensor(name, OPAQUE, None) if name else None for name in op.outputs)
    types = rule(Context(op, inputs, asked))
    return {
        name: tensor_type(*kind)
        for name, kind in zip(op.outputs, types or (), strict=False)
        if name and kind is not None
    }
