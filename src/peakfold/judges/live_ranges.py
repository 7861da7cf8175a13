"""When which bytes of a plan must exist, derived from the graph alone.

A buffer's stated life must be just this: a shorter one loses values, a longer one makes the
bound that a proof rests on as large as one likes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from peakfold.analysis.graph.index import is_opaque
from peakfold.interval import Interval, union
from peakfold.ir import Graph
from peakfold.planning.plan import Plan, PlannedBuffer
from peakfold.units import round_up

Strip = tuple[Interval, tuple[Interval, ...]]
"""A byte range and the steps during which it is needed, disjoint and sorted."""


@dataclass(frozen=True, slots=True, eq=False)
class Lives:
    """What a plan's order and policies make of lifetimes.

    Attributes:
        steps: of the run, the one of output copies included.
        step: per op, its step.
        needed: per tensor, the steps during which it must exist.
    """

    steps: int
    step: dict[int, int]
    needed: Mapping[str, Interval]

    @classmethod
    def of(cls, graph: Graph, plan: Plan) -> Lives:
        """Lifetimes in the plan's order."""
        steps = max(len(plan.order) + _copies_something(graph, plan), 1)
        born = dict.fromkeys(graph.inputs, 0)
        last = dict.fromkeys(graph.inputs, 0)
        for step, at in enumerate(plan.order):
            for name in graph.ops[at].results:
                born[name] = last[name] = step
            for name in graph.ops[at].operands:
                last[name] = step
        kept = set(graph.outputs)
        kept |= set(graph.inputs) if plan.policies.inputs == "pinned" else set()
        needed = {
            name: Interval(start, steps if name in kept else last[name] + 1)
            for name, start in born.items()
        }
        return cls(steps, {op: at for at, op in enumerate(plan.order)}, needed)

    def strips(self, buffer: PlannedBuffer, align: int) -> list[Strip]:
        """The byte ranges of a buffer and when each is needed; the last takes the padding."""
        if buffer.what == "workspace":
            at = self.step[buffer.op or 0]
            return strips([(Interval(0, buffer.size), Interval(at, at + 1))])
        if buffer.what == "copy":
            window = Interval(0, round_up(buffer.tensors[0].nbytes, align))
            return strips([(window, Interval(self.steps - 1, self.steps))])
        found = strips(
            (Interval(p.offset, p.offset + p.nbytes), self.needed[p.tensor]) for p in buffer.tensors
        )
        if found:
            window, lives = found[-1]
            found[-1] = (Interval(window.start, round_up(window.stop, align)), lives)
        return found

    def problem(self, plan: Plan) -> str | None:
        """The first buffer whose size or stated life is not what its tensors need, or `None`."""
        for number, buffer in enumerate(plan.buffers):
            found = self.strips(buffer, plan.policies.align)
            size = max((window.stop for window, _ in found), default=0)
            if buffer.size != size:
                return f"buffer {number} has {buffer.size} bytes, and needs {size}"
            if plan.lanes != 1:  # other runs have other steps: a buffer lives as a whole
                found = _whole(found, size)
            if _empty_problem(buffer, self.needed):
                return f"buffer {number} ({_label(buffer)}) states a life of no bytes or no steps"
            stated = strips(
                (Interval(p.lower, p.upper), Interval(p.start, p.stop)) for p in buffer.live
            )
            if stated != found:
                return f"buffer {number} ({_label(buffer)}) states another life than it has"
        return None


def _empty_problem(buffer: PlannedBuffer, needed: Mapping[str, Interval]) -> bool:
    """Whether a stated life covers nothing, other than that of tensors without bytes."""
    empty = [p for p in buffer.live if p.start == p.stop or p.lower == p.upper]
    if buffer.size:
        return bool(empty)
    lives = union([needed[place.tensor] for place in buffer.tensors])
    return any(Interval(p.start, p.stop) not in lives for p in empty)


def _whole(found: list[Strip], size: int) -> list[Strip]:
    lives = [life for _, some in found for life in some]
    if not lives:
        return []
    hull = Interval(min(life.start for life in lives), max(life.stop for life in lives))
    return [(Interval(0, size), (hull,))]


def strips(rectangles: Iterable[tuple[Interval, Interval]]) -> list[Strip]:
    """Rectangles of bytes and steps as byte ranges with the union of their steps.

    Neighbouring ranges with equal steps are one, so that equal coverage gives equal lists.

    Example:
        >>> strips([(Interval(0, 4), Interval(0, 2)), (Interval(2, 4), Interval(2, 3))])[1]
        (Interval(start=2, stop=4), (Interval(start=0, stop=3),))
    """
    events: dict[int, list[tuple[bool, Interval]]] = {}
    for window, life in rectangles:
        if window.length > 0 and life.length > 0:
            events.setdefault(window.start, []).append((True, life))
            events.setdefault(window.stop, []).append((False, life))
    found: list[Strip] = []
    active: dict[Interval, int] = {}
    lives: tuple[Interval, ...] = ()
    at = 0
    for edge in sorted(events):
        if lives:
            merges = found and found[-1][0].stop == at and found[-1][1] == lives
            start = found.pop()[0].start if merges else at
            found.append((Interval(start, edge), lives))
        for opens, life in events[edge]:
            active[life] = active.get(life, 0) + (1 if opens else -1)
            if not active[life]:
                del active[life]
        lives = tuple(union(list(active)))
        at = edge
    return found


def _copies_something(graph: Graph, plan: Plan) -> bool:
    """Whether a step behind the last op copies outputs that the arena does not hold."""
    foreign = plan.policies.inputs == "external"
    return plan.policies.outputs == "pinned" and any(
        name not in graph.producer
        and (foreign or graph[name].role.static)
        and not is_opaque(graph[name])
        for name in graph.outputs
    )


def _label(buffer: PlannedBuffer) -> str:
    if buffer.what == "workspace":
        return f"the workspace of op {buffer.op}"
    what = "the copy of " if buffer.what == "copy" else ""
    return f"{what}{buffer.tensors[0].tensor!r}" if buffer.tensors else "empty"
