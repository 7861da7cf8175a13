"""How long a model takes on a device: a bound and, where there are measurements, an estimate."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from peakfold.analysis.cost.records import Cost
from peakfold.analysis.time.batch_sweep import BatchPoint, sweep, turning_batch
from peakfold.analysis.time.latency import Estimate, estimate
from peakfold.analysis.time.roofline import Bound, Roofline, Work, busiest_engine, roofline
from peakfold.analysis.time.tasks import Task, tasks_of
from peakfold.device import Device, Latency
from peakfold.errors import UsageError
from peakfold.ir import Graph

# A batch so many times below or above the measured ones is told as extrapolated.
_NEAR = 8
# Kinds of a backward pass and of an optimizer.
_TRAINING = ("_grad", "_backward", "_step")


@dataclass(frozen=True, kw_only=True)
class Timing:
    """A model on a device.

    Attributes:
        device: where.
        ops: how many ops the graph has.
        tasks: the ops that run, bodies in place of the ops that have them.
        roofline: their bounds.
        estimate: from fitted constants; `None` = roofline only.
        why_not: why there is no estimate; empty when there is one.
        batch: samples in the run; `None` = not known.
        boundary_bytes: inputs and outputs of the run; `None` = not known.
        precision: element type that floating-point ops are taken to run in; `None` = their own.
    """

    device: Device
    ops: int
    tasks: tuple[Task, ...]
    roofline: Roofline
    estimate: Estimate | None
    why_not: str
    batch: int | None
    boundary_bytes: int | None
    precision: str | None

    @property
    def time_s(self) -> float | None:
        """Seconds of a run: the estimate, or else the bound."""
        return self.roofline.time_s if self.estimate is None else self.estimate.time_s

    @property
    def task_seconds(self) -> tuple[float | None, ...]:
        """Seconds of every task, from the same model as `time_s`."""
        if self.estimate is not None:
            return self.estimate.ops
        return tuple(op.time_s for op in self.roofline.ops)

    @property
    def unknown(self) -> int:
        """Ops that `time_s` leaves out."""
        return self.roofline.unknown if self.estimate is None else self.estimate.unknown

    @property
    def extrapolated(self) -> bool:
        """Whether the batch is far from those that were measured: the error is not known then."""
        if self.estimate is None:
            return False
        own, measured = self.batch or 1, self.estimate.fit.batch
        return own * _NEAR < measured or own > measured * _NEAR

    @property
    def transfer_s(self) -> float | None:
        """Seconds that inputs and outputs take over the host link, beside `time_s` (R75)."""
        link = self.device.host_link
        if link is None or self.boundary_bytes is None:
            return None
        return self.boundary_bytes / link.value

    @property
    def task_bounds(self) -> tuple[Bound | None, ...]:
        """What limits every task, from the same model as `time_s`."""
        if self.estimate is not None:
            return self.estimate.bounds
        return tuple(op.bound for op in self.roofline.ops)

    @cached_property
    def op_times(self) -> tuple[tuple[float | None, Bound | None], ...]:
        """Seconds and bound of every op of the graph; an op with bodies has those of its tasks."""
        spent: list[float | None] = [None] * self.ops
        most: list[tuple[float, Bound | None]] = [(-1.0, None)] * self.ops
        for task, bound, seconds in zip(
            self.tasks, self.task_bounds, self.task_seconds, strict=True
        ):
            if seconds is not None:
                spent[task.owner] = (spent[task.owner] or 0.0) + seconds
                if seconds > most[task.owner][0]:
                    most[task.owner] = (seconds, bound)
        return tuple((time, bound) for time, (_, bound) in zip(spent, most, strict=True))

    @cached_property
    def turning_batch(self) -> int | None:
        """The smallest batch at which compute-bound ops take half of the bound (R79).

        `None` when none does up to 65,536, or `turning_unknown`.
        """
        if not self.batch or self.roofline.unknown or self.device.bandwidth is None:
            return None
        return turning_batch(self._single, self.device)

    @property
    def turning_unknown(self) -> bool:
        """Whether what is not known (batch, bandwidth, arithmetic) hides the turning batch."""
        if not self.batch or self.roofline.unknown or self.device.bandwidth is None:
            return True
        return self.turning_batch is None and self.roofline.partial > 0

    @property
    def least_s(self) -> float | None:
        """Seconds of the known arithmetic alone at peak, on the busiest engine.

        Whatever a kernel fuses or caches, no run of these ops is faster; engines may overlap.
        `None` where no peak is known.
        """
        return busiest_engine([task.work for task in self.tasks], self.device)

    def sweep(self, batches: Iterable[int]) -> tuple[BatchPoint, ...]:
        """The bound at other batch sizes.

        Raises:
            UsageError: a batch below 1, or the run's batch or an op's time is not known.
        """
        if not self.batch:
            hint = "pass --batch N"
            raise UsageError("how many samples a run has is not known", hint=hint)
        return sweep(self._single, self.device, batches)

    @property
    def _single(self) -> list[Work]:
        """The ops at one sample."""
        return [task.work.batched(1 / (self.batch or 1)) for task in self.tasks]


def timing(graph: Graph, cost: Cost, device: Device, *, precision: str | None = None) -> Timing:
    """How long a counted graph takes.

    Args:
        graph: what was counted.
        cost: its records.
        device: where it runs.
        precision: as `tasks_of` takes it; `None` takes that of the measurements, where there
            are any, and else the model's own.

    Raises:
        UsageError: there is no such element type.

    Example:
        >>> from peakfold.analysis import cost_of
        >>> from peakfold.device import load_device
        >>> from peakfold.ir import parse_graph
        >>> g = parse_graph("peakfold-graph 1\\ninput x: float32[1,4096]\\n"
        ...                 "parameter w: float32[4096,1000]\\n"
        ...                 "y: float32[1,1000] = matmul(x, w)\\noutput y")
        >>> found = timing(g, cost_of(g), load_device("t4"))
        >>> round(found.time_s * 1e6, 1), found.roofline.bound, found.turning_batch, found.why_not
        (54.7, 'memory', 58, 'roofline only: no measurements of this device')
    """
    tasks = tasks_of(graph, cost, precision)
    fit, why_not = _fit(tasks, device, precision)
    if fit is not None and precision is None:
        # Measured so, whatever the file stores: bound and estimate are told for one arithmetic.
        precision = fit.dtype
        tasks = tasks_of(graph, cost, precision)
    return Timing(
        device=device,
        ops=len(graph.ops),
        tasks=tasks,
        roofline=roofline([task.work for task in tasks], device),
        estimate=None if fit is None else estimate(tasks, fit),
        why_not=why_not,
        batch=cost.batch,
        boundary_bytes=_boundary(graph),
        precision=precision,
    )


def _boundary(graph: Graph) -> int | None:
    """Bytes that come in before a run and leave after it."""
    sizes = [graph.by_name[name] for name in (*graph.inputs, *graph.outputs)]
    found = [tensor.nbytes for tensor in sizes if not tensor.role.static]
    return None if None in found else sum(size or 0 for size in found)


def _fit(
    tasks: tuple[Task, ...], device: Device, precision: str | None
) -> tuple[Latency | None, str]:
    """The latency model to use, or why none is."""
    if not device.latency:
        return None, "roofline only: no measurements of this device"
    if any(task.work.kind.endswith(_TRAINING) for task in tasks):
        return None, "roofline only: the measurements are of inference"
    macs = sum((task.work.macs or 0) * task.work.runs for task in tasks)
    floating = sum((task.work.macs or 0) * task.work.runs for task in tasks if task.floating)
    if 2 * floating < macs:
        return None, "roofline only: the measurements are of floating-point models"
    for fit in device.latency:
        if precision in (None, fit.dtype):
            return fit, ""
    measured = " and ".join(dict.fromkeys(fit.dtype for fit in device.latency))
    return None, f"roofline only: the measurements are in {measured}"


def measured_share(found: Timing, seconds: float) -> tuple[float, str]:
    """How much of the peak a measured run reached (R77), and of which peak.

    Args:
        found: the timing of the model.
        seconds: of one run, measured.

    Returns:
        Utilisation from operations (2 a multiply-accumulate), and the rate it refers to.

    Raises:
        UsageError: no finite time above 0, or no peak is known for what the model runs on.
    """
    if not 0 < seconds < math.inf:
        raise UsageError(f"a measured time of {seconds} s is not above 0 and finite")
    flops: dict[str, float] = {}
    for op in found.roofline.ops:
        if op.rated and op.work.flops:
            flops[op.rated] = flops.get(op.rated, 0.0) + op.work.flops * op.work.runs
    if not flops:
        hint = "give the rate in a file: --device my.toml"
        raise UsageError("no peak of its engines is known", where=found.device.name, hint=hint)
    main = max(flops, key=lambda name: flops[name])
    engine, _, dtype = main.partition(" ")
    rate = found.device.rate(engine, dtype)
    peak = rate.per_second if rate is not None else float("inf")
    return sum(flops.values()) / seconds / peak, main
