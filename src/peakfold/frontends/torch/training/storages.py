"""Storages followed through a run: born when an operator returns them, dead with the last tensor.

A dispatch mode sees every operator that really runs, those of autograd and of optimizers
included. It works alike for real tensors and for fake ones, which have no memory.
"""

from __future__ import annotations

import functools
import math
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from peakfold.frontends.torch.dispatch_modes import Watching, tensors_in
from peakfold.frontends.torch.sparse import ROWS, kind_of, parts, run_operator
from peakfold.frontends.torch.training.derivative_formulas import FORMULAS, Formulas
from peakfold.frontends.torch.training.gradient_accumulation import FOLLOWED, Unwatched
from peakfold.frontends.torch.training.operand_casts import assumed
from peakfold.ir.recording import Recording
from peakfold.ir.run import Run

Workspace = Callable[[Any, Any, Any], int]


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
        self,
        scope: Callable[[], str] = lambda: "",
        workspace: Workspace | None = None,
        *,
        cuda: bool = False,
    ) -> None:
        super().__init__()
        self._unwatched = Unwatched()
        self._scope = scope
        self._workspace = workspace
        self._recording = Recording()
        self._forward: dict[int, str] = {}
        self.notes: dict[str, None] = {}
        self._formulas = Formulas(self.notes.setdefault, cuda=cuda)

    def begin(self, phase: str) -> None:
        """Enter a phase: forward, backward, optimizer, after."""
        self._recording.begin(phase)

    def existing(self, tensors: Iterable[torch.Tensor], role: str) -> None:
        """Note what is there before the run."""
        for tensor in tensors:
            for part in self._parts(tensor, ""):
                storage = part.untyped_storage()
                known = self._recording.size(storage._cdata) == storage.nbytes()
                self._recording.existing(storage._cdata, storage.nbytes(), role)
                if not known:
                    self._until_death(storage)

    def seen(self, tensor: torch.Tensor, op: str) -> None:
        """Note a tensor that was made out of sight."""
        self._note(tensor, op, self._place())

    def mark(self, tensors: Iterable[torch.Tensor], role: str) -> None:
        """Say what living tensors are for."""
        self._recording.mark(_keys(tensors), role)

    def returned(self, tensors: Iterable[torch.Tensor]) -> None:
        """Remember what the module returned."""
        self._recording.returned(_keys(tensors))

    def mark_saved(self) -> None:
        """What the forward pass made and has not let go of is saved for the backward pass."""
        self._recording.mark_saved()

    def run(self, *, results_kept: bool = False) -> Run:
        """What was recorded.

        Args:
            results_kept: as if what the module returned were held to the end of the step.
        """
        return self._recording.run(results_kept=results_kept)

    def called(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run one operator and note the storages of its operands and results."""
        if self._formulas.hides():
            return run_operator(func, args, kwargs)
        if func in _WRITTEN_IN_OTHERS:
            with self:
                return func._op_dk(_COMPOSITE, *args, **kwargs)
        if _ordinary(func) and torch._C._current_autograd_node() is None:
            out = run_operator(func, args, kwargs)
        else:
            func = self._formulas.instead(self._unwatched(func, args), args)
            out = run_operator(func, args, kwargs)
            self._unwatched.done(func, out)
            self._formulas.done(func, args, out)
            _keep_block(func, args, out)
        name, scope = _called(func), self._place()
        for tensor in tensors_in((args, kwargs)) if func is not _LIFT else ():
            self._note(tensor, "outside", scope)
        for tensor in tensors_in(out):
            self._note(tensor, name, scope)
        if self._workspace is not None:
            nbytes = self._workspace(func, args, kwargs)
            if nbytes:
                self._recording.scratch(name, nbytes)
                if said := assumed(func, args):
                    self.notes.setdefault(said)
        return out

    def _place(self) -> str:
        """The module path; in the backward pass, that of the forward op it belongs to."""
        node = torch._C._current_autograd_node()
        if node is not None:
            return self._forward.get(node._sequence_nr(), "")
        scope = self._scope()
        self._forward[torch._C._autograd._get_sequence_nr() - 1] = scope
        return scope

    def _note(self, tensor: torch.Tensor, op: str, scope: str) -> None:
        """A tensor is there: storages of it that nobody knows are born now."""
        for part in self._parts(tensor, op):
            storage = part.untyped_storage()
            if self._recording.size(storage._cdata) != storage.nbytes():  # new, or resized
                self._recording.born(storage._cdata, storage.nbytes(), op=op, scope=scope)
                self._until_death(storage)

    def _parts(self, tensor: torch.Tensor, op: str) -> Sequence[torch.Tensor]:
        """The tensors that hold a tensor's bytes; one that cannot be followed is remembered."""
        held = parts(tensor)
        if held is None:
            made = f"{kind_of(tensor)}, made by {op or 'the model'}"
            self.notes.setdefault(f"memory not counted: {made}")
            return ()
        if len(held) > 1 and isinstance(tensor, FakeTensor):
            self.notes.setdefault(ROWS)
        return held

    def _until_death(self, storage: torch.UntypedStorage) -> None:
        weakref.finalize(storage, self._recording.died, storage._cdata).atexit = False


def _keys(tensors: Iterable[torch.Tensor]) -> list[int]:
    """The names of the storages that hold tensors."""
    held = (part for tensor in tensors for part in parts(tensor) or ())
    return [part.untyped_storage()._cdata for part in held]


_aten = torch.ops.aten
_LIFT = _aten.lift_fresh.default  # its operand becomes its result
_COMPOSITE = torch._C.DispatchKey.CompositeExplicitAutograd
_WRITTEN_IN_OTHERS = frozenset(
    {_aten._safe_softmax.default, _aten.binary_cross_entropy_with_logits.default}
)
"""Kernels that call other operators, which hide what they make unless they are opened."""
_REDUCED = frozenset(
    {
        _aten.mse_loss.default,
        _aten.smooth_l1_loss.default,
        _aten.soft_margin_loss.default,
        _aten.binary_cross_entropy.default,
    }
)


_FOLDED = _aten.col2im.default


@functools.cache
def _ordinary(func: Any) -> bool:
    """Whether an operator of the forward pass is run as it is, and nothing follows from it."""
    return func not in FOLLOWED | FORMULAS.keys() | _REDUCED | {_FOLDED}


def _keep_block(func: Any, args: Any, out: Any) -> None:
    """Give a fake result the block that the real one keeps, where that is larger.

    These kernels reduce, or fold, into a block that was made for what they started from; the
    result shrinks, its block does not. Found by comparing the results of all of PyTorch's
    operators, real and fake.
    """
    if func in _REDUCED:
        shape = torch.broadcast_shapes(args[0].shape, args[1].shape)
        count = math.prod(shape)
    elif func is _FOLDED:
        count = args[0].numel()
    else:
        return
    storage = out.untyped_storage()
    if isinstance(out, FakeTensor) and storage.nbytes() < count * out.element_size():
        storage.resize_(count * out.element_size())


@functools.cache
def _called(func: Any) -> str:
    schema = getattr(func, "_schema", None)
    return str(getattr(schema, "name", func)).partition("::")[2] or str(func)
