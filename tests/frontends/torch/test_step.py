"""A step on tensors without memory has the memory of a real step, to the byte."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from peakfold.errors import ModelError, UsageError  # noqa: E402
from peakfold.frontends.torch.training.step import compare  # noqa: E402
from peakfold.ir import Role, check_graph  # noqa: E402
from peakfold.judges.plan import verify_plan  # noqa: E402
from peakfold.planning import PlanOptions, make_plan  # noqa: E402
from peakfold.runtimes.torch.allocator import allocations, peak_of  # noqa: E402
from tests.frontends.stated import StepOptions, fake_steps, real_steps, step_graph  # noqa: E402

from .training_models import MODELS, Doubtful  # noqa: E402

pytestmark = pytest.mark.torch
nn, F = torch.nn, torch.nn.functional
checkpoint = torch.utils.checkpoint.checkpoint


@pytest.mark.req("R3", "R5", "R12")
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("name", sorted(MODELS))
def test_prediction_is_the_truth(name, optimizer):
    module, args, kwargs = MODELS[name]()
    module.train()
    options = StepOptions(optimizer=optimizer)
    predicted = fake_steps(module, args, kwargs, options)
    measured = real_steps(module, args, kwargs, options)
    for which in ("first", "steady"):
        found = compare(getattr(predicted, which), getattr(measured, which))
        assert found.predicted == found.measured, (which, dict(found.phases))
        for phase, (one, two) in found.phases.items():
            assert one == two, (which, phase)
    assert predicted.steady.at_peak() == measured.steady.at_peak()


@pytest.mark.req("R15", "R27")
@pytest.mark.parametrize("name", sorted(set(MODELS) - {"lstm"}))
def test_the_graph_needs_no_more_than_the_eager_run(name):
    """Nothing is in the graph that eager execution does not make; the judges accept its plan.

    (An LSTM's graph is of elementary operators, which hold other things than oneDNN's call.)
    """
    module, args, kwargs = MODELS[name]()
    options = StepOptions(optimizer="adamw")
    step = step_graph(module.train(), args, kwargs, options)
    check_graph(step.graph)
    result = make_plan(step.graph, PlanOptions(align=1, time_limit=0.5, quick=True))
    eager = fake_steps(module, args, kwargs, options).steady
    assert result.summary.lower_bound_bytes <= eager.peak - eager.static_bytes
    assert all(check.ok for check in verify_plan(step.graph, result.plan))
    gradients = {t.shape for t in step.graph.tensors if t.role is Role.GRADIENT}
    assert {tuple(p.shape) for p in module.parameters() if p.requires_grad} <= gradients
    assert [phase for phase, _ in step.phases] == ["forward", "backward", "optimizer", "after"]


@pytest.mark.parametrize("form", ["for-loop", "foreach", "fused"])
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam", "rmsprop", "adagrad"])
def test_optimizer_forms(optimizer, form):
    if form == "fused" and optimizer == "rmsprop":
        return  # torch has none
    module, args, kwargs = MODELS["mlp"]()
    options = StepOptions(optimizer=optimizer, form=form)
    one = fake_steps(module, args, kwargs, options)
    two = real_steps(module, args, kwargs, options)
    assert (one.first.peak, one.steady.peak) == (two.first.peak, two.steady.peak)


@pytest.mark.parametrize("ways", [1, 2])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("bias", [False, True])
def test_lstm_layers(bias, layers, ways):
    """Without biases torch makes zeros of the weights' size, and gradients of a bias's."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(16, 32, layers, bias=bias, bidirectional=ways == 2)

        def forward(self, x):
            return self.lstm(x)[0][-1]

    args = (torch.randn(6, 4, 16),)
    found = compare(fake_steps(Net(), args).steady, real_steps(Net(), args).steady)
    assert all(one == two for one, two in found.phases.values()), dict(found.phases)


LOSSES = {
    "mse": F.mse_loss,
    "smooth_l1": F.smooth_l1_loss,
    "soft_margin": F.soft_margin_loss,
    "bce": lambda x, y: F.binary_cross_entropy(x.sigmoid(), y),
    "huber": F.huber_loss,
    "fold": lambda x, _: F.fold(F.unfold(x, 3), 14, 3).sum(),
    "l1": F.l1_loss,
    "kl_div": F.kl_div,
}


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("name", sorted(LOSSES))
def test_a_loss_keeps_the_block_that_its_kernel_does(name, reduction):
    """Some kernels reduce into a block as large as what they started from.

    Not here: `binary_cross_entropy_with_logits`, a kernel of other operators that a mode around
    a real step does not see inside. The oracle of losses holds it against a plain loop.
    """

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, x):
            out = self.conv(x)
            extra = {} if name in ("fold", "bce") else {"reduction": reduction}
            return LOSSES[name](out, torch.ones_like(out), **extra).sum()

    args = (torch.zeros(2, 3, 16, 16),)
    found = compare(fake_steps(Net(), args).steady, real_steps(Net(), args).steady)
    assert all(one == two for one, two in found.phases.values()), dict(found.phases)


OTHERS = ["Adadelta", "Adafactor", "Adamax", "ASGD", "Muon", "NAdam", "RAdam", "Rprop"]


@pytest.mark.parametrize("name", OTHERS)
def test_any_optimizer_of_the_library(name):
    """Adafactor scales its update by a norm that it reads, ASGD by a counter."""
    layers = nn.Linear(16, 32, bias=False), nn.ReLU(), nn.Linear(32, 4, bias=False)
    module, args = nn.Sequential(*layers), (torch.randn(4, 16),)
    options = StepOptions(optimizer=getattr(torch.optim, name))
    one, two = fake_steps(module, args, options=options), real_steps(module, args, options=options)
    # ASGD's counters begin as numbers or as tensors of four bytes each.
    predicted, real = one.first.without_scratch(), two.first.without_scratch()
    assert abs(predicted.peak - real.peak) <= (8 if name == "ASGD" else 0)
    assert one.steady.without_scratch().peak == two.steady.without_scratch().peak
    assert one.steady.peak >= two.steady.peak  # Rprop's masks are unknown: counted at their most
    assert step_graph(module, args, options=options).graph.ops


def test_an_optimizer_that_runs_the_model_itself_is_refused():
    options = StepOptions(optimizer=torch.optim.LBFGS)
    for call in (fake_steps, real_steps, step_graph):
        with pytest.raises(UsageError, match="'LBFGS' runs the model inside its update"):
            call(nn.Linear(4, 4), (torch.randn(2, 4),), options=options)


@pytest.mark.req("R3")
def test_what_a_loop_needs_that_keeps_the_result():
    """Logits that cross entropy does not save, held by a name: their bytes, in a plain run."""
    module = nn.Linear(8, 64)
    inputs, labels = torch.randn(500, 8), torch.zeros(500, dtype=torch.long)
    options = StepOptions(loss=lambda out: F.cross_entropy(out, labels))
    predicted = fake_steps(module, (inputs,), options=options)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)

    def step(*, keep):
        out = module(inputs)
        loss = F.cross_entropy(out, labels)
        if not keep:
            del out
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    plain, kept = (peak_of(allocations(lambda k=k: step(keep=k)))[0] for k in (False, True))
    assert kept - plain == 4 * 500 * 64
    assert predicted.kept == kept - plain
    held = fake_steps(module, (inputs,), options=replace(options, keep_result=True))
    assert (held.steady.peak - predicted.steady.peak, held.kept) == (kept - plain, 0)


@pytest.mark.req("R3")
def test_experts_as_grouped_products():
    """How transformers runs experts: rows sorted by expert, one product of groups."""

    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = nn.Linear(16, 4)
            self.weights = nn.Parameter(torch.randn(4, 16, 16))

        def forward(self, x):
            score, expert = self.gate(x).softmax(-1).max(-1)
            order = expert.argsort()
            ends = torch.histc(expert.float(), 4, 0, 3).cumsum(0).to(torch.int32)
            return F.grouped_mm(x[order], self.weights, offs=ends) * score[order, None]

    args = (torch.randn(24, 16),)
    predicted, measured = fake_steps(Experts(), args), real_steps(Experts(), args)
    for which in ("first", "steady"):
        found = compare(getattr(predicted, which), getattr(measured, which))
        assert found.predicted == found.measured, which


def test_optimizer_state_is_born_in_the_first_step():
    module, args, kwargs = MODELS["mlp"]()
    steps = fake_steps(module, args, kwargs, StepOptions(optimizer="adam"))
    weights = sum(p.numel() * 4 for p in module.parameters())
    counters = 4 * len(list(module.parameters()))
    held = sum(s.nbytes for s in steps.steady.storages if s.role == "optimizer_state")
    assert held == 2 * weights + counters
    assert not any(s.role == "optimizer_state" and s.born == 0 for s in steps.first.storages)
    assert all(s.born == 0 for s in steps.steady.storages if s.role == "optimizer_state")


def test_gradients_accumulate_and_are_dropped():
    module, args, kwargs = MODELS["mlp"]()
    once = fake_steps(module, args, kwargs, StepOptions()).steady
    many = fake_steps(module, args, kwargs, StepOptions(accumulate=3))
    truth = real_steps(module, args, kwargs, StepOptions(accumulate=3))
    assert many.steady.peak == truth.steady.peak
    weights = sum(p.numel() * 4 for p in module.parameters())
    # From the second batch on the gradients are there before the forward pass.
    assert many.steady.phase_peaks()["forward"] == once.phase_peaks()["forward"] + weights
    assert once.curve[-1] == once.static_bytes
    kept = fake_steps(module, args, kwargs, StepOptions(set_to_none=False)).steady
    assert kept.static_bytes == once.static_bytes + weights


def test_masks_of_a_device():
    module = nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.5), nn.Linear(64, 64))
    args = (torch.randn(128, 64),)
    cpu = fake_steps(module, args, options=StepOptions()).steady
    gpu = fake_steps(module, args, options=StepOptions(device="cuda")).steady

    def saved(run):
        return sum(s.nbytes for s in run.storages if s.role == "saved")

    assert saved(cpu) - saved(gpu) == 3 * 128 * 64  # four bytes an element against one


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(32, 96)

    def forward(self, x):
        q, k, v = self.qkv(x).view(2, 64, 3, 4, 8).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v, dropout_p=0.1)


def test_attention_kernels():
    args = (torch.randn(2, 64, 32),)
    math = fake_steps(Attention(), args, options=StepOptions(attention="math")).steady
    fused = fake_steps(Attention(), args, options=StepOptions(attention="fused")).steady
    scores = 2 * 4 * 64 * 64 * 4

    def sizes(run):
        return [s.nbytes for s in run.storages if s.nbytes >= scores]

    assert sizes(math)
    assert not sizes(fused)


class Library(nn.Module):
    """An attention module of torch's own, whose dropout is inside a function of the library."""

    def __init__(self, scores: bool, drop: float = 0.1):
        super().__init__()
        self.attention = nn.MultiheadAttention(32, 4, dropout=drop, batch_first=True)
        self.scores = scores

    def forward(self, x):
        return self.attention(x, x, x, need_weights=self.scores)[0]


SCORES = 2 * 4 * 64 * 64


def test_a_mask_inside_a_function_of_the_library_is_the_devices():
    masks = {}
    for device in ("cpu", "cuda"):
        run = fake_steps(
            Library(True), (torch.zeros(2, 64, 32),), options=StepOptions(device=device)
        ).steady
        masks[device] = sum(s.nbytes for s in run.storages if s.phase == "forward")
        plain = fake_steps(
            Library(True, 0.0), (torch.zeros(2, 64, 32),), options=StepOptions(device=device)
        ).steady
        masks[device] -= sum(s.nbytes for s in plain.storages if s.phase == "forward")
    # Without dropout the scores go on as they are; with it there are a mask and a product.
    assert masks == {"cpu": SCORES * (4 + 4), "cuda": SCORES * (1 + 4)}


def test_fused_attention_reaches_into_a_function_of_the_library():
    sizes = {}
    for attention in ("fused", "math"):
        options = StepOptions(device="cuda", attention=attention)
        run = fake_steps(Library(False), (torch.zeros(2, 64, 32),), options=options).steady
        sizes[attention] = max(s.nbytes for s in run.storages)
    assert sizes["fused"] < SCORES * 4 <= sizes["math"]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("reentrant", [False, True])
def test_a_layer_that_runs_again_has_the_same_masks(device, reentrant):
    """The second run is inside backward, and must keep the masks that the first would have."""

    class Layers(nn.Module):
        def __init__(self, again: bool):
            super().__init__()
            self.layers = nn.ModuleList(
                nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.5), nn.Linear(64, 64))
                for _ in range(4)
            )
            self.again = again

        def forward(self, x):
            x = x.clone().requires_grad_()
            for layer in self.layers:
                x = checkpoint(layer, x, use_reentrant=reentrant) if self.again else layer(x)
            return x

    def masks(again: bool) -> int:
        options = StepOptions(device=device)
        run = fake_steps(Layers(again), (torch.zeros(320, 64),), options=options).steady
        return [s.nbytes for s in run.storages].count(320 * 64 * (1 if device == "cuda" else 4))

    # A mask of floats is as large as an activation, so bytes are counted where they differ.
    if device == "cuda":
        assert (masks(False), masks(True)) == (4, 8)
    else:
        assert masks(True) > masks(False)


def test_checkpointing_and_autocast():
    from torch.utils.checkpoint import checkpoint

    class Net(nn.Module):
        def __init__(self, *, again):
            super().__init__()
            self.layers = nn.ModuleList(
                nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)) for _ in range(4)
            )
            self.again = again

        def forward(self, x):
            for layer in self.layers:
                x = checkpoint(layer, x, use_reentrant=False) if self.again else layer(x)
            return x

    args = (torch.randn(64, 64, requires_grad=False),)
    peaks = {}
    for again in (False, True):
        net = Net(again=again)
        for cast in (None, torch.bfloat16):
            options = StepOptions(autocast=cast)
            one = fake_steps(net, args, options=options)
            two = real_steps(net, args, options=options)
            assert one.steady.peak == two.steady.peak
            peaks[again, cast] = one.steady.peak
    assert peaks[True, None] < peaks[False, None]
    assert peaks[False, torch.bfloat16] < peaks[False, None]


def test_scopes_name_the_module_in_both_passes():
    module, args, kwargs = MODELS["unet"]()
    run = fake_steps(module, args, kwargs).steady
    scopes = {s.scope for s in run.storages if s.phase == "backward" and s.role == "gradient"}
    assert {"down.0", "mix.1", "up.0"} <= scopes


def test_the_model_is_left_as_it_was():
    module, args, kwargs = MODELS["mobilenet"]()
    module.train()
    before = {k: v.clone() for k, v in module.state_dict().items()}
    seed = torch.random.get_rng_state()
    fake_steps(module, args, kwargs, StepOptions(optimizer="adam"))
    real_steps(module, args, kwargs, StepOptions(optimizer="adam"))
    assert all(torch.equal(v, before[k]) for k, v in module.state_dict().items())
    assert all(p.grad is None for p in module.parameters())
    assert module.training
    assert torch.equal(seed, torch.random.get_rng_state())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in module.modules())


class Shaken(nn.Linear):
    """Draws from every generator while it runs, as data augmentation in a model does."""

    def forward(self, x):
        return super().forward(x) * random.random() * np.random.rand() + torch.rand(4)


def test_random_generators_are_left_as_they_were():
    def states():
        return random.getstate(), repr(np.random.get_state()), torch.random.get_rng_state().tolist()

    module, doubtful = Shaken(4, 4), nn.Sequential(Shaken(4, 4), Doubtful())
    inputs = (torch.zeros(1, 4),)
    before = states()
    for run in (fake_steps, real_steps, step_graph):
        run(module, inputs)
        assert states() == before, run
    with pytest.raises(ModelError):
        fake_steps(doubtful, inputs)
    assert states() == before


def test_what_cannot_be_followed_names_module_and_line():
    with pytest.raises(ModelError, match="without values failed") as error:
        fake_steps(Doubtful(), (torch.zeros(1, 4),))
    assert "training_models.py" in error.value.where
    frozen = nn.Linear(3, 3).requires_grad_(False)
    with pytest.raises(UsageError, match="nothing to train"):
        fake_steps(frozen, (torch.zeros(1, 3),))

    class Silent(nn.Linear):
        def forward(self, x):
            return super().forward(x).argmax()

    with pytest.raises(UsageError, match="depends on a trainable"):
        fake_steps(Silent(3, 3), (torch.zeros(1, 3),))
    for bad in ({"optimizer": "magic"}, {"form": "wild"}, {"device": "tpu"}, {"accumulate": 0}):
        with pytest.raises(UsageError):
            StepOptions(**bad)


def test_cuda_modules_never_need_cuda():
    class Asks(nn.Linear):
        def forward(self, x):
            return super().forward(x) + torch.ones(3, device="cuda")

    assert fake_steps(Asks(3, 3), (torch.zeros(1, 3),)).steady.peak > 0


@pytest.mark.req("R14")
@pytest.mark.parametrize("make", [None, torch.optim.AdamW])
def test_a_gpus_optimizer_walks_all_parameters_at_once(make):
    """On CUDA torch's default is the foreach form, whoever makes the optimizer."""
    module, args, kwargs = MODELS["mlp"]()
    chosen = make or "adamw"
    cuda = StepOptions(optimizer=chosen, device="cuda")
    foreach = StepOptions(optimizer="adamw", form="foreach", device="cuda")
    loop = StepOptions(optimizer="adamw", form="for-loop", device="cuda")
    peaks = [
        fake_steps(module, args, kwargs, o).steady.phase_peaks()["optimizer"]
        for o in (cuda, foreach, loop)
    ]
    assert peaks[0] == peaks[1] > peaks[2]
    cpu = fake_steps(module, args, kwargs, StepOptions(optimizer=chosen)).steady
    assert cpu.phase_peaks()["optimizer"] == peaks[2]
