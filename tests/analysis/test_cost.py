"""Costs of small graphs whose every figure follows from the definitions."""

from __future__ import annotations

import pytest

from peakfold.analysis import CostOptions, cost_of
from peakfold.errors import UsageError
from peakfold.ir import parse_graph
from peakfold.ops import REGISTRY, register
from peakfold.transform import Fold

HEAD = "peakfold-graph 1\n"
CONV = (
    HEAD
    + """input x: float32[1,64,56,56]
parameter w: float32[128,{per_group},{k},{k}]
y: float32[1,128,56,56] = conv(x, w, group={group}, pads=[{p},{p},{p},{p}])
output y"""
)


def figures(text: str, **options):
    return cost_of(parse_graph(text), CostOptions(**options)).total().figures


@pytest.mark.req("R70", "R79", "R67")
@pytest.mark.parametrize(
    ("group", "k", "params", "macs"),
    [(1, 3, 73_728, 231_211_008), (4, 3, 18_432, 57_802_752), (1, 1, 8_192, 25_690_112)],
)
def test_the_layers_of_the_second_lecture(group, k, params, macs):
    text = CONV.format(per_group=64 // group, k=k, group=group, p=k // 2)
    found = figures(text)
    assert (found.params, found.macs, found.flops) == (params, macs, 2 * macs)
    assert found.bytes_moved == 4 * (64 * 56 * 56 + 128 * 56 * 56 + params)
    if (group, k) == (1, 3):
        assert found.bytes_moved == 2_703_360
        assert found.intensity == pytest.approx(171.05, abs=0.005)


@pytest.mark.req("R70", "R79")
def test_depthwise_and_fully_connected_layers_of_the_second_lecture():
    text = HEAD + (
        "input x: float32[1,64,56,56]\nparameter w: float32[64,1,3,3]\n"
        "y: float32[1,64,56,56] = conv(x, w, group=64, pads=[1,1,1,1])\noutput y"
    )
    found = cost_of(parse_graph(text))
    f = found.total().figures
    assert (f.params, f.macs, f.flops, f.bytes_moved) == (576, 1_806_336, 3_612_672, 1_607_936)
    assert f.intensity == pytest.approx(2.247, abs=0.0005)
    assert found.ops[0].engine == "vector"  # one channel a filter: no work for a matrix engine
    text = HEAD + (
        "input x: float32[1,4096]\nparameter w: float32[4096,1000]\n"
        "y: float32[1,1000] = matmul(x, w)\noutput y"
    )
    f = figures(text)
    assert (f.params, f.flops, f.bytes_moved) == (4_096_000, 8_192_000, 16_404_384)
    assert f.intensity == pytest.approx(0.499, abs=0.0005)


@pytest.mark.req("R67")
def test_views_move_nothing_and_copies_do():
    def moved(line: str) -> int | None:
        return figures(f"{HEAD}input x: float32[4,6]\n{line}\noutput y").bytes_moved

    assert moved("y: float32[24] = reshape(x, shape=[24])") == 0
    assert moved("y: float32[6,4] = transpose(x, perm=[1,0])") == 2 * 96
    assert moved("y: float32[2,6] = slice(x, starts=[1], ends=[3], axes=[0])") == 0
    assert moved("y: float32[4,2] = slice(x, starts=[1], ends=[3], axes=[1])") == 2 * 32
    assert moved("y: float32[8,6] = concat(x, x, axis=0)") == 96 + 192
    assert moved("y: float32[4,6] = mul(x, x)") == 96 + 96  # one operand read once


@pytest.mark.req("R67")
def test_gather_and_scatter_touch_rows_only():
    gather = HEAD + (
        "input ids: int64[2,3]\nparameter table: float32[1000,8]\n"
        "y: float32[2,3,8] = gather(table, ids)\noutput y"
    )
    f = figures(gather)
    assert (f.read, f.written, f.params, f.macs) == (48 + 6 * 32, 6 * 32, 8000, 0)
    scatter = HEAD + (
        "input x: float32[100,8]\ninput i: int64[2,1]\ninput u: float32[2,8]\n"
        "h: float32[100,8] = relu(x)\ny: float32[100,8] = scatter_nd(h, i, u)\noutput y"
    )
    at_h = cost_of(parse_graph(scatter)).ops[1].figures
    assert (at_h.read, at_h.written) == (16 + 64, 64)
    # Over a graph's input nothing may be written: the kernel copies all of it first.
    copied = scatter.replace("h: float32[100,8] = relu(x)\n", "").replace("(h,", "(x,")
    f = figures(copied)
    assert (f.read, f.written) == (3200 + 16 + 64, 3200)


@pytest.mark.req("R66")
def test_a_weight_that_several_ops_read_counts_once_and_statistics_not_at_all():
    shared = HEAD + (
        "input x: float32[4,4]\nparameter w: float32[4,4]\n"
        "a: float32[4,4] = matmul(x, w)\nb: float32[4,4] = matmul(a, w)\n"
        "y: float32[4,4] = matmul(b, w)\noutput y"
    )
    found = cost_of(parse_graph(shared))
    assert [op.figures.params for op in found.ops] == [16, 0, 0]
    assert found.param_bytes == {"float32": 64}
    normal = HEAD + (
        "input x: float32[1,3,4,4]\nparameter g: float32[3]\nparameter b: float32[3]\n"
        "parameter m: float32[3]\nparameter v: float32[3]\n"
        "y: float32[1,3,4,4] = batch_normalization(x, g, b, m, v)\noutput y"
    )
    found = cost_of(parse_graph(normal))
    assert (found.total().figures.params, found.statistics) == (6, 6)


@pytest.mark.req("R66")
def test_folding_a_tied_embedding_does_not_count_it_twice():
    tied = HEAD + (
        "input ids: int64[1,5]\nparameter table: float32[1000,8]\n"
        "h: float32[1,5,8] = gather(table, ids)\n"
        "t: float32[8,1000] = transpose(table, perm=[1,0])\n"
        "y: float32[1,5,1000] = matmul(h, t)\noutput y"
    )
    graph = parse_graph(tied)
    folded = Fold()(graph)
    assert [op.kind for op in folded.ops] == ["gather", "matmul"]
    assert cost_of(folded, original=graph).total().figures.params == 8000
    assert sum(t.elements or 0 for t in folded.tensors if t.role.static) == 16000


@pytest.mark.req("R66", "R20")
def test_bytes_by_stored_type_pack_sub_byte_elements():
    text = HEAD + (
        "input x: float32[2,4]\nparameter w: int4[3,3]\nparameter b: float16[4]\n"
        "y: float32[2,4] = opaque(x, w, b)\noutput y"
    )
    assert cost_of(parse_graph(text)).param_bytes == {"float16": 8, "int4": 5}


def test_nothing_unknown_is_taken_as_zero():
    text = HEAD + (
        "input x: float32[2,3]\nparameter w: float32[3,3]\n"
        "a: float32[2,3] = matmul(x, w)\ny: float32[2,3] = warp(a)\noutput y"
    )
    found = cost_of(parse_graph(text))
    total = found.total()
    assert found.unsupported() == {"warp": 1}
    assert total.figures.macs == 18
    assert set(total.lower_bounds) == {"macs", "other_ops"}
    assert found.ops[1].macs is None
    assert found.ops[1].flops is None
    alone = cost_of(parse_graph(HEAD + "input x: int8[4]\ny: int8[4] = warp(x)\noutput y"))
    assert alone.total().figures.macs is None
    open_dim = HEAD + "input x: float32[n,3]\ny: float32[n,3] = relu(x)\noutput y"
    found = cost_of(parse_graph(open_dim))
    assert found.total().figures.bytes_moved is None
    assert found.unsupported() == {"relu": 1}


@pytest.mark.req("R67", "R69")
def test_the_batch_is_the_leading_dimension_or_what_is_given():
    text = HEAD + "input x: float32[8,3]\ny: float32[8,3] = relu(x)\noutput y"
    found = cost_of(parse_graph(text))
    assert (found.batch, found.batch_from) == (8, "leading dimension of input 'x'")
    assert found.per_sample(found.total().figures.bytes_moved) == 2 * 12
    assert cost_of(parse_graph(text), CostOptions(batch=2)).batch == 2
    with pytest.raises(UsageError, match="batch is 0"):
        cost_of(parse_graph(text), CostOptions(batch=0))


def test_rows_of_ones_own_go_in_as_an_argument_and_change_nothing_else():
    text = HEAD + "input x: float32[4]\ny: float32[4] = warp(x)\noutput y"
    table = register(REGISTRY, "warp", macs=lambda ctx: 7, other_ops=lambda ctx: 1)
    found = cost_of(parse_graph(text), table=table)
    assert (found.total().figures.flops, found.unsupported()) == (15, {})
    assert cost_of(parse_graph(text)).unsupported() == {"warp": 1}


@pytest.mark.req("R60")
def test_scopes_are_summed_with_what_they_contain():
    text = HEAD + (
        'input x: float32[4]\na: float32[4] = relu(x) scope="net.0.act"\n'
        'b: float32[4] = relu(a) scope="net.1"\ny: float32[4] = relu(b)\noutput y'
    )
    found = {scope: t.figures.flops for scope, t in cost_of(parse_graph(text)).by_scope().items()}
    assert found == {"": 12, "net": 8, "net.0": 4, "net.0.act": 4, "net.1": 4}


@pytest.mark.req("R66")
def test_a_graph_that_says_what_training_adjusts():
    text = HEAD + (
        "input x: float32[4,4]\nparameter w: float32[4,4] trainable\n"
        "parameter s: float32[] frozen\nparameter c: float32[4]\n"
        "a: float32[4,4] = matmul(x, w)\nb: float32[4,4] = mul(a, s)\n"
        "y: float32[4,4] = add(b, c)\noutput y"
    )
    found = cost_of(parse_graph(text))
    # A stated parameter counts even as a scalar.
    assert (found.total().figures.params, found.trainable, found.statistics) == (21, 20, 0)
    silent = text.replace(" trainable", "").replace(" frozen", "")
    assert cost_of(parse_graph(silent)).trainable is None
