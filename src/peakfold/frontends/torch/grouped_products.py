"""Shapes of operators that torch runs, and refuses on tensors without values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import _meta_registrations as metas

_RUN = (torch.float32, torch.float16)


@contextmanager
def grouped_products() -> Iterator[None]:
    """Products of groups of rows (`torch.nn.functional.grouped_mm`) in any type that runs.

    PyTorch 2.13 has kernels for bfloat16, float16 and float32, and a shape for bfloat16 alone.
    """
    plain = metas._meta_grouped_mm_common

    def common(mat_a: torch.Tensor, mat_b: torch.Tensor, **kwargs: Any) -> Any:
        scaled = kwargs.get("scale_a") is not None
        if scaled or mat_a.dtype not in _RUN or mat_a.dtype != mat_b.dtype:
            return plain(mat_a, mat_b, **kwargs)
        if mat_a.shape[-1] != mat_b.shape[-2]:
            shapes = f"{tuple(mat_a.shape)} and {tuple(mat_b.shape)}"
            raise RuntimeError(f"grouped_mm: {shapes} have no inner dimension in common")
        kind = kwargs.get("out_dtype") or mat_a.dtype
        made = metas._create_grouped_mm_output_tensor
        return made(mat_a, mat_b, kwargs.get("offs"), kind)

    with patch.object(metas, "_meta_grouped_mm_common", common):
        yield
