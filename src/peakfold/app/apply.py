"""`peakfold.apply`: a plan as a file that a runtime obeys, once the judges have passed it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.text import Text

from peakfold.app.handover import arena_figures, judged, must_pass, plan_of
from peakfold.app.inspect import load
from peakfold.app.results import PlanReport
from peakfold.arguments import flag, word
from peakfold.arguments import path as need_path
from peakfold.errors import PeakfoldError, UsageError
from peakfold.frontends import Loaded
from peakfold.ir import Graph
from peakfold.judges.plan import verify_plan
from peakfold.planning import Plan
from peakfold.reports.records import ApplyDocument, schema_name, to_json
from peakfold.reports.text.tables import render
from peakfold.transform import replay
from peakfold.units import format_bytes

if TYPE_CHECKING:
    from peakfold.runtimes.c_header import Whole

FORMATS = ("tflite", "c", "csv")


@dataclass(frozen=True, slots=True, eq=False)
class ApplyReport:
    """What `apply` made.

    Attributes:
        data: the bytes of the new file.
        document: its figures; `written` is filled in by who writes it.
    """

    data: bytes
    document: ApplyDocument

    def to_json(self, written: str | None = None) -> str:
        """The document that ``peakfold apply --json`` prints."""
        return to_json(replace(self.document, written=written))

    def to_text(self, *, width: int, color: bool) -> str:
        """What the file holds, in a few lines."""
        found = self.document
        lines: list[RenderableType] = [
            Text(f"Arena {format_bytes(found.arena_bytes)} ({found.arena_bytes} bytes)")
        ]
        if found.unplanned_bytes is not None:
            lines.append(Text(f"The interpreter's own: {format_bytes(found.unplanned_bytes)}"))
        lines += map(Text, _whole_arena(found))
        lines += [Text(note) for note in found.notes]
        return render(lines, width=width, color=color)


def _whole_arena(found: ApplyDocument) -> list[str]:
    """What to give the interpreter, by its build."""
    if found.total_at_least_bytes is None:
        return []
    flash = f"Flash: {found.flash_bytes:,} bytes of file."
    if found.total_bytes is None:
        names = ", ".join(found.tail_unknown or ())
        return [
            f"Give the interpreter >= {found.total_at_least_bytes:,} bytes: what {names} takes "
            "is not known.",
            flash,
        ]
    return [
        f"Give the interpreter {found.total_bytes:,} bytes (the Python package's build, 64 bit, "
        f"reference kernels). A device's build: {found.total_bytes_device:,} with 64 bit; "
        f"{found.total_bytes_32bit:,} with 32 bit (predicted, not run).",
        flash,
    ]


def apply(
    model: str | Path,
    plan: Plan | PlanReport | str | Path | None = None,
    *,
    to: str = "tflite",
    fold_weights: bool = False,
) -> ApplyReport:
    """Make a file that a runtime obeys.

    Args:
        model: the model's file.
        plan: a plan for it, or a plan's file; without one a .tflite file is only written anew.
        to: ``tflite`` (order of operators and offsets in the model's file), ``c`` (a header) or
            ``csv`` (a table).
        fold_weights: without a plan, also widen half-precision weights.

    Raises:
        InvalidPlan: the plan is for another model, fails a check, or asks for what the format
            cannot say.
        UsageError: the format does not go with the model, or with the plan's alignment.
        RunFailed: constants cannot be computed here.
    """
    word(to, FORMATS, "format")
    flag(fold_weights, "fold_weights")
    path = need_path(model, "the model")
    if to == "tflite" and path.suffix != ".tflite":
        raise UsageError("only a .tflite model can be written as one", where=str(path))
    if plan is None:
        if to != "tflite":
            raise UsageError(f"--to {to} writes a plan", hint="name the plan's file")
        return _anew(path, fold_weights)
    record = plan_of(plan)
    loaded = load(path, dims=record.bindings.dims, shapes=record.bindings.shapes)
    must_pass(verify_plan(loaded.graph, record), str(path))
    if to == "tflite":
        return _to_tflite(path, loaded, record)
    return _to_text(path, loaded.graph, record, to)


def _to_text(path: Path, graph: Graph, plan: Plan, to: str) -> ApplyReport:
    from peakfold.runtimes.c_header import c_header, plan_csv

    if to == "c" and plan.policies.align & (plan.policies.align - 1):
        raise UsageError(
            f"the plan aligns to {plan.policies.align} bytes, and C knows powers of two only",
            hint="plan with --align 16 or another power of two",
        )
    names = tuple(op.name for op in replay(graph, plan.recipe).ops)
    figures, notes = _of_interpreter(path, graph, plan) if to == "c" else ({}, [])
    whole = _whole(figures, notes)
    text = c_header(plan, names, whole, path.name) if to == "c" else plan_csv(plan, names)
    document = ApplyDocument(
        schema=schema_name("apply"),
        to=to,
        written=None,
        arena_bytes=plan.arena_bytes,
        unplanned_bytes=None,
        obeys=None,
        notes=notes,
        **figures,
    )
    return ApplyReport(text.encode(), document)


def _of_interpreter(path: Path, graph: Graph, plan: Plan) -> tuple[dict[str, Any], list[str]]:
    """Figures of an interpreter that runs the plan's file, or why they are not known.

    Both are empty for a plan that no interpreter with records of its own runs.
    """
    if not plan.target.startswith("tflm"):
        return {}, []
    if plan.target != "tflm":
        return {}, ["What this interpreter's kernels keep of the arena is not known."]
    if path.suffix != ".tflite":
        return {}, ["The whole arena is known of a .tflite file alone."]
    from peakfold.runtimes.tflite.apply_plan import apply_plan

    try:
        return arena_figures(apply_plan(path, graph, plan).data), []
    except PeakfoldError as error:
        return {}, [f"No file can carry this plan, so the whole arena is not known: {error.what}"]


def _whole(figures: dict[str, Any], notes: list[str]) -> Whole | None:
    """The size constants of the header; `None` = the plan's arena is all there is."""
    from peakfold.runtimes.c_header import Whole

    if not figures:
        return Whole(None, None, notes[0]) if notes else None
    unknown = ", ".join(figures["tail_unknown"])
    return Whole(
        figures["total_bytes"],
        figures["total_at_least_bytes"],
        f"More than this: what {unknown} takes is not known."
        if unknown
        else "Give the interpreter this many bytes, at a multiple of 16, for the file that "
        "peakfold apply --to tflite writes of this plan (reference kernels; a device's build needs "
        f"{figures['total_bytes_device']} with 64 bit, and {figures['total_bytes_32bit']} with "
        "32 bit: predicted, not run).",
    )


def _to_tflite(path: Path, loaded: Loaded, plan: Plan) -> ApplyReport:
    from peakfold.runtimes.tflite.apply_plan import apply_plan

    applied = apply_plan(path, loaded.graph, plan)
    must_pass([judged(applied.data, plan.target)], str(path))
    notes = []
    if plan.target != "tflm":
        notes.append("Its kernels were not run: scratch is what their library publishes.")
    if not applied.obeys:
        notes.append("The plan is no better than the interpreter's own, which the file keeps.")
    over = sum(alias.how == "overlap" for alias in plan.aliases)
    if over and applied.obeys:
        notes.append(
            f"For reference kernels only: {over} results lie over part of an operand. For other "
            "kernels (CMSIS-NN) plan with --no-overlap."
        )
    document = ApplyDocument(
        schema=schema_name("apply"),
        to="tflite",
        written=None,
        arena_bytes=applied.head,
        unplanned_bytes=applied.unplanned,
        obeys=applied.obeys,
        notes=notes,
        **(arena_figures(applied.data) if plan.target == "tflm" else {}),
    )
    return ApplyReport(applied.data, document)


def _anew(path: Path, fold_weights: bool) -> ApplyReport:
    from peakfold.runtimes.tflite.apply_plan import write_anew

    applied = write_anew(path, load(path).graph, fold_weights=fold_weights)
    document = ApplyDocument(
        schema=schema_name("apply"),
        to="tflite",
        written=None,
        arena_bytes=applied.head,
        unplanned_bytes=applied.unplanned,
        obeys=None,
        notes=[],
        **arena_figures(applied.data),
    )
    return ApplyReport(applied.data, document)
