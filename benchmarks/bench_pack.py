"""Packing against the bound and against peers, interleaved, with a probe of machine speed.

    python benchmarks/bench_pack.py --suite hard --data ../shared/data -o hard.json
    python benchmarks/bench_pack.py --suite perfect --count 10
    python benchmarks/compare.py old.json new.json

Suites: `hard` (MiniMalloc's A to K at their capacity), `optimise` (the same with minimize),
`perfect` (generated, known optimum), `large` (idealloc's files), `scale` (10^3 to 10^6
generated lifetimes), `ablation` (hard again, with parts of the portfolio alone). Peers run in
the same round where they are installed, see `peers.py`; every run has a process of its own.
Figures are ratios to a bound or to a peer of the same run; seconds are only comparable beside
the probe. On a machine that others use, `--cpu` ends each run by its CPU time.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.peers import Run, Tool, ours, peers
from benchmarks.workloads import SIDE, graph_like, perfect, random_intervals

from peakfold.packing import Problem, lower_bound, pack, violations
from peakfold.packing.csv_format import capacity_of, read_csv

FORK = multiprocessing.get_context("fork")
Outcome = tuple[float, float, "np.ndarray | None", int, "str | None"]
"""Seconds by the clock and of CPU, offsets, peak memory in KiB, what went wrong."""


@dataclass(frozen=True)
class Row:
    """One run of one tool on one instance; `height` is None if it gave nothing."""

    instance: str
    tool: str
    buffers: int
    seconds: float
    cpu_s: float
    height: int | None
    over_bound: float | None
    solved: bool
    optimal: bool
    valid: bool
    peak_mb: int
    probe_s: float


def probe() -> float:
    """Seconds of a fixed piece of work: sorting 2,000,000 numbers."""
    numbers = np.random.default_rng(0).random(2_000_000)
    began = time.perf_counter()
    np.sort(numbers)
    return round(time.perf_counter() - began, 4)


def in_child(
    tool: Tool, problem: Problem, capacity: int | None, limit: float, cpu: bool
) -> Outcome:
    """Run a tool in a forked process, so that memory is its own and a hang can be ended.

    The child inherits loaded compiled code; figures of memory are of the whole process. It is
    ended after ten times its limit and a minute. With `cpu`, the limit is of CPU seconds of the
    child, and of any program it starts; the tool itself is told a limit too long to matter.
    """
    reader, writer = FORK.Pipe(duplex=False)
    told = 20 * limit if cpu else limit
    most = math.ceil(limit) if cpu else None
    child = FORK.Process(target=_child, args=(writer, tool.run, problem, capacity, told, most))
    began = time.perf_counter()
    child.start()
    writer.close()
    try:
        patience = 10 * told + 60
        return reader.recv() if reader.poll(patience) else (patience, 0.0, None, 0, "ended")
    except EOFError:
        return time.perf_counter() - began, float(most or 0), None, 0, "died"
    finally:
        child.kill()
        child.join()


def _child(
    writer: Connection,
    run: Run,
    problem: Problem,
    capacity: int | None,
    limit: float,
    most: int | None,
) -> None:
    if most is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (most, most))
    offsets, error = None, None
    began = time.perf_counter()
    try:
        offsets = run(problem, capacity, limit)
    except Exception as problem_met:  # a tool that fails is a row of the table
        error = f"{type(problem_met).__name__}: {problem_met}"
    seconds = time.perf_counter() - began
    # A tool may be a program that this process has started.
    own, started = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    cpu = own.ru_utime + own.ru_stime + started.ru_utime + started.ru_stime
    writer.send((seconds, cpu, offsets, max(own.ru_maxrss, started.ru_maxrss), error))


def run_one(
    name: str,
    label: str,
    tool: Tool,
    problem: Problem,
    capacity: int | None,
    limit: float,
    cpu_limit: bool,
) -> Row:
    speed = probe()
    seconds, cpu, offsets, kib, error = in_child(tool, problem, capacity, limit, cpu_limit)
    if error:
        print(f"{label} on {name}: {error}", file=sys.stderr)
    bound = lower_bound(problem)
    height = None if offsets is None else problem.height(np.asarray(offsets))
    goal = capacity if capacity is not None else bound
    valid = offsets is not None and not violations(problem, offsets)
    over = None if height is None else round(height / max(bound, 1), 6)
    return Row(
        instance=name,
        tool=label,
        buffers=problem.buffers,
        seconds=round(seconds, 4),
        cpu_s=round(cpu, 4),
        height=height,
        over_bound=over,
        solved=valid and height is not None and height <= goal,
        optimal=height == bound,
        valid=valid,
        peak_mb=kib // 1024,
        probe_s=speed,
    )


Instance = tuple[str, Problem, int | None]


def hard(data: Path) -> Iterator[Instance]:
    for path in sorted((data / "minimalloc" / "challenging").glob("*.csv")):
        yield path.name[0], read_csv(path).problem, capacity_of(path.name)


def perfects(count: int, sizes: tuple[int, ...]) -> Iterator[Instance]:
    for size in sizes:
        for seed in range(1, count + 1):
            yield f"perfect-{size}-{seed}", perfect(size, seed), SIDE


def large(data: Path) -> Iterator[Instance]:
    for path in sorted((data / "idealloc").glob("*.csv")):
        yield path.stem, read_csv(path).problem, None


def scale(largest: int) -> Iterator[Instance]:
    size = 1000
    while size <= largest:
        yield f"graph-{size}", graph_like(size, 1), None
        if size <= 100_000:
            yield f"random-{size}", random_intervals(size, 1), None
        size *= 10


def ablations() -> dict[str, Tool]:
    from peakfold.packing.exact.kernels.search import FITTING, TIGHTEST
    from peakfold.packing.exact.search import PORTFOLIO, decide
    from peakfold.packing.exact.search_model import build

    def alone(jobs: tuple[tuple[int, str], ...]) -> Run:
        def run(problem: Problem, capacity: int | None, limit: float) -> np.ndarray | None:
            model = build(problem)
            if model is None or capacity is None:
                return None
            stop = time.process_time() + limit
            found = decide(
                model,
                capacity,
                nodes=1 << 60,
                portfolio=jobs,
                expired=lambda: time.process_time() > stop,
            )
            return model.offsets(problem, found.low) if found.fits else None

        return run

    def title(rule: int, key: str) -> str:
        place = "tightest" if rule & TIGHTEST else "lowest"
        return f"{place}{'-fitting' if rule & FITTING else ''}-{key}"

    named = {title(rule, key): ((rule, key),) for rule, key in PORTFOLIO}
    return {name: Tool(alone(jobs)) for name, jobs in {"all": PORTFOLIO, **named}.items()}


def suite(options: argparse.Namespace) -> list[Instance]:
    if options.suite == "perfect":
        return list(perfects(options.count, tuple(options.sizes)))
    if options.suite == "large":
        return list(large(options.data))
    if options.suite == "scale":
        return list(scale(options.largest))
    found = list(hard(options.data))
    return [(n, p, None) for n, p, _ in found] if options.suite == "optimise" else found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    suites = ["hard", "optimise", "perfect", "large", "scale", "ablation"]
    parser.add_argument("--suite", choices=suites, default="hard")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--limit", type=float, default=5.0, help="seconds for each run")
    parser.add_argument("--cpu", action="store_true", help="let --limit be of CPU seconds")
    parser.add_argument("--count", type=int, default=10, help="perfect packings of each size")
    parser.add_argument("--sizes", type=int, nargs="+", default=[60, 100, 150, 250, 350, 450])
    parser.add_argument("--largest", type=int, default=1_000_000)
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--tools", nargs="+", help="only these tools, by name")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    tools = ablations() if options.suite == "ablation" else {"peakfold": Tool(ours)}
    if not options.no_peers and options.suite != "ablation":
        tools |= peers()
    if options.tools:
        tools = {name: tool for name, tool in tools.items() if name in options.tools}
    pack(perfect(60, 0), capacity=SIDE, time_limit=60)  # load compiled code before timing
    rows = []
    for name, problem, capacity in suite(options):
        for label, tool in tools.items():
            if problem.buffers > tool.largest:
                continue
            row = run_one(name, label, tool, problem, capacity, options.limit, options.cpu)
            rows.append(row)
            wrong = "" if row.valid else " INVALID" if row.height is not None else " nothing"
            print(
                f"{name:16} {label:25} {row.seconds:9.3f} s  "
                f"{row.cpu_s:9.3f} CPU s  {row.over_bound}  "
                f"{'solved' if row.solved else 'open'}{wrong}  {row.peak_mb} MB  "
                f"probe {row.probe_s:.3f}",
                flush=True,
            )
    for tool in tools:
        mine = [row for row in rows if row.tool == tool]
        if not mine:
            continue
        solved, total = sum(row.solved for row in mine), sum(row.seconds for row in mine)
        cpu = sum(row.cpu_s for row in mine)
        print(f"{tool}: {solved} of {len(mine)} solved, {total:.2f} s in all, {cpu:.2f} CPU s")
    if options.output:
        options.output.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
