"""One record of a run, whoever observed it; steps that are really run."""

from __future__ import annotations

from itertools import pairwise

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from peakfold.analysis.cuda.footprint import problem_of  # noqa: E402
from peakfold.errors import ModelError, UsageError  # noqa: E402
from peakfold.frontends.torch.module import Example  # noqa: E402
from peakfold.frontends.torch.training.forward import fake_forward, real_forward  # noqa: E402
from peakfold.ir.recorded import recorded_graph  # noqa: E402
from peakfold.packing import peak_load  # noqa: E402
from peakfold.planning import PlanOptions, make_plan  # noqa: E402
from peakfold.runtimes.torch import fit  # noqa: E402
from peakfold.runtimes.torch.measure import measure_forward, run_forward, run_steps  # noqa: E402
from tests.frontends.stated import StepOptions, fake_steps, real_steps  # noqa: E402
from tests.frontends.torch.training_models import MODELS  # noqa: E402

pytestmark = pytest.mark.torch

MORE = {"gpt2": 48, "vit": 8192, "lstm": 11_520}
"""Bytes that only the allocator sees and that outlive the kernel: Python numbers that products
save (8 each), copies that a convolution or an LSTM leaves to the function around its kernels."""


@pytest.mark.req("R3", "R14")
@pytest.mark.parametrize("name", sorted(MODELS))
def test_three_observers_write_the_same_record(name):
    """Kernels' scratch is the allocator's alone to see; it is told apart by its role."""
    module, args, kwargs = MODELS[name]()
    module.train()
    fake, real = fake_steps(module, args, kwargs), real_steps(module, args, kwargs)
    ran = run_steps(module, args, kwargs, StepOptions())
    for one, two, three in (
        (fake.first, real.first, ran.first),
        (fake.steady, real.steady, ran.steady),
    ):
        assert one.peak == two.peak
        bare = three.without_scratch()
        assert bare.peak - one.peak == MORE.get(name, 0)
        assert three.static_bytes == one.static_bytes
        assert [p for p, _ in three.phases] == [p for p, _ in one.phases]
        for role in ("parameter", "state", "input", "optimizer_state"):
            assert _bytes(three, role) == _bytes(one, role)
        assert _bytes(three, "gradient") == _bytes(one, "gradient")


def _bytes(run, role):
    return sum(s.nbytes for s in run.storages if s.role == role)


def test_places_of_an_unwatched_run_are_those_of_a_watched_one():
    module, args, kwargs = MODELS["unet"]()
    fake, ran = (
        fake_steps(module, args, kwargs).steady,
        run_steps(module, args, kwargs, StepOptions()).steady,
    )

    def gradients(run):
        return sorted((s.nbytes, s.scope) for s in run.storages if s.role == "gradient")

    assert gradients(ran) == gradients(fake)


@pytest.mark.req("R3", "R5")
def test_one_road_to_a_problem_and_to_a_plan():
    module, args, kwargs = MODELS["mlp"]()
    run = run_steps(module, args, kwargs, StepOptions()).steady
    problem = problem_of(run)
    assert peak_load(problem) == run.peak - run.static_bytes
    graph = recorded_graph(run, "net")
    summary = make_plan(graph, PlanOptions(align=1)).summary
    assert summary.arena_bytes + summary.output_bytes >= run.peak - run.static_bytes


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(64, 64)

    def forward(self, x):
        return self.a(x).masked_select(x > -1).sum()


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.LSTM(16, 24)

    def forward(self, x, n):
        y, _ = self.l(nn.utils.rnn.pack_padded_sequence(x, n, enforce_sorted=False))
        return nn.utils.rnn.pad_packed_sequence(y)[0]


class Ctc(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(64, 10)

    def forward(self, x):
        lengths = torch.full((4,), 20), torch.full((4,), 5)
        return nn.functional.ctc_loss(self.a(x).log_softmax(-1), torch.ones(4, 5).long(), *lengths)


class Routed(nn.Module):
    """A loop over experts; each takes the tokens that choose it."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(16, 3)
        self.experts = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))

    def forward(self, x):
        chosen, out = self.gate(x).argmax(-1), torch.zeros_like(x)
        for at, expert in enumerate(self.experts):
            (rows,) = torch.where(chosen == at)
            if len(rows):
                out[rows] = expert(x[rows])
        return out.sum() + self.gate(x).sum()


class Detects(nn.Module):
    """Boxes matched to targets one by one, on the host."""

    def __init__(self):
        super().__init__()
        self.box = nn.Linear(8, 4)

    def forward(self, x, target):
        boxes = self.box(x)
        cost = torch.cdist(boxes, target).detach().numpy()
        rows = []
        for column in range(cost.shape[1]):
            rows.append(int(cost[:, column].argmin()))
            cost[rows[-1]] = float("inf")
        return nn.functional.l1_loss(boxes[rows], target)


class Numpy(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)

    def forward(self, x):
        return self.a(x)[: int(x.numpy().sum())].sum()


CASES = {
    "mask": (Masked, lambda: (torch.rand(32, 64),), 51_464),
    "packed": (Packed, lambda: (torch.rand(7, 3, 16), torch.tensor([7, 3, 1])), 58_504 + 24),
    "ctc": (Ctc, lambda: (torch.rand(20, 4, 64),), 36_720),
    "experts": (Routed, lambda: (torch.rand(40, 16),), None),
    "detection": (Detects, lambda: (torch.rand(12, 8), torch.rand(3, 4)), None),
    "numpy": (Numpy, lambda: (torch.ones(2, 4),), None),
}
"""Peaks of a steady step by a plain loop, from outside; the lengths of `packed` are an input."""


@pytest.mark.req("R3", "R15")
@pytest.mark.parametrize("case", CASES)
def test_what_values_decide_is_run(case):
    make, inputs, peak = CASES[case]
    example = Example(make(), inputs(), route="run")
    steps = fit.steps_of(example, StepOptions(), {})
    assert peak in (None, steps.steady.peak)
    assert fit.RUN in steps.notes
    assert steps.steady.phase_peaks().keys() == {"forward", "backward", "optimizer", "after"}
    graph = recorded_graph(steps.steady, case)
    assert make_plan(graph, PlanOptions(quick=True)).summary.arena_bytes > 0


def test_what_is_run_has_its_own_size_and_kernels():
    example = Example(Masked(), (torch.rand(2, 64),), route="run")
    with pytest.raises(UsageError, match="size of its example"):
        fit.steps_of(example, StepOptions(), {"batch": 3})
    with pytest.raises(UsageError, match="its own kernels"):
        fit.steps_of(example, StepOptions(device="cuda"), {})

    class Fails(nn.Linear):
        def forward(self, x):
            raise ValueError("too bad")

    with pytest.raises(ModelError, match="too bad") as raised:
        run_steps(Fails(2, 2), (torch.rand(2, 2),), None, StepOptions())
    assert "test_run.py" in raised.value.where


@pytest.mark.req("R3", "R14")
@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_forward_pass_is_predicted(name):
    module, args, kwargs = MODELS[name]()
    module.eval()
    found = measure_forward(module, args, kwargs)
    assert found.predicted == found.tensors
    # An LSTM's kernel holds one more tensor a direction where no gradient is recorded.
    assert abs(found.allocator_error) <= (0.02 if name == "lstm" else 0)


class Decoder(nn.Module):
    """A call takes a cache and returns a longer one."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(32, 96)

    def forward(self, x, keys, values):
        q, k, v = self.qkv(x).chunk(3, -1)
        keys, values = torch.cat([keys, k], 1), torch.cat([values, v], 1)
        return (q @ keys.mT).softmax(-1) @ values, keys, values


def test_eight_decode_steps_with_a_cache():
    module, peaks = Decoder().eval(), []
    for length in range(64, 72):
        given = (torch.rand(2, 1, 32), torch.rand(2, length, 32), torch.rand(2, length, 32))
        run = fake_forward(module, given)
        assert run.peak == real_forward(module, given).peak == run_forward(module, given).peak
        peaks.append(run.peak)
    assert len({b - a for a, b in pairwise(peaks)}) == 1
