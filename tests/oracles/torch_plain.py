"""The truth of a training step: a plain loop in a process that knows nothing of peakfold.

``python -m tests.oracles.torch_plain THREADS`` reads groups and names of steps, and prints a line
of JSON for each: the bytes that were there before the second step plus the highest running sum of
the allocations in it, or why it cannot be run.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from tests.oracles import torch_generated, torch_libraries, torch_losses, torch_operators
from tests.oracles.torch_operators import Step

ROOT = Path(__file__).parents[2]
GROUPS: dict[str, Callable[[], Iterable[tuple[str, Callable[[], Step]]]]] = {
    "operators": torch_operators.steps,
    "losses": torch_losses.steps,
    "modules": torch_generated.steps,
    "habits": torch_libraries.steps,
}
MADE = {group: dict(steps()) for group, steps in GROUPS.items()}


def peak(step: Step) -> int:
    """Bytes of a plain loop's second step; SGD, gradients set to none."""
    module, kwargs = step
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)

    def once() -> None:
        module(**kwargs).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    once()
    held = [*module.parameters(), *module.buffers(), *kwargs.values()]
    before = {s._cdata: s.nbytes() for s in (t.untyped_storage() for t in held)}
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        once()
    total = highest = 0
    for event in seen.profiler.kineto_results.events():  # in the order of their recording
        if event.name() == "[memory]":
            total += event.nbytes()
            highest = max(highest, total)
    return sum(before.values()) + highest


def peaks(asked: Iterable[tuple[str, str]]) -> dict[tuple[str, str], int | str]:
    """The truths of steps by group and name, from one process; why not, where it does not run."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.oracles.torch_plain", str(torch.get_num_threads())],
        cwd=ROOT,
        text=True,
        input=json.dumps(list(asked)),
        capture_output=True,
        check=False,
    )
    if ran.returncode:
        raise RuntimeError(ran.stderr[-2000:])
    lines = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("[")]
    return {(group, name): told for group, name, told in lines}


def _told(group: str, name: str) -> int | str:
    try:
        return peak(MADE[group][name]())
    except (RuntimeError, NotImplementedError, ValueError) as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(int(sys.argv[1]))  # kernels take scratch for each
    for group, name in json.load(sys.stdin):
        print(json.dumps([group, name, _told(group, name)]), flush=True)
