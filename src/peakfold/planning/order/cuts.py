"""Where every order passes through the same state: the graph falls into pieces there."""

from __future__ import annotations

from peakfold.planning.order.strip_model import Model

# With more ops ready than this, a cut is not looked for: such cuts are rare and cost time.
_READY = 8


def forced_cuts(model: Model) -> tuple[int, ...]:
    """Sizes k for which every order runs the same k ops first, 0 and all ops included.

    Let P be the first k ops of one order. Every order starts with P exactly if each op of P
    comes before each op outside in every order. That holds if each op of P that nothing in P
    follows comes before each op that is ready after P; between two such ops there is no room
    for a third, so each such pair must be an edge of the graph. A forced P is a prefix of
    every order, so looking along one order finds all of them (up to `_READY` ready ops).

    Between neighbouring cuts orders are chosen independently: what is alive at a cut follows
    from the ops that have run, so the peak of an order is the largest peak of its pieces.

    Args:
        model: edges of the graph.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> from peakfold.planning import PlanOptions
        >>> from peakfold.planning.order.strip_model import build_model
        >>> from peakfold.planning.planner import planning_context
        >>> from peakfold.planning.aliasing.records import Aliasing
        >>> g = parse_graph("peakfold-graph 1\\ninput x: int8[4]\\na: int8[4] = tile(x)\\n"
        ...     "b: int8[4] = tile(a)\\nc: int8[4] = tile(a)\\nd: int8[4] = add(b, c)\\noutput d")
        >>> forced_cuts(build_model(planning_context(g, PlanOptions()), Aliasing()))
        (0, 1, 3, 4)
    """
    missing = [len(preds) for preds in model.preds]
    ready = {op: None for op, count in enumerate(missing) if count == 0}
    ends: set[int] = set()
    cuts = [0]
    for op in range(model.ops):
        del ready[op]
        ends.difference_update(model.preds[op])
        ends.add(op)
        for after in model.succs[op]:
            missing[after] -= 1
            if missing[after] == 0:
                ready[after] = None
        if len(ready) <= _READY and all(
            len(model.preds[after]) >= len(ends) and ends.issubset(model.preds[after])
            for after in ready
        ):
            cuts.append(op + 1)
    return tuple(cuts)
