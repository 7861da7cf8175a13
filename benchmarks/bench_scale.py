"""A graph of 100,000 ops: read, index, liveness, greedy arena, both judges; seconds and memory.

    python benchmarks/bench_scale.py [OPS] [--json]
    python benchmarks/bench_scale.py families [BUFFERS]

The second form runs `pack`, `plan`, `lanes`, `modes` and `fit` with a time limit of one second
on four families of graphs with many readers, parts or long lives, each in a process of its own,
and prints CPU seconds. Targets: 5 s at 2,000 buffers, 30 s at 10,000.

The graph is a chain with branches: residual adds, concatenations, long skips, in-place ops
and views, seeded. Targets for 100,000 ops on a 2-core machine: 15 s and 2 GiB in all.
"""

from __future__ import annotations

import gc
import json
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import TypeVar

from peakfold.ir import check_graph, parse_graph
from peakfold.judges.plan import verify_plan
from peakfold.planning import PlanOptions
from peakfold.planning.aliasing.records import Aliasing
from peakfold.planning.context import prepare
from peakfold.planning.modes import make_layout
from peakfold.planning.planner import plan_layout

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
    context = timed("index", seconds, lambda: prepare(graph, options, _no_bodies))
    layout = timed(
        "liveness and greedy arena", seconds, lambda: make_layout(context, "arena", "by-size")
    )
    plan = timed("write plan", seconds, lambda: plan_layout(context, layout))
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


def fan(n: int) -> str:
    """One tensor with n readers, all of them outputs."""
    made = "".join(f"c{i}: float32[64] = relu(a)\n" for i in range(n))
    return f"input x: float32[64]\na: float32[64] = relu(x)\n{made}output " + _names("c", n)


def concat(n: int) -> str:
    """n parts, made one by one."""
    made = "".join(f"c{i}: float32[1,64] = relu(x)\n" for i in range(n))
    joined = f"y: float32[{n},64] = concat({_names('c', n)}, axis=0)\n"
    return f"input x: float32[1,64]\n{made}{joined}output y"


def split(n: int) -> str:
    """n parts of one tensor, each read once."""
    parts = ", ".join(f"c{i}: float32[1,64]" for i in range(n))
    made = "".join(f"d{i}: float32[1,64] = relu(c{i})\n" for i in range(n))
    return (
        f"input x: float32[{n},64]\nq: float32[{n},64] = relu(x)\n"
        f"{parts} = split(q, axis=0)\n{made}output " + _names("d", n)
    )


def lives(n: int) -> str:
    """Each op reads the one before and a random earlier one."""
    rng = random.Random(0)
    made = "".join(
        f"t{i}: int8[{rng.randrange(1, 4096)}] = opaque(t{i - 1}, t{rng.randrange(i)})\n"
        for i in range(1, n)
    )
    return f"input x: int8[64]\nt0: int8[64] = relu(x)\n{made}output t{n - 1}"


def _names(letter: str, n: int) -> str:
    return ", ".join(f"{letter}{i}" for i in range(n))


def _rows(graph: str) -> str:
    """The buffers of a graph, one each, as `pack` reads them."""
    context = prepare(parse_graph(graph), PlanOptions(), _no_bodies)
    buffers = context.timeline(Aliasing(inplace=False, views=False)).buffers
    rows = [
        f"{at},{b.pieces[0].start},{b.pieces[-1].stop},{b.size}" for at, b in enumerate(buffers)
    ]
    return "\n".join(["id,lower,upper,size", *rows])


def families(buffers: int) -> None:
    """CPU seconds of every verb on every family."""
    verbs = {
        "pack": ["--minimize"],
        "plan": [],
        "lanes": [],
        "modes": [],
        "fit": ["--budget", "256KiB"],
    }
    with tempfile.TemporaryDirectory() as folder:
        for make in (fan, concat, split, lives):
            text = "peakfold-graph 1\n" + make(buffers)
            files = {"pf": text, "csv": _rows(text)}
            for end, content in files.items():
                (Path(folder) / f"g.{end}").write_text(content)
            for verb, more in verbs.items():
                file = str(Path(folder) / ("g.csv" if verb == "pack" else "g.pf"))
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                command = [sys.executable, "-m", "peakfold", verb, file, "--time-limit", "1", *more]
                done = subprocess.run([*command, "-q"], capture_output=True, check=False)
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
                print(
                    f"{verb:6} {make.__name__:7} {buffers:6}  {cpu:6.1f} s, exit {done.returncode}"
                )


if __name__ == "__main__":
    numbers = [a for a in sys.argv[1:] if a.isdigit()]
    if "families" in sys.argv:
        families(int(numbers[0]) if numbers else 2_000)
        sys.exit()
    print(json.dumps(run(int(numbers[0]) if numbers else 100_000), indent=2))
