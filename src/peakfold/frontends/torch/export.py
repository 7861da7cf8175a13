"""An exported program -> a graph: nodes in order, sub-programs inlined, conditions as regions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_leaves

from peakfold.frontends.aten.values import Ref
from peakfold.frontends.torch.build import GraphBuilder
from peakfold.frontends.torch.names import INLINED, KIND_OF, base_name
from peakfold.frontends.torch.regions import Control, region_of, taken_apart
from peakfold.frontends.torch.trace import Recorder
from peakfold.ir import Graph, Role

_ROLES = {
    InputKind.PARAMETER: Role.PARAMETER,
    InputKind.BUFFER: Role.STATE,
    InputKind.CONSTANT_TENSOR: Role.STATE,
    InputKind.USER_INPUT: Role.INPUT,
}


def read_program(program: ExportedProgram, name: str) -> Graph:
    """The graph of an exported program.

    Args:
        program: from `torch.export.export`, before or after its decompositions.
        name: what the graph is called.
    """
    builder = GraphBuilder()
    walker = Walker(program.graph_module, builder)
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    frozen = {
        n
        for n, p in program.state_dict.items()
        if isinstance(p, torch.nn.Parameter) and not p.requires_grad
    }
    # Parameters that nothing reads are no placeholders of every program: all are declared.
    for node in program.graph.nodes:
        if node.op == "placeholder":
            spec = specs.get(node.name)
            value = node.meta.get("val")
            if spec is None or not isinstance(value, torch.Tensor):
                continue
            role = _ROLES.get(spec.kind, Role.STATE)
            called = spec.target if spec.target and role is not Role.INPUT else node.name
            trainable = called not in frozen if role is Role.PARAMETER else None
            builder.declare(Ref(node, value), called, role, trainable)
    results = walker.walk(program.graph_module.graph)
    outputs = program.graph_signature.output_specs
    kept = [
        leaf
        for leaf, spec in zip(results, outputs, strict=False)
        if spec.kind.name in ("USER_OUTPUT", "LOSS_OUTPUT")
    ]
    refs = [Ref(n, v) for n, v in kept if isinstance(v, torch.Tensor)]
    graph = builder.finish(name, refs, "torch")
    if inside := mapped(program):
        graph = with_notes(graph, [f"{inside} operators inside vmap are counted for one item only"])
    return graph


def mapped(program: ExportedProgram) -> int:
    """How many operators run inside `torch.vmap`: an export shows them for one item only."""
    depth = found = 0
    for node in program.graph.nodes:
        name = getattr(node.target, "__name__", "")
        depth += (name == "_vmap_increment_nesting") - (name == "_vmap_decrement_nesting")
        found += depth > 0 and isinstance(node.target, torch._ops.OpOverload)
    return found


class Walker:
    """Walks fx graphs and feeds a builder."""

    def __init__(self, module: GraphModule, builder: GraphBuilder, scope: str = "") -> None:
        self._module = module
        self._builder = builder
        self._scope = scope
        self._nodes = 0

    def walk(self, graph: torch.fx.Graph) -> list[tuple[Any, Any]]:
        """Feed every node; returns the leaves of the output as (key, value)."""
        for node in graph.nodes:
            self.feed(node)
            if node.op == "output":
                return [
                    (leaf, leaf.meta.get("val") if isinstance(leaf, Node) else leaf)
                    for leaf in tree_leaves(node.args[0])
                ]
        return []

    def feed(self, node: Node) -> None:
        """Feed one node; formals and results are nobody's calls."""
        if node.op == "call_function":
            self._function(node)
        elif node.op == "get_attr":
            self._attribute(node)

    def _attribute(self, node: Node) -> None:
        found: Any = self._module
        for part in str(node.target).split("."):
            found = getattr(found, part)
        if isinstance(found, torch.Tensor):
            value = node.meta.get("val", found)
            self._builder.declare(Ref(node, value), str(node.target), Role.STATE)

    def _function(self, node: Node) -> None:
        target: Any = node.target
        value = node.meta.get("val")
        name = getattr(target, "__name__", "")
        if name == "getitem":
            source, at = node.args[0], node.args[1]
            if isinstance(value, torch.Tensor):
                self._builder.alias(node, Ref((source, at), value))
            return
        if isinstance(target, torch._ops.HigherOrderOperator):
            self._higher_order(node, target)
            return
        if not isinstance(target, torch._ops.OpOverload):
            self._python(node)
            return
        if self._decomposes(target):
            self._decompose(node, target)
            return
        self._call(node, target, node.args, node.kwargs)

    def _python(self, node: Node) -> None:
        """Arithmetic on sizes makes no tensor; what vmap wraps is the tensor it wraps."""
        value = node.meta.get("val")
        source = next((arg for arg in node.args if isinstance(arg, Node)), None)
        inner = None if source is None else source.meta.get("val")
        if isinstance(value, torch.Tensor) and isinstance(inner, torch.Tensor):
            self._builder.join(value, inner)
            self._builder.alias(node, Ref(source, inner))

    def _call(self, node: Node, target: Any, args: Any, kwargs: Any) -> None:
        given = torch.fx.node.map_aggregate((args, kwargs), self._ref)
        self._builder.call(
            node.name, target, given[0], given[1], _results(node), self._scope_of(node)
        )

    def _ref(self, leaf: Any) -> Any:
        if not isinstance(leaf, Node):
            return leaf
        value = leaf.meta.get("val")
        if isinstance(value, torch.Tensor):
            return Ref(leaf, value)
        if value is None and leaf.op == "get_attr":
            return None
        return value

    def _scope_of(self, node: Node) -> str:
        stack = node.meta.get("nn_module_stack")
        if not stack:
            return self._scope
        path = next(reversed(stack.values()))[0]
        return str(path).removeprefix("L['self'].").removeprefix("L['self']")

    # Operators that torch defines through others.

    @staticmethod
    def _decomposes(target: Any) -> bool:
        name = base_name(target._schema.name.partition("::")[2])
        if target.namespace == "aten" and name in KIND_OF:
            return False
        return bool(
            torch._C._dispatch_has_kernel_for_dispatch_key(
                target.name(), "CompositeImplicitAutograd"
            )
        ) and not _is_view(target)

    def _decompose(self, node: Node, target: Any) -> None:
        """Feed what the operator is made of, by running it on the capture's fake tensors."""
        recorder = Recorder(self._builder, lambda: self._scope_of(node), f"{node.name}.")
        for leaf in tree_leaves((node.args, node.kwargs)):
            if isinstance(leaf, Node) and isinstance(leaf.meta.get("val"), torch.Tensor):
                recorder.keys[id(leaf.meta["val"])] = leaf
        args, kwargs = torch.fx.node.map_aggregate(
            (node.args, node.kwargs),
            lambda leaf: leaf.meta.get("val") if isinstance(leaf, Node) else leaf,
        )
        mode = next(
            (
                v.fake_mode
                for v in tree_leaves((args, kwargs))
                if isinstance(v, torch._subclasses.FakeTensor)
            ),
            None,
        )
        if mode is None:
            self._call(node, target, node.args, node.kwargs)
            return
        with torch.no_grad(), mode, recorder:
            out = target(*args, **kwargs)
        results = _results(node)
        made = [leaf for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor)]
        for ref, leaf in zip([r for r in results if r is not None], made, strict=False):
            self._builder.join(ref.tensor, leaf)
            self._builder.alias(ref.key, Ref(recorder.keys.get(id(leaf), id(leaf)), leaf))

    # Higher-order operators.

    def _higher_order(self, node: Node, target: Any) -> None:
        name = target._name
        bodies = [body for arg in node.args if (body := self._body(arg)) is not None]
        if name in INLINED and bodies:
            self._inline(node, bodies[0])
            return
        control = taken_apart(name, node, self._body)
        if control is not None:
            self._control(node, control)
            return
        leaves = [leaf for leaf in tree_leaves((node.args, node.kwargs)) if isinstance(leaf, Node)]
        flat = [leaf for leaf in leaves if isinstance(leaf.meta.get("val"), torch.Tensor)]
        if name != "flex_attention":
            self._builder.notes[f"op {node.name!r}: the bodies of {name} are not analysed"] = None
        self._call(node, target, tuple(flat), {})

    def _control(self, node: Node, control: Control) -> None:
        scope = self._scope_of(node)
        regions = tuple(
            region_of(self._builder, label, body, fed, control.captured, _fed_body, scope)
            for label, body, fed in control.bodies
        )
        inputs = [Ref(arg, arg.meta["val"]) for arg in control.inputs]
        self._builder.control(
            node.name, control.kind, inputs, _results(node), regions, control.attrs, scope
        )

    def _body(self, arg: object) -> GraphModule | None:
        if not (isinstance(arg, Node) and arg.op == "get_attr"):
            return None
        found: Any = self._module
        for part in str(arg.target).split("."):
            found = getattr(found, part, None)
        return found if isinstance(found, GraphModule) else None

    def _inline(self, node: Node, body: GraphModule) -> None:
        at = next(i for i, arg in enumerate(node.args) if self._body(arg) is body)
        operands = [leaf for leaf in tree_leaves(node.args[at + 1 :]) if not isinstance(leaf, str)]
        inner = Walker(body, self._builder, self._scope_of(node))
        formals = [n for n in body.graph.nodes if n.op == "placeholder"]
        for formal, actual in zip(
            formals, operands[-len(formals) :] if formals else [], strict=False
        ):
            if isinstance(actual, Node) and isinstance(actual.meta.get("val"), torch.Tensor):
                value = actual.meta["val"]
                formal_value = formal.meta.get("val")
                if isinstance(formal_value, torch.Tensor):
                    self._builder.join(formal_value, value)
                self._builder.alias(formal, Ref(actual, value))
                formal.meta["val"] = value
        leaves = inner.walk(body.graph)
        results = _results(node)
        for ref, (key, value) in zip(results, leaves, strict=False):
            if ref is not None and isinstance(value, torch.Tensor):
                self._builder.join(ref.tensor, value)
                self._builder.alias(ref.key, Ref(key, value))


def _fed_body(body: GraphModule, builder: GraphBuilder, scope: str) -> list[Ref]:
    leaves = Walker(body, builder, scope).walk(body.graph)
    return [Ref(key, value) for key, value in leaves if isinstance(value, torch.Tensor)]


def _is_view(target: Any) -> bool:
    """Whether the schema says that the result aliases an operand it does not write."""
    returns = target._schema.returns
    return any(r.alias_info is not None and not r.alias_info.is_write for r in returns)


def _results(node: Node) -> list[Ref | None]:
    """Values of a node; a tuple's items are keyed by position, as getitem asks for them."""
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        return [Ref(node, value)]
    if not isinstance(value, list | tuple):
        return []
    return [
        Ref((node, at), v) if isinstance(v, torch.Tensor) else None for at, v in enumerate(value)
    ]


def with_notes(graph: Graph, notes: Sequence[str]) -> Graph:
    """The graph with more notes, each once."""
    return replace(graph, notes=tuple(dict.fromkeys((*graph.notes, *notes))))
