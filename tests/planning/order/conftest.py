"""Steps alone end a search here: tests judge results, not the speed of the machine."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def still_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("peakfold.planning.order.budget.monotonic", lambda: 0.0)
