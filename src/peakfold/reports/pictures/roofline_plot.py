"""The roofline plot as geometry: every op a point under the roofs of its device.

    op/s |          ____________  peak of an engine and element type
         |        /:  o
         |      /  :      o       x = operations a byte, y = operations a second, both
         |    / o  :              logarithmic; the slope is the memory bandwidth
         |  /______:_________
                 ridge            operations a byte

A point's height is its operations over the time it is taken to need: the bound of the roofline,
which puts it on a roof, or the estimate of a fitted latency model, which puts it below.
Pictures (SVG, PNG) are drawn from this and from nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from peakfold.analysis.time.roofline import Roofline
from peakfold.device import Device
from peakfold.errors import UsageError
from peakfold.printable import shorten
from peakfold.reports.text.tables import counted
from peakfold.units import format_short

_KINDS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """One op.

    Attributes:
        x: operations a byte.
        y: operations a second.
        share: of the model's time.
        area: from 0 to 1, against the op that takes the most time.
        group: position in `RooflinePlot.groups`.
        label: all of it in a sentence, cleaned.
    """

    x: float
    y: float
    share: float
    area: float
    group: int
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Roof:
    """The peak of one engine and element type, and where it meets the slope.

    Attributes:
        name: such as ``matrix float16``.
        peak: operations a second.
        ridge: operations a byte.
        label: name and peak, with the unit of its element type (R74).
    """

    name: str
    peak: float
    ridge: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflinePlot:
    """The whole plot.

    Attributes:
        title: model and device.
        roofs: the peaks the ops are rated at, highest first.
        bandwidth: bytes a second.
        dots: ops with arithmetic and traffic.
        groups: op kinds by the time they take; the last may stand for all others.
        left, right: extent of x; `bottom`, `top`: extent of y.
        notes: what is not in the picture, and what the times are.
    """

    title: str
    roofs: tuple[Roof, ...]
    bandwidth: float
    dots: tuple[Dot, ...]
    groups: tuple[str, ...]
    left: float
    right: float
    bottom: float
    top: float
    notes: tuple[str, ...]


def roofline_plot(
    found: Roofline, device: Device, *, title: str, times: Sequence[float | None] | None = None
) -> RooflinePlot:
    """The plot of a model's bounds, or of estimates.

    Args:
        found: the bounds.
        device: of the same device.
        title: what to call it.
        times: an estimated time for each op, in seconds; `None` takes the bounds.

    Raises:
        UsageError: the device's bandwidth or every peak is unknown.
    """
    if device.bandwidth is None:
        hint = "give it in a file: --device my.toml"
        raise UsageError("its memory bandwidth is not known", where=device.name, hint=hint)
    roofs = _roofs(found, device)
    chosen = [op.time_s for op in found.ops] if times is None else list(times)
    total = sum(time for time in chosen if time) or 1.0
    largest = max((time for time in chosen if time), default=1.0)
    groups = _groups(found, chosen)
    dots, silent, silent_share = [], 0, 0.0
    for op, time in zip(found.ops, chosen, strict=True):
        work = op.work
        if not time:
            continue
        if not work.flops or not work.bytes_moved:
            silent += 1
            silent_share += time / total
            continue
        group = groups.index(work.kind) if work.kind in groups else len(groups) - 1
        rated = f", {op.rated}" if op.rated else ""
        label = (
            f"{shorten(work.name)} ({shorten(work.kind)}): {work.flops / work.bytes_moved:.3g} "
            f"op/byte, {time * 1e6:,.4g} us, {time / total:.1%} of the time, "
            f"{op.bound} bound{rated}"
        )
        dots.append(
            Dot(
                x=work.flops / work.bytes_moved,
                y=work.flops * work.runs / time,
                share=time / total,
                area=time / largest,
                group=group,
                label=label,
            )
        )
    notes = ["Points: " + ("bounds of the roofline" if times is None else "estimated times")]
    if silent:
        notes.append(
            f"Not drawn: {counted(silent, 'op')} without arithmetic, {silent_share:.1%} of the time"
        )
    if found.unknown:
        notes.append(f"Missing: {counted(found.unknown, 'op')} whose cost is not known")
    left, right, bottom, top = _extent(dots, roofs)
    return RooflinePlot(
        title=shorten(title),
        roofs=roofs,
        bandwidth=device.bandwidth.value,
        dots=tuple(dots),
        groups=groups,
        left=left,
        right=right,
        bottom=bottom,
        top=top,
        notes=tuple(notes),
    )


def _roofs(found: Roofline, device: Device) -> tuple[Roof, ...]:
    """A roof for every rate an op was rated at, or for float32 when none was."""
    names = {op.rated for op in found.ops if op.rated} or {"vector float32"}
    roofs = []
    for name in names:
        engine, _, dtype = name.partition(" ")
        peak = next(
            (t[dtype].value for e, t in device.peaks.items() if e == engine and dtype in t), None
        )
        if peak is not None and device.bandwidth is not None:
            unit = "FLOP/s" if "float" in dtype else "OP/s"
            roofs.append(
                Roof(
                    name=name,
                    peak=peak,
                    ridge=peak / device.bandwidth.value,
                    label=f"{name}: {format_short(peak)}{unit}",
                )
            )
    if not roofs:
        hint = "give it in a file: --device my.toml"
        raise UsageError("no peak of its engines is known", where=device.name, hint=hint)
    return tuple(sorted(roofs, key=lambda roof: (-roof.peak, roof.name)))


def _groups(found: Roofline, times: Sequence[float | None]) -> tuple[str, ...]:
    """Kinds by time, the rarer ones together."""
    spent: dict[str, float] = {}
    for op, time in zip(found.ops, times, strict=True):
        if time and op.work.flops and op.work.bytes_moved:
            spent[op.work.kind] = spent.get(op.work.kind, 0.0) + time
    kinds = sorted(spent, key=lambda kind: (-spent[kind], kind))
    return tuple(kinds) if len(kinds) <= _KINDS else (*kinds[: _KINDS - 1], "other kinds")


def _extent(dots: Sequence[Dot], roofs: Sequence[Roof]) -> tuple[float, float, float, float]:
    """Whole decades around all points and ridges."""
    xs = [dot.x for dot in dots] + [roof.ridge for roof in roofs]
    ys = [dot.y for dot in dots] + [roof.peak for roof in roofs]
    left, right = _decades(min(xs) / 2, max(xs) * 4)
    bottom, top = _decades(min(ys) / 2, max(ys) * 2)
    return left, right, bottom, top


def _decades(low: float, high: float) -> tuple[float, float]:
    return 10.0 ** math.floor(math.log10(low)), 10.0 ** math.ceil(math.log10(high))


def decades(low: float, high: float) -> list[float]:
    """The powers of ten of an axis.

    Example:
        >>> decades(0.1, 100)
        [0.1, 1.0, 10.0, 100.0]
    """
    first, last = round(math.log10(low)), round(math.log10(high))
    return [float(f"1e{exponent}") for exponent in range(first, last + 1)]
