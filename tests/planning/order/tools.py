"""What the tests of the order search share: studies, random orders, oracles."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from pathlib import Path

from hypothesis import strategies as st

from peakfold.frontends import Bindings, load
from peakfold.ir import Graph
from peakfold.planning import PlanOptions, make_plan
from peakfold.planning.context import PlanningContext, prepare
from peakfold.planning.order.strip_model import Model, build_model

OPTIONS = st.builds(
    PlanOptions,
    inputs=st.sampled_from(["external", "pinned", "reusable"]),
    outputs=st.sampled_from(["pinned", "external"]),
    align=st.sampled_from([1, 4, 64]),
    inplace=st.booleans(),
    views=st.booleans(),
)
# Symbols of the shared models that 1 does not suit.
_BINDINGS = {
    "ppocrv4_det": ((), ("x=1x3x320x320",)),
    "silero_vad_16k_op15": (("batch=1", "sequence=512"), ()),
    "mtcnn_pnet": (("N=1", "M1=224", "M2=224"), ()),
}


def context_of(graph: Graph, options: PlanOptions | None = None) -> PlanningContext:
    return prepare(graph, options or PlanOptions(), lambda g, o: make_plan(g, o).plan)


def model_of(context: PlanningContext) -> Model:
    return build_model(context, context.full_aliasing)


def judge(context: PlanningContext, order: tuple[int, ...]) -> int:
    """The peak of an order by the one referee."""
    return replace(context, order=order).timeline(context.full_aliasing).peak


def random_order(context: PlanningContext, seed: int) -> tuple[int, ...]:
    """A random order by the graph's own names, data edges only (no effects in the graphs)."""
    rng = random.Random(seed)
    graph = context.graph
    left = list(range(len(graph.ops)))
    made = {t.name for t in graph.tensors if t.name not in graph.producer}
    order: list[int] = []
    while left:
        ready = [op for op in left if made.issuperset(graph.ops[op].operands)]
        op = rng.choice(ready)
        left.remove(op)
        order.append(op)
        made.update(graph.ops[op].results)
    return tuple(order)


def plain_optimum(graph: Graph, align: int) -> int:
    """The lowest peak of a graph of ops that share nothing, by recursion over done sets.

    Inputs are the caller's; outputs stay to the end. Shares no code with the search.
    """
    size = {t.name: -(-(t.nbytes or 0) // align) * align for t in graph.tensors}
    readers = {
        t.name: [n for n, op in enumerate(graph.ops) if t.name in op.inputs] for t in graph.tensors
    }
    everything = frozenset(range(len(graph.ops)))

    def live(done: frozenset[int]) -> int:
        return sum(
            size[name]
            for at in done
            for name in graph.ops[at].outputs
            if name in graph.outputs or not done.issuperset(readers[name])
        )

    @cache
    def best(done: frozenset[int]) -> int:
        if done == everything:
            return 0
        here = live(done)
        return min(
            max(here + sum(size[n] for n in op.outputs), best(done | {at}))
            for at, op in enumerate(graph.ops)
            if at not in done
            and all(graph.producer.get(n, at) in done or n in graph.inputs for n in op.inputs)
        )

    return best(frozenset())


def shared_context(path: Path) -> PlanningContext:
    """A model of the shared folder, its symbols bound."""
    dims, shapes = _BINDINGS.get(path.stem, ((), ()))
    loaded = load(path, Bindings.parse(dims, shapes))
    inputs = [loaded.graph[name].shape or () for name in loaded.graph.inputs]
    symbols = sorted({dim for shape in inputs for dim in shape if isinstance(dim, str)})
    if symbols:
        loaded = load(path, Bindings.parse([f"{name}=1" for name in symbols]))
    return context_of(loaded.graph)
