"""Differentiable operators of torch as small steps: a table of functions, their data by name.

Parameters of a function say what it is given: `x`, `y`, `z` matrices that are trained, `a` and
`b` trained rows, `t` a matrix of numbers, `m` a mask, `i` a matrix and `v` a row of positions,
`s` a row of signs. 128 by 128: with less, a missing scratch or copy is within any tolerance.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from tests.oracles.torch_layers import LAYERS
from tests.oracles.torch_moves import MOVES, N, named

TRAINED = {"x": (N, N), "y": (N, N), "z": (N, N), "a": (N,), "b": (N,)}

Step = tuple[nn.Module, dict[str, torch.Tensor]]
"""A module that returns its loss, and its keyword arguments."""


def given() -> dict[str, torch.Tensor]:
    """What is not trained, the same in every process."""
    made = torch.Generator().manual_seed(0)
    return {
        "t": torch.rand(N, N, generator=made),
        "m": torch.rand(N, N, generator=made) > 0.5,
        "i": torch.randint(0, N, (N, N), generator=made),
        "v": torch.randint(0, N, (N,), generator=made),
        "s": torch.randint(0, 2, (N,), generator=made) * 2 - 1,
    }


class Once(nn.Module):
    """A function of trained values; the loss is the sum of its result's squares.

    Args:
        function: of trained and given values.
        second: differentiate that, and return the sum of the gradients' squares.
    """

    def __init__(self, function: Callable[..., Any], second: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        wanted = inspect.signature(function).parameters
        self.function, self.second = function, second
        self.trained = nn.ParameterDict(
            {n: nn.Parameter(torch.rand(*TRAINED[n]) + 0.5) for n in wanted if n in TRAINED}
        )

    def forward(self, **kwargs: torch.Tensor) -> torch.Tensor:
        """The loss."""
        values = {name: value * 1.0 for name, value in self.trained.items()}
        loss = of(self.function(**values, **kwargs))
        if not self.second:
            return loss
        grads = torch.autograd.grad(
            loss, list(values.values()), create_graph=True, allow_unused=True
        )
        kept = [g.square().sum() for g in grads if g is not None and g.requires_grad]
        return torch.stack([loss, *kept]).sum()


def of(result: torch.Tensor) -> torch.Tensor:
    """The sum of a result's squares."""
    return (result.abs() if result.is_complex() else result).square().sum()


def step(function: Callable[..., Any], *, second: bool = False) -> Step:
    """A step of one function."""
    wanted = inspect.signature(function).parameters
    return Once(function, second), {n: v for n, v in given().items() if n in wanted}


PLAIN: Mapping[str, Callable[..., Any]] = {
    **named(
        "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt square reciprocal sin cos tan sinh cosh "
        "tanh sigmoid erf erfc lgamma digamma sinc neg abs sign asinh atan logit positive "
        "frac trunc deg2rad nan_to_num angle relu i0",
        lambda n: lambda x: getattr(torch, n)(x),
    ),
    **named(
        "asin acos atanh erfinv acosh",
        lambda n: lambda x: getattr(torch, n)(x + 1 if n == "acosh" else x / 2),
    ),
    **named(
        "i0e i1 i1e ndtri log_ndtr erfcx entr", lambda n: lambda x: getattr(torch.special, n)(x / 2)
    ),
    **named(
        "relu6 elu selu celu gelu silu mish softplus softsign hardtanh hardswish hardsigmoid "
        "logsigmoid leaky_relu tanhshrink softshrink hardshrink rrelu",
        lambda n: lambda x: getattr(F, n)(x),
    ),
    **named(
        "add sub mul div pow atan2 hypot maximum minimum fmax fmin logaddexp logaddexp2 "
        "xlogy fmod remainder copysign dist mm matmul cdist kron outer_",
        lambda n: (
            lambda x, y: (
                getattr(torch, n)(x, y)
                if n not in ("kron", "outer_")
                else (
                    torch.kron(x[:16, :16], y[:8, :8]) if n == "kron" else torch.outer(x[0], y[1])
                )
            )
        ),
    ),
    "ldexp": lambda x, v: torch.ldexp(x, v % 3),
    "xlog1py": lambda x, y: torch.special.xlog1py(x, y),
    "zeta": lambda x, y: torch.special.zeta(2.0, x + 1),
    "polygamma": lambda x: torch.polygamma(1, x),
    "mvlgamma": lambda x: torch.mvlgamma(x + 2, 2),
    "rsub": lambda x: 3.0 - x,
    "float_power": lambda x: x.float_power(2.5),
    "pow_number": lambda x: x**3,
    "number_pow": lambda x: 2.0**x,
    "add_row": lambda x, a: x + a,
    "mul_row": lambda x, a: x * a,
    "div_row": lambda x, a: x / a,
    "mul_column": lambda x, a: x * a[:, None],
    "pow_row": lambda x, a: x**a,
    "lerp": lambda x, y: x.lerp(y, 0.3),
    "lerp_tensor": lambda x, y, z: x.lerp(y, z),
    "addcmul": lambda x, y, z: x.addcmul(y, z, value=2),
    "addcdiv": lambda x, y, z: x.addcdiv(y, z),
    "where": lambda x, y, m: torch.where(m, x, y),
    "where_number": lambda x, m: torch.where(m, x, 0.0),
    "clamp": lambda x: x.clamp(0.6, 1.2),
    "clamp_max": lambda x, y: x.clamp(max=y),
    "clamp_both": lambda x, y, z: x.clamp(y, z),
    "threshold": lambda x: F.threshold(x, 0.7, 0.0),
    "mul_mask": lambda x, m: x * m,
    "div_positions": lambda x, i: x / (i + 1),
    "in_place": lambda x, y: (x * 2).mul_(y).add_(1),
    # reductions
    **named(
        "sum mean prod max min median nanmedian std var amax amin logsumexp nansum nanmean norm",
        lambda n: lambda x: x.logsumexp((0, 1)) if n == "logsumexp" else getattr(x, n)(),
    ),
    **{
        f"{n}_dim": f
        for n, f in named(
            "sum mean prod std var amax amin logsumexp nansum nanmean cumsum cumprod logcumsumexp "
            "softmax log_softmax",
            lambda n: lambda x: getattr(x, n)(1),
        ).items()
    },
    **{
        f"{n}_dim": f
        for n, f in named(
            "max min median nanmedian mode sort cummax cummin",
            lambda n: lambda x: getattr(x, n)(1)[0],
        ).items()
    },
    "prod_keep": lambda x: x.prod(0, keepdim=True),
    "prod_row": lambda a: a.prod(),
    "cumprod_row": lambda a: a.cumprod(0),
    "cumprod_0": lambda x: x.cumprod(0),
    "prod_of_product": lambda x, y: (x * y).prod(1),
    "max_all_twice": lambda x: x.max() + x.min() * x.median(),
    "topk": lambda x: x.topk(5, 1)[0],
    "kthvalue": lambda x: x.kthvalue(5, 1)[0],
    "aminmax": lambda x: torch.stack(x.aminmax(dim=1)),
    "quantile": lambda x: x.quantile(0.3, 1),
    "nanquantile": lambda x: x.nanquantile(0.3),
    "var_mean": lambda x: torch.stack(torch.var_mean(x, 1)),
    "std_mean": lambda x: torch.stack(torch.std_mean(x, 1)),
    "count": lambda x: x * x.count_nonzero(),
    "norm_1": lambda x: x.norm(p=1, dim=1),
    "norm_2": lambda x: x.norm(dim=1),
    "norm_3": lambda x: x.norm(p=3, dim=1),
    "norm_half": lambda x: x.norm(p=0.5, dim=1),
    "norm_inf": lambda x: x.norm(p=float("inf"), dim=1),
    "renorm": lambda x: x.renorm(2, 0, 1.0),
    "normalize": lambda x: F.normalize(x, dim=1),
    "trapezoid": lambda x: torch.trapezoid(x),
    "cumulative_trapezoid": lambda x: torch.cumulative_trapezoid(x),
    "diff": lambda x: x.diff(),
    "gradient": lambda x: torch.gradient(x)[0],
    "cov": lambda x: x.cov(),
    "corrcoef": lambda x: x.corrcoef(),
    "sum_to_size": lambda x: x.sum_to_size(1, N),
    "sum_bool": lambda x, m: x * m.sum(1, keepdim=True),
    "masked_mean": lambda x, m: (x * m).sum() / m.sum(),
    "mean_half": lambda x: x.bfloat16().mean(1).float(),
    **MOVES,
    **LAYERS,
}

NO_SECOND = frozenset({"lstm"})
"""Operators that have no second derivative."""


def steps() -> Iterator[tuple[str, Callable[[], Step]]]:
    """Every operator, first and second order."""
    for name, function in PLAIN.items():
        yield name, lambda function=function: step(function)
        if name not in NO_SECOND:
            yield f"{name}, second order", lambda function=function: step(function, second=True)
