"""The shipped models: their published sizes, their losses, and a plain run of a reduced one."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

import peakfold  # noqa: E402
from peakfold import examples  # noqa: E402
from peakfold.frontends.torch.training.step import StepOptions, fake_steps  # noqa: E402
from peakfold.runtimes.torch.allocator import allocations, peak_of  # noqa: E402
from peakfold.runtimes.torch.scratch import CpuScratch  # noqa: E402

pytestmark = pytest.mark.torch
PARAMETERS = {
    "bert": 109_514_298,
    "gpt2": 124_439_808,
    "resnet50": 25_557_032,
    "moe": 521_197_824,
    "unet": 74_051_331,
    "mlp": 407_050,
}
"""The first three are those of BertForMaskedLM, GPT2LMHeadModel and torchvision's resnet50."""
SMALL = {
    "bert": {"words": 500, "width": 64, "layers": 2, "heads": 2, "batch": 4, "tokens": 64},
    "gpt2": {"words": 500, "width": 64, "layers": 2, "heads": 2, "batch": 4, "tokens": 64},
    "moe": {"words": 500, "width": 64, "layers": 2, "heads": 2, "batch": 4, "tokens": 64},
    "unet": {"batch": 2, "size": 16, "base": 32, "widths": (1, 2)},
    "resnet50": {"batch": 2, "size": 32},
    "mlp": {},
}


@pytest.mark.req("R3")
@pytest.mark.parametrize("name", PARAMETERS)
def test_an_example_has_its_published_size_and_names_its_batch(name):
    with torch.device("meta"):
        example = getattr(examples, name)()
    assert isinstance(example, peakfold.Example)
    assert sum(p.numel() for p in example.module.parameters()) == PARAMETERS[name]
    assert example.module.training
    args, kwargs = example.resized({"batch": 3})
    assert {len(t) for t in (*args, *kwargs.values())} == {3}


@pytest.mark.req("R3", "R14")
@pytest.mark.parametrize("name", SMALL)
def test_a_step_of_a_reduced_example_takes_what_a_plain_run_takes(name):
    example = getattr(examples, name)(**SMALL[name])
    module, args, kwargs = example.module, example.args, example.kwargs
    steps = fake_steps(module, args, kwargs, StepOptions(), workspace=CpuScratch())
    assert steps.loss.startswith("the module's own")
    optimizer = torch.optim.AdamW(module.parameters())

    def loss():
        out = module(*args, **kwargs)
        return out["loss"] if isinstance(out, dict) else out

    def step():
        loss().backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    truth = steps.steady.static_bytes + peak_of(allocations(step))[0]
    assert steps.steady.peak == pytest.approx(truth, rel=0.002)


def test_examples_need_torch_alone_and_importing_peakfold_not_even_that():
    code = """
import json, sys
import peakfold
before = sorted({m.partition(".")[0] for m in sys.modules})
assert "Example" in dir(peakfold) or "Example" in peakfold.__all__
import peakfold.examples
after = sorted({m.partition(".")[0] for m in sys.modules})
print(json.dumps([before, after]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, after = json.loads(done.stdout)
    assert "torch" not in before
    assert "torch" in after
    assert not {"transformers", "torchvision", "timm", "diffusers"} & set(after)
