"""What an interpreter takes from its arena while it starts, as data.

A table (``TARGET_arena.toml``) has the records of each build of the runtime, and a row an
operator: its parameters, what its kernel keeps, and the tensors it looks at while it is prepared,
in order, since each look takes memory until the operator is ready.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from peakfold.target.formula import NotComputed, Values
from peakfold.target.scratch import conditions, holds

_LOOKS = re.compile(r"(?:[io]\d+|i1?\*)(?: (?:[io]\d+|i1?\*))*")
_MOST_REPEATS = 10_000
"""More buffers of one operator are no model's, but a broken file's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """One build of the runtime; sizes in bytes.

    Attributes:
        name: of the table's section.
        title: for people.
        run: whether its figures were held against runs, or only counted from its headers.
        pointer: of an address.
        allocators: its own first records, one after the other.
        parameters: the allocator of parameters.
        subgraph, eval_tensor, node: a record per subgraph, tensor and operator.
        tensor: a tensor as kernels see it.
        quantization: of one that has scales and zero points; an array of the latter follows.
        request: per scratch buffer asked for, from 12 on.
        info, size: while planning: per tensor or scratch buffer, and per subgraph.
        buffer: while planning: per buffer.
        resources, resource: the table of resource variables, and one of them.
    """

    name: str
    title: str
    run: bool
    pointer: int
    allocators: tuple[int, ...]
    parameters: int
    subgraph: int
    eval_tensor: int
    node: int
    tensor: int
    quantization: int
    request: int
    info: int
    size: int
    buffer: int
    resources: int
    resource: int


@dataclass(frozen=True, slots=True)
class Kernel:
    """What one operator takes.

    Attributes:
        params: size and alignment of its parameters; `None` = it has none.
        init: bytes of the buffers that `Init` keeps.
        prepare: what `Prepare` takes, in order: the name of a tensor it looks at (``i0``), or
            bytes of a buffer it keeps.
    """

    params: tuple[int, int] | None
    init: tuple[int, ...]
    prepare: tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class _Row:
    operators: frozenset[str]
    when: tuple[tuple[str, frozenset[str]], ...]
    params: tuple[str, ...]
    init: tuple[str | Mapping[str, int], ...]
    prepare: tuple[tuple[tuple[str, ...], str], ...]
    """Steps, and how often they are repeated."""


@dataclass(frozen=True, slots=True)
class ArenaTable:
    """Builds by name, and a row an operator; the first that matches holds."""

    builds: Mapping[str, Build]
    rows: tuple[_Row, ...]

    def kernel(self, name: str, values: Values, build: Build) -> Kernel | None:
        """What an operator takes, or `None` when no row covers it.

        Args:
            name: of the operator.
            values: its operands and options; ``first`` among the names.
            build: of the runtime.

        Example:
            >>> from peakfold.target.formula import Operand
            >>> x, weights = Operand("int8", (1, 4), 1, 1), Operand("int8", (3, 4), 1, 3)
            >>> table = load_arena("tflm")
            >>> values = Values([x, weights], [x])
            >>> found = table.kernel("FULLY_CONNECTED", values, table.builds["wheel"])
            >>> found.params, found.init, found.prepare
            ((32, 8), (72,), ('i0', 'i1', 'i2', 'o0', 12, 12))
        """
        for row in self.rows:
            if name in row.operators and holds(row.when, values):
                try:
                    return _kernel(row, values, build)
                except NotComputed:
                    return None
        return None

    @property
    def operators(self) -> frozenset[str]:
        """Every operator that some row covers."""
        return frozenset().union(*(row.operators for row in self.rows))


def _kernel(row: _Row, values: Values, build: Build) -> Kernel:
    params = tuple(values.of(formula) for formula in row.params)
    init = [
        values.of(entry) if isinstance(entry, str) else entry[build.name]
        for entry in row.init
        if isinstance(entry, str) or build.name in entry
    ]
    prepare: list[str | int] = []
    for steps, times in row.prepare:
        once = [taken for step in steps for taken in _taken(step, values)]
        count = values.of(times)
        if count > _MOST_REPEATS:
            raise NotComputed(times)
        prepare += once * count
    return Kernel((params[0], params[1]) if params else None, tuple(init), tuple(prepare))


def _taken(step: str, values: Values) -> Iterator[str | int]:
    """The tensors that a step looks at, or the bytes it keeps."""
    if _LOOKS.fullmatch(step) is None:
        yield values.of(step)
        return
    for word in step.split():
        if word.endswith("*"):
            first = int(word[1:-1] or 0)
            yield from (f"i{at}" for at in range(first, len(values.inputs)))
        else:
            yield word


@cache
def load_arena(target: str) -> ArenaTable:
    """The table of a target that has one.

    Example:
        >>> builds = load_arena("tflm").builds
        >>> builds["wheel"].subgraph, builds["device32"].node
        (24, 32)
    """
    text = resources.files(__package__).joinpath(f"{target}_arena.toml").read_text("utf-8")
    data: dict[str, Any] = tomllib.loads(text)
    builds = {
        name: Build(name=name, **{**fields, "allocators": tuple(fields["allocators"])})
        for name, fields in data["build"].items()
    }
    return ArenaTable(builds, tuple(map(_row, data["rule"])))


def _row(row: Mapping[str, Any]) -> _Row:
    return _Row(
        frozenset(row["operators"]),
        conditions(row),
        tuple(map(str, row.get("params", ()))),
        tuple(e if isinstance(e, dict) else str(e) for e in row.get("init", ())),
        tuple(map(_repeated, row.get("prepare", ()))),
    )


def _repeated(step: str | Mapping[str, Any]) -> tuple[tuple[str, ...], str]:
    if isinstance(step, str):
        return (step,), "1"
    of: Sequence[str] = step["of"]
    return tuple(of), step["times"]
