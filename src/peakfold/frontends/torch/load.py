"""``package.module:callable`` as a model, and ``.pt2`` files that the user trusts."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from peakfold.boundary import foreign, route
from peakfold.errors import BackendMissing, ModelError, PeakfoldError, UsageError
from peakfold.ir import Graph
from peakfold.ir.bindings import Bindings

try:
    import torch
except ImportError:
    raise BackendMissing(
        "torch models need PyTorch", hint='pip install "peakfold[torch]"'
    ) from None

from peakfold.frontends.torch.export import read_program, with_notes
from peakfold.frontends.torch.fake import OnCpu, same_randomness
from peakfold.frontends.torch.module import Example, Route, capture, input_names
from peakfold.frontends.torch.unwatched.light_examples import Light


def load_callable(spec: str, bindings: Bindings) -> tuple[Graph, Bindings]:
    """The graph of what a callable returns.

    The callable returns ``(module, args)``, ``(module, args, kwargs)`` or an `Example`. It is
    called with `meta` as the default device but for small tensors, so that a model of any size
    costs no memory; only where that fails, or the example asks to be run, is it called once more
    for real.

    Args:
        spec: ``package.module:callable``; modules of the working directory are found.
        bindings: numbers for named dimensions, shapes for inputs.

    Raises:
        UsageError: no such module or callable, or a name the example does not have.
        ModelError: the callable or the capture failed.
    """
    with _importing():
        make = _found(spec)
        example, notes = _example(spec, make)
    shapes = {name: given.dims for name, given in bindings.shapes.items()}
    graph = capture(
        example.module,
        example.args,
        example.kwargs,
        dynamic=example.dynamic,
        dims=bindings.dims,
        shapes=shapes,
        route=example.route,
    )
    return with_notes(graph, notes), bindings


def load_example(spec: str, *, real: bool = False, on_device: bool = False) -> Example:
    """What a callable returns, as an `Example`.

    Args:
        spec: ``package.module:callable``.
        real: build the module with its values, to run it.
        on_device: then on the devices it asks for; otherwise on the CPU.

    Raises:
        UsageError: no such module or callable.
        ModelError: the callable failed.
    """
    with _importing():
        make = _found(spec)
        return _built(spec, make, on_device=on_device) if real else _example(spec, make)[0]


def load_function(spec: str) -> Callable[[Any], Any]:
    """A function of the user's, such as a loss.

    Args:
        spec: ``package.module:function``; modules of the working directory are found.

    Raises:
        UsageError: no such module or function.
        ModelError: importing it failed.
    """
    with _importing():
        return _found(spec, "write a function from the module's result to a scalar")


@contextmanager
def _importing() -> Iterator[None]:
    """The working directory is importable, as for ``python -m``."""
    here = os.getcwd()  # noqa: PTH109 - sys.path holds strings
    sys.path.insert(0, here)
    try:
        yield
    finally:
        if here in sys.path:
            sys.path.remove(here)


def _found(
    spec: str, hint: str = "write a function that builds the module and its example inputs"
) -> Callable[..., Any]:
    module_name, _, path = spec.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and module_name.startswith(error.name):
            plain = module_name.removesuffix(".py").replace("/", ".")
            hint = f"write {plain}:{path}" if module_name.endswith(".py") else ""
            raise UsageError(f"there is no module {error.name!r}", where=spec, hint=hint) from None
        raise ModelError(f"importing it failed: {error}", where=spec) from None
    except Exception as error:  # importing runs the user's own code
        raise ModelError(f"importing it failed: {_told(error)}", where=spec) from None
    for part in path.split("."):
        found = getattr(found, part, None)
        if found is None:
            raise UsageError(f"{module_name!r} has no {part!r}", where=spec)
    if not callable(found) or isinstance(found, torch.nn.Module):
        raise UsageError("it is not a function", where=spec, hint=hint)
    made: Callable[..., Any] = found
    return made


def _example(spec: str, make: Callable[[], Any]) -> tuple[Example, list[str]]:
    notes: list[str] = []
    if route() == "run":
        return _built(spec, make), notes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for light in (Light(), torch.device("meta")):
            try:
                with same_randomness(), light, OnCpu(home="meta"):
                    example = _read(spec, make())
                break
            except PeakfoldError:
                raise
            except Exception:  # some constructors mix what they make, or compute with values
                continue
        else:
            notes.append("the model was built with its memory: its constructor needs values")
            example = _built(spec, make)
    if example.route == "run" and not notes:
        example = _built(spec, make)
    return example, notes


def _built(spec: str, make: Callable[[], Any], *, on_device: bool = False) -> Example:
    """What the callable makes with its memory, on the CPU unless its own devices are asked for."""
    try:
        with same_randomness(), nullcontext() if on_device else OnCpu():
            return _read(spec, make())
    except PeakfoldError:
        raise
    except Exception as error:  # building it runs the user's own code
        none = "CUDA" in str(error) and not torch.cuda.is_available()
        hint = "it asks for a GPU, and none is here: --device cpu" if none else ""
        raise ModelError(f"the callable failed: {_told(error)}", where=spec, hint=hint) from None


def _read(spec: str, made: object) -> Example:
    """The example that a callable made, to be followed as ``--route`` says."""
    example, asked = _example_of(spec, made), route()
    return replace(example, route=cast("Route", asked)) if asked else example


def _example_of(spec: str, made: object) -> Example:
    if isinstance(made, Example):
        return made
    if isinstance(made, tuple) and made and isinstance(made[0], torch.nn.Module):
        if len(made) == 2 and isinstance(made[1], tuple | list):
            return Example(made[0], tuple(made[1]))
        if len(made) == 2 and isinstance(made[1], torch.Tensor):
            return Example(made[0], (made[1],))
        if len(made) == 3 and isinstance(made[1], tuple | list) and isinstance(made[2], dict):
            return Example(made[0], tuple(made[1]), made[2])
    what = type(made).__name__
    if isinstance(made, tuple):
        what = f"({', '.join(type(item).__name__ for item in made)})"
    raise UsageError(
        f"the callable returned {what}",
        where=spec,
        hint="it returns (module, args), (module, args, kwargs) or an Example; args is a tuple",
    )


def _told(error: Exception) -> str:
    if isinstance(error, SyntaxError) and error.filename:  # raised by the import, not by a line
        return f"SyntaxError: {error.msg} ({error.filename}:{error.lineno})"
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({frame.filename}:{frame.lineno})"


def load_trusted(path: Path, bindings: Bindings) -> tuple[Graph, Bindings]:
    """The graph of a ``.pt2`` file, read by PyTorch's own loader: it runs code of the file.

    Symbolic dimensions keep torch's names. Where numbers are given, the program is captured again
    with them. Values of a program that torch has read share no storage: its views of others are
    copies here.

    Raises:
        UsageError: a name the program does not have.
        ModelError: the file cannot be read.
    """
    with foreign("no exported program", str(path)):
        program = torch.export.load(path)
        return _graph_of(program, path.stem, bindings)


def _graph_of(
    program: torch.export.ExportedProgram, name: str, bindings: Bindings
) -> tuple[Graph, Bindings]:
    graph = read_program(program, name)
    if not bindings.dims and not bindings.shapes:
        return graph, bindings
    args, kwargs = program.example_inputs or ((), {})
    module = program.module()
    names = input_names(module, args, kwargs)
    symbols = {
        name: {at: dim for at, dim in enumerate(graph[tensor].shape or ()) if isinstance(dim, str)}
        for name, tensor in zip(names, graph.inputs, strict=False)
    }
    shapes = {name: given.dims for name, given in bindings.shapes.items()}
    graph = capture(module, args, kwargs, dynamic=symbols, dims=bindings.dims, shapes=shapes)
    return graph, bindings
