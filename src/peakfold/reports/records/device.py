"""Devices as JSON records: figures with their sources, fits, generations (R4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from peakfold.device import Device, Figure, device_names, load_device

# Server cards in the order they came, one a generation, for the growth of compute and memory.
GENERATIONS = ("k80", "p40", "v100-pcie", "t4", "v100s", "a100-80gb", "h100-sxm5", "h200-sxm",
               "b200")  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureRecord:
    """One figure in base units (op/s, byte, byte/s, Hz, W, s)."""

    name: str
    value: float
    unit: str
    source: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyRecord:
    """A fitted latency model and its error on architecture families it has not seen."""

    name: str
    source: str
    conditions: str
    models: int
    families: int
    held_out_median: float
    held_out_p90: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRecord:
    """One device; a figure that could not be sourced is `None` or missing from `figures`.

    Attributes:
        float32_flops: operations a second on the vector engine.
        float16_flops: on the matrix engine, dense.
        int8_ops: on the matrix engine, dense, or on the vector engine when it has none.
        ridge: float32 operations a byte from which on compute is the limit.
        flops_per_byte_of_memory: float32 op/s over memory bytes: how far compute has outgrown
            capacity.
    """

    name: str
    title: str
    kind: str
    arch: str
    float32_flops: float | None
    float16_flops: float | None
    int8_ops: float | None
    memory_bytes: float | None
    bandwidth: float | None
    ridge: float | None
    flops_per_byte_of_memory: float | None
    latency: list[LatencyRecord]
    notes: list[str]
    figures: list[FigureRecord]


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRow:
    """A server card against the first one: growth of compute and of memory.

    Attributes:
        best_flops: the highest dense float peak: float16 on matrix units, or float32.
        ratio: compute growth over memory growth.
    """

    name: str
    year: int | None
    float32_flops: float
    best_flops: float
    memory_bytes: float
    compute_growth: float
    memory_growth: float
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicesDocument:
    """Output of ``devices --json``."""

    schema: str
    devices: list[DeviceRecord]
    generations: list[GenerationRow]


def figures_of(device: Device) -> list[tuple[str, Figure]]:
    """Every figure of a device by its place in the file."""
    rows = [
        (f"peak.{engine}.{dtype}", figure)
        for engine, table in device.peaks.items()
        for dtype, figure in table.items()
    ]
    single = {
        "memory.size": device.memory,
        "memory.bandwidth": device.bandwidth,
        "link.host": device.host_link,
        "link.peer": device.peer_link,
        "chip.launch": device.launch,
    }
    rows += [(name, figure) for name, figure in single.items() if figure is not None]
    memory = {"flash", "l2", "l3", "bus"}
    rows += [
        (f"{'memory' if name in memory else 'chip'}.{name}", figure)
        for name, figure in device.figures.items()
    ]
    return rows


def device_record(device: Device) -> DeviceRecord:
    """A device as its JSON record."""
    float32 = _peak(device, "vector", "float32")
    memory = device.memory.value if device.memory else None
    return DeviceRecord(
        name=device.name,
        title=device.title,
        kind=device.kind,
        arch=device.arch,
        float32_flops=float32,
        float16_flops=_first(
            _peak(device, "matrix", "float16"), _peak(device, "matrix", "float16_acc16")
        ),
        int8_ops=_first(_peak(device, "matrix", "int8"), _peak(device, "vector", "int8")),
        memory_bytes=memory,
        bandwidth=device.bandwidth.value if device.bandwidth else None,
        ridge=device.ridge("vector", "float32"),
        flops_per_byte_of_memory=float32 / memory if float32 and memory else None,
        latency=[
            LatencyRecord(
                name=fit.name,
                source=fit.source,
                conditions=fit.conditions,
                models=fit.check.models,
                families=fit.check.families,
                held_out_median=fit.check.median,
                held_out_p90=fit.check.p90,
            )
            for fit in device.latency
        ],
        notes=list(device.notes),
        figures=[
            FigureRecord(
                name=name,
                value=figure.value,
                unit=figure.unit,
                source=figure.source,
                note=figure.note,
            )
            for name, figure in figures_of(device)
        ],
    )


def _peak(device: Device, engine: str, dtype: str) -> float | None:
    """A peak that is stated for exactly this engine and type."""
    for name, table in device.peaks.items():
        if name == engine and dtype in table:
            return table[dtype].value
    return None


def _first(*values: float | None) -> float | None:
    """The first value that is known."""
    return next((value for value in values if value is not None), None)


def generations() -> list[GenerationRow]:
    """Server cards by year: compute has grown faster than memory (R4).

    Example:
        >>> rows = generations()
        >>> rows[0].ratio, rows[-1].ratio > 10
        (1.0, True)
    """
    rows: list[GenerationRow] = []
    for name in GENERATIONS:
        device = load_device(name)
        flops = _peak(device, "vector", "float32")
        year = device.figures.get("year")
        if flops is None or device.memory is None:
            continue
        first = rows[0] if rows else None
        best = max(_peak(device, "matrix", "float16") or 0.0, flops)
        compute = best / first.best_flops if first else 1.0
        memory = device.memory.value / first.memory_bytes if first else 1.0
        rows.append(
            GenerationRow(
                name=name,
                year=int(year.value) if year else None,
                float32_flops=flops,
                best_flops=best,
                memory_bytes=device.memory.value,
                compute_growth=compute,
                memory_growth=memory,
                ratio=compute / memory,
            )
        )
    return rows


def devices_document(schema: str, names: Sequence[str] = ()) -> DevicesDocument:
    """The devices of these names (presets or files), or every preset and the generations."""
    chosen = [load_device(name) for name in names or device_names()]
    return DevicesDocument(
        schema=schema,
        devices=[device_record(device) for device in chosen],
        generations=[] if names else generations(),
    )
