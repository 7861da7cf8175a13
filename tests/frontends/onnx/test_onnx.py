"""The ONNX front end: opsets, symbols, folding, quantisation, effects, broken graphs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from peakfold.analysis import Index, static_bytes, unsupported
from peakfold.errors import ModelError, UsageError
from peakfold.frontends import Bindings, load
from peakfold.ir import Role, effect_edges
from peakfold.judges.plan import verify_plan
from peakfold.planning import PlanOptions, make_plan
from peakfold.transform import Fold
from tests.frontends.models import model, read, save

BACKEND = Path(onnx.__file__).parent / "backend" / "test" / "data"
# Shapes that no rule can give: they depend on data, or on a symbol nobody bound.
DATA_DEPENDENT = {"test_sequence_model1", "test_sequence_model4", "test_sequence_model8"}


def test_every_backend_model_is_read_planned_and_verified() -> None:
    files = sorted(BACKEND.rglob("*.onnx"))
    assert len(files) >= 140
    refused = set()
    for file in files:
        loaded = load(file)
        try:
            result = make_plan(loaded.graph, PlanOptions(time_limit=1), loaded.bindings)
        except ModelError as error:
            assert "--shape" in error.hint, file
            refused.add(file.parent.name)
            continue
        assert unsupported(result.context.graph) == {}, file
        assert all(check.ok for check in verify_plan(loaded.graph, result.plan)), file
    assert refused == DATA_DEPENDENT


def test_symbols_are_bound_by_dim_and_by_shape(tmp_path: Path) -> None:
    text = model("g (float[batch,3,N] x) => (float[batch,3,M] y) { y = Relu(x) }")
    for loaded in (
        read(tmp_path, text, "batch=4", "N=5"),
        read(tmp_path, text, shapes=("x=4x3x5",)),
    ):
        assert loaded.graph["y"].shape == (4, 3, 5)
        assert loaded.bindings.dims["batch"] == 4
    with pytest.raises(UsageError, match="'btach'.*batch"):
        read(tmp_path, text, "btach=4")
    with pytest.raises(UsageError, match="'z'"):
        read(tmp_path, text, shapes=("z=1",))
    with pytest.raises(UsageError, match="3 is fixed|fixes 3"):
        read(tmp_path, text, shapes=("x=4x7x5",))
    with pytest.raises(UsageError, match="2 dimensions"):
        read(tmp_path, text, shapes=("x=4x7",))


def test_an_unbound_symbol_is_an_error_that_names_the_flag(tmp_path: Path) -> None:
    loaded = read(tmp_path, model("g (float[batch,3] x) => (float[batch,3] y) { y = Relu(x) }"))
    with pytest.raises(ModelError, match=r"tensor 'x'.*batch.*--dim batch=N"):
        Index.of(loaded.graph)


def test_a_missing_shape_names_the_tensor_its_op_and_the_flag(tmp_path: Path) -> None:
    text = model("g (int64[2] s) => (float[a,b] y) { y = ConstantOfShape(s) }")
    loaded = read(tmp_path, text)
    with pytest.raises(ModelError, match=r"tensor 'y'.*constant_of_shape.*--shape y="):
        Index.of(loaded.graph)
    loaded = read(tmp_path, text, shapes=("y=2x4",))
    assert Index.of(loaded.graph).nbytes[1] == 4 * 8


def test_a_custom_op_is_counted_and_its_result_needs_a_type(tmp_path: Path) -> None:
    text = model(
        "g (float[4] x) => (float[4] z) { y = my.domain.Warp(x) z = Relu(y) }",
        more=', "my.domain" : 1',
    )
    loaded = read(tmp_path, text)
    assert unsupported(loaded.graph) == {"my.domain::warp": 1}
    with pytest.raises(ModelError, match="--shape y=dtype:AxBxC"):
        Index.of(loaded.graph)
    loaded = read(tmp_path, text, shapes=("y=float32:4",))
    result = make_plan(loaded.graph)
    assert result.plan.unsupported == {"my.domain::warp": 1}
    assert not result.summary.workspace_known


def test_shapes_follow_computed_values(tmp_path: Path) -> None:
    text = model(
        """g (float[2,3,4] x) => (float[a,b] y) {
          s = Shape(x)
          zero = Constant<value_int = 0>()
          minus = Constant<value_ints = [-1]>()
          first = Gather(s, zero)
          axes = Constant<value_ints = [0]>()
          f1 = Unsqueeze(first, axes)
          target = Concat<axis = 0>(f1, minus)
          y = Reshape(x, target)
        }"""
    )
    loaded = read(tmp_path, text)
    assert loaded.graph["y"].shape == (2, 12)
    folded = Fold()(loaded.graph)
    assert [op.kind for op in folded.ops] == ["reshape"]


@pytest.mark.req("R9")
def test_folded_results_are_parameters_and_their_sources_cost_nothing(tmp_path: Path) -> None:
    text = model(
        """g (float[8] x) => (float[8] y)
        <float[2,4] w = {1,2,3,4,5,6,7,8}, int64[1] flat = {8}>
        { v = Reshape(w, flat) n = Neg(v) y = Add(x, n) }"""
    )
    folded = Fold()(read(tmp_path, text).graph)
    assert [op.kind for op in folded.ops] == ["add"]
    assert folded["n"].role is Role.PARAMETER
    assert static_bytes(folded) == {
        Role.PARAMETER: 32,
        Role.CONSTANT: 0,
        Role.STATE: 0,
        Role.OPTIMIZER_STATE: 0,
    }
    assert {t.name for t in folded.tensors} == {"x", "n", "y"}


@pytest.mark.req("R9")
def test_weights_are_not_dequantised_before_the_run_unless_asked(tmp_path: Path) -> None:
    text = model(
        """g (float[4] x) => (float[4] y)
        <int8[4] q = {1,2,3,4}, float s = {0.5}, int8 z = {0}>
        { w = DequantizeLinear(q, s, z) y = Mul(x, w) }"""
    )
    graph = read(tmp_path, text).graph
    plain = make_plan(graph, PlanOptions(align=1))
    assert [op.kind for op in plain.context.graph.ops] == ["dequantize_linear", "mul"]
    assert plain.summary.static_bytes == 4 + 4 + 1
    wide = make_plan(graph, PlanOptions(align=1, fold_weights=True))
    assert [op.kind for op in wide.context.graph.ops] == ["mul"]
    assert wide.summary.static_bytes == 16
    assert wide.plan.recipe == ["fold-weights"]
    for result in (plain, wide):
        assert all(check.ok for check in verify_plan(graph, result.plan))


@pytest.mark.req("R46")
def test_dropout_and_identity_are_views_at_inference(tmp_path: Path) -> None:
    text = model(
        """g (float[64] x) => (float[64] y)
        { a = Relu(x) b = Identity(a) c = Dropout(b) d = Neg(b) y = Add(c, d) }"""
    )
    result = make_plan(read(tmp_path, text).graph)
    views = {a.output: a.input for a in result.plan.aliases if a.how == "view"}
    assert views == {"b": "a", "c": "b"}


def test_quantised_models_are_sized_by_their_element_width(tmp_path: Path) -> None:
    text = model(
        """g (uint8[1,3,8,8] x) => (uint8[1,4,8,8] y)
        <float s = {0.1}, uint8 z = {0}, float ws = {0.1}, int8 wz = {0},
         int8[4,3,1,1] w = {1,2,3,4,5,6,7,8,9,10,11,12}>
        { y = QLinearConv(x, s, z, w, ws, wz, s, z) }"""
    )
    s = make_plan(read(tmp_path, text).graph, PlanOptions(align=1)).summary
    assert (s.arena_bytes, s.input_bytes, s.static_bytes) == (256, 192, 12 + 4 + 1 + 4 + 1)


def test_int4_weights_take_half_a_byte(tmp_path: Path) -> None:
    w = helper.make_tensor("w", TensorProto.INT4, [3, 3], list(range(-4, 5)))
    scale = numpy_helper.from_array(np.float32(1), "s")
    graph = helper.make_graph(
        [helper.make_node("DequantizeLinear", ["w", "s"], ["y"])],
        "g",
        [],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 3])],
        [w, scale],
    )
    path = tmp_path / "m.onnx"
    opset = [helper.make_opsetid("", 21)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=10), path)
    assert load(path).graph["w"].nbytes == 5


def test_opset_below_seven_goes_through_the_version_converter(tmp_path: Path) -> None:
    w = numpy_helper.from_array(np.ones(3, np.float32), "b")
    node = helper.make_node("Add", ["x", "b"], ["y"], broadcast=1, axis=1)
    graph = helper.make_graph(
        [node],
        "old",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
        [w],
    )
    path = tmp_path / "m.onnx"
    opset = [helper.make_opsetid("", 6)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=4), path)
    loaded = load(path)
    assert loaded.graph["y"].shape == (2, 3)
    assert any("opset 6 was converted" in note for note in loaded.graph.notes)


def test_initializers_listed_as_inputs_are_no_inputs(shared: Path) -> None:
    loaded = load(BACKEND / "light" / "light_squeezenet.onnx")
    assert len(loaded.graph.inputs) == 1


def test_local_functions_are_inlined(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "f" : 1]>
    g (float[4] x) => (float[4] y) { y = f.twice(x) }
    <domain: "f", opset_import: ["" : 17]> twice (a) => (c) { b = Relu(a) c = Neg(b) }"""
    loaded = read(tmp_path, text)
    assert [op.kind for op in loaded.graph.ops] == ["relu", "neg"]


def test_sequences_and_strings_are_opaque_and_counted(tmp_path: Path) -> None:
    text = model(
        """g (float[4] x, float[4] y) => (int64 n)
        { s = SequenceConstruct(x, y) n = SequenceLength(s) }"""
    )
    result = make_plan(read(tmp_path, text).graph)
    assert result.plan.opaque == ["s"]
    assert result.summary.opaque_tensors == 1


def test_nodes_out_of_order_are_sorted_and_a_cycle_is_named(tmp_path: Path) -> None:
    nodes = [helper.make_node("Neg", ["a"], ["y"]), helper.make_node("Relu", ["x"], ["a"])]
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4]) for n in ("x", "y")]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:])
    path = tmp_path / "m.onnx"
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    assert [op.kind for op in load(path).graph.ops] == ["relu", "neg"]
    graph.node[1].input[0] = "y"
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    with pytest.raises(ModelError, match="cycle"):
        load(path)


def test_random_ops_keep_their_order_through_a_state(tmp_path: Path) -> None:
    text = model(
        """g (float[4] x) => (float[4] c) {
        a = RandomNormalLike(x) b = RandomNormalLike(x) c = Add(a, b) }"""
    )
    graph = read(tmp_path, text).graph
    assert effect_edges(graph) == ((0, 1),)
    assert [op.kind for op in Fold()(graph).ops][:2] == ["random_normal_like"] * 2


def test_bindings_are_read_strictly() -> None:
    for dims, shapes in (
        (["batch"], []),
        (["=3"], []),
        (["b=-1"], []),
        (["b=1", "b=2"], []),
        ([], ["x"]),
        ([], ["x=1x?"]),
        ([], ["x=nope:3"]),
        ([], ["x=1", "x=2"]),
        (["b=999999999999999999"], []),
    ):
        with pytest.raises(UsageError):
            Bindings.parse(dims, shapes)


@pytest.mark.shared
def test_every_shared_model_has_a_row_for_each_op(onnx_models: list[Path]) -> None:
    assert len(onnx_models) == 16
    for path in onnx_models:
        assert unsupported(load(path).graph) == {}, path.name


def test_not_a_model(tmp_path: Path) -> None:
    good = save(tmp_path / "good.onnx", model("g (float[4] x) => (float[4] y) { y = Relu(x) }"))
    data = good.read_bytes()
    bad = tmp_path / "bad.onnx"
    for content in (b"", b"hello, I am no model", data[:-7], data[: len(data) // 2]):
        bad.write_bytes(content)
        with pytest.raises(ModelError, match="not an ONNX model") as caught:
            load(bad)
        assert str(bad) in str(caught.value)
    with pytest.raises(UsageError, match="no such file"):
        load(tmp_path / "none.onnx")
    with pytest.raises(UsageError, match="unknown model format"):
        load(tmp_path / "none.txt")


@pytest.mark.shared
def test_weights_in_attributes_are_said(shared: Path) -> None:
    """Classical models keep their coefficients in attributes, which no tensor holds."""
    notes = load(shared / "models" / "onnx" / "logreg_iris.onnx").graph.notes
    assert any("15 numbers kept in its attributes" in note for note in notes)


def test_nodes_that_differ_in_one_thing_have_shapes_of_their_own(tmp_path: Path) -> None:
    """Types are inferred once a signature: one attribute, number, operand or result more is one."""
    same = [
        "a = Conv <pads=[1,1,1,1]> (x, w)",
        "b = Conv <pads=[0,0,0,0]> (x, w)",
        "c = Conv <pads=[1,1,1,1]> (x, v)",
        "d = Conv <pads=[1,1,1,1]> (x, w)",
        "e = Reshape (x, s)",
        "f = Reshape (x, t)",
        "g = Reshape (x, s)",
        "h = Cast <to=10> (x)",
        "i = Cast <to=7> (x)",
        "j, k = MaxPool <kernel_shape=[2,2]> (x)",
        "l = MaxPool <kernel_shape=[2,2]> (x)",
        "m = Slice (x, zero, one, axes)",
        "n = Slice (x, zero, one)",
    ]
    names = [n.strip() for line in same for n in line.split("=")[0].split(",")]
    text = model(
        "g (float[1,4,8,8] x, float[5,4,3,3] w, float[6,4,3,3] v) => "
        f"({', '.join(f'float {n}' for n in names)})"
        "<int64[2] s = {16,16}, int64[2] t = {32,-1}, int64[1] zero = {0},"
        " int64[1] one = {1}, int64[1] axes = {2}>"
        f"{{ {' '.join(same)} }}"
    )
    proto = onnx.parser.parse_model(text)
    proto.graph.ClearField("output")  # types that no rule has given are not the point
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    truth = onnx.shape_inference.infer_shapes(proto, strict_mode=True, data_prop=True)
    onnx.save(proto, tmp_path / "m.onnx")
    graph = load(tmp_path / "m.onnx").graph
    for info in truth.graph.output:
        kind = info.type.tensor_type
        assert graph[info.name].shape == tuple(dim.dim_value for dim in kind.shape.dim), info.name
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        assert graph[info.name].dtype.name == str(dtype), info.name
