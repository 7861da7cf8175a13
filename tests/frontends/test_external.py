"""External data: checked, never read when only its size matters, and kept inside the folder."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import StringStringEntryProto, TensorProto, helper

from peakfold.errors import ModelError
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
        [helper.make_node("MatMul", ["w", "x"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [dims[1], 1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)], [tensor],
    )  # fmt: skip
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
    with pytest.raises(ModelError, match=r"tensor 'w'.*'w.bin' is missing"):
        load(tmp_path / "m.onnx")
    (tmp_path / "w.bin").write_bytes(bytes(63))
    with pytest.raises(ModelError, match="too short"):
        load(tmp_path / "m.onnx")
    write(tmp_path / "m.onnx", "w.bin", dims=[4, 4], offset=-1)
    with pytest.raises(ModelError, match="too short"):
        load(tmp_path / "m.onnx")


def test_a_small_external_value_that_decides_a_shape_is_read(tmp_path: Path) -> None:
    import numpy as np

    target = TensorProto(name="target", data_type=TensorProto.INT64, dims=[2])
    target.data_location = TensorProto.EXTERNAL
    target.external_data.append(StringStringEntryProto(key="location", value="s.bin"))
    (tmp_path / "s.bin").write_bytes(np.array([2, 6], np.int64).tobytes())
    graph = helper.make_graph(
        [helper.make_node("Reshape", ["x", "target"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], [target],
    )  # fmt: skip
    opset = [helper.make_opsetid("", 17)]
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    assert load(path).graph["y"].shape == (2, 6)
