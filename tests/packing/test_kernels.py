"""Compiled and plain forms agree; what needs no compiled code does not load it."""

import subprocess
import sys
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peakfold.packing import Problem, violations
from peakfold.packing.exact.kernels import state_layout as cells
from peakfold.packing.exact.kernels import zero_slack as tight
from peakfold.packing.heuristics.first_fit import place
from peakfold.packing.large.compiled_first_fit import Fitter
from peakfold.packing.large.ruin_recreate import trials

from .strategies import plain_problems


@settings(max_examples=150, deadline=None)
@given(plain_problems(max_buffers=12, aligned=True, pinned=True), st.randoms(), st.booleans())
def test_compiled_first_fit_equals_the_readable_one(problem, random, best_gap):
    order = list(range(problem.buffers))
    random.shuffle(order)
    fast, height = Fitter(problem).place(np.array(order, dtype=np.int64), best_gap=best_gap)
    assert fast.tolist() == place(problem, order, best_gap=best_gap).tolist()
    assert height == problem.height(fast)


@pytest.mark.parametrize("seed", range(4))
def test_compiled_first_fit_at_scale(seed):
    rng = np.random.default_rng(seed)
    n = 1000
    start = rng.integers(0, n, n)
    problem = Problem.of(
        start, start + rng.integers(1, 300, n), rng.integers(1, 5000, n), align=[1, 64][seed % 2]
    )
    fitter = Fitter(problem)
    for trial in islice(trials(problem, seed), 11):
        order, best_gap = trial.order, trial.best_gap
        offsets, height = fitter.place(order, best_gap=best_gap)
        assert violations(problem, offsets, height) == []
        assert offsets.tolist() == place(problem, order.tolist(), best_gap=best_gap).tolist()
        _, reached = fitter.place(order, best_gap=best_gap, limit=height - 1)
        assert reached > height - 1


def test_small_problems_never_load_numba():
    code = (
        "import sys; from peakfold.packing import Problem, pack\n"
        "found = pack(Problem.of([0, 1, 2], [2, 3, 4], [16, 8, 64]))\n"
        "assert found.optimal\n"
        "sys.exit('numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_open_problems_do_load_numba():
    """The test above can fail: the same code on a problem that greedy leaves open."""
    code = (
        "import sys; sys.path.insert(0, 'tests')\n"
        "from packing.oracle import guillotine\n"
        "from peakfold.packing import pack\n"
        "pack(guillotine(120, 1000, 1), time_limit=1)\n"
        "sys.exit('numba' not in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 140), st.integers(1, 140)), max_size=6))
def test_sums_reached_by_bits_equal_those_of_a_set(steps):
    steps.sort()
    end = 64 * cells.WORDS
    s = np.zeros(cells.VARS + cells.WORDS, dtype=np.int64)
    s[cells.SUMS], s[cells.VARS] = cells.VARS, 1
    reached = {0}
    for start, size in steps:
        if start + size < end:
            tight.add_size(s, start, size)
        reached |= {x + size for x in reached if x >= start}
    for x in range(end):
        following = min((y for y in reached if x <= y < end), default=end)
        assert tight.next_sum(s, x) == following
    assert tight.next_sum(s, end + 5) == end + 5


def test_the_wait_for_a_compiler_is_announced_once_and_only_then():
    code = (
        "import sys; sys.path.insert(0, 'tests')\n"
        "from packing.oracle import guillotine\n"
        "from peakfold.packing import Problem, pack\n"
        "from peakfold.packing.exact.kernels import compiled as warm\n"
        "said = []\n"
        "hook = lambda: said.append(1)\n"
        "pack(Problem.of([0, 1, 2], [2, 3, 4], [16, 8, 64]), on_compile=hook)\n"
        "assert not said\n"
        "warm.must_compile = lambda kernel: not kernel.signatures\n"
        "for _ in range(2): pack(guillotine(120, 1000, 1), time_limit=30, on_compile=hook)\n"
        "sys.exit(len(said) != 1)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
