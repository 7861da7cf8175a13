"""Order, sharing and offsets chosen together: the order is taken only where the arena falls."""

from __future__ import annotations

from dataclasses import replace

from peakfold.planning.layouts import make_layout
from peakfold.planning.order import best_order, bound_without_copies
from peakfold.planning.parallel import way_of_running
from peakfold.planning.study import Study


def with_best_order(study: Study) -> Study:
    """The study in the order that gives the smaller arena, and with a sharper bound.

    The search looks for the lowest peak of live bytes under in-place results and views; each
    order it brings is then laid out with zero-copy concatenations chosen for it and packed, so
    the result is never worse than the file's order with any of these alone. Where a
    concatenation might be built in place, the bound is searched once more with all copies of
    concatenations left out.
    """
    options = study.options
    found = best_order(study, time_limit=options.time_limit, seed=options.seed)
    zero_copy = options.zero_copy and study.target.zero_copy_concat and options.views
    if zero_copy and any(fact.parts for fact in study.facts):
        bound = bound_without_copies(study, time_limit=options.time_limit, seed=options.seed)
    else:
        bound = found.bound
    study = replace(study, any_order=max(study.any_order, bound))
    if found.order == study.order:
        return study
    running = way_of_running(study.index, found.order, 1)
    other = replace(study, order=found.order, running=running)
    file_total = make_layout(study, "arena", _strategy(study)).total
    return other if make_layout(other, "arena", _strategy(study)).total < file_total else study


def _strategy(study: Study) -> str:
    return study.options.strategy if study.options.mode == "arena" else "best"
