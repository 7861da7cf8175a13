"""Matrix products: shapes and exact multiply-accumulates.

Scratch is unknown: kernels pack their operands into panels, or do not.
"""

from __future__ import annotations

from math import prod
from typing import Final

from peakfold.ir.types import DTYPES, Dim, DType, Shape
from peakfold.ops.complexes import is_complex, product_factor
from peakfold.ops.inference import (
    CannotTell,
    Misfit,
    dims,
    dtype,
    given,
    integer,
    produced,
    sizes,
    text,
)
from peakfold.ops.rules import Types, broadcast, count, number, tells, unknown, zero
from peakfold.ops.spec import Context, CountRule, OpSpec, ShapeRule


def matmul_shape(left: Shape, right: Shape) -> Shape:
    """Numpy's matmul: vectors promoted, leading axes broadcast.

    Example:
        >>> matmul_shape((2, 3, 4), (4, 5)), matmul_shape((4,), (4,))
        ((2, 3, 5), ())
    """
    if not left or not right:
        raise Misfit("a scalar is no matrix")
    a, b = (1, *left) if len(left) == 1 else left, (*right, 1) if len(right) == 1 else right
    if isinstance(a[-1], int) and isinstance(b[-2], int) and a[-1] != b[-2]:
        raise Misfit(f"{a[-1]} columns against {b[-2]} rows")
    rows = () if len(left) == 1 else (a[-2],)
    columns = () if len(right) == 1 else (b[-1],)
    return (*broadcast(a[:-2], b[:-2]), *rows, *columns)


def matmul_rule(left: int, right: int, result: DType | None = None, of: int = 0) -> ShapeRule:
    """Shape rule of a product of two operands; element type `result`, or that of input `of`."""

    def rule(ctx: Context) -> Types:
        element = dtype(ctx, of) if result is None else result
        return ((element, matmul_shape(dims(ctx, left), dims(ctx, right))),)

    return tells(rule)


def matmul_macs(left: int, right: int) -> CountRule:
    """Elements of the product times the length of the contracted axis.

    Example:
        >>> from peakfold.ir.graph import Op, Tensor
        >>> from peakfold.ir.types import DTYPES
        >>> a, b = (Tensor(n, DTYPES["float32"], s) for n, s in (("a", (5, 2, 3)), ("b", (3, 4))))
        >>> matmul_macs(0, 1)(Context(Op("n", "matmul", ("a", "b"), ("y",)), (a, b), ()))
        120
    """

    def rule(ctx: Context) -> int:
        a, b = sizes(ctx, left), sizes(ctx, right)
        shape = matmul_shape(a, b)
        return prod(number(dim) for dim in shape) * a[-1]

    return count(rule)


def gemm_shape(ctx: Context, left: int = 0, right: int = 1) -> tuple[Dim, Dim, Dim]:
    """Rows, columns and contracted length of ``A' * B'``."""
    a, b = dims(ctx, left), dims(ctx, right)
    if len(a) != 2 or len(b) != 2:
        raise CannotTell
    rows, inner = reversed(a) if integer(ctx, "transA", 0) else a
    inner_b, columns = reversed(b) if integer(ctx, "transB", 0) else b
    if isinstance(inner, int) and isinstance(inner_b, int) and inner != inner_b:
        raise Misfit(f"{inner} columns against {inner_b} rows")
    return rows, columns, inner


@tells
def _gemm(ctx: Context) -> Types:
    rows, columns, _ = gemm_shape(ctx)
    return ((dtype(ctx), (rows, columns)),)


@count
def _gemm_macs(ctx: Context) -> int:
    return prod(number(dim) for dim in gemm_shape(ctx))


@count
def _gemm_other(ctx: Context) -> int:
    # Adding C is one operation per output element; scaling by alpha and beta is not counted.
    return prod(produced(ctx)) if given(ctx, 2) else 0


def _terms(ctx: Context) -> tuple[list[str], str]:
    """Subscripts of every operand and of the result, an ellipsis spelled out as digits."""
    equation = text(ctx, "equation", "").replace(" ", "")
    before, arrow, result = equation.partition("->")
    operands = before.split(",")
    if not equation or len(operands) != len(ctx.inputs):
        raise CannotTell
    extra = [
        len(dims(ctx, at)) - len(term.replace("...", "")) if "..." in term else 0
        for at, term in enumerate(operands)
    ]
    widest = max(extra)
    if min(extra) < 0 or widest > 9:
        raise CannotTell
    every = "".join(map(str, range(widest)))
    full = [
        term.replace("...", every[widest - n :]) for term, n in zip(operands, extra, strict=True)
    ]
    if not arrow:
        letters = "".join(operands).replace(".", "")
        once = "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
        return full, every + once
    return full, result.replace("...", every)


def _labels(ctx: Context) -> dict[str, Dim]:
    """Extent of every subscript; axes of length 1 stretch where an ellipsis broadcasts."""
    terms, _ = _terms(ctx)
    found: dict[str, Dim] = {}
    for at, term in enumerate(terms):
        for label, dim in zip(term, dims(ctx, at), strict=True):
            found[label] = broadcast((found.get(label, 1),), (dim,))[0]
    return found


@tells
def _einsum(ctx: Context) -> Types:
    labels = _labels(ctx)
    result = _terms(ctx)[1]
    if not set(result) <= set(labels):
        raise CannotTell  # a subscript that no operand has
    return ((dtype(ctx), tuple(labels[c] for c in result)),)


@count
def _einsum_macs(ctx: Context) -> int:
    # Two operands: one multiply-accumulate per combination of subscripts. More are contracted
    # from left to right, as runtimes do without a path optimiser; a subscript is summed away as
    # soon as neither a later operand nor the result has it.
    extent = {label: number(dim) for label, dim in _labels(ctx).items()}
    terms, result = _terms(ctx)
    total, seen, left = 0, set(terms[0]), is_complex(ctx.inputs[0])
    for at, term in enumerate(terms[1:], 1):
        seen |= set(term)
        right = is_complex(ctx.inputs[at])
        total += prod(extent[label] for label in seen) * product_factor(left, right)
        left = left or right
        seen &= set(result).union(*terms[at + 1 :])
    return total


@count
def _einsum_other(ctx: Context) -> int:
    # A single operand is only summed: one addition per element; two are covered by MACs.
    return prod(sizes(ctx)) * (1 + is_complex(ctx.inputs[0])) if len(ctx.inputs) == 1 else 0


@tells
def _det(ctx: Context) -> Types:
    return ((dtype(ctx), dims(ctx)[:-2]),)


@count
def _det_macs(ctx: Context) -> int:
    # Gaussian elimination: step k updates a square of (n - k)^2 elements.
    *batch, n, _ = sizes(ctx)
    return prod(batch) * (n - 1) * n * (2 * n - 1) // 6


ROWS: Final = (
    OpSpec("matmul", matmul_rule(0, 1), workspace=unknown, macs=matmul_macs(0, 1),
           other_ops=zero, engine="matrix"),
    OpSpec("matmul_integer", matmul_rule(0, 1, DTYPES["int32"]), workspace=unknown,
           macs=matmul_macs(0, 1), other_ops=zero, engine="matrix"),
    OpSpec("gemm", _gemm, workspace=unknown, macs=_gemm_macs, other_ops=_gemm_other,
           engine="matrix"),
    OpSpec("einsum", _einsum, workspace=unknown, macs=_einsum_macs, other_ops=_einsum_other,
           engine="matrix"),
    OpSpec("det", _det, workspace=unknown, macs=_det_macs, other_ops=zero),
)  # fmt: skip
