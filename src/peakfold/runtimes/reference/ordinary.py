"""The ordinary run: the same kernels in file order, every tensor in memory of its own."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from peakfold.errors import ModelError
from peakfold.runtimes.reference.memory import aligned_bytes, digest
from peakfold.runtimes.reference.program import Program, Value, slots


@dataclass(frozen=True, slots=True, eq=False)
class Expected:
    """What a right run makes.

    Attributes:
        outputs: values of the graph's outputs.
        made: fingerprint of every result.
        shapes: shapes of results, as the kernels made them.
    """

    outputs: dict[str, Value]
    made: dict[str, bytes] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)


def ordinary_run(program: Program) -> Expected:
    """Compute a program without any sharing.

    Raises:
        ModelError: a kernel that fails, or makes another shape than the graph says.
    """
    graph = program.graph
    values: dict[str, Value] = {**program.statics, **program.feeds}
    uses = {name: 1 for name in graph.outputs}
    for op in graph.ops:
        for name in op.operands:
            uses[name] = uses.get(name, 0) + 1
    expected = Expected({})
    for op, kernel in zip(graph.ops, program.kernels, strict=True):
        args = [read_only(values[name]) if name else None for name in slots(op)]
        try:
            results = kernel.run(args)
        except Exception as error:  # a kernel may raise anything
            raise ModelError(
                f"its kernel ({kernel.name}) fails: {error}", where=f"op {op.name!r} ({op.kind})"
            ) from None
        for name, value in zip(op.results, results, strict=False):
            values[name] = _own(program.result(op, name, value, None))
            expected.made[name] = digest(values[name])
            if isinstance(values[name], np.ndarray) and program.words:
                expected.shapes[name] = values[name].shape
        for name in op.operands:
            uses[name] -= 1
            if not uses[name]:
                del values[name]
    expected.outputs.update((name, values[name]) for name in graph.outputs)
    return expected


def read_only(value: Value) -> Value:
    """The same memory, which a kernel must not write."""
    if isinstance(value, np.ndarray):
        value = value.view()
        value.flags.writeable = False
    return value


def _own(value: Value) -> Value:
    """The value in memory of its own, on a cache line as in the arena."""
    if not isinstance(value, np.ndarray) or value.dtype.kind in "OUST":
        return value
    memory = aligned_bytes(value.nbytes).view(value.dtype).reshape(value.shape)
    memory[...] = value
    return memory
