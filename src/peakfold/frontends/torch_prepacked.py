"""Weights that quantised layers keep in a kernel's own layout: objects of C++ that hold tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from peakfold.errors import ModelError


def packings(module: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    """The packed weights of a module and of all in it, and the name of the layer of each."""
    for name, child in module.named_modules():
        for value in vars(child).values():
            if isinstance(value, torch.ScriptObject) and _is_packing(value):
                yield name.removesuffix("._packed_params"), value


def unpacked(packed: Any) -> dict[str, torch.Tensor]:
    """The tensors of a packing: ``weight``, ``bias``; of a recurrent one each of its products.

    Args:
        packed: from `packings`.
    """
    found: dict[str, torch.Tensor] = {}
    for at, part in enumerate(_parts(packed)):
        made = part.unpack()
        made = (made,) if isinstance(made, torch.Tensor) else made
        for name, tensor in zip(("weight", "bias"), made, strict=False):
            if isinstance(tensor, torch.Tensor):
                found[f"{name}{at or ''}"] = tensor
    return found


def needs_run(module: torch.nn.Module) -> None:
    """Refuse a capture on tensors without values where weights are packed.

    Raises:
        ModelError: a layer has packed weights; names it.
    """
    for name, packed in packings(module):
        kind = str(packed._type().qualified_name()).rpartition(".")[2]
        raise ModelError(
            f"its weights are packed for a kernel ({kind}), which runs on real tensors alone",
            where=f"layer {name or type(module).__name__!r}",
            hint='--route run (in Python route="run") counts it',
        )


def _is_packing(value: Any) -> bool:
    return hasattr(value, "unpack") or "CellParams" in str(value._type().qualified_name())


def _parts(held: Any) -> Iterator[Any]:
    """A packing of products, or those that a recurrent one is made of."""
    if isinstance(held, list | tuple):
        for item in held:
            yield from _parts(item)
    elif isinstance(held, torch.ScriptObject):
        if hasattr(held, "unpack"):
            yield held
        else:
            yield from _parts(held.__getstate__())
