"""`make check-cuda`: what of it can run without a card, and on one that stands in."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from peakfold.target.checked import FIGURES, Card, Row, checked, unverified  # noqa: E402
from tests.runtimes.torch import card as stand_in  # noqa: E402

pytestmark = pytest.mark.torch
ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "check_cuda.py"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    import check_cuda

    return check_cuda


@pytest.mark.req("R14")
def test_without_a_card_it_is_skipped_in_one_line():
    if torch.cuda.is_available():
        pytest.skip("a card is here")
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("skipped: no CUDA device")
    assert done.stdout.count("\n") == 1
    if torch.version.cuda is None:
        assert "wants PyTorch built with CUDA" in done.stdout


@pytest.mark.req("R3", "R14")
def test_the_checks_on_a_card_that_stands_in(script, monkeypatch, capsys):
    """The host's kernels keep masks of floats, so that row is off; the others hold."""
    import cuda_truth

    module, args, kwargs = stand_in.without_dropout(cuda_truth.MODELS["mlp"]())
    made = stand_in.Carried(module), args, kwargs
    monkeypatch.setattr(cuda_truth, "NAMES", ("mlp",))
    monkeypatch.setattr(cuda_truth, "OPTIONS", replace(cuda_truth.OPTIONS, optimizer="sgd"))
    monkeypatch.setitem(cuda_truth.MODELS, "mlp", lambda: made)
    card = stand_in.Card()
    monkeypatch.setattr(stand_in.Carried, "card", card)
    with card:
        found = script.run(card, "a card", "2.13", "12.8")
    figures = {row.figure for row in found.rows}
    assert {"allocated", "reserved", "libraries", "context", "attention kernel"} <= figures
    assert {row.figure for row in found.rows if not row.holds} == {"mask of a dropout"}
    (mask,) = [row for row in found.rows if not row.holds]
    assert (mask.predicted, mask.measured) == (1 << 20, 4 << 20)
    assert "off: mask of a dropout" in capsys.readouterr().out
    assert unverified([found]) == ("expandable reserved",)
    document = script.merged(script.merged({"cards": []}, found), found)
    assert json.loads(json.dumps(document))["cards"][0]["card"] == "a card"
    assert len(document["cards"]) == 1


def test_a_check_that_cannot_run_leaves_the_others(script, monkeypatch, capsys):
    def broken(_card):
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(script, "CHECKS", {"one": broken, "two": script.context})
    found = script.run(stand_in.Card(), "a card", "2.13", "12.8")
    assert [row.figure for row in found.rows] == ["context"]
    assert "one: did not run: RuntimeError: no such kernel" in capsys.readouterr().out


def test_a_snapshot_becomes_a_fixture_without_the_machine(script):
    frame = {"name": "forward", "filename": "/home/me/model.py", "line": 3}
    event = {
        "action": "alloc",
        "addr": 0x7F0000000200,
        "size": 512,
        "stream": 0,
        "frames": [frame],
        "time_us": 7,
    }
    segment = {
        "address": 0x7F0000000000,
        "total_size": 2 << 20,
        "stream": 0,
        "segment_type": "small",
        "allocated_size": 512,
        "active_size": 512,
        "blocks": [{"size": 512, "state": "active_allocated", "address": 1}],
    }
    found = script.reduced({"segments": [segment], "device_traces": [[], [event]]})
    assert found["device_traces"] == [
        [{"action": "alloc", "size": 512, "stream": 0, "addr": 512, "frames": ["forward"]}]
    ]
    assert found["segments"][0]["address"] == 0
    assert "/" not in json.dumps(found)


def test_reports_say_what_no_card_has_confirmed(monkeypatch):
    from peakfold.app import train as training
    from peakfold.reports.records import AllocatorRecord

    rows = [Row(figure, "mlp", 8, 8, True) for figure in FIGURES]
    whole = Card("a card", "2.13", "12.8", tuple(rows))
    off = Card("another", "2.13", "12.8", (Row("context", "mlp", 8, 80, False),))
    assert unverified([]) == FIGURES
    assert unverified([whole]) == ()
    assert unverified([whole, off]) == ("context",)

    def said(doubtful):
        sizes = dict.fromkeys(
            (
                "allocated_bytes",
                "reserved_bytes",
                "expandable_reserved_bytes",
                "library_bytes",
                "context_bytes",
            ),
            1,
        )
        return training._confirmed(
            AllocatorRecord(**sizes, verified=not doubtful, unverified=list(doubtful))
        )

    assert said(()) == "each figure verified on a GPU"
    assert said(("context",)) == "not verified on a GPU: context"
    assert said(FIGURES) == "not verified on a GPU"
    assert all(row.figure for card in checked() for row in card.rows)
