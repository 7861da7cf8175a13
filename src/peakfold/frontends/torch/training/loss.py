"""The loss of a training step: the module's own, one given as a function, or one of a few names.

Nothing is made up: a module without a loss of its own is refused until a loss is named, because
what a loss keeps of logits is often the largest part of a step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from peakfold.errors import UsageError
from peakfold.frontends.torch.training.options import TARGETED, StepOptions

_HINT = (
    "--loss cross-entropy|mse|sum|module:function (in Python StepOptions(loss=...)), "
    "or return an Example with a loss"
)
_NOTHING = object()


@dataclass(frozen=True, slots=True, eq=False)
class Aimed:
    """A loss by name, with what it compares the result with.

    Attributes:
        kind: ``cross-entropy`` or ``mse``.
        shape: of the target; `None` = the module's own loss is taken, so none is needed.
        dtype: of the target.
        target: the tensor, once a run has made it.
    """

    kind: str
    shape: tuple[int, ...] | None
    dtype: torch.dtype
    target: torch.Tensor | None = None

    def made(self, device: torch.device) -> Aimed:
        """With a target: class 0 or zeros, since values decide nothing of its memory."""
        if self.shape is None:
            return self
        return replace(self, target=torch.zeros(self.shape, dtype=self.dtype, device=device))


def loss_of(
    out: Any, tensors: Sequence[torch.Tensor], options: StepOptions
) -> tuple[torch.Tensor, str]:
    """The loss of a module's result, and what it is in words.

    Args:
        out: what the module returned.
        tensors: the tensors in it.
        options: a loss given as a function comes first, then the module's own, then a name.

    Raises:
        UsageError: the module has no loss and none is named, no tensor of the result depends on
            a trainable parameter, or the loss is not one number.
    """
    given = options.loss
    if callable(given):
        return _one_number(given(out)), f"the function given ({_called(given)})"
    own = _own(out, tensors)
    name = given.kind if isinstance(given, Aimed) else given
    if own is not None:
        value, said = own
        return _one_number(value), said + (f"; --loss {name} is not needed" if name else "")
    real = _differentiable(out, tensors)
    if name == "sum":
        return real.sum(), f"sum of the result {list(real.shape)} (a real loss keeps more)"
    if isinstance(given, Aimed) and given.target is not None:
        return _aimed(real, given.kind, given.target)
    field = "" if _field(out) is _NOTHING else " (its 'loss' is None: labels may be missing)"
    raise UsageError(f"the module returns no loss{field}", hint=_HINT)


def aim(
    out: Any, tensors: Sequence[torch.Tensor], kind: str, autocast: torch.dtype | None
) -> Aimed:
    """What a loss by name needs beside a result.

    Args:
        out: what the module returned.
        tensors: the tensors in it.
        kind: of `TARGETED`.
        autocast: element type of the region the loss runs in; targets stay in float32 there.

    Raises:
        UsageError: the result has no classes, or depends on no trainable parameter.
    """
    if _own(out, tensors) is not None:
        return Aimed(kind, None, torch.int64)
    real = _differentiable(out, tensors)
    shape = tuple(map(int, real.shape))
    if kind == "mse":
        return Aimed(kind, shape, torch.float32 if autocast is not None else real.dtype)
    if len(shape) < 2:
        raise UsageError(
            f"cross-entropy of a result of the shape {shape}: it has no classes",
            hint="--loss mse or --loss sum, or a function",
        )
    if len(shape) == 3:  # batch, tokens, vocabulary
        return Aimed(kind, (shape[0] * shape[1],), torch.int64)
    return Aimed(kind, (shape[0], *shape[2:]), torch.int64)


def _aimed(real: torch.Tensor, name: str, target: torch.Tensor) -> tuple[torch.Tensor, str]:
    shape, aimed = list(real.shape), list(target.shape)
    nbytes = math.prod(aimed) * target.element_size()
    kind = str(target.dtype).removeprefix("torch.")
    made = f"{kind} {aimed} made as an input of {nbytes} B"
    functions = torch.nn.functional
    if name == "mse":
        return functions.mse_loss(real, target), f"mse of {shape} with targets {made}"
    if real.dim() == 3:
        loss = functions.cross_entropy(real.flatten(0, 1), target)
        return loss, (
            f"cross-entropy of {shape}, taken as batch, tokens and classes, with "
            f"class indices {made}"
        )
    loss = functions.cross_entropy(real, target)
    return loss, f"cross-entropy of {shape}, classes in dimension 1, with class indices {made}"


def _own(out: Any, tensors: Sequence[torch.Tensor]) -> tuple[Any, str] | None:
    """The loss that a module returns, and how: `None` where it returns none.

    A field that is called the loss and is `None` says that there is none, whatever else is there.
    """
    field = _field(out)
    if field is None:
        return None
    if field is not _NOTHING:
        if isinstance(field, Mapping):
            return _summed(field, "the module's own: its 'loss' is a sum of")
        return field, "the module's own: its 'loss'"
    if isinstance(out, Mapping) and out and all(map(_is_one, out.values())):
        return _summed(out, "the module's own: a sum of")
    ones = [t for t in tensors if _is_one(t) and t.requires_grad]
    if len(ones) != 1:
        return None
    beside = " beside other results" if len(tensors) > 1 else ""
    return ones[0], f"the module's own: the one number it returns{beside}"


def _field(out: Any) -> Any:
    """What a result calls its loss; `_NOTHING` where it has no such field."""
    found = out["loss"] if isinstance(out, Mapping) and "loss" in out else _NOTHING
    if found is _NOTHING and not isinstance(out, torch.Tensor):
        found = getattr(out, "loss", _NOTHING)
    return _NOTHING if callable(found) and not isinstance(found, torch.Tensor) else found


def _summed(losses: Mapping[Any, Any], said: str) -> tuple[Any, str]:
    values = [value for value in losses.values() if value is not None]
    if not values or not all(map(_is_one, values)):
        raise UsageError(
            f"its losses ({', '.join(map(str, losses))}) are not one number each",
            hint="return an Example with a loss, which makes one of them",
        )
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total, f"{said} {', '.join(map(str, losses))}"


def _is_one(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() == 0 and value.is_floating_point()


def _differentiable(out: Any, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """The logits of a result, where it calls something so, else its first trained tensor."""
    named = out.get("logits") if isinstance(out, Mapping) else getattr(out, "logits", None)
    for tensor in (named, *tensors):
        if isinstance(tensor, torch.Tensor) and tensor.is_floating_point() and tensor.requires_grad:
            return tensor
    raise UsageError(
        "its result has no tensor that depends on a trainable parameter",
        hint="give the Example a loss: from the module's result to a scalar",
    )


def _called(function: Any) -> str:
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return str(name).removeprefix("<locals>.").rpartition("<locals>.")[2]


def _one_number(loss: Any) -> torch.Tensor:
    if not isinstance(loss, torch.Tensor):
        raise UsageError(f"the loss is a {type(loss).__name__}, not a tensor")
    if loss.numel() != 1:
        raise UsageError(
            f"the loss has the shape {tuple(loss.shape)}, not one number",
            hint="take its mean or its sum",
        )
    return loss


__all__ = ["TARGETED", "Aimed", "aim", "loss_of"]
