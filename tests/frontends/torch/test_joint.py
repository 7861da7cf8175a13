"""Two ways to a training graph agree: the step as it runs, and the exported joint program."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from peakfold.analysis.cost.counting import cost_of  # noqa: E402
from peakfold.errors import ModelError, UsageError  # noqa: E402
from peakfold.ir import Role, check_graph  # noqa: E402
from peakfold.judges.plan import verify_plan  # noqa: E402
from peakfold.planning import PlanOptions, make_plan  # noqa: E402
from tests.frontends.stated import StepOptions, fake_steps, joint_graph, step_graph  # noqa: E402

from .training_models import Doubtful  # noqa: E402

pytestmark = pytest.mark.torch
nn = torch.nn


def mlp():
    layers = [nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 10)]
    return nn.Sequential(*layers), (torch.randn(32, 64),)


def cnn():
    layers = [
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3),
        nn.BatchNorm2d(16),
        nn.SiLU(),
        nn.Flatten(),
        nn.Linear(16 * 36, 10),
    ]
    return nn.Sequential(*layers), (torch.randn(4, 3, 16, 16),)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)
        self.one, self.two = nn.LayerNorm(32), nn.LayerNorm(32)

    def forward(self, x):
        q, k, v = self.qkv(self.one(x)).view(2, 16, 3, 4, 8).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(2, 16, 32))
        return x + self.down(nn.functional.gelu(self.up(self.two(x))))


def transformer():
    layers = [nn.Embedding(50, 32), Block(), Block(), nn.Linear(32, 50)]
    return nn.Sequential(*layers), (torch.randint(0, 50, (2, 16)),)


MODELS = {make.__name__: make for make in (mlp, cnn, transformer)}


def squares(y):
    return y.pow(2).mean()


def sizes(graph):
    return sorted(t.shape for t in graph.tensors if t.role is Role.GRADIENT)


@pytest.mark.req("R3", "R5", "R12")
@pytest.mark.parametrize("name", MODELS)
def test_the_two_routes_agree(name):
    module, args = MODELS[name]()
    options = StepOptions(loss=squares)
    joint = joint_graph(module.train(), args, options=options, names=["x"])
    check_graph(joint.graph)
    eager = step_graph(module, args, options=options).graph
    run = fake_steps(module, args, options=options).steady

    held = sum(s.nbytes for s in run.storages if s.role == "saved")
    assert sum(joint.saved.values()) == held > 0
    weights = sorted(tuple(p.shape) for p in module.parameters())
    assert sizes(joint.graph) == weights
    assert cost_of(joint.graph).total().figures.macs == cost_of(eager).total().figures.macs
    assert [phase for phase, _ in joint.phases] == ["forward", "backward"]
    parameters = {t.name for t in joint.graph.tensors if t.role is Role.PARAMETER}
    assert parameters == {n for n, _ in module.named_parameters()}
    assert joint.graph.inputs == ("x", "loss_gradient")


@pytest.mark.req("R27")
@pytest.mark.parametrize("name", MODELS)
def test_its_plan_is_accepted_and_no_larger_than_the_eager_run(name):
    module, args = MODELS[name]()
    options = StepOptions(loss=squares)
    graph = joint_graph(module.train(), args, options=options).graph
    result = make_plan(graph, PlanOptions(align=1, time_limit=0.5, quick=True))
    assert all(check.ok for check in verify_plan(graph, result.plan))
    run = fake_steps(module, args, options=options).steady
    assert result.summary.lower_bound_bytes <= run.peak - run.static_bytes


def test_modules_are_named_in_both_passes():
    module, args = cnn()
    joint = joint_graph(module, args)
    boundary = dict(joint.phases)["backward"]
    convolutions = [
        (op.scope, at < boundary)
        for at, op in enumerate(joint.graph.ops)
        if op.kind.startswith("conv")
    ]
    assert {scope for scope, _ in convolutions} == {"0", "4"}
    assert sum(forward for _, forward in convolutions) == 2


def test_statistics_are_written_when_the_forward_pass_ends():
    module, args = cnn()
    joint = joint_graph(module.train(), args)
    writers = {w: at for at, op in enumerate(joint.graph.ops) for w in op.writes}
    assert {name for name, _ in module.named_buffers()} <= set(writers)
    assert max(writers.values()) < dict(joint.phases)["backward"]


@pytest.mark.parametrize("p", [0.0, 0.5])
def test_a_dropout_that_drops_nothing_is_not_there(p):
    module = nn.Sequential(nn.Linear(16, 64), nn.Dropout(p), nn.Linear(64, 4))
    args = (torch.randn(8, 16),)
    plain = joint_graph(nn.Sequential(module[0], module[2]), args)
    joint = joint_graph(module.train(), args)
    # What drops keeps its mask, a byte an element, as GPUs do; eager CPU kernels keep floats.
    extra = 8 * 64 if p else 0
    assert sum(joint.saved.values()) - sum(plain.saved.values()) == extra
    assert (len(joint.graph.ops) == len(plain.graph.ops)) == (not p)


def test_frozen_and_tied_weights():
    module = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    module[0].requires_grad_(False)
    module[4].weight = module[2].weight
    graph = joint_graph(module, (torch.zeros(2, 8),)).graph
    assert sizes(graph) == [(8,), (8,), (8, 8)]
    trainable = {t.name: t.trainable for t in graph.tensors if t.role is Role.PARAMETER}
    assert not trainable["0.weight"]
    assert trainable["2.weight"]
    assert "4.weight" not in trainable


def test_failures_name_module_and_line():
    with pytest.raises(ModelError, match="joint export failed") as error:
        joint_graph(nn.Sequential(Doubtful()), (torch.zeros(1, 4),))
    assert "module '0'" in error.value.where
    assert "training_models.py" in error.value.where
    args = (torch.zeros(1, 4),)
    with pytest.raises(UsageError, match="nothing to train"):
        joint_graph(nn.Linear(4, 4).requires_grad_(False), args)
    for bad in ({"accumulate": 2}, {"attention": "math"}, {"autocast": torch.bfloat16}):
        with pytest.raises(UsageError, match="a joint export has no"):
            joint_graph(nn.Linear(4, 4), args, options=StepOptions(**bad))


def test_the_model_is_left_as_it_was():
    module, args = cnn()
    before = {k: v.clone() for k, v in module.state_dict().items()}
    joint_graph(module.train(), args)
    assert all(torch.equal(v, before[k]) for k, v in module.state_dict().items())
    assert all(p.grad is None for p in module.parameters())
    assert torch.zeros(2).sum().item() == 0  # no fake mode is left active
    assert torch._C._len_torch_dispatch_stack() == 0
