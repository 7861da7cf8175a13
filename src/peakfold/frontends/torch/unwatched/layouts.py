"""Layouts of results that kernels choose otherwise than torch's own formulas for fake tensors.

A result in another layout is copied by whoever wants it contiguous, so a wrong one is a wrong
peak. Found by running operators on operands in every layout, fake and real.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch._prims_common import suggest_memory_format
from torch._subclasses.fake_tensor import FakeTensor

from peakfold.frontends.torch.unwatched.known_values import plainly

_aten = torch.ops.aten
_FOLLOWS: Mapping[Any, tuple[int | None, int]] = {
    _aten.native_layer_norm_backward.default: (None, 1),
    _aten._log_softmax_backward_data.default: (None, 1),
    _aten.mse_loss_backward.default: (None, 1),
    _aten.log_sigmoid_forward.default: (None, 2),
    _aten.native_group_norm_backward.default: (1, 1),
    _aten.native_batch_norm.default: (0, 1),
    _aten._native_batch_norm_legit.default: (0, 1),
    _aten.native_batch_norm_backward.default: (1, 1),
}
"""The operand whose memory format the first results follow, if any, and how many results."""


def laid_out(func: Any, args: Any, out: Any) -> Any:
    """Results in the layout that the kernel gives them; those of most operators are right."""
    found = _FOLLOWS.get(func)
    if found is None:
        return out
    source, count = found
    wanted = torch.contiguous_format if source is None else suggest_memory_format(args[source])
    if isinstance(out, torch.Tensor):
        return _in(out, wanted)
    return tuple(_in(one, wanted) if at < count else one for at, one in enumerate(out))


def _in(tensor: Any, wanted: torch.memory_format) -> Any:
    if not isinstance(tensor, FakeTensor) or tensor.is_contiguous(memory_format=wanted):
        return tensor
    with plainly():
        bare = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta", memory_format=wanted)
    return FakeTensor(tensor.fake_mode, bare, tensor.device)
