"""Control flow of exported programs: cond, while_loop, scan and map become ops with bodies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from peakfold.frontends.aten.values import Ref
from peakfold.frontends.torch.build import GraphBuilder
from peakfold.frontends.torch.values import number_of
from peakfold.ir import AttrValue, Region, Role

Walk = Callable[[GraphModule, GraphBuilder, str], list[Ref]]
"""Feeds a body to a builder, whose formals are declared; gives the values it returns."""


@dataclass(frozen=True, slots=True)
class Control:
    """One control-flow op, taken apart.

    Attributes:
        kind: ``if``, ``while`` or ``scan``.
        inputs: operands that the op itself takes.
        bodies: label, body, and how many of its first formals the op feeds (carried values and
            slices); the others are captured.
        captured: operands that the bodies take from outside, in the order of their formals.
    """

    kind: str
    inputs: tuple[Node, ...]
    bodies: tuple[tuple[str, GraphModule, int], ...]
    captured: tuple[Any, ...]
    attrs: dict[str, AttrValue]


def taken_apart(
    name: str, node: Node, body_of: Callable[[object], GraphModule | None]
) -> Control | None:
    """A higher-order operator as control flow; `None` when it is another one."""
    args: Sequence[Any] = node.args
    bodies = [body for arg in args if (body := body_of(arg)) is not None]
    labelled: tuple[tuple[str, GraphModule, int], ...]
    if name == "cond" and len(bodies) == 2 and isinstance(args[0], Node):
        labelled = (("then", bodies[0], 0), ("else", bodies[1], 0))
        return Control("if", (args[0],), labelled, tuple(args[3]), {})
    if name == "while_loop" and len(bodies) == 2:
        carried = _nodes(args[2])
        labelled = tuple(
            (label, body, len(carried))
            for label, body in zip(("cond", "body"), bodies, strict=True)
        )
        return Control("while", carried, labelled, tuple(args[3]), {})
    if name == "scan" and len(bodies) == 1:
        return _scan(bodies[0], _nodes(args[1]), _nodes(args[2]), tuple(args[3]))
    if name == "map_impl" and len(bodies) == 1:
        return _scan(bodies[0], (), _nodes(args[1]), tuple(args[2]))
    return None


def _scan(
    body: GraphModule,
    carried: tuple[Node, ...],
    slices: tuple[Node, ...],
    captured: tuple[Any, ...],
) -> Control:
    attrs: dict[str, AttrValue] = {"num_scan_inputs": len(slices)}
    length = number_of(slices[0].meta["val"].shape[0]) if slices else None
    if length is not None:
        attrs["trips"] = length
    fed = len(carried) + len(slices)
    return Control("scan", (*carried, *slices), (("body", body, fed),), captured, attrs)


def _nodes(values: Iterable[Any]) -> tuple[Node, ...]:
    return tuple(value for value in values if isinstance(value, Node))


def region_of(
    outer: GraphBuilder,
    label: str,
    body: GraphModule,
    fed: int,
    captured: Sequence[Any],
    walk: Walk,
    scope: str,
) -> Region:
    """The body as a closed graph.

    Args:
        outer: the builder of the graph around it, which knows what is captured.
        label: ``then``, ``else``, ``cond`` or ``body``.
        body: its program.
        fed: how many of its first formals the op feeds.
        captured: nodes of the outer graph behind its other formals.
        walk: feeds a program to a builder.
        scope: module path of ops that have none.
    """
    inner = GraphBuilder()
    formals = [node for node in body.graph.nodes if node.op == "placeholder"]
    for formal, actual in zip(formals[fed:], captured, strict=False):
        value = formal.meta.get("val")
        if isinstance(actual, Node) and isinstance(value, torch.Tensor):
            inner.declare_captured(
                Ref(formal, value), outer.tensor(Ref(actual, actual.meta["val"]))
            )
    for formal in formals[:fed]:
        if isinstance(formal.meta.get("val"), torch.Tensor):
            inner.declare(Ref(formal, formal.meta["val"]), formal.name, Role.INPUT)
    graph = inner.finish(label, walk(body, inner, scope), "torch")
    return Region(label, graph, graph.inputs[fed:])
