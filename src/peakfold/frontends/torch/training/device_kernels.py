"""Calls whose eager kernel saves something else on another device, made as that device does."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest.mock import patch

import torch

from peakfold.frontends.torch.autocast import IN_FLOAT32, in_float32, runs_in_float32
from peakfold.frontends.torch.fake import OnCpu
from peakfold.frontends.torch.training.options import StepOptions
from peakfold.frontends.torch.training.rnn import lstm, takes_onednn

# torch leaves a mode while the body of a function written in Python runs. These bodies reach
# dropout and attention again (a checkpointed layer runs inside backward), so their own check for
# overrides, found under this name, is skipped and the mode stays.
_BODIES = {
    torch.Tensor.backward: (torch._tensor, "has_torch_function_unary"),
    torch.autograd.backward: (torch.autograd, "has_torch_function"),
    torch.nn.functional.multi_head_attention_forward: (torch.nn.functional, "has_torch_function"),
}


def _no_overrides(*_: Any) -> bool:
    return False


_DROPOUTS = (torch.nn.functional.dropout, torch.dropout)
_LSTM = torch.lstm
_CTC = (torch.nn.functional.ctc_loss, torch.ctc_loss)
_ATTENTION = torch.nn.functional.scaled_dot_product_attention
_LINEAR = torch.nn.functional.linear


class _DeviceKernels(OnCpu):
    """Calls whose eager kernel saves something else on another device, as there."""

    def __init__(self, options: StepOptions, *, fake: bool) -> None:
        cast = IN_FLOAT32 if options.device == "cuda" else frozenset()
        super().__init__(
            frozenset({*_BODIES, *_DROPOUTS, *_CTC, _LSTM, _ATTENTION, _LINEAR}) | cast
        )
        self._options = options
        self._masks_of_bool = options.rules.dropout_mask == "bool"
        self._onednn = fake and options.rules.lstm == "onednn"
        self._fake = fake

    def replaced(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run it as the device's kernels do, on the CPU."""
        if func in _BODIES:
            with self, patch.object(*_BODIES[func], _no_overrides):
                return func(*args, **kwargs)
        if self._masks_of_bool and func in _DROPOUTS:
            return _byte_dropout(*args, **kwargs)
        if self._fake and func in _CTC:  # C++ fills a tensor from numbers, which no fake one takes
            args = tuple(torch.tensor(a) if isinstance(a, tuple | list) else a for a in args)
        if self._onednn and func is _LSTM and takes_onednn(args):
            return lstm(*args)
        if self._options.device == "cuda" and runs_in_float32(func):
            return in_float32(func, args, kwargs)
        if func is _ATTENTION:
            return _attention(func, args, kwargs, self._options)
        if func is _LINEAR and self._fake and _added_after(args, kwargs):
            return _linear(*args, **kwargs)
        return super().replaced(func, args, kwargs) if self._fake else func(*args, **kwargs)


def _byte_dropout(
    input: torch.Tensor,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    train: bool = True,
) -> torch.Tensor:
    del inplace  # the fused kernel makes a result either way
    if not (training and train) or p == 0.0:
        return input
    return torch.native_dropout(input, p, True)[0]


def _added_after(args: Any, kwargs: Any) -> bool:
    """Whether a bias is added to the finished product, as it is where rows lie apart."""
    rows = args[0] if args else kwargs["input"]
    bias = args[2] if len(args) > 2 else kwargs.get("bias")
    apart = rows.dim() > 2 and not rows.is_contiguous() and rows.layout is torch.strided
    return apart and bias is not None and not torch.is_autocast_enabled("cpu")


def _linear(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The product, and the bias added in place: C++ does it out of place where it is watched."""
    return torch.matmul(input, weight.t()).add_(bias)


def _attention(func: Any, args: Any, kwargs: Any, options: StepOptions) -> Any:
    if options.attention == "fused":
        # A fused kernel applies dropout inside: it saves a seed, no mask.
        return func(*args[:4], **_without_dropout(args, kwargs))
    if options.attention == "math":
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            return func(*args, **kwargs)
    return func(*args, **kwargs)


def _without_dropout(args: Any, kwargs: Any) -> dict[str, Any]:
    rest = dict(zip(("dropout_p", "is_causal", "scale", "enable_gqa"), args[4:], strict=False))
    return {**rest, **kwargs, "dropout_p": 0.0}


def device_kernels(options: StepOptions, *, fake: bool) -> AbstractContextManager[Any]:
    """What stands for the device's kernels while a step runs; nothing where the CPU's do."""
    plain = options.device == "cpu" and options.attention == "as-is"
    return nullcontext() if plain and not fake else _DeviceKernels(options, fake=fake)
