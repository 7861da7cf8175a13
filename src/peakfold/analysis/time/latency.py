"""Latency from constants fitted on published measurements, with the error they were seen to have.

    time = sum over ops of  compute[g] * MACs + memory[g] * elements + weight * weight elements
                            + launch

g is the op's group (`peakfold.analysis.time.tasks.Group`): kernels that behave alike. The constants
are seconds a unit, fitted by ``benchmarks/fit_latency.py`` per device and way of running; the
error is that on architecture families which the fit had not seen. Unlike a roofline this is no
bound: it is how long such models were measured to take.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from peakfold.analysis.time.roofline import Bound
from peakfold.analysis.time.tasks import Task
from peakfold.device import Latency


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """An estimated run.

    Attributes:
        fit: constants, conditions and their error.
        ops: seconds of each op; `None` = not known.
        bounds: which of an op's terms is the largest; `None` for views and unknown ops.
        time_s: their sum; `None` when no op's time is known.
        unknown: ops that are missing from the sum.
    """

    fit: Latency
    ops: tuple[float | None, ...]
    bounds: tuple[Bound | None, ...]
    time_s: float | None
    unknown: int


def estimate(tasks: Sequence[Task], fit: Latency) -> Estimate:
    """How long the ops take, one after the other.

    Args:
        tasks: the ops, in order.
        fit: of the device.
    """
    terms = [_terms(task, fit) for task in tasks]
    times = tuple(None if parts is None else sum(parts.values()) for parts in terms)
    known = [time for time in times if time is not None]
    return Estimate(
        fit=fit,
        ops=times,
        bounds=tuple(_largest(parts) for parts in terms),
        time_s=sum(known) if known or not times else None,
        unknown=len(times) - len(known),
    )


def _largest(parts: dict[Bound, float] | None) -> Bound | None:
    if not parts:
        return None
    most, _ = max(parts.items(), key=lambda part: part[1])
    return most


def _terms(task: Task, fit: Latency) -> dict[Bound, float] | None:
    """An op's seconds by what they go to; nothing for a view, `None` when it is not known."""
    work = task.work
    if work.macs is None or task.elements is None:
        return None
    if not work.macs and not task.elements:
        return {}
    moving = fit.memory.get(task.group, fit.memory["elementwise"])
    computing = fit.compute.get(task.group, fit.compute["matmul"])
    return {
        "compute": computing * work.macs * work.runs,
        "memory": (moving * task.elements + fit.weight * task.weights) * work.runs,
        "launch": fit.launch * work.runs,
    }
