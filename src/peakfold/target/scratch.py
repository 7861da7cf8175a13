"""Kernel scratch of a runtime, as data: closed forms over the shapes of an operator.

A target's table names operators as its file format does and gives bytes for each scratch buffer
an operator asks for, in the formulas of `formula`. An operator that no rule covers is unknown,
never zero.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

from peakfold.target.formula import NotComputed, Operand, Values


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of a table.

    Attributes:
        operators: whom it covers.
        when: conditions ``("i0", ("int8",))``: the operand has one of these element types.
        scratch: bytes per buffer.
    """

    operators: frozenset[str]
    when: tuple[tuple[str, frozenset[str]], ...]
    scratch: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ScratchTable:
    """All rules of a target; the first that matches holds."""

    rules: tuple[Rule, ...]
    pointer: int

    def sizes(
        self,
        name: str,
        inputs: Sequence[Operand | None],
        outputs: Sequence[Operand],
        options: Mapping[str, int] | None = None,
        pointer: int | None = None,
    ) -> tuple[int, ...] | None:
        """Bytes of each scratch buffer, or `None` when no rule covers the operator.

        Args:
            name: of the operator.
            inputs: its operands; `None` = absent.
            outputs: its results.
            options: numbers among its options; `None` = not at hand.
            pointer: bytes of an address, by default the table's.

        Example:
            >>> x = Operand("int8", (1, 8, 8, 3), 1)
            >>> axes, y = Operand("int32", (2,), 4), Operand("int8", (1, 3), 1)
            >>> load_scratch("tflm").sizes("MEAN", [x, axes], [y])
            (12, 16, 8)
        """
        values = Values(inputs, outputs, {"pointer": pointer or self.pointer}, options)
        for rule in self.rules:
            if name in rule.operators and holds(rule.when, values):
                try:
                    return tuple(values.of(formula) for formula in rule.scratch)
                except NotComputed:
                    return None
        return None

    @property
    def operators(self) -> frozenset[str]:
        """Every operator that some rule covers."""
        return frozenset().union(*(rule.operators for rule in self.rules))


def holds(when: Sequence[tuple[str, frozenset[str]]], values: Values) -> bool:
    """Whether operands have the element types that a row is for; an absent one is ``absent``."""
    for name, types in when:
        operand = values.operand(name)
        if (operand.dtype if operand is not None else "absent") not in types:
            return False
    return True


def conditions(row: Mapping[str, Any]) -> tuple[tuple[str, frozenset[str]], ...]:
    """The ``when`` of a row."""
    return tuple((name, frozenset(types)) for name, types in row.get("when", {}).items())


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
        Rule(frozenset(row["operators"]), conditions(row), tuple(row["scratch"]))
        for row in data["rule"]
    ]
    if "base" in data:  # another target's rules hold where none of these does
        lost = frozenset(data["unknown"])
        rules += [
            replace(rule, operators=rule.operators - lost)
            for rule in load_scratch(data["base"]).rules
        ]
    return ScratchTable(tuple(rules), int(data["pointer"]))
