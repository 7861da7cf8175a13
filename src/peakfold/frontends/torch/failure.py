"""A failed capture in one sentence: which module, which line, what torch said, what to try."""

from __future__ import annotations

import sys
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TypeVar

import torch

from peakfold.errors import ModelError
from peakfold.frontends.torch.scope import failed_module

_BY_DATA = (
    "GuardOnDataDependentSymNode",
    "DataDependentOutputException",
    "DynamicOutputShapeException",
)


_T = TypeVar("_T")
_NO_GRADIENT = ("does not require grad", "appears to not have been used in the graph")


def failure(module: torch.nn.Module, error: Exception, what: str, hint: str) -> ModelError:
    """The error to raise.

    Args:
        module: the copy that was captured, whose tree gives the name of the module that ran.
        error: what was raised.
        what: what was tried.
        hint: what to do next.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if _theirs(f.filename)]
    line = f"{own[-1].filename}:{own[-1].lineno}" if own else ""
    path = failed_module(module, error) or type(module).__name__
    said = next((text for text in str(error).splitlines() if text.strip()), type(error).__name__)
    why = f"{type(error).__name__}: {said.strip()[:300]}"
    if _by_data(error):
        why = "its control flow depends on the values of a tensor"
    return ModelError(
        f"{what} failed: {why}",
        where=", ".join(filter(None, (f"module {path!r}", line))),
        hint=hint,
    )


def _theirs(file: str) -> bool:
    """Whether a file is neither ours, nor torch's, nor Python's own."""
    ours = str(Path(__file__).parent), str(Path(torch.__file__).parent), "<"
    if file.startswith(ours):
        return False
    installed = file.startswith((sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))
    return installed or not file.startswith(sysconfig.get_path("stdlib"))


def line_now() -> str:
    """The line of the user's, or of a library's, that is running."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not _theirs(frame.f_code.co_filename):
        frame = frame.f_back
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def wants_gradients(error: Exception) -> bool:
    """Whether it failed for gradients that were not recorded: the module differentiates."""
    return any(said in str(error) for said in _NO_GRADIENT)


def with_gradients_if_wanted(run: Callable[[bool], _T]) -> tuple[_T, tuple[str, ...]]:
    """Run without gradients; with, if it needs them, and a note that says so.

    Args:
        run: what is run, told whether gradients are recorded.

    Raises:
        ModelError: it failed for another reason, or with gradients, too.
    """
    try:
        return run(False), ()
    except ModelError as error:
        if not wants_gradients(error):
            raise
    said = "the module differentiates in its forward pass: followed with gradients recorded"
    return run(True), (said,)


def transformed(error: Exception) -> bool:
    """Whether it failed inside a function transform (`torch.func`, `torch.vmap`)."""
    frames = traceback.extract_tb(error.__traceback__)
    inside = any("_functorch" in f.filename and "aot" not in f.filename for f in frames)
    return inside or "functorch" in str(error)


def _by_data(error: Exception) -> bool:
    return type(error).__name__ in _BY_DATA


def failed_step(module: torch.nn.Module, error: Exception, *, real: bool = False) -> ModelError:
    """The error of a training step, run on tensors without values or for real."""
    if real:
        return failure(module, error, "a training step", "")
    hint = "follow the step for real, with the values that decide: --route run"
    if not _by_data(error):
        hint = "check that one step of it runs in torch alone"
    return failure(module, error, "a training step on tensors without values", hint)
