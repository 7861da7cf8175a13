"""What is assumed of values that cannot be known, so that a step goes on; each is a note.

Two kinds of questions are asked of numbers that a model computes: checks (is anything not finite?)
and choices (which expert, which order?). Checks pass, choices are dealt evenly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

CHECKS = "checks of computed values pass (any is false, all is true, numbers are finite)"
CHOICES = "choices by computed values (topk, argmax, sort) are dealt evenly"

_aten = torch.ops.aten
_NO_DIM = 9
Guess = tuple[int, torch.Tensor, str]
"""Which result, its values, and the assumption."""
_Rule = Callable[[Any, Any, Any], "Guess | None"]
"""From arguments, the dimension and results."""


def _check(answer: bool) -> _Rule:
    def guess(_args: Any, _dim: Any, made: Any) -> Guess:
        return 0, torch.full(tuple(made[0].shape), answer, dtype=made[0].dtype), CHECKS

    return guess


def _compared(equal: bool) -> _Rule:
    """Whether x == x, and x != inf: how finiteness is asked in operators."""

    def guess(args: Any, dim: Any, made: Any) -> Guess | None:
        one, two = args[0], args[1]
        itself = one is two
        endless = isinstance(two, float) and math.isinf(two)
        if not itself and not endless:
            return None
        return _check(equal is itself)(args, dim, made)

    return guess


def _dealt(at: int) -> _Rule:
    """Indices along a dimension, each equally often; `at`: which result they are."""

    def guess(args: Any, dim: Any, made: Any) -> Guess | None:
        x, index = args[0], made[at]
        if x.dim() == 0 or not isinstance(dim, int):
            return None
        kept = index.dim() == x.dim()
        shape = index.movedim(dim, -1).shape if kept else (*index.shape, 1)
        even = torch.arange(math.prod(shape)).remainder(x.shape[dim]).view(tuple(shape))
        return at, even.movedim(-1, dim) if kept else even.squeeze(-1), CHOICES

    return guess


def _ordered(at: int) -> _Rule:
    """An order: that in which they lie."""

    def guess(args: Any, dim: Any, _made: Any) -> Guess | None:
        x = args[0]
        if x.dim() == 0 or not isinstance(dim, int):
            return None
        row = torch.arange(x.shape[dim])
        tail = x.dim() - 1 - (dim % x.dim())
        return at, row.view(-1, *(1,) * tail).expand(tuple(x.shape)).contiguous(), CHOICES

    return guess


_GUESSES: Mapping[Any, tuple[_Rule, int]] = {
    **dict.fromkeys((_aten.any.default, _aten.any.dim, _aten.any.dims), (_check(False), _NO_DIM)),
    **dict.fromkeys((_aten.all.default, _aten.all.dim, _aten.all.dims), (_check(True), _NO_DIM)),
    **dict.fromkeys((_aten.isnan.default, _aten.isinf.default), (_check(False), _NO_DIM)),
    **dict.fromkeys((_aten.eq.Tensor, _aten.eq.Scalar), (_compared(True), _NO_DIM)),
    **dict.fromkeys((_aten.ne.Tensor, _aten.ne.Scalar), (_compared(False), _NO_DIM)),
    **dict.fromkeys((_aten.argmax.default, _aten.argmin.default), (_dealt(0), 1)),
    **dict.fromkeys((_aten.max.dim, _aten.min.dim), (_dealt(1), 1)),
    **dict.fromkeys((_aten.sort.default, _aten.sort.stable), (_ordered(1), 1)),
    _aten.topk.default: (_dealt(1), 2),
    _aten.multinomial.default: (_dealt(0), _NO_DIM),
}
"""The rule, and which argument names the dimension: the last one where it is left out."""


def guessable(func: Any) -> bool:
    """Whether something is assumed of an operator's results where they are not known."""
    return func in _GUESSES


def guessed(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], made: Sequence[torch.Tensor]
) -> Guess | None:
    """The values that are assumed of one result of an operator.

    Args:
        func: the operator.
        args: its arguments, whose first is of unknown values.
        kwargs: those by name.
        made: its results, few enough to be followed.
    """
    rule, at = _GUESSES[func]
    dim = args[at] if len(args) > at else kwargs.get("dim", -1)
    return rule(args, dim, made)
