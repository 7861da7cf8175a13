"""`peakfold.measure`: a model run without and with a plan, and what the runtime showed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import RenderableType
from rich.text import Text

from peakfold.app.handover import judged, must_pass, plan_of
from peakfold.app.inspect import load
from peakfold.app.results import PlanReport
from peakfold.arguments import flag, whole, word
from peakfold.arguments import path as need_path
from peakfold.errors import InvalidPlan, UsageError
from peakfold.judges.plan import verify_plan
from peakfold.planning import Plan, PlanOptions, make_plan
from peakfold.reports.records import ControlRecord, MeasureDocument, schema_name, to_json
from peakfold.reports.text.tables import counted, plain_table, render

RUNTIMES = ("tflm", "litert")


@dataclass(frozen=True, slots=True, eq=False)
class MeasureReport:
    """What a runtime showed.

    Attributes:
        document: every figure by its contract name.
    """

    document: MeasureDocument

    def __repr__(self) -> str:
        return self.to_text().rstrip()

    @property
    def ok(self) -> bool:
        """Whether the plan was obeyed and nothing changed that should not."""
        found = self.document
        caught = all(c.rejected or not c.results_differ for c in found.controls)
        same = found.outputs_equal and found.tensors_equal is not False
        return same and found.obeyed is not False and caught and not found.arena_too_low

    def to_json(self) -> str:
        """The document that ``peakfold measure --json`` prints."""
        return to_json(self.document)

    def to_text(self, *, width: int = 100, color: bool = False) -> str:
        """A table of before and after, and what the comparison covered."""
        found = self.document
        rows: list[list[object]] = [
            [
                "arena head" if found.runtime == "tflm" else "arena",
                found.before_bytes,
                found.planned_bytes,
                found.after_bytes,
            ]
        ]
        if found.before_arena_bytes is not None:
            rows.append(
                [
                    "whole arena",
                    found.before_arena_bytes,
                    _at_least(found),
                    found.after_arena_bytes,
                ]
            )
        cells = [[str(row[0]), *(_bytes(value) for value in row[1:])] for row in rows]
        columns = [("bytes", "left"), ("before", "right"), ("planned", "right"), ("after", "right")]
        says = [
            f"{found.runtime}: {'the plan was obeyed to the byte' if found.obeyed else ''}"
            f"{'THE PLAN WAS NOT OBEYED' if found.obeyed is False else ''}"
            f"{'order only: it plans its own arena' if found.obeyed is None else ''}.",
            f"Outputs of {counted(found.runs, 'run')} on random inputs are "
            f"{'equal bit for bit' if found.outputs_equal else 'DIFFERENT'}"
            f"{'' if found.outputs_vary else ', but the same for every input'}.",
        ]
        if found.arena_unknown:
            says.append(f"What {', '.join(found.arena_unknown)} takes of the arena is not known.")
        if found.arena_too_low:
            says.append("THE WHOLE ARENA WAS PREDICTED TOO LOW: it does not start in it.")
        if found.tensors_equal is not None:
            how = "equal, too" if found.tensors_equal else "DIFFERENT"
            says.append(f"All {found.tensors} results on the way are {how}.")
        says += [
            f"Control, {control.what}: {'rejected' if control.rejected else 'passed'} by the "
            f"judge; results {'differ' if control.results_differ else 'do not differ'}."
            for control in found.controls
        ]
        body: list[RenderableType] = [
            plain_table(columns, [[Text(c) for c in row] for row in cells]),
            "",
        ]
        body += map(Text, says)
        return render(body, width=width, color=color)


def _at_least(found: MeasureDocument) -> object:
    """The predicted arena, or a lower bound that says so."""
    least = found.predicted_at_least_bytes
    known = found.predicted_arena_bytes is not None or least is None
    return found.predicted_arena_bytes if known else f">= {least:,}"


def _bytes(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value or "")


def measure(
    model: str | Path,
    plan: Plan | PlanReport | str | Path | None = None,
    *,
    runtime: str = "tflm",
    order: str = "best",
    fold_weights: bool = False,
    time_limit: float = 5.0,
    runs: int | None = None,
    seed: int = 0,
    self_check: bool = False,
) -> MeasureReport:
    """Run a model without and with a plan, in a runtime that really executes it.

    Args:
        model: a .tflite file.
        plan: its plan, or a plan's file; without one it is planned here.
        runtime: ``tflm`` or ``litert``.
        order: of the plan that is made here.
        fold_weights: likewise.
        time_limit: likewise; seconds.
        runs: how many runs are compared, each on inputs of its own.
        seed: of the first run's inputs.
        self_check: also run files that are wrong on purpose; they must be rejected.

    Raises:
        UsageError: an unknown runtime, or a model it does not run.
        InvalidPlan: the plan fails a check.
        BackendMissing: the runtime is not installed.
        RunFailed: it refuses the model.
    """
    word(runtime, RUNTIMES, "runtime")
    word(order, ("file", "best"), "order")
    runs = None if runs is None else whole(runs, "runs", 1)
    seed = whole(seed, "seed")
    flag(self_check, "self_check")
    path = need_path(model, "the model")
    if path.suffix != ".tflite":
        raise UsageError(f"{runtime} runs .tflite models", where=str(path))
    from peakfold.runtimes.tflite.apply_plan import apply_plan
    from peakfold.runtimes.tflite.measure import measure_litert, measure_tflm

    loaded = load(path)
    if plan is None:
        options = PlanOptions(
            target="tflm",
            order="best" if order == "best" else "file",
            fold_weights=fold_weights,
            time_limit=time_limit,
        )
        record = make_plan(loaded.graph, options, loaded.bindings).plan
    else:
        record = plan_of(plan)
        if record.target == "tflm-cmsis":
            raise InvalidPlan(
                "the interpreter here has no CMSIS-NN kernels",
                hint="measure on the board, or plan with --target tflm",
            )
    must_pass(verify_plan(loaded.graph, record), str(path))
    applied = apply_plan(path, loaded.graph, record)
    must_pass([judged(applied.data)], str(path))
    if runtime == "litert":
        found = measure_litert(applied, str(path), runs=runs or 3, seed=seed)
        planned = None
    else:
        found = measure_tflm(applied, str(path), runs=runs, seed=seed, controls=self_check)
        planned = record.arena_bytes if applied.obeys and applied.whole else applied.head
    return MeasureReport(
        MeasureDocument(
            schema=schema_name("measure"),
            runtime=runtime,
            before_bytes=found.before,
            planned_bytes=planned,
            after_bytes=found.after,
            obeyed=None if planned is None else found.after == planned,
            outputs_equal=found.outputs_equal,
            outputs_vary=found.outputs_vary,
            runs=found.runs,
            tensors=found.tensors,
            tensors_equal=found.tensors_equal,
            before_arena_bytes=found.before_total,
            after_arena_bytes=found.after_total,
            tail_bytes=found.tail,
            predicted_arena_bytes=(
                None if found.arena is None or found.arena.unknown else found.arena.total
            ),
            predicted_at_least_bytes=None if found.arena is None else found.arena.total,
            arena_unknown=[] if found.arena is None else list(found.arena.unknown),
            arena_too_low=found.too_low,
            controls=[
                ControlRecord(what=c.what, rejected=c.judged, results_differ=c.differs)
                for c in found.controls
            ],
        )
    )
