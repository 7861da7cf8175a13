"""Graphs on devices: tasks from cost records, bounds and estimates against closed forms."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

import peakfold
from peakfold.analysis import cost_of
from peakfold.analysis.time.latency import estimate
from peakfold.analysis.time.latency_groups import _GROUP_OF, group_of
from peakfold.analysis.time.tasks import tasks_of
from peakfold.analysis.time.timing import Timing, measured_share, timing
from peakfold.device import Check, Device, Group, Latency, device_names, load_device, read_device
from peakfold.errors import UsageError
from peakfold.ir import Graph, parse_graph
from peakfold.ops import KINDS
from tests.analysis.onnx_cases import graph_of, values, zeros

from .test_cost_onnx import loop_body

T4 = load_device("t4")
FITTED = [device for device in map(load_device, device_names()) if device.latency]


def on(graph: Graph, device: Device, **more: str) -> Timing:
    return timing(graph, cost_of(graph), device, **more)


def conv_graph(groups: int, cin: int, cout: int, k: int, size: int = 56, batch: int = 1) -> Graph:
    out = size - k + 1
    return parse_graph(
        f"peakfold-graph 1\ninput x: float32[{batch},{cin},{size},{size}]\n"
        f"parameter w: float32[{cout},{cin // groups},{k},{k}]\n"
        f"y: float32[{batch},{cout},{out},{out}] = conv(x, w, group={groups})\noutput y"
    )


def padded(groups: int, cin: int, cout: int) -> Graph:
    """The lecture's 3x3 convolutions: 56x56 in and out."""
    return parse_graph(
        f"peakfold-graph 1\ninput x: float32[1,{cin},56,56]\n"
        f"parameter w: float32[{cout},{cin // groups},3,3]\n"
        f"y: float32[1,{cout},56,56] = conv(x, w, group={groups}, pads=[1,1,1,1])\noutput y"
    )


def fully_connected(batch: int) -> Graph:
    return parse_graph(
        f"peakfold-graph 1\ninput x: float32[{batch},4096]\nparameter w: float32[4096,1000]\n"
        f"y: float32[{batch},1000] = matmul(x, w)\noutput y"
    )


FC = fully_connected(1)


@pytest.mark.req("R73", "R79")
@pytest.mark.parametrize(
    ("graph", "microseconds", "bound"),
    [
        (padded(1, 64, 128), 57.1, "compute"),
        (padded(64, 64, 64), 5.36, "memory"),
        (FC, 54.7, "memory"),
    ],
)
def test_known_answers_from_whole_graphs(graph: Graph, microseconds: float, bound: str) -> None:
    found = on(graph, T4)
    assert found.time_s is not None
    assert float(f"{found.time_s * 1e6:.3g}") == microseconds
    assert found.roofline.bound == bound
    assert found.op_times == ((found.time_s, bound),)


@pytest.mark.req("R73")
def test_depthwise_is_rated_on_the_vector_engine_even_in_float16() -> None:
    found = on(padded(64, 64, 64), load_device("a100-80gb"), precision="float16")
    assert found.roofline.ops[0].rated == "vector float32"
    dense = on(padded(1, 64, 64), load_device("a100-80gb"), precision="float16")
    assert dense.roofline.ops[0].rated == "matrix float16"


@pytest.mark.req("R72")
def test_a_t4_is_faster_than_a_server_cpu_by_the_ratio_of_what_bounds_them() -> None:
    cpu = load_device("xeon-8180")
    compute = on(padded(1, 64, 128), cpu).time_s, on(padded(1, 64, 128), T4).time_s
    assert compute[0] / compute[1] == pytest.approx(8.1 / 4.48)
    memory = on(FC, cpu).time_s, on(FC, T4).time_s
    assert memory[0] / memory[1] == pytest.approx(300 / 128)


def test_precision_scales_bytes_and_rates() -> None:
    single, half, eighth = (on(FC, T4, precision=name) for name in ("float32", "float16", "int8"))
    assert single.time_s == pytest.approx(16_404_384 / 3e11)
    assert half.time_s == pytest.approx(8_202_192 / 3e11)
    assert eighth.time_s == pytest.approx(4_101_096 / 3e11)
    assert half.roofline.ops[0].rated == "matrix float16"
    # Weights once a batch against what a sample computes and moves.
    first = (8_192_000 / 3e11) / (8_192_000 / 65e12 - 10_192 / 3e11)
    assert half.turning_batch == math.ceil(first)
    for wrong in ("fp16", "string", ""):
        with pytest.raises(UsageError, match="no element type"):
            on(FC, T4, precision=wrong)


def test_the_turning_batch_does_not_depend_on_the_batch_of_the_file() -> None:
    assert [on(fully_connected(n), T4).turning_batch for n in (1, 4, 100)] == [58, 58, 58]


GROUPS = {
    (1, 3, 32, 3): "stem",
    (1, 64, 32, 3): "conv",
    (1, 64, 32, 1): "pointwise",
    (4, 64, 32, 3): "group_conv",
    (64, 64, 64, 3): "depthwise",
    (64, 64, 128, 3): "depthwise",
}


@pytest.mark.parametrize("shape", GROUPS)
def test_groups_of_convolutions(shape: tuple[int, int, int, int]) -> None:
    graph = conv_graph(*shape)
    (task,) = tasks_of(graph, cost_of(graph))
    assert task.group == GROUPS[shape]
    groups, cin, cout, k = shape
    assert task.weights == cout * cin // groups * k * k
    assert task.elements == cin * 56 * 56 + cout * (57 - k) ** 2


def test_the_table_of_groups_has_only_kinds_there_are_and_groups_there_are() -> None:
    assert set(_GROUP_OF) <= set(KINDS)
    assert set(_GROUP_OF.values()) <= set(get_args(Group))


@pytest.mark.parametrize(
    ("line", "group"),
    [
        ("parameter w: float32[8,3,3,4]\ny: float32[1,9,9,8] = conv_2d(x, w)", "stem"),
        ("parameter w: float32[8,3,3,5]\ny: float32[1,9,9,8] = conv_2d(x, w)", "conv"),
        ("parameter w: float32[8,1,1,9]\ny: float32[1,9,9,8] = conv_2d(x, w)", "pointwise"),
        (
            "parameter w: float32[1,3,3,9]\ny: float32[1,9,9,9] = depthwise_conv_2d(x, w)",
            "depthwise",
        ),
        (
            "parameter w: float32[9,9]\nparameter b: float32[9]\n"
            "y: float32[1,9,9,9] = addmm(b, x, w)",
            "matmul",
        ),
        ("y: float32[1,9,9,9] = matmul(x, x)", "bmm"),
        ("z: float32[1,9,9,9] = relu(x)\ny: float32[1,9,9,9] = matmul(x, z)", "bmm"),
        ("y: float32[1,9,9,9] = sdpa(x, x, x)", "attention"),
        ("y: float32[1,9,9,9] = reduction(x)", "reduce"),
        ("y: float32[1,9,9,9] = max_pool_2d(x)", "reduce"),
        ("y: float32[1,9,9,9] = stranger(x)", "elementwise"),
    ],
)
def test_groups_of_other_front_ends(line: str, group: str) -> None:
    graph = parse_graph(f"peakfold-graph 1\ninput x: float32[1,9,9,9]\n{line}\noutput y")
    assert group_of(graph.ops[-1], graph) == group


def test_a_training_step_has_a_bound_only() -> None:
    graph = parse_graph(
        "peakfold-graph 1\ninput x: float32[4,4]\ninput d: float32[4,4]\n"
        "y: float32[4,4] = relu_grad(d, x)\noutput y"
    )
    found = on(graph, device_with(fit()))
    assert found.estimate is None
    assert found.why_not == "roofline only: the measurements are of inference"


def test_tasks_of_other_ops() -> None:
    graph = parse_graph(
        "peakfold-graph 1\ninput x: float32[2,8,16]\nparameter w: float32[16,16]\n"
        "q: float32[2,8,16] = matmul(x, w)\nk: float32[2,16,8] = transpose(q, perm=[0,2,1])\n"
        "s: float32[2,8,8] = matmul(q, k)\np: float32[2,8,8] = softmax(s)\n"
        "r: float32[2,64] = reshape(p)\ng: float32[2,64] = gelu(r)\n"
        "m: float32[2,1] = reduce_mean(g, axes=[1], keepdims=1)\n"
        "z: float32[2,64] = add(g, m)\noutput z"
    )
    tasks = tasks_of(graph, cost_of(graph))
    assert [task.group for task in tasks] == [
        "matmul",
        "copy",
        "bmm",
        "softmax",
        "copy",
        "activation",
        "reduce",
        "elementwise",
    ]
    assert [task.weights for task in tasks] == [256, 0, 0, 0, 0, 0, 0, 0]
    assert [task.elements for task in tasks] == [512, 512, 640, 256, 0, 256, 130, 258]
    assert [task.owner for task in tasks] == list(range(8))


def test_a_loop_is_its_body_as_often_as_it_runs() -> None:
    stored = [zeros("w", (4, 4)), values("trips", 10, np.int64), values("yes", True)]
    nodes = [("Relu", "x", "r"), ("Loop", "trips yes r", "y", {"body": loop_body()})]
    graph = graph_of(nodes, {"x": (4, 4)}, stored)
    found = on(graph, T4)
    products = [task for task in found.tasks if task.group == "matmul"]
    assert [(task.work.runs, task.work.macs, task.owner) for task in products] == [(10, 64, 1)]
    (product,) = [op for op in found.roofline.ops if op.work.macs]
    assert product.time_s == pytest.approx(10 * 3 * 64 / 3e11)
    assert len(found.op_times) == 2
    assert found.op_times[1][0] == pytest.approx(10 * 3 * 64 / 3e11)
    assert sum(time or 0.0 for time, _ in found.op_times) == pytest.approx(found.time_s)


def fit(**more: float) -> Latency:
    groups = dict.fromkeys(get_args(Group), 3e-12)
    constants = {"launch": 5e-6, "weight": 1e-12, **more}
    return Latency(
        name="x",
        source="s",
        conditions="c",
        dtype="float32",
        batch=256,
        compute={"matmul": 2e-12, "conv": 1e-12},
        memory=groups,
        check=Check(models=1, families=1, median=0.1, p90=0.2),
        **constants,
    )


def test_an_estimate_is_the_sum_of_its_terms() -> None:
    found = estimate(tasks_of(FC, cost_of(FC)), fit())
    expected = 5e-6 + 1e-12 * 4_096_000 + 3e-12 * 5096 + 2e-12 * 4_096_000
    assert found.ops == (pytest.approx(expected),)
    assert (found.time_s, found.unknown) == (found.ops[0], 0)
    # A group without MACs of its own in the table is taken for a matrix product.
    depthwise = padded(64, 64, 64)
    tasks = tasks_of(depthwise, cost_of(depthwise))
    (seconds,) = estimate(tasks, fit()).ops
    work = 64 * 56 * 56
    assert seconds == pytest.approx(5e-6 + 1e-12 * 576 + 3e-12 * 2 * work + 2e-12 * 9 * work)


def test_what_an_estimate_goes_to_is_its_largest_term() -> None:
    tasks = tasks_of(FC, cost_of(FC))
    small, large = fit(launch=1.0), fit(launch=1e-12)
    assert estimate(tasks, small).bounds == ("launch",)
    assert estimate(tasks, large).bounds == ("compute",)  # 2 ps a MAC, 1 ps a weight
    assert estimate(tasks, fit(launch=1e-12, weight=3e-12)).bounds == ("memory",)
    found = on(FC, device_with(small))
    assert found.op_times == ((found.time_s, "launch"),)
    assert found.roofline.bound == "memory"


@pytest.mark.req("R75")
def test_the_host_link_is_told_beside_the_time() -> None:
    found = on(FC, T4)
    assert found.transfer_s == pytest.approx(4 * (4096 + 1000) / 15.75e9)
    assert on(FC, load_device("apple-m2")).transfer_s is None


def test_batches_of_a_file_are_swept_from_one_sample() -> None:
    (point,) = on(fully_connected(4), T4).sweep([16])
    assert point.time_s == pytest.approx((16_384_000 + 16 * 20_384) / 3e11)
    with pytest.raises(UsageError, match="below 1"):
        on(FC, T4).sweep([0])
    open_batch = parse_graph(
        "peakfold-graph 1\ninput x: float32[n,4]\ny: float32[n,4] = relu(x)\noutput y"
    )
    with pytest.raises(UsageError, match="how many samples"):
        on(open_batch, T4).sweep([1])


def test_views_cost_nothing_and_unknown_ops_are_counted() -> None:
    graph = parse_graph(
        "peakfold-graph 1\ninput x: float32[4,4]\nv: float32[16] = reshape(x)\n"
        "y: float32[16] = mystery(v)\noutput y"
    )
    found = estimate(tasks_of(graph, cost_of(graph)), fit())
    assert found.ops == (0.0, None)
    assert (found.time_s, found.unknown) == (0.0, 1)


def device_with(latency: Latency) -> Device:
    return replace(T4, latency=(latency,))


def test_a_fitted_device_gives_an_estimate_and_keeps_the_bound() -> None:
    found = on(FC, device_with(fit()))
    assert found.why_not == ""
    assert found.estimate is not None
    assert found.time_s == found.estimate.time_s
    assert found.roofline.time_s == pytest.approx(16_404_384 / 3e11)
    assert found.extrapolated  # batch 1 against 256
    assert on(FC, T4).why_not == "roofline only: no measurements of this device"
    assert not on(FC, T4).extrapolated


def test_the_arithmetic_of_the_measurements_is_taken_or_the_bound_alone() -> None:
    half = replace(fit(), dtype="float16")
    device = replace(T4, latency=(fit(), half))
    assert on(FC, device).precision == "float32"
    assert on(FC, replace(T4, latency=(half, fit()))).precision == "float16"
    chosen = on(FC, device, precision="float16")
    assert chosen.estimate is not None
    assert chosen.estimate.fit is half
    assert chosen.roofline.time_s == pytest.approx(8_202_192 / 3e11)
    neither = on(FC, device, precision="bfloat16")
    assert neither.estimate is None
    assert neither.why_not == "roofline only: the measurements are in float32 and float16"


def test_an_integer_model_has_a_bound_only() -> None:
    graph = parse_graph(
        "peakfold-graph 1\ninput x: int8[1,8,8,8]\nparameter w: int8[8,8,3,3]\n"
        "y: int32[1,8,6,6] = conv_integer(x, w)\noutput y"
    )
    found = on(graph, device_with(fit()))
    assert found.estimate is None
    assert "floating-point" in found.why_not
    assert found.time_s == found.roofline.time_s


@pytest.mark.req("R77")
def test_a_measured_time_gives_the_share_of_the_peak_that_was_rated() -> None:
    used, of = measured_share(on(padded(1, 64, 128), T4), 100e-6)
    assert (used, of) == (pytest.approx(462_422_016 / 100e-6 / 8.1e12), "vector float32")
    half, of = measured_share(on(padded(1, 64, 128), T4, precision="float16"), 100e-6)
    assert (half, of) == (pytest.approx(462_422_016 / 100e-6 / 65e12), "matrix float16")
    with pytest.raises(UsageError, match="not above 0"):
        measured_share(on(FC, T4), 0.0)
    with pytest.raises(UsageError, match="no peak"):
        measured_share(on(FC, load_device("esp32-s3")), 1.0)


def test_some_presets_are_fitted() -> None:
    names = {device.name for device in FITTED}
    assert {"rtx-3090", "rtx-4090", "rtx-5090", "rtx-pro-6000-maxq", "i9-10940x"} <= names


@pytest.mark.parametrize("device", FITTED, ids=lambda device: device.name)
def test_every_fit_has_a_constant_for_every_group(device: Device) -> None:
    for latency in device.latency:
        assert set(latency.memory) == set(get_args(Group))
        assert {"conv", "pointwise", "depthwise", "matmul", "bmm", "attention"} <= set(
            latency.compute
        )
        assert 0 < latency.check.median < latency.check.p90 < 0.5
        assert latency.check.models > 1000


@pytest.mark.parametrize("device", FITTED, ids=lambda device: device.name)
def test_estimates_grow_with_every_dimension(device: Device) -> None:
    def seconds(*shape: int) -> float:
        time = on(conv_graph(*shape), device).time_s
        assert time is not None
        return time

    base = seconds(1, 64, 64, 3, 56, 8)
    assert seconds(1, 128, 64, 3, 56, 8) > base
    assert seconds(1, 64, 128, 3, 56, 8) > base
    assert seconds(1, 64, 64, 5, 60, 8) > base
    assert seconds(1, 64, 64, 3, 112, 8) > base
    assert seconds(1, 64, 64, 3, 56, 16) > base


@pytest.mark.parametrize("device", FITTED, ids=lambda device: device.name)
def test_an_estimate_is_not_below_the_bound_of_a_large_model(device: Device) -> None:
    # A product too large for any overhead: measured speeds do not exceed the peaks.
    graph = parse_graph(
        "peakfold-graph 1\ninput x: float32[65536,4096]\nparameter w: float32[4096,4096]\n"
        "y: float32[65536,4096] = matmul(x, w)\noutput y"
    )
    found = on(graph, device)
    assert found.precision == device.latency[0].dtype
    if found.roofline.time_s is not None and not found.roofline.partial:
        assert found.time_s is not None
        # The fastest matrix rate may accumulate in float16 where only the other is stated.
        assert found.time_s > found.roofline.time_s / 2.1


def test_runs_are_chosen_behind_a_colon() -> None:
    first = load_device("rtx 4090").latency[0]
    chosen = load_device("rtx-4090:compiled").latency
    assert (first.name, chosen[0].name) == ("eager", "compiled")
    assert {run.name for run in chosen} == {run.name for run in load_device("rtx-4090").latency}
    with pytest.raises(UsageError, match="no latency model 'fast'"):
        load_device("rtx-4090:fast")
    with pytest.raises(UsageError, match="known: none"):
        load_device("t4:eager")


LATENCY = """
[[latency]]
name = "a"
source = "s"
conditions = "c"
dtype = "float16"
batch = 8
launch_us = 5
weight_ps = 1
compute_ps = { matmul = 2 }
memory_ps = { elementwise = 3 }
models = 10
families = 2
median = 0.1
p90 = 0.3
"""


def test_a_latency_table_is_read_in_its_units() -> None:
    (found,) = read_device(LATENCY, "x", "x.toml").latency
    assert (found.launch, found.weight) == pytest.approx((5e-6, 1e-12))
    assert dict(found.compute) == pytest.approx({"matmul": 2e-12})
    assert dict(found.memory) == pytest.approx({"elementwise": 3e-12})
    for bad in ("matmul = 0", "matmul = -1", 'matmul = "x"'):
        with pytest.raises(UsageError, match="not a number above 0"):
            read_device(LATENCY.replace("matmul = 2", bad), "x", "x.toml")
    with pytest.raises(UsageError, match="unknown group"):
        read_device(LATENCY.replace("elementwise = 3", "tensor = 3"), "x", "x.toml")
    with pytest.raises(UsageError, match="memory_ps lacks elementwise"):
        read_device(LATENCY.replace("elementwise = 3", "matmul = 3"), "x", "x.toml")
    # Groups without a constant of their own take another's.
    times = estimate(tasks_of(FC, cost_of(FC)), found).ops
    assert times == (pytest.approx(5e-6 + 1e-12 * 4_096_000 + 3e-12 * 5096 + 2e-12 * 4_096_000),)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("device", "table"),
    [
        ("rtx-3090:eager", "amp-nchw-pt240-cu124-rtx3090"),
        ("rtx-4090:eager", "amp-nchw-pt291-cu128-4090"),
        ("rtx-4090:compiled", "amp-nchw-pt291-cu128-4090-dynamo"),
        ("rtx-5090:eager", "amp-nchw-pt291-cu130-5090"),
    ],
)
def test_real_files_take_about_as_long_as_was_measured(
    shared: Path, device: str, table: str
) -> None:
    measured = {
        row["model"].split(".")[0]: row
        for row in csv.DictReader((shared / f"data/timm/benchmark-infer-{table}.csv").open())
        if row["infer_img_size"] == "224"
    }
    fit = load_device(device).latency[0]
    for name in ("resnet50", "vgg19"):
        path = shared / f"models/onnx/light_{name}.onnx"
        report = peakfold.inspect(path, device=device)
        assert report.timing is not None
        row = measured[name]
        batch = int(float(row["infer_batch_size"]))
        tasks = [
            replace(
                task,
                work=replace(task.work, macs=(task.work.macs or 0) * batch),
                elements=(task.elements or 0) * batch,
            )
            for task in report.timing.tasks
        ]
        found = estimate(tasks, fit)
        assert found.unknown == 0
        assert found.time_s is not None
        per_sample = found.time_s / batch
        assert per_sample == pytest.approx(1 / float(row["infer_samples_per_sec"]), rel=0.15)
