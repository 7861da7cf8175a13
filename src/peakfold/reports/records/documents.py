"""Results -> the JSON records of `peakfold.reports.records`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from peakfold.ops import KINDS, CountRule, lookup
from peakfold.ops.rules import unknown
from peakfold.planning import PlanResult
from peakfold.planning.fit.total import Budgets
from peakfold.planning.lanes.tradeoff import TradeOff
from peakfold.reports.records import (
    CheckRecord,
    ClaimRecord,
    EdgeRecord,
    Given,
    KindRecord,
    LanesDocument,
    LanesRow,
    OpsDocument,
    PlanDocument,
    TargetRecord,
    TargetsDocument,
    TraceStep,
    VerifyDocument,
    schema_name,
)
from peakfold.reports.text.budget import answer
from peakfold.reports.text.step_lines import told
from peakfold.target import TARGETS, load_target


class CheckLike(Protocol):
    """One check of a judge, as `peakfold.judges.plan` returns it."""

    @property
    def name(self) -> str:
        """What was looked at."""

    @property
    def ok(self) -> bool:
        """Whether it holds."""

    @property
    def detail(self) -> str:
        """What was found."""


def plan_document(result: PlanResult, advice: Sequence[str] = ()) -> PlanDocument:
    """The output of ``plan --json``.

    Args:
        result: the planner's.
        advice: what else to tell.
    """
    loss, optimizer = told(result.context.options.train)
    return PlanDocument(
        schema=schema_name("plan-report"),
        loss=loss,
        optimizer=optimizer,
        answer=answer(result.need, Budgets.of(result.context.options), result.context.target),
        summary=result.summary,
        plan=result.plan,
        trace=None if result.trace is None else _trace(result),
        notes=[*result.context.graph.notes, *advice],
    )


def _trace(result: PlanResult) -> list[TraceStep]:
    index = result.context.index
    return [
        TraceStep(
            step=row.step,
            op=index.graph.ops[row.op].name,
            given=[
                Given(tensor=index.name(tensor), object=obj if obj >= 0 else None, how=how)
                for tensor, obj, how in row.given
            ],
            counters={index.name(tensor): left for tensor, left in row.counters},
            released=list(row.released),
            free=list(row.free),
        )
        for row in (result.trace.rows if result.trace else ())
    ]


class ClaimLike(Protocol):
    """A claim, as `peakfold.judges.plan` returns it."""

    @property
    def field(self) -> str:
        """Of the plan."""

    @property
    def detail(self) -> str:
        """Why it was not checked."""


def verify_document(
    checks: Iterable[CheckLike], claims: Iterable[ClaimLike] = ()
) -> VerifyDocument:
    """The output of ``verify --json``; a plan without a single check is not verified."""
    records = [CheckRecord(name=c.name, ok=c.ok, detail=c.detail) for c in checks]
    good = bool(records) and all(record.ok for record in records)
    claimed = [ClaimRecord(field=c.field, detail=c.detail) for c in claims]
    return VerifyDocument(schema=schema_name("verify"), ok=good, checks=records, claimed=claimed)


def ops_document() -> OpsDocument:
    """The registry, row by row."""
    rows = [lookup(kind) for kind in KINDS]
    return OpsDocument(
        schema=schema_name("ops"),
        ops=[
            KindRecord(
                kind=row.kind,
                inplace=bool(row.inplace) or row.inplace_if is not None,
                views=row.views is not None,
                parts=row.parts is not None,
                overlap=row.overlap is not None,
                workspace=_answers(row.workspace),
                macs=_answers(row.macs),
                shape=row.shape is not None,
                engine=row.engine,
            )
            for row in rows
        ],
    )


def _answers(rule: CountRule | None) -> bool:
    """Whether a row can tell a number, at least for some ops of its kind."""
    return rule is not None and rule is not unknown


def lanes_document(model: str, rows: Iterable[TradeOff]) -> LanesDocument:
    """The output of ``lanes --json``."""
    return LanesDocument(
        schema=schema_name("lanes"),
        model=model,
        rows=[
            LanesRow(
                lanes=row.lanes,
                makespan=row.makespan,
                speedup=row.speedup,
                arena_bytes=row.arena_bytes,
                lower_bound_bytes=row.lower_bound_bytes,
                optimal=row.optimal,
                edges=[EdgeRecord(before=before, after=after) for before, after in row.edges],
                search="complete" if row.complete else "time limit",
            )
            for row in rows
        ],
    )


def targets_document() -> TargetsDocument:
    """Every target file."""
    return TargetsDocument(
        schema=schema_name("targets"),
        targets=[
            TargetRecord(
                name=target.name,
                description=target.description,
                align=target.align,
                inputs=target.inputs,
                outputs=target.outputs,
                inplace_kinds=list(target.inplace_kinds),
                inplace_also=list(target.inplace_also),
                overlap_kinds=list(target.overlap_kinds),
                views=target.views,
                zero_copy_concat=target.zero_copy_concat,
                real=target.real,
                flash=list(target.flash),
                eager=target.eager,
                sources=dict(target.sources),
            )
            for target in map(load_target, TARGETS)
        ],
    )
