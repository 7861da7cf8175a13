"""Public reports of wrong counts, each with its right value (numbers: the list of the issue)."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn, rand  # noqa: E402

from peakfold.analysis.cost.counting import cost_of  # noqa: E402
from peakfold.frontends.torch.module import capture  # noqa: E402
from peakfold.ir import Role  # noqa: E402
from tests.frontends.torch.test_costs import macs, meta, params  # noqa: E402

from . import torch_models as zoo  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.req("R65", "R63")]


class Step(nn.Module):
    """Forward and backward of a layer, as one program."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            out = self.layer(x)
            return torch.autograd.grad(out.sum(), [x, *self.layer.parameters()])


def step_flops(layer: nn.Module, *shape: int) -> int:
    module = meta(lambda: Step(layer))
    return 2 * macs(capture(module, (rand(shape),), route="trace"))


def test_report_1_attention_on_the_cpu_is_not_free():
    q = rand(1, 12, 64, 64)
    for route in ("export", "trace", "run"):
        graph = capture(zoo.Fn(F.scaled_dot_product_attention), (q, q, q), route=route)
        assert 2 * macs(graph) == 12_582_912


def test_report_2_transposed_convolution_forward_and_backward():
    assert (
        500 * step_flops(nn.ConvTranspose2d(192, 384, 2, 2), 6, 192, 30, 96) == 15_288_238_080_000
    )


def test_report_3_attention_is_counted_once():
    q = rand(2, 5, 9, 4)
    assert 2 * macs(capture(zoo.Fn(F.scaled_dot_product_attention), (q, q, q))) == 12_960


def test_report_5_grouped_convolution_forward_and_backward():
    assert step_flops(nn.Conv2d(32, 32, 3, groups=8, padding=1), 1, 32, 8, 8) == 442_368


@pytest.mark.parametrize(
    ("report", "layer", "shape", "right"),
    [
        (6, nn.ConvTranspose2d(32, 1, 3), (1, 32, 1, 1), 288),
        (12, nn.ConvTranspose2d(3, 1, 2, 2), (1, 3, 2, 2), 48),
        (14, nn.Conv1d(32, 32, 3, 2, 4), (32, 128), 205_824),
        (16, nn.ConvTranspose2d(3, 1, 2, 2, bias=False), (1, 3, 2, 2), 48),
        (22, nn.ConvTranspose2d(16, 32, 4, 2, 1, groups=4), (1, 16, 8, 8), 131_072),
        (23, nn.Conv1d(1000, 1000, 3, padding=1), (1, 1000, 512), 1_536_000_000),
        (24, nn.ConvTranspose2d(4, 4, 3, 2, 1, 1, groups=4), (2, 4, 8, 8), 4_608),
        (28, nn.ConvTranspose2d(8, 4, 3, 3), (1, 8, 5, 5), 25 * 8 * 4 * 9),
    ],
)
def test_convolution_reports(report, layer, shape, right):
    assert macs(capture(layer, (rand(shape),))) == right


def test_report_7_vit_tiny_with_two_classes():
    module, image = meta(zoo.ViT, 192, 3, 2), torch.empty(1, 3, 224, 224, device="meta")
    assert macs(capture(module, (image,))) == 1_253_491_584


@pytest.mark.parametrize("heads", [4, 8])
def test_report_8_heads_do_not_change_the_count(heads):
    x = rand(300, 448)
    assert macs(capture(nn.MultiheadAttention(448, heads), (x, x, x))) == 321_484_800


def test_report_9_nothing_is_skipped_in_silence():
    module = nn.Sequential(nn.BatchNorm2d(4), nn.Sigmoid(), nn.MaxPool2d(2)).eval()
    other = cost_of(capture(module, (rand(1, 4, 8, 8),))).total().figures.other_ops
    assert other == 2 * 256 + 256 + 64 * 4


def test_report_10_attention_without_a_batch():
    x = rand(580, 512)
    assert macs(capture(nn.MultiheadAttention(512, 4), (x, x, x))) == 952_647_680


def test_report_11_frozen_encoder_layer():
    layer = nn.TransformerEncoderLayer(512, 4, 512, batch_first=True).eval().requires_grad_(False)
    graph = capture(layer, (rand(1, 64, 512),))
    assert macs(graph) == 104_857_600
    assert {t.trainable for t in graph.tensors if t.role is Role.PARAMETER} == {False}


def test_report_13_functional_convolutions_of_efficientnet(monkeypatch):
    def functional(self, x):
        return F.conv2d(x, self.weight, self.bias, self.stride, self.padding, 1, self.groups)

    monkeypatch.setattr(nn.Conv2d, "forward", functional)
    graph = capture(meta(zoo.efficientnet_b0), (torch.empty(1, 3, 224, 224, device="meta"),))
    assert macs(graph) == 385_814_752


def test_report_15_a_shared_module_still_runs_afterwards():
    act = nn.ReLU()
    module = nn.Sequential(nn.Linear(4, 4), act, nn.Linear(4, 4), act)
    before = module(x := rand(2, 4))
    capture(module, (x,))
    assert torch.equal(module(x), before)


def test_report_17_vit_b_16():
    image = torch.empty(1, 3, 224, 224, device="meta")
    assert macs(capture(meta(zoo.ViT, 768, 12, 1000), (image,))) == 17_563_828_224


def test_report_18_a_shared_activation_does_not_multiply_parameters():
    act = nn.ReLU()
    blocks = [nn.Sequential(nn.Linear(4, 4), act, nn.Linear(4, 4), act) for _ in range(3)]
    assert params(capture(nn.Sequential(*blocks), (rand(1, 4),))) == 120


def test_report_19_a_child_called_by_its_forward():
    class Direct(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 6)

        def forward(self, x):
            return self.two.forward(self.one(x))

    graph = capture(Direct(), (rand(1, 4),))
    assert sum(t.nbytes for t in graph.tensors if t.role is Role.PARAMETER) == 200


@pytest.mark.parametrize("steps", [1, 20])
def test_report_20_recurrence_counts_every_step(steps):
    assert macs(capture(nn.LSTM(8, 16), (rand(steps, 2, 8),))) == steps * 2 * 64 * 24


def test_report_21_attention_grows_with_the_square():
    linear = nn.Linear(8, 8)

    def block(x):
        y = linear(x)
        return torch.bmm(y, y.transpose(1, 2))

    assert macs(capture(zoo.Fn(block), (rand(2, 10, 8),))) == 2_880


def test_report_25_broadcast_products():
    product = zoo.Fn(torch.matmul)
    assert macs(capture(product, (rand(2, 1, 4, 8), rand(3, 8, 5)))) == 960
    assert macs(capture(product, (rand(8), rand(8)))) == 8


def test_report_26_counts_do_not_grow_and_shared_layers_count_each_call():
    norm = nn.LayerNorm(256)
    other = [cost_of(capture(norm, (rand(1, 256),))).total().figures.other_ops for _ in range(3)]
    assert len(set(other)) == 1
    shared = nn.Linear(100, 100, bias=False)
    graph = capture(nn.Sequential(shared, shared, shared), (rand(1, 100),))
    assert (cost_of(graph).total().figures.flops, params(graph)) == (60_000, 10_000)


@pytest.mark.parametrize(("layer", "right"), [(nn.LSTM, 3_276_800), (nn.GRU, 2_457_600)])
def test_report_27_recurrent_layers_of_100_steps(layer, right):
    assert macs(capture(layer(64, 64), (rand(100, 1, 64),))) == right


def test_report_31_attention_share_of_a_block():
    steps, width = 48, 64
    block = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True).eval()
    total = macs(capture(block, (rand(1, steps, width),)))
    linear = 12 * width * width * steps
    assert total * 6 * width == linear * (6 * width + steps)  # 1 + N / (6 d)
