"""What autograd's engine writes in place when nobody watches it.

Where a mode or a subclass sees the operators, autograd keeps to operators that make a new result:
it adds two gradients of one value into a third tensor, and fills a gradient of zeros out of place.
A plain run adds into the first gradient if nothing else holds it, and writes into the zeros. That
difference is the watching's own, so it is taken back here. Source: PyTorch 2.13,
torch/csrc/autograd/input_buffer.cpp (`can_accumulate_inplace`) and FunctionsManual.cpp
(`areAnyTensorSubclassLike`); found by comparing the peaks of all of PyTorch's operators with and
without a mode.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch
from torch._prims_common import is_non_overlapping_and_dense_or_false
from torch.utils._python_dispatch import _disable_current_modes

from peakfold.frontends.torch.dispatch_modes import Watching

_aten = torch.ops.aten
_ADD = _aten.add.Tensor
_INTO_ZEROS = {
    _aten.scatter.src: _aten.scatter_.src,
    _aten.scatter.value: _aten.scatter_.value,
    _aten.scatter_add.default: _aten.scatter_add_.default,
    _aten.index_add.default: _aten.index_add_.default,
    _aten.index_put.default: _aten.index_put_.default,
    _aten.index_fill.int_Scalar: _aten.index_fill_.int_Scalar,
    _aten.index_fill.int_Tensor: _aten.index_fill_.int_Tensor,
    _aten.put.default: _aten.put_.default,
    _aten.masked_scatter.default: _aten.masked_scatter_.default,
}
_ZEROS = frozenset({_aten.zeros.default, _aten.new_zeros.default, _aten.zeros_like.default})

FOLLOWED = frozenset({_ADD, *_INTO_ZEROS, *_ZEROS})
"""Operators that are exchanged in the backward pass, or remembered for it."""


class Unwatched:
    """Gives the operator that a plain run calls in the place of one that was seen."""

    def __init__(self) -> None:
        self._alone = alone()  # counted before anything is watched
        self._zeros = (0, -1)

    def __call__(self, func: Any, args: Any) -> Any:
        """Another operator on the same arguments, or `func`."""
        if func is not _ADD and func not in _INTO_ZEROS:
            return func
        if (func is _ADD and torch.is_grad_enabled()) or not _by_engine():
            return func
        if func is not _ADD:
            fresh = self._zeros == (args[0].untyped_storage()._cdata, _node())
            return _INTO_ZEROS[func] if fresh else func
        into = _holds_sum(*args[:2]) and _holders(args[0]) <= self._alone
        return _aten.add_.Tensor if into else func

    def done(self, func: Any, out: Any) -> None:
        """Remember zeros, and for which formula they were made."""
        if func in _ZEROS:
            self._zeros = (out.untyped_storage()._cdata, _node())


def _node() -> int:
    """The running formula of the backward pass; -1 outside."""
    node = torch._C._current_autograd_node()
    return -1 if node is None else int(node._sequence_nr())


def _holds_sum(one: Any, two: Any) -> bool:
    return (
        isinstance(two, torch.Tensor)
        and one.layout is two.layout is torch.strided
        and one.shape == two.shape
        and one.dtype == two.dtype
        and is_non_overlapping_and_dense_or_false(one)
    )


def _by_engine() -> bool:
    """Whether the engine itself calls, and not a function written in Python that it runs."""
    frame = sys._getframe()
    while frame.f_code.co_name != "__torch_dispatch__":
        if frame.f_back is None:
            return False
        frame = frame.f_back
    return frame.f_back is not None and frame.f_back.f_code.co_name == "_engine_run_backward"


def _holders(tensor: torch.Tensor) -> int:
    """References to a tensor and to its storage, those of the call and of this look included."""
    of_storage = int(torch._C._storage_Use_Count(tensor.untyped_storage()._cdata))
    return of_storage + int(tensor._use_count())  # type: ignore[attr-defined]


class _Probe(Watching):
    """Counts the holders of a gradient that the engine alone holds."""

    found: int = 0

    def called(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run it; note how often the first operand of the engine's sum is held."""
        if func is _ADD:
            self.found = _holders(args[0])
        return func(*args, **kwargs)


@functools.cache
def alone() -> int:
    """Holders, seen from a handler, of a tensor that otherwise only the engine holds."""
    with _disable_current_modes(), torch._C.DisableTorchFunction(), torch.enable_grad():
        value = torch.ones(1, requires_grad=True).sin()
        both = value.sin() + value.cos()
        with _Probe() as probe:
            both.backward()
    found: int = probe.found
    return found
