"""A run of ops cut out of an order: the part a search may rearrange, in bit sets.

Ops of a fragment are numbered from 0; a set of them is an int with a bit an op. All that ran
before the fragment has run, nothing behind it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from peakfold.planning.order.strip_model import Model


@dataclass(frozen=True, slots=True, eq=False)
class Fragment:
    """Ops to be ordered, and what their order costs; sizes are bytes.

    Attributes:
        ops: op ids of the graph, in the order the fragment was cut from.
        need: per op, the ops of the fragment that must run before it, as a set.
        succs: per op, the ops that wait for it.
        extra: per op, results and scratch of its step.
        hosts: per op, sets that must have run for its first result to lie over an operand.
        saving: per op, bytes that saves in its step.
        gain: per op, bytes of its results that outlive its step.
        frees: per op, pairs (others, bytes): freed by it once all of `others` have run.
        dying: strips that die in the fragment: (maker, or -1 if made before; readers; bytes).
        start: bytes alive before the fragment.
        first: bytes more in its first step.
    """

    ops: tuple[int, ...]
    need: tuple[int, ...]
    succs: tuple[tuple[int, ...], ...]
    extra: tuple[int, ...]
    hosts: tuple[tuple[int, ...], ...]
    saving: tuple[int, ...]
    gain: tuple[int, ...]
    frees: tuple[tuple[tuple[int, int], ...], ...]
    dying: tuple[tuple[int, int, int], ...]
    start: int
    first: int

    @property
    def full(self) -> int:
        """The set of all its ops."""
        return (1 << len(self.ops)) - 1

    def ready_at_first(self) -> int:
        """The ops that need none of the others."""
        return sum(1 << op for op, need in enumerate(self.need) if not need)

    def step(self, done: int, live: int, op: int) -> tuple[int, int]:
        """Bytes in the step of an op that runs after `done`, and alive behind it."""
        cost = live + self.extra[op]
        if not done:
            cost += self.first
        if self.saving[op] and any(not others & ~done for others in self.hosts[op]):
            cost -= self.saving[op]
        live += self.gain[op]
        for others, weight in self.frees[op]:
            if not others & ~done:
                live -= weight
        return cost, live

    def peak(self, order: Sequence[int]) -> int:
        """The most bytes in any step of an order of its ops (numbers of the fragment)."""
        done, live, peak = 0, self.start, 0
        for op in order:
            cost, live = self.step(done, live, op)
            done |= 1 << op
            peak = max(peak, cost)
        return peak


def bits(ops: int) -> Iterator[int]:
    """The members of a set, ascending.

    Example:
        >>> list(bits(0b1010))
        [1, 3]
    """
    while ops:
        low = ops & -ops
        yield low.bit_length() - 1
        ops ^= low


def cut_out(
    model: Model, order: Sequence[int], where: Sequence[int], begin: int, end: int, live: int
) -> Fragment:
    """The fragment of an order's positions ``[begin, end)``.

    Args:
        model: the strips.
        order: a topological order of all ops.
        where: per op, its position in the order.
        begin: first position.
        end: one behind the last.
        live: bytes alive before position `begin`.
    """
    ops = tuple(order[begin:end])

    def inside(others: Sequence[int]) -> list[int]:
        return [where[o] - begin for o in others if begin <= where[o] < end]

    readers = _local_readers(model, ops, where, begin, end)
    maker = {s: at for at, op in enumerate(ops) for s in model.makes[op]}
    hosts = tuple(
        tuple(
            _union(readers[s] for s in strips) & ~(1 << at)
            for strips in model.hosts[op]
            if all(readers.get(s) for s in strips)
        )
        for at, op in enumerate(ops)
    )
    return Fragment(
        ops=ops,
        need=tuple(sum(1 << at for at in inside(model.preds[op])) for op in ops),
        succs=tuple(tuple(inside(model.succs[op])) for op in ops),
        extra=tuple(model.fresh[op] + model.scratch[op] for op in ops),
        hosts=hosts,
        saving=tuple(model.saving[op] if hosts[at] else 0 for at, op in enumerate(ops)),
        gain=tuple(
            sum(model.weight[s] for s in model.makes[op] if model.outlives(s)) for op in ops
        ),
        frees=tuple(_frees(model, readers, op, 1 << at) for at, op in enumerate(ops)),
        dying=tuple((maker.get(s, -1), r, model.weight[s]) for s, r in readers.items() if r),
        start=live,
        first=model.first if begin == 0 else 0,
    )


def _local_readers(
    model: Model, ops: Sequence[int], where: Sequence[int], begin: int, end: int
) -> dict[int, int]:
    """Per strip read here, the ops that read it, as a set; 0 if it does not die here."""
    found: dict[int, int] = {}
    for strip in dict.fromkeys(s for op in ops for s in model.reads[op]):
        places = [where[op] for op in model.readers[strip]]
        dies = not model.kept[strip] and max(places) < end
        found[strip] = _union(1 << (p - begin) for p in places if p >= begin) if dies else 0
    return found


def _frees(model: Model, readers: dict[int, int], op: int, me: int) -> tuple[tuple[int, int], ...]:
    together: dict[int, int] = {}
    for strip in model.reads[op]:
        if readers[strip]:
            others = readers[strip] & ~me
            together[others] = together.get(others, 0) + model.weight[strip]
    return tuple(together.items())


def _union(sets: Iterable[int]) -> int:
    whole = 0
    for ops in sets:
        whole |= ops
    return whole
