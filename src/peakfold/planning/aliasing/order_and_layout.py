"""Order, sharing and offsets chosen together: the order is taken only where the arena falls."""

from __future__ import annotations

from dataclasses import replace

from peakfold.analysis.graph.alias_facts import viewed
from peakfold.planning.aliasing.overlaps import with_all_overlaps
from peakfold.planning.context import Study
from peakfold.planning.lanes.packing import way_of_running
from peakfold.planning.modes import make_layout, slices_of
from peakfold.planning.order import best_order, bound_without_copies, sharing_of
from peakfold.units import round_up


def with_best_order(study: Study) -> Study:
    """The study in the order that gives the smaller arena, and with a sharper bound.

    The search looks for the lowest peak of live bytes under in-place results and views; each
    order it brings is then laid out with zero-copy concatenations chosen for it and packed, so
    the result is never worse than the file's order with any of these alone. Where a
    concatenation might be built in place, the bound is searched once more with all copies of
    concatenations left out. Where copying a slice might let its base be written in place, no
    searched bound holds and the one that holds for all sharing stays.
    """
    options = study.options
    found = best_order(study, time_limit=options.time_limit, seed=options.seed)
    orders, late = [found.order], found.late
    if any(fact.overlap for fact in study.facts):
        # What overlaps lowers peaks, so they need a search of their own; its bound holds for
        # any choice of them.
        full = with_all_overlaps(study, sharing_of(study))
        found = best_order(study, time_limit=options.time_limit, seed=options.seed, aliasing=full)
        orders.append(found.order)
        late = late or found.late
    zero_copy = options.zero_copy and study.target.zero_copy_concat and options.views
    if copies_may_help(study) or not study.bodies_proven:
        bound = 0
    elif zero_copy and any(fact.parts for fact in study.facts):
        bound = bound_without_copies(study, time_limit=options.time_limit, seed=options.seed)
    else:
        bound = found.bound
    # An arena ends on a multiple of the alignment, as every buffer does.
    bound = round_up(bound, study.policies.align)
    complete = study.complete and not late
    study = replace(study, any_order=max(study.any_order, bound), complete=complete)
    others = [order for order in dict.fromkeys(orders) if order != study.order]
    if not others:
        return study
    best, total = study, make_layout(study, "arena", _strategy(study)).total
    for order in others:
        other = replace(study, order=order, running=way_of_running(study.index, order, 1))
        tried = make_layout(other, "arena", _strategy(study)).total
        best, total = (other, tried) if tried < total else (best, total)
    return best


def copies_may_help(study: Study) -> bool:
    """Whether copying a slice instead of aliasing it could lower the live bytes of some order.

    It can only where the slice is what keeps an op from writing over the base: else
    the copy adds its bytes and frees none that the alias would not free.
    """
    index = study.index
    bases = set(slices_of(study).values())
    if not bases or not study.options.inplace:
        return False
    root = whole_views(study)
    sliced = {root[tensor] for tensor in bases}
    for op, fact in zip(study.graph.ops, study.facts, strict=True):
        for position in (*fact.inplace, *(overlap.input for overlap in fact.overlap)):
            name = op.inputs[position] if position < len(op.inputs) else ""
            if name and root[index.id_of[name]] in sliced:
                return True
    return False


def whole_views(study: Study) -> list[int]:
    """Per tensor, the tensor of which it is, through any number of views, all the bytes."""
    index = study.index
    root = list(range(len(index.nbytes)))
    for op, fact in zip(study.graph.ops, study.facts, strict=True):
        for tensor, host, _ in viewed(index, op, fact):
            if index.nbytes[tensor] == index.nbytes[host]:
                root[tensor] = root[host]
    return root


def _strategy(study: Study) -> str:
    return study.options.strategy if study.options.mode == "arena" else "best"
