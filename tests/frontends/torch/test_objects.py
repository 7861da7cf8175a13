"""Objects among the arguments: found, named, copied, and left as they were."""

from __future__ import annotations

import copy
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from peakfold import ModelError, cost  # noqa: E402
from peakfold.frontends.torch.load import load_callable, load_example  # noqa: E402
from peakfold.frontends.torch.module import Example, capture, input_names  # noqa: E402
from peakfold.frontends.torch.objects import changed, named_tensors, tensors_of  # noqa: E402
from peakfold.frontends.torch.training.forward import fake_forward, real_forward  # noqa: E402
from peakfold.frontends.torch.training.joint import joint_graph  # noqa: E402
from peakfold.frontends.torch.training.options import StepOptions  # noqa: E402
from peakfold.frontends.torch.training.step import fake_steps, real_steps, step_graph  # noqa: E402
from peakfold.ir import Role  # noqa: E402
from peakfold.ir.bindings import Bindings  # noqa: E402

SGD = StepOptions(optimizer="sgd", loss="sum")
ROUTES = ("export", "trace", "run")


class Plain:
    """A cache that grows by what it is given."""

    def __init__(self, rows: int = 2) -> None:
        self.kept = [torch.arange(rows * 8.0).view(rows, 8)]
        self.calls = 0

    def grow(self, rows: torch.Tensor) -> torch.Tensor:
        self.kept[0] = torch.cat([self.kept[0], rows])
        self.calls += 1
        return self.kept[0]


class Slotted:
    __slots__ = ("__rows", "calls")

    def __init__(self) -> None:
        self.__rows = torch.ones(2, 8)
        self.calls = 0

    def grow(self, rows: torch.Tensor) -> torch.Tensor:
        self.__rows = torch.cat([self.__rows, rows])
        self.calls += 1
        return self.__rows


class Written(Plain):
    """Writes in place, as a cache of a fixed size does."""

    def grow(self, rows: torch.Tensor) -> torch.Tensor:
        self.kept[0][: rows.shape[0]] += rows
        self.calls += 1
        return self.kept[0]


class Mapped(dict[str, Any]):
    def grow(self, rows: torch.Tensor) -> torch.Tensor:
        self["rows"] = torch.cat([self["rows"], rows])
        self.calls = getattr(self, "calls", 0) + 1
        return self["rows"]


class Listed(list[Any]):
    def grow(self, rows: torch.Tensor) -> torch.Tensor:
        self.append(rows)
        return torch.cat(list(self))


@dataclass
class Data:
    inner: Plain = field(default_factory=Plain)
    name: str = "data"

    def grow(self, rows: torch.Tensor) -> torch.Tensor:
        return self.inner.grow(rows)


class Named(NamedTuple):
    inner: Plain
    scale: float

    def grow(self, rows: torch.Tensor) -> torch.Tensor:
        return self.inner.grow(rows) * self.scale


class Grows(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 8, bias=False)

    def forward(self, x: torch.Tensor, cache: Any) -> torch.Tensor:
        made: torch.Tensor = self.layer(cache.grow(x))
        return made


KINDS = {
    "attributes": Plain,
    "slots": Slotted,
    "written in place": Written,
    "data class": Data,
    "subclass of dict": lambda: Mapped(rows=torch.ones(2, 8)),
    "subclass of list": lambda: Listed([torch.ones(2, 8)]),
    "named tuple": lambda: Named(Plain(), 2.0),
}


def _values(tree: Any) -> list[tuple[Any, list[float]]]:
    return [(path, tensor.flatten().tolist()) for path, tensor in named_tensors(tree)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("route", ROUTES)
def test_a_capture_leaves_objects_as_they_were(kind: str, route: Any) -> None:
    cache, x = KINDS[kind](), torch.ones(2, 8)
    tensors, values = tensors_of((x, cache)), _values((x, cache))
    rows = 2 if kind == "written in place" else 4
    for _ in range(2):
        graph = capture(Grows(), (x, cache), route=route)
        assert cost(graph).total().figures.macs == rows * 8 * 8
        assert len(graph.inputs) == 2
        assert graph.inputs[1].startswith("cache")
    after = tensors_of((x, cache))
    assert all(one is two for one, two in zip(tensors, after, strict=True))
    assert {type(tensor) for tensor in after} == {torch.Tensor}
    assert _values((x, cache)) == values
    assert getattr(cache, "calls", 0) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_training_step_begins_with_the_objects_as_given(kind: str) -> None:
    cache, x = KINDS[kind](), torch.ones(2, 8)
    values = _values((x, cache))
    predicted = [fake_steps(Grows(), (x, cache), options=SGD) for _ in range(2)]
    measured = real_steps(Grows(), (x, cache), options=SGD)
    assert predicted[0].steady.peak == predicted[1].steady.peak == measured.steady.peak
    assert predicted[0].first.peak == measured.first.peak
    # A cache that takes another tensor lets go of the one it held, and nobody else holds that.
    held = kind in ("written in place", "subclass of list")
    assert predicted[0].steady.at_peak()["input"] == (128 if held else 64)
    assert _values((x, cache)) == values


def test_other_ways_of_running_copy_objects_too() -> None:
    cache, x = Plain(), torch.ones(2, 8)
    values = _values(cache)
    names = input_names(Grows(), (x, cache), {})
    assert names == ("x", "cache.kept.0")
    assert fake_forward(Grows(), (x, cache)).peak == real_forward(Grows(), (x, cache)).peak
    graph = step_graph(Grows(), (x, cache), options=SGD, names=names).graph
    assert [t.name for t in graph.tensors if t.role is Role.INPUT] == list(names)
    joint = joint_graph(Grows(), (x, cache), options=SGD, names=names).graph
    assert {"x", "cache.kept.0"} <= {t.name for t in joint.tensors if t.role is Role.INPUT}
    named = fake_steps(Grows(), (x, cache), options=StepOptions(optimizer="sgd", loss="mse"))
    assert named.steady.peak
    assert _values(cache) == values
    assert cache.calls == 0


def test_a_shape_is_given_to_what_lies_in_an_object() -> None:
    example = Example(Grows(), (torch.ones(2, 8), Plain()), dynamic={"cache.kept.0": {0: "past"}})
    graph = capture(*_parts(example), dynamic=example.dynamic, dims={"past": 30}, route="trace")
    assert cost(graph).total().figures.macs == 32 * 64
    args, _ = example.resized({}, {"cache.kept.0": (6, 8)})
    assert args[1].kept[0].shape == (6, 8)
    assert example.args[1].kept[0].shape == (2, 8)


def _parts(example: Example) -> tuple[Any, Any, Any]:
    return example.module, example.args, dict(example.kwargs)


class Refuses(Plain):
    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("cannot be copied: it holds a lock")


class Handle:
    """Refuses to be copied, and holds no tensor."""

    def __init__(self) -> None:
        self.rate = 2.0

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("a handle")

    def grow(self, rows: torch.Tensor) -> torch.Tensor:
        return rows * self.rate


@pytest.mark.parametrize("route", ROUTES)
def test_an_object_that_refuses_to_be_copied(route: Any) -> None:
    with pytest.raises(ModelError, match=r"argument '1'.*a Refuses that holds tensors") as found:
        capture(Grows(), (torch.ones(2, 8), Refuses()), route=route)
    assert "holds a lock" in str(found.value)
    with pytest.raises(ModelError, match=r"argument 'cache'.*a Refuses"):
        capture(Grows(), (torch.ones(2, 8),), {"cache": Refuses()}, route=route)
    graph = capture(Grows(), (torch.ones(2, 8), Handle()), route=route)
    assert graph.inputs == ("x",)
    assert cost(graph).total().figures.macs == 128


def test_the_walk_finds_tensors_wherever_they_are() -> None:
    shared = torch.zeros(3)
    plain = Plain()
    tree = (
        OrderedDict(a=[shared], b=deque([plain])),
        partial(max, shared, key=torch.ones(1)),
        plain.grow,
        {"set": {torch.zeros(5)}},
        torch.nn.Linear(2, 1),
        object(),
        None,
        "x",
        1.5,
    )
    plain.me = plain  # type: ignore[attr-defined]
    found = list(named_tensors(tree))
    assert [path for path, _ in found] == [
        (0, "a", 0),
        (0, "b", 0, "kept", 0),
        (1, "args", 0),
        (1, "keywords", "key"),
        (2, "kept", 0),
        (3, "set", 0),
        (4, "_parameters", "weight"),
        (4, "_parameters", "bias"),
    ]
    assert len(list(named_tensors(tree, modules=False))) == 6
    other = changed(tree, torch.clone)
    assert other[0]["a"][0] is other[1].args[0] is not shared
    assert other[0]["b"][0] is other[2].__self__ is other[0]["b"][0].me
    assert other[5] is tree[5]
    assert len(tensors_of(other)) == len(found)


class Both(torch.nn.Module):
    def forward(self, one: Any, two: Any) -> torch.Tensor:
        one.kept[0].add_(1)
        return one.kept[0] + two["same"]


@pytest.mark.parametrize("route", ["trace", "run"])
def test_a_tensor_in_two_objects_stays_one(route: Any) -> None:
    plain = Plain()
    graph = capture(Both(), (plain, {"same": plain.kept[0]}), route=route)
    assert sum(t.nbytes or 0 for t in graph.tensors if t.role is Role.INPUT) == 64
    assert plain.kept[0][0, 1] == 1


def _llama() -> tuple[Any, Any]:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=200,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
    return transformers.LlamaForCausalLM(config).eval(), config


def _filled(model: Any, cache: Any) -> dict[str, Any]:
    ids = torch.zeros(2, 16, dtype=torch.long)
    with torch.no_grad():
        model(input_ids=ids, past_key_values=cache, use_cache=True)
    return {"input_ids": ids[:, :1], "past_key_values": cache, "use_cache": True}


@pytest.mark.parametrize("route", ROUTES)
def test_a_cache_of_transformers(route: Any) -> None:
    model, _ = _llama()
    from transformers import DynamicCache

    given = _filled(model, DynamicCache())
    values = _values(given["past_key_values"])
    for _ in range(2):
        graph = capture(model, (), given, route=route)
        assert cost(graph).total().figures.macs == 157_184
        assert len(graph.inputs) == 5
    assert _values(given["past_key_values"]) == values
    assert len(model(**given).past_key_values.layers[0].keys.tolist()[0][0]) == 17


class TwoSided(torch.nn.Module):
    def forward(self, x: torch.Tensor, cache: Any) -> torch.Tensor:
        keys, _ = cache.self_attention_cache.update(x, x, 0)
        rows: torch.Tensor = keys @ x.mT
        return rows


@pytest.mark.parametrize("route", ROUTES)
def test_caches_of_a_fixed_size_of_a_window_and_of_two_sides(route: Any) -> None:
    model, config = _llama()
    from transformers import DynamicCache, EncoderDecoderCache, StaticCache

    sliding = copy.deepcopy(config)
    sliding.sliding_window, sliding.layer_types = 8, ["sliding_attention"] * 2
    for cache in (StaticCache(config=config, max_cache_len=32), DynamicCache(config=sliding)):
        given = _filled(model, cache)
        _same_twice(route, cache, model, (), given)
    two, x = EncoderDecoderCache(DynamicCache(), DynamicCache()), torch.ones(1, 2, 4, 8)
    two.self_attention_cache.update(x, x, 0)
    assert _same_twice(route, two, TwoSided(), (x, two), {}) == 2 * 8 * 8 * 4


def _same_twice(route: Any, cache: Any, *given: Any) -> int:
    """The MACs of two captures, and the cache is as it was."""
    values = _values(cache)
    one, two = (cost(capture(*given, route=route)).total().figures.macs for _ in range(2))
    assert one == two
    assert _values(cache) == values
    assert one is not None
    return int(one)


def meta_case() -> tuple[Any, Any]:
    return Grows(), (torch.ones(2, 8), Plain(100_000))


@pytest.mark.parametrize("route", ["export", "trace"])
def test_objects_that_a_callable_makes_without_memory(route: Any) -> None:
    made = load_callable(f"{__name__}:meta_case", Bindings())[0]
    assert made.inputs == ("x", "cache_kept_0")
    assert cost(made).total().figures.macs == 100_002 * 64
    example = load_example(f"{__name__}:meta_case")
    assert example.args[1].kept[0].device.type == "meta"
    graph = capture(*_parts(example), route=route)
    assert cost(graph).total().figures.macs == 100_002 * 64
    assert fake_steps(*_parts(example), options=SGD).steady.peak
