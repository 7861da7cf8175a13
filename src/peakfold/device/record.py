"""What is known of a device: peaks per engine and element type, memories, links, fits.

A figure carries its source. A figure nobody could source is absent, never zero, and everything
computed from devices says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Engine = Literal["vector", "matrix", "sparse", "npu"]
"""`vector`: ordinary lanes (CUDA cores, SIMD). `matrix`: dense matrix units (tensor cores).
`sparse` and `npu` rates are shown, but no time is computed from them: the first need a pruned
model, the second state no element type."""

Group = Literal[
    "stem", "conv", "pointwise", "group_conv", "depthwise", "matmul", "bmm", "attention",
    "batch_norm", "norm", "softmax", "activation", "elementwise", "reduce", "copy", "resize",
]  # fmt: skip
"""Kernels that behave alike on a device: what a latency model has constants for. `stem`: from
at most 4 channels; `conv`: larger windows than `pointwise`; `bmm`: two activations."""

Class = Literal["gpu", "cpu", "edge", "soc", "sbc", "mcu"]


@dataclass(frozen=True, slots=True)
class Figure:
    """One number.

    Attributes:
        value: in base units: op/s, byte, byte/s, Hz, W, s, or a plain count.
        unit: the base unit, empty for counts and years.
        source: where it was read, or ``derived: ...`` with the sum it comes from.
        note: what to know about it.
    """

    value: float
    unit: str
    source: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Rate:
    """A peak, as found for an engine and an element type that may not be rated themselves.

    Attributes:
        per_second: operations (2 per multiply-accumulate).
        engine: the engine that really runs it.
        dtype: the element type whose rate this is.
        exact: false when the asked type or engine is not rated and this one stands in.
    """

    per_second: float
    engine: Engine
    dtype: str
    exact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """How well a fit predicts architecture families it has not seen.

    Attributes:
        models: rows of the published table that were used.
        families: architecture families they belong to.
        median: of |estimate / measured - 1| over held-out families, a fraction.
        p90: the error that nine in ten held-out rows stay below.
    """

    models: int
    families: int
    median: float
    p90: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """A latency model of this device, fitted on a published table.

    Attributes:
        name: how the models were run (``eager``, ``compiled``).
        source: the table.
        conditions: precision, layout, batch of the measurements.
        dtype: element type of the arithmetic and of what is moved.
        batch: typical batch size of the measurements.
        launch: seconds an op costs before it does anything.
        weight: seconds an element of a weight.
        compute: seconds a multiply-accumulate, by group of kernels; `matmul` stands in.
        memory: seconds an activation element read or written, by group of kernels;
            `elementwise` stands in.
        check: the held-out error.
    """

    name: str
    source: str
    conditions: str
    dtype: str
    batch: int
    launch: float
    weight: float
    compute: Mapping[str, float]
    memory: Mapping[str, float]
    check: Check


# Who may stand in for whom: the next wider type the same unit can surely run.
_WIDER = {
    "uint8": "int8", "uint4": "int4", "int2": "int4", "uint2": "int4", "int4": "int8",
    "float4e2m1": "float8e4m3fn", "float8e5m2": "float8e4m3fn", "float8e4m3fnuz": "float8e4m3fn",
    "float8e5m2fnuz": "float8e4m3fn", "float8e8m0": "float8e4m3fn",
    "float8e4m3fn": "float16", "int8": "float16", "bfloat16": "float32", "float16": "float32",
    "int16": "int32", "uint16": "int32", "bool": "int32", "uint32": "int32", "int32": "float32",
    "int64": "float64", "uint64": "float64",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device; absent figures could not be sourced.

    Attributes:
        name: what ``--device`` calls it.
        title: the product.
        kind: gpu, cpu, edge module, soc, single-board computer or mcu.
        arch: microarchitecture.
        notes: what to know: variants, conflicting figures, slips of published tables.
        peaks: dense operations a second by engine and element type.
        memory: bytes of the main memory (an MCU's SRAM); vendor GB are 10^9 bytes.
        bandwidth: of that memory, bytes a second.
        host_link: bytes a second in one direction.
        peer_link: to other devices, bytes a second, both directions together.
        launch: seconds between an op and the next, where somebody measured it.
        figures: everything else by name: cores, matrix_cores, units, clock, boost, power, year,
            flash, l2, l3, bus.
        latency: fitted models, the usual one first; empty = roofline only.
    """

    name: str
    title: str
    kind: Class
    arch: str = ""
    notes: tuple[str, ...] = ()
    peaks: Mapping[Engine, Mapping[str, Figure]] = field(default_factory=dict)
    memory: Figure | None = None
    bandwidth: Figure | None = None
    host_link: Figure | None = None
    peer_link: Figure | None = None
    launch: Figure | None = None
    figures: Mapping[str, Figure] = field(default_factory=dict)
    latency: tuple[Latency, ...] = ()

    def rate(self, engine: str, dtype: str) -> Rate | None:
        """The peak for an engine and an element type.

        The matrix engine falls back on wider types it is rated for, then on the vector engine;
        the vector engine falls back on wider types only. float32 is never rated at
        TensorFloat-32 speed: that is another arithmetic, which a user has to ask for.

        Returns:
            The rate, or `None` when nothing stands in.

        Example:
            >>> from peakfold.device import load_device
            >>> t4 = load_device("t4")
            >>> t4.rate("matrix", "float16").per_second, t4.rate("matrix", "float32").engine
            (65000000000000.0, 'vector')
            >>> t4.rate("vector", "float16").exact
            False
        """
        engines: tuple[Engine, ...] = ("matrix", "vector") if engine == "matrix" else ("vector",)
        for unit in engines:
            table = self.peaks.get(unit, {})
            asked: str | None = dtype
            while asked is not None:
                # A rate with a narrower accumulator still is that type's rate, if no other is.
                for name in (asked, f"{asked}_acc16"):
                    if name in table:
                        exact = name == dtype and unit == engine
                        return Rate(table[name].value, unit, name, exact)
                asked = _WIDER.get(asked)
        return None

    def rated(self, dtype: str) -> bool:
        """Whether any engine has a rate of its own for an element type.

        Example:
            >>> from peakfold.device import load_device
            >>> load_device("t4").rated("bfloat16"), load_device("l4").rated("bfloat16")
            (False, True)
        """
        return any(dtype in table for table in self.peaks.values())

    def ridge(self, engine: str, dtype: str) -> float | None:
        """Operations a byte from which on compute, not memory, is the limit (R79).

        Example:
            >>> from peakfold.device import load_device
            >>> round(load_device("t4").ridge("vector", "float32"), 1)
            27.0
        """
        found = self.rate(engine, dtype)
        if found is None or self.bandwidth is None:
            return None
        return found.per_second / self.bandwidth.value
