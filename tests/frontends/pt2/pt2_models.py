"""Ordinary models as exported programs: what a `.pt2` file must give the same graph for."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim, ExportedProgram, export

from tests.frontends.torch.torch_models import Bottleneck, Fn


def _eval(module: nn.Module, *args, dynamic=None, strict: bool = False) -> ExportedProgram:
    return export(module.eval(), args, dynamic_shapes=dynamic, strict=strict)


def mlp() -> ExportedProgram:
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(inplace=True), nn.Dropout(0.1), nn.Linear(16, 4))
    net[3].bias.requires_grad = False
    return _eval(net, torch.zeros(3, 8), dynamic=({0: Dim("batch", min=2, max=64)},))


def cnn_train() -> ExportedProgram:
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU6(),
        nn.Dropout(0.5),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Softmax(-1),
    )
    return export(net.train(), (torch.zeros(2, 3, 8, 8),))


def resnet() -> ExportedProgram:
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        Bottleneck(16, 8, 2),
        Bottleneck(32, 8, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 5),
    )
    return _eval(net, torch.zeros(2, 3, 16, 16), dynamic=({0: Dim.AUTO},))


def encoder() -> ExportedProgram:
    layer = nn.TransformerEncoderLayer(16, 4, 32, 0.1, "gelu", batch_first=True)
    return _eval(layer, torch.zeros(2, 6, 16), dynamic=({0: Dim.AUTO, 1: Dim.AUTO},))


class Gpt(nn.Module):
    def __init__(self, width: int = 16, heads: int = 2, most: int = 32) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(64, width), nn.Embedding(most, width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm, self.heads = nn.LayerNorm(width), heads
        self.head = nn.Linear(width, 64, bias=False)
        self.head.weight = self.words.weight
        self.register_buffer("mask", torch.ones(most, most).tril().bool(), persistent=False)

    def forward(self, tokens):
        batch, steps = tokens.shape
        x = self.words(tokens) + self.places(torch.arange(steps))
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        q, k, v = (t.view(batch, steps, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        scores = (q @ k.transpose(-2, -1)) / q.shape[-1] ** 0.5
        scores = scores.masked_fill(~self.mask[:steps, :steps], float("-inf"))
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, steps, -1)
        return self.head(self.out(y.contiguous()) + x.to(torch.float32))


def gpt() -> ExportedProgram:
    dims = {0: Dim("batch"), 1: Dim("seq", min=2, max=31)}
    return _eval(Gpt(), torch.zeros(3, 7, dtype=torch.long), dynamic=(dims,))


class Cache(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.make = nn.Linear(16, 32)
        self.register_buffer("one", torch.zeros(2, 64, 16))
        self.register_buffer("two", torch.zeros(2, 64, 16))
        self.register_buffer("count", torch.zeros(1, dtype=torch.long))

    def forward(self, x, at):
        one, two = self.make(x).chunk(2, -1)
        self.one[:, 3:4] = one
        self.one[:, at] = two.to(self.one.dtype)
        self.two.index_copy_(1, at, two)
        self.count.add_(1)
        return F.scaled_dot_product_attention(one, self.one, self.two).relu_(), self.count + 1


def cache() -> ExportedProgram:
    return _eval(Cache(), torch.zeros(2, 1, 16), torch.tensor([3]))


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(8, 16, 2, batch_first=True, bidirectional=True)

    def forward(self, x):
        y, (hidden, _) = self.rnn(x)
        return {"last": y[:, -1], "hidden": hidden.transpose(0, 1).flatten(1)}


def lstm() -> ExportedProgram:
    return _eval(Lstm(), torch.zeros(3, 5, 8))


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(32, 8, mode="sum")
        self.gate, self.up = nn.Linear(8, 4), nn.Parameter(torch.zeros(4, 8, 16))

    def forward(self, ids, offsets):
        x = self.bag(ids, offsets)
        weights, chosen = self.gate(x).softmax(-1).topk(2)
        picked = torch.bmm(
            x[:, None].expand(-1, 2, -1).reshape(-1, 1, 8), self.up[chosen.reshape(-1)]
        )
        return (picked.view(x.shape[0], 2, -1) * weights.unsqueeze(-1)).sum(1)


def experts() -> ExportedProgram:
    return _eval(Experts(), torch.zeros(10, dtype=torch.long), torch.tensor([0, 4, 7]))


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x, count):
        y = torch.cond(x.sum() > 0, lambda x: self.one(x).relu(), lambda x: self.two(x) + 1, (x,))

        def body(at, value):
            return at + 1, torch.sin(self.one(value))

        _, y = torch._higher_order_ops.while_loop(lambda at, value: at < 3, body, (count, y))
        with torch.no_grad():
            return self.two(y.clone()).view(-1)


def branches() -> ExportedProgram:
    return _eval(Branches(), torch.zeros(2, 8), torch.tensor(0))


class Quantised(nn.Module):
    """What PT2E leaves: integers between operators, weights as integers."""

    def __init__(self) -> None:
        super().__init__()
        import torch.ao.quantization.fx._decomposed

        self.register_buffer("weight", torch.zeros(6, 8, dtype=torch.int8))
        self.register_buffer("scale", torch.ones(6))
        self.register_buffer("zero", torch.zeros(6, dtype=torch.long))

    def forward(self, x):
        ops = torch.ops.quantized_decomposed
        x = ops.quantize_per_tensor(x, 0.1, 3, -128, 127, torch.int8)
        x = ops.dequantize_per_tensor(x, 0.1, 3, -128, 127, torch.int8)
        weight = ops.dequantize_per_channel(
            self.weight, self.scale, self.zero, 0, -127, 127, torch.int8
        )
        x = ops.quantize_per_tensor(F.linear(x, weight), 0.2, 0, -128, 127, torch.int8)
        return ops.dequantize_per_tensor(x, 0.2, 0, -128, 127, torch.int8)


def quantised() -> ExportedProgram:
    return _eval(Quantised(), torch.zeros(4, 8))


class Unet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.low = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, 1, 1)
        self.up, self.out = nn.ConvTranspose2d(8, 8, 2, 2), nn.Conv2d(11, 2, 1)

    def forward(self, x):
        y = F.silu(self.down(F.pad(x, (1, 1, 1, 1))))
        y = F.interpolate(F.avg_pool2d(self.low(y), 2), scale_factor=2.0, mode="bilinear")
        y = F.interpolate(self.up(y), size=x.shape[-2:], mode="nearest")
        return self.out(torch.cat([x, y], 1))


def unet() -> ExportedProgram:
    side = Dim("half", min=4, max=64)
    return _eval(Unet(), torch.zeros(2, 3, 16, 16), dynamic=({2: 2 * side},))


def written() -> ExportedProgram:
    """A buffer that is written, in functional operators."""
    return cache().run_decompositions()


def _gaps(x, column):
    x[:, 1] = column
    return x.mul_(2) + 1


def gaps() -> ExportedProgram:
    """Functional operators keep the gaps that their operand has."""
    return _eval(Fn(_gaps), torch.zeros(3, 4), torch.zeros(3)).run_decompositions()


def _shapes(x, y):
    x = x.unflatten(1, (2, -1)).movedim(1, 0).squeeze().T.reshape(-1)
    parts = torch.split(y, [1, 3], 1)
    z = torch.stack([parts[1].ravel(), x.repeat(2)[: parts[1].numel()]]).flatten()
    return z.view(torch.int32), y.to(y.dtype), y.t().contiguous(), x.reshape(3, -1).swapaxes(0, 1)


def shapes() -> ExportedProgram:
    return _eval(Fn(_shapes), torch.zeros(3, 4), torch.zeros(5, 4))


def _products(x, w, v):
    scores = torch.einsum("bsd,bmd->bsm", x, x).softmax(-1)
    y = torch.einsum("...d,de->...e", scores @ x, w) + torch.einsum("bi,ij,bj->b", v, w, v)[0]
    y = torch.tensordot(y, w, dims=([2], [1])) + torch.einsum("bsd->sd", x)
    y = y * F.cosine_similarity(x, y, dim=-1).unsqueeze(-1) + torch.inner(v, v)[0, 0]
    grid = torch.meshgrid(v[0], v[1], indexing="ij")[1] + torch.einsum("ii->i", w)
    return torch.special.expm1(torch.absolute(y)), torch.cdist(v, grid), torch.atleast_2d(v[0])


def products() -> ExportedProgram:
    return _eval(
        Fn(_products),
        torch.zeros(2, 3, 4),
        torch.zeros(4, 4),
        torch.zeros(2, 4),
        dynamic=((({1: Dim.AUTO}, None, None)),),
    )


def _mapped(x, y):
    return torch.vmap(lambda a, b: (a * b).sum())(x, y)


def mapped() -> ExportedProgram:
    return _eval(Fn(_mapped), torch.zeros(3, 4), torch.zeros(3, 4))


MODELS: dict[str, Callable[[], ExportedProgram]] = {
    make.__name__: make
    for make in (mlp, cnn_train, resnet, encoder, gpt, cache, lstm, experts, branches, quantised,
                 unet, written, gaps, shapes, products, mapped)
}  # fmt: skip
