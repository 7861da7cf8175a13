"""What `plan` and `fit` say of a file is what the file they would write takes, to the byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from peakfold.app.handover import arena_figures
from peakfold.app.runtime import runtime_of
from peakfold.frontends import Loaded, load
from peakfold.planning import PlanOptions, make_plan
from peakfold.planning.fit.levers import FitResult, fit
from peakfold.planning.fit.total import Budgets
from peakfold.runtimes.tflite.apply_plan import apply_plan
from tests.runtimes.tflite.build import chain
from tests.runtimes.tflite.oracle.cases import cases

OPTIONS = PlanOptions(target="tflm", time_limit=0.05)
OPEN = ("SignalFramer", "SignalStacker")  # their shapes are not derived: a plan asks for them
NULL = {
    "CIRCULAR_BUFFER": ("scratch of tflite.custom::CIRCULAR_BUFFER",),
    "TFLite_Detection_PostProcess": ("scratch of detection_postprocess",),
}
EVERY = 9


def written(path: Path, loaded: Loaded, options: PlanOptions) -> tuple[int | None, int]:
    """The whole arena and the size of the file that carries the plan of some options."""
    plan = make_plan(loaded.graph, options, loaded.bindings).plan
    data = apply_plan(path, loaded.graph, plan).data
    return arena_figures(data)["total_bytes"], len(data)


@pytest.mark.req("TFL10")
def test_a_plans_need_is_that_of_the_file_that_carries_it(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    chosen = {n: d for at, (n, d) in enumerate(cases().items()) if at % EVERY == 0 or n in NULL}
    for name in OPEN:
        chosen.pop(name, None)
    for name, data in chosen.items():
        path.write_bytes(data)
        loaded = load(path)
        need = make_plan(loaded.graph, OPTIONS, loaded.bindings, runtime_of(loaded, OPTIONS)).need
        assert need.unknown == NULL.get(name, ()), name
        if not need.unknown:
            assert (need.nbytes, need.flash) == written(path, loaded, OPTIONS), name


def recommended(path: Path, loaded: Loaded, answer: FitResult) -> tuple[int | None, int]:
    """The whole arena and the size of the file that an answer recommends."""
    last = [lever for lever in answer.levers if lever.applied][-1]
    if last.what == "the runtime's own plan":
        data = path.read_bytes()
        return arena_figures(data)["total_bytes"], len(data)
    return written(path, loaded, answer.options)


@pytest.mark.req("R17")
def test_no_verdict_is_false_around_the_true_need(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    models = {n: d for n, d in cases().items() if n not in (*OPEN, *NULL)}
    asked = 0
    for name, data in list(models.items())[::25]:
        path.write_bytes(data)
        loaded = load(path)
        runtime = runtime_of(loaded, OPTIONS)
        least = fit(loaded.graph, Budgets(total=0), OPTIONS, runtime)
        true, _ = recommended(path, loaded, least)
        assert least.fits is False
        assert true == least.need.nbytes is not None, name
        for more in (-256, -16, 0, 16, 256):
            answer = fit(loaded.graph, Budgets(total=true + more), OPTIONS, runtime)
            assert answer.fits is (more >= 0), (name, more)
            if answer.fits:
                arena, flash = recommended(path, loaded, answer)
                assert arena == answer.need.nbytes is not None
                assert arena <= true + more
                assert flash == answer.need.flash
                assert Budgets(total=arena, flash=flash).verdict(answer.need) is True
                assert Budgets(total=arena, flash=flash - 1).verdict(answer.need) is False
            asked += 1
    assert asked >= 60


def test_an_operator_that_no_table_knows_leaves_the_verdict_open(tmp_path: Path) -> None:
    made = chain(["RELU", "RELU_N1_TO_1"])
    path = tmp_path / "model.tflite"
    path.write_bytes(made.bytes())
    loaded = load(path)
    runtime = runtime_of(loaded, OPTIONS)
    answer = fit(loaded.graph, Budgets(total=1 << 20), OPTIONS, runtime)
    assert answer.fits is None
    assert answer.need.unknown == ("what RELU_N1_TO_1 takes",)
    assert fit(loaded.graph, Budgets(total=100), OPTIONS, runtime).fits is False
    assert fit(loaded.graph, Budgets(arena=1 << 20), OPTIONS, runtime).fits is True
