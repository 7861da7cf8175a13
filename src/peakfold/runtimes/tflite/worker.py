"""The other side of `interpreter`: requests in a process that may die of them.

``python -m peakfold.runtimes.tflite.worker REQUEST.json`` reads requests, runs their
models and writes the answers beside it. Native code writes what it thinks to file descriptor 2,
so its report of allocations and its complaints are read from there.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_REPORT = re.compile(r"'?([A-Za-z][\w ]*?)'? used (\d+) bytes .*?requested (\d+) bytes for (\d+)")
_TOTALS = re.compile(r"Arena allocation (total|head|tail) (\d+) bytes")


@contextlib.contextmanager
def captured() -> Iterator[Callable[[], str]]:
    """Collect what native code writes to stderr; call the result for the text so far."""
    sys.stderr.flush()
    with tempfile.TemporaryFile() as sink:

        def text() -> str:
            sink.seek(0)
            return sink.read().decode("utf-8", "replace")

        saved = os.dup(2)
        os.dup2(sink.fileno(), 2)
        try:
            yield text
        finally:
            os.dup2(saved, 2)
            os.close(saved)


def parse_report(text: str) -> dict[str, Any]:
    """The interpreter's own account of its arena.

    Example:
        >>> parse_report("[R] Arena allocation head 32 bytes\\n[R] 'Persistent buffer data' used "
        ...              "264 bytes with alignment overhead (requested 232 bytes for 5 ...)")
        {'head': 32, 'used': {'Persistent buffer data': 264}}
    """
    found: dict[str, Any] = {key: int(value) for key, value in _TOTALS.findall(text)}
    found["used"] = {name.strip(): int(used) for name, used, _, _ in _REPORT.findall(text)}
    return found


def random_inputs(
    details: list[tuple[tuple[int, ...], np.dtype[Any]]], seed: int
) -> list[NDArray[Any]]:
    """Inputs that exercise every bit of small integers and ordinary values of floats.

    Args:
        details: shape and element type per input.
        seed: the same seed gives the same values in every process.
    """
    rng = np.random.default_rng(seed)
    made: list[NDArray[Any]] = []
    for shape, dtype in details:
        if dtype.kind in "iu":
            info = np.iinfo(dtype)
            low, high = max(info.min, -(2**15)), min(info.max, 2**15 - 1)
            made.append(rng.integers(low, high + 1, shape).astype(dtype))
        elif dtype.kind == "b":
            made.append(rng.integers(0, 2, shape).astype(dtype))
        else:
            made.append(rng.uniform(-1, 1, shape).astype(dtype))
    return made


def run_tflm(request: dict[str, Any]) -> dict[str, Any]:
    """Build the interpreter in an arena of given size; run it if asked.

    The answer holds the report after the last run; outputs go into ``request["outputs"]``.
    """
    from tflite_micro import runtime

    data = Path(request["model"]).read_bytes()
    made = runtime.Interpreter.from_bytes(data, arena_size=request["arena"])
    counts = request["inputs"], request["results"]
    details = [made.get_input_details(at) for at in range(counts[0])]
    shapes = [(tuple(d["shape"]), np.dtype(d["dtype"])) for d in details]
    outputs: dict[str, NDArray[Any]] = {}
    for run, seed in enumerate(request["seeds"]):
        for at, value in enumerate(random_inputs(shapes, seed)):
            made.set_input(value, at)
        made.invoke()
        for at in range(counts[1]):
            outputs[f"{run}/{at}"] = np.array(made.get_output(at))
    if request.get("outputs"):
        _save(request["outputs"], outputs)
    if not request["seeds"] and not request.get("build_only"):
        made.invoke()
    with captured() as said:
        made.print_allocations()
        return parse_report(said())


def run_litert(request: dict[str, Any]) -> dict[str, Any]:
    """Run LiteRT's own kernels; its arena is the span of its tensors' addresses."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    kernels = (
        OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        if request.get("builtin", True)
        else OpResolverType.AUTO
    )
    made = Interpreter(
        model_path=request["model"], experimental_op_resolver_type=kernels, num_threads=1
    )
    made.allocate_tensors()
    details = made.get_input_details()
    shapes = [(tuple(int(n) for n in d["shape"]), np.dtype(d["dtype"])) for d in details]
    outputs: dict[str, NDArray[Any]] = {}
    for run, seed in enumerate(request["seeds"]):
        for detail, value in zip(details, random_inputs(shapes, seed), strict=True):
            made.set_tensor(detail["index"], value)
        made.invoke()
        for at, detail in enumerate(made.get_output_details()):
            outputs[f"{run}/{at}"] = np.array(made.get_tensor(detail["index"]))
    if request.get("outputs"):
        _save(request["outputs"], outputs)
    return {"head": _span(made, request["dynamic"]), "used": {}}


def _span(made: Any, tensors: list[int]) -> int:
    """Bytes from the first to the last byte of the arena's tensors."""
    low, high = 2**63, 0
    for index in tensors:
        try:
            view = made.tensor(index)()
        except ValueError:
            continue  # a tensor that delegates or kernels never allocate
        if not isinstance(view, np.ndarray):
            continue  # a resource
        address = view.__array_interface__["data"][0]
        low, high = min(low, address), max(high, address + view.nbytes)
    return max(high - low, 0)


def _save(path: str, outputs: dict[str, NDArray[Any]]) -> None:
    keep: Any = np.savez  # its stubs take no names made at run time
    keep(path, **outputs)


RUNTIMES = {"tflm": run_tflm, "litert": run_litert}


def end_with_parent() -> None:
    """Watch stdin, a pipe that only the process which waits for us holds open."""

    def watch() -> None:
        os.read(0, 1)  # not sys.stdin: at its end Python waits a second for that one's lock
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main(path: str) -> None:
    """Answer a file of requests, one line of ``REQUEST.answer`` each, until one kills us."""
    with Path(f"{path}.answer").open("w", encoding="utf-8") as out:
        for request in json.loads(Path(path).read_text("utf-8")):
            out.write(json.dumps(_answer(request)) + "\n")
            out.flush()


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any]
    with captured() as said:
        try:
            answer = {**RUNTIMES[request["runtime"]](request), "ok": True}
        except ImportError as error:
            answer = {"ok": False, "missing": str(error)}
        except Exception as error:  # whatever an interpreter raises is its answer
            answer = {"ok": False, "error": f"{type(error).__name__}: {error}"}
        answer["log"] = said()[-4000:]
    return answer


if __name__ == "__main__":
    end_with_parent()
    main(sys.argv[1])
