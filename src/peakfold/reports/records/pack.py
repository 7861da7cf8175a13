"""Records of memory that must fit: ``fit`` and ``pack``."""

from __future__ import annotations

from dataclasses import dataclass

from peakfold.packing.problem import Search as PackSearch
from peakfold.planning.fit.total import Total
from peakfold.planning.plan import Search


@dataclass(frozen=True, slots=True, kw_only=True)
class LeverRecord:
    """One lever, on top of the free ones before it.

    Attributes:
        peak_bytes: the arena with it.
        need_bytes: in all; a lower bound where `unknown` of the document is not empty.
        extra_flops: operations it adds to a run; `null` = not known.
        extra_time_s: seconds those take at least, by the roofline of the device; `null` = not
            known.
        why_unknown: why one of the two is `null`; empty otherwise.
        applied: part of the plan that `fit` recommends.
        changes_model: a what-if; the results would be others.
        flag: what to give ``peakfold plan`` for it.
        search: ``time limit`` where a limit ended the search for its arena.
    """

    what: str
    peak_bytes: int
    need_bytes: int
    extra_flops: int | None
    extra_time_s: float | None
    why_unknown: str
    applied: bool
    changes_model: bool
    flag: str
    search: Search = "complete"


@dataclass(frozen=True, slots=True, kw_only=True)
class FitDocument:
    """Output of ``fit --json``.

    Attributes:
        fits: whether the model does as it is, by a plan that adds no work to a run; `null` where
            `unknown` decides.
        answer: the verdict and the figures it rests on, in words.
        plan_fits: the same of the recommended plan, which may have bands of rows.
        plan_answer: its words, where it is not the model as it is; empty otherwise.
        need_bytes: what the model as it is takes of the memory of `have_bytes`:
            `total_at_least_bytes`.
        have_bytes: for the total; `null` where only the arena has a budget.
        have_arena_bytes, have_flash_bytes: for the arena alone, and in flash; `null` = not asked.
        flash_bytes: of the model in flash; `null` where all of it lies in the arena's memory.
        code_bytes: of the runtime's own code: not known.
        total: what the model as it is takes of the arena's memory, by use; `null` = not known.
        total_bytes: its sum; `null` where a term is not known.
        total_at_least_bytes: the sum of what is known.
        unknown: what takes more than was counted, in words.
        beside_bytes: of it, what is no arena.
        bound_bytes: no order and no layout of the unchanged network needs less arena; `null`
            where shapes or ops are doubtful.
        largest_batch: `null` where the network does not scale with its first dimension, or where
            `unknown` decides.
        batch_note: why it is `null`, or why a larger one may fit; empty otherwise.
        plan_flags: what to give ``peakfold plan`` for the recommended plan.
        notes: what else to know.
        search: ``time limit`` where a limit ended any of its searches.
        loss, optimizer: of a training step, in words; `null` of a forward pass.
    """

    schema: str
    model: str
    device: str | None
    fits: bool | None
    answer: str
    plan_fits: bool | None
    plan_answer: str
    need_bytes: int
    have_bytes: int | None
    have_arena_bytes: int | None
    have_flash_bytes: int | None
    flash_bytes: int | None
    code_bytes: int | None
    total: Total
    total_bytes: int | None
    total_at_least_bytes: int
    beside_bytes: int
    bound_bytes: int | None
    largest_batch: int | None
    batch_note: str
    plan_flags: str
    unknown: list[str]
    notes: list[str]
    options: list[LeverRecord]
    search: Search = "complete"
    loss: str | None
    optimizer: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CulpritsRecord:
    """Buffers that cannot fit the capacity together.

    Attributes:
        irreducible: without any one of them the others are known to fit.
        reason: load (alive at one time) or search (no arrangement).
        time: a step at which they live together, for load.
    """

    buffers: list[str]
    bound_bytes: int
    irreducible: bool
    reason: str
    time: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BankRecord:
    """One memory of several; `cost` is the price of a byte of a buffer that lies there."""

    name: str
    capacity_bytes: int | None
    cost: float
    height_bytes: int
    buffers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PackDocument:
    """Output of ``pack --json``.

    Attributes:
        height_bytes: None without a packing, and with banks, which have heights of their own.
        status: solved, infeasible (proven) or timeout (unknown).
        missing_bytes: from the capacity to the bound (infeasible) or to the best (timeout).
        moved: with ``--replan``, who lies elsewhere than before.
        cost: with ``--banks``, bytes times the cost of their bank, summed.
        search: ``complete``, or which limit ended it: ``time limit`` or ``node limit``.
    """

    schema: str
    buffers: int
    capacity_bytes: int | None
    height_bytes: int | None
    lower_bound_bytes: int | None
    gap: float | None
    optimal: bool
    status: str
    missing_bytes: int
    strategy: str | None
    seconds: float
    culprits: CulpritsRecord | None = None
    moved: list[str] | None = None
    banks: list[BankRecord] | None = None
    cost: float | None = None
    search: PackSearch = "complete"
