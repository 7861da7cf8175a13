"""Orders that effects impose: derived once, here, and obeyed by planners and judges alike.

An op that writes a `state` tensor must stay after the earlier ops that read or write it
(write after read, write after write), and an op that reads it after the last write
(read after write). Data edges between tensors are not repeated here.
"""

from __future__ import annotations

from peakfold.ir.graph import Graph


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
    edges: set[tuple[int, int]] = set()
    last_write: dict[str, int] = {}
    readers: dict[str, list[int]] = {}
    for at, op in enumerate(graph.ops):
        for name in op.reads:
            if name in last_write:
                edges.add((last_write[name], at))
            readers.setdefault(name, []).append(at)
        for name in op.writes:
            edges.update((before, at) for before in readers.get(name, ()) if before != at)
            if name in last_write:
                edges.add((last_write[name], at))
            last_write[name] = at
            readers[name] = []
    return tuple(sorted(edges))
