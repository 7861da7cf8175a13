"""Torch modules -> graphs, without their memory and without touching them.

    from peakfold.frontends.torch.module import capture
    graph = capture(model, (torch.randn(1, 3, 224, 224),))

Three routes, chosen by name and said in the graph's notes:

- ``export`` (default): `torch.export` of a copy whose tensors are fake. Takes models of any size.
- ``trace``: the copy is run on fake tensors and every operator is recorded. For models that
  export refuses; Python control flow is that of this run.
- ``run``: a real copy is run on the real inputs. For control flow that depends on data (expert
  routing), TorchScript, and layers that keep packed weights.
"""

from __future__ import annotations

import inspect
import io
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stderr, suppress
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map

from peakfold.errors import ModelError, PeakfoldError, UsageError
from peakfold.frontends.torch.build import GraphBuilder
from peakfold.frontends.torch.export import mapped, read_program, with_notes
from peakfold.frontends.torch.failure import (
    failure,
    transformed,
    wants_gradients,
    with_gradients_if_wanted,
)
from peakfold.frontends.torch.fake import (
    fake_mode,
    fake_module,
    fake_tree,
    opened_for,
    real_copy,
    real_tree,
    tensors_only,
    undisturbed,
)
from peakfold.frontends.torch.objects import changed, is_leaf, named_tensors, tensors_of
from peakfold.frontends.torch.prepacked import packed_layer
from peakfold.frontends.torch.scope import ScopeTracker
from peakfold.frontends.torch.trace import Recorder, record
from peakfold.frontends.torch.unwatched.askers import answered_as_plain
from peakfold.frontends.torch.unwatched.following import FollowingMode
from peakfold.frontends.torch.unwatched.light_examples import stretched
from peakfold.ir import Graph

Route = Literal["export", "trace", "run"]


@dataclass(frozen=True, slots=True)
class Example:
    """A module with the inputs it is captured with: what a ``package.module:callable`` returns.

    Attributes:
        module: the torch module.
        args, kwargs: example inputs; what small ones hold may decide sizes and branches (on the
            route ``export`` only shapes and types matter).
        dynamic: names of dimensions that ``--dim`` may set: input name -> axis -> name.
        route: how to capture, see the module's docstring.
        loss: for training, from the module's result to a scalar; not needed by a module that
            returns its loss.
        optimizer: for training, from parameters to an optimizer.

    Example:
        >>> from torch.nn import Linear
        >>> example = Example(Linear(4, 3), (torch.zeros(2, 4),), dynamic={"input": {0: "batch"}})
        >>> example.resized({"batch": 5})[0][0].shape
        torch.Size([5, 4])
    """

    module: torch.nn.Module
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    dynamic: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    route: Route = "export"
    loss: Callable[[Any], torch.Tensor] | None = None
    optimizer: Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer] | None = None

    def resized(
        self, dims: Mapping[str, int], shapes: Mapping[str, Sequence[int]] | None = None
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with numbers for named dimensions; small ones go on as they are.

        Args:
            dims: by the names in `dynamic`.
            shapes: of inputs, by input name.

        Raises:
            UsageError: a name the example does not have.
        """
        args, kwargs = tuple(self.args), dict(self.kwargs)
        names = input_names(self.module, args, kwargs)
        sizes = _sizes(args, kwargs, names, self.dynamic, dims, shapes or {})
        return _resized(args, kwargs, names, sizes)


def capture(
    module: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic: Mapping[str, Mapping[int, str]] | None = None,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    route: Route = "export",
) -> Graph:
    """The graph of one forward pass.

    The module is left exactly as it was: a copy of its structure is captured.

    Args:
        module: any module, in the mode (train or eval) it is in; meta and fake ones, too.
        args: positional example inputs.
        kwargs: keyword example inputs.
        dynamic: names for dimensions: input name -> axis -> name.
        dims: numbers for those names; the example inputs are resized before the capture, so
            that control flow on shapes is right. A name without a number keeps the example's.
        shapes: shapes of inputs, likewise, by input name.
        route: ``export``, ``trace`` or ``run``.

    Returns:
        A checked graph: ops in program order, `scope` the path of the module.

    Raises:
        UsageError: an unknown route, input or dimension name.
        ModelError: the capture failed; names the module and the line.

    Example:
        >>> graph = capture(torch.nn.Linear(4, 3), (torch.zeros(2, 4),))
        >>> [op.kind for op in graph.ops], graph["weight"].shape, graph.inputs
        (['linear'], (3, 4), ('input',))
    """
    if route not in get_args(Route):
        raise UsageError(f"unknown route {route!r}", hint=f"known: {', '.join(get_args(Route))}")
    if not isinstance(module, torch.nn.Module):
        raise UsageError(f"{type(module).__name__!r} is no torch module")
    args, kwargs = tuple(args), dict(kwargs or {})
    names = input_names(module, args, kwargs)
    with _disable_current_modes():  # a fake mode of the caller's
        if dims or shapes or dynamic:
            sizes = _sizes(args, kwargs, names, dynamic or {}, dims or {}, shapes or {})
            args, kwargs = _resized(args, kwargs, names, sizes)

        def captured(gradients: bool) -> Graph:
            if route == "export":
                return _exported(module, args, kwargs, names, gradients=gradients)
            real = route == "run"
            return _traced(module, args, kwargs, names, real=real, gradients=gradients)

        graph, said = with_gradients_if_wanted(captured)
    return with_notes(graph, (*said, *_notes(module, route)))


def _notes(module: torch.nn.Module, route: Route) -> list[str]:
    notes = []
    if any(child.training for child in module.modules()) and _differs(module):
        notes.append("the module is in training mode: dropout and batch statistics are active")
    if route == "trace":
        notes.append("captured by running it on fake tensors: control flow is that of this run")
    if route == "run":
        notes.append("captured by running it on the example inputs: what depends on data is theirs")
    return notes


_MODAL = (torch.nn.modules.dropout._DropoutNd, torch.nn.modules.batchnorm._NormBase)


def _differs(module: torch.nn.Module) -> bool:
    return any(child.training and isinstance(child, _MODAL) for child in module.modules())


def input_names(
    module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[str, ...]:
    """Names of the tensors among the arguments: the parameter of `forward`, then the path."""
    formals, rest = _formals(module)
    names: dict[str, None] = {}
    for (_, first, *keys), _ in named_tensors((tuple(args), dict(kwargs))):
        names[".".join(map(str, (_called(first, formals, rest), *keys)))] = None
    return tuple(names)


def _formals(module: torch.nn.Module) -> tuple[list[str], str]:
    """Names of the positional parameters of `forward`, and of the one that takes the rest."""
    try:
        given = inspect.signature(module.forward).parameters.values()
    except (TypeError, ValueError):
        return [], "arg"
    rest = next((p.name for p in given if p.kind is p.VAR_POSITIONAL), "arg")
    names = [p.name for p in given if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return names, rest


def _called(key: int | str, formals: Sequence[str], rest: str) -> str:
    if isinstance(key, str):
        return key
    return formals[key] if key < len(formals) else f"{rest}_{key - len(formals)}"


def _sizes(
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    names: Sequence[str],
    dynamic: Mapping[str, Mapping[int, str]],
    dims: Mapping[str, int],
    shapes: Mapping[str, Sequence[int]],
) -> dict[str, tuple[int, ...]]:
    """The shape of every input with the user's numbers put in."""
    for name in sorted((set(dynamic) | set(shapes)) - set(names)):
        raise UsageError(f"no input is called {name!r}", hint=f"inputs: {', '.join(names)}")
    known = {label for axes in dynamic.values() for label in axes.values()}
    for label in sorted(set(dims) - known):
        listed = ", ".join(sorted(known)) or "none"
        raise UsageError(f"no dimension is called {label!r}", hint=f"named ones: {listed}")
    found: dict[str, tuple[int, ...]] = {}
    for name, leaf in zip(names, tensors_of((args, kwargs)), strict=True):
        axes = dynamic.get(name, {})
        for axis in axes:
            if not 0 <= axis < leaf.dim():
                raise UsageError(
                    f"input {name!r} has no axis {axis}, which the example calls {axes[axis]!r}",
                    hint=f"its shape is {tuple(leaf.shape)}; axes count from 0",
                )
        sizes = tuple(dims.get(axes.get(at, ""), int(n)) for at, n in enumerate(leaf.shape))
        given = tuple(shapes.get(name, sizes))
        if len(given) != len(sizes):
            raise UsageError(
                f"--shape {name} has {len(given)} dimensions, the example {len(sizes)}"
            )
        found[name] = given
    return found


def _resized(
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    names: Sequence[str],
    sizes: Mapping[str, tuple[int, ...]],
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with these shapes; small ones go on as the example's do."""
    order = iter(names)

    def resize(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return changed(leaf, resize)
        shape = sizes[next(order)]
        if shape == tuple(leaf.shape):
            return leaf
        return stretched(leaf, shape)

    done: tuple[tuple[Any, ...], dict[str, Any]] = tree_map(resize, (args, kwargs), is_leaf=is_leaf)
    return done


def _exported(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    names: Sequence[str],
    *,
    gradients: bool,
) -> Graph:
    mode = fake_mode()
    copied = tensors_only(fake_module(module, mode))
    given = args, kwargs
    args, kwargs = opened_for(copied, fake_tree(given, mode))
    with undisturbed(gradients=gradients), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        said = io.StringIO()  # a failing export prints its program: the error says enough
        try:
            with redirect_stderr(said):
                program = torch.export.export(copied, args, kwargs, strict=False)
        except PeakfoldError:
            raise
        except Exception as error:  # exporting runs the user's own code
            if transformed(error):
                with suppress(ModelError):
                    return _run_instead(module, *given, names, gradients=gradients)
            raise _failed(copied, error, "export") from None
        sys.stderr.write(said.getvalue())
        if mapped(program):
            with suppress(ModelError):
                return _run_instead(module, *given, names, gradients=gradients)
        return read_program(program, type(module).__name__)


def _run_instead(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    names: Sequence[str],
    *,
    gradients: bool,
) -> Graph:
    graph = _traced(module, args, kwargs, names, real=False, gradients=gradients)
    return with_notes(graph, ["an export does not show what torch.func runs: captured by trace"])


def _traced(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    names: Sequence[str],
    *,
    real: bool,
    gradients: bool,
) -> Graph:
    mode = None if real else FollowingMode(numbers=False)
    copied = real_copy(module) if mode is None else fake_module(module, mode)
    given = args, kwargs
    args, kwargs = real_tree(given) if mode is None else fake_tree(given, mode)
    builder = GraphBuilder()
    tracker = ScopeTracker(copied)
    recorder = Recorder(builder, lambda: tracker.scope)
    with undisturbed(on_cpu=not real, gradients=gradients), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with tracker:
                if mode is None:
                    outputs = record(builder, recorder, copied, args, kwargs, names)
                else:
                    with answered_as_plain(), mode:
                        outputs = record(builder, recorder, copied, args, kwargs, names)
        except PeakfoldError:
            raise
        except Exception as error:  # the forward pass is the user's own code
            raise _failed(copied, error, "run" if real else "trace") from None
    graph = builder.finish(type(module).__name__, outputs, "torch")
    return graph if mode is None else with_notes(graph, mode.notes())


def _failed(module: torch.nn.Module, error: Exception, route: Route) -> ModelError:
    hints = {
        "export": 'return an Example with route="trace", or route="run" where data decides',
        "trace": 'return an Example with route="run", with real inputs',
        "run": "the module fails on its own example inputs",
    }
    refused = None if route == "run" else packed_layer(module)
    if refused is not None:
        return refused
    if wants_gradients(error):
        hint = "a capture runs with gradients off; wrap what differentiates in enable_grad()"
        return failure(module, error, f"the {route} capture", hint)
    return failure(module, error, f"the {route} capture", hints[route])


__all__ = ["Example", "Route", "capture", "input_names"]
