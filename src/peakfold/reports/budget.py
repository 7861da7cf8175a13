"""Whether a plan meets its budget, and how sure that is."""

from __future__ import annotations

from peakfold.planning import Plan, Summary
from peakfold.units import format_bytes


def budget_miss(summary: Summary, plan: Plan) -> str | None:
    """Why a plan misses its budget, with what is proven about it; `None` when it fits."""
    budget = summary.budget_bytes
    if budget is None or plan.arena_bytes <= budget:
        return None
    need = short_of("the plan", plan.arena_bytes, budget)
    if plan.doubtful:
        proof = "not proven: shapes or ops of the model are doubtful"
    elif plan.bound.any_order > budget:
        proof = f"proven: every order needs {format_bytes(plan.bound.any_order)} or more"
    elif plan.mode != "arena":
        proof = "mode arena may need less"
    elif plan.bound.offsets > budget:
        proof = f"proven: this order needs {format_bytes(plan.bound.offsets)} or more"
    else:
        proof = "not proven that it cannot fit: a longer --time-limit may help"
    return f"{need} ({proof})"


def short_of(who: str, need: int, have: int) -> str:
    """That something needs more bytes than there are.

    Example:
        >>> short_of("the plan", 2048, 1024)
        'does not fit: the plan needs 2.000 KiB (2048 B), the budget is 1.000 KiB (1024 B)'
    """
    return (
        f"does not fit: {who} needs {format_bytes(need)} ({need} B), "
        f"the budget is {format_bytes(have)} ({have} B)"
    )
