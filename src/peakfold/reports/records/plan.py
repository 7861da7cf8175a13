"""Records of plans: ``plan``, ``verify``, ``demo``, ``lanes``, ``modes``."""

from __future__ import annotations

from dataclasses import dataclass, field

from peakfold.planning.plan import Mode, Plan, Search
from peakfold.planning.summary import Summary


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Where one result of a step went: `how` is new, free, inplace, view or external."""

    tensor: str
    object: int | None
    how: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceStep:
    """One step of the reference-counting run.

    Attributes:
        counters: readers left after the step, of the tensors whose count changed.
        released: objects put into the box at this step.
        free: the box after the step, oldest first.
    """

    step: int
    op: str
    given: list[Given]
    counters: dict[str, int]
    released: list[int]
    free: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDocument:
    """Output of ``plan --json``; `trace` is `None` unless it was asked for.

    Attributes:
        answer: the verdict, where budgets are given, and what is needed, in words.
        loss, optimizer: of a training step, in words; `null` of a forward pass.
    """

    schema: str
    summary: Summary
    plan: Plan
    trace: list[TraceStep] | None = None
    notes: list[str]
    answer: str
    loss: str | None
    optimizer: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRecord:
    """One check of a judge."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRecord:
    """What a plan says and no judge derived."""

    field: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyDocument:
    """Output of ``verify --json``; `ok` rests on the checks alone."""

    schema: str
    ok: bool
    checks: list[CheckRecord]
    claimed: list[ClaimRecord]


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoDocument:
    """Output of ``demo --json``."""

    schema: str
    model: str
    summary: Summary
    verified: VerifyDocument
    written: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeRecord:
    """`after` waits for `before`, which the graph alone would not ask for."""

    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LanesRow:
    """One way of running; `makespan` counts bytes of results, until times are known.

    Attributes:
        search: ``time limit`` where a limit ended the search for a smaller arena.
    """

    lanes: int | str
    makespan: int
    speedup: float
    arena_bytes: int
    lower_bound_bytes: int
    optimal: bool
    edges: list[EdgeRecord]
    search: Search = "complete"


@dataclass(frozen=True, slots=True, kw_only=True)
class LanesDocument:
    """Output of ``lanes --json``."""

    schema: str
    model: str
    rows: list[LanesRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModesRow:
    """One model in one kind of run, in every mode.

    Attributes:
        search: ``time limit`` where a limit ended the search of a mode.
        cut_short: those modes.
    """

    model: str
    run: str
    naive_bytes: int
    inplace_bytes: int
    share_bytes: int
    both_bytes: int
    arena_bytes: int
    lower_bound_bytes: int
    search: Search = "complete"
    cut_short: list[Mode] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModesDocument:
    """Output of ``modes --json``.

    Attributes:
        loss, optimizer: of the training steps, in words; `null` where there are none.
    """

    schema: str
    target: str
    rows: list[ModesRow]
    loss: str | None
    optimizer: str | None
