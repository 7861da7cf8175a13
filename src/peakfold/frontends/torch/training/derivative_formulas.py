"""Derivative formulas that ask whether they are watched, replayed as a plain run takes them.

A formula in C++ may look at values (is a factor of a product zero?) or write into its own
temporaries. Where a mode sees its operators it does neither: it takes a road that is safe for
whoever watches, which holds other tensors. So the road that is taken stays out of sight here, the
plain one is taken in its place, and its result goes on to the next formula.

Source: PyTorch 2.13, torch/csrc/autograd/FunctionsManual.cpp (`isTensorSubclassLike`); checked
against plain runs of all operators (tests/oracles/torch_ops.py).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from peakfold.frontends.torch.dispatch_modes import tensors_in

_aten = torch.ops.aten
NO_ZEROS = "derivatives of products: no factor is zero"
"""What is assumed of the values that a formula looks at."""


Road = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, tuple[Any, ...]], torch.Tensor]
"""A formula: gradient, input, result and other arguments of the call to the input's gradient."""


@dataclass(frozen=True, slots=True)
class _Formula:
    """How a plain run differentiates an operator.

    Attributes:
        node: of autograd, as it is called.
        road: what a plain run does.
        says: what that assumes.
        cpu: only the CPU's kernels are asked.
    """

    node: str
    road: Road
    says: str = ""
    cpu: bool = False


@dataclass(frozen=True, slots=True)
class _Asked:
    """A call whose derivative will look at values; nothing is kept alive.

    Attributes:
        formula: of its derivative.
        inputs: the tensor that it was given.
        result: the one that it made.
        shape: of the result.
        more: its other arguments.
    """

    formula: _Formula
    inputs: weakref.ref[torch.Tensor]
    result: weakref.ref[torch.Tensor]
    shape: torch.Size
    more: tuple[Any, ...]


def _product(grad: torch.Tensor, x: torch.Tensor, out: torch.Tensor, _: Any) -> torch.Tensor:
    _none_of(x == 0)
    return grad * (out / x).conj()


def _none_of(mask: torch.Tensor) -> torch.Tensor:
    return mask.new_empty((0, mask.dim()), dtype=torch.int64)


def _product_of_one(
    grad: torch.Tensor, x: torch.Tensor, out: torch.Tensor, more: tuple[Any, ...]
) -> torch.Tensor:
    dim, keep = int(more[0]), len(more) > 1 and bool(more[1])
    if not keep:
        grad, out = grad.unsqueeze(dim), out.unsqueeze(dim)
    zeros = x == 0
    count = zeros.sum(dim, True)
    count.sum()
    made = grad * (out / x).conj()
    del zeros, count
    return made


def _running_product(
    grad: torch.Tensor, x: torch.Tensor, out: torch.Tensor, more: tuple[Any, ...]
) -> torch.Tensor:
    dim = int(more[0])
    if x.numel() <= 1 or x.shape[dim] == 1:
        return grad
    weighed = out.conj() * grad
    zeros = x == 0
    zeros.any()
    one = weighed.flip(dim)
    two = one.cumsum(dim)
    three = two.flip(dim)
    del one, two  # what C++ makes in an expression lives to its end
    made = three.div(x.conj())
    del zeros, weighed
    return made


def _evenly(grad: torch.Tensor, x: torch.Tensor, out: torch.Tensor, _: Any) -> torch.Tensor:
    out.isnan()
    mask = x == out
    return grad.new_zeros(x.shape).masked_fill_(mask, grad / mask.sum())


FORMULAS: Mapping[Any, _Formula] = {
    _aten.prod.default: _Formula("ProdBackward0", _product, NO_ZEROS),
    _aten.prod.dim_int: _Formula("ProdBackward1", _product_of_one, NO_ZEROS),
    _aten.cumprod.default: _Formula("CumprodBackward0", _running_product, NO_ZEROS),
    _aten.max.default: _Formula("MaxBackward1", _evenly, cpu=True),
    _aten.min.default: _Formula("MinBackward1", _evenly, cpu=True),
    _aten.median.default: _Formula("MedianBackward0", _evenly, cpu=True),
    _aten.nanmedian.default: _Formula("NanmedianBackward0", _evenly, cpu=True),
}

# Chains whose temporaries a plain run writes in place: the formula's node, the operator that is
# seen, the one that is meant. The first operand is a temporary of the same formula.
WRITTEN: Mapping[tuple[str, Any], Any] = {
    ("BinaryCrossEntropyWithLogitsBackward0", _aten.sub.Tensor): _aten.sub_.Tensor,
    ("BinaryCrossEntropyWithLogitsBackward0", _aten.mul.Tensor): _aten.mul_.Tensor,
    ("ClampBackward0", _aten.logical_and.default): _aten.logical_and_.default,
    ("ClampBackward0", _aten.logical_or.default): _aten.logical_or_.default,
}
_WRITTEN_BY = frozenset(node for node, _ in WRITTEN)


class Formulas:
    """Follows the plain road of formulas that ask.

    Args:
        note: is told what is assumed.
        cuda: the kernels are a GPU's.
    """

    def __init__(self, note: Callable[[str], object], *, cuda: bool) -> None:
        self._note = note
        self._asked: dict[int, _Asked] = {}
        self._new: list[_Asked] = []
        self._hidden: tuple[torch.Tensor, torch.Tensor] | None = None
        self._plain, self._over = False, -1
        self._cuda = cuda
        self._made: tuple[Any, set[int]] = (None, set())

    def hides(self) -> bool:
        """Whether the next operator belongs to a road that a plain run does not take."""
        if self._new:
            self._new = [call for call in self._new if not self._expected(call)]
        node = torch._C._current_autograd_node()
        if self._hidden is not None or self._plain:
            return not self._plain
        number = -1 if node is None else node._sequence_nr()
        if number == self._over:  # what follows its hooks
            return False
        self._over = -1
        call = self._asked.get(number)
        if node is None or call is None or node.name() != call.formula.node:
            return False
        x, out = call.inputs(), call.result()
        if x is None:
            self._note(f"what a plain run holds while it differentiates {node.name()} is not known")
            return False
        if out is None:  # the formula alone still holds its memory: any view has its shape
            out = x.detach().as_strided(call.shape, (0,) * len(call.shape))
        self._hidden = (x, out)
        return True

    def _instead_of(self, formula: _Formula, more: tuple[Any, ...]) -> Callable[[Any, Any], Any]:
        """What takes the plain road once the other one is at its end."""

        def over(taken: Any, grads: Any) -> Any:
            if self._hidden is None:
                return None
            (x, out), self._hidden = self._hidden, None
            if formula.says:
                self._note(formula.says)
            self._plain = True
            try:
                return (formula.road(grads[0], x, out, more), *taken[1:])
            finally:
                self._plain = False
                node = torch._C._current_autograd_node()
                self._over = -1 if node is None else node._sequence_nr()

        return over

    def _expected(self, call: _Asked) -> bool:
        """Take the plain road of a call when it is differentiated, once its node is there."""
        out = call.result()
        node = None if out is None else out.grad_fn
        if node is not None and node.name() == call.formula.node:
            self._asked[node._sequence_nr()] = call
            node.register_hook(self._instead_of(call.formula, call.more))
        return out is None or node is not None

    def instead(self, func: Any, args: Any) -> Any:
        """The operator that a plain run calls, `func` or its form in place."""
        node = torch._C._current_autograd_node()
        if node is None or torch.is_grad_enabled() or node.name() not in _WRITTEN_BY:
            return func
        meant = WRITTEN.get((node.name(), func))
        if meant is None or self._made[0] is not node or not _fits(*args[:2]):
            return func
        own = args[0].untyped_storage()._cdata in self._made[1]
        return meant if own else func

    def done(self, func: Any, args: Any, out: Any) -> None:
        """Remember calls that will be differentiated, and temporaries of chains."""
        formula = FORMULAS.get(func)
        if formula is not None and not (formula.cpu and self._cuda):
            more = tuple(args[1:])
            if torch.is_grad_enabled() and args[0].requires_grad:
                x, made = weakref.ref(args[0]), weakref.ref(out)
                self._new.append(_Asked(formula, x, made, out.shape, more))
        node = torch._C._current_autograd_node()
        if node is None or node.name() not in _WRITTEN_BY or func is _aten.neg.default:
            return  # a chain that begins with a negation stays out of place
        if self._made[0] is not node:
            self._made = (node, set())
        self._made[1].update(t.untyped_storage()._cdata for t in tensors_in(out))


def _fits(one: Any, two: Any) -> bool:
    """Whether the first can take the result of an operator of both."""
    return (
        isinstance(two, torch.Tensor)
        and torch.broadcast_shapes(one.shape, two.shape) == one.shape
        and torch.promote_types(one.dtype, two.dtype) == one.dtype
    )
