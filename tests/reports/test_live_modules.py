"""A torch module at hand is a model, with its inputs: `peakfold.cost((module, inputs))`."""

from __future__ import annotations

import pytest

import peakfold
from peakfold.errors import UsageError

torch = pytest.importorskip("torch")

from peakfold.frontends.torch.module import Example  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.req("R65", "R66")]


@pytest.mark.parametrize("shape", ["tuple", "one", "keywords", "example"])
def test_a_module_with_its_inputs_is_a_model(shape):
    layer, x = torch.nn.Linear(8, 3), torch.zeros(5, 8)
    model = {
        "tuple": (layer, (x,)),
        "one": (layer, x),
        "keywords": (layer, (), {"input": x}),
        "example": Example(layer, (x,), route="trace"),
    }[shape]
    total = peakfold.cost(model).total()
    assert (total.macs, total.params) == (5 * 8 * 3, 8 * 3 + 3)
    assert layer.training
    assert peakfold.inspect(model).cost.total().macs == 5 * 8 * 3


def test_a_module_without_inputs_is_refused():
    with pytest.raises(UsageError, match="'Linear' comes without inputs"):
        peakfold.cost(torch.nn.Linear(8, 3))
    with pytest.raises(UsageError, match=r"\(module, args\) or \(module, args, kwargs\)"):
        peakfold.cost((torch.nn.Linear(8, 3), (), {}, 4))


@pytest.mark.parametrize("route", ["export", "trace"])
def test_batch_norm_in_training_takes_the_statistics_of_its_batch(route):
    layer, x = torch.nn.BatchNorm2d(5), torch.zeros(2, 5, 4, 4)
    for training, each in ((True, 7), (False, 2)):
        found = peakfold.cost(Example(layer.train(training), (x,), route=route))
        assert found.by_kind()["batch_normalization"].figures.other_ops == each * x.numel()


def test_folding_windows_back_adds_their_elements():
    columns = torch.zeros(1, 4 * 9, 36)
    found = peakfold.cost((torch.nn.Fold((8, 8), 3), columns))
    assert found.total().figures.other_ops == columns.numel()
