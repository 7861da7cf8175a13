"""The other side of `calls`: the interpreter started on files, every call to its allocator told.

``python -m tests.runtimes.tflite.oracle.trace LIBRARY REQUEST.json`` reads a list of
``[file, arena]`` and writes a line of ``REQUEST.json.answer`` for each: ``[[what, size, align],
...]``, or what went wrong. An arena of 0 bytes is a large one that is traced; others are only
tried.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

_ALLOCATOR = "6tflite5micro35RecordingSingleArenaBufferAllocator"
_PLAIN = "6tflite5micro26SingleArenaBufferAllocator"
_HOOKS = (
    (f"_ZN{_PLAIN}12AllocateTempEmm", 0),
    (f"_ZN{_ALLOCATOR}24AllocatePersistentBufferEmm", 1),
    (f"_ZThn8_N{_ALLOCATOR}24AllocatePersistentBufferEmm", 2),
    (f"_ZN{_ALLOCATOR}12ResizeBufferEPhmm", 3),
    (f"_ZN{_PLAIN}20ResetTempAllocationsEv", 4),
    (f"_ZN{_PLAIN}33ReserveNonPersistentOverlayMemoryEmm", 5),
)
_WORDS = 28
_ARENA = 1 << 26


class _Call(ctypes.Structure):
    _fields_ = (("what", ctypes.c_int64), ("size", ctypes.c_int64), ("align", ctypes.c_int64))


def hooked(library: str) -> Any:
    """The library, with the allocator's table leading to it.

    Raises:
        RuntimeError: this build of the interpreter has other tables.
    """
    import tflite_micro.python.tflite_micro._runtime as native

    path = os.path.realpath(native.__file__)
    base = next(
        int(line.split("-")[0], 16)
        for line in Path("/proc/self/maps").read_text().splitlines()
        if path in line
    )
    listed = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout
    symbols = {
        p[2]: base + int(p[0], 16) for p in map(str.split, listed.splitlines()) if len(p) == 3
    }
    found = ctypes.CDLL(library)
    found.hook.argtypes = [ctypes.c_uint64, ctypes.c_int, ctypes.c_uint64, ctypes.c_int]
    table = symbols.get(f"_ZTVN{_ALLOCATOR}E")
    for name, which in _HOOKS:
        if table is None or found.hook(table, _WORDS, symbols.get(name, 0), which) != 1:
            raise RuntimeError(f"no {name} in the interpreter's tables")
    return found


def main(library: str, request: str) -> None:
    """Answer a file of requests, until one of them kills the process."""
    from tflite_micro.python.tflite_micro import runtime

    calls = hooked(library)
    count = ctypes.c_int64.in_dll(calls, "count")
    recording = ctypes.c_int.in_dll(calls, "recording")
    listed = (_Call * 1_000_000).in_dll(calls, "calls")
    with Path(f"{request}.answer").open("w") as out:
        for path, arena in json.loads(Path(request).read_text()):
            count.value, recording.value = 0, int(not arena)
            answer: Any
            try:
                data = Path(path).read_bytes()
                runtime.Interpreter.from_bytes(data, arena_size=arena or _ARENA)
                answer = [[chr(one.what), one.size, one.align] for one in listed[: count.value]]
            except RuntimeError as error:
                answer = str(error).splitlines()[0]
            recording.value = 0
            out.write(json.dumps(answer) + "\n")
            out.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
