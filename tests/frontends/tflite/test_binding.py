"""Open dimensions: the file's numbers, the user's numbers, and what follows from them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from peakfold.analysis import Index
from peakfold.errors import ModelError, UsageError
from peakfold.frontends import Bindings, load
from peakfold.frontends.tflite.file import read_tflite
from peakfold.frontends.tflite.names import names_of_model
from peakfold.judges.plan import verify_plan
from peakfold.ops import context, lookup
from peakfold.planning import make_plan
from peakfold.planning.options import PlanOptions
from tests.conftest import SHARED

from .tflite_models import Builder

TINY = SHARED / "data" / "mlperf_tiny"
MODELS = SHARED / "models" / "tflite"
SCRIPT = Path(__file__).with_name("litert_shapes.py")
BATCHED = [
    *(
        TINY / f"{n}.tflite"
        for n in (
            "ad01_fp32",
            "ad01_int8",
            "kws_ref_model",
            "kws_ref_model_float32",
            "pretrainedResnet",
            "pretrainedResnet_large_int8",
            "vww_96_float",
        )
    ),
    MODELS / "hello_world_float.tflite",
    MODELS / "hello_world_int8.tflite",
    MODELS / "basic_pitch_nmp.tflite",
]


@pytest.fixture(scope="module")
def resized(tmp_path_factory):
    """Shapes of all tensors as LiteRT finds them for a batch of three."""
    folder = tmp_path_factory.mktemp("resized")
    sizes = {}
    for path in BATCHED:
        (folder / path.name).symlink_to(path.resolve())
        sizes[path.stem] = dict(wanted(path))
    (folder / "sizes.json").write_text(json.dumps(sizes))
    run = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder)], capture_output=True, text=True, check=True
    )
    lines = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    return {line["file"]: line for line in lines if "start" not in line}


def wanted(path):
    graph = load(path).graph
    (name,) = graph.inputs
    yield name, [3, *graph[name].shape[1:]]


@pytest.mark.shared
@pytest.mark.parametrize("path", BATCHED, ids=lambda p: p.stem)
def test_shapes_follow_a_given_one_as_in_the_interpreter(path, resized):
    told = resized[path.stem]
    assert "error" not in told
    ((name, shape),) = wanted(path)
    found = load(path, Bindings.parse(shapes=[f"{name}={'x'.join(map(str, shape))}"]))
    graph, names = found.graph, names_of_model(read_tflite(path))
    compared = 0
    for op in graph.ops:
        for result in op.results:
            _, at = names.tensor_at[result]
            assert list(graph[result].shape) == told["tensors"][str(at)], result
            compared += 1
    assert compared == len(graph.ops)
    # Three times the work, and a plan that the judges accept.
    small = load(path).graph
    assert macs(graph) == 3 * macs(small)
    plan = make_plan(graph, PlanOptions(strategy="by-size"), bindings=found.bindings).plan
    assert all(check.ok for check in verify_plan(graph, plan))


def macs(graph):
    return sum(lookup(op.kind).macs(context(op, graph.by_name)) for op in graph.ops)


def pipeline(folder: Path) -> Path:
    """Two open dimensions, one of which reaches a WHERE, whose result only a run can size."""
    owner = Builder()
    main = owner.graph()
    x = main.input((1, 5), name="x", signature=(-1, -1))
    flags, places = (
        main.tensor((1, 5), "bool", "flags", signature=(-1, -1)),
        main.tensor((1, 2), "int64", "places", signature=(-1, 2)),
    )
    twice = main.tensor((1, 2), "int64", "twice", signature=(-1, 2))
    zero = main.constant(np.float32(0), "float32")
    main.op("GREATER", [x, zero], [flags])
    main.op("WHERE", [flags], [places])
    main.op("ADD", [places, places], [twice])
    main.outputs(twice)
    path = folder / "where.tflite"
    path.write_bytes(owner.data())
    return path


def test_a_size_only_the_run_knows_is_a_named_error_and_can_be_given(tmp_path):
    path = pipeline(tmp_path)
    with pytest.raises(ModelError, match="its shape is not known") as caught:
        Index.of(load(path).graph)
    assert "'places'" in str(caught.value)
    assert "--shape places=" in str(caught.value)
    graph = load(path, Bindings.parse(shapes=["places=7x2"])).graph
    assert graph["twice"].shape == (7, 2)
    assert graph["x"].shape == (1, 5)  # not open any more: the file's numbers


def test_a_dimension_has_a_name_of_its_own(tmp_path):
    path = pipeline(tmp_path)
    found = load(path, Bindings.parse(["x.1=9"], ["places=7x2"]))
    assert found.graph["flags"].shape == (1, 9)
    with pytest.raises(UsageError, match=r"no dimension of the model is called 'batch'") as caught:
        load(path, Bindings.parse(["batch=2"]))
    assert "x.0, x.1" in str(caught.value)
    with pytest.raises(UsageError, match="names no tensor of the model: 'y'"):
        load(path, Bindings.parse(shapes=["y=2"]))
    with pytest.raises(UsageError, match="has 1 dimensions, the model says 2"):
        load(path, Bindings.parse(shapes=["x=2"]))
    with pytest.raises(UsageError, match="'t4' follows from something else"):
        load(path, Bindings.parse(shapes=["t4="]))
    with pytest.raises(UsageError, match="no dimension of the model is called 'flags.1'"):
        load(path, Bindings.parse(["flags.1=9"]))
    with pytest.raises(UsageError, match="its op makes 1x5"):
        load(path, Bindings.parse(shapes=["flags=2x5"]))


def test_a_dimension_that_the_file_fixes_cannot_be_changed(tmp_path):
    owner = Builder()
    main = owner.graph()
    x, y = main.input((1, 5), name="x"), main.tensor((1, 5))
    main.op("NEG", [x], [y])
    main.outputs(y)
    path = tmp_path / "fixed.tflite"
    path.write_bytes(owner.data())
    with pytest.raises(UsageError, match="the model fixes 1, not 2"):
        load(path, Bindings.parse(shapes=["x=2x5"]))


def test_bodies_get_the_shapes_they_are_called_with(tmp_path):
    owner = Builder()
    main = owner.graph()
    x = main.input((1, 4), name="x", signature=(-1, 4))
    y = main.tensor((1, 4), name="y", signature=(-1, 4))
    main.op("CALL", [x], [y], "CallOptions", subgraph=1)
    main.outputs(y)
    body = owner.graph("body")
    inner = body.input((1, 4), signature=(-1, 4))
    result = body.tensor((1, 4), signature=(-1, 4))
    body.op("NEG", [inner], [result])
    body.outputs(result)
    path = tmp_path / "call.tflite"
    path.write_bytes(owner.data())
    graph = load(path, Bindings.parse(shapes=["x=6x4"])).graph
    inside = graph.ops[0].regions[0].graph
    assert graph["y"].shape == inside[inside.outputs[0]].shape == (6, 4)
    assert load(path).graph["y"].shape == (1, 4)


def test_a_size_inside_a_body_can_be_given(tmp_path):
    owner = Builder()
    main = owner.graph()
    x, y = main.input((4,), "bool", name="x"), main.tensor((1,), "int64", name="y")
    main.op("CALL", [x], [y], "CallOptions", subgraph=1)
    main.outputs(y)
    body = owner.graph("body")
    flags = body.input((4,), "bool")
    places = body.tensor((1, 1), "int64", "places", signature=(-1, 1))
    flat, minus = body.tensor((1,), "int64", "flat", signature=(-1,)), body.constant([-1], "int32")
    body.op("WHERE", [flags], [places])
    body.op("RESHAPE", [places, minus], [flat], "ReshapeOptions")
    body.outputs(flat)
    path = tmp_path / "body.tflite"
    path.write_bytes(owner.data())
    with pytest.raises(ModelError, match="its shape is not known") as caught:
        make_plan(load(path).graph)
    assert "--shape 1/places=" in str(caught.value)
    graph = load(path, Bindings.parse(shapes=["1/places=3x1"])).graph
    assert graph.ops[0].regions[0].graph["1/flat"].shape == graph["y"].shape == (3,)
    make_plan(graph)
