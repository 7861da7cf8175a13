"""Records of costs: ``inspect``."""

from __future__ import annotations

from dataclasses import dataclass

from peakfold.reports.records.extras import LintRecord, SparsityRecord
from peakfold.reports.records.timing import TimingRecord


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
        causal_ops: attention ops whose masked positions were left out.
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
    causal_ops: int
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
