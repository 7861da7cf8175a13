"""Capture itself: the user's model untouched, storages, writes, scopes, routes, errors, files."""

from __future__ import annotations

import copy
import random
import subprocess
import sys
import textwrap

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn, rand  # noqa: E402
from torch._higher_order_ops.map import map as each  # noqa: E402
from torch._higher_order_ops.scan import scan  # noqa: E402

import peakfold  # noqa: E402
from peakfold.analysis.cost.counting import cost_of  # noqa: E402
from peakfold.analysis.cost.records import CostOptions  # noqa: E402
from peakfold.errors import ModelError, UsageError  # noqa: E402
from peakfold.frontends import Bindings, load  # noqa: E402
from peakfold.frontends.torch.export import read_program  # noqa: E402
from peakfold.frontends.torch.module import Example, capture  # noqa: E402
from peakfold.frontends.torch.training.step import fake_steps, real_steps  # noqa: E402
from peakfold.ir import Role, check_graph, parse_graph, print_graph  # noqa: E402
from peakfold.planning import PlanOptions, make_plan  # noqa: E402

from . import torch_models as zoo  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.req("R12", "R27")]

ROUTES = ("export", "trace", "run")


class Net(nn.Module):
    """Statistics, a cache that forward writes, a counter, a hook, dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.5)
        self.register_buffer("cache", torch.zeros(2, 4, 6, 6))
        self.table = torch.arange(4.0)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        y = self.norm(self.conv(x)).relu_()
        self.cache.copy_(y)
        return self.drop(y) * self.table.view(1, 4, 1, 1)


def everything(module):
    """All that a capture could disturb, as values."""
    return {
        "state": {k: (v.clone(), v.data_ptr(), v._version) for k, v in module.state_dict().items()},
        "modes": [child.training for child in module.modules()],
        "calls": module.calls,
        "table": (module.table.clone(), module.table.data_ptr()),
        "grads": [p.grad is None for p in module.parameters()],
        "requires": [p.requires_grad for p in module.parameters()],
        "hooks": [
            (list(m._forward_hooks.items()), list(m._forward_pre_hooks.items()))
            for m in module.modules()
        ],
        "attributes": [sorted(vars(m)) for m in module.modules()],
        "children": [id(m) for m in module.modules()],
        "rng": torch.get_rng_state(),
        "python": random.getstate(),
        "numpy": repr(np.random.get_state()),
        "patched": (
            nn.Module.__call__,
            nn.Module.forward,
            F.linear,
            torch.add,
            torch.Tensor.add,
            nn.Conv2d.forward,
        ),
        "global": (
            dict(nn.modules.module._global_forward_hooks),
            dict(nn.modules.module._global_forward_pre_hooks),
        ),
        "switches": (
            torch.is_grad_enabled(),
            torch.backends.mha.get_fastpath_enabled(),
            torch.get_default_dtype(),
            torch.get_default_device(),
        ),
    }


def same(one, two) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, two)
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(one[k], two[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(map(same, one, two))
    return one == two


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("route", ROUTES)
def test_the_model_is_left_exactly_as_it_was(route, training):
    module, seen = Net().train(training), []
    module.conv.register_forward_hook(lambda _m, _i, out: seen.append(out.shape))
    x, before = rand(2, 3, 8, 8), everything(module)
    capture(module, (x,), route=route)
    after = everything(module)
    assert {key for key in before if not same(before[key], after[key])} == set()
    assert seen  # the hook is part of the model and ran


@pytest.mark.parametrize("route", ROUTES)
def test_a_failing_capture_leaves_the_model_too(route):
    class Broken(Net):
        def forward(self, x):
            return super().forward(x) @ rand(99, 99)

    module = Broken().train()
    x, before = rand(2, 3, 8, 8), everything(module)
    with pytest.raises(ModelError):
        capture(module, (x,), route=route)
    after = everything(module)
    assert {key for key in before if not same(before[key], after[key])} == set()


def test_the_check_notices_what_it_is_for():
    module = Net().train()
    before = everything(module)
    module(rand(2, 3, 8, 8))
    after = everything(module)
    assert {key for key in before if not same(before[key], after[key])} == {
        "state",
        "calls",
        "rng",
    }


# Storages: what views, writes and state become.


def ops(graph):
    return {op.name: op for op in graph.ops}


def tidy(function, *args, **more):
    graph = capture(zoo.Fn(function), args, **more)
    check_graph(graph)
    assert parse_graph(print_graph(graph)) == graph
    return graph


def test_views_are_byte_ranges_of_their_storage():
    def views(x):
        x = x * 1
        return x[1:3], x.t(), x[:, 1], x.expand(5, 4, 6), x.reshape(2, 12), x.t().reshape(24)

    graph = tidy(views, rand(4, 6))
    found = ops(graph)
    assert found["slice_1"].stated.views[0].offset == 24
    assert graph["slice_1"].nbytes == 48
    assert found["t"].kind == found["select"].kind == found["reshape"].kind == "view"
    assert (found["select"].stated.views[0].offset, graph["select"].nbytes) == (4, 4 * 19)
    assert (graph["expand"].elements, graph["expand"].nbytes) == (120, 96)
    assert found["reshape_1"].kind == "copy"  # a transposed matrix has no flat view
    assert found["reshape_1"].stated.views == ()


def test_a_write_through_a_view_is_seen_by_later_readers():
    def write(x):
        y = x * 2
        before = y.sum()
        y[1:3].mul_(3)
        return before + y.sum(), y

    graph = tidy(write, rand(4, 6))
    found = ops(graph)
    assert found["mul_"].stated.inplace == (0,)
    (after,) = [op for op in graph.ops if op.kind == "after_write"]
    assert after.inputs == ("mul", "mul_")
    assert found["sum_1"].inputs == ("mul",)  # read before the write
    assert found["sum_2"].inputs == after.outputs
    assert graph.outputs[1] == after.outputs[0]


def test_dropout_that_does_nothing_is_no_op_and_no_copy():
    drop = nn.Dropout(0.3).eval()

    def program(x):
        y = x * 2
        kept = drop(y[2:])
        kept.mul_(3)
        return y + 1, kept[1:]

    graph = tidy(program, rand(4, 6))
    assert [op.kind for op in graph.ops] == ["mul", "view", "mul", "after_write", "add", "view"]
    last = graph.ops[-1]
    assert (last.inputs, last.stated.views[0].offset) == (("mul_",), 24)


@pytest.mark.parametrize("route", ROUTES)
def test_changing_strides_in_place_writes_nothing(route):
    def turn(x):
        y = x * 2
        y.transpose_(0, 1)
        return y + 1

    graph = tidy(turn, rand(4, 6), route=route)
    assert [op.kind for op in graph.ops] == ["mul", "view", "add"]
    assert graph[graph.outputs[0]].shape == (6, 4)


def test_disjoint_views_do_not_see_each_other():
    def write(x):
        y = x * 2
        top, low = y[:2], y[2:]
        top.relu_()
        return low + 1, top + 1

    found = ops(tidy(write, rand(4, 6)))
    assert found["add"].inputs == ("slice_2",)
    assert found["add_1"].inputs == ("relu_",)


def test_buffers_that_forward_writes_are_state_with_effects():
    module = Net().train()
    graph = capture(module, (rand(2, 3, 8, 8),))
    check_graph(graph)
    roles = {t.name: t.role for t in graph.tensors}
    assert {n for n, r in roles.items() if r is Role.STATE} == {
        "norm.running_mean",
        "norm.running_var",
        "norm.num_batches_tracked",
        "cache",
        "table",
    }
    writers = {name: op.kind for op in graph.ops for name in op.writes}
    assert writers == {
        "norm.running_mean": "batch_normalization",
        "norm.running_var": "batch_normalization",
        "norm.num_batches_tracked": "add",
        "cache": "copy",
    }
    assert "training mode" in graph.notes[0]
    frozen = capture(module.eval(), (rand(2, 3, 8, 8),))
    assert {name for op in frozen.ops for name in op.writes} == {"cache"}
    assert not frozen.notes


def test_plans_of_captured_programs_pass_the_judges():
    def program(x):
        y = torch.relu(x) * 2
        z = y[:, 1:3]
        z.mul_(3)
        w = torch.cat([y, z], 1).t()
        return w.softmax(0) + 1, y

    layer = nn.TransformerEncoderLayer(8, 2, 16).eval()
    for graph in (
        tidy(program, rand(4, 6)),
        capture(Net().eval(), (rand(2, 3, 8, 8),)),
        capture(layer, (rand(5, 2, 8),)),
    ):
        assert peakfold.verify(graph, peakfold.plan(graph))


@pytest.mark.parametrize("route", ROUTES)
def test_tied_and_frozen_parameters(route):
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.head = nn.Embedding(50, 8), nn.Linear(8, 50, bias=False)
            self.head.weight = self.embedding.weight
            self.frozen = nn.Linear(8, 8).requires_grad_(False)
            self.unused = nn.Linear(2, 2, bias=False)

        def forward(self, tokens):
            return self.head(self.frozen(self.embedding(tokens)))

    graph = capture(Tied(), (torch.zeros(3, dtype=torch.long),), route=route)
    assert {t.name: t.trainable for t in graph.tensors if t.role is Role.PARAMETER} == {
        "embedding.weight": True,
        "frozen.weight": False,
        "frozen.bias": False,
        "unused.weight": True,
    }
    assert parse_graph(print_graph(graph)) == graph


@pytest.mark.parametrize("route", ROUTES)
def test_scopes_are_module_paths(route):
    inner = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    graph = capture(nn.Sequential(inner, nn.LayerNorm(4)), (rand(2, 4),), route=route)
    scopes = [op.scope for op in graph.ops if op.kind != "view"]
    assert scopes == ["0.0", "0.1", "1"]


def test_several_results_have_tensors_of_their_own():
    graph = tidy(lambda x: torch.split(torch.topk(x, 4).values, 2), rand(3, 8))
    found = ops(graph)
    assert found["topk"].outputs == ("topk.0", "topk.1")
    assert [v.offset for v in found["split"].stated.views] == [0, 32]


@pytest.mark.parametrize("route", ROUTES)
def test_the_same_model_gives_the_same_graph(route):
    def build():
        torch.manual_seed(0)
        return (
            capture(zoo.Experts(), (rand(9, 16),), route="run")
            if route == "run"
            else capture(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), (rand(2, 4),), route=route)
        )

    assert build().digest == build().digest


# Control flow of exported programs.


def test_a_condition_has_two_bodies_and_costs_the_larger():
    one, two = nn.Linear(4, 4), nn.Linear(4, 4)

    class Choice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = one, two
            self.register_buffer("shift", torch.zeros(4))

        def forward(self, x):
            x = x * 2
            small, large = lambda t: self.one(t) + self.shift, lambda t: self.two(self.two(t))
            return torch.cond(x.sum() > 0, small, large, (x,)) + x

    graph = capture(Choice(), (rand(2, 4),))
    check_graph(graph)
    assert parse_graph(print_graph(graph)) == graph
    (choice,) = [op for op in graph.ops if op.kind == "if"]
    assert [region.label for region in choice.regions] == ["then", "else"]
    assert set(choice.regions[0].captures) == {"mul", "one.weight", "one.bias", "shift"}
    assert cost_of(graph).total().figures.macs == 2 * 2 * 16
    assert cost_of(graph).total().figures.params == 40
    assert peakfold.verify(graph, peakfold.plan(graph))


def test_loops_run_their_bodies_as_often_as_is_known():
    layer = nn.Linear(4, 4)

    class Loops(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x):
            last, every = scan(lambda c, t: (self.layer(c) + t, c * t), torch.zeros(4), x)
            mapped = each(self.layer, x)
            _, out = torch.while_loop(
                lambda i, v: i < 5, lambda i, v: (i + 1, self.layer(v)), (torch.tensor(0), last)
            )
            return every, mapped, out

    graph = capture(Loops(), (rand(7, 4),))
    check_graph(graph)
    assert parse_graph(print_graph(graph)) == graph
    kinds = [op.kind for op in graph.ops if op.regions]
    assert kinds == ["scan", "scan", "while"]
    known = cost_of(graph)
    assert known.open_loops == ("while_loop",)
    assert known.total().figures.macs == 7 * 16 + 7 * 16 + 16
    trips = cost_of(graph, CostOptions(trips={"while_loop": 5}))
    assert trips.total().figures.macs == 7 * 16 + 7 * 16 + 5 * 16
    assert peakfold.verify(graph, peakfold.plan(graph))


# Routes and sizes.


def test_a_model_larger_than_memory_is_captured():
    with torch.device("meta"):
        module = nn.Sequential(*(nn.Linear(65_536, 65_536) for _ in range(8)))  # 128 GiB
        graph = capture(module, (torch.empty(4, 65_536),))
    assert sum(t.nbytes for t in graph.tensors if t.role is Role.PARAMETER) > 2**37


def test_fake_models_of_the_callers_own_mode():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        module, x = nn.Linear(4, 3), torch.empty(2, 4)
    for route in ("export", "trace"):
        assert [op.kind for op in capture(module, (x,), route=route).ops][-1] in ("linear", "addmm")
    with FakeTensorMode():  # also while that mode is on
        assert capture(module, (x,))["weight"].shape == (3, 4)
    with pytest.raises(ModelError, match="no values"):
        capture(module, (x,), route="run")


def test_requests_for_a_gpu_do_not_end_the_process():
    code = """
        import torch
        from torch import nn
        from torch._subclasses.fake_tensor import FakeTensorMode
        from peakfold.frontends.torch.module import capture

        class Net(nn.Module):
            def __init__(self, device):
                super().__init__()
                self.weight = nn.Parameter(torch.empty(4, 4, device=device))
            def forward(self, x):
                q = (x @ self.weight)[None, None] + torch.ones(4, device="cuda")
                return nn.functional.scaled_dot_product_attention(q, q.cuda(), q.to("cuda:0"))

        with FakeTensorMode():
            for device in ("cuda", "cpu"):
                x = torch.empty(2, 4, device=device)
                for route in ("export", "trace"):
                    capture(Net(device), (x,), route=route)
        print("alive")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr


def test_data_dependent_control_flow_is_one_clear_error(capfd):
    class Deep(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    module = nn.Sequential(nn.Linear(4, 4), nn.Sequential(Deep()))
    for route, hint in (("export", "trace"), ("trace", "run")):
        with pytest.raises(ModelError) as caught:
            capture(module, (rand(2, 4),), route=route)
        message = str(caught.value)
        assert "module '1.0'" in message
        assert f"{__file__}:{Deep.forward.__code__.co_firstlineno + 1}" in message
        assert "values of a tensor" in message
        assert f'route="{hint}"' in message
        assert "\n" not in message
    assert capfd.readouterr() == ("", "")
    assert capture(module, (rand(2, 4),), route="run").notes


def test_results_inside_objects_are_results():
    class Cache:
        def __init__(self, *layers):
            self.layers = [{"keys": layer} for layer in layers]

    class Net(nn.Module):
        def forward(self, x):
            return x * 2, Cache(x + 1, x + 2), None, 3

    graph = capture(Net(), (rand(2),))
    assert graph.outputs == ("mul", "add", "add_1")


class Mapped(nn.Module):
    """A layer mapped over the batch; an export shows its operators for one item of it."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 8)

    def forward(self, x):
        return torch.vmap(self.layer)(x)


@pytest.mark.parametrize("route", ["export", "trace"])
def test_what_is_mapped_over_a_batch_counts_for_the_whole_batch(route):
    graph = capture(Mapped(), (torch.zeros(4, 16),), route=route)
    assert peakfold.cost(graph).total().figures.macs == 4 * 16 * 8
    assert graph[graph.outputs[0]].shape == (4, 8)


def test_a_program_with_vmap_inside_says_what_it_cannot_show():
    program = torch.export.export(Mapped(), (torch.zeros(4, 16),))
    assert "1 operators inside vmap are counted for one item only" in (
        read_program(program, "mapped").notes
    )


@pytest.mark.parametrize("call", [capture, fake_steps, real_steps])
def test_parameters_without_a_shape_are_named(call):
    model = nn.Sequential(nn.ReLU(), nn.LazyLinear(8))
    with pytest.raises(ModelError, match=r"module '1': its parameters have no shape") as caught:
        call(model, (torch.zeros(2, 4),))
    assert "run the lazy module once" in str(caught.value)


def test_a_module_that_cannot_be_copied_is_named():
    module = nn.Linear(2, 2)
    module.lock = (i for i in range(3))
    with pytest.raises(ModelError, match="cannot be copied"):
        capture(module, (rand(1, 2),))


def test_custom_operators_are_counted_and_named():
    library = torch.library.Library("peakfold_test", "FRAGMENT")
    library.define("warp(Tensor x, Tensor(a!) y) -> Tensor")
    library.impl("warp", lambda x, y: torch.empty_like(x), "Meta")
    module = zoo.Fn(lambda x, y: torch.ops.peakfold_test.warp(x * 1, z := y * 1) + z)
    graph = capture(module, (rand(2), rand(2)))
    from peakfold.analysis import unsupported

    assert unsupported(graph) == {"peakfold_test::warp": 1}
    (warp,) = [op for op in graph.ops if "::" in op.kind]
    assert ops(graph)["add"].inputs == warp.outputs  # what it wrote is what is read


# Sizes, callables, files.


def test_named_dimensions_are_bound_before_the_capture():
    module = zoo.Fn(lambda x: x.repeat(2, 1) if len(x) > 3 else x * 1)
    args, dynamic = (rand(2, 4),), {"args_0": {0: "batch"}}
    assert capture(module, args, dynamic=dynamic)[capture(module, args).outputs[0]].shape == (2, 4)
    bound = capture(module, args, dynamic=dynamic, dims={"batch": 5})
    assert bound[bound.outputs[0]].shape == (10, 4)
    given = capture(module, args, shapes={"args_0": (3, 7)})
    assert given[given.outputs[0]].shape == (3, 7)
    for wrong in (
        {"dims": {"batch": 2}},
        {"dynamic": dynamic, "dims": {"b": 2}},
        {"dynamic": {"nope": {0: "b"}}},
        {"shapes": {"args_0": (1,)}},
        {"route": "guess"},
    ):
        with pytest.raises(UsageError):
            capture(module, args, **wrong)


MODULE = """
import torch
from torch import nn
from peakfold.frontends.torch.module import Example

def pair():
    return nn.Linear(4, 3), (torch.zeros(2, 4),)

def triple():
    return nn.Linear(4, 3), (), {"input": torch.zeros(2, 4)}

def example():
    return Example(nn.Linear(4, 3), (torch.zeros(2, 4),), dynamic={"input": {0: "batch"}})

def values():
    sizes = [int(v.item()) for v in torch.linspace(4, 8, 100_000)[[0, -1]]]
    return nn.Linear(*sizes), (torch.zeros(2, 4),)

def huge():
    return nn.Linear(500_000, 500_000), (torch.zeros(2, 500_000),)

def broken():
    raise ValueError("on purpose")

def wrong():
    return 3

def keywords():
    return nn.Linear(4, 3), {"input": torch.zeros(2, 4)}

class holder:
    inner = pair
"""


@pytest.fixture
def models(tmp_path, monkeypatch):
    (tmp_path / "my_models.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("my_models", None)


def test_callables_are_models(models):
    for name in ("pair", "triple", "example", "holder.inner"):
        graph = load(f"my_models:{name}").graph
        assert (graph.inputs, [op.kind for op in graph.ops]) == (("input",), ["linear"])
    batch = load("my_models:example", Bindings({"batch": 7})).graph
    assert batch["input"].shape == (7, 4)
    assert "its constructor needs values" in load("my_models:values").graph.notes[0]
    assert load("my_models:huge").graph["weight"].nbytes == 10**12
    with pytest.raises(ModelError, match="on purpose"):
        load("my_models:broken")
    with pytest.raises(UsageError, match=r"returned \(Linear, dict\).*args is a tuple"):
        load("my_models:keywords")
    for spec in ("my_models:wrong", "my_models:nothing", "no_such_module:f"):
        with pytest.raises(UsageError):
            load(spec)


def test_a_callable_alone_is_inspected(models):
    from click.testing import CliRunner

    from peakfold.cli import main

    for args in (["my_models:example"], ["inspect", "my_models:example", "--json"]):
        done = CliRunner().invoke(main, args)
        assert done.exit_code == 0, done.output
        assert "15" in done.output  # 4 x 3 weights and 3 biases
    assert CliRunner().invoke(main, ["my_models:nothing"]).exit_code == 2


def test_a_callable_can_be_planned_and_its_plan_verified(models, tmp_path):
    report = peakfold.plan("my_models:example", dims={"batch": 3})
    report.save(tmp_path / "plan.json")
    assert peakfold.verify("my_models:example", tmp_path / "plan.json")


def test_exported_programs_are_models(tmp_path):
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten()).eval()
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(module, (rand(3, 3, 8, 8),), dynamic_shapes=({0: batch},))
    torch.export.save(program, tmp_path / "net.pt2")
    graph = load(tmp_path / "net.pt2").graph
    (symbol,) = graph.symbols
    assert graph[graph.inputs[0]].shape == (symbol, 3, 8, 8)
    assert {op.scope for op in graph.ops} == {"0", "1", "2"}
    bound = load(tmp_path / "net.pt2", Bindings({symbol: 5})).graph
    assert bound[bound.outputs[0]].shape == (5, 144)
    (tmp_path / "bad.pt2").write_bytes(b"nothing")
    with pytest.raises(ModelError, match="no exported program"):
        load(tmp_path / "bad.pt2")


def test_a_saved_program_writes_in_place_as_the_module_does(tmp_path):
    """Values of a program that was read share no storage, not even an operand and its result."""

    class Cache(nn.Module):
        def __init__(self):
            super().__init__()
            self.make = nn.Linear(16, 32)
            self.register_buffer("one", torch.zeros(2, 64, 16))
            self.register_buffer("two", torch.zeros(2, 64, 16))

        def forward(self, x, at):
            one, two = self.make(x).chunk(2, -1)
            self.one[:, 3:4] = one
            self.two.index_copy_(1, at, two)
            return (self.one + self.two).relu_()

    module, args = Cache(), (rand(2, 1, 16), torch.tensor([3]))
    path = tmp_path / "cache.pt2"
    torch.export.save(torch.export.export(module, args), path)
    saved, direct = load(str(path)).graph, capture(module, args)
    assert [(op.kind, len(op.results), op.writes) for op in saved.ops] == [
        (op.kind, len(op.results), op.writes) for op in direct.ops
    ]
    plans = [make_plan(g, PlanOptions(quick=True)).summary for g in (saved, direct)]
    assert plans[0].arena_bytes == plans[1].arena_bytes


def test_conditions_and_copies_of_examples():
    example = Example(nn.Linear(2, 2), (rand(1, 2),))
    assert copy.copy(example) == example
