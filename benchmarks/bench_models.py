"""Every `.onnx` model of a folder, planned and verified: the table of the release notes.

    python benchmarks/bench_models.py [FOLDER] [--json]

FOLDER defaults to the shared models beside the checkout. Symbolic dimensions get the numbers
in `BINDINGS`, or 1. `arena` is in the file's order; `bound` and `any_order` belong to the best
order, `gap` is the larger of both, `order_proven` says that no order needs less.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

from peakfold.errors import PeakfoldError
from peakfold.frontends import Bindings, load
from peakfold.judges.plan import verify_plan
from peakfold.planning import PlanOptions, make_plan

FOLDER = Path(__file__).parents[2] / "shared" / "models" / "onnx"
BINDINGS = {
    "ppocrv4_det": ((), ("x=1x3x320x320",)),
    "silero_vad_16k_op15": (("batch=1", "sequence=512"), ()),
    "mtcnn_pnet": (("N=1", "M1=224", "M2=224"), ()),
}


@dataclass(frozen=True, slots=True)
class Row:
    model: str
    ops: int
    naive: int
    both: int
    arena: int
    arena_best_order: int
    bound: int
    any_order: int
    gap: float
    packing_proven: bool
    order_proven: bool
    verified: bool
    unsupported: int
    seconds: float


def measure(path: Path) -> Row:
    dims, shapes = BINDINGS.get(path.stem, ((), ()))
    start = perf_counter()
    loaded = load(path, Bindings.parse(dims, shapes))
    inputs = [loaded.graph[name].shape or () for name in loaded.graph.inputs]
    symbols = sorted({dim for shape in inputs for dim in shape if isinstance(dim, str)})
    if symbols:
        loaded = load(path, Bindings.parse([f"{name}=1" for name in symbols]))
    result = make_plan(loaded.graph, bindings=loaded.bindings)
    best = make_plan(loaded.graph, PlanOptions(order="best"), loaded.bindings)
    seconds = perf_counter() - start
    plans = (result.plan, best.plan)
    checks = [check for plan in plans for check in verify_plan(loaded.graph, plan)]
    s, b = result.summary, best.summary
    return Row(
        path.stem,
        len(result.context.graph.ops),
        s.naive_bytes,
        s.both_bytes,
        s.arena_bytes,
        b.arena_bytes,
        b.lower_bound_bytes,
        b.any_order_bound_bytes,
        round(max(s.gap, b.gap), 4),
        s.optimal and b.optimal,
        b.order_optimal,
        all(check.ok for check in checks),
        sum(result.plan.unsupported.values()),
        round(seconds, 2),
    )


def main(arguments: list[str]) -> None:
    folders = [Path(a) for a in arguments if not a.startswith("--")]
    rows = []
    for path in sorted((folders[0] if folders else FOLDER).glob("*.onnx")):
        try:
            rows.append(measure(path))
        except PeakfoldError as error:
            print(f"{path.stem}: {error}", file=sys.stderr)
    if "--json" in arguments:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return
    names = list(asdict(rows[0]))
    print("| " + " | ".join(names) + " |")
    print("|" + "---|" * len(names))
    for row in rows:
        print("| " + " | ".join(str(value) for value in asdict(row).values()) + " |")


if __name__ == "__main__":
    main(sys.argv[1:])
