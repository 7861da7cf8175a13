"""Every builtin operator has a kind, every element type a width, every table of the walk a twin."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys

import pytest

from peakfold.errors import BackendMissing
from peakfold.frontends.tflite import schema as tflite_schema
from peakfold.frontends.tflite.schema import names_of, schema
from peakfold.frontends.tflite.types import dtype_of
from peakfold.frontends.tflite.walk import TABLES
from peakfold.ops import VALUE_INPUTS, lookup
from peakfold.ops.tflite.names import BUILTIN_KINDS, CUSTOM_KINDS, tflite_kind

# Nothing executes these: they are answered like strangers, and counted.
PLACEHOLDERS = {"CUSTOM", "DELEGATE", "PLACEHOLDER_FOR_GREATER_OP_CODES", "STABLEHLO_CUSTOM_CALL"}


def test_every_builtin_operator_of_the_schema_has_a_kind_with_a_row():
    operators = set(names_of("BuiltinOperator").values())
    assert len(operators) > 200
    assert operators == set(BUILTIN_KINDS)
    without = {name for name in operators if not lookup(tflite_kind(name)).known}
    assert without == PLACEHOLDERS
    assert all(lookup(kind).known for kind in CUSTOM_KINDS.values())


def test_a_strange_custom_operator_is_a_stranger():
    spec = lookup(tflite_kind("CUSTOM", "MyOp"))
    assert spec.kind == "tflite.custom::MyOp"
    assert not spec.known
    assert not spec.pure


def test_every_element_type_of_the_schema_is_known():
    types = names_of("TensorType")
    assert len(types) > 20
    named = {name.lower(): dtype_of(code).name for code, name in types.items()}
    differ = {k: v for k, v in named.items() if k != v}
    assert differ == {"float8_e4m3fn": "float8e4m3fn", "float8_e5m2": "float8e5m2"}


def test_operands_that_decide_shapes_belong_to_known_kinds():
    assert all(lookup(kind).known for kind in VALUE_INPUTS)


def fields_of(reader) -> dict[int, str]:
    """Vectors, strings, tables and unions that a generated reader follows, by field number."""
    found: dict[int, str] = {}
    for name, method in vars(reader).items():
        if name.endswith(("AsNumpy", "Length", "IsNone")) or not inspect.isfunction(method):
            continue
        source = inspect.getsource(method)
        offset = re.search(r"_tab\.Offset\((\d+)\)", source)
        if offset is None:
            continue
        slot = (int(offset[1]) - 4) // 2
        if "_tab.Vector(o)" in source:
            inner = re.search(r"obj = (\w+)\(\)", source)
            width = re.search(r"number_types\.(?:Bool|\D+?)(\d*)Flags, a", source)
            found[slot] = f"V:{inner[1]}" if inner else f"v{int(width[1] or 8) // 8}"
        elif "_tab.String(o" in source:
            found[slot] = "s"
        elif "_tab.Union(obj" in source:
            found[slot] = "U"
        elif "_tab.Indirect(o" in source:
            found[slot] = "T:" + re.search(r"obj = (\w+)\(\)", source)[1]
    return found


def test_the_walk_checks_every_offset_that_a_generated_reader_follows():
    readers = {n: c for n, c in vars(schema()).items() if hasattr(c, "GetRootAs")}
    assert len(readers) > 150
    for name, reader in readers.items():
        ours = {at: "U" if w.startswith("U:") else w for at, w in TABLES.get(name, {}).items()}
        assert ours == fields_of(reader), name
    assert set(TABLES) <= set(readers)


def test_without_the_package_the_error_names_the_extra(monkeypatch):
    schema.cache_clear()
    monkeypatch.setattr(tflite_schema.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(BackendMissing, match=r"pip install 'peakfold\[tflite\]'"):
        schema()
    monkeypatch.undo()
    schema.cache_clear()
    assert schema().BuiltinOperator.ADD == 0


def test_reading_a_model_loads_no_interpreter():
    code = (
        "import sys; from peakfold.frontends.tflite.schema import schema; schema(); "
        "print(any('_runtime' in m or m == 'tflite_micro' for m in sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
