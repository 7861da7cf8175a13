"""Complex arithmetic in real operations: the one convention of every count.

A multiply-accumulate of two complex numbers is 4 real ones (8 FLOPs), of a real and a complex
number 2. Element by element, an addition is 2 real operations, a product 6, a quotient 11 (the
product with the conjugate, the squared modulus, two quotients). Of any other function the real
and the imaginary part count as one each. Fast transforms state real operations themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from peakfold.ir.graph import Tensor
from peakfold.ops.rules import unknown
from peakfold.ops.spec import Context, CountRule, MaskRule, OpSpec

_NUMBERS: Final = ("float", "bfloat", "complex", "int", "uint")
_REAL_ALREADY: Final = frozenset(
    {
        "complex_abs",
        "dft",
        "einsum",
        "fft",
        "rfft2d",
        "signal_energy",
        "signal_fft_auto_scale",
        "stft",
    }
)

PARTS: Final[Mapping[str, str]] = MappingProxyType(
    {"complex32": "float16", "complex64": "float32", "complex128": "float64"}
)
"""The type in which the parts of a complex number are computed."""

# Real operations for one counted: complex with complex, complex with real, real with complex
# (that order matters to quotients alone).
_SUM: Final = (2, 1, 1)
_PRODUCT: Final = (6, 2, 2)
_BY_KIND: Final[Mapping[str, tuple[int, int, int]]] = MappingProxyType(
    {
        "add": _SUM,
        "sub": _SUM,
        "mul": _PRODUCT,
        "outer": _PRODUCT,
        "div": (11, 2, 7),
        # Of one operand alone: the factor is the first; a modulus is two squares, sum and root.
        "abs": (4, 4, 4),
        "cum_prod": (6, 6, 6),
        "reciprocal": (5, 5, 5),
        "reduce_prod": (6, 6, 6),
        "square": (6, 6, 6),
    }
)
_OF_TWO: Final = frozenset({"add", "div", "mul", "outer", "sub"})


def is_complex(tensor: Tensor | None) -> bool:
    """Whether the elements are pairs of real numbers."""
    return tensor is not None and tensor.dtype.name in PARTS


def product_factor(left: bool, right: bool) -> int:
    """Real multiply-accumulates in one of two operands, each complex or not.

    Example:
        >>> product_factor(True, True), product_factor(True, False), product_factor(False, False)
        (4, 2, 1)
    """
    return (1 + left) * (1 + right)


def _mac_factor(ctx: Context) -> int:
    """Real multiply-accumulates in one that the rule counts."""
    # Masks, positions and the like are no factors of a product.
    numbers = [t for t in ctx.inputs if t is not None and t.dtype.name.startswith(_NUMBERS)]
    if not any(map(is_complex, numbers)):
        return 1
    return 4 if all(map(is_complex, numbers)) else 2


def _other_factor(ctx: Context) -> int:
    """Real operations in one that the rule counts."""
    if not any(map(is_complex, (*ctx.inputs, *ctx.outputs))):
        return 1
    both, left, right = _BY_KIND.get(ctx.op.kind, (2, 2, 2))
    if ctx.op.kind not in _OF_TWO:
        return both
    first, second = (is_complex(t) for t in (*ctx.inputs, None, None)[:2])
    return both if first and second else left if first else right


def in_reals(row: OpSpec) -> OpSpec:
    """The row with multiply-accumulates and operations counted in real numbers.

    Example:
        >>> from peakfold.ir.graph import Op
        >>> from peakfold.ir.types import DTYPES
        >>> a, b = (Tensor(n, DTYPES["complex64"], (2,)) for n in "ab")
        >>> row = in_reals(OpSpec("mul", other_ops=lambda ctx: 2))
        >>> row.other_ops(Context(Op("n", "mul", ("a", "b"), ("y",)), (a, b), (a,)))
        12
    """
    if row.kind in _REAL_ALREADY:
        return row
    return replace(
        row,
        macs=_scaled(row.macs, _mac_factor),
        other_ops=_scaled(row.other_ops, _other_factor),
        masked=_masks(row.masked),
    )


def _scaled(rule: CountRule | None, factor: Callable[[Context], int]) -> CountRule | None:
    """A count in complex numbers as one in real numbers; what tells nothing goes on to."""
    if rule is None or rule is unknown:
        return rule

    def told(ctx: Context) -> int | None:
        found = rule(ctx)
        return found * factor(ctx) if found else found

    return told


def _masks(rule: MaskRule | None) -> MaskRule | None:
    if rule is None:
        return None

    def told(ctx: Context) -> tuple[int, int]:
        macs, other = rule(ctx)
        return macs * _mac_factor(ctx), other * _other_factor(ctx)

    return told
