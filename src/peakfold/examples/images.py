"""ResNet-50, the U-Net of a diffusion model, and a perceptron that runs anywhere."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from peakfold.frontends.torch.module import Example


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions with a shortcut."""

    def __init__(self, given: int, width: int, stride: int) -> None:
        super().__init__()
        wide = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(given, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, wide, 1, bias=False),
            nn.BatchNorm2d(wide),
        )
        self.skip: nn.Module = nn.Identity()
        if stride != 1 or given != wide:
            self.skip = nn.Sequential(
                nn.Conv2d(given, wide, 1, stride, bias=False), nn.BatchNorm2d(wide)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Rectified sum of body and shortcut."""
        out: Tensor = self.body(x)
        out += self.skip(x)
        return functional.relu(out, inplace=True)


class ResNet50(nn.Module):
    """ResNet-50 for images, 25,557,032 parameters at 1,000 classes."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        layers, given = [], 64
        for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for at in range(count):
                layers.append(Bottleneck(given, width, stride if at == 0 else 1))
                given = 4 * width
        self.layers = nn.Sequential(*layers)
        self.pool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(given, classes)

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Tensor | dict[str, Tensor]:
        """Logits; with labels their loss, too."""
        logits: Tensor = self.fc(self.pool(self.layers(self.stem(x))).flatten(1))
        if labels is None:
            return logits
        return {"loss": functional.cross_entropy(logits, labels), "logits": logits}


class Residual(nn.Module):
    """Two convolutions, the time added between them, with a shortcut."""

    def __init__(self, given: int, width: int, time: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.GroupNorm(32, given), nn.GroupNorm(32, width)])
        self.one, self.two = nn.Conv2d(given, width, 3, 1, 1), nn.Conv2d(width, width, 3, 1, 1)
        self.time = nn.Linear(time, width)
        self.skip = nn.Identity() if given == width else nn.Conv2d(given, width, 1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """From [batch, given, h, w] to [batch, width, h, w]."""
        silu = functional.silu
        out = self.one(silu(self.norms[0](x))) + self.time(silu(time))[:, :, None, None]
        total: Tensor = self.skip(x) + self.two(silu(self.norms[1](out)))
        return total


class Seen(nn.Module):
    """Attention over the places of an image."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.qkv = nn.GroupNorm(32, width), nn.Conv2d(width, 3 * width, 1)
        self.out = nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """From and to [batch, width, h, w]."""
        q, k, v = self.qkv(self.norm(x)).flatten(2).transpose(1, 2).chunk(3, -1)
        mixed = functional.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])
        total: Tensor = x + self.out(mixed[:, 0].transpose(1, 2).reshape(x.shape))
        return total


class UNet(nn.Module):
    """The U-Net that predicts the noise of a diffusion step, with attention at low resolution.

    Args:
        base: channels at full resolution.
        widths: times `base`, a resolution each.
        seen: how many of the lowest resolutions attend.
    """

    def __init__(
        self, base: int = 128, widths: tuple[int, ...] = (1, 2, 2, 4), seen: int = 2
    ) -> None:
        super().__init__()
        time, sizes, self.base = 4 * base, [base * wide for wide in widths], base
        self.time = nn.Sequential(nn.Linear(base, time), nn.SiLU(), nn.Linear(time, time))
        self.start, self.down, self.up = (
            nn.Conv2d(3, base, 3, 1, 1),
            nn.ModuleList(),
            nn.ModuleList(),
        )
        kept, given = [base], base
        for at, width in enumerate(sizes):
            look = at >= len(sizes) - seen
            for _ in range(2):
                self.down.append(_level(given, width, time, look=look))
                kept.append(given := width)
            if at + 1 < len(sizes):
                self.down.append(nn.Conv2d(width, width, 3, 2, 1))
                kept.append(width)
        self.middle = nn.ModuleList(
            [Residual(given, given, time), Seen(given), Residual(given, given, time)]
        )
        for at, width in reversed(list(enumerate(sizes))):
            for _ in range(3):
                look = at >= len(sizes) - seen
                self.up.append(_level(given + kept.pop(), width, time, look=look))
                given = width
            if at:
                self.up.append(
                    nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(width, width, 3, 1, 1))
                )
        self.end = nn.Sequential(nn.GroupNorm(32, base), nn.SiLU(), nn.Conv2d(base, 3, 3, 1, 1))

    def forward(self, x: Tensor, steps: Tensor, noise: Tensor | None = None) -> dict[str, Tensor]:
        """The noise in images [batch, 3, h, w] at these steps; with the true noise the loss."""
        half = torch.arange(self.base // 2, device=x.device)
        angles = steps[:, None] * torch.exp(-9.21 / (self.base // 2) * half)
        time = self.time(torch.cat([angles.sin(), angles.cos()], 1))
        x = self.start(x)
        kept = [x]
        for part in self.down:
            x = _through(part, x, time)
            kept.append(x)
        for part in self.middle:
            x = _through(part, x, time)
        for part in self.up:
            wider = isinstance(part, nn.Sequential)
            x = part(x) if wider else _through(part, torch.cat([x, kept.pop()], 1), time)
        found = self.end(x)
        if noise is None:
            return {"noise": found}
        return {"loss": functional.mse_loss(found, noise), "noise": found}


def _level(given: int, width: int, time: int, *, look: bool) -> nn.Module:
    block = Residual(given, width, time)
    return nn.ModuleList([block, Seen(width)]) if look else block


def _through(part: nn.Module, x: Tensor, time: Tensor) -> Tensor:
    for layer in part if isinstance(part, nn.ModuleList) else (part,):
        x = layer(x, time) if isinstance(layer, Residual) else layer(x)
    return x


def resnet50(batch: int = 32, size: int = 224) -> Example:
    """ResNet-50 with labels, 25.6 M parameters, 32 images of 224 x 224."""
    return Example(
        ResNet50().train(),
        (torch.zeros(batch, 3, size, size),),
        {"labels": torch.zeros(batch, dtype=torch.long)},
        dynamic={"x": {0: "batch"}, "labels": {0: "batch"}},
    )


def unet(
    batch: int = 16, size: int = 64, base: int = 128, widths: tuple[int, ...] = (1, 2, 2, 4)
) -> Example:
    """The U-Net of a diffusion model, 16 images of 64 x 64."""
    x = torch.zeros(batch, 3, size, size)
    return Example(
        UNet(base, widths).train(),
        (x, torch.zeros(batch)),
        {"noise": torch.zeros_like(x)},
        dynamic={"x": {0: "batch"}, "steps": {0: "batch"}, "noise": {0: "batch"}},
    )


def mlp(batch: int = 64) -> Example:
    """A perceptron with labels, small enough to be run and measured anywhere."""

    class Perceptron(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(
                nn.Linear(784, 512), nn.ReLU(), nn.Dropout(0.1), nn.Linear(512, 10)
            )

        def forward(self, x: Tensor, labels: Tensor) -> Tensor:
            return functional.cross_entropy(self.layers(x), labels)

    return Example(
        Perceptron().train(),
        (torch.zeros(batch, 784), torch.zeros(batch, dtype=torch.long)),
        dynamic={"x": {0: "batch"}, "labels": {0: "batch"}},
    )
