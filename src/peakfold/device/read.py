"""Device files: TOML -> `Device`, each mistake named with its place.

    title = "My board"
    kind = "mcu"

    [sources]
    sheet = "the vendor's data sheet, table 3"

    [peak.vector]
    int8 = { tops = 0.2, source = "sheet" }
    float32 = { tflops = 0.05, source = "derived: 100 MHz x 1 multiply-add" }

    [memory]
    size = { kib = 256, source = "sheet" }
    bandwidth = { gb_s = 0.4 }

The unit is part of the key, so that a number cannot be read in another one: integers have
`tops` or `gops`, floats `tflops` or `gflops` (R74), memory `gb`, `mib` or `kib`, and so on.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, cast, get_args

from peakfold.boundary import foreign
from peakfold.device.record import Check, Class, Device, Engine, Figure, Group, Latency
from peakfold.errors import UsageError, shortened
from peakfold.ir.types import DTYPES

_Units = dict[str, tuple[str, str]]
_SIZE: _Units = {"gb": ("1e9", "byte"), "mib": ("1048576", "byte"), "kib": ("1024", "byte")}
_SPEED: _Units = {"gb_s": ("1e9", "byte/s")}
_COUNT: _Units = {"count": ("1", "")}
_CLOCK: _Units = {"mhz": ("1e6", "Hz")}
_FLOAT_RATE: _Units = {"tflops": ("1e12", "op/s"), "gflops": ("1e9", "op/s")}
_INT_RATE: _Units = {"tops": ("1e12", "op/s"), "gops": ("1e9", "op/s")}

# Section -> key -> the units it may be written in.
_SECTIONS: dict[str, dict[str, _Units]] = {
    "memory": {"size": _SIZE, "bandwidth": _SPEED, "flash": _SIZE, "l2": _SIZE, "l3": _SIZE,
               "bus": _SPEED},
    "link": {"host": _SPEED, "peer": _SPEED},
    "chip": {"cores": _COUNT, "matrix_cores": _COUNT, "units": _COUNT, "clock": _CLOCK,
             "boost": _CLOCK, "power": {"w": ("1", "W")}, "year": {"year": ("1", "")},
             "launch": {"us": ("1e-6", "s")}},
}  # fmt: skip
_TOP = ("title", "kind", "arch", "notes", "sources", "peak", "memory", "link", "chip", "latency")
_FIELDS = {
    "size": "memory",
    "bandwidth": "bandwidth",
    "host": "host_link",
    "peer": "peer_link",
    "launch": "launch",
}
# Arithmetic that is no storage type; `_acc16` accumulates in float16.
_EXTRA_TYPES = ("tfloat32", "float16_acc16", "unstated")
_LATENCY = ("name", "source", "conditions", "dtype", "batch", "launch_us", "weight_ps",
            "compute_ps", "memory_ps", "models", "families", "median", "p90")  # fmt: skip


_LEAST, _MOST = 1e-9, 2.0**62


def _shown(value: object) -> str:
    """A value of the file in few characters; Python writes no integer of thousands of digits."""
    whole = isinstance(value, int) and abs(value) > _MOST
    return "a number of more than 62 bits" if whole else shortened(repr(value), 80)


class _Reader:
    """One file being read; `where` names it in errors."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.sources: dict[str, str] = {}

    def fail(self, what: str, hint: str = "") -> UsageError:
        return UsageError(what, where=self.where, hint=hint)

    def table(self, value: object, name: str) -> dict[str, Any]:
        """A TOML table, or an error that names it."""
        if not isinstance(value, dict):
            raise self.fail(f"{name} is not a table", "write [section] or key = { ... }")
        return value

    def known(self, table: Mapping[str, Any], keys: tuple[str, ...], name: str) -> None:
        """Refuse keys nobody reads: a misspelt figure must not vanish."""
        for key in table:
            if key not in keys:
                inside = f"in {name}" if name else "at the top"
                raise self.fail(f"unknown key {key!r} {inside}", f"known: {', '.join(keys)}")

    def number(self, value: object, name: str) -> float:
        """A number above zero that arithmetic bears: no infinity, and no quotient that is one."""
        good = isinstance(value, int | float) and not isinstance(value, bool)
        if not good or not 0 < cast(float, value) < math.inf:
            raise self.fail(
                f"{name} is {_shown(value)}, not a number above 0", "leave out what is not known"
            )
        if not _LEAST <= cast(float, value) <= _MOST:
            raise self.fail(f"{name} is {_shown(value)}, which no device has")
        return float(cast(float, value))

    def text(self, value: object, name: str) -> str:
        """A string."""
        if not isinstance(value, str):
            raise self.fail(f"{name} is {_shown(value)}, not a text")
        return value

    def figure(self, value: object, name: str, units: _Units) -> Figure:
        """A figure with exactly one unit out of `units`."""
        if not isinstance(value, dict):
            example = f"{name.rsplit('.', 1)[-1]} = {{ {next(iter(units))} = ... }}"
            raise self.fail(f"{name} has no unit", f"write {example}")
        self.known(value, (*units, "source", "note"), name)
        given = [unit for unit in units if unit in value]
        if len(given) != 1:
            raise self.fail(f"{name} needs one of {', '.join(units)}, not {len(given)}")
        factor, base = units[given[0]]
        source = self.text(value.get("source", ""), f"{name}.source")
        if source and not source.startswith("derived"):
            if source not in self.sources:
                hint = f"add it to [sources]; there are {', '.join(self.sources) or 'none'}"
                raise self.fail(f"{name} names the unknown source {source!r}", hint)
            source = self.sources[source]
        note = self.text(value.get("note", ""), f"{name}.note")
        amount = self.number(value[given[0]], f"{name}.{given[0]}")
        # In decimal: 8.1 TFLOP/s is 8.1e12, not the nearest product of floats.
        scaled = float(Decimal(repr(amount)) * Decimal(factor))
        if scaled > _MOST:
            raise self.fail(f"{name} is {_shown(scaled)} {base}, which no device has")
        return Figure(scaled, base, source, note)

    def peaks(self, value: object) -> dict[Engine, dict[str, Figure]]:
        """The [peak.ENGINE] tables."""
        engines = get_args(Engine)
        table = self.table(value, "peak")
        self.known(table, engines, "[peak]")
        found: dict[Engine, dict[str, Figure]] = {}
        for engine, rates in table.items():
            name = f"peak.{engine}"
            for dtype, rate in self.table(rates, name).items():
                if dtype not in DTYPES and dtype not in _EXTRA_TYPES:
                    hint = "such as float32, float16, tfloat32, int8"
                    raise self.fail(f"{name} has the unknown element type {dtype!r}", hint)
                floats = "float" in dtype
                units, wrong = (_FLOAT_RATE, _INT_RATE) if floats else (_INT_RATE, _FLOAT_RATE)
                if isinstance(rate, dict) and set(wrong) & set(rate):
                    what = "a float type has tflops" if floats else "an integer type has tops"
                    raise self.fail(f"{name}.{dtype}: {what}")
                figures = found.setdefault(cast(Engine, engine), {})
                figures[dtype] = self.figure(rate, f"{name}.{dtype}", units)
        return found

    def latency(self, value: object) -> tuple[Latency, ...]:
        """The [[latency]] tables, as the fit script writes them."""
        if not isinstance(value, list):
            raise self.fail("latency is not a list of tables", "write [[latency]]")
        return tuple(self._fit(self.table(row, "latency")) for row in value)

    def _fit(self, row: dict[str, Any]) -> Latency:
        self.known(row, _LATENCY, "[[latency]]")
        missing = [key for key in _LATENCY if key not in row]
        if missing:
            raise self.fail(f"[[latency]] lacks {', '.join(missing)}")

        def costs(key: str, needed: str) -> dict[str, float]:
            table = self.table(row[key], f"latency.{key}")
            for group in (*table, needed):
                if group not in get_args(Group):
                    hint = f"known: {', '.join(get_args(Group))}"
                    raise self.fail(f"latency.{key} has the unknown group {group!r}", hint)
                if group not in table:
                    raise self.fail(f"latency.{key} lacks {needed}")
            return {k: self.number(v, f"latency.{key}.{k}") * 1e-12 for k, v in table.items()}

        return Latency(
            name=self.text(row["name"], "latency.name"),
            source=self.text(row["source"], "latency.source"),
            conditions=self.text(row["conditions"], "latency.conditions"),
            dtype=self.text(row["dtype"], "latency.dtype"),
            batch=int(self.number(row["batch"], "latency.batch")),
            launch=self.number(row["launch_us"], "latency.launch_us") * 1e-6,
            weight=self.number(row["weight_ps"], "latency.weight_ps") * 1e-12,
            compute=costs("compute_ps", "matmul"),
            memory=costs("memory_ps", "elementwise"),
            check=Check(
                models=int(self.number(row["models"], "latency.models")),
                families=int(self.number(row["families"], "latency.families")),
                median=self.number(row["median"], "latency.median"),
                p90=self.number(row["p90"], "latency.p90"),
            ),
        )


def read_device(text: str, name: str, where: str) -> Device:
    """A device from the text of its file.

    Args:
        text: TOML.
        name: what to call it.
        where: the file, for errors.

    Raises:
        UsageError: no TOML, an unknown key, a figure without unit or not above zero.

    Example:
        >>> board = read_device("[memory]\\nsize = { kib = 256 }", "board", "board.toml")
        >>> board.memory.value
        262144.0
    """
    reader = _Reader(where)
    with foreign("is no TOML", where, error=UsageError):
        data = tomllib.loads(text)
    reader.known(data, _TOP, "")
    for key, source in reader.table(data.get("sources", {}), "sources").items():
        reader.sources[key] = reader.text(source, f"sources.{key}")
    kind = data.get("kind", "gpu")
    if kind not in get_args(Class):
        raise reader.fail(f"unknown kind {kind!r}", f"known: {', '.join(get_args(Class))}")
    notes = data.get("notes", [])
    if not isinstance(notes, list):
        raise reader.fail("notes is not a list of texts")
    named: dict[str, Figure] = {}
    others: dict[str, Figure] = {}
    for section, keys in _SECTIONS.items():
        table = reader.table(data.get(section, {}), section)
        reader.known(table, tuple(keys), f"[{section}]")
        for key, value in table.items():
            figure = reader.figure(value, f"{section}.{key}", keys[key])
            if key in _FIELDS:
                named[_FIELDS[key]] = figure
            else:
                others[key] = figure
    return Device(
        name=name,
        title=reader.text(data.get("title", name), "title"),
        kind=kind,
        arch=reader.text(data.get("arch", ""), "arch"),
        notes=tuple(reader.text(note, "notes") for note in notes),
        peaks=reader.peaks(data.get("peak", {})),
        figures=others,
        latency=reader.latency(data.get("latency", [])),
        **named,
    )
