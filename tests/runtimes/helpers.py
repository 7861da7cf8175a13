"""Models run in their arena: what the tests of the reference executor share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from peakfold.frontends import Loaded
from peakfold.ir import Graph, parse_graph
from peakfold.judges.plan import verify_plan
from peakfold.planning import Plan, PlanOptions, make_plan
from peakfold.planning.plan import PlannedAlias, PlannedBuffer
from peakfold.runtimes.reference import Lanes, RunReport
from peakfold.runtimes.reference.ordinary import Expected, ordinary_run
from peakfold.runtimes.reference.program import Program
from peakfold.runtimes.reference.run import judge, load_program
from peakfold.runtimes.reference.standin import byte_program
from tests.frontends.models import read

replace = msgspec.structs.replace


@dataclass(frozen=True)
class Case:
    """A model with its ordinary run; plans of it are judged one by one."""

    graph: Graph
    program: Program
    expected: Expected
    plan: Plan

    def run(self, plan: Plan | None = None, lanes: Lanes | None = None, seed: int = 0) -> RunReport:
        return judge(self.program, plan or self.plan, self.expected, lanes=lanes, seed=seed)

    def accepted(self, plan: Plan) -> bool:
        """Judge 2 (and 1)."""
        return all(check.ok for check in verify_plan(self.graph, plan))


def case_of(
    loaded: Loaded, options: PlanOptions | None = None, seed: int = 0, randomise: bool = False
) -> Case:
    plan = make_plan(loaded.graph, options, loaded.bindings).plan
    program = load_program(loaded.path, loaded.graph, plan, seed=seed, randomise_weights=randomise)
    return Case(loaded.graph, program, ordinary_run(program), plan)


def onnx_case(
    folder: Path,
    text: str,
    options: PlanOptions | None = None,
    *dims: str,
    shapes: tuple[str, ...] = (),
) -> Case:
    return case_of(read(folder, text, *dims, shapes=shapes), options)


def byte_case(source: str | Graph, options: PlanOptions | None = None) -> Case:
    graph = parse_graph("peakfold-graph 1\n" + source) if isinstance(source, str) else source
    result = make_plan(graph, options)
    program = byte_program(result.context.graph, result.plan.target)
    return Case(graph, program, ordinary_run(program), result.plan)


def buffer_of(plan: Plan, tensor: str) -> int:
    """Position of the buffer that holds a tensor."""
    return next(
        number
        for number, buffer in enumerate(plan.buffers)
        if any(place.tensor == tensor for place in buffer.tensors)
    )


def moved(plan: Plan, **offsets: int) -> Plan:
    """The plan with buffers, named by a tensor in them, at other offsets."""
    buffers: list[PlannedBuffer] = list(plan.buffers)
    for tensor, offset in offsets.items():
        at = buffer_of(plan, tensor)
        buffers[at] = replace(buffers[at], offset=offset)
    top = max(buffer.offset + buffer.size for buffer in buffers)
    return replace(plan, buffers=buffers, arena_bytes=max(plan.arena_bytes, top))


def over(plan: Plan, op: int, output: str, operand: str) -> Plan:
    """The plan with a result said and laid to be in place of an operand."""
    host = plan.buffers[buffer_of(plan, operand)]
    alias = PlannedAlias(op=op, output=output, input=operand, how="inplace")
    forged = moved(plan, **{output: host.offset})
    return replace(forged, aliases=[*forged.aliases, alias])


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
