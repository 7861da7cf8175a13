"""Every operator, loss and generated module of the torch oracle; ``make oracles`` runs it.

Writes docs/benchmarks/oracles-torch.md; exit code 1 if anything is wrong.
"""

from __future__ import annotations

import logging
import sys
import time
import warnings
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from tests.oracles.torch_ops import OUTSIDE, rows, wrong  # noqa: E402
from tests.oracles.torch_plain import GROUPS  # noqa: E402

PAGE = ROOT / "docs" / "benchmarks" / "oracles-torch.md"


def main() -> int:
    """Run everything, write the page."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    lines = [
        "# Training steps against a plain loop: the last whole run",
        "",
        f"torch {torch.__version__}, SGD, the second step. Truth: allocation events of a",
        "process that knows nothing of peakfold. *Near*: within 0.2 % or 256 B.",
        "",
        "| group | torch runs | near, scratch measured | near, as a plan tells | wrong | s |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    bad, listed = [], []
    for group in GROUPS:
        start = time.monotonic()
        found = [row for row in rows(group)[group] if row.runs]
        near, plan = (sum(r.near(getattr(r, n)) for r in found) for n in ("measured", "plan"))
        bad += wrong(found)
        listed += [row for row in found if not row.near(row.measured)]
        lines.append(
            f"| {group} | {len(found)} | {near} | {plan} | {len(wrong(found))} | "
            f"{time.monotonic() - start:.0f} |"
        )
        print(lines[-1], file=sys.stderr, flush=True)
    lines += ["", "## Outside", "", "| step | true | told | why |", "|---|---:|---:|---|"]
    for row in listed:
        told = row.measured if isinstance(row.measured, int) else "refused"
        lines.append(f"| {row.name} | {row.truth} | {told} | {OUTSIDE.get(row.name, 'WRONG')} |")
    PAGE.write_text("\n".join([*lines, ""]))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
