"""A graphics card that is not there: real tensors on the host, counted as a card would.

Every storage that appears while the card is watched takes a block of a caching allocator and
gives it back when the storage dies. Matrix products keep a workspace a thread, as cuBLAS does.
Nobody watches a real card's operators, so autograd adds in place where it does unwatched.
"""

from __future__ import annotations

import weakref

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves

from peakfold.analysis.cuda.caching_allocator import CachingAllocator
from peakfold.analysis.cuda.footprint import Bytes
from peakfold.frontends.torch.dispatch_modes import Watching
from peakfold.frontends.torch.training.gradient_accumulation import Unwatched

WORKSPACE = 8_519_680
PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")


class Card(Watching):
    device = "cpu"

    def __init__(self, outside: int = 500 << 20) -> None:
        super().__init__()
        self.memory = CachingAllocator()
        self.on = False  # nothing is on the card before a module is moved there
        self.calls: list[str] = []
        self._outside = outside
        self._names: dict[int, int] = {}
        self._next = 0
        self._workspaces: dict[bool, int] = {}
        self._highest = Bytes(0, 0)
        self._unwatched = Unwatched()

    def called(self, func, args, kwargs):
        self.see((args, kwargs))
        func = self._unwatched(func, args)
        out = func(*args, **kwargs)
        self._unwatched.done(func, out)
        real = self.see(out)
        thread = torch._C._current_autograd_node() is not None
        if real and func._schema.name in PRODUCTS and thread not in self._workspaces:
            self._workspaces[thread] = self._take(WORKSPACE)
        return out

    def see(self, tree) -> bool:
        """Blocks for the storages in a tree; whether any is of a real tensor."""
        real = False
        for leaf in tree_leaves(tree) if self.on else ():
            if not isinstance(leaf, torch.Tensor) or isinstance(leaf, FakeTensor) or leaf.is_meta:
                continue
            real = True
            storage = leaf.untyped_storage()
            if storage._cdata not in self._names:
                self._names[storage._cdata] = self._take(storage.nbytes())
                weakref.finalize(storage, self._drop, storage._cdata).atexit = False
        return real

    def _take(self, nbytes: int) -> int:
        self._next += 1
        assert self.memory.allocate(self._next, nbytes)
        self._highest |= self.now()
        return self._next

    def _drop(self, key: int) -> None:
        self.memory.free(self._names.pop(key))

    def synchronize(self) -> None:
        self.calls.append("synchronize")

    def empty_cache(self) -> None:
        self.calls.append("empty_cache")
        self.memory._release_cached()

    def forget_libraries(self) -> None:
        for name in self._workspaces.values():
            self.memory.free(name)
        self._workspaces.clear()

    def reset_peak(self) -> None:
        self.calls.append("reset_peak")
        self._highest = self.now()

    def now(self) -> Bytes:
        return Bytes(self.memory.allocated, self.memory.reserved)

    def peak(self) -> Bytes:
        self.calls.append("peak")
        return self._highest

    def outside(self) -> int:
        return self._outside


class Carried(torch.nn.Module):
    """A module whose parameters and buffers are put on a card when it is moved there."""

    card: Card | None = None

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def to(self, device):
        assert Carried.card is not None
        Carried.card.on = True
        Carried.card.see(list(self.parameters()))
        Carried.card.see(list(self.buffers()))
        return self

    def forward(self, *args, **kwargs):
        return self.inner(*args, **kwargs)


def without_dropout(made):
    """A model whose masks do not differ by device: the host's kernels stand in for the card's."""
    module, args, kwargs = made
    for child in module.modules():
        if isinstance(child, torch.nn.Dropout):
            child.p = 0.0
    return module.train(), args, kwargs
