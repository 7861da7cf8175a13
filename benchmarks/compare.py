"""Two result files of `bench_pack.py` side by side: ratios of time and height per tool.

Times are divided by each run's probe first, so that a slow hour does not look like a change.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path


def load(path: Path) -> dict[tuple[str, str], dict]:
    return {(row["instance"], row["tool"]): row for row in json.loads(path.read_text())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    options = parser.parse_args()
    old, new = load(options.old), load(options.new)
    for tool in sorted({tool for _, tool in old.keys() & new.keys()}):
        logs = []
        for key in sorted(old.keys() & new.keys()):
            if key[1] != tool:
                continue
            a, b = old[key], new[key]
            ratio = (b["seconds"] / b["probe_s"]) / max(a["seconds"] / a["probe_s"], 1e-9)
            height = (b["over_bound"] or math.nan) / (a["over_bound"] or math.nan)
            logs.append(math.log(max(ratio, 1e-9)))
            flag = "" if a["solved"] == b["solved"] else f"  {a['solved']} -> {b['solved']}"
            print(f"{key[0]:18} {tool:18} time x{ratio:.2f}  height x{height:.4f}{flag}")
        if logs:
            print(f"{tool}: geometric mean of time ratios x{math.exp(sum(logs) / len(logs)):.3f}")


if __name__ == "__main__":
    main()
