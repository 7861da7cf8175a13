"""The executor: every step of a plan on real memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from peakfold.analysis.index import is_opaque
from peakfold.errors import InvalidPlan
from peakfold.ir import Op
from peakfold.ops.spec import concrete
from peakfold.planning.places import Location
from peakfold.planning.plan import Plan, PlannedAlias, PlannedBuffer
from peakfold.runtimes.kernels import Args, Kernel
from peakfold.runtimes.reference.inplace import first_half, overwrite
from peakfold.runtimes.reference.memory import POISON, Memory, digest
from peakfold.runtimes.reference.program import Program, Value, slots
from peakfold.target import load_target

Shape = tuple[int, ...]


class ArenaRun:
    """One run of a plan in its memory.

    `step` runs one op; the caller chooses the order (`run_order` gives the plan's own) and may
    run ops of several lanes at once. `finish` copies outputs and hands them out.

    Attributes:
        made: fingerprint of every result as it was written.
        temporary_bytes: the most that one step held outside the memory of the plan: results
            that kernels return before they are copied into place.
    """

    def __init__(self, program: Program, plan: Plan, memory: Memory, shapes: dict[str, Shape]):
        self.program = program
        self.graph = program.graph
        self.plan = plan
        self.memory = memory
        self.shapes = shapes
        self.objects: dict[str, Value] = {}
        self.made: dict[str, bytes] = {}
        self.temporary_bytes = 0
        self.aliases: dict[str, list[PlannedAlias]] = {}
        for alias in plan.aliases:
            self.aliases.setdefault(alias.output, []).append(alias)
        self.whole_kernels = frozenset(load_target(plan.target).inplace_also)
        self._ends: dict[int, list[PlannedBuffer]] = {}
        for buffer in plan.buffers:
            for step in {piece.stop for piece in buffer.live}:
                self._ends.setdefault(step, []).append(buffer)
        self._guarded: dict[str, bytes] = {}
        self._put_inputs()

    def _put_inputs(self) -> None:
        """Inputs and placed parameters go where the plan says, and are fingerprinted."""
        given = {**self.program.statics, **self.program.feeds}
        kept = self.plan.policies.inputs != "reusable"
        for name, value in given.items():
            where = self.memory.places.of.get(name)
            if where is None:
                if name in self.graph.by_name and not is_opaque(self.graph[name]):
                    if not self.graph[name].role.static:
                        raise InvalidPlan(f"input {name!r} has no place")
                    value.flags.writeable = False
                self.objects[name] = value
            else:
                self._view(name, where)[...] = value
            if kept or self.graph[name].role.static:
                self._guarded[name] = digest(self.value(name))

    def guards_broken(self) -> list[str]:
        """Inputs and parameters that are no longer what they were."""
        return [n for n, before in self._guarded.items() if digest(self.value(n)) != before]

    def _view(self, name: str, where: Location) -> Value:
        return self.program.view(name, self.memory.bytes_of(where), self.shapes.get(name))

    def value(self, name: str) -> Value:
        """A tensor's value: a view of its place, or the object for what lies outside."""
        where = self.memory.places.of.get(name)
        if where is not None:
            return self._view(name, where)
        if name not in self.objects:
            raise InvalidPlan(f"{name!r} is read before it is made, and has no place")
        return self.objects[name]

    def run_order(self) -> Iterator[int]:
        """The plan's own order; after each step what died in it is poisoned.

        Raises:
            InvalidPlan: the order is no permutation of the graph's ops.
        """
        if sorted(self.plan.order) != list(range(len(self.graph.ops))):
            raise InvalidPlan(f"the order is no permutation of the {len(self.graph.ops)} ops")
        end = max(self._ends, default=0)
        for number, at in enumerate(self.plan.order):
            yield at
            if number + 1 < end:  # what lives to the end is read after the last step
                self._bury(number + 1)

    def _bury(self, step: int) -> None:
        """Poison bytes of buffers that nothing uses from this step on."""
        for buffer in self._ends.get(step, ()):
            memory = self.memory.arena[buffer.offset : buffer.offset + buffer.size]
            alive = [p for p in buffer.live if p.start <= step < p.stop]
            for piece in buffer.live:
                if piece.stop != step:
                    continue
                dead = np.ones(piece.upper - piece.lower, np.bool_) if alive else slice(None)
                for other in alive:
                    low, high = (max(0, at - piece.lower) for at in (other.lower, other.upper))
                    dead[low:high] = False
                memory[piece.lower : piece.upper][dead] = POISON

    def step(self, at: int) -> None:
        """Run one op: poison what it does not keep, compute, write into place."""
        op = self.graph.ops[at]
        args = [self._operand(name) for name in slots(op)]
        scratch = self.memory.places.scratch.get(at)
        if scratch is not None:
            self.memory.bytes_of(scratch)[:] = POISON
        written = [name for name in op.results if self._is_written(name)]
        for name in written:
            self._poison(name)
        if written:
            self._compute(op, self.program.kernels[at], args, written)
        for name in op.results:
            self.made[name] = digest(self.value(name))

    def _operand(self, name: str) -> Value:
        if not name:
            return None
        value = self.value(name)
        if isinstance(value, np.ndarray):
            value = value.view()
            value.flags.writeable = False
        return value

    def _is_written(self, name: str) -> bool:
        """Whether a kernel writes the result; views and joined parts lie in place already."""
        kinds = {alias.how for alias in self.aliases.get(name, ())}
        return not kinds or not kinds <= {"view", "concat"}

    def _lender(self, name: str) -> Location | None:
        lent = [a.input for a in self.aliases.get(name, ()) if a.how == "inplace"]
        return self.memory.places.of.get(lent[0]) if lent else None

    def _poison(self, name: str) -> None:
        where = self.memory.places.of.get(name)
        if where is None:
            return
        memory, lent = self.memory.bytes_of(where), self._lender(name)
        if lent is None or not lent.overlaps(where):
            memory[:] = POISON
            return
        memory[: max(0, lent.address - where.address)] = POISON
        memory[lent.address + lent.nbytes - where.address :] = POISON

    def _compute(self, op: Op, kernel: Kernel, args: Args, written: list[str]) -> None:
        name = op.outputs[0]
        where = self.memory.places.of.get(name) if name in written else None
        if where is not None and (name in self.shapes or not self._shapeless(name)):
            over = self._under(op, where)
            strange = [there for other, there in over if not self._same(name, where, other, there)]
            out = self._view(name, where)
            if kernel.into is not None and not strange:
                kernel.into(args, out)
                return
            if over and self._lender(name) and op.kind not in self.whole_kernels:
                rest = overwrite(kernel, args, out, first_half(where, out.itemsize, strange))
                self._store(op, (out, *rest), written, first=1)
                return
        self._store(op, kernel.run(args), written)

    def _shapeless(self, name: str) -> bool:
        return self.program.words and concrete(self.graph[name]) is None

    def _under(self, op: Op, where: Location) -> list[tuple[str, Location]]:
        """Operands that share bytes with a result."""
        found = ((name, self.memory.places.of.get(name)) for name in op.operands)
        return [(name, there) for name, there in found if there and there.overlaps(where)]

    def _same(self, name: str, where: Location, other: str, there: Location) -> bool:
        """Whether two tensors lie element on element."""
        one, two = self.graph[name], self.graph[other]
        alike = one.shape == two.shape and one.dtype.bits == two.dtype.bits
        return alike and (where.address, where.nbytes) == (there.address, there.nbytes)

    def _store(self, op: Op, results: tuple[Any, ...], written: list[str], first: int = 0) -> None:
        """Copy a kernel's results to their places."""
        held = 0
        # onnx.reference gives every output of the node, the unwanted ones at the end.
        for name, value in zip(op.results, results, strict=False):
            if name not in written or (first and name == op.results[0]):
                continue
            array = self.program.result(op, name, value, self.shapes.get(name))
            where = self.memory.places.of.get(name)
            if where is None:
                self.objects[name] = array
                continue
            held += array.nbytes
            self._view(name, where)[...] = array
        self.temporary_bytes = max(self.temporary_bytes, held)

    def finish(self) -> dict[str, Value]:
        """Copy the outputs that belong to someone else, and hand out all outputs."""
        places = self.memory.places
        for name, where in places.copies.items():
            self._view(name, where)[...] = self.value(name)
        outputs: dict[str, Value] = {}
        for name in self.graph.outputs:
            copy = places.copies.get(name)
            value = self.value(name) if copy is None else self._view(name, copy)
            outputs[name] = value.copy() if isinstance(value, np.ndarray) else value
        return outputs
