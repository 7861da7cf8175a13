"""Cost records -> what time models ask: every op that runs, with the weights it reads.

Ops with bodies give way to the ops inside them, as often as they run; of an `if`, the branch
with the most operations, as in `Cost.leaves`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from peakfold.analysis.cost import Cost, OpCost, runs
from peakfold.analysis.roofline import Work
from peakfold.analysis.traffic import data_operands
from peakfold.device import Group
from peakfold.errors import UsageError
from peakfold.ir import DTYPES, Graph, Op, Tensor
from peakfold.ir.types import OPAQUE
from peakfold.ops import lookup


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One op that runs.

    Attributes:
        work: its demands for the roofline.
        group: which kernels it runs on.
        elements: activations read and written, in elements; `None` = not known.
        weights: elements read of weights.
        floating: whether it computes in floating point.
        owner: position of the graph's op that it is or lies in.
    """

    work: Work
    group: Group
    elements: int | None
    weights: int
    floating: bool
    owner: int


_Leaf = tuple[Graph, Op, OpCost, int, int]


def tasks_of(graph: Graph, cost: Cost, precision: str | None = None) -> tuple[Task, ...]:
    """The ops that run, in order; ops that only re-read bytes are among them and move nothing.

    Args:
        graph: what was counted.
        cost: its records.
        precision: element type that floating-point ops are taken to compute in and to move, in
            place of the model's own (float16 for a float32 model that will run in it).

    Raises:
        UsageError: there is no such element type.
    """
    if precision is not None and DTYPES.get(precision, OPAQUE).bits is None:
        known = ", ".join(name for name, dtype in DTYPES.items() if dtype.bits)
        raise UsageError(f"no element type {precision!r}", hint=f"known: {known}")
    return tuple(_task(*leaf, precision) for leaf in _leaves(graph, cost, 1, None))


def _leaves(graph: Graph, cost: Cost, times: int, owner: int | None) -> Iterator[_Leaf]:
    for at, (op, found) in enumerate(zip(graph.ops, cost.ops, strict=True)):
        of = at if owner is None else owner
        if not found.bodies:
            yield graph, op, found, times, of
            continue
        pairs = list(zip(op.regions, found.bodies, strict=True))
        if op.kind == "if":
            region, (_, body) = max(pairs, key=lambda p: p[1][1].total().figures.flops or 0)
            yield from _leaves(region.graph, body, times, of)
        else:
            for region, (label, body) in pairs:
                yield from _leaves(region.graph, body, times * runs(label, found.trips), of)


def _task(
    graph: Graph, op: Op, found: OpCost, times: int, owner: int, precision: str | None
) -> Task:
    figures = found.figures
    tensors = [graph.by_name[name] for name in data_operands(op)]
    stored = [tensor for tensor in tensors if tensor.role.static]
    moved = figures.bytes_moved
    fixed = sum(tensor.nbytes or 0 for tensor in stored)
    # A gather reads some rows of its table only.
    fixed = fixed if figures.read is None else min(fixed, figures.read)
    floating = "float" in found.dtype
    work = Work(
        name=found.name, kind=found.kind, macs=figures.macs, other_ops=figures.other_ops,
        bytes_moved=moved, fixed_bytes=fixed, engine=found.engine, dtype=found.dtype, runs=times,
    )  # fmt: skip
    if precision is not None and floating:
        work = _in_precision(work, precision)
    live = next((tensor for tensor in tensors if not tensor.role.static), None)
    made = next((graph.by_name[name] for name in op.results), None)
    read = None if figures.read is None else _count(figures.read - fixed, live)
    written = None if figures.written is None else _count(figures.written, made)
    return Task(
        work=work,
        group=group_of(op, graph),
        elements=None if read is None or written is None else read + written,
        weights=sum(tensor.elements or 0 for tensor in stored) if fixed else 0,
        floating=floating,
        owner=owner,
    )


def _in_precision(work: Work, precision: str) -> Work:
    """The same op with other elements."""
    own, other = DTYPES[work.dtype].bits, DTYPES[precision].bits
    if not own or not other:
        return work
    moved = None if work.bytes_moved is None else -(-work.bytes_moved * other // own)
    return replace(work, dtype=precision, bytes_moved=moved,
                   fixed_bytes=-(-work.fixed_bytes * other // own))  # fmt: skip


def _count(nbytes: int, tensor: Tensor | None) -> int | None:
    """Elements of so many bytes of a tensor's type."""
    if nbytes <= 0:
        return 0
    if tensor is None or not tensor.dtype.bits:
        return None
    return round(nbytes * 8 / tensor.dtype.bits)


_CONV = frozenset({"conv", "conv_transpose", "fused_conv", "qlinear_conv", "conv_integer",
                   "deform_conv"})  # fmt: skip
_ATTENTION = frozenset({"attention", "multi_head_attention", "group_query_attention",
                        "ms_attention", "qattention", "flex_attention"})  # fmt: skip
_NORM = frozenset({"layer_normalization", "group_normalization", "group_norm",
                   "instance_normalization", "rms_normalization", "lp_normalization",
                   "simplified_layer_normalization", "skip_layer_normalization",
                   "skip_simplified_layer_normalization", "embed_layer_normalization",
                   "mean_variance_normalization", "lrn"})  # fmt: skip
_ACTIVATION = frozenset({"gelu", "fast_gelu", "quick_gelu", "bias_gelu", "sigmoid", "tanh",
                         "hard_swish", "hard_sigmoid", "mish", "elu", "selu", "celu", "softplus",
                         "erf", "exp", "log", "pow", "sqrt", "swish", "sin", "cos"})  # fmt: skip
_SOFTMAX = frozenset({"softmax", "log_softmax", "hardmax", "bias_softmax", "qlinear_softmax"})
_RESIZE = frozenset({"resize", "upsample", "grid_sample", "affine_grid"})


def group_of(op: Op, graph: Graph) -> Group:
    """Which kernels an op runs on.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> g = parse_graph("peakfold-graph 1\\ninput x: float32[1,8,4,4]\\n"
        ...                 "parameter w: float32[8,1,3,3]\\n"
        ...                 "y: float32[1,8,4,4] = conv(x, w, group=8)\\noutput y")
        >>> group_of(g.ops[0], g)
        'depthwise'
    """
    kind = op.kind.removeprefix("aten.")
    if kind in _CONV:
        return _convolution(op, graph)
    simple: tuple[tuple[frozenset[str], Group], ...] = (
        (_ATTENTION, "attention"), (_NORM, "norm"), (_ACTIVATION, "activation"),
        (_SOFTMAX, "softmax"), (_RESIZE, "resize"),
    )  # fmt: skip
    for kinds, group in simple:
        if kind in kinds:
            return group
    if kind == "batch_normalization":
        return "batch_norm"
    if "pool" in kind or kind.startswith(("reduce_", "arg_", "cum_")) or kind == "top_k":
        return "reduce"
    return _by_engine(op, graph)


def _by_engine(op: Op, graph: Graph) -> Group:
    engine = lookup(op.kind).engine
    if engine == "matrix":
        live = [name for name in op.inputs[:2] if name and not graph.by_name[name].role.static]
        return "bmm" if len(live) > 1 else "matmul"
    return "copy" if engine in ("copy", "none") else "elementwise"


def _convolution(op: Op, graph: Graph) -> Group:
    """By the weight: `[out, in / groups, *window]`, or `[in, out / groups, *window]` transposed."""
    position = 3 if op.kind == "qlinear_conv" else 1
    name = op.inputs[position] if position < len(op.inputs) else ""
    shape = graph.by_name[name].shape if name else None
    groups = op.attrs.get("group", 1)
    if shape is None or len(shape) < 2 or not isinstance(groups, int):
        return "conv"
    transposed = op.kind == "conv_transpose"
    channels = shape[0] if transposed else shape[1]
    if not isinstance(channels, int):
        return "conv"
    channels = channels if transposed else channels * groups
    if groups > 1:
        return "depthwise" if groups == channels else "group_conv"
    if all(size == 1 for size in shape[2:]):
        return "pointwise"
    return "stem" if channels <= 4 else "conv"
