"""Bodies and effects of TFLite operators: WHILE, IF, CALL_ONCE, variables, tables, randomness.

A subgraph sees nothing of the graph that calls it but its inputs and the model's variables.
Variables have no tensor in the file: each becomes one `state` tensor, and the ops that read or
assign it name it as an effect. A handle whose variable cannot be told (one that came in as an
input of a body) stands for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from peakfold.errors import ModelError
from peakfold.frontends.tflite.file import StoredOp, StoredSubgraph, TfliteFile
from peakfold.frontends.tflite.trips import trip_count
from peakfold.ir import (
    DTYPES,
    OPAQUE,
    AttrValue,
    Graph,
    Op,
    Region,
    Role,
    Shape,
    Tensor,
    check_nesting,
)
from peakfold.ops import Context
from peakfold.ops.facts import condition_problem

if TYPE_CHECKING:
    from peakfold.frontends.tflite.scope import Scope

RANDOM_STATE: Final = "random_state"
"""The `state` tensor through which random ops keep their order."""

MOST_BODIES: Final = 10_000

# Kind -> options that name its bodies, in order, and the label of each.
_BODIES: Final = {
    "if": (("then_subgraph_index", "then"), ("else_subgraph_index", "else")),
    "while": (("cond_subgraph_index", "cond"), ("body_subgraph_index", "body")),
    "call_once": (("init_subgraph_index", "init"),),
    "call": (("subgraph", "body"),),
}
_RANDOM: Final = frozenset(
    {
        "random_standard_normal",
        "tfl_random_uniform",
        "tfl_multinomial",
        "stablehlo_rng_bit_generator",
    }
)


@dataclass(slots=True)
class Bodies:
    """Graphs of subgraphs, by number and the shapes they are called with.

    Attributes:
        open: subgraphs that are being built, outermost first.
        copies: per built graph, how many graphs it holds, itself included.
    """

    built: dict[tuple[int, tuple[Shape | None, ...] | None], Graph] = field(default_factory=dict)
    open: list[int] = field(default_factory=list)
    copies: dict[int, int] = field(default_factory=dict)


def regions_of(scope: Scope, op: Op, stored: StoredOp) -> Op:
    """The op with its bodies, if it is control flow.

    Raises:
        ModelError: a body that does not exist, does not fit, or calls itself.
    """
    labels = _labels(op, stored)
    if not labels:
        return op
    asked = tuple(scope.tensors.get(at) for at in stored.inputs)
    if problem := condition_problem(Context(op, asked, ())):
        raise ModelError(problem)
    skipped = 1 if op.kind in ("if", "case") else 0
    formal = stored.inputs[skipped:] if op.kind != "call_once" else ()
    regions = tuple(
        _region(scope, number, label, formal, stored, op.kind) for label, number in labels
    )
    return replace(op, regions=regions, attrs=_trips(scope, op, labels, stored))


def _trips(
    scope: Scope, op: Op, labels: list[tuple[str, int]], stored: StoredOp
) -> dict[str, AttrValue]:
    if op.kind != "while":
        return {}

    def start(position: int) -> int | None:
        value = scope.value(stored.inputs[position])
        whole = value is not None and value.size == 1 and value.dtype.kind in "iu"
        return int(value.item()) if value is not None and whole else None

    condition, body = (scope.model.file.subgraphs[number] for _, number in labels)
    trips = trip_count(scope.model.file, condition, body, start)
    return {} if trips is None else {"trips": trips}


def _labels(op: Op, stored: StoredOp) -> list[tuple[str, int]]:
    if op.kind == "case":
        branches = op.attrs.get("branch_subgraph_indices", ())
        listed = branches if isinstance(branches, tuple) else ()
        return [(f"branch {at}", n) for at, n in enumerate(listed) if isinstance(n, int)]
    names = _BODIES.get(op.kind, ())
    if stored.builtin == "STABLEHLO_COMPOSITE":
        names = (("decomposition_subgraph_index", "body"),)
    found = []
    for option, label in names:
        number = op.attrs.get(option, 0)
        found.append((label, number if isinstance(number, int) else 0))
    return found


def _region(
    scope: Scope, number: int, label: str, formal: tuple[int, ...], stored: StoredOp, kind: str
) -> Region:
    model = scope.model
    where = f"body {label!r}"
    if not 0 < number < len(model.file.subgraphs):
        raise ModelError(f"calls subgraph {number} of {len(model.file.subgraphs)}", where=where)
    body = model.file.subgraphs[number]
    results = 1 if label == "cond" else len(stored.outputs)
    if len(body.inputs) != len(formal) or (kind != "call_once" and len(body.outputs) != results):
        raise ModelError(
            f"takes {len(body.inputs)} and gives {len(body.outputs)} tensors, "
            f"its op {len(formal)} and {results}",
            where=where,
        )
    shapes = None
    if model.rebound:
        shapes = tuple(scope.tensors[at].shape if at in scope.tensors else None for at in formal)
    graph = _built(scope, number, shapes)
    captures = graph.inputs[len(body.inputs) :]
    for name in captures:
        scope.states.setdefault(name, graph[name])
    return Region(label, graph, captures)


def _built(scope: Scope, number: int, shapes: tuple[Shape | None, ...] | None) -> Graph:
    bodies = scope.model.bodies
    if number in bodies.open:
        raise ModelError(f"subgraph {number} calls itself")
    if (number, shapes) not in bodies.built:
        check_nesting(len(bodies.open) + 1, f"subgraph {number}")
        bodies.open.append(number)
        graph = scope.inner(number, shapes)
        bodies.open.pop()
        bodies.built[number, shapes] = graph
        inner = [region.graph for op in graph.ops for region in op.regions]
        bodies.copies[id(graph)] = 1 + sum(bodies.copies[id(one)] for one in inner)
        if bodies.copies[id(graph)] > MOST_BODIES:
            raise ModelError(f"its bodies nest more than {MOST_BODIES} times")
    return bodies.built[number, shapes]


def add_effects(scope: Scope, op: Op, stored: StoredOp) -> Op:
    """The op with the state it reads and writes; new states are added to the scope."""
    reads: list[str] = []
    writes: list[str] = []
    if op.kind in _RANDOM:
        called = _free(scope, RANDOM_STATE)
        scope.states.setdefault(called, Tensor(called, DTYPES["uint8"], (0,), Role.STATE))
        reads, writes = [called], [called]
    elif op.kind in (
        "read_variable",
        "assign_variable",
        "hashtable_import",
        "hashtable_find",
        "hashtable_size",
    ):
        names = [_add_state(scope, *one) for one in _resources(scope, stored)]
        (writes if op.kind in ("assign_variable", "hashtable_import") else reads).extend(names)
    elif op.kind in ("var_handle", "hashtable"):
        _add_state(scope, *_key(stored))
    for slot, at in enumerate(stored.inputs):
        tensor = scope.tensors.get(at)
        if tensor is None or tensor.role is not Role.STATE:
            continue
        reads.append(tensor.name)
        if not stored.mutates or (slot < len(stored.mutates) and stored.mutates[slot]):
            writes.append(tensor.name)
    if not reads and not writes:
        return op
    return replace(op, reads=tuple(dict.fromkeys(reads)), writes=tuple(dict.fromkeys(writes)))


_Key = tuple[str, str]


def _key(op: StoredOp) -> _Key:
    """What tells one resource from another: its kind, and its name or number."""
    if op.builtin == "HASHTABLE":
        return "hashtable", str(op.options.get("table_id", 0))
    names = [str(op.options[k]) for k in ("container", "shared_name") if k in op.options]
    return "variable", "/".join(names)


def handle_makers(graph: StoredSubgraph) -> dict[int, StoredOp]:
    """The operators that make handles of variables and tables, by the tensor they make."""
    return {
        op.outputs[0]: op
        for op in graph.ops
        if op.builtin in ("VAR_HANDLE", "HASHTABLE") and op.outputs
    }


def _resources(scope: Scope, stored: StoredOp) -> list[_Key]:
    """The resources that a handle may stand for: the one that made it, or all of its kind."""
    maker = scope.makers.get(stored.inputs[0]) if stored.inputs else None
    if maker is not None:
        return [_key(maker)]
    kind = "HASHTABLE" if stored.builtin.startswith("HASHTABLE") else "VAR_HANDLE"
    found = dict.fromkeys(
        _key(op) for graph in scope.model.file.subgraphs for op in graph.ops if op.builtin == kind
    )
    return list(found)


def _free(scope: Scope, name: str) -> str:
    """A name that no tensor of the file has."""
    while name in scope.model.names.tensor_at:
        name += "'"
    return name


def _add_state(scope: Scope, kind: str, name: str) -> str:
    called = _free(scope, f"{kind}:{name}")
    if called not in scope.states:
        scope.states[called] = _state(scope.model.file, called, kind, (kind, name))
    return called


def _state(file: TfliteFile, called: str, kind: str, key: _Key) -> Tensor:
    """The state tensor of a resource, as large as the largest value it is given."""
    values = list(_values(file, key))
    sizes = [tensor.nbytes for tensor in values if tensor.nbytes is not None]
    if not values or len(sizes) != len(values):
        return Tensor(called, OPAQUE, (), Role.STATE)
    if kind == "hashtable":
        return Tensor(called, DTYPES["uint8"], (sum(sizes),), Role.STATE)
    largest = max(values, key=lambda tensor: tensor.nbytes or 0)
    return replace(largest, name=called, role=Role.STATE)


def _values(file: TfliteFile, key: _Key) -> Iterable[Tensor]:
    """Tensors that are assigned to a variable (or read from it), or imported into a table."""
    for graph in file.subgraphs:
        makers = handle_makers(graph)
        for op in graph.ops:
            maker = makers.get(op.inputs[0]) if op.inputs else None
            if maker is None or _key(maker) != key:
                continue
            held: tuple[int, ...] = ()
            if op.builtin == "READ_VARIABLE":
                held = op.outputs[:1]
            elif op.builtin == "ASSIGN_VARIABLE":
                held = op.inputs[1:2]
            elif op.builtin == "HASHTABLE_IMPORT":
                held = op.inputs[1:3]
            for at in held:
                if at >= 0:
                    stored = graph.tensors[at]
                    yield Tensor("", stored.dtype, stored.shape)
