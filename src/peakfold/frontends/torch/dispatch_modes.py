"""Modes as captures use them: what torch calls, seen by one method each, at little cost.

torch wraps the handler of every dispatch mode so that its compiler stays out, which costs more
than most handlers here do; nothing is compiled during a capture, so it is asked not to. While a
dispatch handler works on tensors, function modes stay out: it only looks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

_WHERE = torch.ops.prim.device.default
"""The device of a tensor: torch asks by an operator, and oftener than it runs all others."""


class Watching(TorchDispatchMode, ABC):
    """A dispatch mode: `called` runs every operator that is dispatched under it."""

    def __init__(self) -> None:
        super().__init__()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _WHERE and type(args[0]) is FakeTensor:
            return args[0].fake_device
        with torch._C.DisableTorchFunction():
            return self.called(func, args, kwargs or {})

    @abstractmethod
    def called(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run one operator and give back its result."""


def mapped(tree: Any, change: Callable[[Any], Any]) -> Any:
    """A tree of lists, tuples and dicts with every leaf changed: the arguments of an operator."""
    if isinstance(tree, list | tuple):
        return [mapped(item, change) for item in tree]
    if isinstance(tree, dict):
        return {key: mapped(item, change) for key, item in tree.items()}
    return change(tree)


def tensors_in(tree: Any) -> list[torch.Tensor]:
    """The tensors of a tree of lists, tuples and dicts, in order."""
    if isinstance(tree, torch.Tensor):
        return [tree]
    found: list[torch.Tensor] = []
    if isinstance(tree, dict):
        _collect(tree.values(), found)
    elif isinstance(tree, list | tuple):
        _collect(tree, found)
    return found


def _collect(items: Iterable[Any], found: list[torch.Tensor]) -> None:
    for item in items:
        if isinstance(item, torch.Tensor):
            found.append(item)
        elif isinstance(item, list | tuple):
            _collect(item, found)
        elif isinstance(item, dict):
            _collect(item.values(), found)


class Replacing(TorchFunctionMode, ABC):
    """A function mode: `replaced` runs the functions that it names, and those with a device.

    Args:
        named: functions that are to be seen; any other, attributes of tensors among them, is
            let through unless it is given keyword arguments.
    """

    def __init__(self, named: frozenset[Any]) -> None:
        super().__init__()
        self._named = named

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if kwargs or func in self._named:
            return self.replaced(func, args, kwargs or {})
        return func(*args)

    @abstractmethod
    def replaced(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run one function, or another in its place."""


class OnesForValues(Replacing):
    """Values that are asked of a fake tensor are one, where memory does not depend on them.

    Some optimizers read a norm or a counter to scale their update.
    """

    def __init__(self) -> None:
        names = ("item", "__float__", "__int__", "__bool__")
        super().__init__(frozenset(getattr(torch.Tensor, name) for name in names))

    def replaced(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """The tensor's own value where it is known."""
        tensor = args[0] if args else None
        if func in self._named and isinstance(tensor, FakeTensor) and not _known(tensor):
            return 1.0 if tensor.dtype.is_floating_point else 1
        return func(*args, **kwargs)


def _known(tensor: FakeTensor) -> bool:
    values = getattr(tensor.fake_mode, "values", None)
    return tensor.constant is not None or (values is not None and values.of(tensor) is not None)
