"""The judge of a file's own layout, and what it must reject."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from peakfold.errors import ModelError
from peakfold.runtimes.tflite.file_judge import judge_file
from peakfold.runtimes.tflite.interpreter import Job, Outcome, equal_outputs, run_all
from peakfold.runtimes.tflite.rewrite import Edit, rewrite
from peakfold.runtimes.tflite.schema import parse_model
from tests.runtimes.tflite.build import Build, chain
from tests.runtimes.tflite.models import SHIPPED, path_of
from tests.runtimes.tflite.test_allocator import branching, random_model

SIZE = 1024


def judged(data: bytes, tmp_path: Path) -> tuple[bool, str]:
    path = tmp_path / "file.tflite"
    path.write_bytes(data)
    check = judge_file(path)
    return check.ok, check.detail


@pytest.mark.shared
@pytest.mark.req("TFL6")
@pytest.mark.parametrize("name", SHIPPED)
def test_files_without_offsets_pass(name: str) -> None:
    check = judge_file(path_of(name))
    assert check.ok, check.detail


@pytest.mark.req("TFL6")
def test_overlaps_of_a_chain(tmp_path: Path) -> None:
    data = chain(["RELU", "TANH"]).bytes()
    good = Edit(offsets={(0, 0): 0, (0, 1): 0, (0, 2): 0})  # both operators work in place
    assert judged(rewrite(data, good), tmp_path)[0]
    for shift in (4, 16, SIZE - 4):  # in place only at the very same address
        ok, why = judged(rewrite(data, Edit(offsets={(0, 0): 0, (0, 1): shift})), tmp_path)
        assert not ok
        assert "still reads" in why


@pytest.mark.req("TFL6")
def test_a_value_with_a_later_reader_is_not_overwritten(tmp_path: Path) -> None:
    made = Build()
    x, a, b, c = (made.tensor("FLOAT32", (1, 64)) for _ in range(4))
    made.op("RELU", [x], [a])
    made.op("TANH", [a], [b])
    made.op("ADD", [a, b], [c], "AddOptions")
    data = made.ends([x], [c]).bytes()
    fine = Edit(offsets={(0, x): 0, (0, a): 0, (0, b): 256, (0, c): 0})
    assert judged(rewrite(data, fine), tmp_path)[0]
    ok, why = judged(rewrite(data, Edit(offsets={(0, a): 0, (0, b): 0})), tmp_path)
    assert not ok
    assert "operator 2 (ADD) reads tensor 1" in why


@pytest.mark.req("TFL6")
def test_operators_out_of_order(tmp_path: Path) -> None:
    data = chain(["RELU", "TANH", "ABS"]).bytes()
    ok, why = judged(rewrite(data, Edit(order={0: [1, 0, 2]})), tmp_path)
    assert not ok
    assert "before" in why


@pytest.mark.req("TFL6")
def test_scratch_must_not_lie_in_an_operand(tmp_path: Path) -> None:
    """The interpreter keeps its own scratch clear of operands, so only its size can go wrong."""
    made = Build()
    x = made.tensor("FLOAT32", (1, 4, 4, 8))
    axis = made.tensor("INT32", (2,), np.array([1, 2], np.int32))
    y, z = made.tensor("FLOAT32", (1, 8)), made.tensor("FLOAT32", (1, 8))
    made.op("MEAN", [x, axis], [y], "ReducerOptions")
    made.op("TANH", [y], [z])
    data = made.ends([x], [z]).bytes()
    ok, why = judged(rewrite(data, Edit(offsets={(0, x): 0, (0, y): 512, (0, z): 512})), tmp_path)
    assert ok, why
    assert "576 bytes" in why  # two scratch buffers of 16 behind the result


@pytest.mark.req("TFL6")
@pytest.mark.parametrize("kind", ["IF", "WHILE"])
def test_bodies_share_nothing_with_their_operator(kind: str, tmp_path: Path) -> None:
    made = branching(kind)
    data = made.bytes()
    assert judged(data, tmp_path)[0]
    out = 5 if kind == "IF" else 6
    ok, why = judged(rewrite(data, Edit(offsets={(0, out): 0, (2, 0): 0})), tmp_path)
    assert ok or "runs" in why
    ok, why = judged(rewrite(data, Edit(offsets={(0, 1): 0, (2, 1): 0})), tmp_path)
    assert not ok
    assert "runs" in why or "finds" in why


@pytest.mark.req("TFL6")
def test_what_the_judge_passes_the_interpreter_computes(tmp_path: Path) -> None:
    """Random offsets: wherever the judge says yes, the bits are those of the plain file."""
    jobs, verdicts = [], []
    for seed in range(60):
        made = random_model(seed % 12)
        rng = np.random.default_rng(seed)
        plain = made.bytes()
        count = len(made.graph.tensors)
        offsets = {
            (0, t): int(rng.integers(0, 60)) * 16 for t in range(count) if rng.random() < 0.3
        }
        verdicts.append(judged(rewrite(plain, Edit(offsets=offsets or {(0, 0): 0})), tmp_path)[0])
        for way, edit in (("plain", Edit()), ("placed", Edit(offsets=offsets or {(0, 0): 0}))):
            path = tmp_path / f"{seed}-{way}.tflite"
            path.write_bytes(rewrite(plain, edit))
            jobs.append(Job(path, 1 << 16, 4, 3, (1, 2)))
    outcomes = run_all(jobs)
    differ = 0
    for verdict, plain_run, placed_run in zip(verdicts, outcomes[::2], outcomes[1::2], strict=True):
        assert isinstance(plain_run, Outcome)
        assert isinstance(placed_run, Outcome)
        same = equal_outputs(plain_run, placed_run)
        assert same or not verdict
        differ += not same
    assert verdicts.count(True) >= 5
    assert differ >= 10


def test_a_table_of_wrong_length_is_a_finding(tmp_path: Path) -> None:
    model = parse_model(rewrite(chain(["RELU"]).bytes(), Edit(offsets={(0, 0): 0})))
    model.buffers[model.metadata[0].buffer].data = np.zeros(8, np.uint8)
    from peakfold.runtimes.tflite.schema import pack_model

    ok, why = judged(pack_model(model), tmp_path)
    assert not ok
    assert "cut short" in why


@pytest.mark.req("TFL6")
@pytest.mark.parametrize(
    ("offset", "words"),
    [
        (SIZE + 1, "its elements have 4"),
        (2**31 - 100, "more than an offset can say"),
    ],
)
def test_offsets_that_no_kernel_can_use(offset: int, words: str, tmp_path: Path) -> None:
    data = chain(["RELU", "TANH"]).bytes()
    ok, why = judged(rewrite(data, Edit(offsets={(0, 0): 0, (0, 1): offset, (0, 2): 0})), tmp_path)
    assert not ok
    assert words in why


def test_a_file_without_end_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "big.tflite"
    with path.open("wb") as stream:
        stream.truncate(2**31)
    with pytest.raises(ModelError, match="at most"):
        judge_file(path)
