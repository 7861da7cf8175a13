"""The 2-D memory map as geometry: who holds which addresses at which steps.

    address                     x = step, y = byte address
      |      +--------+
      |  +---+  B2    |         a box is a piece of a buffer: bytes [lower, upper)
      |  |B1 +---+----+         during steps [start, stop)
      |  |   |B3 |
      +--+---+---+----> step

Pictures (SVG, PNG) are drawn from these panels and from nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from peakfold.planning import PlanResult
from peakfold.planning.modes import Layout
from peakfold.planning.timeline import Buffer
from peakfold.printable import shorten
from peakfold.reports.pictures.buffer_names import buffer_name, others
from peakfold.units import format_bytes

# Colour-blind-safe hues first (Okabe and Ito), then darker and lighter relatives.
PALETTE = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00",
    "#7b61a8", "#b3a100", "#4f9d9d", "#a65a3a", "#8fb339", "#8094c4",
)  # fmt: skip
SCRATCH = len(PALETTE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A rectangle: steps ``[start, stop)`` times bytes ``[lower, upper)``.

    Attributes:
        color: position in the palette, of the buffer the plan gives these tensors.
        scratch: kernel workspace, drawn hatched.
        name: the tensor, and how many more are in these bytes; cleaned.
        label: all of it in a sentence, cleaned.
    """

    start: int
    stop: int
    lower: int
    upper: int
    color: int
    scratch: bool
    name: str
    label: str


@dataclass(frozen=True, slots=True, eq=False)
class Panel:
    """One map.

    Attributes:
        title: what it shows, with the total.
        boxes: the rectangles.
        steps: extent of x; `height`: extent of y in bytes.
        total: bytes of this layout.
        bound: lower bound to draw as a line, or `None`.
        peak_step: step to mark, or `None`.
        peak_op: the op that runs there.
    """

    title: str
    boxes: tuple[Box, ...]
    steps: int
    height: int
    total: int
    bound: int | None = None
    peak_step: int | None = None
    peak_op: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class MemoryMap:
    """Before and after at one scale, and after enlarged when it would be too flat to read."""

    title: str
    before: Panel
    after: Panel
    enlarged: Panel | None


# Below this share of the naive height the plan is drawn once more, at its own scale.
_FLAT = 0.5


def memory_map(result: PlanResult, name: str = "") -> MemoryMap:
    """The map of a plan (R16).

    Args:
        result: a planning result.
        name: what to call the model.
    """
    naive, layout = result.layouts["naive"], result.layout
    colors = _colors(layout)
    top = max(naive.total, layout.total, 1)
    title = shorten(name or result.context.graph.name or "graph")
    peak = layout.timeline.peak_step
    steps = layout.timeline.schedule.steps
    after_boxes = _boxes(result, layout, colors)
    bound = result.plan.bound.offsets if result.plan.mode == "arena" else layout.bound
    before = Panel(
        f"Before: every result in a buffer of its own, {format_bytes(naive.total)}",
        _boxes(result, naive, colors),
        steps,
        top,
        naive.total,
    )
    saved = f", {naive.total / layout.total:.2f}x less" if layout.total else ""
    after_title = f"After: mode {layout.mode}, {format_bytes(layout.total)}{saved}"
    peak_op = shorten(result.summary.peak_op or "")
    after = Panel(after_title, after_boxes, steps, top, layout.total, bound, peak, peak_op)
    enlarged = None
    if layout.total < _FLAT * top:
        enlarged = Panel(
            f"After, enlarged: {format_bytes(layout.total)} (lower bound {format_bytes(bound)})",
            after_boxes,
            steps,
            max(layout.total, 1),
            layout.total,
            bound,
            peak,
            peak_op,
        )
    return MemoryMap(title, before, after, enlarged)


def _colors(layout: Layout) -> dict[int, int]:
    """Colour per tensor: that of the buffer (or shared object) it gets in the plan."""
    colors: dict[int, int] = {}
    members = layout.timeline.storages.members
    for at, buffer in enumerate(layout.timeline.buffers):
        number = at if layout.objects is None else layout.objects[at]
        tensors = members[buffer.storage] if buffer.storage >= 0 else [buffer.copy]
        colors.update((tensor, number) for tensor in tensors if tensor >= 0)
    return colors


def _boxes(result: PlanResult, layout: Layout, colors: dict[int, int]) -> tuple[Box, ...]:
    boxes: list[Box] = []
    for at, buffer in enumerate(layout.timeline.buffers):
        color = _color_of(layout, buffer, colors, at)
        base = layout.offsets[at]
        name = shorten(buffer_name(result, layout, buffer))
        more = others(layout, buffer)
        label = f"{name}{f' and {more} more' if more else ''}"
        label += f": {format_bytes(buffer.size)} at {base}"
        boxes += [
            Box(
                start=p.start,
                stop=p.stop,
                lower=base + p.lower,
                upper=base + p.upper,
                color=color,
                scratch=buffer.workspace >= 0,
                name=f"{name} +{more}" if more else name,
                label=f"{label}, steps {p.start + 1} to {p.stop}",
            )
            for p in buffer.pieces
        ]
    return tuple(boxes)


def _color_of(layout: Layout, buffer: Buffer, colors: dict[int, int], at: int) -> int:
    if buffer.storage < 0:
        return colors.get(buffer.copy, at)
    return colors.get(layout.timeline.storages.members[buffer.storage][0], at)


def raster(panel: Panel, columns: int, rows: int) -> npt.NDArray[np.int16]:
    """The panel as a grid of palette positions, -1 where nothing is; row 0 is address 0.

    For maps with more boxes than a picture has room for: every box covers at least one cell,
    and later boxes win, which no eye could tell.

    Args:
        panel: the map.
        columns: cells along the steps.
        rows: cells along the addresses.

    Returns:
        (rows, columns) positions in `PALETTE`; `SCRATCH` for kernel workspace.
    """
    grid = np.full((rows, columns), -1, dtype=np.int16)
    for box in panel.boxes:
        left = box.start * columns // panel.steps
        right = max(-(-box.stop * columns // panel.steps), left + 1)
        low = min(box.lower * rows // panel.height, rows - 1)
        high = max(-(-box.upper * rows // panel.height), low + 1)
        grid[low:high, left:right] = SCRATCH if box.scratch else box.color % len(PALETTE)
    return grid
