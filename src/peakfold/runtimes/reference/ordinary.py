"""The ordinary run: the same kernels in file order, every tensor in memory of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from peakfold.boundary import first_line
from peakfold.errors import PeakfoldError
from peakfold.ir import Op
from peakfold.runtimes.reference.control import run_control
from peakfold.runtimes.reference.kernels import Args
from peakfold.runtimes.reference.memory import aligned_bytes, digest
from peakfold.runtimes.reference.program import CannotRun, Program, Value, formals, slots


@dataclass(frozen=True, slots=True, eq=False)
class Expected:
    """What a right run makes.

    Attributes:
        outputs: values of the graph's outputs.
        made: fingerprint of every result.
        given: fingerprint of every input and static value, before anything ran.
    """

    outputs: dict[str, Value] = field(default_factory=dict)
    made: dict[str, bytes] = field(default_factory=dict)
    given: dict[str, bytes] = field(default_factory=dict)


def ordinary_run(program: Program, feeds: Mapping[str, Value] | None = None) -> Expected:
    """Compute a program without any sharing.

    Args:
        program: the program.
        feeds: values of its inputs; by default the program's own.

    Raises:
        CannotRun: a kernel that fails.
        ModelError: one that makes another shape than the graph says.
    """
    graph = program.graph
    values: dict[str, Value] = {**program.statics, **(program.feeds if feeds is None else feeds)}
    uses = dict.fromkeys(graph.outputs, 1)
    for op in graph.ops:
        for name in op.operands:
            uses[name] = uses.get(name, 0) + 1
    expected = Expected()
    if feeds is None:  # a body's are guarded by the graph around it
        expected.given.update((name, digest(value)) for name, value in values.items())
    for at, op in enumerate(graph.ops):
        args = [read_only(values[name]) if name else None for name in slots(op)]
        results = _results(program, at, op, args)
        for name, value in zip(op.outputs, results, strict=False):
            if name:
                values[name] = own(program.result(op, name, value))
                expected.made[name] = digest(values[name])
        for name in op.operands:
            uses[name] -= 1
            if not uses[name]:
                del values[name]
    expected.outputs.update((name, values[name]) for name in graph.outputs)
    return expected


def _results(program: Program, at: int, op: Op, args: Args) -> tuple[Value, ...]:
    kernel = program.kernels[at]

    def body(region: int, given: Sequence[Value], _trip: int) -> list[Value]:
        inner = program.bodies[at, region]
        feeds = formals(op, region, given, args)
        made = ordinary_run(inner, feeds).outputs
        return [made[name] for name in inner.graph.outputs]

    try:
        with np.errstate(all="ignore"):
            return run_control(op, args, body) if kernel is None else kernel.run(args)
    except PeakfoldError:
        raise
    except Exception as error:  # a kernel may raise anything
        name = "control flow" if kernel is None else kernel.name
        raise CannotRun(
            f"its kernel ({name}) fails: {first_line(error)}", where=f"op {op.name!r} ({op.kind})"
        ) from None


def read_only(value: Value) -> Value:
    """The same memory, which a kernel must not write."""
    if isinstance(value, np.ndarray):
        value = value.view()
        value.flags.writeable = False
    return value


def own(value: Value) -> Value:
    """The value in memory of its own, on a cache line as in the arena."""
    if not isinstance(value, np.ndarray) or value.dtype.kind in "OUST":
        return value
    memory = aligned_bytes(value.nbytes).view(value.dtype).reshape(value.shape)
    memory[...] = value
    return memory
