"""Stand-in kernels for graphs without weights: arithmetic on bytes that shows every wrong byte.

The text form states who reads and makes what, not the numbers. A plan is about memory alone, so
any arithmetic with the same dependences will do: views copy bytes, joins join them, results
that may lie over an operand mix byte k with byte k, results that may lie over part of one are
written from their first byte on and read each byte as late as the stated distance allows, and
everything else depends on all bytes of all operands.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from peakfold.analysis.graph.alias_facts import Facts, op_facts
from peakfold.analysis.graph.index import is_opaque
from peakfold.ir import Graph, Op, Tensor
from peakfold.runtimes.reference.kernels import Args, Array, Kernel
from peakfold.runtimes.reference.program import Program, Value, slots
from peakfold.target import load_target

_STEP = np.uint32(2654435761)
_NOTES = {
    "tflite": "TFLite's kernels are not run here: stand-in kernels on its bytes",
    "onnx": "ops of the plan's recipe, a training step or bands, are not in the file: "
    "stand-in kernels on its bytes",
}
# Runs in which a result over part of an operand is written, at least.
_RUNS = 64


def byte_program(graph: Graph, target: str, seed: int = 0) -> Program:
    """A program of stand-in kernels for any graph of known sizes.

    Args:
        graph: after the plan's recipe.
        target: whose rules say which results are views or may be written in place.
        seed: of inputs and parameters.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> g = parse_graph("peakfold-graph 1\\ninput x: int8[4]\\n"
        ...                 "y: int8[4] = relu(x)\\noutput y")
        >>> program = byte_program(g, "generic")
        >>> program.kernels[0].name, program.feeds["x"].dtype.name
        ('stand-in relu', 'uint8')
    """
    rules = load_target(target)
    rng = np.random.default_rng(seed)
    given = [t for t in graph.tensors if t.role.static or t.name in graph.inputs]
    values = {t.name: _random(t, rng) for t in given}
    return Program(
        graph,
        tuple(_kernel(graph, op, op_facts(graph, op, rules)) for op in graph.ops),
        {t.name: values[t.name] for t in given if t.name not in graph.inputs},
        {name: values[name] for name in graph.inputs},
        notes=(_NOTES.get(graph.source, "a graph without weights: stand-in kernels on its bytes"),),
        words=False,
    )


def _random(tensor: Tensor, rng: np.random.Generator) -> Value:
    if is_opaque(tensor):
        return tensor.name
    return rng.integers(0, 256, tensor.nbytes, np.uint8)


def _kernel(graph: Graph, op: Op, facts: Facts) -> Kernel:
    results = [(at, graph[name]) for at, name in enumerate(op.outputs) if name]

    def run(args: Args) -> tuple[Any, ...]:
        made: list[Any] = [None] * len(op.outputs)
        for at, tensor in results:
            made[at] = _result(op, facts, at, tensor, args)
        return tuple(made)

    def over(args: Args, out: Array) -> None:
        _walk(op, facts, args, out)

    walks = bool(results and results[0][0] == 0 and _walks(facts, results[0][1]))
    return Kernel(f"stand-in {op.kind}", run, over=over if walks else None)


def _walks(facts: Facts, tensor: Tensor) -> bool:
    """Whether result 0 is written from front to back, since it may lie over part of an operand."""
    shared = any(view.output == 0 for view in facts.views) or facts.parts or facts.inplace
    return bool(facts.overlap) and not shared and not is_opaque(tensor)


def _walk(op: Op, facts: Facts, args: Args, out: Array) -> None:
    """Write `out` run by run; an operand's byte is read in the run before which it may vanish.

    With the result d bytes below the operand, byte k of it falls on byte k - d of the operand.
    So when byte k is about to be written, byte k - d is about to vanish, and is read.
    """
    length = max(1, out.size // _RUNS)
    least = {fact.input: fact.distance for fact in facts.overlap}
    rest = [arg for at, arg in enumerate(args) if at not in least]
    total = _sum([op.name, *rest])
    for start in range(0, out.size, length):
        stop = min(start + length, out.size)
        made = np.full(stop - start, total & 0xFF, np.uint8)
        for at, distance in least.items():
            value = args[at]
            if not isinstance(value, np.ndarray):
                continue
            end = value.size if stop == out.size else max(0, stop - distance)
            read = value[max(0, start - distance) : end]
            total = zlib.crc32(read.tobytes(), total)
            made += np.resize(read, made.size) * np.uint8(2 * at + 3) if read.size else 0
        out[start:stop] = made + np.uint8(total & 0xFF)


def _result(op: Op, facts: Facts, position: int, tensor: Tensor, args: Args) -> Value:
    if is_opaque(tensor):
        return f"{op.kind} {_sum(args)}"
    size = tensor.nbytes or 0
    for view in facts.views:
        if view.output == position and isinstance(args[view.input], np.ndarray):
            return args[view.input][view.offset : view.offset + size].copy()
    if position == 0 and len(facts.parts) == len(slots(op)) and facts.parts:
        return _joined(facts, args, size)
    if position == 0 and _walks(facts, tensor):
        out = np.zeros(size, np.uint8)
        _walk(op, facts, args, out)
        return out
    if position == 0 and _elementwise(facts, args, size):
        return _mixed(op, facts, args, size)
    total = _sum([op.name, *args]) + position
    noise = np.arange(size, dtype=np.uint32) * _STEP + np.uint32(total)
    return (noise >> np.uint32(11)).astype(np.uint8)


def _joined(facts: Facts, args: Args, size: int) -> Array:
    out = np.zeros(size, np.uint8)
    for part in facts.parts:
        value = args[part.input]
        out[part.offset : part.offset + value.size] = value
    return out


def _elementwise(facts: Facts, args: Args, size: int) -> bool:
    return any(isinstance(args[at], np.ndarray) and args[at].size == size for at in facts.inplace)


def _mixed(op: Op, facts: Facts, args: Args, size: int) -> Array:
    """Byte k of the result from byte k of operands; shorter ones are repeated."""
    out = np.ones(size, np.uint8)
    rest: list[Any] = [op.name]  # two ops of one kind on one operand make different values
    for at, arg in enumerate(args):
        if at in facts.inplace and isinstance(arg, np.ndarray) and arg.size:
            out += np.resize(arg, size) * np.uint8(2 * at + 3)
        else:
            rest.append(arg)
    return out + np.uint8(_sum(rest) & 0xFF)


def _sum(args: Sequence[Any]) -> int:
    """A checksum that any changed byte changes."""
    total = 0
    for arg in args:
        data = arg.tobytes() if isinstance(arg, np.ndarray) else repr(arg).encode()
        total = zlib.crc32(data, total + 1)
    return total & 0x7FFFFFFF
