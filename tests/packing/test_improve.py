"""The tool for large problems: valid, deterministic, never worse than any greedy of the field."""

import subprocess
import sys
from itertools import islice

import numpy as np
import pytest

from peakfold.packing import Problem, lower_bound, pack, violations
from peakfold.packing.csv_format import read_csv
from peakfold.packing.large.compiled_first_fit import NO_LIMIT, Fitter, Trial
from peakfold.packing.large.ruin_recreate import improve, recreate, trials

from .oracle import guillotine


def crowded(buffers, seed):
    """Hundreds alive at once, sizes over three decades, as hard for first fit as it gets."""
    rng = np.random.default_rng(seed)
    start = rng.integers(0, buffers, buffers)
    size = 64 * np.exp(rng.uniform(0, np.log(1000), buffers)).astype(np.int64)
    return Problem.of(start, start + rng.integers(1, 400, buffers), size)


def chain(buffers, seed):
    """A forward network: most die at the next steps, some much later."""
    rng = np.random.default_rng(seed)
    start = np.arange(buffers)
    length = rng.geometric(0.4, buffers) + (rng.random(buffers) < 0.1) * rng.integers(
        0, 200, buffers
    )
    return Problem.of(start, start + length, rng.integers(1, 5000, buffers))


def run(problem, seed=0):
    seen = []
    bound = lower_bound(problem)
    improve(
        problem,
        seed,
        NO_LIMIT,
        bound,
        lambda offsets, name: seen.append((problem.height(offsets), name, offsets)),
        lambda: bool(seen) and seen[-1][0] <= bound,
    )
    return seen


@pytest.mark.req("R53")
@pytest.mark.parametrize("seed", range(2))
def test_every_offer_is_valid_and_lower_and_the_same_each_time(seed, monkeypatch):
    monkeypatch.setattr("peakfold.packing.large.ruin_recreate.WORK", 24_000)
    problem = crowded(2500, seed)
    seen = run(problem)
    assert all(violations(problem, offsets, height) == [] for height, _, offsets in seen)
    heights = [height for height, _, _ in seen]
    assert heights == sorted(set(heights), reverse=True)
    again = run(problem)
    assert [(h, n) for h, n, _ in again] == [(h, n) for h, n, _ in seen]
    assert again[-1][2].tolist() == seen[-1][2].tolist()


def test_a_race_gives_what_each_trial_gives_alone():
    problem = crowded(800, 5)
    fitter = Fitter(problem)
    group = list(islice(trials(problem, 1), 4))
    heights = []
    for trial, (offsets, height) in zip(group, fitter.race(group, NO_LIMIT), strict=True):
        alone, same = fitter.place(trial.order, best_gap=trial.best_gap)
        assert (offsets.tolist(), height) == (alone.tolist(), same)
        heights.append(height)
    limit = min(heights)
    given_up = [height > limit for _, height in fitter.race(group, limit)]
    assert given_up == [height > limit for height in heights]


def test_ruin_and_recreate_lowers_a_bad_start():
    problem = crowded(2000, 3)
    fitter = Fitter(problem)
    order = np.argsort(-problem.size, kind="stable").astype(np.int64)
    offsets, height = fitter.place(order, best_gap=False)
    offers = []
    recreate(
        fitter,
        (height, offsets, order, False),
        lower_bound(problem),
        12,
        lambda found, name: offers.append((problem.height(found), found)),
        lambda: False,
    )
    assert offers
    assert offers[-1][0] < height
    assert violations(problem, offers[-1][1]) == []


def test_pins_and_alignment_are_kept_at_scale():
    rng = np.random.default_rng(8)
    base = crowded(2200, 8)
    fixed = np.full(2200, -1)
    fixed[[5, 900]] = 0, 64 * 4000
    align = rng.choice([1, 64, 4096], 2200)
    align[[5, 900]] = 1
    problem = Problem.of(base.start, base.stop, base.size, align=align, fixed=fixed)
    for height, _, offsets in run(problem):
        assert violations(problem, offsets, height) == []
        assert offsets[5] == 0
        assert offsets[900] == 64 * 4000


# What other allocators do, written down once more without any index: each rule is an order
# and a way to choose a gap, over all placed buffers that are alive at the same time.


def _plain(problem, order, smallest):
    start, stop, size = problem.start, problem.stop, problem.size
    offsets = np.zeros(problem.buffers, dtype=np.int64)
    placed = np.zeros(0, dtype=np.int64)
    for b in order:
        if stop[b] <= start[b] or size[b] == 0:
            continue
        near = placed[(start[placed] < stop[b]) & (stop[placed] > start[b])]
        near = near[np.argsort(offsets[near], kind="stable")]
        low = offsets[near]
        free = np.concatenate([[0], np.maximum.accumulate(low + size[near])])
        room = low - free[:-1]
        fits = np.flatnonzero(room >= size[b])
        if len(fits) == 0:
            offsets[b] = free[-1]
        else:
            offsets[b] = free[fits[np.argmin(room[fits])] if smallest else fits[0]]
        placed = np.append(placed, b)
    return offsets


def _breadth(problem):
    """Steps by the bytes alive, then what is alive there by size (Pisarchyk and Lee)."""
    steps = range(int(problem.start.min()), int(problem.stop.max()))
    alive = {t: np.flatnonzero((problem.start <= t) & (t < problem.stop)) for t in steps}
    order = {}
    for t in sorted(steps, key=lambda t: -problem.size[alive[t]].sum()):
        for b in sorted(alive[t].tolist(), key=lambda b: -problem.size[b]):
            order.setdefault(b)
    return list(order)


def peers(problem):
    """(name, order, whether the smallest gap is taken)."""
    index = np.arange(problem.buffers)
    size, length = problem.size, problem.stop - problem.start
    by_size = np.argsort(-size, kind="stable")
    reverse = index[::-1][np.argsort(-size[::-1], kind="stable")]
    named = {
        "size": by_size,
        "size, equal ones last first": reverse,
        "length": np.lexsort((-size, -length)),
        "area": np.argsort(-(size * length), kind="stable"),
        "start": np.argsort(problem.start, kind="stable"),
        "breadth": _breadth(problem),
    }
    for name, order in named.items():
        yield f"{name}, first fit", order, False
        yield f"{name}, best fit", order, True


def never_worse(problem):
    found = pack(problem, time_limit=20)
    assert violations(problem, found.offsets, found.height) == []
    for name, order, smallest in peers(problem):
        other = _plain(problem, order, smallest)
        assert violations(problem, other) == []
        assert found.height <= problem.height(other), name


@pytest.mark.req("R53")
@pytest.mark.parametrize(
    "problem",
    [guillotine(90, 4096, 1), chain(400, 1), chain(2600, 2), crowded(300, 1), crowded(2100, 2)],
    ids=["perfect", "chain", "long chain", "crowd", "large crowd"],
)
def test_never_worse_than_the_greedy_of_any_peer(problem, monkeypatch):
    monkeypatch.setattr("peakfold.packing.large.ruin_recreate.WORK", 24_000)
    # Without the exact search, which would hide how good the orders are.
    monkeypatch.setattr("peakfold.packing.exact.search_model.MAX_BUFFERS", 0)
    never_worse(problem)


@pytest.mark.shared
@pytest.mark.parametrize("name", ["resnet50", "G_1"])
def test_never_worse_on_real_instances(name, shared):
    problem = read_csv(shared / "data" / "idealloc" / f"{name}.csv").problem
    never_worse(problem)


@pytest.mark.shared
def test_the_largest_real_instance_is_near_its_bound(shared):
    problem = read_csv(shared / "data" / "idealloc" / "S_1.csv").problem
    bound = lower_bound(problem)
    fitter = Fitter(problem)
    group = list(islice(trials(problem, 0), 3))
    heights = [height for _, height in fitter.race(group, NO_LIMIT)]
    assert min(heights) <= 1.0062 * bound


@pytest.mark.parametrize("seed", range(4, 7))
def test_shelves_close_half_of_the_gap_of_plain_orders(seed):
    problem = crowded(6000, seed)
    fitter, bound = Fitter(problem), lower_bound(problem)
    heights = {}
    for trial in islice(trials(problem, 0), 9):
        offsets, height = fitter.place(trial.order, best_gap=trial.best_gap)
        assert violations(problem, offsets, height) == []
        heights[trial.name] = height - bound
    plain = min(gap for name, gap in heights.items() if "shelf" not in name)
    assert min(heights["fast-shelf"], heights["fast-shelf-reverse"]) < plain / 2


def test_closed_by_the_first_trial_needs_no_second(monkeypatch):
    start = np.arange(3000)
    problem = Problem.of(start, start + 3, np.full(3000, 64))
    asked, race = [], Fitter.race

    def counted(self, group, limit):
        asked.append(len(group))
        return race(self, group, limit)

    monkeypatch.setattr(Fitter, "race", counted)
    found = pack(problem)
    assert found.strategy == "fast-size-first"
    assert asked == [1]


def test_thousands_of_buffers_that_a_greedy_closes_never_load_numba():
    code = (
        "import sys; import numpy as np; from peakfold.packing import Problem, pack\n"
        "start = np.arange(1900)\n"
        "found = pack(Problem.of(start, start + 2, 64 + start % 2), time_limit=60)\n"
        "assert found.optimal\n"
        "sys.exit('numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_trials_are_permutations_and_depend_on_the_seed_only():
    problem = crowded(300, 9)
    one, same, other = (list(islice(trials(problem, seed), 16)) for seed in (1, 1, 2))
    assert all(sorted(t.order.tolist()) == list(range(300)) for t in one)
    assert [t.order.tolist() for t in one] == [t.order.tolist() for t in same]
    assert [t.order.tolist() for t in one] != [t.order.tolist() for t in other]
    assert isinstance(one[0], Trial)
