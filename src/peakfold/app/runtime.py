"""What the runtime of a target does with a model's file: its own arena, and what it keeps."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from peakfold.boundary import file_size
from peakfold.errors import PeakfoldError
from peakfold.frontends import Loaded
from peakfold.ir import Graph
from peakfold.planning.context import recipe_of
from peakfold.planning.fit.needing import Runtime
from peakfold.planning.options import PlanOptions
from peakfold.target import load_target
from peakfold.units import format_bytes

if TYPE_CHECKING:
    from peakfold.runtimes.tflite.allocator import Scratch
    from peakfold.runtimes.tflite.arena import Arena
    from peakfold.runtimes.tflite.schema import Model

_TFLM = ("tflm", "tflm-cmsis")
_REFUSED = "The interpreter refuses half-precision weights: give --fold-weights."


def runtime_of(loaded: Loaded, options: PlanOptions) -> Runtime:
    """What executes a model's plans, as far as it is modelled.

    Args:
        loaded: what was read from the file.
        options: of the plans.
    """
    path = Path(loaded.path)
    if options.target not in _TFLM or path.suffix != ".tflite":
        return Runtime()
    if loaded.bindings.shapes or loaded.bindings.dims:
        return Runtime(notes=("The file states other shapes, so its own arena is not known.",))
    try:
        return _interpreter(path, loaded.graph, options)
    except PeakfoldError as error:
        return Runtime(notes=(f"The interpreter's own arena is not known: {error.what}",))


def _interpreter(path: Path, graph: Graph, options: PlanOptions) -> Runtime:
    from peakfold.runtimes.tflite.apply_plan import after_recipe, bytes_after
    from peakfold.runtimes.tflite.arena import DEVICE32
    from peakfold.runtimes.tflite.schema import parse_model

    @cache
    def file_of(recipe: tuple[str, ...]) -> tuple[Arena, tuple[str, ...]]:
        return _arena_of(after_recipe(path, graph, recipe), options.target)

    def whole(arena: int, asked: PlanOptions) -> int | None:
        try:
            file = file_of(recipe_of(asked))[0]
        except PeakfoldError:
            return None  # a split that no file can say
        return replace(file, head=max(arena, file.loose)).total

    @cache
    def flash(recipe: tuple[str, ...]) -> int | None:
        try:
            return bytes_after(path, graph, recipe)
        except PeakfoldError:
            return None

    recipe = recipe_of(options)
    # Half-precision weights are folded because the interpreter refuses them as they are.
    as_is = after_recipe(path, graph, recipe) if options.fold_weights else None
    as_is = parse_model(path.read_bytes()) if as_is is None else as_is
    own, unknown = _arena_of(as_is, options.target)
    known = Runtime(
        own=own.head,
        file=flash(recipe) if options.fold_weights else file_size(path),
        flash=lambda asked: flash(recipe_of(asked)),
    )
    if options.target != "tflm":
        return replace(
            known,
            notes=("What the interpreter keeps beside the arena with these kernels is not known.",),
        )
    narrow = _arena_of(as_is, options.target, DEVICE32)[0]
    notes = [
        f"The interpreter keeps {format_bytes(own.tail)} beside the arena (8-byte pointers, "
        "reference kernels; bands of rows add to it). A device's 32-bit build keeps "
        f"{format_bytes(narrow.tail)} (predicted, not run)."
    ]
    if own.starting > own.head + own.tail:
        notes.append(f"To start it takes {format_bytes(own.starting)}, more than to run.")
    doubts = [f"what {name} takes" for name in dict.fromkeys((*unknown, *file_of(recipe)[1]))]
    if _halves(graph) and not options.fold_weights:
        doubts.append("half-precision weights")
        notes.append(_REFUSED)
    if unknown:
        notes.append(f"What {', '.join(unknown)} takes of the arena is not known.")
    return replace(
        known, own_whole=own.total, whole=whole, notes=tuple(notes), unknown=tuple(doubts)
    )


def _arena_of(model: Model, target: str, build: str | None = None) -> tuple[Arena, tuple[str, ...]]:
    """The arena of a file, and the operators for which it may take more, by name."""
    from peakfold.runtimes.tflite.arena import DEVICE32, WHEEL, predict_arena
    from peakfold.runtimes.tflite.scratch import known_scratch

    scratch = known_scratch(model, target, pointer=4 if build == DEVICE32 else None)
    found = predict_arena(model, scratch, build or WHEEL)
    return found, _doubtful(model, scratch, found)


def _doubtful(model: Model, scratch: Scratch, found: Arena) -> tuple[str, ...]:
    from peakfold.runtimes.tflite.schema import operator_name

    without = [
        operator_name(model, op)
        for number, graph in enumerate(model.subgraphs)
        for at, op in enumerate(graph.operators or ())
        if (number, at) not in scratch
    ]
    return tuple(dict.fromkeys((*found.unknown, *without)))


def advice(loaded: Loaded, options: PlanOptions) -> list[str]:
    """Of a file planned for nobody's kernels: what its own interpreter takes, and how to ask.

    Args:
        loaded: what was read from the file.
        options: of the plan.
    """
    path = Path(loaded.path)
    if load_target(options.target).real or path.suffix != ".tflite":
        return []
    if loaded.bindings.shapes or loaded.bindings.dims or options.train is not None:
        return []
    how = "plan for it with --target tflm."
    if _halves(loaded.graph):
        return [f"To plan for TensorFlow Lite Micro give --target tflm. {_REFUSED}"]
    from peakfold.runtimes.tflite.arena import predict_arena
    from peakfold.runtimes.tflite.schema import parse_model
    from peakfold.runtimes.tflite.scratch import table_scratch

    try:
        model = parse_model(path.read_bytes())
        scratch = {at: sizes for at, sizes in table_scratch(model).items() if sizes is not None}
        found = predict_arena(model, scratch)
    except PeakfoldError:
        return [f"What TensorFlow Lite Micro takes for this file is not known here: {how}"]
    least = "at least " if _doubtful(model, scratch, found) else ""
    return [
        f"TensorFlow Lite Micro takes {least}{format_bytes(found.total)} for this file today: {how}"
    ]


def _halves(graph: Graph) -> bool:
    return any(
        op.kind == "dequantize" and graph[op.inputs[0]].dtype.name == "float16" for op in graph.ops
    )
