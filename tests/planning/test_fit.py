"""Levers are real plans, and the answers hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from peakfold.device import Device, Figure
from peakfold.errors import UsageError
from peakfold.ir import Graph, parse_graph
from peakfold.judges.plan import verify_plan
from peakfold.planning import PlanOptions, make_plan
from peakfold.planning.fit.levers import FitResult, fit
from peakfold.planning.fit.total import Budgets
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


def in_arena(graph: Graph, budget: int, options: PlanOptions = OPTIONS) -> FitResult:
    """`fit` with a budget for the arena alone."""
    return fit(graph, Budgets(arena=budget), options)


def arena_of(graph: Graph) -> int:
    return make_plan(graph, OPTIONS).summary.arena_bytes


def replanned(graph: Graph, budget: int) -> None:
    """What `fit` says of its plan is what planning it again and both judges say."""
    answer = in_arena(graph, budget)
    result = make_plan(graph, answer.options)
    assert result.summary.arena_bytes == answer.planned.arena
    assert answer.plan_fits == (answer.planned.arena <= budget)
    assert answer.fits == (answer.need.arena <= budget)
    assert answer.planned == answer.need or answer.options.split is not None
    assert answer.bound_bytes == result.summary.any_order_bound_bytes or answer.options.split
    assert all(check.ok for check in verify_plan(graph, result.plan))


@pytest.mark.req("R17")
@pytest.mark.parametrize("budget", [WHOLE, WHOLE - 1, 30_000, 10_000])
def test_the_answer_is_a_plan(budget: int) -> None:
    replanned(NETWORK, budget)


def test_free_levers_come_first_and_stop_when_it_fits() -> None:
    answer = in_arena(NETWORK, WHOLE)
    assert answer.fits
    assert answer.options.split is None
    assert not any("bands" in lever.what for lever in answer.levers)
    peaks = [lever.need.arena for lever in answer.levers if not lever.changes_model]
    assert peaks[0] == 2 * 4 * 16 * 32 * 32  # a plain runtime holds h and r
    assert min(peaks) == answer.need.arena == WHOLE


def test_bands_close_the_gap_and_their_work_is_counted() -> None:
    answer = in_arena(NETWORK, WHOLE - 1)
    assert (answer.fits, answer.plan_fits) == (False, True)
    bands = [lever for lever in answer.levers if "bands" in lever.what and lever.applied]
    assert bands
    assert bands[-1].extra_flops is not None
    assert bands[-1].extra_flops != 0
    assert answer.bound_bytes == WHOLE  # the unchanged network cannot
    assert answer.largest_batch == 0  # without them


@pytest.mark.req("R17")
def test_bands_cost_time_where_a_device_says_how_fast() -> None:
    peak, speed = Figure(1e6, "op/s", "test"), Figure(1e18, "byte/s", "test")
    slow = Device(
        name="slow", title="slow", kind="mcu", bandwidth=speed, peaks={"vector": {"float32": peak}}
    )
    answer = fit(NETWORK, Budgets(arena=WHOLE - 1), OPTIONS, device=slow)
    bands = [lever for lever in answer.levers if "bands" in lever.what]
    for lever in bands:  # with such a memory all time is arithmetic
        assert lever.extra_flops
        assert lever.extra_time_s == pytest.approx(lever.extra_flops / 1e6)
    free = [v for v in answer.levers if v not in bands and not v.changes_model]
    assert {lever.extra_time_s for lever in free} == {0.0}
    bare = in_arena(NETWORK, WHOLE - 1)
    for lever in bare.levers:
        assert (lever.extra_time_s is None) == bool(lever.why)
    assert any("device" in lever.why for lever in bare.levers)


def test_a_training_step_has_no_activations_of_int8() -> None:
    answer = in_arena(NETWORK, 1 << 20, replace(OPTIONS, train=Train()))
    assert answer.fits
    assert not any("int8" in lever.what for lever in answer.levers)


def test_nothing_fits_in_nothing() -> None:
    answer = in_arena(NETWORK, 100)
    assert not answer.fits
    assert answer.need.arena > 100
    assert answer.largest_batch == 0


def test_what_ifs_change_the_model_and_are_never_applied() -> None:
    answer = in_arena(NETWORK, 20_000)
    ifs = [lever for lever in answer.levers if lever.changes_model]
    assert {"int8", "input"} == {
        word for lever in ifs for word in ("int8", "input") if word in lever.what
    }
    assert not any(lever.applied for lever in ifs)
    image = next(lever for lever in ifs if "input" in lever.what)
    side = int(image.what.split()[-1].split("x")[0])
    assert image.need.arena <= 20_000
    larger = Rescale({"x": (1, 3, side + 8, side + 8)})(NETWORK)
    assert arena_of(larger) > 20_000


@pytest.mark.parametrize("budget", [WHOLE, 3 * WHOLE, 10 * WHOLE + 5])
def test_the_largest_batch_fits_and_one_more_does_not(budget: int) -> None:
    found = in_arena(NETWORK, budget).largest_batch
    assert found is not None

    def need(batch: int) -> int:
        return arena_of(with_batch(NETWORK, batch)(NETWORK))

    assert need(found) <= budget < need(found + 1)


def test_rescaling_derives_every_shape() -> None:
    g = Rescale({"x": (2, 3, 48, 24)})(NETWORK)
    assert [g[name].shape for name in ("h", "y", "p")] == [
        (2, 16, 48, 24),
        (2, 8, 24, 12),
        (2, 8, 1, 1),
    ]
    same = Rescale({"x": (1, 3, 32, 32)})(NETWORK)
    assert same.digest == NETWORK.digest


@pytest.mark.parametrize(
    ("text", "shape", "says"),
    [
        (
            "f: float32[1,12] = flatten(x)\ny: float32[1,4] = gemm(f, w)\noutput y",
            (1, 3, 4, 4),
            "one size only",
        ),
        ("y: float32[1,12] = reshape(x, shape=[1,12])\noutput y", (1, 3, 4, 4), "does not work"),
        ("y: float32[1,12] = opaque(x)\noutput y", (1, 3, 4, 4), "not derived"),
    ],
)
def test_networks_of_one_size_say_so(text: str, shape: tuple[int, ...], says: str) -> None:
    head = "peakfold-graph 1\ninput x: float32[1,3,2,2]\nparameter w: float32[12,4]\n"
    with pytest.raises(UsageError, match=says):
        Rescale({"x": shape})(parse_graph(head + text))


def test_unknown_inputs_and_batches_are_named() -> None:
    with pytest.raises(UsageError, match="no input 'y'"):
        Rescale({"y": (1,)})(NETWORK)
    two = parse_graph(
        "peakfold-graph 1\ninput a: int8[2,4]\ninput b: int8[3,4]\n"
        "c: int8[5,4] = concat(a, b, axis=0)\noutput c"
    )
    with pytest.raises(UsageError, match="common"):
        with_batch(two, 4)
    answer = in_arena(two, 1000)
    assert answer.largest_batch is None
    assert "common" in answer.batch_note


WEIGHTS, IMAGE = 4 * (16 * 3 * 9 + 8 * 16 * 9), 4 * 3 * 32 * 32


def test_the_total_counts_weights_and_inputs_and_grows_with_the_batch() -> None:
    whole = WHOLE + WEIGHTS + IMAGE
    answer = fit(NETWORK, Budgets(total=whole), OPTIONS)
    assert (answer.fits, answer.need.nbytes, answer.need.arena) == (True, whole, WHOLE)
    total = answer.need.total
    assert (total.static, total.input, total.output, total.scratch) == (WEIGHTS, IMAGE, 0, 0)
    assert fit(NETWORK, Budgets(total=whole - 1), OPTIONS).need.nbytes == whole
    for budget in (whole - 1, 3 * WHOLE + 3 * IMAGE + WEIGHTS, 3 * WHOLE + WEIGHTS):
        found = fit(NETWORK, Budgets(total=budget), OPTIONS).largest_batch
        fitting = [n for n in range(1, 5) if WEIGHTS + n * (WHOLE + IMAGE) <= budget]
        assert found == max(fitting, default=0)  # bands are not the model as it is


def test_both_budgets_are_met_together() -> None:
    whole = WHOLE + WEIGHTS + IMAGE
    assert fit(NETWORK, Budgets(total=whole, arena=WHOLE), OPTIONS).fits
    tight = fit(NETWORK, Budgets(total=1 << 30, arena=WHOLE - 1), OPTIONS)
    assert (tight.fits, tight.plan_fits) == (False, True)
    assert tight.options.split is not None
    assert tight.planned.arena < WHOLE == tight.need.arena
    assert not fit(NETWORK, Budgets(total=WHOLE, arena=100), OPTIONS).fits


@pytest.mark.parametrize("target", ["mxnet", "tflm", "torch-cpu"])
def test_of_a_real_runtime_what_is_not_modelled_is_named(target: str) -> None:
    options = replace(OPTIONS, target=target)
    answer = fit(NETWORK, Budgets(total=1 << 30), options)
    assert answer.fits is None
    assert answer.need.nbytes is None
    assert answer.need.total.runtime is None
    assert "what the runtime keeps" in answer.need.unknown
    assert answer.largest_batch is None
    known = answer.need.at_least
    assert fit(NETWORK, Budgets(total=100), options).fits is False  # the known part is above
    assert Budgets(total=known).verdict(answer.need) is None
    assert Budgets(total=known - 1).verdict(answer.need) is False


def test_state_is_never_in_flash() -> None:
    graph = parse_graph(
        "peakfold-graph 1\ninput x: int8[64]\nparameter w: int8[64]\nstate s: int8[160]\n"
        "y: int8[64] = add(x, w)\noutput y"
    )
    need = make_plan(graph, PlanOptions(target="tflm")).need
    assert (need.total.static, need.flash) == (160, 64)
    need = make_plan(graph).need
    assert (need.total.static, need.flash) == (160 + 64, None)


def test_inputs_and_outputs_count_once_wherever_they_lie() -> None:
    text = "peakfold-graph 1\ninput x: int8[64]\ny: int8[64] = relu(x)\noutput y\noutput x"
    for inputs in ("external", "pinned"):
        for outputs in ("external", "pinned"):
            need = make_plan(parse_graph(text), PlanOptions(inputs=inputs, outputs=outputs)).need
            assert need.nbytes is not None
            total = need.total
            assert total.input == 64 * (inputs == "external")
            assert total.output == 64 * (outputs == "external")


def test_a_value_without_a_size_is_no_zero() -> None:
    text = (
        "peakfold-graph 1\ninput x: int8[64]\ns: string[2] = opaque(x) inplace=[] workspace=0\n"
        "y: int8[64] = opaque(s) inplace=[] workspace=0\noutput y"
    )
    result = make_plan(parse_graph(text), PlanOptions(budget=1 << 20))
    assert result.summary.fits is None
    assert result.summary.unknown == ["the size of 's'"]
    assert result.summary.total_bytes is None
    assert make_plan(parse_graph(text), PlanOptions(budget=100)).summary.fits is False


def test_bytes_that_a_graph_states_hold_for_its_own_sizes() -> None:
    """No lever scales a view's distance: narrower elements and other inputs are left out."""
    graph = parse_graph(
        "peakfold-graph 1\ninput x: float32[1,64]\na: float32[1,64] = relu(x)\n"
        'b: float32[1,32] = slice(a) views=["0<0+128"]\nc: float32[1,32] = relu(b)\noutput c\n'
    )
    found = in_arena(graph, 64)
    assert not any("int8" in lever.what for lever in found.levers)
    with pytest.raises(UsageError, match="holds for one size"):
        with_batch(graph, 2)(graph)
