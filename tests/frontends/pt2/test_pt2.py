"""Exported programs in files: the same graphs as before they were saved, without torch."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from peakfold.errors import ModelError, UsageError
from peakfold.frontends import Bindings, load
from peakfold.frontends.pt2.aliases import storages
from peakfold.frontends.pt2.values import Sizes
from peakfold.ir.text import print_graph
from peakfold.planning import PlanOptions, make_plan

torch = pytest.importorskip("torch")

from peakfold.frontends.torch.export import read_program  # noqa: E402
from tests.frontends.pt2.pt2_models import MODELS  # noqa: E402
from tests.frontends.torch.torch_models import Fn  # noqa: E402

pytestmark = pytest.mark.torch

# Where PyTorch's loader loses nothing: no view at a distance, no reshaping that copies nothing.
SAME_BY_THE_LOADER = ("mlp", "branches", "quantised", "unet", "mapped")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A model by name: its exported program and its file."""
    folder, made = tmp_path_factory.mktemp("pt2"), {}

    def get(name: str):
        if name not in made:
            program = MODELS[name]()
            torch.export.save(program, folder / f"{name}.pt2")
            made[name] = program, folder / f"{name}.pt2"
        return made[name]

    return get


@pytest.mark.parametrize("name", MODELS)
def test_a_file_gives_the_graph_of_its_program(name: str, saved) -> None:
    program, path = saved(name)
    expected = print_graph(read_program(program, name))
    assert print_graph(load(path).graph) == expected
    if name in SAME_BY_THE_LOADER:
        assert print_graph(load(path, trust=True).graph) == expected


def test_views_lie_where_they_lie(saved) -> None:
    """PyTorch's loader gives every value a storage of its own, and says nothing of distances."""
    graph = load(saved("cache")[1]).graph
    views = {op.name: op.stated.views for op in graph.ops if op.stated and op.stated.views}
    assert [view.offset for view in views["chunk"]] == [0, 64]
    assert views["slice_1"][0].offset == 192
    tied = load(saved("gpt")[1]).graph
    assert [t.name for t in tied.tensors if t.name.endswith("head.weight")] == []


def test_numbers_for_symbols_are_put_into_every_size(saved) -> None:
    _, path = saved("unet")
    shown = str((load(path).graph["x"].shape or ())[2])
    symbol = shown.removeprefix("2*")
    graphs = [
        load(path, Bindings({symbol: 6})).graph,
        load(path, Bindings({shown: 12})).graph,
        load(path, Bindings.parse((), ["x=2x3x12x16"])).graph,
    ]
    assert len({graph.digest for graph in graphs}) == 1
    assert not graphs[0].symbols
    assert graphs[0][graphs[0].outputs[0]].shape == (2, 2, 12, 16)
    assert make_plan(graphs[0], PlanOptions(quick=True)).summary.arena_bytes > 0


@pytest.mark.parametrize(
    ("dims", "shapes", "said"),
    [
        ([], ["x=2x3x13x16"], "size 2.* cannot be 13"),
        ([], ["x=2x4x12x16"], "fixes 3, not 4"),
        ([], ["x=2x3x12"], "has 3 dimensions"),
        ([], ["y=2"], "no input is called 'y'"),
        (["nobody=2"], [], "no dimension is called 'nobody'"),
        (["2*(=2"], [], "no size"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(dims, shapes, said: str, saved) -> None:
    with pytest.raises(UsageError, match=said):
        load(saved("unet")[1], Bindings.parse(dims, shapes))


def test_numbers_out_of_the_exported_range_are_noted(saved) -> None:
    _, path = saved("mlp")
    (symbol,) = load(path).graph.symbols
    assert load(path, Bindings({symbol: 64})).graph.notes == ()
    (note,) = load(path, Bindings({symbol: 65})).graph.notes
    assert note == f"{symbol}=65 is outside 2..64, for which it was exported"


def test_operators_of_others_are_unknown_ops(tmp_path) -> None:
    torch.library.define("peakfold_test::warp", "(Tensor x, float by) -> Tensor")
    torch.library.impl("peakfold_test::warp", "CompositeExplicitAutograd")(lambda x, by: x * by)
    program = torch.export.export(
        Fn(lambda x: torch.ops.peakfold_test.warp(x.view(-1), 2.0).relu()), (torch.zeros(3, 4),)
    )
    torch.export.save(program, tmp_path / "own.pt2")
    _, warp, _ = load(tmp_path / "own.pt2").graph.ops
    assert (warp.kind, warp.attrs) == ("peakfold_test::warp", {"by": 2.0})
    assert warp.stated is not None
    assert not warp.stated.views


class Given(torch.nn.Module):
    """Operators that write into what they are given, beside views that are read afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(4, 4))

    def forward(self, x):
        whole = x.clone()
        flat, row = whole.view(-1), whole[1]
        torch.mul(x, x, out=whole)
        torch.add(x, 1, out=self.seen)
        made = torch.empty(4, 4)
        torch.mm(x, x, out=made[:])
        torch.cat([flat[:8].view(2, 4), made[2:]], out=made)
        torch.special.expm1(made, out=whole)
        return flat * 2, row + 1, self.seen * 2, torch.cat([x, made], dim=1)


def test_operators_write_into_what_they_are_given(tmp_path) -> None:
    program = torch.export.export(Given(), (torch.zeros(4, 4),))
    torch.export.save(program, tmp_path / "given.pt2")
    graph = load(tmp_path / "given.pt2").graph
    assert print_graph(graph) == print_graph(read_program(program, "given"))
    assert sum(op.kind == "after_write" for op in graph.ops) >= 4
    assert [op.writes for op in graph.ops if op.writes] == [("seen",)]


def test_operators_of_others_write_as_their_schema_says(tmp_path) -> None:
    """A file has no schema of theirs: a superset of what the program shows."""
    torch.library.define("peakfold_test::fill", "(Tensor x, Tensor(a!) out) -> ()")
    torch.library.impl("peakfold_test::fill", "CompositeExplicitAutograd")(lambda x, out: None)

    def run(x):
        whole = x.clone()
        flat = whole.view(-1)
        torch.ops.peakfold_test.fill(x * 2, whole)
        return flat + 1

    program = torch.export.export(Fn(run), (torch.zeros(2, 4),))
    torch.export.save(program, tmp_path / "fill.pt2")
    graph, true = load(tmp_path / "fill.pt2").graph, read_program(program, "fill")
    assert [(op.kind, op.inputs[:1], op.stated) for op in graph.ops] == [
        (op.kind, op.inputs[:1], op.stated) for op in true.ops
    ]


def test_a_frozen_program_and_one_without_values(tmp_path) -> None:
    """`save` of a program on fake tensors stores no weights."""
    with torch._subclasses.FakeTensorMode():
        net = torch.nn.Linear(4, 3)
        program = torch.export.export(net, (torch.zeros(2, 4),))
    torch.export.save(program, tmp_path / "fake.pt2")
    graph = load(tmp_path / "fake.pt2").graph
    assert graph["weight"].nbytes == 48


def test_trust_is_asked_for_and_silent(saved, tmp_path) -> None:
    from click.testing import CliRunner

    from peakfold.boundary import trusted
    from peakfold.cli import main

    _, path = saved("mlp")
    (symbol,) = load(path).graph.symbols
    done = CliRunner().invoke(main, ["plan", str(path), "--trust", "--dim", f"{symbol}=4", "-q"])
    assert (done.exit_code, done.stderr) == (0, "")
    assert not trusted()
    (tmp_path / "bad.pt2").write_bytes(path.read_bytes()[:-100])
    for flags in ([], ["--trust"]):
        done = CliRunner().invoke(main, ["inspect", str(tmp_path / "bad.pt2"), *flags])
        assert done.exit_code == 1
        assert done.stderr.count("\n") == 1, done.stderr
        assert "no exported program" in done.stderr


def test_the_written_schemas_are_those_of_torch() -> None:
    tool = Path(__file__).parents[3] / "tools" / "aten_schemas.py"
    spec = importlib.util.spec_from_file_location("aten_schemas", tool)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    written, found = module.PATH.read_text("utf-8").splitlines(), module.lines()
    assert written == sorted(written)
    # Other domains grow while a process imports more of torch.
    assert {line for line in found if line.startswith("aten::")} <= set(written) <= set(found)


def test_aliases_that_strides_decide() -> None:
    from peakfold.frontends.aten.schema import signature_of
    from peakfold.frontends.aten.values import Ref
    from peakfold.frontends.pt2.schema import Device, SymInt, TensorMeta

    def value(sizes, strides, dtype=7):
        meta = TensorMeta(
            dtype,
            [SymInt(None, n) for n in sizes],
            False,
            Device("cpu"),
            [SymInt(None, n) for n in strides],
            SymInt(None, 0),
            7,
        )
        return Sizes({}).tensor(meta, 1, "x")

    def aliased(operator: str, overload: str, source, result) -> bool:
        signature = signature_of("aten", operator, overload)
        return [*storages(signature, {"self": Ref("x", source)}, [result])] == [1]

    rows, columns = value((4, 3), (3, 1)), value((4, 3), (1, 4))
    flat = value((12,), (1,))
    assert aliased("reshape", "default", rows, flat)
    assert not aliased("reshape", "default", columns, flat)
    assert aliased("contiguous", "default", rows, rows)
    assert not aliased("contiguous", "default", columns, rows)
    assert aliased("to", "dtype", rows, rows)
    assert not aliased("to", "dtype", rows, value((4, 3), (3, 1), dtype=6))
    assert aliased("view", "default", rows, flat)
    assert not aliased("relu", "default", rows, rows)


def test_a_format_that_is_read_without_torch_says_what_is_missing(tmp_path) -> None:
    (tmp_path / "bad.pt2").write_bytes(b"nothing")
    with pytest.raises(ModelError, match="no exported program: File is not a zip file"):
        load(tmp_path / "bad.pt2")
