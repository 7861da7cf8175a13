"""Multiply-accumulates and parameters of torch models, exactly, from closed forms."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn, rand  # noqa: E402

from peakfold.analysis import unsupported  # noqa: E402
from peakfold.analysis.cost.counting import cost_of  # noqa: E402
from peakfold.errors import ModelError  # noqa: E402
from peakfold.frontends.torch.module import capture  # noqa: E402
from peakfold.ir import Role, check_graph  # noqa: E402

from . import torch_models as zoo  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.req("R65", "R66", "R70")]

ROUTES = ("export", "trace", "run")


def macs(graph) -> int:
    check_graph(graph)
    assert not unsupported(graph)
    return cost_of(graph).total().figures.macs


def params(graph) -> int:
    return sum(t.elements for t in graph.tensors if t.role is Role.PARAMETER)


def ids(*shape: int):
    return torch.zeros(shape, dtype=torch.long)


def meta(make, *args, **kwargs):
    with torch.device("meta"):
        return make(*args, **kwargs).eval()


# Whole models (right values: closed forms, cross-checked by an independent counter).

WHOLE = [
    (zoo.resnet50, (), (1, 3, 224, 224), 4_089_184_256, 25_557_032),
    (zoo.mobilenet_v2, (), (1, 3, 224, 224), 300_774_272, 3_504_872),
    (zoo.efficientnet_b0, (), (1, 3, 224, 224), 385_814_752, 5_288_548),
    (zoo.ViT, (768, 12, 1000), (1, 3, 224, 224), 17_563_828_224, 86_567_656),
    (zoo.r3d_18, (), (1, 3, 8, 112, 112), 20_348_379_136, 33_371_472),
]


@pytest.mark.parametrize(
    ("make", "args", "shape", "right", "weights"), WHOLE, ids=lambda v: getattr(v, "__name__", "")
)
def test_whole_networks(make, args, shape, right, weights):
    graph = capture(meta(make, *args), (torch.empty(shape, device="meta"),))
    assert (macs(graph), params(graph)) == (right, weights)
    assert cost_of(graph).total().figures.params == weights


def llm(name: str, attention: str):
    transformers = pytest.importorskip("transformers")
    config, model, tokens = {
        "bert": (transformers.BertConfig(), transformers.BertModel, 128),
        "gpt2": (transformers.GPT2Config(), transformers.GPT2LMHeadModel, 128),
        "llama": (
            transformers.LlamaConfig(
                hidden_size=512,
                num_attention_heads=8,
                num_key_value_heads=2,
                intermediate_size=1408,
                num_hidden_layers=4,
                vocab_size=1000,
            ),
            transformers.LlamaForCausalLM,
            64,
        ),
    }[name]
    config._attn_implementation = attention
    config.use_cache = False
    with torch.device("meta"):
        return model(config).eval(), torch.zeros(1, tokens, dtype=torch.long)


LLMS = {
    "bert": (11_174_215_680, 109_482_240),
    "gpt2": (16_114_089_984, 124_439_808),
    "llama": (770_965_504, 12_300_800),
}


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", LLMS)
def test_language_models(name, attention):
    module, tokens = llm(name, attention)
    graph = capture(module, (tokens,))
    assert (macs(graph), params(graph)) == LLMS[name]


# Micro cases: one layer or function each, the right count beside it.


class Cells(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(32, 64)

    def forward(self, x):
        h = c = x.new_zeros(3, 64)
        for step in x:
            h, c = self.cell(step, (h, c))
        return h


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x):
        return torch.utils.checkpoint.checkpoint(self.layer, x, use_reentrant=False)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(100, 16)
        self.head = nn.Linear(16, 100, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(self.embedding(tokens))


class Keywords(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x, *, scale=1.0):
        return {"out": self.layer(x) * scale}


SHARED = nn.Linear(64, 64)
QUARTER = 4 * 64 * 64


def cases():
    fn = zoo.Fn
    yield "linear_2d", nn.Linear(64, 128), (rand(4, 64),), 32_768
    yield "linear_3d", nn.Linear(64, 128), (rand(2, 10, 64),), 163_840
    yield "linear_vector", nn.Linear(64, 128), (rand(64),), 8_192
    yield "conv2d_s2", nn.Conv2d(32, 64, 3, 2, 1), (rand(1, 32, 14, 14),), 903_168
    yield "conv2d_batch8", nn.Conv2d(32, 64, 3, 2, 1), (rand(8, 32, 14, 14),), 7_225_344
    yield "conv2d_group4", nn.Conv2d(32, 64, 3, 2, 1, groups=4), (rand(1, 32, 14, 14),), 225_792
    yield "conv2d_depthwise", nn.Conv2d(32, 32, 3, 1, 1, groups=32), (rand(1, 32, 14, 14),), 56_448
    same = nn.Conv2d(16, 16, 5, padding="same", dilation=2)
    yield "conv2d_dilated_same", same, (rand(1, 16, 10, 10),), 640_000
    yield "conv2d_unbatched", nn.Conv2d(32, 64, 3, 2, 1), (rand(32, 14, 14),), 903_168
    yield "conv1d", nn.Conv1d(16, 32, 3, 1, 1), (rand(1, 16, 100),), 153_600
    yield "conv3d", nn.Conv3d(4, 8, 3, 1, 1), (rand(1, 4, 16, 8, 8),), 884_736
    yield "convT2d_s2", nn.ConvTranspose2d(16, 32, 4, 2, 1), (rand(1, 16, 8, 8),), 524_288
    grouped = nn.ConvTranspose2d(16, 32, 4, 2, 1, groups=4)
    yield "convT2d_group4", grouped, (rand(1, 16, 8, 8),), 131_072
    yield "convT3d", nn.ConvTranspose3d(4, 8, 2, 2), (rand(2, 4, 3, 4, 5),), 2 * 60 * 4 * 8 * 8
    weight = rand(64, 32, 3, 3)
    strided = fn(lambda x, w: F.conv2d(x, w, stride=2, padding=1), weight)
    yield "F_conv2d_param", strided, (rand(1, 32, 14, 14),), 903_168
    yield "F_linear_param", fn(F.linear, rand(128, 64)), (rand(4, 64),), 32_768
    yield (
        "bf16_conv",
        nn.Conv2d(32, 64, 3, 2, 1).bfloat16(),
        (rand(1, 32, 14, 14).bfloat16(),),
        903_168,
    )
    yield "matmul_op_2d", fn(torch.matmul), (rand(6, 7), rand(7, 8)), 336
    yield "matmul_broadcast", fn(torch.matmul), (rand(2, 1, 4, 8), rand(3, 8, 5)), 960
    yield "dot_1d", fn(torch.matmul), (rand(64), rand(64)), 64
    yield "mat_vec", fn(torch.mv), (rand(5, 64), rand(64)), 320
    yield "inner", fn(torch.inner), (rand(4, 6), rand(3, 6)), 72
    yield "bmm", fn(torch.bmm), (rand(5, 6, 7), rand(5, 7, 8)), 1_680
    yield "baddbmm", fn(torch.baddbmm), (rand(5, 6, 8), rand(5, 6, 7), rand(5, 7, 8)), 1_680
    yield "addbmm", fn(torch.addbmm), (rand(6, 8), rand(5, 6, 7), rand(5, 7, 8)), 1_680
    yield "addmv", fn(torch.addmv), (rand(5), rand(5, 7), rand(7)), 35
    yield (
        "tensordot",
        fn(lambda a, b: torch.tensordot(a, b, 2)),
        (rand(5, 6, 7), rand(6, 7, 3)),
        630,
    )
    qk = fn(lambda q, k: torch.einsum("bhqd,bhkd->bhqk", q, k))
    yield "einsum_qk", qk, (rand(2, 3, 16, 10), rand(2, 3, 16, 10)), 15_360
    chain = fn(lambda a, b, c: torch.einsum("ij,jk,kl->il", a, b, c))
    # Contracted from the left, as torch does without an optimiser of paths.
    yield "einsum_chain", chain, (rand(5, 6), rand(6, 7), rand(7, 8)), 5 * 6 * 7 + 5 * 7 * 8
    qkv = (rand(2, 3, 16, 10),) * 3
    yield "sdpa", fn(F.scaled_dot_product_attention), qkv, 30_720
    causal = fn(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True))
    yield "sdpa_causal_full", causal, (rand(2, 4, 16, 16),) * 3, 65_536
    gqa = fn(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True))
    yield "sdpa_gqa", gqa, (rand(2, 8, 16, 8), *(rand(2, 2, 20, 8),) * 2), 2 * 8 * 16 * 20 * 16
    plain = fn(F.scaled_dot_product_attention)
    yield "sdpa_3d", plain, (rand(4, 16, 8), rand(4, 20, 8), rand(4, 20, 6)), 4 * 16 * 20 * 14
    sequence = (rand(2, 10, 64),)
    for mode in (True, False):
        for heads in (4, 8):
            attention = nn.MultiheadAttention(64, heads, batch_first=True).train(mode)
            yield f"MHA_{heads}_{mode}", attention, sequence * 3, 353_280
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    yield "TransEncLayer_eval", layer.eval(), sequence, 680_960
    yield "LSTM_2l", nn.LSTM(32, 64, 2), (rand(20, 3, 32),), 3_440_640
    per_step = 2 * 2 * (256 * (32 + 16) + 64 * 16)  # both directions, both layers, projections
    projected = nn.LSTM(32, 64, 2, bidirectional=True, proj_size=16)
    yield "LSTM_bidirectional_projected", projected, (rand(20, 3, 32),), 60 * per_step
    yield "LSTM_unbatched", nn.LSTM(32, 64, batch_first=True), (rand(20, 32),), 20 * 256 * 96
    yield "GRU_seqfirst", nn.GRU(32, 64), (rand(20, 3, 32),), 1_105_920
    yield "GRU_bidirectional", nn.GRU(32, 64, bidirectional=True), (rand(20, 3, 32),), 2_211_840
    yield "RNN", nn.RNN(32, 64, nonlinearity="relu"), (rand(20, 3, 32),), 60 * 64 * 96
    yield "LSTMCell_loop20", Cells(), (rand(20, 3, 32),), 1_474_560
    yield "GRUCell", nn.GRUCell(8, 4), (rand(3, 8), rand(3, 4)), 3 * 12 * 12
    yield "shared_linear_x3", nn.Sequential(SHARED, SHARED, SHARED), (rand(4, 64),), 49_152
    yield "tied_weights", Tied(), (ids(5),), 8_000
    yield "bilinear", nn.Bilinear(10, 9, 8), (rand(3, 10), rand(3, 9)), 2_160
    yield "embedding", nn.Embedding(10, 8), (ids(5),), 0
    yield "embedding_bag", nn.EmbeddingBag(10, 8), (ids(5, 2),), 0
    yield "checkpointed", Checkpointed(), (rand(4, 64),), QUARTER
    yield "fft", fn(lambda x: torch.fft.rfft2(x).abs()), (rand(2, 8, 8),), 0
    weighed = torch.nn.utils.parametrizations.weight_norm(nn.Linear(64, 64))
    yield "weight_norm", weighed, (rand(4, 64),), QUARTER
    yield "weight_norm_hook", torch.nn.utils.weight_norm(nn.Linear(64, 64)), (rand(4, 64),), QUARTER
    small = torch.zeros(32, 64, dtype=torch.int8), torch.zeros(64, 16, dtype=torch.int8)
    yield "int_mm", fn(torch._int_mm), small, 32_768
    packed = fn(torch._weight_int8pack_mm)
    half = rand(32, 64).bfloat16(), torch.zeros(16, 64, dtype=torch.int8), rand(16).bfloat16()
    yield "weight_int8pack_mm", packed, half, 32_768
    yield "resize", nn.Upsample(scale_factor=2, mode="bilinear"), (rand(1, 3, 8, 8),), 0
    yield "grid_sample", fn(F.grid_sample), (rand(1, 3, 8, 8), rand(1, 4, 4, 2)), 0
    yield "topk", fn(lambda x: torch.topk(x, 3)), (rand(4, 10),), 0
    yield "scatter", fn(lambda x, i: x.scatter_add(1, i, x)), (rand(4, 10), ids(4, 10)), 0
    norms = nn.Sequential(
        nn.GroupNorm(2, 4),
        nn.InstanceNorm2d(4),
        nn.BatchNorm2d(4),
        nn.LocalResponseNorm(2),
        nn.LayerNorm(8),
        nn.Softmax(1),
    )
    yield "norms", norms, (rand(2, 4, 8, 8),), 0


CASES = {name: case for name, *case in cases()}


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("name", CASES)
def test_micro_cases(name, route):
    module, args, right = CASES[name]
    assert macs(capture(module, args, route=route)) == right


def test_keyword_inputs_and_dict_outputs():
    graph = capture(Keywords(), (), {"x": rand(4, 64), "scale": 2.0})
    assert (macs(graph), graph.inputs, len(graph.outputs)) == (QUARTER, ("x",), 1)


def test_fused_inference_paths_count_what_they_fuse():
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True).eval()
    right = macs(capture(layer, (rand(2, 10, 64),)))
    attention = layer.self_attn
    projections = (
        attention.in_proj_weight,
        attention.in_proj_bias,
        attention.out_proj.weight,
        attention.out_proj.bias,
    )
    norms = (layer.norm1.weight, layer.norm1.bias, layer.norm2.weight, layer.norm2.bias)
    feed = (layer.linear1.weight, layer.linear1.bias, layer.linear2.weight, layer.linear2.bias)

    def fused(x):
        return torch._transformer_encoder_layer_fwd(
            x, 64, 4, *projections, False, False, 1e-5, *norms, *feed
        )

    def only_attention(x):
        return torch._native_multi_head_attention(x, x, x, 64, 4, *projections)[0]

    assert macs(capture(zoo.Fn(fused), (rand(2, 10, 64),), route="run")) == right == 680_960
    assert macs(capture(zoo.Fn(only_attention), (rand(2, 10, 64),), route="run")) == 353_280


def test_the_backward_pass_of_attention_is_five_products():
    class Step(nn.Module):
        def forward(self, q):
            with torch.enable_grad():
                q = q.detach().requires_grad_()
                out = F.scaled_dot_product_attention(q, q, q)
                return torch.autograd.grad(out.sum(), [q])

    graph = capture(Step(), (rand(2, 4, 16, 8),), route="trace")
    assert macs(graph) == (2 + 5) * 2 * 4 * 16 * 16 * 8


def test_every_listed_operator_exists():
    from peakfold.frontends.torch.names import IGNORED, KIND_OF, base_name
    from peakfold.ops import lookup

    there = {schema.name.partition("::")[2] for schema in torch._C._jit_get_all_schemas()}
    there = {base_name(name) for name in there} | there
    elsewhere = {
        "deform_conv2d",
        "roi_align",
        "roi_pool",
        "ps_roi_align",
        "ps_roi_pool",
        "nms",
        "flex_attention",
        "grouped_mm_fallback",
        "quantize_per_tensor",
        "quantize_per_channel",
        "dequantize_per_tensor",
        "dequantize_per_channel",
    }
    # Two torch versions are supported: a few names are in one of them only.
    newer = {"qlinear_pointwise"}
    assert set(KIND_OF) - there - elsewhere - newer == set()
    assert {kind for kind in KIND_OF.values() if not lookup(kind).known} == set()
    assert not set(KIND_OF) & IGNORED


def test_parameters_nothing_reads_are_in_the_total():
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(4, 4), nn.Linear(5, 5)

        def forward(self, x):
            return self.used(x)

    graph = capture(Half(), (rand(1, 4),))
    found = cost_of(graph)
    assert (found.total().figures.params, found.unread_params) == (20 + 30, 30)


def test_sizes_that_depend_on_data_leave_a_lower_bound():
    module = zoo.Fn(lambda x, w: x[x.sum(1) > 0] @ w, rand(4, 3))
    graph = capture(module, (rand(9, 4),))
    total = cost_of(graph).total()
    assert graph[graph.outputs[0]].shape[0] == "u0"
    assert (total.figures.macs, "macs" in total.lower_bounds) == (0, True)
    assert macs(capture(module, (torch.ones(9, 4),), route="run")) == 9 * 4 * 3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float16])
@pytest.mark.parametrize("route", ["export", "trace", "run"])
def test_grouped_products_meet_one_matrix_per_row(route, dtype):
    module = zoo.Fn(lambda x, w, ends: torch._grouped_mm(x, w, ends))
    x, w = rand(12, 16).to(dtype), rand(3, 16, 8).to(dtype)
    ends = torch.tensor([4, 8, 12], dtype=torch.int32)
    assert macs(capture(module, (x, w, ends), route=route)) == 12 * 16 * 8
    with pytest.raises(ModelError, match=r"grouped_mm|contraction|inner dimension"):
        capture(module, (rand(12, 24).to(dtype), w, ends), route=route)


def test_routing_by_data_is_that_of_the_inputs():
    module, tokens = zoo.Experts(), rand(9, 16)
    right = 9 * 16 * 4 + 9 * 2 * 16 * 48  # the router, and one expert per token
    assert macs(capture(module, (tokens,), route="run")) == right == 14_400


def test_torchscript_and_packed_weights_run():
    scripted = torch.jit.script(nn.Linear(64, 128))
    assert macs(capture(scripted, (rand(4, 64),), route="run")) == 32_768
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantized = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(64, 64)))
    graph = capture(quantized, (rand(4, 64),), route="run")
    assert macs(graph) == QUARTER
    assert {
        t.name: (str(t.dtype), t.elements) for t in graph.tensors if t.role is Role.PARAMETER
    } == {
        "0.weight": ("int8", 4096),
        "0.bias": ("float32", 64),
    }


def test_report_4_flex_attention():
    from torch.nn.attention.flex_attention import flex_attention

    q = rand(1, 12, 64, 64)
    module = zoo.Fn(lambda q, k, v: flex_attention(q, k, v, score_mod=lambda s, *_: s * 2))
    graph = capture(module, (q, q, q))
    assert 2 * macs(graph) == 12_582_912
    assert "untraced" not in str(graph.notes)


def test_deformable_convolution_by_name():
    library = torch.library.Library("torchvision", "FRAGMENT")
    if not hasattr(torch.ops.torchvision, "deform_conv2d"):
        library.define(
            "deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, "
            "SymInt stride_h, SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, "
            "SymInt dilation_w, SymInt groups, SymInt offset_groups, bool use_mask) -> Tensor"
        )
        library.impl("deform_conv2d", lambda x, w, *_: x.new_empty(1, len(w), 10, 10), "Meta")

    def layer(x, w, offset, mask, bias):
        ones = (1,) * 8
        return torch.ops.torchvision.deform_conv2d(x, w, offset, mask, bias, *ones, True)

    operands = rand(1, 8, 10, 10), rand(1, 18, 10, 10), rand(1, 9, 10, 10), rand(16)
    module = zoo.Fn(lambda x, o, m, b, w: layer(x, w, o, m, b), rand(16, 8, 3, 3))
    graph = capture(module, operands)
    assert macs(graph) == 16 * 8 * 9 * 100


# Causal halving is stated and exact.


def test_causal_attention_is_halved_on_request_only():
    from peakfold.analysis.cost.records import CostOptions

    q = rand(2, 4, 16, 8)
    module = zoo.Fn(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True))
    graph = capture(module, (q, q, q))
    full = cost_of(graph).total().figures
    half = cost_of(graph, CostOptions(causal="half")).total().figures
    assert full.macs == 2 * 4 * 16 * 16 * 16
    assert half.macs == 2 * 4 * (16 * 17 // 2) * 16
