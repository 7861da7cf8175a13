"""`peakfold fit` as a user types it."""

from __future__ import annotations

import json

import pytest
from onnx import TensorProto, helper

TEXT = """peakfold-graph 1
input x: float32[1,3,32,32]
parameter w: float32[16,3,3,3]
h: float32[1,16,32,32] = conv(x, w, pads=[1,1,1,1])
y: float32[1,16,32,32] = relu(h)
output y"""


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "net.pf"
    path.write_text(TEXT)
    return str(path)


ARENA, WEIGHTS, IMAGE = 65_536, 4 * 16 * 3 * 9, 4 * 3 * 32 * 32
WHOLE = ARENA + WEIGHTS + IMAGE
COUNTED = "tensors, weights, inputs, outputs; no kernel scratch"


def asked(call, *words, code):
    """The document and the one line on stderr, if any."""
    done = call("fit", *map(str, words), "--json")
    assert done.exit_code == code, done.output
    (line,) = done.stderr.splitlines() or [""]
    assert bool(line) == bool(code)
    return json.loads(done.stdout), line


def test_fits_and_does_not(call, model):
    answer, _ = asked(call, model, "--arena-budget", "64KiB", code=0)
    assert answer["fits"]
    assert answer["have_arena_bytes"] == ARENA == answer["total"]["arena"]
    assert answer["have_bytes"] is None
    answer, line = asked(call, model, "--arena-budget", "63KiB", code=3)
    assert answer["fits"] is False
    assert line == (
        "peakfold: error: does not fit: the arena needs 64.000 KiB (65536 B), "
        "the budget is 63.000 KiB (64512 B)"
    )
    assert {"what", "peak_bytes", "extra_flops", "extra_time_s", "applied"} <= set(
        answer["options"][0]
    )


def test_a_budget_is_about_the_total(call, model):
    answer, _ = asked(call, model, "--budget", WHOLE, code=0)
    assert answer["schema"] == "peakfold.fit/2"
    assert answer["fits"] is True
    assert answer["answer"].startswith(f"fits ({COUNTED}): needs ")
    assert answer["need_bytes"] == WHOLE == answer["total_bytes"] == answer["total_at_least_bytes"]
    assert answer["total"] == {
        "arena": ARENA,
        "static": WEIGHTS,
        "input": IMAGE,
        "output": 0,
        "scratch": 0,
        "runtime": 0,
        "context": 0,
    }
    assert answer["beside_bytes"] == WHOLE - ARENA
    answer, line = asked(call, model, "--budget", WHOLE - 1, code=3)
    assert answer["fits"] is False
    assert line.startswith("peakfold: error: does not fit: the model needs ")
    assert f"({WHOLE} B)" in line
    assert asked(call, model, "--budget", WHOLE, "--arena-budget", ARENA, code=0)[0]["fits"]
    _, line = asked(call, model, "--budget", WHOLE, "--arena-budget", ARENA - 1, code=3)
    assert "the arena needs" in line


def test_the_same_total_in_plan_fit_and_compare(call, model):
    fitted, _ = asked(call, model, "--budget", "1MiB", code=0)
    planned = json.loads(call("plan", model, "--budget", "1MiB", "--json").stdout)
    compared = json.loads(call("compare", model, "--json").stdout)
    assert planned["schema"] == "peakfold.plan-report/2"
    assert compared["schema"] == "peakfold.compare/2"
    summary, row = planned["summary"], compared["models"][0]
    assert summary["total"] == row["total"]
    assert summary["total_bytes"] == row["total_bytes"] == sum(summary["total"].values())
    assert summary["fits"] is True
    assert planned["answer"].startswith(f"fits ({COUNTED}): needs ")
    plain = fitted["options"][0]  # fit needs no more than the plan that shares least
    assert plain["need_bytes"] - plain["peak_bytes"] == summary["total_bytes"] - ARENA
    text = call("plan", model).stdout.splitlines()
    assert text[3] == f"needs {WHOLE / 1024:.3f} KiB ({COUNTED})"
    heads = call("compare", model).stdout.splitlines()[0].split()
    assert heads[-2:] == ["peak", "total"]
    assert call("compare", model, "--csv", "-").stdout.splitlines()[0].count("total") == 2


def test_bands_of_rows_are_no_answer_as_it_is(call, tmp_path):
    path = tmp_path / "net.pf"
    path.write_text(
        TEXT.replace(
            "output y",
            """parameter v: float32[8,16,3,3]
c: float32[1,8,16,16] = conv(y, v, pads=[1,1,1,1], strides=[2,2])
output c""",
        )
    )
    answer, line = asked(call, path, "--arena-budget", "50KiB", code=3)
    assert (answer["fits"], answer["plan_fits"]) == (False, True)
    assert answer["answer"].startswith("as it is: does not fit: needs ")
    assert answer["plan_answer"].startswith("in bands of rows: fits (")
    assert line.endswith(f"; it fits with {answer['plan_flags']}")
    assert "--split" in answer["plan_flags"]
    lines = call("fit", path, "--arena-budget", "50KiB").stdout.splitlines()
    assert lines[1].startswith("as it is: does not fit")


def test_a_microcontrollers_flash_is_apart(call, model):
    answer, line = asked(call, model, "--target", "tflm", "--budget", "1MiB", code=3)
    assert answer["fits"] is None  # of a .pf nobody knows what an interpreter would keep
    assert answer["unknown"][-1] == "what the runtime keeps"
    assert line.startswith("peakfold: error: not known whether it fits: it hangs on ")
    assert (answer["total_bytes"], answer["total"]["runtime"]) == (None, None)
    assert answer["total"]["static"] == 0
    assert answer["flash_bytes"] == WEIGHTS
    assert answer["code_bytes"] is None
    assert answer["total_at_least_bytes"] == answer["need_bytes"] > 0
    answer, _ = asked(call, model, "--target", "tflm", "--budget", "1KiB", code=3)
    assert answer["fits"] is False  # the known part alone is above
    chip, _ = asked(call, model, "--device", "stm32h743", code=0)
    assert chip["answer"].startswith(f"fits ({COUNTED}): RAM ")
    assert chip["have_flash_bytes"] == 2 << 20
    small, line = asked(call, model, "--device", "stm32h743", "--flash", WEIGHTS - 1, code=3)
    assert small["fits"] is False
    assert f"in flash the model needs 1.688 KiB ({WEIGHTS} B)" in line


def test_time_and_batch_are_told_or_why_not(call, tmp_path):
    path = tmp_path / "net.pf"
    path.write_text(
        TEXT.replace(
            "output y",
            """parameter v: float32[8,16,3,3]
c: float32[1,8,16,16] = conv(y, v, pads=[1,1,1,1], strides=[2,2])
p: float32[1,8,1,1] = global_average_pool(c)
f: float32[8] = reshape(p, shape=[8])
output f""",
        )
    )
    flags = ("fit", str(path), "--arena-budget", "60KiB", "--time-limit", "0.1")
    bare, timed = (
        json.loads(call(*flags, *more, "--json").stdout) for more in ((), ("--device", "t4"))
    )
    for answer in (bare, timed):
        assert answer["largest_batch"] is None
        assert answer["batch_note"]
        assert any("bands" in lever["what"] for lever in answer["options"])
    for lever in bare["options"]:
        assert (lever["extra_time_s"] is None) == bool(lever["why_unknown"])
    for lever in timed["options"]:
        assert (lever["extra_time_s"] is None) == lever["changes_model"]
    text = call(*flags).stdout
    assert "largest batch that fits: not known" in text
    assert "times need a device" in text


def test_a_device_holds_weights_and_inputs_too(call, model):
    answer = json.loads(call("fit", model, "--device", "t4", "--json").stdout)
    assert answer["beside_bytes"] == WEIGHTS + IMAGE
    assert answer["need_bytes"] == 2 * ARENA + WEIGHTS + IMAGE  # no lever is needed
    assert answer["have_bytes"] == 16_000_000_000
    chip = json.loads(call("fit", model, "--device", "stm32h743", "--json").stdout)
    assert chip["beside_bytes"] == IMAGE  # weights stay in flash


def test_the_flag_it_recommends_makes_the_plan(call, tmp_path):
    path = tmp_path / "net.pf"
    path.write_text(
        TEXT.replace(
            "output y",
            """v: float32[4,16,3,3] = opaque(x)
z: float32[1,16,32,32] = max_pool(y, kernel_shape=[1,1])
u: float32[1,16,16,16] = max_pool(y, kernel_shape=[2,2], strides=[2,2])
output u""",
        )
    )
    done = call("fit", str(path), "--arena-budget", "50KiB", "--json")
    answer = json.loads(done.stdout)
    best = [lever for lever in answer["options"] if lever["applied"]][-1]
    plan = call("plan", str(path), *best["flag"].split(), "--json")
    assert json.loads(plan.stdout)["summary"]["arena_bytes"] == best["peak_bytes"]


@pytest.mark.shared
@pytest.mark.req("R17")
def test_a_microcontroller_starts_from_the_interpreters_own_plan(call, shared, tmp_path):
    model = str(shared / "models/tflite/person_detect.tflite")
    done = call("fit", model, "--target", "tflm", "--budget", "80KiB", "--json")
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert answer["model"] == "person_detect.tflite"  # its graph is called tflite, as all are
    own, *_, best = [v for v in answer["options"] if not v["changes_model"]]
    assert (own["peak_bytes"], own["need_bytes"]) == (55_296, 85_264)  # as measured
    assert own["flag"] == ""
    assert best["peak_bytes"] == answer["bound_bytes"]
    overlaps = next(v for v in answer["options"] if v["applied"] and v is not own)
    assert overlaps["what"] == "results overlap inputs"
    assert overlaps["need_bytes"] == answer["need_bytes"] <= 80 * 1024 < own["need_bytes"]
    assert overlaps["flag"] == ""
    plan = json.loads(call("plan", model, *answer["plan_flags"].split(), "--json").stdout)
    assert plan["summary"]["arena_bytes"] == overlaps["peak_bytes"]


@pytest.mark.shared
def test_person_detect_has_ram_and_flash(call, shared):
    model = shared / "models/tflite/person_detect.tflite"
    flags = (model, "--target", "tflm", "--budget", "256KiB")
    answer, _ = asked(call, *flags, "--flash", "1MiB", code=0)
    assert answer["answer"] == (
        "fits: RAM 83.266 KiB of 256.000 KiB, flash 293.523 KiB of 1.000 MiB; code size unknown"
    )
    assert answer["flash_bytes"] == model.stat().st_size  # its own plan needs no other file
    assert answer["total_bytes"] == 85_264 == sum(answer["total"].values())
    answer, line = asked(call, *flags, "--flash", "128KiB", code=3)
    assert (answer["fits"], answer["have_flash_bytes"]) == (False, 128 << 10)
    assert "in flash the model needs 293.523 KiB" in line
    text = call("plan", model, *flags[1:], "--flash", "1MiB").stdout.splitlines()
    assert text[3].startswith("fits: RAM 65.281 KiB of 256.000 KiB, flash 294.")
    assert call("plan", model, *flags[1:], "--flash", "128KiB").exit_code == 3


@pytest.mark.shared
def test_a_need_sixteen_bytes_below_the_budget_fits(call, shared):
    model = shared / "models/tflite/person_detect.tflite"
    for verb, need in (("fit", 66_848), ("plan", 66_848)):
        codes = [
            call(verb, model, "--target", "tflm", "--budget", str(need + more)).exit_code
            for more in (16, 0, -1 if verb == "plan" else 0)
        ]
        assert codes == [0, 0, 3 if verb == "plan" else 0], verb


@pytest.mark.shared
def test_a_tflite_planned_for_nobody_says_what_its_interpreter_takes(call, shared):
    model = shared / "models/tflite/person_detect.tflite"
    said = (
        "TensorFlow Lite Micro takes 83.266 KiB for this file today: "
        "plan for it with --target tflm."
    )
    for words in (("plan",), ("fit", "--budget", "1MiB")):
        verb, *more = words
        assert said in json.loads(call(verb, model, *more, "--json").stdout)["notes"]
        assert said in " ".join(call(verb, model, *more).stdout.split())
        told = json.loads(call(verb, model, *more, "--target", "tflm", "--json").stdout)
        assert said not in told["notes"]


@pytest.mark.shared
def test_other_kernels_keep_what_nobody_measured(call, shared):
    model = shared / "models/tflite/person_detect.tflite"
    answer, line = asked(call, model, "--target", "tflm-cmsis", "--budget", "256KiB", code=3)
    assert (answer["fits"], answer["unknown"]) == (None, ["what the runtime keeps"])
    assert line == (
        "peakfold: error: not known whether it fits: it hangs on what the runtime keeps"
    )


@pytest.mark.shared
def test_six_hundred_megabytes_do_not_hold_vgg(call, shared):
    model = shared / "models/onnx/light_vgg19.onnx"
    done = call("plan", model, "--budget", "600MB", "--json")
    assert done.exit_code == 3
    summary = json.loads(done.stdout)["summary"]
    assert summary["fits"] is False
    assert summary["total_bytes"] == 600_961_200  # 573.121 MiB, as with --device
    assert "needs 573.121 MiB" in done.stderr
    answer, line = asked(call, model, "--budget", "600MB", code=3)
    assert (answer["fits"], answer["plan_fits"]) == (False, True)
    assert answer["need_bytes"] == summary["total_bytes"]
    assert "does not fit: needs 573.121 MiB of 572.205 MiB" in answer["answer"]
    assert line.endswith("; it fits with --split r4=2")
    on_device = json.loads(call("fit", model, "--device", "t4", "--json").stdout)
    assert on_device["need_bytes"] == summary["total_bytes"]


@pytest.mark.shared
def test_half_precision_weights_are_said_to_be_refused(call, shared):
    model = str(shared / "models/tflite/face_detection_short_range.tflite")
    flags = ["--target", "tflm", "--budget", "8MiB", "--time-limit", "0.1", "--json"]
    done = call("fit", model, *flags)
    told = json.loads(done.stdout)
    assert any("--fold-weights" in note for note in told["notes"])
    assert (done.exit_code, told["fits"]) == (3, None)  # it would not start at all
    assert "it hangs on half-precision weights" in done.stderr
    folded = json.loads(call("fit", model, *flags, "--fold-weights").stdout)
    assert folded["fits"] is True
    assert not any("--fold-weights" in note for note in folded["notes"])
    assert folded["options"][0]["peak_bytes"] == 1_376_256  # as measured
    assert folded["plan_flags"] == "--target tflm --fold-weights"


def test_usage(call, model):
    assert call("fit", model).exit_code == 2
    done = call("plan", model, "--split", "y")
    assert done.exit_code == 2
    assert "TENSOR=N" in done.stderr
    text = call("fit", model, "--budget", "1KiB")
    assert text.exit_code == 3
    assert "does not fit" in text.stdout
    assert "MFLOPs" in text.stdout or "none" in text.stdout


def test_the_batch_that_a_symbol_names_is_tried_by_its_name(call, tmp_path):
    """A reshape to numbers that were taken from the shape works at any batch."""
    ints = {"b": 0, "s": 1}
    nodes = [
        helper.make_node("Shape", ["x"], ["dims"]),
        *(helper.make_node("Gather", ["dims", f"at{i}"], [i]) for i in ints),
        helper.make_node("Concat", ["b", "s", "heads"], ["shape"], axis=0),
        helper.make_node("Reshape", ["x", "shape"], ["r"]),
        helper.make_node("Relu", ["r"], ["y"]),
    ]
    stored = [helper.make_tensor(f"at{i}", TensorProto.INT64, [1], [at]) for i, at in ints.items()]
    stored.append(helper.make_tensor("heads", TensorProto.INT64, [2], [2, 4]))
    sides = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)]
        for name, dims in (("x", ["batch", "time", 8]), ("y", ["batch", "time", 2, 4]))
    ]
    graph = helper.make_graph(nodes, "g", *sides, stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    found = set()
    for batch in (1, 2, 8):
        flags = ("--dim", f"batch={batch}", "--dim", "time=16", "--arena-budget", "64KiB")
        found.add(asked(call, tmp_path / "m.onnx", *flags, code=0)[0]["largest_batch"])
    assert found == {128}  # of 512 B: `r` is a view of `x`, which is external
