"""Views and in-place chances as they are in every order: what a search may take as given.

`planning.aliasing.build` decides step by step who shares bytes. Nearly all of that does not depend
on the order: whether a view is legal depends on its offset and on whose bytes it reads, and
an in-place result is legal when the bytes of its host die. A *family* is a tensor with its own
bytes and all views of it, at fixed distances. Two things do depend on the order; both are
rare, and are reported in `Families.exact` and `Families.sound`:

- Two outputs are views of the same bytes: the one that runs first keeps them, the other is
  copied. Here both are views, which never costs more (as long as their bytes are the same).
- A result in place of a slice that ends inside its base, off the alignment, is not padded.
  Here it never is, which never costs more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from peakfold.analysis import Facts, Index, Policies
from peakfold.analysis.graph.alias_facts import viewed
from peakfold.interval import Interval
from peakfold.ir import Op
from peakfold.planning.aliasing.records import Aliasing
from peakfold.units import round_up


@dataclass(slots=True, eq=False)
class Families:
    """Who is a view of whom; built by `find_families`, read-only afterwards.

    Attributes:
        root: per tensor, the tensor whose bytes it lies in; itself if they are its own; -1 for
            opaque tensors and for static ones nobody views.
        offset: per tensor, bytes behind its root's first.
        members: per root, its family in file order, itself first.
        external: roots whose bytes are not in the arena.
        hosts: per op, operands that its first result may be written over when they die.
        over: per op, operands that it may lie partly over when they die, and the bytes that it
            then has in common with them, at most.
        loose: roots whose last bytes may go unpadded.
        exact: the peak of every order follows from these facts.
        sound: the peak of no order is below the one that follows from these facts.
    """

    root: list[int]
    offset: list[int]
    members: dict[int, list[int]] = field(default_factory=dict)
    external: set[int] = field(default_factory=set)
    hosts: list[tuple[int, ...]] = field(default_factory=list)
    over: list[tuple[tuple[int, ...], int]] = field(default_factory=list)
    loose: set[int] = field(default_factory=set)
    exact: bool = True
    sound: bool = True

    def own(self, tensor: int, external: bool) -> None:
        """Give a tensor bytes of its own."""
        self.root[tensor] = tensor
        self.members[tensor] = [tensor]
        if external:
            self.external.add(tensor)

    def join(self, tensor: int, host: int, at: int) -> None:
        """Make a tensor a view that starts `at` bytes into `host`."""
        self.root[tensor] = self.root[host]
        self.offset[tensor] = self.offset[host] + at
        self.members[self.root[host]].append(tensor)


class _Finder:
    def __init__(
        self, index: Index, policies: Policies, facts: Sequence[Facts], aliasing: Aliasing
    ) -> None:
        self.index = index
        self.policies = policies
        self.facts = facts
        self.aliasing = aliasing
        self.outputs = frozenset(index.outputs)
        count = len(index.nbytes)
        self.found = Families([-1] * count, [0] * count)
        self.view_of = [-1] * count

    def run(self) -> Families:
        for tensor in self.index.inputs:
            if not self.index.static[tensor] and tensor not in self.index.opaque:
                self.found.own(tensor, self.policies.inputs == "external")
        for op, record in enumerate(self.index.graph.ops):
            self._place(op, record)
        if any(hosts for hosts, _ in self.found.over):
            self._loosen()
        return self.found

    def _loosen(self) -> None:
        """Take the padding off all that may share a storage with what overlaps.

        In a storage that reaches further, a tensor ends inside; so do those in place of it and
        those it is in place of, and any of them may begin anywhere.
        """
        touching: dict[int, set[int]] = {}
        for op, (over, _) in enumerate(self.found.over):
            first = self.index.results[op][:1]
            for host in (*self.found.hosts[op], *over):
                for one, two in ((first[0], host), (host, first[0])):
                    a, b = self.found.root[one], self.found.root[two]
                    touching.setdefault(a, set()).add(b)
        stack = [self.found.root[host] for over, _ in self.found.over for host in over]
        reached = set(stack)
        while stack:
            for other in sorted(touching[stack.pop()] - reached):
                reached.add(other)
                stack.append(other)
        self.found.exact = False
        self.found.loose |= {t for t in reached if self.index.nbytes[t] % self.policies.align}

    def _place(self, op: int, record: Op) -> None:
        facts = self.facts[op]
        if self.aliasing.views:
            self._place_views(record, facts)
        hosts: tuple[int, ...] = ()
        over: tuple[tuple[int, ...], int] = ((), 0)
        for position, tensor in enumerate(self.index.results[op]):
            if self.found.root[tensor] >= 0 or tensor in self.index.opaque:
                continue
            external = tensor in self.outputs and self.policies.outputs == "external"
            self.found.own(tensor, external)
            first = position == 0 and bool(record.outputs[0])
            if first and not external and self.aliasing.inplace:
                hosts = self._hosts(record, tensor, facts)
            if first and not external and op in self.aliasing.overlaps:
                over = self._over(record, tensor, facts)
        self.found.hosts.append(hosts)
        self.found.over.append(over)

    def _place_views(self, record: Op, facts: Facts) -> None:
        for tensor, host, offset in viewed(self.index, record, facts):
            if self.found.root[tensor] >= 0 or host in self.index.opaque:
                continue
            if tensor in self.aliasing.copied:
                continue
            if self.found.root[host] < 0:
                self.found.own(host, True)
            if self._may_view(tensor, host, offset):
                self.found.join(tensor, host, offset)
                self.view_of[tensor] = host

    def _may_view(self, tensor: int, host: int, at: int) -> bool:
        found = self.found
        if (found.offset[host] + at) % self.policies.align:
            return False
        if at < 0 or at + self.index.nbytes[tensor] > self.index.nbytes[host]:
            found.exact = found.sound = False  # stated by hand; no family has such a shape
        if tensor not in self.outputs:
            return True
        if found.root[host] in found.external or self.policies.outputs == "external":
            return False
        start = found.offset[host] + at
        window = Interval(start, start + self.index.nbytes[tensor])
        before = self._ancestors(host)
        for other in found.members[found.root[host]]:
            if other in self.outputs and self.window(other).overlaps(window):
                if other in before:
                    return False  # its op runs earlier in every order
                found.exact = False
                found.sound = found.sound and self.window(other) == window
        return True

    def _ancestors(self, tensor: int) -> set[int]:
        """A tensor and all it is a view of."""
        chain = {tensor}
        while self.view_of[tensor] >= 0:
            tensor = self.view_of[tensor]
            chain.add(tensor)
        return chain

    def window(self, tensor: int) -> Interval:
        start = self.found.offset[tensor]
        return Interval(start, start + self.index.nbytes[tensor])

    def _hosts(self, record: Op, tensor: int, facts: Facts) -> tuple[int, ...]:
        names = [record.inputs[at] for at in facts.inplace if at < len(record.inputs)]
        ids = dict.fromkeys(self.index.id_of[name] for name in names if name)
        hosts = tuple(host for host in ids if self._may_host(record, tensor, host, facts))
        for host in hosts:
            self._mind_padding(tensor, host)
        return hosts

    def _over(self, record: Op, tensor: int, facts: Facts) -> tuple[tuple[int, ...], int]:
        """Operands that a result may lie partly over when they die, and for how many bytes."""
        hosts: list[int] = []
        shared = 0
        for fact in facts.overlap:
            name = record.inputs[fact.input] if fact.input < len(record.inputs) else ""
            host = self.index.id_of[name] if name else -1
            root = self.found.root[host] if host >= 0 else -1
            distance = round_up(fact.distance, self.policies.align)
            ours, theirs = self.index.nbytes[tensor], self.index.nbytes[host]
            common = ours + theirs - max(ours, distance + theirs)
            if root < 0 or root in self.found.external or common <= 0:
                continue
            hosts.append(host)
            shared = max(shared, common)
        # Over two operands at once, it may have all of its bytes in common with them.
        return tuple(hosts), shared if len(hosts) < 2 else self.index.nbytes[tensor]

    def _may_host(self, record: Op, tensor: int, host: int, facts: Facts) -> bool:
        found, tensors = self.found, self.index.graph.tensors
        if found.root[host] < 0 or found.root[host] in found.external:
            return False
        one, two = tensors[tensor], tensors[host]
        if (one.shape != two.shape and not facts.keeps_bytes) or one.dtype.bits != two.dtype.bits:
            return False
        if self.index.nbytes[tensor] != self.index.nbytes[host]:
            return False
        # Of what lies in the host's bytes, only what the op reads can be harmed.
        window, reads = self.window(host), {self.index.id_of[name] for name in record.operands}
        clash = [
            other
            for other in sorted(reads)
            if found.root[other] == found.root[host] and self.window(other).overlaps(window)
        ]
        return all(self._harmless(record, facts, host, other) for other in clash)

    def _harmless(self, record: Op, facts: Facts, host: int, other: int) -> bool:
        name, tensors = self.index.name(other), self.index.graph.tensors
        same = (
            self.found.offset[other] == self.found.offset[host]
            and tensors[other].shape == tensors[host].shape
        )
        positions = [at for at, operand in enumerate(record.inputs) if operand == name]
        return same and bool(positions) and all(at in facts.inplace for at in positions)

    def _mind_padding(self, tensor: int, host: int) -> None:
        if self.index.nbytes[tensor] % self.policies.align == 0:
            return
        root = self.found.root[host]
        extent = max(self.window(t).stop for t in self.found.members[root])
        inside = self.window(host).stop != extent or root in self.found.loose
        if inside:
            self.found.loose.add(tensor)
            self.found.exact = False


def find_families(
    index: Index, policies: Policies, facts: Sequence[Facts], aliasing: Aliasing
) -> Families:
    """Decide all sharing that no order changes.

    Args:
        index: the graph.
        policies: where inputs and outputs live; the alignment.
        facts: per op, what registry and target allow.
        aliasing: which kinds of sharing are wanted; `zero_copy_concats` are not followed.

    Example:
        >>> from peakfold.analysis import op_facts
        >>> from peakfold.ir import parse_graph
        >>> from peakfold.target import load_target
        >>> g = parse_graph("peakfold-graph 1\\ninput x: int8[4]\\ny: int8[8] = tile(x)\\n"
        ...                 "z: int8[8] = relu(y)\\noutput z")
        >>> facts = [op_facts(g, op, load_target("generic")) for op in g.ops]
        >>> find_families(Index.of(g), Policies(), facts, Aliasing()).hosts
        [(), (1,)]
    """
    return _Finder(index, policies, facts, aliasing).run()
