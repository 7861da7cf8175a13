"""Recipes: the blocked layout, which ONNX Runtime writes into files that it saves."""

from __future__ import annotations

from collections.abc import Iterator

from .contrib import BLOCKED, Recipe, f


def recipes() -> Iterator[Recipe]:
    """Channels are blocked by eight or sixteen, as the machine has it: 32 are both."""
    x = f(2, 32, 9, 13)
    odd = {"kernel_shape": [3, 2], "strides": [2, 3], "pads": [1, 0, 0, 1]}

    def one(op: str, *operands: object, note: str = "", **attrs: object) -> Recipe:
        return Recipe(op, operands, attrs, note=note, domain=BLOCKED)  # type: ignore[arg-type]

    yield one("ReorderInput", x)
    yield one("ReorderInput", f(2, 9, 13, 32), note="last", channels_last=1)
    yield one("ReorderOutput", x, channels=20)
    yield one("ReorderOutput", x, note="last", channels=20, channels_last=1)
    yield one("Conv", x, f(64, 32, 3, 2), f(64), **odd)
    yield one("MaxPool", x, **odd)
    yield one("MaxPool", x, note="ceil", **odd, ceil_mode=1)
    yield one("AveragePool", x, **odd)
    yield one("GlobalMaxPool", x)
    yield one("GlobalAveragePool", x)
    yield one("Upsample", x, scales=[1, 1, 2, 3])
