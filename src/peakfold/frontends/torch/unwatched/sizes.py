"""Sizes that masks and lengths decide where the rest of the operands is unknown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from peakfold.frontends.torch.unwatched.known_values import plainly

_aten = torch.ops.aten
_MASKS = (torch.bool, torch.uint8)
Of = Callable[[torch.Tensor], "torch.Tensor | None"]
"""The values of a tensor, where they are known."""


def positions(args: Sequence[Any], of: Of) -> list[Any] | None:
    """The arguments of an indexing with masks as the positions that they choose.

    Args:
        args: the tensor and its indices.
        of: gives values.

    Returns:
        The same with a real tensor of positions for each dimension of a known mask; `None` if
        there is no mask, or one is unknown.
    """
    found: list[Any] = []
    masked = False
    for index in args[1]:
        if index is None or index.dtype not in _MASKS:
            found.append(index)
            continue
        mask = of(index)
        if mask is None:
            return None
        with plainly():
            found += mask.nonzero(as_tuple=True)
        masked = True
    return [args[0], found] if masked else None


def _masked(args: Sequence[Any], of: Of) -> Any:
    mask = of(args[1])
    if mask is None:
        return None
    shape = torch.broadcast_shapes(args[0].shape, mask.shape)  # type: ignore[no-untyped-call]
    return _bare(args[0], int(mask.expand(shape).count_nonzero()))


def _packed(args: Sequence[Any], of: Of) -> Any:
    """Data, and the number of rows at each step, which C++ reads: a real tensor."""
    given, lengths = args[0], of(args[1])
    if lengths is None:
        return None
    rows = torch.zeros(*given.shape[:2], 1)
    sizes = _aten._pack_padded_sequence.default(rows, lengths, args[2])[1]
    return _bare(given, int(sizes.sum()), *given.shape[2:]), sizes


def _ctc(args: Sequence[Any], of: Of) -> Any:
    scores = args[0]
    lengths = of(args[3]) if isinstance(args[3], torch.Tensor) else torch.tensor(args[3])
    if lengths is None or scores.dim() != 3:
        return None
    steps, batch = scores.shape[:2]
    longest = int(lengths.max()) if lengths.numel() else 0
    return _bare(scores, batch), _bare(scores, batch, steps, 2 * longest + 1)


def _ctc_gradient(args: Sequence[Any], _of: Of) -> Any:
    return _bare(args[1], *args[1].shape)


def _least_squares(args: Sequence[Any], _of: Of) -> Any:
    """Of the CPU's default driver: solution, no residuals, ranks, no singular values.

    The solution lies in the block that the right sides were copied to.
    """
    (*batch, rows, unknowns), sides = args[0].shape, args[1]
    if sides.dim() != args[0].dim():
        return None
    room = _bare(sides, *batch, sides.shape[-1], max(rows, unknowns))
    ranks = torch.empty(batch, dtype=torch.int64, device="meta")
    return room[..., :unknowns].mT, _bare(sides, 0), ranks, _bare(sides, 0)


def _bare(like: torch.Tensor, *shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=like.dtype, device="meta")


_RULES: Mapping[Any, Callable[[Sequence[Any], Of], Any]] = {
    _aten.masked_select.default: _masked,
    _aten._pack_padded_sequence.default: _packed,
    _aten._ctc_loss.Tensor: _ctc,
    _aten._ctc_loss_backward.Tensor: _ctc_gradient,
    _aten._ctc_loss.default: _ctc,
    _aten._ctc_loss_backward.default: _ctc_gradient,
    _aten.linalg_lstsq.default: _least_squares,
}
BY_SHAPES = frozenset({_aten.linalg_lstsq.default})
"""Operators whose results' sizes follow without any value, whatever torch says."""


def sized(func: Any, args: Sequence[Any], of: Of) -> Any:
    """Likenesses of an operator's results, on `meta`, where their sizes follow.

    Args:
        func: the operator.
        args: its arguments.
        of: gives values.

    Returns:
        Results without values, or real ones where C++ reads them; `None` where no rule holds.
    """
    rule = _RULES.get(func)
    if rule is None:
        return None
    with plainly():
        return rule(args, of)
