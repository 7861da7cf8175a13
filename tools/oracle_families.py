"""The whole oracle of PyTorch's families of transformers; `make oracles` runs it.

Steps, forward passes and decode steps of small models, predicted without their memory, beside what
a plain loop in a process of its own allocates. Writes ``docs/benchmarks/oracles-families.md``;
exit code 1 if a prediction is further off than 0.2 %.
"""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
import transformers  # noqa: E402
from tests.oracles.torch_families import WAYS, names  # noqa: E402
from tests.oracles.torch_predicted import TOLERANCE, Beside, beside  # noqa: E402

PAGE = ROOT / "docs" / "benchmarks" / "oracles-families.md"
HEAD = """# Transformers as an oracle

Last run of `make oracles`, torch {torch}, transformers {transformers}. Each case is a small model
of the family with random weights, 256 tokens; with and without a mask of ones, with PyTorch's
attention and with eager attention. `truth`: bytes held before plus the most that the allocations of
a plain loop add up to, told by PyTorch's profiler, in a process that imports nothing of peakfold.
Predictions include the scratch of kernels, each measured alone. Within {tolerance:.1%}: right.

"""


def row(family: str, found: list[Beside]) -> str:
    """A family's line: right and all by way, and the worst error."""
    cells = []
    for way in WAYS:
        these = [one for one in found if one.name.split()[3] == way]
        cells.append(f"{sum(one.right for one in these)} of {len(these)}" if these else "-")
    worst = max(found, key=lambda one: abs(one.error))
    return f"| {family} | {' | '.join(cells)} | {worst.error:+.3%} |"


def main(chosen: list[str]) -> int:
    """Run all cases, or those whose names hold all the words given; write the page."""
    listed = [name for name in names() if set(chosen) <= set(name.split())]
    found = beside(listed)
    wrong = [one for one in found if not one.right]
    for one in wrong:
        print(f"{one.name}: {one.error:+.2%} {one.predicted[:3]} {one.truth[:3]} {one.why}")
    print(f"{len(found)} cases, {len(wrong)} wrong")
    if not chosen:
        table = [f"| family | {' | '.join(WAYS)} | worst |", "|---" * (len(WAYS) + 2) + "|"]
        table += [
            row(name, list(rows))
            for name, rows in groupby(found, key=lambda one: one.name.split()[0])
        ]
        missed = [f"- {one.name}: {one.error:+.2%} {one.why}" for one in wrong] or ["None."]
        head = HEAD.format(
            torch=torch.__version__, transformers=transformers.__version__, tolerance=TOLERANCE
        )
        total = f"\n{len(found)} cases, {len(found) - len(wrong)} right. Not within it:\n"
        PAGE.write_text("\n".join([head + table[0], *table[1:], total, *missed, ""]), "utf-8")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
