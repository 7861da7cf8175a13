import json
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings

from peakfold.cli import main
from peakfold.errors import PeakfoldError, UsageError
from peakfold.packing import STRATEGIES, Problem, violations
from peakfold.packing.csv_format import Table, format_csv, read_csv
from peakfold.packing.questions.capacity import judge_capacity, load_planner
from peakfold.packing.questions.infeasible import explain, subproblem

from .oracle import guillotine, optimum
from .strategies import plain_problems


@settings(max_examples=60, deadline=None)
@given(plain_problems(max_buffers=6, max_time=4, pinned=True))
def test_verdicts_and_culprits_against_brute_force(problem):
    best = optimum(problem)
    assert judge_capacity(problem, capacity=best, time_limit=60).status == "solved"
    if best == 0:
        return
    found = judge_capacity(problem, capacity=best - 1, time_limit=60, want_culprits=True)
    assert (found.status, found.bound, found.missing) == ("infeasible", best, 1)
    culprits = found.culprits
    assert culprits is not None
    assert culprits.irreducible
    together = np.array(culprits.buffers)
    assert optimum(subproblem(problem, together)) >= culprits.bound > best - 1
    for one in together:
        assert optimum(subproblem(problem, together[together != one])) <= best - 1


def test_no_explanation_where_it_fits():
    assert explain(Problem.of([0], [1], [4]), 4) is None


def _csv(path, problem):
    names = tuple(f"b{i}" for i in range(problem.buffers))
    named = subproblem(problem, np.arange(problem.buffers))
    table = Table(named, problem.start, problem.stop, ("",) * len(names))
    path.write_text(format_csv(table))
    return str(path)


def run(*args):
    return CliRunner().invoke(main, ["pack", *args])


def test_json_keys_and_output_file(tmp_path):
    problem = guillotine(50, 64, 3)
    file = _csv(tmp_path / "x.64.csv", problem)
    out = tmp_path / "out.csv"
    done = run(file, "--json", "-o", str(out), "--time-limit", "60")
    assert done.exit_code == 0
    document = json.loads(done.stdout)
    want = {
        "schema",
        "buffers",
        "height_bytes",
        "lower_bound_bytes",
        "gap",
        "optimal",
        "status",
        "seconds",
    }
    assert want <= set(document)
    assert (document["height_bytes"], document["gap"], document["status"]) == (64, 0.0, "solved")
    offsets = read_csv(out).problem.fixed
    assert violations(problem, offsets, 64) == []


def test_exit_codes(tmp_path):
    file = _csv(tmp_path / "x.csv", guillotine(400, 4096, 1))
    too_small = run(file, "--capacity", "4095", "--json", "--explain")
    assert too_small.exit_code == 3
    document = json.loads(too_small.stdout)
    assert (document["status"], document["missing_bytes"]) == ("infeasible", 1)
    assert document["height_bytes"] is None
    assert document["culprits"]["irreducible"] is True
    unknown = run(file, "--capacity", "4096", "--json", "--time-limit", "0")
    assert unknown.exit_code == 4
    assert json.loads(unknown.stdout)["status"] == "timeout"
    assert run(file, "--explain").exit_code == 2
    assert run(file, "--strategy", "magic").exit_code == 2
    assert run(str(tmp_path / "none.csv")).exit_code == 2


def test_an_existing_file_is_kept(tmp_path):
    file = _csv(tmp_path / "x.csv", guillotine(5, 8, 1))
    out = tmp_path / "out.csv"
    out.write_text("mine")
    assert run(file, "-o", str(out)).exit_code == 2
    assert out.read_text() == "mine"
    assert run(file, "-o", str(out), "--force").exit_code == 0


def test_anonymise_and_reduce(tmp_path):
    file = _csv(tmp_path / "x.csv", guillotine(30, 64, 1))
    safe, small = tmp_path / "safe.csv", tmp_path / "small.csv"
    done = run(file, "--capacity", "63", "--anonymise", str(safe), "--reduce", str(small))
    assert done.exit_code == 3
    assert read_csv(safe).problem.buffers == 30
    reduced = read_csv(small).problem
    assert reduced.buffers < 30
    assert judge_capacity(reduced, capacity=63, time_limit=5).status == "infeasible"


@pytest.mark.req("R40")
def test_a_planner_of_the_user_is_judged(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "import numpy as np\n"
        "def stack(problem): return np.cumsum(problem.size) - problem.size\n"
        "def wrong(problem): return np.zeros(problem.buffers, dtype=np.int64)\n"
        "def broken(problem): raise ValueError('no')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    file = _csv(tmp_path / "x.csv", guillotine(12, 64, 1))
    good = run(file, "--planner", "mine:stack", "--json")
    assert json.loads(good.stdout)["strategy"] == "stack"
    for name, what in (("wrong", "share an address"), ("broken", "ValueError")):
        with pytest.raises(PeakfoldError, match=what):
            judge_capacity(Problem.of([0, 0], [1, 1], [4, 4]), planner=load_planner(f"mine:{name}"))
        assert run(file, "--planner", f"mine:{name}").exit_code == 1
    for spec in ("mine", "mine:none", "nowhere:f", "mine:np.pi"):
        with pytest.raises(UsageError):
            load_planner(spec)


def test_an_interrupt_returns_the_best_so_far():
    code = (
        "import _thread, sys, threading; sys.path.insert(0, 'tests')\n"
        "from packing.oracle import guillotine\n"
        "from peakfold.packing import pack, violations\n"
        "problem = guillotine(900, 100_003, 1)\n"
        "pack(guillotine(120, 1000, 1), time_limit=20)\n"
        "threading.Timer(2.0, _thread.interrupt_main).start()\n"
        "found = pack(problem, time_limit=100)\n"
        "assert violations(problem, found.offsets) == [], 'invalid'\n"
        "print('kept', found.optimal)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=90, check=False
    )
    assert done.stdout.startswith("kept"), done.stderr


def test_strategies_offered_by_the_verb_exist():
    from peakfold.cli.options import ARENA_STRATEGIES

    assert set(ARENA_STRATEGIES) == {"best", *STRATEGIES}
