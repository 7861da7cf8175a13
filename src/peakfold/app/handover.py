"""What handing plans over and measuring them share: the judges, and what an interpreter needs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from peakfold.app.plan import read_plan
from peakfold.app.results import PlanReport, VerifyReport
from peakfold.arguments import path as need_path
from peakfold.boundary import file_size
from peakfold.errors import InvalidPlan, UsageError
from peakfold.judges.plan import Check
from peakfold.planning import Plan
from peakfold.reports.records.documents import verify_document


def plan_of(plan: Plan | PlanReport | str | Path) -> Plan:
    """A plan that is given as itself, in its report or in a file."""
    if isinstance(plan, PlanReport):
        return plan.plan
    return plan if isinstance(plan, Plan) else read_plan(need_path(plan, "the plan"))


def must_pass(checks: Sequence[Check], where: str) -> None:
    """Nothing is handed over that a judge rejects.

    Raises:
        InvalidPlan: the first check that failed.
    """
    for check in checks:
        if not check.ok:
            raise InvalidPlan(f"{check.name}: {check.detail}", where=where)


def judged(data: bytes, target: str = "tflm") -> Check:
    """What the judge of files says of a .tflite file.

    Args:
        data: its bytes.
        target: whose rules hold.
    """
    import tempfile

    from peakfold.runtimes.tflite.file_judge import judge_file

    with tempfile.TemporaryDirectory(prefix="peakfold-") as folder:
        path = Path(folder) / "planned.tflite"
        path.write_bytes(data)
        return judge_file(path, target)


def arena_figures(data: bytes) -> dict[str, Any]:
    """What a user must give the interpreter for a file, and what stays in flash.

    Figures of a file with operators that no table covers are `None`, but for the lower bound.
    """
    from peakfold.runtimes.tflite.arena import DEVICE32, DEVICE64, WHEEL, predict_arena
    from peakfold.runtimes.tflite.schema import parse_model
    from peakfold.runtimes.tflite.scratch import known_scratch

    model = parse_model(data)
    scratch = {8: known_scratch(model), 4: known_scratch(model, pointer=4)}
    pointers = {WHEEL: 8, DEVICE64: 8, DEVICE32: 4}
    found = {
        build: predict_arena(model, scratch[pointer], build) for build, pointer in pointers.items()
    }
    unknown = found[WHEEL].unknown
    totals = {build: None if unknown else arena.total for build, arena in found.items()}
    return {
        "total_bytes": totals[WHEEL],
        "total_bytes_device": totals[DEVICE64],
        "total_bytes_32bit": totals[DEVICE32],
        "total_at_least_bytes": found[WHEEL].total,
        "tail_unknown": list(unknown),
        "flash_bytes": len(data),
    }


def verify_file(model: str | Path) -> VerifyReport:
    """Judge the layout that a .tflite file carries: order of operators and offsets.

    Raises:
        UsageError: another kind of model, which carries none.
        ModelError: the file is broken.
    """
    path = Path(model)
    if path.suffix != ".tflite":
        raise UsageError(
            "only a .tflite file carries a layout", where=str(path), hint="name a plan"
        )
    file_size(path)
    from peakfold.runtimes.tflite.file_judge import judge_file

    return VerifyReport(verify_document([judge_file(path)]))
