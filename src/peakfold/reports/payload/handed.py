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
