"""The backend cases that onnx carries, collected once."""

from __future__ import annotations

import warnings

import pytest
from onnx.backend.test.case.node import collect_testcases


@pytest.fixture(scope="session")
def cases():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [case for case in collect_testcases(None) if case.model is not None]
