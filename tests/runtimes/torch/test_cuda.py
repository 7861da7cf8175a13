"""Measuring on a CUDA device, with a card that is not there."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from peakfold.analysis.cuda.footprint import Bytes, phase_footprints  # noqa: E402
from peakfold.errors import BackendMissing, UsageError  # noqa: E402
from peakfold.ir.run import Run, Steps, Storage  # noqa: E402
from peakfold.runtimes.torch.cuda import (  # noqa: E402
    CudaAllocator,
    measure_on_device,
    run_on_device,
)
from peakfold.runtimes.torch.fit import on_device  # noqa: E402
from tests.frontends.stated import StepOptions, fake_steps  # noqa: E402
from tests.frontends.torch.training_models import MODELS  # noqa: E402

from .card import WORKSPACE, Card, Carried, without_dropout  # noqa: E402

pytestmark = pytest.mark.torch
CUDA = StepOptions(device="cuda", attention="fused")
PHASES = ["forward", "backward", "optimizer", "after"]


@pytest.fixture
def card(monkeypatch):
    made = Card()
    monkeypatch.setattr(Carried, "card", made)
    return made


@pytest.mark.req("R3", "R14")
@pytest.mark.parametrize("optimizer", ["sgd", "momentum"])
@pytest.mark.parametrize("name", ["mlp", "resnet", "unet"])
def test_the_prediction_is_what_the_card_says(card, name, optimizer):
    """Small tensors: blocks are exact. A steady step finds its state among other holes."""
    module, args, kwargs = without_dropout(MODELS[name]())
    options = replace(CUDA, optimizer=optimizer)
    with card:
        found = measure_on_device(Carried(module), args, kwargs, options, card)
    for step in (found.first, found.steady):
        assert step.tensors == step.predicted
        assert list(step.device) == PHASES
        for phase, (predicted, measured) in step.device.items():
            assert predicted.allocated == measured.allocated, phase
        predicted, measured = step.reserved
        assert abs(predicted - measured) <= 20 << 20
    for phase, (predicted, measured) in found.first.device.items():
        assert predicted.reserved == measured.reserved, phase
    assert found.steady.allocator == max(two.allocated for _, two in found.steady.device.values())
    assert found.steady.allocator >= found.steady.tensors
    assert found.outside == card.outside()


def test_workspaces_are_kept_from_the_first_product_on(card):
    module, args, kwargs = without_dropout(MODELS["mlp"]())
    options = replace(CUDA, optimizer="sgd")
    plain = fake_steps(module, args, kwargs, options)
    with card:
        steps = run_on_device(Carried(module), args, kwargs, options, card)
    bare = {name: peak.allocated for name, peak in phase_footprints(plain.first).items()}
    held = {name: peak.allocated - bare[name] for name, peak in steps.first.items()}
    assert held == {name: (1 if name == "forward" else 2) * WORKSPACE for name in PHASES}
    assert steps.steady["forward"].allocated > 2 * WORKSPACE


class Scripted:
    """Peaks as they are written down, and what was asked in which order."""

    device = "cpu"

    def __init__(self, peaks, base=0):
        self.peaks, self.base, self.calls = list(peaks), base, []

    def synchronize(self):
        self.calls.append("synchronize")

    def empty_cache(self):
        self.calls.append("empty_cache")

    def forget_libraries(self):
        self.calls.append("forget_libraries")

    def reset_peak(self):
        self.calls.append("reset_peak")

    def now(self):
        return Bytes(self.base, 4 * self.base)

    def peak(self):
        self.calls.append("peak")
        return self.peaks.pop(0)

    def outside(self):
        return 7


def test_phases_of_parts_are_joined_and_what_was_there_before_is_taken_off():
    first = [Bytes(n, 10 * n) for n in (5, 6, 9, 4, 3, 2)]  # twice forward and backward
    steady = [Bytes(n, 10 * n) for n in (8, 9, 7, 20, 3, 2)]
    scripted = Scripted(first + steady, base=1)
    options = replace(CUDA, accumulate=2)
    found = run_on_device(torch.nn.Linear(2, 2), (torch.zeros(1, 2),), None, options, scripted)
    assert {name: peak.allocated for name, peak in found.first.items()} == {
        "forward": 8,
        "backward": 5,
        "optimizer": 2,
        "after": 1,
    }
    assert {name: peak.reserved for name, peak in found.steady.items()} == {
        "forward": 80,
        "backward": 200,
        "optimizer": 30,
        "after": 20,
    }
    assert (found.before, found.outside) == (1, 7)
    calls = scripted.calls
    assert calls.count("empty_cache") == 3
    for at, call in enumerate(calls):
        if call == "peak":
            assert calls[at - 1] == "synchronize"
            assert calls[at + 1 : at + 2] in (["reset_peak"], ["synchronize"], [])


def test_counts_of_steps_stay_on_the_host():
    state = Run(
        (
            Storage(4, 0, None, "optimizer_state", "before"),
            Storage(4096, 0, None, "optimizer_state", "before"),
        ),
        (),
        0,
    )
    steps = Steps(state, state)
    assert on_device(steps, CUDA).steady.static_bytes == 4096
    assert on_device(steps, replace(CUDA, form="fused")).steady.static_bytes == 4100
    assert on_device(steps, StepOptions()).steady.static_bytes == 4100


def test_bad_requests():
    module = torch.nn.Linear(2, 2)
    with pytest.raises(UsageError, match="no caching allocator"):
        measure_on_device(module, (torch.zeros(1, 2),), None, StepOptions())
    if not torch.cuda.is_available():
        with pytest.raises(BackendMissing, match="CUDA"):
            CudaAllocator()
        with pytest.raises(BackendMissing, match="CUDA"):
            measure_on_device(module, (torch.zeros(1, 2),))


def test_a_step_runs_where_the_examples_tensors_are():
    from peakfold.app.measure_training import _home
    from peakfold.frontends.torch.module import Example

    class OnCard:
        is_cuda = True

    module = torch.nn.Linear(2, 2)
    assert _home(Example(module, (torch.zeros(1, 2), 3, None))) == "cpu"
    assert _home(Example(module, (), {"x": [torch.zeros(1), OnCard()]})) == "cuda"
