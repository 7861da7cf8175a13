import json
import os
import subprocess
import sys
import threading
import time
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peakfold.packing import FREE, Problem, lower_bound, pack, violations, violations_naive
from peakfold.packing.exact.kernels.search import BACKWARD, FITTING, LOWEST, TIGHTEST
from peakfold.packing.exact.kernels.state_layout import STACKS
from peakfold.packing.exact.search import PORTFOLIO, decide
from peakfold.packing.exact.search_model import build

from .oracle import guillotine, optimum
from .strategies import plain_problems

KEYS = ("peak", "conflicts", "steps", "sections", "size", "area")
SWITCHES = list(product((LOWEST, TIGHTEST), (0, FITTING), (0, BACKWARD), (0, STACKS), KEYS))
"""Every rule with every preference; an example tries one in eight of them."""


def portfolios(part):
    """The whole portfolio, and each of one eighth of all switches alone."""
    return [PORTFOLIO, *((((a | b | c | d), key),) for a, b, c, d, key in SWITCHES[part::8])]


def test_the_parts_hold_every_switch_once():
    tried = [p[0] for part in range(8) for p in portfolios(part)[1:]]
    assert len(set(tried)) == len(tried) == 16 * len(KEYS)


@st.composite
def holed_problems(draw):
    """Whole-height buffers with up to two lifetimes each."""
    n = draw(st.integers(1, 6))
    first, rows = [0], []
    size = [draw(st.integers(1, 9)) for _ in range(n)]
    for b in range(n):
        t = 0
        for _ in range(draw(st.integers(1, 2))):
            start = t + draw(st.integers(0, 3))
            t = start + draw(st.integers(1, 3))
            rows.append((start, t, 0, size[b]))
        first.append(len(rows))
    start, stop, lower, upper = np.array(rows).T
    return Problem.of_pieces(
        size=size, first=first, start=start, stop=stop, lower=lower, upper=upper
    )


@settings(max_examples=150, deadline=None)
@given(
    st.one_of(plain_problems(max_buffers=6, aligned=True, pinned=True), holed_problems()),
    st.integers(0, 7),
)
def test_decision_at_and_below_the_optimum_for_every_switch(problem, part):
    model = build(problem)
    best = optimum(problem)
    for portfolio in portfolios(part):
        found = decide(model, best, nodes=100_000, portfolio=portfolio)
        assert found.fits is True
        offsets = model.offsets(problem, found.low)
        assert violations_naive(problem, offsets, best) == []
        if best:
            refuted = decide(model, best - 1, nodes=100_000, portfolio=portfolio)
            assert refuted.fits is False


@st.composite
def problems_without_room(draw):
    """Every step is filled to one load by a buffer of its own: no section has room to spare."""
    steps, n = draw(st.integers(2, 4)), draw(st.integers(1, 3))
    start = [draw(st.integers(0, steps - 1)) for _ in range(n)]
    stop = [draw(st.integers(s + 1, steps)) for s in start]
    size = [draw(st.integers(1, 5)) for _ in range(n)]
    load = [
        sum(z for a, o, z in zip(start, stop, size, strict=True) if a <= t < o)
        for t in range(steps)
    ]
    full = max(load) + draw(st.integers(1, 3))
    start, stop = [*start, *range(steps)], [*stop, *range(1, steps + 1)]
    size = [*size, *(full - x for x in load)]
    pins = [FREE] * len(size)
    pinned = draw(st.integers(0, len(size) - 1))
    pins[pinned] = draw(st.sampled_from([FREE, 0, 1, full - size[pinned]]))
    return Problem.of(start, stop, size, fixed=pins), full


@settings(max_examples=150, deadline=None)
@given(problems_without_room(), st.integers(0, 7))
def test_decision_where_no_section_has_room(case, part):
    problem, full = case
    fits = optimum(problem) <= full
    model = build(problem)
    for portfolio in portfolios(part):
        found = decide(model, full, nodes=100_000, portfolio=portfolio)
        assert found.fits is fits
        if fits:
            assert violations_naive(problem, model.offsets(problem, found.low), full) == []


@settings(max_examples=60, deadline=None)
@given(plain_problems(max_buffers=6, aligned=True, pinned=True))
def test_pack_is_optimal_on_small_problems(problem):
    found = pack(problem, time_limit=60)
    assert found.height == optimum(problem)
    assert found.optimal
    assert found.lower_bound == found.height


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("pieces", [30, 80])
def test_perfect_packings_are_found(pieces, seed):
    problem = guillotine(pieces, 64, seed)
    found = pack(problem, time_limit=60)
    assert (found.height, found.optimal) == (64, True)
    assert violations(problem, found.offsets, 64) == []


def _hard():
    """A pin leaves no room below it, so the optimum lies above every bound that needs no search."""
    return Problem.of([0, 0, 1], [3, 3, 3], [30, 40, 5], fixed=[20, -1, -1])


def test_a_refutation_raises_the_bound_and_is_right():
    problem = _hard()
    found = pack(problem, time_limit=60)
    assert found.optimal
    assert lower_bound(problem) == 75
    assert found.height == found.lower_bound == optimum(problem) == 90
    below = decide(build(problem), found.height - 1, nodes=10**6)
    assert below.fits is False


def test_capacity_decides_and_stops():
    problem = guillotine(60, 64, 99)
    loose = pack(problem, capacity=10**6, minimize=False, time_limit=60)
    tight = pack(problem, capacity=64, minimize=False, time_limit=60)
    assert loose.height >= tight.height == 64


def test_same_seed_same_answer():
    problem = guillotine(90, 64, 5)
    model = build(problem)
    runs = [decide(model, 64, nodes=50_000, seed=4) for _ in range(2)]
    assert runs[0].nodes == runs[1].nodes
    assert runs[0].low.tolist() == runs[1].low.tolist()


def test_a_budget_is_kept_and_says_unknown():
    problem = guillotine(200, 1000, 1)
    model = build(problem)
    found = decide(model, 1000, nodes=5)
    assert (found.fits, found.nodes) == (None, 5)
    late = decide(_loose(150, 1), 1000, nodes=12_345, portfolio=SLOW)
    assert (late.fits, late.nodes) == (None, 12_345)


SLOW = ((LOWEST, "size"),)
"""One order alone: its first round of 500 nodes is not enough below, so pairs run."""


def _loose(pieces, seed):
    """A cut square without every twentieth piece; harder than the whole one."""
    whole = guillotine(pieces, 1000, seed)
    kept = np.arange(pieces) % 20 > 0
    return build(Problem.of(whole.start[kept], whole.stop[kept], whole.size[kept]))


@pytest.mark.parametrize("sleeper", ["main", "other"])
@pytest.mark.parametrize(("pieces", "seed"), [(100, 4), (150, 5)])
def test_which_thread_is_quicker_changes_nothing(pieces, seed, sleeper):
    model = _loose(pieces, seed)
    calm = decide(model, 1000, nodes=50_000, portfolio=SLOW)
    assert calm.fits
    assert calm.nodes > 2 * 500
    main, threads = threading.main_thread(), set()

    def doze():
        here = threading.current_thread()
        threads.add(here is main)
        if (here is main) == (sleeper == "main"):
            time.sleep(0.02)
        return False

    slowed = decide(model, 1000, nodes=50_000, portfolio=SLOW, expired=doze)
    assert threads == {True, False}
    assert (slowed.nodes, slowed.low.tolist()) == (calm.nodes, calm.low.tolist())


def test_an_interrupt_ends_both_threads():
    model = _loose(150, 1)
    before, main = threading.active_count(), threading.main_thread()
    polls = iter(range(6))

    def strike():
        if threading.current_thread() is main and next(polls, None) is None:
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        decide(model, 1000, nodes=1 << 60, portfolio=SLOW, expired=strike)
    assert threading.active_count() == before


_PROBE = """
import json
from packing.oracle import guillotine
from peakfold.packing.exact.search import decide
from peakfold.packing.exact.search_model import build
from packing.test_exact import SWITCHES

found = []
for seed in range(2):
    model = build(guillotine(22, 64, seed))
    for a, b, c, d, key in SWITCHES[seed::12]:
        for height in (64, 63):
            done = decide(model, height, nodes=100, portfolio=((a | b | c | d, key),))
            found.append([done.fits, done.nodes, done.low.tolist()])
print(json.dumps(found))
"""


def test_the_compiled_search_is_the_plain_one():
    """The kernels as plain Python take the same decisions to the same end."""
    said = []
    for plain in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", _PROBE],
            capture_output=True,
            text=True,
            env=os.environ
            | {
                "NUMBA_DISABLE_JIT": plain,
                "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path]),
            },
            check=False,
        )
        assert done.returncode == 0, done.stderr
        said.append(json.loads(done.stdout))
    assert said[0] == said[1]
    assert {fits for fits, _, _ in said[0]} >= {True, False}


@settings(max_examples=40, deadline=None)
@given(plain_problems(max_buffers=6), st.integers(1, 5), st.integers(0, 9))
def test_optimum_is_invariant(problem, scale, shift):
    base = pack(problem, time_limit=60).height
    start, stop, size = problem.start, problem.stop, problem.size
    reverse = Problem.of(100 - stop, 100 - start, size)
    shifted = Problem.of(start + shift, stop + shift, size)
    scaled = Problem.of(start * 3, stop * 3, size * scale)
    order = np.arange(problem.buffers)[::-1]
    shuffled = Problem.of(start[order], stop[order], size[order])
    for other, factor in ((reverse, 1), (shifted, 1), (scaled, scale), (shuffled, 1)):
        assert pack(other, time_limit=60).height == base * factor


@settings(max_examples=30, deadline=None)
@given(plain_problems(max_buffers=4))
def test_doubling_sizes_or_buffers_at_most_doubles(problem):
    base = pack(problem, time_limit=60).height
    twice = Problem.of(
        np.tile(problem.start, 2), np.tile(problem.stop, 2), np.tile(problem.size, 2)
    )
    assert base <= pack(twice, time_limit=60).height <= 2 * base
