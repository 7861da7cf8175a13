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

N = 128
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
        grads = torch.autograd.grad(loss, list(values.values()), create_graph=True,
                                    allow_unused=True)  # fmt: skip
        kept = [g.square().sum() for g in grads if g is not None and g.requires_grad]
        return torch.stack([loss, *kept]).sum()


def of(result: torch.Tensor) -> torch.Tensor:
    """The sum of a result's squares."""
    return (result.abs() if result.is_complex() else result).square().sum()


def step(function: Callable[..., Any], *, second: bool = False) -> Step:
    """A step of one function."""
    wanted = inspect.signature(function).parameters
    return Once(function, second), {n: v for n, v in given().items() if n in wanted}


def _named(names: str, make: Callable[[str], Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    return {name: make(name) for name in names.split()}


def spd(x: torch.Tensor) -> torch.Tensor:
    """A positive definite matrix."""
    return x @ x.mT + N * torch.eye(N)


def heads(x: torch.Tensor) -> torch.Tensor:
    """Two batches of four heads of sixteen positions."""
    return x.view(2, 4, 16, N)


def images(x: torch.Tensor) -> torch.Tensor:
    """Four images of four channels."""
    return x.view(4, 4, 32, 32)


def _recurrent(name: str, gates: int, x: torch.Tensor, y: torch.Tensor, a: torch.Tensor) -> Any:
    wide, own, bias = y[: gates * 32], y[: gates * 32, :32].clone(), a[: gates * 32].clone()
    zero = torch.zeros(1, 4, 32)
    start = (zero, zero) if name == "lstm" else zero
    weights = (wide, own, bias, bias)
    return getattr(torch, name)(x.view(4, 32, N), start, weights, True, 1, 0.0, True, False, True)[
        0
    ]


sdpa = F.scaled_dot_product_attention

PLAIN: Mapping[str, Callable[..., Any]] = {
    **_named("exp exp2 expm1 log log2 log10 log1p sqrt rsqrt square reciprocal sin cos tan sinh cosh "
             "tanh sigmoid erf erfc lgamma digamma sinc neg abs sign asinh atan logit positive "
             "frac trunc deg2rad nan_to_num angle relu i0", lambda n: lambda x: getattr(torch, n)(x)),
    **_named("asin acos atanh erfinv acosh", lambda n: lambda x: getattr(torch, n)(
        x + 1 if n == "acosh" else x / 2)),
    **_named("i0e i1 i1e ndtri log_ndtr erfcx entr", lambda n: lambda x: getattr(
        torch.special, n)(x / 2)),
    **_named("relu6 elu selu celu gelu silu mish softplus softsign hardtanh hardswish hardsigmoid "
             "logsigmoid leaky_relu tanhshrink softshrink hardshrink rrelu", lambda n: lambda x: getattr(F, n)(x)),
    **_named("add sub mul div pow atan2 hypot maximum minimum fmax fmin logaddexp logaddexp2 "
             "xlogy fmod remainder copysign dist mm matmul cdist kron outer_",
             lambda n: lambda x, y: getattr(torch, n)(x, y) if n not in ("kron", "outer_")
             else (torch.kron(x[:16, :16], y[:8, :8]) if n == "kron" else torch.outer(x[0], y[1]))),
    "ldexp": lambda x, v: torch.ldexp(x, v % 3), "xlog1py": lambda x, y: torch.special.xlog1py(x, y),
    "zeta": lambda x, y: torch.special.zeta(2.0, x + 1), "polygamma": lambda x: torch.polygamma(1, x),
    "mvlgamma": lambda x: torch.mvlgamma(x + 2, 2), "rsub": lambda x: 3.0 - x, "float_power": lambda x: x.float_power(2.5),
    "pow_number": lambda x: x**3, "number_pow": lambda x: 2.0**x, "add_row": lambda x, a: x + a, "mul_row": lambda x, a: x * a,
    "div_row": lambda x, a: x / a, "mul_column": lambda x, a: x * a[:, None], "pow_row": lambda x, a: x**a,
    "lerp": lambda x, y: x.lerp(y, 0.3), "lerp_tensor": lambda x, y, z: x.lerp(y, z), "addcmul": lambda x, y, z: x.addcmul(y, z, value=2),
    "addcdiv": lambda x, y, z: x.addcdiv(y, z), "where": lambda x, y, m: torch.where(m, x, y), "where_number": lambda x, m: torch.where(m, x, 0.0),
    "clamp": lambda x: x.clamp(0.6, 1.2), "clamp_max": lambda x, y: x.clamp(max=y), "clamp_both": lambda x, y, z: x.clamp(y, z), "threshold": lambda x: F.threshold(x, 0.7, 0.0),
    "mul_mask": lambda x, m: x * m, "div_positions": lambda x, i: x / (i + 1), "in_place": lambda x, y: (x * 2).mul_(y).add_(1),
    # reductions
    **_named("sum mean prod max min median nanmedian std var amax amin logsumexp nansum nanmean norm",
             lambda n: lambda x: (x.logsumexp((0, 1)) if n == "logsumexp" else getattr(x, n)())),
    **{f"{n}_dim": f for n, f in _named(
        "sum mean prod std var amax amin logsumexp nansum nanmean cumsum cumprod logcumsumexp "
        "softmax log_softmax", lambda n: lambda x: getattr(x, n)(1)).items()},
    **{f"{n}_dim": f for n, f in _named("max min median nanmedian mode sort cummax cummin",
        lambda n: lambda x: getattr(x, n)(1)[0]).items()},
    "prod_keep": lambda x: x.prod(0, keepdim=True), "prod_row": lambda a: a.prod(), "cumprod_row": lambda a: a.cumprod(0), "cumprod_0": lambda x: x.cumprod(0),
    "prod_of_product": lambda x, y: (x * y).prod(1), "max_all_twice": lambda x: x.max() + x.min() * x.median(),
    "topk": lambda x: x.topk(5, 1)[0], "kthvalue": lambda x: x.kthvalue(5, 1)[0], "aminmax": lambda x: torch.stack(x.aminmax(dim=1)), "quantile": lambda x: x.quantile(0.3, 1), "nanquantile": lambda x: x.nanquantile(0.3),
    "var_mean": lambda x: torch.stack(torch.var_mean(x, 1)), "std_mean": lambda x: torch.stack(torch.std_mean(x, 1)), "count": lambda x: x * x.count_nonzero(),
    "norm_1": lambda x: x.norm(p=1, dim=1), "norm_2": lambda x: x.norm(dim=1), "norm_3": lambda x: x.norm(p=3, dim=1), "norm_half": lambda x: x.norm(p=0.5, dim=1), "norm_inf": lambda x: x.norm(p=float("inf"), dim=1), "renorm": lambda x: x.renorm(2, 0, 1.0),
    "normalize": lambda x: F.normalize(x, dim=1), "trapezoid": lambda x: torch.trapezoid(x), "cumulative_trapezoid": lambda x: torch.cumulative_trapezoid(x), "diff": lambda x: x.diff(), "gradient": lambda x: torch.gradient(x)[0],
    "cov": lambda x: x.cov(), "corrcoef": lambda x: x.corrcoef(), "sum_to_size": lambda x: x.sum_to_size(1, N), "sum_bool": lambda x, m: x * m.sum(1, keepdim=True), "masked_mean": lambda x, m: (x * m).sum() / m.sum(), "mean_half": lambda x: x.bfloat16().mean(1).float(),
    # positions and views
    "take": lambda x, i: x.take(i), "gather": lambda x, i: x.gather(1, i), "index": lambda x, v: x[v], "index_two": lambda x, v: x[v, v], "index_select": lambda x, v: x.index_select(0, v), "take_along": lambda x, i: x.take_along_dim(i, 1),
    "index_mask": lambda x, m: x[m], "index_mask_rows": lambda x, m: x[m[0]], "masked_select": lambda x, m: x.masked_select(m), "masked_fill": lambda x, m: x.masked_fill(m, 0.0), "masked_fill_value": lambda x, m, a: x.masked_fill(m, a.sum()), "masked_scatter": lambda x, m, y: x.masked_scatter(m, y),
    "nonzero_rows": lambda x, m: x[m[:, 0].nonzero().squeeze(1)], "repeat_interleave": lambda x: x.repeat_interleave(3, 0), "repeat_interleave_of": lambda x, v: x.repeat_interleave(v % 3, 0), "unique_rows": lambda x, v: x[v.unique()],
    "index_add": lambda x, v, y: x.index_add(0, v, y), "index_copy": lambda x, y: x.index_copy(0, torch.arange(N), y), "index_fill": lambda x, v: x.index_fill(0, v, 0.0), "index_fill_of": lambda x, v, a: x.index_fill(0, v, a.sum()), "index_put": lambda x, v, y: x.index_put((v,), y), "index_put_add": lambda x, v, y: x.index_put((v,), y, accumulate=True), "index_put_mask": lambda x, m, a: x.index_put((m,), a.sum()),
    "scatter": lambda x, i, y: x.scatter(1, i, y), "scatter_value": lambda x, i: x.scatter(1, i, 0.5), "scatter_add": lambda x, i, y: x.scatter_add(1, i, y), "put": lambda x, i, y: x.put(i, y), "put_add": lambda x, i, y: x.put(i, y, accumulate=True), "set_item": lambda x, y: _set(x * 1.0, y),
    **{f"scatter_{n}": f for n, f in _named("prod mean amax amin sum", lambda n: lambda x, i, y: x.scatter_reduce(1, i, y, n)).items()},
    **{f"index_{n}": f for n, f in _named("prod mean amax amin", lambda n: lambda x, v, y: x.index_reduce(0, v, y, n)).items()},
    "select_scatter": lambda x, a: x.select_scatter(a, 0, 3), "slice_scatter": lambda x, y: x.slice_scatter(y[:50], 0, 3, 53), "diagonal_scatter": lambda x, a: x.diagonal_scatter(a),
    "diagonal": lambda x: x.diagonal(), "diag": lambda x: x.diag(), "diag_embed": lambda a: a.diag_embed(), "trace": lambda x: x.trace(), "trace_of": lambda x, y: (x @ y).trace(), "select": lambda x: x[3], "slice": lambda x: x[3:50], "unfold": lambda x: x.unfold(0, 8, 4), "as_strided": lambda x: x.as_strided((N, 5), (N, 1)), "narrow": lambda x: x.narrow(1, 3, 20),
    "tril": lambda x: x.tril(), "triu": lambda x: x.triu(), "flip": lambda x: x.flip(0), "roll": lambda x: x.roll(3, 0), "rot90": lambda x: x.rot90(), "t": lambda x: x.t() * 2, "permute": lambda x: x.view(4, 32, N).permute(2, 0, 1).contiguous(), "expand": lambda x: x[None].expand(3, N, N) * 2, "repeat": lambda x: x.repeat(2, 2), "tile": lambda x: x.tile(2), "unbind": lambda x: x.unbind()[0] + x.unbind()[1], "split": lambda x: torch.cat(x.split(40)[:2]), "chunk": lambda x: x.chunk(4)[2], "cat": lambda x, y: torch.cat([x, y]), "stack": lambda x, y: torch.stack([x, y]), "block_diag": lambda x, y: torch.block_diag(x, y), "meshgrid": lambda a, b: torch.stack(torch.meshgrid(a, b, indexing="ij")), "cartesian": lambda a, b: torch.cartesian_prod(a, b), "combinations": lambda a: torch.combinations(a), "two_uses": lambda x: x.exp() + x.sin() + x.cos(),
    "pad": lambda x: F.pad(x, (3, 3)), "pad_reflect": lambda x: F.pad(x[None], (3, 3), mode="reflect"), "pad_replicate": lambda x: F.pad(x[None], (3, 3), mode="replicate"), "pad_circular": lambda x: F.pad(x[None], (3, 3), mode="circular"),
    "to_half": lambda x: x.bfloat16().exp().float(), "to_double": lambda x: x.double().exp(), "half_times_float": lambda x, y: x.bfloat16() * y,
    # products
    "bmm": lambda x, y: torch.bmm(x.view(4, 32, N), y.view(4, N, 32)), "baddbmm": lambda x, y: torch.baddbmm(x[None], y[None], x[None]), "addmm": lambda x, y, z: torch.addmm(x, y, z), "addmv": lambda x, a, b: torch.addmv(a, x, b), "addr": lambda x, a, b: torch.addr(x, a, b), "mv": lambda x, a: x.mv(a), "dot": lambda a, b: a.dot(b), "einsum": lambda x, y: torch.einsum("ij,kj->ik", x, y), "tensordot": lambda x, y: torch.tensordot(x, y, 1), "multi_dot": lambda x, y, z: torch.linalg.multi_dot([x, y, z]), "chain": lambda x, y: torch.chain_matmul(x, y, x) if False else x @ y @ x, "cross": lambda x, y: torch.linalg.cross(x[:, :3], y[:, :3]), "vecdot": lambda x, y: torch.linalg.vecdot(x, y),
    "linear": lambda x, y, a: F.linear(x, y, a), "linear_3d": lambda x, y, a: F.linear(x.view(4, 32, N), y, a), "linear_4d": lambda x, y, a: F.linear(x.view(4, 4, 8, N).transpose(0, 1), y, a), "bilinear": lambda x, y, z: F.bilinear(x[:, :32], y[:, :32], z.view(16, 32, 32)),
    "cosine_similarity": lambda x, y: F.cosine_similarity(x, y), "pairwise_distance": lambda x, y: F.pairwise_distance(x, y), "pdist": lambda x: F.pdist(x),
    "sdpa": lambda x, y, z: sdpa(heads(x), heads(y), heads(z)), "sdpa_causal": lambda x, y, z: sdpa(heads(x), heads(y), heads(z), is_causal=True), "sdpa_mask": lambda x, y, z, m: sdpa(heads(x), heads(y), heads(z), attn_mask=m[:16, :16]), "sdpa_bias": lambda x, y, z: sdpa(x[None, None], y[None, None], x[None, None], attn_mask=z), "sdpa_dropout": lambda x, y, z: sdpa(heads(x), heads(y), heads(z), dropout_p=0.1), "sdpa_groups": lambda x, y, z: sdpa(heads(x), y[:64].reshape(2, 2, 16, N), z[:64].reshape(2, 2, 16, N), enable_gqa=True),
    # linear algebra
    "cholesky": lambda x: torch.linalg.cholesky(spd(x)), "cholesky_solve": lambda x, y: torch.cholesky_solve(y, torch.linalg.cholesky(spd(x))), "cholesky_inverse": lambda x: torch.cholesky_inverse(torch.linalg.cholesky(spd(x))), "inv": lambda x: torch.linalg.inv(spd(x)), "det": lambda x: torch.linalg.det(spd(x) / N), "logdet": lambda x: torch.logdet(spd(x)), "slogdet": lambda x: torch.linalg.slogdet(spd(x))[1], "solve": lambda x, y: torch.linalg.solve(spd(x), y), "solve_triangular": lambda x, y: torch.linalg.solve_triangular(x.tril(), y, upper=False), "lu": lambda x: torch.linalg.lu(spd(x))[2], "lu_factor": lambda x: torch.linalg.lu_factor(spd(x))[0], "qr": lambda x: torch.linalg.qr(x)[1],
    "svdvals": lambda x: torch.linalg.svdvals(x), "svd": lambda x: torch.linalg.svd(x)[0], "eigvalsh": lambda x: torch.linalg.eigvalsh(spd(x)), "eigh": lambda x: torch.linalg.eigh(spd(x))[1], "eigvals": lambda x: torch.linalg.eigvals(x), "eig": lambda x: torch.linalg.eig(x)[1], "pinv": lambda x: torch.linalg.pinv(x), "lstsq": lambda x, y: torch.linalg.lstsq(spd(x), y)[0], "matrix_exp": lambda x: torch.linalg.matrix_exp(x / N), "matrix_power": lambda x: torch.linalg.matrix_power(x, 3), "householder": lambda x, a: torch.linalg.householder_product(x, a), "nuclear": lambda x: torch.linalg.matrix_norm(x, "nuc"), "spectral": lambda x: torch.linalg.matrix_norm(x, 2), "vander": lambda a: torch.linalg.vander(a, N=8), "tensorsolve": lambda x, y: torch.linalg.tensorsolve(spd(x), y[0]),
    # networks
    "batch_norm": lambda x: F.batch_norm(x.view(8, 16, N), None, None, training=True), "layer_norm": lambda x, a: F.layer_norm(x, (N,), a), "group_norm": lambda x: F.group_norm(x.view(8, 16, N), 4), "instance_norm": lambda x: F.instance_norm(x.view(8, 16, N)), "rms_norm": lambda x, a: F.rms_norm(x, (N,), a), "local_response_norm": lambda x: F.local_response_norm(x.view(8, 16, N), 3),
    "conv1d": lambda x, y: F.conv1d(x.view(8, 16, N), y[:6, :].reshape(16, 16, 3)), "conv2d": lambda x, y, a: F.conv2d(images(x), y.view(-1)[:288].view(8, 4, 3, 3), a[:8]), "conv3d": lambda x, y: F.conv3d(x.view(4, 4, 4, 16, 16), y.view(-1)[:864].view(8, 4, 3, 3, 3)), "conv_transpose2d": lambda x, y: F.conv_transpose2d(images(x), y.view(-1)[:288].view(4, 8, 3, 3), stride=2), "conv_depthwise": lambda x, y: F.conv2d(images(x), y.view(-1)[:36].view(4, 1, 3, 3), groups=4),
    "max_pool2d": lambda x: F.max_pool2d(images(x), 2), "max_pool1d": lambda x: F.max_pool1d(x[None], 2), "avg_pool2d": lambda x: F.avg_pool2d(images(x), 2), "lp_pool2d": lambda x: F.lp_pool2d(images(x), 2, 2), "adaptive_avg": lambda x: F.adaptive_avg_pool2d(images(x), 4), "adaptive_max": lambda x: F.adaptive_max_pool2d(images(x), 4), "max_unpool": lambda x: F.max_unpool2d(*F.max_pool2d(images(x), 2, return_indices=True), 2),
    **{f"interpolate_{n}": f for n, f in _named("nearest bilinear bicubic area", lambda n: lambda x: F.interpolate(images(x), scale_factor=2, mode=n)).items()},
    "grid_sample": lambda x, y: F.grid_sample(images(x), y.view(-1)[:8192].view(4, 32, 32, 2), align_corners=False), "unfold_images": lambda x: F.unfold(images(x), 3), "fold": lambda x: F.fold(x.view(1, 64, 256), (32, 32), 2, stride=2), "pixel_shuffle": lambda x: F.pixel_shuffle(images(x), 2), "channel_shuffle": lambda x: F.channel_shuffle(images(x), 2),
    "dropout": lambda x: F.dropout(x, 0.5), "alpha_dropout": lambda x: F.alpha_dropout(x, 0.5, True), "dropout1d": lambda x: F.dropout1d(x, 0.5), "prelu": lambda x, a: F.prelu(x, a), "glu": lambda x: F.glu(x), "gumbel": lambda x: F.gumbel_softmax(x, hard=True), "softmin": lambda x: F.softmin(x, 1), "softmax_double": lambda x: x.softmax(1, dtype=torch.float64),
    "embedding": lambda x, i: F.embedding(i[:8], x), "embedding_scaled": lambda x, i: F.embedding(i[:8], x, scale_grad_by_freq=True), "embedding_max_norm": lambda x, i: F.embedding(i[:8], x * 2), "embedding_bag": lambda x, i: F.embedding_bag(i, x, mode="mean"), "embedding_bag_max": lambda x, i: F.embedding_bag(i, x, mode="max"),
    "lstm": lambda x, y, a: _recurrent("lstm", 4, x, y, a), "gru": lambda x, y, a: _recurrent("gru", 3, x, y, a), "rnn_tanh": lambda x, y, a: _recurrent("rnn_tanh", 1, x, y, a),
    "rfft": lambda x: torch.fft.rfft(x), "fft2": lambda x: torch.fft.fft2(x), "irfft": lambda x: torch.fft.irfft(torch.complex(x, x)), "stft": lambda x: torch.stft(x, 32, return_complex=True, window=torch.ones(32)), "complex": lambda x, y: torch.complex(x, y) * torch.complex(y, x), "polar": lambda x, y: torch.polar(x, y), "view_as_real": lambda x, y: torch.view_as_real(torch.complex(x, y).exp()),
}  # fmt: skip


def _set(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x[3:50] = y[:47]
    return x


NO_SECOND = frozenset({"lstm"})
"""Operators that have no second derivative."""


def steps() -> Iterator[tuple[str, Callable[[], Step]]]:
    """Every operator, first and second order."""
    for name, function in PLAIN.items():
        yield name, lambda function=function: step(function)
        if name not in NO_SECOND:
            yield f"{name}, second order", lambda function=function: step(function, second=True)
