"""Autocast regions keep the types of the device they are for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from peakfold.frontends.torch.autocast import runs_in_float32  # noqa: E402
from peakfold.frontends.torch.module import capture  # noqa: E402
from tests.frontends.stated import StepOptions, fake_steps, step_graph  # noqa: E402

pytestmark = pytest.mark.torch
nn = torch.nn
X = torch.zeros(8, 64)


class Region(nn.Module):
    """A model with an autocast region of its own."""

    def __init__(self, device: str, dtype=torch.bfloat16):
        super().__init__()
        self.layer, self.norm = nn.Linear(64, 64), nn.LayerNorm(64)
        self.device, self.dtype = device, dtype

    def forward(self, x):
        with torch.autocast(self.device, self.dtype):
            return self.norm(self.layer(x)).softmax(-1)


def types(graph):
    """Element types of what the products, norms and softmaxes make."""
    kinds = {"addmm": "product", "linear": "product", "softmax": "softmax"}
    found = {}
    for op in graph.ops:
        kind = "norm" if "norm" in op.kind else kinds.get(op.kind)
        if kind and kind not in found:
            found[kind] = graph[op.outputs[0]].dtype.name
    return found


@pytest.mark.parametrize("name", ["exp", "layer_norm", "mse_loss", "softmax", "sum", "norm"])
def test_only_a_region_widens(name):
    function = getattr(nn.functional, name, None) or getattr(torch, name)
    assert not runs_in_float32(function)
    with torch.autocast("cpu", torch.bfloat16):
        assert runs_in_float32(function)
        assert not runs_in_float32(torch.matmul)


def test_every_function_of_the_library_that_widens_is_known():
    """Its own header lists them; those of one family are reached by `interpolate` and `norm`."""
    header = Path(torch.__file__).parent / "include/ATen/autocast_mode.h"
    text = header.read_text()
    wide = text[text.index("define AT_FORALL_FP32(_)") : text.index("define AT_FORALL_DIFFERENT")]
    wide += text[text.index("define AT_FORALL_PROMOTE(_)") : text.index("error")]
    names = set(re.findall(r"_\((\w+)", wide))
    family = re.compile(r"_?upsample|linalg_|nll_loss2d$")
    assert len(names) > 50
    with torch.autocast("cpu", torch.bfloat16):
        for name in sorted(n for n in names if not family.match(n)):
            homes = (torch, torch.Tensor, nn.functional)
            functions = [getattr(h, name) for h in homes if hasattr(h, name)]
            assert functions, name
            assert all(runs_in_float32(f) for f in functions), name


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_norms_and_softmax_are_wide_on_a_gpu_only(dtype):
    wanted = {"cpu": dtype, "cuda": "float32"}
    model = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.Softmax(-1))
    for device, wide in wanted.items():
        options = StepOptions(device=device, autocast=getattr(torch, dtype))
        graph = step_graph(model, (X,), options=options).graph
        assert types(graph) == {"product": dtype, "norm": wide, "softmax": wide}


def test_mixed_operands_are_widened_on_a_gpu():
    class Sums(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(64, 64)

        def forward(self, x):
            at = torch.zeros(8, 64, dtype=torch.long)
            return torch.zeros(8, 64).scatter_add(1, at, self.layer(x))

    options = StepOptions(device="cuda", autocast=torch.bfloat16)
    graph = step_graph(Sums(), (X,), options=options).graph
    (added,) = [op for op in graph.ops if "scatter" in op.kind and op.outputs]
    assert graph[added.outputs[0]].dtype.name == "float32"


@pytest.mark.parametrize("route", ["export", "trace"])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_models_own_region_holds(device, route):
    before = torch.autocast.__init__
    assert set(types(capture(Region(device), (X,), route=route)).values()) == {"bfloat16"}
    assert torch.autocast.__init__ is before


def test_a_models_own_region_holds_in_training():
    long = (torch.zeros(512, 64),)
    peaks = [fake_steps(Region(device), long).steady.peak for device in ("cpu", "cuda")]
    assert peaks[0] == peaks[1] < fake_steps(Region("cpu", torch.float32), long).steady.peak
    half = types(step_graph(Region("cuda", None), (X,)).graph)
    assert half["product"] == "float16"  # what CUDA takes when none is named
