"""How a training step is run: optimizer and its form, loss, accumulation, and whose kernels."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from peakfold.errors import UsageError
from peakfold.target import Eager, load_eager

if TYPE_CHECKING:
    from peakfold.frontends.torch.training.loss import Aimed

Loss = Callable[[Any], torch.Tensor]
MakeOptimizer = Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer]

OPTIMIZERS: Mapping[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda p, **kw: torch.optim.SGD(p, lr=0.1, **kw),
    "momentum": lambda p, **kw: torch.optim.SGD(p, lr=0.1, momentum=0.9, **kw),
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
    "adagrad": torch.optim.Adagrad,
}
FORMS: Mapping[str, Mapping[str, bool]] = {
    "default": {},
    "for-loop": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}
LOSSES = ("cross-entropy", "mse", "sum")
TARGETED = ("cross-entropy", "mse")
"""Losses by name that compare the result with targets."""
OPTIMIZER = "adamw"
"""The one that is taken where none is named: what most models of today are trained with."""
DEVICES = ("cpu", "cuda")
ATTENTION = ("as-is", "fused", "math")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions:
    """How a step is run.

    Attributes:
        optimizer: a name, or a function from parameters to an optimizer; `None` = AdamW.
        form: ``default``, ``for-loop``, ``foreach`` or ``fused``: how it walks the parameters.
        loss: a function from the module's result to a scalar. Without one the module's own loss
            is taken, or, where it returns none, one by name: ``cross-entropy``, ``mse`` or
            ``sum``. Without any the step is refused.
        accumulate: forward and backward passes before one update.
        autocast: element type of an autocast region around the forward pass.
        device: whose eager kernels decide what is saved, ``cpu`` or ``cuda``; the facts are
            those of the targets ``torch-cpu`` and ``torch-cuda``.
        attention: ``fused`` (nothing of the size of the scores exists), ``math`` (all of it
            does), or ``as-is`` (what torch chooses for the CPU).
        set_to_none: gradients are dropped after the update, as is torch's default.
        keep_result: the module's result is held until the step is over, as by a loop's variable;
            else it is let go of once the loss is known.
    """

    optimizer: str | MakeOptimizer | None = None
    form: str = "default"
    loss: Loss | Aimed | str | None = None
    accumulate: int = 1
    autocast: torch.dtype | None = None
    device: str = "cpu"
    attention: str = "as-is"
    set_to_none: bool = True
    keep_result: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.optimizer, str):
            _known(self.optimizer, OPTIMIZERS, "optimizer")
        if isinstance(self.loss, str):
            _known(self.loss, LOSSES, "loss")
        _known(self.form, FORMS, "optimizer form")
        _known(self.device, DEVICES, "device profile")
        _known(self.attention, ATTENTION, "attention kernel")
        if self.accumulate < 1:
            raise UsageError(f"cannot accumulate {self.accumulate} batches")

    @property
    def rules(self) -> Eager:
        """What the device's kernels keep."""
        return load_eager(self.device)

    def make(self, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
        """The optimizer of these parameters, in the form it has on the device.

        Raises:
            UsageError: no parameter to train, or an update that needs a closure.
        """
        made = self._made(parameters)
        closure = inspect.signature(type(made).step).parameters.get("closure")
        if closure is not None and closure.default is closure.empty:
            raise UsageError(
                f"optimizer {type(made).__name__!r} runs the model inside its update (a closure)",
                hint="its step cannot be captured; any other optimizer's can",
            )
        if self.rules.optimizer_form == "foreach":
            for group in made.param_groups:
                open_form = group.get("foreach", False) is None and not group.get("fused")
                if open_form and not group.get("differentiable"):
                    group["foreach"] = True
        return made

    def _made(self, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
        trained = [p for p in parameters if p.requires_grad]
        if not trained:
            raise UsageError("nothing to train: no parameter requires a gradient")
        if callable(self.optimizer):
            return self.optimizer(trained)
        return OPTIMIZERS[self.optimizer or OPTIMIZER](trained, **FORMS[self.form])

    def told(self) -> str:
        """The optimizer in words."""
        if callable(self.optimizer):
            return "the function given"
        name = self.optimizer or f"{OPTIMIZER} (none named)"
        form = f"{self.form} form"
        if self.form == "default":
            form += f" ({self.rules.optimizer_form} where it has one)"
        return f"{name}, {form}"

    def notes(self) -> tuple[str, ...]:
        """What was assumed beside loss and optimizer, a line each."""
        said = [f"eager kernels of {self.device}"]
        if self.attention != "as-is":
            said.append(f"attention kernel: {self.attention}")
        if self.accumulate > 1:
            said.append(f"{self.accumulate} batches accumulated before an update")
        if self.autocast is not None:
            said.append(f"autocast to {str(self.autocast).removeprefix('torch.')}")
        return tuple(said)


def _known(value: str, known: Iterable[str], what: str) -> None:
    if value not in known:
        raise UsageError(f"no {what} {value!r}", hint=f"known: {', '.join(known)}")
