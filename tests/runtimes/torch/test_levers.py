"""What levers cost, against steps recorded in full."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from peakfold.analysis.cost.cost_delta import extra, spent  # noqa: E402
from peakfold.device import load_device  # noqa: E402
from peakfold.frontends.torch.module import Example  # noqa: E402
from peakfold.runtimes.torch import fit  # noqa: E402
from peakfold.runtimes.torch.levers import levers, step_cost  # noqa: E402
from tests.frontends.stated import StepOptions, fake_steps, step_graph  # noqa: E402
from tests.frontends.torch.training_models import MODELS  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.mark.req("R3")
@pytest.mark.parametrize("name", ["mlp", "resnet"])
def test_accumulated_passes_are_counted_as_if_all_were_recorded(name):
    module, args, kwargs = MODELS[name]()
    t4, options = load_device("t4"), StepOptions(accumulate=5)
    found = step_cost(Example(module.train(), args, kwargs), options, {}, t4)
    full = spent(step_graph(module, args, kwargs, options).graph, t4)
    assert extra(full, found).flops == 0
    assert found.time_s == pytest.approx(full.time_s)
    once = spent(step_graph(module, args, kwargs).graph, t4)
    assert full.flops > 4 * once.flops


@pytest.mark.req("R3", "R14")
@pytest.mark.parametrize("name", ["mlp", "resnet"])
def test_passes_beyond_those_that_are_run_take_no_more(name):
    module, args, kwargs = MODELS[name]()
    options = StepOptions(device="cuda", optimizer="momentum", accumulate=6)
    many = fake_steps(module.train(), args, kwargs, options)
    few = fit.steps_of(Example(module, args, kwargs), options, {})
    assert len(few.steady.storages) < len(many.steady.storages)
    assert (few.first.peak, few.steady.peak) == (many.first.peak, many.steady.peak)
    assert fit.footprints(few)[1].reserved == fit.footprints(many)[1].reserved
    assert "6 batches accumulated before an update" in few.notes
    assert not any("3 batches" in note for note in few.notes)


@pytest.mark.req("R3")
def test_what_was_noted_of_the_passes_that_ran_is_kept():
    example = Example(torch.nn.Embedding(50, 8, sparse=True), (torch.zeros(4, dtype=torch.long),))
    few, many = (fit.steps_of(example, StepOptions(accumulate=n), {}).notes for n in (2, 6))
    assert any("sparse gradients" in note for note in many)
    assert "2 batches accumulated before an update" in set(few) - set(many)


def test_parts_divide_the_batch():
    offered = list(levers(StepOptions(), {"n": 12}, "n", 12))
    parts = [(v.options.accumulate, v.dims["n"]) for v in offered if v.whole]
    assert parts == [(2, 6), (4, 3)]
    assert not any(v.whole for v in levers(StepOptions(), {}, "", None))
    fused = StepOptions(attention="fused", form="fused", autocast=torch.bfloat16)
    assert not list(levers(fused, {}, "", None))


@pytest.mark.parametrize(("device", "low"), [("t4", "float16"), ("l4", "bfloat16")])
def test_autocast_is_to_a_type_the_device_is_rated_for(device, low):
    offered = levers(StepOptions(), {}, "", None, load_device(device))
    types = {v.options.autocast for v in offered if "autocast" in v.what}
    assert types == {getattr(torch, low)}


def test_the_batch_is_the_examples_unless_a_number_is_given():
    example = Example(torch.nn.Linear(4, 4), (torch.zeros(6, 4),), dynamic={"input": {0: "n"}})
    assert fit.batch_name(example) == "n"
    assert fit.batch_number(example, "n", {}) == 6
    assert fit.batch_number(example, "n", {"n": 3}) == 3


@pytest.mark.req("R3")
def test_devices_share_the_batch_so_that_each_part_fits():
    example = Example(
        torch.nn.Linear(64, 64), (torch.zeros(37, 64),), dynamic={"input": {0: "batch"}}
    )
    options = StepOptions()
    found = []
    for have in range(30_000, 90_000, 6_000):
        most = fit.largest_batch(example, options, have)
        devices = fit.devices_needed(example, options, have, {})
        assert devices == (-(-37 // most) if most else None)
        found.append(devices)
    assert None in found
    assert len(set(found)) > 3
