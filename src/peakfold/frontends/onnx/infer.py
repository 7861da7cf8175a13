"""Types of a node's outputs: onnx's rule, then the registry's, then the file's declaration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
from onnx import NodeProto, TypeProto, ValueInfoProto
from onnx.checker import ValidationError
from onnx.shape_inference import InferenceError, infer_node_outputs

from peakfold.errors import ModelError
from peakfold.frontends.onnx.at_most import NOT_MONOTONE, at_most
from peakfold.frontends.onnx.dims import derived
from peakfold.frontends.onnx.guard import misuse
from peakfold.frontends.onnx.names import STANDARD, onnx_kind
from peakfold.frontends.onnx.nodes import where
from peakfold.frontends.onnx.scope import Scope, Signature, require_sane
from peakfold.frontends.onnx.types import dtype_and_shape, is_complete, tensor_of_value, tensor_type
from peakfold.frontends.onnx.values import MAX_ELEMENTS, Value
from peakfold.ir import OPAQUE, DType, Op, Role, Shape, Tensor, compatible, element_count
from peakfold.ops import VALUE_INPUTS, Context, lookup

_ROUNDED = frozenset({"resize", "upsample"})
"""Kinds whose results have a size that is a product of floating-point numbers, rounded down."""
_OURS = frozenset({"stft"})
"""Kinds of which onnx's rule is wrong: it takes ``onesided``, where it is left out, for 0."""


def declare_outputs(
    scope: Scope,
    node: NodeProto,
    op: Op,
    data: Mapping[str, Value],
    declared: Mapping[str, ValueInfoProto],
) -> None:
    """Give every output the best type that is known of it.

    Nets repeat their blocks, so what onnx's rule said of one node holds for the next that looks
    the same to it.

    Args:
        scope: types of the inputs.
        node: the node.
        op: the same as an IR op, with known values in its attributes.
        data: known values of inputs that decide shapes.
        declared: the file's own ``value_info`` and outputs.

    Raises:
        ModelError: shapes that do not fit this op, by onnx's rule, and the registry's does not
            say better. What the file declares is then no better than the file.
        UsageError: the user's shape contradicts the model.
    """
    behind = bool(scope.bounded) and not scope.bounded.isdisjoint(op.operands)
    key = None if behind else _signature(scope, node, op, data)
    told = None if key is None else scope.inferred.get(key)
    if told is not None:
        for name, (dtype, shape) in zip(op.results, told, strict=True):
            scope.settle(name, dtype, shape)
        return
    found, failure, certain = _onnx_rule(scope, node, data)
    if op.kind in _ROUNDED and _rounded(scope, op, found, declared):
        key = None  # what the file declares of this node says nothing of the next
    if op.kind in _OURS:
        found |= {n: t for n, t in _registry_rule(scope, op).items() if is_complete(t)}
    if behind and (failure or op.kind in NOT_MONOTONE):
        found, failure, certain = {}, "", False  # sizes that are bounds need not fit each other
    elif key is not None and not failure:
        _remember(scope, key, [found.get(name) for name in op.results])
    trusted = {} if certain else declared
    for name, proto in _best(scope, op, found, failure, trusted, where(node)).items():
        scope.declare(name, proto)
    _bound_rest(scope, op)


def _bound_rest(scope: Scope, op: Op) -> None:
    """Give results of unknown shape the largest that they can have."""
    shapes = [scope.type_of(name)[1] for name in op.results]
    if all(shape is not None and element_count(shape) is not None for shape in shapes):
        return
    for name, (dtype, shape) in at_most(scope, op).items():
        known = scope.type_of(name)[1]
        if known is None or any(isinstance(dim, str) for dim in known):
            scope.bound(name, dtype, shape)


def _rounded(
    scope: Scope,
    op: Op,
    found: dict[str, TypeProto | None],
    declared: Mapping[str, ValueInfoProto],
) -> bool:
    """Decide on a size that is a rounded product: onnx multiplies in double, runtimes in float.

    The file's own declaration decides where it agrees with onnx's rule, else the runtimes' rule
    does.

    Returns:
        Whether the two differ.
    """
    own = _registry_rule(scope, op)
    for name in op.results:
        theirs, ours = dtype_and_shape(found.get(name))[1], dtype_and_shape(own.get(name))[1]
        if theirs is None or ours is None or compatible(theirs, ours):
            continue
        stated = dtype_and_shape(declared[name].type)[1] if name in declared else None
        if stated != theirs:
            found[name] = own[name]
        scope.notes.append(
            f"tensor {name!r}: its size is {_shown(ours)} in single precision, as runtimes "
            f"multiply, and {_shown(theirs)} in double; "
            + (f"the file declares {_shown(stated)}" if stated else "the first is taken")
        )
        return True
    return False


def _shown(shape: Shape) -> str:
    return f"[{', '.join(map(str, shape))}]"


def compare(scope: Scope, declared: Mapping[str, ValueInfoProto]) -> None:
    """Hold what the file declares of its tensors against what their ops make."""
    given, dims = scope.bindings[0].shapes, scope.bindings[0].dims
    for name, info in declared.items():
        if name in given or not scope.defines(name):
            continue
        (dtype, shape), (word, stated) = scope.type_of(name), dtype_and_shape(info.type)
        other = dtype != word and OPAQUE not in (dtype, word)
        if shape is not None and stated is not None:
            stated = tuple(
                number
                if isinstance(dim, str) and (number := derived(dim, dims)) is not None
                else dim
                for dim in stated
            )
            other = other or not compatible(shape, stated)
        if other:
            source = "its data are" if name in scope.static else "its op makes"
            scope.doubts[name] = (
                f"tensor {name!r}: the file declares {_typed(word, stated)}, {source} "
                f"{_typed(dtype, shape)}; the latter is used"
            )


def _typed(dtype: DType, shape: Shape | None) -> str:
    return f"{dtype.name}{'?' if shape is None else _shown(shape)}"


def _signature(
    scope: Scope, node: NodeProto, op: Op, data: Mapping[str, Value]
) -> Signature | None:
    """All that onnx's rule reads of a node; `None` where that is more than types and numbers."""
    types = [scope.type_of(name) if name else None for name in op.inputs]
    if any(kind is not None and kind[0].bits is None for kind in types):
        return None
    if any(value.dtype.hasobject for value in data.values()):
        return None
    return (
        node.op_type,
        node.domain,
        tuple(
            None if kind is None else (kind[0].name, _seen(scope, name, kind[1]))
            for name, kind in zip(op.inputs, types, strict=True)
        ),
        tuple(name != "" for name in op.outputs),
        tuple(item.SerializeToString() for item in node.attribute),
        tuple(
            (op.inputs.index(name), v.dtype.str, v.shape, v.tobytes()) for name, v in data.items()
        ),
    )


def _seen(scope: Scope, name: str, shape: Shape | None) -> Shape | bytes | None:
    """A shape; where one is not known whole, what onnx's rule sees of it."""
    proto = scope.proto_of(name) if shape is None else None
    return shape if proto is None else proto.SerializeToString()


def _remember(scope: Scope, key: Signature, found: Sequence[TypeProto | None]) -> None:
    """Keep what onnx's rule says of a node, if it says all there is to know."""
    if all(is_complete(proto) for proto in found):
        types = tuple(dtype_and_shape(proto) for proto in found)
        if all(dtype.bits is not None for dtype, _ in types):
            scope.inferred[key] = types


def _best(
    scope: Scope,
    op: Op,
    found: dict[str, TypeProto | None],
    failure: str,
    declared: Mapping[str, ValueInfoProto],
    place: str,
) -> dict[str, TypeProto | None]:
    """What onnx's rule says, completed by the registry's rule and the file's declarations."""
    names = op.results
    if not all(is_complete(found.get(name)) for name in names):
        for name, proto in _registry_rule(scope, op).items():
            found[name] = _better(found.get(name), proto)
    for name in names:
        if name in declared and not is_complete(found.get(name)):
            own, stated = found.get(name), declared[name].type
            found[name] = _better(own, stated)
            if found[name] is stated:
                scope.values.declared.add(name)
    if failure and not all(is_complete(found.get(name)) for name in names):
        raise ModelError(f"its shapes do not fit: {failure}", where=place)
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
) -> tuple[dict[str, TypeProto | None], str, bool]:
    """Onnx's answer; where it refuses the node its reason, and whether it concerns the shapes."""
    domain = "" if node.domain in STANDARD else node.domain
    inputs = {name: scope.proto_of(name) for name in node.input if name}
    if any(proto is None or _untyped(proto) for proto in inputs.values()):
        return {}, "", False
    if node.op_type == "Identity" and not domain and len(node.input) == len(node.output) == 1:
        return {node.output[0]: inputs.get(node.input[0])}, "", False  # whatever the type is
    if _absurd_shape_input(scope, node):
        return {}, "an input that lists dimensions or axes has too many elements", True
    try:
        schema = onnx.defs.get_schema(node.op_type, scope.file.opset(domain), domain)
    except onnx.defs.SchemaError:
        return {}, "", False
    if reason := misuse(node, [_rank(scope, name) for name in node.input]):
        raise ModelError(f"is not a valid node: {reason}", where=where(node))
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
        return {}, reason, False
    except InferenceError as error:
        return {}, " ".join(str(error).split())[:200], True
    except Exception:  # whatever else its C++ and its bindings raise means: no rule
        return {}, "", False
    return dict(found), "", False


def _rank(scope: Scope, name: str) -> int | None:
    shape = scope.type_of(name)[1] if name else None
    return None if shape is None else len(shape)


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
    for name, kind in zip(op.outputs, types or (), strict=False):
        require_sane(name, () if kind is None else kind[1])
    return {
        name: tensor_type(*kind)
        for name, kind in zip(op.outputs, types or (), strict=False)
        if name and kind is not None
    }
