"""Bands of rows compute what the whole image computes: judged by running both."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peakfold.errors import InvalidPlan, UsageError
from peakfold.ir import Graph, Op, check_graph, parse_graph
from peakfold.judges.plan import verify_plan
from peakfold.planning import PlanOptions, make_plan
from peakfold.planning.fit.patch_search import live_peak, patch_choices, total_macs
from peakfold.planning.planner import planning_context
from peakfold.transform import Split, replay
from peakfold.transform.split import exits, why_not

Array = np.ndarray


def window(x: Array, taps: tuple[int, int], op: Op, layout: str) -> tuple[Array, Array]:
    """All windows of an image as [rows, columns, taps, taps, channels], and where data is."""
    image = x[0] if layout == "nhwc" else np.moveaxis(x[0], 0, -1)
    if layout == "nchw":
        pads = op.attrs.get("pads", (0, 0, 0, 0))
        around = ((pads[0], pads[2]), (pads[1], pads[3]))
        steps = op.attrs.get("strides", (1, 1))
        spread = op.attrs.get("dilations", (1, 1))
    else:
        steps = op.attrs["stride_h"], op.attrs["stride_w"]
        spread = op.attrs.get("dilation_h_factor", 1), op.attrs.get("dilation_w_factor", 1)
        around = ((0, 0), (0, 0))
        if op.attrs["padding"] == "same":
            total = [
                max((-(-size // s) - 1) * s + (t - 1) * d + 1 - size, 0)
                for size, s, t, d in zip(image.shape, steps, taps, spread, strict=False)
            ]
            around = tuple((n // 2, n - n // 2) for n in total)
    inside = np.pad(np.ones(image.shape[:2]), around)
    image = np.pad(image, (*around, (0, 0)))
    reach = [(t - 1) * d + 1 for t, d in zip(taps, spread, strict=True)]
    rows = range(0, image.shape[0] - reach[0] + 1, steps[0])
    columns = range(0, image.shape[1] - reach[1] + 1, steps[1])
    cut = [
        np.s_[r : r + reach[0] : spread[0], c : c + reach[1] : spread[1]]
        for r in rows
        for c in columns
    ]
    shape = (len(rows), len(columns), *taps)
    return (
        np.array([image[at] for at in cut]).reshape(*shape, -1),
        np.array([inside[at] for at in cut]).reshape(*shape, 1),
    )


def run(graph: Graph, feeds: dict[str, Array]) -> dict[str, Array]:
    values = dict(feeds)
    for op in graph.ops:
        x = [values[name] for name in op.inputs]
        values[op.outputs[0]] = evaluate(op, x)
        assert values[op.outputs[0]].shape == graph[op.outputs[0]].shape, op.name
    return values


def evaluate(op: Op, x: list[Array]) -> Array:
    if op.kind == "conv":
        cut, _ = window(x[0], x[1].shape[2:], op, "nchw")
        return np.moveaxis(np.einsum("rcijk,okij->rco", cut, x[1]), -1, 0)[None]
    if op.kind == "conv_2d":
        cut, _ = window(x[0], x[1].shape[1:3], op, "nhwc")
        return np.einsum("rcijk,oijk->rco", cut, x[1])[None]
    if op.kind == "depthwise_conv_2d":
        cut, _ = window(x[0], x[1].shape[1:3], op, "nhwc")
        return np.einsum("rcijk,ijk->rck", cut, x[1][0])[None]
    if op.kind in ("max_pool", "max_pool_2d"):
        layout = "nchw" if op.kind == "max_pool" else "nhwc"
        taps = op.attrs.get("kernel_shape") or (op.attrs["filter_height"], op.attrs["filter_width"])
        cut, inside = window(x[0], taps, op, layout)
        best = np.where(inside > 0, cut, -np.inf).max((2, 3))[None]
        return best if layout == "nhwc" else np.moveaxis(best, -1, 1)
    if op.kind == "pad":
        pads = op.attrs["pads"]
        return np.pad(x[0], list(zip(pads[:4], pads[4:], strict=True)))
    if op.kind == "slice":
        cut = [slice(None)] * 4
        cut[op.attrs["axes"][0]] = slice(op.attrs["starts"][0], op.attrs["ends"][0])
        return x[0][tuple(cut)]
    if op.kind == "concat":
        return np.concatenate(x, op.attrs["axis"])
    return {"relu": lambda v: np.maximum(v, 0), "add": np.add, "mul": np.multiply}[op.kind](*x)


class Network:
    """A random local network as text; shapes follow from the specification's formulas."""

    def __init__(self, layout: str, rows: int, columns: int, channels: int) -> None:
        self.layout, self.shape = layout, (rows, columns, channels)
        self.lines, self.weights, self.count = [], [], 0
        self.last = "x"
        self.older: dict[tuple[int, ...], str] = {}

    def text(self, shape: tuple[int, int, int]) -> str:
        rows, columns, channels = shape
        dims = (1, channels, rows, columns) if self.layout == "nchw" else (1, *shape)
        return f"float64[{','.join(map(str, dims))}]"

    def put(self, shape: tuple[int, int, int], body: str) -> None:
        self.count += 1
        self.older.setdefault(self.shape, self.last)
        self.last, self.shape = f"v{self.count}", shape
        self.lines.append(f"{self.last}: {self.text(shape)} = {body}")

    def window(self, kind: str, k: int, s: int, d: int, same: bool, grow: int) -> None:
        rows, columns, channels = self.shape
        reach = (k - 1) * d + 1
        pad = reach // 2 if same else 0
        if self.layout == "nchw":
            size = [(n + 2 * pad - reach) // s + 1 for n in (rows, columns)]
            attrs = f"pads=[{pad},{pad},{pad},{pad}], strides=[{s},{s}], dilations=[{d},{d}]"
        else:
            size = [-(-n // s) if same else -(-(n - reach + 1) // s) for n in (rows, columns)]
            word = "same" if same else "valid"
            attrs = (
                f'padding="{word}", stride_h={s}, stride_w={s}, '
                f"dilation_h_factor={d}, dilation_w_factor={d}"
            )
        if min(size) < 1 or min(rows, columns) + 2 * pad < reach:
            return
        out = channels
        if kind == "pool":
            attrs = attrs.split(", dilation")[0]
            if self.layout == "nchw":
                body = f"max_pool({self.last}, kernel_shape=[{k},{k}], {attrs})"
            else:
                body = f"max_pool_2d({self.last}, filter_height={k}, filter_width={k}, {attrs})"
        else:
            weight = f"w{len(self.weights)}"
            depthwise = kind == "depthwise" and self.layout == "nhwc"
            out = channels if depthwise else grow
            shape = (
                (out, channels, k, k)
                if self.layout == "nchw"
                else (1, k, k, channels)
                if depthwise
                else (out, k, k, channels)
            )
            self.weights.append(f"parameter {weight}: float64[{','.join(map(str, shape))}]")
            name = "conv" if self.layout == "nchw" else "conv_2d"
            name = "depthwise_conv_2d" if depthwise else name
            body = f"{name}({self.last}, {weight}, {attrs})"
        self.put((*size, out), body)

    def pointwise(self, kind: str) -> None:
        mate = self.older.get(self.shape, self.last)
        body = f"relu({self.last})" if kind == "relu" else f"{kind}({self.last}, {mate})"
        self.put(self.shape, body)

    def graph(self, first: str) -> Graph:
        lines = ["peakfold-graph 1", f"input x: {first}", *self.weights, *self.lines]
        return parse_graph("\n".join([*lines, f"output {self.last}"]))


OPS = st.tuples(
    st.sampled_from(["conv", "conv", "depthwise", "pool", "relu", "add", "mul"]),
    st.sampled_from([1, 2, 3, 3, 5]),
    st.sampled_from([1, 1, 2, 3]),
    st.sampled_from([1, 1, 2]),
    st.booleans(),
    st.integers(1, 3),
)


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@given(
    rows=st.integers(4, 21),
    columns=st.integers(4, 7),
    picks=st.lists(OPS, min_size=1, max_size=6),
    patches=st.integers(2, 5),
    seed=st.integers(0, 99),
)
def test_bands_compute_what_the_whole_image_does(layout, rows, columns, picks, patches, seed):
    net = Network(layout, rows, columns, 2)
    first = net.text(net.shape)
    for kind, k, s, d, same, grow in picks:
        if kind in ("relu", "add", "mul"):
            net.pointwise(kind)
        else:
            net.window(kind, k, s, 1 if kind == "pool" else d, same, grow)
    if not net.lines:
        return
    g = net.graph(first)
    if why_not(g, net.last) is not None:
        return
    try:
        split = Split(net.last, patches)(g)
    except UsageError:
        return  # fewer rows than bands, or a band that only padding covers
    check_graph(split)
    rng = np.random.default_rng(seed)
    feeds = {
        t.name: rng.standard_normal(t.shape) for t in g.tensors if t.name == "x" or t.role.static
    }
    whole, bands = run(g, feeds), run(split, feeds)
    np.testing.assert_allclose(bands[net.last], whole[net.last], rtol=1e-12, atol=1e-12)
    assert split.outputs == g.outputs


CHAIN = parse_graph("""peakfold-graph 1
input x: float32[1,3,64,64]
parameter w: float32[16,3,3,3]
parameter v: float32[4,16,3,3]
h: float32[1,16,64,64] = conv(x, w, pads=[1,1,1,1])
r: float32[1,16,64,64] = relu(h)
y: float32[1,4,32,32] = conv(r, v, pads=[1,1,1,1], strides=[2,2])
z: float32[1,4,32,32] = relu(y)
output z""")


def test_the_halo_is_counted():
    split = Split("y", 2)(CHAIN)
    # The second convolution reads rows 0..32 and 31..63 of r: row 31 or 32 is made twice.
    columns, taps = 64, 16 * 3 * 9
    assert total_macs(split) - total_macs(CHAIN) == (33 + 33 - 64 - 1) * columns * taps


@pytest.mark.req("R17")
def test_choices_are_a_front_and_their_plans_are_judged():
    options = PlanOptions()
    found = patch_choices(CHAIN, options)
    assert found
    bytes_of = [choice.live_bytes for choice in found]
    work = [choice.macs for choice in found]
    assert bytes_of == sorted(bytes_of)
    assert work == sorted(work, reverse=True)
    assert bytes_of[-1] < live_peak(planning_context(CHAIN, options))
    result = make_plan(CHAIN, PlanOptions(split=found[0].split))
    assert result.plan.recipe == ["fold", f"split {found[0].split.patches} {found[0].split.upto}"]
    assert all(check.ok for check in verify_plan(CHAIN, result.plan))
    assert result.summary.arena_bytes >= found[0].live_bytes


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("y: float32[1,4,8,8] = relu(x)\noutput y", "no window ops"),
        (
            "h: float32[1,4,8,8] = conv(x, w)\nz: float32[1,4,8,8] = relu(h)\n"
            "y: float32[1,4,8,8] = relu(h)\noutput y, z",
            "read as a whole",
        ),
        (
            "h: float32[1,4,8,8] = conv(x, w)\ny: float32[1,4,8,8] = relu(h)\noutput y, h",
            "is an output",
        ),
        (
            "h: float32[1,4,8,8] = conv(x, w)\ny: float32[1,4,8,8] = softmax(h)\noutput y",
            "not local",
        ),
        ("y: float32[1,4,1,8] = conv(x, w)\noutput y", "rows"),
    ],
)
def test_what_cannot_be_split_says_why(text, says):
    head = "peakfold-graph 1\ninput x: float32[1,4,8,8]\nparameter w: float32[4,4,1,1]\n"
    g = parse_graph(head + text)
    with pytest.raises(UsageError, match=says):
        Split("y", 2)(g)
    assert "y" not in list(exits(g))


def test_the_part_starts_where_ops_are_local():
    g = parse_graph("""peakfold-graph 1
input x: float32[1,4,16,16]
parameter f: float16[4,3,3,4]
parameter b: float32[1,1,1,4]
n: float32[1,16,16,4] = transpose(x, perm=[0,2,3,1])
w: float32[4,3,3,4] = dequantize(f)
h: float32[1,16,16,4] = conv_2d(n, w, padding="same", stride_h=1, stride_w=1)
y: float32[1,16,16,4] = add(h, b)
output y""")
    split = Split("y", 2)(g)
    check_graph(split)
    kinds = ["transpose", "dequantize", *["slice", "conv_2d", "slice", "add"] * 2, "concat"]
    assert [op.kind for op in split.ops] == kinds
    assert [op.operands[0] for op in split.ops if op.kind == "slice"][::2] == ["n", "n"]


def test_a_small_tensor_on_the_way_is_no_image():
    g = parse_graph("""peakfold-graph 1
input x: float32[1,4,8,8]
parameter w: float32[4,4,1,1]
h: float32[1,4,8,8] = conv(x, w)
m: float32[1,4,1,1] = global_average_pool(h)
y: float32[1,4,8,8] = mul(h, m)
output y""")
    assert "as a whole, by 'm'" in (why_not(g, "y") or "")


def test_filters_of_another_rank_are_no_window():
    g = parse_graph("""peakfold-graph 1
input x: float32[1,8,8,4]
parameter w: float32[4]
y: float32[1,8,8,4] = conv_2d(x, w, padding="same")
output y""")
    assert "not local" in (why_not(g, "y") or "")


def test_bad_recipes_are_named():
    with pytest.raises(InvalidPlan, match="unreadable"):
        replay(CHAIN, ["split many y"])
    with pytest.raises(UsageError, match="no op makes it"):
        replay(CHAIN, ["split 2 nothing"])
