"""Cost records -> what time models ask: every op that runs, with the weights it reads.

Ops with bodies give way to the ops inside them, as often as they run; of an `if`, the branch
with the most operations, as in `Cost.leaves`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from peakfold.analysis.cost.records import Cost, OpCost, runs
from peakfold.analysis.cost.traffic import data_operands
from peakfold.analysis.time.latency_groups import group_of
from peakfold.analysis.time.roofline import Work
from peakfold.device import Group
from peakfold.errors import UsageError
from peakfold.ir import DTYPES, Graph, Op, Tensor
from peakfold.ir.types import OPAQUE


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One op that runs.

    Attributes:
        work: its demands for the roofline.
        group: which kernels it runs on.
        elements: activations read and written, in elements; `None` = not known.
        weights: elements read of weights.
        floating: whether it computes in floating point.
        owner: position of the graph's op that it is or lies in.
    """

    work: Work
    group: Group
    elements: int | None
    weights: int
    floating: bool
    owner: int


_Leaf = tuple[Graph, Op, OpCost, int, int]


def tasks_of(graph: Graph, cost: Cost, precision: str | None = None) -> tuple[Task, ...]:
    """The ops that run, in order; ops that only re-read bytes are among them and move nothing.

    Args:
        graph: what was counted.
        cost: its records.
        precision: element type that floating-point ops are taken to compute in and to move, in
            place of the model's own (float16 for a float32 model that will run in it).

    Raises:
        UsageError: there is no such element type.
    """
    if precision is not None and DTYPES.get(precision, OPAQUE).bits is None:
        known = ", ".join(name for name, dtype in DTYPES.items() if dtype.bits)
        raise UsageError(f"no element type {precision!r}", hint=f"known: {known}")
    return tuple(_task(*leaf, precision) for leaf in _leaves(graph, cost, 1, None))


def _leaves(graph: Graph, cost: Cost, times: int, owner: int | None) -> Iterator[_Leaf]:
    for at, (op, found) in enumerate(zip(graph.ops, cost.ops, strict=True)):
        of = at if owner is None else owner
        if not found.bodies:
            yield graph, op, found, times, of
            continue
        pairs = list(zip(op.regions, found.bodies, strict=True))
        if op.kind == "if":
            region, (_, body) = max(pairs, key=lambda p: p[1][1].total().figures.flops or 0)
            yield from _leaves(region.graph, body, times, of)
        else:
            for region, (label, body) in pairs:
                yield from _leaves(region.graph, body, times * runs(label, found.trips), of)


def _task(
    graph: Graph, op: Op, found: OpCost, times: int, owner: int, precision: str | None
) -> Task:
    figures = found.figures
    tensors = [graph.by_name[name] for name in data_operands(op)]
    stored = [tensor for tensor in tensors if tensor.role.static]
    moved = figures.bytes_moved
    fixed = sum(tensor.nbytes or 0 for tensor in stored)
    # A gather reads some rows of its table only.
    fixed = fixed if figures.read is None else min(fixed, figures.read)
    floating = "float" in found.dtype
    work = Work(
        name=found.name,
        kind=found.kind,
        macs=figures.macs,
        other_ops=figures.other_ops,
        bytes_moved=moved,
        fixed_bytes=fixed,
        engine=found.engine,
        dtype=found.dtype,
        runs=times,
    )
    if precision is not None and floating:
        work = _in_precision(work, precision)
    live = next((tensor for tensor in tensors if not tensor.role.static), None)
    made = next((graph.by_name[name] for name in op.results), None)
    read = None if figures.read is None else _count(figures.read - fixed, live)
    written = None if figures.written is None else _count(figures.written, made)
    return Task(
        work=work,
        group=group_of(op, graph),
        elements=None if read is None or written is None else read + written,
        weights=sum(tensor.elements or 0 for tensor in stored) if fixed else 0,
        floating=floating,
        owner=owner,
    )


def _in_precision(work: Work, precision: str) -> Work:
    """The same op with other elements."""
    own, other = DTYPES[work.dtype].bits, DTYPES[precision].bits
    if not own or not other:
        return work
    moved = None if work.bytes_moved is None else -(-work.bytes_moved * other // own)
    return replace(
        work, dtype=precision, bytes_moved=moved, fixed_bytes=-(-work.fixed_bytes * other // own)
    )


def _count(nbytes: int, tensor: Tensor | None) -> int | None:
    """Elements of so many bytes of a tensor's type."""
    if nbytes <= 0:
        return 0
    if tensor is None or not tensor.dtype.bits:
        return None
    return round(nbytes * 8 / tensor.dtype.bits)
