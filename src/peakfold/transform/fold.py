"""Constant folding without values: what can be computed before the run becomes a parameter.

Only the structure matters for memory: an op whose operands are all static runs once at load
time, so its result is a parameter and sources that nothing else reads cost nothing (R9). An
op that needs only its operands' shapes folds as soon as those are numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from peakfold.ir import Graph, Op, Region, Role, Tensor
from peakfold.ops import lookup
from peakfold.ops.spec import concrete


@dataclass(frozen=True, slots=True)
class Fold:
    """The folding step; its fields are its options.

    Attributes:
        weights: also fold `cast` and `dequantize_linear` of a weight where the result has more
            bytes than the weight. Off by default, since it multiplies the model's size.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> g = parse_graph('''peakfold-graph 1
        ... input x: float32[4]
        ... constant w: float32[1,4]
        ... v: float32[4] = reshape(w)
        ... y: float32[4] = add(x, v)
        ... output y''')
        >>> folded = Fold()(g)
        >>> [op.kind for op in folded.ops], folded["v"].role.value, "w" in folded.by_name
        (['add'], 'parameter', False)
    """

    weights: bool = False

    def __call__(self, graph: Graph) -> Graph:
        """The folded graph; the same graph when there is nothing to fold.

        A torch program is left alone: what it computes at run time it computes at run time.
        """
        if graph.source == "torch":
            return graph
        return _Folder(graph, self).run()


class _Folder:
    def __init__(self, graph: Graph, options: Fold) -> None:
        self.graph = graph
        self.options = options
        fixed = {Role.PARAMETER, Role.CONSTANT}
        self.outputs = set(graph.outputs)
        self.static = {t.name for t in graph.tensors if t.role in fixed}
        # Results that stem from shapes are small and never weights, however wide they become.
        self.from_shape: set[str] = set()

    def run(self) -> Graph:
        kept: list[Op] = []
        folded: set[str] = set()
        for op in self.graph.ops:
            if self._folds(op):
                folded.update(op.results)
                self.static.update(op.results)
                if lookup(op.kind).shape_only or self.from_shape.intersection(op.operands):
                    self.from_shape.update(op.results)
            else:
                kept.append(self._with_folded_bodies(op))
        unused = self._unused()
        loose = unused or any(t.role is Role.CONSTANT for t in self.graph.tensors)
        if not folded and not loose and kept == list(self.graph.ops):
            return self.graph
        return self._rebuilt([self._without_dead_captures(op) for op in kept], folded, unused)

    def _unused(self) -> set[str]:
        """Parameters that nothing ever read."""
        read = {name for op in self.graph.ops for name in op.operands}
        read.update(self.graph.outputs, self.graph.inputs)
        return {t.name for t in self.graph.tensors if t.role is Role.PARAMETER} - read

    def _rebuilt(self, kept: list[Op], folded: set[str], unused: set[str]) -> Graph:
        graph, inputs = self.graph, set(self.graph.inputs)
        used = {name for op in kept for name in (*op.operands, *op.results, *op.reads, *op.writes)}
        used.update(graph.inputs, graph.outputs)
        # State outlives the step whether or not this step touches it.
        keep = {Role.STATE, Role.OPTIMIZER_STATE}
        used.update(t.name for t in graph.tensors if t.role in keep)
        tensors = [self._tensor(t, folded) for t in graph.tensors if t.name in used]
        # The canonical order of the text form: inputs, what no op makes, results.
        tensors.sort(key=lambda t: 0 if t.name in inputs else 1 if t.role.static else 2)
        notes = graph.notes
        if unused:
            notes += (f"dropped, since nothing reads them: {len(unused)} of the parameters",)
        return replace(graph, tensors=tuple(tensors), ops=tuple(kept), notes=notes)

    def _folds(self, op: Op) -> bool:
        spec = lookup(op.kind)
        if not (spec.known and spec.pure) or op.regions or op.writes or op.stated is not None:
            return False
        if spec.shape_only:
            ready = self.graph.bounded.isdisjoint(op.operands) and all(
                concrete(self.graph[name]) is not None for name in op.operands
            )
        else:
            ready = all(name in self.static for name in op.operands)
        if not ready or not op.results:
            return False
        kept = any(name in self.outputs or self.graph[name].nbytes is None for name in op.results)
        return not kept and not (spec.widens and not self.options.weights and self._grows(op))

    def _grows(self, op: Op) -> bool:
        """Whether folding would store more bytes than the weight it replaces."""
        if not op.operands or op.inputs[0] in self.from_shape:
            return False
        result, source = self.graph[op.results[0]].nbytes, self.graph[op.inputs[0]].nbytes
        return (result or 0) > (source or 0)

    def _tensor(self, tensor: Tensor, folded: set[str]) -> Tensor:
        is_constant = tensor.role is Role.CONSTANT and tensor.nbytes is not None
        if tensor.name in folded or is_constant:
            return replace(tensor, role=Role.PARAMETER)
        return tensor

    def _with_folded_bodies(self, op: Op) -> Op:
        if not op.regions:
            return op
        bodies = []
        for region in op.regions:
            formal = region.graph
            # What was folded outside is a parameter inside, too.
            tensors = tuple(
                replace(t, role=Role.PARAMETER)
                if t.name in region.captures and t.name in self.static
                else t
                for t in formal.tensors
            )
            bodies.append(replace(region, graph=self.options(replace(formal, tensors=tensors))))
        return replace(op, regions=tuple(bodies))

    @staticmethod
    def _without_dead_captures(op: Op) -> Op:
        return op if not op.regions else replace(op, regions=tuple(map(_pruned, op.regions)))


def _pruned(region: Region) -> Region:
    """The region without captures that its folded body no longer reads."""
    body = region.graph
    used = {name for op in body.ops for name in (*op.operands, *op.reads, *op.writes)}
    used.update(body.outputs)
    dead = {name for name in region.captures if name not in used}
    if not dead:
        return region
    body = replace(
        body,
        tensors=tuple(t for t in body.tensors if t.name not in dead),
        inputs=tuple(name for name in body.inputs if name not in dead),
    )
    return replace(region, graph=body, captures=tuple(n for n in region.captures if n not in dead))
