"""File order against best order: peak of live bytes, bound, proof, seconds.

    python benchmarks/bench_order.py [--json] [--limit SECONDS] [--large]

Networks of `tests/planning/order/nets.py`, the shared models beside the checkout, graphs of
1,000 ops, and with `--large` of 100,000. Peaks are live bytes of the generic target, in-place
ops and views included; `drop` is what the best order saves. Limit: 10 s, 60 s for 100,000 ops.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.bench_scale import lines
from tests.planning.order.nets import NETS, nasnet, random_dag, series_parallel
from tests.planning.order.tools import context_of, shared_context

from peakfold.ir import Graph, parse_graph
from peakfold.planning.context import PlanningContext
from peakfold.planning.order import best_order

FOLDER = Path(__file__).parents[2] / "shared" / "models" / "onnx"


@dataclass(frozen=True, slots=True)
class Row:
    network: str
    ops: int
    file_order: int
    best_order: int
    bound: int
    drop: str
    proven: bool
    method: str
    steps: int
    late: bool
    seconds: float


def measure(name: str, context: PlanningContext, limit: float) -> Row:
    start = perf_counter()
    found = best_order(context, time_limit=limit, seed=0)
    seconds = perf_counter() - start
    drop = 1 - found.peak / found.file_peak if found.file_peak else 0.0
    return Row(
        name,
        len(context.graph.ops),
        found.file_peak,
        found.peak,
        found.bound,
        f"{drop:.1%}",
        found.optimal,
        found.method,
        found.nodes,
        found.late,
        round(seconds, 2),
    )


def chain(ops: int) -> Graph:
    return parse_graph("\n".join(lines(ops)))


SCALE: dict[str, Callable[[], Graph]] = {
    "nasnet, 12 cells": lambda: nasnet(12),
    "series-parallel": lambda: series_parallel(7, 1000),
    "random, 300 ops": lambda: random_dag(0, 300),
    "chain with branches, 1,000 ops": lambda: chain(1000),
    "random, 1,000 ops": lambda: random_dag(0, 1000),
    "random and wide, 1,000 ops": lambda: random_dag(0, 1000, 40),
}
LARGE: dict[str, Callable[[], Graph]] = {
    "chain with branches, 100,000 ops": lambda: chain(100_000),
    "random, 100,000 ops": lambda: random_dag(0, 100_000),
}


def rows(limit: float, large: bool) -> Iterator[Row]:
    for name, make in (NETS | SCALE).items():
        yield measure(name, context_of(make()), limit)
    for path in sorted(FOLDER.glob("*.onnx")):
        yield measure(path.stem, shared_context(path), limit)
    for name, make in LARGE.items() if large else ():
        # The clock ends these: 45 s leave time to read the result back by `simulate`.
        yield measure(name, context_of(make()), 45.0)


def main(arguments: list[str]) -> None:
    limit = float(arguments[arguments.index("--limit") + 1]) if "--limit" in arguments else 10.0
    found = rows(limit, "--large" in arguments)
    if "--json" in arguments:
        print(json.dumps([asdict(row) for row in found], indent=2))
        return
    for at, row in enumerate(found):
        if at == 0:
            print("| " + " | ".join(asdict(row)) + " |")
            print("|" + "---|" * len(asdict(row)))
        print("| " + " | ".join(str(value) for value in asdict(row).values()) + " |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
