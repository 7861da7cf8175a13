"""Shared fixtures: the models beside the checkout, and hypothesis profiles."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared"

settings.register_profile("dev", max_examples=60, deadline=None)
settings.register_profile(
    "ci", max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that need the shared files or PyTorch are skipped without them, and fail in CI."""
    for module, extra in (("torch", "torch"), ("onnxruntime", "ort")):
        if find_spec(module) is None and os.environ.get("CI") == "true":
            raise pytest.UsageError(f"{module} is missing: pip install 'peakfold[{extra}]'")
    if SHARED.is_dir():
        return
    if os.environ.get("CI") == "true":
        raise pytest.UsageError(f"the shared models and data are missing: {SHARED.name}")
    skip = pytest.mark.skip(reason="the shared models and data are not beside this checkout")
    for item in items:
        if item.get_closest_marker("shared"):
            item.add_marker(skip)


@pytest.fixture(scope="session")
def shared() -> Path:
    return SHARED


@pytest.fixture(scope="session")
def onnx_models(shared: Path) -> list[Path]:
    return sorted((shared / "models" / "onnx").glob("*.onnx"))
