"""Every figure of a plan under its contract name; exact bytes, `None` = not known."""

from __future__ import annotations

from dataclasses import dataclass

from peakfold.planning.fit.total import Total
from peakfold.planning.plan import Mode, Search


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The figures of a plan.

    All ``*_bytes`` are padded to the plan's alignment, except static, input and output bytes,
    which are exact and stand beside the arena.

    Attributes:
        naive_bytes: every op result, views too, in a buffer of its own.
        inplace_bytes: naive with in-place results and views.
        share_bytes: shared objects without them.
        both_bytes: shared objects with them.
        arena_bytes: offsets in one arena, with in-place results and views.
        lower_bound_bytes: no offsets for this order and these buffers need less.
        objects_bound_bytes: no shared objects for this order and these buffers need less.
        any_order_bound_bytes: no order and no sharing needs less.
        gap: ``(arena - lower bound) / lower bound``; 0 when the bound is 0.
        optimal: the packing is proven minimal for this order.
        order_optimal: no order of this graph does better.
        workspace_known: whether every op's scratch is known and counted.
        peak_op: the op at which the chosen plan's live bytes peak.
        search: ``time limit`` where a limit ended the search of any mode, else ``complete``.
        cut_short: modes whose search it ended.
        plan_bytes: bytes of the plan that was asked for (`mode`).
        zero_copy_concats: concatenations whose parts are written in place.
        arena_copying_bytes: the arena if every concatenation copied its parts instead.
        overlaps: results written over part of an operand.
        arena_apart_bytes: the arena if none were.
        copies: outputs the runtime must copy.
        opaque_tensors: values whose size no graph states, outside every figure here.
        total: what the plan needs of the arena's memory, by use; `None` = not known.
        total_bytes: its sum; `None` where a term is not known.
        total_at_least_bytes: the sum of what is known.
        unknown: what takes more than was counted, in words.
        flash_bytes: of the model in flash; `None` where all of it lies in the arena's memory.
        code_bytes: of the runtime's own code: not known.
        budget_bytes: for the total.
        arena_budget_bytes: for the arena alone.
        flash_budget_bytes: for the model in flash.
        fits: whether every budget is met; `None` without any, or where `unknown` decides.
    """

    naive_bytes: int
    inplace_bytes: int
    share_bytes: int
    both_bytes: int
    arena_bytes: int
    lower_bound_bytes: int
    objects_bound_bytes: int
    any_order_bound_bytes: int
    gap: float
    optimal: bool
    order_optimal: bool
    workspace_known: bool
    order: str
    lanes: int | str
    static_bytes: int
    input_bytes: int
    output_bytes: int
    peak_op: str | None
    mode: str
    strategy: str
    search: Search
    cut_short: list[Mode]
    plan_bytes: int
    zero_copy_concats: int
    arena_copying_bytes: int
    overlaps: int
    arena_apart_bytes: int
    copies: int
    opaque_tensors: int
    total: Total
    total_bytes: int | None
    total_at_least_bytes: int
    unknown: list[str]
    flash_bytes: int | None
    code_bytes: int | None
    budget_bytes: int | None
    arena_budget_bytes: int | None
    flash_budget_bytes: int | None
    fits: bool | None
