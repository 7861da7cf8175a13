"""Dense and effective: how many multiply-accumulates meet a weight that is not zero.

Every weight of a layer takes part in the same number of multiply-accumulates, so a layer's
effective count is exact for each kind of sparsity that a kernel may use:

- unstructured: zeros anywhere are skipped;
- 2:4: of every four neighbours along the input axis at most two are not zero, in all of the
  layer's weights, which matrix engines with sparse tensor cores run at half the work;
- structured: whole output filters or whole input channels that are zero are cut away.

A quantised weight is zero where it equals its zero point. Weights whose values are not at hand
count as dense, and are named.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from peakfold.analysis.cost.parameters import place
from peakfold.analysis.cost.records import Cost
from peakfold.ir import Graph, Op

Values = Callable[[str], NDArray[np.generic] | None]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveOp:
    """One op with weights.

    Attributes:
        elements, zeros: of its weights.
        macs: dense multiply-accumulates.
        unstructured: those whose weight is not zero.
        two_four: half of `macs` where the weights follow the 2:4 pattern, else all of them.
        structured: those left without zero filters and zero input channels.
    """

    name: str
    kind: str
    elements: int
    zeros: int
    macs: int
    unstructured: int
    two_four: int
    structured: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Effective:
    """A model's dense and effective counts.

    Attributes:
        ops: those whose weights were read.
        macs, unstructured, two_four, structured: of the whole model; ops without stored weights
            (a product of activations) count in full everywhere.
        unread: ops with weights whose values are not at hand, counted as dense.
    """

    ops: tuple[EffectiveOp, ...]
    macs: int
    unstructured: int
    two_four: int
    structured: int
    unread: tuple[str, ...]

    @property
    def elements(self) -> int:
        """Weights that were read."""
        return sum(op.elements for op in self.ops)

    @property
    def zeros(self) -> int:
        """Zeros among them."""
        return sum(op.zeros for op in self.ops)


def effective(graph: Graph, cost: Cost, original: Graph, values: Values) -> Effective:
    """Count what sparsity leaves.

    Args:
        graph: what was counted.
        cost: of it.
        original: the graph before folding, in which weights are followed to what is stored.
        values: stored elements by tensor name.
    """
    before = {place(op): op for op in original.ops}
    found: list[EffectiveOp] = []
    unread: list[str] = []
    total = unstructured = two_four = structured = 0
    for op, counted in zip(graph.ops, cost.ops, strict=True):
        macs = counted.macs or 0
        total += macs
        one = _read_op(before.get(place(op), op), macs, original, values) if macs else None
        if one is not None:
            found.append(one)
        elif macs and counted.figures.params:
            unread.append(op.name)
        unstructured += macs if one is None else one.unstructured
        two_four += macs if one is None else one.two_four
        structured += macs if one is None else one.structured
    return Effective(
        ops=tuple(found),
        macs=total,
        unstructured=unstructured,
        two_four=two_four,
        structured=structured,
        unread=tuple(unread),
    )


def _read_op(op: Op, macs: int, graph: Graph, values: Values) -> EffectiveOp | None:
    try:
        return _effective_op(op, macs, graph, values)
    except (ValueError, IndexError, TypeError):  # a malformed op: weights that do not fit it
        return None


def _effective_op(op: Op, macs: int, graph: Graph, values: Values) -> EffectiveOp | None:
    masks: list[Mask] = []
    for at in _WEIGHTS_AT.get(op.kind, ()):
        if at < len(op.inputs) and op.inputs[at]:
            mask = _zeros(op.inputs[at], graph, values)
            mask = None if mask is None else _by_zero_point(op, at, mask, values)
            if mask is not None and mask.size:
                masks.append(mask)
    if op.kind == "matmul_nbits":
        packed = _unpacked(op, values)
        masks = [] if packed is None else [packed]
    elif op.kind in _PRODUCTS and len(masks) == 2:
        masks = masks[1:]  # both stored: the second is the weight
    if not masks:
        return None
    elements, zeros = sum(m.size for m in masks), sum(int(m.sum()) for m in masks)
    halved, left = macs, macs
    axes = _axes(op, masks[0].ndim, graph) if len(masks) == 1 else None
    if axes is not None:
        halved = macs // 2 if _is_two_four(masks[0], axes[1]) else macs
        left = _cut(masks[0], axes, macs)
    return EffectiveOp(
        name=op.name,
        kind=op.kind,
        elements=elements,
        zeros=zeros,
        macs=macs,
        unstructured=macs * (elements - zeros) // elements,
        two_four=halved,
        structured=left,
    )


_PRODUCTS = frozenset({"matmul", "fused_matmul", "transpose_matmul", "batch_matmul"})
_WEIGHTS_AT: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("conv", "conv_transpose", "fused_conv", "deform_conv", "conv_integer",
                     "nhwc_conv", "nhwc_fused_conv"), (1,)),
    **dict.fromkeys(_PRODUCTS, (0, 1)),
    **dict.fromkeys(("gemm", "fused_gemm", "matmul_integer", "matmul_integer_to_float",
                     "dynamic_quantize_matmul", "fully_connected"), (1,)),
    **dict.fromkeys(("conv_2d", "depthwise_conv_2d", "conv_3d"), (1,)),
    "transpose_conv": (1,),
    **dict.fromkeys(("qlinear_conv", "qlinear_matmul", "qgemm"), (3,)),
    **dict.fromkeys(("lstm", "gru", "rnn"), (1, 2)),
}  # fmt: skip
"""Operands that hold a layer's weights."""

_ZERO_POINT_OF = {
    ("conv_integer", 1): 3,
    ("matmul_integer", 1): 3,
    ("matmul_integer_to_float", 1): 5,
    ("dynamic_quantize_matmul", 1): 3,
    ("qlinear_conv", 3): 5,
    ("qlinear_matmul", 3): 5,
    ("qgemm", 3): 5,
}


def _zeros(name: str, graph: Graph, values: Values) -> Mask | None:
    """Where a weight is zero, followed back through ops that keep every element."""
    at = graph.producer.get(name)
    if at is None:
        array = values(name)
        return None if array is None else np.asarray(array == 0)
    op = graph.ops[at]
    if op.kind not in _KEEP or not op.inputs or not op.inputs[0]:
        return None
    inner = _zeros(op.inputs[0], graph, values)
    if inner is None:
        return None
    if op.kind == "transpose":
        perm = op.attrs.get("perm")
        return inner.transpose([int(a) for a in perm] if isinstance(perm, tuple) else None)
    if op.kind in ("dequantize_linear", "dequantize"):
        return _by_zero_point(op, 0, inner, values)
    shape = graph[name].shape
    known = shape is not None and all(isinstance(dim, int) for dim in shape)
    return inner.reshape(tuple(map(int, shape or ()))) if known else None


_KEEP = frozenset({"transpose", "reshape", "squeeze", "unsqueeze", "flatten", "identity", "cast",
                   "dequantize_linear", "dequantize"})  # fmt: skip


def _by_zero_point(op: Op, at: int, mask: Mask, values: Values) -> Mask | None:
    """The mask of a quantised weight: zero is where it equals its zero point."""
    where = 2 if op.kind == "dequantize_linear" else _ZERO_POINT_OF.get((op.kind, at))
    if where is None or where >= len(op.inputs) or not op.inputs[where]:
        return mask
    point, stored = values(op.inputs[where]), values(op.inputs[at])
    if point is None or stored is None:
        return None if stored is not None else mask
    if point.size == 1:
        return np.asarray(stored == point.reshape(()))
    axis = op.attrs.get("axis", 1) if op.kind == "dequantize_linear" else 0
    if point.ndim != 1 or not isinstance(axis, int) or point.size != stored.shape[axis]:
        return None
    shape = [1] * stored.ndim
    shape[axis] = point.size
    return np.asarray(stored == point.reshape(shape))


def _unpacked(op: Op, values: Values) -> Mask | None:
    """Zeros of 4-bit weights in blocks, two to a byte, low half first (MatMulNBits)."""
    stored = values(op.inputs[1])
    k, n, bits = (op.attrs.get(name) for name in ("K", "N", "bits"))
    if stored is None or bits not in (4, None) or not isinstance(k, int) or not isinstance(n, int):
        return None
    halves = _halves(stored, n)
    size = op.attrs.get("block_size")
    points = values(op.inputs[3]) if len(op.inputs) > 3 and op.inputs[3] else None
    if points is None:
        return np.asarray(halves[:, :k] == 8)
    if points.dtype != np.uint8 or not isinstance(size, int):
        return None
    spread = np.repeat(_halves(points, n), size, axis=1)[:, : halves.shape[1]]
    return np.asarray((halves == spread)[:, :k])


def _halves(packed: NDArray[np.generic], rows: int) -> NDArray[np.uint8]:
    raw = packed.reshape(rows, packed.size // rows).astype(np.uint8)
    both = np.stack([np.bitwise_and(raw, 15), np.right_shift(raw, 4)], axis=-1)
    return both.reshape(rows, -1)


def _axes(op: Op, rank: int, graph: Graph) -> tuple[int, int] | None:
    """Output and input axis of a layer's weight; `None` where it has no such two."""
    if op.kind in (
        "conv",
        "fused_conv",
        "deform_conv",
        "conv_integer",
        "qlinear_conv",
        "nhwc_conv",
        "nhwc_fused_conv",
    ):
        return 0, 1
    if op.kind == "conv_transpose":
        return 1, 0
    if op.kind in ("conv_2d", "conv_3d", "fully_connected", "matmul_nbits"):
        return 0, rank - 1
    if op.kind in ("gemm", "fused_gemm", "qgemm"):
        return (0, 1) if op.attrs.get("transB", 0) else (1, 0)
    if (
        op.kind
        in _PRODUCTS
        | {"matmul_integer", "matmul_integer_to_float", "qlinear_matmul", "dynamic_quantize_matmul"}
        and rank == 2
    ):
        return (1, 0) if _static(op.inputs[-1], graph) or len(op.inputs) > 2 else (0, 1)
    return None


def _static(name: str, graph: Graph) -> bool:
    at = graph.producer.get(name)
    while at is not None and graph.ops[at].kind in _KEEP:
        name = graph.ops[at].inputs[0]
        at = graph.producer.get(name)
    return graph[name].role.static


def _is_two_four(mask: Mask, axis: int) -> bool:
    size = mask.shape[axis]
    if size % 4 or not mask.size:
        return False
    grouped = np.moveaxis(mask, axis, -1).reshape(-1, 4)
    return bool((grouped.sum(axis=1) >= 2).all())


def _cut(mask: Mask, axes: tuple[int, int], macs: int) -> int:
    """Multiply-accumulates left when zero filters and zero input channels are cut away."""
    out, inner = axes
    filters = mask.all(axis=tuple(a for a in range(mask.ndim) if a != out))
    channels = mask.all(axis=tuple(a for a in range(mask.ndim) if a != inner))
    kept = int((~filters).sum()) * int((~channels).sum())
    return macs * kept // (filters.size * channels.size)
