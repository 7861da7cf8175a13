"""The builder of graphs that are captured from torch's own tensors and operators."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from peakfold.frontends.aten.arguments import Arguments
from peakfold.frontends.aten.build import CallBuilder
from peakfold.frontends.aten.schema import Formal, Signature, unnamed
from peakfold.frontends.aten.values import Place
from peakfold.frontends.torch.sparse import kind_of
from peakfold.frontends.torch.values import attribute, place_of, tensor_of
from peakfold.ir import Role, Tensor


class GraphBuilder(CallBuilder):
    """Grows a graph call by call; tensors are torch's, fake or real.

    Args:
        changeable: roles of static tensors that the program may write in place.
    """

    def place_of(self, tensor: Any) -> Place:
        """Where a tensor lies."""
        return place_of(tensor)

    def tensor_of(
        self, name: str, tensor: Any, role: Role = Role.ACTIVATION, *, view: bool = False
    ) -> Tensor:
        """The IR tensor; `view` when it lies in another tensor's bytes."""
        return tensor_of(name, tensor, role, view=view)

    def odd_layout(self, tensor: Any) -> str:
        """What to call the layout of a tensor without strides; empty for one that has them."""
        return "" if tensor.layout is torch.strided else kind_of(tensor)

    def signature_of(self, func: Any, args: Sequence[Any]) -> Signature:
        """The schema of an operator; one of a higher order has none."""
        if not hasattr(func, "_schema"):
            return unnamed(str(getattr(func, "_name", func)), len(args))
        return _signature(func)

    def arguments(self) -> Arguments:
        """Empty arguments, which know what values are."""
        return Arguments(attribute, lambda value: isinstance(value, torch.ScriptObject))


@cache  # read once: torch makes its description anew each time
def _signature(func: Any) -> Signature:
    schema = func._schema
    # `transpose_` and its like change what a tensor says of its storage, and no byte of it.
    only_metadata = torch.Tag.inplace_view in func.tags
    found = []
    for formal in schema.arguments:
        alias, optional = formal.alias_info, formal.has_default_value()
        written = alias is not None and alias.is_write and not only_metadata
        default = formal.default_value if optional else None
        found.append(
            Formal(
                formal.name,
                not formal.kwarg_only,
                optional,
                default,
                written,
                alias is not None and not written,
            )
        )
    domain, _, operator = schema.name.partition("::")
    marks = tuple(
        "." if one.alias_info is None else "!" if one.alias_info.is_write else "@"
        for one in schema.returns
    )
    return Signature(domain, operator, tuple(found), marks)
