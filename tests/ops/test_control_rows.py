"""Control flow rows: they pass on what the bodies' types say, and claim nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from peakfold.ir.graph import Graph, Op, Region, Tensor
from peakfold.ir.types import DTYPES
from peakfold.ops import context, lookup

FLOAT, BOOL, INT64 = (DTYPES[name] for name in ("float32", "bool", "int64"))


def body(label, inputs, outputs, *, passes_condition=False):
    """A region whose values have these shapes; its first values are counter and condition."""
    head = [Tensor("i", INT64, ()), Tensor("c", BOOL, ())] if label == "loop" else []
    given = [*head, *(Tensor(f"a{at}", FLOAT, s) for at, s in enumerate(inputs))]
    made = [Tensor(f"r{at}", FLOAT, s) for at, s in enumerate(outputs)]
    names = [t.name for t in made]
    if label == "loop":
        made.append(Tensor("c2", BOOL, ()))
        names.insert(0, "c" if passes_condition else "c2")
    graph = Graph(label, (*given, *made), (), tuple(t.name for t in given), tuple(names))
    return Region(label, graph)


def told(kind, operands, results, regions, **attrs):
    tensors = {f"x{at}": t for at, t in enumerate(operands) if t}
    tensors = {name: replace(t, name=name) for name, t in tensors.items()}
    outputs = tuple(f"y{at}" for at in range(results))
    tensors |= {name: Tensor(name, FLOAT, None) for name in outputs}
    inputs = tuple(f"x{at}" if t else "" for at, t in enumerate(operands))
    types = lookup(kind).shape(context(Op("n", kind, inputs, outputs, attrs, regions), tensors))
    return tuple(t and t[1] for t in types)


M, COND = Tensor("m", INT64, ()), Tensor("c", BOOL, ())


def value(*shape):
    return Tensor("v", FLOAT, shape)


@pytest.mark.req("R13")
def test_if_needs_agreeing_branches():
    regions = (body("then", [], [(2,), (3,)]), body("else", [], [(2,), (4,)]))
    assert told("if", [COND], 2, regions) == ((2,), None)


@pytest.mark.req("R13")
def test_loop_results():
    free, bound = (
        body("loop", [(2,)], [(2,), (5,)]),
        body("loop", [(2,)], [(2,), (5,)], passes_condition=True),
    )
    assert told("loop", [M, None, value(2)], 2, (bound,), m=7) == ((2,), (7, 5))
    # The body may stop early, or the trip count is known to the run only.
    assert told("loop", [M, None, value(2)], 2, (free,), m=7) == ((2,), None)
    assert told("loop", [M, COND, value(2)], 2, (bound,), m=7) == ((2,), None)
    grows = body("loop", [(2,)], [(3,)], passes_condition=True)
    assert told("loop", [M, None, value(2)], 1, (grows,), m=7) == (None,)


@pytest.mark.req("R13")
def test_loop_with_an_unknown_trip_count():
    bound = body("loop", [(2,)], [(2,), (5,)], passes_condition=True)
    rule = lookup("loop").shape
    tensors = {"m": M, "v": value(2), "y": value(), "z": value()}
    op = Op("n", "loop", ("m", "", "v"), ("y", "z"), {}, (bound,))
    assert rule(context(op, tensors)) is None


@pytest.mark.req("R13")
def test_scan_results():
    region = body("scan", [(2,), (3,)], [(2,), (4,)])
    operands = [value(2), value(9, 3)]
    assert told("scan", operands, 2, (region,), num_scan_inputs=1) == ((2,), (9, 4))
    operands = [value(2), value(3, 9)]
    axes = {"scan_input_axes": (1,), "scan_output_axes": (-1,)}
    assert told("scan", operands, 2, (region,), num_scan_inputs=1, **axes) == ((2,), (4, 9))


def test_control_rows_claim_nothing():
    for kind in ("if", "loop", "scan"):
        spec = lookup(kind)
        assert spec.known
        assert (spec.inplace, spec.views, spec.parts) == ((), None, None)
        assert spec.macs(context(Op("n", kind, (), ()), {})) is None
