"""Kernel scratch of a runtime, as data: closed forms over the shapes of an operator.

A target's table names operators as its file format does and gives bytes for each scratch buffer
an operator asks for. Formulas use ``+ - * //``, ``max`` and ``min`` over

- ``i0.n``, ``i0.rank``, ``i0.d1``, ``i0.last``, ``i0.width``: elements, rank, a dimension, the
  last one and bytes of an element of input 0; ``o0`` likewise for an output;
- ``inputs``: the number of inputs; ``pointer``: bytes of an address.

An operator that no rule covers is unknown, never zero.
"""

from __future__ import annotations

import ast
import operator
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, slots=True)
class Operand:
    """What a formula may ask of a tensor: its element type, shape and bytes of an element."""

    dtype: str
    dims: tuple[int, ...]
    width: int

    @property
    def elements(self) -> int:
        """Number of elements."""
        count = 1
        for dim in self.dims:
            count *= dim
        return count


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of a table.

    Attributes:
        operators: whom it covers.
        when: conditions ``("i0", ("int8",))``: the operand has one of these element types.
        scratch: bytes per buffer.
        options: bytes of the operator's own parameters, in tables of what is kept.
        align: of these.
    """

    operators: frozenset[str]
    when: tuple[tuple[str, frozenset[str]], ...]
    scratch: tuple[str, ...]
    options: int = 0
    align: int = 1


@dataclass(frozen=True, slots=True)
class ScratchTable:
    """All rules of a target; the first that matches holds."""

    rules: tuple[Rule, ...]
    pointer: int

    def sizes(
        self, name: str, inputs: Sequence[Operand | None], outputs: Sequence[Operand]
    ) -> tuple[int, ...] | None:
        """Bytes of each scratch buffer, or `None` when no rule covers the operator.

        Example:
            >>> x = Operand("int8", (1, 8, 8, 3), 1)
            >>> axes, y = Operand("int32", (2,), 4), Operand("int8", (1, 3), 1)
            >>> load_scratch("tflm").sizes("MEAN", [x, axes], [y])
            (12, 16, 8)
        """
        rule = self.rule(name, inputs, outputs)
        if rule is None:
            return None
        values = _Values(inputs, outputs, self.pointer)
        try:
            return tuple(values.of(formula) for formula in rule.scratch)
        except IndexError:  # a shape the formula was not made for
            return None

    def rule(
        self, name: str, inputs: Sequence[Operand | None], outputs: Sequence[Operand]
    ) -> Rule | None:
        """The first rule that covers an operator."""
        for rule in self.rules:
            if name in rule.operators and _holds(rule, inputs, outputs):
                return rule
        return None

    @property
    def operators(self) -> frozenset[str]:
        """Every operator that some rule covers."""
        return frozenset().union(*(rule.operators for rule in self.rules))


@dataclass(frozen=True, slots=True)
class TailTable:
    """What a runtime keeps beside the shared part of its arena.

    Attributes:
        records: bytes of its records, by name.
        kernels: what operators keep: `Rule.options`, and buffers in place of scratch.
    """

    records: Mapping[str, int]
    kernels: ScratchTable


@cache
def load_tail(target: str, pointer: int) -> TailTable:
    """The table of a target for machines with pointers of so many bytes.

    Example:
        >>> load_tail("tflm", 8).records["node"], load_tail("tflm", 4).records["node"]
        (64, 32)
    """
    text = resources.files(__package__).joinpath(f"{target}_tail.toml").read_text("utf-8")
    data: dict[str, Any] = tomllib.loads(text)
    rules = tuple(
        Rule(
            frozenset(row["operators"]),
            tuple((name, frozenset(types)) for name, types in row.get("when", {}).items()),
            tuple(row["kernel"]),
            int(row["options"]),
            int(row.get("align", _natural(row["options"]))),
        )
        for row in data["rule"]
    )
    records = MappingProxyType({name: int(n) for name, n in data[f"words{8 * pointer}"].items()})
    return TailTable(records, ScratchTable(rules, pointer))


def _natural(size: int) -> int:
    """Alignment of a structure of numbers of at most 4 bytes."""
    return next(align for align in (4, 2, 1) if size % align == 0)


@cache
def load_scratch(target: str) -> ScratchTable:
    """The table of a target; one without any has no rules."""
    path = resources.files(__package__).joinpath(f"{target}_scratch.toml")
    if not path.is_file():
        return ScratchTable((), 8)
    return read_table(path.read_text("utf-8"))


def read_table(text: str) -> ScratchTable:
    """A table from the text of its file."""
    data: dict[str, Any] = tomllib.loads(text)
    rules = [
        Rule(
            frozenset(row["operators"]),
            tuple((name, frozenset(types)) for name, types in row.get("when", {}).items()),
            tuple(row["scratch"]),
        )
        for row in data["rule"]
    ]
    if "base" in data:  # another target's rules hold where none of these does
        lost = frozenset(data["unknown"])
        rules += [
            replace(rule, operators=rule.operators - lost)
            for rule in load_scratch(data["base"]).rules
        ]
    return ScratchTable(tuple(rules), int(data["pointer"]))


def _holds(rule: Rule, inputs: Sequence[Operand | None], outputs: Sequence[Operand]) -> bool:
    for name, types in rule.when:
        operand = _operand(name, inputs, outputs)
        if (operand.dtype if operand is not None else "absent") not in types:
            return False
    return True


def _operand(
    name: str, inputs: Sequence[Operand | None], outputs: Sequence[Operand]
) -> Operand | None:
    side: Sequence[Operand | None] = inputs if name[0] == "i" else outputs
    at = int(name[1:])
    return side[at] if at < len(side) else None


_ARITHMETIC: Mapping[type[ast.operator], Callable[[int, int], int]] = MappingProxyType(
    {
        ast.Add: operator.add,
        ast.Sub: operator.sub,
        ast.Mult: operator.mul,
        ast.FloorDiv: operator.floordiv,
    }
)
_CALLS: Mapping[str, Callable[..., int]] = MappingProxyType({"max": max, "min": min})


@dataclass(frozen=True, slots=True)
class _Values:
    """What the names of a formula stand for."""

    inputs: Sequence[Operand | None]
    outputs: Sequence[Operand]
    pointer: int

    def of(self, formula: str) -> int:
        """The value of a formula."""
        return self._node(ast.parse(formula, mode="eval").body)

    def _node(self, node: ast.expr) -> int:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.BinOp):
            operation = _ARITHMETIC[type(node.op)]
            return operation(self._node(node.left), self._node(node.right))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return _CALLS[node.func.id](*map(self._node, node.args))
        if isinstance(node, ast.Name):
            return {"inputs": len(self.inputs), "pointer": self.pointer}[node.id]
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            return self._attribute(node.value.id, node.attr)
        raise ValueError(f"{ast.unparse(node)!r} has no place in a formula")

    def _attribute(self, name: str, what: str) -> int:
        operand = _operand(name, self.inputs, self.outputs)
        if operand is None:
            return 0
        known = {"n": operand.elements, "rank": len(operand.dims), "width": operand.width}
        if what in known:
            return known[what]
        return operand.dims[-1 if what == "last" else int(what[1:])]
