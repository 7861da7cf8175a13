"""`.tflite` files made to hurt end in one clean error. Broken ones are in tests/fuzzing."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from peakfold.errors import ModelError
from peakfold.frontends import load

SECONDS = 5.0
"""CPU time that one file may take."""


def test_a_small_file_that_repeats_itself_is_refused(tmp_path: Path) -> None:
    """Every subgraph offset leads to the same subgraph, whose tensors all are the same one."""
    import struct

    import flatbuffers

    from peakfold.frontends.tflite.schema import schema

    s = schema()
    builder = flatbuffers.Builder(1024)
    s.TensorStart(builder)
    tensor = s.TensorEnd(builder)

    def many(target: int, count: int) -> int:
        builder.StartVector(4, count, 4)
        for _ in range(count):
            builder.PrependUOffsetTRelative(target)
        return builder.EndVector()

    tensors = many(tensor, 20_000)
    s.SubGraphStart(builder)
    s.SubGraphAddTensors(builder, tensors)
    graphs = many(s.SubGraphEnd(builder), 20_000)
    s.ModelStart(builder)
    s.ModelAddSubgraphs(builder, graphs)
    builder.Finish(s.ModelEnd(builder), file_identifier=b"TFL3")
    path = tmp_path / "bomb.tflite"
    path.write_bytes(bytes(builder.Output()))
    assert struct.calcsize("<I") * 40_000 < path.stat().st_size < 200_000
    start = time.process_time()
    with pytest.raises(ModelError, match="repeats"):
        load(path)
    assert time.process_time() - start < SECONDS


@pytest.mark.parametrize("data", [b"", b"TFL3", b"\0" * 64, b"\x1c\0\0\0TFL3" + b"\xff" * 64])
def test_what_is_no_model_is_named(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.tflite"
    path.write_bytes(data)
    with pytest.raises(ModelError) as caught:
        load(path)
    assert str(path) in str(caught.value)
