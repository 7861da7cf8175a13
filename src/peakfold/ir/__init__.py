"""The graph IR: element types, frozen graph records, the checker and the text form."""

from peakfold.ir.check import check_graph, check_nesting
from peakfold.ir.effects import effect_edges
from peakfold.ir.graph import (
    AttrValue,
    Graph,
    Op,
    OverlapFact,
    Region,
    Role,
    Stated,
    Tensor,
    ViewFact,
    unbound,
    walk_regions,
)
from peakfold.ir.text import parse_graph, print_graph
from peakfold.ir.types import DTYPES, MAX_RANK, OPAQUE, Dim, DType, Shape, compatible, element_count

__all__ = [
    "DTYPES",
    "MAX_RANK",
    "OPAQUE",
    "AttrValue",
    "DType",
    "Dim",
    "Graph",
    "Op",
    "OverlapFact",
    "Region",
    "Role",
    "Shape",
    "Stated",
    "Tensor",
    "ViewFact",
    "check_graph",
    "check_nesting",
    "compatible",
    "effect_edges",
    "element_count",
    "parse_graph",
    "print_graph",
    "unbound",
    "walk_regions",
]
