"""What a `.tflite` file stores: names, bytes of every form, references, options."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from peakfold.analysis import static_bytes, unsupported
from peakfold.errors import ModelError
from peakfold.frontends import load
from peakfold.frontends.tflite.file import parse_tflite, read_tflite
from peakfold.frontends.tflite.names import names_of_model
from peakfold.frontends.tflite.schema import schema
from peakfold.ir import Role
from peakfold.planning import make_plan
from peakfold.transform import replay
from tests.conftest import SHARED

from .tflite_models import Builder


def saved(owner: Builder, folder: Path) -> Path:
    path = folder / "model.tflite"
    path.write_bytes(owner.data())
    return path


def chain(owner: Builder, *constants: dict, options: str = "") -> None:
    """An input added to each constant in turn."""
    main = owner.graph()
    last = main.input((2, 3), name="x")
    for more in constants:
        made = main.tensor((2, 3), name="")
        main.op("ADD", [last, main.tensor(**more)], [made], options)
        last = made
    main.outputs(last)


def test_names_are_unique_and_lead_back(tmp_path):
    owner = Builder()
    main = owner.graph()
    x, same, empty = (
        main.input((4,), name="x"),
        main.tensor((4,), name="x"),
        main.tensor((4,), name=""),
    )
    main.op("NEG", [x], [same])
    main.op("ABS", [same], [empty])
    main.op("CALL_ONCE", [], [], "CallOnceOptions", initSubgraphIndex=1)
    main.outputs(empty)
    init = owner.graph("init")
    init.tensor((4,), name="x")
    path = saved(owner, tmp_path)
    file, graph = read_tflite(path), load(path).graph
    names = names_of_model(file)
    assert [names.tensor[0, at] for at in range(3)] == ["x", "x:1", "tensor:2"]
    assert names.tensor[1, 0] == "1/x"
    assert [op.name for op in graph.ops] == [names.op[0, at] for at in range(3)]
    assert [op.name for op in graph.ops] == ["x:1", "tensor:2", "call_once:2"]
    assert all(names.tensor[place] == name for name, place in names.tensor_at.items())
    assert all(names.op[place] == name for name, place in names.op_at.items())


def test_names_that_look_like_made_ones_stay_apart(tmp_path):
    owner = Builder()
    main = owner.graph()
    x = main.input((2, 3), name="tensor:2")
    one = main.tensor((2, 3), name="random_state")
    two, three = main.tensor((2, 3), name=""), main.tensor((2, 3), name="tensor:2")
    shape = main.constant([2, 3], "int32", "x")
    main.op("RANDOM_UNIFORM", [shape], [one], "RandomOptions")
    main.op("ADD", [x, one], [two])
    main.op("NEG", [two], [three])
    main.outputs(three)
    graph = load(saved(owner, tmp_path)).graph
    assert [op.outputs[0] for op in graph.ops] == ["random_state", "tensor:2:2", "tensor:2:3"]
    assert graph.ops[0].writes == ("random_state'",)


def test_padding_that_makes_no_pairs_is_an_unknown_shape(tmp_path):
    owner = Builder()
    main = owner.graph()
    x, y = main.input((2, 3)), main.tensor((), has_rank=False, name="y")
    main.op("PAD", [x, main.constant([1, 2, 3], "int32")], [y], "PadOptions")
    main.outputs(y)
    assert load(saved(owner, tmp_path)).graph["y"].shape is None


@pytest.mark.shared
def test_every_tensor_and_op_of_real_graphs_leads_back_to_the_file():
    for path in sorted((SHARED / "models" / "tflite").glob("*.tflite")):
        file, graph = read_tflite(path), load(path).graph
        names = names_of_model(file)
        assert [names.op_at[op.name] for op in graph.ops] == [(0, n) for n in range(len(graph.ops))]
        for tensor in graph.tensors:
            if tensor.name.startswith("variable:"):
                continue
            number, at = names.tensor_at[tensor.name]
            stored = file.subgraphs[number].tensors[at]
            assert (stored.dtype, stored.shape) == (tensor.dtype, tensor.shape)


def test_four_bit_constants_are_packed(tmp_path):
    owner = Builder()
    main = owner.graph()
    x, y = main.input((1, 5)), main.tensor((1, 3))
    weights = main.tensor((3, 5), "int4", value=np.zeros(8, np.uint8))
    main.op("FULLY_CONNECTED", [x, weights, -1], [y], "FullyConnectedOptions")
    main.outputs(y)
    graph = load(saved(owner, tmp_path)).graph
    assert static_bytes(graph)[Role.PARAMETER] == 8  # 15 elements of half a byte


def test_bytes_that_do_not_fit_their_shape_are_refused(tmp_path):
    owner = Builder()
    chain(owner, {"shape": (2, 3), "name": "w", "value": np.zeros(5, np.float32)})
    with pytest.raises(ModelError, match="20 bytes are stored, its type and shape need 24") as told:
        load(saved(owner, tmp_path))
    assert "tensor 'w'" in str(told.value)


def test_a_shape_that_no_operator_makes_is_a_doubt(tmp_path):
    owner = Builder()
    main = owner.graph()
    x, y = main.input((1, 8)), main.tensor((1, 6), name="y")
    main.op("RELU", [x], [y])
    main.outputs(y)
    graph = load(saved(owner, tmp_path)).graph
    (doubt,) = graph.doubts
    assert "tensor 'y': the file declares [1, 6], its op makes [1, 8]" in doubt
    result = make_plan(graph)
    summary = result.summary
    assert (summary.optimal, summary.order_optimal, summary.total_bytes) == (False, False, None)
    assert summary.unknown == [doubt]
    assert not any((result.plan.proof.packing, result.plan.proof.order))


def test_constants_that_share_bytes_are_counted_once(tmp_path):
    owner = Builder()
    first = {"shape": (2, 3), "value": np.zeros(6, np.float32)}
    chain(owner, first, {"shape": (2, 3), "buffer": 1}, {"shape": (1, 6), "buffer": 1})
    graph = load(saved(owner, tmp_path)).graph
    assert static_bytes(graph)[Role.PARAMETER] == 24
    first, second, third = (op.inputs[1] for op in graph.ops)
    assert first == second  # the same type and shape: the same tensor
    assert (graph[third].shape, graph[third].nbytes) == ((1, 6), 0)


def test_bytes_behind_the_flatbuffer_are_found(tmp_path):
    owner = Builder()
    main = owner.graph()
    x, y = main.input((2, 3)), main.tensor((3, 2))
    shape = main.tensor((2,), "int32", name="shape")
    main.op("RESHAPE", [x, shape], [y], "ReshapeOptions")
    main.outputs(y)
    stored = schema().BufferT()
    owner.model.buffers.append(stored)
    owner.model.subgraphs[0].tensors[2].buffer = 1
    stored.offset, stored.size = 2**20, 8
    path = tmp_path / "model.tflite"
    start = len(owner.data())  # the same length whatever the numbers are
    stored.offset = start
    path.write_bytes(owner.data() + np.array([3, 2], "<i4").tobytes())
    graph = load(path).graph
    assert graph.ops[0].attrs["shape"] == (3, 2)
    assert static_bytes(graph)[Role.PARAMETER] == 8
    path.write_bytes(owner.data() + b"\0" * 7)
    with pytest.raises(ModelError, match="behind the end of the file"):
        load(path)


@pytest.mark.parametrize(
    ("number", "length", "packing", "message"),
    [
        (7, 24, None, ""),
        (7, 23, None, "23 bytes are stored outside, its type and shape need 24"),
        (7, 2**63, None, "bytes are stored outside"),
        (7, 12, "packed somehow", ""),
        (8, 24, None, "number 8, which is not listed"),
    ],
)
def test_bytes_in_another_file_are_as_many_as_needed(number, length, packing, message, tmp_path):
    owner = Builder()
    chain(owner, {"shape": (2, 3), "name": "w"})
    (weight,) = [t for t in owner.model.subgraphs[0].tensors if t.name == "w"]
    weight.externalBuffer = number
    group, outside = schema().ExternalBufferGroupT(), schema().ExternalBufferT()
    group.name = "../../etc/passwd"  # never opened
    outside.id, outside.length, outside.packing = 7, length, packing
    owner.model.externalBufferGroups, owner.model.externalBuffers = [group], [outside]
    path = saved(owner, tmp_path)
    if message:
        with pytest.raises(ModelError, match=message):
            load(path)
    else:
        assert load(path).graph["w"].nbytes == 24


def test_dimensions_are_no_more_than_arrays_have(tmp_path):
    owner = Builder()
    main = owner.graph()
    x, y = main.input((1,) * 65), main.tensor((1,) * 65)
    main.op("NEG", [x], [y])
    main.outputs(y)
    with pytest.raises(ModelError, match="64 dimensions"):
        load(saved(owner, tmp_path))


def test_weights_are_not_read(tmp_path):
    """Half a gigabyte behind the flatbuffer, in a file with a hole: mapped, never touched."""
    import resource

    owner = Builder()
    main = owner.graph()
    x, y = main.input((1, 2**14), "int8"), main.tensor((1, 2**15), "int8")
    weights = main.tensor((2**15, 2**14), "int8")
    main.op("FULLY_CONNECTED", [x, weights, -1], [y], "FullyConnectedOptions")
    main.outputs(y)
    stored = schema().BufferT()
    owner.model.buffers.append(stored)
    owner.model.subgraphs[0].tensors[weights].buffer = 1
    stored.offset, stored.size = 2**20, 2**29
    path = tmp_path / "model.tflite"
    with path.open("wb") as stream:
        stream.write(owner.data())
        stream.truncate(2**20 + 2**29)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    graph = load(path).graph
    assert static_bytes(graph)[Role.PARAMETER] == 2**29
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def test_half_precision_weights_fold_only_when_asked(tmp_path):
    owner = Builder()
    main = owner.graph()
    x, wide, y = main.input((2, 3)), main.tensor((2, 3), name="wide"), main.tensor((2, 3))
    half = main.constant(np.zeros((2, 3)), "float16", "half")
    main.op("DEQUANTIZE", [half], [wide])
    main.op("ADD", [x, wide], [y], "AddOptions")
    main.outputs(y)
    graph = load(saved(owner, tmp_path)).graph
    assert static_bytes(replay(graph, ["fold"]))[Role.PARAMETER] == 12
    folded = replay(graph, ["fold-weights"])
    assert [op.kind for op in folded.ops] == ["add"]
    assert static_bytes(folded)[Role.PARAMETER] == 24


def test_a_strange_custom_operator_is_conservative_counted_and_named(tmp_path):
    owner = Builder()
    main = owner.graph()
    x, y = main.input((2, 3)), main.tensor((2, 3))
    main.op("CUSTOM", [x], [y], custom="MyOp")
    main.outputs(y)
    graph = load(saved(owner, tmp_path)).graph
    assert unsupported(graph) == {"tflite.custom::MyOp": 1}
    summary = make_plan(graph).summary
    assert not summary.workspace_known
    assert summary.arena_bytes == 64  # never over its input


def test_options_become_attributes(tmp_path):
    owner = Builder()
    main = owner.graph()
    x, y = main.input((1, 8, 8, 1)), main.tensor((1, 4, 4, 2))
    w = main.constant(np.zeros((1, 3, 3, 2)), "float32")
    main.op(
        "DEPTHWISE_CONV_2D",
        [x, w, -1],
        [y],
        "DepthwiseConv2DOptions",
        padding=0,
        strideH=2,
        strideW=2,
        depthMultiplier=2,
        fusedActivationFunction=3,
    )
    main.outputs(y)
    (op,) = load(saved(owner, tmp_path)).graph.ops
    assert op.inputs[2] == ""
    assert op.attrs == {
        "padding": "same",
        "stride_h": 2,
        "stride_w": 2,
        "depth_multiplier": 2,
        "fused_activation": "relu6",
        "dilation_h_factor": 1,
        "dilation_w_factor": 1,
    }


def test_a_fused_activation_forbids_building_a_concatenation_in_place(tmp_path):
    owner = Builder()
    main = owner.graph()
    x, a, y = main.input((2, 3)), main.tensor((2, 3)), main.tensor((4, 3))
    main.op("NEG", [x], [a])
    main.op("CONCATENATION", [a, x], [y], "ConcatenationOptions", fusedActivationFunction=1)
    main.outputs(y)
    graph = load(saved(owner, tmp_path)).graph
    assert unsupported(graph) == {"tflite::concatenation_with_activation": 1}


def test_several_signatures_are_noted(tmp_path):
    owner = Builder()
    chain(owner, {"shape": (2, 3), "value": np.zeros(6, np.float32)})
    owner.model.signatureDefs = []
    for name in ("encode", "decode"):
        signature = schema().SignatureDefT()
        signature.signatureKey, signature.inputs, signature.outputs = name, [], []
        owner.model.signatureDefs.append(signature)
    (note,) = load(saved(owner, tmp_path)).graph.notes
    assert "2 signatures (encode, decode)" in note


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda g: setattr(g, "inputs", [99]), "names tensor 99 of"),
        (lambda g: setattr(g.operators[0], "inputs", [0, 99]), "a tensor that does not exist"),
        (lambda g: setattr(g.operators[0], "opcodeIndex", 9), "has code 9 of 1"),
        (lambda g: setattr(g.tensors[0], "buffer", 9), "has buffer 9 of 2"),
        (lambda g: setattr(g.tensors[0], "shape", [-7]), "negative dimension"),
        (lambda g: setattr(g.tensors[1], "buffer", 0), "reads 't1', which nothing makes"),
        (lambda g: setattr(g.operators[0], "outputs", [0]), "is an input and made by"),
        (lambda g: setattr(g, "outputs", [1, 1]), ""),
    ],
)
def test_broken_references_are_named(change, message, tmp_path):
    owner = Builder()
    main = owner.graph()
    x, w, y = main.input((4,)), main.tensor((4,), value=np.zeros(4, np.float32)), main.tensor((4,))
    main.op("ADD", [x, w], [y])
    main.outputs(y)
    change(main.graph)
    path = saved(owner, tmp_path)
    if not message:
        load(path)
        return
    with pytest.raises(ModelError, match=message) as told:
        load(path)
    assert "model.tflite" in str(told.value)


@pytest.mark.shared
def test_every_truncation_of_a_real_file_is_refused():
    data = (SHARED / "models" / "tflite" / "hello_world_int8.tflite").read_bytes()
    rng = random.Random(0)
    for length in [*range(64), *rng.sample(range(64, len(data)), 200)]:
        with pytest.raises(ModelError):
            parse_tflite(memoryview(data[:length]))
    assert len(parse_tflite(memoryview(data)).subgraphs) == 1
