"""Other allocators behind one call: problem, capacity, seconds -> offsets, or None for nothing.

A peer takes part where it is installed: `omnimalloc` and `ortools` from PyPI, a `minimalloc`
program on PATH. A peer is called with its own defaults unless its name says otherwise; what it
does not take (a capacity, a time limit) is not passed.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from peakfold.packing import Problem, pack
from peakfold.packing.csv_format import Table, format_csv, read_csv
from peakfold.packing.heuristics.sections import section_loads, sections

Run = Callable[[Problem, "int | None", float], "np.ndarray | None"]


@dataclass(frozen=True)
class Tool:
    """One allocator; `largest` is the number of buffers it is asked for at most."""

    run: Run
    largest: int = 10**9


def ours(problem: Problem, capacity: int | None, limit: float) -> np.ndarray | None:
    return pack(problem, capacity=capacity, minimize=capacity is None, time_limit=limit).offsets


def omnimalloc(name: str, threads: int | None = None) -> Run:
    """It knows no capacity; by default SuperMalloc stops itself after 3 s.

    With `threads` it gets the round's limit, and more threads than there are cores: that makes
    it try its bounds from below, too, which here is its best known setting.
    """

    def run(problem: Problem, capacity: int | None, limit: float) -> np.ndarray | None:  # noqa: ARG001 - no capacity
        import omnimalloc as om
        from omnimalloc.allocators import SupermallocAllocator

        allocator = SupermallocAllocator(limit, num_threads=threads) if threads else name

        live = np.flatnonzero(problem.alive).tolist()
        size, start, stop = (x.tolist() for x in (problem.size, problem.start, problem.stop))
        rows = tuple(om.Allocation(id=i, size=size[i], start=start[i], end=stop[i]) for i in live)
        offsets = np.zeros(problem.buffers, dtype=np.int64)
        for row in om.allocate(rows, allocator=allocator):
            offsets[row.id] = row.offset
        return offsets

    return run


def minimalloc(problem: Problem, capacity: int | None, limit: float) -> np.ndarray | None:
    if capacity is None:
        return None
    names = tuple(map(str, range(problem.buffers)))
    named = Problem.of(problem.start, problem.stop, problem.size, names=names)
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder, "in.csv"), Path(folder, "out.csv")
        table = Table(named, named.start, named.stop, ("",) * named.buffers)
        given.write_text(format_csv(table))
        call = [
            "minimalloc",
            f"--capacity={capacity}",
            f"--input={given}",
            f"--output={made}",
            f"--timeout={max(int(limit), 1)}s",
        ]
        subprocess.run(call, check=False, capture_output=True)
        return read_csv(made).problem.fixed if made.exists() else None


def cp_sat(problem: Problem, capacity: int | None, limit: float) -> np.ndarray | None:
    """A generic solver as an oracle: rectangles in sections of time, no two overlap."""
    from ortools.sat.python import cp_model

    found = sections(problem)
    live = np.flatnonzero(problem.alive).tolist()
    unit = int(np.gcd.reduce(problem.size[live])) if live else 1
    total = int(problem.size[live].sum()) // unit
    top = total if capacity is None else min(capacity // unit, total)
    model = cp_model.CpModel()
    low, spans, times, heights = {}, [], [], []
    for b in live:
        size = int(problem.size[b]) // unit
        if size > top:
            return None
        low[b] = model.new_int_var(0, top - size, f"b{b}")
        spans.append(model.new_fixed_size_interval_var(low[b], size, f"a{b}"))
        left, right = int(found.first[b]), int(found.last[b])
        times.append(model.new_fixed_size_interval_var(left, right - left, f"t{b}"))
        heights.append(size)
    model.add_no_overlap_2d(times, spans)
    height = model.new_int_var(int(section_loads(problem, found).max(initial=0)) // unit, top, "h")
    model.add_cumulative(times, heights, height)
    for b in live:
        model.add(low[b] + int(problem.size[b]) // unit <= height)
    if capacity is None:
        model.minimize(height)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = limit
    solver.parameters.num_workers = 2
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    offsets = np.zeros(problem.buffers, dtype=np.int64)
    for b in live:
        offsets[b] = solver.value(low[b]) * unit
    return offsets


def peers() -> dict[str, Tool]:
    """Every peer that is installed; the limits of size keep a round within minutes."""
    found: dict[str, Tool] = {}
    if importlib.util.find_spec("omnimalloc"):
        # Both build a graph of all conflicts: gigabytes above some ten thousand buffers.
        found["omnimalloc-omni"] = Tool(omnimalloc("omni"), 30_000)
        found["omnimalloc-super"] = Tool(omnimalloc("supermalloc"), 2_000)
        found["omnimalloc-super-12"] = Tool(omnimalloc("supermalloc", 12), 2_000)
    if importlib.util.find_spec("ortools"):
        found["cp-sat"] = Tool(cp_sat, 150)
    if shutil.which("minimalloc"):
        found["minimalloc"] = Tool(minimalloc, 20_000)
    for name in ("omnimalloc-super", "cp-sat", "minimalloc"):
        if name not in found:
            print(f"{name} is not installed: no figures for it", file=sys.stderr)
    return found
