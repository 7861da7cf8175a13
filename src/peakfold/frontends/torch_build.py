"""Calls of ATen operators, in program order -> a `Graph` of values.

Torch programs write in place and look at one storage through many tensors; the IR has values.
Every write makes a new version of what it wrote, and who reads another tensor of that storage
later reads it after the write (an `after_write` op, free, where the two are not the same
bytes). Which results lie in which operand's bytes is stated for every op, because strides and
storages decide that, not the operator.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from peakfold.frontends.torch_names import IGNORED, base_name, torch_kind
from peakfold.frontends.torch_sparse import kind_of
from peakfold.frontends.torch_values import Place, Ref, attribute, place_of, tensor_of
from peakfold.ir import AttrValue, Graph, Op, Region, Role, Stated, Tensor, ViewFact

_WEIGHTS = ("params", "w_ih", "weight0")
_FFT_DIMS = ("dim", "dims")


@dataclass(slots=True)
class _Arguments:
    """An operator's arguments, split: tensors by position, the rest as attributes."""

    refs: list[Ref | None] = field(default_factory=list)
    attrs: dict[str, AttrValue] = field(default_factory=dict)
    start: dict[str, int] = field(default_factory=dict)
    written: list[int] = field(default_factory=list)
    packed: list[object] = field(default_factory=list)

    def add(self, name: str, value: object, *, written: bool) -> None:
        self.start[name] = len(self.refs)
        if isinstance(value, Ref):
            if written:
                self.written.append(len(self.refs))
            self.refs.append(value)
        elif isinstance(value, list | tuple) and any(isinstance(v, Ref) for v in value):
            for item in value:
                self.add(name, item, written=written)
            self.start[name] = len(self.refs) - len(value)
        elif value is None:
            self.refs.append(None)
        elif isinstance(value, torch.ScriptObject):
            self.packed.append(value)
        else:
            found = attribute(value)
            if found is not None:
                self.attrs[name] = found


class GraphBuilder:
    """Grows a graph call by call.

    Args:
        changeable: roles of static tensors that the program may write in place.
    """

    def __init__(self, changeable: frozenset[Role] = frozenset({Role.STATE})) -> None:
        self._changeable = changeable
        self._tensors: dict[str, Tensor] = {}
        self._ops: list[Op] = []
        self._inputs: list[str] = []
        self._captured: list[str] = []
        self._name: dict[Hashable, str] = {}
        self._place: dict[str, Place] = {}
        self._version: dict[str, int] = {}
        self._writers: dict[int, list[str]] = {}
        self._same_storage: dict[int, tuple[int, int]] = {}
        self._state: dict[int, str] = {}
        self._packed: dict[int, list[str]] = {}
        self._declared: dict[Place, str] = {}
        self._refs: list[Ref] = []  # keeps identities alive
        self.notes: dict[str, None] = {}

    # Values

    def declare(self, ref: Ref, name: str, role: Role, trainable: bool | None = None) -> None:
        """Add an input or a static tensor; one that was declared before keeps its first name."""
        self._refs.append(ref)
        if ref.key in self._name:
            return
        place = self._placed(ref.tensor)
        twin = self._declared.get(place) if role is not Role.INPUT else None
        if twin is not None:
            self._name[ref.key] = twin  # tied: the same bytes under two names
            return
        name = self._fresh(name)
        made = tensor_of(name, ref.tensor, role)
        self._add_tensor(replace(made, trainable=trainable), place)
        self._name[ref.key] = name
        self._declared[place] = name
        if role is Role.INPUT:
            self._inputs.append(name)
        if role in self._changeable:
            self._state[place.storage] = name

    def declare_packed(self, packed: object, tensors: Iterable[Ref], names: Iterable[str]) -> None:
        """Add the weights that a module keeps packed for a kernel; calls name the packing."""
        for ref, name in zip(tensors, names, strict=True):
            self.declare(ref, name, Role.PARAMETER, trainable=False)
            self._packed.setdefault(hash(packed), []).append(self._name[ref.key])

    def declare_captured(self, ref: Ref, tensor: Tensor) -> None:
        """Add an input of a body that is an outer tensor, under its name and with its role.

        To be called before formals are declared, which get names that are still free.
        """
        self._refs.append(ref)
        self._name[ref.key] = tensor.name
        if tensor.name in self._tensors:
            return
        place = self._placed(ref.tensor)
        self._add_tensor(tensor, place)
        self._captured.append(tensor.name)
        if tensor.role is Role.STATE:
            self._state[place.storage] = tensor.name

    def tensor(self, ref: Ref) -> Tensor:
        """The IR tensor of a value as it is now."""
        return self._tensors[self.read(ref)]

    def control(
        self, name: str, kind: str, inputs: Sequence[Ref], results: Sequence[Ref | None],
        regions: tuple[Region, ...], attrs: dict[str, AttrValue], scope: str,
    ) -> None:  # fmt: skip
        """Add an op with bodies."""
        given = tuple(self.read(ref) for ref in inputs)
        outputs: list[str] = []
        for at, ref in enumerate(results):
            if ref is None:
                continue
            new = self._fresh(name if len(results) == 1 else f"{name}.{at}")
            self._add_tensor(tensor_of(new, ref.tensor), self._placed(ref.tensor))
            self._name[ref.key] = new
            self._refs.append(ref)
            outputs.append(new)
        for region in regions:
            self.notes |= dict.fromkeys(region.graph.notes)
        self._ops.append(Op(name, kind, given, tuple(outputs), attrs, regions, scope=scope))

    def alias(self, key: Hashable, ref: Ref) -> None:
        """Let another key stand for a value."""
        self._refs.append(ref)
        if ref.key in self._name:
            self._name[key] = self._name[ref.key]

    def join(self, result: torch.Tensor, source: torch.Tensor) -> None:
        """Say that a result lies in the storage of `source`, whatever the capture says."""
        new, old = place_of(result), self._placed(source)
        if new.storage != old.storage and new.storage not in self._same_storage:
            self._same_storage[new.storage] = (old.storage, (old.start or 0) - (new.start or 0))

    def name_of(self, key: Hashable) -> str | None:
        """The name of a value as it was last made, or `None` for a stranger."""
        return self._name.get(key)

    def storage_of(self, tensor: torch.Tensor) -> int:
        """Identity of the storage that a tensor lies in, joined ones taken as one."""
        return self._placed(tensor).storage

    @property
    def calls(self) -> int:
        """Ops so far."""
        return len(self._ops)

    def knows(self, key: Hashable) -> bool:
        """Whether a value of this key exists."""
        return key in self._name

    def _placed(self, tensor: torch.Tensor) -> Place:
        """Where a tensor lies, joined storages taken as one."""
        place = place_of(tensor)
        if tensor.layout is not torch.strided:
            self.notes[f"tensors of layout {kind_of(tensor)} are counted as if they were dense"] = (
                None
            )
        while place.storage in self._same_storage:
            storage, shift = self._same_storage[place.storage]
            place = place.moved(storage, shift)
        return place

    def _fresh(self, name: str) -> str:
        if name not in self._tensors:
            return name
        at = 1
        while f"{name}.{at}" in self._tensors:
            at += 1
        return f"{name}.{at}"

    def _add_tensor(self, tensor: Tensor, place: Place) -> None:
        self._tensors[tensor.name] = tensor
        self._place[tensor.name] = place
        self._version[tensor.name] = len(self._writers.get(place.storage, ()))

    def read(self, ref: Ref) -> str:
        """The name of a value as it is now, writes to its storage included."""
        if ref.key not in self._name:
            self.declare(ref, "untraced", Role.STATE)
            self.notes[f"tensor {self._name[ref.key]!r} comes from no operator of the program"] = (
                None
            )
        name = self._name[ref.key]
        place = self._place[name]
        writers = self._writers.get(place.storage, [])
        for writer in writers[self._version[name] :]:
            written = self._place[writer]
            if written == place:
                name = writer
            elif written.overlaps(place):
                name = self._after_write(name, writer, ref.tensor)
        self._version[name] = len(writers)
        self._name[ref.key] = name
        return name

    def _after_write(self, name: str, writer: str, tensor: torch.Tensor) -> str:
        new = self._fresh(f"{name}.after")
        place = self._place[name]
        views = (ViewFact(0, 0, 0),) if place.storage in self._state else ()
        stated = Stated(inplace=() if views else (0,), views=views)
        self._ops.append(Op(new, "after_write", (name, writer), (new,), stated=stated))
        self._add_tensor(tensor_of(new, tensor, view=True), place)
        return new

    # Calls

    def call(
        self, name: str, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any],
        results: Sequence[Ref | None], scope: str,
    ) -> None:  # fmt: skip
        """Add one operator call; results are those of its values that are tensors, in order."""
        domain, operator, arguments = _bound(func, args, kwargs)
        bare = base_name(operator)
        if bare in IGNORED or not (any(results) or arguments.written):
            return
        kind, attrs = torch_kind(domain, operator, arguments.attrs)
        if kind == "read_value":
            return
        attrs |= _extra(kind, bare, arguments)
        if kind == "random_dropout" and _does_nothing(arguments.attrs):
            if self._same(arguments.refs[0], results[0]):
                return
            kind = "copy"
        if "::" in kind and _only_views(func):
            self._join_all(arguments, results)
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

    def _same(self, source: Ref | None, result: Ref | None) -> bool:
        """Let a result be its operand, where it has the operand's strides."""
        if source is None or result is None:
            return False
        if place_of(source.tensor).layout != place_of(result.tensor).layout:
            return False
        self.join(result.tensor, source.tensor)
        self.alias(result.key, source)
        return True

    def _join_all(self, arguments: _Arguments, results: Sequence[Ref | None]) -> None:
        """A view by its schema, of a tensor whose storage cannot be seen (under vmap)."""
        source = next((ref for ref in arguments.refs if ref is not None), None)
        for ref in results:
            if ref is not None and source is not None:
                self.join(ref.tensor, source.tensor)

    def _add(
        self, name: str, kind: str, attrs: dict[str, AttrValue], inputs: list[str],
        outputs: list[Ref], arguments: _Arguments, scope: str,
    ) -> None:  # fmt: skip
        written = {inputs[at] for at in arguments.written if at < len(inputs)}
        names: list[str] = []
        views: list[ViewFact] = []
        inplace: tuple[int, ...] = ()
        writes: dict[str, None] = {}
        only_views = bool(outputs) and not written
        for at, ref in enumerate(outputs):
            place = self._placed(ref.tensor)
            base = self._base(place, inputs)
            new = self._fresh(name if len(outputs) == 1 else f"{name}.{at}")
            names.append(new)
            state = self._state.get(place.storage)
            if base is None:
                only_views = False
            elif inputs[base] in written and state is None:
                inplace = (base,) if at == 0 else inplace
            else:
                views += self._fact(at, base, inputs[base], place)
            self._tensors[new] = tensor_of(new, ref.tensor, view=base is not None)
            self._place[new] = place
            self._name[ref.key] = new
            self._refs.append(ref)
            if base is not None and inputs[base] in written:
                self._writers.setdefault(place.storage, []).append(new)
                if state is not None:
                    writes[state] = None
            self._version[new] = len(self._writers.get(place.storage, ()))
        if kind == "batch_normalization" and attrs.get("training_mode"):
            writes |= dict.fromkeys(self._statistics(arguments))
        stated = Stated(inplace=inplace if written else None, views=tuple(views))
        kind = "view" if only_views else kind
        self._ops.append(Op(name, kind, tuple(inputs), tuple(names), attrs,
                            writes=tuple(writes), scope=scope, stated=stated))  # fmt: skip

    def _base(self, place: Place, inputs: list[str]) -> int | None:
        """Position of the operand in whose storage a result lies."""
        found = [at for at, name in enumerate(inputs)
                 if name and self._place[name].storage == place.storage]  # fmt: skip
        exact = [at for at in found if self._place[inputs[at]] == place]
        return next(iter((*exact, *found)), None)

    def _fact(self, at: int, base: int, name: str, place: Place) -> list[ViewFact]:
        """The stated view, when the result's bytes are a range of the operand's."""
        source = self._place[name]
        if None in (place.start, place.stop, source.start, source.stop):
            return [ViewFact(at, base, 0)] if place.layout == source.layout else []
        start, stop = (place.start or 0), (place.stop or 0)
        lower, upper = (source.start or 0), (source.stop or 0)
        return [ViewFact(at, base, start - lower)] if lower <= start and stop <= upper else []

    def _statistics(self, arguments: _Arguments) -> Iterable[str]:
        for name in ("running_mean", "running_var"):
            at = arguments.start.get(name)
            ref = arguments.refs[at] if at is not None and at < len(arguments.refs) else None
            if ref is not None:
                state = self._state.get(self._placed(ref.tensor).storage)
                if state is not None:
                    yield state

    # The end

    def finish(self, name: str, outputs: Iterable[Ref], source: str) -> Graph:
        """The graph with these outputs; of what it captures, that which it uses."""
        results = tuple(self.read(ref) for ref in outputs if ref.key in self._name)
        used = {n for op in self._ops for n in (*op.operands, *op.reads, *op.writes)}
        used.update(results)
        unused = set(self._captured) - used
        inputs = (*self._inputs, *(n for n in self._captured if n in used))
        made = {n for op in self._ops for n in op.results}
        # The canonical order of the text form: inputs, what no op makes, results.
        rest = [t for t in self._tensors.values() if t.name not in unused and t.name not in inputs]
        rest.sort(key=lambda t: t.name in made)
        tensors = [*(self._tensors[n] for n in inputs), *rest]
        return Graph(name, tuple(tensors), tuple(self._ops), inputs, results, source,
                     tuple(self.notes))  # fmt: skip


def _bound(
    func: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> tuple[str, str, _Arguments]:
    """Domain, name and arguments of a call."""
    arguments = _Arguments()
    schema = getattr(func, "_schema", None)
    if schema is None:  # a higher-order operator
        for at, value in enumerate(args):
            arguments.add(f"arg{at}", value, written=False)
        return "higher_order", str(getattr(func, "_name", func)), arguments
    # `transpose_` and its like change what a tensor says of its storage, and no byte of it.
    only_metadata = torch.Tag.inplace_view in func.tags
    for at, formal in enumerate(schema.arguments):
        if at < len(args) and not formal.kwarg_only:
            value = args[at]
        elif formal.name in kwargs:
            value = kwargs[formal.name]
        elif formal.has_default_value():
            value = formal.default_value
        else:
            continue
        alias = formal.alias_info
        written = alias is not None and alias.is_write and not only_metadata
        arguments.add(formal.name, value, written=written)
    domain, _, operator = schema.name.partition("::")
    return domain, operator, arguments


def _only_views(func: Any) -> bool:
    """Whether the schema says that every result aliases an operand it does not write."""
    returns = getattr(getattr(func, "_schema", None), "returns", ())
    return bool(returns) and all(
        one.alias_info is not None and not one.alias_info.is_write for one in returns
    )


def _does_nothing(attrs: Mapping[str, AttrValue]) -> bool:
    """Whether a dropout returns its operand."""
    return not attrs.get("train", attrs.get("training", 1)) or attrs.get("p") == 0


def _extra(kind: str, name: str, arguments: _Arguments) -> dict[str, AttrValue]:
    """What a row needs and only operands tell."""
    if kind == "rnn_layers":
        first = next(arguments.start[key] for key in _WEIGHTS if key in arguments.start)
        counted = 4 if name == "mkldnn_rnn_layer" else len(arguments.refs) - first
        return {"first_weight": first, "weights": counted}
    if kind == "fft" and arguments.refs[0] is not None:
        return {"points": _points(name, arguments)}
    return {}


def _points(name: str, arguments: _Arguments) -> tuple[int, ...]:
    """Lengths of the transformed axes."""
    ref = arguments.refs[0]
    shape = tuple(ref.tensor.shape) if ref is not None else ()
    asked = next((arguments.attrs[key] for key in _FFT_DIMS if key in arguments.attrs), None)
    if asked is None:
        asked = tuple(range(-2, 0)) if name.endswith("2") else tuple(range(len(shape)))
    axes = asked if isinstance(asked, tuple) else (asked,)
    lengths = arguments.attrs.get(
        "n", arguments.attrs.get("s", arguments.attrs.get("last_dim_size"))
    )
    if isinstance(lengths, int):
        return (lengths,)
    if isinstance(lengths, tuple):
        return tuple(int(n) for n in lengths if not isinstance(n, str))
    return tuple(int(shape[int(axis)]) for axis in axes if not isinstance(axis, str))
