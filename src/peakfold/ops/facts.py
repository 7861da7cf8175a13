"""What a graph states of its known ops, held against the registry.

A front end derives the shapes it writes; the text form states them, and a bug report is only as
good as they are. A statement that the op's row contradicts is refused: nothing that follows from
it would be true. What a row cannot tell is believed, since it may follow from values or symbols.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from peakfold.errors import ModelError
from peakfold.ir.graph import AttrValue, Graph, Op, Tensor, walk_regions
from peakfold.ir.text import format_type
from peakfold.ir.types import OPAQUE, DType, Shape, compatible
from peakfold.ops import context, lookup
from peakfold.ops.inference import CannotTell, Misfit
from peakfold.ops.rules import STOPS
from peakfold.ops.spec import Context, ShapeRule

_COMPLETE: Final = ("", "pf", "onnx", "tflite")
"""Sources whose ops hold every attribute that a row reads, so that a missing one is a default."""
_CONDITIONS: Final = {"if": 0, "loop": 1}
_HINT: Final = "state what the op makes, or give it another kind: opaque is believed"


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
    for part in walk_regions(graph):
        for op in part.ops:
            rule = lookup(op.kind).shape
            if rule is not None:
                _check_op(op, rule, part, graph.source)


def contradictions(graph: Graph) -> list[str]:
    """What `check_facts` would refuse, a line an op: for files whose makers are not asked to mend.

    Ops that write an operand are left out: which operand a rule reads is then another matter.
    """
    found: list[str] = []
    for part in walk_regions(graph):
        for op in part.ops:
            rule = lookup(op.kind).shape
            writes = op.writes or (op.stated is not None and op.stated.inplace)
            if rule is None or writes:
                continue
            try:
                _check_op(op, rule, part, graph.source)
            except ModelError as error:
                found.append(f"{error.where}: {error.what}")
    return found


def _check_op(op: Op, rule: ShapeRule, graph: Graph, source: str) -> None:
    where = f"op {op.name!r} ({op.kind})"
    complete = source in _COMPLETE
    attrs = _Asked(op.attrs)
    ctx = context(op if complete else replace(op, attrs=attrs), graph.by_name)
    derived = rule(ctx)
    if attrs.missed:
        return
    misfit = condition_problem(ctx) or ("" if derived else contradiction(rule, ctx))
    if misfit:
        raise ModelError(misfit, where=where)
    told = derived or ()
    for tensor, made in zip(ctx.outputs, told if complete else told[:1], strict=False):
        if tensor is None or made is None:
            continue
        fits = tensor.shape is None or compatible(tensor.shape, made[1])
        if not fits or not _same_type(tensor.dtype, made[0], source):
            raise ModelError(
                f"states {_shown(tensor.dtype, tensor.shape)} for {tensor.name!r}, its operands "
                f"give {_shown(*made)}",
                where=where,
                hint=_HINT,
            )


class _Asked(Mapping[str, AttrValue]):
    """Attributes that remember whether one was asked for and not there."""

    def __init__(self, attrs: Mapping[str, AttrValue]) -> None:
        self._attrs = attrs
        self.missed = False

    def __getitem__(self, name: str) -> AttrValue:
        if name not in self._attrs:
            self.missed = True
        return self._attrs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._attrs)

    def __len__(self) -> int:
        return len(self._attrs)


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
    except CannotTell:
        return ""
    except STOPS:  # a rule that unpacks what is not there: an operand or dimension is missing
        return "its operands do not fit: too few, or of another rank"
    return ""


def condition_problem(ctx: Context) -> str:
    """What is wrong with the operand that decides an `if` or `loop`; empty if nothing is.

    Example:
        >>> from peakfold.ir.types import DTYPES
        >>> x = Tensor("x", DTYPES["float32"], ())
        >>> condition_problem(Context(Op("y", "if", ("x",), ("y",)), (x,), ()))
        'its condition is float32[], not one bool'
    """
    at = _CONDITIONS.get(ctx.op.kind, len(ctx.inputs))
    tensor = ctx.inputs[at] if at < len(ctx.inputs) else None
    if tensor is None:
        return ""
    if tensor.dtype.name in ("bool", OPAQUE.name) and tensor.elements in (1, None):
        return ""
    return f"its condition is {_shown(tensor.dtype, tensor.shape)}, not one bool"


def _same_type(stated: DType, derived: DType, source: str) -> bool:
    if stated == derived or OPAQUE in (stated, derived):
        return True
    # TFLite's kernels requantise to the integer type that the file chose; torch promotes types.
    both_integers = "int" in stated.name and "int" in derived.name
    return source not in _COMPLETE or (source == "tflite" and both_integers)


def _shown(dtype: DType, shape: Shape | None) -> str:
    return format_type(Tensor("", dtype, shape))
