"""Today's tenth of what ONNX Runtime runs, against what we read."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from onnx import TypeProto

from peakfold.frontends.onnx import infer as onnx_infer
from peakfold.frontends.onnx.types import dtype_and_shape, tensor_type
from peakfold.ir import Op
from tests.fuzzing.campaign import SLICES, slice_number

from .backend import cases
from .campaign import (
    MODELS,
    ORACLES,
    WITHOUT_RECIPE,
    Check,
    backend_check,
    contrib_check,
    form_check,
    recipes,
    sliced,
)
from .contrib import Recipe, f
from .models import forms
from .running import NotRun, kernels, run

pytest.importorskip("onnxruntime", reason="pip install 'peakfold[ort]'")
pytestmark = [
    pytest.mark.req("R13"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=pytest.mark.shared) if "shared" in n else n
        for n in ORACLES
        if "peer" not in n
    ],
)
def test_todays_slice(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    tally = sliced(name)
    with capsys.disabled():
        print(f"\n{name}, slice {slice_number()} of {SLICES}: {tally.line()}")
    assert not tally.of("wrong"), "\n".join(f"{r.name}: {r.why}" for r in tally.of("wrong"))
    assert tally.of("equal")
    if name != "backend cases":  # a runtime need not have a kernel for each standard operator
        assert not tally.of("not run"), tally.of("not run")


def test_every_contrib_operator_with_a_kernel_has_a_recipe() -> None:
    missing = kernels() - {(recipe.domain, recipe.op) for recipe in recipes()}
    assert {f"{domain}:{op}" for domain, op in missing} <= set(WITHOUT_RECIPE)
    assert len(WITHOUT_RECIPE) <= len(kernels()) // 50


def test_what_does_not_run_says_why() -> None:
    model, feeds = Recipe("Gelu", (f(2, 3),)).model()
    model.graph.node[0].op_type = "NoSuchOperator"
    with pytest.raises(NotRun, match="NoSuchOperator"):
        run(model, feeds)


def break_rule(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Let one kind of op have a last dimension that is one too many, whoever says it."""
    told = onnx_infer._best

    def longer(scope: Any, op: Op, *rest: Any) -> dict[str, TypeProto | None]:
        found = told(scope, op, *rest)
        if op.kind == kind:
            for name, proto in found.items():
                dtype, shape = dtype_and_shape(proto)
                if shape and isinstance(shape[-1], int):
                    found[name] = tensor_type(dtype, (*shape[:-1], shape[-1] + 1))
        return found

    monkeypatch.setattr(onnx_infer, "_best", longer)


def some_backend_cases() -> list[Check]:
    return [
        partial(backend_check, case)
        for case in cases(("pytorch-operator",))
        if "maxpool" in case.name
    ]


def some_contrib_operators() -> list[Check]:
    return [partial(contrib_check, recipe) for recipe in recipes() if recipe.op == "QuickGelu"]


def a_saved_model() -> list[Check]:
    return [partial(form_check, form) for form in forms(MODELS) if form.name == "mtcnn_pnet, all"]


@pytest.mark.parametrize(
    ("kind", "some"),
    [
        ("max_pool", some_backend_cases),
        ("quick_gelu", some_contrib_operators),
        pytest.param("nchwc_conv", a_saved_model, marks=pytest.mark.shared),
    ],
)
def test_a_broken_rule_fails(
    kind: str, some: Callable[[], list[Check]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert {check().kind for check in some()} == {"equal"}
    break_rule(monkeypatch, kind)
    assert {check().kind for check in some()} == {"wrong"}
