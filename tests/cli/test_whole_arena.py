"""The whole arena wherever a size is printed: exact, or a lower bound that says so."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from peakfold.runtimes.tflite import measure
from peakfold.runtimes.tflite.arena import predict_arena
from peakfold.runtimes.tflite.interpreter import Job, Outcome, run_all
from tests.cli.conftest import Call
from tests.runtimes.tflite.build import Build, chain
from tests.runtimes.tflite.models import path_of
from tests.runtimes.tflite.oracle.control import branches
from tests.runtimes.tflite.oracle.parts import Model, convolution

PERSON = path_of("models/tflite/person_detect")


def convolutions(count: int, side: int, k: int, first: int, channels: int) -> bytes:
    """Convolutions with a scale per channel, the kind whose preparation decides."""
    made = Model()
    x = last = made.tensor("INT8", (1, side, side, first))
    for at in range(count):
        c = first if at == 0 else channels
        last = convolution(made, "INT8", last, side, (c, channels), k=k, deep=False)
    return made.ends([x], [last]).bytes()


def stranger() -> Build:
    """A model with an operator that no table of the arena covers."""
    made = chain(["TANH"])
    last = made.tensor("FLOAT32", (1, 8, 8, 4))
    made.op("RELU_N1_TO_1", [1], [last])
    return made.ends([0], [last])


@pytest.fixture
def planned(call: Call, tmp_path: Path):
    """A model's bytes as files: the model, its plan, and the file that carries it."""

    def make(data: bytes) -> tuple[Path, Path, Path]:
        model, plan, new = (tmp_path / name for name in ("m.tflite", "p.json", "n.tflite"))
        model.write_bytes(data)
        done = call("plan", str(model), "--target", "tflm", "-o", str(plan))
        assert done.exit_code == 0, done.stderr
        return model, plan, new

    return make


@pytest.mark.req("TFL10")
@pytest.mark.parametrize(
    ("shape", "need"),
    [((4, 1, 1, 8, 256), 13616), ((2, 1, 1, 8, 128), 5456), ((2, 4, 3, 4, 4), 1984)],
)
def test_convolutions_by_channel(call: Call, planned, shape, need: int) -> None:
    """While one is prepared its tensors' scales take more than all that runs needs."""
    model, plan, new = planned(convolutions(*shape))
    found = json.loads(call("apply", str(model), str(plan), "-o", str(new), "--json").stdout)
    assert (found["total_bytes"], found["total_at_least_bytes"]) == (need, need)
    assert found["total_bytes_32bit"] < found["total_bytes_device"] < need
    job = Job(new, need, 1, 1, build_only=True)
    outcomes = run_all([job, replace(job, arena=need - 16)])
    assert [isinstance(one, Outcome) for one in outcomes] == [True, False]
    for budget, code in ((need - 16, 3), (need, 0), (need + 16, 0)):
        answer = call("fit", str(model), "--target", "tflm", "--budget", str(budget), "--json")
        assert (answer.exit_code, json.loads(answer.stdout)["fits"]) == (code, code == 0)


@pytest.mark.req("TFL10")
def test_branches_agree_everywhere(call: Call, planned) -> None:
    model, plan, new = planned(branches(8))
    assert json.loads(plan.read_text())["arena_bytes"] == 144
    found = json.loads(call("apply", str(model), str(plan), "-o", str(new), "--json").stdout)
    assert (found["arena_bytes"], found["unplanned_bytes"]) == (144, 144)
    measured = call("measure", str(model), str(plan), "--json")
    assert measured.exit_code == 0
    told = json.loads(measured.stdout)
    assert (told["planned_bytes"], told["after_bytes"], told["obeyed"]) == (144, 144, True)
    assert told["predicted_arena_bytes"] == told["after_arena_bytes"] == found["total_bytes"]
    levers = json.loads(
        call("fit", str(model), "--target", "tflm", "--budget", "1KiB", "--json").stdout
    )["options"]
    assert {lever["peak_bytes"] for lever in levers if lever["flag"]} == {144}


@pytest.mark.req("TFL10")
def test_an_operator_that_no_table_covers_is_named(call: Call, planned) -> None:
    """A lower bound says so, and no verdict rests on it."""
    model, plan, new = planned(stranger().bytes())
    text = call("apply", str(model), str(plan), "-o", str(new)).stdout
    assert re.search(r"Give the interpreter >= [\d,]+ bytes: what RELU_N1_TO_1 takes is", text)
    told = json.loads(
        call("apply", str(model), str(plan), "-o", str(new), "--force", "--json").stdout
    )
    assert (told["total_bytes"], told["total_bytes_32bit"]) == (None, None)
    assert told["tail_unknown"] == ["RELU_N1_TO_1"]
    fit = "fit", str(model), "--target", "tflm", "--budget"
    answer = call(*fit, str(told["total_at_least_bytes"]), "--json")
    assert (answer.exit_code, json.loads(answer.stdout)["fits"]) == (3, None)
    assert answer.stderr.strip().splitlines()[-1].endswith("it hangs on what RELU_N1_TO_1 takes")
    assert json.loads(answer.stdout)["unknown"] == ["what RELU_N1_TO_1 takes"]
    assert "not known whether it fits: RAM at least" in call(*fit, "1MiB").stdout
    less = call(*fit, str(told["total_at_least_bytes"] - 16), "--json")
    assert (less.exit_code, json.loads(less.stdout)["fits"]) == (3, False)
    header = call("apply", str(model), str(plan), "--to", "c", "-o", "-").stdout
    assert "PEAKFOLD_ARENA_BYTES" not in header
    assert f"PEAKFOLD_ARENA_AT_LEAST_BYTES {told['total_at_least_bytes']}u" in header


def test_measure_shows_a_lower_bound_as_one(call: Call, planned, monkeypatch) -> None:
    """Of an operator without a row, that the interpreter has: here one whose row is taken away."""
    real = predict_arena

    def fewer(*given: object) -> object:
        return replace(real(*given), unknown=("TANH",))  # type: ignore[arg-type]

    monkeypatch.setattr(measure, "predict_arena", fewer)
    model, plan, _ = planned(chain(["RELU", "TANH"]).bytes())
    done = call("measure", str(model), str(plan))
    assert done.exit_code == 0
    assert re.search(r"whole arena .* >= [\d,]+", done.stdout)
    assert "What TANH takes of the arena is not known." in done.stdout


def test_a_prediction_that_is_too_low_fails(call: Call, planned, monkeypatch) -> None:
    real = predict_arena

    def lower(*given: object) -> object:
        return replace(real(*given), tail=0, starting=256)  # type: ignore[arg-type]

    monkeypatch.setattr(measure, "predict_arena", lower)
    model, plan, _ = planned(chain(["RELU", "TANH"]).bytes())
    done = call("measure", str(model), str(plan))
    assert done.exit_code == 5
    assert "THE WHOLE ARENA WAS PREDICTED TOO LOW" in done.stdout
    assert "predicted too low" in done.stderr
    row = next(line for line in done.stdout.splitlines() if line.startswith("whole arena"))
    predicted, needed = (int(cell.replace(",", "")) for cell in row.split()[-2:])
    assert needed > predicted


@pytest.mark.shared
@pytest.mark.req("TFL9")
def test_the_headers_constant_starts_the_interpreter(call: Call, planned) -> None:
    model, plan, new = planned(PERSON.read_bytes())
    header = call("apply", str(model), str(plan), "--to", "c", "-o", "-").stdout
    sizes = dict(re.findall(r"#define PEAKFOLD_(ARENA_\w*BYTES) (\d+)u", header))
    call("apply", str(model), str(plan), "-o", str(new))
    head, whole = int(sizes["ARENA_HEAD_BYTES"]), int(sizes["ARENA_BYTES"])
    assert head == json.loads(plan.read_text())["arena_bytes"]
    outcomes = run_all([Job(new, size, 1, 1) for size in (head, whole - 16, whole)])
    assert [isinstance(one, Outcome) for one in outcomes] == [False, False, True]
    assert header.startswith("/* Memory plan of m.tflite, made by peakfold ")
    told = json.loads(
        call("apply", str(model), str(plan), "-o", str(new), "--force", "--json").stdout
    )
    said = " ".join(re.findall(r"/\* (.*) \*/", header.split("#define PEAKFOLD_ARENA_BYTES")[0]))
    assert f"{told['total_bytes_device']} with 64 bit" in said  # whole sentences
    assert f"{told['total_bytes_32bit']} with 32 bit: predicted, not run" in said


def test_a_header_without_a_file_has_no_size_to_give(call: Call, tmp_path: Path) -> None:
    model, plan = tmp_path / "m.pf", tmp_path / "p.json"
    model.write_text("peakfold-graph 1\ninput x: int8[64]\ny: int8[64] = relu(x)\noutput y\n")
    for target, given in (("tflm", False), ("tflm-cmsis", False), ("generic", True)):
        call("plan", str(model), "--target", target, "-o", str(plan), "--force")
        header = call("apply", str(model), str(plan), "--to", "c", "-o", "-").stdout
        assert ("PEAKFOLD_ARENA_BYTES" in header) == given
        assert "PEAKFOLD_ARENA_HEAD_BYTES 64u" in header
