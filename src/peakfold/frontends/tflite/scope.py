"""One subgraph of a `.tflite` file on its way to a graph.

A subgraph's tensors are inputs, what operators make, and the rest: constants, variables, and
tensors that nothing makes, which the checker names.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from peakfold.errors import ModelError, UsageError
from peakfold.frontends.tflite.attrs import attributes
from peakfold.frontends.tflite.control import Bodies, add_effects, handle_makers, regions_of
from peakfold.frontends.tflite.file import StoredOp, StoredTensor, TfliteFile
from peakfold.frontends.tflite.names import Names
from peakfold.frontends.tflite.values import Value, computed_value, stored_value
from peakfold.ir import Graph, Op, Role, Shape, Stated, Tensor
from peakfold.ir.bindings import Bindings
from peakfold.ops import VALUE_INPUTS, context, lookup
from peakfold.ops.spec import concrete
from peakfold.ops.tflite.names import tflite_kind


@dataclass(slots=True)
class Model:
    """What all subgraphs of one file share.

    Attributes:
        names: of tensors and operators.
        bindings: the user's numbers; grows by the symbols that given shapes bind.
        bodies: graphs of subgraphs that were asked for.
        owner: buffer -> the first constant that has it.
        differ: by tensor, how its shape in the file is not the one that its op makes.
    """

    file: TfliteFile
    names: Names
    bindings: Bindings
    bodies: Bodies
    notes: list[str] = field(default_factory=list)
    owner: dict[int, str] = field(default_factory=dict)
    differ: dict[str, str] = field(default_factory=dict)

    @property
    def rebound(self) -> bool:
        """Whether the user gave numbers, so that shapes are computed anew."""
        return bool(self.bindings.dims or self.bindings.shapes)


def open_shape(tensor: StoredTensor, name: str) -> Shape:
    """A tensor's shape with a symbol, ``NAME.AXIS``, for every dimension the file leaves open."""
    signature = tensor.signature
    if signature is None or len(signature) != len(tensor.shape):
        return tensor.shape
    return tuple(
        f"{name}.{at}" if dim < 0 else stated
        for at, (dim, stated) in enumerate(zip(signature, tensor.shape, strict=True))
    )


class Scope:
    """One subgraph on its way to a graph.

    Attributes:
        number: which subgraph.
        given: shapes of its inputs where they are computed anew.
    """

    def __init__(self, model: Model, number: int, given: tuple[Shape | None, ...] | None) -> None:
        self.model = model
        self.number = number
        self.stored = model.file.subgraphs[number]
        self.given = given
        self.tensors: dict[int, Tensor] = {}
        self.values: dict[int, Value] = {}
        self.merged: dict[tuple[int, str, Shape], int] = {}
        self.statics: list[int] = []
        self.states: dict[str, Tensor] = {}
        self.makers = handle_makers(self.stored)
        self.ops: list[Op] = []
        self.made: list[int] = []

    @property
    def where(self) -> str:
        """For errors."""
        return f"subgraph {self.number} ({self.stored.name!r})" if self.number else ""

    def name(self, at: int) -> str:
        """The graph's name of a tensor; empty for one that is absent."""
        return "" if at < 0 else self.model.names.tensor[self.number, at]

    def build(self) -> Graph:
        """The graph of this subgraph.

        Raises:
            ModelError: a tensor or op that cannot be understood.
        """
        made = {out for op in self.stored.ops for out in op.outputs if out >= 0}
        for position, at in enumerate(self.stored.inputs):
            self._declare_input(position, at, at in made)
        for at in sorted(
            {i for op in self.stored.ops for i in op.inputs if i >= 0} | set(self.stored.outputs)
        ):
            if at not in made and at not in self.tensors:
                self._declare_static(at)
        for position, stored in enumerate(self.stored.ops):
            try:
                self._add(position, stored)
            except ModelError as error:
                where = error.where or f"op {position} ({stored.builtin})"
                where = ", ".join(part for part in (self.where, where) if part)
                raise ModelError(error.what, where=where, hint=error.hint) from None
        return self._close()

    def inner(self, number: int, shapes: tuple[Shape | None, ...] | None) -> Graph:
        """The graph of another subgraph of the model, called with these shapes."""
        return Scope(self.model, number, shapes).build()

    def _declare_input(self, position: int, at: int, made: bool) -> None:
        stored, name = self.stored.tensors[at], self.name(at)
        if made:
            raise ModelError("is an input and made by an operator", where=f"tensor {name!r}")
        shape: Shape | None = stored.shape
        if self.given is not None:
            shape = self.given[position]
        elif self.number == 0:
            shape = self._bound(at)
        self.tensors[at] = Tensor(name, stored.dtype, shape, Role.INPUT)

    def _bound(self, at: int) -> Shape:
        """The file's shape with the user's numbers in its open dimensions."""
        stored, name = self.stored.tensors[at], self.name(at)
        declared = open_shape(stored, name)
        merged, bound = self.model.bindings.merge_shape(name, declared)
        self.model.bindings = self.model.bindings.with_dims(bound)
        merged = declared if merged is None else merged
        return tuple(
            own if isinstance(dim, str) else dim
            for dim, own in zip(merged, stored.shape, strict=True)
        )

    def _declare_static(self, at: int) -> None:
        """A tensor that no operator makes: a constant, a variable, or nothing at all."""
        stored, name = self.stored.tensors[at], self.name(at)
        shape = stored.shape
        held = self.model.file.buffers[stored.buffer][1] if self.model.file.buffers else 0
        tensor = Tensor(name, stored.dtype, shape, Role.PARAMETER)
        if stored.variable:
            self.tensors[at] = replace(tensor, role=Role.STATE)
            self.statics.append(at)
            return
        if not held and not stored.external and tensor.elements != 0:
            return  # an operand that nothing makes: the checker names it
        if held:
            tensor = self._with_bytes(tensor, stored, held)
            first = self._twin(at, stored)
            if first is not None:
                self.tensors[at] = self.tensors[first]
                return
            owner = self.model.owner.setdefault(stored.buffer, name)
            if owner != name:
                tensor = replace(tensor, stated_bytes=0)
                self.model.notes.append("constants that share stored bytes are counted once")
        self.tensors[at] = tensor
        self.statics.append(at)

    def _twin(self, at: int, stored: StoredTensor) -> int | None:
        """An earlier constant of this subgraph with the same bytes, type and shape."""
        key = (stored.buffer, stored.dtype.name, stored.shape)
        first = self.merged.setdefault(key, at)
        return None if first == at else first

    def _with_bytes(self, tensor: Tensor, stored: StoredTensor, held: int) -> Tensor:
        if stored.index_bytes is not None:
            self.model.notes.append(
                "sparse constants are counted with the bytes they are stored in, indices included"
            )
            return replace(tensor, stated_bytes=held + stored.index_bytes)
        if tensor.dtype.bits is None:
            return replace(tensor, stated_bytes=held)
        if tensor.nbytes != held:
            raise ModelError(
                f"{held} bytes are stored, its type and shape need {tensor.nbytes}",
                where=f"tensor {tensor.name!r}",
            )
        return tensor

    def value(self, at: int) -> Value | None:
        """The value of a tensor when it is small and known before the run."""
        if at in self.values:
            return self.values[at]
        tensor = self.tensors.get(at)
        if at < 0 or tensor is None or tensor.role is not Role.PARAMETER:
            return None
        stored = self.stored.tensors[at]
        if stored.index_bytes is not None or tensor.shape is None or stored.external:
            return None
        found = stored_value(stored.dtype, stored.shape, self.model.file.stored(stored))
        if found is not None:
            self.values[at] = found
        return found

    def _add(self, position: int, stored: StoredOp) -> None:
        kind = tflite_kind(stored.builtin, stored.custom)
        if kind == "concat" and "fused_activation" in stored.options:
            kind = "tflite::concatenation_with_activation"
        outputs = tuple(self._stated(at) if at >= 0 else None for at in stored.outputs)
        values = {}
        for slot in VALUE_INPUTS.get(kind, {}):
            found = self.value(stored.inputs[slot]) if slot < len(stored.inputs) else None
            if found is not None:
                values[slot] = found
        op = Op(
            self.model.names.op[self.number, position],
            kind,
            tuple(self._operand(at) for at in stored.inputs),
            tuple(self.name(at) for at in stored.outputs),
            attributes(kind, stored, values, outputs),
        )
        if stored.builtin == "CUSTOM":
            op = self._with_scratch(op, stored)
        op = regions_of(self, op, stored)
        op = add_effects(self, op, stored)
        self._infer(op, stored, outputs)
        self.ops.append(op)

    def _with_scratch(self, op: Op, stored: StoredOp) -> Op:
        """Operands of a custom operator that nothing makes are scratch, as compilers lay it out."""
        loose = [at for at in stored.inputs if at >= 0 and at not in self.tensors]
        sizes = [self._stated(at).nbytes for at in loose]
        if not loose or None in sizes:
            return op
        self.model.notes.append(
            f"{op.name!r}: {len(loose)} operands that nothing makes are its workspace"
        )
        taken = {self.name(at) for at in loose}
        inputs = tuple("" if name in taken else name for name in op.inputs)
        return replace(op, inputs=inputs, stated=Stated(workspace=sum(size or 0 for size in sizes)))

    def _operand(self, at: int) -> str:
        """A constant that repeats another is called like the first."""
        tensor = self.tensors.get(at)
        return self.name(at) if tensor is None else tensor.name

    def _stated(self, at: int) -> Tensor:
        stored = self.stored.tensors[at]
        shape: Shape | None = stored.shape
        if not stored.shape and not stored.has_rank:
            shape = None  # a scalar or an unknown rank: old files do not say which
        # The handle of a resource is a number that the kernel which makes it keeps itself.
        kept = 0 if stored.dtype.name == "resource" else None
        return Tensor(self.name(at), stored.dtype, shape, stated_bytes=kept)

    def _infer(self, op: Op, stored: StoredOp, outputs: tuple[Tensor | None, ...]) -> None:
        operands = (self.tensors.get(at) for at in stored.inputs)
        known = {tensor.name: tensor for tensor in operands if tensor is not None}
        known |= {t.name: replace(t, shape=None) for t in outputs if t is not None}
        types = None
        rule = lookup(op.kind).shape
        if rule is not None and all(name in known for name in op.inputs if name):
            types = rule(context(op, known))
        told = types or (None,) * len(outputs)
        for at, tensor, found in zip(stored.outputs, outputs, told, strict=True):
            if tensor is None:
                continue
            shape = self._settled(at, tensor, None if found is None else found[1])
            self.tensors[at] = replace(tensor, shape=shape)
            self.made.append(at)
        self._evaluate(op, stored, known)

    def _settled(self, at: int, tensor: Tensor, ruled: Shape | None) -> Shape | None:
        """The shape of a result: the user's, the rule's or the file's."""
        if tensor.name in self.model.bindings.shapes:
            given = self.model.bindings.shapes[tensor.name].dims
            if ruled is not None and all(isinstance(d, int) for d in ruled) and ruled != given:
                raise UsageError(f"--shape {tensor.name}: its op makes {'x'.join(map(str, ruled))}")
            return given
        stated = self.stored.tensors[at]
        is_open = stated.signature is not None
        if ruled is None:
            # A size that the file leaves open is only the run's to know.
            return None if is_open else tensor.shape
        if self.model.rebound or is_open or tensor.shape is None:
            return ruled
        if ruled != tensor.shape:
            self.model.differ[tensor.name] = (
                f"tensor {tensor.name!r}: the file declares {list(tensor.shape)}, its op makes "
                f"{list(ruled)}; the file's is used"
            )
        return tensor.shape

    def _evaluate(self, op: Op, stored: StoredOp, known: dict[str, Tensor]) -> None:
        if len(stored.outputs) != 1 or stored.outputs[0] < 0 or op.regions or op.writes:
            return
        out = stored.outputs[0]
        tensor = self.tensors[out]
        if tensor.elements is None or tensor.elements > 1024:
            return
        args = [self.value(at) for at in stored.inputs if at >= 0]
        shapes = [known[name].shape if name in known else None for name in op.inputs]
        value = computed_value(op, args, tensor.dtype, shapes)
        if value is not None and value.shape == concrete(tensor):
            self.values[out] = value

    def _close(self) -> Graph:
        inputs = [self.tensors[at] for at in self.stored.inputs]
        statics = [self.tensors[at] for at in self.statics]
        made = [self.tensors[at] for at in self.made]
        tensors = (*inputs, *self.states.values(), *statics, *made, *self._loose())
        captures = self.captures
        outputs = tuple(self._operand(at) for at in self.stored.outputs)
        return Graph(
            self.stored.name or "tflite",
            tensors,
            tuple(self.ops),
            (*(t.name for t in inputs), *captures),
            outputs,
            "tflite",
        )

    def _loose(self) -> Iterable[Tensor]:
        """Operands and outputs that nothing makes, for the checker to name."""
        read = {at for op in self.stored.ops for at in op.inputs} | set(self.stored.outputs)
        named = {name for op in self.ops for name in op.inputs} | {
            self.name(at) for at in self.stored.outputs
        }
        for at in sorted(read - {-1}):
            if at not in self.tensors and self.name(at) in named:
                yield self._stated(at)

    @property
    def captures(self) -> tuple[str, ...]:
        """Variables of the model that a body touches: the outer graph owns them."""
        return tuple(self.states) if self.number else ()
