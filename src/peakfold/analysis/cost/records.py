"""What a graph costs: records of operations, memory access and parameters, and their sums.

Conventions, stated once (`docs/explanation/cost.md`):

- 1 MAC = 1 multiply and 1 add; MACs are those of convolutions and matrix-like products alone.
  FLOPs = 2 * MACs + every other scalar operation (bias, activation, normalisation, pooling).
- Memory access is bytes read and written, see `peakfold.analysis.cost.traffic`.
- `None` means not known. Totals add up what is known and say where they are lower bounds.
- An `if` costs the larger branch in every figure; a loop its body times the trip count. A count
  that nobody knows is taken as one, and the totals say so.

`peakfold.analysis.cost.counting` fills the records in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Literal

from peakfold.analysis.cost.traffic import Moved
from peakfold.ops import Engine

Causal = Literal["full", "half"]
LOOPS = frozenset({"loop", "scan", "while", "sequence_map"})
"""Kinds whose body runs as often as a trip count says."""
BRANCHES = frozenset({"if", "case"})
"""Kinds that run one of their bodies."""
ONCE = frozenset({"call_once"})
"""Kinds whose body runs before the first step, and in no other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostOptions:
    """What a count depends on beside the graph.

    Attributes:
        causal: ``full`` counts masked positions of causal attention like all others, as
            published tables do; ``half`` leaves them out (exactly: the upper triangle).
        trips: trip counts of loops by op name, for those the graph does not state.
        batch: samples one run processes; `None` takes the leading dimension of the first
            input that has one.
    """

    causal: Causal = "full"
    trips: Mapping[str, int] = field(default_factory=dict)
    batch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Sums that ops, scopes, kinds and the whole model all have. `None` = not known.

    Attributes:
        macs: multiply-accumulates.
        other_ops: scalar operations that belong to no MAC.
        elements, output_bytes: of all results (activations).
        read, written: bytes, unfused.
        fused_read, fused_written: bytes with element-wise chains fused.
        params: weights no earlier op reads.
    """

    macs: int | None = 0
    other_ops: int | None = 0
    elements: int | None = 0
    output_bytes: int | None = 0
    read: int | None = 0
    written: int | None = 0
    fused_read: int | None = 0
    fused_written: int | None = 0
    params: int | None = 0

    @property
    def flops(self) -> int | None:
        """2 * MACs + other operations."""
        return (
            None
            if self.macs is None or self.other_ops is None
            else (2 * self.macs + self.other_ops)
        )

    @property
    def bytes_moved(self) -> int | None:
        """Memory access: bytes read and written, unfused."""
        return Moved(self.read, self.written).total

    @property
    def fused_bytes(self) -> int | None:
        """Memory access with element-wise chains fused."""
        return Moved(self.fused_read, self.fused_written).total

    @property
    def intensity(self) -> float | None:
        """FLOPs per byte of memory access; `None` where nothing moves or something is unknown."""
        flops, moved = self.flops, self.bytes_moved
        return flops / moved if flops is not None and moved else None

    def times(self, count: int) -> Figures:
        """Run `count` times; stored weights stay what they are."""
        changed = {
            item.name: None if value is None else value * count
            for item in fields(Figures)
            if item.name != "params"
            for value in (getattr(self, item.name),)
        }
        return replace(self, **changed)


FIGURES = tuple(item.name for item in fields(Figures))


class _Counted:
    """The figures that are asked for most, of an op or of a sum."""

    __slots__ = ()
    figures: Figures

    @property
    def macs(self) -> int | None:
        """Multiply-accumulates."""
        return self.figures.macs

    @property
    def flops(self) -> int | None:
        """2 * MACs + other operations."""
        return self.figures.flops

    @property
    def bytes_moved(self) -> int | None:
        """Memory access, unfused."""
        return self.figures.bytes_moved


@dataclass(frozen=True, slots=True, kw_only=True)
class OpCost(_Counted):
    """What one op costs.

    Attributes:
        engine: which engine the time model charges.
        dtype: element type it computes in.
        figures: its sums; of an op with bodies, those of the bodies times its trips.
        statistics: stored elements that are no weights and no earlier op reads.
        frozen: weights no earlier op reads and training leaves as they are.
        known: whether the registry (or a handler) has a row for the kind.
        trips: how often its body runs; `None` without a body, or when nobody knows.
        bodies: label and cost of every body, for one trip.
    """

    name: str
    kind: str
    scope: str
    engine: Engine
    dtype: str
    figures: Figures
    statistics: int = 0
    frozen: int = 0
    known: bool = True
    trips: int | None = None
    bodies: tuple[tuple[str, Cost], ...] = ()

    @property
    def open_loop(self) -> bool:
        """Whether it is a loop whose trip count nobody knows, counted for one trip."""
        return self.kind in LOOPS and self.trips is None

    @property
    def unknown(self) -> tuple[str, ...]:
        """Names of the figures that nobody knows."""
        return tuple(name for name in FIGURES if getattr(self.figures, name) is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Total(_Counted):
    """Sums over some ops.

    Attributes:
        figures: each the sum of what is known; `None` where nothing at all is.
        lower_bounds: names of the figures that leave something out.
        ops: how many ops were summed.
    """

    figures: Figures
    lower_bounds: tuple[str, ...]
    ops: int

    @property
    def params(self) -> int | None:
        """Weights, each once."""
        return self.figures.params


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a graph costs: `total`, `by_op`, `by_scope`, `by_kind`, `unsupported`.

    Attributes:
        ops: in the graph's order.
        param_bytes: bytes of stored parameters by element type, each once.
        statistics: stored elements that are no weights (BatchNorm moments, scales, indices).
        trainable: weights that training adjusts; `None` where the model does not say.
        batch: samples per run; `None` = no input says.
        batch_from: where that number was read.
        options: what was asked for.
        open_loops: loops whose trip count nobody knows, counted for one trip.
        unread_params: elements of parameters that no op reads; in the total all the same.
        unbound: dimensions of the inputs that are no numbers, which leaves figures unknown.
        halved: causal attention ops whose masked positions were left out.
    """

    name: str
    ops: tuple[OpCost, ...]
    param_bytes: Mapping[str, int]
    statistics: int
    trainable: int | None
    batch: int | None
    batch_from: str
    options: CostOptions
    open_loops: tuple[str, ...] = ()
    unread_params: int = 0
    unbound: tuple[str, ...] = ()
    halved: int = 0

    def total(self) -> Total:
        """Sums over the whole graph."""
        return self._total

    @cached_property
    def _total(self) -> Total:
        sums = add_up(self.ops)
        params = (sums.figures.params or 0) + self.unread_params
        return replace(sums, figures=replace(sums.figures, params=params))

    def by_op(self) -> tuple[OpCost, ...]:
        """Every op, in the graph's order."""
        return self.ops

    def by_kind(self) -> dict[str, Total]:
        """Sums per op kind, in order of first appearance."""
        return _grouped(self.ops, lambda op: (op.kind,))

    def by_scope(self) -> dict[str, Total]:
        """Sums per scope; a scope includes those inside it, and ``""`` is the whole model."""
        return _grouped(self.ops, lambda op: enclosing(op.scope))

    def unsupported(self) -> dict[str, int]:
        """Kinds whose cost is not wholly known and how often they occur, bodies included."""
        counts: dict[str, int] = {}
        for op in self.ops:
            if op.bodies:
                for _, body in op.bodies:
                    for kind, count in body.unsupported().items():
                        counts[kind] = counts.get(kind, 0) + count
            elif not op.known or op.unknown:
                counts[op.kind] = counts.get(op.kind, 0) + 1
        return dict(sorted(counts.items()))

    def leaves(self) -> tuple[OpCost, ...]:
        """Ops without bodies, as often as they run: what a time model adds up.

        The figures of an op in a loop are those of all its trips; of an `if`, the branch with
        the most FLOPs counts.
        """
        return tuple(_leaves(self, 1))

    def per_sample(self, figure: int | None) -> float | None:
        """A figure of one run divided by the batch."""
        return None if figure is None or not self.batch else figure / self.batch


def add_up(ops: Iterable[OpCost]) -> Total:
    """Sums over ops; where one is not known the sum is a lower bound."""
    ops = tuple(ops)
    with_bodies = [op for op in ops if op.bodies]
    sums: dict[str, int | None] = {}
    bounds: list[str] = []
    for name in FIGURES:
        values = [getattr(op.figures, name) for op in ops]
        known = [value for value in values if value is not None]
        if len(known) < len(values) or any(_partial(op, name) for op in with_bodies):
            bounds.append(name)
        sums[name] = sum(known) if known or not values else None
    return Total(figures=Figures(**sums), lower_bounds=tuple(bounds), ops=len(ops))


def enclosing(scope: str) -> tuple[str, ...]:
    """A scope and those around it, outermost first.

    Example:
        >>> enclosing("/layer1/conv"), enclosing("layer1.0.conv")
        (('', '/layer1', '/layer1/conv'), ('', 'layer1', 'layer1.0', 'layer1.0.conv'))
    """
    mark = "/" if "/" in scope else "."
    found = [""]
    found += [scope[:at] for at, c in enumerate(scope) if c == mark and at]
    return (*found, scope) if scope else ("",)


def _partial(op: OpCost, figure: str) -> bool:
    """Whether the bodies of an op leave something out of a figure."""
    inside = any(figure in body.total().lower_bounds for _, body in op.bodies)
    return inside or (op.open_loop and figure != "params")


def runs(label: str, trips: int | None, kind: str = "loop") -> int:
    """How often a body runs; a condition is asked once more than the body behind it."""
    if kind in ONCE:
        return 0
    if trips is None:
        return 1
    return trips + 1 if label == "cond" else trips


def _grouped(ops: Iterable[OpCost], keys: Callable[[OpCost], tuple[str, ...]]) -> dict[str, Total]:
    groups: dict[str, list[OpCost]] = {}
    for op in ops:
        for key in keys(op):
            groups.setdefault(key, []).append(op)
    return {key: add_up(members) for key, members in groups.items()}


def _leaves(found: Cost, times: int) -> Iterable[OpCost]:
    for op in found.ops:
        if not op.bodies:
            yield op if times == 1 else replace(op, figures=op.figures.times(times))
        elif op.kind in BRANCHES:
            _, body = max(op.bodies, key=lambda pair: pair[1].total().figures.flops or 0)
            yield from _leaves(body, times)
        else:
            for label, body in op.bodies:
                yield from _leaves(body, times * runs(label, op.trips, op.kind))
