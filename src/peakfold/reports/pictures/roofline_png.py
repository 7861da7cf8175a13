"""The roofline plot as a PNG, through matplotlib (extra ``plot``)."""

from __future__ import annotations

import io
import warnings

from peakfold.printable import shorten
from peakfold.reports.pictures.memory_map import PALETTE
from peakfold.reports.pictures.memory_png import need_matplotlib
from peakfold.reports.pictures.roofline_plot import RooflinePlot, decades
from peakfold.units import format_short


def png_roofline(plot: RooflinePlot) -> bytes:
    """The plot as PNG bytes.

    Raises:
        BackendMissing: matplotlib is not installed.
    """
    need_matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 6.4), dpi=100, layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(shorten(plot.title, 90), loc="left", parse_math=False)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(plot.left, plot.right)
    axes.set_ylim(plot.bottom, plot.top)
    axes.set_axisbelow(True)
    axes.grid(color="#e4e4e4")
    axes.set_yticks(
        decades(plot.bottom, plot.top), [format_short(t) for t in decades(plot.bottom, plot.top)]
    )
    axes.set_xticks(
        decades(plot.left, plot.right), [format_short(t) for t in decades(plot.left, plot.right)]
    )
    for roof in plot.roofs:
        axes.plot(
            [plot.left, roof.ridge, plot.right],
            [plot.left * plot.bandwidth, roof.peak, roof.peak],
            color="#111111",
            linewidth=1.6,
            zorder=1,
        )
        axes.axvline(roof.ridge, color="#111111", linestyle=":", linewidth=1)
        axes.annotate(
            f"{roof.label}, ridge {roof.ridge:.1f}",
            (plot.right, roof.peak),
            xytext=(-4, 4),
            textcoords="offset points",
            ha="right",
        )
    for at, group in enumerate(plot.groups):
        dots = [dot for dot in plot.dots if dot.group == at]
        axes.scatter(
            [dot.x for dot in dots],
            [dot.y for dot in dots],
            s=[max(380 * dot.area, 16) for dot in dots],
            color=PALETTE[at % len(PALETTE)],
            alpha=0.55,
            linewidths=0,
            zorder=2,
        )
        axes.scatter([], [], s=60, color=PALETTE[at % len(PALETTE)], label=shorten(group, 26))
    axes.set_ylabel("operations a second")
    axes.set_xlabel("operations a byte of memory access\n" + "; ".join(plot.notes))
    if plot.groups:
        axes.legend(loc="lower right")
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        # No date and no version inside: equal plans give equal files.
        figure.savefig(stream, format="png", metadata={"Software": None})
    return stream.getvalue()
