"""Storages followed through a run: born when an operator returns them, dead with the last tensor.

A dispatch mode sees every operator that really runs, those of autograd and of optimizers
included. It works alike for real tensors and for fake ones, which have no memory.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from peakfold.frontends.torch_engine import Unwatched
from peakfold.frontends.torch_formulas import Formulas
from peakfold.frontends.torch_modes import Watching, tensors_in
from peakfold.frontends.torch_sparse import ROWS, kind_of, parts, run_operator
from peakfold.ir.run import Run, Storage

Workspace = Callable[[Any, Any, Any], int]


@dataclass(slots=True)
class _Seen:
    nbytes: int
    born: int
    phase: str
    op: str
    scope: str
    died: int | None = None
    role: str = ""


class StorageTracker(Watching):
    """Records the storages of everything that runs under it.

    Args:
        scope: path of the running module, asked at every call.
        workspace: scratch of a call, from its function and arguments; none by default.
        cuda: the kernels are a GPU's.

    Attributes:
        notes: what was assumed, and tensors whose memory cannot be followed.
    """

    def __init__(
        self, scope: Callable[[], str] = lambda: "", workspace: Workspace | None = None,
        *, cuda: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self._unwatched = Unwatched()
        self._scope = scope
        self._workspace = workspace
        self._phase = "before"
        self._phases: list[tuple[str, int]] = []
        self._live: dict[int, _Seen] = {}
        self._all: list[_Seen] = []
        self._event = 0
        self._forward: dict[int, str] = {}
        self._scratch: list[tuple[int, str, int]] = []
        self._results: list[_Seen] = []
        self.notes: dict[str, None] = {}
        self._formulas = Formulas(self.notes.setdefault, cuda=cuda)

    def begin(self, phase: str) -> None:
        """Enter a phase: forward, backward, optimizer, after."""
        self._phase = phase
        self._phases.append((phase, self._event))

    def existing(self, tensors: Iterable[torch.Tensor], role: str) -> None:
        """Note what is there before the run."""
        for tensor in tensors:
            for found in self._note(tensor, "", "", self._event):
                found.role = role

    def seen(self, tensor: torch.Tensor, op: str) -> None:
        """Note a tensor that was made out of sight."""
        self._note(tensor, op, self._place(), None)

    def mark(self, tensors: Iterable[torch.Tensor], role: str) -> None:
        """Say what living tensors are for."""
        for tensor in tensors:
            for part in parts(tensor) or ():
                found = self._live.get(part.untyped_storage()._cdata)
                if found is not None and found.born > 0:
                    found.role = role

    def returned(self, tensors: Iterable[torch.Tensor]) -> None:
        """Remember what the module returned."""
        for tensor in tensors:
            for part in parts(tensor) or ():
                found = self._live.get(part.untyped_storage()._cdata)
                if found is not None and found.born > 0:
                    self._results.append(found)

    def mark_saved(self) -> None:
        """What the forward pass made and has not let go of is saved for the backward pass."""
        for found in self._live.values():
            if found.phase == "forward" and not found.role:
                found.role = "saved"

    def run(self, *, results_kept: bool = False) -> Run:
        """What was recorded.

        Args:
            results_kept: as if what the module returned were held to the end of the step.
        """
        kept = {id(s) for s in self._results} if results_kept else set()
        storages = tuple(
            Storage(s.nbytes, s.born, None if id(s) in kept else s.died, s.role or "temporary",
                    s.phase, s.op, s.scope)
            for s in self._all
        )  # fmt: skip
        return Run(storages, tuple(self._phases), self._event, tuple(self._scratch))

    def called(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run one operator and note the storages of its operands and results."""
        if self._formulas.hides():
            return run_operator(func, args, kwargs)
        if func in _WRITTEN_IN_OTHERS and type(args[0]) is FakeTensor:
            with self:
                return func._op_dk(_COMPOSITE, *args, **kwargs)
        func = self._formulas.instead(self._unwatched(func, args), args)
        out = run_operator(func, args, kwargs)
        self._unwatched.done(func, out)
        self._formulas.done(func, args, out)
        _keep_block(func, args, out)
        name, scope = _called(func), self._place()
        for tensor in tensors_in((args, kwargs)) if func is not _LIFT else ():
            self._note(tensor, "outside", scope, None)
        for tensor in tensors_in(out):
            self._note(tensor, name, scope, None)
        if self._workspace is not None:
            nbytes = self._workspace(func, args, kwargs)
            if nbytes:
                self._scratch.append((self._event, name, nbytes))
        return out

    def _place(self) -> str:
        """The module path; in the backward pass, that of the forward op it belongs to."""
        node = torch._C._current_autograd_node()
        if node is not None:
            return self._forward.get(node._sequence_nr(), "")
        scope = self._scope()
        self._forward[torch._C._autograd._get_sequence_nr() - 1] = scope
        return scope

    def _note(self, tensor: torch.Tensor, op: str, scope: str, at: int | None) -> list[_Seen]:
        """The storages that hold a tensor's bytes; one that cannot be followed is remembered."""
        held = parts(tensor)
        if held is None:
            made = f"{kind_of(tensor)}, made by {op or 'the model'}"
            self.notes.setdefault(f"memory not counted: {made}")
            return []
        if len(held) > 1 and isinstance(tensor, FakeTensor):
            self.notes.setdefault(ROWS)
        return [self._see(part, op, scope, at) for part in held]

    def _see(self, tensor: torch.Tensor, op: str, scope: str, at: int | None) -> _Seen:
        storage = tensor.untyped_storage()
        key, nbytes = storage._cdata, storage.nbytes()
        found = self._live.get(key)
        if found is not None and found.nbytes == nbytes:
            return found
        if found is not None:  # resized: the old block is gone
            self._die(key)
        if at is None:
            self._event += 1
        made = _Seen(nbytes, self._event, self._phase, op, scope)
        self._live[key] = made
        self._all.append(made)
        weakref.finalize(storage, self._die, key).atexit = False
        return made

    def _die(self, key: int) -> None:
        found = self._live.pop(key, None)
        if found is not None:
            self._event += 1
            found.died = self._event


_aten = torch.ops.aten
_LIFT = _aten.lift_fresh.default  # its operand becomes its result
_COMPOSITE = torch._C.DispatchKey.CompositeExplicitAutograd
_WRITTEN_IN_OTHERS = frozenset(
    {_aten._safe_softmax.default, _aten.binary_cross_entropy_with_logits.default}
)
"""Kernels that call other operators, which hide what they make unless they are opened."""
_REDUCED = frozenset({
    _aten.mse_loss.default, _aten.smooth_l1_loss.default, _aten.soft_margin_loss.default,
    _aten.binary_cross_entropy.default,
})  # fmt: skip


def _keep_block(func: Any, args: Any, out: Any) -> None:
    """Give a fake result the block that the real one keeps, where that is larger.

    These kernels reduce, or fold, into a block that was made for what they started from; the
    result shrinks, its block does not. Found by comparing the results of all of PyTorch's
    operators, real and fake.
    """
    if func in _REDUCED:
        shape = torch.broadcast_shapes(args[0].shape, args[1].shape)
        count = math.prod(shape)
    elif func is _aten.col2im.default:
        count = args[0].numel()
    else:
        return
    storage = out.untyped_storage()
    if isinstance(out, FakeTensor) and storage.nbytes() < count * out.element_size():
        storage.resize_(count * out.element_size())


def _called(func: Any) -> str:
    schema = getattr(func, "_schema", None)
    return str(getattr(schema, "name", func)).partition("::")[2] or str(func)
