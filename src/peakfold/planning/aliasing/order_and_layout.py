"""Order, sharing and offsets chosen together: the order is taken only where the arena falls."""

from __future__ import annotations

from dataclasses import replace

from peakfold.analysis.graph.alias_facts import viewed
from peakfold.planning.aliasing.overlaps import with_all_overlaps
from peakfold.planning.context import PlanningContext
from peakfold.planning.lanes.packing import execution_for
from peakfold.planning.modes import make_layout, slices_of
from peakfold.planning.order import best_order, bound_without_copies
from peakfold.units import round_up


def with_best_order(context: PlanningContext) -> PlanningContext:
    """The context in the order that gives the smaller arena, and with a sharper bound.

    The search looks for the lowest peak of live bytes under in-place results and views; each
    order it brings is then laid out with zero-copy concatenations chosen for it and packed, so
    the result is never worse than the file's order with any of these alone. Where a
    concatenation might be built in place, the bound is searched once more with all copies of
    concatenations left out. Where copying a slice might let its base be written in place, no
    searched bound holds and the one that holds for all sharing stays.
    """
    options = context.options
    found = best_order(context, time_limit=options.time_limit, seed=options.seed)
    orders, late = [found.order], found.late
    if any(fact.overlap for fact in context.facts):
        # What overlaps lowers peaks, so they need a search of their own; its bound holds for
        # any choice of them.
        full = with_all_overlaps(context, context.full_aliasing)
        found = best_order(context, time_limit=options.time_limit, seed=options.seed, aliasing=full)
        orders.append(found.order)
        late = late or found.late
    zero_copy = options.zero_copy and context.target.zero_copy_concat and options.views
    if copies_may_help(context) or not context.bodies_proven:
        bound = 0
    elif zero_copy and any(fact.parts for fact in context.facts):
        bound = bound_without_copies(context, time_limit=options.time_limit, seed=options.seed)
    else:
        bound = found.bound
    # An arena ends on a multiple of the alignment, as every buffer does.
    bound = round_up(bound, context.policies.align)
    complete = context.complete and not late
    context = replace(context, any_order=max(context.any_order, bound), complete=complete)
    others = [order for order in dict.fromkeys(orders) if order != context.order]
    if not others:
        return context
    best, total = context, make_layout(context, "arena", _strategy(context)).total
    for order in others:
        other = replace(context, order=order, execution=execution_for(context.index, order, 1))
        tried = make_layout(other, "arena", _strategy(context)).total
        best, total = (other, tried) if tried < total else (best, total)
    return best


def copies_may_help(context: PlanningContext) -> bool:
    """Whether copying a slice instead of aliasing it could lower the live bytes of some order.

    It can only where the slice is what keeps an op from writing over the base: else
    the copy adds its bytes and frees none that the alias would not free.
    """
    index = context.index
    bases = set(slices_of(context).values())
    if not bases or not context.options.inplace:
        return False
    root = whole_views(context)
    sliced = {root[tensor] for tensor in bases}
    for op, fact in zip(context.graph.ops, context.facts, strict=True):
        for position in (*fact.inplace, *(overlap.input for overlap in fact.overlap)):
            name = op.inputs[position] if position < len(op.inputs) else ""
            if name and root[index.id_of[name]] in sliced:
                return True
    return False


def whole_views(context: PlanningContext) -> list[int]:
    """Per tensor, the tensor of which it is, through any number of views, all the bytes."""
    index = context.index
    root = list(range(len(index.nbytes)))
    for op, fact in zip(context.graph.ops, context.facts, strict=True):
        for tensor, host, _ in viewed(index, op, fact):
            if index.nbytes[tensor] == index.nbytes[host]:
                root[tensor] = root[host]
    return root


def _strategy(context: PlanningContext) -> str:
    return context.options.strategy if context.options.mode == "arena" else "best"
