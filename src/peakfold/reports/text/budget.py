"""Whether a need meets its budgets, in words: one answer for every verb that asks."""

from __future__ import annotations

from peakfold.planning import PlanResult
from peakfold.planning.fit.total import COUNTED, Budgets, Need, Total
from peakfold.reports.text.tables import listed
from peakfold.target import Target
from peakfold.units import format_bytes

_WORDS = {
    "arena": "arena",
    "static": "weights and state",
    "input": "inputs",
    "output": "outputs",
    "scratch": "scratch",
    "runtime": "runtime",
    "context": "context",
}


def answer(need: Need, budgets: Budgets, target: Target) -> str:
    """The verdict, and what is needed of what there is; without budgets only what is needed.

    Args:
        need: of the plan.
        budgets: what there is.
        target: whose rules hold.

    Example:
        >>> from peakfold.planning.fit.total import alone
        >>> from peakfold.target import load_target
        >>> answer(alone(2048), Budgets(total=1024), load_target("mxnet"))
        'does not fit: needs 2.000 KiB of 1.000 KiB'
    """
    verdict = "" if budgets == Budgets() else _verdict(budgets.verdict(need), target)
    counted = "" if verdict or target.real else f" ({COUNTED})"
    least = "at least " if need.unknown and not need.sizes else ""
    ram = f"{least}{_of(need.at_least, budgets.total)}{counted}"
    arena = "" if budgets.arena is None else f", arena {_of(need.arena, budgets.arena)}"
    doubts = f"; not known: {listed(need.unknown)}" if need.unknown else ""
    if need.flash is None:
        return f"{verdict}needs {ram}{arena}{doubts}"
    flash = _of(need.flash, budgets.flash)
    return f"{verdict}RAM {ram}{arena}, flash {flash}; code size unknown{doubts}"


def _verdict(fits: bool | None, target: Target) -> str:
    if fits is None:
        return "not known whether it fits: "
    if not fits:
        return "does not fit: "
    return "fits: " if target.real else f"fits ({COUNTED}): "


def _of(need: int, have: int | None) -> str:
    return format_bytes(need) + ("" if have is None else f" of {format_bytes(have)}")


def terms(total: Total) -> str:
    """What the total is made of; terms of no bytes are left out.

    Example:
        >>> from peakfold.planning.fit.total import alone
        >>> terms(alone(2048).total)
        'arena 2.000 KiB'
    """
    found = {word: getattr(total, name) for name, word in _WORDS.items()}
    return " + ".join(
        f"{word} {'unknown' if nbytes is None else format_bytes(nbytes)}"
        for word, nbytes in found.items()
        if nbytes != 0 or word == "arena"
    )


def budget_miss(result: PlanResult) -> str | None:
    """Why a plan misses its budgets, with what is proven about it; `None` when it does not."""
    need, budgets, plan = result.need, Budgets.of(result.context.options), result.plan
    said = miss("the plan", need, budgets)
    over = budgets.over(need)
    if said is None or over <= 0:  # or it is the flash, of which nothing is to be proven
        return said
    allowed = plan.arena_bytes - over
    beside = plan.arena_bytes - need.at_least if _by_total(need, budgets) else 0
    if plan.doubtful:
        proof = "not proven: shapes or ops of the model are doubtful"
    elif plan.bound.any_order > allowed:
        proof = f"proven: every order needs {format_bytes(plan.bound.any_order - beside)} or more"
    elif plan.mode != "arena":
        proof = "mode arena may need less"
    elif plan.bound.offsets > allowed:
        proof = f"proven: this order needs {format_bytes(plan.bound.offsets - beside)} or more"
    else:
        proof = "not proven that it cannot fit: a longer --time-limit may help"
    return f"{said} ({proof})"


def _by_total(need: Need, budgets: Budgets) -> bool:
    return budgets.total is not None and need.at_least > budgets.total


def miss(who: str, need: Need, budgets: Budgets) -> str | None:
    """The first budget that a need misses, or what must be known to tell; else `None`.

    Args:
        who: has the need.
        need: of all memories.
        budgets: what there is.

    Example:
        >>> from peakfold.planning.fit.total import alone
        >>> miss("the plan", alone(2048), Budgets(arena=1024))
        'does not fit: the arena needs 2.000 KiB (2048 B), the budget is 1.000 KiB (1024 B)'
    """
    sure = need.sure
    pairs = [
        (who, sure.at_least, budgets.total),
        ("the arena", sure.arena, budgets.arena),
        ("in flash the model", need.flash or 0, budgets.flash),
    ]
    for what, nbytes, have in pairs:
        if have is not None and nbytes > have:
            return short_of(what, nbytes, have)
    doubts = budgets.doubts(need)
    if doubts:
        return f"not known whether it fits: it hangs on {listed(doubts)}"
    return None


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
