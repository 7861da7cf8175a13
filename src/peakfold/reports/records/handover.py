"""Records of files and runs: ``apply`` and ``measure``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyDocument:
    """Output of ``apply --json``.

    Attributes:
        written: the file; `None` when it went to stdout.
        arena_bytes: of the plan, or for ``tflite`` of the head the interpreter will need.
        unplanned_bytes: what it would need without the plan; `None` for other formats.
        obeys: whether the file carries the plan; false when the interpreter's own is no worse.
        total_bytes: the whole arena to give the interpreter that runs here (64 bit, reference
            kernels, its own records of calls); `None` for other formats, and where
            `tail_unknown` names an operator.
        total_bytes_device: the same of a device's build of 64 bit, which keeps no records.
        total_bytes_32bit: the same of a device's build of 32 bit: predicted, not run.
        total_at_least_bytes: `total_bytes` without what the operators of `tail_unknown` take.
        tail_unknown: operators that may take more than was counted.
        flash_bytes: of the file, which stays in flash.
    """

    schema: str
    to: str
    written: str | None
    arena_bytes: int
    unplanned_bytes: int | None
    obeys: bool | None
    total_bytes: int | None = None
    total_bytes_device: int | None = None
    total_bytes_32bit: int | None = None
    total_at_least_bytes: int | None = None
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
        before_arena_bytes, after_arena_bytes: the whole arena the model was run in: the predicted
            one, or the least that was found where that is not known, or was too small.
        tail_bytes: what of it lives as long as the interpreter.
        predicted_arena_bytes: what the model of the interpreter says of `after_arena_bytes`;
            `None` where `arena_unknown` names an operator.
        predicted_at_least_bytes: the same without what those operators take.
        arena_unknown: operators that may take more of the arena than was counted.
        arena_too_low: whether the predicted arena was too small to start in: a failed check.
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
    predicted_at_least_bytes: int | None
    arena_unknown: list[str]
    arena_too_low: bool
    controls: list[ControlRecord]
