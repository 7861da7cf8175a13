"""Reading and writing sizes: the only place that formats a number of bytes.

Binary prefixes (KiB, MiB, GiB) are powers of 1024, decimal ones (kB, MB, GB) powers of 1000
(IEC 80000-13). Reports print binary prefixes and keep exact bytes in JSON.
"""

from __future__ import annotations

import re

from peakfold.errors import UsageError

_FACTORS = {
    "": 1,
    "b": 1,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
}
_SIZE = re.compile(r"\s*(\d{1,30}(?:\.\d{1,30})?)\s*([A-Za-z]*)\s*", re.ASCII)


def parse_size(text: str) -> int:
    """Bytes of a size as a user writes it; a fraction of a byte rounds down.

    Raises:
        UsageError: not a number with an optional unit.

    Example:
        >>> parse_size("256KiB"), parse_size("1.5GB"), parse_size("1048576")
        (262144, 1500000000, 1048576)
    """
    match = _SIZE.fullmatch(text)
    if match is None or match[2].lower() not in _FACTORS:
        shown = repr(text) if len(text) <= 60 else f"{text[:60]!r}..."
        raise UsageError(f"{shown} is not a size", hint="write 256KiB, 1.5GB or 1048576")
    number, factor = match[1], _FACTORS[match[2].lower()]
    size = int(number) * factor if "." not in number else int(float(number) * factor)
    if size >= 2**62:
        raise UsageError(f"{text!r} is 2^62 bytes or more, no size of this world")
    return size


def format_bytes(count: int | None) -> str:
    """A size for people; `None` (unknown) prints as ``?``.

    Example:
        >>> format_bytes(6021120), format_bytes(512), format_bytes(None)
        ('5.742 MiB', '512 B', '?')
    """
    if count is None:
        return "?"
    if abs(count) < 1024:
        return f"{count} B"
    value = float(count)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        value /= 1024
        if abs(value) < 1024 or unit == "TiB":
            break
    return f"{value:.3f} {unit}"


_PREFIXES = ("", "K", "M", "G", "T", "P", "E", "Z", "Y", "R", "Q")


def format_count(count: float | None, unit: str = "") -> str:
    """A count for people, with a decimal prefix; `None` (unknown) prints as ``?``.

    The unit says what is counted (``FLOPs``, ``MACs``, ``FLOP/s``) and follows the prefix.

    Example:
        >>> format_count(8217637232, "FLOPs"), format_count(25557032), format_count(320)
        ('8.218 GFLOPs', '25.557 M', '320')
        >>> format_count(426003840, "B/s"), format_count(1e21, "FLOPs"), format_count(None)
        ('426.004 MB/s', '1.000 ZFLOPs', '?')
    """
    if count is None:
        return "?"
    power = 0
    while power + 1 < len(_PREFIXES) and abs(count) >= 999.9995 * 1000**power:
        power += 1
    prefix = _PREFIXES[power]
    number = f"{count:.3f}" if power == 0 and count % 1 else f"{count / 1000**power:.3f}"
    number = f"{count:.0f}" if power == 0 and not count % 1 else number
    return f"{number} {prefix}{unit}".rstrip()


def format_short(count: float) -> str:
    """A count in three digits, for axes and labels.

    Example:
        >>> format_short(8.1e12), format_short(1e9), format_short(0.01), format_short(250.0)
        ('8.1 T', '1 G', '0.01', '250')
    """
    for power in range(len(_PREFIXES) - 1, 0, -1):
        if count >= 1000.0**power:
            return f"{count / 1000.0**power:.3g} {_PREFIXES[power]}"
    return f"{count:.3g}"


def round_up(count: int, align: int) -> int:
    """The smallest multiple of `align` that is at least `count`.

    Example:
        >>> round_up(65, 64), round_up(64, 64)
        (128, 64)
    """
    return -(-count // align) * align
