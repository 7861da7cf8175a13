"""What autograd does when nobody watches, held against the profiler's events of a plain run."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from peakfold.runtimes.torch.allocator import allocations, peak_of  # noqa: E402
from peakfold.runtimes.torch.scratch import CpuScratch  # noqa: E402
from tests.frontends.stated import StepOptions, fake_steps, real_steps  # noqa: E402

pytestmark = pytest.mark.torch
nn = torch.nn
KEPT: list[torch.Tensor] = []


class Fn(nn.Module):
    """A wide layer, then a function of its result and of a narrow layer."""

    def __init__(self, function):
        super().__init__()
        self.wide, self.head = nn.Linear(2, 256), nn.Linear(256, 2)
        self.function = function

    def forward(self, x):
        KEPT.clear()
        return self.function(self.wide(x), self.head)


def held(value):
    value.register_hook(KEPT.append)
    return value


def summed(value):
    """A sum made by a function written in Python, which no engine turns into one in place."""

    class Two(torch.autograd.Function):
        @staticmethod
        def forward(ctx, one):
            return one * 2

        @staticmethod
        def backward(ctx, grad):
            one = grad * 3
            return one + grad * 2

    return Two.apply(value)


def three(value, change, head):
    """The engine meets the gradient of what was made last first, and adds the others to it."""
    return head(value).sin() + head(value).cos() + head(change(value)).exp()


FUNCTIONS = {
    "two readers": lambda h, head: head(h).sin() + head(h).cos(),
    "three readers": lambda h, head: head(h).sin() + head(h).cos() + head(h).exp(),
    "a held gradient": lambda h, head: three(h, lambda v: held(v.view_as(v)), head),
    "held after the sum": lambda h, head: three(h, held, head),
    "the same gradient twice": lambda h, head: head(h + h).sin(),
    "a view and its base": lambda h, head: three(h, lambda v: v.view(-1).view(v.shape), head),
    "halves": lambda h, head: three(h, lambda v: torch.cat(v.chunk(2, 1)[::-1], 1), head),
    "broadcast": lambda h, head: three(h, lambda v: v + v.sum(0, keepdim=True), head),
    "another layout": lambda h, head: three(h, lambda v: v.t().contiguous().t(), head),
    "a Python function": lambda h, head: three(h, summed, head),
    "topk": lambda h, head: h.topk(3, 1)[0].sum(),
    "max": lambda h, head: h.max(1)[0].sum(),
    "sort": lambda h, head: h.sort(1)[0].sum(),
    "gather": lambda h, head: h.gather(1, torch.zeros(len(h), 4, dtype=torch.long)).sum(),
    "index": lambda h, head: h[torch.arange(9)].sum(),
    "index in the middle": lambda h, head: h[:, torch.arange(9)].sum(),
    "index_select": lambda h, head: h.index_select(1, torch.arange(9)).sum(),
}


@pytest.mark.req("R14", "R27")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_prediction_is_a_run_that_nobody_watches(name):
    module, args = Fn(FUNCTIONS[name]), (torch.zeros(512, 2),)
    options = StepOptions(loss=lambda out: out.sum())
    predicted = fake_steps(module, args, {}, options, workspace=CpuScratch()).first
    KEPT.clear()
    without = fake_steps(module, args, {}, options).first
    KEPT.clear()
    followed = real_steps(module, args, {}, options).first
    KEPT.clear()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)

    def step():
        module(*args).sum().backward()
        optimizer.step()

    plain = predicted.static_bytes + peak_of(allocations(step))[0]
    KEPT.clear()
    assert abs(predicted.peak - plain) <= 64, (predicted.peak, plain)
    assert followed.peak == without.peak
