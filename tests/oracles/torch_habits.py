"""What people do with modules besides calling them: hooks, regions, teachers, queues, codes.

Each is a step as in
`torch_operators`: a module that returns its loss, and its keyword arguments, all tensors.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F
from torch.nn.utils import parametrizations, rnn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from tests.oracles.torch_operators import Step

WORDS, LENGTH, BATCH, WIDTH = 200, 256, 2, 64
Function = Callable[..., torch.Tensor]


def ids(length: int = LENGTH) -> torch.Tensor:
    """Words."""
    return torch.randint(3, WORDS - 2, (BATCH, length))


class Called(nn.Module):
    """Parts, and a function of them and the inputs that is the loss."""

    def __init__(self, function: Function, **parts: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, **kwargs: torch.Tensor) -> torch.Tensor:
        """The loss."""
        return self.function(self, **kwargs)


def _mlp(depth: int = 3) -> nn.Sequential:
    layers = [m for _ in range(depth) for m in (nn.Linear(WIDTH, WIDTH), nn.GELU())]
    return nn.Sequential(*layers)


def rows() -> torch.Tensor:
    return torch.rand(128, WIDTH)


def loss(out: Any) -> torch.Tensor:
    return out.square().mean()


def _plain(change: Callable[[nn.Sequential], Any], **more: torch.Tensor) -> Step:
    """A small network that something was done to."""
    net = _mlp()
    change(net)
    return Called(lambda m, x: loss(m.net(x)), net=net), {"x": rows(), **more}


def _tied() -> Step:
    return Called(
        lambda m, ids: F.cross_entropy(
            F.linear(m.net(m.words(ids)), m.words.weight).flatten(0, 1), ids.flatten()
        ),
        words=nn.Embedding(WORDS, WIDTH),
        net=_mlp(),
    ), {"ids": ids()}


class _Teacher(nn.Module):
    """A student and its moving average, which is updated in forward."""

    def __init__(self) -> None:
        super().__init__()
        self.net = _mlp()
        self.slow = copy.deepcopy(self.net).requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            for slow, fast in zip(self.slow.parameters(), self.net.parameters(), strict=True):
                slow.lerp_(fast, 0.01)
            wanted = self.slow(x)
        return F.mse_loss(self.net(x), wanted)


def _hooked(net: nn.Sequential) -> None:
    kept: dict[int, torch.Tensor] = {}
    net[0].register_forward_hook(lambda m, a, out: out * 2)
    net[2].register_forward_pre_hook(lambda m, a: (a[0].clone(),))
    net[3].register_forward_hook(lambda m, a, out: kept.__setitem__(0, out))
    net[4].register_full_backward_hook(lambda m, gi, go: (gi[0] * 0.5,))


def _feature(net: nn.Sequential) -> None:
    """A hook that holds a layer's result, as for features or a loss beside."""
    kept: list[torch.Tensor] = []
    net[1].register_forward_hook(lambda m, a, out: kept.append(out))
    net.register_forward_hook(lambda m, a, out: out + kept.pop())


def _gradient_hook(net: nn.Sequential) -> None:
    for parameter in net.parameters():
        parameter.register_hook(lambda g: g.clamp(-1, 1))


def _spectral(net: nn.Sequential) -> None:
    for layer in (0, 2):
        parametrizations.spectral_norm(net[layer])


def _weighted(net: nn.Sequential) -> None:
    for layer in (0, 2):
        parametrizations.weight_norm(net[layer])


def _functional() -> Step:
    def run(m: Any, x: torch.Tensor) -> torch.Tensor:
        scaled = {n: p * 1.1 for n, p in m.net.named_parameters()}
        return loss(functional_call(m.net, scaled, (x,)))

    return Called(run, net=_mlp()), {"x": rows()}


def _vmapped() -> Step:
    def run(m: Any, x: torch.Tensor) -> torch.Tensor:
        names = dict(m.net.named_parameters())
        one = torch.func.vmap(lambda row: functional_call(m.net, names, (row[None],))[0])
        return loss(one(x))

    return Called(run, net=_mlp()), {"x": rows()}


def _regions(reentrant: bool, drop: float = 0.0) -> Step:
    def run(m: Any, x: torch.Tensor) -> torch.Tensor:
        x = m.first(x)
        for part in (m.one, m.two):
            x = checkpoint(
                lambda y, part=part: F.dropout(part(y), drop), x, use_reentrant=reentrant
            )
        return loss(x)

    return Called(run, first=nn.Linear(WIDTH, WIDTH), one=_mlp(), two=_mlp()), {"x": rows()}


def _sequence(segments: int) -> Step:
    run = checkpoint_sequential
    return Called(lambda m, x: loss(run(m.net, segments, x, use_reentrant=False)), net=_mlp(4)), {
        "x": rows()
    }


def _packed(kind: str) -> Step:
    layer = getattr(nn, kind)(WIDTH, WIDTH, batch_first=True)

    def run(m: Any, ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        given = rnn.pack_padded_sequence(
            m.words(ids), lengths, batch_first=True, enforce_sorted=False
        )
        out, _ = rnn.pad_packed_sequence(m.rnn(given)[0], batch_first=True)
        return loss(out)

    return Called(run, words=nn.Embedding(WORDS, WIDTH), rnn=layer), {
        "ids": ids(32),
        "lengths": torch.tensor([32, 21]),
    }


def _detection() -> Step:
    """Boxes matched by overlap, as detectors do: sizes, gathers and losses that values decide."""

    def run(m: Any, x: torch.Tensor, boxes: torch.Tensor, kinds: torch.Tensor) -> torch.Tensor:
        h = m.net(x)
        said, at = m.kind(h), m.box(h).sigmoid()
        with torch.no_grad():
            near = torch.cdist(at, boxes, p=1)
            best = near.argmin(0)
        wanted = torch.full((len(x),), 9)
        wanted[best] = kinds
        return F.cross_entropy(said, wanted) + F.l1_loss(at[best], boxes)

    return Called(run, net=_mlp(), kind=nn.Linear(WIDTH, 10), box=nn.Linear(WIDTH, 4)), {
        "x": torch.rand(512, WIDTH),
        "boxes": torch.rand(20, 4),
        "kinds": torch.randint(0, 9, (20,)),
    }


def _accumulated() -> Step:
    """Two halves of a batch, their losses summed."""
    return Called(lambda m, x: sum(loss(m.net(half)) for half in x.chunk(2)), net=_mlp()), {
        "x": rows()
    }


def _compiled_part() -> Step:
    """A function that a library wraps for compilation, switched off as on a machine without it."""
    wrapped = torch.compiler.disable(lambda x: x * x.sigmoid())
    return Called(lambda m, x: loss(wrapped(m.net(x))), net=_mlp()), {"x": rows()}


def _channels_last(norm: Callable[[], nn.Module]) -> Step:
    """A network of images whose memory is laid out by pixels."""
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        norm(),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1),
        norm(),
        nn.ReLU(),
    )
    net = net.to(memory_format=torch.channels_last)
    x = torch.rand(4, 3, 32, 32).to(memory_format=torch.channels_last)
    return Called(lambda m, x: loss(m.net(x).flatten(1)), net=net), {"x": x}


def _transposed() -> Step:
    """A norm of rows that lie in columns, as patches of images do."""

    def run(m: Any, x: torch.Tensor) -> torch.Tensor:
        return loss(m.norm(m.words(x).transpose(1, 2)))

    return Called(run, words=nn.Conv1d(8, WIDTH, 1), norm=nn.LayerNorm(WIDTH)), {
        "x": torch.rand(4, 8, 128)
    }


class _Own(torch.autograd.Function):
    """Saves one tensor and a mask of it, writes its gradient by hand."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x > 0)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * ctx.saved_tensors[0]


def _own_function() -> Step:
    return Called(lambda m, x: loss(_Own.apply(m.net(x))), net=_mlp()), {"x": rows()}


def _contrast() -> Step:
    """Two views, a queue of earlier keys that is written in place."""

    class Queued(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = _mlp()
            self.register_buffer("queue", torch.randn(1024, WIDTH))
            self.register_buffer("at", torch.zeros(1, dtype=torch.long))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q = F.normalize(self.net(x), dim=1)
            with torch.no_grad():
                k = F.normalize(self.net(x.flip(0)), dim=1)
            said = torch.cat([(q * k).sum(1, keepdim=True), q @ self.queue.clone().T], dim=1)
            at = int(self.at)
            self.queue[at : at + len(k)] = k
            self.at[0] = (at + len(k)) % 1024
            return F.cross_entropy(said / 0.07, torch.zeros(len(x), dtype=torch.long))

    return Queued(), {"x": rows()}


def _quantised() -> Step:
    """Codes nearest to what was encoded; gradients go straight through."""

    def run(m: Any, x: torch.Tensor) -> torch.Tensor:
        h = m.net(x)
        at = torch.cdist(h, m.codes.weight).argmin(1)
        code = m.codes(at)
        return F.mse_loss(code, h.detach()) + loss(h + (code - h).detach())

    return Called(run, net=_mlp(), codes=nn.Embedding(512, WIDTH)), {"x": rows()}


def _graph() -> Step:
    """Messages along edges, summed where they end."""

    def run(m: Any, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        h = m.net(x)
        sent = m.edge(torch.cat([h[edges[0]], h[edges[1]]], dim=1)).relu()
        return loss(torch.zeros_like(h).index_add(0, edges[1], sent))

    return Called(run, net=_mlp(), edge=nn.Linear(2 * WIDTH, WIDTH)), {
        "x": rows(),
        "edges": torch.randint(0, 128, (2, 1000)),
    }


HABITS: Mapping[str, Callable[[], Step]] = {
    "weight norm": lambda: _plain(_weighted),
    "spectral norm": lambda: _plain(_spectral),
    "hooks": lambda: _plain(_hooked),
    "a hook that keeps": lambda: _plain(_feature),
    "gradient hooks": lambda: _plain(_gradient_hook),
    "half frozen": lambda: _plain(lambda net: net[2].requires_grad_(False)),
    "functional call": _functional,
    "vmap": _vmapped,
    "tied": _tied,
    "a teacher": lambda: (_Teacher(), {"x": rows()}),
    "regions": lambda: _regions(False),
    "regions, re-entrant": lambda: _regions(True),
    "regions with dropout": lambda: _regions(False, 0.1),
    "regions with dropout, re-entrant": lambda: _regions(True, 0.1),
    "a sequence of regions": lambda: _sequence(2),
    "packed LSTM": lambda: _packed("LSTM"),
    "packed GRU": lambda: _packed("GRU"),
    "detection": _detection,
    "two halves": _accumulated,
    "not compiled": _compiled_part,
    "own function": _own_function,
    "channels last, batches": lambda: _channels_last(lambda: nn.BatchNorm2d(16)),
    "channels last, groups": lambda: _channels_last(lambda: nn.GroupNorm(4, 16)),
    "columns": _transposed,
    "contrast with a queue": _contrast,
    "codes": _quantised,
    "messages": _graph,
}
