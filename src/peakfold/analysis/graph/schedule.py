"""A schedule: an order of the ops that data and effects allow, and the steps tensors live.

Steps count positions in the order. All lifetimes are half-open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from peakfold.analysis.graph.index import Index
from peakfold.errors import ModelError, UsageError
from peakfold.ir import effect_edges
from peakfold.target import InputPolicy, OutputPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """Where inputs and outputs live, and how buffers are padded.

    Attributes:
        inputs: ``external``, ``pinned`` or ``reusable`` (see `peakfold.target.Target`).
        outputs: ``pinned`` or ``external``.
        align: bytes; offsets are multiples, sizes are rounded up.
    """

    inputs: InputPolicy = "external"
    outputs: OutputPolicy = "pinned"
    align: int = 64

    def __post_init__(self) -> None:
        if self.align < 1:
            raise UsageError(f"alignment must be at least 1, not {self.align}")


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """An order and what follows from it.

    Attributes:
        order: op ids in the order they run.
        step: per op, its position in `order`.
        born: per tensor, the step that makes it; 0 for what is there before the first step.
        last_use: per tensor, the last step that reads it, `born` when none does, and
            `steps` for what must survive the run.
        copied: outputs that no op makes and whose bytes the arena does not hold (inputs of the
            caller, parameters): the runtime copies them in one more step after the last op.
        steps: number of steps; at least 1, so that an empty graph still has a time.
    """

    order: tuple[int, ...]
    step: list[int]
    born: list[int]
    last_use: list[int]
    copied: tuple[int, ...]
    steps: int


def file_order(index: Index) -> tuple[int, ...]:
    """The order in which the file lists its ops."""
    return tuple(range(len(index.graph.ops)))


def make_schedule(index: Index, order: Sequence[int], policies: Policies) -> Schedule:
    """Check an order and derive lifetimes from it.

    Raises:
        ModelError: the order is no permutation, or breaks a data or effect edge.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> g = parse_graph("peakfold-graph 1\\ninput x: int8[4]\\n"
        ...                 "y: int8[4] = relu(x)\\nz: int8[4] = relu(y)\\noutput z")
        >>> index = Index.of(g)
        >>> make_schedule(index, (0, 1), Policies()).last_use
        [0, 1, 2]
    """
    step = _positions(index, order)
    copied = _copied(index, policies)
    steps = max(len(order) + bool(copied), 1)
    born = [0 if maker < 0 else step[maker] for maker in index.producer]
    last_use = list(born)
    for at, op in enumerate(order):
        for tensor in index.operands[op]:
            if index.producer[tensor] >= 0 and born[tensor] >= at:
                raise ModelError(
                    f"runs before {index.name(tensor)!r}, which it reads, is made",
                    where=f"op {index.graph.ops[op].name!r}",
                )
            last_use[tensor] = at
    for before, after in effect_edges(index.graph):
        if step[before] > step[after]:
            raise ModelError(
                f"must run after {index.graph.ops[before].name!r}, whose effect it depends on",
                where=f"op {index.graph.ops[after].name!r}",
            )
    for tensor in index.outputs:
        last_use[tensor] = steps
    if policies.inputs == "pinned":
        for tensor in index.inputs:
            last_use[tensor] = steps
    return Schedule(tuple(order), step, born, last_use, copied, steps)


def _copied(index: Index, policies: Policies) -> tuple[int, ...]:
    if policies.outputs == "external":
        return ()
    foreign = [policies.inputs == "external" or static for static in index.static]
    return tuple(
        tensor
        for tensor in dict.fromkeys(index.outputs)
        if index.producer[tensor] < 0 and foreign[tensor] and tensor not in index.opaque
    )


def _positions(index: Index, order: Sequence[int]) -> list[int]:
    step = [-1] * len(index.graph.ops)
    for at, op in enumerate(order):
        if not 0 <= op < len(step) or step[op] >= 0:
            raise ModelError(f"the order lists op {op} twice, or there is no such op")
        step[op] = at
    if len(order) != len(step):
        raise ModelError(f"the order has {len(order)} of {len(step)} ops")
    return step
