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
    x: Tensor, state: Sequence[Tensor], weights: Sequence[Tensor], has_biases: bool, layers: int,
    dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """``torch.lstm`` with the storages of its oneDNN path; arguments as there.

    Returns:
        Output, last hidden state, last cell state.
    """
    if batch_first:
        x = x.transpose(0, 1)
    ways = 2 if bidirectional else 1
    per = 4 if has_biases else 2
    hidden, cells = [], []
    for layer in range(layers):
        outs = []
        for way in range(ways):
            at = layer * ways + way
            given = list(weights[at * per : (at + 1) * per])
            if not has_biases:
                given += [torch.zeros_like(given[0][:, 0])] * 2
            out, h, c = _Layer.apply(  # type: ignore[no-untyped-call]
                x, *given, state[0][at], state[1][at], bool(way)
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
        x, w_ih, w_hh, b_ih, b_hh, h, c, reverse = operands
        ctx.set_materialize_grads(False)
        steps, batch, _ = x.shape
        size = w_hh.shape[1]
        out = x.new_empty(steps, batch, size)
        last_h, last_c = x.new_empty(batch, size), x.new_empty(batch, size)
        nbytes = onednn_workspace(steps, batch, x.shape[2], size, bool(reverse))
        kept = x.new_empty(nbytes, dtype=torch.uint8)
        ctx.save_for_backward(x, w_ih, w_hh, b_ih, b_hh, h, c, out, last_h, last_c, kept)
        return out, last_h, last_c

    @staticmethod
    def backward(ctx: Any, *_grads: Any) -> tuple[Tensor | None, ...]:
        made = [torch.empty_like(t) for t in ctx.saved_tensors[:7]]
        return (*made, None)


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
        real = [torch.zeros(shape) for shape in (
            (steps, batch, inputs), (4 * size, inputs), (4 * size, size), (4 * size,), (4 * size,),
            (batch, size), (batch, size),
        )]  # fmt: skip
        made = torch.ops.aten.mkldnn_rnn_layer(
            *real, reverse, [], _LSTM, size, 1, True, False, False, True
        )
        return int(made[3].untyped_storage().nbytes())
