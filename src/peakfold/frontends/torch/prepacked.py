"""Weights that a module keeps packed for a kernel: what objects of TorchScript classes hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from peakfold.errors import ModelError
from peakfold.frontends.aten.values import Ref
from peakfold.frontends.torch.build import GraphBuilder


def is_prepacked(value: object) -> bool:
    """Whether a value is such an object: it can be unpacked, or tell its state."""
    return isinstance(value, torch.ScriptObject) and bool({"unpack", "__getstate__"} & _does(value))


def packings(module: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    """The packed objects of a module and of all in it, and the name of the layer of each."""
    for name, child in module.named_modules():
        for value in vars(child).values():
            if is_prepacked(value):
                yield name.removesuffix("._packed_params"), value


def packed_layer(module: torch.nn.Module) -> ModelError | None:
    """The refusal that names the first layer with packed weights, if there is one."""
    found = next(packings(module), None)
    if found is None:
        return None
    name, packed = found
    kind = str(packed._type().qualified_name()).rpartition(".")[2]
    return ModelError(
        f"its weights are packed for a kernel ({kind}), which runs on real tensors alone",
        where=f"layer {name or type(module).__name__!r}",
        hint='--route run (in Python route="run") counts it',
    )


def declare_prepacked(builder: GraphBuilder, name: str, packed: Any) -> None:
    """Add the tensors of a packed object to a graph as parameters, each storage once."""
    with _disable_current_modes():  # weights are real, whatever the run is
        found = _different(list(_tensors(packed)))
    common = ("weight", "bias") if len(found) <= 2 else ()
    names = [f"{name}.{common[at] if common else at}" for at in range(len(found))]
    builder.declare_packed(packed, [Ref(id(t), t) for t in found], names)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """Tensors of a state, packed objects inside it first (they state how biases are kept)."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, torch.ScriptObject):
        yield from _tensors(_state(value))
    elif isinstance(value, list | tuple):
        for item in sorted(value, key=lambda item: isinstance(item, torch.Tensor)):
            yield from _tensors(item)


def _state(value: Any) -> Any:
    does = _does(value)
    if "unpack" in does:
        return _as_stored(value, value.unpack())
    return value.__getstate__() if "__getstate__" in does else ()


def _as_stored(value: Any, state: Any) -> Any:
    # Linear weights in 16 bits are unpacked to 32; the only others here are quantised.
    quantized = ".quantized." in value._type().qualified_name()
    if not quantized or not isinstance(state, tuple) or not state[0].is_floating_point():
        return state
    return (state[0].half(), *state[1:])


def _does(value: Any) -> set[str]:
    return set(value._method_names())


def _different(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """One tensor of each storage; all are alive, so equal addresses are one storage."""
    return list({t.data_ptr() if t.numel() else id(t): t for t in reversed(tensors)}.values())[::-1]
