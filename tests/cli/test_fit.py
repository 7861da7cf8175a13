"""`peakfold fit` as a user types it."""

from __future__ import annotations

import json

import pytest

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


def test_fits_and_does_not(call, model):
    done = call("fit", model, "--budget", "64KiB", "--json")
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert answer["fits"]
    assert answer["need_bytes"] == 65536 == answer["have_bytes"]
    done = call("fit", model, "--budget", "63KiB", "--json")
    assert done.exit_code == 3
    answer = json.loads(done.stdout)
    assert answer["fits"] is False
    assert done.stderr.splitlines() == [
        "peakfold: error: does not fit: the model needs 64.000 KiB (65536 B), "
        "the budget is 63.000 KiB (64512 B)"
    ]
    assert {"what", "peak_bytes", "extra_flops", "extra_time_s", "applied"} <= set(
        answer["options"][0]
    )


def test_time_and_batch_are_told_or_why_not(call, tmp_path):
    path = tmp_path / "net.pf"
    path.write_text(TEXT.replace("output y", """parameter v: float32[8,16,3,3]
c: float32[1,8,16,16] = conv(y, v, pads=[1,1,1,1], strides=[2,2])
p: float32[1,8,1,1] = global_average_pool(c)
f: float32[8] = reshape(p, shape=[8])
output f"""))  # fmt: skip
    flags = ("fit", str(path), "--budget", "60KiB", "--time-limit", "0.1")
    bare, timed = (json.loads(call(*flags, *more, "--json").stdout)
                   for more in ((), ("--device", "t4")))  # fmt: skip
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
    weights, image = 4 * 16 * 3 * 9, 4 * 3 * 32 * 32
    assert answer["beside_bytes"] == weights + image
    assert answer["need_bytes"] == 2 * 65536 + weights + image  # no lever is needed
    assert answer["have_bytes"] == 16_000_000_000
    chip = json.loads(call("fit", model, "--device", "stm32h743", "--json").stdout)
    assert chip["beside_bytes"] == image  # weights stay in flash


def test_the_flag_it_recommends_makes_the_plan(call, tmp_path):
    path = tmp_path / "net.pf"
    path.write_text(TEXT.replace("output y", """v: float32[4,16,3,3] = opaque(x)
z: float32[1,16,32,32] = max_pool(y, kernel_shape=[1,1])
u: float32[1,16,16,16] = max_pool(y, kernel_shape=[2,2], strides=[2,2])
output u"""))  # fmt: skip
    done = call("fit", str(path), "--budget", "50KiB", "--json")
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
def test_half_precision_weights_are_said_to_be_refused(call, shared):
    model = str(shared / "models/tflite/face_detection_short_range.tflite")
    flags = ["--target", "tflm", "--budget", "8MiB", "--time-limit", "0.1", "--json"]
    told = json.loads(call("fit", model, *flags).stdout)
    assert any("--fold-weights" in note for note in told["notes"])
    folded = json.loads(call("fit", model, *flags, "--fold-weights").stdout)
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
