"""Networks of the sizes that peers' tests state, written anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Categorical, Normal


class Of(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *operands: Tensor) -> Any:
        return self.function(*operands)


class Learnt(nn.Module):
    """A function of parameters."""

    def __init__(self, function: Callable[..., Any], shapes: Sequence[Sequence[int]]) -> None:
        super().__init__()
        self.function = function
        self.operands = nn.ParameterList([torch.rand(tuple(shape)) for shape in shapes])

    def forward(self) -> Any:
        return self.function(*self.operands)


class Nested(nn.Module):
    """A learnt input in a mapping, through two squares after a rectifier in place."""

    def __init__(self) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.rand(10, 10))

    def forward(self) -> Tensor:
        values = {"a": self.x.clone()}
        for _ in range(2):
            x = values["a"].relu_()
            values = {"a": torch.mm(x, x)}
        return values["a"]


class Basic(nn.Module):
    """The block of ResNet-18."""

    def __init__(self, inner: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inner, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, 1, 1, bias=False),
            nn.BatchNorm2d(width),
        )
        self.skip: nn.Module = nn.Identity()
        if stride != 1:
            self.skip = nn.Sequential(
                nn.Conv2d(inner, width, 1, stride, bias=False), nn.BatchNorm2d(width)
            )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.skip(x))


def resnet18() -> nn.Module:
    """Of the paper, with 1,000 classes."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    inner = 64
    for width in (64, 128, 256, 512):
        layers += [Basic(inner, width, 1 + (width != inner)), Basic(width, width, 1)]
        inner = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


class Resnet18OfALearntImage(nn.Module):
    """Its image needs a gradient, too."""

    def __init__(self) -> None:
        super().__init__()
        self.image, self.net = nn.Parameter(torch.rand(1, 3, 224, 224)), resnet18()

    def forward(self) -> Any:
        return self.net(self.image)


def three() -> nn.Module:
    """A pointwise convolution, its mean, and two linear layers, by name."""
    made = nn.Sequential()
    parts = {
        "conv": nn.Conv2d(2, 5, 1),
        "pool": nn.AdaptiveAvgPool2d(1),
        "flat": nn.Flatten(),
        "linear1": nn.Linear(5, 3),
        "linear2": nn.Linear(3, 1),
    }
    for name, part in parts.items():
        made.add_module(name, part)
    return made


def digits() -> nn.Sequential:
    """A small network for images of 28 by 28."""
    return nn.Sequential(
        nn.Conv2d(1, 10, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(10, 20, 5),
        nn.Dropout2d(0.3),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(320, 50),
        nn.ReLU(),
        nn.Linear(50, 10),
        nn.LogSoftmax(1),
    )


class Named(nn.Module):
    """The same; every result by name, and an input that nothing reads."""

    def __init__(self) -> None:
        super().__init__()
        self.net = digits()

    def forward(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        found = {}
        for name, layer in self.net.named_children():
            x = found[name] = layer(x)
        return found


class Unread(nn.Module):
    """Returns a parameter, whatever the input."""

    def __init__(self, name: str, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.name = name
        self.register_parameter(name, nn.Parameter(torch.ones(shape)))

    def forward(self, x: Tensor) -> Any:
        return getattr(self, self.name)


class Listed(nn.Module):
    """Parameters in a list that nothing reads."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList([torch.ones(100, 100), torch.ones(100, 200)])

    def forward(self, x: Tensor) -> Tensor:
        return x


class TwoTowers(nn.Module):
    """Inputs of two types, a tower each."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = (
            nn.Sequential(nn.Linear(300, 50), nn.ReLU(), nn.Linear(50, 10)) for _ in range(2)
        )

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.cat((self.one(x), self.two(y.float()))).log_softmax(1)


class Chosen(nn.Module):
    """Layers by name."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({"conv": nn.Conv2d(10, 10, 3), "pool": nn.MaxPool2d(3)})
        self.acts = nn.ModuleDict({"lrelu": nn.LeakyReLU(), "prelu": nn.PReLU()})

    def forward(self, x: Tensor, layer: str, act: str) -> Any:
        return self.acts[act](self.layers[layer](x))


class Unpooled(nn.Module):
    """A maximum, and its places again."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 3, 3, padding=1)
        self.pool, self.unpool = nn.MaxPool2d(2, return_indices=True), nn.MaxUnpool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        wide = self.encode(x).relu()
        small, places = self.pool(wide)
        return self.decode(self.unpool(small, places, output_size=wide.shape)).relu()


def one_relu() -> nn.Module:
    """One rectifier in place, between convolutions that halve and pad."""
    act = nn.ReLU(True)
    layers: list[nn.Module] = [nn.ReflectionPad2d(3), nn.Conv2d(4, 1, 1), nn.BatchNorm2d(1), act]
    for width in (1, 2, 4):
        layers += [nn.Conv2d(width, 2 * width, 1, 2, 1), nn.BatchNorm2d(2 * width), act]
    return nn.Sequential(*layers)


class Product(nn.Module):
    """A product with a parameter, and a linear layer or none."""

    def __init__(self, out: int = 0) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.ones(128, 64)), nn.Parameter(torch.ones(64))
        self.last = nn.Linear(64, out) if out else nn.Identity()

    def forward(self, x: Tensor) -> Any:
        return self.last(torch.mm(x, self.a) + self.b)


def dilated() -> nn.Module:
    """Convolutions of eight channels, wider and narrower again."""
    layers: list[nn.Module] = [nn.Conv2d(3, 8, 5, padding=2), nn.BatchNorm2d(8), nn.ReLU()]
    for by in (2, 4, 8, 8, 4, 2):
        layers += [nn.Conv2d(8, 8, 3, padding="same", dilation=by), nn.BatchNorm2d(8), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(8, 1, 1), nn.BatchNorm2d(1), nn.ReLU())


def small_convolutions() -> nn.Module:
    """Five of one weight and a bias."""
    return nn.Sequential(
        *(nn.Sequential(nn.Conv1d(1, 1, 1), nn.ReLU(), nn.MaxPool1d(1)) for _ in range(5))
    )


class Tied(nn.Module):
    """An embedding whose weight the last layer shares."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(1000, 64), nn.Linear(64, 1000, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Any:
        return self.head(self.embedding(x))


class Cell(nn.Module):
    """Four steps of a cell of two units, with noise for a state."""

    def __init__(self, projected: bool = False) -> None:
        super().__init__()
        self.lstm, self.projection, self.projected = nn.LSTMCell(3, 2), nn.Linear(2, 3), projected

    def forward(self, x: Tensor) -> Tensor:
        h, c = torch.randn(len(x), 2), torch.randn(len(x), 2)
        for _ in range(4):
            h, c = self.lstm(x, (h, c))
            h = h.tanh()
        return self.projection(h).tanh() if self.projected else h


class Scaled(nn.Module):
    """A linear layer times a scalar input."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(10, 5)

    def forward(self, x: Tensor, by: Tensor) -> Any:
        return self.linear(x) * by


class Categories(nn.Module):
    """Returns a distribution."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(10, 5)

    def forward(self, x: Tensor) -> Categorical:
        return Categorical(logits=self.linear(x).log_softmax(-1))


class Gaussian(nn.Module):
    """Returns a distribution of two results."""

    def __init__(self) -> None:
        super().__init__()
        self.mean, self.width = nn.Linear(10, 5), nn.Linear(10, 5)

    def forward(self, x: Tensor) -> Normal:
        return Normal(self.mean(x), F.softplus(self.width(x)))


def frozen_parts() -> nn.Module:
    """Three convolutions of one weight: learnt, half learnt, and not at all."""
    made = nn.Sequential(*(nn.Conv1d(1, 1, 1) for _ in range(3)), nn.Dropout())
    for parameter in list(made.parameters())[3:]:
        parameter.requires_grad_(False)
    return made


class Keyed(nn.Module):
    """Inputs in a mapping by number."""

    def forward(self, x: dict[int, Any], by: int) -> Any:
        return by * (x[256] + x[512][0]) * 5
