"""A model's account and cost -> the JSON document of ``inspect``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from peakfold.analysis import Cost, OpCost, Total
from peakfold.analysis.cost.breakdown import Breakdown, OpAccount
from peakfold.analysis.time.timing import Timing
from peakfold.ir import Role
from peakfold.reports.records import (
    BodyRecord,
    DynamicRecord,
    GroupRecord,
    InspectDocument,
    ModelRecord,
    OpRecord,
    PerSample,
    StaticRecord,
    Totals,
    UnsupportedKind,
    schema_name,
)
from peakfold.reports.records.extras import Extras, lint_records, sparsity_record
from peakfold.reports.records.timing import op_times, timing_record
from peakfold.reports.text.inspect import ModelFacts


def inspect_document(
    model: ModelFacts,
    found: Breakdown,
    cost: Cost,
    unsupported: Mapping[str, int],
    notes: Sequence[str],
    rate: float = 1.0,
    timing: Timing | None = None,
    measured_s: float | None = None,
    batches: Sequence[int] = (),
    extras: Extras | None = None,
) -> InspectDocument:
    """The output of ``inspect --json``.

    Args:
        model: which model.
        found: bytes by role and op.
        cost: of the same graph, op for op.
        unsupported: kinds without a row.
        notes: what the front end noted.
        rate: samples per second that the bandwidth is asked for.
        timing: of the same graph, when a device was named.
        measured_s: seconds of a run, for the utilisation.
        batches: batch sizes to tell the bound at.
        extras: advice and effective counts, where they were asked for.
    """
    times = op_times(timing, len(cost.ops))
    return InspectDocument(
        schema=schema_name("inspect"),
        model=ModelRecord(
            name=model.name,
            format=model.format,
            ops=model.ops,
            tensors=model.tensors,
            folded_ops=model.folded,
        ),
        totals=_totals(found, cost, rate, None if timing is None else timing.time_s),
        static=StaticRecord(**{role.value: nbytes for role, nbytes in found.static.items()}),
        dynamic=DynamicRecord(
            activation=found.activation, workspace=found.workspace, gradient=found.gradient
        ),
        input_bytes=found.inputs,
        output_bytes=found.outputs,
        ops=[
            _op(account, op, time_s, bound)
            for account, op, (time_s, bound) in zip(found.ops, cost.ops, times, strict=True)
        ],
        timing=None if timing is None else timing_record(timing, measured_s, batches),
        scopes=[_group(name, total) for name, total in cost.by_scope().items()],
        kinds=[_group(name, total) for name, total in cost.by_kind().items()],
        unsupported=_kinds(unsupported),
        uncounted=_kinds(cost.unsupported()),
        lints=lint_records(extras or Extras()),
        sparsity=sparsity_record(extras or Extras()),
        opaque=list(found.opaque),
        notes=list(notes),
    )


def _totals(found: Breakdown, cost: Cost, rate: float, time_s: float | None) -> Totals:
    total = cost.total()
    f = total.figures
    each = PerSample(
        flops=cost.per_sample(f.flops),
        bytes_moved=cost.per_sample(f.bytes_moved),
        fused_bytes_moved=cost.per_sample(f.fused_bytes),
    )
    return Totals(
        params=f.params or 0,
        trainable=cost.trainable,
        statistics=cost.statistics,
        param_bytes=found.static[Role.PARAMETER],
        param_bytes_by_dtype=dict(cost.param_bytes),
        macs=f.macs,
        other_ops=f.other_ops,
        flops=f.flops,
        bytes_moved=f.bytes_moved,
        fused_bytes_moved=f.fused_bytes,
        intensity=f.intensity,
        activation_elements=f.elements,
        lower_bounds=list(total.lower_bounds),
        batch=cost.batch,
        batch_from=cost.batch_from,
        per_sample=each,
        rate=rate,
        bandwidth_need=None if each.bytes_moved is None else each.bytes_moved * rate,
        causal=cost.options.causal,
        causal_ops=cost.halved,
        open_loops=list(cost.open_loops),
        time_s=time_s,
    )


def _op(account: OpAccount, op: OpCost, time_s: float | None, bound: str | None) -> OpRecord:
    f = op.figures
    return OpRecord(
        name=op.name,
        kind=op.kind,
        scope=op.scope,
        engine=op.engine,
        dtype=op.dtype,
        macs=f.macs,
        other_ops=f.other_ops,
        flops=f.flops,
        params=f.params or 0,
        activation_elements=f.elements,
        bytes_read=f.read,
        bytes_written=f.written,
        bytes_moved=f.bytes_moved,
        fused_bytes_moved=f.fused_bytes,
        trips=op.trips,
        bodies=[_body(label, body) for label, body in op.bodies],
        static_bytes=account.static_bytes,
        output_bytes=account.output_bytes,
        workspace_bytes=account.workspace,
        intensity=f.intensity,
        time_s=time_s,
        bound=bound,
    )


def _body(label: str, body: Cost) -> BodyRecord:
    f = body.total().figures
    return BodyRecord(label=label, macs=f.macs, flops=f.flops, bytes_moved=f.bytes_moved)


def _group(name: str, total: Total) -> GroupRecord:
    f = total.figures
    return GroupRecord(
        name=name,
        ops=total.ops,
        macs=f.macs,
        flops=f.flops,
        params=f.params,
        bytes_moved=f.bytes_moved,
        fused_bytes_moved=f.fused_bytes,
        output_bytes=f.output_bytes,
        intensity=f.intensity,
        lower_bounds=list(total.lower_bounds),
    )


def _kinds(counts: Mapping[str, int]) -> list[UnsupportedKind]:
    return [UnsupportedKind(kind=kind, count=count) for kind, count in counts.items()]
