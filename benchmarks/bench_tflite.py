"""TFLite models: the interpreter's own arena, the plan, bounds, proof, seconds.

    python benchmarks/bench_tflite.py [--json] [--limit SECONDS]

Every model of the shared folders beside the checkout, target `tflm`, half-precision weights
folded. `own` is the arena head that TensorFlow Lite Micro's greedy makes, by the model of its
allocator (measured equal in `tests/runtimes/tflite`), also for models that it cannot run. Gaps
are over the bound of the order (`packing`) and over the bound of any order and layout (`order`);
seconds are CPU time, loading left out.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from time import process_time

from peakfold.errors import PeakfoldError
from peakfold.frontends import Loaded, load
from peakfold.planning import PlanOptions, make_plan
from peakfold.planning.summary import Summary
from peakfold.runtimes.tflite.allocator import predict
from peakfold.runtimes.tflite.apply_plan import after_recipe
from peakfold.runtimes.tflite.scratch import known_scratch

SHARED = Path(__file__).parents[2] / "shared"
FOLDERS = (SHARED / "models" / "tflite", SHARED / "data" / "mlperf_tiny")


@dataclass(frozen=True, slots=True)
class Row:
    model: str
    ops: int
    own: int | None
    file_arena: int
    file_gap: str
    file_proven: bool
    file_seconds: float
    best_arena: int
    best_gap: str
    best_proven: bool
    order_bound: int
    order_proven: bool
    best_seconds: float
    saved: str


def rows(limit: float) -> Iterator[Row]:
    for path in sorted(p for folder in FOLDERS for p in folder.glob("*.tflite")):
        loaded = load(path)
        halves = any(op.kind == "dequantize" for op in loaded.graph.ops)
        file, spent = planned(loaded, "file", halves, limit)
        best, longer = planned(loaded, "best", halves, limit)
        own = own_head(path, loaded, halves)
        yield Row(
            path.stem,
            len(loaded.graph.ops),
            own,
            file.arena_bytes,
            f"{file.gap:.3%}",
            file.optimal,
            spent,
            best.arena_bytes,
            f"{best.gap:.3%}",
            best.optimal,
            best.any_order_bound_bytes,
            best.order_optimal,
            longer,
            "" if own is None else f"{1 - best.arena_bytes / own:.1%}",
        )


def planned(loaded: Loaded, order: str, halves: bool, limit: float) -> tuple[Summary, float]:
    options = PlanOptions(
        target="tflm",
        order="best" if order == "best" else "file",
        fold_weights=halves,
        time_limit=limit,
    )
    start = process_time()
    summary = make_plan(loaded.graph, options).summary
    return summary, round(process_time() - start, 2)


def own_head(path: Path, loaded: Loaded, halves: bool) -> int | None:
    try:
        model = after_recipe(path, loaded.graph, ["fold-weights" if halves else "fold"])
        return predict(model, known_scratch(model)).head
    except PeakfoldError:
        return None


def main() -> None:
    limit = float(sys.argv[sys.argv.index("--limit") + 1]) if "--limit" in sys.argv else 5.0
    found = [asdict(row) for row in rows(limit)]
    if "--json" in sys.argv:
        print(json.dumps(found, indent=1))
        return
    columns = list(found[0])
    print("| " + " | ".join(columns) + " |")
    print("|---" + "|---:" * (len(columns) - 1) + "|")
    for row in found:
        print("| " + " | ".join(cell(value) for value in row.values()) + " |")


def cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str("" if value is None else value)


if __name__ == "__main__":
    main()
