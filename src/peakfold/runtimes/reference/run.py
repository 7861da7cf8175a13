"""`run_plan`: a plan run on real memory, and the verdict."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from peakfold.errors import InvalidPlan, PeakfoldError
from peakfold.frontends.bindings import Bindings
from peakfold.ir import Graph
from peakfold.planning.plan import Plan
from peakfold.planning.study import apply_recipe
from peakfold.runtimes.reference.arena import ArenaRun
from peakfold.runtimes.reference.feeds import input_values, random_weights
from peakfold.runtimes.reference.lanes import Lanes
from peakfold.runtimes.reference.memory import Memory, digest
from peakfold.runtimes.reference.onnx_program import Source
from peakfold.runtimes.reference.ordinary import Expected, ordinary_run
from peakfold.runtimes.reference.program import Program, Value


@dataclass(frozen=True, slots=True)
class RunReport:
    """What a plan did to a model's numbers.

    Attributes:
        ok: outputs and every result on the way equal an ordinary run's bit for bit, and
            nothing that belongs to others was written.
        outputs_equal: all outputs equal bit for bit.
        max_abs_difference: largest difference of an output element; infinite against NaN.
        arena_bytes: bytes of the one arena.
        kernel_temporary_bytes: most bytes of kernel results that one step held outside it.
        guards_intact: inputs and parameters are what they were.
        skipped: tensors that live outside the arena, and why; one line each.
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

    Args:
        model_path: the model file; its weights are used.
        graph: as loaded from it with the plan's own bindings.
        plan: the plan.
        seed: of the inputs (and weights, and delays of lanes).
        lanes: run ops in threads; by default one after another in the plan's order.
        randomise_weights: replace trained floating weights by random ones.

    Raises:
        InvalidPlan: the plan is for another model, or cannot be laid out in memory.
        ModelError: an op without a kernel, or a model that fails in an ordinary run.
    """
    program = load_program(model_path, graph, plan, seed, randomise_weights)
    return judge(program, plan, ordinary_run(program), lanes=lanes, seed=seed)


def load_program(
    model_path: str | Path, graph: Graph, plan: Plan, seed: int, randomise_weights: bool
) -> Program:
    if plan.graph.source != graph.digest:
        raise InvalidPlan(
            f"the plan is for another model ({plan.graph.name!r}) or other shapes",
            hint="plan this model again",
        )
    work = apply_recipe(graph, tuple(plan.recipe))
    if work.digest != plan.graph.digest:
        raise InvalidPlan("the recipe leads to another graph than the plan is for")
    record = plan.bindings
    bindings = Bindings.parse(
        [f"{name}={n}" for name, n in record.dims.items()],
        [f"{name}={shape}" for name, shape in record.shapes.items()],
    )
    source = Source.read(Path(model_path), graph, bindings)
    kernels = tuple(source.kernel(op) for op in work.ops)
    needed = {name for op in work.ops for name in op.operands} | set(work.outputs)
    statics = source.values([t.name for t in work.tensors if t.role.static and t.name in needed])
    if randomise_weights:
        statics = random_weights(work, statics, seed)
    return Program(work, kernels, statics, input_values(work, seed))


def judge(
    program: Program, plan: Plan, expected: Expected, *, lanes: Lanes | None = None, seed: int = 0
) -> RunReport:
    begin = time.perf_counter()
    run = ArenaRun(program, plan, Memory.of(program.graph, plan), expected.shapes)
    problem = None
    outputs: dict[str, Value] = {}
    with np.errstate(all="ignore"):
        for at in run.run_order():
            run.step(at)
        outputs = run.finish()
    seconds = time.perf_counter() - begin
    wrong = [n for n in program.graph.outputs if digest(outputs[n]) != digest(expected.outputs[n])]
    bad = [n for op in program.graph.ops for n in op.results if run.made[n] != expected.made[n]]
    broken = run.guards_broken()
    return RunReport(
        not (wrong or bad or broken),
        not wrong,
        0.0,
        plan.arena_bytes,
        run.temporary_bytes,
        not broken,
        (),
        seconds,
        f"{wrong} {bad[:3]} {broken}",
    )
