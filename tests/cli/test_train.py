"""`plan --train` on files, as a user types it."""

from __future__ import annotations

import json

import pytest

from tests.zoo_onnx import write_alexnet, write_vgg_a

CHART = {
    # forward and forward+backward: naive, inplace, share, both (arXiv 1604.06174, figure 7)
    "alexnet": (
        write_alexnet,
        (396_988_416, 226_437_120, 148_045_824, 122_847_232),
        (832_256_000, 661_704_704, 537_956_352, 468_652_032),
    ),
    "vgg-a": (
        write_vgg_a,
        (4_207_136_768, 2_295_195_648, 1_697_644_544, 1_055_391_744),
        (8_452_552_704, 6_540_611_584, 5_844_881_408, 5_029_220_352),
    ),
}
MXNET = (
    "--target",
    "mxnet",
    "--share",
    "nnvm",
    "--mode",
    "both",
    "--align",
    "1",
    "--json",
    "--time-limit",
    "1",
)
TRAIN = ("--train", "--loss", "softmax-output", "--grad-reads", "mxnet", "--input-grad")


def modes(out: str) -> tuple[int, ...]:
    summary = json.loads(out)["summary"]
    return tuple(summary[f"{mode}_bytes"] for mode in ("naive", "inplace", "share", "both"))


@pytest.mark.req("R41", "R44", "R52")
@pytest.mark.parametrize("name", sorted(CHART))
def test_chart_rows_from_onnx_files(name, tmp_path, call):
    write, forward, both = CHART[name]
    model = str(write(tmp_path / f"{name}.onnx"))
    done = call("plan", model, *MXNET)
    assert done.exit_code == 0, done.output
    assert modes(done.stdout) == forward
    plan = str(tmp_path / "plan.json")
    done = call("plan", model, *MXNET, *TRAIN, "-o", plan)
    assert done.exit_code == 0, done.output
    assert modes(done.stdout) == both
    assert call("verify", model, plan).exit_code == 0


@pytest.mark.req("R12", "R27")
def test_a_training_step_with_an_optimizer(tmp_path, call):
    model = str(write_alexnet(tmp_path / "alexnet.onnx", batch=2))
    plain = json.loads(call("plan", model, "--json").stdout)["summary"]
    step = ("--train", "--loss", "softmax-output", "--json")
    report = json.loads(call("plan", model, *step, "--optimizer", "adam").stdout)
    assert report["loss"].startswith("softmax-output (the last softmax")
    adam = report["summary"]
    assert report["optimizer"] == "adam"
    told = call("plan", model, "--train").stdout.splitlines()[2:4]
    assert told == [
        "loss: external (the gradient of each output is given, as an input)",
        "optimizer: none (gradients only, no update)",
    ]
    for verb in (("fit", "--budget", "1GiB"), ("modes",)):
        lines = call(verb[0], model, "--train", *verb[1:]).stdout.splitlines()
        assert lines[1:3] == told, verb
    assert call("plan", model, "--train", "--loss", "mse").exit_code == 2
    sgd = json.loads(call("plan", model, *step, "--optimizer", "sgd").stdout)["summary"]
    parameters = plain["static_bytes"]
    assert sgd["static_bytes"] == parameters
    assert adam["static_bytes"] == 3 * parameters
    # Every gradient of a parameter is alive when the first update runs.
    assert sgd["arena_bytes"] >= parameters > plain["arena_bytes"]


def test_options_of_training_ask_for_training(tmp_path, call):
    model = str(write_alexnet(tmp_path / "alexnet.onnx", batch=1))
    done = call("plan", model, "--optimizer", "adam")
    assert done.exit_code == 2
    assert "--train" in done.stderr
