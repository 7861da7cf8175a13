"""Scratch of CPU kernels, measured and not guessed: the op is run once, alone.

Convolutions of oneDNN reorder weights and images into blocks of their own, kernels that want
another layout copy their operands, backward kernels of norms and attention keep partial sums by
thread. What that takes is decided inside the library, so an op of the same shapes is run on real
memory and its allocations are watched. Each signature is measured once.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

from peakfold.frontends.torch.dispatch_modes import tensors_in
from peakfold.frontends.torch.training.operand_casts import INDEXED, chosen, positions
from peakfold.frontends.torch.training.rnn import again, real_backward, real_forward
from peakfold.frontends.torch.unwatched.known_values import plainly
from peakfold.runtimes.torch.allocator import allocations, peak_of

_LAYERS = frozenset({"lstm_layer", "lstm_layer_backward"})


def _measurable(args: Any) -> bool:
    """Whether a call has operands, and all of them can be made of zeros."""
    given = tensors_in(args)
    return bool(given) and all(t.layout is torch.strided and not t.is_quantized for t in given)


class CpuScratch:
    """Scratch of calls by their signature; give it to `fake_steps` as `workspace`.

    Attributes:
        table: bytes by signature, what was measured so far.

    Example:
        >>> scratch = CpuScratch()
        >>> scratch(torch.ops.aten.relu.default, (torch.zeros(4),), {})
        0
    """

    def __init__(self) -> None:
        self.table: dict[str, int] = {}

    def __call__(self, func: Any, args: Any, kwargs: Any) -> int:
        """Bytes of scratch of one call; its tensors may be fake."""
        if func.is_view or not _measurable((args, kwargs)):
            return 0
        if func in INDEXED and (masked := positions(args[1])):
            return masked
        name = func._schema.name.partition("::")[2]
        key = f"{func} {tree_leaves(tree_map(_signature, (args, kwargs)))}"
        if key not in self.table:
            layer = name in _LAYERS
            self.table[key] = _layer(args) if layer else _measured(func, args, kwargs)
        return self.table[key]


def _signature(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return f"{leaf.dtype}{tuple(leaf.shape)}{tuple(leaf.stride())}{chosen(leaf)}"
    return str(leaf)


def _measured(func: Any, args: Any, kwargs: Any) -> int:
    kept: list[Any] = []
    with plainly(), torch._C._DisableFuncTorch():
        real_args, real_kwargs = tree_map(_real, (args, kwargs))
        try:
            changes = allocations(lambda: kept.append(func(*real_args, **real_kwargs)))
        except (RuntimeError, IndexError, ValueError):
            return 0  # it cannot run on zeros (a draw from probabilities that are all zero)
    highest, last = peak_of(changes)
    return highest - last


def _layer(args: Any) -> int:
    """Scratch of one layer of an LSTM: oneDNN's own op, on zeros."""
    steps, batch, inputs = (int(n) for n in args[0].shape)
    size, reverse = int(args[2].shape[1]), bool(args[-1])
    kept: list[Any] = []
    with _disable_current_modes(), torch.enable_grad():
        if len(args) == 9:
            real = real_forward(steps, batch, inputs, size, reverse)[0]
            trains = args[7] > 0
            with torch.set_grad_enabled(trains):
                changes = allocations(lambda: kept.append(again(real, reverse, trains)))
            highest, last = peak_of(changes)
            return highest - last
        real, made = real_forward(steps, batch, inputs, size, reverse)
        grads = [_real(g) for g in args[11:14]]
        with torch.no_grad():
            changes = allocations(lambda: kept.append(real_backward(real, made, grads, reverse)))
    highest, last = peak_of(changes)
    return highest - last


def _real(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    size, stride = tuple(map(int, leaf.shape)), tuple(map(int, leaf.stride()))
    made = torch.empty_strided(size, stride, dtype=leaf.dtype).zero_()
    count = chosen(leaf)
    if count and made.is_contiguous():
        made.view(-1)[:count] = 1
    return made
