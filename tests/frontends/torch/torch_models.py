"""Well-known networks, written out here so that tests need no model zoo."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def norm_act(
    channels: int, act: type[nn.Module] | None = nn.ReLU, dims: int = 2
) -> list[nn.Module]:
    norm = nn.BatchNorm2d if dims == 2 else nn.BatchNorm3d
    return [norm(channels), *([act()] if act else [])]


class Bottleneck(nn.Module):
    def __init__(self, inner: int, width: int, stride: int) -> None:
        super().__init__()
        out = width * 4
        self.body = nn.Sequential(
            nn.Conv2d(inner, width, 1, bias=False),
            *norm_act(width),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            *norm_act(width),
            nn.Conv2d(width, out, 1, bias=False),
            *norm_act(out, None),
        )
        self.skip = nn.Sequential(nn.Conv2d(inner, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        if inner == out and stride == 1:
            self.skip = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.skip(x), inplace=True)


def resnet50() -> nn.Module:
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        *norm_act(64),
        nn.MaxPool2d(3, 2, 1),
    ]
    inner = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for at in range(blocks):
            layers.append(Bottleneck(inner, width, stride if at == 0 else 1))
            inner = width * 4
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


class Squeeze(nn.Module):
    def __init__(self, channels: int, inner: int) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, inner, 1), nn.Conv2d(inner, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.up(F.silu(self.down(x.mean((2, 3), keepdim=True)))))


class Inverted(nn.Module):
    """The inverted residual of MobileNetV2 and EfficientNet."""

    def __init__(
        self, inner: int, out: int, ratio: int, stride: int, kernel: int = 3, squeeze: bool = False
    ) -> None:
        super().__init__()
        wide, act = inner * ratio, nn.SiLU if squeeze else nn.ReLU6
        layers: list[nn.Module] = []
        if ratio != 1:
            layers += [nn.Conv2d(inner, wide, 1, bias=False), *norm_act(wide, act)]
        layers += [
            nn.Conv2d(wide, wide, kernel, stride, kernel // 2, groups=wide, bias=False),
            *norm_act(wide, act),
        ]
        if squeeze:
            layers.append(Squeeze(wide, inner // 4))
        layers += [nn.Conv2d(wide, out, 1, bias=False), *norm_act(out, None)]
        self.body = nn.Sequential(*layers)
        self.same = inner == out and stride == 1

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.same else self.body(x)


def mobilenet_v2() -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), *norm_act(32, nn.ReLU6)]
    inner = 32
    for ratio, out, blocks, stride in (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for at in range(blocks):
            layers.append(Inverted(inner, out, ratio, stride if at == 0 else 1))
            inner = out
    layers += [
        nn.Conv2d(320, 1280, 1, bias=False),
        *norm_act(1280, nn.ReLU6),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.2),
    ]
    return nn.Sequential(*layers, nn.Linear(1280, 1000))


def efficientnet_b0() -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), *norm_act(32, nn.SiLU)]
    inner = 32
    for ratio, out, blocks, stride, kernel in (
        (1, 16, 1, 1, 3),
        (6, 24, 2, 2, 3),
        (6, 40, 2, 2, 5),
        (6, 80, 3, 2, 3),
        (6, 112, 3, 1, 5),
        (6, 192, 4, 2, 5),
        (6, 320, 1, 1, 3),
    ):
        for at in range(blocks):
            layers.append(Inverted(inner, out, ratio, stride if at == 0 else 1, kernel, True))
            inner = out
    layers += [
        nn.Conv2d(320, 1280, 1, bias=False),
        *norm_act(1280, nn.SiLU),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.2),
    ]
    return nn.Sequential(*layers, nn.Linear(1280, 1000))


class ViT(nn.Module):
    """The vision transformer, pre-norm, class token, learned positions."""

    def __init__(self, width: int, heads: int, classes: int, depth: int = 12) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 16, 16)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.place = nn.Parameter(torch.zeros(1, 197, width))
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
            )
            for _ in range(depth)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.place
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


class Block3d(nn.Module):
    def __init__(self, inner: int, out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv3d(inner, out, 3, stride, 1, bias=False),
            *norm_act(out, dims=3),
            nn.Conv3d(out, out, 3, 1, 1, bias=False),
            *norm_act(out, None, dims=3),
        )
        self.skip = nn.Identity()
        if stride != 1 or inner != out:
            self.skip = nn.Sequential(
                nn.Conv3d(inner, out, 1, stride, bias=False), nn.BatchNorm3d(out)
            )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.skip(x))


def r3d_18() -> nn.Module:
    stem = nn.Conv3d(3, 64, (3, 7, 7), (1, 2, 2), (1, 3, 3), bias=False)
    layers: list[nn.Module] = [stem, *norm_act(64, dims=3)]
    inner = 64
    for out, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block3d(inner, out, stride), Block3d(out, out, 1)]
        inner = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(512, 400))


class Experts(nn.Module):
    """A mixture of experts: each token goes to the one its data asks for."""

    def __init__(self, width: int = 16, hidden: int = 48, count: int = 4) -> None:
        super().__init__()
        self.router = nn.Linear(width, count, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))
            for _ in range(count)
        )

    def forward(self, x: Tensor) -> Tensor:
        chosen = self.router(x).argmax(-1)
        out = torch.zeros_like(x)
        for at, expert in enumerate(self.experts):
            rows = chosen == at
            if rows.any():
                out[rows] = expert(x[rows])
        return out


class Fn(nn.Module):
    """A function as a module; further tensors become its parameters."""

    def __init__(self, function, *weights: Tensor) -> None:
        super().__init__()
        self.function = function
        self.weights = nn.ParameterList(weights)

    def forward(self, *args: Tensor) -> Tensor:
        return self.function(*args, *self.weights)
