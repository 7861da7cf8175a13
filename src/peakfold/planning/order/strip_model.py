"""What an order costs, as strips: a small model that agrees with `simulate` on the peak.

A *strip* is a set of bytes with one maker and one set of readers. It is alive from the step
that makes it until the last of its readers has run; who is alive follows from the set of ops
that have run, in whatever order they did. A family of views becomes strips because all that
may read a byte is known beforehand: a view of living bytes is made by a reader of them, so the
readers of a byte are the readers of every member of the family that covers it, and the maker
is the root's. In the step of an op everything before it is alive, its results are, and its
scratch; a result in place counts nothing beside the host that dies under it.

For a set of done ops S let ``live(S)`` be the bytes alive between steps. It is a sum over
strips of ``w * ([maker in S] - [maker and all readers in S])``, so it is submodular:
``live(A | B) + live(A & B) <= live(A) + live(B)``. `ideals` rests on that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from peakfold.analysis import Index, Policies
from peakfold.interval import Interval
from peakfold.ir import effect_edges
from peakfold.planning.aliasing.live_ranges import strips
from peakfold.planning.aliasing.records import Aliasing
from peakfold.planning.context import PlanningContext
from peakfold.planning.order.view_families import Families, find_families
from peakfold.units import round_up


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """Ops, edges and strips; all sizes are bytes, padding included.

    Attributes:
        ops: number of ops.
        preds, succs: per op, direct neighbours by data or effect, ascending.
        weight, kept, readers: per strip: bytes; whether it outlives the run; ops that read it.
        reads: per op, the strips it reads.
        makes: per op, the strips it makes; those without readers die within the step.
        fresh: per op, bytes of results that are no views, in its step.
        scratch: per op, workspace bytes.
        hosts: per op, alternatives: strips that must all die for the first result to lie there,
            wholly or in part.
        saving: per op, bytes saved in its step if one of them does.
        start: bytes alive before the first step.
        first: bytes alive in the first step only, inputs nobody reads.
        finish: bytes of copies made after the last step.
        exact, sound: see `Families`.
    """

    ops: int
    preds: list[tuple[int, ...]]
    succs: list[tuple[int, ...]]
    weight: list[int]
    kept: list[bool]
    readers: list[tuple[int, ...]]
    reads: list[tuple[int, ...]]
    makes: list[tuple[int, ...]]
    fresh: list[int]
    scratch: list[int]
    hosts: list[tuple[tuple[int, ...], ...]]
    saving: list[int]
    start: int
    first: int
    finish: int
    exact: bool
    sound: bool

    def outlives(self, strip: int) -> bool:
        """Whether a strip is alive after the step that makes it."""
        return self.kept[strip] or bool(self.readers[strip])

    @property
    def final(self) -> int:
        """Bytes alive after the last step, while outputs are copied."""
        kept = sum(w for w, keep in zip(self.weight, self.kept, strict=True) if keep)
        return kept + self.finish + (self.first if self.ops == 0 else 0)


def build_model(context: PlanningContext, aliasing: Aliasing) -> Model:
    """The strips of a graph under some sharing; its `zero_copy_concats` are not followed.

    Args:
        context: the prepared graph; its order does not matter.
        aliasing: which kinds of sharing are wanted.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> from peakfold.planning import PlanOptions
        >>> from peakfold.planning.planner import planning_context
        >>> g = parse_graph("peakfold-graph 1\\ninput x: int8[4]\\ny: int8[8] = tile(x)\\n"
        ...                 "z: int8[8] = relu(y)\\nw: int8[2] = opaque(z)\\noutput w")
        >>> model = build_model(planning_context(g, PlanOptions(align=1)), Aliasing())
        >>> model.weight, model.readers, model.saving
        ([8, 8, 2], [(1,), (2,), ()], [0, 8, 0])
    """
    index, policies, facts = context.index, context.policies, context.facts
    families = find_families(index, policies, facts, aliasing)
    strips = _Strips(index, policies, families)
    preds, succs = _edges(index)
    count = len(index.graph.ops)
    reads: list[list[int]] = [[] for _ in range(count)]
    makes: list[list[int]] = [[] for _ in range(count)]
    for strip, (maker, readers) in enumerate(zip(strips.maker, strips.readers, strict=True)):
        if maker >= 0:
            makes[maker].append(strip)
        for op in readers:
            reads[op].append(strip)
    whole = [strips.under(hosts) for hosts in families.hosts]
    partly = [strips.partly_under(hosts) for hosts, _ in families.over]
    early = [s for s, maker in enumerate(strips.maker) if maker < 0]
    lasting = [s for s in early if strips.kept[s] or strips.readers[s]]
    copies = _copies(index, policies)
    return Model(
        ops=count,
        preds=preds,
        succs=succs,
        weight=strips.weight,
        kept=strips.kept,
        readers=strips.readers,
        reads=[tuple(r) for r in reads],
        makes=[tuple(m) for m in makes],
        fresh=[sum(strips.weight[s] for s in made) for made in makes],
        scratch=[round_up(fact.workspace or 0, policies.align) for fact in facts],
        hosts=[one + two for one, two in zip(whole, partly, strict=True)],
        saving=[
            max(strips.size_of_first(op) if whole[op] else 0, common if partly[op] else 0)
            for op, (_, common) in enumerate(families.over)
        ],
        start=sum(strips.weight[s] for s in lasting),
        first=sum(strips.weight[s] for s in early) - sum(strips.weight[s] for s in lasting),
        finish=sum(round_up(index.nbytes[t], policies.align) for t in copies),
        exact=families.exact,
        sound=families.sound,
    )


def _copies(index: Index, policies: Policies) -> list[int]:
    """Outputs that no op makes and that the arena does not hold: copied after the last step."""
    if policies.outputs == "external":
        return []
    return [
        t
        for t in dict.fromkeys(index.outputs)
        if index.producer[t] < 0
        and (policies.inputs == "external" or index.static[t])
        and t not in index.opaque
    ]


def _edges(index: Index) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    needs: list[set[int]] = [
        {index.producer[t] for t in operands if index.producer[t] >= 0}
        for operands in index.operands
    ]
    for before, after in effect_edges(index.graph):
        needs[after].add(before)
    feeds: list[list[int]] = [[] for _ in needs]
    for op, needed in enumerate(needs):
        for other in sorted(needed):
            feeds[other].append(op)
    return [tuple(sorted(n)) for n in needs], [tuple(f) for f in feeds]


class _Strips:
    """Cuts families into strips."""

    def __init__(self, index: Index, policies: Policies, families: Families) -> None:
        self.index = index
        self.align = policies.align
        self.families = families
        self.weight: list[int] = []
        self.maker: list[int] = []
        self.readers: list[tuple[int, ...]] = []
        self.kept: list[bool] = []
        self.covered: dict[int, list[int]] = {}
        keep = set(index.outputs)
        self.keep = keep | set(index.inputs) if policies.inputs == "pinned" else keep
        for root in families.members:
            if root not in families.external:
                self._cut(root)

    def _cut(self, root: int) -> None:
        """Group the elementary byte ranges of a family by who reads them."""
        members = self.families.members[root]
        windows = [self._window(t) for t in members]
        end = max((window.stop for window in windows), default=0)
        groups: dict[tuple[tuple[int, ...], bool], tuple[int, set[int]]] = {}
        for part, inside in strips(windows):
            cover = [members[at] for at in inside]
            if not cover:
                continue
            padded = part.stop == end and root not in self.families.loose
            size = part.length + (round_up(part.stop, self.align) - part.stop) * padded
            key = (self._readers(cover), any(t in self.keep for t in cover))
            weight, seen = groups.get(key, (0, set()))
            seen.update(cover)
            groups[key] = (weight + size, seen)
        for (readers, kept), (weight, seen) in groups.items():
            for tensor in sorted(seen):
                self.covered.setdefault(tensor, []).append(len(self.weight))
            self.weight.append(weight)
            self.maker.append(self.index.producer[root])
            self.readers.append(readers)
            self.kept.append(kept)

    def _window(self, tensor: int) -> Interval:
        start = self.families.offset[tensor]
        return Interval(start, start + self.index.nbytes[tensor])

    def _readers(self, tensors: Iterable[int]) -> tuple[int, ...]:
        return tuple(sorted({op for t in tensors for op in self.index.users_of(t)}))

    def under(self, hosts: Iterable[int]) -> tuple[tuple[int, ...], ...]:
        """Per host of an op that may ever die there, the strips that lie under it."""
        found = [tuple(self.covered.get(host, ())) for host in hosts]
        return tuple(h for h in found if h and not any(self.kept[s] for s in h))

    def partly_under(self, hosts: Iterable[int]) -> tuple[tuple[int, ...], ...]:
        """Per operand that a result lies partly over, strips that must die for that.

        The result takes some bytes of the operand, so where all have the same readers, they
        must be done. Where they differ, nothing is asked, which never costs more.
        """
        found = [tuple(self.covered.get(host, ())) for host in hosts]
        same = [h if len(h) == 1 else () for h in found if h]
        return tuple(h for h in same if not any(self.kept[s] for s in h))

    def size_of_first(self, op: int) -> int:
        """Bytes of the first result of an op, which is a root."""
        first = self.index.results[op][0]
        members = self.families.members[first]
        return sum(self.weight[s] for s in sorted({s for t in members for s in self.covered[t]}))
