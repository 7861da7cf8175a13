"""Seeded mutations of any file's bytes, and the values that readers dislike."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence

NUMBERS = (
    0, 1, -1, 2, 3, 7, 8, 16, 63, 64, 127, 128, 255, 256, 1000, 65535, 65536, 2**31 - 1, 2**31,
    -(2**31), 2**32 - 1, 2**32, 2**53, 2**62, 2**63 - 1, -(2**63), 2**63, 2**64, 10**30,
)  # fmt: skip
"""Integers at which something wraps, overflows or is taken for a sign."""
WORDS = (
    "", "x", "0", "-1", "nan", "inf", "1e400", "../x", "/dev/zero", "a/b", "\x1b[31mred", "\u202e",
    "\x00", "\n", '"', "'", "\\", "{}", "[]", "=cmd|' /C calc'!A0", "float32", "N", "N+1", "é" * 40,
    "w" * 5000, "%s%n", "<script>", "*/", "`", "\x85", "\ufeff",
)  # fmt: skip
"""Strings that are no name, no number, or no text."""

Edit = Callable[[bytearray, int, random.Random], None]
"""Changes bytes from a place on."""


def mutate_bytes(data: bytes, rng: random.Random, more: Sequence[Edit] = ()) -> bytes:
    """Flip, cut, repeat or insert bytes, or do what a format of its own suggests."""
    mutated = bytearray(data)
    at = rng.randrange(len(mutated) + 1)
    rng.choice([*_EDITS, *more])(mutated, at, rng)
    return bytes(mutated)


def _flip(data: bytearray, at: int, rng: random.Random) -> None:
    data[at : at + 1] = rng.randbytes(1)


def _cut(data: bytearray, at: int, rng: random.Random) -> None:
    del data[at : at + rng.randrange(1, 40)]


def _repeat(data: bytearray, at: int, rng: random.Random) -> None:
    data[at:at] = data[at : at + rng.randrange(1, 40)]


def _insert(data: bytearray, at: int, rng: random.Random) -> None:
    data[at:at] = rng.randbytes(rng.randrange(1, 8))


def _bit(data: bytearray, at: int, rng: random.Random) -> None:
    if at < len(data):
        data[at] ^= 1 << rng.randrange(8)


def _cut_short(data: bytearray, at: int, _rng: random.Random) -> None:
    del data[at:]


def _word(data: bytearray, at: int, rng: random.Random) -> None:
    """An integer where one may stand: an offset, a length, a count."""
    form = rng.choice(["<I", "<I", "<H", "<Q", ">I"])
    size = struct.calcsize(form)
    number = rng.choice([*NUMBERS, len(data)]) % (1 << 8 * size)
    data[at : at + size] = struct.pack(form, number)


def _splice(data: bytearray, at: int, rng: random.Random) -> None:
    """A stretch of the file in another place of it."""
    start = rng.randrange(len(data) + 1)
    piece = bytes(data[start : start + rng.randrange(1, 400)])
    data[at : at + len(piece)] = piece


_EDITS: list[Edit] = [_flip, _bit, _cut, _repeat, _insert, _cut_short, _word, _splice]
