"""The overlap column against kernels walked element by element, in one memory."""

from __future__ import annotations

from math import prod
from pathlib import Path

import numpy as np
import pytest

from peakfold.analysis import op_facts
from peakfold.frontends import load
from peakfold.ir import Graph, Op, OverlapFact, parse_graph
from peakfold.ops import REGISTRY, context, lookup
from peakfold.ops.overlap import Windows, channel_reach, window_distance, window_starts
from peakfold.target import TARGETS, load_target

from . import loops
from .overlap_cases import MAKERS, Case, cases, windows

KINDS = [(code, dtype) for code, (_, dtypes) in MAKERS.items() for dtype in dtypes]


def claim(case: Case, tmp_path: Path) -> tuple[Op, tuple[OverlapFact, ...]]:
    """What the registry says of a case, read from its file through the front end."""
    path = tmp_path / "case.tflite"
    path.write_bytes(case.model.model(None))
    graph = load(path).graph
    (op,) = graph.ops
    rule = lookup(op.kind).overlap
    assert rule is not None
    return op, rule(context(op, graph.by_name))


@pytest.mark.req("TFL7")
@pytest.mark.parametrize(("code", "dtype"), KINDS)
def test_the_claimed_distance_is_the_smallest_at_which_nothing_is_lost(
    code: str, dtype: str, tmp_path: Path
) -> None:
    tight = 0
    for case in cases(code, dtype, 16):
        op, facts = claim(case, tmp_path)
        apart = loops.play(case.walk(), case.counts, case.widths, None)
        size = case.counts[1] * case.widths[1]
        distance = loops.smallest(case.walk, case.counts, case.widths)
        if not facts:  # they would have no byte in common
            assert distance >= size
            continue
        (fact,) = facts
        assert case.model.inputs[fact.input].data is None
        assert fact.distance == distance < size
        for more in (0, 1, 5):
            placed = loops.play(case.walk(), case.counts, case.widths, distance + more)
            assert placed == apart, (op, more)
        if distance:
            tight += 1
            nearer = loops.play(case.walk(), case.counts, case.widths, distance - 1)
            assert nearer != apart, op
    forward = {"SLICE", "STRIDED_SLICE", "TRANSPOSE_CONV"}
    narrow = ">" in dtype and loops_narrow(dtype)
    assert tight or code in forward or narrow


def loops_narrow(pair: str) -> bool:
    source, result = (np.dtype(name).itemsize for name in pair.split(">"))
    return result <= source


def test_float_samples_may_claim_more_but_never_less(tmp_path: Path) -> None:
    for case in cases("RESIZE_BILINEAR", "float32", 100):
        _, facts = claim(case, tmp_path)
        least = loops.smallest(case.walk, case.counts, case.widths)
        if facts:
            row = (case.x.shape[2] + 1) * case.x.shape[3] * 4
            assert least <= facts[0].distance <= least + row


def test_windows_of_any_shape() -> None:
    """Dilations, strides and padding that no model has: windows that jump over all data, too."""
    jumped = 0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        (batch, *size), _, walk, _ = windows(rng, dilated=True)
        walk |= {
            "before": tuple(int(n) for n in rng.integers(0, 7, 2)),
            "dilation": tuple(int(n) for n in rng.integers(1, 4, 2)),
        }
        out = tuple(int(n) for n in rng.integers(1, 9, 2))
        depth, filters = (int(n) for n in rng.integers(1, 4, 2))
        source, result = (int(rng.choice([1, 2, 4])) for _ in range(2))
        x, y = (batch, *size, depth), (batch, *out, filters)
        least = loops.smallest(
            lambda x=x, y=y, walk=walk, depth=depth: loops.window(
                x, y, **walk, channels=lambda _: range(depth)
            ),
            (prod(x), prod(y)),
            (source, result),
        )
        rows, columns = (
            window_starts(
                size[at],
                out[at],
                kernel=walk["kernel"][at],
                stride=walk["stride"][at],
                dilation=walk["dilation"][at],
                before=walk["before"][at],
            )
            for at in (0, 1)
        )
        jumped += None in rows or None in columns
        assert least == window_distance(
            Windows(
                batches=batch,
                rows=rows,
                columns=columns,
                in_image=(size[0], size[1]),
                in_pixel=depth * source,
                out_pixel=filters * result,
                reach=channel_reach((0,) * filters, result),
            )
        )
    assert jumped > 50


NOTHING = {
    "mirrored padding": 'x: int8[4,4]|pad(x, pads=[1, 1, 1, 1], mode="reflect")|int8[6,6]',
    "negative padding": "x: int8[4,4]|pad(x, pads=[-1, 1, 0, 0])|int8[4,4]",
    "a slice from behind": "x: int8[4]|strided_slice(x, begin=[3], end=[0], strides=[-1])|int8[3]",
    "softmax of another axis": "x: int8[4,4]|softmax(x, axis=0)|int16[4,4]",
    "half bytes": "x: int4[8]|cast(x, to=3)|int8[8]",
    "a float transposed convolution": (
        "s: int32[4]\\ninput w: float32[1,1,1,1]\\ninput x: float32[1,1,1,1]|"
        "transpose_conv(s, w, x, stride_h=1, stride_w=1)|float32[1,1,1,1]"
    ),
    "groups that do not divide": (
        "x: int8[1,4,4,3]\\ninput w: int8[2,1,1,2]|"
        "conv_2d(x, w, stride_h=1, stride_w=1)|int8[1,4,4,2]"
    ),
    "a stride of 0": (
        "x: int8[1,4,4,3]|max_pool_2d(x, filter_height=1, filter_width=1)|int8[1,4,4,3]"
    ),
    "one row of a matrix product": (
        "x: int8[1,9]\\ninput w: int8[1,9]|fully_connected(x, w)|int8[1,1]"
    ),
}


@pytest.mark.parametrize("case", NOTHING)
def test_no_claim_for(case: str) -> None:
    given, call, result = NOTHING[case].replace("\\n", "\n").split("|")
    graph = parse_graph(f"peakfold-graph 1\ninput {given}\ny: {result} = {call}\noutput y")
    (op,) = graph.ops
    rule = lookup(op.kind).overlap
    assert rule is not None
    claims = rule(context(op, graph.by_name))
    if case == "one row of a matrix product":  # one unit reads all, then writes the first byte
        assert claims == (OverlapFact(0, 0),)
    else:
        assert claims == ()


def facts_of(graph: Graph, target: str) -> tuple[OverlapFact, ...]:
    return op_facts(graph, graph.ops[0], load_target(target)).overlap


def test_only_targets_that_name_a_kind_use_the_column() -> None:
    graph = parse_graph(
        'peakfold-graph 1\ninput x: float32[8]\ny: int8[8] = quantize(x, to="int8")\noutput y'
    )
    assert {t: facts_of(graph, t) for t in TARGETS} == {
        t: (OverlapFact(0, 0),) if t == "tflm" else () for t in TARGETS
    }
    known = {kind for kind, row in REGISTRY.items() if row.overlap is not None}
    assert set(load_target("tflm").overlap_kinds) == known
