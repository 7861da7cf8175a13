"""An ONNX file -> a program: a kernel for every op of the planned graph, and real weights.

The nodes are found by walking the file as the front end does and noting which node each op came
from, so branches that were inlined under new names are found, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, SparseTensorProto, TensorProto
from onnx.helper import get_attribute_value

from peakfold.boundary import first_line
from peakfold.errors import ModelError
from peakfold.frontends.onnx.file import OnnxFile, read_onnx
from peakfold.frontends.onnx.graph import walk
from peakfold.frontends.onnx.scope import Scope
from peakfold.frontends.onnx.types import tensor_type
from peakfold.ir import Graph, Op
from peakfold.ir.bindings import Bindings
from peakfold.ops import lookup
from peakfold.ops.spec import concrete
from peakfold.runtimes.reference import control
from peakfold.runtimes.reference.elementwise import elementwise
from peakfold.runtimes.reference.feeds import input_values
from peakfold.runtimes.reference.kernels import Kernel, plain_kernel
from peakfold.runtimes.reference.program import CannotRun, Program, Value, slots
from peakfold.runtimes.reference.reference_op import reference_kernel


@dataclass(slots=True)
class _Recorder(Scope):
    """A scope that remembers the node, and the scopes of the bodies, behind each op."""

    nodes: dict[tuple[str, ...], NodeProto] = field(default_factory=dict)
    inner: dict[tuple[str, ...], list[_Recorder]] = field(default_factory=dict)
    walked: list[_Recorder] = field(default_factory=list)
    known: tuple[GraphProto | None, dict[tuple[str, ...], NodeProto]] = (None, {})

    def add(self, op: Op) -> None:
        """Append a finished op and its node."""
        if self.known[0] is not self.proto:  # an inlined branch is walked as a graph of its own
            self.known = self.proto, {tuple(node.output): node for node in self.proto.node}
        # A node of an old opset was rewritten on the way.
        made = self.values.made_by.get(next(iter(op.results), ""))
        self.nodes[op.outputs] = self.known[1][op.outputs] if made is None else made
        # A loop's body may have been walked more than once; the last walk made the region.
        self.inner[op.outputs] = self.walked[len(self.walked) - len(op.regions) :]
        self.walked.clear()
        Scope.add(self, op)

    def body(self, proto: GraphProto) -> Scope:
        """A recorder inside this one."""
        inner = _Recorder(self.file, proto, self.bindings, self.notes, self.seen, self,
                          inferred=self.inferred, bounded=self.bounded)  # fmt: skip
        self.walked.append(inner)
        return inner


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """One graph of an ONNX file with the node of every op: what kernels and weights come from.

    Attributes:
        graph: as loaded, before any recipe.
        scope: what was recorded of it.
        outer: the graph around a body.
    """

    file: OnnxFile
    graph: Graph
    scope: _Recorder
    outer: Source | None = None

    @classmethod
    def read(cls, path: Path, graph: Graph, bindings: Bindings) -> Source:
        """Read a model file again and pair its nodes with the ops of its graph.

        Args:
            path: the file the graph was loaded from.
            graph: as loaded, before any recipe.
            bindings: the numbers it was loaded with.

        Raises:
            ModelError: the file is not the one the graph was loaded from.
        """
        file = read_onnx(path)
        scope = _Recorder(file, file.model.graph, [bindings], [], set())
        types = {info.name: info.type for info in file.model.graph.input}
        for name in graph.inputs:
            if name not in types:
                raise ModelError(f"has no input {name!r}", where=str(path))
            tensor = graph[name]
            known = tensor.dtype.bits is not None
            scope.inputs.append(name)
            scope.declare(name, tensor_type(tensor.dtype, tensor.shape) if known else types[name])
        walk(scope)
        if scope.ops != list(graph.ops):
            raise ModelError("is not the file that the graph was loaded from", where=str(path))
        return cls(file, graph, scope)

    def program(self, work: Graph, seed: int | None) -> Program:
        """Everything that computing a graph of this file needs.

        Args:
            work: this graph after a recipe.
            seed: of the inputs; `None` for a body, which is fed when it runs.

        Raises:
            ModelError: an op without a kernel, or a static value that is not known.
        """
        bodies: dict[tuple[int, int], Program] = {}
        for at, op in enumerate(work.ops):
            if op.kind in control.KINDS:
                for number, region in enumerate(op.regions):
                    source = self._body(op, number)
                    bodies[at, number] = source.program(region.graph, None)
        read = {name for op in work.ops for name in op.operands} | set(work.outputs)
        inputs = set(work.inputs)
        names = [
            t.name
            for t in work.tensors
            if t.role.static and t.name in read and t.name not in inputs
        ]
        return Program(
            work,
            tuple(None if op.kind in control.KINDS else self.kernel(op) for op in work.ops),
            self.values(names),
            {} if seed is None else input_values(work, seed),
            bodies=bodies,
        )

    def _body(self, op: Op, number: int) -> Source:
        loaded = self.graph.ops[self.graph.producer[op.results[0]]]
        scope = self.scope.inner[op.outputs][number]
        return Source(self.file, loaded.regions[number].graph, scope, self)

    def kernel(self, op: Op) -> Kernel:
        """The kernel of an op.

        Raises:
            ModelError: no kernel is known for it.
        """
        node = self.scope.nodes[op.outputs]
        first = self.graph[op.inputs[0]].dtype.name if op.inputs and op.inputs[0] else ""
        floating = first in ("float32", "float64")
        attrs = {a.name: get_attribute_value(a) for a in node.attribute}
        found = None
        if len(op.results) == 1 and op.outputs[0]:
            found = elementwise(op.kind, attrs, len(node.input), floating)
            if found is None:
                found = plain_kernel(op.kind, attrs, self.file.opset(), floating)
        return found or reference_kernel(self.file.model, op, node)

    def values(self, names: Sequence[str]) -> dict[str, Value]:
        """Values of weights and of what can be computed before the run.

        Raises:
            ModelError: a value that is not known, or an op without a kernel.
        """
        known: dict[str, Value] = {}
        pending = list(names)
        while pending:
            want = pending[-1]
            if want in known:
                pending.pop()
                continue
            if want not in self.graph.producer:
                try:
                    known[want] = self._stored(want)
                except ModelError as error:  # data that is absent, or damaged
                    raise CannotRun(error.what, where=error.where, hint=error.hint) from None
                continue
            op = self.graph.ops[self.graph.producer[want]]
            given = slots(op)
            if lookup(op.kind).shape_only:
                args = [self._stand_in(n) if n else None for n in given]
            else:
                needs = [n for n in given if n and n not in known]
                if needs:
                    pending += needs
                    continue
                args = [known[n] if n else None for n in given]
            kernel = self.kernel(op)
            try:
                results = kernel.run(args)
            except Exception as error:  # a kernel may raise anything
                raise CannotRun(
                    f"its kernel ({kernel.name}) fails: {first_line(error)}",
                    where=f"op {op.name!r} ({op.kind})",
                ) from None
            known.update((n, v) for n, v in zip(op.outputs, results, strict=False) if n)
        return {name: known[name] for name in names}

    def _stand_in(self, name: str) -> Value:
        """An array of the right shape for ops that look at nothing else."""
        shape = concrete(self.graph[name])
        if shape is None:
            raise ModelError("its shape is not known", where=f"tensor {name!r}")
        return np.broadcast_to(np.zeros((), np.int8), shape)

    def _stored(self, name: str) -> Value:
        proto = self.scope.values.stored.get(name)
        if proto is not None:
            return self.file.array(proto)
        for sparse in self.scope.proto.sparse_initializer:
            if sparse.values.name == name:
                return _dense(self.file, sparse.values, sparse)
        if self.outer is None:
            raise ModelError("its value is not known before the run", where=f"tensor {name!r}")
        return self.outer.values([name])[name]


def _dense(file: OnnxFile, values: TensorProto, sparse: SparseTensorProto) -> Value:
    """A sparse initializer written out."""
    dims = tuple(sparse.dims)
    data: Any = file.array(values)
    indices: Any = file.array(sparse.indices)
    dense = np.zeros(dims, data.dtype)
    dense[tuple(indices.T) if indices.ndim == 2 else np.unravel_index(indices, dims)] = data
    return dense
