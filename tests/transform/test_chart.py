"""The published chart whole (R41): three networks, two passes, four modes; 24 bars."""

from __future__ import annotations

import pytest

from peakfold.ir import parse_graph
from peakfold.judges.plan import verify_plan
from peakfold.ops.grad import GRADS
from peakfold.planning import PlanOptions, make_plan
from peakfold.transform import Train
from tests.zoo import alexnet, googlenet, vgg_a

from .nnvm import backward, forward, total
from .test_backward import MXNET, modes, rows

RULES = {"target": "mxnet", "share": "nnvm", "mode": "both"}
MODES = ((False, False), (True, False), (False, True), (True, True))
# naive, in place, shared, both: forward, then forward and backward; batch 64, bytes.
BARS = {
    "alexnet": (
        (396_988_416, 226_437_120, 148_045_824, 122_847_232),
        (832_256_000, 661_704_704, 537_956_352, 468_652_032),
    ),
    "vgg": (
        (4_207_136_768, 2_295_195_648, 1_697_644_544, 1_055_391_744),
        (8_452_552_704, 6_540_611_584, 5_844_881_408, 5_029_220_352),
    ),
    "googlenet": (
        (2_332_012_544, 1_505_597_440, 540_696_576, 531_464_192),
        (5_656_049_664, 4_591_198_208, 2_689_003_520, 2_585_440_256),
    ),
}


@pytest.mark.req("R5", "R16", "R27", "R41", "R43", "R44", "R45", "R46", "R52")
@pytest.mark.parametrize(
    ("name", "text", "nodes"),
    [("alexnet", alexnet(), 24), ("vgg", vgg_a(), 30), ("googlenet", googlenet(), 140)],
    ids=["alexnet", "vgg", "googlenet"],
)
def test_every_bar_equals_the_planner_written_from_its_definition(
    name: str, text: str, nodes: int
) -> None:
    g = parse_graph(text)
    assert len(g.ops) == nodes
    sizes = {tensor.name: tensor.nbytes or 0 for tensor in g.tensors}
    steps, kept = forward(g), set(g.outputs)
    assert modes(g, **RULES) == BARS[name][0]
    assert tuple(total(steps, sizes, kept, *mode) for mode in MODES) == BARS[name][0]
    both = backward(steps, sizes)
    kept |= set(both[-1].makes)  # the gradient of the image
    assert modes(g, **RULES, train=MXNET) == BARS[name][1]
    assert tuple(total(both, sizes, kept, *mode) for mode in MODES) == BARS[name][1]
    for train in (None, MXNET):
        result = make_plan(g, PlanOptions(align=1, **RULES, train=train))
        assert len(result.context.graph.ops) == len(both if train else steps)
        assert all(check.ok for check in verify_plan(g, result.plan))


@pytest.mark.req("R41", "R52")
@pytest.mark.parametrize("kind", [kind for kind in GRADS if kind.endswith("_pool")])
def test_every_pool_is_one_layer_of_mxnet(kind: str) -> None:
    window = "" if "global" in kind or kind == "adaptive_pool" else "kernel_shape=[2,2]"
    g = parse_graph(f"""peakfold-graph 1
    input x: float32[2,3,4,4]
    a: float32[2,3,4,4] = relu(x)
    y: float32[2,3,1,1] = {kind}({", ".join(filter(None, ("a", window)))})
    output y""")
    step = Train(reads="mxnet", input_grad=True)(g)
    assert rows(step)[2] == "a.grad <- y.grad,a,y"
    least = rows(Train(input_grad=True)(g))[2]
    assert ("average" in kind) == (least == "a.grad <- y.grad")


@pytest.mark.req("R41")
def test_mxnet_cuts_the_gradient_of_a_concatenation_into_copies() -> None:
    g = parse_graph("""peakfold-graph 1
    input x: float32[1,4]
    a: float32[1,4] = relu(x)
    b: float32[1,4] = tanh(x)
    y: float32[1,8] = concat(a, b, axis=1)
    output y""")
    for reads, how in (("mxnet", set()), ("minimal", {"view"})):
        train = Train(reads=reads, input_grad=True)
        plan = make_plan(g, PlanOptions(target="mxnet", train=train)).plan
        assert {a.how for a in plan.aliases if a.output in ("a.grad", "b.grad")} == how
