"""A verdict on a capacity: fits, cannot fit (proven), or unknown with the best and the bound."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any

import numpy as np

from peakfold.arguments import real, whole
from peakfold.errors import PeakfoldError, UsageError
from peakfold.packing.bounds import lower_bound
from peakfold.packing.deadline import Deadline
from peakfold.packing.problem import Packing, Problem, need_problem
from peakfold.packing.questions.infeasible import Culprits, explain
from peakfold.packing.solve import CapacityTooSmall, Progress, pack
from peakfold.packing.verify import violations

SOLVED, INFEASIBLE, TIMEOUT = "solved", "infeasible", "timeout"
Planner = Callable[[Problem], Any]
"""A user's planner: problem -> (n,) offsets."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What `judge_capacity` found.

    Attributes:
        status: ``solved`` (a packing; within the capacity, if one was given), ``infeasible``
            (proven that none fits) or ``timeout`` (unknown; the best packing is above).
        packing: the best packing, None if infeasible.
        bound: bytes any packing needs at least.
        capacity: bytes given, or None.
        missing: bytes between the capacity and the bound (infeasible) or the best (timeout).
        culprits: for infeasible, if asked for.
        seconds: wall clock, compiling included.
    """

    status: str
    packing: Packing | None
    bound: int
    capacity: int | None
    missing: int
    culprits: Culprits | None
    seconds: float

    @property
    def gap(self) -> float | None:
        """``(height - bound) / bound``; 0 when the bound is 0, None without a packing."""
        if self.packing is None:
            return None
        return (self.packing.height - self.bound) / self.bound if self.bound else 0.0


def judge_capacity(
    problem: Problem,
    *,
    capacity: int | None = None,
    minimize: bool = False,
    strategy: str = "best",
    time_limit: float = 5.0,
    seed: int = 0,
    progress: Progress | None = None,
    on_compile: Callable[[], None] | None = None,
    want_culprits: bool = False,
    planner: Planner | None = None,
    node_limit: int | None = None,
) -> Verdict:
    """Pack and say what it means for the capacity; arguments as for `pack`.

    Args:
        problem: the buffers.
        capacity: bytes, or None to minimise.
        minimize: go on below the capacity.
        strategy: as for `pack`.
        time_limit: seconds, without those that kernels take to be made ready.
        seed: of the randomised parts.
        progress: called with (height, lower bound).
        on_compile: called before kernels are compiled, which takes seconds.
        want_culprits: also explain an infeasible capacity.
        planner: a planner to judge instead of ours.
        node_limit: as for `pack`.

    Raises:
        UsageError: an unknown strategy, a negative capacity or time limit.
        PeakfoldError: the planner failed, or its offsets break a rule.

    Example:
        >>> p = Problem.of([0, 1], [4, 3], [16, 8])
        >>> judge_capacity(p, capacity=24).status, judge_capacity(p, capacity=20).missing
        ('solved', 4)
    """
    need_problem(problem)
    capacity = None if capacity is None else whole(capacity, "capacity")
    time_limit = real(time_limit, "time_limit", endless=True)
    began = monotonic()
    bound = lower_bound(problem)
    best: Packing | None = None
    status = INFEASIBLE
    try:
        if planner is not None:
            best = run_planner(problem, planner, bound)
        else:
            best = pack(
                problem,
                capacity=capacity,
                minimize=minimize or capacity is None,
                strategy=strategy,
                time_limit=time_limit,
                seed=seed,
                progress=progress,
                on_compile=on_compile,
                node_limit=node_limit,
            )
        bound = best.lower_bound
        fits = capacity is None or best.height <= capacity
        status = SOLVED if fits else TIMEOUT
    except CapacityTooSmall as error:
        bound = error.bound
    culprits = None
    if capacity is not None and status == INFEASIBLE and want_culprits:
        limit = Deadline.after(max(time_limit, 1.0), on_compile)
        culprits = explain(
            problem, capacity, expired=limit.expired, before_search=limit.load_search
        )
    need = bound if best is None else best.height
    missing = max(need - capacity, 0) if capacity is not None else 0
    return Verdict(status, best, bound, capacity, missing, culprits, monotonic() - began)


def run_planner(problem: Problem, planner: Planner, bound: int) -> Packing:
    """Run a user's planner and judge it like ours.

    Raises:
        PeakfoldError: it failed, or its offsets break a rule.
    """
    name = getattr(planner, "__name__", "planner")
    try:
        given = np.asarray(planner(problem))
    except Exception as error:  # it is the user's own code
        raise PeakfoldError(
            f"planner failed: {type(error).__name__}: {error}", where=name
        ) from None
    found = violations(problem, given)
    if found:
        more = f"{len(found)} violations in all"
        raise PeakfoldError(f"invalid packing: {found[0].message}", where=name, hint=more)
    offsets = given.astype(np.int64)
    height = problem.height(offsets)
    return Packing(offsets, height, bound, height <= bound, name)


def load_planner(spec: str) -> Planner:
    """Import ``module:function``.

    Raises:
        UsageError: not of that form, or not importable.

    Example:
        >>> load_planner("peakfold.packing.csv_format:read_csv").__name__
        'read_csv'
    """
    module, _, name = spec.partition(":")
    hint = "write module:function; the function takes a Problem and returns offsets"
    if not module or not name:
        raise UsageError(f"{spec!r} names no planner", hint=hint)
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:  # importing runs the user's own code
        raise UsageError(f"cannot import {spec!r}: {error}", hint=hint) from None
    if not callable(found):
        raise UsageError(f"{spec!r} is not a function", hint=hint)
    planner: Planner = found
    return planner
