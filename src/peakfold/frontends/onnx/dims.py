"""Dimensions of a model's inputs that are no numbers: open ones, shared names, derived names."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import TypeProto

from peakfold.ir.bindings import Bindings
from peakfold.ir.size_functions import Unreadable
from peakfold.ir.sizes import parse_size_text


def named(name: str, kind: TypeProto, *, given: bool) -> TypeProto:
    """A type with a symbol for every dimension that is open: no number and no name, or below 0.

    Args:
        name: of the input.
        kind: its type.
        given: whether the user states its shape; then 0 is open, too.

    Example:
        >>> from onnx import helper
        >>> kind = helper.make_tensor_type_proto(1, [-1, 4])
        >>> symbols(named("x", kind, given=False))
        ['x.0', '']
    """
    if kind.WhichOneof("value") != "tensor_type" or not kind.tensor_type.HasField("shape"):
        return kind
    found = TypeProto()
    found.CopyFrom(kind)
    for at, dim in enumerate(found.tensor_type.shape.dim):
        below = dim.dim_value < (1 if given else 0)
        if not dim.dim_param and (below or not dim.HasField("dim_value")):
            dim.dim_param = f"{name}.{at}"
    return found


def symbols(kind: TypeProto) -> list[str]:
    """Names of the dimensions of a type; empty ones for numbers."""
    return [dim.dim_param for dim in kind.tensor_type.shape.dim]


def apart(types: Mapping[str, TypeProto], bindings: Bindings) -> list[str]:
    """Give dimensions names of their own where the user's shapes say that one name means several.

    Exporters call every open dimension ``N``, ``None`` or ``?``. A shape that is given wins.

    Args:
        types: of the inputs; changed in place.
        bindings: the user's.

    Returns:
        A note for each such name.
    """
    numbers: dict[str, dict[int, str]] = {}
    for name, kind in types.items():
        given = bindings.shapes.get(name)
        for symbol, number in zip(symbols(kind), given.dims if given else (), strict=False):
            if symbol and symbol not in bindings.dims:
                numbers.setdefault(symbol, {}).setdefault(number, name)
    shared = {symbol: found for symbol, found in numbers.items() if len(found) > 1}
    for name, kind in types.items():
        for at, dim in enumerate(kind.tensor_type.shape.dim):
            if name in bindings.shapes and dim.dim_param in shared:
                dim.dim_param = f"{name}.{at}"
    return [
        f"dimension {symbol!r} is "
        + " and ".join(f"{number} in {name!r}" for number, name in found.items())
        + ": the shapes that were given win"
        for symbol, found in shared.items()
    ]


def derived(symbol: str, dims: Mapping[str, int]) -> int | None:
    """The number of a dimension whose name is an expression of others; `None` if it has none.

    Example:
        >>> derived("seq//2", {"seq": 9}), derived("seq//2", {}), derived("seq", {"seq": 9})
        (4, None, None)
    """
    try:
        size = parse_size_text(symbol)
    except Unreadable:
        return None
    if not size.symbols or (str(size) == symbol and size.symbols == (symbol,)):
        return None
    number = size.bind(dims).number
    return number if number is not None and number >= 0 else None


def derived_dims(
    types: Mapping[str, TypeProto], bindings: Bindings
) -> tuple[dict[str, int], dict[str, str]]:
    """Numbers of derived names, and contradictions between them and what was given, by name."""
    more: dict[str, int] = {}
    wrong: dict[str, str] = {}
    for kind in types.values():
        for symbol in filter(None, symbols(kind)):
            number, known = derived(symbol, bindings.dims), bindings.dims.get(symbol)
            if number is None:
                continue
            if known is None:
                more[symbol] = number
            elif known != number:
                wrong[symbol] = f"dimension {symbol!r} is {known}, and its name makes it {number}"
    return more, wrong
