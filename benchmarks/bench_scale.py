"""A graph of 100,000 ops: read, index, liveness, greedy arena, both judges; seconds and memory.

    python benchmarks/bench_scale.py [OPS] [--json]

The graph is a chain with branches: residual adds, concatenations, long skips, in-place ops
and views, seeded. Targets for 100,000 ops on a 2-core machine: 15 s and 2 GiB in all.
"""

from __future__ import annotations

import gc
import json
import random
import resource
import sys
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import TypeVar

from peakfold.ir import check_graph, parse_graph
from peakfold.planning import PlanOptions
from peakfold.planning.layouts import make_layout
from peakfold.planning.planner import plan_layout
from peakfold.planning.study import prepare
from peakfold.planning.verify import verify_plan

T = TypeVar("T")


def lines(ops: int, seed: int = 0) -> Iterator[str]:
    """The text form of the graph, line by line."""
    rng = random.Random(seed)
    yield "peakfold-graph 1"
    yield 'name "chain-with-branches"'
    yield "input x: float32[1,64,32,32]"
    channels = {"x": 64}
    last, skip, made = "x", "x", 0

    def op(kind: str, width: int, *inputs: str, attrs: str = "") -> str:
        nonlocal last, made
        made += 1
        last = f"t{made}"
        channels[last] = width
        return f"{last}: float32[1,{width},32,32] = {kind}({', '.join(inputs)}{attrs})"

    while made < ops:
        entry = last
        width = rng.choice([16, 32, 64, 64, 128])
        yield op("conv", width, entry)
        yield op("relu", width, last)
        one = last
        yield op("conv", width, one)
        yield op("add", width, last, one)
        if rng.random() < 0.3:
            yield op("concat", width + channels[entry], last, entry, attrs=", axis=1")
            yield op("conv", width, last)
        if rng.random() < 0.02:
            yield op("conv", channels[skip], last)
            yield op("add", channels[skip], last, skip)
            skip = last
    yield f"output {last}"


def timed(name: str, seconds: dict[str, float], work: Callable[[], T]) -> T:
    start = perf_counter()
    result = work()
    seconds[name] = round(perf_counter() - start, 3)
    return result


def run(ops: int) -> dict[str, object]:
    # As the command line does: records hold no cycles, so the collector only costs time.
    gc.set_threshold(500_000, 20, 20)
    text = "\n".join(lines(ops))
    seconds: dict[str, float] = {}
    graph = timed("read", seconds, lambda: parse_graph(text))
    timed("check", seconds, lambda: check_graph(graph))
    options = PlanOptions(strategy="by-size", zero_copy=False)
    study = timed("index", seconds, lambda: prepare(graph, options, _no_bodies))
    layout = timed(
        "liveness and greedy arena", seconds, lambda: make_layout(study, "arena", "by-size")
    )
    plan = timed("write plan", seconds, lambda: plan_layout(study, layout))
    checks = timed("verify", seconds, lambda: verify_plan(graph, plan))
    return {
        "ops": len(graph.ops),
        "buffers": len(plan.buffers),
        "verified": all(check.ok for check in checks),
        "height_over_bound": round(layout.total / layout.bound, 4),
        "seconds": seconds,
        "seconds_in_all": round(sum(seconds.values()), 2),
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def _no_bodies(*_: object) -> None:  # the graph has no control flow
    raise AssertionError


if __name__ == "__main__":
    numbers = [a for a in sys.argv[1:] if a.isdigit()]
    print(json.dumps(run(int(numbers[0]) if numbers else 100_000), indent=2))
