"""`fit` around the arena that really starts: 0 false "fits", 0 false "does not fit"."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from peakfold.app.runtime import runtime_of
from peakfold.frontends import load
from peakfold.planning import PlanOptions, make_plan
from peakfold.planning.fit.levers import fit
from peakfold.planning.fit.total import Budgets
from peakfold.runtimes.tflite.apply_plan import apply_plan
from tests.runtimes.tflite.oracle.calls import asked, expected, peak, traced

AROUND = (-32, -16, 0, 16, 64)
"""Bytes from the true need to the budgets that are asked about."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Answers about one model.

    Attributes:
        name: of the model.
        need: bytes of the whole arena that the plan `fit` ends with really takes, or the file's
            own, if that is less.
        said: whether it fits, by budget; `None` = not known.
        unknown: operators that made an answer unknown.
    """

    name: str
    need: int
    said: tuple[bool | None, ...]
    unknown: tuple[str, ...]

    @property
    def wrong(self) -> list[int]:
        """Budgets with a false answer."""
        return [
            self.need + more
            for more, said in zip(AROUND, self.said, strict=True)
            if said is not None and said != (more >= 0)
        ]


def answers(models: dict[str, bytes]) -> list[Asked]:
    """What `fit` says of every model and budget, beside the traced need."""
    return [_one(name, data) for name, data in models.items()]


def _one(name: str, data: bytes) -> Asked:
    with tempfile.TemporaryDirectory(prefix="peakfold-") as folder:
        path, new = Path(folder) / "model.tflite", Path(folder) / "planned.tflite"
        path.write_bytes(data)
        loaded, options = load(path), PlanOptions(target="tflm", time_limit=0.5)
        runtime = runtime_of(loaded, options)
        least = fit(loaded.graph, Budgets(total=16), options, runtime)
        plan = make_plan(loaded.graph, least.options, loaded.bindings).plan
        new.write_bytes(apply_plan(path, loaded.graph, plan).data)
        need = min(map(_need, (path, new)))
        results = [
            fit(loaded.graph, Budgets(total=need + more), options, runtime) for more in AROUND
        ]
    return Asked(name, need, tuple(found.fits for found in results), least.need.unknown)


def _need(path: Path) -> int:
    (calls,) = asked([(path, 0)])
    if isinstance(calls, str):
        raise RuntimeError(calls)
    return peak(traced([tuple(call) for call in calls], expected(path.read_bytes()).steps))
