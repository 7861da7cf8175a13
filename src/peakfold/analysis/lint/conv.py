"""Advice on convolutions: the four guidelines of ShuffleNet V2 (Ma et al. 2018)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod, sqrt

from peakfold.analysis.cost.records import Cost
from peakfold.analysis.lint.record import Lint
from peakfold.ir import Graph, Op
from peakfold.ops import context, lookup
from peakfold.ops.spec import concrete

UNBALANCED = 1.25
"""A 1x1 convolution is named when it accesses this many times what balanced channels would."""
SMALL = 0.0005
"""An op is small when it moves less than this share of the model's bytes."""
FRAGMENTED = 0.4
"""Small ops are named when they are this share of all ops that move anything."""
ELEMENTWISE = 0.25
"""Element-wise ops are named when they take this share of memory access."""


def pointwise_access(positions: int, inputs: int, outputs: int, groups: int = 1) -> float:
    """Elements that a 1x1 convolution reads and writes: ``hw (c1 + c2) + c1 c2 / g`` (R80).

    Example:
        >>> [pointwise_access(56 * 56, c1, c2) for c1, c2 in ((128, 128), (90, 180), (36, 432))]
        [819200.0, 862920.0, 1483200.0]
    """
    return positions * (inputs + outputs) + inputs * outputs / groups


def access_bound(positions: int, macs: int) -> float:
    """The fewest elements for that many MACs: ``2 sqrt(hw B) + B / hw``, met by equal channels.

    Example:
        >>> access_bound(56 * 56, 56 * 56 * 128 * 128)
        819200.0
    """
    return 2 * sqrt(positions * macs) + macs / positions


@dataclass(frozen=True, slots=True)
class _Conv:
    op: Op
    shape: tuple[int, ...]
    result: tuple[int, ...]
    weight: tuple[int, ...]
    groups: int
    width: int
    """Bytes of an element."""


def _convolutions(graph: Graph) -> Iterator[_Conv]:
    for op in graph.ops:
        named = (*op.inputs[:2], *op.outputs[:1])
        if op.kind not in ("conv", "fused_conv", "conv_2d") or len(named) < 3 or not all(named):
            continue
        tensors = [graph.by_name[name] for name in named]
        x, w, y = (concrete(t) for t in tensors)
        bits, groups = tensors[0].dtype.bits, op.attrs.get("group", 1)
        if not (x and w and y and bits) or len(w) < 3 or not isinstance(groups, int):
            continue
        if op.kind == "conv_2d":  # channels last
            x, w, y = _first(x), _first(w), _first(y)
            groups = x[1] // w[1] if w[1] else 1
        if prod(w):
            yield _Conv(op, x, y, w, groups, max(bits // 8, 1))


def _first(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape with its last axis, the channels, behind the first."""
    return (shape[0], shape[-1], *shape[1:-1])


def channels(graph: Graph, _cost: Cost) -> Iterator[Lint]:
    """Guideline 1: equal channel widths minimise memory access at equal MACs."""
    for conv in _convolutions(graph):
        if prod(conv.weight[2:]) != 1 or conv.groups != 1 or conv.shape[2:] != conv.result[2:]:
            continue
        positions = conv.shape[0] * prod(conv.shape[2:])
        inputs, outputs = conv.shape[1], conv.result[1]
        access = pointwise_access(positions, inputs, outputs)
        bound = access_bound(positions, positions * inputs * outputs)
        if access >= UNBALANCED * bound:
            even = round(sqrt(inputs * outputs))
            yield Lint(
                rule="unbalanced-channels",
                ops=(conv.op.name,),
                message=f"{inputs} to {outputs} channels access {access / bound:.2f} times what "
                f"{even} to {even} would at equal MACs",
                saves_bytes=round(access - bound) * conv.width,
            )


def groups(graph: Graph, _cost: Cost) -> Iterator[Lint]:
    """Guideline 2: at equal MACs, more groups mean wider tensors and more access."""
    for conv in _convolutions(graph):
        if not 1 < conv.groups < conv.shape[1]:
            continue
        moved = prod(conv.shape) + prod(conv.result)
        narrow = moved / sqrt(conv.groups)
        yield Lint(
            rule="group-count",
            ops=(conv.op.name,),
            message=f"{conv.groups} groups: as many MACs without groups need channels narrower "
            f"by {sqrt(conv.groups):.3g}",
            saves_bytes=round(moved - narrow) * conv.width,
        )


def branches(graph: Graph, _cost: Cost) -> Iterator[Lint]:
    """Guideline 3: several layers of one form read one tensor; one wider layer reads it once."""
    readers: dict[tuple[str, object], list[Op]] = {}
    for op in graph.ops:
        form = _form(op, graph)
        if form is not None:
            readers.setdefault((op.inputs[0], form), []).append(op)
    for (name, _), ops in readers.items():
        size = graph.by_name[name].nbytes
        if len(ops) > 1 and size:
            yield Lint(
                rule="fragmented-branches",
                ops=tuple(op.name for op in ops),
                message=f"{len(ops)} layers of one form read {name!r}: one layer with all their "
                "outputs would read it once",
                saves_bytes=(len(ops) - 1) * size,
            )


def _form(op: Op, graph: Graph) -> object:
    """What layers must share to be one wider layer; `None` for ops that are no such layer."""
    at = {"conv": 1, "matmul": 1, "gemm": 1, "linear": 1, "addmm": 2}.get(op.kind)
    if at is None or at >= len(op.inputs):
        return None
    weight = graph.by_name.get(op.inputs[at])
    if weight is None or not weight.role.static or weight.shape is None:
        return None
    if op.inputs[0] in ("", op.inputs[at]):
        return None
    if op.kind != "conv":
        return op.kind, op.attrs.get("transB", 0), op.attrs.get("transA", 0)
    if op.attrs.get("group", 1) != 1:
        return None
    keys = ("strides", "pads", "dilations", "auto_pad")
    return op.kind, weight.shape[2:], tuple(op.attrs.get(key) for key in keys)


def small(_graph: Graph, cost: Cost) -> Iterator[Lint]:
    """Guideline 3 again: many ops that do next to nothing, each with a launch of its own."""
    whole = cost.total().figures.bytes_moved
    if not whole:
        return
    moving = [(op.bytes_moved or 0, op.name) for op in cost.ops if op.bytes_moved]
    small = sorted(pair for pair in moving if pair[0] < SMALL * whole)
    if len(moving) >= 20 and len(small) >= FRAGMENTED * len(moving):
        share = sum(moved for moved, _ in small) / whole
        yield Lint(
            rule="many-small-ops",
            ops=tuple(name for _, name in small[::-1]),
            message=f"{len(small)} of {len(moving)} ops move {share:.1%} of the bytes together: "
            "their launches and synchronisation cost more than their work",
            saves_bytes=None,
        )


def elementwise(graph: Graph, cost: Cost) -> Iterator[Lint]:
    """Guideline 4: element-wise ops have few FLOPs and much memory access."""
    f = cost.total().figures
    if not f.bytes_moved or f.fused_bytes is None:
        return
    chosen = [
        (counted.bytes_moved or 0, op.name)
        for op, counted in zip(graph.ops, cost.ops, strict=True)
        if counted.engine == "vector" and lookup(op.kind).inplace_inputs(context(op, graph.by_name))
    ]
    moved = sum(size for size, _ in chosen)
    if moved >= ELEMENTWISE * f.bytes_moved:
        largest = sorted(chosen, key=lambda pair: -pair[0])
        yield Lint(
            rule="element-wise-share",
            ops=tuple(name for _, name in largest),
            message=f"{len(chosen)} element-wise ops take {moved / f.bytes_moved:.0%} of memory "
            "access, and fusing them into their producers saves a part of it",
            saves_bytes=f.bytes_moved - f.fused_bytes,
        )
