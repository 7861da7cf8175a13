"""The executor: every step of a plan on real memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from peakfold.analysis.graph.index import is_opaque
from peakfold.errors import InvalidPlan
from peakfold.ir import Op
from peakfold.judges.placement import Location
from peakfold.planning.plan import Plan, PlannedAlias, PlannedBuffer
from peakfold.runtimes.reference.inplace import first_half, overwrite
from peakfold.runtimes.reference.kernels import Args
from peakfold.runtimes.reference.memory import POISON, Memory, digest
from peakfold.runtimes.reference.ordinary import read_only
from peakfold.runtimes.reference.program import Program, Value, slots
from peakfold.target import load_target


class ArenaRun:
    """One run of a plan in its memory.

    `step` runs one op; the caller chooses the order (`run_order` gives the plan's own) and may
    run ops of several lanes at once. `finish` copies outputs and hands them out.

    Attributes:
        made: fingerprint of every result as it was written.
        temporary_bytes: the most that one step allocated outside the plan's memory: results
            before they are copied into place, and kernels' own scratch. Measured only where
            `measure` is set, since memory is traced for the whole process.
        broken: guarded tensors of bodies that were written.
    """

    def __init__(
        self,
        program: Program,
        plan: Plan,
        memory: Memory,
        feeds: Mapping[str, Value] | None = None,
        *,
        given: Mapping[str, bytes] | None = None,
        measure: bool = False,
    ) -> None:
        self.program = program
        self.graph = program.graph
        self.plan = plan
        self.memory = memory
        self.feeds = program.feeds if feeds is None else feeds
        self.measure = measure
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.objects: dict[str, Value] = {}
        self.made: dict[str, bytes] = {}
        self.temporary_bytes = 0
        self.broken: list[str] = []
        self.aliases: dict[str, list[PlannedAlias]] = {}
        for alias in plan.aliases:
            self.aliases.setdefault(alias.output, []).append(alias)
        self.bodies = {(body.op, body.region): body.plan for body in plan.bodies}
        # Kernels that a target says work in place though they are not element-wise.
        self._whole = frozenset(load_target(plan.target).inplace_also)
        self._ends: dict[int, list[PlannedBuffer]] = {}
        for buffer in plan.buffers:
            for step in {piece.stop for piece in buffer.live}:
                self._ends.setdefault(step, []).append(buffer)
        self._guarded: dict[str, bytes] = {}
        self._put_inputs({} if given is None else given)

    def _put_inputs(self, given: Mapping[str, bytes]) -> None:
        """Inputs and parameters go where the plan says; what must survive is fingerprinted."""
        kept = self.plan.policies.inputs != "reusable"
        for name, value in {**self.program.statics, **self.feeds}.items():
            static = self.graph[name].role.static
            where = self.memory.places.of.get(name)
            if where is not None:
                self._view(name, where)[...] = value
            else:
                self.objects[name] = read_only(value)
            if kept or static:
                self._guarded[name] = given.get(name) or digest(self.value(name))

    def guards_broken(self) -> list[str]:
        """Inputs and parameters that are no longer what they were."""
        changed = [n for n, before in self._guarded.items() if digest(self.value(n)) != before]
        return changed + self.broken

    def _view(self, name: str, where: Location) -> Value:
        return self.program.view(name, self.memory.bytes_of(where), self.shapes.get(name))

    def value(self, name: str) -> Value:
        """A tensor's value: a view of its place, or the object for what lies outside.

        Raises:
            InvalidPlan: it has no place and has not been made.
        """
        where = self.memory.places.of.get(name)
        if where is not None:
            return self._view(name, where)
        if name not in self.objects:
            raise InvalidPlan(f"{name!r} is read, but has no place and was not made")
        return self.objects[name]

    def run_order(self) -> Iterator[int]:
        """The plan's own order; after each step what died in it is poisoned."""
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
                if not alive:
                    memory[piece.lower : piece.upper] = POISON
                    continue
                dead = np.ones(piece.upper - piece.lower, np.bool_)
                for other in alive:
                    low, high = (max(0, at - piece.lower) for at in (other.lower, other.upper))
                    dead[low:high] = False
                memory[piece.lower : piece.upper][dead] = POISON

    def step(self, at: int) -> None:
        """Run one op: poison what it does not keep, compute, write into place."""
        op = self.graph.ops[at]
        args = [read_only(self.value(name)) if name else None for name in slots(op)]
        self._poison_scratch(at)
        written = [name for name in op.results if self._is_written(name)]
        for name in written:
            self._poison(name, self._lenders(op) if name == op.outputs[0] else [])
        with self._measured():
            if written:
                self._compute(at, op, args, written)
            elif any(map(self._shapeless, op.results)):
                self._store(op, self._results(at, op, args), ())  # only for the shapes
        self._poison_scratch(at)
        for name in op.results:
            self.made[name] = digest(self.value(name))

    def _poison_scratch(self, at: int) -> None:
        """A kernel may write its workspace at any time: before it, and after its results."""
        where = self.memory.places.scratch.get(at)
        if where is not None:
            self.memory.bytes_of(where)[:] = POISON

    @contextmanager
    def _measured(self) -> Iterator[None]:
        if not self.measure or tracemalloc.is_tracing():
            yield
            return
        tracemalloc.start()
        try:
            yield
        finally:
            self.temporary_bytes = max(self.temporary_bytes, tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()

    def _is_written(self, name: str) -> bool:
        """Whether a kernel writes the result; views and joined parts lie in place already."""
        kinds = {alias.how for alias in self.aliases.get(name, ())}
        return not kinds or not kinds <= {"view", "concat"}

    def _lenders(self, op: Op) -> list[Location]:
        """Operands whose bytes result 0 may keep; no other result is written in place."""
        aliases = self.aliases.get(op.outputs[0], ())
        names = [alias.input for alias in aliases if alias.how in ("inplace", "overlap")]
        if any(alias.how == "overlap" for alias in aliases):
            names = list(op.inputs)  # judge 2 says which of them may lie there
        found = (self.memory.places.of.get(name) for name in names)
        return [where for where in found if where is not None]

    def _overlaps(self, name: str) -> bool:
        return any(alias.how == "overlap" for alias in self.aliases.get(name, ()))

    def _poison(self, name: str, lent: list[Location]) -> None:
        """Destroy what a result does not keep of the bytes it is written to."""
        where = self.memory.places.of.get(name)
        if where is None:
            return
        doomed = np.ones(where.nbytes, np.bool_)
        for other in lent:
            if other.overlaps(where):
                low, high = (
                    at - where.address for at in (other.address, other.address + other.nbytes)
                )
                doomed[max(0, low) : high] = False
        self.memory.bytes_of(where)[doomed] = POISON

    def _compute(self, at: int, op: Op, args: Args, written: list[str]) -> None:
        name, kernel = op.outputs[0], self.program.kernels[at]
        where = self.memory.places.of.get(name) if name in written else None
        if kernel is not None and where is not None and not self._shapeless(name):
            over = self._under(op, where)
            strange = [there for other, there in over if not self._same(name, where, other, there)]
            out = self._view(name, where)
            if kernel.into is not None and not strange:
                kernel.into(args, out)
                return
            if self._overlaps(name):
                # Written in the kernel's own order, or else as if it kept its promise.
                results = self._results(at, op, args)
                if kernel.over is not None:
                    kernel.over(args, out)
                    results = (None, *results[1:])
                self._store(op, results, written)
                return
            if over and self._lenders(op) and op.kind not in self._whole:
                rest = overwrite(kernel, args, out, first_half(where, out.itemsize, strange))
                self._store(op, (None, *rest), written[1:])
                return
        self._store(op, self._results(at, op, args), written)

    def _results(self, at: int, op: Op, args: Args) -> tuple[Any, ...]:
        kernel = self.program.kernels[at]
        if kernel is not None:
            return kernel.run(args)
        # A body has a plan of its own and is run by this class again.
        from peakfold.runtimes.reference.bodies import run_bodies

        return run_bodies(self, at, op, args)

    def _shapeless(self, name: str) -> bool:
        """Whether only the run tells the shape."""
        known = name in self.shapes or is_opaque(self.graph[name])
        return self.program.words and not known and self.program.shape_of(name) is None

    def _under(self, op: Op, where: Location) -> list[tuple[str, Location]]:
        """Operands that share bytes with a result."""
        found = ((name, self.memory.places.of.get(name)) for name in op.operands)
        return [(name, there) for name, there in found if there and there.overlaps(where)]

    def _same(self, name: str, where: Location, other: str, there: Location) -> bool:
        """Whether two tensors lie element on element."""
        one, two = self.graph[name], self.graph[other]
        alike = one.shape == two.shape and one.dtype.bits == two.dtype.bits
        return alike and (where.address, where.nbytes) == (there.address, there.nbytes)

    def _store(self, op: Op, results: tuple[Any, ...], written: Sequence[str]) -> None:
        """Copy a kernel's results to their places."""
        for name, value in zip(op.outputs, results, strict=False):
            if not name or value is None:
                continue
            array = self.program.result(op, name, value)
            if self._shapeless(name):
                self.shapes[name] = array.shape
            if name not in written:
                continue
            where = self.memory.places.of.get(name)
            if where is None:
                self.objects[name] = array
            else:
                self._view(name, where)[...] = array

    def finish(self) -> dict[str, Value]:
        """Copy the outputs that belong to someone else, and hand out all outputs."""
        places = self.memory.places
        for name, where in places.copies.items():
            self._view(name, where)[...] = self.value(name)
        outputs: dict[str, Value] = {}
        for name in self.graph.outputs:
            copy = places.copies.get(name)
            outputs[name] = self.value(name) if copy is None else self._view(name, copy)
        return outputs
