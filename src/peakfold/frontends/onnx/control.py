"""If, Loop and Scan: bodies become regions; an If whose condition is known is inlined."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from onnx import GraphProto, NodeProto, TypeProto, ValueInfoProto

from peakfold.errors import ModelError
from peakfold.frontends.onnx.nodes import attributes, bodies, captured, first, where
from peakfold.frontends.onnx.scope import Scope
from peakfold.frontends.onnx.types import dtype_and_shape, is_complete, tensor_type
from peakfold.ir import (
    DTYPES,
    OPAQUE,
    AttrValue,
    Dim,
    Op,
    Region,
    Role,
    Shape,
    element_count,
)

Declared = Mapping[str, ValueInfoProto]
Walk = Callable[[Scope], None]


def add_control(scope: Scope, node: NodeProto, declared: Declared, walk: Walk) -> bool:
    """Add a control-flow node; false if the node is none.

    Raises:
        ModelError: a body that does not fit its op.
    """
    if node.op_type == "If":
        _add_if(scope, node, walk)
    elif node.op_type == "Loop":
        _add_loop(scope, node, declared, walk)
    elif node.op_type == "Scan" and scope.file.opset() >= 9:
        _add_scan(scope, node, declared, walk)
    else:
        return False
    return True


def _body(node: NodeProto, name: str) -> GraphProto:
    try:
        return bodies(node)[name]
    except KeyError:
        raise ModelError(f"has no {name}", where=where(node)) from None


def _region(scope: Scope, body: Scope, label: str) -> Region:
    captures = captured(body.proto)
    for name in captures:
        if scope.proto_of(name) is None:
            raise ModelError(f"captures {name!r}, which nothing makes", where=f"body {label!r}")
    return Region(label, body.close(body.proto.name or label, captures), captures)


def _add_if(scope: Scope, node: NodeProto, walk: Walk) -> None:
    branches = [_body(node, "then_branch"), _body(node, "else_branch")]
    for branch in branches:
        if len(branch.output) < len(node.output):
            raise ModelError("a branch has too few outputs", where=where(node))
    _check_scalar(scope, node, 0, "bool", "condition")
    condition = scope.values.get(node.input[0]) if node.input else None
    if condition is not None and condition.size == 1:
        _inline(scope, node, branches[0 if condition.item() else 1], walk)
        return
    scopes = [scope.body(branch) for branch in branches]
    for body in scopes:
        walk(body)
    for at, name in enumerate(node.output):
        if name:
            types = [(b, b.proto.output[at].name) for b in scopes]
            _merge_branches(scope, name, types)
    regions = tuple(
        _region(scope, body, label) for body, label in zip(scopes, ("then", "else"), strict=True)
    )
    op_name = node.name or first(node.output)
    scope.add(Op(op_name, "if", tuple(node.input), tuple(node.output), regions=regions))


def _check_scalar(scope: Scope, node: NodeProto, at: int, wanted: str, what: str) -> None:
    """Refuse an operand that must be one element of a type, and is known to be none.

    Raises:
        ModelError: it is another type, or several elements.
    """
    if at >= len(node.input) or not node.input[at]:
        return
    dtype, shape = scope.type_of(node.input[at])
    count = None if shape is None else element_count(shape)
    if dtype.name not in (wanted, OPAQUE.name) or count not in (1, None):
        found = dtype.name if count in (1, None) else f"{count} elements"
        raise ModelError(f"its {what} is {found}, not one {wanted}", where=where(node))


def _merge_branches(scope: Scope, name: str, results: Sequence[tuple[Scope, str]]) -> None:
    protos = [body.proto_of(result) for body, result in results]
    if all(proto == protos[0] for proto in protos):
        scope.declare(name, protos[0])
        return
    types = [dtype_and_shape(proto) for proto in protos]
    shapes = [shape for _, shape in types if shape is not None]
    if len({len(shape) for shape in shapes}) == 1 and len(shapes) == len(types):
        largest = tuple(map(_larger, zip(*shapes, strict=True)))
        if None not in largest and all(dtype == types[0][0] for dtype, _ in types):
            scope.bound(name, types[0][0], tuple(dim for dim in largest if dim is not None))
            return
    sizes = [body.tensor(result, Role.ACTIVATION).nbytes for body, result in results]
    scope.declare(name, tensor_type(types[0][0], None))
    known = [size for size in sizes if size is not None]
    if len(known) == len(sizes):
        scope.stated[name] = max(known)


def _larger(dims: Sequence[Dim]) -> Dim | None:
    """The largest of some dimensions; `None` where nobody can tell."""
    if len(set(dims)) == 1:
        return dims[0]
    numbers = [dim for dim in dims if isinstance(dim, int)]
    return max(numbers) if len(numbers) == len(dims) else None


def _inline(scope: Scope, node: NodeProto, branch: GraphProto, walk: Walk) -> None:
    """Put the branch that will run in the op's place; its outputs get the op's names."""
    taken = {n for inner in branch.node for n in inner.output if n and scope.defines(n)}
    taken |= {t.name for t in branch.initializer if scope.defines(t.name)}
    renamed = {name: f"{node.name or first(node.output)}/{name}" for name in taken}
    flat = GraphProto()
    flat.CopyFrom(branch)
    _rename(flat, renamed)
    for tensor in flat.initializer:
        scope.store(tensor.name, tensor, Role.PARAMETER)
    for inner_name, name in zip((o.name for o in flat.output), node.output, strict=False):
        flat.node.add(
            op_type="Identity", input=[inner_name], output=[name], name=name, domain=node.domain
        )
    outer_proto = scope.proto
    scope.proto = flat
    try:
        walk(scope)
    finally:
        scope.proto = outer_proto


def _rename(graph: GraphProto, renamed: Mapping[str, str]) -> None:
    if not renamed:
        return
    for tensor in graph.initializer:
        tensor.name = renamed.get(tensor.name, tensor.name)
    for info in (*graph.output, *graph.value_info):
        info.name = renamed.get(info.name, info.name)
    for node in graph.node:
        node.input[:] = [renamed.get(name, name) for name in node.input]
        node.output[:] = [renamed.get(name, name) for name in node.output]
        for body in bodies(node).values():
            _rename(body, renamed)


def _add_loop(scope: Scope, node: NodeProto, declared: Declared, walk: Walk) -> None:
    body = _body(node, "body")
    carried = list(node.input[2:])
    if len(body.input) != len(carried) + 2 or len(body.output) < len(carried) + 1:
        raise ModelError("its body does not fit its carried values", where=where(node))
    scalar = [tensor_type(DTYPES["int64"], ()), tensor_type(DTYPES["bool"], ())]
    types = [scope.proto_of(name) for name in carried]
    inner = _walk_carried(scope, body, scalar, types, 1, walk)
    _check_scalar(scope, node, 0, "int64", "trip count")
    _check_scalar(scope, node, 1, "bool", "condition")
    trips = scope.values.get(node.input[0]) if node.input and node.input[0] else None
    count = int(trips.item()) if trips is not None and trips.size == 1 else None
    for at, name in enumerate(node.output):
        if not name:
            continue
        result = inner.proto_of(body.output[at + 1].name)
        proto = result if at < len(carried) else _stacked(result, count, 0)
        _declare(scope, name, proto, declared)
    if count is None and len(node.output) > len(carried):
        scope.notes.append(f"{where(node)}: its trip count is not known before the run")
    _finish(scope, node, "loop", inner, {} if count is None else {"trips": count})


def _add_scan(scope: Scope, node: NodeProto, declared: Declared, walk: Walk) -> None:
    body = _body(node, "body")
    attrs = attributes(node)
    given = attrs.get("num_scan_inputs")
    scanned = given if isinstance(given, int) else 0
    states = len(node.input) - scanned
    if scanned < 1 or states < 0 or len(body.input) != len(node.input):
        raise ModelError("its body does not fit its inputs", where=where(node))
    axes = _ints(attrs.get("scan_input_axes"), scanned)
    count: Dim | None = None
    slices: list[TypeProto | None] = []
    for name, axis in zip(node.input[states:], axes, strict=True):
        dtype, shape = scope.type_of(name)
        if shape is None or not -len(shape) <= axis < len(shape):
            slices.append(tensor_type(dtype, None))
            continue
        axis %= len(shape)
        count = shape[axis]
        slices.append(tensor_type(dtype, shape[:axis] + shape[axis + 1 :]))
    carried = [scope.proto_of(name) for name in node.input[:states]]
    inner = _walk_carried(scope, body, [], carried, 0, walk, slices)
    outputs = _ints(attrs.get("scan_output_axes"), len(node.output) - states)
    for at, name in enumerate(node.output):
        if not name:
            continue
        result = inner.proto_of(body.output[at].name)
        proto = result if at < states else _stacked(result, count, outputs[at - states])
        _declare(scope, name, proto, declared)
    trips = {"trips": count} if isinstance(count, int) else {}
    _finish(scope, node, "scan", inner, {**attrs, **trips})


def _ints(value: object, count: int) -> tuple[int, ...]:
    return value if isinstance(value, tuple) and len(value) == count else (0,) * max(count, 0)


def _walk_carried(
    scope: Scope,
    body: GraphProto,
    before: Sequence[TypeProto],
    carried: Sequence[TypeProto | None],
    skip: int,
    walk: Walk,
    after: Sequence[TypeProto | None] = (),
) -> Scope:
    """Walk a loop body; carried values whose shape changes in it lose their shape.

    Args:
        scope: the scope around the loop.
        body: the body.
        before: types of the inputs before the carried ones.
        carried: initial types of the carried values.
        skip: outputs of the body before the carried ones.
        walk: adds the nodes of a scope.
        after: types of the inputs behind the carried ones.
    """
    while True:
        inner = scope.body(body)
        for info, proto in zip(body.input, (*before, *carried, *after), strict=True):
            inner.inputs.append(info.name)
            inner.declare(info.name, proto)
        walk(inner)
        results = [inner.proto_of(info.name) for info in body.output[skip : skip + len(carried)]]
        changed = [
            dtype_and_shape(one)[1] is not None
            and dtype_and_shape(one)[1] != dtype_and_shape(two)[1]
            for one, two in zip(carried, results, strict=True)
        ]
        if not any(changed):
            return inner
        carried = [
            tensor_type(dtype_and_shape(proto)[0], None) if flag else proto
            for proto, flag in zip(carried, changed, strict=True)
        ]


def _stacked(proto: TypeProto | None, count: Dim | None, axis: int) -> TypeProto:
    """The type of a scan output: one slice a trip, along `axis`."""
    dtype, shape = dtype_and_shape(proto)
    if shape is None or count is None:
        return tensor_type(dtype, None)
    axis %= len(shape) + 1
    stacked: Shape = (*shape[:axis], count, *shape[axis:])
    return tensor_type(dtype, stacked)


def _declare(scope: Scope, name: str, proto: TypeProto | None, declared: Declared) -> None:
    if not is_complete(proto) and name in declared and is_complete(declared[name].type):
        proto = declared[name].type
    scope.declare(name, proto)


def _finish(
    scope: Scope, node: NodeProto, kind: str, inner: Scope, attrs: Mapping[str, AttrValue]
) -> None:
    region = _region(scope, inner, "body")
    name = node.name or first(node.output)
    scope.add(Op(name, kind, tuple(node.input), tuple(node.output), dict(attrs), (region,)))
