"""Layers whose weights are packed for a kernel: parameters, bytes and MACs by hand."""

import warnings

import pytest

torch = pytest.importorskip("torch")

import torch.ao.quantization as quantization  # noqa: E402
from torch import nn  # noqa: E402

from peakfold import cost  # noqa: E402
from peakfold.frontends.torch.module import capture  # noqa: E402

ROUTES = ("trace", "run")
_PLAIN = torch.randn(7, 3, 16)

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(
        "fbgemm" not in torch.backends.quantized.supported_engines, reason="needs fbgemm"
    ),
]


def dynamic(layer, dtype=torch.qint8):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return quantization.quantize_dynamic(
            nn.Sequential(layer).eval(), {type(layer)}, dtype=dtype
        )


def table(layer, config=quantization.float_qparams_weight_only_qconfig):
    layer.qconfig = config
    model = nn.Sequential(layer).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantization.prepare(model, inplace=True)
        return quantization.convert(model, inplace=True)


def counted(module, operand, route):
    found = cost(capture(module, (operand,), route=route))
    figures = found.total().figures
    assert not found.unsupported()
    return figures.macs, dict(found.cost.param_bytes)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    ("layer", "gates", "layers"),
    [
        (nn.LSTM(16, 24), 4, [16]),
        (nn.LSTM(16, 24, 2, bidirectional=True), 4, [16, 16, 48, 48]),
        (nn.GRU(16, 24), 3, [16]),
    ],
    ids=["lstm", "lstm-2-bi", "gru"],
)
def test_recurrent_layers(layer, gates, layers, route):
    weights = sum(gates * 24 * (width + 24) for width in layers)
    biases = len(layers) * 2 * gates * 24
    expected = 21 * weights, {"float32": 4 * biases, "int8": weights}
    assert counted(dynamic(layer), _PLAIN, route) == expected


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    ("layer", "gates"),
    [(nn.LSTMCell(16, 24), 4), (nn.GRUCell(16, 24), 3), (nn.RNNCell(16, 24), 1)],
    ids=["lstm", "gru", "rnn"],
)
def test_cells(layer, gates, route):
    weights = gates * 24 * 40
    expected = 3 * weights, {"float32": 4 * 2 * gates * 24, "int8": weights}
    assert counted(dynamic(layer), _PLAIN[0], route) == expected


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("script", [False, True], ids=["module", "script"])
def test_linear_layers_and_scripts_that_hold_them(script, route):
    model = dynamic(nn.Linear(16, 24))
    model = torch.jit.script(model) if script else model
    expected = 21 * 16 * 24, {"float32": 96, "int8": 384}
    assert counted(model, _PLAIN, route) == expected


@pytest.mark.parametrize("route", ROUTES)
def test_tables_move_the_rows_they_pick(route):
    picked = torch.tensor([1, 2, 3])
    model = table(nn.Embedding(10, 16))
    assert counted(model, picked, route) == (0, {"uint8": 160})
    figures = cost(capture(model, (picked,), route=route)).total().figures
    assert (figures.read, figures.written) == (3 * picked.element_size() + 48, 3 * 16 * 4)
    bags = torch.tensor([[1, 2, 3], [4, 5, 6]])
    assert counted(table(nn.EmbeddingBag(10, 16, mode="sum")), bags, route) == (0, {"uint8": 160})


def test_static_convolutions():
    model = nn.Sequential(
        quantization.QuantStub(),
        nn.Conv2d(3, 8, 3),
        nn.Flatten(),
        nn.Linear(288, 5),
        quantization.DeQuantStub(),
    ).eval()
    model.qconfig = quantization.get_default_qconfig("fbgemm")
    quantization.prepare(model, inplace=True)(torch.randn(1, 3, 8, 8))
    quantization.convert(model, inplace=True)
    expected = 27 * 8 * 36 + 288 * 5, {"float32": 4 * 13, "int8": 216 + 1440}
    assert counted(model, torch.randn(1, 3, 8, 8), "run") == expected


def test_weights_of_half_a_byte_and_of_two():
    bags = torch.tensor([[1, 2, 3], [4, 5, 6]])
    config = quantization.float_qparams_weight_only_qconfig_4bit
    model = table(nn.EmbeddingBag(10, 16, mode="sum"), config)
    assert counted(model, bags, "run") == (0, {"uint4": 80})
    halves = dynamic(nn.Linear(16, 24), torch.float16)
    assert counted(halves, _PLAIN, "run") == (21 * 384, {"float16": 768, "float32": 96})
    halves = dynamic(nn.LSTM(16, 24), torch.float16)
    assert counted(halves, _PLAIN, "run") == (21 * 3840, {"float16": 7680, "float32": 768})


class Held(nn.Module):
    """Holds a packing where no module looks."""

    def __init__(self):
        super().__init__()
        weight = torch.quantize_per_tensor(torch.randn(24, 16), 0.1, 0, torch.qint8)
        self.held = [torch.ops.quantized.linear_prepack(weight, None)]

    def forward(self, x):
        return torch.ops.quantized.linear_dynamic(x, self.held[0])


@pytest.mark.parametrize("route", ROUTES)
def test_packings_in_lists_are_found_when_they_are_used(route):
    assert counted(Held(), _PLAIN[0], route) == (3 * 384, {"int8": 384})
