"""Counts of complex numbers, of packed layers and of modules that differentiate."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from peakfold import ModelError, cost  # noqa: E402
from peakfold.frontends.torch.module import capture  # noqa: E402
from peakfold.frontends.torch.training.forward import fake_forward, real_forward  # noqa: E402
from peakfold.frontends.torch.training.options import StepOptions  # noqa: E402
from peakfold.frontends.torch.training.step import fake_steps, real_steps  # noqa: E402
from peakfold.ir import Role  # noqa: E402

nn, F = torch.nn, torch.nn.functional
ROUTES = ("export", "trace", "run")


class Runs(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def _c(*shape: int) -> Any:
    return torch.ones(*shape, dtype=torch.complex64)


COMPLEX = {
    "matmul": (torch.matmul, (_c(4, 5), _c(5, 6)), 480, 960),
    "bmm": (torch.bmm, (_c(2, 4, 5), _c(2, 5, 6)), 960, 1920),
    "einsum": (lambda a, b: torch.einsum("ij,jk->ik", a, b), (_c(4, 5), _c(5, 6)), 480, 960),
    "addmm": (torch.addmm, (_c(6), _c(4, 5), _c(5, 6)), 480, 960 + 48),
    "linear": (F.linear, (_c(4, 5), _c(6, 5), _c(6)), 480, 960 + 48),
    "vdot": (torch.vdot, (_c(5), _c(5)), 20, 40),
    "double": (
        torch.matmul,
        (_c(4, 5).to(torch.complex128),) * 1 + (_c(5, 6).cdouble(),),
        480,
        960,
    ),
    "add": (torch.add, (_c(8), _c(8)), 0, 16),
    "mul": (torch.mul, (_c(8), _c(8)), 0, 48),
    "real x complex": (torch.mul, (_c(8), torch.ones(8)), 0, 16),
    "fft": (torch.fft.fft, (_c(8),), 0, 120),
    "irfft": (torch.fft.irfft, (_c(5),), 0, 60),
    "real parts": (lambda a: torch.view_as_real(a) * 2, (_c(4),), 0, 8),
}


@pytest.mark.parametrize("name", COMPLEX)
@pytest.mark.parametrize("route", ROUTES)
def test_complex_numbers_count_in_real_operations(name: str, route: Any) -> None:
    function, args, macs, flops = COMPLEX[name]
    figures = cost(capture(Runs(function), args, route=route)).total().figures
    assert (figures.macs, figures.flops) == (macs, flops)


def test_a_complex_convolution_is_three_real_ones_where_torch_runs_it() -> None:
    args = _c(1, 2, 8), _c(3, 2, 3)
    macs = [cost(capture(Runs(F.conv1d), args, route=r)).total().figures.macs for r in ROUTES]
    assert macs == [4 * 108, 3 * 108, 3 * 108]


class Forces(nn.Module):
    """An energy and its derivative."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 16), nn.Linear(16, 1)

    def energy(self, x: Any) -> Any:
        return self.b(torch.tanh(self.a(x))).sum()

    def forward(self, x: Any) -> Any:
        x = x.detach().requires_grad_(True)
        energy = self.energy(x)
        return energy, -torch.autograd.grad(energy, x)[0]


class Wrapped(Forces):
    def forward(self, x: Any) -> Any:
        with torch.enable_grad():
            return super().forward(x)


class ByFunction(Forces):
    def forward(self, x: Any) -> Any:
        return torch.func.grad(self.energy)(x)


class Jacobian(Forces):
    def forward(self, x: Any) -> Any:
        return torch.func.jacrev(lambda x: self.energy(x)[None])(x)


class Mapped(Forces):
    def forward(self, x: Any) -> Any:
        return torch.func.vmap(torch.func.grad(self.energy))(x)


class Penalty(Forces):
    def forward(self, x: Any) -> Any:
        x = x.requires_grad_(True)
        energy = self.energy(x)
        (slope,) = torch.autograd.grad(energy, x, create_graph=True)
        return ((slope.norm(dim=1) - 1) ** 2).mean() + energy


@pytest.mark.parametrize("kind", [Forces, Wrapped, ByFunction, Jacobian, Mapped])
@pytest.mark.parametrize("route", ROUTES)
def test_differentiation_in_forward_is_counted(kind: Any, route: Any) -> None:
    graph = capture(kind(), (torch.rand(10, 3),), route=route)
    # Forward 10 x (3 x 16 + 16), backward to the input as much.
    assert cost(graph).total().figures.macs == 1280
    assert any("gradients recorded" in note for note in graph.notes) == (kind is Forces)


def test_memory_of_differentiation_in_forward() -> None:
    x = torch.rand(10, 3)
    for kind in (Forces, Wrapped, ByFunction):
        assert fake_forward(kind(), (x,)).peak == real_forward(kind(), (x,)).peak
    options = StepOptions(optimizer="sgd")
    predicted = fake_steps(Penalty(), (x,), options=options)
    measured = real_steps(Penalty(), (x,), options=options)
    assert predicted.steady.peak == measured.steady.peak
    assert predicted.first.peak == measured.first.peak


class Frozen(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.autograd.grad(x.detach().sum(), x.detach())[0]


@pytest.mark.parametrize("route", ROUTES)
def test_what_cannot_be_differentiated_is_told_so(route: Any) -> None:
    with pytest.raises(ModelError, match="runs with gradients off; wrap") as found:
        capture(Frozen(), (torch.rand(3),), route=route)
    assert "fails on its own" not in str(found.value)


def _dynamic(layer: Any) -> Any:
    return torch.ao.quantization.quantize_dynamic(nn.Sequential(layer), {type(layer)})


def _table(layer: Any) -> Any:
    quantization = torch.ao.quantization
    layer.qconfig = quantization.float_qparams_weight_only_qconfig
    return quantization.convert(quantization.prepare(nn.Sequential(layer).eval()))


def _static() -> Any:
    quantization = torch.ao.quantization
    ends = quantization.QuantStub(), quantization.DeQuantStub()
    module = nn.Sequential(ends[0], nn.Conv2d(3, 8, 3), nn.ReLU(), ends[1]).eval()
    module.qconfig = quantization.get_default_qconfig("fbgemm")
    module = quantization.prepare(module)
    module(torch.rand(1, 3, 8, 8))
    return quantization.convert(module)


ROWS = torch.rand(5, 4, 16)
PACKED = {
    "linear": (lambda: _dynamic(nn.Linear(16, 24)), ROWS[0], 4 * 384, 384 + 96),
    "lstm": (lambda: _dynamic(nn.LSTM(16, 24, 2)), ROWS, 20 * 8448, 8448 + 4 * 384),
    "both ways": (
        lambda: _dynamic(nn.LSTM(16, 24, bidirectional=True)),
        ROWS,
        20 * 7680,
        7680 + 4 * 384,
    ),
    "gru": (lambda: _dynamic(nn.GRU(16, 24)), ROWS, 20 * 2880, 2880 + 2 * 288),
    "lstm cell": (lambda: _dynamic(nn.LSTMCell(16, 24)), ROWS[0], 4 * 3840, 3840 + 2 * 384),
    "gru cell": (lambda: _dynamic(nn.GRUCell(16, 24)), ROWS[0], 4 * 2880, 2880 + 2 * 288),
    "rnn cell": (lambda: _dynamic(nn.RNNCell(16, 24)), ROWS[0], 4 * 960, 960 + 2 * 96),
    "embedding": (lambda: _table(nn.Embedding(100, 16)), torch.tensor([1, 2, 3]), 0, 1600),
    "conv": (_static, torch.rand(1, 3, 8, 8), 8 * 36 * 27, 216 + 32),
}


@pytest.mark.parametrize("name", PACKED)
def test_packed_layers(name: str) -> None:
    make, x, macs, nbytes = PACKED[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = make()
    graph = capture(module, (x,), route="run")
    found = cost(graph).total()
    assert found.figures.macs == macs
    assert found.figures.flops is not None
    assert sum(t.nbytes or 0 for t in graph.tensors if t.role is Role.PARAMETER) == nbytes
    assert not [op.kind for op in graph.ops if "::" in op.kind]
    with pytest.raises(ModelError, match=r"packed for a kernel.*--route run"):
        capture(module, (x,), route="export")
