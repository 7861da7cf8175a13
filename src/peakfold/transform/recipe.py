"""Recipes: graph steps by the names under which a plan records and replays them."""

from __future__ import annotations

from collections.abc import Iterable

from peakfold.errors import InvalidPlan
from peakfold.ir import Graph
from peakfold.transform.fold import Fold

_STEPS = {"fold": Fold(), "fold-weights": Fold(weights=True)}


def replay(graph: Graph, recipe: Iterable[str]) -> Graph:
    """The graph after the recorded steps, in order.

    Raises:
        InvalidPlan: a step this version does not know.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> g = parse_graph("peakfold-graph 1\\ninput x: int8[4]\\ny: int8[4] = relu(x)\\noutput y")
        >>> replay(g, ["fold"]) is g
        True
    """
    for name in recipe:
        if name not in _STEPS:
            known = ", ".join(_STEPS)
            raise InvalidPlan(f"its recipe has the unknown step {name!r}", hint=f"known: {known}")
        graph = _STEPS[name](graph)
    return graph
