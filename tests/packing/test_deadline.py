"""The time limit does not run while kernels are compiled. All clocks here are made up."""

import subprocess
import sys

import pytest

from peakfold.packing import Problem
from peakfold.packing.deadline import Deadline
from peakfold.packing.questions.capacity import judge_capacity
from peakfold.packing.questions.infeasible import explain

from .oracle import guillotine


class Clock:
    """Reads the same until somebody moves it on."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    """A clock for deadlines, and kernels that are always taken to be cold."""
    made = Clock()
    monkeypatch.setattr("peakfold.packing.deadline.monotonic", made)
    monkeypatch.setattr("peakfold.packing.exact.kernels.compiled.must_compile", lambda kernel: True)
    return made


def compile_for(clock, seconds):
    def step():
        clock.now += seconds

    return step


@pytest.mark.parametrize("load", [Deadline.load_fit, Deadline.load_search])
def test_compiling_moves_the_end_on(clock, load):
    limit = Deadline.after(5, compile_for(clock, 16))
    load(limit)
    assert clock.now == 1016
    assert limit.stop == 1021
    clock.now += 4.9
    assert not limit.expired()
    clock.now += 0.2
    assert limit.expired()


def test_an_interrupted_compilation_does_not_count_either(clock):
    def step():
        clock.now += 16
        raise KeyboardInterrupt

    limit = Deadline.after(5, step)
    with pytest.raises(KeyboardInterrupt):
        limit.load_search()
    assert limit.stop == 1021


def test_a_share_is_of_what_is_left(clock):
    limit = Deadline.after(8)
    clock.now += 4
    assert limit.share(0.25).stop == 1005
    clock.now += 6
    assert limit.share(0.25).stop == 1010
    assert limit.share(1.0).expired() is False
    assert limit.stop == 1008


@pytest.mark.parametrize(("buffers", "capacity"), [(120, 1000), (600, 1030)])
def test_a_first_run_solves_what_a_later_run_solves(clock, buffers, capacity):
    """Found by search alone: the greedy planners leave both open. 600 need first fit."""
    problem = guillotine(buffers, 1000, 3)
    first = judge_capacity(
        problem, capacity=capacity, time_limit=5, on_compile=compile_for(clock, 16)
    )
    assert clock.now == 1016
    assert first.status == "solved"
    later = judge_capacity(problem, capacity=capacity, time_limit=5)
    assert later.packing.offsets.tolist() == first.packing.offsets.tolist()


def test_culprits_are_reduced_at_a_first_run(clock):
    """The load alone proves it, so the search is loaded only to find who may be left out."""
    problem = Problem.of([0, 0, 0], [3, 3, 3], [30, 40, 5], align=[4, 4, 1])
    found = judge_capacity(
        problem, capacity=60, time_limit=5, want_culprits=True, on_compile=compile_for(clock, 16)
    )
    assert clock.now == 1016
    assert found.culprits == explain(problem, 60)
    assert found.culprits.irreducible


def test_one_call_compiles_all_that_a_search_needs():
    """Numba compiles once more for arguments of other types: a real search has none."""
    code = (
        "import sys; sys.path.insert(0, 'tests')\n"
        "from packing.oracle import guillotine\n"
        "from peakfold.packing import pack\n"
        "from peakfold.packing.deadline import Deadline\n"
        "limit = Deadline.after(5)\n"
        "limit.load_fit(), limit.load_search()\n"
        "from peakfold.packing.exact.kernels import branch, fit, search\n"
        "kernels = fit.fit, search.search, search.split, branch.propagate\n"
        "before = [kernel.signatures for kernel in kernels]\n"
        "assert all(before), before\n"
        "pack(guillotine(600, 1000, 3), time_limit=2)\n"
        "sys.exit([kernel.signatures for kernel in kernels] != before)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
