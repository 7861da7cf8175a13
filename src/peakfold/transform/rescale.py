"""The same network on inputs of another size, shapes derived anew by the registry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from peakfold.errors import UsageError
from peakfold.ir import Graph, Op, Shape, Tensor
from peakfold.ops import context, lookup

# Products with a weight of fixed height: what they multiply must keep its last dimension.
_FIXED = frozenset({"gemm", "matmul", "fully_connected", "fused_gemm", "fused_matmul"})


@dataclass(frozen=True, slots=True)
class Rescale:
    """The step that changes the shapes of inputs; its field is its option.

    Attributes:
        shapes: new shapes by input.

    Raises:
        UsageError: no such input, or the network does not work at that size; names the op.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> g = parse_graph('''peakfold-graph 1
        ... input x: float32[1,3,8,8]
        ... parameter w: float32[4,3,3,3]
        ... y: float32[1,4,6,6] = conv(x, w)
        ... output y''')
        >>> Rescale({"x": (2, 3, 16, 16)})(g)["y"].shape
        (2, 4, 14, 14)
    """

    shapes: Mapping[str, Shape]

    def __call__(self, graph: Graph) -> Graph:
        """The graph with every shape behind the changed inputs derived anew."""
        tensors = dict(graph.by_name)
        for name, shape in self.shapes.items():
            if name not in graph.inputs:
                raise UsageError(f"no input {name!r}", where=f"graph {graph.name!r}")
            tensors[name] = replace(tensors[name], shape=shape)
        changed = set(self.shapes)
        for op in graph.ops:
            if changed.intersection(op.operands):
                self._derive(graph, op, tensors, changed)
        return replace(graph, tensors=tuple(tensors[t.name] for t in graph.tensors))

    def _derive(self, graph: Graph, op: Op, tensors: dict[str, Tensor], changed: set[str]) -> None:
        where = f"op {op.name!r} ({op.kind})"
        rule = lookup(op.kind).shape
        if op.regions or rule is None or any(graph[n].stated_bytes is not None for n in op.results):
            raise UsageError("its result's shape is not derived from its operands'", where=where)
        if of_one_size(op):
            raise UsageError("what is stated of it holds for one size", where=where)
        if op.kind in _FIXED and op.inputs[0] in changed:
            was, now = graph[op.inputs[0]].shape, tensors[op.inputs[0]].shape
            if not was or not now or was[-1] != now[-1]:
                raise UsageError("its weight fits one size only", where=where)
        types = rule(context(op, tensors))
        for name, found in zip(op.outputs, types or (None,) * len(op.outputs), strict=True):
            if not name:
                continue
            if found is None or any(isinstance(dim, str) or dim < 1 for dim in found[1]):
                raise UsageError("it does not work at that size", where=where)
            if found[1] != tensors[name].shape:
                tensors[name] = replace(tensors[name], shape=found[1])
                changed.add(name)


def of_one_size(op: Op) -> bool:
    """Whether distances in bytes are stated of an op: they hold for the sizes it has."""
    if op.stated is None:
        return False
    distances = [view.offset for view in op.stated.views or ()]
    return any((*distances, *(overlap.distance for overlap in op.stated.overlap or ())))


def with_batch(graph: Graph, batch: int) -> Rescale:
    """The step that gives every input another batch (its first dimension).

    Raises:
        UsageError: the inputs do not agree on a batch.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> g = parse_graph("peakfold-graph 1\\ninput x: int8[1,4]\\n"
        ...                 "y: int8[1,4] = relu(x)\\noutput y")
        >>> with_batch(g, 8)(g)["y"].shape
        (8, 4)
    """
    shapes = {name: graph[name].shape for name in graph.inputs}
    firsts = {shape[0] if shape else None for shape in shapes.values()}
    if len(firsts) != 1 or None in firsts:
        raise UsageError("its inputs have no common first dimension", where=graph.name)
    return Rescale({name: (batch, *(shape or ())[1:]) for name, shape in shapes.items()})
