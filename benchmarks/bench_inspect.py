"""How long `peakfold inspect` takes as a whole process, beside peers in the same run.

    python benchmarks/bench_inspect.py [--peers PYTHON] [--rounds N] [--json]

Two models are written to a temporary folder: ResNet-50 with its weights in a file beside it, and
10,000 ops in a chain. PYTHON is an interpreter of an environment that has onnx-tool, onnxsim and
onnx-opcounter (`pip install onnx-tool onnxsim onnx-opcounter`); what it lacks is left out. Every
tool runs `rounds` times, interleaved; the table has the smallest wall and CPU seconds, and their
ratio to a process that only imports onnx and infers the model's shapes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
import onnx
from onnx import TensorProto, helper

SHAPES = "import onnx, sys; onnx.shape_inference.infer_shapes_path(sys.argv[1], sys.argv[1] + '.s')"
PEERS = {
    "onnx-tool": "import onnx_tool, sys; onnx_tool.model_profile(sys.argv[1])",
    "onnxsim": "import onnx, sys, onnxsim; from onnxsim import model_info; "
    "print(model_info.ModelInfo(onnx.load(sys.argv[1])))",
    "onnx-opcounter": "import onnx, sys; from onnx_opcounter import calculate_macs; "
    "print(calculate_macs(onnx.load(sys.argv[1])))",
}


@dataclass(frozen=True, slots=True)
class Row:
    model: str
    tool: str
    wall_s: float
    cpu_s: float
    wall_ratio: float
    cpu_ratio: float


class Net:
    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.stored: list[TensorProto] = []
        self.rng = np.random.default_rng(0)

    def weight(self, *shape: int) -> str:
        name = f"w{len(self.stored)}"
        array = self.rng.standard_normal(shape, dtype=np.float32)
        self.stored.append(onnx.numpy_helper.from_array(array, name))
        return name

    def op(self, kind: str, *inputs: str, **attrs: object) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=f"/{name}/{kind}", **attrs))
        return name

    def conv(self, x: str, inputs: int, outputs: int, k: int, stride: int = 1) -> str:
        return self.op(
            "Conv",
            x,
            self.weight(outputs, inputs, k, k),
            self.weight(outputs),
            kernel_shape=[k, k],
            strides=[stride] * 2,
            pads=[k // 2] * 4,
        )

    def save(self, path: Path, shape: Sequence[int], output: str) -> None:
        graph = helper.make_graph(
            self.nodes,
            path.stem,
            [helper.make_tensor_value_info("x", 1, shape)],
            [helper.make_tensor_value_info(output, 1, None)],
            self.stored,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.save(model, path, save_as_external_data=True, location=f"{path.stem}.bin")


def resnet50(path: Path) -> None:
    net = Net()
    x = net.op("Relu", net.conv("x", 3, 64, 7, 2))
    x = net.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    inputs = 64
    for blocks, width, first in ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2)):
        for block in range(blocks):
            stride = first if block == 0 else 1
            y = net.op("Relu", net.conv(x, inputs, width, 1))
            y = net.op("Relu", net.conv(y, width, width, 3, stride))
            y = net.conv(y, width, 4 * width, 1)
            if block == 0:
                x = net.conv(x, inputs, 4 * width, 1, stride)
            x = net.op("Relu", net.op("Add", y, x))
            inputs = 4 * width
    x = net.op("Flatten", net.op("GlobalAveragePool", x))
    net.save(path, (1, 3, 224, 224), net.op("Gemm", x, net.weight(2048, 1000), net.weight(1000)))


def ten_thousand(path: Path) -> None:
    net, x = Net(), "x"
    for _ in range(3333):
        x = net.op("Add", net.op("Relu", net.conv(x, 8, 8, 3)), x)
    net.save(path, (1, 8, 16, 16), net.op("Relu", x))


def timed(command: list[str], env: dict[str, str] | None = None) -> tuple[float, float] | None:
    """Wall and CPU seconds of a process; `None` when it fails."""
    before, start = os.times(), perf_counter()
    done = subprocess.run(command, capture_output=True, env=env, check=False)
    wall, after = perf_counter() - start, os.times()
    if done.returncode:
        return None
    cpu = after.children_user + after.children_system
    return wall, cpu - before.children_user - before.children_system


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", help="interpreter of the environment with the peers")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows: list[Row] = []
    makers: dict[str, Callable[[Path], None]] = {"resnet50": resnet50, "10,000 ops": ten_thousand}
    with tempfile.TemporaryDirectory() as folder:
        for name, make in makers.items():
            path = Path(folder) / f"{make.__name__}.onnx"
            make(path)
            tools = {
                "import and infer shapes": [sys.executable, "-c", SHAPES, str(path)],
                "peakfold inspect": [sys.executable, "-m", "peakfold", "inspect", str(path)],
                "peakfold inspect --json": [
                    sys.executable,
                    "-m",
                    "peakfold",
                    "inspect",
                    str(path),
                    "--json",
                ],
            }
            if given.peers:
                tools |= {
                    tool: [given.peers, "-c", code, str(path)] for tool, code in PEERS.items()
                }
            rows += measure(name, tools, given.rounds)
    if given.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return
    print(f"{'model':12}{'tool':26}{'wall s':>8}{'cpu s':>8}{'wall':>8}{'cpu':>8}")
    for row in rows:
        print(
            f"{row.model:12}{row.tool:26}{row.wall_s:8.2f}{row.cpu_s:8.2f}"
            f"{row.wall_ratio:7.2f}x{row.cpu_ratio:7.2f}x"
        )


def measure(model: str, tools: dict[str, list[str]], rounds: int) -> list[Row]:
    best: dict[str, tuple[float, float]] = {}
    for _ in range(rounds):
        for tool, command in list(tools.items()):
            found = timed(command)
            if found is None:
                print(f"{model}: {tool} failed, left out", file=sys.stderr)
                del tools[tool]
                best.pop(tool, None)
                continue
            old = best.get(tool, found)
            best[tool] = min(old[0], found[0]), min(old[1], found[1])
    wall, cpu = next(iter(best.values()))
    return [Row(model, tool, w, c, w / wall, c / cpu) for tool, (w, c) in best.items()]


if __name__ == "__main__":
    main()
