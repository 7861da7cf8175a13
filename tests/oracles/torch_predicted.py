"""Families of transformers as peakfold predicts them, beside what a plain loop allocates."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from peakfold.errors import PeakfoldError
from peakfold.frontends.torch.training.forward import fake_forward
from peakfold.frontends.torch.training.options import StepOptions
from peakfold.frontends.torch.training.step import fake_steps
from peakfold.runtimes.torch.scratch import CpuScratch
from tests.oracles.torch_families import advance, build, later

ROOT = Path(__file__).parents[2]
TOLERANCE = 0.002
"""Of the truth; asked for by the requirement that this oracle proves."""


@dataclass(frozen=True)
class Beside:
    """One case; bytes, one figure a run."""

    name: str
    predicted: tuple[int, ...]
    truth: tuple[int, ...]
    why: str = ""

    @property
    def error(self) -> float:
        """The worst, as a fraction of the truth; infinite where there is no figure."""
        if not self.predicted or len(self.predicted) != len(self.truth):
            return float("inf")
        pairs = zip(self.predicted, self.truth, strict=True)
        return max((p / t - 1 for p, t in pairs), key=abs)

    @property
    def right(self) -> bool:
        """Within the tolerance."""
        return abs(self.error) <= TOLERANCE


def truths(names: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """What a plain loop allocates, from a process that imports nothing of peakfold."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.oracles.torch_families", str(torch.get_num_threads())],
        cwd=ROOT,
        text=True,
        check=True,
        input="\n".join(names),
        capture_output=True,
    )
    lines = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("[")]
    return {name: tuple(found) for name, found in lines}


def predicted(name: str) -> tuple[int, ...]:
    """The peak of a step, a forward pass, or of every step of decoding.

    Raises:
        PeakfoldError: it cannot be predicted.
    """
    case, scratch = build(name), CpuScratch()
    if case.way == "decode":
        found = []
        for given in later(case):
            found.append(fake_forward(case.module, (), given, workspace=scratch).peak)
            advance(case, given)
        return tuple(found)
    if case.way == "prefill":
        return (fake_forward(case.module, (), case.kwargs, workspace=scratch).peak,)
    options = StepOptions(optimizer=case.optimizer, autocast=case.autocast)
    return (fake_steps(case.module, (), case.kwargs, options, scratch).steady.peak,)


def beside(names: Iterable[str]) -> list[Beside]:
    """Both, for every case."""
    listed, found = list(names), []
    true = truths(listed)
    for name in listed:
        try:
            found.append(Beside(name, predicted(name), true[name]))
        except PeakfoldError as error:
            found.append(Beside(name, (), true[name], str(error)))
    return found
