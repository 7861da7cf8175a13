"""Local functions of a model, put in the place of the nodes that call them.

onnx's inliner leaves a function alone whose operator sets are not the model's, without a word.
Where none of its operators changed between the two versions the function means the same in the
model's, and is inlined as such; else the function and both versions are named.
"""

from __future__ import annotations

import onnx
from onnx import FunctionProto, ModelProto

from peakfold.boundary import foreign
from peakfold.frontends.onnx.bounds import every_node
from peakfold.frontends.onnx.names import STANDARD


def inlined(model: ModelProto, where: str) -> tuple[ModelProto, list[str]]:
    """A model without the functions that can be inlined, and a note for each that cannot.

    Args:
        model: checked (`onnx_bounds.check_functions`).
        where: the model, for errors.

    Raises:
        ModelError: onnx's inliner refuses the model.
    """
    from onnx import inliner

    opsets = {_standard(e.domain): e.version for e in model.opset_import}
    found = ModelProto()
    found.CopyFrom(model)
    notes: list[str] = []
    for function in found.functions:
        changed = [text for e in function.opset_import if (text := _changed(function, e, opsets))]
        notes += changed
        if not changed:
            _adopt(function, found, opsets)
    with foreign("its functions cannot be inlined", where):
        return inliner.inline_local_functions(found), notes


def _standard(domain: str) -> str:
    return "" if domain in STANDARD else domain


def _adopt(function: FunctionProto, model: ModelProto, opsets: dict[str, int]) -> None:
    """Let a function import what the model does."""
    for entry in function.opset_import:
        domain = _standard(entry.domain)
        if domain not in opsets:
            opsets[domain] = entry.version
            model.opset_import.add(domain=entry.domain, version=entry.version)
        entry.version = opsets[domain]


def _changed(
    function: FunctionProto, entry: onnx.OperatorSetIdProto, opsets: dict[str, int]
) -> str:
    """What stands between a function's operator set and the model's; empty if nothing does."""
    domain = _standard(entry.domain)
    wanted = opsets.get(domain, entry.version)
    if wanted == entry.version:
        return ""
    ops = {node.op_type for node in every_node(function.node) if _standard(node.domain) == domain}
    since = {op: [_since(op, v, domain) for v in (entry.version, wanted)] for op in sorted(ops)}
    # Of a domain that onnx does not know nobody can say what changed.
    differ = [op for op, (one, other) in since.items() if one != other or one is None]
    if not differ:
        return ""
    return (
        f"function {function.name!r} of domain {function.domain!r} is written for version "
        f"{entry.version} of {domain or 'ai.onnx'}, the model for {wanted}: {', '.join(differ)} "
        "may mean something else, so its calls are not looked into"
    )


def _since(op: str, version: int, domain: str) -> int | None:
    try:
        newest = min(version, onnx.defs.onnx_opset_version()) if domain == "" else version
        found: int = onnx.defs.get_schema(op, newest, domain).since_version
    except onnx.defs.SchemaError:
        return None
    return found
