"""Rows of a caller's own: how an op counts, given as an argument and checked like any input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from operator import index

from peakfold.arguments import mapping
from peakfold.errors import PeakfoldError, UsageError
from peakfold.frontends.onnx.names import onnx_kind
from peakfold.ir import Graph, walk_regions
from peakfold.ops import REGISTRY, Context, OpSpec, lookup, register
from peakfold.ops.inference import CannotTell

Count = Callable[[Context], int | None]
Handler = OpSpec | Count


def with_handlers(graph: Graph, handlers: Mapping[str, Handler] | None) -> Mapping[str, OpSpec]:
    """The registry with the rows of a caller.

    Args:
        graph: before folding; a handler must be for a kind that it or the registry has.
        handlers: by op kind, or by the operator's name as an ONNX file writes it: an `OpSpec`,
            or a function to MACs.

    Raises:
        UsageError: a kind that nothing has, or a handler that is none.
    """
    table: Mapping[str, OpSpec] = REGISTRY
    if not mapping(handlers, "handlers") or handlers is None:
        return table
    kinds = {op.kind for inner in walk_regions(graph) for op in inner.ops}
    for name, row in handlers.items():
        kind = _kind(name, kinds)
        if isinstance(row, OpSpec):
            macs, other = (
                None if rule is None else _checked(kind, rule) for rule in (row.macs, row.other_ops)
            )
            table = register(table, kind, replace(row, macs=macs, other_ops=other))
        elif callable(row):
            table = register(table, kind, lookup(kind), macs=_checked(kind, row), known=True)
        else:
            raise UsageError(
                f"the handler of {name!r} is {row!r}",
                hint="give a peakfold.ops.OpSpec, or a function from a Context to MACs",
            )
    return table


def _kind(name: str, kinds: set[str]) -> str:
    domain, _, operator = name.rpartition("::")
    for kind in (name, onnx_kind(operator, domain)):
        if kind in kinds or kind in REGISTRY:
            return kind
    strangers = sorted(kind for kind in kinds if kind not in REGISTRY)
    raise UsageError(
        f"a handler is for {name!r}, which no op of the model is",
        hint=f"kinds without a row: {', '.join(strangers) or 'none'}",
    )


def _checked(kind: str, rule: Count) -> Count:
    """The rule, with a wrong answer told as an error that names the op."""

    def told(ctx: Context) -> int | None:
        where = f"op {ctx.op.name!r}"
        try:
            found = rule(ctx)
        except CannotTell:
            return None
        except PeakfoldError:
            raise
        except Exception as error:  # code of the caller
            what = f"the handler of {kind!r} failed: {type(error).__name__}: {error}"
            raise UsageError(what, where=where) from error
        if found is None:
            return None
        try:
            count = index(found)
        except TypeError:
            count = -1
        if count < 0:
            raise UsageError(
                f"the handler of {kind!r} returned {found!r}",
                where=where,
                hint="a count is a whole number from 0 on, or None where it is not known",
            )
        return count

    return told
