"""Wrong types and values end in an error of ours that names the argument, never in a raw one."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from typing import Any

import numpy as np
import pytest

import peakfold
from peakfold import PlanOptions, UsageError
from peakfold.errors import PeakfoldError
from peakfold.ir import parse_graph
from peakfold.packing import FREE, Problem, pack, violations
from peakfold.packing.questions.banks import Bank, pack_banks, parse_banks
from peakfold.packing.questions.capacity import judge_capacity
from peakfold.packing.questions.replan import replan
from peakfold.transform import Split, Train
from peakfold.units import parse_size
from tests.reports import graphs

BIG = 2**70
GRAPH = parse_graph(graphs.CHAIN)
PROBLEM = Problem.of([0, 1], [2, 3], [16, 8])
COLUMNS = ([0, 1], [2, 3], [16, 8])

OPTIONS: list[tuple[str, Any]] = [
    ("target", None), ("target", 3), ("target", ["generic"]), ("target", "toaster"),
    ("mode", None), ("mode", 1), ("mode", np.zeros(2)), ("strategy", 7), ("strategy", None),
    ("share", []), ("inputs", 1), ("outputs", True), ("order", None), ("order", b"file"),
    ("align", 0), ("align", -16), ("align", 24), ("align", 2**31), ("align", BIG), ("align", 16.0),
    ("align", "16"), ("align", True), ("align", nan), ("align", 10**5000), ("align", [10**5000]),
    ("budget", -5), ("budget", BIG), ("budget", 1.5), ("budget", True), ("budget", [1]),
    ("budget", "much"), ("budget", "9" * 5000), ("budget", "9" * 400 + ".5"),
    ("arena_budget", -5), ("arena_budget", 1.5), ("arena_budget", "much"), ("flash", -5),
    ("flash", True), ("flash", "much"), ("flash", 2**20),
    ("lanes", -1), ("lanes", None), ("lanes", 1.5), ("lanes", "free"), ("lanes", True),
    ("lanes", BIG), ("added_edges", -1), ("added_edges", "2"), ("added_edges", BIG),
    ("time_limit", nan), ("time_limit", -1), ("time_limit", "1"), ("time_limit", None),
    ("time_limit", True), ("time_limit", -inf), ("time_limit", 1j),
    ("seed", -1), ("seed", 1.0), ("seed", BIG), ("seed", "0"), ("seed", None),
    ("inplace", None), ("views", "no"), ("zero_copy", 0), ("overlap", 1), ("fold", "yes"),
    ("fold_weights", 2), ("trace", []), ("quick", None),
    ("profile", {"a": 1}), ("profile", 3), ("train", True), ("train", "sgd"), ("split", "y=2"),
    ("split", ("y", 2)),
]  # fmt: skip


@pytest.mark.parametrize("at", range(len(OPTIONS)))
def test_every_option_of_a_plan_is_checked(at: int) -> None:
    field, value = OPTIONS[at]
    with pytest.raises(UsageError) as raised:
        peakfold.plan(GRAPH, **{field: value})
    said = str(raised.value)
    words = {"inputs": "input policy", "outputs": "output policy", "share": "share policy"}
    assert words.get(field, field) in said or "is not a size" in said
    assert len(said) < 400


@pytest.mark.parametrize("field", [f for f in PlanOptions.__dataclass_fields__ if f != "quick"])
def test_no_field_is_forgotten(field: str) -> None:
    assert field in {name for name, _ in OPTIONS}
    with pytest.raises(UsageError):
        PlanOptions(**{field: object()})


def test_numbers_of_numpy_are_numbers(tmp_path: Any) -> None:
    report = peakfold.plan(
        GRAPH, align=np.int64(1), budget=np.int32(10**6), seed=np.uint8(3), time_limit=np.float32(1)
    )
    report.save(tmp_path / "p.json")
    assert peakfold.verify(GRAPH, tmp_path / "p.json")
    assert peakfold.plan(GRAPH, time_limit=inf).summary.arena_bytes > 0


CALLS: list[tuple[str, Callable[[], object]]] = [
    ("dims", lambda: peakfold.load("x.onnx", dims=[1])),  # type: ignore[arg-type]
    ("dims", lambda: peakfold.load("x.onnx", dims={1: 2})),  # type: ignore[dict-item]
    ("--dim", lambda: peakfold.load("x.onnx", dims={"n": 1.5})),  # type: ignore[dict-item]
    ("--dim", lambda: peakfold.load("x.onnx", dims={"n": "\u00b2"})),  # type: ignore[dict-item]
    ("--dim", lambda: peakfold.load("x.onnx", dims={"n": -1})),
    ("--dim", lambda: peakfold.load("x.onnx", dims={"n": BIG})),
    ("shapes", lambda: peakfold.load("x.onnx", shapes="x=1")),  # type: ignore[arg-type]
    ("--shape", lambda: peakfold.load("x.onnx", shapes={"x": (1, 2)})),  # type: ignore[dict-item]
    ("the model", lambda: peakfold.load(3)),  # type: ignore[arg-type]
    ("the model", lambda: peakfold.load(None)),  # type: ignore[arg-type]
    ("model", lambda: peakfold.load("")),
    ("cannot be read", lambda: peakfold.load("a\0.pf")),
    ("is no model", lambda: peakfold.plan(None)),  # type: ignore[arg-type]
    ("is no model", lambda: peakfold.cost(3)),  # type: ignore[arg-type]
    ("is no model", lambda: peakfold.inspect([1])),  # type: ignore[arg-type]
    ("is no model", lambda: peakfold.verify(None, peakfold.plan(GRAPH))),  # type: ignore[arg-type]
    ("plan", lambda: peakfold.verify(GRAPH, None)),  # type: ignore[arg-type]
    ("plan", lambda: peakfold.verify(GRAPH, 3)),  # type: ignore[arg-type]
    ("option", lambda: peakfold.plan(GRAPH, frobnicate=1)),
    ("option", lambda: peakfold.cost(GRAPH, frobnicate=1)),
    ("fold", lambda: peakfold.cost(GRAPH, fold="no")),  # type: ignore[arg-type]
    ("handlers", lambda: peakfold.cost(GRAPH, handlers=[1])),  # type: ignore[arg-type]
    ("batch", lambda: peakfold.cost(GRAPH, batch=0)),
    ("batch", lambda: peakfold.cost(GRAPH, batch=True)),
    ("causal", lambda: peakfold.cost(GRAPH, causal=["half"])),
    ("trips", lambda: peakfold.cost(GRAPH, trips=3)),
    ("target", lambda: peakfold.inspect(GRAPH, target=None)),  # type: ignore[arg-type]
    ("device", lambda: peakfold.inspect(GRAPH, device=3)),  # type: ignore[arg-type]
    ("precision", lambda: peakfold.inspect(GRAPH, device="t4", precision=16)),  # type: ignore[arg-type]
    ("measured_s", lambda: peakfold.inspect(GRAPH, device="t4", measured_s="1")),  # type: ignore[arg-type]
    ("measured_s", lambda: peakfold.inspect(GRAPH, device="t4", measured_s=nan)),
    ("measured_s", lambda: peakfold.inspect(GRAPH, device="t4", measured_s=0)),
    ("batches", lambda: peakfold.inspect(GRAPH, device="t4", batches=3)),  # type: ignore[arg-type]
    ("batches", lambda: peakfold.inspect(GRAPH, device="t4", batches=(1.5,))),  # type: ignore[arg-type]
    ("lint", lambda: peakfold.inspect(GRAPH, lint=1)),  # type: ignore[arg-type]
    ("path", lambda: peakfold.plan(GRAPH).save(3)),  # type: ignore[arg-type]
    ("format", lambda: peakfold.apply("x.tflite", to=["c"])),  # type: ignore[arg-type]
    ("the model", lambda: peakfold.apply(3)),  # type: ignore[arg-type]
    ("runtime", lambda: peakfold.measure("x.tflite", runtime=None)),  # type: ignore[arg-type]
    ("runs", lambda: peakfold.measure("x.tflite", runs=0)),
    ("size", lambda: Problem.of([0], [1], [1.9])),
    ("size", lambda: Problem.of([0], [1], [nan])),
    ("size", lambda: Problem.of([0], [1], [inf])),
    ("size", lambda: Problem.of([0], [1], [BIG])),
    ("size", lambda: Problem.of([0], [1], [2**63])),
    ("size", lambda: Problem.of([0], [1], ["1"])),
    ("size", lambda: Problem.of([0], [1], [True])),
    ("size", lambda: Problem.of([0], [1], [None])),
    ("size", lambda: Problem.of([0], [1], None)),  # type: ignore[arg-type]
    ("size", lambda: Problem.of([0], [1], [[1, 2], [3]])),
    ("size", lambda: Problem.of([0], [1], [[1]])),
    ("size", lambda: Problem.of([0], [1], [-1])),
    ("start", lambda: Problem.of(["0"], [1], [1])),
    ("start", lambda: Problem.of([-BIG], [1], [1])),
    ("stop", lambda: Problem.of([0], [1 + 1j], [1])),
    ("differ in length", lambda: Problem.of([0, 1], [1], [1])),
    ("differ in length", lambda: Problem.of([], [], [1])),
    ("align", lambda: Problem.of(*COLUMNS, align=[1, 1, 1])),
    ("align", lambda: Problem.of(*COLUMNS, align=0)),
    ("align", lambda: Problem.of(*COLUMNS, align="16")),
    ("fixed", lambda: Problem.of(*COLUMNS, fixed=[0.5, 0])),
    ("pin", lambda: Problem.of(*COLUMNS, fixed=[-7, 0])),
    ("names", lambda: Problem.of(*COLUMNS, names="ab")),  # type: ignore[arg-type]
    ("names", lambda: Problem.of(*COLUMNS, names=(1, 2))),  # type: ignore[arg-type]
    ("names", lambda: Problem.of(*COLUMNS, names=("a",))),
    ("conflicts", lambda: Problem.of(*COLUMNS, conflicts=[0, 1, 2])),
    ("conflict", lambda: Problem.of(*COLUMNS, conflicts=[[0, 2]])),
    ("conflicts", lambda: Problem.of(*COLUMNS, conflicts=[[0, "b"]])),
    ("offsets", lambda: PROBLEM.height(np.array([1]))),
    ("problem", lambda: pack(3)),  # type: ignore[arg-type]
    ("problem", lambda: judge_capacity(None)),  # type: ignore[arg-type]
    ("problem", lambda: violations([1], [2])),  # type: ignore[arg-type]
    ("strategy", lambda: pack(PROBLEM, strategy=3)),  # type: ignore[arg-type]
    ("strategy", lambda: pack(PROBLEM, strategy="magic")),
    ("capacity", lambda: pack(PROBLEM, capacity=1.5)),  # type: ignore[arg-type]
    ("capacity", lambda: pack(PROBLEM, capacity="1KiB")),  # type: ignore[arg-type]
    ("capacity", lambda: judge_capacity(PROBLEM, capacity=-1)),
    ("time_limit", lambda: pack(PROBLEM, time_limit=nan)),
    ("time_limit", lambda: judge_capacity(PROBLEM, time_limit=None)),  # type: ignore[arg-type]
    ("seed", lambda: pack(PROBLEM, seed=-1)),
    ("seed", lambda: pack(PROBLEM, seed=BIG)),
    ("minimize", lambda: pack(PROBLEM, minimize=None)),  # type: ignore[arg-type]
    ("bank", lambda: pack_banks(PROBLEM, [])),
    ("banks", lambda: pack_banks(PROBLEM, "SRAM")),  # type: ignore[arg-type]
    ("traffic", lambda: pack_banks(PROBLEM, [Bank("a", None, 1.0)], traffic=[1])),
    ("traffic", lambda: pack_banks(PROBLEM, [Bank("a", None, 1.0)], traffic=["x", 1])),
    ("traffic", lambda: pack_banks(PROBLEM, [Bank("a", None, 1.0)], traffic=[nan, 1])),
    ("bank", lambda: Bank("a", -1, 1.0)),
    ("bank", lambda: Bank("a", None, nan)),
    ("bank", lambda: Bank(3, None, 1.0)),  # type: ignore[arg-type]
    ("size", lambda: parse_banks("a=" + "9" * 400)),
    ("old", lambda: replan(PROBLEM, [1])),
    ("old", lambda: replan(PROBLEM, [0.5, 1])),
    ("old", lambda: replan(PROBLEM, None)),  # type: ignore[arg-type]
    ("max_moves", lambda: replan(PROBLEM, [FREE, FREE], max_moves=-1)),
    ("capacity", lambda: replan(PROBLEM, [FREE, FREE], capacity=True)),
    ("bands", lambda: Split("y", 1.5)),  # type: ignore[arg-type]
    ("tensor", lambda: Split(3, 2)),  # type: ignore[arg-type]
    ("loss", lambda: Train(loss=None)),  # type: ignore[arg-type]
    ("optimizer", lambda: Train(optimizer=3)),  # type: ignore[arg-type]
    ("input_grad", lambda: Train(input_grad="yes")),  # type: ignore[arg-type]
    ("size", lambda: parse_size("1" * 5000)),
    ("size", lambda: parse_size("\u0661KiB")),
]


@pytest.mark.parametrize("at", range(len(CALLS)))
def test_wrong_calls_are_usage_errors(at: int) -> None:
    names, call = CALLS[at]
    with pytest.raises(PeakfoldError) as raised:
        call()
    assert isinstance(raised.value, UsageError)
    assert names in str(raised.value)
    assert len(str(raised.value)) < 500


def test_whole_numbers_in_another_type_are_welcome() -> None:
    made = Problem.of([0.0, 1.0], (2, 3), np.array([16, 8], np.uint16), names=["a", "b"])  # type: ignore[arg-type]
    assert (made.size.tolist(), made.names) == ([16, 8], ("a", "b"))
    assert pack(Problem.of([], [], [])).height == 0
    assert violations(PROBLEM, [[0], [1, 2]])[0].rule == "count"  # type: ignore[list-item]
