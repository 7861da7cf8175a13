"""Published tables: the TFLite planners on MobileNet v2, the MXNet paper's memory chart."""

from __future__ import annotations

import pytest

from peakfold.ir import parse_graph
from peakfold.planning import PlanOptions, make_plan
from peakfold.planning.layouts import make_layout
from peakfold.planning.verify import verify_plan
from tests.zoo import alexnet, mobilenet_v2, vgg_a


@pytest.mark.req("R16", "R43", "R53", "R54")
def test_mobilenet_v2_as_the_tflite_planners_count_it() -> None:
    g = parse_graph(mobilenet_v2())
    options = PlanOptions(align=1, inplace=False, views=False, outputs="external")
    result = make_plan(g, options)
    s = result.summary
    assert len(result.plan.buffers) == 65
    assert s.naive_bytes == 27_591_112
    assert (s.lower_bound_bytes, s.objects_bound_bytes) == (6_021_120, 6_924_288)
    assert (s.arena_bytes, s.optimal) == (6_021_120, True)
    for strategy in ("by-size", "by-breadth"):
        assert make_layout(result.study, "arena", strategy).total == 6_021_120
    improved = make_layout(result.study, "share", "improved")
    sizes: dict[int, int] = {}
    for block, obj in zip(improved.timeline.blocks, improved.objects or (), strict=True):
        sizes[obj] = max(sizes.get(obj, 0), block.size)
    assert sorted(sizes.values(), reverse=True) == [4_816_896, 1_806_336, 301_056, 100_352]
    assert improved.total == 7_024_640
    expect = {"by-size": (7_325_696, 5), "by-breadth": (7_225_344, 4), "in-order": (8_429_568, 3)}
    for strategy, answer in expect.items():
        layout = make_layout(result.study, "share", strategy)
        assert (layout.total, len(set(layout.objects or ()))) == answer, strategy
    assert all(check.ok for check in verify_plan(g, result.plan))


@pytest.mark.req("R16", "R44", "R45", "R46", "R52")
@pytest.mark.parametrize(
    ("text", "nodes", "expect"),
    [
        (alexnet(), 24, (396_988_416, 226_437_120, 148_045_824, 122_847_232)),
        (vgg_a(), 30, (4_207_136_768, 2_295_195_648, 1_697_644_544, 1_055_391_744)),
    ],
    ids=["alexnet", "vgg-a"],
)
def test_mxnet_chart_forward_rows(text: str, nodes: int, expect: tuple[int, ...]) -> None:
    g = parse_graph(text)
    assert len(g.ops) == nodes
    result = make_plan(g, PlanOptions(target="mxnet", share="nnvm", align=1, mode="both"))
    s = result.summary
    assert (s.naive_bytes, s.inplace_bytes, s.share_bytes, s.both_bytes) == expect
    assert all(check.ok for check in verify_plan(g, result.plan))
