"""Today's tenth of torch's operators, losses and generated modules, against a plain loop."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from .torch_losses import LOSSES
from .torch_operators import PLAIN
from .torch_ops import OUTSIDE, Row, sliced, wrong
from .torch_plain import MADE

pytestmark = [pytest.mark.torch, pytest.mark.req("R14", "R27")]


def test_todays_slice(capsys: pytest.CaptureFixture[str]) -> None:
    for group, found in sliced().items():
        with capsys.disabled():
            near = sum(row.near(row.measured) for row in found)
            print(f"\ntorch {group}: {near} of {len(found)} near, {len(wrong(found))} wrong")
        assert not wrong(found), "\n".join(row.line() for row in wrong(found))
        assert any(row.near(row.measured) for row in found)
        assert not [row for row in found if "internal" in f"{row.plan} {row.measured}"]


def test_enough_is_asked() -> None:
    import torch

    named = {name.split(",")[0] for name in LOSSES}
    assert len(PLAIN) >= 150
    assert len(named) >= 20
    assert set(OUTSIDE) <= {name for steps in MADE.values() for name in steps}
    assert len(OUTSIDE) <= 30
    functional = [n for n in dir(torch.nn.functional) if n.endswith("_loss") and n[0] != "_"]
    assert len(named) >= len(functional)


def test_a_wrong_figure_is_found() -> None:
    assert [r.name for r in wrong([Row("x", 1000000, 0, 1002100), Row("y", 10, 0, 266)])] == ["x"]
    assert wrong([Row("z", 10, 0, "refused")])
    assert not wrong([Row("w", "torch refuses", 0, 1)])
