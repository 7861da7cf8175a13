"""Devices as text: all of them as a table, or one with every figure and its source."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from peakfold.printable import clean
from peakfold.reports.records.device import DeviceRecord, DevicesDocument, FigureRecord
from peakfold.reports.text.tables import heading, plain_table, render


def devices_text(document: DevicesDocument, *, width: int, color: bool) -> str:
    """All devices as a table, or the named ones in full."""
    if document.generations:
        return render(_overview(document), width=width, color=color)
    body: list[RenderableType] = []
    for device in document.devices:
        body += [*([""] if body else []), *_detail(device)]
    return render(body, width=width, color=color)


def _overview(document: DevicesDocument) -> list[RenderableType]:
    rows = [
        [
            device.name,
            rate(device.float32_flops),
            rate(device.float16_flops),
            rate(device.int8_ops),
            capacity(device.memory_bytes),
            speed(device.bandwidth),
            "?" if device.ridge is None else f"{device.ridge:.1f}",
            _error(device),
        ]
        for device in document.devices
    ]
    columns = [
        ("device", "left"),
        ("fp32", "right"),
        ("fp16", "right"),
        ("int8", "right"),
        ("memory", "right"),
        ("GB/s", "right"),
        ("ridge", "right"),
        ("error", "left"),
    ]
    grown = [
        [
            row.name,
            str(row.year or "?"),
            rate(row.float32_flops),
            rate(row.best_flops),
            capacity(row.memory_bytes),
            f"{row.compute_growth:.1f}x",
            f"{row.memory_growth:.1f}x",
            f"{row.ratio:.1f}",
        ]
        for row in document.generations
    ]
    growth = [
        ("card", "left"),
        ("year", "right"),
        ("fp32", "right"),
        ("best", "right"),
        ("memory", "right"),
        ("compute", "right"),
        ("memory", "right"),
        ("ratio", "right"),
    ]
    return [
        plain_table(columns, rows),
        "",
        Text(
            "fp32 on the vector engine, fp16 and int8 dense on the matrix engine where there is "
            "one, in TFLOP/s and TOP/s; ridge: fp32 operations a byte above which compute is the "
            "limit; error: median of the latency estimate on architectures it has not seen, - for "
            "roofline only; ?: no source. `peakfold devices NAME` shows every figure with its "
            "source."
        ),
        "",
        heading("Generations: compute has outgrown memory"),
        plain_table(growth, grown),
        Text("best: the highest dense float peak, fp16 on matrix units or fp32."),
    ]


def _error(device: DeviceRecord) -> str:
    return f"{device.latency[0].held_out_median:.0%}" if device.latency else "-"


def _detail(device: DeviceRecord) -> list[RenderableType]:
    title = Text(clean(device.title), "bold")
    title.append(f"  {clean(device.name)}, {device.kind} {clean(device.arch)}".rstrip(), "not bold")
    rows = [
        [clean(figure.name), shown(figure), clean(figure.note), clean(figure.source)]
        for figure in device.figures
    ]
    table = plain_table(
        [("figure", "left"), ("value", "right"), ("note", "left"), ("source", "left")], rows
    )
    for column in table.columns[2:]:
        column.no_wrap, column.overflow = False, "fold"
    body: list[RenderableType] = [title, *(Text(clean(note)) for note in device.notes), "", table]
    if device.ridge is not None:
        body += ["", Text(f"Ridge point, float32: {device.ridge:.1f} operations a byte.")]
    for fit in device.latency:
        body.append(
            Text(
                f"Latency, {clean(fit.name)} ({clean(fit.conditions)}): median error "
                f"{fit.held_out_median:.0%}, nine in ten below {fit.held_out_p90:.0%}, on "
                f"architecture families not seen; {fit.models:,} models of {clean(fit.source)}."
            )
        )
    if not device.latency:
        body.append(Text("Latency: roofline only, no measurements of this device are at hand."))
    return body


def shown(figure: FigureRecord) -> str:
    """A figure with a unit a reader expects."""
    value, unit = figure.value, figure.unit
    if unit == "op/s":
        scale, prefix = (1e12, "T") if value >= 1e11 else (1e9, "G")
        return f"{value / scale:,.6g} {prefix}{'FLOP/s' if 'float' in figure.name else 'OP/s'}"
    if unit == "byte":
        return capacity(value)
    if unit == "byte/s":
        return f"{value / 1e9:,.6g} GB/s"
    if unit == "Hz":
        return f"{value / 1e6:,.6g} MHz"
    if unit == "s":
        return f"{value * 1e6:,.6g} us"
    if figure.name == "chip.year":
        return f"{value:.0f}"
    return f"{value:,.6g} {unit}".rstrip()


def rate(value: float | None) -> str:
    """Operations a second in units of 10^12.

    Example:
        >>> rate(8.1e12), rate(1.92e9), rate(None)
        ('8.1', '0.00192', '?')
    """
    return "?" if value is None else f"{value / 1e12:,.6g}"


def speed(value: float | None) -> str:
    """Bytes a second in units of 10^9."""
    return "?" if value is None else f"{value / 1e9:,.6g}"


def capacity(value: float | None) -> str:
    """Memory as vendors write it: GB of 10^9 bytes, or KiB and MiB where it is a power of two.

    Example:
        >>> capacity(16e9), capacity(262144.0), capacity(None)
        ('16 GB', '256 KiB', '?')
    """
    if value is None:
        return "?"
    if value >= 1e9:
        return f"{value / 1e9:,.6g} GB"
    return f"{value / 2**20:,.6g} MiB" if value >= 2**20 else f"{value / 1024:,.6g} KiB"
