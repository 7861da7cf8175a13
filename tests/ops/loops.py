"""Kernels as plain loops over elements, to try out where an output may lie over its input.

Each function walks the loops of one of TensorFlow Lite Micro's reference kernels and yields,
element by element, `(reads, write)`: flat indices of the input elements that are read, and
the flat index of the output element that is then written (`None`: nothing is written yet).
`play` runs such a walk in one memory of tokens: what an element becomes depends on all that it
read, so a single destroyed byte shows in the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from math import ceil, floor, prod

import numpy as np

Walk = Iterator[tuple[list[int], int | None]]
Shape = tuple[int, ...]


def flat(shape: Shape, index: tuple[int, ...]) -> int:
    at = 0
    for size, i in zip(shape, index, strict=True):
        at = at * size + i
    return at


def window(
    x: Shape,
    y: Shape,
    *,
    kernel: Shape,
    stride: Shape,
    dilation: Shape,
    before: Shape,
    channels: Callable[[int], range],
) -> Walk:
    """Convolutions and pools: `channels` says which input channels an output channel reads."""
    for b, oy, ox, oc in product(*map(range, y)):
        reads = []
        for fy, fx in product(range(kernel[0]), range(kernel[1])):
            iy = oy * stride[0] - before[0] + fy * dilation[0]
            ix = ox * stride[1] - before[1] + fx * dilation[1]
            if 0 <= iy < x[1] and 0 <= ix < x[2]:
                reads += [flat(x, (b, iy, ix, c)) for c in channels(oc)]
        yield reads, flat(y, (b, oy, ox, oc))


def rows(count: int, depth: int, units: int) -> Walk:
    """A dense layer: each unit reads its whole row."""
    for row, unit in product(range(count), range(units)):
        yield [row * depth + d for d in range(depth)], row * units + unit


def elementwise(count: int) -> Walk:
    for at in range(count):
        yield [at], at


def softmax(count: int, depth: int) -> Walk:
    """Maximum and sum of a row first, then element by element."""
    for row in range(count):
        yield [row * depth + d for d in range(depth)], None
        for d in range(depth):
            yield [row * depth + d], row * depth + d


def pad(x: Shape, y: Shape, before: Shape) -> Walk:
    for index in product(*map(range, y)):
        inner = tuple(i - low for i, low in zip(index, before, strict=True))
        inside = all(0 <= i < size for i, size in zip(inner, x, strict=True))
        yield [flat(x, inner)] if inside else [], flat(y, index)


def strided(x: Shape, y: Shape, begin: Shape, stride: Shape) -> Walk:
    for index in product(*map(range, y)):
        source = tuple(b + i * s for b, i, s in zip(begin, index, stride, strict=True))
        yield [flat(x, source)], flat(y, index)


def nearest(x: Shape, y: Shape, *, align: bool, half: bool) -> Walk:
    """Whole pixels are copied by a routine that must not see source and copy overlap."""

    def source(at: int, size: int, count: int) -> int:
        scale = np.float32(size) / np.float32(count)
        if align and count > 1:
            scale = np.float32(size - 1) / np.float32(count - 1)
        place = (np.float32(at) + np.float32(0.5 if half else 0)) * scale
        # Halves are rounded away from zero.
        return min(floor(place + np.float32(0.5)) if align else floor(place), size - 1)

    for b, oy, ox in product(*map(range, y[:3])):
        pixel = (b, source(oy, x[1], y[1]), source(ox, x[2], y[2]))
        block = [flat(x, (*pixel, c)) for c in range(x[3])]
        for c in range(x[3]):  # every byte of the block is still needed until all are written
            yield block, flat(y, (b, oy, ox, c))
        yield block, None


def bilinear(x: Shape, y: Shape, *, align: bool, half: bool, floats: bool = False) -> Walk:
    """Four neighbours, found in fixed point by the kernel for 8-bit integers."""

    def near_in_floats(at: int, size: int, count: int) -> list[int]:
        scale = np.float32(size) / np.float32(count)
        if align and count > 1:
            scale = np.float32(size - 1) / np.float32(count - 1)
        place = np.float32(at) * scale
        if half:
            place = (np.float32(at) + np.float32(0.5)) * scale - np.float32(0.5)
        return [max(floor(place), 0), min(ceil(place), size - 1)]

    def taps(at: int, size: int, count: int) -> list[int]:
        if floats:
            return near_in_floats(at, size, count)
        scale = (1024 * size + count // 2) // count
        if align and count > 1:
            scale = (1024 * (size - 1) + (count - 1) // 2) // (count - 1)
        place = at * scale + (scale // 2 - 512 if half else 0)
        low, high = max(int(place / 1024), 0), min(int((place + 1023) / 1024), size - 1)
        return [low, high]

    for b, oy, ox, c in product(*map(range, y)):
        near = product(taps(oy, x[1], y[1]), taps(ox, x[2], y[2]))
        yield [flat(x, (b, iy, ix, c)) for iy, ix in near], flat(y, (b, oy, ox, c))


def scattered(x: Shape, y: Shape) -> Walk:
    """A transposed convolution that adds up in scratch: reads everything, then writes."""
    yield list(range(prod(x))), None
    for at in range(prod(y)):
        yield [], at


def play(walk: Walk, counts: tuple[int, int], widths: tuple[int, int], distance: int | None):
    """The output of a walk and the sum of all it read, in one memory.

    The output lies `distance` bytes below the input.

    Args:
        walk: the kernel.
        counts, widths: elements, and bytes of one, of input and output.
        distance: `None` = the two lie apart.
    """
    n, m = counts[0] * widths[0], counts[1] * widths[1]
    out_at = 0 if distance is None or distance >= 0 else -distance
    in_at = m if distance is None else max(distance, 0)
    memory: list[object] = ["nothing"] * (max(in_at + n, out_at + m) + 1)
    memory[in_at : in_at + n] = [f"x{at}" for at in range(n)]
    seen = 0
    for reads, write in walk:
        for at in reads:
            start = in_at + at * widths[0]
            seen = hash((seen, tuple(memory[start : start + widths[0]])))
        if write is not None:
            start = out_at + write * widths[1]
            memory[start : start + widths[1]] = [(seen, byte) for byte in range(widths[1])]
    return memory[out_at : out_at + m], seen


def smallest(walk: Callable[[], Walk], counts: tuple[int, int], widths: tuple[int, int]) -> int:
    """The smallest safe distance, from all reads and writes of a walk one by one."""
    steps = list(walk())
    needed, distance = counts[0] * widths[0], 0
    for reads, write in reversed(steps):
        if write is not None and needed < counts[0] * widths[0]:
            distance = max(distance, (write + 1) * widths[1] - needed)
        needed = min([needed, *(at * widths[0] for at in reads)])
    return distance
