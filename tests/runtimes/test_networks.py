"""Every shared network runs in its arena, bit for bit as in an ordinary run."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from peakfold.frontends import Bindings, load
from peakfold.planning import PlanOptions, make_plan
from peakfold.planning.planner import plan_layout
from peakfold.runtimes.reference import Lanes, run_plan

from .helpers import Case, case_of

pytestmark = pytest.mark.shared

BINDINGS = {
    "basic_pitch_nmp": Bindings.parse(["unk__749=1"]),
    "mtcnn_pnet": Bindings.parse(["N=1", "M1=64", "M2=64"]),
    "ppocrv4_det": Bindings.parse(shapes=["x=1x3x64x64"]),
    "silero_vad_16k_op15": Bindings.parse(["batch=1", "sequence=512"]),
}
SMALL = (
    "mtcnn_pnet",
    "mul_1",
    "sigmoid",
    "silero_vad_16k_op15",
    "light_squeezenet",
    "light_shufflenet",
    "ppocrv4_det",
)
LARGE = (
    "basic_pitch_nmp",
    "blazeface_back_256",
    "light_bvlc_alexnet",
    "light_densenet121",
    "light_inception_v1",
    "light_resnet50",
    "light_vgg19",
    "light_zfnet512",
)
EXEMPT = ("logreg_iris",)
MODES = ("arena", "both", "share")


def network(shared: Path, name: str) -> Case:
    path = shared / "models" / "onnx" / f"{name}.onnx"
    # The weights of light_* are constants: every output of such a run would be the same number.
    return case_of(load(path, BINDINGS.get(name)), randomise=name.startswith("light_"))


def runs_in_every_mode(shared: Path, name: str, lanes: tuple[int, ...]) -> None:
    loaded = load(shared / "models" / "onnx" / f"{name}.onnx", BINDINGS.get(name))
    case = network(shared, name)
    result = make_plan(loaded.graph, None, loaded.bindings)
    sizes = []
    for mode in MODES:
        plan = plan_layout(result.context, result.layouts[mode], loaded.bindings)
        assert plan.mode == mode
        report = case.run(plan)
        assert report.ok, f"{mode}: {report.detail}"
        assert report.outputs_equal
        assert report.guards_intact
        assert report.max_abs_difference == 0
        assert not report.skipped
        sizes.append(report.arena_bytes)
    assert sizes == sorted(sizes)
    for count in lanes:
        plan = make_plan(loaded.graph, PlanOptions(lanes=count), loaded.bindings).plan
        report = case.run(plan, seed=1)
        assert report.ok, f"{plan.lanes} lanes: {report.detail}"
    for output in case.expected.outputs.values():
        assert np.isfinite(output).all()
        # A run of equal numbers would prove little.
        assert output.size == 1 or output.std() > 0


def test_no_network_is_left_out(onnx_models: list[Path]) -> None:
    assert {path.stem for path in onnx_models} == {*SMALL, *LARGE, *EXEMPT}


@pytest.mark.req("R1", "R2")
@pytest.mark.parametrize("name", SMALL)
def test_a_small_network_runs_in_its_arena(shared: Path, name: str) -> None:
    runs_in_every_mode(shared, name, lanes=(2, 0))


@pytest.mark.slow
@pytest.mark.req("R1", "R2")
@pytest.mark.parametrize("name", LARGE)
def test_a_large_network_runs_in_its_arena(shared: Path, name: str) -> None:
    runs_in_every_mode(shared, name, lanes=(2,))


def test_the_ordinary_run_is_that_of_onnx(shared: Path) -> None:
    """Real weights through the whole path: front end, folding, inlined branches, our kernels."""
    for name in ("mtcnn_pnet", "silero_vad_16k_op15", "blazeface_back_256"):
        case = network(shared, name)
        model = onnx.load(shared / "models" / "onnx" / f"{name}.onnx")
        with np.errstate(all="ignore"):
            wanted = ReferenceEvaluator(model).run(None, dict(case.program.feeds))
        for output, want in zip(case.program.graph.outputs, wanted, strict=True):
            got = case.expected.outputs[output]
            scale = float(np.abs(want).max())
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * scale, err_msg=name)


@pytest.mark.parametrize("name", ["silero_vad_16k_op15", "light_squeezenet", "mtcnn_pnet"])
@pytest.mark.parametrize("policies", [("reusable", "pinned"), ("pinned", "external")])
def test_inputs_and_outputs_may_live_elsewhere(
    shared: Path, name: str, policies: tuple[str, str]
) -> None:
    case = network(shared, name)
    loaded = load(shared / "models" / "onnx" / f"{name}.onnx", BINDINGS.get(name))
    options = PlanOptions(inputs=policies[0], outputs=policies[1], align=16)
    report = case.run(make_plan(loaded.graph, options, loaded.bindings).plan)
    assert report.ok, report.detail


@pytest.mark.parametrize("name", ["silero_vad_16k_op15", "light_squeezenet", "mtcnn_pnet"])
def test_other_targets_orders_and_alignments(shared: Path, name: str) -> None:
    case = network(shared, name)
    loaded = load(shared / "models" / "onnx" / f"{name}.onnx", BINDINGS.get(name))
    for options in (
        PlanOptions(target="mxnet"),
        PlanOptions(align=1, views=False),
        PlanOptions(mode="naive"),
        PlanOptions(order="best", time_limit=1.0),
    ):
        report = case.run(make_plan(loaded.graph, options, loaded.bindings).plan)
        assert report.ok, f"{options}: {report.detail}"


@pytest.mark.req("R37")
@pytest.mark.parametrize("name", ["silero_vad_16k_op15", "light_shufflenet"])
def test_lanes_need_a_plan_of_their_own(shared: Path, name: str) -> None:
    """The serial plan goes wrong in the very threads in which the plan for them never does."""
    case = network(shared, name)
    loaded = load(shared / "models" / "onnx" / f"{name}.onnx", BINDINGS.get(name))
    safe = make_plan(loaded.graph, PlanOptions(lanes=2), loaded.bindings).plan
    lanes = Lanes(tuple(safe.lane))
    for seed in range(6):
        report = case.run(safe, seed=seed)
        assert report.ok, report.detail
    assert not all(case.run(case.plan, lanes, seed).ok for seed in range(6))


def test_one_lane_is_the_serial_run(shared: Path) -> None:
    case = network(shared, "light_squeezenet")
    report = case.run(lanes=Lanes((0,) * len(case.program.graph.ops)))
    assert report.ok, report.detail
    assert report.kernel_temporary_bytes == 0  # not measured with threads


def test_a_file_whose_own_weights_do_not_fit_is_named_with_the_op(shared: Path) -> None:
    """logreg_iris declares two features and stores coefficients for four."""
    path = shared / "models" / "onnx" / "logreg_iris.onnx"
    graph = load(path).graph
    report = run_plan(path, graph, make_plan(graph).plan)
    assert report.ok
    assert "LinearClassifier" in report.skipped[0]
    assert "fails" in report.skipped[0]


def test_a_result_that_is_a_map_lives_outside_and_is_compared_as_an_object(
    shared: Path, tmp_path: Path
) -> None:
    path = tmp_path / "four_features.onnx"
    shutil.copy(shared / "models" / "onnx" / "logreg_iris.onnx", path)
    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 4
    onnx.save(model, path)
    graph = load(path).graph
    report = run_plan(path, graph, make_plan(graph).plan)
    assert report.ok, report.detail
    assert [line.split(":")[0] for line in report.skipped] == ["probabilities"]


def test_the_whole_call_says_what_it_measured(shared: Path) -> None:
    path = shared / "models" / "onnx" / "light_squeezenet.onnx"
    graph = load(path).graph
    plan = make_plan(graph).plan
    report = run_plan(path, graph, plan, seed=3, randomise_weights=True)
    assert report.ok
    assert report.arena_bytes == plan.arena_bytes
    assert 0 < report.kernel_temporary_bytes < 64 << 20
    assert report.seconds > 0
    assert "67 results and 1 outputs" in report.detail
