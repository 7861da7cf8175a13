"""What a graph states of its known ops, held against the registry.

A front end derives the shapes it writes; the text form states them, and a bug report is only as
good as they are. A statement that the op's row contradicts is refused: nothing that follows from
it would be true. What a row cannot tell is believed, since it may follow from values or symbols.
"""

from __future__ import annotations

import inspect

from peakfold.errors import ModelError
from peakfold.ir.graph import Graph, Op, Tensor, walk_regions
from peakfold.ir.text import format_type
from peakfold.ir.types import OPAQUE, DType, Shape, compatible
from peakfold.ops import context, lookup
from peakfold.ops.rules import STOPS
from peakfold.ops.spec import Context, ShapeRule
from peakfold.ops.values import Misfit

_HINT = "state what the op makes, or give it another kind: opaque is believed"


def check_facts(graph: Graph) -> None:
    """Check the results of every op of a checked graph, bodies included.

    Args:
        graph: one that `check_graph` passed.

    Raises:
        ModelError: an op whose operands do not fit each other, or a result of another type
            than they give.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> text = "peakfold-graph 1\\ninput x: int8[4]\\ny: int8[2] = relu(x)\\noutput y"
        >>> check_facts(parse_graph(text))
        Traceback (most recent call last):
        ...
        peakfold.errors.ModelError: op 'y' (relu): states int8[2] for 'y', its operands give \
int8[4] (state what the op makes, or give it another kind: opaque is believed)
    """
    # The integer type of a result is a TFLite file's own choice: its kernels requantise.
    own_types = graph.source == "tflite"
    for part in walk_regions(graph):
        for op in part.ops:
            rule = lookup(op.kind).shape
            if rule is not None:
                _check_op(op, rule, part, own_types)


def _check_op(op: Op, rule: ShapeRule, graph: Graph, own_types: bool) -> None:
    where = f"op {op.name!r} ({op.kind})"
    ctx = context(op, graph.by_name)
    misfit = contradiction(rule, ctx)
    if misfit:
        raise ModelError(misfit, where=where)
    for tensor, derived in zip(ctx.outputs, rule(ctx) or (), strict=False):
        if tensor is None or derived is None:
            continue
        if not (_same_type(tensor.dtype, derived[0], own_types) and _may_be(tensor, derived[1])):
            raise ModelError(
                f"states {_shown(tensor.dtype, tensor.shape)} for {tensor.name!r}, its operands "
                f"give {_shown(*derived)}",
                where=where, hint=_HINT,
            )  # fmt: skip


def contradiction(rule: ShapeRule, ctx: Context) -> str:
    """How the operands of an op contradict each other by its shape rule; empty if they do not.

    Example:
        >>> from peakfold.ir.types import DTYPES
        >>> x = Tensor("x", DTYPES["int8"], ())
        >>> op = Op("y", "matmul", ("x", "x"), ("y",))
        >>> contradiction(lookup("matmul").shape, Context(op, (x, x), ()))
        'its operands do not fit: a scalar is no matrix'
    """
    try:
        inspect.unwrap(rule)(ctx)  # behind `tells`, which makes both an answer of "cannot tell"
    except Misfit as error:
        return f"its operands do not fit: {error}"
    except STOPS:
        return ""
    return ""


def _same_type(stated: DType, derived: DType, own: bool) -> bool:
    chosen = own and "int" in stated.name and "int" in derived.name
    return stated == derived or chosen or OPAQUE in (stated, derived)


def _may_be(tensor: Tensor, derived: Shape) -> bool:
    return tensor.shape is None or compatible(tensor.shape, derived)


def _shown(dtype: DType, shape: Shape | None) -> str:
    return format_type(Tensor("", dtype, shape))
