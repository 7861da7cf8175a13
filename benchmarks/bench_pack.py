"""Packing against the bound and against peers, interleaved, with a probe of machine speed.

    python benchmarks/bench_pack.py --suite hard --data ../shared/data -o hard.json
    python benchmarks/bench_pack.py --suite perfect --count 10
    python benchmarks/compare.py old.json new.json

Suites: `hard` (MiniMalloc's A to K at their capacity), `optimise` (the same with minimize),
`perfect` (generated, known optimum), `large` (idealloc's files), `scale` (10^3 to 10^6
generated lifetimes), `ablation` (hard again, with parts of the portfolio alone). Peers run in
the same round where they are installed: `omnimalloc` from PyPI, a `minimalloc` program on PATH.
Figures are ratios to a bound or to a peer of the same run; seconds are only comparable beside
the probe.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.workloads import SIDE, graph_like, perfect, random_intervals

from peakfold.packing import Problem, pack, violations
from peakfold.packing.table import Table, capacity_of, format_csv, read_csv

CAPACITY = 1 << 20


@dataclass(frozen=True)
class Row:
    """One run of one tool on one instance; `height` is None if it gave nothing."""

    instance: str
    tool: str
    buffers: int
    seconds: float
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


Tool = Callable[[Problem, int | None, float], np.ndarray | None]


def ours(problem: Problem, capacity: int | None, limit: float) -> np.ndarray | None:
    return pack(problem, capacity=capacity, minimize=capacity is None, time_limit=limit).offsets


def omnimalloc(allocator: str) -> Tool:
    def run(problem: Problem, capacity: int | None, limit: float) -> np.ndarray | None:  # noqa: ARG001
        import omnimalloc as om

        columns = zip(
            range(problem.buffers), problem.size.tolist(), problem.start.tolist(),
            problem.stop.tolist(), strict=True,
        )  # fmt: skip
        rows = [om.Allocation(id=i, size=z, start=a, end=b) for i, z, a, b in columns]
        done = om.allocate(om.Pool(id="p", allocations=tuple(rows)), allocator=allocator)
        by_id = {a.id: a.offset for a in done.allocations}
        return np.array([by_id[i] for i in range(problem.buffers)])

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
        call = ["minimalloc", f"--capacity={capacity}", f"--input={given}", f"--output={made}",
                f"--timeout={int(limit)}s"]  # fmt: skip
        subprocess.run(call, check=False, capture_output=True)
        return read_csv(made).problem.fixed if made.exists() else None


def peers() -> dict[str, Tool]:
    found: dict[str, Tool] = {}
    try:
        import omnimalloc as _  # noqa: F401

        found["omnimalloc-omni"] = omnimalloc("omni")
        found["omnimalloc-super"] = omnimalloc("super")
    except ImportError:
        print("omnimalloc is not installed: no peer figures for it", file=sys.stderr)
    if shutil.which("minimalloc"):
        found["minimalloc"] = minimalloc
    return found


def run_one(
    name: str, tool: str, run: Tool, problem: Problem, capacity: int | None, limit: float
) -> Row:
    speed = probe()
    began = time.perf_counter()
    try:
        offsets = run(problem, capacity, limit)
    except Exception as error:
        print(f"{tool} on {name}: {type(error).__name__}: {error}", file=sys.stderr)
        offsets = None
    seconds = time.perf_counter() - began
    from peakfold.packing import lower_bound

    bound = lower_bound(problem)
    height = None if offsets is None else problem.height(np.asarray(offsets))
    goal = capacity if capacity is not None else bound
    return Row(
        instance=name, tool=tool, buffers=problem.buffers, seconds=round(seconds, 4),
        height=height, over_bound=None if height is None else round(height / max(bound, 1), 6),
        solved=height is not None and height <= goal, optimal=height == bound,
        valid=offsets is not None and not violations(problem, offsets),
        peak_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, probe_s=speed,
    )  # fmt: skip


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
    from peakfold.packing.exact import PORTFOLIO, decide
    from peakfold.packing.model import build

    def alone(jobs: tuple[tuple[int, str], ...]) -> Tool:
        def run(problem: Problem, capacity: int | None, limit: float) -> np.ndarray | None:
            model = build(problem)
            if model is None or capacity is None:
                return None
            stop = time.perf_counter() + limit
            found = decide(
                model, capacity, nodes=1 << 60, portfolio=jobs,
                expired=lambda: time.perf_counter() > stop,
            )  # fmt: skip
            return model.offsets(problem, found.low) if found.fits else None

        return run

    named = {f"{('lowest', 'tightest')[rule]}-{key}": ((rule, key),) for rule, key in PORTFOLIO}
    return {name: alone(jobs) for name, jobs in {"all": PORTFOLIO, **named}.items()}


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
    parser.add_argument("--count", type=int, default=10, help="perfect packings of each size")
    parser.add_argument("--sizes", type=int, nargs="+", default=[60, 100, 150, 250, 350, 450])
    parser.add_argument("--largest", type=int, default=1_000_000)
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    tools = ablations() if options.suite == "ablation" else {"peakfold": ours}
    if not options.no_peers and options.suite != "ablation":
        tools |= peers()
    pack(perfect(60, 0), capacity=SIDE, time_limit=60)  # load compiled code before timing
    rows = []
    for name, problem, capacity in suite(options):
        for tool, run in tools.items():
            row = run_one(name, tool, run, problem, capacity, options.limit)
            rows.append(row)
            print(f"{name:18} {tool:18} {row.seconds:9.3f} s  {row.over_bound}  "
                  f"{'solved' if row.solved else 'open'}{'' if row.valid else ' INVALID'}  "
                  f"probe {row.probe_s:.3f}", flush=True)  # fmt: skip
    for tool in tools:
        mine = [row for row in rows if row.tool == tool]
        solved, total = sum(row.solved for row in mine), sum(row.seconds for row in mine)
        print(f"{tool}: {solved} of {len(mine)} solved, {total:.2f} s in all")
    if options.output:
        options.output.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
