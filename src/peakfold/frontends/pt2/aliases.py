"""In whose bytes the results of an operator lie, told from its schema and from strides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from peakfold.frontends.aten.schema import Signature
from peakfold.frontends.aten.values import Ref
from peakfold.frontends.pt2.pieces import folded
from peakfold.frontends.pt2.values import Value

# A schema says that a result may lie in the operand; these look at strides, and copy if they must.
_RESHAPING: Final = frozenset({"reshape", "reshape_as", "flatten", "ravel"})
# These give back the operand where it is already what was asked for.
_CONVERTING: Final = frozenset(
    {"to", "contiguous", "type_as", "resolve_conj", "resolve_neg", "pin_memory", "coalesce",
     "_autocast_to_reduced_precision", "_autocast_to_full_precision"}
)  # fmt: skip
# Views that no schema calls so.
_UNSAID: Final = frozenset(
    {
        "_unsafe_view",
        "broadcast_tensors",
        "meshgrid",
        "type_as",
        "unsafe_chunk",
        "unsafe_split",
        "unsafe_split_with_sizes",
    }
)


class Storages:
    """Identities of storages, one after the other."""

    def __init__(self) -> None:
        self._next = 0
        self._named: dict[str, int] = {}

    def fresh(self) -> int:
        """A storage of its own."""
        self._next += 1
        return self._next

    def of(self, name: str) -> int:
        """The storage of a member of the archive."""
        if name not in self._named:
            self._named[name] = self.fresh()
        return self._named[name]


def storages(
    signature: Signature, given: Mapping[str, Any], results: Sequence[Value | None]
) -> Iterator[int | None]:
    """The storage of each result: an operand's, or `None` for one of its own.

    Args:
        signature: the operator's schema.
        given: its arguments by name.
        results: what it makes, in storages that are still to be told.
    """
    operands = {kind: list(_operands(signature, given, kind)) for kind in ("aliased", "written")}
    written = iter(operands["written"])
    source = next(iter(operands["aliased"]), None)
    unsaid = signature.operator in _UNSAID
    for at, result in enumerate(results):
        mark = signature.results[at if at < len(signature.results) else -1 :][:1]
        if mark == ("!",):
            owner = next(written, None)
        elif mark == ("@",) or unsaid:
            owner = _item(signature, given, at) if unsaid else source
        else:
            owner = None
        lies = owner is not None and result is not None and _lies(signature, owner, result)
        yield owner.storage if owner is not None and lies else None


def _operands(signature: Signature, given: Mapping[str, Any], kind: str) -> Iterator[Value]:
    for formal in signature.formals:
        if formal.written if kind == "written" else formal.aliased:
            yield from _values(given.get(formal.name))


def _values(argument: object) -> Iterator[Value]:
    for item in argument if isinstance(argument, list) else (argument,):
        if isinstance(item, Ref):
            yield item.tensor


def _item(signature: Signature, given: Mapping[str, Any], at: int) -> Value | None:
    """The operand that a result of an unsaid view is of: its only one, or the one at its place."""
    first = given.get(signature.formals[0].name) if signature.formals else None
    found = list(_values(first))
    if not isinstance(first, list):
        return found[0] if found else None
    return found[at] if at < len(found) else None


def _lies(signature: Signature, owner: Value, result: Value) -> bool:
    if signature.operator in _RESHAPING:
        return _may_view(owner, result)
    if signature.operator not in _CONVERTING:
        return True
    same = owner.dtype == result.dtype and owner.device == result.device
    return same and owner.place.layout == result.place.layout and owner.offset == result.offset


def _may_view(source: Value, result: Value) -> bool:
    """Whether strides let a tensor be read in another shape; at the sizes of the capture."""
    if source.traced is None or result.traced is None:
        return source.offset == result.offset
    return folded(source, result.shape, result.traced[0]) is not None
