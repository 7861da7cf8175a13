"""The arguments of an ATen call, taken apart: operands by position, the rest as attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from peakfold.frontends.aten.schema import Signature
from peakfold.frontends.aten.values import Ref
from peakfold.ir import AttrValue

_WEIGHTS = ("params", "w_ih", "weight0")
_FFT_DIMS = ("dim", "dims")


@dataclass(slots=True)
class Arguments:
    """An operator's arguments, split: tensors by position, the rest as attributes.

    Attributes:
        attribute: what a value is as an attribute, if semantics can need it.
        is_packed: whether a value holds weights in a layout of a kernel's own.
    """

    attribute: Callable[[object], AttrValue | None]
    is_packed: Callable[[object], bool]
    refs: list[Ref | None] = field(default_factory=list)
    attrs: dict[str, AttrValue] = field(default_factory=dict)
    start: dict[str, int] = field(default_factory=dict)
    written: list[int] = field(default_factory=list)
    packed: list[object] = field(default_factory=list)

    def add(self, name: str, value: object, *, written: bool) -> None:
        """Add the next argument; `written` when the operator writes it in place."""
        self.start[name] = len(self.refs)
        if isinstance(value, Ref):
            if written:
                self.written.append(len(self.refs))
            self.refs.append(value)
        elif isinstance(value, list | tuple) and any(isinstance(v, Ref) for v in value):
            for item in value:
                self.add(name, item, written=written)
            self.start[name] = len(self.refs) - len(value)
        elif value is None:
            self.refs.append(None)
        elif isinstance(value, list | tuple) and any(map(self.is_packed, value)):
            self.packed += value
        elif self.is_packed(value):
            self.packed.append(value)
        else:
            found = self.attribute(value)
            if found is not None:
                self.attrs[name] = found


def bound(
    signature: Signature, args: Sequence[Any], kwargs: Mapping[str, Any], arguments: Arguments
) -> Arguments:
    """The arguments of a call, by its operator's schema.

    Args:
        signature: the schema.
        args: by position.
        kwargs: by name.
        arguments: empty; knows what its values are.
    """
    for at, formal in enumerate(signature.formals):
        if at < len(args) and formal.positional:
            value = args[at]
        elif formal.name in kwargs:
            value = kwargs[formal.name]
        elif formal.optional:
            value = formal.default
        else:
            continue
        arguments.add(formal.name, value, written=formal.written)
    return arguments


def does_nothing(attrs: Mapping[str, AttrValue]) -> bool:
    """Whether a dropout returns its operand."""
    return not attrs.get("train", attrs.get("training", 1)) or attrs.get("p") == 0


def row_attributes(kind: str, name: str, arguments: Arguments) -> dict[str, AttrValue]:
    """What a row needs and only operands tell."""
    if kind == "rnn_layers" and arguments.packed:
        return {"first_weight": len(arguments.refs)}  # packed ones follow all tensors
    if kind == "rnn_layers":
        first = next(arguments.start[key] for key in _WEIGHTS if key in arguments.start)
        counted = 4 if name == "mkldnn_rnn_layer" else len(arguments.refs) - first
        return {"first_weight": first, "weights": counted}
    if kind == "fft" and arguments.refs[0] is not None:
        return {"points": _points(name, arguments)}
    return {}


def _points(name: str, arguments: Arguments) -> tuple[int, ...]:
    """Lengths of the transformed axes."""
    ref = arguments.refs[0]
    shape = tuple(ref.tensor.shape) if ref is not None else ()
    asked = next((arguments.attrs[key] for key in _FFT_DIMS if key in arguments.attrs), None)
    if asked is None:
        asked = tuple(range(-2, 0)) if name.endswith("2") else tuple(range(len(shape)))
    axes = asked if isinstance(asked, tuple) else (asked,)
    lengths = arguments.attrs.get(
        "n", arguments.attrs.get("s", arguments.attrs.get("last_dim_size"))
    )
    if isinstance(lengths, int):
        return (lengths,)
    if isinstance(lengths, tuple):
        return tuple(int(n) for n in lengths if not isinstance(n, str))
    found = [int(shape[int(axis)]) for axis in axes if not isinstance(axis, str)]
    if found and any(part in name for part in ("irfft", "_hfft", "c2r")):
        found[-1] = 2 * (found[-1] - 1)  # of half a spectrum the whole comes back
    return tuple(found)
