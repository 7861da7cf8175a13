"""`peakfold.apply` and `peakfold.measure`: plans handed to a runtime, and what it made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec
from rich.console import RenderableType
from rich.text import Text

from peakfold.analysis.profile import SCHEMA, Profile, ProfiledOp
from peakfold.errors import InvalidPlan, UsageError
from peakfold.frontends import Loaded
from peakfold.ir import Graph
from peakfold.planning import Plan, PlanOptions, make_plan
from peakfold.planning.verify import Check, verify_plan
from peakfold.reports.documents import verify_document
from peakfold.reports.face import read_plan
from peakfold.reports.inspecting import load
from peakfold.reports.payload import (
    ApplyDocument,
    ControlRecord,
    MeasureDocument,
    schema_name,
    to_json,
)
from peakfold.reports.results import PlanReport, VerifyReport
from peakfold.reports.text import plain_table, render
from peakfold.transform import replay
from peakfold.units import format_bytes

FORMATS = ("tflite", "c", "csv")
RUNTIMES = ("tflm", "litert")


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
        if found.total_bytes is not None:
            least = "at least " if found.tail_unknown else ""
            lines.append(
                Text(
                    f"Give the interpreter {least}{found.total_bytes:,} bytes (8-byte pointers, "
                    f"reference kernels); {found.total_bytes_32bit:,} with 4-byte pointers "
                    "(counted, not run)."
                )
            )
            lines.append(Text(f"Flash: {found.flash_bytes:,} bytes of file."))
        if found.tail_unknown:
            lines.append(Text(f"Not counted in the tail: {', '.join(found.tail_unknown)}."))
        lines += [Text(note) for note in found.notes]
        return render(lines, width=width, color=color)


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
        UsageError: the format does not go with the model.
        RunFailed: constants cannot be computed here.
    """
    if to not in FORMATS:
        raise UsageError(f"there is no format {to!r}", hint=f"known: {', '.join(FORMATS)}")
    path = Path(model)
    if to == "tflite" and path.suffix != ".tflite":
        raise UsageError("only a .tflite model can be written as one", where=str(path))
    if plan is None:
        if to != "tflite":
            raise UsageError(f"--to {to} writes a plan", hint="name the plan's file")
        return _anew(path, fold_weights)
    record = _record(plan)
    loaded = load(path, dims=record.bindings.dims, shapes=record.bindings.shapes)
    _must_pass(verify_plan(loaded.graph, record), str(path))
    if to == "tflite":
        return _to_tflite(path, loaded, record)
    return _to_text(loaded.graph, record, to)


def _record(plan: Plan | PlanReport | str | Path) -> Plan:
    if isinstance(plan, PlanReport):
        return plan.plan
    return plan if isinstance(plan, Plan) else read_plan(plan)


def _must_pass(checks: Sequence[Check], where: str) -> None:
    """Nothing is handed over that a judge rejects.

    Raises:
        InvalidPlan: the first check that failed.
    """
    for check in checks:
        if not check.ok:
            raise InvalidPlan(f"{check.name}: {check.detail}", where=where)


def _to_text(graph: Graph, plan: Plan, to: str) -> ApplyReport:
    from peakfold.runtimes.c_header import c_header, plan_csv

    names = tuple(op.name for op in replay(graph, plan.recipe).ops)
    text = c_header(plan, names) if to == "c" else plan_csv(plan, names)
    document = ApplyDocument(
        schema=schema_name("apply"), to=to, written=None, arena_bytes=plan.arena_bytes,
        unplanned_bytes=None, obeys=None, notes=[],
    )  # fmt: skip
    return ApplyReport(text.encode(), document)


def _to_tflite(path: Path, loaded: Loaded, plan: Plan) -> ApplyReport:
    from peakfold.runtimes.tflite.planned import apply_plan

    applied = apply_plan(path, loaded.graph, plan)
    _must_pass([_judged(applied.data, plan.target)], str(path))
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
        schema=schema_name("apply"), to="tflite", written=None, arena_bytes=applied.head,
        unplanned_bytes=applied.unplanned, obeys=applied.obeys, notes=notes,
        **(_arena_figures(applied.data) if plan.target == "tflm" else {}),
    )  # fmt: skip
    return ApplyReport(applied.data, document)


def _judged(data: bytes, target: str = "tflm") -> Check:
    import tempfile

    from peakfold.runtimes.tflite.embedded import judge_file

    with tempfile.TemporaryDirectory(prefix="peakfold-") as folder:
        path = Path(folder) / "planned.tflite"
        path.write_bytes(data)
        return judge_file(path, target)


def _anew(path: Path, fold_weights: bool) -> ApplyReport:
    from peakfold.runtimes.tflite.planned import write_anew

    applied = write_anew(path, load(path).graph, fold_weights=fold_weights)
    document = ApplyDocument(
        schema=schema_name("apply"), to="tflite", written=None, arena_bytes=applied.head,
        unplanned_bytes=applied.unplanned, obeys=None, notes=[], **_arena_figures(applied.data),
    )  # fmt: skip
    return ApplyReport(applied.data, document)


def _arena_figures(data: bytes) -> dict[str, Any]:
    """What a user must give the interpreter for a file, and what stays in flash."""
    from peakfold.runtimes.tflite.schema import parse_model
    from peakfold.runtimes.tflite.scratch import known_scratch
    from peakfold.runtimes.tflite.tail import predict_arena

    model = parse_model(data)
    scratch = known_scratch(model)
    wide, narrow = predict_arena(model, scratch), predict_arena(model, scratch, pointer=4)
    return {
        "total_bytes": wide.total, "total_bytes_32bit": narrow.total,
        "tail_unknown": list(wide.unknown), "flash_bytes": len(data),
    }  # fmt: skip


def verify_file(model: str | Path) -> VerifyReport:
    """Judge the layout that a .tflite file carries: order of operators and offsets.

    Raises:
        UsageError: another kind of model, which carries none.
        ModelError: the file is broken.
    """
    path = Path(model)
    if path.suffix != ".tflite":
        raise UsageError("only a .tflite file carries a layout", where=str(path),
                         hint="name a plan")  # fmt: skip
    if not path.is_file():
        raise UsageError("no such file", where=str(path))
    from peakfold.runtimes.tflite.embedded import judge_file

    return VerifyReport(verify_document([judge_file(path)]))


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
        return same and found.obeyed is not False and caught

    def to_json(self) -> str:
        """The document that ``peakfold measure --json`` prints."""
        return to_json(self.document)

    def to_text(self, *, width: int = 100, color: bool = False) -> str:
        """A table of before and after, and what the comparison covered."""
        found = self.document
        rows = [["arena head" if found.runtime == "tflm" else "arena", found.before_bytes,
                 found.planned_bytes, found.after_bytes]]  # fmt: skip
        if found.before_arena_bytes is not None:
            rows.append(
                [
                    "whole arena",
                    found.before_arena_bytes,
                    found.predicted_arena_bytes,
                    found.after_arena_bytes,
                ]
            )
        cells = [[str(row[0]), *(_bytes(value) for value in row[1:])] for row in rows]
        columns = [("bytes", "left"), ("before", "right"), ("planned", "right"), ("after", "right")]
        says = [
            f"{found.runtime}: {'the plan was obeyed to the byte' if found.obeyed else ''}"
            f"{'THE PLAN WAS NOT OBEYED' if found.obeyed is False else ''}"
            f"{'order only: it plans its own arena' if found.obeyed is None else ''}.",
            f"Outputs of {found.runs} runs on random inputs are "
            f"{'equal bit for bit' if found.outputs_equal else 'DIFFERENT'}"
            f"{'' if found.outputs_vary else ', but the same for every input'}.",
        ]
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


def _bytes(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else ""


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
    if runtime not in RUNTIMES:
        raise UsageError(f"there is no runtime {runtime!r}", hint=f"known: {', '.join(RUNTIMES)}")
    path = Path(model)
    if path.suffix != ".tflite":
        raise UsageError(f"{runtime} runs .tflite models", where=str(path))
    from peakfold.runtimes.tflite.measure import measure_litert, measure_tflm
    from peakfold.runtimes.tflite.planned import apply_plan

    loaded = load(path)
    if plan is None:
        if order not in ("file", "best"):
            raise UsageError(f"no order {order!r}", hint="known: file, best")
        options = PlanOptions(
            target="tflm", order="best" if order == "best" else "file",
            fold_weights=fold_weights, time_limit=time_limit,
        )  # fmt: skip
        record = make_plan(loaded.graph, options, loaded.bindings).plan
    else:
        record = _record(plan)
        if record.target == "tflm-cmsis":
            raise InvalidPlan("the interpreter here has no CMSIS-NN kernels",
                              hint="measure on the board, or plan with --target tflm")  # fmt: skip
    _must_pass(verify_plan(loaded.graph, record), str(path))
    applied = apply_plan(path, loaded.graph, record)
    _must_pass([_judged(applied.data)], str(path))
    if runtime == "litert":
        found = measure_litert(applied, str(path), runs=runs or 3, seed=seed)
        planned = None
    else:
        found = measure_tflm(applied, str(path), runs=runs, seed=seed, controls=self_check)
        # Outputs that a plan copies at its end are placed by the interpreter.
        whole = applied.obeys and not record.copies
        planned = record.arena_bytes if whole else applied.head
    return MeasureReport(
        MeasureDocument(
            schema=schema_name("measure"), runtime=runtime, before_bytes=found.before,
            planned_bytes=planned, after_bytes=found.after,
            obeyed=None if planned is None else found.after == planned,
            outputs_equal=found.outputs_equal, outputs_vary=found.outputs_vary, runs=found.runs,
            tensors=found.tensors, tensors_equal=found.tensors_equal,
            before_arena_bytes=found.before_total, after_arena_bytes=found.after_total,
            tail_bytes=found.tail,
            predicted_arena_bytes=(
                None if planned is None else _arena_figures(applied.data)["total_bytes"]
            ),
            controls=[
                ControlRecord(what=c.what, rejected=c.judged, results_differ=c.differs)
                for c in found.controls
            ],
        )
    )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class ProfileReport:
    """Scratch that was measured.

    Attributes:
        profile: per op.
    """

    profile: Profile

    def encode(self) -> bytes:
        """The profile as the file that ``plan --profile`` reads."""
        return msgspec.json.format(msgspec.json.encode(self.profile), indent=1) + b"\n"

    def to_json(self) -> str:
        """The same as text."""
        return self.encode().decode()

    def to_text(self, *, width: int = 100, color: bool = False) -> str:
        """Ops with scratch, and how many have none or could not run alone."""
        ops = self.profile.ops
        rows = [
            [Text(op.op), Text(op.operator), Text(f"{op.scratch_bytes:,}")]
            for op in ops
            if op.scratch_bytes
        ]
        unknown = sum(op.scratch_bytes is None for op in ops)
        none = len(ops) - len(rows) - unknown
        table = plain_table([("op", "left"), ("operator", "left"), ("bytes", "right")], rows)
        says = Text(f"{none} ops need none; {unknown} cannot run alone.")
        return render([table, "", says], width=width, color=color)


def measure_scratch(model: str | Path, *, runtime: str = "tflm") -> ProfileReport:
    """The scratch of every op of a model, each run alone on the interpreter.

    Raises:
        UsageError: a model or runtime this is not made for.
        BackendMissing: the interpreter is not installed.
    """
    path = Path(model)
    if path.suffix != ".tflite" or runtime != "tflm":
        raise UsageError("scratch is measured of .tflite models in tflm", where=str(path))
    from peakfold.frontends.tflite_file import read_tflite
    from peakfold.frontends.tflite_names import names_of_model
    from peakfold.runtimes.tflite.schema import operator_name, parse_model
    from peakfold.runtimes.tflite.scratch import measured_scratch

    load(path)
    names = names_of_model(read_tflite(path))
    parsed = parse_model(path.read_bytes(), str(path))
    found = measured_scratch(parsed)
    ops = [
        ProfiledOp(
            op=names.op[where],
            operator=operator_name(parsed, parsed.subgraphs[where[0]].operators[where[1]]),
            scratch_bytes=size,
        )
        for where, size in found.items()
    ]
    version = metadata.version("tflite-micro")
    return ProfileReport(
        Profile(schema=SCHEMA, target="tflm", runtime=f"tflite-micro {version}", model=path.name,
                ops=ops)
    )  # fmt: skip
