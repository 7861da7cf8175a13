"""Files written anew: nothing lost without a plan, edits seen by the interpreter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from peakfold.errors import ModelError, RunFailed
from peakfold.frontends.tflite.walk import check_bounds
from peakfold.runtimes.tflite.interpreter import Job, Outcome, equal_outputs, run, run_all
from peakfold.runtimes.tflite.rewrite import Edit, rewrite
from peakfold.runtimes.tflite.schema import Signature, offline_offsets, parse_model
from tests.conftest import SHARED
from tests.runtimes.tflite.build import Build, chain
from tests.runtimes.tflite.models import SHIPPED, path_of

ALL = sorted((SHARED / "models" / "tflite").glob("*.tflite"))


def tree(item: Any) -> Any:
    """Everything an object of the schema holds, as plain values."""
    if isinstance(item, np.ndarray):
        return item.tolist() if item.size < 64 else item.tobytes()
    if isinstance(item, list | tuple):
        return [tree(one) for one in item]
    if hasattr(item, "__dict__"):
        return {name: tree(value) for name, value in vars(item).items()}
    return item


@pytest.mark.shared
@pytest.mark.req("TFL5")
@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_a_round_trip_keeps_everything(path: Path) -> None:
    data = path.read_bytes()
    again = rewrite(data, Edit())
    check_bounds(memoryview(again))
    assert tree(parse_model(again)) == tree(parse_model(data))
    assert rewrite(again, Edit()) == again  # and is at rest


@pytest.mark.shared
@pytest.mark.req("TFL5")
def test_round_trips_run_alike(tmp_path: Path) -> None:
    jobs = []
    for name in SHIPPED[2:9]:
        data = path_of(name).read_bytes()
        shape = Signature.of(parse_model(data))
        copy = tmp_path / f"{Path(name).name}.tflite"
        copy.write_bytes(rewrite(data, Edit()))
        jobs += [
            Job(path, 1 << 22, shape.inputs, shape.results, (1, 2, 3))
            for path in (path_of(name), copy)
        ]
    outcomes = run_all(jobs)
    for before, after in zip(outcomes[::2], outcomes[1::2], strict=True):
        assert isinstance(before, Outcome)
        assert isinstance(after, Outcome)
        assert equal_outputs(before, after)
        assert (before.head, before.tail) == (after.head, after.tail)


def test_constants_start_at_multiples_of_16() -> None:
    made = Build()
    x = made.tensor("FLOAT32", (1, 5))
    for count in (1, 3, 5):  # odd sizes, so that alignment does not come by chance
        made.tensor("INT8", (count,), np.arange(count, dtype=np.int8))
    w = made.tensor("FLOAT32", (1, 5), np.arange(5, dtype=np.float32) + 0.25)
    y = made.tensor("FLOAT32", (1, 5))
    made.op("ADD", [x, w], [y], "AddOptions")
    data = rewrite(made.ends([x], [y]).bytes(), Edit(offsets={(0, x): 0}))
    for needle in (np.arange(5, dtype=np.float32) + 0.25, np.arange(5, dtype=np.int8)):
        assert data.index(needle.tobytes()) % 16 == 0


def test_offsets_replace_offsets() -> None:
    data = chain(["RELU", "TANH"]).bytes()
    first = rewrite(data, Edit(offsets={(0, 0): 32, (0, 1): 64}))
    assert offline_offsets(parse_model(first)) == (32, 64, -1)
    second = rewrite(first, Edit(offsets={(0, 2): 16}))
    assert offline_offsets(parse_model(second)) == (-1, -1, 16)
    assert len(parse_model(second).metadata) == 1
    kept = rewrite(second, Edit())
    assert offline_offsets(parse_model(kept)) == (-1, -1, 16)
    assert offline_offsets(parse_model(rewrite(second, Edit(offsets={})))) is None


def halves() -> Build:
    made = Build()
    x = made.tensor("FLOAT32", (1, 8))
    half = made.tensor("FLOAT16", (1, 8), np.linspace(-2, 2, 8, dtype=np.float16))
    wide = made.tensor("FLOAT32", (1, 8))
    doubled, y = made.tensor("FLOAT32", (1, 8)), made.tensor("FLOAT32", (1, 8))
    made.op("DEQUANTIZE", [half], [wide])
    made.op("ADD", [wide, wide], [doubled], "AddOptions")
    made.op("MUL", [x, doubled], [y], "MulOptions")
    return made.ends([x], [y])


@pytest.mark.req("TFL5")
def test_operators_left_out_become_constants(tmp_path: Path) -> None:
    """Halves are widened here, the sum behind them is the kernel's own."""
    path = tmp_path / "folded.tflite"
    path.write_bytes(rewrite(halves().bytes(), Edit(order={0: [2]})))
    model = parse_model(path.read_bytes())
    assert len(model.subgraphs[0].operators) == 1
    (y,) = run(Job(path, 1 << 16, 1, 1, (4,))).outputs[0]
    x = np.random.default_rng(4).uniform(-1, 1, (1, 8)).astype(np.float32)
    weights = np.linspace(-2, 2, 8, dtype=np.float16).astype(np.float32)
    assert np.array_equal(y, x * (weights + weights))


def test_what_cannot_be_computed_is_named() -> None:
    made = chain(["GELU", "TANH"])
    buffer = made.schema.BufferT()
    buffer.data = np.zeros(1024, np.uint8)
    made.model.buffers.append(buffer)
    made.graph.tensors[0].buffer = len(made.model.buffers) - 1
    with pytest.raises(RunFailed, match=r"GELU.*--no-fold"):
        rewrite(made.bytes(), Edit(order={0: [1]}))


@pytest.mark.parametrize("cut", [0, 7, 40, 300])
def test_broken_files_are_one_error(cut: int) -> None:
    data = chain(["RELU"]).bytes()[:cut]
    with pytest.raises(ModelError):
        rewrite(data, Edit())
