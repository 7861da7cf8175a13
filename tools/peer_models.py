"""Facts of a peer's .tflite models: what decides sizes, and no value of a weight.

Run once against a repository (``python tools/peer_models.py GIT_DIR``); the tests need its
result only, ``tests/data/peers_tflite.json``, and build the models anew from it.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from peakfold.frontends.tflite.schema import names_of
from peakfold.runtimes.tflite.schema import (
    classes,
    dims,
    has_data,
    indices,
    operator_name,
    parse_model,
    type_names,
)

ROOT = Path(__file__).parents[1]
CASES = ROOT / "tests" / "data" / "peers.json"
RESULT = ROOT / "tests" / "data" / "peers_tflite.json"
_SHORT = 16
"""Elements of an integer constant without scales that may decide a shape: its value is a fact."""
_SUMS = {
    "CONV_2D": (0, 1, 2),
    "DEPTHWISE_CONV_2D": (0, 1, 2),
    "FULLY_CONNECTED": (0, 1, 2),
    "TRANSPOSE_CONV": (2, 1, 3),
    "SVDF": (4, 2, 3),
}
"""Where input (or state), weights and bias stand: a bias has the product of the others' scales."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("git_dir", help="of the peer's repository")
    parser.add_argument("--commit", default="90b983c2")
    args = parser.parse_args()
    cases = json.loads(CASES.read_text())["cases"]
    names = [case["name"] for case in cases if case["kind"] == "tflite"]
    found = {name: facts(_read(args.git_dir, args.commit, name)) for name in names}
    lines = [f"{json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in found.items()]
    RESULT.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _read(git_dir: str, commit: str, name: str) -> bytes:
    command = ["git", "-C", git_dir, "show", f"{commit}:{_stored(git_dir, commit, name)}"]
    data = subprocess.run(command, capture_output=True, check=True).stdout
    if not name.endswith(".cc"):
        return data
    found = re.search(rb"\{([^{}]*0x[^{}]*)\}", data)  # an array of bytes in C
    if found is None:
        raise SystemExit(f"no array in {name}")
    return bytes(int(word, 16) for word in re.findall(rb"0x[0-9a-fA-F]+", found[1]))


def _stored(git_dir: str, commit: str, name: str) -> str:
    command = ["git", "-C", git_dir, "ls-tree", "-r", "--name-only", commit]
    listed = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    found = [path for path in listed.splitlines() if path.endswith(name)]
    return min(found, key=len)


def facts(data: bytes) -> list[Any]:
    """Of a file: its subgraphs, each inputs, outputs, tensors and operators."""
    model = parse_model(data)
    return [_graph(model, graph) for graph in model.subgraphs]


def _graph(model: Any, graph: Any) -> dict[str, Any]:
    tensors = [_tensor(model, tensor) for tensor in graph.tensors]
    operators = [_operator(model, op) for op in graph.operators]
    for name, inputs, *_ in operators:
        roles = [inputs[at] for at in _SUMS.get(name, ()) if at < len(inputs)]
        if len(roles) == 3 and roles[2] >= 0 and all(tensors[at][3] for at in roles):
            tensors[roles[2]][3][2] = tensors[roles[0]][3][2] + tensors[roles[1]][3][2]
    return {
        "inputs": indices(graph.inputs),
        "outputs": indices(graph.outputs),
        "tensors": tensors,
        "operators": operators,
    }


def _tensor(model: Any, tensor: Any) -> list[Any]:
    """Type, shape, role, and of scales: count, axis, power of two, zero point; a short value."""
    shape, constant = dims(tensor), has_data(model, tensor)
    role = "constant" if constant else "variable" if tensor.isVariable else ""
    made = [type_names()[int(tensor.type)], shape, role, _scales(tensor)]
    if constant and made[0] in ("INT32", "INT64") and int(np.prod(shape)) <= _SHORT:
        raw = np.asarray(model.buffers[tensor.buffer].data, np.uint8).tobytes()
        if not made[3]:
            made.append(np.frombuffer(raw, "<i4" if made[0] == "INT32" else "<i8").tolist())
    return made


def _scales(tensor: Any) -> list[int]:
    kept = tensor.quantization
    if kept is None or kept.scale is None or not len(kept.scale):
        return []
    zeros = indices(kept.zeroPoint)
    power = round(float(np.log2(np.max(kept.scale))))
    return [len(kept.scale), int(kept.quantizedDimension), power, zeros[0] if zeros else 0]


def _operator(model: Any, op: Any) -> list[Any]:
    """Name, inputs, outputs; the class of its options, and those that are not the default."""
    made = [operator_name(model, op), indices(op.inputs), indices(op.outputs)]
    more: dict[str, Any] = {}
    if kept := indices(op.intermediates):
        more["intermediates"] = kept
    if op.builtinOptions is not None:
        kind = names_of("BuiltinOptions")[op.builtinOptionsType]
        plain = vars(getattr(classes(), f"{kind}T")())
        given = {key: _plain(value) for key, value in vars(op.builtinOptions).items()}
        more["options"] = kind
        more["fields"] = {key: v for key, v in given.items() if v != _plain(plain[key])}
    if raw := indices(op.customOptions):
        from flatbuffers import flexbuffers

        more["custom"] = flexbuffers.Loads(bytearray(raw))
    return [*made, more] if more else made


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


if __name__ == "__main__":
    main()
