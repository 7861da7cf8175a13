"""An LSTM as the CPU really trains it: one oneDNN call a layer, which keeps a workspace.

On fake tensors torch takes an LSTM apart into elementary operators instead, which keep other
things. The workspace's size is oneDNN's secret, so it is asked for: a layer of the same size is
run once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

_LSTM = 2  # oneDNN's number for this kind of cell


def takes_onednn(args: Sequence[Any]) -> bool:
    """Whether a call of ``torch.lstm`` goes to oneDNN on a CPU.

    Args:
        args: of the call: input, hidden state, weights, has_biases, ...
    """
    if len(args) < 9 or not isinstance(args[0], Tensor):
        return False  # a packed sequence
    weights, biases = args[2], args[3]
    per_layer = 4 if biases else 2
    projected = len(weights) % per_layer != 0 or args[1][0].shape[-1] != args[1][1].shape[-1]
    usable = bool(torch.backends.mkldnn.enabled) and torch._C._has_mkldnn
    return args[0].dtype is torch.float32 and usable and not projected


def lstm(
    x: Tensor,
    state: Sequence[Tensor],
    weights: Sequence[Tensor],
    has_biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """``torch.lstm`` with the storages of its oneDNN path; arguments as there.

    Returns:
        Output, last hidden state, last cell state.
    """
    if batch_first:
        x = x.transpose(0, 1)
    x = x.contiguous()
    ways = 2 if bidirectional else 1
    per = 4 if has_biases else 2
    hidden, cells = [], []
    for layer in range(layers):
        outs = []
        for way in range(ways):
            at = layer * ways + way
            given = list(weights[at * per : (at + 1) * per])
            if not has_biases:  # torch makes zeros of the weights' size for them
                given += [torch.zeros(w.shape, dtype=w.dtype) for w in given]
            out, h, c = _Layer.apply(
                x, *given, state[0][at], state[1][at], bool(way), torch.is_grad_enabled()
            )
            outs.append(out)
            hidden.append(h)
            cells.append(c)
        x = outs[0] if ways == 1 else torch.cat(outs, -1)
        if dropout and train and layer < layers - 1:
            x = torch.nn.functional.dropout(x, dropout, True)
    out = x.transpose(0, 1) if batch_first else x
    return out, torch.stack(hidden), torch.stack(cells)


class _Layer(torch.autograd.Function):
    """One layer in one direction."""

    @staticmethod
    def forward(ctx: Any, *operands: Any) -> tuple[Tensor, Tensor, Tensor]:
        *tensors, reverse, recorded = operands
        ctx.set_materialize_grads(False)
        steps, batch, inputs = tensors[0].shape
        size = tensors[2].shape[1]
        nbytes = onednn_workspace(steps, batch, inputs, size, bool(reverse)) if recorded else 0
        made = torch.ops.peakfold.lstm_layer(*tensors, nbytes, reverse)
        ctx.save_for_backward(*tensors, *made)
        ctx.reverse = reverse
        return (made[0], made[1], made[2])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        made = torch.ops.peakfold.lstm_layer_backward(*ctx.saved_tensors, *grads, ctx.reverse)
        return (*made, None, None)


# Operators of our own, so that who watches a run sees one call a layer, as on a real CPU. They
# exist for tensors without memory only.
_LIBRARY = torch.library.Library("peakfold", "DEF")
_OPERANDS = "Tensor x, Tensor w1, Tensor w2, Tensor b1, Tensor b2, Tensor h, Tensor c"
_LIBRARY.define(f"lstm_layer({_OPERANDS}, int nbytes, bool reverse) -> Tensor[]")
_LIBRARY.define(
    f"lstm_layer_backward({_OPERANDS}, Tensor y, Tensor hy, Tensor cy, Tensor kept, Tensor? dy, "
    "Tensor? dhy, Tensor? dcy, bool reverse) -> Tensor[]"
)


def _forward_meta(*operands: Any) -> list[Tensor]:
    x, _, w_hh, _, _, h, c, nbytes, _ = operands
    return [
        x.new_empty(*x.shape[:2], w_hh.shape[1]),
        torch.empty_like(h),
        torch.empty_like(c),
        x.new_empty(nbytes, dtype=torch.uint8),
    ]


def _backward_meta(*operands: Any) -> list[Tensor]:
    x, w_ih, w_hh, _, _, h, c = operands[:7]
    biases = [w.new_empty(w.shape[0]) for w in (w_ih, w_hh)]  # of that size even without any
    return [
        *map(torch.empty_like, (x, w_ih, w_hh)),
        *biases,
        torch.empty_like(h),
        torch.empty_like(c),
    ]


_LIBRARY.impl("lstm_layer", _forward_meta, "Meta")
_LIBRARY.impl("lstm_layer_backward", _backward_meta, "Meta")


@lru_cache(maxsize=256)
def onednn_workspace(steps: int, batch: int, inputs: int, size: int, reverse: bool) -> int:
    """Bytes that oneDNN keeps of one layer of an LSTM for the backward pass.

    Args:
        steps: length of the sequence.
        batch: sequences.
        inputs: features of the input.
        size: of the hidden state.
        reverse: the direction.
    """
    with _disable_current_modes(), torch.enable_grad():
        kept = real_forward(steps, batch, inputs, size, reverse)[1][3]
        return int(kept.untyped_storage().nbytes())


def real_forward(
    steps: int, batch: int, inputs: int, size: int, reverse: bool
) -> tuple[list[Tensor], list[Tensor]]:
    """Operands and results of oneDNN's layer on zeros; runs on real memory.

    Args:
        steps: length of the sequence.
        batch: sequences.
        inputs: features of the input.
        size: of the hidden state.
        reverse: the direction.
    """
    real = [
        torch.zeros(shape)
        for shape in (
            (steps, batch, inputs),
            (4 * size, inputs),
            (4 * size, size),
            (4 * size,),
            (4 * size,),
            (batch, size),
            (batch, size),
        )
    ]
    return real, again(real, reverse)


def again(real: Sequence[Tensor], reverse: bool, train: bool = True) -> list[Tensor]:
    """The layer on operands that exist.

    Args:
        real: operands of `real_forward`.
        reverse: the direction.
        train: a backward pass follows.
    """
    size = real[2].shape[1]
    made = torch.ops.aten.mkldnn_rnn_layer(
        *real, reverse, [], _LSTM, size, 1, True, False, False, train
    )
    return list(made)


def real_backward(
    real: Sequence[Tensor], made: Sequence[Tensor], grads: Sequence[Tensor | None], reverse: bool
) -> object:
    """Gradients of the layer, by oneDNN.

    Args:
        real: operands of `real_forward`.
        made: its results.
        grads: of output, hidden and cell state; `None` where there is none.
        reverse: the direction.
    """
    size = real[2].shape[1]
    return torch.ops.aten.mkldnn_rnn_layer_backward(
        *real, *made[:3], *grads, reverse, _LSTM, size, 1, True, True, False, [], False, made[3]
    )
