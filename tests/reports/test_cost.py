"""`peakfold.cost`: the report in a notebook, handlers as an argument, rows and texts."""

from __future__ import annotations

import pytest

import peakfold
from peakfold.errors import UsageError
from peakfold.ir import parse_graph
from peakfold.ops import REGISTRY, OpSpec
from peakfold.reports.records.cost_rows import cost_rows, selected
from peakfold.reports.text.inspect import TableChoice
from peakfold.units import format_count

HEAD = "peakfold-graph 1\n"
NET = HEAD + (
    "input x: float32[4,8]\nparameter w: float32[8,8]\n"
    'a: float32[4,8] = matmul(x, w) name="/block/fc/MatMul"\n'
    'y: float32[4,8] = relu(a) name="/block/act/Relu"\noutput y'
)


@pytest.mark.req("R60")
def test_the_report_answers_like_a_counter():
    report = peakfold.cost(parse_graph(NET))
    total = report.total()
    assert (total.macs, total.flops, total.params, total.bytes_moved) == (256, 544, 64, 768)
    assert [op.name for op in report.by_op()] == ["/block/fc/MatMul", "/block/act/Relu"]
    assert set(report.by_kind()) == {"matmul", "relu"}
    assert list(report.by_scope()) == ["", "/block", "/block/fc", "/block/act"]
    assert report.by_scope()["/block"].figures.flops == 512 + 32
    assert report.unsupported() == {}
    assert repr(report).startswith("64 params, 136 FLOPs")  # of a batch of 4


def test_a_notebook_shows_a_table_that_no_name_can_leave():
    evil = NET.replace("/block/act/Relu", "<script>alert(1)</script>")
    page = peakfold.cost(parse_graph(evil))._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert page.count("<tr>") == 3
    unknown = parse_graph(HEAD + "input x: int8[4]\ny: int8[4] = warp(x)\noutput y")
    assert "not wholly known: warp (1)" in peakfold.cost(unknown)._repr_html_()
    assert "<table>" in peakfold.inspect(parse_graph(NET))._repr_html_()


def test_handlers_are_an_argument_and_leave_nothing_behind():
    graph = parse_graph(HEAD + "input x: int8[4]\ny: int8[4] = warp(x)\noutput y")
    row = OpSpec("warp", macs=lambda ctx: 5, other_ops=lambda ctx: 0)
    assert peakfold.cost(graph, handlers={"warp": row}).total().figures.flops == 10
    plain = peakfold.cost(graph, handlers={"warp": lambda ctx: 3})
    assert plain.total().figures.macs == 3
    assert plain.unsupported() == {"warp": 1}  # its other operations are still unknown
    assert peakfold.inspect(graph, handlers={"warp": row}).complete
    assert not peakfold.inspect(graph).complete
    assert "warp" not in REGISTRY
    doubled = peakfold.cost(parse_graph(NET), handlers={"matmul": lambda ctx: 512})
    assert doubled.total().figures.macs == 512


def test_options_are_checked():
    with pytest.raises(UsageError, match="no option 'casual'"):
        peakfold.cost(parse_graph(NET), casual="half")
    with pytest.raises(UsageError, match="no rows by 'layer'"):
        cost_rows(peakfold.cost(parse_graph(NET)).cost, "layer")
    with pytest.raises(UsageError, match="cannot sort by 'size'"):
        selected([], "size", None)


@pytest.mark.parametrize(
    "options",
    [
        {"causal": "quarter"},
        {"batch": 0},
        {"batch": "2"},
        {"batch": 1.5},
        {"trips": 3},
        {"device": "t4", "batches": (1, 0)},
        {"device": "t4", "batches": (2.5,)},
        {"device": "t4", "measured_s": -1.0},
        {"device": "t4", "measured_s": float("nan")},
    ],
)
def test_a_value_that_is_none_is_refused_and_never_taken_for_another(options):
    with pytest.raises(UsageError):
        peakfold.inspect(parse_graph(NET), **options)


@pytest.mark.req("R63", "R64", "R66")
def test_counts_carry_their_unit_and_prefix():
    assert format_count(8.1e12, "FLOP/s") == "8.100 TFLOP/s"
    assert format_count(3e21, "FLOPs") == "3.000 ZFLOPs"
    assert format_count(999_999.6) == "1.000 M"
    assert format_count(999) == "999"
    report = repr(peakfold.inspect(parse_graph(NET)))
    assert "FLOP/s" not in report  # counts, no speeds
    words = report.replace("MACs", "")
    assert "MAC" not in words  # never a bare "MAC"
    assert "params" in report.splitlines()[0]
    assert "MB" not in report.splitlines()[0].split(" params")[0]


@pytest.mark.shared
def test_memory_access_is_a_lower_bound_when_a_written_size_is_not_known(shared):
    """The last op of this model makes a sequence of maps."""
    report = peakfold.inspect(shared / "models" / "onnx" / "logreg_iris.onnx")
    assert ">= 64 B memory access" in report.to_text()


def test_dimensions_without_a_number_are_named() -> None:
    text = "peakfold-graph 1\ninput x: int8[N,4]\ny: int8[N,4] = relu(x)\noutput y"
    shown = repr(peakfold.cost(parse_graph(text)))
    assert "not known while these dimensions have no number: N" in shown
    assert "no number" not in repr(peakfold.cost(parse_graph(text.replace("N", "2"))))


WARP = HEAD + 'input x: int8[4]\ny: int8[4] = "com.example::zoom_in"(x)\noutput y'


@pytest.mark.parametrize("name", ["com.example::zoom_in", "com.example::ZoomIn"])
def test_a_handler_is_named_as_the_file_or_as_the_report_does(name):
    assert peakfold.cost(parse_graph(WARP), handlers={name: lambda ctx: 7}).total().macs == 7


def test_a_handler_for_nothing_is_refused():
    with pytest.raises(UsageError, match=r"'zoomin'.*kinds without a row: com.example::zoom_in"):
        peakfold.cost(parse_graph(WARP), handlers={"zoomin": lambda ctx: 7})
    known = {"matmul": lambda ctx: 1}  # a kind of the registry may be absent from a model
    assert peakfold.cost(parse_graph(WARP), handlers=known).total().macs is None


@pytest.mark.parametrize(
    "row", [lambda ctx: -1, lambda ctx: 2.5, lambda ctx: "9", lambda ctx: 1 // 0, 3]
)
def test_an_answer_that_is_no_count_is_refused(row):
    with pytest.raises(UsageError, match="the handler of 'com.example::zoom_in'"):
        peakfold.cost(parse_graph(WARP), handlers={"com.example::zoom_in": row})
    if callable(row):
        spec = OpSpec("zoom", macs=lambda ctx: 1, other_ops=row)
        with pytest.raises(UsageError, match="the handler of"):
            peakfold.inspect(parse_graph(WARP), handlers={"com.example::zoom_in": spec})


def test_a_handler_may_not_know():
    found = peakfold.cost(parse_graph(WARP), handlers={"com.example::zoom_in": lambda ctx: None})
    assert found.total().macs is None
    assert found.unsupported() == {"com.example::zoom_in": 1}


@pytest.mark.parametrize("model", [3, None, b"x", (), (1, 2)])
def test_what_is_no_model_is_refused(model):
    with pytest.raises(UsageError, match="is no model"):
        peakfold.cost(model)


def test_deep_scopes_are_cut_once_and_keep_to_the_width():
    head = "peakfold-graph 1\ninput x: float32[4096,4096]\nparameter w: float32[4096,4096]\n"
    lines = [
        f"a{n}: float32[4096,4096] = matmul({'x' if not n else f'a{n - 1}'}, w) "
        f'scope="encoder.layer.{n}.intermediate_attention.self_attention"'
        for n in range(3)
    ]
    graph = parse_graph(head + "\n".join(lines) + "\noutput a2")
    text = peakfold.inspect(graph).to_text(width=80, choice=TableChoice(by="scope", top=None))
    table = text.split("Cost by scope")[1].split("\n\n")[0]
    assert max(map(len, table.splitlines())) <= 80
    assert all(line.count("…") <= 1 for line in table.splitlines())
