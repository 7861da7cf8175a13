"""Bytes that no order of a fragment goes below, op by op."""

from __future__ import annotations

from peakfold.planning.order.fragment import Fragment, bits
from peakfold.planning.order.strip_model import Model

# Ancestors and descendants of more ops than this are not worth their memory.
_MANY = 10_000


def fragment_bound(fragment: Fragment) -> int:
    """The largest number of bytes that must be alive in the step of some op.

    In every order, when an op v runs, all its ancestors have run and none of its descendants.
    So alive are at least: each strip that was there before the fragment or was made by an
    ancestor of v, unless it may be dead (it dies in the fragment, and none of its readers is v
    or a descendant of v); the results of v, unless the first can lie over an operand whose
    other readers may all run before v (none is a descendant of v); and its scratch.

    Args:
        fragment: the ops.

    Returns:
        Bytes; at least what is alive in the first step of any order.

    Example:
        >>> from peakfold.planning.order.fragment import Fragment
        >>> two = Fragment(ops=(0, 1), need=(0, 0), succs=((), ()), extra=(9, 1),
        ...     hosts=((), ()), saving=(0, 0), gain=(1, 1), frees=((), ()), dying=(),
        ...     start=5, first=0)
        >>> fragment_bound(two)
        14
    """
    count = len(fragment.ops)
    if count > _MANY:  # neighbours only: fewer strips are sure to be alive, so this is lower
        before = list(fragment.need)
        after = [sum(1 << s for s in succs) for succs in fragment.succs]
    else:
        before, after = relatives(fragment)
    alive = [fragment.start - sum(w for maker, _, w in fragment.dying if maker < 0)] * count
    lasting = list(fragment.gain)
    for maker, readers, weight in fragment.dying:
        sure = 0
        for op in bits(readers):
            sure |= before[op] | 1 << op
        if maker >= 0:
            lasting[maker] -= weight
            sure &= after[maker]
        for op in bits(sure):
            alive[op] += weight
    for maker, weight in enumerate(lasting):
        if weight:
            for op in bits(after[maker]):
                alive[op] += weight
    bound = 0
    for op in range(count):
        saved = any(not others & after[op] for others in fragment.hosts[op])
        bound = max(bound, alive[op] + fragment.extra[op] - fragment.saving[op] * saved)
    return bound


def relatives(fragment: Fragment) -> tuple[list[int], list[int]]:
    """Per op, all its ancestors and all its descendants in the fragment, as sets.

    Args:
        fragment: the ops; cut from an order, so that each comes behind what it needs.
    """
    count = len(fragment.ops)
    before, after = [0] * count, [0] * count
    for op in range(count):
        for need in bits(fragment.need[op]):
            before[op] |= before[need] | 1 << need
    for op in reversed(range(count)):
        for follower in fragment.succs[op]:
            after[op] |= after[follower] | 1 << follower
    return before, after


def neighbour_bound(model: Model) -> list[int]:
    """Per op, bytes that must be alive in its step: what it reads, makes and scratches.

    This needs no ancestors, so it serves graphs of any size.

    Args:
        model: the strips.
    """
    bounds: list[int] = []
    for op in range(model.ops):
        alive = sum(model.weight[s] for s in model.reads[op])
        bounds.append(alive + model.fresh[op] + model.scratch[op] - model.saving[op])
    return bounds


def spot_bound(model: Model, op: int) -> int:
    """What `fragment_bound` says of one op, for graphs too large to ask it of all.

    Args:
        model: the strips.
        op: an op id.

    Returns:
        Bytes that are alive in the step of the op in every order.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> from peakfold.planning import PlanOptions
        >>> from peakfold.planning.order.strip_model import build_model
        >>> from peakfold.planning.planner import planning_context
        >>> from peakfold.planning.aliasing.records import Aliasing
        >>> g = parse_graph("peakfold-graph 1\\ninput x: int8[4]\\na: int8[40] = tile(x)\\n"
        ...     "b: int8[9] = opaque(a)\\nc: int8[9] = opaque(b)\\nd: int8[1] = opaque(a, c)"
        ...     "\\noutput d")
        >>> spot_bound(build_model(planning_context(g, PlanOptions(align=1)), Aliasing()), 2)
        58
    """
    before, after = _reached(model.preds, op), _reached(model.succs, op)
    later = after | {op}

    def needed(strip: int) -> bool:
        return model.kept[strip] or any(reader in later for reader in model.readers[strip])

    made = {strip for strips in model.makes for strip in strips}
    early = (strip for strip in range(len(model.weight)) if strip not in made)
    alive = sum(model.weight[s] for s in early if needed(s))
    alive += sum(model.weight[s] for a in before for s in model.makes[a] if needed(s))
    saved = any(
        not any(reader in after for s in host for reader in model.readers[s])
        for host in model.hosts[op]
    )
    return alive + model.fresh[op] + model.scratch[op] - model.saving[op] * saved


def _reached(edges: list[tuple[int, ...]], op: int) -> set[int]:
    """All ops that some edges lead to from an op."""
    found: set[int] = set()
    stack = list(edges[op])
    while stack:
        other = stack.pop()
        if other not in found:
            found.add(other)
            stack += edges[other]
    return found
