"""Orders to start from, each made in one pass: file, depth first, greedy."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush

from peakfold.planning.order.live_bytes import LiveBytes
from peakfold.planning.order.strip_model import Model


def greedy_order(model: Model) -> tuple[int, ...]:
    """Run next what leaves the fewest bytes more; of equals the one ready last.

    Growth falls when an op becomes the last reader of a strip, so it is put into the queue
    again then; entries are looked at afresh when they come up.

    Args:
        model: the strips.
    """
    alive = LiveBytes(model)
    missing = [len(preds) for preds in model.preds]
    heap = [(alive.growth(op), 0, op) for op in range(model.ops) if not missing[op]]
    heapify(heap)
    queued = {op: growth for growth, _, op in heap}
    since = dict.fromkeys(queued, 0)
    order: list[int] = []
    while heap:
        growth, _, op = heappop(heap)
        if queued.get(op) != growth:
            continue
        del queued[op]
        alive.run(op)
        order.append(op)
        changed = [a for a in model.succs[op] if _one_less(missing, a)]
        for op_ready in changed:
            since[op_ready] = -len(order)
        # A reader that is now the last one of a strip: it is found among the strip's readers.
        for strip in model.reads[op]:
            if alive.left[strip] == 1:
                changed += [r for r in model.readers[strip] if r in queued]
        for other in changed:
            now = alive.growth(other)
            if queued.get(other) != now:
                queued[other] = now
                heappush(heap, (now, since[other], other))
    return tuple(order)


def greedy_from_behind(model: Model) -> tuple[int, ...]:
    """Run last what leaves the fewest bytes alive before it; of equals the one free last.

    Seen from behind, an op ends the life of what it makes and begins that of what it reads,
    unless a later op reads that too. So values are made as late as their readers allow, which
    `greedy_order`, looking forward, cannot see.

    Args:
        model: the strips.
    """
    waiting = [len(succs) for succs in model.succs]
    begun = list(model.kept)

    def growth(op: int) -> int:
        total = sum(model.weight[s] for s in model.reads[op] if not begun[s])
        return total - sum(model.weight[s] for s in model.makes[op] if model.outlives(s))

    queued = {op: growth(op) for op in range(model.ops) if not waiting[op]}
    since = dict.fromkeys(queued, 0)
    heap = [(grows, 0, -op) for op, grows in queued.items()]
    heapify(heap)
    order: list[int] = []
    while heap:
        grows, _, op = heappop(heap)
        op = -op
        if queued.get(op) != grows:
            continue
        del queued[op]
        order.append(op)
        changed = [b for b in model.preds[op] if _one_less(waiting, b)]
        for free in changed:
            since[free] = -len(order)
        for strip in model.reads[op]:
            if not begun[strip]:
                begun[strip] = True
                changed += [r for r in model.readers[strip] if r in queued]
        for other in changed:
            now = growth(other)
            if queued.get(other) != now:
                queued[other] = now
                heappush(heap, (now, since[other], -other))
    return tuple(reversed(order))


def _one_less(missing: list[int], op: int) -> bool:
    missing[op] -= 1
    return missing[op] == 0


def depth_first(model: Model, rank: Callable[[int], tuple[int, int]]) -> tuple[int, ...]:
    """Reverse depth first: an op runs right after all it needs, for the last ops in turn.

    Args:
        model: edges of the graph.
        rank: of several ops needed, the lowest goes first.
    """
    order: list[int] = []
    seen = [False] * model.ops
    for last in (op for op in range(model.ops) if not model.succs[op]):
        stack = [(last, False)]
        while stack:
            op, expanded = stack.pop()
            if expanded:
                order.append(op)
            elif not seen[op]:
                seen[op] = True
                stack.append((op, True))
                needed = sorted((p for p in model.preds[op] if not seen[p]), key=rank)
                stack += [(p, False) for p in reversed(needed)]
    return tuple(order)


def labels(model: Model) -> list[tuple[int, int]]:
    """Per op, (bytes its subtree needs, bytes of its results), as if the graph were a tree.

    Sethi and Ullman 1970: below an op, run first the operand that needs most beyond what it
    leaves behind. On a graph that is no tree this is a guess, and only a start.

    Args:
        model: the strips.
    """
    found: list[tuple[int, int]] = []
    for op in range(model.ops):
        leaves = sum(model.weight[s] for s in model.makes[op] if model.outlives(s))
        held = 0
        need = model.fresh[op] + model.scratch[op]
        below = [found[p] for p in model.preds[op]]
        for child_need, child_leaves in sorted(below, key=lambda n: n[1] - n[0]):
            need = max(need, held + child_need)
            held += child_leaves
        found.append((max(need, held + model.fresh[op] + model.scratch[op]), leaves))
    return found


def start_orders(model: Model) -> list[tuple[str, tuple[int, ...]]]:
    """Named orders, the file's first.

    Args:
        model: the strips.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> from peakfold.planning import PlanOptions
        >>> from peakfold.planning.order.strip_model import build_model
        >>> from peakfold.planning.planner import planning_context
        >>> from peakfold.planning.aliasing.records import Aliasing
        >>> g = parse_graph("peakfold-graph 1\\ninput x: int8[4]\\na: int8[4] = tile(x)\\n"
        ...     "b: int8[1] = opaque(x)\\nc: int8[1] = opaque(a)\\noutput b, c")
        >>> for found in start_orders(build_model(planning_context(g, PlanOptions()), Aliasing())):
        ...     print(*found)
        file (0, 1, 2)
        smallest growth (0, 2, 1)
        from behind (0, 1, 2)
        depth first (1, 0, 2)
        largest need (1, 0, 2)
    """
    weights = labels(model)
    return [
        ("file", tuple(range(model.ops))),
        ("smallest growth", greedy_order(model)),
        ("from behind", greedy_from_behind(model)),
        ("depth first", depth_first(model, lambda op: (0, op))),
        ("largest need", depth_first(model, lambda op: (weights[op][1] - weights[op][0], op))),
    ]
