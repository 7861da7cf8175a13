"""What an ONNX file may not make onnx's C++ do, and sizes, nesting and numbers that are refused."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import ModelProto, TensorProto, helper

from peakfold.errors import ModelError
from peakfold.frontends import load
from peakfold.ir import Graph
from peakfold.ir.check import MAX_NESTING

F32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def value(name: str, dims: list[Any] | None, kind: int = F32) -> Any:
    return helper.make_tensor_value_info(name, kind, dims)


def model(
    nodes: list[Any],
    inputs: list[Any],
    outputs: list[Any],
    *,
    stored: list[Any] | None = None,
    functions: list[Any] | None = None,
    opset: int = 18,
) -> ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, outputs, stored or [])
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("f", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9, functions=functions or [])


def read(proto: ModelProto, folder: Path) -> Graph:
    path = folder / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    return load(path).graph


def refused(proto: ModelProto, folder: Path, words: str) -> str:
    with pytest.raises(ModelError, match=words) as caught:
        read(proto, folder)
    assert len(str(caught.value)) < 1000
    return str(caught.value)


def relu() -> ModelProto:
    return model([helper.make_node("Relu", ["x"], ["y"])], [value("x", [2])], [value("y", [2])])


@pytest.mark.parametrize("version", [2**31, 2**40, 2**63 - 1, -1])
def test_versions_beyond_32_bits_are_refused(version: int, tmp_path: Path) -> None:
    proto = relu()
    proto.ir_version = version
    refused(proto, tmp_path, "IR version")
    proto = relu()
    proto.opset_import[0].version = version
    refused(proto, tmp_path, "opset version")


# Each of these ends the process, or takes it out of bounds, when onnx's own rule sees it.
@pytest.mark.parametrize(
    ("op", "inputs", "outputs", "attrs"),
    [
        ("LayerNormalization", [[2, 4], [4]], 1, {"axis": 2**31}),
        ("LayerNormalization", [[2, 4], [4]], 1, {"axis": 3}),
        ("LayerNormalization", [[2, 4], [4]], 1, {"axis": -(2**63)}),
        ("GatherND", [[8, 8], [8, 1]], 1, {"batch_dims": -1}),
        ("GatherND", [[8, 8], [8, 1]], 1, {"batch_dims": 2**40}),
        ("Split", [[4, 4]], 3, {"num_outputs": 1}),
        ("Split", [[4, 4]], 1, {"num_outputs": 2**62}),
        ("Einsum", [[2, 2]], 1, {"equation": "." * 30}),
        ("Concat", [[2, 2], [2, 2]], 1, {"axis": 2**40}),
        ("Softmax", [[2, 2]], 1, {"axis": -(2**40)}),
        ("Transpose", [[2, 2]], 1, {"perm": [2**40, 0]}),
        ("Transpose", [[2, 2]], 1, {"perm": list(range(100))}),
    ],
)
def test_numbers_that_c_trusts_are_looked_at_first(
    op: str, inputs: list[list[int]], outputs: int, attrs: dict[str, Any], tmp_path: Path
) -> None:
    kind = {1: I64} if op == "GatherND" else {}
    given = [value(f"x{at}", dims, kind.get(at, F32)) for at, dims in enumerate(inputs)]
    made = [f"y{at}" for at in range(outputs)]
    node = helper.make_node(op, [info.name for info in given], made, **attrs)
    # Declared shapes do not help: what the op's own rule refuses is not believed.
    refused(model([node], given, [value(name, [2, 2]) for name in made]), tmp_path, "not a valid")


def test_a_scalar_is_no_matrix_whatever_is_declared(tmp_path: Path) -> None:
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    for dims in ([], [3, 5]):
        given = [value("x", dims), value("w", [4, 4])]
        refused(model([node], given, [value("y", [4])]), tmp_path, "do not fit")


def branch(name: str) -> Any:
    return helper.make_graph(
        [helper.make_node("Relu", ["x"], [name])], name, [], [value(name, [2])]
    )


@pytest.mark.parametrize(("kind", "dims"), [(F32, []), (I64, [1]), (BOOL, [3])])
def test_a_condition_is_one_truth_value(kind: int, dims: list[int], tmp_path: Path) -> None:
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch("a"), else_branch=branch("b"))
    given = [value("c", dims, kind), value("x", [2])]
    refused(model([node], given, [value("y", [2])]), tmp_path, r"op 'y' \(If\): its condition is")
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["d"])],
        "b",
        [value("i", [], I64), value("c", [], BOOL)],
        [value("d", [], BOOL)],
    )
    node = helper.make_node("Loop", ["", "c"], [], body=body)
    refused(model([node], given[:1], [value("c", dims, kind)]), tmp_path, "its condition is")


def test_a_declared_shape_that_the_op_does_not_make_is_noted(tmp_path: Path) -> None:
    proto = relu()
    proto.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 5
    graph = read(proto, tmp_path)
    assert graph["y"].shape == (2,)
    assert any("declares float32[5], its op makes float32[2]" in note for note in graph.notes)


def nested(depth: int) -> Any:
    name = f"o{depth}"
    if not depth:
        node = helper.make_node("Relu", ["x"], [name])
    else:
        other = helper.make_graph(
            [helper.make_node("Relu", ["x"], ["e"])], "e", [], [value("e", [2])]
        )
        node = helper.make_node(
            "If", ["c"], [name], then_branch=nested(depth - 1), else_branch=other
        )
    return helper.make_graph([node], "g", [], [value(name, [2])])


def test_bodies_nest_up_to_the_limit(tmp_path: Path) -> None:
    for depth in (MAX_NESTING, MAX_NESTING + 1):
        graph = nested(depth)
        graph.input.extend([value("c", [], BOOL), value("x", [2])])
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        if depth > MAX_NESTING:
            refused(proto, tmp_path, "nests too deeply")
        else:
            read(proto, tmp_path)
    # More levels than protobuf itself reads: attribute, graph, node in each other.
    deep = b""
    for _ in range(50):
        for tag in (b"\x32", b"\x2a", b"\x0a"):
            deep = tag + encoded(len(deep)) + deep
    (tmp_path / "deep.onnx").write_bytes(b"\x08\x08\x3a" + encoded(len(deep)) + deep)
    with pytest.raises(ModelError, match="not an ONNX model.*nest"):
        load(tmp_path / "deep.onnx")


def encoded(number: int) -> bytes:
    """A number as protobuf writes it."""
    parts = bytearray()
    while number > 127:
        parts.append(number % 128 + 128)
        number //= 128
    return bytes([*parts, number])


def test_dimensions_are_no_more_than_arrays_have(tmp_path: Path) -> None:
    node = helper.make_node("Flatten", ["x"], ["y"])
    for dims in ([1] * 65, [2**40] * 3000):
        refused(model([node], [value("x", dims)], [value("y", None)]), tmp_path, "64 dimensions")
        stored = TensorProto(name="x", data_type=F32, dims=dims)
        refused(model([node], [], [value("y", None)], stored=[stored]), tmp_path, "64 dimensions")


def growing(depth: int) -> Any:
    """A loop body whose carried value grows, with such a loop inside, and so on."""
    inner = []
    if depth:
        inner = [helper.make_node("Loop", ["M", "", "one"], [f"g{depth}"], body=growing(depth - 1))]
    nodes = [
        *inner,
        helper.make_node("Concat", [f"v{depth}"] * 2, [f"w{depth}"], axis=0),
        helper.make_node("Identity", [f"c{depth}"], [f"d{depth}"]),
    ]
    given = [value(f"i{depth}", [], I64), value(f"c{depth}", [], BOOL), value(f"v{depth}", [1])]
    return helper.make_graph(
        nodes, "b", given, [value(f"d{depth}", [], BOOL), value(f"w{depth}", None)]
    )


def test_loops_in_loops_are_not_walked_without_end(tmp_path: Path) -> None:
    one = helper.make_tensor("one", F32, [1], [1.0])
    for depth, fine in ((5, True), (20, False)):
        node = helper.make_node("Loop", ["M", "", "one"], ["y"], body=growing(depth))
        proto = model([node], [value("M", [], I64)], [value("y", None)], stored=[one])
        start = time.process_time()
        if fine:
            read(proto, tmp_path)
        else:
            refused(proto, tmp_path, "walked too often")
        assert time.process_time() - start < 12


def function(name: str, *calls: str) -> Any:
    nodes, at = [], "x"
    for number, callee in enumerate(calls):
        nodes.append(helper.make_node(callee, [at], [f"t{number}"], domain="f"))
        at = f"t{number}"
    nodes.append(helper.make_node("Relu", [at], ["y"]))
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("f", 1)]
    return helper.make_function("f", name, ["x"], ["y"], nodes, opsets)


@pytest.mark.parametrize(
    ("functions", "words"),
    [
        (
            [function(f"f{n}", *[f"f{n + 1}"] * 2) for n in range(40)] + [function("f40")],
            "more than 1000000 nodes",
        ),
        ([function(f"f{n}", f"f{n + 1}") for n in range(3000)] + [function("f3000")], "100 deep"),
        ([function("f0", "f1"), function("f1", "f0")], "calls itself"),
    ],
)
def test_functions_that_grow_without_end_are_refused_before_they_are_inlined(
    functions: list[Any], words: str, tmp_path: Path
) -> None:
    node = helper.make_node("f0", ["x"], ["y"], domain="f")
    proto = model([node], [value("x", [2])], [value("y", [2])], functions=functions)
    refused(proto, tmp_path, words)


def test_what_a_function_stores_lies_in_the_folder_too(tmp_path: Path) -> None:
    stored = TensorProto(name="w", data_type=F32, dims=[2], data_location=TensorProto.EXTERNAL)
    stored.external_data.add(key="location", value="/etc/hostname")
    nodes = [
        helper.make_node("Constant", [], ["w"], value=stored),
        helper.make_node("Add", ["x", "w"], ["y"]),
    ]
    kept = helper.make_function("f", "f0", ["x"], ["y"], nodes, [helper.make_opsetid("", 18)])
    node = helper.make_node("f0", ["x"], ["y"], domain="f")
    proto = model([node], [value("x", [2])], [value("y", [2])], functions=[kept])
    refused(proto, tmp_path, "outside the model's folder")


def test_a_value_is_computed_only_where_little_work_and_memory_is_sure(tmp_path: Path) -> None:
    # An equation over four axes of 1,024 is 10^12 products for one number.
    shape = helper.make_tensor("t", I64, [1024], [1] * 1024)
    nodes = [
        helper.make_node("Einsum", ["t"] * 4, ["s"], equation="a,b,c,d->"),
        helper.make_node("Reshape", ["x", "u"], ["y"]),
        helper.make_node("Unsqueeze", ["s", "zero"], ["u"]),
    ]
    zero = helper.make_tensor("zero", I64, [1], [0])
    proto = model(nodes, [value("x", [4])], [value("y", None)], stored=[shape, zero])
    start = time.process_time()
    assert read(proto, tmp_path)["y"].shape is None
    # A size of more elements than numpy counts.
    nodes = [helper.make_node("Size", ["x"], ["s"]), *nodes[1:]]
    proto = model(nodes, [value("x", [2**47] * 2)], [value("y", None)], stored=[zero])
    refused(proto, tmp_path, "more than any machine addresses")
    assert time.process_time() - start < 5


RAW = [
    (F32, [2], 8, True),
    (F32, [2], 7, False),
    (F32, [2], 12, False),
    (F32, [], 4, True),
    (F32, [0], 4, False),
    (TensorProto.INT4, [3], 2, True),
    (TensorProto.INT4, [3], 3, False),
    (TensorProto.BOOL, [3], 3, True),
    (TensorProto.COMPLEX64, [1], 8, True),
    (TensorProto.BFLOAT16, [3], 4, False),
    (F32, [2**40], 8, False),
    (F32, [3], 0, True),  # weights that were stripped are another matter
]


@pytest.mark.parametrize(("kind", "dims", "size", "fine"), RAW)
@pytest.mark.parametrize("place", ["initializer", "constant", "attribute"])
def test_inline_data_is_as_long_as_type_and_shape_need(
    kind: int, dims: list[int], size: int, fine: bool, place: str, tmp_path: Path
) -> None:
    stored = TensorProto(name="w", data_type=kind, dims=dims, raw_data=bytes(size))
    nodes = [helper.make_node("Identity", ["w"], ["y"])]
    if place == "constant":
        nodes.insert(0, helper.make_node("Constant", [], ["w"], value=stored))
    elif place == "attribute":
        nodes = [helper.make_node("com.example", ["x"], ["y"], domain="f", table=stored)]
    proto = model(
        nodes,
        [value("x", [1])],
        [value("y", None, kind)],
        stored=[stored] if place == "initializer" else [],
        opset=21,
    )
    if fine:
        read(proto, tmp_path)
    else:
        refused(proto, tmp_path, rf"tensor 'w'.*{size} bytes are stored")


@pytest.mark.parametrize(
    ("kind", "field", "counts"),
    [
        (F32, "float_data", {3: True, 2: False, 4: False}),
        (TensorProto.DOUBLE, "double_data", {3: True, 2: False}),
        (I64, "int64_data", {3: True, 4: False}),
        (TensorProto.UINT32, "uint64_data", {3: True, 4: False}),
        (TensorProto.FLOAT16, "int32_data", {3: True, 2: False}),
        (TensorProto.INT4, "int32_data", {2: True, 3: False}),
        (TensorProto.COMPLEX64, "float_data", {6: True, 3: False}),
        (F32, "int64_data", {3: False}),
    ],
)
def test_typed_data_has_as_many_entries_as_elements(
    kind: int, field: str, counts: dict[int, bool], tmp_path: Path
) -> None:
    for count, fine in counts.items():
        stored = TensorProto(name="w", data_type=kind, dims=[3], **{field: [1] * count})
        proto = model(
            [helper.make_node("Identity", ["w"], ["y"])],
            [],
            [value("y", None, kind)],
            stored=[stored],
            opset=21,
        )
        if fine:
            read(proto, tmp_path)
        else:
            refused(proto, tmp_path, "tensor 'w': (its data lies|. entries are stored)")


def test_a_result_larger_than_any_integer_is_refused(tmp_path: Path) -> None:
    node = helper.make_node("Pad", ["x"], ["y"], pads=[2**62] * 4)  # no such form in opset 18
    refused(model([node], [value("x", [2, 2])], [value("y", None)]), tmp_path, "absurd|valid node")
    old = model([node], [value("x", [2, 2])], [value("y", None)], opset=10)
    refused(old, tmp_path, "absurd")


def test_names_that_are_not_utf8_are_refused(tmp_path: Path) -> None:
    data = relu().SerializeToString().replace(b"Relu", b"\xff\xfe\xfd\xfc")
    (tmp_path / "m.onnx").write_bytes(data)
    with pytest.raises(ModelError):
        load(tmp_path / "m.onnx")


def test_old_models_are_looked_at_before_they_are_converted(tmp_path: Path) -> None:
    node = helper.make_node("Concat", ["x", "x"], ["y"], axis=2**62)
    proto = model([node], [value("x", [2])], [value("y", [4])], opset=6)
    proto.opset_import.pop()
    refused(proto, tmp_path, "out of range")
    assert onnx.defs.onnx_opset_version() > 18
