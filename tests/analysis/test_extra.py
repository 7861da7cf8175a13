"""What a change costs, against closed forms."""

from __future__ import annotations

import pytest

from peakfold.analysis.cost.cost_delta import Extra, Spent, extra, spent
from peakfold.device import Device, Figure
from peakfold.ir import parse_graph

HEAD = "peakfold-graph 1\ninput x: float32[100]\n"
RELU = parse_graph(HEAD + "y: float32[100] = relu(x)\noutput y")
PEAK, SPEED = 1e6, 1e9


def device(**given):
    peak = {"vector": {"float32": Figure(PEAK, "op/s", "test")}}
    speed = Figure(SPEED, "byte/s", "test")
    return Device(
        **{
            "name": "slow",
            "title": "slow",
            "kind": "mcu",
            "peaks": peak,
            "bandwidth": speed,
            **given,
        }
    )


@pytest.mark.req("R17")
def test_time_is_the_roofline_of_what_is_added():
    twice = parse_graph(HEAD + "y: float32[100] = relu(x)\nz: float32[100] = relu(y)\noutput z")
    one, two = spent(RELU, device()), spent(twice, device())
    assert (one.flops, two.flops) == (100, 200)
    assert extra(one, two).flops == 100
    assert extra(one, two).time_s == pytest.approx(100 / PEAK)
    assert extra(two, one).flops == -100
    no_peak = device(peaks={})
    moved = extra(spent(RELU, no_peak), spent(twice, no_peak))  # bytes bound it all the same
    assert moved.time_s == pytest.approx(800 / SPEED)
    assert "not known" in spent(RELU, device(peaks={}, bandwidth=None)).why
    assert "no peak for float32" in spent(PRODUCT, no_peak).why


PRODUCT = parse_graph(
    "peakfold-graph 1\ninput x: float32[1,8]\nparameter w: float32[8,4]\n"
    "y: float32[1,4] = matmul(x, w)\noutput y"
)


def test_runs_weigh_ops():
    both = parse_graph(HEAD + "y: float32[100] = relu(x)\nz: float32[100] = relu(y)\noutput z")
    found = spent(both, device(), runs=lambda op: 5 if op == 1 else 1)
    assert found.flops == 600
    assert found.time_s == pytest.approx(600 / PEAK)


def test_what_nobody_can_count_falls_out_only_where_it_is_equal():
    odd = parse_graph(HEAD + "y: float32[100] = opaque(x)\nz: float32[100] = relu(y)\noutput z")
    more = parse_graph(HEAD + "y: float32[100] = opaque(x)\nz: float32[100] = opaque(y)\noutput z")
    assert extra(spent(odd), spent(odd)) == Extra(0, None, "times need a device (--device)")
    found = extra(spent(odd), spent(more))
    assert found.flops is None
    assert "opaque" in found.why
    assert extra(Spent(1, {}, 1.0, ""), Spent(2, {}, None, "no peak")).why == "no peak"
