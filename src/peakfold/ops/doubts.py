"""What of a graph is doubtful: what stands in the way of a proof, and what ``--strict`` refuses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from peakfold.ir.graph import Graph, walk_regions
from peakfold.ops import lookup

BELIEVED: Final = ("", "pf")
"""Sources whose author states every type: an op without a row is then no doubt."""

NAMED: Final = 8
"""Doubts of one kind that are written out."""
SHOWN: Final = 5
"""Tensors that one doubt names."""


def listed(lines: Iterable[str]) -> tuple[str, ...]:
    """Doubts as notes, no more than a reader looks at.

    Example:
        >>> listed(f"tensor {at}" for at in range(9))[-2:]
        ('tensor 7', 'and 1 more of this kind')
    """
    found = tuple(lines)
    more = (f"and {len(found) - NAMED} more of this kind",) if len(found) > NAMED else ()
    return (*found[:NAMED], *more)


def unsupported(graph: Graph) -> dict[str, int]:
    """Kinds without a row and how often they occur, regions included, sorted by name.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> unsupported(parse_graph("peakfold-graph 1\\ninput x: int8[4]\\n"
        ...                         "y: int8[4] = warp(x)\\noutput y"))
        {'warp': 1}
    """
    counts: dict[str, int] = {}
    for part in walk_regions(graph):
        for op in part.ops:
            if not lookup(op.kind).known and op.kind != "opaque":
                counts[op.kind] = counts.get(op.kind, 0) + 1
    return dict(sorted(counts.items()))


def doubts(graph: Graph) -> tuple[str, ...]:
    """Everything doubtful, a line each: contradictions, unknown ops, unknown sizes.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> text = "peakfold-graph 1\\ninput x: int8[4]\\ny: int8? = warp(x)\\noutput y"
        >>> doubts(parse_graph(text))
        ("op kind 'warp' is not known (1)", "size not known: 'y'")
    """
    found = [*graph.doubts]
    found += [f"op kind {kind!r} is not known ({n})" for kind, n in unsupported(graph).items()]
    open_ = [
        repr(tensor.name)
        for part in walk_regions(graph)
        for tensor in part.tensors
        if tensor.nbytes is None
    ]
    if open_:
        more = f" and {len(open_) - SHOWN} more" if len(open_) > SHOWN else ""
        found.append(f"size not known: {', '.join(open_[:SHOWN])}{more}")
    return tuple(found)
