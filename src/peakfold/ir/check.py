"""The checker: a graph that passes is well formed, one that fails is told where."""

from __future__ import annotations

from collections.abc import Iterator

from peakfold.errors import ModelError
from peakfold.ir.graph import Graph, Op, Role
from peakfold.ir.types import MAX_RANK

MAX_NESTING = 24
"""How deep bodies of control flow may nest in a model.

Every walker behind the front ends recurses into bodies and bears several times as many at
Python's own limit; protobuf stops at 32 in an ONNX file.
"""

# What a run may change in place: variables, and under training what the optimizer updates.
_CHANGEABLE = frozenset({Role.STATE, Role.PARAMETER, Role.OPTIMIZER_STATE})


def check_nesting(depth: int, where: str) -> None:
    """Refuse a body that lies too deep.

    Args:
        depth: how many bodies lie around it, itself included.
        where: the body.

    Raises:
        ModelError: it nests deeper than `MAX_NESTING`.
    """
    if depth > MAX_NESTING:
        raise ModelError(f"it nests too deeply: more than {MAX_NESTING} bodies", where=where)


def check_graph(graph: Graph) -> None:
    """Check names, single assignment, file order, effects and regions.

    Args:
        graph: the graph to check.

    Raises:
        ModelError: the first rule broken, with the op or tensor at fault.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> check_graph(parse_graph("peakfold-graph 1\\ninput x: float32[1]\\noutput x"))
    """
    _check(graph, 0)


def _check(graph: Graph, depth: int) -> None:
    check_nesting(depth, f"graph {graph.name!r}")
    _check_tensors(graph)
    made_by = _check_single_assignment(graph)
    ready = {t.name for t in graph.tensors if t.role.static or t.name in graph.inputs}
    for op in graph.ops:
        for name in op.operands:
            if name not in ready:
                raise _not_ready(graph, op, name, made_by)
        _check_effects(graph, op)
        _check_stated(graph, op)
        for region in op.regions:
            missing = set(region.captures) - ready
            if missing:
                raise ModelError(
                    f"region {region.label!r} captures {min(missing)!r}, which is not ready",
                    where=_where(graph, op),
                )
            alien = set(region.captures) - set(region.graph.inputs)
            if alien:
                raise ModelError(
                    f"region {region.label!r} captures {min(alien)!r} but does not list it "
                    "among its inputs",
                    where=_where(graph, op),
                )
            _check(region.graph, depth + 1)
        ready.update(op.results)
    for name in graph.outputs:
        if name not in ready:
            raise ModelError(f"output {name!r} is made by no op", where=f"graph {graph.name!r}")


def _where(graph: Graph, op: Op) -> str:
    return f"graph {graph.name!r}, op {op.name!r} ({op.kind})"


def _check_tensors(graph: Graph) -> None:
    seen: set[str] = set()
    for tensor in graph.tensors:
        where = f"graph {graph.name!r}, tensor {tensor.name!r}"
        if not tensor.name:
            raise ModelError("a tensor has an empty name", where=f"graph {graph.name!r}")
        if tensor.name in seen:
            raise ModelError("two tensors have this name", where=where)
        seen.add(tensor.name)
        if len(tensor.shape or ()) > MAX_RANK:
            raise ModelError(f"it has more than {MAX_RANK} dimensions", where=where)
        for dim in tensor.shape or ():
            if isinstance(dim, int) and not 0 <= dim < 2**48:
                raise ModelError(f"dimension {dim} is negative or absurd", where=where)
        if tensor.stated_bytes is not None and tensor.stated_bytes < 0:
            raise ModelError("stated bytes are negative", where=where)
        nbytes = tensor.nbytes
        if nbytes is not None and nbytes >= 2**62:
            raise ModelError(f"{nbytes} bytes are more than any machine addresses", where=where)
    for name in (*graph.inputs, *graph.outputs):
        if name not in seen:
            raise ModelError(f"no tensor {name!r}", where=f"graph {graph.name!r}, its signature")


def _duplicates(names: tuple[str, ...]) -> Iterator[str]:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            yield name
        seen.add(name)


def _check_single_assignment(graph: Graph) -> dict[str, Op]:
    made_by: dict[str, Op] = {}
    for name in _duplicates(graph.inputs):
        raise ModelError(f"input {name!r} is listed twice", where=f"graph {graph.name!r}")
    for op in graph.ops:
        if not op.kind:
            raise ModelError("an op has no kind", where=_where(graph, op))
        for name in op.results:
            if name in made_by:
                raise ModelError(
                    f"{name!r} is made twice, first by {made_by[name].name!r}",
                    where=_where(graph, op),
                )
            if name not in graph.by_name:
                raise ModelError(f"no tensor {name!r}", where=_where(graph, op))
            if name in graph.inputs or graph.by_name[name].role.static:
                raise ModelError(
                    f"writes {name!r}, which is an input or static", where=_where(graph, op)
                )
            made_by[name] = op
    return made_by


def _not_ready(graph: Graph, op: Op, name: str, made_by: dict[str, Op]) -> ModelError:
    if name in made_by:
        return ModelError(
            f"reads {name!r} before {made_by[name].name!r} makes it",
            where=_where(graph, op),
            hint="the ops are out of order, or the graph has a cycle",
        )
    if name in graph.by_name:
        return ModelError(f"reads {name!r}, which nothing makes", where=_where(graph, op))
    return ModelError(f"reads {name!r}, which does not exist", where=_where(graph, op))


def _check_stated(graph: Graph, op: Op) -> None:
    """Stated facts name operands and results that exist, and views stay inside their base."""
    stated = op.stated
    if stated is None:
        return
    if any(not 0 <= at < len(op.inputs) or not op.inputs[at] for at in stated.inplace or ()):
        raise ModelError(
            "states to run in place over an operand it has not", where=_where(graph, op)
        )
    if stated.workspace is not None and not 0 <= stated.workspace < 2**62:
        raise ModelError(f"states {stated.workspace} bytes of workspace", where=_where(graph, op))
    for fact in stated.overlap or ():
        known = 0 <= fact.input < len(op.inputs) and abs(fact.distance) < 2**62
        if not known or not op.inputs[fact.input]:
            raise ModelError(
                "states an overlap with an operand it has not", where=_where(graph, op)
            )
    for view in stated.views or ():
        known = 0 <= view.input < len(op.inputs) and 0 <= view.output < len(op.outputs)
        if not known or not op.inputs[view.input] or not op.outputs[view.output]:
            raise ModelError("states a view of what it has not", where=_where(graph, op))
        base = graph.by_name[op.inputs[view.input]].nbytes
        size = graph.by_name[op.outputs[view.output]].nbytes
        room = 2**62 if base is None else base - (size or 0)
        if not 0 <= view.offset <= room:
            raise ModelError("states a view that leaves its base", where=_where(graph, op))


def _check_effects(graph: Graph, op: Op) -> None:
    for name in (*op.reads, *op.writes):
        tensor = graph.by_name.get(name)
        if tensor is None or tensor.role not in _CHANGEABLE:
            raise ModelError(f"effect on {name!r}, which is no state", where=_where(graph, op))
