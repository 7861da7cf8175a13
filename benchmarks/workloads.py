"""Seeded packing workloads. Tuning uses seeds from 10,000 up, reports use 1 to 999."""

from __future__ import annotations

import numpy as np

from peakfold.packing import Problem

SIDE = 1 << 20
GRAIN = 1 << 10


def perfect(buffers: int, seed: int) -> Problem:
    """A full rectangle of 2^20 steps by 2^20 bytes cut by guillotine: the optimum is 2^20.

    A piece is drawn with probability proportional to its area and cut at a uniform multiple of
    1,024 across a random side, until there are `buffers` pieces. Every section has no slack.
    """
    rng = np.random.default_rng(seed)
    pieces = np.zeros((buffers, 4), dtype=np.int64)  # start, stop, low, high in grains
    pieces[0] = 0, SIDE // GRAIN, 0, SIDE // GRAIN
    count = 1
    while count < buffers:
        sides = pieces[:count, 1::2] - pieces[:count, ::2]
        area = (sides[:, 0] * sides[:, 1]).astype(np.float64)
        at = int(rng.choice(count, p=area / area.sum()))
        axis = int(rng.integers(2))
        if sides[at, axis] < 2:
            continue
        cut = pieces[at, 2 * axis] + int(rng.integers(1, sides[at, axis]))
        pieces[count] = pieces[at]
        pieces[at, 2 * axis + 1] = cut
        pieces[count, 2 * axis] = cut
        count += 1
    start, stop, low, high = (rng.permutation(pieces) * GRAIN).T
    return Problem.of(start, stop, high - low)


def random_intervals(buffers: int, seed: int) -> Problem:
    """Uniform starts, lengths up to 1 % of the time (at least 40), sizes over three decades."""
    rng = np.random.default_rng(seed)
    start = rng.integers(0, buffers, buffers)
    stop = start + rng.integers(1, max(40, buffers // 100), buffers)
    size = 64 * np.exp(rng.uniform(0, np.log(1000), buffers)).astype(np.int64)
    return Problem.of(start, stop, size)


def graph_like(buffers: int, seed: int) -> Problem:
    """Lifetimes of a forward graph: most die at the next steps, some live through a block,
    a few through the whole network (skip connections); sizes shrink with depth."""
    rng = np.random.default_rng(seed)
    start = np.arange(buffers)
    length = rng.geometric(0.5, buffers)
    block = rng.random(buffers) < 0.05
    length[block] += rng.integers(5, 60, int(block.sum()))
    rare = rng.random(buffers) < 20 / buffers
    length[rare] = rng.integers(1, buffers, int(rare.sum()))
    depth = 1 - 0.8 * start / max(buffers, 1)
    size = 64 * (1 + (rng.gamma(1.0, 2000.0, buffers) * depth).astype(np.int64))
    return Problem.of(start, start + length + 1, size)
