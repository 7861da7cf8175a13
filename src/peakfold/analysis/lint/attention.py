"""Rules of `peakfold.analysis.lint.rules` for Transformers: keys, scores, vocabulary, head size."""

from __future__ import annotations

from collections.abc import Iterator

from peakfold.analysis.cost.records import Cost
from peakfold.analysis.lint.record import Lint
from peakfold.ir import Graph, Op, Tensor
from peakfold.ops.spec import concrete
from peakfold.units import round_up

VOCABULARY = 0.2
"""A table is named when it holds this share of the parameters, and has this many rows."""
ROWS = 4096
MULTIPLE, TILE = 8, 64
"""Sizes of heads and tables that are no multiple of the first are named; a table is then padded to
a multiple of the second."""


def _attentions(graph: Graph) -> Iterator[tuple[Op, int, int, int, Tensor]]:
    """Attention ops: query heads, key heads, width of a key and a value together, the keys."""
    for op in graph.ops:
        if op.kind in ("attention", "sdpa") and len(op.inputs) >= 3:
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
            if (
                k
                and shape
                and len(shape) == 3
                and isinstance(heads, int)
                and isinstance(kv_heads, int)
                and kv_heads
            ):
                yield op, heads, kv_heads, 2 * shape[2] // kv_heads, k


def keys(graph: Graph, _cost: Cost) -> Iterator[Lint]:
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
            rule="kv-bytes",
            ops=tuple(names),
            message=f"{total:,} bytes of keys and values per token{grouped}",
            saves_bytes=None if after == total else total - after,
        )


def scores(graph: Graph, _cost: Cost) -> Iterator[Lint]:
    """Scores written out grow with the square of the sequence; fused attention keeps a tile."""
    names: list[str] = []
    moved, steps = 0, 0
    for op in graph.ops:
        result = graph.by_name.get(op.outputs[0]) if op.kind == "softmax" and op.outputs else None
        shape = concrete(result) if result is not None else None
        if shape is None or len(shape) < 3 or min(shape[-2:]) < 16:
            continue
        if not _is_scores(op, graph):
            continue
        names.append(op.name)
        moved += 4 * ((result.nbytes if result is not None else 0) or 0)
        steps = max(steps, shape[-1])
    if names:
        yield Lint(
            rule="sequence-squared",
            ops=tuple(names),
            message=f"scores of {steps:,} keys are written and read four times; their bytes grow "
            "with the square of the sequence, and fused attention never writes them",
            saves_bytes=moved,
        )


def _is_scores(op: Op, graph: Graph) -> bool:
    """Whether a softmax stands between two products of activations."""
    at = graph.producer.get(op.inputs[0]) if op.inputs else None
    for _ in range(4):  # through scale, mask and cast
        if at is None:
            return False
        if graph.ops[at].kind in ("matmul", "bmm", "batch_matmul", "einsum", "baddbmm"):
            return not any(graph[n].role.static for n in graph.ops[at].inputs[:2] if n)
        at = graph.producer.get(graph.ops[at].inputs[0]) if graph.ops[at].inputs else None
    return False


def vocabulary(graph: Graph, cost: Cost) -> Iterator[Lint]:
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
            if (
                wide
                and whole
                and tensor.elements >= VOCABULARY * whole
                and (op.kind in ("gather", "embedding", "embedding_lookup") or at > 0)
            ):
                seen.setdefault(name, []).append(op.name)
    for name, ops in seen.items():
        tensor = graph.by_name[name]
        share = (tensor.elements or 0) / (whole or 1)
        twice = len(seen) > 1
        hint = "; sharing it between input and output would store one less" if twice else ""
        yield Lint(
            rule="vocabulary-share",
            ops=tuple(ops),
            message=f"{name!r} holds {share:.0%} of the parameters "
            f"({tensor.nbytes or 0:,} bytes){hint}",
            saves_bytes=tensor.nbytes if twice else None,
        )


def head_size(graph: Graph, _cost: Cost) -> Iterator[Lint]:
    """Matrix engines work in tiles: sizes that are no multiple of 8 waste a part of them."""
    for op, _, kv_heads, width, keys in _attentions(graph):
        shape = concrete(keys) or ()
        size = shape[-1] if len(shape) == 4 else (shape[-1] // kv_heads if shape else width // 2)
        if size % MULTIPLE:
            padded = round_up(size, MULTIPLE)
            yield Lint(
                rule="head-size",
                ops=(op.name,),
                message=f"heads of {size} are no multiple of {MULTIPLE}: tiles are filled to "
                f"{padded}, {size / padded:.0%} of which is work",
                saves_bytes=None,
            )
    for op in graph.ops:
        if op.kind not in ("matmul", "gemm", "linear", "addmm") or not any(op.outputs[:1]):
            continue
        result = concrete(graph.by_name[op.outputs[0]])
        if result and result[-1] >= ROWS and result[-1] % MULTIPLE:
            padded = round_up(result[-1], TILE)
            yield Lint(
                rule="vocabulary-multiple",
                ops=(op.name,),
                message=f"{result[-1]:,} outputs are no multiple of {MULTIPLE}: "
                f"{padded:,} would fill the tiles",
                saves_bytes=None,
            )
