"""``.pt2`` files -> graphs, without PyTorch and without running anything of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from peakfold.errors import ModelError, PeakfoldError, UsageError
from peakfold.frontends.pt2.aliases import Storages
from peakfold.frontends.pt2.archive import read_archive
from peakfold.frontends.pt2.graph import Walker
from peakfold.frontends.pt2.schema import (
    InputSpec,
    Payload,
    Program,
    SymInt,
    TensorMeta,
    check_items,
    decoded_payloads,
    decoded_program,
)
from peakfold.frontends.pt2.values import ProgramBuilder, Sizes
from peakfold.ir import Graph, Role
from peakfold.ir.bindings import Bindings
from peakfold.ir.expression import Expression
from peakfold.ir.size_functions import Unreadable
from peakfold.ir.sizes import parse_size_text
from peakfold.ops.doubts import listed as doubts_of
from peakfold.ops.facts import contradictions


def load_program(path: Path, bindings: Bindings) -> tuple[Graph, Bindings]:
    """The graph of a ``.pt2`` file.

    Symbolic dimensions keep PyTorch's names; sizes that are expressions of them are evaluated
    with the numbers given.

    Args:
        path: the file.
        bindings: numbers for symbols, shapes for inputs.

    Raises:
        UsageError: a name the program does not have, or numbers that contradict it.
        ModelError: the file is no exported program, or a broken one.
    """
    members = read_archive(path)
    check_items((members.program, members.weights, members.constants))
    program = decoded_program(members.program)
    payloads = decoded_payloads(members.weights) | decoded_payloads(members.constants)
    _check_extents(payloads, members.sizes)
    dims = _numbers(program, bindings)
    return _read(program, payloads, dims, path.stem), bindings


def _read(
    program: Program, payloads: Mapping[str, Payload], dims: Mapping[str, int], name: str
) -> Graph:
    graph, signature = program.graph_module.graph, program.graph_module.signature
    sizes, builder, fresh = Sizes(dims), ProgramBuilder(), Storages()
    walker = Walker(graph, builder, sizes, fresh)
    specs = {given: spec for spec in signature.input_specs if (given := _given(spec))}
    for arg in graph.inputs:
        if arg.as_tensor is None or (spec := specs.get(arg.as_tensor.name)) is None:
            continue
        formal = arg.as_tensor.name
        target, role = _meant(spec)
        payload = payloads.get(target)
        held = payload is not None and not payload.use_pickle
        value = walker.value(formal, fresh.of(payload.path_name) if payload and held else None)
        trainable = None
        if role is Role.PARAMETER:
            meta = payload.tensor_meta if payload is not None else None
            trainable = (meta or graph.tensor_values[formal]).requires_grad
        builder.declare(walker.enter(formal, value), target or formal, role, trainable)
    leaves = walker.walk()
    outputs = [
        leaf
        for leaf, spec in zip(leaves, signature.output_specs, strict=False)
        if leaf is not None and (spec.user_output or spec.loss_output)
    ]
    made = builder.finish(name, outputs, "torch")
    if unknown := sorted(set(dims) - set(sizes.symbols)):
        listed = ", ".join(sorted(sizes.symbols)) or "none"
        raise UsageError(f"no dimension is called {unknown[0]!r}", hint=f"symbols: {listed}")
    # Inside vmap an export shows one item beside operands of all of them.
    doubts = () if walker.mapped() else doubts_of(contradictions(made))
    notes = (*made.notes, *_notes(program, walker, dims), *doubts)
    return replace(made, notes=notes, doubts=doubts)


def _given(spec: InputSpec) -> str:
    """The name in the graph of what a specification stands for; empty for what is no tensor."""
    if spec.user_input is not None:
        named = spec.user_input.arg.as_tensor
        return named.name if named is not None else ""
    found = spec.parameter or spec.buffer or spec.tensor_constant
    return found.arg.name if found is not None else ""


def _meant(spec: InputSpec) -> tuple[str, Role]:
    """What an input is called in the module (nothing for the user's), and its role."""
    if spec.parameter is not None:
        return spec.parameter.parameter_name, Role.PARAMETER
    if spec.buffer is not None:
        return spec.buffer.buffer_name, Role.STATE
    if spec.tensor_constant is not None:
        return spec.tensor_constant.tensor_constant_name, Role.STATE
    return "", Role.INPUT


def _check_extents(payloads: Mapping[str, Payload], sizes: Mapping[str, int]) -> None:
    """Hold what the archive stores against what it says to store."""
    plain = Sizes({})
    for name, payload in payloads.items():
        if payload.tensor_meta is None or payload.use_pickle:
            continue
        where = f"tensor {name!r}"
        stop = plain.tensor(payload.tensor_meta, 0, where).place.stop
        stored = max(
            sizes.get(f"data/{folder}/{payload.path_name}", 0)
            for folder in ("weights", "constants")
        )
        if stop is not None and 0 < stored < stop:  # a program saved without values stores none
            raise ModelError(f"it reaches {stop} bytes, and {stored} are stored", where=where)


# Numbers for symbols.


def _numbers(program: Program, bindings: Bindings) -> dict[str, int]:
    """Numbers of symbols, given by name and by shapes of inputs."""
    dims: dict[str, int] = {}
    open_sizes: list[tuple[str, Expression, int]] = []
    for name, number in bindings.dims.items():
        size = _parsed(name, f"dimension {name!r}", UsageError)
        open_sizes.append((f"--dim {name}", size, number))
    graph = program.graph_module.graph
    inputs = [
        name
        for spec in program.graph_module.signature.input_specs
        if spec.user_input is not None and (name := _given(spec))
    ]
    if unknown := sorted(set(bindings.shapes) - set(inputs)):
        raise UsageError(f"no input is called {unknown[0]!r}", hint=f"inputs: {', '.join(inputs)}")
    for name, given in bindings.shapes.items():
        meta = graph.tensor_values.get(name)
        if meta is None:
            raise ModelError("nothing describes it", where=f"tensor {name!r}")
        if len(meta.sizes) != len(given.dims):
            raise UsageError(
                f"--shape {name}={given} has {len(given.dims)} dimensions, "
                f"the model says {len(meta.sizes)}"
            )
        open_sizes += _open(name, meta, given.dims)
    # A plain symbol first: what is an expression of it is then a number to compare.
    for name, size, number in sorted(open_sizes, key=lambda one: len(str(one[1]))):
        _solve(name, size, number, dims)
    return dims


def _open(name: str, meta: TensorMeta, given: tuple[int, ...]) -> list[tuple[str, Expression, int]]:
    found = []
    for size, number in zip(meta.sizes, given, strict=True):
        stated = _stated(name, size)
        if stated.number is None:
            found.append((f"--shape {name}", stated, number))
        elif stated.number != number:
            raise UsageError(f"--shape {name}: the model fixes {stated.number}, not {number}")
    return found


def _stated(name: str, size: SymInt) -> Expression:
    text = str(size.as_int or 0) if size.as_expr is None else size.as_expr.expr_str
    return _parsed(text, f"tensor {name!r}", ModelError)


def _parsed(text: str, where: str, kind: type[PeakfoldError]) -> Expression:
    try:
        return parse_size_text(text)
    except Unreadable as error:
        raise kind(f"it is no size: {error}", where=where) from None


def _solve(option: str, size: Expression, number: int, dims: dict[str, int]) -> None:
    """Give a symbol the number that makes a size what the user says."""
    try:
        left = size.bind(dims)
    except Unreadable as error:
        raise UsageError(f"{option}: size {size}: {error}") from None
    if len(left.symbols) == 1:
        (symbol,) = left.symbols
        one, none = left.bind({symbol: 1}).value, left.bind({symbol: 0}).value
        slope = None if one is None or none is None else one - none
        if slope and none is not None and ((number - none) / slope).denominator == 1:
            dims[symbol] = int((number - none) / slope)
            left = size.bind(dims)
    if left.value != number or min(dims.values(), default=0) < 0:
        known = ", ".join(f"{s}={dims[s]}" for s in size.symbols if s in dims)
        raise UsageError(
            f"{option}: size {size} cannot be {number}"
            + (f" with {known}" if known else f"; give {', '.join(size.symbols)} with --dim")
        )


def _notes(program: Program, walker: Walker, dims: Mapping[str, int]) -> list[str]:
    notes = []
    if inside := walker.mapped():
        notes.append(f"{inside} operators inside vmap are counted for one item only")
    for symbol, number in dims.items():
        limits = program.range_constraints.get(symbol)
        if limits is None:
            continue
        low, high = limits.min_val, limits.max_val
        if (low is not None and number < low) or (high is not None and number > high):
            ends = f"{'' if low is None else low}..{'' if high is None else high}"
            notes.append(f"{symbol}={number} is outside {ends}, for which it was exported")
    return notes
