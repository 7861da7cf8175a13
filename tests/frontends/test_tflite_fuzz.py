"""Mutated and truncated `.tflite` files end in a plan or in one clean error, nothing else."""

from __future__ import annotations

import random
import resource
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from peakfold.errors import ModelError
from peakfold.frontends import load
from peakfold.planning import make_plan
from peakfold.planning.options import PlanOptions
from peakfold.planning.verify import verify_plan

from .mutate_tflite import mutate_bytes, mutate_structure

ROUNDS = 250
SMALL = 60_000
SECONDS = 5.0
"""CPU time that one file may take."""
FAST = PlanOptions(strategy="by-size")


def seeds(shared: Path) -> list[bytes]:
    """Small real models: the fuzzer spends its time on structure, not on weights."""
    files = [*(shared / "models" / "tflite").glob("*.tflite"),
             *(shared / "data" / "mlperf_tiny").glob("*.tflite")]  # fmt: skip
    return [f.read_bytes() for f in sorted(files) if f.stat().st_size < SMALL]


def outcome(path: Path) -> str:
    """What became of a file: its plan's verdict or that it was refused."""
    start = time.process_time()
    try:
        loaded = load(path)
        plan = make_plan(loaded.graph, FAST, bindings=loaded.bindings).plan
    except ModelError as error:
        assert "\n" not in str(error)
        assert "please report" not in str(error)
        assert error.where
        verdict = "refused"
    else:
        assert all(check.ok for check in verify_plan(loaded.graph, plan))
        verdict = "planned"
    assert time.process_time() - start < SECONDS
    return verdict


@pytest.mark.shared
@pytest.mark.parametrize("mutate", [mutate_bytes, mutate_structure])
def test_mutated_models_are_planned_or_refused_cleanly(
    mutate: Callable[[bytes, random.Random], bytes], shared: Path, tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    models = seeds(shared)
    assert len(models) > 6
    seen: Counter[str] = Counter()
    path = tmp_path / "mutant.tflite"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(ROUNDS):
        rng = random.Random(number)
        path.write_bytes(mutate(rng.choice(models), rng))
        seen[outcome(path)] += 1
    assert set(seen) == {"planned", "refused"}  # the fuzzer reaches both ends
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 100_000, f"{grown} KiB more than before"
    assert capfd.readouterr() == ("", "")


def test_a_small_file_that_repeats_itself_is_refused(tmp_path: Path) -> None:
    """Every subgraph offset leads to the same subgraph, whose tensors all are the same one."""
    import struct

    import flatbuffers

    from peakfold.frontends.tflite_schema import schema

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
