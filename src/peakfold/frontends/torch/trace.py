"""Capture by running: every ATen operator a forward pass really calls, in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from peakfold.frontends.aten.values import Ref
from peakfold.frontends.torch.build import GraphBuilder
from peakfold.frontends.torch.dispatch_modes import Watching, mapped
from peakfold.frontends.torch.objects import tensors_of
from peakfold.frontends.torch.prepacked import declare_prepacked, is_prepacked, packings
from peakfold.frontends.torch.sparse import has_parts, parts, run_operator
from peakfold.ir import Role


class Recorder(Watching):
    """Adds every operator that is dispatched under it to a builder.

    Args:
        builder: where the calls go.
        scope: path of the running module, asked at every call.
        prefix: what operator names begin with.
    """

    def __init__(self, builder: GraphBuilder, scope: Callable[[], str], prefix: str = "") -> None:
        super().__init__()
        self._builder = builder
        self._scope = scope
        self._prefix = prefix
        self._count: dict[str, int] = {}
        self._sparse: dict[Any, tuple[torch.Tensor, list[Ref]]] = {}
        self.keys: dict[int, Any] = {}

    def called(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run one operator and add it to the graph."""
        given = mapped((args, kwargs), self._given)
        out = run_operator(func, args, kwargs)
        results = [ref for leaf in _leaves(out) for ref in self._made(leaf)]
        self._builder.call(self._name(func), func, given[0], given[1], results, self._scope())
        return out

    def _name(self, func: Any) -> str:
        stem = str(getattr(func, "_schema", func).name).partition("::")[2] or str(func)
        at = self._count.get(stem, 0)
        self._count[stem] = at + 1
        name = f"{stem}_{at}" if at else stem
        return f"{self._prefix}{name}"

    def refs(self, tensor: torch.Tensor) -> list[Ref]:
        """The values of a tensor: itself, or those that hold a sparse one's bytes."""
        if not has_parts(tensor):
            return [Ref(self.keys.get(id(tensor), id(tensor)), tensor)]
        held = parts(tensor) or ()
        key = (id(tensor), *(part.untyped_storage()._cdata for part in held))
        if key not in self._sparse:  # new, or written: its values lie elsewhere then
            self._sparse[key] = tensor, [Ref((key, at), part) for at, part in enumerate(held)]
        return self._sparse[key][1]

    def _given(self, leaf: Any) -> Any:
        if is_prepacked(leaf) and not self._builder.knows_packed(leaf):
            # Of a scripted module, or of an attribute of any kind.
            declare_prepacked(self._builder, self._scope() or "packed", leaf)
        if not isinstance(leaf, torch.Tensor):
            return leaf
        refs = self.refs(leaf)
        for ref in refs:
            if not self._builder.knows(ref.key):
                # A tensor nobody declared: a constant that the program carries.
                self._builder.declare(ref, "constant", Role.STATE)
        return refs if has_parts(leaf) else refs[0]

    def _made(self, leaf: Any) -> Sequence[Ref | None]:
        return self.refs(leaf) if isinstance(leaf, torch.Tensor) else (None,)


def _leaves(out: Any) -> Sequence[Any]:
    return list(out) if isinstance(out, list | tuple) else [out]


def declare_module(builder: GraphBuilder, module: torch.nn.Module) -> None:
    """Add a module's parameters and buffers, each storage once."""
    for name, tensor in module.named_parameters():
        builder.declare(Ref(id(tensor), tensor), name, Role.PARAMETER, tensor.requires_grad)
    for name, buffer in module.named_buffers():
        builder.declare(Ref(id(buffer), buffer), name, Role.STATE)
    for name, packed in packings(module):
        declare_prepacked(builder, name, packed)


def record(
    builder: GraphBuilder,
    recorder: Recorder,
    module: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    names: Sequence[str],
) -> list[Ref]:
    """Run a module under a recorder.

    Args:
        builder: where its graph grows.
        recorder: adds the calls to it.
        module: already a copy of the user's.
        args: positional arguments.
        kwargs: keyword arguments.
        names: what the tensors among the arguments are called, in order.

    Returns:
        The tensors of the result.
    """
    declare_module(builder, module)
    for name, leaf in zip(names, tensors_of((args, kwargs)), strict=True):
        builder.declare(Ref(id(leaf), leaf), name, Role.INPUT)
    with recorder:
        out = module(*args, **kwargs)
    return [Ref(id(leaf), leaf) for leaf in tensors_of(out)]
