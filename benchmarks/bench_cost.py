"""Multiply-accumulates and parameters of torchvision and timm models against a recount.

Runs in an environment of its own (`make bench-cost` creates it: torch 2.14.1, torchvision
0.29.1, timm 1.0.31). Every model is built without memory, captured by peakfold's torch front
end, and compared integer by integer with `../shared/data/{torchvision,timm}/recount.csv`, which
an independent dispatch-level counter made. Results are appended model by model, so that a run
that was stopped goes on; `--table` writes the committed table.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import re
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
DATA = ROOT.parent / "shared" / "data"
PAGE = ROOT / "docs" / "benchmarks" / "cost.md"
TABLE = ROOT / "docs" / "benchmarks" / "cost.csv"


@dataclass(frozen=True)
class Case:
    """One row of a recount."""

    source: str
    model: str
    size: int
    frames: int
    macs: int
    params: int | None

    @property
    def key(self) -> str:
        return f"{self.source}/{self.model}/{self.size}"


@dataclass(frozen=True)
class Result:
    """What peakfold counts; `error` says why it does not."""

    key: str
    want_macs: int
    want_params: int | None
    macs: int | None = None
    params: int | None = None
    ops: int = 0
    unknown: str = ""
    seconds: float = 0.0
    route: str = ""
    error: str = ""


def torchvision_cases() -> Iterator[Case]:
    """Every entry of the recount, an architecture and size once."""
    folder = DATA / "torchvision"
    with (folder / "weights_meta.csv").open() as file:
        meta = {(row["model"], row["weights"]): row for row in csv.DictReader(file)}
    seen: set[str] = set()
    with (folder / "recount.csv").open() as file:
        for row in csv.DictReader(file):
            about = meta[row["model"], row["weights"]]
            size = int(about["crop_size"].strip("()").split(",")[0])
            macs = round(float(row["recounted_gmacs"]) * 1e9)
            frames = int(row["frames"] or 0)
            case = Case("torchvision", row["model"], size, frames, macs, int(about["num_params"]))
            if case.key not in seen:
                seen.add(case.key)
                yield case


def timm_cases() -> Iterator[Case]:
    """Every row of the recount."""
    with (DATA / "timm" / "recount.csv").open() as file:
        for row in csv.DictReader(file):
            yield Case(
                "timm", row["model"], int(row["img_size"]), 0, int(row["macs"]), int(row["params"])
            )


def build(case: Case):
    """A module without memory and its input; with memory where its constructor needs values."""
    import torch

    try:
        with torch.device("meta"):
            return made(case)
    except NotImplementedError:  # regnets compute their widths with tensors
        return made(case)


def made(case: Case):
    import torch

    if case.source == "torchvision":
        import torchvision

        more = {"image_size": case.size} if case.model.startswith("vit_") else {}
        module = torchvision.models.get_model(case.model, **more)
        frames = (case.frames,) if case.frames else ()
        shape = (1, 3, *frames, case.size, case.size)
    else:
        import timm

        module = timm.create_model(case.model)
        usual = module.default_cfg.get("input_size", (3, case.size, case.size))
        if usual[-1] != case.size:
            module = sized(case)
        shape = (1, usual[0], case.size, case.size)
    return module.eval(), torch.randn(shape)


def sized(case: Case):
    """A timm model for another image size, where it takes one."""
    import timm

    try:
        return timm.create_model(case.model, img_size=case.size)
    except TypeError:
        return timm.create_model(case.model)


def count(case: Case, route: str) -> Result:
    """Capture a model and add up what the registry says."""
    from peakfold.frontends.torch.module import capture
    from peakfold.ops import context, lookup

    start = time.process_time()
    plain = Result(case.key, case.macs, case.params, route=route)
    try:
        module, example = build(case)
        graph = capture(module, (example,), route=route)
    except Exception as error:  # every failure is a row of the table
        return Result(**{**asdict(plain), "error": f"{type(error).__name__}: {error}"[:300]})
    total, unknown = 0, set()
    for op in graph.ops:
        row = lookup(op.kind)
        macs = row.macs(context(op, graph.by_name)) if row.macs else None
        if macs is None:
            unknown.add(op.kind)
        total += macs or 0
    params = sum(t.elements or 0 for t in graph.tensors if t.role.value == "parameter")
    return Result(
        case.key,
        case.macs,
        case.params,
        total,
        params,
        len(graph.ops),
        " ".join(sorted(unknown)),
        round(time.process_time() - start, 2),
        route,
    )


def run(cases: list[Case], out: Path, route: str) -> None:
    """Count what the file does not hold yet."""
    lines = out.read_text().splitlines() if out.exists() else []
    done = {json.loads(line)["key"] for line in lines}
    todo = [case for case in cases if case.key not in done]
    print(f"{len(todo)} of {len(cases)} models to do", file=sys.stderr)
    with out.open("a") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for at, case in enumerate(todo):
            result = count(case, route)
            file.write(json.dumps(asdict(result)) + "\n")
            file.flush()
            if result.macs != result.want_macs or result.params != result.want_params:
                print(f"{at} {result}", file=sys.stderr)


# Why a figure differs from the recount's or the published one; `model/key` -> reason.
_VIDEO = (
    "the recount is {} (that many times the classifier's width; why is not known); PyTorch's own "
    "FlopCounterMode gives peakfold's figure (`--check`), and the published GFLOPs round to it"
)
EXPLAINED = {
    "torchvision/googlenet/224": "the published count leaves out the two auxiliary heads",
    "torchvision/s3d/224": _VIDEO.format("350 x 1,024 higher"),
    "torchvision/swin3d_b/224": _VIDEO.format("200 x 1,024 lower"),
    "torchvision/swin3d_t/224": _VIDEO.format("200 x 768 lower"),
}


def check(cases: list[Case]) -> None:
    """What PyTorch's own counter says of the models in `EXPLAINED` (no attention among them)."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    for case in cases:
        if case.key in EXPLAINED:
            module, example = build(case)
            with FlopCounterMode(display=False) as counter, torch.no_grad():
                module(example)
            print(case.key, counter.get_total_flops() // 2, "MACs by FlopCounterMode")


def family(key: str) -> str:
    """The leading word of a model's name."""
    return re.split(r"[_\d]", key.split("/")[1])[0]


def write_table(out: Path) -> None:
    """The committed page and its CSV from the results so far."""
    results = sorted(
        (json.loads(line) for line in out.read_text().splitlines()), key=lambda r: r["key"]
    )
    lines = ["model,size,route,ops,macs,params,exact"]
    for r in results:
        source, model, size = r["key"].split("/")
        exact = r["macs"] == r["want_macs"] and r["params"] == r["want_params"]
        lines.append(
            f"{source}/{model},{size},{r['route']},{r['ops']},{r['macs']},{r['params']},"
            f"{'yes' if exact else 'no'}"
        )
    TABLE.parent.mkdir(parents=True, exist_ok=True)
    TABLE.write_text("\n".join(lines) + "\n")
    PAGE.write_text("\n".join(page(results)) + "\n")


def page(results: list[dict]) -> Iterator[str]:
    """Lines of the page."""
    yield "# MACs and parameters of torchvision and timm models"
    yield ""
    yield "Written by `make bench-cost` (torch 2.14.1, torchvision 0.29.1, timm 1.0.31), models"
    yield "built and captured without memory. Figures are integers, compared with a recount by an"
    yield "independent dispatch-level counter; torchvision's parameters with the published ones."
    yield "All rows: [cost.csv](cost.csv). Tests hold ten more networks and every kind of layer to"
    yield "closed forms on torch 2.13 (`tests/frontends/torch/test_costs.py`)."
    yield ""
    yield "| source | route | models | families | MACs exact | parameters exact | median CPU-s |"
    yield "|---|---|---|---|---|---|---|"
    for source, route in sorted({(r["key"].split("/")[0], r["route"]) for r in results}):
        rows = [r for r in results if r["key"].startswith(source) and r["route"] == route]
        macs = sum(r["macs"] == r["want_macs"] for r in rows)
        params = sum(r["params"] == r["want_params"] for r in rows)
        seconds = sorted(r["seconds"] for r in rows)[len(rows) // 2]
        families = len({family(r["key"]) for r in rows})
        yield f"| {source} | {route} | {len(rows)} | {families} | {macs} | {params} | {seconds} |"
    yield ""
    off = [r for r in results if (r["macs"], r["params"]) != (r["want_macs"], r["want_params"])]
    if not off:
        yield "No model deviates."
        return
    yield "| deviates | MACs (recounted) | parameters (compared with) | why |"
    yield "|---|---|---|---|"
    for r in off:
        why = EXPLAINED.get(r["key"], r["error"] or "not explained")
        yield (
            f"| {r['key']} | {r['macs']} ({r['want_macs']}) | {r['params']} "
            f"({r['want_params']}) | {why} |"
        )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/cost.jsonl")
    parser.add_argument("--route", choices=("export", "trace"), default="export")
    parser.add_argument("--only", choices=("torchvision", "timm"))
    parser.add_argument("--limit", type=int, help="as many models, taken evenly from all families")
    parser.add_argument("--table", action="store_true", help="only write the committed table")
    parser.add_argument("--check", action="store_true", help="PyTorch's count of what deviates")
    options = parser.parse_args()
    if options.table:
        write_table(options.out)
        return
    options.out.parent.mkdir(parents=True, exist_ok=True)
    cases = [*torchvision_cases(), *timm_cases()]
    if options.check:
        check(cases)
        return
    cases = [case for case in cases if options.only in (None, case.source)]
    random.Random(0).shuffle(cases)
    run(cases[: options.limit], options.out, options.route)


if __name__ == "__main__":
    main()
