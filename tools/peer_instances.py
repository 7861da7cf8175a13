"""Instances of a peer's generators, as facts: sizes and lifetimes, by its default seeds.

Run once where `omnimalloc` 1.0.0 is installed: ``python tools/peer_instances.py``; the tests need
its result only. A lifetime is a step, or a vector clock: one count per lane.
"""

from __future__ import annotations

import json
from pathlib import Path

from omnimalloc.benchmark import sources

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "tests" / "data" / "peers_generated.json"
MADE = {
    "tiling": sources.TilingSource,
    "pinwheel": sources.PinwheelSource,
    "random": sources.RandomSource,
    "contention": sources.HighContentionSource,
    "pow2": sources.PowerOf2Source,
    "concurrent-tiling": sources.ConcurrentTilingSource,
}


def main() -> None:
    cases = json.loads((ROOT / "tests" / "data" / "peers.json").read_text())["cases"]
    lines = []
    for case in cases:
        if case["kind"] == "generated":
            buffers = [[a.start, a.end, a.size] for a in _source(case["name"]).get_allocations()]
            shown = json.dumps(buffers, separators=(",", ":"))
            lines.append(f"{json.dumps(case['name'])}: {shown}")
    RESULT.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _source(name: str) -> sources.BaseSource:
    kind, _, rest = name.rpartition("-")
    if kind == "sync":
        return sources.SyncPatternSource(num_allocations=64, pattern=rest)
    if kind == "skewed":
        return sources.SkewedSource(distribution=rest)
    return MADE[kind](num_allocations=int(rest))


if __name__ == "__main__":
    main()
