"""Predictions against a real step: storages and allocations."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from peakfold.errors import UsageError  # noqa: E402
from peakfold.runtimes.torch.allocator import allocations, peak_of  # noqa: E402
from tests.frontends.stated import StepOptions, measure_training  # noqa: E402
from tests.frontends.torch.training_models import MODELS  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.mark.req("R3", "R14")
@pytest.mark.parametrize(
    ("name", "optimizer"),
    [(name, "adamw") for name in sorted(MODELS)] + [("resnet", "sgd"), ("bert", "sgd")],
)
def test_within_a_fraction_of_both_truths(name, optimizer):
    module, args, kwargs = MODELS[name]()
    module.train()
    found = measure_training(module, args, kwargs, StepOptions(optimizer=optimizer))
    for step in (found.first, found.steady):
        assert abs(step.tensor_error) <= 0.002
        assert abs(step.allocator_error) <= 0.01


class Mixture(torch.nn.Module):
    """Experts as one product with a free index: backward kernels get operands of other layouts."""

    def __init__(self):
        super().__init__()
        self.one = torch.nn.Parameter(torch.randn(4, 40, 80))
        self.two = torch.nn.Parameter(torch.randn(4, 80, 40))

    def forward(self, x):
        hidden = torch.nn.functional.gelu(torch.einsum("bd,ndh->bnh", x, self.one))
        return torch.einsum("bnh,nhd->bnd", hidden, self.two).sum(1).sin()


class Sequence(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.LSTM(20, 36, 2, batch_first=True)

    def forward(self, x):
        return self.layers(x)[0][:, -1].sin()


@pytest.mark.req("R14")
@pytest.mark.parametrize(
    ("make", "shape"), [(Mixture, (33, 40)), (Sequence, (6, 11, 20))], ids=["mixture", "sequence"]
)
def test_kernels_that_copy_their_operands(make, shape):
    """Ten and two percent of these are copies that a kernel makes of what lies in another order."""
    found = measure_training(make(), (torch.randn(shape),))
    for step in (found.first, found.steady):
        assert abs(step.predicted_scratch - step.allocator) <= 64


def test_scratch_is_seen_by_the_allocator_only():
    module, args, kwargs = MODELS["unet"]()
    step = measure_training(module, args, kwargs).steady
    assert step.tensors == step.predicted < step.predicted_scratch
    assert step.allocator > step.tensors


def test_allocations_are_in_order():
    def run():
        a = torch.zeros(1000)
        b = torch.zeros(500)
        del a
        return b

    changes = allocations(run)
    assert [c for c in changes if abs(c) >= 2000] == [4000, 2000, -4000, -2000]
    assert peak_of(changes) == (6000, 0)


def test_only_the_cpu_is_measured_on_a_cpu():
    module, args, kwargs = MODELS["mlp"]()
    with pytest.raises(UsageError, match="its own kernels"):
        measure_training(module, args, kwargs, StepOptions(device="cuda"))
