"""Hypothesis strategies for packing problems, shared by the tests of this folder."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from peakfold.packing import FREE, Problem


@st.composite
def plain_problems(draw, max_buffers=8, max_time=8, max_size=12, aligned=False, pinned=False):
    """Plain buffers; zero sizes and empty lifetimes included."""
    n = draw(st.integers(0, max_buffers))
    start = [draw(st.integers(0, max_time)) for _ in range(n)]
    stop = [s + draw(st.integers(0, max_time)) for s in start]
    size = [draw(st.integers(0, max_size)) for _ in range(n)]
    align = [draw(st.sampled_from([1, 2, 4, 64, 4096])) if aligned else 1 for _ in range(n)]
    fixed = [FREE] * n
    if pinned and n:
        # Pins that can be met: stacked in index order, so they never clash.
        top = 0
        for b in draw(st.lists(st.integers(0, n - 1), unique=True, max_size=3)):
            fixed[b] = -(-top // align[b]) * align[b]
            top = fixed[b] + size[b]
    return Problem.of(start, stop, size, align=align, fixed=fixed)


@st.composite
def composite_problems(draw, max_buffers=6, max_pieces=3):
    """Buffers of up to `max_pieces` pieces anywhere inside them, overlaps included."""
    n = draw(st.integers(1, max_buffers))
    size = [draw(st.integers(0, 12)) for _ in range(n)]
    align = [draw(st.sampled_from([1, 2, 8])) for _ in range(n)]
    first, rows = [0], []
    for b in range(n):
        for _ in range(draw(st.integers(0, max_pieces))):
            start = draw(st.integers(0, 8))
            lower = draw(st.integers(0, size[b]))
            upper = draw(st.integers(lower, size[b]))
            rows.append((start, start + draw(st.integers(0, 5)), lower, upper))
        first.append(len(rows))
    start, stop, lower, upper = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    return Problem.of_pieces(
        size=size, first=first, start=start, stop=stop, lower=lower, upper=upper, align=align
    )


def any_problem():
    """Plain with alignment and pins, or composite."""
    return st.one_of(plain_problems(aligned=True, pinned=True), composite_problems())
