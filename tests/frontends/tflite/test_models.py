"""Real `.tflite` files: they load, their figures are exact, their plans are sound."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

import pytest

from peakfold.analysis import static_bytes, unsupported
from peakfold.frontends import Loaded, load
from peakfold.ir import Graph, Role, walk_regions
from peakfold.judges.plan import verify_plan
from peakfold.ops import context, lookup
from peakfold.planning import make_plan
from peakfold.planning.options import PlanOptions
from peakfold.transform import replay
from tests.conftest import SHARED

pytestmark = pytest.mark.shared

MODELS = sorted((SHARED / "models" / "tflite").glob("*.tflite"))
TINY = sorted((SHARED / "data" / "mlperf_tiny").glob("*.tflite"))
STRANGERS = {"person_detect_vela": {"tflite.custom::ethos-u": 1}}


@cache
def loaded(path: Path) -> Loaded:
    return load(path)


def macs(graph: Graph) -> int:
    return sum(
        lookup(op.kind).macs(context(op, graph.by_name)) or 0 for op in graph.ops if not op.regions
    )


def test_the_files_are_here():
    assert len(MODELS) == 20
    assert len(TINY) == 7


@pytest.mark.parametrize("path", [*MODELS, *TINY], ids=lambda p: p.stem)
def test_every_model_loads_whole(path):
    graph = loaded(path).graph
    assert graph.source == "tflite"
    assert unsupported(graph) == STRANGERS.get(path.stem, {})
    for body in walk_regions(graph):
        assert all(tensor.shape is not None for tensor in body.tensors), path.stem
    # The file states every shape: the registry's rules must come to the same.
    assert not [note for note in graph.notes if "the file declares" in note]
    for op in graph.ops:
        rule = lookup(op.kind).shape
        told = (rule(context(op, graph.by_name)) if rule else None) or ()
        for name, found in zip(op.outputs, told, strict=False):
            assert found is None or found[1] == graph[name].shape, op


@pytest.mark.parametrize("path", [*MODELS, *TINY], ids=lambda p: p.stem)
def test_every_model_is_planned_and_the_judges_agree(path):
    found = loaded(path)
    options = PlanOptions(fold_weights=True, strategy="by-size")
    plan = make_plan(found.graph, options, bindings=found.bindings).plan
    checks = verify_plan(found.graph, plan)
    assert [check for check in checks if not check.ok] == []


@pytest.mark.req("R65", "R66")
@pytest.mark.parametrize("path", TINY, ids=lambda p: p.stem)
def test_costs_are_those_of_the_published_table(path):
    with (path.parent / "expected_costs.csv").open() as stream:
        rows = {row["file"]: row for row in csv.DictReader(stream)}
    expected, graph = rows[path.name], loaded(path).graph
    assert macs(graph) == int(expected["macs"])
    kinds = {
        "conv_2d": "macs_conv",
        "depthwise_conv_2d": "macs_depthwise",
        "fully_connected": "macs_fc",
    }
    for kind, column in kinds.items():
        part = [op for op in graph.ops if op.kind == kind]
        counted = sum(lookup(kind).macs(context(op, graph.by_name)) for op in part)
        assert counted == int(expected[column])
    assert static_bytes(graph)[Role.PARAMETER] == int(expected["constant_bytes"])
    made = [graph[name] for op in graph.ops for name in op.results]
    assert sum(t.nbytes for t in made) == int(expected["activation_bytes"])
    assert sum(t.elements for t in made) == int(expected["activation_elements"])


def named(stem: str) -> Graph:
    return loaded(SHARED / "models" / "tflite" / f"{stem}.tflite").graph


def test_the_quantised_mobilenet_has_the_multiplications_of_the_paper():
    assert macs(named("mobilenet_v2_quantized_1x3x224x224")) == 300_774_272


def test_float16_weights_are_counted_as_stored_and_doubled_when_folded():
    graph = named("face_detection_short_range")
    stored = static_bytes(replay(graph, ["fold"]))[Role.PARAMETER]
    whole = replay(graph, ["fold-weights"])
    half = [op for op in graph.ops if op.kind == "dequantize"]
    assert len(half) == 74
    saved = sum(graph[op.inputs[0]].nbytes for op in half)
    assert static_bytes(whole)[Role.PARAMETER] == stored + saved
    assert len(whole.ops) == len(graph.ops) - 74


def test_sparse_weights_are_counted_as_stored_and_dense_when_folded():
    graph = named("face_detection_full_range_sparse")
    packed = [op for op in graph.ops if op.kind == "densify"]
    assert len(packed) == 46
    for op in packed:
        source, result = graph[op.inputs[0]], graph[op.outputs[0]]
        dense = result.elements * 2
        # Fewer bytes than dense, indices included, and room for the values that are not zero.
        assert source.dtype.name == "float16"
        assert 0 < source.nbytes < dense
    assert any("sparse" in note for note in graph.notes)
    whole = replay(graph, ["fold-weights"])
    assert not [op for op in whole.ops if op.kind in ("densify", "dequantize")]


@pytest.mark.req("R12")
@pytest.mark.parametrize("stem", ["mww_alexa", "mww_hey_jarvis", "mww_hey_mycroft"])
def test_variables_are_state_counted_once_and_effects_keep_their_order(stem):
    graph = named(stem)
    state = [t for t in graph.tensors if t.role is Role.STATE]
    assert len(state) == 6
    first = graph.ops[0]
    assert first.kind == "call_once"
    body = first.regions[0].graph
    assert {op.kind for op in body.ops} == {"var_handle", "assign_variable"}
    written = {name for op in body.ops for name in op.writes}
    assert written == {t.name for t in state}
    # Each variable is as large as the value that starts it, and is counted once.
    starts = {op.writes[0]: body[op.inputs[1]].nbytes for op in body.ops if op.writes}
    assert {t.name: t.nbytes for t in state} == starts
    assert static_bytes(graph)[Role.STATE] == sum(starts.values())
    reads = [op for op in graph.ops if op.kind == "read_variable"]
    assert sorted(op.reads[0] for op in reads) == sorted(starts)


@pytest.mark.req("R12")
@pytest.mark.parametrize(
    ("stem", "count", "kind"),
    [
        ("keyword_scrambled_8bit", 7, "svdf"),
        ("dtln_noise_suppression", 4, "unidirectional_sequence_lstm"),
        ("trained_lstm_int8", 2, "unidirectional_sequence_lstm"),
    ],
)
def test_variable_tensors_are_state_that_their_op_reads_and_writes(stem, count, kind):
    graph = named(stem)
    state = {t.name for t in graph.tensors if t.role is Role.STATE}
    assert len(state) == count
    touching = [op for op in graph.ops if op.writes]
    assert {op.kind for op in touching} == {kind}
    assert {name for op in touching for name in op.writes} == state
    assert all(op.reads == op.writes for op in touching)
