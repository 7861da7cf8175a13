"""Tensors and sizes of an exported program that was read from a file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from peakfold.errors import ModelError, UsageError
from peakfold.frontends.aten.arguments import Arguments
from peakfold.frontends.aten.build import CallBuilder
from peakfold.frontends.aten.schema import Signature
from peakfold.frontends.aten.values import Place, made_of, plain_attribute, reach
from peakfold.frontends.pt2.archive import TRUST
from peakfold.frontends.pt2.schema import SymInt, TensorMeta
from peakfold.ir import DTYPES, OPAQUE, AttrValue, Dim, DType, Role, Tensor
from peakfold.ir.expression import Expression
from peakfold.ir.size_functions import Unreadable
from peakfold.ir.sizes import parse_size_text

Size = int | Expression

_DTYPES: Final = {
    1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16", 7: "float32",
    8: "float64", 9: "complex32", 10: "complex64", 11: "complex128", 12: "bool", 13: "bfloat16",
    28: "uint16", 29: "float8e4m3fn", 30: "float8e5m2", 31: "float8e4m3fnuz",
    32: "float8e5m2fnuz", 33: "float8e8m0", 34: "uint32", 35: "uint64",
}  # fmt: skip
_STRIDED = 7
_LAYOUTS: Final = {
    1: "sparse_coo",
    2: "sparse_csr",
    3: "sparse_csc",
    4: "sparse_bsr",
    5: "sparse_bsc",
    6: "mkldnn",
    _STRIDED: "",
}
MAX_LETTERS: Final = 2**16
"""Characters of all different sizes of a program; a large one has some thousand."""
LARGEST: Final = 2**62
"""Bytes; no tensor of this world has as many."""


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor of a program: what it is, and in which storage it lies.

    Attributes:
        dtype: its element type.
        width: bytes of an element.
        shape, strides, offset: in elements; expressions while symbols have no numbers.
        layout: empty for strides, or the name of another layout.
        device: where it lives.
        storage: identity of the bytes that it lies in.
        traced: shape and strides as they were at the capture; `None` where nobody knows.
    """

    dtype: DType
    width: int
    shape: tuple[Size, ...]
    strides: tuple[Size, ...]
    offset: Size
    layout: str
    device: tuple[str, int]
    storage: int
    traced: tuple[tuple[int, ...], tuple[int, ...]] | None

    @property
    def dims(self) -> tuple[Dim, ...]:
        """Its shape in the IR."""
        return tuple(size if isinstance(size, int) else str(size) for size in self.shape)

    @property
    def place(self) -> Place:
        """Where it lies."""
        if self.layout:
            return Place(self.storage, None, None, (self.dims,))
        numbers = (*self.shape, *self.strides, self.offset)
        known = [size for size in numbers if isinstance(size, int)]
        if len(known) < len(numbers):
            layout = (self.dims, tuple(map(str, self.strides)), self.dtype)
            return Place(self.storage, None, None, layout)
        rank = len(self.shape)
        return reach(self.storage, known[:rank], known[rank:-1], known[-1], self.width, self.dtype)


class Sizes:
    """Sizes of a program, with the user's numbers for symbols put in.

    Args:
        dims: the numbers.
    """

    def __init__(self, dims: Mapping[str, int]) -> None:
        self._dims = dims
        self._read: set[str] = set()
        self._letters = 0
        self.symbols: dict[str, None] = {}

    def of(self, size: SymInt, where: str) -> Size:
        """A size: a number, or what is left of an expression.

        Args:
            size: as the file states it.
            where: whose it is.

        Raises:
            ModelError: no size: negative, absurd or unreadable.
            UsageError: the user's numbers make none of it.
        """
        if size.as_expr is None:
            return _sane(size.as_int, where)
        text = size.as_expr.expr_str
        if text not in self._read:
            self._read.add(text)
            self._letters += len(text)
            if self._letters > MAX_LETTERS:
                raise ModelError("its sizes are too many expressions", where=where)
        try:
            whole = parse_size_text(text)
            self.symbols |= dict.fromkeys(whole.symbols)
            bound = whole.bind(self._dims)
        except Unreadable as error:
            shown = text if len(text) <= 60 else f"{text[:59]}…"
            raise ModelError(f"size {shown!r}: {error}", where=where, hint=TRUST) from None
        if bound.value is None:
            return bound
        number = bound.number
        if number is None or number < 0:
            said = ", ".join(f"{s}={self._dims[s]}" for s in whole.symbols if s in self._dims)
            kind = UsageError if said else ModelError
            raise kind(
                f"size {str(whole)!r} is {bound.value} with {said or 'nothing given'}", where=where
            )
        return _sane(number, where)

    def tensor(self, meta: TensorMeta, storage: int, where: str) -> Value:
        """A tensor, lying in a storage.

        Raises:
            ModelError: an unknown element type or layout, or sizes that are none.
        """
        if meta.dtype not in _DTYPES or meta.layout not in _LAYOUTS:
            codes = f"element type {_shown(meta.dtype)} or layout {_shown(meta.layout)}"
            raise ModelError(f"{codes} is unknown", where=where)
        strides = meta.strides if meta.layout == _STRIDED else []
        if meta.layout == _STRIDED and len(strides) != len(meta.sizes):
            raise ModelError(f"{len(meta.sizes)} sizes and {len(strides)} strides", where=where)
        shape = tuple(self.of(size, where) for size in meta.sizes)
        name = _DTYPES[meta.dtype]
        dtype = DTYPES.get(name, OPAQUE)
        made = Value(
            dtype,
            4 if dtype.bits is None else max(dtype.bits // 8, 1),
            shape,
            tuple(self.of(size, where) for size in strides),
            self.of(meta.storage_offset, where),
            _LAYOUTS[meta.layout],
            (meta.device.type, meta.device.index or 0),
            storage,
            _traced(meta),
        )
        place = made.place
        if (place.stop or 0) >= LARGEST or _product(shape) * made.width >= LARGEST:
            raise ModelError("it is larger than any memory", where=where)
        return made


def _sane(number: int | None, where: str) -> int:
    if number is None or not 0 <= number < LARGEST:
        raise ModelError(f"a size of it is {_shown(number)}", where=where)
    return number


def _shown(number: int | None) -> str:
    return str(number) if number is None or abs(number) < 2**80 else "of no use"


def _product(shape: Iterable[Size]) -> int:
    total = 1
    for size in shape:
        total *= size if isinstance(size, int) else 1
    return total


def _traced(meta: TensorMeta) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    sizes = tuple(map(_hint, meta.sizes))
    strides = tuple(map(_hint, meta.strides))
    known = [n for n in (*sizes, *strides) if n is not None]
    if len(known) < len(sizes) + len(strides):
        return None
    return tuple(known[: len(sizes)]), tuple(known[len(sizes) :])


def _hint(size: SymInt) -> int | None:
    if size.as_expr is None:
        return size.as_int
    return size.as_expr.hinted


class ProgramBuilder(CallBuilder):
    """Grows a graph call by call; tensors are `Value` records of a file."""

    most_looks = 5_000_000

    def place_of(self, tensor: Value) -> Place:
        """Where a tensor lies."""
        return tensor.place

    def tensor_of(
        self, name: str, tensor: Value, role: Role = Role.ACTIVATION, *, view: bool = False
    ) -> Tensor:
        """The IR tensor; `view` when it lies in another tensor's bytes."""
        place = tensor.place if view else None
        return made_of(name, tensor.dtype, tensor.dims, role, place)

    def odd_layout(self, tensor: Value) -> str:
        """What to call the layout of a tensor without strides; empty for one that has them."""
        return tensor.layout

    def signature_of(self, func: Signature, args: Sequence[Any]) -> Signature:
        """The schema of an operator, found before."""
        del args
        return func

    def arguments(self) -> Arguments:
        """Empty arguments, which know what values are."""
        return Arguments(_attribute, lambda _: False)


def _attribute(value: object) -> AttrValue | None:
    if isinstance(value, DType):
        return str(value)
    return plain_attribute(value, _attribute)


def dtype_of(code: int) -> DType:
    """The element type that a number of the schema means; opaque for another one."""
    return DTYPES.get(_DTYPES.get(code, ""), OPAQUE)
