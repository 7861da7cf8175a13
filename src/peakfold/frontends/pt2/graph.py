"""An exported program of a file -> a graph: the JSON is walked, nothing of it is run or imported.

Operators are texts that are looked up in `aten_schema`; one that is not there becomes an unknown
op under its own name. What results lie in whose bytes is told by `pt2_aliases`, which the storages
of a captured program show to `torch_export`: both give the same graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from peakfold.errors import ModelError
from peakfold.frontends.aten.schema import Signature, signature_of, unnamed
from peakfold.frontends.aten.values import Ref
from peakfold.frontends.pt2.aliases import Storages, storages
from peakfold.frontends.pt2.composite import taken_apart
from peakfold.frontends.pt2.control import Control, control_of
from peakfold.frontends.pt2.names import (
    EXTENSION,
    OPERATOR,
    PYTHON,
    called,
    guessed,
    module_path,
    results_of,
)
from peakfold.frontends.pt2.pieces import Pieces, Unknown
from peakfold.frontends.pt2.schema import (
    Argument,
    Graph,
    GraphArgument,
    Node,
    OptionalTensor,
    SymArgument,
)
from peakfold.frontends.pt2.values import ProgramBuilder, Sizes, Value, dtype_of
from peakfold.frontends.torch.names import INLINED
from peakfold.ir import Region, Role
from peakfold.ir.check import MAX_NESTING

# What rows and pieces raise where an argument is missing, or is another thing than they take.
_UNFIT = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, StopIteration)


class Walker:
    """Walks one graph of a program and feeds a builder.

    Args:
        graph: the graph.
        builder: what it is fed to.
        sizes: reads sizes.
        fresh: gives storages.
        scope: module path of calls that have none.
        depth: how many graphs are around it.
    """

    def __init__(
        self,
        graph: Graph,
        builder: ProgramBuilder,
        sizes: Sizes,
        fresh: Storages,
        scope: str = "",
        depth: int = 0,
    ) -> None:
        if depth > MAX_NESTING:
            raise ModelError("it nests too deeply")
        self.graph = graph
        self._builder = builder
        self._sizes = sizes
        self._fresh = fresh
        self._scope = scope
        self._depth = depth
        self._values: dict[str, Ref] = {}

    # Values by name.

    def value(self, name: str, storage: int | None = None) -> Value:
        """The tensor that the graph describes under a name."""
        meta = self.graph.tensor_values.get(name)
        where = f"tensor {name!r}"
        if meta is None:
            raise ModelError("nothing describes it", where=where)
        return self._sizes.tensor(meta, storage or self._fresh.fresh(), where)

    def enter(self, name: str, value: Value) -> Ref:
        """Let a name of this graph stand for a tensor from now on."""
        if name in self._values:
            raise ModelError("two things have this name", where=f"tensor {name!r}")
        # Names of a body are not those of the graph around it.
        self._values[name] = Ref((id(self), name), value)
        return self._values[name]

    def ref(self, name: str) -> Ref:
        """The tensor that a name stands for."""
        if name not in self._values:
            raise ModelError("it is used before anything makes it", where=f"tensor {name!r}")
        return self._values[name]

    def walk(self) -> list[Ref | None]:
        """Feed every node; gives the tensors among the outputs, `None` for other ones."""
        for node in self.graph.nodes:
            try:
                self._feed(node)
            except ModelError as error:
                if error.where.startswith("op "):
                    raise
                where = ", ".join(filter(None, (f"op {called(node)!r}", error.where)))
                raise ModelError(error.what, where=where, hint=error.hint) from None
            except _UNFIT:
                raise ModelError(
                    f"its arguments are not those of {node.target!r}", where=f"op {called(node)!r}"
                ) from None
        return [
            self.ref(out.as_tensor.name) if out.as_tensor else None for out in self.graph.outputs
        ]

    def mapped(self) -> int:
        """How many operators run inside `torch.vmap`: an export shows them for one item only."""
        depth = found = 0
        for node in self.graph.nodes:
            name = node.target.rpartition(".")[2]
            depth += (name == "_vmap_increment_nesting") - (name == "_vmap_decrement_nesting")
            found += depth > 0 and node.target.startswith("torch.ops.")
        return found

    def _feed(self, node: Node) -> None:
        match = OPERATOR.fullmatch(node.target)
        if match is not None and match[1] == "higher_order":
            self._higher_order(node, match[2])
        elif match is not None:
            found = signature_of(match[1], match[2], match[3] or "default")
            self._call(node, found or guessed(match[1], match[2], node))
        elif PYTHON.fullmatch(node.target):
            self._python(node)
        elif extension := EXTENSION.fullmatch(node.target):
            self._call(node, guessed(extension[1], extension[2], node))
        else:
            shown = node.target if len(node.target) <= 60 else f"{node.target[:59]}…"
            raise ModelError(f"{shown!r} is no operator")

    def _python(self, node: Node) -> None:
        inner = next(self.tensors(argument.arg for argument in node.inputs), None)
        for out in node.outputs:
            if out.as_tensor is not None and inner is not None:
                self._alias(out.as_tensor.name, inner)

    def _alias(self, name: str, ref: Ref) -> None:
        storage = ref.tensor.storage
        made = self.enter(name, self.value(name, storage))
        self._builder.alias(made.key, ref)

    # Calls.

    def _call(self, node: Node, signature: Signature) -> None:
        given = {argument.name: self.argument(argument.arg) for argument in node.inputs}
        missing = [f.name for f in signature.formals if not f.optional and f.name not in given]
        if missing:
            raise ModelError(f"argument {missing[0]!r} of {node.target!r} is missing")
        names = results_of(node)
        if self._composite(node, signature, given, names):
            return
        made = [None if name is None else self.value(name) for name in names]
        placed = storages(signature, given, made)
        results = [
            None
            if name is None or value is None
            else self.enter(name, value if home is None else replace(value, storage=home))
            for name, value, home in zip(names, made, placed, strict=True)
        ]
        self._builder.call(called(node), signature, (), given, results, self._scope_of(node))

    def _composite(
        self, node: Node, signature: Signature, given: dict[str, Any], names: list[str | None]
    ) -> bool:
        """Feed what an operator is made of, if PyTorch defines it through others."""
        apart = taken_apart(signature)
        if apart is None or None in names:
            return False
        whole = [self.value(name) for name in names if name is not None]

        fed = self._builder.calls

        def feed(name: str, piece: Signature, args: dict[str, Any], made: Value) -> Ref:
            (home,) = storages(piece, args, [made])
            ref = Ref(object(), replace(made, storage=home or self._fresh.fresh()))
            self._builder.call(name, piece, (), args, [ref], self._scope_of(node))
            return ref

        stated = {formal.name: formal.default for formal in signature.formals} | given
        try:
            found = apart(Pieces(called(node), feed), stated, whole)
        except Unknown:
            if self._builder.calls == fed:
                return False
            found = []
        if [ref.tensor.dims for ref in found] != [value.dims for value in whole]:
            raise ModelError("its result has not the sizes that its operands give it")
        for name, ref in zip(names, found, strict=True):
            self._alias(name or "", ref)
        return True

    def argument(self, arg: Argument) -> Any:
        """An argument as the builder knows it; `None` where nothing is given."""
        if arg.as_none is not None:
            return None
        tensors = self._tensors(arg)
        return _plain(arg) if tensors is None else tensors[0]

    def _tensors(self, arg: Argument) -> tuple[Any] | None:
        """What stands for tensors and sizes of the graph, boxed; `None` for other values."""
        if arg.as_tensor is not None:
            return (self.ref(arg.as_tensor.name),)
        if arg.as_tensors is not None:
            return ([self.ref(named.name) for named in arg.as_tensors],)
        if arg.as_optional_tensor is not None:
            return (self._optional(arg.as_optional_tensor),)
        if arg.as_optional_tensors is not None:
            return ([self._optional(one) for one in arg.as_optional_tensors],)
        if arg.as_sym_ints is not None:
            return ([self._symbol(symbol) for symbol in arg.as_sym_ints],)
        symbol = arg.as_sym_int or arg.as_sym_float or arg.as_sym_bool
        return None if symbol is None else (self._symbol(symbol),)

    def _optional(self, one: OptionalTensor) -> Ref | None:
        return None if one.as_tensor is None else self.ref(one.as_tensor.name)

    def _symbol(self, symbol: SymArgument) -> object:
        if symbol.as_name is None:
            return next(
                (n for n in (symbol.as_int, symbol.as_float, symbol.as_bool) if n is not None),
                _OTHER,
            )
        size = self.graph.sym_int_values.get(symbol.as_name)
        return _OTHER if size is None else self._sizes.of(size, f"value {symbol.as_name!r}")

    def tensors(self, args: Iterator[Argument]) -> Iterator[Ref]:
        """The tensors among arguments, in order."""
        for arg in args:
            value = self.argument(arg)
            for item in value if isinstance(value, list) else (value,):
                if isinstance(item, Ref):
                    yield item

    def _scope_of(self, node: Node) -> str:
        return module_path(node.metadata.get("nn_module_stack", "")) or self._scope

    # Operators of a higher order.

    def _higher_order(self, node: Node, name: str) -> None:
        args = [argument.arg for argument in node.inputs]
        bodies = [arg.as_graph for arg in args if arg.as_graph is not None]
        if name in INLINED and bodies:
            self._inline(node, args, bodies[0])
            return
        control = control_of(name, args, self.argument)
        if control is not None:
            self._control(node, control)
            return
        flat = list(self.tensors(iter(args)))
        if name != "flex_attention":
            note = f"op {called(node)!r}: the bodies of {name} are not analysed"
            self._builder.notes[note] = None
        results = self._made(node)
        signature = unnamed(name, len(flat))
        self._builder.call(called(node), signature, flat, {}, results, self._scope_of(node))

    def _made(self, node: Node) -> list[Ref | None]:
        names = results_of(node)
        return [None if name is None else self.enter(name, self.value(name)) for name in names]

    def _inner(self, body: GraphArgument, builder: ProgramBuilder, scope: str) -> Walker:
        return Walker(body.graph, builder, self._sizes, self._fresh, scope, self._depth + 1)

    def _control(self, node: Node, control: Control) -> None:
        scope = self._scope_of(node)
        regions = tuple(
            self._region(label, body, fed, control.captured, scope)
            for label, body, fed in control.bodies
        )
        self._builder.control(
            called(node),
            control.kind,
            control.inputs,
            self._made(node),
            regions,
            control.attrs,
            scope,
        )

    def _region(
        self, label: str, body: GraphArgument, fed: int, captured: Sequence[object], scope: str
    ) -> Region:
        """The body as a closed graph; `fed` of its first formals the op feeds."""
        builder = ProgramBuilder()
        inner = self._inner(body, builder, scope)
        formals = [arg.as_tensor.name if arg.as_tensor else None for arg in body.graph.inputs]
        for formal, actual in zip(formals[fed:], captured, strict=False):
            if formal is not None and isinstance(actual, Ref):
                ref = inner.enter(formal, inner.value(formal))
                builder.declare_captured(ref, self._builder.tensor(actual))
        for formal in formals[:fed]:
            if formal is not None:
                builder.declare(inner.enter(formal, inner.value(formal)), formal, Role.INPUT)
        graph = builder.finish(label, filter(None, inner.walk()), "torch")
        return Region(label, graph, graph.inputs[fed:])

    def _inline(self, node: Node, args: Sequence[Argument], body: GraphArgument) -> None:
        at = next(i for i, arg in enumerate(args) if arg.as_graph is body)
        operands: list[object] = []
        for arg in args[at + 1 :]:
            value = self.argument(arg)
            operands += value if isinstance(value, list) else [value]
        operands = [value for value in operands if not isinstance(value, str)]
        inner = self._inner(body, self._builder, self._scope_of(node))
        formals = body.graph.inputs
        for formal, actual in zip(
            formals, operands[-len(formals) :] if formals else [], strict=False
        ):
            if formal.as_tensor is not None and isinstance(actual, Ref):
                inner._alias(formal.as_tensor.name, actual)
        leaves = inner.walk()
        names = results_of(node)
        for name, leaf in zip(names, leaves, strict=False):
            if name is not None and leaf is not None:
                self._alias(name, leaf)


_OTHER: Final = object()
"""An argument that no op's semantics need: a device, a layout, a size nobody knows."""


def _plain(arg: Argument) -> object:
    """An argument that is a value of its own."""
    if arg.as_scalar_type is not None:
        return dtype_of(arg.as_scalar_type)
    if any(not -(2**63) <= n < 2**63 for n in (arg.as_int or 0, *(arg.as_ints or ()))):
        raise ModelError("an integer argument has more than 64 bits")
    if arg.as_float is not None:
        return float(arg.as_float)
    if arg.as_floats is not None:
        return [float(number) for number in arg.as_floats]
    values = (arg.as_int, arg.as_bool, arg.as_string, arg.as_ints, arg.as_bools)
    return next((value for value in values if value is not None), _OTHER)
