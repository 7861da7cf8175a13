"""Formulas of a runtime's tables: sizes in bytes from the shapes of an operator.

They use ``+ - * //``, ``max`` and ``min`` over

- ``i0.n``, ``i0.rank``, ``i0.d1``, ``i0.last``, ``i0.last2``: elements, rank, a dimension, the
  last one and the one before of input 0; ``i0.width``, ``i0.bytes``: of an element, of all;
  ``i0.scales``: how many scales it is quantised with; ``i0.int8``: 1 if that is its element type,
  else 0; ``o0`` likewise for an output. What is asked of an absent operand is 0;
- ``option.adj_x``: a number among the operator's options, 0 where they leave it out;
- ``inputs``: the number of inputs; ``pointer``: bytes of an address; other names as the table says.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType

_ELEMENT_TYPES = frozenset(
    {"bool", "float16", "float32", "int4", "int8", "int16", "int32", "int64", "uint8"}
)


class NotComputed(Exception):
    """A formula was not made for these operands, or asks for an option that nobody could read."""


@dataclass(frozen=True, slots=True)
class Operand:
    """What a formula may ask of a tensor.

    Attributes:
        dtype: its element type.
        dims: its shape.
        width: bytes of an element.
        scales: of its quantisation; 0 = none.
    """

    dtype: str
    dims: tuple[int, ...]
    width: int
    scales: int = 0

    @property
    def elements(self) -> int:
        """Number of elements."""
        count = 1
        for dim in self.dims:
            count *= dim
        return count


@dataclass(frozen=True, slots=True)
class Values:
    """What the names of a formula stand for.

    Attributes:
        inputs, outputs: of the operator.
        names: plain numbers by name.
        options: of the operator; `None` = they are not at hand.
    """

    inputs: Sequence[Operand | None]
    outputs: Sequence[Operand]
    names: Mapping[str, int] = field(default_factory=dict)
    options: Mapping[str, int] | None = None

    def of(self, formula: str) -> int:
        """The value of a formula.

        Raises:
            NotComputed: an operand has another rank than it needs, or an option is not at hand.

        Example:
            >>> x = Operand("int8", (1, 8, 8, 3), 1)
            >>> Values([x], []).of("4 * (i0.rank + 1) + i0.int8")
            21
        """
        try:
            return self._node(_parsed(formula))
        except (IndexError, ZeroDivisionError):
            raise NotComputed(formula) from None

    def operand(self, name: str) -> Operand | None:
        """``i0`` or ``o1``; `None` where it is absent."""
        side: Sequence[Operand | None] = self.inputs if name[0] == "i" else self.outputs
        at = int(name[1:])
        return side[at] if at < len(side) else None

    def _node(self, node: ast.expr) -> int:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.BinOp):
            operation = _ARITHMETIC[type(node.op)]
            return operation(self._node(node.left), self._node(node.right))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return _CALLS[node.func.id](*map(self._node, node.args))
        if isinstance(node, ast.Name):
            return len(self.inputs) if node.id == "inputs" else self.names[node.id]
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == "option":
                return self._option(node.attr)
            return _fact(self.operand(node.value.id), node.attr)
        raise ValueError(f"{ast.unparse(node)!r} has no place in a formula")

    def _option(self, name: str) -> int:
        if self.options is None:
            raise NotComputed(f"option {name}")
        return self.options.get(name, 0)


def _fact(operand: Operand | None, what: str) -> int:
    if operand is None:
        return 0
    if what in _ELEMENT_TYPES:
        return int(operand.dtype == what)
    found = _FACTS.get(what)
    return operand.dims[int(what[1:])] if found is None else found(operand)


@lru_cache(maxsize=512)
def _parsed(formula: str) -> ast.expr:
    return ast.parse(formula, mode="eval").body


_FACTS: Mapping[str, Callable[[Operand], int]] = MappingProxyType(
    {
        "n": lambda one: one.elements,
        "rank": lambda one: len(one.dims),
        "width": lambda one: one.width,
        "bytes": lambda one: one.elements * one.width,
        "scales": lambda one: one.scales,
        "last": lambda one: one.dims[-1],
        "last2": lambda one: one.dims[-2],
    }
)
_ARITHMETIC: Mapping[type[ast.operator], Callable[[int, int], int]] = MappingProxyType(
    {
        ast.Add: operator.add,
        ast.Sub: operator.sub,
        ast.Mult: operator.mul,
        ast.FloorDiv: operator.floordiv,
    }
)
_CALLS: Mapping[str, Callable[..., int]] = MappingProxyType({"max": max, "min": min})
