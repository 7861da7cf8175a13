"""A whole training step, run on tensors without memory: what a plain eager run would hold.

Forward pass, loss, backward pass and optimizer are the user's own code and torch's own autograd;
only the tensors are fake. References die exactly as in a real run, so the history of storages is
a real run's, for a model of any size. Two steps are run: the first makes the optimizer's state.
"""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol
from unittest.mock import patch

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from peakfold.errors import ModelError, PeakfoldError, UsageError
from peakfold.frontends.torch_build import GraphBuilder
from peakfold.frontends.torch_fake import fake_mode, fake_module, fake_tree, real_copy, undisturbed
from peakfold.frontends.torch_rnn import lstm, takes_onednn
from peakfold.frontends.torch_scope import ScopeTracker, failed_module
from peakfold.frontends.torch_storages import StorageTracker, Workspace
from peakfold.frontends.torch_trace import Recorder, declare_module
from peakfold.frontends.torch_values import Ref
from peakfold.ir import Graph, Role
from peakfold.ir.run import Run, Steps
from peakfold.target import Eager, load_eager

Loss = Callable[[Any], torch.Tensor]
MakeOptimizer = Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer]

OPTIMIZERS: Mapping[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda p, **kw: torch.optim.SGD(p, lr=0.1, **kw),
    "momentum": lambda p, **kw: torch.optim.SGD(p, lr=0.1, momentum=0.9, **kw),
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
    "adagrad": torch.optim.Adagrad,
}
FORMS: Mapping[str, Mapping[str, bool]] = {
    "default": {}, "for-loop": {"foreach": False}, "foreach": {"foreach": True},
    "fused": {"fused": True},
}  # fmt: skip
DEVICES = ("cpu", "cuda")
ATTENTION = ("as-is", "fused", "math")


class Watcher(Protocol):
    """Who is told what a step is doing."""

    def begin(self, phase: str) -> None:
        """A phase begins."""

    def mark(self, tensors: Iterable[torch.Tensor], role: str) -> None:
        """These living tensors have a role."""

    def mark_saved(self) -> None:
        """What the forward pass made and still holds is saved for the backward pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions:
    """How a step is run.

    Attributes:
        optimizer: a name, or a function from parameters to an optimizer.
        form: ``default``, ``for-loop``, ``foreach`` or ``fused``: how it walks the parameters.
        loss: from the module's result to a scalar; by default its ``loss`` if it has one, else
            the sum of its first tensor of floats.
        accumulate: forward and backward passes before one update.
        autocast: element type of an autocast region around the forward pass.
        device: whose eager kernels decide what is saved, ``cpu`` or ``cuda``; the facts are
            those of the targets ``torch-cpu`` and ``torch-cuda``.
        attention: ``fused`` (nothing of the size of the scores exists), ``math`` (all of it
            does), or ``as-is`` (what torch chooses for the CPU).
        set_to_none: gradients are dropped after the update, as is torch's default.
    """

    optimizer: str | MakeOptimizer = "sgd"
    form: str = "default"
    loss: Loss | None = None
    accumulate: int = 1
    autocast: torch.dtype | None = None
    device: str = "cpu"
    attention: str = "as-is"
    set_to_none: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.optimizer, str):
            _known(self.optimizer, OPTIMIZERS, "optimizer")
        _known(self.form, FORMS, "optimizer form")
        _known(self.device, DEVICES, "device profile")
        _known(self.attention, ATTENTION, "attention kernel")
        if self.accumulate < 1:
            raise UsageError(f"cannot accumulate {self.accumulate} batches")

    @property
    def rules(self) -> Eager:
        """What the device's kernels keep."""
        return load_eager(self.device)

    def make(self, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
        """The optimizer of these parameters, in the form it has on the device."""
        made = self._made(parameters)
        if self.rules.optimizer_form == "foreach":
            for group in made.param_groups:
                open_form = group.get("foreach", False) is None and not group.get("fused")
                if open_form and not group.get("differentiable"):
                    group["foreach"] = True
        return made

    def _made(self, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
        trained = [p for p in parameters if p.requires_grad]
        if not trained:
            raise UsageError("nothing to train: no parameter requires a gradient")
        if callable(self.optimizer):
            return self.optimizer(trained)
        return OPTIMIZERS[self.optimizer](trained, **FORMS[self.form])

    def notes(self) -> tuple[str, ...]:
        """What was assumed, a line each."""
        name = self.optimizer if isinstance(self.optimizer, str) else "the example's"
        form = f"{self.form} form"
        if self.form == "default":
            form += f" ({self.rules.optimizer_form} where it has one)"
        said = [f"optimizer {name}, {form}; eager kernels of {self.device}"]
        if self.attention != "as-is":
            said.append(f"attention kernel: {self.attention}")
        if self.accumulate > 1:
            said.append(f"{self.accumulate} batches accumulated before an update")
        if self.autocast is not None:
            said.append(f"autocast to {str(self.autocast).removeprefix('torch.')}")
        return tuple(said)


def _known(value: str, known: Iterable[str], what: str) -> None:
    if value not in known:
        raise UsageError(f"no {what} {value!r}", hint=f"known: {', '.join(known)}")


def fake_steps(
    module: torch.nn.Module, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None,
    options: StepOptions | None = None, workspace: Workspace | None = None,
) -> Steps:  # fmt: skip
    """Two training steps of a copy of the module on fake tensors.

    Args:
        module: any module; meta and fake ones, too. It is left as it is.
        args: positional example inputs; only shapes and types matter.
        kwargs: keyword ones.
        options: of the step.
        workspace: scratch of a call, where it is known.

    Raises:
        UsageError: nothing to train, or an unknown option.
        ModelError: the step failed; names the module and the line.

    Example:
        >>> steps = fake_steps(torch.nn.Linear(4, 3), (torch.zeros(2, 4),))
        >>> steps.steady.static_bytes, steps.steady.at_peak()["gradient"]
        (92, 60)
    """
    options = options or StepOptions()
    mode = fake_mode()
    copied = fake_module(module, mode)
    inputs = fake_tree((tuple(args), dict(kwargs or {})), mode)
    with undisturbed(), mode:
        return _steps(copied, inputs, options, workspace, "trace")


def real_steps(
    module: torch.nn.Module, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None,
    options: StepOptions | None = None,
) -> Steps:  # fmt: skip
    """The same on a real copy and the real inputs: the truth that `fake_steps` predicts."""
    copied = real_copy(module)
    with undisturbed(on_cpu=False):
        return _steps(copied, (tuple(args), dict(kwargs or {})), options or StepOptions(), None,
                      "run")  # fmt: skip


def _steps(
    module: torch.nn.Module, inputs: tuple[Any, Any], options: StepOptions,
    workspace: Workspace | None, route: str,
) -> Steps:  # fmt: skip
    scopes = ScopeTracker(module)
    inputs = tree_map(_leaf, inputs)
    with warnings.catch_warnings(), torch.enable_grad():
        warnings.simplefilter("ignore")
        optimizer = options.make(module.parameters())
        runs = []
        notes = dict.fromkeys(options.notes())
        for _ in range(2):
            tracker = StorageTracker(lambda: scopes.scope, workspace)
            _existing(tracker, module, inputs, optimizer)
            try:
                with scopes, _kernels(options, fake=route == "trace"), tracker:
                    one_step(module, inputs, options, optimizer, tracker)
            except PeakfoldError:
                raise
            except Exception as error:
                raise _failure(module, error, route) from None
            runs.append(tracker.run())
            notes |= tracker.notes
    first, steady = runs
    return Steps(first, steady, tuple(notes))


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

    def begin(self, phase: str) -> None:
        self.phases.append((phase, self._builder.calls))

    def mark(self, tensors: Iterable[torch.Tensor], role: str) -> None:
        for tensor in tensors if role == "gradient" else ():
            for ref in self._recorder.refs(tensor):
                name = self._builder.name_of(ref.key)
                if name is not None:
                    self.gradients.add(name)

    def mark_saved(self) -> None:
        """Lifetimes follow from the graph."""


def step_graph(
    module: torch.nn.Module, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None,
    options: StepOptions | None = None, names: Sequence[str] = (),
) -> StepGraph:  # fmt: skip
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
        >>> step = step_graph(torch.nn.Linear(4, 3), (torch.zeros(2, 4),))
        >>> [t.role.value for t in step.graph.tensors if t.name == "weight"], step.graph.outputs
        (['parameter'], ())
    """
    options = options or StepOptions()
    mode = fake_mode()
    copied = fake_module(module, mode)
    inputs = fake_tree((tuple(args), dict(kwargs or {})), mode)
    with undisturbed(), mode, warnings.catch_warnings(), torch.enable_grad():
        warnings.simplefilter("ignore")
        inputs = tree_map(_leaf, inputs)
        optimizer = options.make(copied.parameters())
        scopes = ScopeTracker(copied)
        builder = GraphBuilder(_TRAINED)
        recorder = _StepRecorder(builder, lambda: scopes.scope)
        marker = _Marker(builder, recorder)
        try:
            _make_state(copied, inputs, options, optimizer)
            _declare(builder, copied, inputs, optimizer, names)
            with scopes, _kernels(options, fake=True), recorder:
                one_step(copied, inputs, options, optimizer, marker)
        except PeakfoldError:
            raise
        except Exception as error:
            raise _failure(copied, error, "trace") from None
        graph = builder.finish(type(module).__name__, (), "torch")
    return StepGraph(_with_gradients(graph, marker.gradients), tuple(marker.phases))


class _StepRecorder(Recorder):  # type: ignore[no-untyped-call]
    """A recorder whose own references do not make torch copy gradients.

    A gradient that nobody else holds becomes the parameter's as it is. The recorder holds every
    tensor, so torch copies it; that copy is the recorder's doing and is left out of the graph.
    """

    def __init__(self, builder: GraphBuilder, scope: Callable[[], str]) -> None:
        super().__init__(builder, scope)
        self._stolen: dict[int, torch.Tensor] = {}

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Any = (),
        kwargs: Any = None,
    ) -> Any:
        node = torch._C._current_autograd_node()
        if node is not None and type(node).__name__ == "AccumulateGrad":
            name = func._schema.name
            if name == "aten::new_empty_strided":
                out = func(*args, **(kwargs or {}))
                if args[0].shape == out.shape and args[0].stride() == out.stride():
                    self._stolen[id(out)] = out
                    return out
            if name == "aten::copy_" and self._stolen.pop(id(args[0]), None) is not None:
                self._builder.join(args[0], args[1])
                source = Ref(self.keys.get(id(args[1]), id(args[1])), args[1])
                self._builder.alias(id(args[0]), source)
                return func(*args, **(kwargs or {}))
        return super().__torch_dispatch__(func, types, args, kwargs)


def _make_state(
    module: torch.nn.Module, inputs: tuple[Any, Any], options: StepOptions,
    optimizer: torch.optim.Optimizer,
) -> None:  # fmt: skip
    """The optimizer's state, which its first update makes.

    Any dense gradient does on fake tensors; an optimizer that refuses it gets those of a step.
    """
    for parameter in module.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.empty_like(parameter)
    try:
        optimizer.step()
    except RuntimeError:
        optimizer.zero_grad(set_to_none=True)
        with StorageTracker() as nobody:
            one_step(module, inputs, options, optimizer, nobody)
    optimizer.zero_grad(set_to_none=True)


_TRAINED = frozenset({Role.STATE, Role.PARAMETER, Role.OPTIMIZER_STATE})


def _declare(
    builder: GraphBuilder, module: torch.nn.Module, inputs: Any,
    optimizer: torch.optim.Optimizer, names: Sequence[str],
) -> None:  # fmt: skip
    declare_module(builder, module)
    called = {id(p): name for name, p in module.named_parameters()}
    for parameter, entry in optimizer.state.items():
        for key, value in entry.items():
            if isinstance(value, torch.Tensor):
                name = f"{called.get(id(parameter), 'parameter')}.{key}"
                builder.declare(Ref(id(value), value), name, Role.OPTIMIZER_STATE)
    for at, value in enumerate(_tensors(inputs)):
        name = names[at] if at < len(names) else f"input{at}"
        builder.declare(Ref(id(value), value), name, Role.INPUT)


def _with_gradients(graph: Graph, gradients: set[str]) -> Graph:
    tensors = tuple(
        replace(t, role=Role.GRADIENT) if t.name in gradients and t.role is Role.ACTIVATION else t
        for t in graph.tensors
    )
    return replace(graph, tensors=tensors)


def _leaf(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value


def _existing(
    tracker: StorageTracker, module: torch.nn.Module, inputs: Any,
    optimizer: torch.optim.Optimizer,
) -> None:  # fmt: skip
    tracker.existing(module.parameters(), "parameter")
    tracker.existing(module.buffers(), "state")
    tracker.existing(_tensors(inputs), "input")
    tracker.existing(_state(optimizer), "optimizer_state")
    tracker.existing((p.grad for p in module.parameters() if p.grad is not None), "gradient")


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _state(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return _tensors([list(entry.values()) for entry in optimizer.state.values()])


def one_step(
    module: torch.nn.Module, inputs: tuple[Any, Any], options: StepOptions,
    optimizer: torch.optim.Optimizer, tracker: Watcher,
) -> None:  # fmt: skip
    """One step, phases told to the tracker.

    Args:
        module: runs as it is.
        inputs: positional and keyword arguments.
        options: loss, accumulation, autocast.
        optimizer: of its parameters.
        tracker: already active.
    """
    args, kwargs = inputs
    for _ in range(options.accumulate):
        tracker.begin("forward")
        loss = _forward(module, args, kwargs, options)
        tracker.mark([loss], "output")
        tracker.mark_saved()
        tracker.begin("backward")
        loss.backward()  # type: ignore[no-untyped-call]
        tracker.mark((p.grad for p in module.parameters() if p.grad is not None), "gradient")
        del loss
    tracker.begin("optimizer")
    optimizer.step()
    tracker.mark(_state(optimizer), "optimizer_state")
    tracker.begin("after")
    optimizer.zero_grad(set_to_none=options.set_to_none)


def _forward(module: torch.nn.Module, args: Any, kwargs: Any, options: StepOptions) -> torch.Tensor:
    region: AbstractContextManager[Any] = nullcontext()
    if options.autocast is not None:
        region = torch.autocast("cpu", dtype=options.autocast)
    with region:
        return _loss(module(*args, **kwargs), options)


def _loss(out: Any, options: StepOptions) -> torch.Tensor:
    if options.loss is not None:
        return options.loss(out)
    given = out.get("loss") if isinstance(out, Mapping) else getattr(out, "loss", None)
    if isinstance(given, torch.Tensor):
        return given
    real = [t for t in _tensors(out) if t.is_floating_point() and t.requires_grad]
    if not real:
        raise UsageError(
            "its result has no tensor that depends on a trainable parameter",
            hint="give the Example a loss: from the module's result to a scalar",
        )
    return real[0].sum()


# torch leaves a mode while the body of a function written in Python runs. These bodies reach
# dropout and attention again (a checkpointed layer runs inside backward), so their own check for
# overrides, found under this name, is skipped and the mode stays.
_BODIES = {
    torch.Tensor.backward: (torch._tensor, "has_torch_function_unary"),
    torch.autograd.backward: (torch.autograd, "has_torch_function"),
    torch.nn.functional.multi_head_attention_forward: (torch.nn.functional, "has_torch_function"),
}


def _no_overrides(*_: Any) -> bool:
    return False


class _DeviceKernels(TorchFunctionMode):
    """Calls whose eager kernel saves something else on another device, as there."""

    def __init__(self, options: StepOptions, *, fake: bool) -> None:
        super().__init__()
        self._options = options
        self._masks_of_bool = options.rules.dropout_mask == "bool"
        self._onednn = fake and options.rules.lstm == "onednn"

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: Any = (),
        kwargs: Any = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func in _BODIES:
            with self, patch.object(*_BODIES[func], _no_overrides):
                return func(*args, **kwargs)
        if self._masks_of_bool and func in _DROPOUTS:
            return _byte_dropout(*args, **kwargs)
        if self._onednn and func is torch.lstm and takes_onednn(args):
            return lstm(*args)
        if func is torch.nn.functional.scaled_dot_product_attention:
            return _attention(func, args, kwargs, self._options)
        return func(*args, **kwargs)


_DROPOUTS = (torch.nn.functional.dropout, torch.dropout)


def _byte_dropout(
    input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False,
    train: bool = True,
) -> torch.Tensor:  # fmt: skip
    del inplace  # the fused kernel makes a result either way
    if not (training and train) or p == 0.0:
        return input
    return torch.native_dropout(input, p, True)[0]


def _attention(func: Any, args: Any, kwargs: Any, options: StepOptions) -> Any:
    if options.attention == "fused":
        # A fused kernel applies dropout inside: it saves a seed, no mask.
        return func(*args[:4], **_without_dropout(args, kwargs))
    if options.attention == "math":
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            return func(*args, **kwargs)
    return func(*args, **kwargs)


def _without_dropout(args: Any, kwargs: Any) -> dict[str, Any]:
    rest = dict(zip(("dropout_p", "is_causal", "scale", "enable_gqa"), args[4:], strict=False))
    return {**rest, **kwargs, "dropout_p": 0.0}


def _kernels(options: StepOptions, *, fake: bool) -> AbstractContextManager[Any]:
    plain = options.device == "cpu" and options.attention == "as-is"
    return nullcontext() if plain and not fake else _DeviceKernels(options, fake=fake)


def _failure(module: torch.nn.Module, error: Exception, route: str) -> ModelError:
    frames = traceback.extract_tb(error.__traceback__)
    homes = (str(Path(torch.__file__).parent), str(Path(__file__).parent), "<")
    own = [f for f in frames if not f.filename.startswith(homes)]
    line = f"{own[-1].filename}:{own[-1].lineno}" if own else ""
    said = next((text for text in str(error).splitlines() if text.strip()), type(error).__name__)
    what = "a training step on tensors without values failed" if route == "trace" else (
        "a training step failed")  # fmt: skip
    return ModelError(
        f"{what}: {type(error).__name__}: {said.strip()[:300]}",
        where=", ".join(
            filter(
                None, (f"module {failed_module(module, error) or type(module).__name__!r}", line)
            )
        ),
        hint="control flow that depends on values cannot be followed" if route == "trace" else "",
    )


@dataclass(frozen=True, slots=True)
class Difference:
    """A prediction beside the truth, bytes above what was there before the step."""

    predicted: int
    measured: int
    phases: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def error(self) -> float:
        """Of the peak, as a fraction of the truth."""
        return self.predicted / self.measured - 1 if self.measured else 0.0


def compare(predicted: Run, measured: Run) -> Difference:
    """The peaks of two runs of one step, whole and by phase, static memory included."""
    one, two = predicted.phase_peaks(), measured.phase_peaks()
    both = dict.fromkeys((*one, *two))
    phases = {phase: (one.get(phase, 0), two.get(phase, 0)) for phase in both}
    return Difference(predicted.peak, measured.peak, phases)
