"""Records of training steps: ``plan --train``, ``fit --train``, ``measure --train``."""

from __future__ import annotations

from dataclasses import dataclass

from peakfold.planning.plan import Plan
from peakfold.planning.summary import Summary


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
        verified: a real card has confirmed each of these figures (``make check-cuda``).
        unverified: those that none has confirmed, or that one has refuted.
    """

    allocated_bytes: int
    reserved_bytes: int
    expandable_reserved_bytes: int
    library_bytes: int
    context_bytes: int
    verified: bool
    unverified: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePhase:
    """A phase of a step in a device's caching allocator, highest bytes."""

    predicted_allocated_bytes: int
    allocated_bytes: int
    predicted_reserved_bytes: int
    reserved_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep:
    """A step, predicted and run; bytes, static memory included.

    Attributes:
        predicted_bytes: storages of a step on tensors without memory.
        tensor_bytes: storages followed through a real step.
        predicted_with_scratch_bytes: with the scratch of kernels, each measured alone; on CUDA
            as the replayed allocator rounds them, with what libraries keep.
        allocator_bytes: every allocation of a real step; on CUDA the allocator's own peak.
        predicted_reserved_bytes, reserved_bytes: segments of CUDA's allocator; `null` on a CPU.
        phases: predicted and followed peak by phase.
        device_phases: CUDA's allocator by phase; `null` on a CPU.
    """

    predicted_bytes: int
    tensor_bytes: int
    predicted_with_scratch_bytes: int
    allocator_bytes: int
    predicted_reserved_bytes: int | None
    reserved_bytes: int | None
    phases: dict[str, tuple[int, int]]
    device_phases: dict[str, DevicePhase] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureTrainingDocument:
    """Output of ``measure --runtime torch --train --json``.

    Attributes:
        loss, optimizer: of the step, in words.
        result_kept: the module's result is held until the step is over.
        result_kept_bytes: bytes more that holding it needs; 0 where it is held.
        before_bytes: a step's results without any reuse; `null`, torch always reuses.
        planned_bytes: the steady step as predicted, scratch included.
        after_bytes: the steady step's allocations as measured.
        obeyed: storages within 0.2 %, allocations within 1 % of the prediction, both steps; on
            CUDA also segments within 1 % or one of 20 MiB.
        outputs_equal: `null`: no plan changes what is computed.
        device: ``cpu`` or ``cuda``.
        predicted_context_bytes: assumed to be taken beside the allocator; `null` on a CPU.
        context_bytes: bytes of the device that neither are free nor the allocator's, other
            processes included; `null` on a CPU.
    """

    schema: str
    runtime: str
    model: str
    loss: str
    optimizer: str
    result_kept: bool
    result_kept_bytes: int
    notes: list[str]
    before_bytes: int | None
    planned_bytes: int
    after_bytes: int
    obeyed: bool
    outputs_equal: bool | None
    device: str
    predicted_context_bytes: int | None
    context_bytes: int | None
    first: MeasuredStep
    steady: MeasuredStep


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingLever:
    """One change of a training step that keeps its result; a real capture's figure.

    Attributes:
        extra_flops: operations it adds to a step, negative when it saves some; `null` = not
            known.
        extra_time_s: seconds those take at least, by the roofline of the device, op after op;
            `null` = not known.
        why_unknown: why one of the two is `null`; empty otherwise.
    """

    what: str
    peak_bytes: int
    fits: bool
    extra_flops: int | None
    extra_time_s: float | None
    why_unknown: str
    applied: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingFitDocument:
    """Output of ``fit --train --json`` for a torch module.

    Attributes:
        loss, optimizer: of the step, in words.
        result_kept: the module's result is held until the step is over.
        result_kept_bytes: bytes more that holding it needs; 0 where it is held.
        largest_batch: of the step as it is; `null` where no dimension is called the batch.
        batch_note: why it is `null`; empty otherwise.
    """

    schema: str
    model: str
    loss: str
    optimizer: str
    result_kept: bool
    result_kept_bytes: int
    notes: list[str]
    device: str | None
    fits: bool
    need_bytes: int
    have_bytes: int
    largest_batch: int | None
    batch_note: str
    options: list[TrainingLever]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingDocument:
    """Output of ``plan --train --json`` for a torch module.

    Attributes:
        loss, optimizer: of the step, in words.
        result_kept: the module's result is held until the step is over.
        result_kept_bytes: bytes more that holding it needs; 0 where it is held.
        devices: how many share the batch in data parallel; 1 = it fits one; `null` = not known,
            or no number helps.
        summary, plan: of the steady step's graph, as in a plan report.
    """

    schema: str
    model: str
    loss: str
    optimizer: str
    result_kept: bool
    result_kept_bytes: int
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
