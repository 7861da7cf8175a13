"""`plan --train` of a torch module: the step's memory by phase, role and module, and what fits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from peakfold.device import Device
from peakfold.ir import Graph
from peakfold.ir.recorded import recorded_graph
from peakfold.ir.run import Run, Steps
from peakfold.planning import PlanOptions, PlanResult, make_plan
from peakfold.printable import shorten
from peakfold.reports.records import (
    AllocatorRecord,
    TrainingDocument,
    TrainingStep,
    schema_name,
    to_json,
)
from peakfold.reports.text.step_lines import first_lines, taken
from peakfold.reports.text.tables import plain_table, render
from peakfold.target.checked import FIGURES, unverified
from peakfold.units import format_bytes

if TYPE_CHECKING:
    from peakfold.frontends.torch.module import Example
    from peakfold.frontends.torch.training.step import StepOptions

_SCOPES = 12


@dataclass(frozen=True, slots=True, eq=False)
class TrainingReport:
    """What a training step needs.

    Attributes:
        document: everything, as ``--json`` prints it.
        steps: both steps as they ran.
        result: the plan of the steady step's graph.
    """

    document: TrainingDocument
    steps: Steps
    result: PlanResult

    def to_json(self) -> str:
        """The document."""
        return to_json(self.document)

    def to_snapshot(self) -> bytes:
        """The steady step for PyTorch's memory viewer."""
        from peakfold.analysis.cuda.footprint import snapshot

        return snapshot(self.steps.steady)

    def to_csv(self) -> bytes:
        """The storages of the steady step as ``peakfold pack`` reads them."""
        return to_table(self.steps.steady)

    def to_text(self, *, width: int = 80, color: bool = False) -> str:
        """The report for a terminal."""
        return training_text(self.document, width=width, color=color)


def plan_training(
    spec: str,
    options: StepOptions,
    plan_options: PlanOptions,
    dims: Mapping[str, int],
    device: Device | None = None,
    *,
    joint: bool = False,
) -> TrainingReport:
    """Capture a training step and plan it.

    Args:
        spec: ``package.module:callable``.
        options: of the step; the example's own loss and optimizer come first.
        plan_options: of the plan of its graph.
        dims: numbers for named dimensions.
        device: whose memory it should fit.
        joint: plan the exported program of both passes, not the step as it runs.

    Raises:
        UsageError: nothing to train, or a name the example does not have.
        ModelError: the capture failed.
    """
    from dataclasses import replace

    from peakfold.frontends.torch.load import load_example
    from peakfold.runtimes.torch import fit

    example = load_example(spec)
    options = fit.own_options(example, options)
    steps = fit.steps_of(example, options, dims)
    graph, notes = _graph(example, options, dims, steps, joint=joint)
    result = make_plan(graph, replace(plan_options, quick=True))
    have = None if device is None or device.memory is None else int(device.memory.value)
    found = None if have is None else fit.room(steps, options, have)
    count: int | None = None
    if found is not None and have is not None:
        count, why = (1, []) if found.fits else _devices(example, options, have, found.need, dims)
        notes = [*notes, *why]
    document = TrainingDocument(
        schema=schema_name("training"),
        model=spec,
        notes=[*steps.notes, *graph.notes, *notes],
        **taken(steps, keep_result=options.keep_result),
        first=step_record(steps.first),
        steady=step_record(steps.steady),
        cuda=None if options.rules.caching is None else _allocator(steps, options),
        device=None if device is None else device.name,
        have_bytes=have,
        need_bytes=None if found is None else found.need,
        fits=None if found is None else found.fits,
        devices=count,
        summary=result.summary,
        plan=result.plan,
    )
    return TrainingReport(document, steps, result)


def to_table(run: Run) -> bytes:
    """What a run makes, as a table that ``peakfold pack`` reads: one row a storage."""
    from peakfold.analysis.cuda.footprint import problem_of
    from peakfold.packing.csv_format import Table, format_csv

    problem = problem_of(run)
    table = Table(problem, problem.start, problem.stop, ("",) * problem.buffers)
    return format_csv(table).encode()


def _graph(
    example: Example, options: StepOptions, dims: Mapping[str, int], steps: Steps, *, joint: bool
) -> tuple[Graph, list[str]]:
    """What is planned, and what to say of it."""
    from peakfold.frontends.torch.module import input_names

    if example.route == "run" and not joint:
        return recorded_graph(steps.steady, type(example.module).__name__), [
            "planned: what the steady step asked for, in the order in which it did"
        ]
    args, kwargs = example.resized(dims)
    names = input_names(example.module, args, kwargs)
    if not joint:
        from peakfold.frontends.torch.training.step import step_graph

        return step_graph(example.module, args, kwargs, options, names).graph, []
    from peakfold.frontends.torch.training.joint import joint_graph

    found = joint_graph(example.module, args, kwargs, options, names)
    saved = sum(found.saved.values())
    return found.graph, [
        "planned: forward and backward exported as one program, without the update; gradients and "
        f"loss are its results; it saves {format_bytes(saved)} ({saved} B) for the backward pass"
    ]


def _devices(
    example: Example, options: StepOptions, have: int, need: int, dims: Mapping[str, int]
) -> tuple[int | None, list[str]]:
    """How many devices share the batch, or why no number is told."""
    from peakfold.errors import UsageError
    from peakfold.runtimes.torch.fit import devices_needed

    try:
        count = devices_needed(example, options, have, dims)
    except UsageError as error:  # no dimension is called the batch
        return None, [f"how many devices in data parallel is not told: {error}"]
    if count is None:
        return None, [
            "a batch of one does not fit either: data parallel does not help; cut into equal "
            f"parts the step would fill the memory of {-(-need // have)} devices"
        ]
    return count, []


def step_record(run: Run) -> TrainingStep:
    """A run's figures, as documents have them."""
    by_scope = run.at_peak("scope")
    return TrainingStep(
        peak_bytes=run.peak,
        static_bytes=run.static_bytes,
        dynamic_bytes=run.peak - run.static_bytes,
        phases=run.phase_peaks(),
        at_peak_by_role=run.at_peak("role"),
        at_peak_by_scope=by_scope,
    )


def _allocator(steps: Steps, options: StepOptions) -> AllocatorRecord:
    from peakfold.runtimes.torch import fit

    loaded = fit.on_device(steps, options)
    plain, growing = fit.footprints(loaded), fit.footprints(loaded, expandable=True)
    doubtful = list(unverified())
    libraries = sum(s.nbytes for s in loaded.steady.storages if s.role == "workspace")
    return AllocatorRecord(
        allocated_bytes=max(f.allocated for f in plain),
        reserved_bytes=max(f.reserved for f in plain),
        expandable_reserved_bytes=max(f.reserved for f in growing),
        library_bytes=libraries,
        context_bytes=options.rules.context_bytes,
        verified=not doubtful,
        unverified=doubtful,
    )


def training_text(document: TrainingDocument, *, width: int, color: bool) -> str:
    """The verdict, the phases, and who is alive at the peak."""
    first, steady = document.first, document.steady
    phases = [
        (phase, format_bytes(first.phases.get(phase, 0)), format_bytes(nbytes))
        for phase, nbytes in steady.phases.items()
    ]
    columns = [("highest in", "left"), ("first step", "right"), ("steady step", "right")]
    body: list[RenderableType] = [
        Text(document.model, "bold"),
        *map(Text, (*first_lines(document), *document.notes)),
        "",
        Text(
            f"a steady step needs {format_bytes(steady.peak_bytes)}: "
            f"{format_bytes(steady.static_bytes)} static, "
            f"{format_bytes(steady.dynamic_bytes)} dynamic at the peak"
        ),
        "",
        plain_table(columns, phases),
        *peak_tables(steady),
        "",
        Text(
            f"one planned arena would take {format_bytes(document.summary.arena_bytes)} beside "
            f"static memory (bound {format_bytes(document.summary.lower_bound_bytes)}); run op by "
            f"op it takes {format_bytes(steady.dynamic_bytes)}"
        ),
    ]
    if document.cuda is not None:
        cuda = document.cuda
        body.append(
            Text(
                f"caching allocator: {format_bytes(cuda.allocated_bytes)} allocated, "
                f"{format_bytes(cuda.reserved_bytes)} reserved "
                f"({format_bytes(cuda.expandable_reserved_bytes)} with expandable segments), "
                f"workspaces of libraries among them {format_bytes(cuda.library_bytes)}; "
                f"context {format_bytes(cuda.context_bytes)}; {_confirmed(cuda)}"
            )
        )
    if document.fits is not None and document.have_bytes is not None:
        verdict = "fits" if document.fits else "does not fit"
        need = format_bytes(document.need_bytes or 0)
        line = f"{verdict} {document.device}: {need} of {format_bytes(document.have_bytes)}"
        if not document.fits:
            many = document.devices
            line += f"; {many} devices in data parallel" if many else " (see the notes)"
        body.append(Text(line, "green" if document.fits else "red"))
    return render(body, width=width, color=color)


def peak_tables(step: TrainingStep) -> list[RenderableType]:
    """Who is alive at the peak, by role and by module."""
    return [
        "",
        plain_table(
            [("at the peak", "left"), ("bytes", "right"), ("share", "right")],
            _shares(step.at_peak_by_role, step.peak_bytes),
        ),
        "",
        plain_table(
            [("made in module", "left"), ("bytes", "right"), ("share", "right")],
            _shares(step.at_peak_by_scope, step.peak_bytes)[:_SCOPES],
        ),
    ]


def _confirmed(cuda: AllocatorRecord) -> str:
    """Which of the figures a real card has confirmed."""
    if cuda.verified:
        return "each figure verified on a GPU"
    every = len(cuda.unverified) == len(FIGURES)
    return "not verified on a GPU" + ("" if every else f": {', '.join(cuda.unverified)}")


def _shares(parts: Mapping[str, int], total: int) -> list[tuple[str, ...]]:
    return [
        (shorten(name or "(the whole)", 44), format_bytes(nbytes), f"{nbytes / total:.1%}")
        for name, nbytes in parts.items()
    ]
