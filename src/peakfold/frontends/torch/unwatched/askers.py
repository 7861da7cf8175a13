"""Answers of a plain run: outside torch nobody can tell a fake tensor from one with memory.

Library code asks whether it is traced, and takes another branch: masks are made that a plain run
skips, heads are repeated that it does not repeat. During a step those questions are answered as in
a plain run, and code that then asks for values gets them, or is refused (`torch_known`).
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import _guards, _subclasses
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn import functional

from peakfold.frontends.torch.unwatched.known_values import plainly, store_of
from peakfold.frontends.torch.unwatched.packed_sequences import pad_packed

_plain_copy: Any = torch.Tensor.__deepcopy__
_WITHIN = frozenset({"torch", "functorch", "torchgen", "peakfold"})
"""Packages that have to know: torch itself, and who makes the tensors."""


class _Nothing:
    """No tensor is one of these, and no mode."""


def _no(*_: Any, **__: Any) -> bool:
    return False


def _none(*_: Any, **__: Any) -> None:
    return None


def _answers() -> Mapping[int, tuple[Any, Any]]:
    """What is asked, by identity, and what stands for it; the first is kept so that it lives."""
    asked = {
        FakeTensor: _Nothing,
        FakeTensorMode: _Nothing,
        fake_tensor.is_fake: _no,
        _guards.detect_fake_mode: _none,
        _guards.active_fake_mode: _none,
    }
    return {id(thing): (thing, answer) for thing, answer in asked.items()}


@contextmanager
def answered_as_plain() -> Iterator[None]:
    """Who asks whether a tensor is fake hears no.

    torch asks by the names of the modules that define them, so those stay. `torch._subclasses`
    is where others read them, and what they imported by name lies in their own globals. These are
    read from the modules' dictionaries: a lazy module would load at any other look.
    """
    answers = _answers()
    with ExitStack() as stack:
        spaces = [vars(_subclasses)]
        for name, module in list(sys.modules.items()):
            space = getattr(module, "__dict__", None) if module is not None else None
            if isinstance(space, dict) and name.partition(".")[0] not in _WITHIN:
                spaces.append(space)
        for space in spaces:
            if not answers.keys().isdisjoint(map(id, list(space.values()))):
                found = {
                    key: answers[id(value)][1]
                    for key, value in list(space.items())
                    if id(value) in answers
                }
                stack.callback(space.update, {key: space[key] for key in found})
                space.update(found)
        stack.enter_context(patch.object(torch.UntypedStorage, "data_ptr", _address_of))
        for name, method in _METHODS.items():
            stack.enter_context(patch.object(FakeTensor, name, method, create=True))
        stack.enter_context(patch.object(functional, "l1_loss", _weighted))
        stack.enter_context(
            patch.object(torch._VF, "_pad_packed_sequence", pad_packed, create=True)
        )
        yield


_l1_loss: Any = functional.l1_loss


def _weighted(*args: Any, **kwargs: Any) -> Any:
    """With weights, a loss that torch forgets them of where a mode sees its functions."""
    if kwargs.get("weight") is None:
        return _l1_loss(*args, **kwargs)
    with patch.object(functional, "has_torch_function_variadic", _no):
        return _l1_loss(*args, **kwargs)


def _numpy(tensor: Any, **kwargs: Any) -> Any:
    """The array of a tensor whose values are known: it shares its memory, as a plain one's does."""
    values = getattr(tensor.fake_mode, "values", None)
    held = None if values is None else values.of(tensor)
    if held is None:
        raise fake_tensor.DataDependentOutputException(torch.ops.aten._local_scalar_dense.default)
    with plainly():
        return held.numpy(**kwargs)


def _deep_copy(tensor: Any, memo: dict[Any, Any]) -> Any:
    """As torch copies a plain tensor: its whole storage, once for all the tensors that lie in it.

    torch's own would copy the mode that a fake tensor belongs to.
    """
    if id(tensor) in memo:
        return memo[id(tensor)]
    if not tensor.is_leaf:
        return _plain_copy(tensor, memo)  # says why it cannot be copied
    stored, storages = tensor.untyped_storage(), memo.setdefault("torch", {})
    if stored._cdata not in storages:
        with torch.no_grad():
            count = stored.nbytes() // tensor.element_size()
            storages[stored._cdata] = tensor.detach().as_strided((count,), (1,), 0).clone()
    room = storages[stored._cdata].untyped_storage()
    with plainly():
        bare = torch.empty(0, dtype=tensor.dtype, device="meta")
        bare.set_(room, tensor.storage_offset(), tensor.shape, tensor.stride())
    made = FakeTensor(tensor.fake_mode, bare, tensor.device)
    memo[id(tensor)] = made.requires_grad_(tensor.requires_grad)
    own = vars(made).keys()
    for name, value in list(vars(tensor).items()):
        if name not in own:
            setattr(made, name, copy.deepcopy(value, memo))
    if tensor.grad is not None:
        made.grad = copy.deepcopy(tensor.grad, memo)
    return made


_REAL_ADDRESS = torch.UntypedStorage.data_ptr


def _address_of(store: torch.UntypedStorage) -> int:
    """An address for a storage without memory, far from all others: who compares is told right."""
    return int(_REAL_ADDRESS(store)) if store.device.type != "meta" else store._cdata << 16


def _address(tensor: torch.Tensor) -> int:
    store = store_of(tensor)
    held = 0 if store is None else store._cdata << 16
    return held + int(tensor.storage_offset()) * tensor.element_size()


_METHODS = {"numpy": _numpy, "data_ptr": _address, "__deepcopy__": _deep_copy}
"""What a fake tensor answers as a plain one does."""
