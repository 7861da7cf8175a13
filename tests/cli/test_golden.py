"""What users see of small graphs, word for word."""

from __future__ import annotations

from pathlib import Path

import pytest

import peakfold
from tests.golden import check

from .conftest import Call

# Layouts that follow from the definitions alone, so that no heuristic can change them.
CASES = {
    "plan-ex4-trace.txt": "plan ex4.pf --mode both --strategy counter --align 1 --trace",
    "plan-ex4.json": "plan ex4.pf --mode both --strategy counter --align 1 --trace --json",
    "plan-chain.txt": "plan chain.pf",
    "inspect-roles.txt": "inspect roles.pf",
    "inspect-roles.json": "inspect roles.pf --json",
    "inspect-evil.txt": "inspect evil.pf",
    "targets.txt": "targets",
}


@pytest.mark.parametrize("name", CASES)
def test_output_is_the_golden_one(
    call: Call,
    models: Path,
    monkeypatch: pytest.MonkeyPatch,
    pytestconfig: pytest.Config,
    name: str,
) -> None:
    monkeypatch.chdir(models)
    result = call(*CASES[name].split())
    assert result.exit_code == 0, result.stderr
    check(pytestconfig, name, result.stdout.replace(peakfold.__version__, "VERSION"))
