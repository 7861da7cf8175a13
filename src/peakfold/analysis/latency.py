"""Latency from constants fitted on published measurements, with the error they were seen to have.

    time = sum over ops of  compute[g] * MACs + memory[g] * elements + weight * weight elements
                            + launch

g is the op's group (`peakfold.analysis.works.Group`): kernels that behave alike. The constants
are seconds a unit, fitted by ``benchmarks/fit_latency.py`` per device and way of running; the
error is that on architecture families which the fit had not seen. Unlike a roofline this is no
bound: it is how long such models were measured to take.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from peakfold.analysis.works import Task
from peakfold.device import Latency


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """An estimated run.

    Attributes:
        fit: constants, conditions and their error.
        ops: seconds of each op; `None` = not known.
        time_s: their sum; `None` when no op's time is known.
        unknown: ops that are missing from the sum.
    """

    fit: Latency
    ops: tuple[float | None, ...]
    time_s: float | None
    unknown: int


def estimate(tasks: Sequence[Task], fit: Latency) -> Estimate:
    """How long the ops take, one after the other.

    Args:
        tasks: the ops, in order.
        fit: of the device.
    """
    times = tuple(_op_seconds(task, fit) for task in tasks)
    known = [time for time in times if time is not None]
    return Estimate(
        fit=fit,
        ops=times,
        time_s=sum(known) if known or not times else None,
        unknown=len(times) - len(known),
    )


def _op_seconds(task: Task, fit: Latency) -> float | None:
    """One op; what moves nothing is a view and takes no time."""
    work = task.work
    if work.macs is None or task.elements is None:
        return None
    if not work.macs and not task.elements:
        return 0.0
    moving = fit.memory.get(task.group, fit.memory["elementwise"])
    seconds = fit.launch + fit.weight * task.weights + moving * task.elements
    if work.macs:
        seconds += fit.compute.get(task.group, fit.compute["matmul"]) * work.macs
    return seconds * work.runs
