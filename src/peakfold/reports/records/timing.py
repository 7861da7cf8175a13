"""Time on a device as JSON records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from peakfold.analysis.time.roofline import BOUNDS
from peakfold.analysis.time.timing import Timing, measured_share


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRecord:
    """How far estimates of this kind were off on architecture families not seen in the fit."""

    fit: str
    conditions: str
    models: int
    held_out_median: float
    held_out_p90: float
    measured_batch: int
    extrapolated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRow:
    """The bound at one batch size: of the batch, a sample's share, and what it goes to."""

    batch: int
    roofline_s: float
    per_sample_s: float
    compute_share: float
    intensity: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingRecord:
    """Time of one run on a device.

    Attributes:
        time_s: the estimate, or else the roofline's bound.
        basis: ``fitted`` or ``roofline``; `why_not` says why there is no estimate.
        roofline_s: no run that takes every op from memory and back is faster; fused kernels
            may be.
        unknown_ops: ops that `time_s` leaves out; `partial_ops`: ops whose bound leaves out
            arithmetic or traffic that is not known.
        seconds_by_bound: the bound's seconds by what limits the op.
        ridge: operations a byte, by engine and element type used.
        transfer_s: what inputs and outputs take over the host link, not part of `time_s`.
        sweep: the bound at the batch sizes that were asked for.
        turning_batch: the smallest batch at which compute-bound ops take half of the bound.
        least_s: the known arithmetic alone at peak; no run is faster.
        measured_possible: false for a measured time below `least_s`, on this device at this
            precision; `None` where nothing was measured or no peak is known.
        utilisation: of the peak of `utilisation_of`, given a measured time.
    """

    device: str
    precision: str | None
    time_s: float | None
    per_sample_s: float | None
    basis: str
    why_not: str
    error: ErrorRecord | None
    roofline_s: float | None
    bound: str | None
    unknown_ops: int
    partial_ops: int
    seconds_by_bound: dict[str, float]
    ridge: dict[str, float]
    transfer_s: float | None
    turning_batch: int | None
    sweep: list[SweepRow]
    least_s: float | None
    measured_s: float | None
    measured_possible: bool | None
    utilisation: float | None
    utilisation_of: str | None


def timing_record(
    found: Timing, measured_s: float | None = None, batches: Sequence[int] = ()
) -> TimingRecord:
    """The JSON record.

    Args:
        found: the timing.
        measured_s: seconds of a run, for the utilisation.
        batches: batch sizes to tell the bound at.

    Raises:
        UsageError: a measured time that is not above 0 or not finite, or without any known peak;
            a batch below 1, or the bound at other batches cannot be told.
    """
    fit = found.estimate.fit if found.estimate is not None else None
    error = None
    if fit is not None:
        error = ErrorRecord(
            fit=fit.name,
            conditions=fit.conditions,
            models=fit.check.models,
            held_out_median=fit.check.median,
            held_out_p90=fit.check.p90,
            measured_batch=fit.batch,
            extrapolated=found.extrapolated,
        )
    used = None if measured_s is None else measured_share(found, measured_s)
    time_s, least = found.time_s, found.least_s
    return TimingRecord(
        device=found.device.name,
        precision=found.precision,
        time_s=time_s,
        per_sample_s=time_s / found.batch if time_s is not None and found.batch else None,
        basis="roofline" if fit is None else "fitted",
        why_not=found.why_not,
        error=error,
        roofline_s=found.roofline.time_s,
        bound=found.roofline.bound,
        unknown_ops=found.unknown,
        partial_ops=found.roofline.partial,
        seconds_by_bound={name: found.roofline.seconds[name] for name in BOUNDS},
        ridge=_ridges(found),
        transfer_s=found.transfer_s,
        turning_batch=found.turning_batch,
        sweep=[
            SweepRow(
                batch=point.batch,
                roofline_s=point.time_s,
                per_sample_s=point.per_sample_s,
                compute_share=point.compute_share,
                intensity=point.intensity,
            )
            for point in (found.sweep(batches) if batches else ())
        ],
        least_s=least,
        measured_s=measured_s,
        measured_possible=None if measured_s is None or least is None else measured_s >= least,
        utilisation=None if used is None else used[0],
        utilisation_of=None if used is None else used[1],
    )


def _ridges(found: Timing) -> dict[str, float]:
    """The ridge point of every rate the model's ops are rated at."""
    bandwidth = found.device.bandwidth
    ridges: dict[str, float] = {}
    for name in sorted({op.rated for op in found.roofline.ops if op.rated}):
        engine, _, dtype = name.partition(" ")
        rate = found.device.rate(engine, dtype)
        if rate is not None and bandwidth is not None:
            ridges[name] = rate.per_second / bandwidth.value
    return ridges


def op_times(found: Timing | None, count: int) -> Sequence[tuple[float | None, str | None]]:
    """Time and bound for each of the graph's ops; all unknown without a device."""
    if found is None:
        return [(None, None)] * count
    return found.op_times
