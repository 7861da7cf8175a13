"""Published tables: the TFLite planners on MobileNet v2, the MXNet paper's memory chart."""

from __future__ import annotations

import pytest

from peakfold.ir import parse_graph
from peakfold.judges.plan import verify_plan
from peakfold.planning import PlanOptions, make_plan
from peakfold.planning.modes import make_layout
from tests.zoo import mobilenet_v2


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
        assert make_layout(result.context, "arena", strategy).total == 6_021_120
    improved = make_layout(result.context, "share", "improved")
    sizes: dict[int, int] = {}
    for buffer, obj in zip(improved.timeline.buffers, improved.objects or (), strict=True):
        sizes[obj] = max(sizes.get(obj, 0), buffer.size)
    assert sorted(sizes.values(), reverse=True) == [4_816_896, 1_806_336, 301_056, 100_352]
    assert improved.total == 7_024_640
    expect = {"by-size": (7_325_696, 5), "by-breadth": (7_225_344, 4), "in-order": (8_429_568, 3)}
    for strategy, answer in expect.items():
        layout = make_layout(result.context, "share", strategy)
        assert (layout.total, len(set(layout.objects or ()))) == answer, strategy
    assert all(check.ok for check in verify_plan(g, result.plan))
