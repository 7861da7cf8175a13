"""The backend cases that onnx carries, collected once."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pytest
from onnx.backend.test.case.node import collect_testcases


@pytest.fixture(scope="session")
def cases():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [case for case in collect_testcases(None) if case.model is not None]


@pytest.fixture(scope="session")
def shared_models():
    """The models beside the checkout; their absence is an error where CI promises them."""
    folder = Path(__file__).parents[3] / "shared" / "models" / "onnx"
    files = sorted(folder.glob("*.onnx"))
    if not files and os.environ.get("CI") != "true":
        pytest.skip("no shared models beside the checkout")
    assert files, f"no models in {folder}"
    return files
