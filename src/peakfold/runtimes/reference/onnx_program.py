"""An ONNX file -> a program: a kernel for every op of the planned graph, and real weights.

The nodes are found by walking the file as the front end does and noting which node each op came
from, so branches that were inlined under new names are found, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, SparseTensorProto, TensorProto
from onnx.helper import get_attribute_value

from peakfold.errors import ModelError
from peakfold.frontends.bindings import Bindings
from peakfold.frontends.onnx_file import OnnxFile, read_onnx
from peakfold.frontends.onnx_graph import walk
from peakfold.frontends.onnx_nodes import bodies, captured
from peakfold.frontends.onnx_scope import Scope
from peakfold.frontends.onnx_types import tensor_type
from peakfold.ir import Graph, Op
from peakfold.ops import lookup
from peakfold.ops.spec import concrete
from peakfold.runtimes import kernels as plain
from peakfold.runtimes.elementwise import elementwise
from peakfold.runtimes.kernels import Args, Kernel, Run
from peakfold.runtimes.reference.program import Value, slots


@dataclass(slots=True)
class _Recorder(Scope):
    """A scope that remembers the node behind each op."""

    nodes: dict[tuple[str, ...], NodeProto] = field(default_factory=dict)

    def add(self, op: Op) -> None:
        """Append a finished op and its node."""
        for node in self.proto.node:
            if tuple(node.output) == op.outputs:
                self.nodes[op.outputs] = node
                break
        Scope.add(self, op)


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """An ONNX file with the node of every op of its graph.

    Attributes:
        nodes: by the op's output names.
        stored: weights and constants by name, not yet read.
        sparse: sparse initializers by name.
    """

    file: OnnxFile
    graph: Graph
    nodes: Mapping[tuple[str, ...], NodeProto]
    stored: Mapping[str, TensorProto]
    sparse: Mapping[str, SparseTensorProto]

    @classmethod
    def read(cls, path: Path, graph: Graph, bindings: Bindings) -> Source:
        """Read a model file again and pair its nodes with the ops of its graph.

        Raises:
            ModelError: the file is not the one the graph was loaded from.
        """
        file = read_onnx(path)
        scope = _Recorder(file, file.model.graph, [bindings], [], set())
        for name in graph.inputs:
            tensor = graph[name]
            info = next((i for i in file.model.graph.input if i.name == name), None)
            if info is None:
                raise ModelError(f"has no input {name!r}", where=str(path))
            scope.inputs.append(name)
            known = tensor.dtype.bits is not None
            scope.declare(name, tensor_type(tensor.dtype, tensor.shape) if known else info.type)
        walk(scope)
        missing = [op.name for op in graph.ops if op.outputs not in scope.nodes]
        if missing:
            raise ModelError(f"has no node for op {missing[0]!r}", where=str(path))
        sparse = {s.values.name: s for s in file.model.graph.sparse_initializer}
        return cls(file, graph, scope.nodes, scope.values.stored, sparse)

    def kernel(self, op: Op) -> Kernel:
        """The kernel of an op.

        Raises:
            ModelError: no kernel is known for it.
        """
        node = self.nodes[op.outputs]
        first = self.graph[op.inputs[0]].dtype.name if op.inputs and op.inputs[0] else ""
        floating = first in ("float32", "float64")
        attrs = {a.name: get_attribute_value(a) for a in node.attribute}
        found = None
        if len(op.results) == 1:
            found = elementwise(op.kind, attrs, len(node.input), floating)
        if found is None and floating:
            run = _plain(op, attrs)
            found = None if run is None else Kernel(op.kind, run)
        return found or self._reference(op, node)

    def _reference(self, op: Op, node: NodeProto) -> Kernel:
        """The kernel of onnx's reference implementation, built once."""
        from onnx.reference import ReferenceEvaluator

        given = slots(op)
        names = list(dict.fromkeys(filter(None, given)))
        # What folding took out of a body is still read by the node itself.
        inner = [n for body in bodies(node).values() for n in captured(body)]
        more = {n: self._outer(n) for n in inner if n not in names}
        model = self._model(_seeded(op, node), [*names, *more], op.results)
        try:
            evaluator = ReferenceEvaluator(model)
        except Exception as error:  # whatever onnx raises for an operator it has no kernel for
            raise ModelError(
                f"no kernel for {node.op_type!r} of domain {node.domain!r}: {error}",
                where=f"op {op.name!r} ({op.kind})",
            ) from None
        at = [given.index(name) for name in names]

        def run(args: Args) -> tuple[Any, ...]:
            feeds = {name: args[n] for name, n in zip(names, at, strict=True)}
            return tuple(evaluator.run(None, feeds | more))

        return Kernel(f"onnx.reference {node.op_type}", run)

    def _model(self, node: NodeProto, reads: list[str], makes: tuple[str, ...]) -> ModelProto:
        empty = onnx.helper.make_empty_tensor_value_info
        graph = onnx.helper.make_graph([node], "op", [*map(empty, reads)], [*map(empty, makes)])
        return onnx.helper.make_model(
            graph,
            opset_imports=list(self.file.model.opset_import),
            ir_version=self.file.model.ir_version,
        )

    def _outer(self, name: str) -> Value:
        if name in self.stored or name in self._static():
            return self.values([name])[name]
        return self._stand_in(name)

    def _static(self) -> frozenset[str]:
        """Names whose values are known before the run."""
        fixed = {t.name for t in self.graph.tensors if t.role.static}
        for op in self.graph.ops:
            if lookup(op.kind).shape_only or fixed.issuperset(op.operands):
                fixed.update(op.results)
        return frozenset(fixed)

    def _stand_in(self, name: str) -> Value:
        """An array of the right shape for ops that look at nothing else."""
        shape = concrete(self.graph[name])
        if shape is None:
            raise ModelError("its shape is not known", where=f"tensor {name!r}")
        return np.broadcast_to(np.zeros((), np.int8), shape)

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
                known[want] = self._stored(want)
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
            known.update(zip(op.results, self.kernel(op).run(args), strict=True))
        return {name: known[name] for name in names}

    def _stored(self, name: str) -> Value:
        if name not in self.stored:
            raise ModelError("its value is not known before the run", where=f"tensor {name!r}")
        proto = self.stored[name]
        sparse = self.sparse.get(name)
        return self.file.array(proto) if sparse is None else _dense(self.file, proto, sparse)


def _seeded(op: Op, node: NodeProto) -> NodeProto:
    """A random node with a seed, so that two runs can be compared."""
    if not op.writes or any(a.name == "seed" for a in node.attribute):
        return node
    copy = NodeProto()
    copy.CopyFrom(node)
    copy.attribute.append(onnx.helper.make_attribute("seed", 1.0))
    return copy


def _plain(op: Op, attrs: dict[str, Any]) -> Run | None:
    """A kernel of our own for floating operands."""
    if op.kind == "conv":
        return plain.conv(attrs)
    if op.kind == "conv_transpose":
        return plain.conv_transpose(attrs)
    if op.kind == "max_pool" and len(op.results) == 1:
        return plain.max_pool(attrs)
    if op.kind == "average_pool":
        return plain.average_pool(attrs)
    if op.kind == "lrn":
        return plain.lrn(attrs)
    return plain.nearest(attrs) if op.kind == "resize" else None


def _dense(file: OnnxFile, values: TensorProto, sparse: SparseTensorProto) -> Value:
    """A sparse initializer written out."""
    dims = tuple(sparse.dims)
    data, indices = file.array(values), file.array(sparse.indices)
    dense = np.zeros(dims, data.dtype)
    at = tuple(indices.T) if indices.ndim == 2 else np.unravel_index(indices, dims)
    dense[at] = data
    return dense
