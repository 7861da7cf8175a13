"""Archives of exported programs, written by hand: honest ones and hostile ones."""

from __future__ import annotations

import copy
import json
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CANARY = "peakfold_ran_code_of_a_file"


class _Evil:
    def __reduce__(self):
        return exec, (f"open({CANARY!r}, 'w').close()",)


EVIL = pickle.dumps(_Evil(), protocol=2)
CODE = f"__import__('os').system('touch {CANARY}')"


def meta(*sizes: Any, dtype: int = 7) -> dict[str, Any]:
    """A contiguous tensor; a size that is a text is an expression."""
    strides, step = [], 1
    for size in reversed(sizes):
        strides.insert(0, step)
        step *= size if isinstance(size, int) else 1
    return {
        "dtype": dtype,
        "sizes": [_size(n) for n in sizes],
        "requires_grad": True,
        "device": {"type": "cpu", "index": None},
        "strides": [_size(n) for n in strides],
        "storage_offset": {"as_int": 0},
        "layout": 7,
    }


def _size(size: Any) -> dict[str, Any]:
    if isinstance(size, str):
        return {"as_expr": {"expr_str": size, "hint": {"as_int": 4}}}
    return {"as_int": size}


def tensor(name: str) -> dict[str, Any]:
    return {"as_tensor": {"name": name}}


def node(target: str, out: Any, **inputs: Any) -> dict[str, Any]:
    return {
        "target": target,
        "name": "op",
        "inputs": [{"name": key, "arg": value, "kind": 1} for key, value in inputs.items()],
        "outputs": out if isinstance(out, list) else [tensor(out)],
        "metadata": {"nn_module_stack": "L__self__,,M;L__self__act,act,torch.nn.ReLU"},
    }


def program() -> dict[str, Any]:
    """``relu(x * w)``, 2 x 8."""
    mul = node("torch.ops.aten.mul.Tensor", "mul", self=tensor("x"), other=tensor("p_w"))
    relu = node("torch.ops.aten.relu.default", "relu", self=tensor("mul"))
    values = {name: meta(2, 8) for name in ("x", "mul", "relu")} | {"p_w": meta(8)}
    graph = {
        "inputs": [tensor("p_w"), tensor("x")],
        "outputs": [tensor("relu")],
        "nodes": [mul | {"name": "mul"}, relu | {"name": "relu"}],
        "tensor_values": values,
        "sym_int_values": {},
        "sym_bool_values": {},
        "sym_float_values": {},
        "is_single_tensor_return": False,
        "custom_obj_values": {},
    }
    signature = {
        "input_specs": [
            {"parameter": {"arg": {"name": "p_w"}, "parameter_name": "w"}},
            {"user_input": {"arg": tensor("x")}},
        ],
        "output_specs": [{"user_output": {"arg": tensor("relu")}}],
    }
    spec = '[1, {"type": "builtins.tuple", "context": "null", "children_spec": []}]'
    calls = [
        {
            "fqn": "",
            "signature": {
                "inputs": [],
                "outputs": [],
                "in_spec": spec,
                "out_spec": spec,
                "forward_arg_names": ["x"],
            },
        }
    ]
    module = {
        "graph": graph,
        "signature": signature,
        "module_call_graph": calls,
        "metadata": {},
        "treespec_namedtuple_fields": {},
    }
    return {
        "graph_module": module,
        "opset_version": {"aten": 10},
        "range_constraints": {},
        "schema_version": {"major": 8, "minor": 20},
        "verifiers": ["TRAINING"],
        "torch_version": "2.13.0",
        "guards_code": [],
    }


def members(written: Mapping[str, Any] | None = None) -> dict[str, bytes]:
    """What `torch.export.save` writes."""
    payload = {
        "path_name": "weight_0",
        "is_param": True,
        "use_pickle": False,
        "tensor_meta": meta(8),
    }
    return {
        "data/weights/weight_0": bytes(32),
        "data/weights/model_weights_config.json": as_json({"config": {"w": payload}}),
        "data/constants/model_constants_config.json": as_json({"config": {}}),
        "models/model.json": as_json(program() if written is None else written),
        "data/sample_inputs/model.pt": b"",
        "archive_format": b"pt2",
        "archive_version": b"0",
        ".data/version": b"6\n",
        "byteorder": b"little",
        ".data/serialization_id": b"0" * 40,
    }


def as_json(what: Any) -> bytes:
    return what if isinstance(what, bytes) else json.dumps(what).encode()


def write(
    path: Path, parts: Mapping[str, bytes], *, root: str = "m/", compress: int = zipfile.ZIP_STORED
) -> Path:
    with zipfile.ZipFile(path, "w", compress) as archive:
        for name, content in parts.items():
            archive.writestr(f"{root}{name}", content)
    return path


def changed(keys: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """The program with one thing replaced."""
    made: Any = copy.deepcopy(program())
    at = made
    for key in keys[:-1]:
        at = at[key]
    at[keys[-1]] = value
    return made
