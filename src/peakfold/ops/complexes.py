"""Complex arithmetic in real operations: one convention, whichever format a graph is of.

A product of two complex numbers is 4 real products and 2 sums, a sum of two is 2 sums: a complex
multiply-accumulate is 4 real ones, 8 FLOPs. With a real number a product is 2 and so is a
multiply-accumulate. Rules of operators count numbers, whatever their type; here is what one costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from peakfold.ir import Tensor
from peakfold.ops.spec import Context

_FACTORS: Final[Mapping[str, tuple[int, ...]]] = MappingProxyType(
    {"addmm": (1, 2), "einsum": tuple(range(26)), "trilinear": (0, 1, 2)}
)
"""Operands that are multiplied, where they are not the first two."""

_IN_REAL: Final = frozenset(
    {"fft", "dft", "stft", "rfft2d", "signal_rfft", "signal_irfft", "signal_energy",
     "signal_fft_auto_scale", "complex_abs", "real", "imag"}
)  # fmt: skip
"""Kinds whose rules count real operations."""

_EACH: Final[Mapping[str, int]] = MappingProxyType(
    {
        "mul": 6,
        "square": 6,
        "outer": 6,
        "reduce_prod": 6,
        "div": 11,
        "reciprocal": 6,
        "abs": 4,
        "elementwise2": 4,
    }
)
"""Real operations of one on complex numbers; 2, one for each part, of any other."""

PARTS: Final[Mapping[str, str]] = MappingProxyType(
    {"complex32": "float16", "complex64": "float32", "complex128": "float64"}
)
"""The type in which the parts of a complex number are computed."""


def real_macs(ctx: Context, macs: int | None) -> int | None:
    """Real multiply-accumulates of an operator that counts so many of its numbers.

    Example:
        >>> from peakfold.ir.graph import Op, Tensor
        >>> from peakfold.ir.types import DTYPES
        >>> a, b = (Tensor(n, DTYPES["complex64"], (2, 2)) for n in "ab")
        >>> real_macs(Context(Op("n", "matmul", ("a", "b"), ("y",)), (a, b), ()), 8)
        32
    """
    places = _FACTORS.get(ctx.op.kind, (0, 1))
    given = [_complex(ctx.inputs[at]) for at in places if at < len(ctx.inputs)]
    return None if macs is None else macs * (1, 2, 4)[min(sum(given), 2)]


def real_operations(ctx: Context, operations: int | None) -> int | None:
    """Real operations, likewise, of those that belong to no multiply-accumulate.

    Example:
        >>> from peakfold.ir.graph import Op, Tensor
        >>> from peakfold.ir.types import DTYPES
        >>> a, b = (Tensor(d, DTYPES[d], (8,)) for d in ("complex64", "float32"))
        >>> def op(kind, *given):
        ...     return Context(Op("n", kind, tuple(t.name for t in given), ("y",)), given, ())
        >>> [real_operations(c, 8) for c in (op("mul", a, a), op("mul", a, b), op("add", a, a))]
        [48, 16, 16]
    """
    kind = ctx.op.kind
    if operations is None or kind in _IN_REAL:
        return operations
    given = [_complex(tensor) for tensor in ctx.inputs if tensor is not None]
    if not any(given):
        return operations
    number = isinstance(ctx.op.attrs.get("other"), int | float)  # a real one, no tensor
    mixed = (number or not all(given)) and kind in ("mul", "div", "outer")
    return operations * (2 if mixed else _EACH.get(kind, 2))


def _complex(tensor: Tensor | None) -> bool:
    return tensor is not None and tensor.dtype.name in PARTS
