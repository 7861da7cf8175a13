"""Autocast as CUDA has it, on tensors of the CPU.

The two devices keep different functions in float32: CUDA norms, softmax, losses and sums, which
the CPU runs in the lower type. Source: "Automatic Mixed Precision package", PyTorch 2.13 manual,
"CUDA Ops that can autocast to float32".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._pytree import tree_map

from peakfold.frontends.torch.dispatch_modes import tensors_in

_LOW = (torch.float16, torch.bfloat16)
_CAST = """
    acos asin binary_cross_entropy_with_logits cdist cosh cosine_embedding_loss cosine_similarity
    cross_entropy dist erfinv exp expm1 group_norm hinge_embedding_loss huber_loss kl_div l1_loss
    layer_norm log log10 log1p log2 logsumexp margin_ranking_loss mse_loss multi_margin_loss
    multilabel_margin_loss nll_loss norm pdist poisson_nll_loss pow reciprocal renorm rms_norm
    rsqrt sinh smooth_l1_loss soft_margin_loss softplus tan triplet_margin_loss
    frobenius_norm nuclear_norm native_layer_norm __pow__ __rpow__ interpolate
"""
_TYPED = "cumprod cumsum log_softmax prod softmax sum"
_WIDEST = """
    addcdiv addcmul atan2 bilinear cross dot grid_sample grid_sampler index_put scatter_add
    tensordot vdot
"""


def _functions(names: str) -> frozenset[Any]:
    homes = (torch, torch.Tensor, torch.nn.functional)
    found = (getattr(home, name, None) for name in names.split() for home in homes)
    return frozenset(function for function in found if function is not None)


_IN_FLOAT32 = _functions(_CAST)
_INTO_FLOAT32 = _functions(_TYPED)

IN_FLOAT32 = _IN_FLOAT32 | _INTO_FLOAT32 | _functions(_WIDEST)
"""Functions that CUDA's autocast runs in float32, some only with operands of mixed types."""


def runs_in_float32(func: Any) -> bool:
    """Whether CUDA's autocast would run this function in float32, here and now.

    Example:
        >>> with torch.autocast("cpu", torch.bfloat16):
        ...     runs_in_float32(torch.nn.functional.layer_norm), runs_in_float32(torch.matmul)
        (True, False)
        >>> runs_in_float32(torch.nn.functional.layer_norm)
        False
    """
    return func in IN_FLOAT32 and torch.is_autocast_enabled("cpu")


def in_float32(func: Any, args: Any, kwargs: Any) -> Any:
    """Call it so: operands converted, or the result's type asked for."""
    if func in _INTO_FLOAT32:
        if kwargs.get("dtype") is None and getattr(args[0], "dtype", None) in _LOW:
            kwargs = {**kwargs, "dtype": torch.float32}
    elif func in _IN_FLOAT32 or any(t.dtype == torch.float32 for t in tensors_in((args, kwargs))):
        args, kwargs = tree_map(_widened, (args, kwargs))
    with torch.autocast("cpu", enabled=False):
        return func(*args, **kwargs)


def _widened(leaf: Any) -> Any:
    low = isinstance(leaf, torch.Tensor) and leaf.dtype in _LOW
    return leaf.float() if low else leaf


@contextmanager
def regions_of_any_device() -> Iterator[None]:
    """A model's own autocast regions for a GPU hold for tensors that are captured on the CPU."""
    plain = torch.amp.autocast_mode.autocast.__init__

    def init(
        self: Any, device_type: str, dtype: torch.dtype | None = None, *args: Any, **kwargs: Any
    ) -> None:
        if device_type != "cpu":
            dtype = torch.get_autocast_dtype(device_type) if dtype is None else dtype
            device_type = "cpu"
        plain(self, device_type, dtype, *args, **kwargs)

    with patch.object(torch.amp.autocast_mode.autocast, "__init__", init):
        yield
