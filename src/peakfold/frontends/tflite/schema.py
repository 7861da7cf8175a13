"""The schema classes of the `tflite-micro` package, loaded without its native interpreter.

Importing `tflite_micro` starts the interpreter's library, which a reader of files never needs.
The generated module stands alone (it wants flatbuffers only), so it is loaded from its file.
"""

from __future__ import annotations

import importlib.util
from functools import lru_cache
from pathlib import Path
from typing import Any

from peakfold.errors import BackendMissing

_WITHIN = Path("tensorflow", "lite", "micro", "python", "schema_py_generated.py")
_HINT = "pip install 'peakfold[tflite]'"


@lru_cache(maxsize=1)
def schema() -> Any:
    """The generated module: enumerations, table readers and their object forms.

    Raises:
        BackendMissing: the optional packages are not installed.

    Example:
        >>> schema().BuiltinOperator.CONV_2D
        3
    """
    found = importlib.util.find_spec("tflite_micro")
    folders = [] if found is None else list(found.submodule_search_locations or ())
    path = next((p for p in (Path(f) / _WITHIN for f in folders) if p.is_file()), None)
    if path is None or importlib.util.find_spec("flatbuffers") is None:
        raise BackendMissing("reading .tflite needs the package tflite-micro", hint=_HINT)
    spec = importlib.util.spec_from_file_location("peakfold_tflite_schema", path)
    if spec is None or spec.loader is None:
        raise BackendMissing("the schema of tflite-micro cannot be loaded", hint=_HINT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@lru_cache(maxsize=8)
def names_of(enumeration: str) -> dict[int, str]:
    """Names of an enumeration's numbers.

    Args:
        enumeration: as the schema calls it.

    Example:
        >>> names_of("Padding")
        {0: 'SAME', 1: 'VALID'}
    """
    members = vars(getattr(schema(), enumeration))
    return {value: name for name, value in members.items() if isinstance(value, int)}
