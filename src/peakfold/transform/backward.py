"""The backward pass and the optimizer, without a framework: a training step as one graph.

Reverse-mode differentiation over the registry's `grad` column, which declares what each op's
backward pass reads. Values stay unknown; what exists, when, and how large it is does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from peakfold.arguments import flag, word
from peakfold.errors import ModelError, UsageError
from peakfold.ir import DTYPES, Graph, Op, Role, Tensor
from peakfold.ir.graph import AttrValue
from peakfold.ops import context, lookup
from peakfold.ops.grad import OPTIMIZERS, grad_kind
from peakfold.ops.spec import GradReads, GradSpec
from peakfold.transform.gradient_reads import Profile, groups, operands_of
from peakfold.transform.training import with_training_results

Loss = Literal["external", "softmax-output"]
ParamGrads = Literal["dynamic", "static"]
LOSSES: tuple[Loss, ...] = ("external", "softmax-output")
PROFILES: tuple[Profile, ...] = ("minimal", "mxnet")
PARAM_GRADS: tuple[ParamGrads, ...] = ("dynamic", "static")

# What an operand may be for a gradient to make sense.
_REAL = frozenset({"float16", "bfloat16", "float32", "float64"})
# Everything: the conservative answer for a kind whose backward pass nobody declared.
_UNDECLARED = GradSpec({-1: GradReads(("dy", "x*", "y*"))}, joint=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Train:
    """The step that makes a training graph of a forward graph; its fields are its options.

    Attributes:
        loss: ``external`` (the gradient of every output is given, as one more input each) or
            ``softmax-output`` (the last softmax is the loss: its gradient reads its output and
            a label).
        reads: which profile of the `grad` column declares what the backward pass reads.
        input_grad: also make the gradients of the inputs, and keep them as outputs.
        param_grads: ``dynamic`` (a parameter's gradient lives from its producer to the optimizer,
            or to the end without one) or ``static`` (it is added to a holder that outlives the
            step, as under gradient accumulation and in MXNet).
        optimizer: a name in `peakfold.ops.grad.OPTIMIZERS`; `None` = gradients only.
        keep_outputs: forward outputs stay outputs of the training step.

    Raises:
        UsageError: an unknown option, or nothing to differentiate.
        ModelError: no softmax to take as the loss; control flow.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> g = parse_graph('''peakfold-graph 1
        ... input data: float32[2,3]
        ... parameter w: float32[3,4]
        ... h: float32[2,4] = matmul(data, w)
        ... y: float32[2,4] = relu(h)
        ... output y''')
        >>> [(op.kind, op.inputs) for op in Train()(g).ops[2:]]
        [('relu_grad', ('y.grad', 'y')), ('matmul_grad', ('h.grad', 'data'))]
    """

    loss: Loss = "external"
    reads: Profile = "minimal"
    input_grad: bool = False
    param_grads: ParamGrads = "dynamic"
    optimizer: str | None = None
    keep_outputs: bool = True

    def __post_init__(self) -> None:
        for value, known, what in (
            (self.loss, LOSSES, "loss"),
            (self.reads, PROFILES, "gradient profile"),
            (self.param_grads, PARAM_GRADS, "kind of parameter gradients"),
        ):
            word(value, known, what)
        if self.optimizer is not None:
            word(self.optimizer, tuple(OPTIMIZERS), "optimizer")
        flag(self.input_grad, "input_grad")
        flag(self.keep_outputs, "keep_outputs")

    def __call__(self, graph: Graph) -> Graph:
        """The graph of one training step: forward, backward, and the optimizer if one is set."""
        return _Backward(graph, self).run()


class _Backward:
    def __init__(self, graph: Graph, options: Train) -> None:
        self.options = options
        self.source = graph
        self.graph = with_training_results(graph, masks=options.reads == "minimal")
        self.taken = set(self.graph.by_name)
        self.tensors: dict[str, Tensor] = dict(self.graph.by_name)
        self.ops: list[Op] = []
        self.inputs: list[str] = []
        # Gradients of a tensor that its consumers have made so far; each once.
        self.pieces: dict[str, list[str]] = {}
        self.undeclared: Counter[str] = Counter()

    def run(self) -> Graph:
        wanted = self._wanted()
        self.needed = self._needed(wanted)
        if not wanted & self.needed or not self.needed & set(self.graph.outputs):
            raise UsageError(
                "nothing to train: no output depends on a parameter of floats",
                where=f"graph {self.graph.name!r}",
                hint="--input-grad differentiates the inputs",
            )
        skip = self._seed()
        for op in reversed(self.graph.ops):
            if op.name != skip:
                self._differentiate(op)
        return self._assembled(wanted)

    def _wanted(self) -> set[str]:
        """Parameters, and inputs where asked for, that get a gradient."""
        parameters = {t.name for t in self.graph.tensors if t.role is Role.PARAMETER}
        inputs = set(self.graph.inputs) if self.options.input_grad else set()
        return {name for name in parameters | inputs if self._real(name)}

    def _real(self, name: str) -> bool:
        return self.tensors[name].dtype.name in _REAL

    def _needed(self, wanted: set[str]) -> set[str]:
        """Tensors on a path from what is wanted: those whose gradient is worth making."""
        needed = set(wanted)
        for op in self.graph.ops:
            spec = self._spec(op)
            captured = op.operands if op.regions else ()  # bodies read outer tensors, too
            reached = any(op.inputs[at] in needed for at in self._positions(op, spec))
            if reached or any(name in needed for name in captured):
                self._check(op)
                needed.update(name for name in op.results if self._real(name))
        return needed

    def _check(self, op: Op) -> None:
        """That a gradient can pass an op.

        Raises:
            ModelError: a body, or a result that may hold floats or not.
        """
        if op.regions:
            raise ModelError(
                f"the backward pass of {op.kind!r} is not known: its body would have to "
                "be differentiated",
                where=f"op {op.name!r}",
            )
        for name in op.results:
            if self.tensors[name].dtype.bits is None:
                raise ModelError(
                    f"{name!r} has no known element type, so whether a gradient passes it is not "
                    "known",
                    where=f"op {op.name!r} ({op.kind})",
                    hint=f"pass --shape {name}=float32:AxBxC",
                )

    @staticmethod
    def _spec(op: Op) -> GradSpec:
        return lookup(op.kind).grad or _UNDECLARED

    def _positions(self, op: Op, spec: GradSpec) -> tuple[int, ...]:
        every = tuple(range(len(op.inputs))) if -1 in spec.wrt else tuple(spec.wrt)
        return tuple(
            at for at, name in enumerate(op.inputs) if at in every and name and self._real(name)
        )

    # --- where gradients come from -------------------------------------------------------

    def _seed(self) -> str | None:
        """Gradients of the outputs; returns the op that the loss stands for."""
        if self.options.loss == "softmax-output":
            return self._softmax_loss()
        for name in dict.fromkeys(self.graph.outputs):
            if name in self.needed:
                given = self._new(f"{name}.grad", self.tensors[name], Role.INPUT)
                self.inputs.append(given)
                self.pieces[name] = [given]
        return None

    def _softmax_loss(self) -> str:
        last = next((op for op in reversed(self.graph.ops) if op.kind == "softmax"), None)
        if last is None:
            raise ModelError(
                "no softmax to take as the loss",
                where=f"graph {self.graph.name!r}",
                hint="--loss external takes the gradient of each output as given",
            )
        output, logits = last.outputs[0], last.inputs[0]
        shape = (self.tensors[output].shape or ())[:-1]
        label = self._free("label")
        self.tensors[label] = Tensor(label, DTYPES["int64"], shape, Role.INPUT)
        self.inputs.append(label)
        result = self._gradient(logits)
        attrs: dict[str, AttrValue] = {"form": "pointwise", "profile": self.options.reads}
        self._emit(
            Op(
                self._free(f"{last.name}.grad"),
                "softmax_output_grad",
                (output, label),
                (result,),
                attrs,
                scope=last.scope,
            )
        )
        return last.name

    # --- one op ----------------------------------------------------------------------------

    def _differentiate(self, op: Op) -> None:
        if not any(name in self.pieces for name in op.results):
            return
        spec = self._spec(op)
        positions = [at for at in self._positions(op, spec) if op.inputs[at] in self.needed]
        if not positions:
            return
        incoming = tuple(self._total(name) or "" for name in op.outputs)
        if spec is _UNDECLARED:
            self.undeclared[op.kind] += 1
        for group, reads in groups(spec, positions, self.options.reads):
            self._emit_gradient(op, spec, group, reads, incoming)

    def _emit_gradient(
        self, op: Op, spec: GradSpec, group: list[int], reads: GradReads, incoming: tuple[str, ...]
    ) -> None:
        outputs: list[str] = []
        writes: list[str] = []
        # An operand given twice has one gradient from each place.
        for at in group:
            name = op.inputs[at]
            held = self.options.param_grads == "static" and self.tensors[name].role.static
            (writes if held else outputs).append(
                self._holder(name) if held else self._gradient(name)
            )
        operands = tuple(dict.fromkeys(operands_of(op, reads, group, incoming)))
        attrs: dict[str, AttrValue] = {
            "form": reads.form,
            "profile": self.options.reads,
            "wrt": tuple(group),
            "macs": self._macs(op, spec, group),
        }
        if reads.form == "slices":
            attrs |= {"axis": op.attrs.get("axis", 0), "starts": self._starts(op, group)}
        label = f"{op.name}.grad" + ("" if len(group) > 1 else f".{group[0]}")
        writes = list(dict.fromkeys(writes))
        self._emit(
            Op(
                self._free(label),
                grad_kind(op.kind),
                operands,
                tuple(outputs),
                attrs,
                reads=tuple(writes),
                writes=tuple(writes),
                scope=op.scope,
            )
        )

    def _macs(self, op: Op, spec: GradSpec, group: list[int]) -> int:
        rule = lookup(op.kind).macs
        times = len(set(group) & set(spec.bilinear))
        return times * ((rule(context(op, self.tensors)) if rule and times else 0) or 0)

    def _starts(self, op: Op, group: list[int]) -> tuple[int, ...]:
        starts, at = {}, 0
        for position, name in enumerate(op.inputs):
            starts[position] = at
            at += self.tensors[name].nbytes or 0
        return tuple(starts[position] for position in group)

    # --- gradients of a tensor -------------------------------------------------------------

    def _gradient(self, name: str) -> str:
        """A new piece of the gradient of a tensor."""
        pieces = self.pieces.setdefault(name, [])
        made = self._new(
            f"{name}.grad" if not pieces else f"{name}.grad.{len(pieces)}",
            self.tensors[name],
            Role.GRADIENT,
        )
        pieces.append(made)
        return made

    def _holder(self, name: str) -> str:
        """The static sum of a parameter's gradients."""
        held = self.pieces.setdefault(name, [])
        if not held:
            held.append(self._new(f"{name}.grad", self.tensors[name], Role.STATE))
        return held[0]

    def _total(self, name: str) -> str | None:
        """The whole gradient of a tensor: its pieces are added up where there are several (R50)."""
        pieces = self.pieces.get(name) if name else None
        if not pieces:
            return None
        if len(pieces) > 1:
            total = self._new(f"{name}.grad.sum", self.tensors[name], Role.GRADIENT)
            self._emit(Op(self._free(f"{name}.grad.add"), "sum", tuple(pieces), (total,)))
            self.pieces[name] = pieces = [total]
        return pieces[0]

    def _new(self, name: str, like: Tensor, role: Role) -> str:
        name = self._free(name)
        self.tensors[name] = replace(like, name=name, role=role)
        return name

    def _free(self, name: str) -> str:
        free, n = name, 1
        while free in self.taken:
            free, n = f"{name}~{n}", n + 1
        self.taken.add(free)
        return free

    def _emit(self, op: Op) -> None:
        self.ops.append(op)

    # --- the whole step ----------------------------------------------------------------------

    def _assembled(self, wanted: set[str]) -> Graph:
        graph, kept = self.graph, self.options.keep_outputs
        inputs = [self._total(name) for name in graph.inputs if name in wanted]
        parameters = {
            t.name: total
            for t in graph.tensors
            if t.name in wanted and t.role is Role.PARAMETER and (total := self._total(t.name))
        }
        outputs = [*(graph.outputs if kept else ()), *filter(None, inputs)]
        if self.options.optimizer is not None:
            self._optimize(parameters)
        elif self.options.param_grads == "dynamic":
            outputs += parameters.values()
        order = {
            Role.INPUT: 0,
            Role.PARAMETER: 1,
            Role.CONSTANT: 1,
            Role.STATE: 1,
            Role.OPTIMIZER_STATE: 1,
        }
        tensors = sorted(self.tensors.values(), key=lambda t: order.get(t.role, 2))
        return replace(
            graph,
            tensors=tuple(tensors),
            ops=(*graph.ops, *self.ops),
            inputs=(*graph.inputs, *self.inputs),
            outputs=tuple(dict.fromkeys(outputs)),
            notes=(*graph.notes, *self._notes()),
        )

    def _notes(self) -> Iterator[str]:
        if self.undeclared:
            kinds = ", ".join(f"{kind} ({n})" for kind, n in sorted(self.undeclared.items()))
            yield f"the backward pass of these kinds is not declared and reads everything: {kinds}"

    def _optimize(self, parameters: dict[str, str]) -> None:
        """One update per parameter behind the backward pass, in the order of the parameters."""
        name = self.options.optimizer or ""
        copies, _ = OPTIMIZERS[name]
        for parameter, gradient in parameters.items():
            state = [
                self._new(f"{parameter}.{name}.{n}", self.tensors[parameter], Role.OPTIMIZER_STATE)
                for n in range(copies)
            ]
            self._emit(
                Op(
                    self._free(f"{parameter}.step"),
                    f"{name}_step",
                    (parameter, gradient, *state),
                    (),
                    writes=(parameter, *state),
                )
            )
