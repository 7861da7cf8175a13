"""Kernel scratch of an op in a graph, from the target's table.

Tables name operators as a runtime's file format does; an op knows its kind. Where several
operators share a kind and the table says different things of them, an attribute decides, or else
the scratch is not known.
"""

from __future__ import annotations

from functools import cache

from peakfold.ir import Tensor
from peakfold.ops.spec import Context, concrete
from peakfold.ops.tflite.names import BUILTIN_KINDS, CUSTOM_KINDS
from peakfold.target import Target
from peakfold.target.formula import Operand
from peakfold.target.scratch import load_scratch
from peakfold.units import round_up


def table_workspace(ctx: Context, target: Target) -> int | None:
    """Bytes of scratch, every buffer padded to the target's alignment; `None` = not known.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> from peakfold.ops import context
        >>> from peakfold.target import load_target
        >>> g = parse_graph("peakfold-graph 1\\ninput x: int8[4]\\n"
        ...                 "y: int8[4] = relu(x)\\noutput y")
        >>> table_workspace(context(g.ops[0], g.by_name), load_target("tflm"))
        0
        >>> table_workspace(context(g.ops[0], g.by_name), load_target("generic")) is None
        True
    """
    table = load_scratch(target.name)
    if not table.rules:
        return None
    tensors = (*ctx.inputs, *ctx.outputs)
    if any(tensor is not None and operand(tensor) is None for tensor in tensors):
        return None
    operands = [operand(tensor) for tensor in ctx.inputs]
    results = [operand(tensor) for tensor in ctx.outputs]
    made = [result for result in results if result is not None]
    found = {
        None if sizes is None else sum(round_up(size, target.align) for size in sizes)
        for sizes in (table.sizes(name, operands, made) for name in _operators(ctx))
    }
    return found.pop() if len(found) == 1 else None


def operand(tensor: Tensor | None) -> Operand | None:
    """A tensor as formulas see it; `None` for an absent one, or one without numbers.

    Elements narrower than a byte take one in these kernels.
    """
    dims = concrete(tensor)
    if tensor is None or dims is None or tensor.dtype.bits is None:
        return None
    return Operand(tensor.dtype.name, dims, max(tensor.dtype.bits // 8, 1))


def _operators(ctx: Context) -> tuple[str, ...]:
    """Operators of the file format that an op may have been."""
    if ctx.op.kind == "pad" and ctx.attr("mode") in ("reflect", "symmetric"):
        return ("MIRROR_PAD",)
    return _by_kind().get(ctx.op.kind, ())


@cache
def _by_kind() -> dict[str, tuple[str, ...]]:
    kinds: dict[str, list[str]] = {}
    for name, kind in (*BUILTIN_KINDS.items(), *CUSTOM_KINDS.items()):
        if kind is not None and name != "MIRROR_PAD" and not name.startswith("STABLEHLO_"):
            kinds.setdefault(kind, []).append(name)
    return {kind: tuple(names) for kind, names in kinds.items()}
