"""Packed sequences on fake tensors: what C++ writes into memory itself, in operators.

`_pad_packed_sequence` fills its tensor of lengths through a pointer, which no fake tensor has. This
is the same function, operator by operator (PyTorch 2.13, PackedSequence.cpp).
"""

from __future__ import annotations

import torch


def pad_packed(
    data: torch.Tensor,
    batch_sizes: torch.Tensor,
    batch_first: bool,
    padding_value: float,
    total_length: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of a packed sequence laid out by step and sequence, and the lengths.

    Args:
        data: all rows, step by step.
        batch_sizes: rows of each step; their values have to be known.
        batch_first: the result's first axis is the sequence.
        padding_value: of the places without a row.
        total_length: steps of the result, at least as many as there are; 0 for as many.
    """
    sizes = batch_sizes.tolist()
    steps = max(len(sizes), total_length)
    shape = (steps, sizes[0], *data.shape[1:])
    out = torch.full(shape, padding_value, dtype=data.dtype, device=data.device)
    ends: list[int] = []
    at = begin = 0
    before = sizes[0]
    for step, rows in enumerate([*sizes, 0]):
        if rows == before:
            continue
        count = before * (step - begin)
        part = data[at : at + count].view(step - begin, before, *data.shape[1:])
        out[begin:step, :before].copy_(part)
        at, begin = at + count, step
        ends += [step] * (before - rows)
        before = rows
    lengths = torch.tensor(ends[::-1], dtype=batch_sizes.dtype)
    return (out.transpose(0, 1) if batch_first else out), lengths
