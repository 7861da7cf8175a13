"""Bodies as this interpreter runs them: planned, written, judged, measured; the same bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from peakfold.frontends import load
from peakfold.judges.plan import verify_plan
from peakfold.planning import Plan, PlanOptions, make_plan
from peakfold.runtimes.tflite.apply_plan import Applied, apply_plan
from peakfold.runtimes.tflite.file_judge import judge_file
from peakfold.runtimes.tflite.interpreter import Job, Outcome, run_all
from peakfold.runtimes.tflite.measure import measure_tflm
from peakfold.runtimes.tflite.rewrite import Edit, rewrite
from peakfold.runtimes.tflite.schema import offline_offsets, parse_model
from tests.runtimes.tflite.build import Build
from tests.runtimes.tflite.oracle.control import branches, loop, once


def nested(n: int = 20) -> bytes:
    """A WHILE whose body runs an IF."""
    made = Build()
    ends = [made.tensor("FLOAT32", (1, n)) for _ in range(2)]
    made.op("WHILE", ends[:1], ends[1:], "WhileOptions", condSubgraphIndex=1, bodySubgraphIndex=2)
    made.ends(ends[:1], ends[1:])
    made.subgraph()
    x, go = made.tensor("FLOAT32", (1, n)), made.tensor("BOOL", (1, n))
    made.op("LESS", [x, made.tensor("FLOAT32", (1,), np.float32([3]))], [go])
    made.ends([x], [go])
    made.subgraph()
    x, more, y = (made.tensor("FLOAT32", (1, n)) for _ in range(3))
    made.op("ADD", [x, made.tensor("FLOAT32", (1,), np.float32([1]))], [more], "AddOptions")
    yes = made.tensor("BOOL", (1,), np.array([True]))
    made.op("IF", [yes, more], [y], "IfOptions", thenSubgraphIndex=3, elseSubgraphIndex=4)
    made.ends([x], [y])
    for kind in ("RELU", "NEG"):
        made.subgraph()
        x, y = made.tensor("FLOAT32", (1, n)), made.tensor("FLOAT32", (1, n))
        made.op(kind, [x], [y])
        made.ends([x], [y])
    return made.bytes()


def constant(n: int = 20) -> bytes:
    """An IF, one of whose branches gives a constant, and the other its input."""
    made = Build()
    go, x, y = (
        made.tensor("BOOL", (1,)),
        made.tensor("FLOAT32", (1, n)),
        made.tensor("FLOAT32", (1, n)),
    )
    made.op("IF", [go, x], [y], "IfOptions", thenSubgraphIndex=1, elseSubgraphIndex=2)
    made.ends([go, x], [y])
    made.subgraph()
    x, two = (
        made.tensor("FLOAT32", (1, n)),
        made.tensor("FLOAT32", (1, n), np.full((1, n), 2.0, "f4")),
    )
    made.ends([x], [two])
    made.subgraph()
    x = made.tensor("FLOAT32", (1, n))
    made.ends([x], [x])
    return made.bytes()


def variables(n: int = 8) -> bytes:
    """Two branches, each with a variable, whose index in the main graph is a plain tensor's."""
    made = Build()
    go, x, y = (
        made.tensor("BOOL", (1,)),
        made.tensor("FLOAT32", (1, n)),
        made.tensor("FLOAT32", (1, n)),
    )
    made.op("IF", [go, x], [y], "IfOptions", thenSubgraphIndex=1, elseSubgraphIndex=2)
    made.ends([go, x], [y])
    for _ in range(2):
        made.subgraph()
        x, kept, y = (made.tensor("FLOAT32", (1, n), variable=at == 1) for at in range(3))
        made.op("ADD", [x, kept], [y], "AddOptions")
        made.ends([x], [y])
    return made.bytes()


def uncalled(n: int = 8) -> bytes:
    """A subgraph that nobody runs, larger than the one that runs."""
    made = Build()
    x, y = made.tensor("FLOAT32", (1, n)), made.tensor("FLOAT32", (1, n))
    made.op("TANH", [x], [y])
    made.ends([x], [y])
    made.subgraph()
    x, y = made.tensor("FLOAT32", (1, 9 * n)), made.tensor("FLOAT32", (1, 9 * n))
    made.op("TANH", [x], [y])
    made.ends([x], [y])
    return made.bytes()


def planned(data: bytes, folder: Path, target: str = "tflm") -> tuple[Plan, Applied, Path]:
    """The plan of a file, what carries it, and where that lies."""
    path = folder / "model.tflite"
    path.write_bytes(data)
    loaded = load(path)
    plan = make_plan(loaded.graph, PlanOptions(target=target), loaded.bindings).plan
    assert [check for check in verify_plan(loaded.graph, plan) if not check.ok] == []
    applied = apply_plan(path, loaded.graph, plan)
    path.write_bytes(applied.data)
    assert judge_file(path, target).ok
    return plan, applied, path


@pytest.mark.req("TFL2", "TFL5")
@pytest.mark.parametrize(
    ("data", "head"),
    [
        (branches(8), 144),  # flag, operand, result, and a branch's operand and result
        (branches(8, deep=True), 208),
        (branches(8, twice=True), 144),
        (loop(8), 160),
        (nested(), 480),
        (once(8), 64),
    ],
    ids=["if", "if in if", "two calls of one subgraph", "while", "if in while", "call once"],
)
def test_a_plan_is_what_the_interpreter_takes(data: bytes, head: int, tmp_path: Path) -> None:
    plan, applied, _ = planned(data, tmp_path)
    found = measure_tflm(applied, "model", runs=2)
    assert (plan.arena_bytes, applied.head, found.after) == (head, head, head)
    assert applied.unplanned >= head
    assert applied.whole
    assert found.outputs_equal
    assert not found.too_low


@pytest.mark.req("TFL5")
@pytest.mark.parametrize(
    ("data", "obeys"),
    [
        (constant(), False),  # a plan copies the constant, the interpreter reads it in the file
        (variables(), True),
        (uncalled(), True),
    ],
    ids=["constant", "variables", "uncalled"],
)
def test_tensors_left_to_the_interpreter_are_known_to_be(
    data: bytes, obeys: bool, tmp_path: Path
) -> None:
    _, applied, _ = planned(data, tmp_path)
    found = measure_tflm(applied, "model", runs=2)
    assert (applied.obeys, applied.whole) == (obeys, False)
    assert (found.after, found.outputs_equal) == (applied.head, True)


@pytest.mark.req("TFL5")
def test_a_variable_of_a_later_subgraph_does_not_crash_the_start(tmp_path: Path) -> None:
    """An offset in the row of the main graph that has a branch's variable's index kills it."""
    _, applied, path = planned(variables(), tmp_path)
    table = offline_offsets(parse_model(applied.data))
    assert table is not None
    assert table[1] == -1
    assert sum(offset >= 0 for offset in table) >= 4
    forced = tmp_path / "forced.tflite"
    forced.write_bytes(_with_offset(applied.data, 1, table[2]))
    good, bad = run_all([Job(at, 1 << 16, 2, 1, build_only=True) for at in (path, forced)])
    assert isinstance(good, Outcome)
    assert not isinstance(bad, Outcome)
    assert "no memory" in judge_file(forced).detail


def _with_offset(data: bytes, row: int, offset: int) -> bytes:
    """A file whose table has an offset in a row, as a stranger's may."""
    from peakfold.runtimes.tflite.schema import pack_model

    model = parse_model(data)
    buffer = model.buffers[model.metadata[0].buffer]
    words = np.frombuffer(np.asarray(buffer.data, np.uint8).tobytes(), "<i4").copy()
    words[3 + row] = offset
    buffer.data = np.frombuffer(words.tobytes(), np.uint8)
    return pack_model(model)


def test_a_table_that_is_written_leaves_such_rows_out() -> None:
    written = rewrite(variables(), Edit(offsets={(0, 0): 0, (0, 1): 16, (0, 2): 48}))
    assert offline_offsets(parse_model(written)) == (0, -1, 48, *[-1] * 6)


def test_other_targets_keep_slots_for_carried_values(tmp_path: Path) -> None:
    """A rule of bodies is a target's: where results are lent, a branch has none of its own."""
    path = tmp_path / "if.tflite"
    path.write_bytes(branches(8))
    graph = load(path).graph
    lent = make_plan(graph, PlanOptions(target="generic", align=16, inputs="reusable")).plan
    kept = make_plan(graph, PlanOptions(target="tflm-cmsis")).plan
    assert (lent.arena_bytes, kept.arena_bytes) == (80, 144)
