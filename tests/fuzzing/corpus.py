"""The files that the readers' fuzzer starts from: small, made by our own code or beside us.

The same checkout, libraries and shared files give the same corpus, in the same order.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from peakfold.errors import PeakfoldError
from peakfold.frontends import load
from peakfold.ir import print_graph
from peakfold.planning import make_plan
from peakfold.planning.plan import encode_plan

from .graphs import OPTION_SETS, options_for, random_graph

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared"
SMALL = 60_000
"""Bytes of the largest file: the fuzzer spends its time on structure, not on weights."""


@dataclass(frozen=True, slots=True)
class Seed:
    """A file to break.

    Attributes:
        beside: files that a command needs beside it, by name.
        numbers: options that bind its dimensions.
    """

    name: str
    data: bytes
    beside: tuple[tuple[str, bytes], ...] = ()
    numbers: tuple[str, ...] = ()


def _files(*found: Path) -> tuple[Seed, ...]:
    return tuple(Seed(p.name, p.read_bytes()) for p in sorted(found) if p.stat().st_size < SMALL)


@cache
def onnx() -> tuple[Seed, ...]:
    """The onnx package's own cases, where they are installed, and small networks."""
    import onnx as package

    cases = Path(package.__file__).parent / "backend" / "test" / "data"
    shared = SHARED / "models" / "onnx"
    return _files(*cases.rglob("*.onnx"), *shared.glob("*.onnx")) or _made_onnx()


def _made_onnx() -> tuple[Seed, ...]:
    from onnx import parser

    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[N,4] x) => (float[N,2] z) <float[4,2] w = {1,2,3,4,5,6,7,8}> {
      y = MatMul(x, w) r = Relu(y) z = Add(r, y) }"""
    return (
        Seed("made.onnx", parser.parse_model(text).SerializeToString(), numbers=("--dim", "N=2")),
    )


@cache
def tflite() -> tuple[Seed, ...]:
    """Models that tests build, a bundled one, and small shared ones."""
    from tests.runtimes.tflite.test_allocator import branching, random_model

    made = [Seed(f"random-{n}.tflite", random_model(n).bytes()) for n in range(3)]
    made += [Seed(f"{kind}.tflite", branching(kind).bytes()) for kind in ("IF", "WHILE")]
    shared = [
        *(SHARED / "models" / "tflite").glob("*.tflite"),
        *(SHARED / "data" / "mlperf_tiny").glob("*.tflite"),
    ]
    return (*made, *_files(*shared))


@cache
def text() -> tuple[Seed, ...]:
    """Random graphs, an example, and one line of every kind."""
    made = [
        Seed(f"random-{n}.pf", print_graph(random_graph(random.Random(n))).encode())
        for n in range(12)
    ]
    return (
        *made,
        *_files(*(ROOT / "docs" / "examples").glob("*.pf")),
        Seed("all.pf", _ALL, numbers=("--dim", "batch=2")),
    )


_ALL = b"""peakfold-graph 1
name "all"
# a comment
note "one"
input x: float32[batch,8]
input c: bool[]
parameter w: float32[8,4] trainable
constant k: int64[2]
state v: float32[4]
optimizer_state m: float32[4]
h: float32[batch,4] = matmul(x, w)
s: opaque?(16B) = opaque(h, _) workspace=1024
"a b": float32[batch,4] = relu(h) name="act" scope="block.1"
i: float32[batch,4] = opaque("a b") inplace=[0] reads=[v]
o: float32[batch,4] = opaque(i) overlap=["0-16"] writes=[v]
p: float32[4] = opaque(o) views=["0<0+0"]
y: float32[batch,4] = if(c) begin
  region "then" captures=[o]
    input o: float32[batch,4]
    t: float32[batch,4] = relu(o)
    output t
  end
  region "else" captures=[o]
    input o: float32[batch,4]
    e: float32[batch,4] = neg(o)
    output e
  end
end
dh: gradient float32[4] = opaque(p)
output y, dh
"""


@cache
def csv() -> tuple[Seed, ...]:
    """Random packing problems, with and without the optional columns; small published ones."""
    made = []
    for number in range(6):
        rng = random.Random(number)
        rows = ["id,lower,upper,size" + (",alignment,gaps,offset" if number % 2 else "")]
        for at in range(rng.randint(2, 30)):
            low = rng.randint(0, 20)
            high = low + rng.randint(1, 9)
            row = f"b{at},{low},{high},{rng.randint(1, 99)}"
            gap = f"{low}-{low + 1}" if rng.random() < 0.3 and high - low > 1 else ""
            more = f",{rng.choice([1, 2, 4])},{gap}," if number % 2 else ""
            rows.append(row + more)
        made.append(Seed(f"random-{number}.csv", ("\n".join(rows) + "\n").encode()))
    return (*made, *_files(*(SHARED / "data" / "minimalloc" / "examples").glob("*.csv")))


def _model() -> tuple[str, bytes]:
    path = ROOT / "src" / "peakfold" / "data" / "models" / "two_branches.pf"
    return "model.pf", path.read_bytes()


@cache
def plans() -> tuple[Seed, ...]:
    """Plans of random graphs under every option set, each with its model."""
    made = []
    for number, chosen in enumerate(OPTION_SETS):
        rng = random.Random(number)
        graph = random_graph(rng)
        try:
            plan = make_plan(graph, options_for(graph, rng, chosen)).plan
        except PeakfoldError:
            continue
        model = ("model.pf", print_graph(graph).encode())
        made.append(Seed(f"{number}.plan.json", encode_plan(plan), (model,)))
    return tuple(made)


@cache
def devices() -> tuple[Seed, ...]:
    """The presets that are bundled."""
    found = sorted((ROOT / "src" / "peakfold" / "device").glob("*.toml"))
    return tuple(Seed(p.name, p.read_bytes(), (_model(),)) for p in found[::4])


@cache
def profiles() -> tuple[Seed, ...]:
    """Profiles of the example model."""
    graph = load(ROOT / "src" / "peakfold" / "data" / "models" / "two_branches.pf").graph
    made = []
    for number in range(3):
        rows = [
            {"op": op.name, "operator": op.kind, "scratch_bytes": size}
            for op, size in zip(graph.ops, [0, 16, None] * 99, strict=False)
        ]
        record = {
            "schema": "peakfold.profile/1",
            "target": "generic",
            "runtime": "r",
            "model": "m",
            "ops": rows[: 1 + number * 4],
        }
        made.append(Seed(f"{number}.profile.json", json.dumps(record).encode(), (_model(),)))
    return tuple(made)


@cache
def programs() -> tuple[Seed, ...]:
    """`.pt2` files of a few small modules; none where PyTorch is not installed."""
    try:
        import torch
    except ImportError:
        return ()
    import io
    import warnings

    nn = torch.nn
    batch = torch.export.Dim("batch", min=2, max=64)
    cases = (
        (nn.ReLU(), (torch.zeros(2),), None),
        (
            nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten()),
            (torch.zeros(4, 1, 5, 5),),
            ({0: batch},),
        ),
        (nn.MultiheadAttention(8, 2, batch_first=True), (torch.zeros(1, 3, 8),) * 3, None),
    )
    made = []
    for number, (module, args, dims) in enumerate(cases):
        out = io.BytesIO()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.manual_seed(0)
            program = torch.export.export(module.eval(), args, dynamic_shapes=dims)
            torch.export.save(program, out)
        numbers = () if dims is None else ("--shape", "input=4x1x5x5")
        made.append(Seed(f"{number}.pt2", out.getvalue(), numbers=numbers))
    return tuple(made)
