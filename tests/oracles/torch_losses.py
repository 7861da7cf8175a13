"""Every loss of `torch.nn.functional`, in every form that changes what is held."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.nn import functional as F

from tests.oracles.torch_operators import N, Step, step

REDUCTIONS = ("mean", "sum", "none")
Loss = Callable[..., Any]


def _weights() -> torch.Tensor:
    return torch.linspace(0.5, 1.5, N)


def _ignored(v: torch.Tensor) -> torch.Tensor:
    return torch.where(v < 20, -100, v)


def _ctc(x: torch.Tensor, v: torch.Tensor, **more: Any) -> torch.Tensor:
    targets = v.view(8, 16)[:, :4] % (N - 1) + 1
    return F.ctc_loss(x.view(16, 8, N).log_softmax(2), targets, (16,) * 8, (4,) * 8, **more)


def _ctc_tensors(x: torch.Tensor, v: torch.Tensor, **more: Any) -> torch.Tensor:
    targets = v.view(8, 16)[:, :4] % (N - 1) + 1
    lengths = torch.full((8,), 16), torch.arange(8) // 4 + 3
    return F.ctc_loss(x.view(16, 8, N).log_softmax(2), targets, *lengths, **more)


def _ctc_joined(x: torch.Tensor, v: torch.Tensor, **more: Any) -> torch.Tensor:
    lengths = torch.full((8,), 16), torch.full((8,), 4)
    targets = v[:32] % (N - 1) + 1
    return F.ctc_loss(x.view(16, 8, N).log_softmax(2), targets, *lengths, **more)


def _labels(i: torch.Tensor) -> torch.Tensor:
    """For each row a few classes, then -1."""
    return torch.where(torch.arange(N) < 4, i.sort(1)[0], -1)


def _distance(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return 1 - F.cosine_similarity(x, y)


LOSSES: Mapping[str, Loss] = {
    "l1": lambda x, t, **r: F.l1_loss(x, t, **r),
    "l1, both": lambda x, y, **r: F.l1_loss(x, y, **r),
    "l1, weight": lambda x, t, **r: F.l1_loss(x, t, weight=t, **r),
    "mse": lambda x, t, **r: F.mse_loss(x, t, **r),
    "mse, both": lambda x, y, **r: F.mse_loss(x, y, **r),
    "mse, weight": lambda x, t, **r: F.mse_loss(x, t, weight=t, **r),
    "smooth l1": lambda x, t, **r: F.smooth_l1_loss(x, t, **r),
    "smooth l1, both": lambda x, y, **r: F.smooth_l1_loss(x, y, beta=0.5, **r),
    "smooth l1, beta 0": lambda x, t, **r: F.smooth_l1_loss(x, t, beta=0.0, **r),
    "huber": lambda x, t, **r: F.huber_loss(x, t, **r),
    "huber, both": lambda x, y, **r: F.huber_loss(x, y, **r),
    "huber, weight": lambda x, t, **r: F.huber_loss(x, t, weight=t, **r),
    "bce": lambda x, t, **r: F.binary_cross_entropy(x.sigmoid(), t, **r),
    "bce, weight": lambda x, t, **r: F.binary_cross_entropy(x.sigmoid(), t, weight=_weights(), **r),
    "bce, both": lambda x, y, **r: F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), **r),
    "bce with logits": lambda x, t, **r: F.binary_cross_entropy_with_logits(x, t, **r),
    "bce with logits, weight": lambda x, t, **r: F.binary_cross_entropy_with_logits(
        x, t, weight=_weights(), **r
    ),
    "bce with logits, pos_weight": lambda x, t, **r: F.binary_cross_entropy_with_logits(
        x, t, pos_weight=_weights(), **r
    ),
    "bce with logits, both weights": lambda x, t, **r: F.binary_cross_entropy_with_logits(
        x, t, weight=t, pos_weight=_weights(), **r
    ),
    "bce with logits, both": lambda x, y, **r: F.binary_cross_entropy_with_logits(x, y, **r),
    "bce with logits, both, pos_weight": lambda x, y, **r: F.binary_cross_entropy_with_logits(
        x, y, pos_weight=_weights(), **r
    ),
    "bce with logits, the target alone": lambda y, t, **r: F.binary_cross_entropy_with_logits(
        t, y, pos_weight=_weights(), **r
    ),
    "cross entropy": lambda x, v, **r: F.cross_entropy(x, v, **r),
    "cross entropy, weight": lambda x, v, **r: F.cross_entropy(x, v, weight=_weights(), **r),
    "cross entropy, ignored": lambda x, v, **r: F.cross_entropy(x, _ignored(v), **r),
    "cross entropy, smoothed": lambda x, v, **r: F.cross_entropy(x, v, label_smoothing=0.1, **r),
    "cross entropy, smoothed, weight": lambda x, v, **r: F.cross_entropy(
        x, _ignored(v), weight=_weights(), label_smoothing=0.1, **r
    ),
    "cross entropy, probabilities": lambda x, t, **r: F.cross_entropy(x, t, **r),
    "cross entropy, probabilities, smoothed": lambda x, t, **r: F.cross_entropy(
        x, t, weight=_weights(), label_smoothing=0.1, **r
    ),
    "cross entropy, probabilities, both": lambda x, y, **r: F.cross_entropy(x, y, **r),
    "cross entropy, images": lambda x, v, **r: F.cross_entropy(
        x.view(2, 8, 32, 32), torch.zeros(2, 32, 32, dtype=torch.long), **r
    ),
    "cross entropy, images, smoothed": lambda x, v, **r: F.cross_entropy(
        x.view(2, 8, 32, 32), torch.zeros(2, 32, 32, dtype=torch.long), label_smoothing=0.1, **r
    ),
    "linear cross entropy": lambda x, y, v, **r: F.linear_cross_entropy(x, y, v, **r),
    "linear cross entropy, bias": lambda x, y, a, v, **r: F.linear_cross_entropy(
        x, y, v, linear_bias=a, **r
    ),
    "nll": lambda x, v, **r: F.nll_loss(x.log_softmax(1), v, **r),
    "nll, weight": lambda x, v, **r: F.nll_loss(x.log_softmax(1), v, weight=_weights(), **r),
    "nll, ignored": lambda x, v, **r: F.nll_loss(x.log_softmax(1), _ignored(v), **r),
    "nll, images": lambda x, v, **r: F.nll_loss(
        x.view(2, 8, 32, 32), torch.zeros(2, 32, 32, dtype=torch.long), **r
    ),
    "kl": lambda x, t, **r: F.kl_div(x.log_softmax(1), t, **r),
    "kl, log": lambda x, t, **r: F.kl_div(x.log_softmax(1), t, log_target=True, **r),
    "kl, both": lambda x, y, **r: F.kl_div(x.log_softmax(1), y.softmax(1), **r),
    "kl, log, both": lambda x, y, **r: F.kl_div(
        x.log_softmax(1), y.log_softmax(1), log_target=True, **r
    ),
    "poisson": lambda x, t, **r: F.poisson_nll_loss(x, t, **r),
    "poisson, full": lambda x, t, **r: F.poisson_nll_loss(x, t, full=True, **r),
    "poisson, plain input": lambda x, t, **r: F.poisson_nll_loss(x, t, log_input=False, **r),
    "poisson, full, both": lambda x, y, **r: F.poisson_nll_loss(x, y, full=True, **r),
    "gaussian": lambda x, y, t, **r: F.gaussian_nll_loss(x, t, y, **r),
    "gaussian, full": lambda x, y, t, **r: F.gaussian_nll_loss(x, t, y, full=True, **r),
    "gaussian, one variance": lambda x, t, **r: F.gaussian_nll_loss(x, t, 2.0, **r),
    "gaussian, both": lambda x, y, z, **r: F.gaussian_nll_loss(x, y, z, **r),
    "margin ranking": lambda a, b, s, **r: F.margin_ranking_loss(a, b, s, **r),
    "margin ranking, matrices": lambda x, y, s, **r: F.margin_ranking_loss(
        x, y, s.expand(N, N), margin=0.1, **r
    ),
    "hinge embedding": lambda x, s, **r: F.hinge_embedding_loss(x, s, **r),
    "cosine embedding": lambda x, y, s, **r: F.cosine_embedding_loss(x, y, s, **r),
    "cosine embedding, margin": lambda x, y, s, **r: F.cosine_embedding_loss(
        x, y, s, margin=0.2, **r
    ),
    "multi margin": lambda x, v, **r: F.multi_margin_loss(x, v, **r),
    "multi margin, squared, weight": lambda x, v, **r: F.multi_margin_loss(
        x, v, p=2, weight=_weights(), **r
    ),
    "multilabel margin": lambda x, i, **r: F.multilabel_margin_loss(x, _labels(i), **r),
    "multilabel soft margin": lambda x, t, **r: F.multilabel_soft_margin_loss(x, t, **r),
    "multilabel soft margin, weight": lambda x, t, **r: F.multilabel_soft_margin_loss(
        x, t, weight=_weights(), **r
    ),
    "multilabel soft margin, both": lambda x, y, **r: F.multilabel_soft_margin_loss(x, y, **r),
    "soft margin": lambda x, s, **r: F.soft_margin_loss(x, s.expand(N, N).float(), **r),
    "triplet": lambda x, y, z, **r: F.triplet_margin_loss(x, y, z, **r),
    "triplet, swapped": lambda x, y, z, **r: F.triplet_margin_loss(x, y, z, swap=True, p=1.5, **r),
    "triplet, one trained": lambda x, t, **r: F.triplet_margin_loss(x, t, t.flip(0), **r),
    "triplet, a distance": lambda x, y, z, **r: F.triplet_margin_with_distance_loss(
        x, y, z, distance_function=_distance, **r
    ),
    "triplet, a distance, swapped": lambda x, y, z, **r: F.triplet_margin_with_distance_loss(
        x, y, z, swap=True, **r
    ),
    "ctc": _ctc,
    "ctc, tensors": _ctc_tensors,
    "ctc, joined": _ctc_joined,
    "ctc, infinities": lambda x, v, **r: _ctc(x, v, zero_infinity=True, **r),
}


def steps() -> Iterator[tuple[str, Callable[[], Step]]]:
    """Every loss with every reduction; second order for the mean."""
    for name, loss in LOSSES.items():
        for how in REDUCTIONS:
            if name == "triplet, a distance" and how == "none":
                continue
            yield f"{name}, {how}", lambda loss=loss, how=how: step(_reduced(loss, how))
        yield f"{name}, second order", lambda loss=loss: step(_reduced(loss, "mean"), second=True)


def _reduced(loss: Loss, how: str) -> Loss:
    """The loss with its reduction, under the same names of parameters."""

    def reduced(**given: torch.Tensor) -> torch.Tensor:
        return loss(**given, reduction=how)

    signature = inspect.signature(loss)
    kept = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    reduced.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
    return reduced
