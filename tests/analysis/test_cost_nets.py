"""Whole networks: parameters and MACs, to the unit, against published and recomputed figures."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from peakfold.analysis import cost_of
from peakfold.frontends import load
from peakfold.ir import Graph
from peakfold.transform import Fold
from tests.analysis import nets

NETS = {
    "vgg16": (lambda: nets.vgg((2, 2, 3, 3, 3)), 138_357_544, 15_470_264_320),
    "vgg11": (lambda: nets.vgg((1, 1, 2, 2, 2)), 132_863_336, 7_609_090_048),
    "alexnet": (nets.alexnet, 61_100_840, 714_188_480),
    "resnet50": (nets.resnet50, 25_557_032, 4_089_184_256),
    "mobilenet_v2": (nets.mobilenet_v2, 3_504_872, 300_774_272),
    "mobilenet_v1": (nets.mobilenet_v1, 4_231_976, 568_740_352),
    "vit_b_16": (nets.vit_b_16, 86_567_656, 17_563_828_224),
    "bert_base": (nets.bert_base, 109_482_240, 11_174_215_680),
    "gpt2": (nets.gpt2, 124_439_808, 16_114_089_984),
    "llama_tiny": (nets.llama_tiny, 12_300_800, 770_965_504),
}


def counted(graph: Graph):
    return cost_of(Fold()(graph), original=graph)


@pytest.mark.req("R66", "R65", "R70")
@pytest.mark.parametrize("name", NETS)
def test_parameters_and_macs_of_whole_networks(name):
    make, params, macs = NETS[name]
    found = counted(make())
    assert found.unsupported() == {}
    f = found.total().figures
    assert (f.params, f.macs) == (params, macs)
    assert found.total().lower_bounds == ()
    by_kind = found.by_kind()
    assert sum(t.figures.flops for t in by_kind.values()) == f.flops
    assert sum(t.figures.params for t in by_kind.values()) == f.params


@pytest.mark.req("R67", "R69")
def test_a_batch_multiplies_everything_but_the_weights():
    one, four = (counted(nets.resnet50(batch)).total().figures for batch in (1, 4))
    assert four.macs == 4 * one.macs
    assert four.params == one.params
    weights = 4 * (one.params + 2 * 26_560)  # BatchNorm moments are read as well
    assert four.bytes_moved - weights == 4 * (one.bytes_moved - weights)


@pytest.mark.req("R67", "R79")
def test_memory_access_against_what_another_counter_measures():
    # onnxsim 0.8.1 on this network: it takes the flatten for a copy, which reads and writes
    # 2,048 elements.
    f = counted(nets.resnet50_folded()).total().figures
    assert f.macs == 4_089_184_256
    assert f.bytes_moved == 336_781_632 - 2 * 4 * 2048
    # Its 24.28 FLOPs a byte leave out what is no multiply-accumulate.
    assert 2 * f.macs / 336_781_632 == pytest.approx(24.28389120698839)


@pytest.mark.shared
@pytest.mark.req("R66", "R65")
def test_resnet50_from_an_onnx_file(onnx_models):
    (path,) = [p for p in onnx_models if p.stem == "light_resnet50"]
    f = counted(load(path).graph).total().figures
    assert (f.params, f.macs) == (25_557_032, 4_089_184_256)
    (path,) = [p for p in onnx_models if p.stem == "light_densenet121"]
    assert counted(load(path).graph).total().figures.macs == 2_834_161_664
    # Zeros that a file makes to pad channels with are stored then, but no weights.
    (path,) = [p for p in onnx_models if p.stem == "blazeface_back_256"]
    found = counted(load(path).graph)
    assert (found.total().figures.params, found.statistics) == (
        134_704,
        24 * 32 * 32 + 48 * 16 * 16 + 12,
    )


@pytest.mark.shared
@pytest.mark.req("R65", "R66", "R67")
def test_mlperf_tiny_against_a_reader_of_the_flatbuffer(shared: Path):
    folder = shared / "data" / "mlperf_tiny"
    with (folder / "expected_costs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) > 5
    for row in rows:
        graph = load(folder / row["file"]).graph
        found = cost_of(graph)
        f = found.total().figures
        assert f.macs == int(row["macs"]), row["file"]
        assert f.params + found.statistics == int(row["constant_elements"])
        assert sum(found.param_bytes.values()) == int(row["constant_bytes"])
        assert f.elements == int(row["activation_elements"])
        assert f.output_bytes == int(row["activation_bytes"])
        # That table counts views as moves, and the operands that state a shape as reads.
        views = [op for op in graph.ops if op.kind in ("reshape", "squeeze", "expand_dims")]
        names = [name for op in views for name in (*op.operands, *op.results)]
        shapes = sum(graph[name].nbytes for name in names)
        assert f.bytes_moved + shapes == int(row["traffic_bytes_read_once_write_once"])


@pytest.mark.shared
@pytest.mark.req("R65")
def test_every_shared_model_is_counted_and_what_is_not_known_is_named(shared: Path):
    folder = shared / "models"
    paths = [*(folder / "onnx").glob("*.onnx"), *(folder / "tflite").glob("*.tflite")]
    assert len(paths) > 30
    for path in sorted(paths):
        graph = load(path).graph
        found = counted(graph)
        total = found.total()
        unknown = {name for name in total.lower_bounds if name != "params"}
        assert bool(unknown) == bool(found.unsupported() or found.open_loops), path.name
