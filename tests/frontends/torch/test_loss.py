"""The loss of a step: the module's own, given, or named; never made up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from peakfold.errors import ModelError, UsageError  # noqa: E402
from peakfold.frontends.torch.training.joint import joint_graph  # noqa: E402
from peakfold.frontends.torch.training.options import LOSSES, StepOptions  # noqa: E402
from peakfold.frontends.torch.training.step import fake_steps, real_steps, step_graph  # noqa: E402
from peakfold.ir import Role  # noqa: E402
from peakfold.runtimes.torch.allocator import allocations, peak_of  # noqa: E402

pytestmark = pytest.mark.torch
nn, F = torch.nn, torch.nn.functional


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.out = nn.Embedding(300, 16), nn.Linear(16, 300)

    def forward(self, ids):
        return self.out(self.words(ids))


WORDS = Words(), (torch.zeros(4, 64, dtype=torch.long),)
NAMED = {
    "classes": ("cross-entropy", nn.Linear(8, 500), (torch.zeros(64, 8),), (64,)),
    "tokens": ("cross-entropy", *WORDS, (256,)),
    "pixels": ("cross-entropy", nn.Conv2d(3, 40, 3), (torch.zeros(2, 3, 18, 18),), (2, 16, 16)),
    "mse": ("mse", nn.Linear(8, 500), (torch.zeros(64, 8),), (64, 500)),
}


def plain(kind, module, inputs, target):
    """Peak of a step that nobody watches, as people write it; what was there before counts."""
    optimizer = torch.optim.AdamW(module.parameters())

    def loss():
        out = module(*inputs)
        if kind == "mse":
            return F.mse_loss(out, target)
        return F.cross_entropy(out.view(-1, out.shape[-1]) if out.dim() == 3 else out, target)

    def step():
        loss().backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    state = [v for entry in optimizer.state.values() for v in entry.values()]
    held = [*module.parameters(), *inputs, target, *state]
    return sum(t.numel() * t.element_size() for t in held) + peak_of(allocations(step))[0]


@pytest.mark.req("R3", "R14")
@pytest.mark.parametrize("name", NAMED)
def test_a_loss_by_name_takes_what_a_plain_loop_takes(name):
    kind, module, inputs, shape = NAMED[name]
    options = StepOptions(loss=kind)
    predicted, followed = (run(module, inputs, None, options) for run in (fake_steps, real_steps))
    target = torch.zeros(shape, dtype=torch.float32 if kind == "mse" else torch.int64)
    nbytes = target.numel() * target.element_size()
    truth = plain(kind, module, inputs, target)
    assert abs(predicted.steady.peak - truth) <= max(64, 0.002 * truth)  # kernels take some scratch
    for step in (predicted.steady, followed.steady):
        given = sum(s.nbytes for s in step.storages if s.role == "input" and s.born == 0)
        assert given == nbytes + sum(t.numel() * t.element_size() for t in inputs)
    assert predicted.steady.peak == followed.steady.peak
    assert f"{list(shape)} made as an input of {nbytes} B" in predicted.loss
    assert predicted.loss == followed.loss
    graph = step_graph(module, inputs, None, options, ("x",)).graph
    assert graph.inputs == ("x", "target")
    assert graph["target"].shape == shape
    joint = joint_graph(module, inputs, None, options).graph
    assert shape in [t.shape for t in joint.tensors if t.role is Role.INPUT]


@dataclass
class Output:
    loss: Any
    logits: Any


class Returns(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.layer, self.shape = nn.Linear(4, 3), shape

    def forward(self, x):
        return self.shape(self.layer(x))


OWN = {
    "a field": (lambda y: Output(y.mean(), y), "its 'loss'"),
    "a key": (lambda y: {"loss": y.mean(), "logits": y}, "its 'loss'"),
    "a dict of losses": (lambda y: {"box": y.mean(), "mask": y.sum()}, "a sum of box, mask"),
    "a dict in a field": (lambda y: Output({"a": y.mean(), "b": None}, y), "is a sum of a"),
    "one number": (lambda y: y.mean(), "the one number it returns"),
    "a tuple": (lambda y: (y, y.mean()), "the one number it returns beside other results"),
}


@pytest.mark.req("R3")
@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("asked", [None, "cross-entropy"])
def test_a_module_that_returns_its_loss_is_taken_at_its_word(name, asked):
    shape, said = OWN[name]
    args = (Returns(shape), (torch.zeros(2, 4),), None, StepOptions(loss=asked))
    steps = fake_steps(*args)
    assert said in steps.loss
    assert ("--loss cross-entropy is not needed" in steps.loss) is (asked is not None)
    assert steps.steady.peak == real_steps(*args).steady.peak
    given = StepOptions(loss=lambda out: Returns(lambda y: y)(torch.zeros(1, 4)).sum())
    assert "the function given" in fake_steps(*args[:3], given).loss


@pytest.mark.req("R3")
@pytest.mark.parametrize(
    "shape",
    [
        lambda y: y,
        lambda y: (y, y),
        lambda y: Output(None, y),
        lambda y: {"loss": None, "aux": y.sum()},
        lambda y: (y.sum(), y.mean()),
        lambda y: {"logits": y, "a": y.sum(), "b": y.mean()},
    ],
)
def test_without_a_loss_a_step_is_refused_in_one_line(shape):
    module, args = Returns(shape), (torch.zeros(2, 4),)
    for run in (fake_steps, real_steps, step_graph, joint_graph):
        with pytest.raises(UsageError, match="returns no loss") as error:
            run(module, args)
        assert "--loss cross-entropy|mse|sum|module:function" in error.value.hint


def test_losses_that_cannot_be():
    line = nn.Linear(4, 3), (torch.zeros(4),)
    with pytest.raises(UsageError, match="no classes"):
        fake_steps(*line, options=StepOptions(loss="cross-entropy"))
    assert fake_steps(*line, options=StepOptions(loss="mse")).steady.peak > 0
    with pytest.raises(UsageError, match="not one number each"):
        fake_steps(Returns(lambda y: Output({"a": y}, y)), (torch.zeros(2, 4),))
    with pytest.raises(UsageError, match="no loss 'hinge'") as error:
        StepOptions(loss="hinge")
    assert all(name in error.value.hint for name in LOSSES)
    with pytest.raises(ModelError, match="training step on tensors without values failed"):
        fake_steps(nn.Linear(4, 3), (torch.zeros(1, 5),), options=StepOptions(loss="mse"))


def test_targets_of_a_region_stay_wide():
    options = StepOptions(loss="mse", autocast=torch.bfloat16)
    module, args = nn.Linear(8, 32), (torch.zeros(16, 8),)
    one, two = (run(module, args, options=options) for run in (fake_steps, real_steps))
    assert "float32 [16, 32] made as an input of 2048 B" in one.loss
    assert one.steady.peak == two.steady.peak


@pytest.mark.req("R3")
def test_adamw_is_taken_where_none_is_named_and_said():
    module, args = nn.Linear(8, 32), (torch.zeros(16, 8),)
    plain = fake_steps(module, args, options=StepOptions(loss="sum"))
    named = fake_steps(module, args, options=StepOptions(loss="sum", optimizer="adamw"))
    assert plain.steady == named.steady
    assert plain.optimizer.startswith("adamw (none named), default form")
    assert named.optimizer.startswith("adamw, default form")
    given = StepOptions(loss="sum", optimizer=torch.optim.Adam)
    assert fake_steps(module, args, options=given).optimizer == "the function given"


def test_a_result_that_is_kept_is_an_output_of_the_graph():
    module, args = nn.Sequential(nn.Linear(8, 32), nn.ReLU()), (torch.zeros(16, 8),)
    for keep in (False, True):
        options = StepOptions(loss="mse", keep_result=keep)
        graph = step_graph(module, args, options=options).graph
        assert [graph[name].shape for name in graph.outputs] == [(16, 32)] * keep
