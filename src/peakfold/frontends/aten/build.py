"""Calls of ATen operators, in program order -> a `Graph` of values.

Which results lie in which operand's bytes is stated for every op, because strides and storages
decide that, not the operator.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from peakfold.frontends.aten.arguments import Arguments, bound, does_nothing, row_attributes
from peakfold.frontends.aten.doubt import Doubt, is_doubtful, settled
from peakfold.frontends.aten.schema import Signature
from peakfold.frontends.aten.values import Place, Ref
from peakfold.frontends.aten.versions import Versions
from peakfold.frontends.torch.names import IGNORED, base_name, torch_kind
from peakfold.ir import AttrValue, Graph, Op, Region, Role, Stated, ViewFact


class CallBuilder(Versions):
    """Grows a graph call by call.

    Args:
        changeable: roles of static tensors that the program may write in place.
    """

    def __init__(self, changeable: frozenset[Role] = frozenset({Role.STATE})) -> None:
        super().__init__(changeable)
        self._packed: dict[int, list[str]] = {}
        self._doubts: dict[int, Doubt] = {}

    @abstractmethod
    def signature_of(self, func: Any, args: Sequence[Any]) -> Signature:
        """The schema of an operator; one that has none gives names to its arguments."""

    @abstractmethod
    def arguments(self) -> Arguments:
        """Empty arguments, which know what values are."""

    @property
    def calls(self) -> int:
        """Ops so far."""
        return len(self._ops)

    def knows_packed(self, packed: object) -> bool:
        """Whether the weights of a packing were added."""
        return hash(packed) in self._packed

    def declare_packed(self, packed: object, tensors: Iterable[Ref], names: Iterable[str]) -> None:
        """Add the weights that a module keeps packed for a kernel; calls name the packing."""
        self._packed[hash(packed)] = []
        for ref, name in zip(tensors, names, strict=True):
            self.declare(ref, name, Role.PARAMETER, trainable=False)
            self._packed[hash(packed)].append(self._name[ref.key])

    def control(
        self,
        name: str,
        kind: str,
        inputs: Sequence[Ref],
        results: Sequence[Ref | None],
        regions: tuple[Region, ...],
        attrs: dict[str, AttrValue],
        scope: str,
    ) -> None:
        """Add an op with bodies."""
        given = tuple(self.read(ref) for ref in inputs)
        outputs: list[str] = []
        for at, ref in enumerate(results):
            if ref is None:
                continue
            new = self._fresh(name if len(results) == 1 else f"{name}.{at}")
            self._add_tensor(self.tensor_of(new, ref.tensor), self._placed(ref.tensor))
            self._name[ref.key] = new
            self._refs.append(ref)
            outputs.append(new)
        for region in regions:
            self.notes |= dict.fromkeys(region.graph.notes)
        self._ops.append(Op(name, kind, given, tuple(outputs), attrs, regions, scope=scope))

    def call(
        self,
        name: str,
        func: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        results: Sequence[Ref | None],
        scope: str,
    ) -> None:
        """Add one operator call; results are those of its values that are tensors, in order."""
        signature = self.signature_of(func, args)
        arguments = bound(signature, args, kwargs, self.arguments())
        bare = base_name(signature.operator)
        kind, attrs = torch_kind(signature.domain, signature.operator, arguments.attrs)
        made = sum(ref is not None for ref in results)
        doubtful = is_doubtful(signature, kind, made)
        if doubtful:
            self._doubt(f"{signature.domain}::{signature.operator}", arguments, made)
        elif bare in IGNORED:
            return
        if not (made or arguments.written):
            return
        if kind == "read_value":
            return
        attrs |= row_attributes(kind, bare, arguments)
        if kind == "random_dropout" and does_nothing(arguments.attrs):
            if self._same(arguments.refs[0], results[0]):
                return
            kind = "copy"
        if "::" in kind and signature.only_views:
            self._join_all(arguments, results)
        if signature.returns_written:
            self._join_written(arguments, results)
        inputs = [self.read(ref) if ref is not None else "" for ref in arguments.refs]
        inputs += [name for item in arguments.packed for name in self._packed.get(hash(item), ())]
        while inputs and not inputs[-1]:
            inputs.pop()
        outputs = [ref for ref in results if ref is not None]
        given = {self._placed(r.tensor).storage for r in outputs}
        outputs += [
            ref
            for at in arguments.written
            if (ref := arguments.refs[at]) is not None
            and self._placed(ref.tensor).storage not in given
        ]
        self._add(name, kind, attrs, inputs, outputs, arguments, scope)
        if doubtful:
            self._end_doubt(made, outputs, inputs, arguments)

    def _doubt(self, operator: str, arguments: Arguments, made: int) -> None:
        """Let an operator write every operand."""
        different = {ref.key: at for at, ref in enumerate(arguments.refs) if ref is not None}
        arguments.written = list(different.values())
        if not (made or arguments.written):
            self.notes[f"{operator} is left out: it takes no tensor and makes none"] = None
            return
        self.notes[f"{operator} is unknown: it is taken to write whatever it is given"] = None
        for ref in arguments.refs:
            storage = self._placed(ref.tensor).storage if ref is not None else None
            if storage in self._parameters:
                self._state.setdefault(storage, self._parameters[storage])

    def _end_doubt(
        self, made: int, outputs: Sequence[Ref], inputs: Sequence[str], arguments: Arguments
    ) -> None:
        """Remember what the last op may have written, and what its results may lie in."""
        over: list[int | None] = []
        homes = self._homes(inputs)
        for ref in outputs:
            place = self._placed(ref.tensor)
            self._version[self._name[ref.key]] = len(self._writers.get(place.storage, ()))
            over.append(None if place.storage in self._state else _home(homes, place))
        self._doubts[len(self._ops) - 1] = Doubt(made, tuple(over))
        if made:
            lie = [self._placed(ref.tensor).storage for ref in (*arguments.refs, *outputs) if ref]
            self._relate(storage for storage in lie if storage not in self._parameters)

    def _same(self, source: Ref | None, result: Ref | None) -> bool:
        """Let a result be its operand, where it has the operand's strides."""
        if source is None or result is None:
            return False
        if self.place_of(source.tensor).layout != self.place_of(result.tensor).layout:
            return False
        self.join(result.tensor, source.tensor)
        self.alias(result.key, source)
        return True

    def _join_written(self, arguments: Arguments, results: Sequence[Ref | None]) -> None:
        """The result of an operator that writes in place is its operand.

        Of a program that was read from a file the two values have storages of their own.
        """
        if len(results) != 1 or len(arguments.written) != 1:
            return
        source, result = arguments.refs[next(iter(arguments.written))], results[0]
        if source is None or result is None:
            return
        if self._placed(source.tensor).storage != self._placed(result.tensor).storage:
            self.join(result.tensor, source.tensor)

    def _join_all(self, arguments: Arguments, results: Sequence[Ref | None]) -> None:
        """A view by its schema, of a tensor whose storage cannot be seen (under vmap)."""
        source = next((ref for ref in arguments.refs if ref is not None), None)
        for ref in results:
            if ref is not None and source is not None:
                self.join(ref.tensor, source.tensor)

    def _add(
        self,
        name: str,
        kind: str,
        attrs: dict[str, AttrValue],
        inputs: list[str],
        outputs: list[Ref],
        arguments: Arguments,
        scope: str,
    ) -> None:
        written = {inputs[at] for at in arguments.written if at < len(inputs)}
        names: list[str] = []
        views: list[ViewFact] = []
        inplace: tuple[int, ...] = ()
        writes: dict[str, None] = {}
        only_views = bool(outputs) and not written
        homes = self._homes(inputs)
        for at, ref in enumerate(outputs):
            place = self._placed(ref.tensor)
            base = _home(homes, place)
            new = self._fresh(name if len(outputs) == 1 else f"{name}.{at}")
            names.append(new)
            state = self._state.get(place.storage)
            if base is None:
                only_views = False
            elif inputs[base] in written and state is None:
                inplace = (base,) if at == 0 else inplace
            else:
                views += self._fact(at, base, inputs[base], place)
            self._tensors[new] = self.tensor_of(new, ref.tensor, view=base is not None)
            self._place[new] = place
            self._name[ref.key] = new
            self._refs.append(ref)
            if base is not None and inputs[base] in written:
                self._wrote(place.storage, new)
                if state is not None:
                    writes[state] = None
            self._version[new] = len(self._writers.get(place.storage, ()))
        if kind == "batch_normalization" and attrs.get("training_mode"):
            writes |= dict.fromkeys(self._statistics(arguments))
        stated = Stated(inplace=inplace if written else None, views=tuple(views))
        kind = "view" if only_views else kind
        self._ops.append(
            Op(
                name,
                kind,
                tuple(inputs),
                tuple(names),
                attrs,
                writes=tuple(writes),
                scope=scope,
                stated=stated,
            )
        )

    def _homes(self, inputs: Sequence[str]) -> dict[Place | int, int]:
        """Positions of operands, the first of each, by their places and by their storages."""
        homes: dict[Place | int, int] = {}
        for at, name in enumerate(inputs):
            if name:
                homes.setdefault(self._place[name], at)
                homes.setdefault(self._place[name].storage, at)
        return homes

    def _fact(self, at: int, base: int, name: str, place: Place) -> list[ViewFact]:
        """The stated view, when the result's bytes are a range of the operand's."""
        source = self._place[name]
        if None in (place.start, place.stop, source.start, source.stop):
            return [ViewFact(at, base, 0)] if place.layout == source.layout else []
        start, stop = (place.start or 0), (place.stop or 0)
        lower, upper = (source.start or 0), (source.stop or 0)
        held = self._tensors[name].nbytes
        if held is not None and held < stop - lower <= upper - lower:
            # It was made with gaps, as its operand had them, and a view reaches over them.
            self._tensors[name] = replace(self._tensors[name], stated_bytes=upper - lower)
        return [ViewFact(at, base, start - lower)] if lower <= start and stop <= upper else []

    def _statistics(self, arguments: Arguments) -> Iterable[str]:
        for name in ("running_mean", "running_var"):
            at = arguments.start.get(name)
            ref = arguments.refs[at] if at is not None and at < len(arguments.refs) else None
            if ref is not None:
                state = self._state.get(self._placed(ref.tensor).storage)
                if state is not None:
                    yield state

    def finish(self, name: str, outputs: Iterable[Ref], source: str) -> Graph:
        """The graph with these outputs; of what it captures, that which it uses."""
        results = tuple(self.read(ref) for ref in outputs if ref.key in self._name)
        used = {n for op in self._ops for n in (*op.operands, *op.reads, *op.writes)}
        used.update(results)
        ops, gone = settled(self._ops, self._doubts, used)
        unused = set(self._captured) - used
        inputs = (*self._inputs, *(n for n in self._captured if n in used))
        made = {n for op in ops for n in op.results}
        # The canonical order of the text form: inputs, what no op makes, results.
        gone |= {*unused, *inputs}
        rest = [t for t in self._tensors.values() if t.name not in gone]
        rest.sort(key=lambda t: t.name in made)
        tensors = [*(self._tensors[n] for n in inputs), *rest]
        return Graph(name, tuple(tensors), ops, inputs, results, source, tuple(self.notes))


def _home(homes: Mapping[Place | int, int], place: Place) -> int | None:
    """Position of the operand in whose storage a result lies."""
    return homes.get(place, homes.get(place.storage))
