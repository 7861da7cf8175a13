"""Which module is running: names of the module tree, kept while a model runs.

Hooks are global, set for the time of one capture and removed after it; the user's modules
carry nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

import torch
from torch.nn.modules import module as _module


class ScopeTracker:
    """Context manager that knows the path of the running module.

    Args:
        root: the module whose tree gives the names.

    Attributes:
        changed: called when another module runs.
    """

    def __init__(self, root: torch.nn.Module) -> None:
        self._names = {id(child): name for name, child in root.named_modules()}
        self._stack: list[tuple[int, str]] = []
        self._handles: list[Any] = []
        self.changed: Callable[[], None] | None = None

    @property
    def scope(self) -> str:
        """Path of the running module; empty at the root."""
        return self._stack[-1][1] if self._stack else ""

    def __enter__(self) -> ScopeTracker:
        self._handles = [
            _module.register_module_forward_pre_hook(self._enter),
            _module.register_module_forward_hook(self._leave, always_call=True),
        ]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for handle in self._handles:
            handle.remove()
        self._stack.clear()

    def _enter(self, module: torch.nn.Module, _inputs: object) -> None:
        outer = self._stack[-1][1] if self._stack else ""
        name = self._names.get(id(module))
        if name is None:  # a module that is no child of the root
            name = f"{outer}.{type(module).__name__}" if outer else type(module).__name__
        self._stack.append((id(module), name))
        if self.changed is not None:
            self.changed()

    def _leave(self, module: torch.nn.Module, _inputs: object, _output: object) -> None:
        if self._stack and self._stack[-1][0] == id(module):
            self._stack.pop()
            if self.changed is not None:
                self.changed()


def failed_module(root: torch.nn.Module, error: BaseException) -> str:
    """Path of the innermost module that was running when an exception was raised."""
    names = {id(child): name for name, child in root.named_modules()}
    found, trace = "", error.__traceback__
    while trace is not None:
        runs = trace.tb_frame.f_locals.get("self")
        if isinstance(runs, torch.nn.Module):
            found = names.get(id(runs)) or found
        trace = trace.tb_next
    return found
