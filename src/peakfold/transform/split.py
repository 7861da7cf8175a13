"""Patch-based execution: the first, high-resolution part of a network, a band of rows at a time.

A network's memory is often set by a few early ops on large images. Run band by band, only the
band's share of their results exists at once, for the price of computing the rows where bands
meet more than once (MCUNetV2, arXiv 2110.15352; Pex, arXiv 2211.17246).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from peakfold.arguments import shown, whole
from peakfold.errors import UsageError
from peakfold.interval import Interval
from peakfold.ir import Graph, Op, Role, Tensor
from peakfold.ops import context
from peakfold.ops.spec import concrete
from peakfold.transform.rows import Patch, patch_of, row_axis

MAX_OPS = 100_000
"""Ops that the bands of one split may make: a plan's recipe is replayed before it is judged."""


@dataclass(frozen=True, slots=True)
class Split:
    """The step that computes everything up to a tensor in bands of rows.

    Attributes:
        upto: the tensor. The part reaches back as far as ops are local in their rows, and nothing
            else may read what they make.
        patches: number of bands, at least 2.

    Raises:
        UsageError: the tensor does not exist, or the part before it cannot be split; says why.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> g = parse_graph('''peakfold-graph 1
        ... input x: float32[1,3,8,8]
        ... parameter w: float32[4,3,3,3]
        ... h: float32[1,4,8,8] = conv(x, w, pads=[1,1,1,1])
        ... y: float32[1,4,8,8] = relu(h)
        ... output y''')
        >>> [op.kind for op in Split("y", 2)(g).ops]
        ['slice', 'conv', 'relu', 'slice', 'conv', 'relu', 'concat']
    """

    upto: str
    patches: int

    def __post_init__(self) -> None:
        if not isinstance(self.upto, str):
            raise UsageError(f"a split goes up to a tensor's name, not {shown(self.upto)}")
        whole(self.patches, "the number of bands")

    def __call__(self, graph: Graph) -> Graph:
        """The graph with its head split."""
        return _Splitter(graph, self).run()


def head_of(graph: Graph, upto: str) -> list[int]:
    """Ops that compute a tensor a band at a time, in file order.

    Found from the tensor backwards, as far as ops are local in their rows. What lies before them
    (inputs, results of other ops, constants that are computed) is read as a whole.
    """
    axis = _axis(graph, upto)
    if axis is None:
        return []
    fed = _fed(graph)
    needed, ops = {upto}, []
    for at in reversed(range(len(graph.ops))):
        op = graph.ops[at]
        if needed.intersection(op.results) and at in fed:
            patch = _whole_patch(graph, op, axis)
            if patch is not None:
                ops.append(at)
                needed.update(op.inputs[position] for position in patch.needs)
    return ops[::-1]


def _axis(graph: Graph, upto: str) -> int | None:
    """The axis of rows of the last window op before a tensor."""
    needed = {upto}
    for op in reversed(graph.ops):
        if needed.intersection(op.results):
            axis = row_axis(op.kind)
            if axis is not None:
                return axis
            needed.update(op.operands)
    return None


def _fed(graph: Graph) -> set[int]:
    """Ops whose results depend on an input."""
    live, ops = set(graph.inputs), set()
    for at, op in enumerate(graph.ops):
        if live.intersection(op.operands):
            ops.add(at)
            live.update(op.results)
    return ops


def _whole_patch(graph: Graph, op: Op, axis: int) -> Patch | None:
    """How an op makes all rows of its result; `None` when it is not local in its rows."""
    if op.regions or op.writes or op.reads or len(op.results) != 1:
        return None
    shape = concrete(graph[op.results[0]])
    if shape is None or len(shape) != 4 or shape[0] != 1:
        return None
    return patch_of(context(op, graph.by_name), axis, Interval(0, shape[axis]))


def why_not(graph: Graph, upto: str) -> str | None:
    """Why the part before a tensor cannot be split, or `None` when it can."""
    if upto not in graph.producer:
        return "no op makes it"
    axis = _axis(graph, upto)
    if axis is None:
        return "no window ops before it"
    shape = concrete(graph[upto])
    if shape is None or len(shape) != 4 or shape[0] != 1:
        return "it is not one image (batch 1, rank 4)"
    head = head_of(graph, upto)
    last = graph.producer[upto]
    if last not in head:
        op = graph.ops[last]
        return f"op {op.name!r} ({op.kind}) is not local in its rows"
    if all(row_axis(graph.ops[at].kind) is None for at in head):
        return "no window ops before it that are local"
    return _leak(graph, head, upto, axis)


def _leak(graph: Graph, head: list[int], upto: str, axis: int) -> str | None:
    """What needs a tensor on the way to the last one as a whole."""
    inside = {name for at in head for name in graph.ops[at].results} - {upto}
    if inside & set(graph.outputs):
        return f"{min(inside & set(graph.outputs))!r} before it is an output"
    members = set(head)
    for at, op in enumerate(graph.ops):
        wholes = set(op.operands)
        if at in members:
            patch = _whole_patch(graph, op, axis)
            cut = patch.needs if patch is not None else {}
            wholes = {name for n, name in enumerate(op.inputs) if n not in cut}
        if inside & wholes:
            return f"{min(inside & wholes)!r} before it is read as a whole, by {op.name!r}"
    return None


class _Splitter:
    def __init__(self, graph: Graph, options: Split) -> None:
        self.graph, self.options = graph, options
        reason = why_not(graph, options.upto)
        if reason is None and options.patches < 2:
            reason = "one band is no split"
        if reason is not None:
            raise self._refused(reason)
        self.head = head_of(graph, options.upto)
        if len(self.head) * options.patches > MAX_OPS:
            raise self._refused(f"it makes more than {MAX_OPS} ops")
        self.axis = _axis(graph, options.upto) or 0
        self.tensors: dict[str, Tensor] = {}
        self.ops: list[Op] = []
        self.rows = (concrete(graph[options.upto]) or ())[self.axis]
        if self.rows < options.patches:
            raise self._refused(f"it has {self.rows} rows")

    def _refused(self, reason: str) -> UsageError:
        return UsageError(
            f"cannot split the part before it: {reason}", where=f"tensor {self.options.upto!r}"
        )

    def run(self) -> Graph:
        graph, count = self.graph, self.options.patches
        edges = [self.rows * n // count for n in range(count + 1)]
        bands = [Interval(a, b) for a, b in pairwise(edges)]
        made = [self._band(n, rows) for n, rows in enumerate(bands)]
        result = self.options.upto
        self.ops.append(Op(f"{result}.join", "concat", tuple(made), (result,), {"axis": self.axis}))
        members = set(self.head)
        gone = {name for at in self.head for name in graph.ops[at].results} - {result}
        after = self.head[-1]
        ops = [op for at, op in enumerate(graph.ops) if at not in members and at < after]
        ops += self.ops
        ops += [op for at, op in enumerate(graph.ops) if at not in members and at > after]
        kept = [t for t in graph.tensors if t.name not in gone]
        taken = {t.name for t in kept}
        clash = taken.intersection(self.tensors)
        if clash:
            raise self._refused(f"the name {min(clash)!r} is taken")
        return replace(graph, tensors=(*kept, *self.tensors.values()), ops=tuple(ops))

    def _band(self, number: int, rows: Interval) -> str:
        """Emit one band; returns the tensor with its rows of the result."""
        patches, needs = self._needs(rows)
        whole: dict[str, tuple[str, Interval]] = {}  # tensor -> its patch and what it covers
        for at in self.head:
            op = self.graph.ops[at]
            patch = patches[at]
            inputs = list(op.inputs)
            for position, reads in patch.needs.items():
                name = op.inputs[position]
                inputs[position] = self._rows_of(name, reads, whole, number)
            result = op.results[0]
            made = self._tensor(result, patch.rows, number)
            attrs = {**op.attrs, **patch.attrs}
            outputs = tuple(made if name else "" for name in op.outputs)
            self.ops.append(
                replace(
                    op,
                    name=f"{op.name}@{number}",
                    inputs=tuple(inputs),
                    outputs=outputs,
                    attrs=attrs,
                )
            )
            whole[result] = (made, patch.rows)
        return self._rows_of(self.options.upto, needs[self.options.upto], whole, number)

    def _needs(self, rows: Interval) -> tuple[dict[int, Patch], dict[str, Interval]]:
        """Rows of every tensor that a band needs, from its end to the input."""
        needs = {self.options.upto: rows}
        patches: dict[int, Patch] = {}
        for at in reversed(self.head):
            op = self.graph.ops[at]
            patch = patch_of(context(op, self.graph.by_name), self.axis, needs[op.results[0]])
            if patch is None:
                raise self._refused(f"op {op.name!r} ({op.kind}) is not local in its rows")
            patches[at] = patch
            for position, reads in patch.needs.items():
                name = op.inputs[position]
                had = needs.get(name, reads)
                needs[name] = Interval(min(had.start, reads.start), max(had.stop, reads.stop))
        return patches, needs

    def _rows_of(
        self, name: str, rows: Interval, whole: dict[str, tuple[str, Interval]], number: int
    ) -> str:
        """A tensor with exactly these rows of `name`, cut out if there are more."""
        shape = concrete(self.graph[name]) or ()
        source, covers = whole.get(name, (name, Interval(0, shape[self.axis])))
        if covers == rows:
            return source
        cut = f"{name}[{rows.start}:{rows.stop}]@{number}"
        if cut not in self.tensors:
            self._add(cut, name, rows)
            begin, end = rows.start - covers.start, rows.stop - covers.start
            self.ops.append(
                Op(
                    f"{cut}.cut",
                    "slice",
                    (source,),
                    (cut,),
                    {
                        "starts": (begin,),
                        "ends": (end,),
                        "axes": (self.axis,),
                    },
                )
            )
        return cut

    def _tensor(self, name: str, rows: Interval, number: int) -> str:
        made = f"{name}@{number}"
        self._add(made, name, rows)
        return made

    def _add(self, made: str, like: str, rows: Interval) -> None:
        tensor = self.graph[like]
        shape = list(tensor.shape or ())
        shape[self.axis] = rows.length
        role = Role.ACTIVATION if tensor.role is Role.INPUT else tensor.role
        self.tensors[made] = replace(tensor, name=made, shape=tuple(shape), role=role)


def exits(graph: Graph, over: Callable[[], bool] = lambda: False) -> Iterator[str]:
    """Tensors before which a network can be split, in file order.

    Args:
        graph: the network.
        over: polled before each tensor that is looked at closely; True ends the search.
    """
    for op in graph.ops:
        for name in op.results:
            shape = concrete(graph[name])
            if shape is None or len(shape) != 4 or shape[0] != 1:
                continue
            if over():
                return
            if why_not(graph, name) is None:
                try:
                    Split(name, 2)(graph)
                except UsageError:
                    continue
                yield name
