"""The second way to a training graph: forward and backward exported together, as a function.

`torch.export`, then AOTAutograd's joint export: no update in place, no optimizer, every operator
of both passes in one program. What a plain eager run does step by step is `torch_step_graph`;
this is what a compiler of the step starts from.
"""

from __future__ import annotations

import io
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, redirect_stderr
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import GraphModule, Node

from peakfold.errors import PeakfoldError, UsageError
from peakfold.frontends.aten.values import Ref
from peakfold.frontends.torch.build import GraphBuilder
from peakfold.frontends.torch.export import Walker
from peakfold.frontends.torch.failure import failure
from peakfold.frontends.torch.fake import fake_mode, fake_module, fake_tree, opened_for, undisturbed
from peakfold.frontends.torch.training.loss import Aimed, loss_of
from peakfold.frontends.torch.training.loss_targets import targeted, with_target
from peakfold.frontends.torch.training.options import StepOptions
from peakfold.frontends.torch.training.phases import results_of
from peakfold.frontends.torch.values import place_of
from peakfold.ir import Graph, Role

_ROLES = {"ParamAOTInput": Role.PARAMETER, "BufferAOTInput": Role.STATE}
_TARGET = "target_of_the_loss"
_HINT = "the default, --capture eager, runs the step and follows Python's own control flow"


@dataclass(frozen=True, slots=True)
class JointGraph:
    """Forward and backward pass as one functional graph.

    Attributes:
        graph: outputs are the loss and the gradients of the parameters; gradients have the role
            `gradient`, statistics are written to their buffers when the forward pass ends.
        phases: phase and the op with which it begins.
        saved: bytes by name of what the forward pass makes and the backward pass reads, each
            storage once, under the name first read.
    """

    graph: Graph
    phases: tuple[tuple[str, int], ...]
    saved: Mapping[str, int]


class _Loss(torch.nn.Module):
    """A module with its loss: what is differentiated."""

    def __init__(self, module: torch.nn.Module, options: StepOptions) -> None:
        super().__init__()
        self.of = module
        self._options = options

    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """The scalar loss."""
        options, target = self._options, kwargs.pop(_TARGET, None)
        if target is not None and isinstance(options.loss, Aimed):
            options = replace(options, loss=replace(options.loss, target=target))
        out = self.of(*args, **kwargs)
        return loss_of(out, results_of(out), options)[0]


def joint_graph(
    module: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    options: StepOptions | None = None,
    names: Sequence[str] = (),
) -> JointGraph:
    """The joint graph of a module and its loss.

    Args:
        module: any module that exports; it is left as it is.
        args: positional example inputs.
        kwargs: keyword ones.
        options: whose loss is taken; the update is not part of the graph.
        names: what the tensors among the inputs are called.

    Raises:
        UsageError: an option that this route has not, or nothing to train.
        ModelError: the export failed; names the module and the line.

    Example:
        >>> options = StepOptions(loss="sum")
        >>> found = joint_graph(torch.nn.Linear(4, 3), (torch.zeros(2, 4),), options=options)
        >>> [t.shape for t in found.graph.tensors if t.role is Role.GRADIENT], dict(found.saved)
        ([(3,), (3, 4)], {})
    """
    _supported(module, options or StepOptions())
    options = targeted(module, args, kwargs, options or StepOptions())
    mode = fake_mode()
    copied = fake_module(module, mode)
    given, named = opened_for(copied, fake_tree((tuple(args), dict(kwargs or {})), mode))
    with mode:
        for target in with_target(options, copied)[1]:
            named[_TARGET] = target
    wrapped = _Loss(copied, options)
    said = io.StringIO()  # a failing export prints its program: the error says enough
    with undisturbed(), torch.enable_grad(), warnings.catch_warnings(), ExitStack() as stack:
        warnings.simplefilter("ignore")
        try:
            with redirect_stderr(said):
                program = _exported(wrapped, given, named, stack)
        except PeakfoldError:
            raise
        except Exception as error:  # exporting runs the user's own code
            raise failure(copied, error, "the joint export", _HINT) from None
        sys.stderr.write(said.getvalue())
        return _read(program, type(module).__name__, _frozen(copied), names)


def _supported(module: torch.nn.Module, options: StepOptions) -> None:
    if not any(p.requires_grad for p in module.parameters()):
        raise UsageError("nothing to train: no parameter requires a gradient")
    asked = {
        "accumulated batches": options.accumulate > 1,
        "autocast": options.autocast is not None,
        "choice of attention kernel": options.attention != "as-is",
    }
    for what, given in asked.items():
        if given:
            raise UsageError(f"a joint export has no {what}", hint="take --capture eager")


def _exported(
    wrapped: _Loss, args: tuple[Any, ...], kwargs: dict[str, Any], stack: ExitStack
) -> GraphModule:
    from torch._functorch.aot_autograd import aot_export_joint_with_descriptors

    program = torch.export.export(wrapped, args, kwargs, strict=False).module()
    joint = aot_export_joint_with_descriptors(stack, program, args, kwargs)
    found: GraphModule = joint.graph_module
    return found


def _frozen(module: torch.nn.Module) -> frozenset[str]:
    every = module.named_parameters(remove_duplicate=False)
    return frozenset(name for name, p in every if not p.requires_grad)


def _read(
    program: GraphModule, name: str, frozen: frozenset[str], names: Sequence[str]
) -> JointGraph:
    nodes = list(program.graph.nodes)
    _place_in_modules(nodes)
    builder = GraphBuilder()
    _declare(builder, [n for n in nodes if n.op == "placeholder"], frozen, names)
    results = list(zip(nodes[-1].args[0], nodes[-1].meta["desc"], strict=True))
    walker, boundary = Walker(program, builder), 0
    backward = False
    for node in nodes:
        if node.op != "placeholder" and not backward and _is_backward(node):
            _write_buffers(builder, nodes, results)
            backward, boundary = True, builder.calls
        if _does_nothing(node):
            source = node.args[0]
            builder.join(node.meta["val"], source.meta["val"])
            builder.alias(node, Ref(source, source.meta["val"]))
        elif node.op in ("call_function", "get_attr"):
            walker.feed(node)
    saved = _saved(builder, nodes)
    made = [(node, type(desc).__name__) for node, desc in results if isinstance(node, Node)]
    outputs = [Ref(n, n.meta["val"]) for n, kind in made if kind != "InputMutationAOTOutput"]
    gradients = {builder.read(Ref(n, n.meta["val"])) for n, kind in made if kind == "GradAOTOutput"}
    graph = builder.finish(name, outputs, "torch")
    tensors = tuple(
        replace(t, role=Role.GRADIENT) if t.name in gradients and t.role is Role.ACTIVATION else t
        for t in graph.tensors
    )
    phases = (("forward", 0), ("backward", boundary))
    return JointGraph(replace(graph, tensors=tensors), phases, saved)


def _is_backward(node: Node) -> bool:
    return node.op == "output" or node.meta.get("partitioner_tag") == "is_backward"


def _place_in_modules(nodes: Sequence[Node]) -> None:
    """Paths without the wrapper; a backward op is of the module of its forward op."""
    of: dict[Any, Any] = {}
    for node in nodes:
        stack = node.meta.get("nn_module_stack")
        if stack:
            path, kind = next(reversed(stack.values()))
            inner = str(path).removeprefix("of").removeprefix(".")
            node.meta["nn_module_stack"] = {"": (inner, kind)}
            of.setdefault(node.meta.get("seq_nr"), node.meta["nn_module_stack"])
        elif node.meta.get("seq_nr") in of:
            node.meta["nn_module_stack"] = of[node.meta["seq_nr"]]


def _declare(
    builder: GraphBuilder, formals: Sequence[Node], frozen: frozenset[str], names: Sequence[str]
) -> None:
    taken = iter(names)
    for node in formals:
        value, desc = node.meta.get("val"), node.meta["desc"]
        if not isinstance(value, torch.Tensor):
            continue
        role = _ROLES.get(type(desc).__name__, Role.INPUT)
        if role is Role.INPUT:
            tangent = type(desc).__name__ == "TangentAOTInput"
            called = "loss_gradient" if tangent else next(taken, node.name)
            builder.declare(Ref(node, value), called, role)
            continue
        called = desc.target.removeprefix("of.")
        trainable = called not in frozen if role is Role.PARAMETER else None
        builder.declare(Ref(node, value), called, role, trainable)


def _write_buffers(
    builder: GraphBuilder, nodes: Sequence[Node], results: Sequence[tuple[Any, Any]]
) -> None:
    """New statistics go to their buffers as soon as the forward pass is over.

    The backward pass reads them there: batch norms pass them on, and the values are the same.
    """
    buffers = {n.meta["desc"]: n for n in nodes if n.op == "placeholder"}
    for node, desc in results:
        if type(desc).__name__ != "InputMutationAOTOutput" or not isinstance(node, Node):
            continue
        target = buffers[desc.mutated_input]
        into, new = Ref(target, target.meta["val"]), Ref(node, node.meta["val"])
        builder.call(
            f"write_{target.name}", torch.ops.aten.copy_.default, (into, new), {}, [into], ""
        )
        builder.join(new.tensor, into.tensor)
        builder.alias(node, into)


def _does_nothing(node: Node) -> bool:
    """A copy that keeps the layout: what a dropout that drops nothing leaves in a program.

    Nothing is written in a functional program, so the copy and its source are one value.
    """
    if node.target is not torch.ops.aten.clone.default:
        return False
    source: Any = node.args[0]
    return place_of(node.meta["val"]).layout == place_of(source.meta["val"]).layout


def _saved(builder: GraphBuilder, nodes: Sequence[Node]) -> dict[str, int]:
    """What the backward pass reads of the forward pass, by storage."""
    sizes: dict[int, int] = {}
    held: set[int] = set()  # by parameters, buffers and inputs
    for node in nodes:
        for value in _values(node):
            place = place_of(value).storage
            if place >= 0:
                sizes[place] = value.untyped_storage().nbytes()
            if node.op == "placeholder":
                held.add(builder.storage_of(value))
    found: dict[int, str] = {}
    for node in nodes:
        if node.op in ("placeholder", "output") or not _is_backward(node):
            continue
        for arg in node.all_input_nodes:
            if arg.op == "placeholder" or _is_backward(arg):
                continue
            for value in _values(arg):
                storage = builder.storage_of(value)
                if storage not in held:
                    found.setdefault(storage, builder.read(Ref(arg, value)))
    return {name: sizes[storage] for storage, name in found.items() if storage in sizes}


def _values(node: Node) -> Iterator[torch.Tensor]:
    value = node.meta.get("val")
    if node.op != "output" and isinstance(value, torch.Tensor):
        yield value
