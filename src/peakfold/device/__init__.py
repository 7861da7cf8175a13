"""Devices as data: peaks, memory and links, each figure with its source.

A device is a TOML file beside this module, or a file of the user's.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import resources
from pathlib import Path

from peakfold.arguments import shown
from peakfold.boundary import read_text
from peakfold.device.read import read_device
from peakfold.device.record import Check, Device, Engine, Figure, Group, Latency, Rate
from peakfold.errors import ModelError, UsageError

__all__ = [
    "ALIASES", "Check", "Device", "Engine", "Figure", "Group", "Latency", "Rate", "device_names",
    "load_device", "read_device",
]  # fmt: skip

ALIASES = {
    "a100": "a100-80gb",
    "v100": "v100-sxm2",
    "h100": "h100-sxm5",
    "h200": "h200-sxm",
    "p100": "p100-sxm2",
    "jetson": "jetson-agx-orin",
    "raspberry-pi": "raspberry-pi-5",
    "cortex-m7": "stm32h743",
    "cortex-m4": "stm32l4r5",
}

MAX_BYTES = 1 << 20
"""Of a device file of the user's."""


def device_names() -> tuple[str, ...]:
    """The presets, sorted.

    Example:
        >>> "t4" in device_names()
        True
    """
    folder = resources.files(__package__)
    return tuple(sorted(p.name[:-5] for p in folder.iterdir() if p.name.endswith(".toml")))


def load_device(name: str) -> Device:
    """A preset by name, or a file of the user's when the name is a path to a ``.toml``.

    Case, spaces and dashes do not matter: ``RTX 4090`` is ``rtx-4090``. Behind a colon stands
    which fitted latency model is to be the usual one: ``rtx-4090:compiled``.

    Raises:
        UsageError: no such preset, file or latency model, or the file is not a device.

    Example:
        >>> load_device("T4").title
        'NVIDIA T4'
    """
    if not isinstance(name, str):
        raise UsageError(f"a device has a name, which this is not: {shown(name)}")
    plain, colon, run = name.rpartition(":")
    if not colon or run.endswith(".toml"):
        return _load(name)
    device = _load(plain)
    chosen = [fit for fit in device.latency if fit.name == run]
    if not chosen:
        known = ", ".join(fit.name for fit in device.latency) or "none"
        raise UsageError(f"no latency model {run!r}", where=plain, hint=f"known: {known}")
    rest = [fit for fit in device.latency if fit.name != run]
    return replace(device, latency=(*chosen, *rest))


def _load(name: str) -> Device:
    if name.endswith(".toml"):
        try:
            text = read_text(Path(name), MAX_BYTES, "a device file")
        except ModelError as error:
            raise UsageError(error.what, where=name) from None
        return read_device(text, Path(name).stem, name)
    plain = _plain(name)
    presets = device_names()
    found = {_plain(preset): preset for preset in presets}
    found |= {_plain(short): preset for short, preset in ALIASES.items()}
    if plain not in found:
        hint = f"known: {', '.join(presets)}; or a file: --device my.toml"
        raise UsageError(f"no device {name!r}", hint=hint)
    preset = found[plain]
    text = resources.files(__package__).joinpath(f"{preset}.toml").read_text("utf-8")
    return read_device(text, preset, f"{preset}.toml")


def _plain(name: str) -> str:
    """A name without what people write differently."""
    return "".join(c for c in name.lower().removeprefix("nvidia") if c.isalnum())
