"""Every node-level backend case that onnx carries, against the shape rules.

Each node of each case is run with its real operands; the predicted element types and shapes
must equal the real outputs, or the rule must say that it cannot tell.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto
from onnx.reference import ReferenceEvaluator

from peakfold.ir.types import OPAQUE, DType
from peakfold.ops import lookup

from .bridge import as_context, dtype_of, dtype_of_array

pytestmark = [
    pytest.mark.req("R13"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


@dataclass
class Tally:
    told: int = 0
    silent: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    kinds: set[str] = field(default_factory=set)

    @property
    def fraction(self) -> float:
        return self.told / (self.told + sum(self.silent.values()) + len(self.wrong))


def declared(info: onnx.ValueInfoProto) -> DType:
    if not info.type.HasField("tensor_type"):
        return OPAQUE
    return dtype_of(info.type.tensor_type.elem_type)


def judge(case: str, node: NodeProto, values: dict, dtypes: dict, tally: Tally) -> None:
    if any(name and values.get(name) is None for name in (*node.input, *node.output)):
        return  # a value the reference evaluator did not keep, or an empty optional
    ctx = as_context(node, values, dtypes)
    rule = lookup(ctx.op.kind).shape
    types = (rule(ctx) if rule else None) or (None,) * len(node.output)
    assert len(types) == len(node.output), f"{case}: one entry per output"
    tally.kinds.add(ctx.op.kind)
    for name, told in zip(node.output, types, strict=True):
        if not name or dtypes.get(name, dtype_of_array(values[name])) is OPAQUE:
            continue
        value = values[name]
        shape = value.dims if isinstance(value, TensorProto) else np.shape(value)
        real = (dtypes.get(name, dtype_of_array(value)), tuple(shape))
        if told is None:
            tally.silent[ctx.op.kind] += 1
        elif told != real:
            tally.wrong.append(f"{case}: {ctx.op.kind} told {told}, is {real}")
        else:
            tally.told += 1


def test_single_node_cases(cases):
    tally = Tally()
    for case in cases:
        graph = case.model.graph
        if len(graph.node) != 1:
            continue
        dtypes = {i.name: declared(i) for i in [*graph.input, *graph.output]}
        for given, made in case.data_sets:
            names = [i.name for i in [*graph.input, *graph.output]]
            values = dict(zip(names, [*given, *made], strict=True))
            judge(case.name, graph.node[0], values, dtypes, tally)
    assert not tally.wrong, "\n".join(tally.wrong)
    print(f"{tally.told} outputs told, {tally.fraction:.4f} of all; silent: {dict(tally.silent)}")
    assert tally.told >= 1615
    assert tally.fraction >= 0.956, tally.silent


def test_nodes_of_expanded_functions(cases):
    tally, refused = Tally(), 0
    for case in cases:
        graph = case.model.graph
        if len(graph.node) == 1:
            continue
        feeds = dict(zip([i.name for i in graph.input], case.data_sets[0][0], strict=True))
        dtypes = {i.name: declared(i) for i in graph.input}
        try:
            values = ReferenceEvaluator(case.model).run(None, feeds, intermediate=True)
        except Exception:  # a kernel the reference evaluator lacks: nothing to compare with
            refused += 1
            continue
        for node in graph.node:
            judge(case.name, node, values | feeds, dtypes, tally)
    assert not tally.wrong, "\n".join(tally.wrong[:40])
    print(
        f"{tally.told} outputs told, {tally.fraction:.4f}; {refused} models not run; "
        f"silent: {dict(tally.silent)}"
    )
    assert tally.told >= 12377
    assert tally.fraction >= 0.99, tally.silent
