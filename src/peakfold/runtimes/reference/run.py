"""`run_plan`: a plan run on real memory beside an ordinary run, and the verdict."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from peakfold.analysis.graph.index import is_opaque
from peakfold.errors import InvalidPlan, ModelError
from peakfold.ir import Graph
from peakfold.ir.bindings import Bindings
from peakfold.judges.plan import Check, work_graph
from peakfold.planning.plan import Plan
from peakfold.runtimes.reference.arena import ArenaRun
from peakfold.runtimes.reference.feeds import random_weights
from peakfold.runtimes.reference.lanes import Lanes, planned_lanes, run_lanes
from peakfold.runtimes.reference.memory import Memory, digest
from peakfold.runtimes.reference.onnx_program import Source
from peakfold.runtimes.reference.ordinary import Expected, ordinary_run
from peakfold.runtimes.reference.program import CannotRun, Program, Value
from peakfold.runtimes.reference.standin import byte_program


@dataclass(frozen=True, slots=True)
class RunReport:
    """What a plan did to a model's numbers.

    Attributes:
        ok: outputs and every result on the way equal an ordinary run's bit for bit, and
            nothing that belongs to others was written.
        outputs_equal: all outputs equal bit for bit.
        max_abs_difference: largest difference of an output element; infinite where only one
            side is a number.
        arena_bytes: bytes of the one arena.
        kernel_temporary_bytes: most bytes that one step allocated outside it: results before
            they are copied into place and scratch of numpy kernels (not what a matrix library
            packs inside); 0 where it is not measured: with lanes, and while memory is traced.
        guards_intact: inputs and parameters are what they were.
        skipped: what does not lie in the arena, or was not run for real; one line each.
        seconds: of the run in the arena.
        detail: the first thing that went wrong, or what was compared.
    """

    ok: bool
    outputs_equal: bool
    max_abs_difference: float
    arena_bytes: int
    kernel_temporary_bytes: int
    guards_intact: bool
    skipped: tuple[str, ...]
    seconds: float
    detail: str


def run_plan(
    model_path: str | Path,
    graph: Graph,
    plan: Plan,
    *,
    seed: int = 0,
    lanes: Lanes | None = None,
    randomise_weights: bool = False,
) -> RunReport:
    """Run a model as its plan says, in one arena, and compare with an ordinary run.

    An ONNX model runs with its weights and real kernels. Where there are none (other files, and
    plans with ops that no file holds: bands of rows, a backward pass), stand-in kernels work on
    bytes, and depend on just what the graph says; so they do where the reference kernels cannot run
    the model, which the report then says.

    Args:
        model_path: the model file.
        graph: as loaded from it with the plan's own bindings.
        plan: the plan.
        seed: of the inputs (and weights, and delays of lanes).
        lanes: run ops in threads; by default as the plan says, which is one after another in
            its order unless it was made for several lanes.
        randomise_weights: replace trained floating weights by random ones, where there are any.

    Raises:
        InvalidPlan: the plan is for another model, or cannot be laid out in memory at all.
        ModelError: a kernel that makes another shape than the graph says.

    Example:
        >>> import tempfile
        >>> from peakfold.frontends import load
        >>> from peakfold.planning import make_plan
        >>> text = "peakfold-graph 1\\ninput x: int8[64]\\ny: int8[64] = relu(x)\\noutput y"
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "model.pf")
        ...     _ = path.write_text(text)
        ...     graph = load(path).graph
        ...     report = run_plan(path, graph, make_plan(graph).plan)
        >>> report.ok, report.arena_bytes, report.max_abs_difference
        (True, 64, 0.0)
    """
    try:
        program = load_program(
            model_path, graph, plan, seed=seed, randomise_weights=randomise_weights
        )
        expected = ordinary_run(program)
    except CannotRun as error:  # so the plan is judged on bytes, and the reader is told
        program = byte_program(work_graph(graph, plan), plan.target, seed)
        note = f"the reference kernels cannot run it: {error}; stand-in kernels on its bytes"
        program = replace(program, notes=(note,))
        expected = ordinary_run(program)
    return judge(program, plan, expected, lanes=lanes, seed=seed)


def load_program(
    model_path: str | Path,
    graph: Graph,
    plan: Plan,
    *,
    seed: int = 0,
    randomise_weights: bool = False,
) -> Program:
    """The planned graph of a model file, ready to be computed; see `run_plan`.

    Plans of one model with one recipe can share a program and its ordinary run.

    Raises:
        InvalidPlan: the plan is for another model, other shapes or another graph.
        ModelError: an op without a kernel, or a file that is not the graph's.
    """
    work = work_graph(graph, plan)
    path = Path(model_path)
    in_file = {op.outputs: op.kind for op in graph.ops}
    if path.suffix != ".onnx" or any(in_file.get(op.outputs) != op.kind for op in work.ops):
        # No numbers, or ops that the recipe made: a backward pass, bands of rows.
        return byte_program(work, plan.target, seed)
    record = plan.bindings
    bindings = Bindings.parse(
        [f"{name}={number}" for name, number in record.dims.items()],
        [f"{name}={shape}" for name, shape in record.shapes.items()],
    )
    try:
        program = Source.read(path, graph, bindings).program(work, seed)
    except ModelError as error:
        where = ", ".join(part for part in (str(path), error.where) if part)
        raise type(error)(error.what, where=where, hint=error.hint) from None
    return random_weights(program, seed) if randomise_weights else program


def judge(
    program: Program, plan: Plan, expected: Expected, *, lanes: Lanes | None = None, seed: int = 0
) -> RunReport:
    """Run a plan of a program and compare.

    Args:
        program: what to compute.
        plan: how to lay it out.
        expected: what an ordinary run of the program made.
        lanes: run ops in threads; by default as the plan says.
        seed: of the delays of lanes, and of the order of a plan for free lanes.

    Raises:
        InvalidPlan: the plan cannot be laid out in memory, or its lanes wait for each other.
    """
    if plan.graph.digest != program.graph.digest:
        raise InvalidPlan(f"the plan is for another graph ({plan.graph.name!r})")
    begin = time.perf_counter()
    memory = Memory.of(program.graph, plan)
    order = list(plan.order)
    if lanes is None:
        lanes, order = planned_lanes(program.graph, plan, seed)
    run = ArenaRun(program, plan, memory, given=expected.given, measure=lanes is None)
    outputs: dict[str, Value] = {}
    failure = ""
    try:
        with np.errstate(all="ignore"):
            if lanes is None:
                for at in run.run_order():
                    run.step(at)
            else:
                run_lanes(run, lanes, order, seed)
            outputs = run.finish()
    except InvalidPlan:
        raise
    except Exception as error:  # kernels raise anything when they are fed nonsense
        failure = f"a kernel that runs in an ordinary run fails in the arena: {error}"
    seconds = time.perf_counter() - begin
    return _verdict(program, run, expected, outputs, failure, seconds)


def _verdict(
    program: Program,
    run: ArenaRun,
    expected: Expected,
    outputs: dict[str, Value],
    failure: str,
    seconds: float,
) -> RunReport:
    names = tuple(dict.fromkeys(program.graph.outputs))
    equal = bool(outputs) == bool(names) and all(
        digest(outputs[n]) == digest(expected.outputs[n]) for n in names
    )
    broken = run.guards_broken()
    problem = failure or _first_wrong(run, expected)
    if broken:
        problem = problem or f"{broken[0]!r} was overwritten, which is not the plan's own"
    if not equal:
        problem = problem or "an output was overwritten after it was made"
    count = len(expected.made)
    return RunReport(
        ok=not problem,
        outputs_equal=equal,
        max_abs_difference=0.0 if equal else _difference(outputs, expected.outputs),
        arena_bytes=run.plan.arena_bytes,
        kernel_temporary_bytes=run.temporary_bytes,
        guards_intact=not broken,
        skipped=_skipped(program),
        seconds=seconds,
        detail=problem or f"{count} results and {len(names)} outputs equal an ordinary run's",
    )


def _first_wrong(run: ArenaRun, expected: Expected) -> str:
    """The first step, in the plan's order, that made something else than an ordinary run."""
    for at in run.plan.order:
        op = run.graph.ops[at]
        for name in op.results:
            if name not in run.made or run.made[name] != expected.made[name]:
                return f"op {op.name!r} ({op.kind}) makes {name!r} with other bits"
    return ""


def _difference(outputs: dict[str, Value], expected: dict[str, Value]) -> float:
    worst = 0.0
    for name, want in expected.items():
        got = outputs.get(name)
        if got is not None and digest(got) == digest(want):
            continue
        if not isinstance(got, np.ndarray) or want.shape != got.shape:
            return float("inf")
        if want.dtype.kind not in "biufc":
            return float("inf")
        kind = np.complex128 if want.dtype.kind == "c" else np.float64
        gap = np.abs(np.asarray(got, kind) - np.asarray(want, kind))
        same = np.asarray(got) == want
        gap[same | (np.isnan(want.astype(kind)) & np.isnan(np.asarray(got, kind)))] = 0
        worst = max(worst, float(np.nan_to_num(gap, nan=np.inf, posinf=np.inf).max(initial=0)))
    return worst


def _skipped(program: Program) -> tuple[str, ...]:
    """What does not lie in the arena, or is not run for real."""
    graph = program.graph
    outside = [
        f"{t.name}: a value without a size in bytes ({t.dtype}), compared as an object"
        for t in graph.tensors
        if is_opaque(t)
    ]
    return (*program.notes, *outside)


def check_run(model_path: str | Path, graph: Graph, plan: Plan, *, seed: int = 0) -> Check:
    """Judge 3 as one check, beside those of `verify_plan`; see `run_plan`."""
    report = run_plan(model_path, graph, plan, seed=seed)
    notes = "".join(f"; {line}" for line in report.skipped)
    return Check("run", report.ok, report.detail + notes)
