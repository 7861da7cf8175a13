"""Modules that nobody wrote: random compositions of layers, losses, masks and checkpoints."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tests.oracles.torch_operators import Step

COUNT = 300
ROWS, CLASSES = 64, 10

Part = Callable[[random.Random, int], tuple[nn.Module, int]]
"""From a width to a layer and its result's width; (rows, width) in, (rows, width) out."""


class Wrapped(nn.Module):
    """A layer run by a function of it and its input."""

    def __init__(self, run: Callable[..., torch.Tensor], *layers: nn.Module) -> None:
        super().__init__()
        self.layers, self.run = nn.ModuleList(layers), run

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Its result."""
        return self.run(x, *self.layers)


def _linear(draw: random.Random, width: int) -> tuple[nn.Module, int]:
    wide = draw.choice((32, 64, 128, 256))
    return nn.Linear(width, wide, bias=draw.random() < 0.7), wide


def _activation(draw: random.Random, width: int) -> tuple[nn.Module, int]:
    made: list[nn.Module] = [
        nn.ReLU(inplace=draw.random() < 0.5),
        nn.GELU(),
        nn.SiLU(inplace=draw.random() < 0.5),
        nn.Tanh(),
        nn.Sigmoid(),
        nn.ELU(),
        nn.Softplus(),
        nn.Hardswish(),
        nn.LeakyReLU(0.1),
        nn.PReLU(),
        nn.Mish(),
        nn.Softmax(1),
        nn.LogSigmoid(),
        nn.Dropout(0.2),
        nn.Identity(),
    ]
    return draw.choice(made), width


def _norm(draw: random.Random, width: int) -> tuple[nn.Module, int]:
    made = [nn.LayerNorm(width), nn.BatchNorm1d(width), nn.RMSNorm(width), nn.GroupNorm(4, width)]
    return draw.choice(made), width


def _masked(draw: random.Random, width: int) -> tuple[nn.Module, int]:
    runs: list[Callable[..., torch.Tensor]] = [
        lambda x: x.masked_fill(x.detach() > 1, 0.0),
        lambda x: torch.where(torch.arange(len(x))[:, None] < 50, x, 0.0),
        lambda x: x * (torch.arange(len(x))[:, None] % 2 == 0),
        lambda x: x[torch.arange(len(x)) % 4 != 3].repeat(2, 1)[:ROWS],
        lambda x: x.clamp(-1, 1) + x.tril(),
        lambda x: x + x.cumsum(0) / len(x),
    ]
    return Wrapped(draw.choice(runs)), width


def _combined(draw: random.Random, width: int) -> tuple[nn.Module, int]:
    runs: list[Callable[..., torch.Tensor]] = [
        lambda x, one: x + one(x),
        lambda x, one: x * one(x).sigmoid(),
        lambda x, one: torch.cat([x, one(x)], 1)[:, ::2],
        lambda x, one: x + checkpoint(one, x, use_reentrant=False),
        lambda x, one: checkpoint(one, x, use_reentrant=True) if x.requires_grad else one(x),
        lambda x, one: x - one(x).mean(0, keepdim=True),
        lambda x, one: (x * 2).add_(one(x)).mul_(0.5),
    ]
    inner: nn.Module = nn.Linear(width, width)
    if draw.random() < 0.5:
        inner = nn.Sequential(inner, nn.Dropout(0.1), nn.ReLU(), nn.Linear(width, width))
    return Wrapped(draw.choice(runs), inner), width


def _sequence(draw: random.Random, width: int) -> tuple[nn.Module, int]:
    if draw.random() < 0.5:
        layer = nn.TransformerEncoderLayer(
            width, 4, 2 * width, batch_first=True, norm_first=draw.random() < 0.5
        )
        return Wrapped(lambda x, one: one(x.view(4, 16, -1)).reshape(ROWS, -1), layer), width
    layers = nn.MultiheadAttention(width, 4, batch_first=True)
    return Wrapped(lambda x, one: _attended(x.view(4, 16, -1), one), layers), width


def _attended(x: torch.Tensor, one: nn.Module) -> torch.Tensor:
    return one(x, x, x, need_weights=False)[0].reshape(ROWS, -1)


PARTS: tuple[Part, ...] = (
    _linear,
    _linear,
    _activation,
    _activation,
    _norm,
    _masked,
    _combined,
    _combined,
    _sequence,
)


def _losses(width: int) -> list[Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]:
    wide = torch.linspace(0, 1, width)
    return [
        lambda x, v: F.cross_entropy(x, v),
        lambda x, v: F.cross_entropy(x, v, label_smoothing=0.1),
        lambda x, v: F.mse_loss(x, torch.zeros_like(x)),
        lambda x, v: x.square().mean(),
        lambda x, v: F.binary_cross_entropy_with_logits(x, wide.expand_as(x), pos_weight=wide + 1),
        lambda x, v: F.nll_loss(x.log_softmax(1), torch.where(v < 3, -100, v)),
        lambda x, v: F.smooth_l1_loss(x, wide.expand_as(x)),
        lambda x, v: x.logsumexp(1).sum(),
        lambda x, v: F.cross_entropy(x[v > 2], v[v > 2]),
    ]


class Made(nn.Module):
    """Layers in a row, then a loss."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        draw = random.Random(seed)
        layers, width = [], 64
        for _ in range(draw.randint(2, 7)):
            layer, width = draw.choice(PARTS)(draw, width)
            layers.append(layer)
        self.layers = nn.Sequential(nn.Linear(64, 64), *layers, nn.Linear(width, CLASSES))
        self.loss = draw.choice(_losses(CLASSES))

    def forward(self, x: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """The loss."""
        return self.loss(self.layers(x), v)


def made(seed: int) -> Step:
    """One module."""
    data = torch.Generator().manual_seed(seed)
    x = torch.rand(ROWS, 64, generator=data)
    return Made(seed), {"x": x, "v": torch.randint(0, CLASSES, (ROWS,), generator=data)}


def steps() -> Iterator[tuple[str, Callable[[], Step]]]:
    """As many as are asked for, by number."""
    for seed in range(COUNT):
        yield f"module {seed}", partial(made, seed)
