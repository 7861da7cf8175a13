"""Code that asks what a tensor is gets the answer of a plain run, and takes its branch."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")

from torch import _subclasses  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensor  # noqa: E402

from peakfold.frontends.torch.module import capture  # noqa: E402
from peakfold.frontends.torch.training.step import StepOptions, fake_steps, step_graph  # noqa: E402
from peakfold.frontends.torch.unwatched.askers import answered_as_plain  # noqa: E402
from peakfold.frontends.torch.unwatched.following import FollowingMode  # noqa: E402

from .plain_loop import peak_of_loop  # noqa: E402

pytestmark = pytest.mark.torch
nn = torch.nn


def address(tensor):
    return tensor.untyped_storage().data_ptr()


# Asked inside a forward pass, of an input, a parameter and a result.
QUESTIONS = {
    "by the namespace": lambda t: isinstance(t, _subclasses.FakeTensor),
    "by an imported name": lambda t: isinstance(t, FakeTensor),
    "compiling": lambda t: torch.compiler.is_compiling() or torch.compiler.is_exporting(),
    "traced": lambda t: torch.jit.is_tracing(),
    "on meta": lambda t: t.is_meta or t.device.type == "meta",
    "a parameter": lambda t: isinstance(t, nn.Parameter),
    "a tensor": lambda t: torch.is_tensor(t) and t.is_cpu and torch.overrides.is_tensor_like(t),
    "one storage": lambda t: t.data_ptr() == t[:1].data_ptr() and t.data_ptr() != 0,
    "another place": lambda t: t[1:].data_ptr() - t.data_ptr(),
    "other storages": lambda t: address(t) == address(t + 1),
    "sizes": lambda t: (type(t.numel()).__name__, t.nbytes, t.layout, t.is_contiguous()),
}


class Asking(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(4, 4)
        self.heard = {}

    def forward(self, x):
        y = self.line(x)
        told = [ask(t) for ask in QUESTIONS.values() for t in (x, self.line.weight, y)]
        HEARD.append(told)
        return y.sum()


HEARD: list[list[object]] = []


def test_every_answer_is_that_of_a_plain_run():
    HEARD.clear()
    module, x = Asking(), torch.zeros(3, 4)
    module(x)
    fake_steps(module, (x,), {}, StepOptions(optimizer="sgd", loss=lambda out: out))
    step_graph(module, (x,), {}, StepOptions(optimizer="sgd", loss=lambda out: out))
    capture(module, (x,), route="trace")
    assert len(HEARD) >= 4
    assert all(told == HEARD[0] for told in HEARD)


def test_all_is_as_it_was():
    """Names, methods and functions are put back, after an error, too."""

    def state():
        space = _subclasses
        methods = [vars(FakeTensor).get(name) for name in ("numpy", "data_ptr", "__deepcopy__")]
        return (
            space.FakeTensor,
            space.FakeTensorMode,
            FakeTensor,
            torch.UntypedStorage.data_ptr,
            vars(torch._VF).get("_pad_packed_sequence"),
            *methods,
        )

    def failing():
        with answered_as_plain():
            assert state() != before
            raise ZeroDivisionError

    before = state()
    with pytest.raises(ZeroDivisionError):
        failing()
    assert state() == before


def test_a_lazy_module_is_not_loaded():
    """Modules are looked at through their dictionaries: an attribute might load another."""
    import sys
    from types import ModuleType

    class Lazy(ModuleType):
        def __getattr__(self, name):
            raise AssertionError(f"{name} was asked for")

    sys.modules["a_lazy_module"] = Lazy("a_lazy_module")
    try:
        with answered_as_plain():
            pass
    finally:
        del sys.modules["a_lazy_module"]


def test_copies_have_the_whole_storage():
    """As a plain tensor's: a slice is copied with all that it lies in, once for all slices."""
    mode = FollowingMode()
    with answered_as_plain(), mode:
        whole = torch.arange(12).view(3, 4)
        parts = copy.deepcopy([whole[1:], whole[:, 2], nn.Parameter(whole[:2].float())])
        assert [p.untyped_storage().nbytes() for p in parts] == [96, 96, 32]
        assert parts[0].data_ptr() - parts[1].data_ptr() == 16
        parts[0].zero_()
        assert parts[1].tolist() == [2, 0, 0]
        assert whole.sum().item() == 66
        assert isinstance(parts[2], nn.Parameter)


class Mask(nn.Module):
    """As transformers' models: a mask of ones is skipped, unless somebody traces."""

    def __init__(self):
        super().__init__()
        self.line = nn.Linear(32, 32)

    def forward(self, x, mask):
        q = self.line(x).view(2, 256, 2, 16).transpose(1, 2)
        traced = isinstance(x, _subclasses.FakeTensor) or torch.jit.is_tracing()
        skipped = not traced and bool(mask.all())
        scores = q @ q.mT
        if not skipped:
            scores = scores + (1 - mask[:, None, None].float()) * -1e9 + torch.zeros(256, 256)
        return (scores.softmax(-1) @ q).square().mean()


@pytest.mark.parametrize("last", [1, 0])
def test_a_branch_on_tracing_and_values(last):
    mask = torch.ones(2, 256, dtype=torch.long)
    mask[0, -1] = last
    module, given = Mask(), (torch.rand(2, 256, 32), mask)
    found = fake_steps(module, given, {}, StepOptions(optimizer="sgd", loss=lambda out: out))
    assert found.steady.peak == peak_of_loop(module, given, loss=lambda out: out)


@pytest.mark.parametrize(("masked", "peak"), [(False, 11_584_840), (True, 11_593_032)])
def test_a_decoder_takes_the_kernel_of_a_plain_run(masked, peak):
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=200,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
    )
    module = transformers.LlamaForCausalLM(config).train()
    ids = torch.randint(0, 200, (2, 512))
    given = {"input_ids": ids, "labels": ids, "use_cache": False}
    if masked:
        given["attention_mask"] = torch.ones_like(ids)
    options = StepOptions(optimizer="sgd", loss=lambda out: out.loss)
    found = fake_steps(module, (), given, options)
    assert found.steady.peak == peak
    assert not any("of the example" in note or "checks" in note for note in found.notes)
