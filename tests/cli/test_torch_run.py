"""`--route run`, and forward passes of torch modules, as a user asks for them."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

SOURCE = """
import torch
from peakfold import Example
def mlp():
    layers = torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8)
    return Example(torch.nn.Sequential(*layers), (torch.zeros(16, 64),),
                   dynamic={"input": {0: "batch"}})
class Masked(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x).masked_select(x > -1).sum()
def masked():
    return Masked(64, 64), (torch.rand(32, 64),)
"""


@pytest.mark.req("R3", "R15")
def test_from_the_command_line(call, tmp_path, monkeypatch):
    (tmp_path / "run_nets.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)

    def answer(*words):
        done = call(*words, "--json")
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    train = ("--train", "--optimizer", "sgd", "--route", "run")
    assert answer("plan", "run_nets:masked", *train)["steady"]["peak_bytes"] == 51_464
    assert answer("fit", "run_nets:masked", *train, "--budget", "1MiB")["largest_batch"] is None
    assert answer("measure", "run_nets:masked", "--runtime", "torch", *train)["obeyed"]
    assert (
        "route: run"
        in call("plan", "run_nets:mlp", *train, "--loss", "sum", "--dim", "batch=3").stderr
    )
    assert answer("inspect", "run_nets:masked", "--route", "run")["unsupported"] == []
    forward = answer("plan", "run_nets:mlp", "--eager", "--dim", "batch=32", "-o", "x.csv")
    made = 4 * 32 * 256 * 2
    assert forward["forward"]["peak_bytes"] - forward["forward"]["static_bytes"] == made
    assert answer("pack", "x.csv")["height_bytes"] == made
    assert call("plan", "run_nets:mlp", "--eager", "--budget", "1KiB").exit_code == 3
    measured = answer("measure", "run_nets:mlp", "--runtime", "torch")
    assert measured["forward"]["predicted_bytes"] == measured["forward"]["allocator_bytes"]
    assert "the prediction holds" in call("measure", "run_nets:mlp", "--runtime", "torch").stdout
    assert call("plan", "model.onnx", "--route", "run").exit_code == 2
