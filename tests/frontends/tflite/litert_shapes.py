"""Run models in LiteRT and say what shapes come out: ``python litert_shapes.py FOLDER``.

A file ``sizes.json`` in the folder gives inputs other sizes: file stem -> input -> shape. Beside
a model, ``STEM.npz`` gives the values of its inputs; its results are then put into
``STEM.out.npz``.

A process of its own, because a kernel that dislikes its model may end it. One JSON line a file.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np


def run(path: Path, sizes: dict[str, list[int]]) -> dict[str, object]:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    kernels = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(str(path), experimental_op_resolver_type=kernels, num_threads=1)
    for detail in interpreter.get_input_details():
        if detail["name"] in sizes:
            interpreter.resize_tensor_input(detail["index"], sizes[detail["name"]])
    interpreter.allocate_tensors()
    values = path.with_suffix(".npz")
    given = np.load(values) if values.is_file() else {}
    for detail in interpreter.get_input_details():
        ones = np.ones(detail["shape"], detail["dtype"])
        interpreter.set_tensor(detail["index"], given.get(detail["name"], ones))
    interpreter.invoke()
    found = interpreter.get_output_details()
    if given:
        results = [interpreter.get_tensor(d["index"]) for d in found]
        np.savez(path.with_suffix(".out.npz"), *results)
    return {
        "shapes": [list(interpreter.get_tensor(d["index"]).shape) for d in found],
        "tensors": {d["index"]: d["shape"].tolist() for d in interpreter.get_tensor_details()},
    }


def main() -> None:
    folder = Path(sys.argv[1])
    sizes = folder / "sizes.json"
    wanted = json.loads(sizes.read_text()) if sizes.is_file() else {}
    for path in sorted(folder.glob("*.tflite")):
        print(json.dumps({"file": path.stem, "start": True}), flush=True)
        try:
            told = run(path, wanted.get(path.stem, {}))
        except (ValueError, RuntimeError) as error:
            told = {"error": str(error)[:300]}
        print(json.dumps({"file": path.stem, **told}), flush=True)


if __name__ == "__main__":
    main()
