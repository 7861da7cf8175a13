"""The packing benchmark runs, and two result files can be compared."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from peakfold.packing.csv_format import Table, format_csv
from peakfold.packing.exact.search import PORTFOLIO
from peakfold.packing.questions.infeasible import subproblem

from .oracle import guillotine

FOLDER = Path(__file__).parents[2] / "benchmarks"


def run(script, *args):
    done = subprocess.run(
        [sys.executable, str(FOLDER / script), *map(str, args)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def data(tmp_path):
    """A folder as the shared one: two tiny instances of each kind."""
    for at, (folder, name) in enumerate(
        [
            ("minimalloc/challenging", "A.64.csv"),
            ("minimalloc/challenging", "B.64.csv"),
            ("idealloc", "small.csv"),
        ]
    ):
        problem = guillotine(20, 64, at)
        named = subproblem(problem, np.arange(20))
        table = Table(named, named.start, named.stop, ("",) * 20)
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / name).write_text(format_csv(table))
    return tmp_path


@pytest.mark.parametrize(
    ("flags", "rows"),
    [
        (["--suite", "hard"], 2),
        (["--suite", "optimise"], 2),
        (["--suite", "large"], 1),
        (["--suite", "ablation", "--limit", "1"], 2 + 2 * len(PORTFOLIO)),
        (["--suite", "perfect", "--count", "2", "--sizes", "12", "20"], 4),
        (["--suite", "scale", "--largest", "1000"], 2),
    ],
)
def test_every_suite_runs_and_is_judged(data, tmp_path, flags, rows):
    out = tmp_path / "rows.json"
    run("bench_pack.py", "--data", data, "--no-peers", "-o", out, *flags)
    found = json.loads(out.read_text())
    assert len(found) == rows
    assert all(row["valid"] and row["solved"] for row in found)
    assert all(row["probe_s"] > 0 and row["peak_mb"] > 0 for row in found)


def test_two_runs_are_compared(data, tmp_path):
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    run("bench_pack.py", "--data", data, "--no-peers", "-o", old)
    rows = json.loads(old.read_text())
    for row in rows:
        row["seconds"], row["probe_s"], row["solved"] = 1.0, 1.0, True
    old.write_text(json.dumps(rows))
    for row in rows:
        row["seconds"], row["probe_s"], row["solved"] = 6.0, 2.0, False
    new.write_text(json.dumps(rows))
    told = run("compare.py", old, new)
    assert "time x3.00" in told
    assert "True -> False" in told
    assert "peakfold: geometric mean of time ratios x3.000" in told
