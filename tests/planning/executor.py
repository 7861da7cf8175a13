"""A numeric oracle: runs a plan on real bytes, in one arena, and an ordinary run beside it.

Kernels read their operands from the arena itself and write byte by byte, so a result that lies
over an operand it still needs goes wrong here as it would in a runtime. Values are bytes; the
arithmetic mixes positions (except in element-wise ops), so any wrong byte spreads.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from peakfold.ir import Graph, Op
from peakfold.planning.plan import Plan

Bytes = NDArray[np.uint8]


def _elementwise(op: Op) -> bool:
    stated = op.stated is not None and op.stated.inplace is not None
    return op.kind in ("relu", "add", "identity") or stated


def _result(op: Op, position: int, args: list[Bytes], shape: tuple[int, ...]) -> Bytes:
    """The value of one result, computed from copies."""
    if op.kind == "relu" or (op.kind == "opaque" and _elementwise(op)):
        return args[0] * 3 + 1
    if op.kind == "add":
        # Broadcast operands reach `_write` one element at a time.
        return args[0] * 5 + args[1] * 7
    if op.kind in ("identity", "reshape"):
        return args[0].reshape(shape).copy()
    if op.kind == "slice":
        return args[0][op.attrs["starts"][0] : op.attrs["ends"][0]].copy()
    if op.kind == "concat":
        return np.concatenate(args)
    if op.kind == "split":
        cut = op.attrs["split"][0]
        return (args[0][:cut] if position == 0 else args[0][cut:]).copy()
    if op.stated is not None and op.stated.overlap and position == 0:
        out = np.zeros(shape, np.uint8)
        _walk(op, args, out)
        return out
    total = sum(int(arg.astype(np.int64).sum()) * (n + 3) for n, arg in enumerate(args))
    size = int(np.prod(shape))
    return ((np.arange(size) * 11 + total * 13 + position) % 251).astype(np.uint8).reshape(shape)


def _walk(op: Op, args: list[Bytes], out: Bytes) -> None:
    """Byte by byte from the front, each operand byte read as late as the stated overlap allows."""
    least = {fact.input: fact.distance for fact in op.stated.overlap}
    seen = sum(int(arg.astype(np.int64).sum()) for at, arg in enumerate(args) if at not in least)
    flat, sources = out.reshape(-1), {at: args[at].reshape(-1) for at in least}
    for at in range(flat.size):
        for position, source in sources.items():
            last = source.size if at == flat.size - 1 else at - least[position] + 1
            for byte in range(max(0, at - least[position]), min(last, source.size)):
                seen = (seen * 31 + int(source[byte]) + position) % 65521
        flat[at] = (seen + at) % 251


def ordinary_run(graph: Graph, feeds: dict[str, Bytes]) -> dict[str, Bytes]:
    """Every tensor's value when nothing is shared."""
    values = dict(feeds)
    for op in graph.ops:
        args = [values[name] for name in op.inputs]
        for at, name in enumerate(op.outputs):
            values[name] = _result(op, at, args, graph[name].shape)
    return values


class ArenaRun:
    """Runs a plan; `outputs` are read from the arena when it is over."""

    def __init__(self, graph: Graph, plan: Plan, feeds: dict[str, Bytes]) -> None:
        self.graph = graph
        self.plan = plan
        self.arena = np.full(plan.arena_bytes, 0xA5, dtype=np.uint8)
        self.place: dict[str, tuple[Bytes, int]] = {}
        for buffer in plan.buffers:
            if buffer.what == "tensor":
                for p in buffer.tensors:
                    self.place[p.tensor] = (self.arena, buffer.offset + p.offset)
        for external in plan.external:
            size = max(p.offset + p.nbytes for p in external.tensors)
            memory = np.full(size, 0x5A, dtype=np.uint8)
            for p in external.tensors:
                self.place[p.tensor] = (memory, p.offset)
        for name, value in feeds.items():
            self.at(name)[...] = value
        self.aliased = {a.output for a in plan.aliases if a.how in ("view", "concat")}

    def at(self, name: str) -> Bytes:
        memory, start = self.place[name]
        shape = self.graph[name].shape
        size = self.graph[name].nbytes
        return memory[start : start + size].reshape(shape)

    def run(self) -> dict[str, Bytes]:
        scratch = {b.op: b for b in self.plan.buffers if b.what == "workspace"}
        for number in self.plan.order:
            op = self.graph.ops[number]
            if number in scratch:
                b = scratch[number]
                self.arena[b.offset : b.offset + b.size] = 0xEE
            for position, name in enumerate(op.outputs):
                if name not in self.aliased:
                    self._write(op, position, name)
        copies = {
            p.tensor: self.arena[b.offset : b.offset + p.nbytes]
            for b in self.plan.buffers
            if b.what == "copy"
            for p in b.tensors
        }
        for name, memory in copies.items():
            memory[...] = self.at(name).ravel()
        return {
            name: copies[name].copy().reshape(self.graph[name].shape)
            if name in copies
            else self.at(name).copy()
            for name in self.graph.outputs
        }

    def _write(self, op: Op, position: int, name: str) -> None:
        out = self.at(name)
        if _elementwise(op):
            # Byte by byte from live memory: overlap that is not element by element shows.
            args = [np.broadcast_to(self.at(n), out.shape) for n in op.inputs]
            for index in np.ndindex(out.shape):
                cell = [arg[index].reshape(1) for arg in args]
                out[index] = _result(op, position, cell, (1,))[0]
            return
        if position == 0 and op.stated is not None and op.stated.overlap:
            _walk(op, [self.at(n) for n in op.inputs], out)
            return
        # A kernel that accumulates clobbers its result before it has read everything.
        args = [self.at(n) for n in op.inputs]
        out[...] = 0xCC
        out[...] = _result(op, position, [arg.copy() for arg in args], out.shape)
