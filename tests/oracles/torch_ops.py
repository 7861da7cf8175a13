"""Predicted steps of operators, losses and generated modules against a plain loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from peakfold.errors import PeakfoldError
from peakfold.frontends.torch.training.step import StepOptions, fake_steps
from peakfold.runtimes.torch.scratch import CpuScratch
from tests.fuzzing.campaign import slice_number

from .torch_operators import Step
from .torch_plain import MADE, peaks

FRACTION, BYTES = 0.002, 256
"""How far a prediction may be from the truth: the larger of both."""

PARTS = 30
"""A commit walks one of so many parts."""
OUTSIDE: Mapping[str, str] = {
    "softsign, second order": "a formula that writes in place, unread",
    "i0e, second order": "a formula with one temporary more, unread",
    "i1e": "a formula with one temporary more, unread",
    "masked_fill_value, second order": "sum by a mask: one temporary more",
    "var_mean": "kernel scratch that is not measured alone",
    "std_mean": "as var_mean",
    "cholesky": "kernel written in others",
    "lu_factor": "kernel written in others",
    "det, second order": "the plain formula solves in place",
    "svdvals, second order": "as det",
    "nuclear, second order": "as det",
    "spectral, second order": "as det",
    "pinv": "kernel written in others",
    "pinv, second order": "kernel written in others",
    "lstsq": "as pinv",
    "lstsq, second order": "as pinv",
    "matrix_exp": "the values choose the degree: scratch is that of zeros",
    "matrix_exp, second order": "the same",
    "vander, second order": "the plain cumulative product of a broadcast row",
    "glu, second order": "a formula that writes in place, unread",
    "embedding_bag_max": "kernel scratch of values",
    "bce, second order": "a formula that writes in place, unread",
    "bce, weight, second order": "the same",
    "bce, both, second order": "the same",
    "bce with logits, the target alone, second order": "a chain that is written in place, unread",
}
"""Steps whose prediction is outside, and why; none may join them."""


@dataclass(frozen=True, slots=True)
class Row:
    """One step.

    Attributes:
        truth: bytes of a plain loop, or why it does not run.
        plan: as a plan tells, scratch by rule alone; or why not.
        measured: with the scratch of its kernels, or why not.
    """

    name: str
    truth: int | str
    plan: int | str
    measured: int | str

    @property
    def runs(self) -> bool:
        """Whether torch itself runs it."""
        return isinstance(self.truth, int)

    def near(self, told: int | str) -> bool:
        """Whether a prediction is the truth, as near as is asked."""
        if isinstance(told, str) or isinstance(self.truth, str):
            return False
        return abs(told - self.truth) <= max(BYTES, FRACTION * self.truth)

    def line(self) -> str:
        """What is predicted and what is true."""
        return f"{self.name}: {self.measured}, a plan {self.plan}, true {self.truth}"


def predicted(step: Step, scratch: CpuScratch | None) -> int | str:
    """Bytes of a steady step, or the error's first line."""
    module, kwargs = step
    options = StepOptions(optimizer="sgd", loss=lambda out: out)
    try:
        return fake_steps(module, (), kwargs, options, scratch).steady.peak
    except PeakfoldError as error:
        return str(error).splitlines()[0]


def rows(*groups: str, part: int | None = None) -> dict[str, list[Row]]:
    """The steps of groups, or a part of each; their truth from one process.

    Scratch is measured where a plan alone is not near the truth.
    """
    asked = [
        (group, name)
        for group in groups
        for n, name in enumerate(MADE[group])
        if part is None or n % PARTS == part
    ]
    true, scratch = peaks(asked), CpuScratch()
    found: dict[str, list[Row]] = {group: [] for group in groups}
    for group, name in asked:
        plan = predicted(MADE[group][name](), None)
        row = Row(name, true[group, name], plan, plan)
        if row.runs and not row.near(plan):
            row = replace(row, measured=predicted(MADE[group][name](), scratch))
        found[group].append(row)
    return found


def sliced() -> dict[str, list[Row]]:
    """Today's part of every group."""
    return rows(*MADE, part=slice_number(PARTS))


def wrong(found: Iterable[Row]) -> list[Row]:
    """What is outside and not known to be."""
    return [r for r in found if r.runs and not r.near(r.measured) and r.name not in OUTSIDE]
