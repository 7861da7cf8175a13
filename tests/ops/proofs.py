"""The prover: runs an op on real arrays and checks what its registry row claims.

In place: for every claimed operand of the output's shape and width, replace one element and
compare all outputs' bits: of output 0 only that element may move. Views and parts: the bytes
at the claimed offset must be the other tensor's bytes, for several draws of data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper
from onnx.reference import ReferenceEvaluator

from peakfold.ops import Context, OpSpec

from .bridge import as_context

Arrays = Mapping[str, np.ndarray]

MAX_ELEMENTS = 10
"""Elements perturbed per operand; every element when there are no more."""


@dataclass
class Instance:
    """One op on one set of operands.

    `truth` replaces the reference evaluator for operators it lacks.
    """

    node: NodeProto
    feeds: Arrays
    opset: int = 21
    truth: Callable[..., tuple[np.ndarray, ...]] | None = None
    model: onnx.ModelProto | None = None

    @cached_property
    def label(self) -> str:
        shapes = ",".join(f"{n}{list(np.shape(v))}" for n, v in self.feeds.items())
        return f"{self.node.op_type}-{self.opset}({shapes})"

    @cached_property
    def evaluator(self) -> ReferenceEvaluator:
        if self.model is not None:
            return ReferenceEvaluator(self.model)
        inputs = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
            for n, v in self.feeds.items()
        ]
        outputs = [helper.make_empty_tensor_value_info(n) for n in self.node.output if n]
        domains = {"": self.opset, "ai.onnx.ml": 3, "ai.onnx.preview.training": 1}
        model = helper.make_model(
            helper.make_graph([self.node], "case", inputs, outputs),
            opset_imports=[helper.make_opsetid(d, v) for d, v in domains.items()],
        )
        return ReferenceEvaluator(model)

    def run(self, feeds: Arrays) -> dict[str, np.ndarray]:
        names = [name for name in self.node.output if name]
        if self.truth is not None:
            given = [feeds[n] if n else None for n in self.node.input]
            return dict(zip(names, self.truth(*given), strict=False))
        # Some kernels write into their operands: hand out copies.
        results = self.evaluator.run(None, {n: v.copy() for n, v in feeds.items()})
        return {n: np.asarray(r) for n, r in zip(names, results, strict=True)}

    def context(self, results: Arrays) -> Context:
        return as_context(self.node, {**self.feeds, **results}, with_outputs=True)


def instance_of_case(case: object) -> list[Instance]:
    """A backend case with one node, its operands as arrays."""
    graph = case.model.graph
    opset = {o.domain: o.version for o in case.model.opset_import}
    made = []
    for given, _ in case.data_sets:
        feeds = {
            info.name: onnx.numpy_helper.to_array(v) if isinstance(v, TensorProto) else v
            for info, v in zip(graph.input, given, strict=True)
        }
        made.append(Instance(graph.node[0], feeds, opset.get("", 21), model=case.model))
    return made


def packed(array: np.ndarray) -> bytes:
    """The bytes a tensor has in memory; elements below a byte are packed, low bits first."""
    array = np.asarray(array)
    width = {"int4": 4, "uint4": 4, "float4_e2m1fn": 4, "int2": 2, "uint2": 2}.get(
        array.dtype.name, 8
    )
    if width == 8:
        return array.tobytes()
    codes = array.view(np.uint8).ravel() & (2**width - 1)
    per_byte = 8 // width
    codes = np.pad(codes, (0, -len(codes) % per_byte)).reshape(-1, per_byte)
    shifts = np.arange(per_byte) * width
    return (codes.astype(np.uint16) << shifts).sum(axis=1).astype(np.uint8).tobytes()


def others(value: np.generic, rng: np.random.Generator) -> list[object]:
    """Replacement values for one element."""
    dtype = value.dtype
    if dtype == np.bool_:
        return [not value]
    if dtype.kind in "iu" or dtype.name in ("int4", "uint4", "int2", "uint2"):
        low, high = (0, 3) if dtype.name in ("uint4", "uint2") else (1, 6)
        return [v for v in rng.integers(low, high, 3) if v != int(value)] or [int(value) ^ 1]
    if dtype.kind in "OUST":
        return ["another"]
    number = float(np.real(value))
    changed = [number + 1.5, -number * 2 + 0.25, float(rng.uniform(0.1, 0.9))]
    return [v for v in changed if dtype.type(v) != value]


def moved(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Positions (flat) whose bits differ."""
    before, after = np.asarray(before), np.asarray(after)
    if before.dtype.kind in "OUST":
        return np.flatnonzero(before.ravel() != after.ravel())
    width = before.dtype.itemsize
    one = np.frombuffer(before.tobytes(), np.uint8).reshape(-1, width)
    two = np.frombuffer(after.tobytes(), np.uint8).reshape(-1, width)
    return np.flatnonzero((one != two).any(axis=1))


def claimed_inplace(spec: OpSpec, ctx: Context) -> list[int]:
    """Claimed operands that a planner could use: shape and width of output 0."""
    result = ctx.outputs[0]
    return [
        at
        for at in spec.inplace_inputs(ctx)
        if ctx.inputs[at].shape == result.shape
        and ctx.inputs[at].dtype.bits is not None
        and ctx.inputs[at].dtype.bits == result.dtype.bits
    ]


def disproof_of_inplace(instance: Instance, at: int, seed: int = 0) -> tuple[str, bool]:
    """What contradicts the claim that output 0 may overwrite operand `at`, and whether
    anything moved at all (a claim that nothing tests is no proof)."""
    rng = np.random.default_rng(seed)
    name, target = instance.node.input[at], instance.node.output[0]
    before = instance.run(instance.feeds)
    flat = instance.feeds[name].size
    picks = range(flat) if flat <= MAX_ELEMENTS else rng.choice(flat, MAX_ELEMENTS, replace=False)
    sensitive = False
    for k in picks:
        for value in others(instance.feeds[name].ravel()[k], rng):
            changed = instance.feeds[name].copy()
            changed.reshape(-1)[k] = value
            after = instance.run({**instance.feeds, name: changed})
            where = moved(before[target], after[target])
            for other, result in after.items():
                # Another output may be written after output 0 has overwritten the operand.
                if other != target and len(moved(before[other], result)):
                    return f"{instance.label}: operand {at} reaches output {other}", True
            sensitive = sensitive or len(where) > 0
            if len(where) and where.tolist() != [k]:
                return f"{instance.label}: element {k} of operand {at} moves {where}", True
    return "", sensitive


def disproof_of_ranges(spec: OpSpec, instance: Instance) -> tuple[list[str], set[str]]:
    """Claims of views and parts that the bytes contradict, and which claims were made."""
    made, wrong = set(), []
    results = instance.run(instance.feeds)
    ctx = instance.context(results)
    names = instance.node.input, instance.node.output
    for what, rule in (("views", spec.views), ("parts", spec.parts)):
        for fact in rule(ctx) if rule else ():
            made.add(what)
            source = packed(instance.feeds[names[0][fact.input]])
            result = packed(results[names[1][fact.output]])
            inner, outer = (result, source) if what == "views" else (source, result)
            if outer[fact.offset : fact.offset + len(inner)] != inner:
                wrong.append(f"{instance.label}: {what} {fact}")
    return wrong, made


def missed_view(instance: Instance, spec: OpSpec) -> bool:
    """Whether output 0 is a byte range of operand 0 that the row does not claim.

    Meant for operands without repeated elements, where bytes agree for no other reason.
    """
    results = instance.run(instance.feeds)
    inner = results[instance.node.output[0]]
    outer = instance.feeds[instance.node.input[0]]
    width = outer.dtype.itemsize
    if inner.size == 0 or inner.dtype != outer.dtype or spec.views is None:
        return False
    if any(fact.output == 0 for fact in spec.views(instance.context(results))):
        return False
    whole, piece = outer.tobytes(), inner.tobytes()
    return any(whole[at : at + len(piece)] == piece for at in range(0, len(whole), width))
