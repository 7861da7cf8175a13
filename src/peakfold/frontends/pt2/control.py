"""Operators of a higher order in exported programs: which have bodies, and what feeds those."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from peakfold.frontends.aten.values import Ref
from peakfold.frontends.pt2.schema import Argument, GraphArgument
from peakfold.ir import AttrValue


@dataclass(frozen=True, slots=True)
class Control:
    """One control-flow op, taken apart.

    Attributes:
        kind: ``if``, ``while`` or ``scan``.
        inputs: operands that the op itself takes.
        bodies: label, body, and how many of its first formals the op feeds.
        captured: operands that the bodies take from outside, in the order of their formals.
    """

    kind: str
    inputs: tuple[Ref, ...]
    bodies: tuple[tuple[str, GraphArgument, int], ...]
    captured: tuple[object, ...]
    attrs: dict[str, AttrValue] = field(default_factory=dict)


def control_of(
    name: str, args: Sequence[Argument], value_of: Callable[[Argument], Any]
) -> Control | None:
    """A higher-order operator as control flow; `None` when it is another one.

    Args:
        name: ``cond``, ``while_loop``, ``scan``, ``map_impl`` or another.
        args: its arguments.
        value_of: what an argument that is no body stands for.
    """
    bodies = [arg.as_graph for arg in args if arg.as_graph is not None]
    rest = [_many(value_of(arg)) for arg in args if arg.as_graph is None]
    if name == "cond" and len(bodies) == 2 and len(rest) == 2:
        chosen = _refs(rest[0])
        if not chosen:
            return None
        return Control("if", chosen, (("then", bodies[0], 0), ("else", bodies[1], 0)), rest[1])
    if name == "while_loop" and len(bodies) == 2 and rest:
        carried = _refs(rest[0])
        fed = len(carried)
        return Control(
            "while",
            carried,
            (("cond", bodies[0], fed), ("body", bodies[1], fed)),
            rest[1] if len(rest) > 1 else (),
        )
    if name == "scan" and len(bodies) == 1 and len(rest) >= 2:
        return _scan(bodies[0], _refs(rest[0]), _refs(rest[1]), rest[2] if len(rest) > 2 else ())
    if name == "map_impl" and len(bodies) == 1 and rest:
        return _scan(bodies[0], (), _refs(rest[0]), rest[1] if len(rest) > 1 else ())
    return None


def _scan(
    body: GraphArgument,
    carried: tuple[Ref, ...],
    slices: tuple[Ref, ...],
    captured: tuple[object, ...],
) -> Control:
    attrs: dict[str, AttrValue] = {"num_scan_inputs": len(slices)}
    shape = slices[0].tensor.shape if slices else ()
    if shape and isinstance(shape[0], int):
        attrs["trips"] = shape[0]
    fed = len(carried) + len(slices)
    return Control("scan", (*carried, *slices), (("body", body, fed),), captured, attrs)


def _many(value: object) -> tuple[object, ...]:
    return tuple(value) if isinstance(value, list) else (value,)


def _refs(values: Sequence[object]) -> tuple[Ref, ...]:
    return tuple(value for value in values if isinstance(value, Ref))
