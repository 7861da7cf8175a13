"""Numbers the user gives for symbolic dimensions and unknown shapes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from peakfold.arguments import digits
from peakfold.errors import UsageError
from peakfold.ir import DTYPES, DType, Shape


@dataclass(frozen=True, slots=True)
class GivenShape:
    """A shape the user states for one tensor, with an element type where the model has none."""

    dims: tuple[int, ...]
    dtype: DType | None = None

    def __str__(self) -> str:
        dims = "x".join(map(str, self.dims))
        return dims if self.dtype is None else f"{self.dtype}:{dims}"


@dataclass(frozen=True, slots=True)
class Bindings:
    """`--dim` and `--shape` options as values.

    Attributes:
        dims: numbers for symbols.
        shapes: shapes by tensor name.
    """

    dims: Mapping[str, int] = field(default_factory=dict)
    shapes: Mapping[str, GivenShape] = field(default_factory=dict)

    @classmethod
    def parse(cls, dims: Iterable[str] = (), shapes: Iterable[str] = ()) -> Bindings:
        """Bindings from option texts.

        Args:
            dims: items ``NAME=N``.
            shapes: items ``TENSOR=[DTYPE:]AxBxC``; ``TENSOR=`` is a scalar.

        Raises:
            UsageError: an item that cannot be read, or one name given twice.

        Example:
            >>> b = Bindings.parse(["batch=4"], ["x=1x3x224x224", "y=int8:7"])
            >>> b.dims["batch"], b.shapes["x"].dims, str(b.shapes["y"])
            (4, (1, 3, 224, 224), 'int8:7')
        """
        given_dims: dict[str, int] = {}
        for item in dims:
            name, sep, number = item.rpartition("=")
            count = digits(number)
            if not sep or not name or count is None:
                raise UsageError(f"--dim {item!r} is not NAME=N", hint="for example --dim batch=4")
            if name in given_dims:
                raise UsageError(f"--dim {name!r} is given twice")
            given_dims[name] = _sane(count, item)
        given_shapes: dict[str, GivenShape] = {}
        for item in shapes:
            name, sep, text = item.rpartition("=")
            if not sep or not name:
                raise UsageError(f"--shape {item!r} is not TENSOR=AxBxC")
            if name in given_shapes:
                raise UsageError(f"--shape {name!r} is given twice")
            given_shapes[name] = _parse_shape(item, text)
        return cls(given_dims, given_shapes)

    def merge_shape(self, name: str, declared: Shape | None) -> tuple[Shape | None, dict[str, int]]:
        """A declared shape with the user's numbers put in, and the symbols that they bind.

        Raises:
            UsageError: the user's shape contradicts a number of the model.
        """
        bound: dict[str, int] = {}
        given = self.shapes.get(name)
        if given is None:
            if declared is None:
                return None, bound
            return tuple(self.dims.get(d, d) if isinstance(d, str) else d for d in declared), bound
        if declared is not None:
            if len(declared) != len(given.dims):
                raise UsageError(
                    f"--shape {name}={given} has {len(given.dims)} dimensions, the model says "
                    f"{len(declared)}"
                )
            for dim, number in zip(declared, given.dims, strict=True):
                fixed = self.dims.get(dim, bound.get(dim, number)) if isinstance(dim, str) else dim
                if fixed != number:
                    raise UsageError(
                        f"--shape {name}={given}: the model fixes {fixed}, not {number}"
                    )
                if isinstance(dim, str):
                    bound[dim] = number
        return given.dims, bound

    def with_dims(self, more: Mapping[str, int]) -> Bindings:
        """The bindings with further symbols bound.

        Raises:
            UsageError: a symbol would get two numbers.
        """
        for name, number in more.items():
            if self.dims.get(name, number) != number:
                raise UsageError(
                    f"dimension {name!r} is {self.dims[name]} by one option and {number} by another"
                )
        return Bindings({**self.dims, **more}, self.shapes)


def _parse_shape(item: str, text: str) -> GivenShape:
    dtype = None
    if ":" in text:
        word, text = text.split(":", 1)
        if word not in DTYPES:
            raise UsageError(f"--shape {item!r}: unknown element type {word!r}")
        dtype = DTYPES[word]
    parts = text.replace(",", "x").split("x") if text else []
    numbers = [number for part in parts if (number := digits(part)) is not None]
    if len(numbers) < len(parts):
        raise UsageError(f"--shape {item!r} is not TENSOR=AxBxC", hint="--shape x=1x3x224x224")
    return GivenShape(tuple(_sane(number, item) for number in numbers), dtype)


def _sane(number: int, item: str) -> int:
    if number >= 2**48:
        raise UsageError(f"{item!r}: {number} is no dimension of this world")
    return number
