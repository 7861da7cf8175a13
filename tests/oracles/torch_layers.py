"""Operators for tables of steps: linear algebra and networks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional as F

from tests.oracles.torch_moves import N, images, named


def spd(x: torch.Tensor) -> torch.Tensor:
    """A positive definite matrix."""
    return x @ x.mT + N * torch.eye(N)


def _recurrent(name: str, gates: int, x: torch.Tensor, y: torch.Tensor, a: torch.Tensor) -> Any:
    wide, own, bias = y[: gates * 32], y[: gates * 32, :32].clone(), a[: gates * 32].clone()
    zero = torch.zeros(1, 4, 32)
    start = (zero, zero) if name == "lstm" else zero
    weights = (wide, own, bias, bias)
    return getattr(torch, name)(x.view(4, 32, N), start, weights, True, 1, 0.0, True, False, True)[
        0
    ]


LAYERS: Mapping[str, Callable[..., Any]] = {
    # linear algebra
    "cholesky": lambda x: torch.linalg.cholesky(spd(x)),
    "cholesky_solve": lambda x, y: torch.cholesky_solve(y, torch.linalg.cholesky(spd(x))),
    "cholesky_inverse": lambda x: torch.cholesky_inverse(torch.linalg.cholesky(spd(x))),
    "inv": lambda x: torch.linalg.inv(spd(x)),
    "det": lambda x: torch.linalg.det(spd(x) / N),
    "logdet": lambda x: torch.logdet(spd(x)),
    "slogdet": lambda x: torch.linalg.slogdet(spd(x))[1],
    "solve": lambda x, y: torch.linalg.solve(spd(x), y),
    "solve_triangular": lambda x, y: torch.linalg.solve_triangular(x.tril(), y, upper=False),
    "lu": lambda x: torch.linalg.lu(spd(x))[2],
    "lu_factor": lambda x: torch.linalg.lu_factor(spd(x))[0],
    "qr": lambda x: torch.linalg.qr(x)[1],
    "svdvals": lambda x: torch.linalg.svdvals(x),
    "svd": lambda x: torch.linalg.svd(x)[0],
    "eigvalsh": lambda x: torch.linalg.eigvalsh(spd(x)),
    "eigh": lambda x: torch.linalg.eigh(spd(x))[1],
    "eigvals": lambda x: torch.linalg.eigvals(x),
    "eig": lambda x: torch.linalg.eig(x)[1],
    "pinv": lambda x: torch.linalg.pinv(x),
    "lstsq": lambda x, y: torch.linalg.lstsq(spd(x), y)[0],
    "matrix_exp": lambda x: torch.linalg.matrix_exp(x / N),
    "matrix_power": lambda x: torch.linalg.matrix_power(x, 3),
    "householder": lambda x, a: torch.linalg.householder_product(x, a),
    "nuclear": lambda x: torch.linalg.matrix_norm(x, "nuc"),
    "spectral": lambda x: torch.linalg.matrix_norm(x, 2),
    "vander": lambda a: torch.linalg.vander(a, N=8),
    "tensorsolve": lambda x, y: torch.linalg.tensorsolve(spd(x), y[0]),
    # networks
    "batch_norm": lambda x: F.batch_norm(x.view(8, 16, N), None, None, training=True),
    "layer_norm": lambda x, a: F.layer_norm(x, (N,), a),
    "group_norm": lambda x: F.group_norm(x.view(8, 16, N), 4),
    "instance_norm": lambda x: F.instance_norm(x.view(8, 16, N)),
    "rms_norm": lambda x, a: F.rms_norm(x, (N,), a),
    "local_response_norm": lambda x: F.local_response_norm(x.view(8, 16, N), 3),
    "conv1d": lambda x, y: F.conv1d(x.view(8, 16, N), y[:6, :].reshape(16, 16, 3)),
    "conv2d": lambda x, y, a: F.conv2d(images(x), y.view(-1)[:288].view(8, 4, 3, 3), a[:8]),
    "conv3d": lambda x, y: F.conv3d(x.view(4, 4, 4, 16, 16), y.view(-1)[:864].view(8, 4, 3, 3, 3)),
    "conv_transpose2d": lambda x, y: F.conv_transpose2d(
        images(x), y.view(-1)[:288].view(4, 8, 3, 3), stride=2
    ),
    "conv_depthwise": lambda x, y: F.conv2d(images(x), y.view(-1)[:36].view(4, 1, 3, 3), groups=4),
    "max_pool2d": lambda x: F.max_pool2d(images(x), 2),
    "max_pool1d": lambda x: F.max_pool1d(x[None], 2),
    "avg_pool2d": lambda x: F.avg_pool2d(images(x), 2),
    "lp_pool2d": lambda x: F.lp_pool2d(images(x), 2, 2),
    "adaptive_avg": lambda x: F.adaptive_avg_pool2d(images(x), 4),
    "adaptive_max": lambda x: F.adaptive_max_pool2d(images(x), 4),
    "max_unpool": lambda x: F.max_unpool2d(*F.max_pool2d(images(x), 2, return_indices=True), 2),
    **{
        f"interpolate_{n}": f
        for n, f in named(
            "nearest bilinear bicubic area",
            lambda n: lambda x: F.interpolate(images(x), scale_factor=2, mode=n),
        ).items()
    },
    "grid_sample": lambda x, y: F.grid_sample(
        images(x), y.view(-1)[:8192].view(4, 32, 32, 2), align_corners=False
    ),
    "unfold_images": lambda x: F.unfold(images(x), 3),
    "fold": lambda x: F.fold(x.view(1, 64, 256), (32, 32), 2, stride=2),
    "pixel_shuffle": lambda x: F.pixel_shuffle(images(x), 2),
    "channel_shuffle": lambda x: F.channel_shuffle(images(x), 2),
    "dropout": lambda x: F.dropout(x, 0.5),
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.5, True),
    "dropout1d": lambda x: F.dropout1d(x, 0.5),
    "prelu": lambda x, a: F.prelu(x, a),
    "glu": lambda x: F.glu(x),
    "gumbel": lambda x: F.gumbel_softmax(x, hard=True),
    "softmin": lambda x: F.softmin(x, 1),
    "softmax_double": lambda x: x.softmax(1, dtype=torch.float64),
    "embedding": lambda x, i: F.embedding(i[:8], x),
    "embedding_scaled": lambda x, i: F.embedding(i[:8], x, scale_grad_by_freq=True),
    "embedding_max_norm": lambda x, i: F.embedding(i[:8], x * 2),
    "embedding_bag": lambda x, i: F.embedding_bag(i, x, mode="mean"),
    "embedding_bag_max": lambda x, i: F.embedding_bag(i, x, mode="max"),
    "lstm": lambda x, y, a: _recurrent("lstm", 4, x, y, a),
    "gru": lambda x, y, a: _recurrent("gru", 3, x, y, a),
    "rnn_tanh": lambda x, y, a: _recurrent("rnn_tanh", 1, x, y, a),
    "rfft": lambda x: torch.fft.rfft(x),
    "fft2": lambda x: torch.fft.fft2(x),
    "irfft": lambda x: torch.fft.irfft(torch.complex(x, x)),
    "stft": lambda x: torch.stft(x, 32, return_complex=True, window=torch.ones(32)),
    "complex": lambda x, y: torch.complex(x, y) * torch.complex(y, x),
    "polar": lambda x, y: torch.polar(x, y),
    "view_as_real": lambda x, y: torch.view_as_real(torch.complex(x, y).exp()),
}
