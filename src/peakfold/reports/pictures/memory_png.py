"""The 2-D memory map as a PNG, through matplotlib (extra ``plot``)."""

from __future__ import annotations

import importlib.util
import io
import warnings
from typing import TYPE_CHECKING, Any

from peakfold.errors import BackendMissing
from peakfold.planning import PlanResult
from peakfold.printable import shorten
from peakfold.reports.pictures.memory_map import (
    PALETTE,
    SCRATCH,
    Box,
    MemoryMap,
    Panel,
    memory_map,
    raster,
)
from peakfold.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DENSE = 3000
# A box needs this share of the panel in both directions for an edge.
_STROKED = 0.01


def need_matplotlib() -> None:
    """Check for matplotlib before any work is done.

    Raises:
        BackendMissing: it is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise BackendMissing(
            "a PNG needs matplotlib", hint='pip install "peakfold[plot]"; --svg needs nothing'
        )


def png_map(result: PlanResult, name: str = "") -> bytes:
    """The map of a plan, before and after (R16).

    Raises:
        BackendMissing: matplotlib is not installed.
    """
    need_matplotlib()
    return draw(memory_map(result, name))


def draw(drawn: MemoryMap) -> bytes:
    """A memory map as PNG bytes."""
    from matplotlib.figure import Figure

    rows = 1 if drawn.enlarged is None else 2
    figure = Figure(figsize=(14, 1.0 + 4.6 * rows), dpi=100, layout="constrained")
    figure.suptitle(shorten(drawn.title, 100), parse_math=False)
    grid = figure.add_gridspec(rows, 2)
    _panel(figure.add_subplot(grid[0, 0]), drawn.before)
    _panel(figure.add_subplot(grid[0, 1]), drawn.after)
    if drawn.enlarged is not None:
        _panel(figure.add_subplot(grid[1, :]), drawn.enlarged)
    stream = io.BytesIO()
    with warnings.catch_warnings():
        # A name in a script the font lacks is drawn as boxes: no reason to stop.
        warnings.simplefilter("ignore", UserWarning)
        # No date and no version inside: equal plans give equal files.
        figure.savefig(stream, format="png", metadata={"Software": None})
    return stream.getvalue()


def _panel(axes: Axes, panel: Panel) -> None:
    axes.set_title(panel.title, fontsize=10, loc="left", parse_math=False)
    axes.set_xlim(0, panel.steps)
    axes.set_ylim(0, panel.height)
    axes.set_xlabel("step")
    ticks = [panel.height * share / 4 for share in range(5)]
    axes.set_yticks(ticks, [format_bytes(round(tick)) if tick else "0" for tick in ticks])
    axes.set_axisbelow(True)
    axes.grid(axis="y", color="#dddddd")
    if len(panel.boxes) > _DENSE:
        _dense(axes, panel)
    else:
        _boxes(axes, panel)
    if panel.bound:
        axes.axhline(panel.bound, color="#111111", linestyle="--", linewidth=1.2)
    if panel.peak_step is not None:
        axes.axvline(panel.peak_step + 0.5, color="#cc0000", linestyle=":", linewidth=1.4)
        note = f"peak: {shorten(panel.peak_op, 50)} (step {panel.peak_step + 1})"
        axes.set_xlabel(f"step     {note}", parse_math=False)


def _boxes(axes: Axes, panel: Panel) -> None:
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    def edged(box: Box) -> bool:
        tall = box.upper - box.lower >= _STROKED * panel.height
        return tall and box.stop - box.start >= _STROKED * panel.steps

    for scratch in (False, True):
        chosen = [box for box in panel.boxes if box.scratch is scratch]
        if not chosen:
            continue
        patches = [
            Rectangle((b.start, b.lower), b.stop - b.start, b.upper - b.lower) for b in chosen
        ]
        fills = [PALETTE[b.color % len(PALETTE)] for b in chosen]
        style: dict[str, Any] = {"linewidth": 0.6, "facecolor": fills}
        style["edgecolor"] = [
            "#ffffff" if edged(b) else fill for b, fill in zip(chosen, fills, strict=True)
        ]
        if scratch:
            style.update(facecolor="#eeeeee", edgecolor="#777777", hatch="////")
        axes.add_collection(PatchCollection(patches, **style))


def _dense(axes: Axes, panel: Panel) -> None:
    import numpy as np
    from matplotlib.colors import ListedColormap

    cells = raster(panel, 700, 400)
    shown = np.ma.masked_less(cells, 0)
    axes.imshow(
        shown,
        extent=(0, panel.steps, 0, panel.height),
        origin="lower",
        aspect="auto",
        cmap=ListedColormap([*PALETTE, "#888888"]),
        vmin=0,
        vmax=SCRATCH,
        interpolation="nearest",
    )
