"""One steady training step as a graph, recorded while it runs on tensors without memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from peakfold.errors import PeakfoldError
from peakfold.frontends.aten.values import Ref
from peakfold.frontends.torch.build import GraphBuilder
from peakfold.frontends.torch.failure import failed_step
from peakfold.frontends.torch.fake import fake_module, fake_tree, undisturbed
from peakfold.frontends.torch.objects import tensors_of
from peakfold.frontends.torch.scope import ScopeTracker
from peakfold.frontends.torch.trace import Recorder, declare_module
from peakfold.frontends.torch.training.device_kernels import device_kernels
from peakfold.frontends.torch.training.loss_targets import targeted, with_target
from peakfold.frontends.torch.training.optimizer_state import make_state
from peakfold.frontends.torch.training.options import StepOptions
from peakfold.frontends.torch.training.phases import detached, one_step
from peakfold.frontends.torch.unwatched.askers import answered_as_plain
from peakfold.frontends.torch.unwatched.following import FollowingMode
from peakfold.ir import Graph, Role


@dataclass(frozen=True, slots=True)
class StepGraph:
    """One steady training step as a graph.

    Attributes:
        graph: forward, backward and optimizer ops in the order they ran; parameters, states and
            optimizer states are static and written in place, gradients of parameters have the
            role `gradient`.
        phases: phase and the op with which it begins.
    """

    graph: Graph
    phases: tuple[tuple[str, int], ...]


class _Marker:
    """Takes the place of a storage tracker: what is marked becomes a role in the graph."""

    def __init__(self, builder: GraphBuilder, recorder: Recorder) -> None:
        self._builder = builder
        self._recorder = recorder
        self.phases: list[tuple[str, int]] = []
        self.gradients: set[str] = set()
        self.results: list[torch.Tensor] = []

    def begin(self, phase: str) -> None:
        self.phases.append((phase, self._builder.calls))

    def mark(self, tensors: Iterable[torch.Tensor], role: str) -> None:
        for tensor in tensors if role == "gradient" else ():
            for ref in self._recorder.refs(tensor):
                name = self._builder.name_of(ref.key)
                if name is not None:
                    self.gradients.add(name)

    def returned(self, tensors: Iterable[torch.Tensor]) -> None:
        """What is an output of the graph where results are kept."""
        self.results = list(tensors)

    def mark_saved(self) -> None:
        """Lifetimes follow from the graph."""


def step_graph(
    module: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    options: StepOptions | None = None,
    names: Sequence[str] = (),
) -> StepGraph:
    """The graph of a steady training step, recorded while it runs on fake tensors.

    Args:
        module: any module; it is left as it is.
        args: positional example inputs.
        kwargs: keyword ones.
        options: of the step.
        names: what the tensors among the inputs are called.

    Raises:
        UsageError: nothing to train, or an unknown option.
        ModelError: the step failed; names the module and the line.

    Example:
        >>> options = StepOptions(optimizer="sgd", loss="sum")
        >>> step = step_graph(torch.nn.Linear(4, 3), (torch.zeros(2, 4),), options=options)
        >>> [t.role.value for t in step.graph.tensors if t.name == "weight"], step.graph.outputs
        (['parameter'], ())
    """
    options = targeted(module, args, kwargs, options or StepOptions())
    mode = FollowingMode()
    copied = fake_module(module, mode)
    given = (tuple(args), dict(kwargs or {}))
    inputs, first = fake_tree(given, mode), fake_tree(given, mode)
    kernels = device_kernels(options, fake=True)
    with (
        undisturbed(functions=kernels),
        answered_as_plain(),
        mode,
        warnings.catch_warnings(),
        torch.enable_grad(),
    ):
        warnings.simplefilter("ignore")
        inputs, first = detached(inputs), detached(first)
        optimizer = options.make(copied.parameters())
        scopes = ScopeTracker(copied)
        builder = GraphBuilder(_TRAINED)
        recorder = _StepRecorder(builder, lambda: scopes.scope)
        marker = _Marker(builder, recorder)
        try:
            options, targets = with_target(options, copied)
            make_state(copied, first, options, optimizer, mode)
            _declare(builder, copied, inputs, optimizer, names)
            for target in targets:
                builder.declare(Ref(id(target), target), "target", Role.INPUT)
            with scopes, recorder:
                one_step(copied, inputs, options, optimizer, marker)
        except PeakfoldError:
            raise
        except Exception as error:  # the step runs the user's own code
            raise failed_step(copied, error) from None
        results = [Ref(id(t), t) for t in marker.results if options.keep_result]
        graph = builder.finish(type(module).__name__, results, "torch")
    return StepGraph(_with_gradients(graph, marker.gradients), tuple(marker.phases))


class _StepRecorder(Recorder):
    """A recorder whose own references do not make torch copy gradients.

    A gradient that nobody else holds becomes the parameter's as it is. The recorder holds every
    tensor, so torch copies it; that copy is the recorder's doing and is left out of the graph.
    """

    def __init__(self, builder: GraphBuilder, scope: Callable[[], str]) -> None:
        super().__init__(builder, scope)
        self._stolen: dict[int, torch.Tensor] = {}

    def called(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run one operator and add it, a copy that only recording makes left out."""
        node = torch._C._current_autograd_node()
        if node is not None and type(node).__name__ == "AccumulateGrad":
            name = func._schema.name
            if name == "aten::new_empty_strided":
                out = func(*args, **kwargs)
                if args[0].shape == out.shape and args[0].stride() == out.stride():
                    self._stolen[id(out)] = out
                    return out
            if name == "aten::copy_" and self._stolen.pop(id(args[0]), None) is not None:
                self._builder.join(args[0], args[1])
                source = Ref(self.keys.get(id(args[1]), id(args[1])), args[1])
                self._builder.alias(id(args[0]), source)
                return func(*args, **kwargs)
        return super().called(func, args, kwargs)


_TRAINED = frozenset({Role.STATE, Role.PARAMETER, Role.OPTIMIZER_STATE})


def _declare(
    builder: GraphBuilder,
    module: torch.nn.Module,
    inputs: Any,
    optimizer: torch.optim.Optimizer,
    names: Sequence[str],
) -> None:
    declare_module(builder, module)
    called = {id(p): name for name, p in module.named_parameters()}
    for parameter, entry in optimizer.state.items():
        for key, value in entry.items():
            if isinstance(value, torch.Tensor):
                name = f"{called.get(id(parameter), 'parameter')}.{key}"
                builder.declare(Ref(id(value), value), name, Role.OPTIMIZER_STATE)
    for at, value in enumerate(tensors_of(inputs)):
        name = names[at] if at < len(names) else f"input{at}"
        builder.declare(Ref(id(value), value), name, Role.INPUT)


def _with_gradients(graph: Graph, gradients: set[str]) -> Graph:
    """The graph with gradients named, without the state of parameters that got none."""
    used = {name for op in graph.ops for name in (*op.operands, *op.reads, *op.writes)}
    tensors = tuple(
        replace(t, role=Role.GRADIENT) if t.name in gradients and t.role is Role.ACTIVATION else t
        for t in graph.tensors
        if t.role is not Role.OPTIMIZER_STATE or t.name in used
    )
    return replace(graph, tensors=tensors)
