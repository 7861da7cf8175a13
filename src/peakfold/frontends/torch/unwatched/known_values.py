"""What small fake tensors hold: real bytes beside their storages.

Values belong to storages, not to tensors: views, detached copies and saved tensors need no rule,
and what is written through one view is read through all others. What does not follow from known
values is unknown, and never stale: an entry goes when something unknown is written, when the
storage changes its size, and when it dies.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from peakfold.frontends.torch.values import storage_of

INTEGERS, FLOATS = 1 << 20, 1 << 16
"""Elements up to which values are followed: of integers and bools, and of all other types."""

_CPU = torch.device("cpu")
PLAIN = (torch.Tensor, torch.nn.Buffer)
"""Types of tensors whose values are taken over; parameters change, and are not."""


@contextmanager
def plainly() -> Iterator[None]:
    """Operators run for real, whatever mode is active."""
    with _disable_current_modes(), torch.no_grad(), torch._C._DisableTorchDispatch():
        yield


def few(tensor: torch.Tensor) -> bool:
    """Whether a tensor has few enough elements for its values to be followed."""
    count = tensor.numel()
    return type(count) is int and count <= _limit(tensor.dtype)


def _limit(dtype: torch.dtype) -> int:
    return FLOATS if dtype.is_floating_point or dtype.is_complex else INTEGERS


def store_of(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """The storage of a strided fake tensor."""
    strided = isinstance(tensor, FakeTensor) and tensor.layout is torch.strided
    return storage_of(tensor) if strided else None


def key_of(tensor: torch.Tensor) -> int | None:
    """By what the values of a tensor are kept; `None` where it has no storage of its own."""
    store = store_of(tensor)
    return None if store is None else store._cdata


class Values:
    """The values of fake tensors, as far as they are known.

    Attributes:
        why: what the values of a storage rest on, by its key, where that is an assumption.
        written: storages that the step has written.
    """

    def __init__(self) -> None:
        self._real: dict[int, torch.UntypedStorage] = {}
        self._followed: set[int] = set()
        self.why: dict[int, str] = {}
        self.written: set[int] = set()

    def known(self, tensors: Sequence[torch.Tensor]) -> list[bool]:
        """Whether values of each are known; asked at every operator."""
        real = self._real
        return [
            type(t) is FakeTensor
            and t.layout is torch.strided
            and t.untyped_storage()._cdata in real
            for t in tensors
        ]

    def __contains__(self, key: object) -> bool:
        return key in self._real

    def take(
        self, fake: torch.Tensor, real: torch.Tensor, *, again: bool = False, shared: bool = False
    ) -> None:
        """Take over the values of a tensor from outside, if they are there and few.

        Args:
            fake: made in its likeness: same type, shape and strides, in as large a storage.
            real: any tensor; it is copied.
            again: what was taken before may be old.
            shared: its memory is taken, and not a copy: others write it, too.
        """
        store = store_of(fake)
        strided = real.device == _CPU and real.layout is torch.strided
        if store is None or not strided or real.is_quantized or not few(real):
            return
        held = real.untyped_storage()
        if store._cdata in self._real and not again:
            return  # it lies with others, which are known: all of it is
        if type(real) is FakeTensor or store.nbytes() > INTEGERS * 8:
            return
        if held.nbytes() == store.nbytes():
            with plainly():
                self._put(store, held if shared else held.clone())  # type: ignore[no-untyped-call]

    def of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """A tensor with its values, in the memory that its aliases share; `None` where unknown."""
        store = store_of(tensor)
        real = None if store is None else self._real.get(store._cdata)
        if store is None or real is None or tensor.is_conj() or tensor.is_neg():
            return None
        if real.nbytes() != store.nbytes() or tensor.is_quantized:
            return None
        with plainly():
            bare = torch.empty(0, dtype=tensor.dtype)
            return bare.set_(real, tensor.storage_offset(), tuple(tensor.shape), tensor.stride())

    def twin(self, tensor: torch.Tensor) -> int | None:
        """Which memory holds the values of a tensor; `None` where they are unknown."""
        real = self._real.get(key_of(tensor) or 0)
        return None if real is None else real._cdata

    def learn(
        self, fake: torch.Tensor, real: torch.Tensor, why: str = "", *, copied: bool = False
    ) -> None:
        """Lay the values of a real result under a fake one.

        Args:
            fake: with a storage that is none of the operands'.
            real: same shape and type; its storage is taken over where it lies alike.
            why: the assumption that they rest on.
            copied: the real one shares its memory.
        """
        store = store_of(fake)
        if store is None or store.nbytes() > INTEGERS * 8:
            return
        with plainly():
            held = self._real.get(store._cdata)  # another result lies in the same storage
            own = real.untyped_storage()
            place = (real.storage_offset(), real.stride(), own.nbytes())
            alike = place == (fake.storage_offset(), fake.stride(), store.nbytes())
            if held is None and alike and not copied:
                held = own
            else:
                if held is None:
                    held = torch.zeros(store.nbytes(), dtype=torch.uint8).untyped_storage()
                laid = torch.empty(0, dtype=fake.dtype)
                laid.set_(held, fake.storage_offset(), tuple(fake.shape), fake.stride())
                laid.copy_(real)
        self._put(store, held)
        if why:
            self.why[store._cdata] = why

    def room(self, tensor: torch.Tensor) -> bool:
        """Make values for a whole tensor that is about to be overwritten; whether that can be."""
        store = store_of(tensor)
        if store is None or not few(tensor) or not tensor.is_contiguous():
            return False
        if store.nbytes() != tensor.numel() * tensor.element_size():
            return False
        with plainly():
            self._put(store, torch.zeros(store.nbytes(), dtype=torch.uint8).untyped_storage())
        return True

    def wrote(self, tensor: torch.Tensor, why: str) -> None:
        """Known values were written into a tensor."""
        store = store_of(tensor)
        if store is not None:
            self.written.add(store._cdata)
            if why:
                self.why[store._cdata] = why

    def forget(self, tensor: torch.Tensor) -> None:
        """Something unknown was written into a tensor."""
        store = store_of(tensor)
        if store is not None:
            self._follow(store)
            self.written.add(store._cdata)
            self._drop(store._cdata)

    def _put(self, store: torch.UntypedStorage, real: torch.UntypedStorage) -> None:
        self._follow(store)
        self._real[store._cdata] = real

    def _follow(self, store: torch.UntypedStorage) -> None:
        key = store._cdata
        if key not in self._followed:
            self._followed.add(key)
            weakref.finalize(store, self._died, key).atexit = False

    def _drop(self, key: int) -> None:
        self._real.pop(key, None)
        self.why.pop(key, None)

    def _died(self, key: int) -> None:
        self._followed.discard(key)
        self.written.discard(key)
        self._drop(key)
