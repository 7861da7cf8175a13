"""A recorded run as a graph: what was asked for, in the order in which it was, and nothing more."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict

from peakfold.ir.graph import Graph, Op, Role, Tensor
from peakfold.ir.run import Run, Storage
from peakfold.ir.types import DTYPES

_KEPT = {"parameter": Role.PARAMETER, "optimizer_state": Role.OPTIMIZER_STATE, "input": Role.INPUT}
_ORDER = "order"


def recorded_graph(run: Run, name: str) -> Graph:
    """The storages of a run as tensors, each birth as an op.

    What reads a tensor was not observed: it is taken to be alive until the op before its death.
    Nor was what an op needs, so that the order of the ops is part of the graph (each one writes
    the same state): a plan of it is a packing of what was recorded.

    Args:
        run: its storages that were there before are static, those that outlive it are outputs.
        name: of the graph.

    Example:
        >>> run = Run((Storage(8, 0, None, "parameter", "before"),
        ...            Storage(4, 1, 3, "temporary", "forward", "relu"),
        ...            Storage(4, 2, None, "output", "forward", "sum")), (("forward", 0),), 3)
        >>> graph = recorded_graph(run, "net")
        >>> [(op.name, op.inputs, op.outputs) for op in graph.ops], graph.outputs
        ([('relu_0', (), ('relu_0:0',)), ('sum_1', ('relu_0:0',), ('sum_1:0',))], ('sum_1:0',))
    """
    made = [s for s in run.storages if s.born > 0]
    births = [s.born for s in made]
    names = [f"{_plain(s.op) or 'op'}_{at}" for at, s in enumerate(made)]
    ending: defaultdict[int, list[str]] = defaultdict(list)
    for at, storage in enumerate(made):
        last = at if storage.died is None else bisect_left(births, storage.died) - 1
        if last > at:
            ending[last].append(f"{names[at]}:0")
    before = [
        _tensor(f"{s.role}_{at}", s, _KEPT.get(s.role, Role.STATE))
        for at, s in enumerate(s for s in run.storages if s.born == 0)
    ]
    after = [_tensor(f"{op}:0", s, _role(s)) for op, s in zip(names, made, strict=True)]
    ops = tuple(
        Op(
            op,
            "opaque",
            tuple(ending[at]),
            (f"{op}:0",),
            reads=(_ORDER,),
            writes=(_ORDER,),
            scope=made[at].scope,
        )
        for at, op in enumerate(names)
    )
    order = Tensor(_ORDER, DTYPES["uint8"], (0,), Role.STATE)
    return Graph(
        name,
        (order, *before, *after),
        ops,
        tuple(t.name for t in before if t.role is Role.INPUT),
        tuple(f"{op}:0" for op, s in zip(names, made, strict=True) if s.died is None),
        "torch",
    )


def _plain(op: str) -> str:
    return re.sub(r"\W+", "_", op)


def _role(storage: Storage) -> Role:
    return Role.GRADIENT if storage.role == "gradient" else Role.ACTIVATION


def _tensor(name: str, storage: Storage, role: Role) -> Tensor:
    return Tensor(name, DTYPES["uint8"], (storage.nbytes,), role)
