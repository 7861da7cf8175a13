"""Calls that one operator of a file is made of: views, and what is computed between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from peakfold.frontends.aten.schema import Signature, signature_of
from peakfold.frontends.aten.values import Ref
from peakfold.frontends.pt2.values import Size, Value
from peakfold.ir.expression import Expression

Feed = Callable[[str, Signature, dict[str, Any], Value], Ref]
"""Adds a call, by name, schema, arguments and result, and gives what it makes."""


def times(one: Size, two: Size) -> Size:
    """The product of two sizes.

    Example:
        >>> times(2, 3), str(times(2, Expression.symbol("s0")))
        (6, '2*s0')
    """
    if isinstance(one, int) and isinstance(two, int):
        return one * two
    product = _expression(one) * _expression(two)
    number = product.number
    return product if number is None else number


def _expression(size: Size) -> Expression:
    return Expression.of(size) if isinstance(size, int) else size


def shape_of(ref: Ref) -> tuple[int, ...]:
    """Sizes of a tensor at the capture, which decided how an operator is put together."""
    value: Value = ref.tensor
    if value.traced is None:
        raise Unknown
    return value.traced[0]


class Unknown(Exception):
    """How an operator is put together cannot be told; nothing of it has been fed."""


class Pieces:
    """Makes the calls that one operator consists of.

    Args:
        name: of the whole, which the names of its parts begin with.
        feed: adds a call.
    """

    def __init__(self, name: str, feed: Feed) -> None:
        self._name = name
        self._feed = feed
        self._count: dict[str, int] = {}

    def call(
        self, operator: str, given: dict[str, Any], made: Value, overload: str = "default"
    ) -> Ref:
        """Add a call of an ATen operator; `made` is its result, lying anywhere."""
        signature = signature_of("aten", operator, overload)
        if signature is None:
            raise Unknown
        at = self._count.get(operator, 0)
        self._count[operator] = at + 1
        name = f"{self._name}.{operator}_{at}" if at else f"{self._name}.{operator}"
        return self._feed(name, signature, given, made)

    def new(
        self,
        operator: str,
        given: dict[str, Any],
        shape: Sequence[Size],
        traced: Sequence[int],
        like: Ref,
        overload: str = "default",
    ) -> Ref:
        """Add a call whose result is new and contiguous, of the element type of `like`."""
        value = replace(
            like.tensor,
            shape=tuple(shape),
            strides=_packed(shape),
            offset=0,
            traced=(tuple(traced), tuple(int(str(n)) for n in _packed(traced))),
        )
        return self.call(operator, given, value, overload)

    # Views.

    def _view(
        self,
        operator: str,
        source: Ref,
        given: dict[str, Any],
        change: Callable[[tuple[Any, ...], tuple[Any, ...]], tuple[list[Any], list[Any]]],
        overload: str = "default",
    ) -> Ref:
        value: Value = source.tensor
        if value.traced is None:
            raise Unknown
        shape, strides = change(value.shape, value.strides)
        then = change(*value.traced)
        made = replace(
            value,
            shape=tuple(shape),
            strides=tuple(strides),
            traced=(tuple(then[0]), tuple(then[1])),
        )
        return self.call(operator, {"self": source, **given}, made, overload)

    def unsqueeze(self, source: Ref, dim: int) -> Ref:
        """A new axis of size 1."""

        def change(shape: Any, strides: Any) -> Any:
            at = dim if dim >= 0 else dim + len(shape) + 1
            step = times(shape[at], strides[at]) if at < len(shape) else 1
            return [*shape[:at], 1, *shape[at:]], [*strides[:at], step, *strides[at:]]

        return self._view("unsqueeze", source, {"dim": dim}, change)

    def permute(self, source: Ref, dims: Sequence[int]) -> Ref:
        """Axes in another order."""
        return self._view(
            "permute",
            source,
            {"dims": list(dims)},
            lambda shape, strides: ([shape[d] for d in dims], [strides[d] for d in dims]),
        )

    def diagonal(self, source: Ref, one: int, two: int) -> Ref:
        """Where two axes have one index, as the last axis."""

        def change(shape: Any, strides: Any) -> Any:
            rest = [at for at in range(len(shape)) if at not in (one, two)]
            step = strides[one] + strides[two]
            return [*(shape[d] for d in rest), shape[one]], [*(strides[d] for d in rest), step]

        given = {"offset": 0, "dim1": one, "dim2": two}
        return self._view("diagonal", source, given, change)

    def expand(self, source: Ref, shape: Sequence[Size], traced: Sequence[int]) -> Ref:
        """Axes of size 1 repeated, and new ones in front."""
        more = len(shape) - len(source.tensor.shape)

        def change(old: Any, strides: Any) -> Any:
            now = traced if old is source.tensor.traced[0] else shape
            kept = [
                0 if (at := d - more) < 0 or (old[at] == 1 and now[d] != 1) else strides[at]
                for d in range(len(shape))
            ]
            return list(now), kept

        return self._view("expand", source, {"size": list(shape)}, change)

    def view(
        self,
        source: Ref,
        shape: Sequence[Size],
        traced: Sequence[int],
        stated: Sequence[Size] | None = None,
    ) -> Ref:
        """The elements in another shape, which their strides must let be read.

        Raises:
            Unknown: they do not.
        """
        strides = folded(source.tensor, shape, traced)
        if strides is None:
            raise Unknown
        value = replace(
            source.tensor,
            shape=tuple(shape),
            strides=strides[0],
            traced=(tuple(traced), strides[1]),
        )
        return self.call("view", {"self": source, "size": list(stated or shape)}, value)

    def reshape(self, source: Ref, shape: Sequence[Size], traced: Sequence[int]) -> Ref:
        """The elements in another shape, copied if their strides ask for it."""
        if folded(source.tensor, shape, traced) is not None:
            return self.view(source, shape, traced)
        value: Value = source.tensor
        copy = self.new(
            "clone", {"self": source, "memory_format": 0}, value.shape, shape_of(source), source
        )
        return self.new("_unsafe_view", {"self": copy, "size": list(shape)}, shape, traced, copy)

    def sum(self, source: Ref, dims: Sequence[int], *, keep: bool) -> Ref:
        """Sums along axes."""
        gone = {dim % len(source.tensor.shape) for dim in dims}

        def left(shape: Sequence[Any]) -> list[Any]:
            return [1 if at in gone else n for at, n in enumerate(shape) if keep or at not in gone]

        given = {"self": source, "dim": list(dims), "keepdim": keep}
        shape, then = left(source.tensor.shape), left(shape_of(source))
        return self.new("sum", given, shape, then, source, "dim_IntList")


def _packed(shape: Sequence[Size]) -> tuple[Size, ...]:
    """Strides of a contiguous tensor."""
    sizes = [1 if n == 0 else n for n in reversed(shape)]
    return tuple(reversed([1, *accumulate(sizes[:-1], times)])) if sizes else ()


def folded(
    source: Value, shape: Sequence[Size], traced: Sequence[int]
) -> tuple[tuple[Size, ...], tuple[int, ...]] | None:
    """Strides, then and at the capture, that read a tensor in another shape; `None` for none.

    Args:
        source: the tensor.
        shape: the other shape.
        traced: its numbers at the capture, which decide.
    """
    if source.traced is None:
        raise Unknown
    old, steps = source.traced
    if not old or 0 in old:
        return _packed(shape), tuple(n for n in _packed(traced) if isinstance(n, int))
    found: list[tuple[Size, int]] = []
    left = len(traced) - 1
    whole = made = 1
    made_size: Size = 1
    step, step_size = steps[-1], source.strides[-1]
    for at in reversed(range(len(old))):
        whole *= old[at]
        if at and (old[at - 1] == 1 or steps[at - 1] == whole * step):
            continue
        while left >= 0 and (made < whole or traced[left] == 1):
            found.append((times(made_size, step_size), made * step))
            made, made_size = made * traced[left], times(made_size, shape[left])
            left -= 1
        if made != whole:
            return None
        if at:
            step, step_size, whole, made, made_size = steps[at - 1], source.strides[at - 1], 1, 1, 1
    if left >= 0:
        return None
    return tuple(one for one, _ in reversed(found)), tuple(two for _, two in reversed(found))


def product(sizes: Sequence[Size]) -> Size:
    """The product of sizes.

    Example:
        >>> product([2, 3, 4])
        24
    """
    whole: Size = 1
    for size in sizes:
        whole = times(whole, size)
    return whole
