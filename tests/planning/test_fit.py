"""Levers are real plans, and the answers hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from peakfold.device import Device, Figure
from peakfold.errors import UsageError
from peakfold.ir import Graph, parse_graph
from peakfold.planning import PlanOptions, make_plan
from peakfold.planning.fit import arena_of, fit
from peakfold.planning.verify import verify_plan
from peakfold.transform.backward import Train
from peakfold.transform.rescale import Rescale, with_batch

NETWORK = parse_graph("""peakfold-graph 1
input x: float32[1,3,32,32]
parameter w: float32[16,3,3,3]
parameter v: float32[8,16,3,3]
h: float32[1,16,32,32] = conv(x, w, pads=[1,1,1,1])
r: float32[1,16,32,32] = relu(h)
y: float32[1,8,16,16] = conv(r, v, pads=[1,1,1,1], strides=[2,2])
z: float32[1,8,16,16] = relu(y)
p: float32[1,8,1,1] = global_average_pool(z)
output p""")
OPTIONS = PlanOptions(time_limit=0.5)
WHOLE = 4 * 16 * 32 * 32 + 4 * 8 * 16 * 16  # r and y together


def replanned(graph: Graph, budget: int) -> None:
    """What `fit` says of its plan is what planning it again and both judges say."""
    answer = fit(graph, budget, OPTIONS)
    result = make_plan(graph, answer.options)
    assert result.summary.arena_bytes == answer.need_bytes
    assert answer.fits == (answer.need_bytes <= budget)
    assert answer.bound_bytes == result.summary.any_order_bound_bytes or answer.options.split
    assert all(check.ok for check in verify_plan(graph, result.plan))


@pytest.mark.req("R17")
@pytest.mark.parametrize("budget", [WHOLE, WHOLE - 1, 30_000, 10_000])
def test_the_answer_is_a_plan(budget: int) -> None:
    replanned(NETWORK, budget)


def test_free_levers_come_first_and_stop_when_it_fits() -> None:
    answer = fit(NETWORK, WHOLE, OPTIONS)
    assert answer.fits
    assert answer.options.split is None
    assert not any("bands" in lever.what for lever in answer.levers)
    peaks = [lever.peak_bytes for lever in answer.levers if not lever.changes_model]
    assert peaks[0] == 2 * 4 * 16 * 32 * 32  # a plain runtime holds h and r
    assert min(peaks) == answer.need_bytes == WHOLE


def test_bands_close_the_gap_and_their_work_is_counted() -> None:
    answer = fit(NETWORK, WHOLE - 1, OPTIONS)
    assert answer.fits
    bands = [lever for lever in answer.levers if "bands" in lever.what and lever.applied]
    assert bands
    assert bands[-1].extra_flops is not None
    assert bands[-1].extra_flops != 0
    assert answer.bound_bytes == WHOLE  # the unchanged network cannot
    assert answer.largest_batch == 1  # what fits is a batch of one


@pytest.mark.req("R17")
def test_bands_cost_time_where_a_device_says_how_fast() -> None:
    peak, speed = Figure(1e6, "op/s", "test"), Figure(1e18, "byte/s", "test")
    slow = Device(name="slow", title="slow", kind="mcu", bandwidth=speed,
                  peaks={"vector": {"float32": peak}})  # fmt: skip
    answer = fit(NETWORK, WHOLE - 1, OPTIONS, device=slow)
    bands = [lever for lever in answer.levers if "bands" in lever.what]
    for lever in bands:  # with such a memory all time is arithmetic
        assert lever.extra_flops
        assert lever.extra_time_s == pytest.approx(lever.extra_flops / 1e6)
    free = [v for v in answer.levers if v not in bands and not v.changes_model]
    assert {lever.extra_time_s for lever in free} == {0.0}
    bare = fit(NETWORK, WHOLE - 1, OPTIONS)
    for lever in bare.levers:
        assert (lever.extra_time_s is None) == bool(lever.why)
    assert any("device" in lever.why for lever in bare.levers)


def test_a_training_step_has_no_activations_of_int8() -> None:
    answer = fit(NETWORK, 1 << 20, replace(OPTIONS, train=Train()))
    assert answer.fits
    assert not any("int8" in lever.what for lever in answer.levers)


def test_nothing_fits_in_nothing() -> None:
    answer = fit(NETWORK, 100, OPTIONS)
    assert not answer.fits
    assert answer.need_bytes > 100
    assert answer.largest_batch == 0


def test_what_ifs_change_the_model_and_are_never_applied() -> None:
    answer = fit(NETWORK, 20_000, OPTIONS)
    ifs = [lever for lever in answer.levers if lever.changes_model]
    assert {"int8", "input"} == {word for lever in ifs for word in ("int8", "input")
                                 if word in lever.what}  # fmt: skip
    assert not any(lever.applied for lever in ifs)
    image = next(lever for lever in ifs if "input" in lever.what)
    side = int(image.what.split()[-1].split("x")[0])
    assert image.peak_bytes <= 20_000
    larger = Rescale({"x": (1, 3, side + 8, side + 8)})(NETWORK)
    assert arena_of(larger, OPTIONS) > 20_000


@pytest.mark.parametrize("budget", [WHOLE, 3 * WHOLE, 10 * WHOLE + 5])
def test_the_largest_batch_fits_and_one_more_does_not(budget: int) -> None:
    found = fit(NETWORK, budget, OPTIONS).largest_batch
    assert found is not None

    def need(batch: int) -> int:
        return arena_of(with_batch(NETWORK, batch)(NETWORK), OPTIONS)

    assert need(found) <= budget < need(found + 1)


def test_rescaling_derives_every_shape() -> None:
    g = Rescale({"x": (2, 3, 48, 24)})(NETWORK)
    assert [g[name].shape for name in ("h", "y", "p")] == [
        (2, 16, 48, 24), (2, 8, 24, 12), (2, 8, 1, 1),
    ]  # fmt: skip
    same = Rescale({"x": (1, 3, 32, 32)})(NETWORK)
    assert same.digest == NETWORK.digest


@pytest.mark.parametrize(
    ("text", "shape", "says"),
    [
        ("f: float32[1,12] = flatten(x)\ny: float32[1,4] = gemm(f, w)\noutput y", (1, 3, 4, 4),
         "one size only"),
        ("y: float32[1,12] = reshape(x, shape=[1,12])\noutput y", (1, 3, 4, 4), "does not work"),
        ("y: float32[1,12] = opaque(x)\noutput y", (1, 3, 4, 4), "not derived"),
    ],
)  # fmt: skip
def test_networks_of_one_size_say_so(text: str, shape: tuple[int, ...], says: str) -> None:
    head = "peakfold-graph 1\ninput x: float32[1,3,2,2]\nparameter w: float32[12,4]\n"
    with pytest.raises(UsageError, match=says):
        Rescale({"x": shape})(parse_graph(head + text))


def test_unknown_inputs_and_batches_are_named() -> None:
    with pytest.raises(UsageError, match="no input 'y'"):
        Rescale({"y": (1,)})(NETWORK)
    two = parse_graph("peakfold-graph 1\ninput a: int8[2,4]\ninput b: int8[3,4]\n"
                      "c: int8[5,4] = concat(a, b, axis=0)\noutput c")  # fmt: skip
    with pytest.raises(UsageError, match="common"):
        with_batch(two, 4)
    answer = fit(two, 1000, OPTIONS)
    assert answer.largest_batch is None
    assert "common" in answer.batch_note


def test_bytes_that_a_graph_states_hold_for_its_own_sizes() -> None:
    """No lever scales a view's distance: narrower elements and other inputs are left out."""
    graph = parse_graph(
        "peakfold-graph 1\ninput x: float32[1,64]\na: float32[1,64] = relu(x)\n"
        'b: float32[1,32] = slice(a) views=["0<0+128"]\nc: float32[1,32] = relu(b)\noutput c\n'
    )
    found = fit(graph, 64)
    assert not any("int8" in lever.what for lever in found.levers)
    with pytest.raises(UsageError, match="holds for one size"):
        with_batch(graph, 2)(graph)
