"""Orders that effects impose: derived once, here, and obeyed by planners and judges alike.

An op that writes a static tensor (a variable, a parameter under training) must stay after the
earlier ops that read or write it (write after read, write after write), and an op that reads it
after the last write (read after write). Data edges between tensors are not repeated here.
"""

from __future__ import annotations

from collections.abc import Iterator

from peakfold.ir.graph import Graph, Op, Role


def effect_edges(graph: Graph) -> tuple[tuple[int, int], ...]:
    """Pairs ``(before, after)`` of op positions that must keep file order, sorted.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> g = parse_graph('''peakfold-graph 1
        ... state v: float32[1]
        ... input x: float32[1]
        ... a: float32[1] = opaque(x) reads=[v]
        ... b: float32[1] = opaque(x) writes=[v]
        ... output a, b''')
        >>> effect_edges(g)
        ((0, 1),)
    """
    state = {tensor.name for tensor in graph.tensors if tensor.role is Role.STATE}
    if not state and not any(op.reads or op.writes or op.regions for op in graph.ops):
        return ()
    # An optimizer writes parameters: what reads one as an operand must come before.
    state.update(name for op in graph.ops for name in op.writes)
    edges: set[tuple[int, int]] = set()
    last_write: dict[str, int] = {}
    readers: dict[str, list[int]] = {}
    for at, op in enumerate(graph.ops):
        reads, writes = effects_of(op, state)
        for name in reads:
            if name in last_write:
                edges.add((last_write[name], at))
            readers.setdefault(name, []).append(at)
        for name in writes:
            edges.update((before, at) for before in readers.get(name, ()) if before != at)
            if name in last_write:
                edges.add((last_write[name], at))
            last_write[name] = at
            readers[name] = []
    return tuple(sorted(edges))


def effects_of(op: Op, state: set[str]) -> tuple[list[str], list[str]]:
    """Names an op reads and writes as effects, those of its bodies included.

    Args:
        op: the op.
        state: tensors of its graph that are written; reading one as an operand is an effect, too.
    """
    reads = dict.fromkeys(op.reads)
    reads.update(dict.fromkeys(name for name in op.operands if name in state))
    writes = dict.fromkeys(op.writes)
    for inner in _inner_ops(op):
        reads.update(dict.fromkeys(inner.reads))
        writes.update(dict.fromkeys(inner.writes))
    return list(reads), list(writes)


def _inner_ops(op: Op) -> Iterator[Op]:
    for region in op.regions:
        for inner in region.graph.ops:
            yield inner
            yield from _inner_ops(inner)
