"""What C++ does otherwise when it is watched, held against the events of a plain run."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from peakfold.frontends.torch.training.derivative_formulas import NO_ZEROS  # noqa: E402
from peakfold.frontends.torch.training.operand_casts import converted  # noqa: E402
from peakfold.frontends.torch.training.step import StepOptions, fake_steps  # noqa: E402
from peakfold.runtimes.torch.allocator import allocations, peak_of  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.req("R14", "R27")]
nn, F = torch.nn, torch.nn.functional
checkpoint = torch.utils.checkpoint.checkpoint
N = 128
OPTIONS = StepOptions(optimizer="sgd", loss=lambda out: out)


class Of(nn.Module):
    """A function of two matrices, of which one or both are trained."""

    def __init__(self, function, both, second):
        super().__init__()
        self.one = nn.Parameter(torch.rand(N, N) + 0.5)
        self.two = nn.Parameter(torch.rand(N, N) + 0.5, requires_grad=both)
        self.function, self.second = function, second

    def forward(self):
        one, two = self.one * 1.0, self.two * 1.0
        loss = self.function(one, two).square().sum()
        if not self.second:
            return loss
        (grad,) = torch.autograd.grad(loss, one, create_graph=True)
        return loss + grad.square().sum()


def truth(module):
    """Bytes of a plain step: what is there before, and the highest sum of its allocations."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)

    def step():
        module().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    step()
    static = sum(p.untyped_storage().nbytes() for p in module.parameters())
    return static + peak_of(allocations(step))[0]


def pos_weight(x, y):
    return F.binary_cross_entropy_with_logits(x, y.detach(), pos_weight=torch.ones(N))


def target(x, y):
    return F.binary_cross_entropy_with_logits(x, y, pos_weight=torch.ones(N))


FORMULAS = {
    "prod": lambda x, y: (x * y).prod(),
    "prod of one dimension": lambda x, y: (x * y).prod(1),
    "prod, kept": lambda x, y: x.prod(0, keepdim=True) * y,
    "cumprod": lambda x, y: (x * y).cumprod(1),
    "max": lambda x, y: (x * y).max(),
    "min": lambda x, y: x.min() * y,
    "median": lambda x, y: x.median() + y.nanmedian(),
    "bce, pos_weight": pos_weight,
    "bce, the target, too": target,
    "bce": lambda x, y: F.binary_cross_entropy_with_logits(x, y),
    "clamp": lambda x, y: x.clamp(y, y + 1),
    "trace": lambda x, y: (x * y).trace(),
    "index_fill": lambda x, y: x.index_fill(0, torch.arange(9), 0.0) * y,
    "put": lambda x, y: x.put(torch.arange(N * N).view(N, N), y),
    "softmax that is safe": lambda x, y: torch.ops.aten._safe_softmax(x, 1) * y,
    "a mask times numbers": lambda x, y: x * (torch.arange(N) > 3).expand(N, N) * y,
    "a sum of bools": lambda x, y: x * (torch.arange(N) > 3).expand(N, N).sum(1) * y,
    "a mask as index": lambda x, y: x[torch.arange(N) > 3] * y[torch.arange(N) > 3],
    "mse": lambda x, y: F.mse_loss(x, y),
}
SECOND = {"prod", "prod of one dimension", "cumprod", "max", "median"}
CASES = [(name, both, False) for name in FORMULAS for both in (False, True)]


@pytest.mark.parametrize(
    ("name", "both", "second"), [*CASES, *((name, True, True) for name in sorted(SECOND))]
)
def test_a_formula_is_followed_as_a_plain_run_takes_it(name, both, second):
    module = Of(FORMULAS[name], both, second)
    told, true = fake_steps(module, options=OPTIONS).steady.peak, truth(module)
    assert abs(told - true) <= max(256, true // 500), (told, true)


def test_what_a_formula_assumes_is_said():
    assert NO_ZEROS in fake_steps(Of(FORMULAS["prod"], False, False), options=OPTIONS).notes
    assert NO_ZEROS not in fake_steps(Of(FORMULAS["max"], False, False), options=OPTIONS).notes


def test_a_graph_walked_twice_takes_the_plain_road_twice():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.Parameter(torch.rand(N, N) + 0.5)

        def forward(self):
            one = self.one * 1.0
            made = one.prod(1)
            (first,) = torch.autograd.grad(made.sum(), one, retain_graph=True)
            return (made * first.sum()).sum()

    module = Twice()
    told, true = fake_steps(module, options=OPTIONS).steady.peak, truth(module)
    assert abs(told - true) <= 256, (told, true)


class Regions(nn.Module):
    """Eight checkpointed regions."""

    def __init__(self, kept, reentrant):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(8))
        self.x = nn.Parameter(torch.rand(64, 64))
        self.how = {"preserve_rng_state": kept, "use_reentrant": reentrant}

    def forward(self):
        x = self.x * 1.0
        for layer in self.layers:
            x = checkpoint(lambda v, layer=layer: layer(v).relu(), x, **self.how)
        return x.sum()


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("kept", [False, True])
def test_states_of_the_generator_are_kept_until_the_region_is_run_again(kept, reentrant):
    module = Regions(kept, reentrant)
    told, true = fake_steps(module, options=OPTIONS).steady.peak, truth(module)
    assert abs(told - true) <= 256, (told, true)


def test_a_gpu_keeps_them_elsewhere():
    on_gpu = StepOptions(optimizer="sgd", loss=lambda out: out, device="cuda")
    one, two = (fake_steps(Regions(kept, False), options=on_gpu) for kept in (False, True))
    assert one.steady.peak == two.steady.peak


def test_operands_of_one_type_need_no_conversion():
    aten = torch.ops.aten
    one = torch.ones(4, 8)
    assert converted(aten.mul.Tensor, (one, one), {}) == 0
    assert converted(aten.mul.Tensor, (one, torch.tensor(2, dtype=torch.int64)), {}) == 0
    assert converted(aten.sum.default, (one,), {}) == 0
    assert converted(aten.add.Tensor, (one.double(), one), {}) == 4 * 8 * 8


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_ctc_with_lengths_as_numbers(reduction):
    def ctc(x, y):
        targets = torch.arange(32).view(8, 4) + 1
        scores = (x * y).view(16, 8, N).log_softmax(2)
        return F.ctc_loss(scores, targets, (16,) * 8, (4,) * 8, reduction=reduction)

    module = Of(ctc, True, False)
    told, true = fake_steps(module, options=OPTIONS).steady.peak, truth(module)
    assert abs(told - true) <= 4096, (told, true)


def test_masks_of_unknown_values_are_counted_at_their_most_and_said():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.line = torch.nn.Linear(64, 64)

        def forward(self, x):
            out = self.line(x).clone()
            out[out > 0] = torch.zeros(1)  # a tensor with a dimension: torch fills by positions
            return out.sum()

    steps = fake_steps(Net(), (torch.rand(32, 64),), {}, StepOptions(optimizer="sgd"))
    found = {name: nbytes for _, name, nbytes in steps.steady.workspaces}
    assert found["index_put_"] == 32 * 64 * 2 * 8
    assert any(note.startswith("masks of unknown values") for note in steps.notes)
