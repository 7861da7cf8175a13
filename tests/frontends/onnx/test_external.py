"""External data: checked, never read when only its size matters, and kept inside the folder."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import StringStringEntryProto, TensorProto, helper

from peakfold.analysis import cost_of
from peakfold.errors import ModelError, UsageError
from peakfold.frontends import load
from peakfold.planning import make_plan

GIB = 2**30


def write(path: Path, location: str, *, dims: list[int], offset: int = 0, length: int = 0) -> None:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims)
    tensor.data_location = TensorProto.EXTERNAL
    fields = {"location": location, "offset": str(offset), "length": str(length)}
    for key, value in fields.items():
        tensor.external_data.append(StringStringEntryProto(key=key, value=value))
    shape = [dims[0], 1]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["w", "x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [dims[1], 1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [tensor],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)


def test_weights_are_sized_without_being_read(tmp_path: Path) -> None:
    # A sparse file of 8 GiB: reading it would take longer and more memory than this test has.
    with (tmp_path / "w.bin").open("wb") as file:
        file.truncate(8 * GIB)
    write(tmp_path / "m.onnx", "w.bin", dims=[2**16, 2**15], length=8 * GIB)
    summary = make_plan(load(tmp_path / "m.onnx").graph).summary
    assert summary.static_bytes == 8 * GIB
    assert summary.arena_bytes == 4 * 2**16


@pytest.mark.parametrize("location", ["../w.bin", "/etc/hostname", "sub/../../w.bin", "link.bin"])
def test_paths_out_of_the_models_folder_are_refused(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "w.bin").write_bytes(bytes(64))
    (folder / "link.bin").symlink_to(tmp_path / "w.bin")
    write(folder / "m.onnx", location, dims=[4, 4])
    with pytest.raises(ModelError, match="outside the model's folder"):
        load(folder / "m.onnx")


def test_missing_and_short_files_are_named(tmp_path: Path) -> None:
    write(tmp_path / "m.onnx", "w.bin", dims=[4, 4], length=64)
    assert any("'w.bin' is missing" in note for note in load(tmp_path / "m.onnx").graph.notes)
    (tmp_path / "w.bin").write_bytes(bytes(63))
    with pytest.raises(ModelError, match="too short"):
        load(tmp_path / "m.onnx")
    write(tmp_path / "m.onnx", "w.bin", dims=[4, 4], offset=-1)
    with pytest.raises(ModelError, match="too short"):
        load(tmp_path / "m.onnx")
    (tmp_path / "w.bin").write_bytes(bytes(100))
    for length in (60, 68):  # what is stated is not what type and shape need
        write(tmp_path / "m.onnx", "w.bin", dims=[4, 4], length=length)
        with pytest.raises(ModelError, match=f"{length} bytes of external data are stored, .* 64"):
            load(tmp_path / "m.onnx")


def test_a_small_external_value_that_decides_a_shape_is_read(tmp_path: Path) -> None:
    import numpy as np

    target = TensorProto(name="target", data_type=TensorProto.INT64, dims=[2])
    target.data_location = TensorProto.EXTERNAL
    target.external_data.append(StringStringEntryProto(key="location", value="s.bin"))
    (tmp_path / "s.bin").write_bytes(np.array([2, 6], np.int64).tobytes())
    graph = helper.make_graph(
        [helper.make_node("Reshape", ["x", "target"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [target],
    )
    opset = [helper.make_opsetid("", 17)]
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    assert load(path).graph["y"].shape == (2, 6)


def _in_a_cache(tmp_path: Path) -> Path:
    """A model and its data as a Hugging Face cache keeps them: links into one folder of blobs."""
    blobs, here = tmp_path / "blobs", tmp_path / "snapshots" / "r"
    blobs.mkdir()
    here.mkdir(parents=True)
    write(blobs / "aaa", "model.onnx_data", dims=[64, 64], length=16384)
    (blobs / "bbb").write_bytes(bytes(16384))
    for name, blob in (("model.onnx", "aaa"), ("model.onnx_data", "bbb")):
        (here / name).symlink_to(f"../../blobs/{blob}")
    return here / "model.onnx"


def test_links_of_a_cache_are_followed(tmp_path: Path) -> None:
    graph = load(_in_a_cache(tmp_path)).graph
    assert make_plan(graph).summary.static_bytes == 16_384
    assert cost_of(graph).total().figures.macs == 4096
    assert not graph.notes


def test_links_of_a_cache_lead_no_further_than_its_blobs(tmp_path: Path) -> None:
    model = _in_a_cache(tmp_path)
    (tmp_path / "secret").write_bytes(bytes(16384))
    data = model.parent / "model.onnx_data"
    data.unlink()
    data.symlink_to(tmp_path / "secret")
    with pytest.raises(ModelError, match="outside the model's folder"):
        load(model)


def test_data_may_be_absent_where_only_shapes_are_needed(tmp_path: Path) -> None:
    file = tmp_path / "m.onnx"
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 64\n"
    for location, data, words in (
        ("w.bin", None, "missing"),
        ("lfs.bin", pointer, "git lfs pull"),
        ("*/_ORT_MEM_ADDR_/*", None, "in a process's memory"),
    ):
        if data is not None:
            (tmp_path / location).write_bytes(data)
        write(file, location, dims=[4, 4], length=64)
        graph = load(file).graph
        assert make_plan(graph).summary.static_bytes == 64
        assert any(words in note for note in graph.notes), location


def test_a_pointer_of_git_lfs_is_named(tmp_path: Path) -> None:
    for name in ("m.onnx", "m.tflite", "m.pf"):
        file = tmp_path / name
        file.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
        with pytest.raises(ModelError, match="git lfs pull"):
            load(file)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("m.ort", "onnx"),
        ("m.pth", "module:callable"),
        ("m.gguf", "export"),
        ("m.h5", "tflite"),
        ("m.keras", "tflite"),
        ("m.onnxtxt", "parser"),
        ("m.mlmodel", "onnx"),
        ("m.pt", "pt2"),
    ],
)
def test_a_format_that_is_not_read_says_what_to_do(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(UsageError) as caught:
        load(tmp_path / name)
    assert words in caught.value.hint


def test_a_model_without_a_version_says_so(tmp_path: Path) -> None:
    file = tmp_path / "m.onnx"
    (tmp_path / "w.bin").write_bytes(bytes(64))
    write(file, "w.bin", dims=[4, 4])
    model = onnx.load(file, load_external_data=False)
    model.ClearField("ir_version")
    file.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match="has no ir_version"):
        load(file)
