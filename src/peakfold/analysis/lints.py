"""Advice from costs: which ops move bytes, or keep them, that another design would not.

The rules for convolutional networks are the four guidelines of ShuffleNet V2 (Ma et al. 2018);
their counterparts for Transformers are keys and values, scores, vocabulary and head size. A
lint says what the bytes would be, never that the model would be as accurate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod, sqrt

from peakfold.analysis.cost import Cost
from peakfold.ir import Graph, Op, Tensor
from peakfold.ops import context, lookup
from peakfold.ops.spec import concrete
from peakfold.units import round_up

UNBALANCED = 1.25
"""A 1x1 convolution is named when it accesses this many times what balanced channels would."""
SMALL = 0.0005
"""An op is small when it moves less than this share of the model's bytes."""
FRAGMENTED = 0.4
"""Small ops are named when they are this share of all ops that move anything."""
ELEMENTWISE = 0.25
"""Element-wise ops are named when they take this share of memory access."""
VOCABULARY = 0.2
"""A table is named when it holds this share of the parameters, and has this many rows."""
ROWS = 4096
MULTIPLE, TILE = 8, 64
"""Sizes of heads and tables that are no multiple of the first are named; a table is then padded to
a multiple of the second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lint:
    """One piece of advice.

    Attributes:
        rule: its name, for filters.
        ops: the ops it is about, most important first.
        message: what is, and what would be.
        saves_bytes: bytes the other design saves: memory access of a run, or where the message
            says so bytes kept per token or stored; `None` where it is no such matter.
    """

    rule: str
    ops: tuple[str, ...]
    message: str
    saves_bytes: int | None


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


def lints(graph: Graph, cost: Cost) -> tuple[Lint, ...]:
    """Every piece of advice, the largest saving first.

    Args:
        graph: what was counted; bodies of control flow are not looked into.
        cost: of it.
    """
    rules: tuple[Callable[[Graph, Cost], Iterator[Lint]], ...] = (
        _channels, _groups, _branches, _small, _elementwise,
        _keys, _scores, _vocabulary, _head_size,
    )  # fmt: skip
    found = [lint for rule in rules for lint in rule(graph, cost)]
    return tuple(sorted(found, key=lambda lint: -(lint.saves_bytes or 0)))


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
        if op.kind not in ("conv", "fused_conv", "conv_2d") or not op.outputs[0]:
            continue
        tensors = [graph.by_name[name] for name in (op.inputs[0], op.inputs[1], op.outputs[0])]
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


def _channels(graph: Graph, _cost: Cost) -> Iterator[Lint]:
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
                rule="unbalanced-channels", ops=(conv.op.name,),
                message=f"{inputs} to {outputs} channels access {access / bound:.2f} times what "
                f"{even} to {even} would at equal MACs",
                saves_bytes=round(access - bound) * conv.width,
            )  # fmt: skip


def _groups(graph: Graph, _cost: Cost) -> Iterator[Lint]:
    """Guideline 2: at equal MACs, more groups mean wider tensors and more access."""
    for conv in _convolutions(graph):
        if not 1 < conv.groups < conv.shape[1]:
            continue
        moved = prod(conv.shape) + prod(conv.result)
        narrow = moved / sqrt(conv.groups)
        yield Lint(
            rule="group-count", ops=(conv.op.name,),
            message=f"{conv.groups} groups: as many MACs without groups need channels narrower "
            f"by {sqrt(conv.groups):.3g}",
            saves_bytes=round(moved - narrow) * conv.width,
        )  # fmt: skip


def _branches(graph: Graph, _cost: Cost) -> Iterator[Lint]:
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
                rule="fragmented-branches", ops=tuple(op.name for op in ops),
                message=f"{len(ops)} layers of one form read {name!r}: one layer with all their "
                "outputs would read it once",
                saves_bytes=(len(ops) - 1) * size,
            )  # fmt: skip


def _form(op: Op, graph: Graph) -> object:
    """What layers must share to be one wider layer; `None` for ops that are no such layer."""
    at = {"conv": 1, "matmul": 1, "gemm": 1, "linear": 1, "addmm": 2}.get(op.kind)
    if at is None or at >= len(op.inputs):
        return None
    weight = graph.by_name[op.inputs[at]]
    if not weight.role.static or weight.shape is None or op.inputs[0] in ("", op.inputs[at]):
        return None
    if op.kind != "conv":
        return op.kind, op.attrs.get("transB", 0), op.attrs.get("transA", 0)
    if op.attrs.get("group", 1) != 1:
        return None
    keys = ("strides", "pads", "dilations", "auto_pad")
    return op.kind, weight.shape[2:], tuple(op.attrs.get(key) for key in keys)


def _small(_graph: Graph, cost: Cost) -> Iterator[Lint]:
    """Guideline 3 again: many ops that do next to nothing, each with a launch of its own."""
    whole = cost.total().figures.bytes_moved
    if not whole:
        return
    moving = [(op.bytes_moved or 0, op.name) for op in cost.ops if op.bytes_moved]
    small = sorted(pair for pair in moving if pair[0] < SMALL * whole)
    if len(moving) >= 20 and len(small) >= FRAGMENTED * len(moving):
        share = sum(moved for moved, _ in small) / whole
        yield Lint(
            rule="many-small-ops", ops=tuple(name for _, name in small[::-1]),
            message=f"{len(small)} of {len(moving)} ops move {share:.1%} of the bytes together: "
            "their launches and synchronisation cost more than their work",
            saves_bytes=None,
        )  # fmt: skip


def _elementwise(graph: Graph, cost: Cost) -> Iterator[Lint]:
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
            rule="element-wise-share", ops=tuple(name for _, name in largest),
            message=f"{len(chosen)} element-wise ops take {moved / f.bytes_moved:.0%} of memory "
            "access, and fusing them into their producers saves a part of it",
            saves_bytes=f.bytes_moved - f.fused_bytes,
        )  # fmt: skip


def _attentions(graph: Graph) -> Iterator[tuple[Op, int, int, int, Tensor]]:
    """Attention ops: query heads, key heads, width of a key and a value together, the keys."""
    for op in graph.ops:
        if op.kind in ("attention", "sdpa"):
            q, k, v = (graph.by_name.get(name) for name in op.inputs[:3])
            shapes = [concrete(t) for t in (q, k, v)]
            if k is not None and all(s is not None and len(s) == 4 for s in shapes):
                qs, ks, vs = (s or () for s in shapes)
                yield op, qs[1], ks[1], ks[3] + vs[3], k
        elif op.kind in ("group_query_attention", "multi_head_attention"):
            heads = op.attrs.get("num_heads")
            kv_heads = op.attrs.get("kv_num_heads", heads)
            k = graph.by_name.get(op.inputs[1]) if len(op.inputs) > 1 else None
            shape = concrete(k)
            if k and shape and len(shape) == 3 and isinstance(heads, int) and isinstance(
                    kv_heads, int) and kv_heads:  # fmt: skip
                yield op, heads, kv_heads, 2 * shape[2] // kv_heads, k


def _keys(graph: Graph, _cost: Cost) -> Iterator[Lint]:
    """Keys and values kept per token; grouped heads keep fewer."""
    names: list[str] = []
    total = after = 0
    for op, q_heads, kv_heads, width, keys in _attentions(graph):
        bits = keys.dtype.bits or 0
        names.append(op.name)
        total += kv_heads * width * bits // 8
        fewer = max(q_heads // 4, 1) if kv_heads == q_heads else kv_heads
        after += min(fewer, kv_heads) * width * bits // 8
    if names:
        grouped = "" if after == total else f"; with a key head for every 4 query heads {after:,}"
        yield Lint(
            rule="kv-bytes", ops=tuple(names),
            message=f"{total:,} bytes of keys and values per token{grouped}",
            saves_bytes=None if after == total else total - after,
        )  # fmt: skip


def _scores(graph: Graph, _cost: Cost) -> Iterator[Lint]:
    """Scores written out grow with the square of the sequence; fused attention keeps a tile."""
    names: list[str] = []
    moved, steps = 0, 0
    for op in graph.ops:
        shape = concrete(graph.by_name[op.outputs[0]]) if op.kind == "softmax" else None
        if shape is None or len(shape) < 3 or min(shape[-2:]) < 16:
            continue
        if not _is_scores(op, graph):
            continue
        names.append(op.name)
        moved += 4 * (graph.by_name[op.outputs[0]].nbytes or 0)
        steps = max(steps, shape[-1])
    if names:
        yield Lint(
            rule="sequence-squared", ops=tuple(names),
            message=f"scores of {steps:,} keys are written and read four times; their bytes grow "
            "with the square of the sequence, and fused attention never writes them",
            saves_bytes=moved,
        )  # fmt: skip


def _is_scores(op: Op, graph: Graph) -> bool:
    """Whether a softmax stands between two products of activations."""
    at = graph.producer.get(op.inputs[0])
    for _ in range(4):  # through scale, mask and cast
        if at is None:
            return False
        if graph.ops[at].kind in ("matmul", "bmm", "batch_matmul", "einsum", "baddbmm"):
            return not any(graph.by_name[n].role.static for n in graph.ops[at].inputs[:2])
        at = graph.producer.get(graph.ops[at].inputs[0]) if graph.ops[at].inputs else None
    return False


def _vocabulary(graph: Graph, cost: Cost) -> Iterator[Lint]:
    """A table with a row per word that holds much of the parameters."""
    whole = cost.total().figures.params
    seen: dict[str, list[str]] = {}
    for op in graph.ops:
        for at, name in enumerate(op.inputs[:3]):
            tensor = graph.by_name.get(name)
            if tensor is None or not tensor.role.static or tensor.elements is None:
                continue
            shape = concrete(tensor)
            wide = shape is not None and len(shape) == 2 and max(shape) >= ROWS
            if wide and whole and tensor.elements >= VOCABULARY * whole and (
                    op.kind in ("gather", "embedding", "embedding_lookup") or at > 0):  # fmt: skip
                seen.setdefault(name, []).append(op.name)
    for name, ops in seen.items():
        tensor = graph.by_name[name]
        share = (tensor.elements or 0) / (whole or 1)
        twice = len(seen) > 1
        hint = "; sharing it between input and output would store one less" if twice else ""
        yield Lint(
            rule="vocabulary-share", ops=tuple(ops),
            message=f"{name!r} holds {share:.0%} of the parameters "
            f"({tensor.nbytes or 0:,} bytes){hint}",
            saves_bytes=tensor.nbytes if twice else None,
        )  # fmt: skip


def _head_size(graph: Graph, _cost: Cost) -> Iterator[Lint]:
    """Matrix engines work in tiles: sizes that are no multiple of 8 waste a part of them."""
    for op, _, kv_heads, width, keys in _attentions(graph):
        shape = concrete(keys) or ()
        size = shape[-1] if len(shape) == 4 else (shape[-1] // kv_heads if shape else width // 2)
        if size % MULTIPLE:
            padded = round_up(size, MULTIPLE)
            yield Lint(
                rule="head-size", ops=(op.name,),
                message=f"heads of {size} are no multiple of {MULTIPLE}: tiles are filled to "
                f"{padded}, {size / padded:.0%} of which is work",
                saves_bytes=None,
            )  # fmt: skip
    for op in graph.ops:
        if op.kind not in ("matmul", "gemm", "linear", "addmm") or not op.outputs[0]:
            continue
        result = concrete(graph.by_name[op.outputs[0]])
        if result and result[-1] >= ROWS and result[-1] % MULTIPLE:
            padded = round_up(result[-1], TILE)
            yield Lint(
                rule="vocabulary-multiple", ops=(op.name,),
                message=f"{result[-1]:,} outputs are no multiple of {MULTIPLE}: "
                f"{padded:,} would fill the tiles",
                saves_bytes=None,
            )  # fmt: skip
