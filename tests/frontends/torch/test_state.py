"""The state of an optimizer in a captured step is that of torch's own first update."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")

from peakfold.frontends.torch.training.step import FORMS, OPTIMIZERS  # noqa: E402
from peakfold.ir import Role  # noqa: E402
from tests.frontends.stated import StepOptions, fake_steps, step_graph  # noqa: E402

pytestmark = pytest.mark.torch
nn = torch.nn


class Net(nn.Module):
    """Weights in another memory format, and a layer that nothing reads."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.out = nn.Linear(8, 5)
        self.unused = nn.Linear(7, 7)
        self.to(memory_format=torch.channels_last)

    def forward(self, x):
        return self.out(self.conv(x).mean((2, 3)))


def two_groups(parameters):
    held = list(parameters)
    flat = {"params": [p for p in held if p.ndim == 1], "weight_decay": 0.0}
    return torch.optim.Adam([{"params": [p for p in held if p.ndim > 1]}, flat])


def no_dense(parameters):
    """Refuses the meta tensors that a twin would be made of, as the fused forms do."""
    held = list(parameters)
    if held[0].device.type == "meta":
        raise RuntimeError("no meta tensors")
    return torch.optim.Adam(held)


CASES = {
    **{
        f"{name} {form}": StepOptions(optimizer=name, form=form)
        for name in OPTIMIZERS
        for form in FORMS
        if (name, form) != ("rmsprop", "fused")
    },
    "amsgrad": StepOptions(optimizer=lambda p: torch.optim.AdamW(p, amsgrad=True)),
    "nadam": StepOptions(optimizer=torch.optim.NAdam),
    "adadelta": StepOptions(optimizer=torch.optim.Adadelta),
    "two groups": StepOptions(optimizer=two_groups),
    "no meta": StepOptions(optimizer=no_dense),
}
INPUT = torch.randn(2, 3, 8, 8)


def sizes(tensors):
    return sorted((tuple(t.shape), str(t.dtype).removeprefix("torch.")) for t in tensors)


@pytest.mark.req("R12")
@pytest.mark.parametrize("case", CASES)
def test_the_state_is_that_of_a_real_first_update(case):
    options, module = CASES[case], Net()
    graph = step_graph(module, (INPUT,), options=options).graph
    ours = [t for t in graph.tensors if t.role is Role.OPTIMIZER_STATE]

    real = copy.deepcopy(module)
    optimizer = options.make(real.parameters())
    real(INPUT).sum().backward()
    optimizer.step()
    held = [v for entry in optimizer.state.values() for v in entry.values()]
    theirs = [v for v in held if isinstance(v, torch.Tensor)]
    if case.startswith("adagrad"):  # made when it is built, for what gets no gradient, too
        theirs = [
            v for p, entry in optimizer.state.items() if p.grad is not None for v in entry.values()
        ]
    assert sizes(ours) == sizes(theirs)
    eager = fake_steps(module, (INPUT,), options=options).steady
    static = sum(s.nbytes for s in eager.storages if s.role == "optimizer_state" and s.born == 0)
    assert static == sum(v.untyped_storage().nbytes() for v in held if isinstance(v, torch.Tensor))
