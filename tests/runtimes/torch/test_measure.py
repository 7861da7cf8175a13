"""Predictions against a real step: storages and allocations."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from peakfold.errors import UsageError  # noqa: E402
from peakfold.frontends.torch_step import StepOptions  # noqa: E402
from peakfold.runtimes.torch.allocator import allocations, peak_of  # noqa: E402
from peakfold.runtimes.torch.measure import measure_training  # noqa: E402
from tests.frontends.training_models import MODELS  # noqa: E402

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
