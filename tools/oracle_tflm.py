"""The whole oracle of TensorFlow Lite Micro's arena; `make oracles` runs it.

Ten seeds of generated models and every shared file: the sequence of the interpreter's allocations
equals ours call by call, the size we print starts it, and equals the traced peak; and `fit` on 200
models with five budgets around what is really needed. Writes its part of
``docs/benchmarks/oracles-tflm.md``; exit code 1 if anything is wrong.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.runtimes.tflite.oracle.budgets import AROUND, answers  # noqa: E402
from tests.runtimes.tflite.oracle.calls import MISSING, Finding, findings  # noqa: E402
from tests.runtimes.tflite.oracle.cases import cases  # noqa: E402
from tests.runtimes.tflite.oracle.test_oracle import REFUSED, files  # noqa: E402

PAGE = ROOT / "docs" / "benchmarks" / "oracles-tflm.md"
START, STOP = "<!-- tflm -->\n", "<!-- end of tflm -->\n"
SEEDS = 10
FITTED = 200


def row(what: str, found: list[Finding]) -> str:
    """A line of the table."""
    taken = [one for one in found if not one.refused]
    wrong, below = sum(bool(one.wrong) for one in taken), sum(one.below for one in taken)
    return f"| {what} | {len(taken)} | {len(taken) - wrong} | {wrong} | {below} |"


def main() -> int:
    """Run everything, write the page."""
    if MISSING:
        print(MISSING, file=sys.stderr)
        return 1
    made = [one for seed in range(SEEDS) for one in findings(cases(seed))]
    shared = findings(files())
    models = {f"{seed}/{name}": data for seed in range(SEEDS) for name, data in cases(seed).items()}
    step = len(models) // FITTED
    fitted = answers(dict(list(models.items())[::step][:FITTED]))
    false = [one for one in fitted if one.wrong]
    unknown = [one for one in fitted if one.unknown]
    skipped = [one for one in (*made, *shared) if one.refused]
    lines = [
        "## TensorFlow Lite Micro: the whole arena",
        "",
        "`equal`: every call to the interpreter's allocator is the one we expect, its peak is the "
        "size we print, and the interpreter starts in it. `starts below`: it starts in 16 bytes "
        "less, too, with memory of its own overwritten; such a size is never printed.",
        "",
        "| set | models | equal | wrong | starts below |",
        "|---|---|---|---|---|",
        row(f"generated, {SEEDS} seeds, all operators", made),
        row("shared files", shared),
        "",
        f"`fit`: {len(fitted)} models x {len(AROUND)} budgets around the traced need "
        f"({', '.join(f'{more:+}' for more in AROUND)} bytes): "
        f"{sum(len(one.wrong) for one in false)} false answers, {len(unknown)} models not known.",
        "",
        f"Skipped: {len(skipped)} of {len(made) + len(shared)}, which the interpreter takes at no "
        "size: "
        + "; ".join(f"{one.name} ({REFUSED.get(one.name, one.refused)})" for one in skipped)
        + ".",
        "",
    ]
    wrong = [one for one in (*made, *shared) if one.wrong]
    lines += [f"- {one.name}: {one.wrong}" for one in wrong]
    lines += [f"- fit, {one.name}: needs {one.need}, false at {one.wrong}" for one in false]
    write("\n".join(lines))
    print("\n".join(lines))
    surprises = [one for one in skipped if one.name not in REFUSED]
    return int(bool(wrong or false or surprises))


def write(text: str) -> None:
    """Put this part into the page, and leave the others as they are."""
    page = PAGE.read_text("utf-8") if PAGE.is_file() else "# Runtimes as oracles of our tests\n\n"
    before, _, rest = page.partition(START)
    after = rest.partition(STOP)[2]
    PAGE.write_text(before + START + text + "\n" + STOP + after, "utf-8")


if __name__ == "__main__":
    sys.exit(main())
