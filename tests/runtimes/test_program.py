"""From a model file to something that computes: nodes, weights, inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from peakfold.errors import InvalidPlan, ModelError
from peakfold.frontends import load
from peakfold.ir import DTYPES, Tensor, parse_graph
from peakfold.planning import PlanOptions, make_plan
from peakfold.runtimes.reference import run_plan
from peakfold.runtimes.reference.feeds import input_values, random_weights
from peakfold.runtimes.reference.program import dtype_of
from tests.frontends.models import model, read, save

from .helpers import Case, case_of, onnx_case


def agrees_with_onnx(case: Case, path: Path) -> None:
    wanted = ReferenceEvaluator(onnx.load(path)).run(None, dict(case.program.feeds))
    for output, want in zip(case.program.graph.outputs, wanted, strict=True):
        np.testing.assert_allclose(case.expected.outputs[output], want, rtol=1e-5, atol=1e-6)
    report = case.run()
    assert report.ok, report.detail


INLINED = model(
    """g (float[1,8] x) => (float[n] y) {
      s = Shape(x)
      zero = Constant<value_int = 0>()
      first = Gather(s, zero)
      one = Constant<value_int = 1>()
      c = Equal(first, one)
      t = Neg(x)
      r = If(c) <
        then_branch = a () => (float[8] q) {
          axes = Constant<value_ints = [0]>() u = Squeeze(x, axes) q = Exp(u) },
        else_branch = b () => (float[1,8] q2) { u = Sin(x) q2 = Identity(u) }
      >
      y = Add(r, t)
    }"""
)


def test_the_nodes_of_an_inlined_branch_are_found(tmp_path: Path) -> None:
    case = onnx_case(tmp_path, INLINED)
    kinds = [op.kind for op in case.program.graph.ops]
    assert "if" not in kinds
    assert "sin" not in kinds
    agrees_with_onnx(case, tmp_path / "m.onnx")


def test_what_folding_computes_before_the_run_has_the_right_value(tmp_path: Path) -> None:
    text = model(
        """g (float[2,3] x) => (float[3,2] y) <float[3,2] w = {1, 2, 3, 4, 5, 6}> {
          t = Transpose(w)
          n = Neg(t)
          s = Shape(n)
          z = Add(x, n)
          k = Constant<value_ints = [3, -1]>()
          f = Reshape(z, k)
          y = Exp(f)
        }"""
    )
    case = onnx_case(tmp_path, text)
    assert [op.kind for op in case.program.graph.ops] == ["add", "reshape", "exp"]
    agrees_with_onnx(case, tmp_path / "m.onnx")


def test_without_folding_nothing_changes(tmp_path: Path) -> None:
    text = model(
        """g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { n = Neg(w) y = Add(x, n) }"""
    )
    agrees_with_onnx(onnx_case(tmp_path, text, PlanOptions(fold=False)), tmp_path / "m.onnx")


def test_a_sparse_weight_is_written_out(tmp_path: Path) -> None:
    values = helper.make_tensor("w", TensorProto.FLOAT, [2], [5.0, 7.0])
    at = helper.make_tensor("w_at", TensorProto.INT64, [2], [1, 5])
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
        sparse_initializer=[helper.make_sparse_tensor(values, at, [2, 3])],
    )
    path = tmp_path / "m.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path
    )
    case = case_of(load(path))
    x = case.program.feeds["x"]
    want = x + np.array([[0, 5, 0], [0, 0, 7]], np.float32)
    np.testing.assert_array_equal(case.expected.outputs["y"], want)
    assert case.run().ok


def test_random_ops_get_a_seed_so_that_two_runs_can_be_compared(tmp_path: Path) -> None:
    text = model(
        """g (float[4,4] x) => (float[4,4] y) {
          a = RandomNormalLike(x)
          b = Exp(a)
          y = Add(b, x)
        }"""
    )
    case = onnx_case(tmp_path, text)
    assert case.expected.outputs["y"].std() > 0
    assert case.run().ok


@pytest.mark.parametrize("kind", ["float16", "double", "bfloat16", "int32", "uint8", "int64"])
def test_element_types(tmp_path: Path, kind: str) -> None:
    text = model(
        f"g ({kind}[3,4] x) => ({kind}[3,8] y) "
        "{ a = Add(x, x) b = Mul(a, x) y = Concat<axis = 1>(a, b) }"
    )
    assert onnx_case(tmp_path, text).run().ok


def test_sub_byte_elements_are_refused_by_name() -> None:
    with pytest.raises(ModelError, match=r"tensor 'x'.*int4.*whole bytes"):
        dtype_of(Tensor("x", DTYPES["int4"], (4,)))


@pytest.mark.parametrize("name", [n for n, d in DTYPES.items() if d.bits and d.bits % 8 == 0])
def test_every_type_of_whole_bytes_has_its_numpy_type(name: str) -> None:
    bits = DTYPES[name].bits
    assert bits is not None
    assert dtype_of(Tensor("x", DTYPES[name], (1,))).itemsize * 8 == bits


def test_an_op_without_a_kernel_is_named(tmp_path: Path) -> None:
    node = helper.make_node("Warp", ["x"], ["y"], name="w1", domain="com.example")
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node], "g", [info("x", TensorProto.FLOAT, [4])], [info("y", TensorProto.FLOAT, [4])]
    )
    path = tmp_path / "m.onnx"
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    loaded = load(path)
    plan = make_plan(loaded.graph).plan
    report = run_plan(path, loaded.graph, plan)
    assert report.ok
    assert "op 'w1' (com.example::warp): no kernel for 'Warp'" in report.skipped[0]


def test_another_models_plan_or_file_is_refused(tmp_path: Path) -> None:
    one = read(tmp_path, model("g (float[4] x) => (float[4] y) { y = Neg(x) }"))
    plan = make_plan(one.graph).plan
    assert run_plan(one.path, one.graph, plan).ok
    other = save(tmp_path / "other.onnx", model("g (float[4] x) => (float[4] y) { y = Exp(x) }"))
    with pytest.raises(InvalidPlan, match="another model"):
        run_plan(other, load(other).graph, plan)
    with pytest.raises(ModelError, match="not the file"):
        run_plan(other, one.graph, plan)


def test_a_pf_graph_runs_on_stand_ins_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "m.pf"
    path.write_text(
        "peakfold-graph 1\ninput x: float32[4,4]\nparameter w: int4[3]\n"
        "a: float32[4,4] = warp(x, w)\nb: float32[4,4] = relu(a)\nc: string[] = opaque(b)\n"
        "d: float32[2,8] = reshape(b)\noutput d, c\n"
    )
    graph = load(path).graph
    report = run_plan(path, graph, make_plan(graph).plan)
    assert report.ok, report.detail
    assert report.skipped[0].startswith("a graph without weights")
    assert report.skipped[1].startswith("c:")


INPUTS = """peakfold-graph 1
input table: float32[5,3]
input rows: int64[7]
input picture: uint8[64,64]
input flags: bool[64]
input lengths: int32[64]
a: float32[7,3] = gather(table, rows, axis=0)
output a, picture, flags, lengths"""


def test_inputs_are_plausible_and_seeded() -> None:
    graph = parse_graph(INPUTS)
    one, two, other = (input_values(graph, seed) for seed in (1, 1, 2))
    assert all(one[name].tobytes() == two[name].tobytes() for name in graph.inputs)
    assert all(one[name].tobytes() != other[name].tobytes() for name in graph.inputs)
    rows = np.concatenate([input_values(graph, seed)["rows"] for seed in range(20)])
    assert set(rows.tolist()) == set(range(5))
    assert one["picture"].max() > 200
    assert set(one["flags"].tolist()) == {True, False}
    assert set(one["lengths"].tolist()) == {0, 1}
    assert abs(float(one["table"].mean())) < 1


def test_random_weights_replace_weights_and_nothing_else(tmp_path: Path) -> None:
    text = model(
        """g (float[1,4] x) => (float[1,4] y)
        <float[4,4] w = {%s}, float[4] b = {1,1,1,1}, float low = {-1.0}, float[1] e = {2.0}>
        {
          m = MatMul(x, w)
          a = Add(m, b)
          c = Clip(a, low)
          y = Pow(c, e)
        }""".replace("%s", ",".join(["1"] * 16))
    )
    case = onnx_case(tmp_path, text)
    plain = case.program.statics
    mixed = random_weights(case.program, 0).statics
    changed = {name for name in plain if plain[name].tobytes() != mixed[name].tobytes()}
    assert changed == {"w", "b"}
    assert (mixed["b"] > 0).all()
    again = random_weights(case.program, 0).statics
    assert all(again[name].tobytes() == mixed[name].tobytes() for name in mixed)
    assert random_weights(case.program, 1).statics["w"].tobytes() != mixed["w"].tobytes()
