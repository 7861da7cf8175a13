"""Copies of a model without its memory: the structure is copied, tensors become fake.

The copy is what is captured, so whatever a forward pass does to a module (statistics, caches,
attributes, registered hooks) happens to the copy and never to the user's model.
"""

from __future__ import annotations

import copy
import functools
import logging
import random
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import numpy
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves, tree_map

from peakfold.errors import ModelError
from peakfold.frontends.torch.autocast import regions_of_any_device
from peakfold.frontends.torch.dispatch_modes import Replacing
from peakfold.frontends.torch.grouped_products import grouped_products
from peakfold.frontends.torch.objects import changed, closed, is_leaf, is_object, opened, tensors_of
from peakfold.frontends.torch.sparse import fake_sparse, has_parts
from peakfold.frontends.torch.unwatched.following import FollowingMode

_SMALL = 1 << 16
"""Elements up to which a plain tensor attribute keeps its values (masks, index tables)."""

_CPU = torch.device("cpu")


def fake_mode() -> FakeTensorMode:
    """A mode of its own for one capture."""
    return FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)


Stores = dict[int, torch.UntypedStorage]


def fake_like(tensor: torch.Tensor, mode: FakeTensorMode, stores: Stores) -> torch.Tensor:
    """A fake tensor on the CPU with the same type, shape and strides, in as large a storage.

    On the CPU whatever the device was: fake tensors of another device need its runtime, and a
    missing CUDA runtime ends the process.

    Args:
        tensor: any.
        mode: what it belongs to.
        stores: storages that were made so far, by those they stand for: what lies in one storage
            lies in one again.
    """
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer, FakeTensor):
        return mode.from_tensor(tensor)
    if has_parts(tensor):
        return fake_sparse(tensor, mode)
    if tensor.layout is not torch.strided or tensor.is_quantized:
        return mode.from_tensor(tensor)
    made: torch.Tensor = FakeTensor(mode, _bare(tensor, stores), _CPU)
    if isinstance(tensor, torch.nn.Parameter):
        made._is_param = True  # as its constructor does to a copy
        return made.requires_grad_(tensor.requires_grad)
    if isinstance(mode, FollowingMode):
        mode.values.take(made, tensor)
    return made


def _bare(tensor: torch.Tensor, stores: Stores) -> torch.Tensor:
    """A meta tensor where the other lies: a slice of a cache holds the whole of it."""
    shape, stride = tuple(tensor.shape), tuple(tensor.stride())
    held = tensor.untyped_storage()
    if not all(type(n) is int for n in (*shape, *stride)) or held.nbytes() == 0:
        return torch.empty_strided(shape, stride, dtype=tensor.dtype, device="meta")
    if held._cdata not in stores:
        room = torch.empty(held.nbytes(), dtype=torch.uint8, device="meta")
        stores[held._cdata] = room.untyped_storage()
    bare = torch.empty(0, dtype=tensor.dtype, device="meta")
    return bare.set_(stores[held._cdata], tensor.storage_offset(), shape, stride)


def fake_module(module: torch.nn.Module, mode: FakeTensorMode) -> torch.nn.Module:
    """A copy of a module with fake tensors; shared tensors and modules stay shared.

    Raises:
        ModelError: something in the module cannot be copied.
    """
    memo: dict[int, Any] = {}
    kept: list[torch.Tensor] = []
    stores: Stores = {}
    for tensor, registered in _tensors(module):
        if id(tensor) in memo:
            continue
        small = tensor.device.type == "cpu" and tensor.numel() <= _SMALL and tensor.is_leaf
        if registered or not small or isinstance(tensor, FakeTensor):
            memo[id(tensor)] = fake_like(tensor, mode, stores)
            kept.append(tensor)
    return _copied(module, memo)


def tensors_only(module: torch.nn.Module) -> torch.nn.Module:
    """Let a copied module return tensors where it returns objects that export knows nothing of.

    A key-value cache, for instance: the tensors it holds are results like any other.
    """
    plain = module.forward

    @functools.wraps(plain)
    def forward(*args: Any, **kwargs: Any) -> Any:
        return tree_map(_opened, plain(*args, **kwargs))

    if not isinstance(module, torch.jit.ScriptModule):
        module.forward = forward
    return module


def opened_for(module: torch.nn.Module, tree: tuple[Any, Any]) -> tuple[Any, Any]:
    """Arguments that export takes: in place of each object a dict of the tensors it holds.

    The copied module gets its objects back, with the tensors that export gives, at each call.
    """
    if not any(is_object(leaf) for leaf in tree_leaves(tree, is_leaf=is_leaf)):
        return tree
    plain = module.forward

    def restored(leaf: Any, given: Any) -> Any:
        return closed(leaf, given) if is_object(leaf) else given

    @functools.wraps(plain)
    def forward(*args: Any, **kwargs: Any) -> Any:
        back, named = tree_map(restored, tree, (args, kwargs), is_leaf=is_leaf)
        return plain(*back, **named)

    module.forward = forward
    made: tuple[Any, Any] = tree_map(
        lambda leaf: opened(leaf) if is_object(leaf) else leaf, tree, is_leaf=is_leaf
    )
    return made


def _opened(leaf: Any) -> Any:
    if leaf is None or isinstance(leaf, torch.Tensor | int | float | str | torch.SymInt):
        return leaf
    return tensors_of(leaf)


def real_copy(module: torch.nn.Module) -> torch.nn.Module:
    """A copy of a module with its values, to run it for real.

    Raises:
        ModelError: it cannot be copied, or has no values (meta, fake).
    """
    memo: dict[int, Any] = {}
    for tensor, _ in _tensors(module):
        # A weight that a hook computes, as old weight norm does; a layout deepcopy refuses.
        if not tensor.is_leaf or (has_parts(tensor) and tensor.layout is not torch.sparse_coo):
            memo[id(tensor)] = tensor.detach().clone()
        if tensor.device.type == "meta" or isinstance(tensor, FakeTensor):
            raise ModelError(
                "its tensors have no values, so it cannot be run",
                hint='capture it with route="export" or route="trace"',
            )
    return _copied(module, memo)


def _copied(module: torch.nn.Module, memo: dict[int, Any]) -> torch.nn.Module:
    try:
        return copy.deepcopy(module, memo)
    except Exception as error:  # copying runs the user's own code
        raise ModelError(
            f"the module cannot be copied: {type(error).__name__}: {error}",
            where=type(module).__name__,
            hint="peakfold captures a copy, so that the model itself is left as it is",
        ) from None


def _tensors(module: torch.nn.Module) -> Iterator[tuple[torch.Tensor, bool]]:
    """Every tensor a module holds, and whether it is registered."""
    for name, child in module.named_modules():
        for value in (*child._parameters.values(), *child._buffers.values()):
            if is_lazy(value):
                raise ModelError(
                    "its parameters have no shape before its first run",
                    where=f"module {name or type(child).__name__!r}",
                    hint="run the lazy module once on an example, then give it",
                )
            if value is not None:
                yield value, True
    for child in module.modules():
        for name, value in vars(child).items():
            if name not in _REGISTERED:
                for tensor in tensors_of(value, modules=False):
                    yield tensor, False


_REGISTERED = frozenset({"_parameters", "_buffers", "_modules"})


def fake_tree(tree: Any, mode: FakeTensorMode) -> Any:
    """Arguments with every tensor fake, in copies of their objects; one given twice stays one.

    Raises:
        ModelError: an object cannot be copied; names the argument and its class.
    """
    stores: Stores = {}
    return changed(tree, lambda tensor: _as_given(fake_like(tensor, mode, stores), tensor))


def real_tree(tree: Any) -> Any:
    """Arguments with every tensor copied, likewise."""
    return changed(tree, lambda tensor: _as_given(_clone(tensor), tensor))


def _as_given(made: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """An input that somebody may differentiate by."""
    return made.requires_grad_() if tensor.requires_grad and not made.requires_grad else made


def _clone(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides, an expanded tensor's among them."""
    if tensor.device.type == "meta" or isinstance(tensor, FakeTensor):
        raise ModelError(
            "an input has no values, so the module cannot be run on it",
            hint='capture it with route="export" or route="trace"',
        )
    tensor = tensor.detach()
    if (
        type(tensor) is not torch.Tensor
        or tensor.layout is not torch.strided
        or (tensor.is_quantized or not tensor.numel())
    ):
        return tensor.clone()
    count = 1 + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    row = tensor.as_strided((count,), (1,)).clone()
    return row.as_strided(tensor.shape, tensor.stride(), 0)


_MOVES = frozenset({torch.Tensor.cuda, torch.Tensor.xpu, torch.Tensor.to})
_ELSEWHERE = ("cuda", "xpu", "mps", "hpu")


class OnCpu(Replacing):
    """Sends every request for another device to the CPU: a capture is free of devices.

    Args:
        named: more functions that a subclass wants to see.
        home: where tensors are made in place of another device; those that exist stay where
            they are.
    """

    def __init__(
        self, named: frozenset[Any] = frozenset(), home: torch.device | str = _CPU
    ) -> None:
        super().__init__(_MOVES | named)
        self._home = torch.device(home)

    def replaced(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run it with devices of a machine without any."""
        if func in (torch.Tensor.cuda, torch.Tensor.xpu):
            return args[0]
        home = args[0].device if func is torch.Tensor.to else self._home
        if func is torch.Tensor.to and len(args) > 1:
            args = (args[0], _here(args[1], home), *args[2:])
        if "device" in kwargs:
            kwargs = {**kwargs, "device": _here(kwargs["device"], home)}
        return func(*args, **kwargs)


def _here(device: Any, home: torch.device) -> Any:
    if isinstance(device, str) and device.split(":")[0] in _ELSEWHERE:
        return home
    if isinstance(device, torch.device) and device.type in _ELSEWHERE:
        return home
    return device


@contextmanager
def same_randomness() -> Iterator[None]:
    """The random generators of torch, numpy and Python are afterwards as they were."""
    python_state, numpy_state = random.getstate(), numpy.random.get_state()
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            random.setstate(python_state)
            numpy.random.set_state(numpy_state)


@contextmanager
def undisturbed(
    *,
    on_cpu: bool = True,
    functions: AbstractContextManager[Any] | None = None,
    gradients: bool = False,
) -> Iterator[None]:
    """Process-wide switches as a capture needs them, put back afterwards.

    The fused inference path of attention modules is off (its arithmetic is the same, its
    operators are not), random generators are put back, gradients are recorded where asked for.
    """
    fast, quiet = torch.backends.mha.get_fastpath_enabled(), logging.root.manager.disable
    with ExitStack() as stack:
        stack.enter_context(same_randomness())
        stack.enter_context(torch.set_grad_enabled(gradients))
        if on_cpu:
            stack.enter_context(functions or OnCpu())
            stack.enter_context(regions_of_any_device())
            stack.enter_context(grouped_products())
        torch.backends.mha.set_fastpath_enabled(False)
        logging.disable(logging.CRITICAL)  # export logs what the error says again
        try:
            yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)
            logging.disable(quiet)
