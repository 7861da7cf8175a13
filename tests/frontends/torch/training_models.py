"""Small models of ten kinds for training steps, written out or built from a configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Made = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]


def mlp() -> Made:
    layers: list[nn.Module] = []
    for _ in range(3):
        layers += [nn.Linear(128, 128), nn.GELU(), nn.Dropout(0.1)]
    return nn.Sequential(*layers, nn.Linear(128, 10)), (torch.randn(32, 128),), {}


class Doubtful(nn.Module):
    """A branch that values decide: no capture without values can follow it."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        y = self.inner(x)
        return y * 2 if y.sum() > 0 else y


class Basic(nn.Module):
    def __init__(self, inner: int, out: int, stride: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(inner, out, 3, stride, 1, bias=False)
        self.two = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(out), nn.BatchNorm2d(out)])
        self.skip: nn.Module = nn.Identity()
        if stride != 1 or inner != out:
            self.skip = nn.Sequential(nn.Conv2d(inner, out, 1, stride), nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norms[0](self.one(x)), inplace=True)
        return F.relu(self.norms[1](self.two(y)) + self.skip(x), inplace=True)


def resnet() -> Made:
    body = [
        nn.Conv2d(3, 16, 7, 2, 3, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
        Basic(16, 16, 1),
        Basic(16, 32, 2),
        Basic(32, 64, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    ]
    return nn.Sequential(*body), (torch.randn(4, 3, 64, 64),), {}


class Inverted(nn.Module):
    def __init__(self, inner: int, out: int, stride: int) -> None:
        super().__init__()
        wide = inner * 6
        self.body = nn.Sequential(
            nn.Conv2d(inner, wide, 1, bias=False),
            nn.BatchNorm2d(wide),
            nn.ReLU6(inplace=True),
            nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False),
            nn.BatchNorm2d(wide),
            nn.ReLU6(inplace=True),
            nn.Conv2d(wide, out, 1, bias=False),
            nn.BatchNorm2d(out),
        )
        self.skips = stride == 1 and inner == out

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.skips else self.body(x)


def mobilenet() -> Made:
    body = [
        nn.Conv2d(3, 8, 3, 2, 1),
        Inverted(8, 12, 2),
        Inverted(12, 12, 1),
        Inverted(12, 16, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(16, 10),
    ]
    return nn.Sequential(*body), (torch.randn(4, 3, 64, 64),), {}


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([nn.Conv2d(3, 8, 3, 1, 1), nn.Conv2d(8, 16, 3, 1, 1)])
        self.middle = nn.Conv2d(16, 16, 3, 1, 1)
        self.up = nn.ModuleList([nn.ConvTranspose2d(16, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)])
        self.mix = nn.ModuleList([nn.Conv2d(32, 16, 3, 1, 1), nn.Conv2d(16, 8, 3, 1, 1)])

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for conv in self.down:
            x = F.relu(conv(x))
            kept.append(x)
            x = F.max_pool2d(x, 2)
        x = F.relu(self.middle(x))
        for up, mix in zip(self.up, self.mix, strict=True):
            x = F.relu(mix(torch.cat([up(x), kept.pop()], 1)))
        return x


def unet() -> Made:
    return UNet(), (torch.randn(2, 3, 32, 32),), {}


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 32)
        self.lstm = nn.LSTM(32, 48, 2, dropout=0.1, bidirectional=True)
        self.out = nn.Linear(96, 9)

    def forward(self, ids: Tensor) -> Tensor:
        return self.out(self.lstm(self.embed(ids))[0])


def lstm() -> Made:
    return Tagger(), (torch.randint(0, 50, (12, 4)),), {}


def bert() -> Made:
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=128,
        vocab_size=200,
    )
    ids = torch.randint(0, 200, (2, 32))
    return BertForMaskedLM(config), (), {"input_ids": ids, "labels": ids}


def gpt2() -> Made:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        n_layer=2, n_embd=64, n_head=2, vocab_size=200, bos_token_id=0, eos_token_id=0
    )
    ids = torch.randint(0, 200, (2, 32))
    return GPT2LMHeadModel(config), (), {"input_ids": ids, "labels": ids}


def vit() -> Made:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=128,
        image_size=32,
        patch_size=8,
    )
    return ViTForImageClassification(config), (torch.randn(2, 3, 32, 32),), {}


class Experts(nn.Module):
    """Each expert takes a fixed number of tokens, so that no shape depends on data."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(32, 4)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32)) for _ in range(4)
        )

    def forward(self, x: Tensor) -> Tensor:
        scores = self.gate(x).softmax(-1)
        out = torch.zeros_like(x)
        for at, expert in enumerate(self.experts):
            weight, picked = scores[:, at].topk(x.shape[0] // 2)
            out = out.index_add(0, picked, expert(x[picked]) * weight[:, None])
        return out


def experts() -> Made:
    return Experts(), (torch.randn(64, 32),), {}


def frozen() -> Made:
    """Frozen layers with a small trained factor beside each (LoRA-like), and tied weights."""

    class Adapted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = nn.Linear(96, 96)
            self.base.requires_grad_(False)
            self.down, self.up = nn.Linear(96, 4, bias=False), nn.Linear(4, 96, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return F.relu(self.base(x) + self.up(self.down(x)))

    layers = [Adapted() for _ in range(3)]
    layers[2].base.weight = layers[0].base.weight
    return nn.Sequential(*layers), (torch.randn(16, 96),), {}


MODELS: dict[str, Callable[[], Made]] = {
    make.__name__: make
    for make in (mlp, resnet, mobilenet, unet, lstm, bert, gpt2, vit, experts, frozen)
}
