"""Memory over time as characters: what the plan holds, what no reuse would hold, the bound.

            │            ░░░░░░░░          filled   bytes the plan holds at a step
    4.5 MiB ┤╌╌╌╌╌╌╌▄╌╌╌╌╌╌╌╌╌╌╌╌╌          dashes   no layout of this order is lower
            │     ▂ █ ▃ ▂ ░░░░░░░          shaded   nothing reused: it only grows
          0 └────────────────────

Columns are steps (or bins of steps, each showing its maximum), rows are bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from rich.text import Text

from peakfold.printable import shorten
from peakfold.units import format_bytes

_EIGHTHS = " ▁▂▃▄▅▆▇█"
# The area of no reuse is cut off at this multiple of the plan, or the plan would be a line.
_HEADROOM = 1.6
_AXIS = 12


@dataclass(frozen=True, slots=True, eq=False)
class Curves:
    """What is drawn.

    Attributes:
        live: (steps,) bytes the plan holds.
        naive: (steps,) bytes allocated so far when nothing is ever reused.
        bound: bytes that no layout of this order goes below.
        total: bytes of the plan.
        peak_step: the step whose op is named; `peak_op` is that name.
    """

    live: npt.NDArray[np.int64]
    naive: npt.NDArray[np.int64]
    bound: int
    total: int
    peak_step: int
    peak_op: str


def columns(values: npt.NDArray[np.int64], width: int) -> npt.NDArray[np.int64]:
    """The maximum of `values` in each of `width` equal bins; few values are stretched.

    Example:
        >>> columns(np.array([1, 5, 2, 3]), 2).tolist(), columns(np.array([1, 5]), 4).tolist()
        ([5, 3], [1, 1, 5, 5])
    """
    count = len(values)
    if count == 0:
        return np.zeros(width, dtype=np.int64)
    edges = np.arange(width, dtype=np.int64) * count // width
    if count <= width:
        return values[edges]
    return np.maximum.reduceat(values, edges)


def picture(curves: Curves, *, width: int, height: int = 11) -> list[Text]:
    """The picture as lines of styled text.

    Args:
        curves: what to draw.
        width: characters of a line.
        height: rows of the plot.
    """
    span = max(width - _AXIS - 2, 10)
    naive_end = int(curves.naive.max(initial=0))
    top = max(min(naive_end, int(curves.total * _HEADROOM)), curves.total, 1)
    live, naive = columns(curves.live, span), columns(curves.naive, span)
    bound_row = _row(curves.bound, top, height) if curves.bound else -1
    lines: list[Text] = []
    for row in range(height - 1, -1, -1):
        label = format_bytes(top) if row == height - 1 else ""
        if row == bound_row:
            label = format_bytes(curves.bound)
        line = Text(f"{label:>{_AXIS - 1}} {'┤' if label else '│'}", "dim")
        for column in range(span):
            _cell(line, row, live[column], naive[column], top, height, row == bound_row)
        lines.append(line)
    lines.append(Text(f"{'0':>{_AXIS - 1}} └{'─' * span}", "dim"))
    lines.append(_peak_line(curves, span))
    lines += _legend(curves, naive_end, top, width)
    return lines


def _row(value: int, top: int, height: int) -> int:
    """The row that holds the top edge of a value."""
    return min(max(-(-value * height // top) - 1, 0), height - 1)


def _cell(line: Text, row: int, live: int, naive: int, top: int, height: int, bound: bool) -> None:
    """Append one character: the plan covers the bound, the bound covers what is not reused."""
    eighths = int(live) * height * 8 // top - row * 8
    if live and eighths <= 0 and row == 0:
        eighths = 1  # a little is not nothing
    if eighths > 0:
        line.append(_EIGHTHS[min(eighths, 8)], "cyan")
        return
    if bound:
        line.append("╌", "green")
    elif int(naive) * height * 2 // top > row * 2:
        line.append("░", "yellow dim")
    else:
        line.append(" ")


def _peak_line(curves: Curves, span: int) -> Text:
    steps = max(len(curves.live), 1)
    # The middle of the columns that show this step.
    at = min((2 * curves.peak_step + 1) * span // (2 * steps), span - 1)
    step = f"step {curves.peak_step + 1} of {steps}"
    room = span - len(step) - 12
    named = shorten(f"peak: {curves.peak_op}", span)
    label = f"peak: {shorten(curves.peak_op, room)} ({step})" if room >= 8 else named
    if at + 2 + len(label) <= span:
        body = f"{' ' * at}▲ {label}"
    else:
        body = f"{label} ▲".rjust(at + 1)
        body = body if len(body) == at + 1 else f"{' ' * at}▲\n{' ' * (_AXIS + 1)}{label}"
    return Text(f"{' ' * (_AXIS + 1)}{body}", "bold")


def _legend(curves: Curves, naive_end: int, top: int, width: int) -> list[Text]:
    beyond = ", beyond the picture" if naive_end > top else ""
    entries = [
        ("█", "cyan", f"plan holds ({format_bytes(curves.total)})"),
        ("╌", "green", f"lower bound ({format_bytes(curves.bound)})"),
        ("░", "yellow dim", f"nothing reused (to {format_bytes(naive_end)}{beyond})"),
    ]
    lines = [Text(" " * (_AXIS + 1))]
    for mark, style, label in entries:
        if len(lines[-1].plain) > _AXIS + 1 and len(lines[-1].plain) + len(label) + 6 > width:
            lines.append(Text(" " * (_AXIS + 1)))
        lines[-1].append(mark, style).append(f" {label}   ")
    for line in lines:
        line.rstrip()
    return lines
