"""Element types and tensor sizes.

Widths are in bits, because int4 takes half a byte. A tensor of n elements of w bits takes
``ceil(n * w / 8)`` bytes: sub-byte elements are packed, as the ONNX specification stores them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

Dim = int | str
"""A dimension: a number, or the name of a symbol that `Graph.bind` replaces."""

Shape = tuple[Dim, ...]

MAX_RANK: Final = 64
"""Dimensions of a tensor, as in numpy and torch."""


@dataclass(frozen=True, slots=True)
class DType:
    """An element type: its name in the text form and its width.

    `bits` is `None` for opaque types (strings, sequences, maps, optionals), whose size no
    graph states; they are counted and shown, never taken as zero.

    Example:
        >>> DTYPES["int4"].bits, DTYPES["bfloat16"].bits, DTYPES["string"].bits
        (4, 16, None)
    """

    name: str
    bits: int | None

    def __str__(self) -> str:
        return self.name

    def nbytes(self, elements: int) -> int | None:
        """Bytes of `elements` packed elements, or `None` when the width is unknown.

        Example:
            >>> DTYPES["int4"].nbytes(3), DTYPES["float32"].nbytes(3)
            (2, 12)
        """
        return None if self.bits is None else (elements * self.bits + 7) // 8


_WIDTHS: Final = {
    "float64": 64, "float32": 32, "float16": 16, "bfloat16": 16,
    "float8e4m3fn": 8, "float8e4m3fnuz": 8, "float8e5m2": 8, "float8e5m2fnuz": 8,
    "float8e8m0": 8, "float4e2m1": 4,
    "int64": 64, "int32": 32, "int16": 16, "int8": 8, "int4": 4, "int2": 2,
    "uint64": 64, "uint32": 32, "uint16": 16, "uint8": 8, "uint4": 4, "uint2": 2,
    "bool": 8, "complex64": 64, "complex128": 128,
    # A resource is the number of a variable or table, as TFLite's runtimes hold it.
    "resource": 32, "variant": None,
    "string": None, "opaque": None,
}  # fmt: skip

DTYPES: Final[dict[str, DType]] = {name: DType(name, bits) for name, bits in _WIDTHS.items()}
OPAQUE: Final = DTYPES["opaque"]


def compatible(one: Shape, other: Shape) -> bool:
    """Whether two shapes may be the same: symbols may become any number.

    Example:
        >>> compatible((2, "n"), (2, 3)), compatible((2, 4), (2, 3)), compatible((2,), (2, 1))
        (True, False, False)
    """
    return len(one) == len(other) and all(
        a == b or isinstance(a, str) or isinstance(b, str) for a, b in zip(one, other, strict=True)
    )


@lru_cache(maxsize=4096)  # a model has few shapes, and every analysis asks for each of them
def element_count(shape: Shape) -> int | None:
    """Number of elements, or `None` while a dimension is a symbol.

    Example:
        >>> element_count((2, 3)), element_count(()), element_count(("batch", 3))
        (6, 1, None)
    """
    count = 1
    for dim in shape:
        if isinstance(dim, str):
            return None
        count *= dim
    return count
