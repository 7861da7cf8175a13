"""The JSON of every verb, as records: the contract's keys, exact bytes, `None` = not known.

The JSON Schemas in ``docs/schema`` are made from these types.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from peakfold.analysis.profile import Profile
from peakfold.planning.plan import Plan
from peakfold.planning.summary import Summary
from peakfold.reports.compare import CompareDocument
from peakfold.reports.device_records import DevicesDocument
from peakfold.reports.extras import LintRecord, SparsityRecord
from peakfold.reports.layers import LayersDocument
from peakfold.reports.timing_records import TimingRecord
from peakfold.target import Eager

VERSION = 1


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
    """Output of ``plan --json``; `trace` is `None` unless it was asked for."""

    schema: str
    summary: Summary
    plan: Plan
    trace: list[TraceStep] | None = None
    notes: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingStep:
    """One training step, run op by op; bytes.

    Attributes:
        peak_bytes: most that is alive at once, static memory included.
        static_bytes: what is there before the step.
        phases: the peak of each phase.
        at_peak_by_role: parameter, state, input, gradient, optimizer_state, saved for the
            backward pass, output, temporary.
    """

    peak_bytes: int
    static_bytes: int
    dynamic_bytes: int
    phases: dict[str, int]
    at_peak_by_role: dict[str, int]
    at_peak_by_scope: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorRecord:
    """A GPU's caching allocator, replayed; the larger of both steps.

    Attributes:
        library_bytes: workspaces that libraries keep, part of the figures before.
        context_bytes: taken beside the allocator.
    """

    allocated_bytes: int
    reserved_bytes: int
    expandable_reserved_bytes: int
    library_bytes: int
    context_bytes: int
    verified: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep:
    """A step, predicted and run; bytes, static memory included.

    Attributes:
        predicted_bytes: storages of a step on tensors without memory.
        tensor_bytes: storages followed through a real step.
        predicted_with_scratch_bytes: with the scratch of kernels, each measured alone.
        allocator_bytes: every allocation of a real step.
        phases: predicted and followed peak by phase.
    """

    predicted_bytes: int
    tensor_bytes: int
    predicted_with_scratch_bytes: int
    allocator_bytes: int
    phases: dict[str, tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureTrainingDocument:
    """Output of ``measure --runtime torch --train --json``.

    Attributes:
        before_bytes: a step's results without any reuse; `null`, torch always reuses.
        planned_bytes: the steady step as predicted, scratch included.
        after_bytes: the steady step's allocations as measured.
        obeyed: storages within 0.2 %, allocations within 1 % of the prediction, both steps.
        outputs_equal: `null`: no plan changes what is computed.
    """

    schema: str
    runtime: str
    model: str
    notes: list[str]
    before_bytes: int | None
    planned_bytes: int
    after_bytes: int
    obeyed: bool
    outputs_equal: bool | None
    first: MeasuredStep
    steady: MeasuredStep


@dataclass(frozen=True, slots=True, kw_only=True)
class ModesRow:
    """One model in one kind of run, in every mode."""

    model: str
    run: str
    naive_bytes: int
    inplace_bytes: int
    share_bytes: int
    both_bytes: int
    arena_bytes: int
    lower_bound_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModesDocument:
    """Output of ``modes --json``."""

    schema: str
    target: str
    rows: list[ModesRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingLever:
    """One change of a training step that keeps its result; a real capture's figure."""

    what: str
    peak_bytes: int
    fits: bool
    extra_flops: int | None
    extra_time_s: float | None
    applied: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingFitDocument:
    """Output of ``fit --train --json`` for a torch module."""

    schema: str
    model: str
    notes: list[str]
    device: str | None
    fits: bool
    need_bytes: int
    have_bytes: int
    largest_batch: int
    options: list[TrainingLever]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingDocument:
    """Output of ``plan --train --json`` for a torch module.

    Attributes:
        devices: how many share the batch in data parallel; 1 = it fits one; `null` = not known,
            or no number helps.
        summary, plan: of the steady step's graph, as in a plan report.
    """

    schema: str
    model: str
    notes: list[str]
    first: TrainingStep
    steady: TrainingStep
    cuda: AllocatorRecord | None
    device: str | None
    have_bytes: int | None
    need_bytes: int | None
    fits: bool | None
    devices: int | None
    summary: Summary
    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRecord:
    """Which model; `ops` and `tensors` are counted after folding."""

    name: str
    format: str
    ops: int
    tensors: int
    folded_ops: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PerSample:
    """One run divided by its batch; `None` = not known, or no batch is."""

    flops: float | None
    bytes_moved: float | None
    fused_bytes_moved: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Figures of the whole model, one run.

    Attributes:
        params: weights, each once; BatchNorm statistics, scales, indices are `statistics`.
        trainable: those that training adjusts, where the model says.
        param_bytes: bytes of everything stored, by element type in `param_bytes_by_dtype`.
        macs, flops, ...: sums of what is known; `lower_bounds` names those that leave
            something out. FLOPs = 2 * MACs + `other_ops`.
        bytes_moved: memory access, op by op; `fused_bytes_moved` with element-wise chains fused.
        activation_elements: elements of all results.
        bandwidth_need: bytes per second at `rate` samples per second.
        batch, batch_from: samples in a run, and where that was read.
        causal: whether masked positions of causal attention are counted (full) or not (half).
        open_loops: loops counted for one trip, as nobody knows how many there are.
    """

    params: int
    trainable: int | None
    statistics: int
    param_bytes: int
    param_bytes_by_dtype: dict[str, int]
    macs: int | None
    other_ops: int | None
    flops: int | None
    bytes_moved: int | None
    fused_bytes_moved: int | None
    intensity: float | None
    activation_elements: int | None
    lower_bounds: list[str]
    batch: int | None
    batch_from: str
    per_sample: PerSample
    rate: float
    bandwidth_need: float | None
    causal: str
    open_loops: list[str]
    time_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticRecord:
    """Bytes allocated once, by role."""

    parameter: int
    constant: int
    state: int
    optimizer_state: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicRecord:
    """Bytes of results that are no outputs and of scratch, before any reuse."""

    activation: int
    workspace: int | None
    gradient: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyRecord:
    """A body of control flow, for one trip through it."""

    label: str
    macs: int | None
    flops: int | None
    bytes_moved: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpRecord:
    """One op; a parameter that several ops read is counted at the first.

    Attributes:
        trips: how often its body runs; `None` without a body, or when nobody knows.
    """

    name: str
    kind: str
    scope: str
    engine: str
    dtype: str
    macs: int | None
    other_ops: int | None
    flops: int | None
    params: int
    activation_elements: int | None
    bytes_read: int | None
    bytes_written: int | None
    bytes_moved: int | None
    fused_bytes_moved: int | None
    trips: int | None
    bodies: list[BodyRecord]
    static_bytes: int
    output_bytes: int | None
    workspace_bytes: int | None
    intensity: float | None
    time_s: float | None
    bound: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    """Sums over the ops of a scope (with those inside it) or of a kind."""

    name: str
    ops: int
    macs: int | None
    flops: int | None
    params: int | None
    bytes_moved: int | None
    fused_bytes_moved: int | None
    output_bytes: int | None
    intensity: float | None
    lower_bounds: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsupportedKind:
    """An op kind the registry has no row for, or whose cost it cannot tell, and how often."""

    kind: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectDocument:
    """Output of ``inspect --json``; without ``--device``, `timing` and all times are `None`."""

    schema: str
    model: ModelRecord
    totals: Totals
    timing: TimingRecord | None
    static: StaticRecord
    dynamic: DynamicRecord
    input_bytes: int
    output_bytes: int
    ops: list[OpRecord]
    scopes: list[GroupRecord]
    kinds: list[GroupRecord]
    unsupported: list[UnsupportedKind]
    uncounted: list[UnsupportedKind]
    lints: list[LintRecord] | None
    sparsity: SparsityRecord | None
    opaque: list[str]
    notes: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRecord:
    """One check of a judge."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyDocument:
    """Output of ``verify --json``."""

    schema: str
    ok: bool
    checks: list[CheckRecord]


@dataclass(frozen=True, slots=True, kw_only=True)
class KindRecord:
    """One row of the registry, as yes or no.

    Attributes:
        inplace: output 0 may be written over some input (of some ops of the kind).
        views: some output is a byte range of an input.
        parts: inputs may be written straight into output 0.
        overlap: output 0 may be written over part of an input, by kernels that targets name.
        workspace: the scratch is known without asking a kernel.
        macs: multiply-accumulates can be counted.
        shape: output shapes can be inferred.
    """

    kind: str
    inplace: bool
    views: bool
    parts: bool
    overlap: bool
    workspace: bool
    macs: bool
    shape: bool
    engine: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpsDocument:
    """Output of ``ops --json``."""

    schema: str
    ops: list[KindRecord]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRecord:
    """One target; an empty `inplace_kinds` allows every kind the registry allows.

    Attributes:
        eager: of PyTorch, what its kernels keep in a training step.
        sources: where a figure comes from, by its name.
    """

    name: str
    description: str
    align: int
    inputs: str
    outputs: str
    inplace_kinds: list[str]
    inplace_also: list[str]
    overlap_kinds: list[str]
    views: bool
    zero_copy_concat: bool
    eager: Eager | None
    sources: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetsDocument:
    """Output of ``targets --json``."""

    schema: str
    targets: list[TargetRecord]


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
    """One way of running; `makespan` counts bytes of results, until times are known."""

    lanes: int | str
    makespan: int
    speedup: float
    arena_bytes: int
    lower_bound_bytes: int
    optimal: bool
    edges: list[EdgeRecord]


@dataclass(frozen=True, slots=True, kw_only=True)
class LanesDocument:
    """Output of ``lanes --json``."""

    schema: str
    model: str
    rows: list[LanesRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeverRecord:
    """One lever, on top of the free ones before it.

    Attributes:
        peak_bytes: the arena with it.
        need_bytes: the arena and what lies beside it.
        extra_flops: operations it adds to a run; `null` = not known.
        extra_time_s: `null` until a device's time is estimated for it.
        applied: part of the plan that `fit` recommends.
        changes_model: a what-if; the results would be others.
        flag: what to give ``peakfold plan`` for it.
    """

    what: str
    peak_bytes: int
    need_bytes: int
    extra_flops: int | None
    extra_time_s: float | None
    applied: bool
    changes_model: bool
    flag: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FitDocument:
    """Output of ``fit --json``.

    Attributes:
        need_bytes: what the recommended plan takes of `have_bytes`, `beside_bytes` included.
        beside_bytes: what lies in the same memory beside the arena (weights, inputs, what the
            interpreter keeps).
        bound_bytes: no order and no layout of the unchanged network needs less arena.
        largest_batch: `null` where the network does not scale with its first dimension.
        plan_flags: what to give ``peakfold plan`` for the recommended plan.
        notes: what else to know.
    """

    schema: str
    model: str
    device: str | None
    fits: bool
    need_bytes: int
    have_bytes: int
    beside_bytes: int
    bound_bytes: int
    largest_batch: int | None
    plan_flags: str
    notes: list[str]
    options: list[LeverRecord]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyDocument:
    """Output of ``apply --json``.

    Attributes:
        written: the file; `None` when it went to stdout.
        arena_bytes: of the plan, or for ``tflite`` of the head the interpreter will need.
        unplanned_bytes: what it would need without the plan; `None` for other formats.
        obeys: whether the file carries the plan; false when the interpreter's own is no worse.
        total_bytes: the arena to give the interpreter, head and tail, with pointers of 8 bytes and
            reference kernels; `None` for other formats.
        total_bytes_32bit: the same with pointers of 4 bytes, counted from records, not run.
        tail_unknown: operators whose kernels may keep more than was counted.
        flash_bytes: of the file, which stays in flash.
    """

    schema: str
    to: str
    written: str | None
    arena_bytes: int
    unplanned_bytes: int | None
    obeys: bool | None
    total_bytes: int | None = None
    total_bytes_32bit: int | None = None
    tail_unknown: list[str] | None = None
    flash_bytes: int | None = None
    notes: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlRecord:
    """A file that is wrong on purpose: whether the judge rejects it, and whether results differ."""

    what: str
    rejected: bool
    results_differ: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureDocument:
    """Output of ``measure --json``; bytes.

    Attributes:
        before_bytes, after_bytes: of the arena that tensors share, without and with the plan.
        planned_bytes: what the plan promised; `None` where the runtime plans for itself.
        obeyed: whether the two are equal.
        outputs_equal: bit for bit, in all runs.
        outputs_vary: whether outputs differ between runs or within one, so that they say anything.
        tensors: results on the way that were compared; `tensors_equal` is `None` without any.
        before_arena_bytes, after_arena_bytes: smallest arena the model runs in, found by bisection.
        tail_bytes: what of it lives as long as the interpreter.
        predicted_arena_bytes: what the model of the interpreter says of `after_arena_bytes`.
    """

    schema: str
    runtime: str
    before_bytes: int
    planned_bytes: int | None
    after_bytes: int
    obeyed: bool | None
    outputs_equal: bool
    outputs_vary: bool
    runs: int
    tensors: int
    tensors_equal: bool | None
    before_arena_bytes: int | None
    after_arena_bytes: int | None
    tail_bytes: int | None
    predicted_arena_bytes: int | None
    controls: list[ControlRecord]


Document = (
    PlanDocument | InspectDocument | VerifyDocument | OpsDocument | TargetsDocument | DemoDocument
    | LanesDocument | PackDocument | DevicesDocument | FitDocument | TrainingDocument
    | ModesDocument | TrainingFitDocument | MeasureTrainingDocument | LayersDocument
    | CompareDocument | ApplyDocument | MeasureDocument | Profile
)  # fmt: skip

DOCUMENTS: dict[str, type] = {
    "apply": ApplyDocument,
    "measure": MeasureDocument,
    "profile": Profile,
    "plan": Plan,
    "plan-report": PlanDocument,
    "compare": CompareDocument,
    "inspect": InspectDocument,
    "layers": LayersDocument,
    "verify": VerifyDocument,
    "ops": OpsDocument,
    "targets": TargetsDocument,
    "demo": DemoDocument,
    "lanes": LanesDocument,
    "pack": PackDocument,
    "devices": DevicesDocument,
    "fit": FitDocument,
    "modes": ModesDocument,
    "training": TrainingDocument,
    "fit-training": TrainingFitDocument,
    "measure-training": MeasureTrainingDocument,
}
"""Every JSON document by the name in its `schema` key and in ``docs/schema/NAME.json``."""


def schema_name(name: str) -> str:
    """The `schema` value of a document.

    Example:
        >>> schema_name("inspect")
        'peakfold.inspect/1'
    """
    return f"peakfold.{name}/{VERSION}"


def to_json(document: Document) -> str:
    """A document as indented JSON that ends in a newline."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
