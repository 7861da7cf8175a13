"""Advice: ShuffleNet V2's guidelines and their Transformer counterparts, each where it applies
and not where it does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peakfold.analysis import cost_of
from peakfold.analysis.lint.rules import access_bound, lints, pointwise_access
from peakfold.ir import parse_graph
from peakfold.transform import Fold
from tests.analysis import nets
from tests.analysis.nets import Net


def advice(graph):
    folded = Fold()(graph)
    return lints(folded, cost_of(folded, original=graph))


def of(graph, rule):
    return [lint for lint in advice(graph) if lint.rule == rule]


@pytest.mark.req("R80")
@pytest.mark.parametrize(
    ("channels", "access"),
    [((128, 128), 819_200), ((90, 180), 862_920), ((52, 312), 1_157_728), ((36, 432), 1_483_200)],
)
def test_memory_access_of_channel_pairs_at_equal_macs(channels, access):
    assert pointwise_access(56 * 56, *channels) == access
    bound = access_bound(56 * 56, 56 * 56 * 128 * 128)
    assert bound == 819_200
    net = Net(x=(1, channels[0], 56, 56))
    graph = net.graph(net.conv("x", channels[1], 1))
    # What the formula says is what the op moves, in elements of four bytes.
    assert cost_of(graph).total().figures.bytes_moved == 4 * access
    found = of(graph, "unbalanced-channels")
    own = access_bound(56 * 56, 56 * 56 * channels[0] * channels[1])
    assert bool(found) == (access >= 1.25 * own)
    if found:
        assert found[0].saves_bytes == 4 * round(access - own)


@pytest.mark.req("R80")
@given(st.integers(1, 4000), st.integers(1, 600), st.integers(1, 600))
def test_the_bound_holds_and_equal_channels_meet_it(positions, inputs, outputs):
    macs = positions * inputs * outputs
    bound = access_bound(positions, macs)
    assert pointwise_access(positions, inputs, outputs) >= bound * (1 - 1e-12)
    even = access_bound(positions, positions * inputs * inputs)
    assert pointwise_access(positions, inputs, inputs) == pytest.approx(even)


@pytest.mark.req("R80")
def test_groups_and_branches_and_element_wise_ops():
    net = Net(x=(1, 64, 8, 8))
    grouped = net.graph(net.conv("x", 64, 3, 1, 1, groups=4))
    (lint,) = of(grouped, "group-count")
    assert lint.saves_bytes == 4 * (2 * 64 * 64) // 2  # channels halved at equal MACs
    assert of(Net(x=(1, 4, 8, 8)).graph("x"), "group-count") == []
    net = Net(x=(1, 64, 8, 8))
    parts = " ".join(net.conv("x", 16, 1) for _ in range(3))
    joined = net.op("concat", parts, (1, 48, 8, 8), axis=1)
    (lint,) = of(net.graph(joined), "fragmented-branches")
    assert (len(lint.ops), lint.saves_bytes) == (3, 2 * 4 * 64 * 64)
    chain = parse_graph(
        "peakfold-graph 1\ninput x: float32[64]\na: float32[64] = relu(x)\n"
        "b: float32[64] = sigmoid(a)\nc: float32[64] = mul(b, x)\noutput c"
    )
    (lint,) = of(chain, "element-wise-share")
    assert lint.saves_bytes == 4 * 64 * (2 + 2 + 3) - 4 * 64 * 2
    assert set(lint.ops) == {"a", "b", "c"}
    assert of(nets.vgg((1, 1, 2, 2, 2)), "element-wise-share") == []


@pytest.mark.req("R80")
def test_depthwise_networks_are_fragmented_and_large_layers_are_not():
    assert of(nets.vgg((2, 2, 3, 3, 3)), "many-small-ops") == []
    lines = ["peakfold-graph 1", "input x: float32[1,64,64,64]", "input s: float32[4]"]
    lines += ["y: float32[1,64,64,64] = lrn(x)"]
    last = "s"
    for at in range(40):
        lines.append(f"t{at}: float32[4] = relu({last})")
        last = f"t{at}"
    graph = parse_graph("\n".join([*lines, f"output y, {last}"]))
    (lint,) = of(graph, "many-small-ops")
    assert lint.message.startswith("40 of 41 ops")


@pytest.mark.req("R80")
def test_keys_and_values_per_token():
    (lint,) = of(nets.bert_base(32), "kv-bytes")
    assert lint.message.startswith(f"{12 * 12 * 2 * 64 * 4:,} bytes")
    assert lint.saves_bytes == 12 * (12 - 3) * 2 * 64 * 4
    (lint,) = of(nets.llama_tiny(16), "kv-bytes")  # 2 key heads for 8 query heads: grouped
    assert lint.message == f"{4 * 2 * 2 * 64 * 4:,} bytes of keys and values per token"
    assert lint.saves_bytes is None


@pytest.mark.req("R80")
def test_scores_written_out_grow_with_the_square():
    def model(steps: int):
        net = Net(q=(1, 4, steps, 8), k=(1, 4, 8, steps), v=(1, 4, steps, 8))
        scores = net.op("matmul", "q k", (1, 4, steps, steps))
        weights = net.op("softmax", scores, (1, 4, steps, steps))
        return net.graph(net.op("matmul", f"{weights} v", (1, 4, steps, 8)))

    one, two = (of(model(n), "sequence-squared")[0].saves_bytes for n in (32, 64))
    assert one == 4 * (4 * 32 * 32 * 4)
    assert two == 4 * one
    assert of(nets.vit_b_16(), "sequence-squared") == []  # fused attention writes none
    classifier = Net(x=(2, 64, 64))
    assert (
        of(classifier.graph(classifier.op("softmax", "x", (2, 64, 64))), "sequence-squared") == []
    )


@pytest.mark.req("R80")
def test_vocabulary_and_head_size():
    found = of(nets.gpt2(16), "vocabulary-share")
    assert found
    assert any("31%" in lint.message for lint in found)  # 38.6 M of 124.4 M
    (lint,) = of(nets.gpt2(16), "vocabulary-multiple")
    assert "50,304" in lint.message
    assert of(nets.resnet50(), "vocabulary-share") == []
    odd = Net(q=(1, 4, 16, 20), k=(1, 4, 16, 20), v=(1, 4, 16, 20))
    (lint,) = of(odd.graph(odd.op("attention", "q k v", (1, 4, 16, 20))), "head-size")
    assert "filled to 24" in lint.message
    assert of(nets.bert_base(16), "head-size") == []


@pytest.mark.parametrize("count", range(4))
@pytest.mark.parametrize(
    "kind",
    [
        "conv",
        "fused_conv",
        "conv_2d",
        "attention",
        "sdpa",
        "group_query_attention",
        "softmax",
        "matmul",
        "gemm",
        "linear",
        "addmm",
    ],
)
def test_ops_without_the_operands_that_they_should_have_get_no_advice(
    kind: str, count: int
) -> None:
    """A broken file may hold any operator with any number of operands."""
    operands = ", ".join(["x", "x", "x"][:count])
    graph = parse_graph(
        f"peakfold-graph 1\ninput x: float32[1,16,64,64]\na: float32[1,16,64,64] = {kind}"
        f"({operands})\nb: float32[1,16,64,64] = softmax(a)\noutput b"
    )
    assert isinstance(lints(graph, cost_of(graph)), tuple)
