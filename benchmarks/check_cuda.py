"""On a machine with a CUDA card: hold every figure that peakfold tells of one against it.

    python benchmarks/check_cuda.py [--dry]          (make check-cuda)

Wants PyTorch with CUDA, and transformers for two of the six models; no network. Takes less than
five minutes. Without a card it says so in one line and ends with 0. With one it writes

- `src/peakfold/target/cuda_checked.json`: a row a figure and case, under the card's name. A figure
  of which every row holds is no longer called unverified in reports;
- `tests/data/cuda/*.json`: memory snapshots of the allocator, without addresses of this machine.

A further check is a function from an `Allocator` to rows, added to `CHECKS`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from peakfold.target.checked import FILE, SCHEMA, Card, Row  # noqa: E402

WANTS = "wants PyTorch built with CUDA, and transformers"
NEAR = 0.01
"""Allocated and reserved bytes hold within this fraction; reserved ones also within a segment."""
SEGMENT = 20 << 20
CONTEXT = 0.1
TRACED = ("mlp", "resnet")


def missing() -> str:
    """Why nothing can be checked here; empty where it can."""
    if importlib.util.find_spec("torch") is None:
        return f"PyTorch is not installed ({WANTS})"
    import torch

    if torch.version.cuda is None:
        return f"no CUDA device: this is PyTorch's CPU build, {torch.__version__} ({WANTS})"
    if not torch.cuda.is_available():
        return "no CUDA device"
    return ""


def row(
    figure: str, case: str, predicted: int, measured: int, within: float = NEAR, spare: int = 0
) -> Row:
    """A row, and whether it holds within a fraction or so many bytes."""
    holds = abs(predicted - measured) <= max(within * measured, spare)
    return Row(figure, case, int(predicted), int(measured), bool(holds))


def steps(card: Any) -> Iterator[Row]:
    """Six models, first and steady step, allocated and reserved by phase, against the replay."""
    import cuda_truth

    for name in cuda_truth.NAMES:
        if name in ("bert", "gpt2") and importlib.util.find_spec("transformers") is None:
            print(f"left out: {name} (transformers is not installed)", flush=True)
            continue
        found = cuda_truth.row_of(name, card)
        for which in ("first", "steady"):
            for phase, (told, said) in found[which]["device"].items():
                case = f"{name}, {which} step, {phase}"
                yield row("allocated", case, told["allocated"], said["allocated"])
                yield row("reserved", case, told["reserved"], said["reserved"], spare=SEGMENT)


def masks(card: Any) -> Iterator[Row]:
    """What a dropout keeps beside its result."""
    import torch

    from peakfold.target import load_eager

    x = torch.ones(1 << 20, device=card.device, requires_grad=True)
    held, before = [], card.now().allocated
    held.append(torch.nn.functional.dropout(x, 0.5))
    kept = card.now().allocated - before - x.numel() * x.element_size()
    width = 1 if load_eager("cuda").dropout_mask == "bool" else x.element_size()
    yield row("mask of a dropout", "2^20 float32", width * x.numel(), kept)


def attention(card: Any) -> Iterator[Row]:
    """Bytes of the size of the scores that an attention makes, forward and backward."""
    import torch

    batch, heads, tokens, width = 2, 4, 1024, 64
    scores = batch * heads * tokens * tokens * 2
    for kind in (torch.float16, torch.bfloat16):
        qkv = [
            torch.ones(
                batch, heads, tokens, width, dtype=kind, device=card.device, requires_grad=True
            )
            for _ in range(3)
        ]
        before = card.now().allocated
        card.reset_peak()
        out = torch.nn.functional.scaled_dot_product_attention(*qkv, is_causal=True)
        out.sum().backward()
        card.synchronize()
        made = card.peak().allocated - before
        yield row("attention kernel", f"{kind}, causal, {tokens} tokens", 0, made // scores)


def libraries(card: Any) -> Iterator[Row]:
    """What stays allocated after a matrix product and its gradient: workspaces, one a thread."""
    import torch

    from peakfold.target import load_eager

    kept = load_eager("cuda")
    card.forget_libraries()
    x = torch.ones(256, 256, device=card.device, requires_grad=True)
    before = card.now().allocated
    (x @ x).sum().backward()
    card.synchronize()
    x.grad = None
    workspaces = kept.product_workspace_bytes * kept.product_threads
    yield row(
        "libraries", "product, forward and backward", workspaces, card.now().allocated - before
    )


def context(card: Any) -> Iterator[Row]:
    """What the device holds beside the allocator, once libraries are loaded."""
    from peakfold.target import load_eager

    yield row(
        "context", "after the checks", load_eager("cuda").context_bytes, card.outside(), CONTEXT
    )


def expandable(card: Any) -> Iterator[Row]:
    """Reserved bytes with expandable segments, in a process of its own."""
    if card.device != "cuda":  # a stand-in has one kind of segments
        return
    done = subprocess.run(
        [sys.executable, __file__, "--expandable"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    )
    for case, predicted, measured in json.loads(done.stdout.splitlines()[-1]):
        yield row("expandable reserved", case, predicted, measured, spare=2 << 20)


def expandable_here(card: Any) -> list[tuple[str, int, int]]:
    """For the process above: predicted and measured reserved bytes of steady steps."""
    import cuda_truth

    found = []
    for name in ("mlp", "resnet", "unet"):
        said = cuda_truth.row_of(name, card)
        measured = max(pair[1]["reserved"] for pair in said["steady"]["device"].values())
        found.append((f"{name}, steady step", said["predicted_expandable_reserved"][1], measured))
    return found


CHECKS: dict[str, Callable[[Any], Iterator[Row]]] = {
    "steps against the replay": steps,
    "mask bytes": masks,
    "attention kernel": attention,
    "library bytes": libraries,
    "expandable segments": expandable,
    "context": context,
}


def run(card: Any, name: str, torch_version: str, cuda_version: str) -> Card:
    """Every check on a card; one that fails to run is said, and the others go on."""
    rows: list[Row] = []
    for what, check in CHECKS.items():
        start, count = time.monotonic(), len(rows)
        try:
            rows.extend(check(card))
        except Exception as error:  # a check of a card that behaves otherwise than any known
            print(f"{what}: did not run: {type(error).__name__}: {error}", flush=True)
        held = sum(r.holds for r in rows[count:])
        print(
            f"{what}: {held} of {len(rows) - count} rows hold, {time.monotonic() - start:.1f} s",
            flush=True,
        )
    for one in rows:
        if not one.holds:
            print(
                f"  off: {one.figure}, {one.case}: predicted {one.predicted}, "
                f"measured {one.measured}",
                flush=True,
            )
    return Card(name, torch_version, cuda_version, tuple(rows))


def merged(document: dict[str, Any], card: Card) -> dict[str, Any]:
    """The data file with this card's rows in place of those it had."""
    others = [c for c in document.get("cards", []) if c["card"] != card.card]
    return {"schema": SCHEMA, "cards": [*others, asdict(card)]}


def reduced(snapshot: dict[str, Any]) -> dict[str, Any]:
    """A memory snapshot as a fixture: addresses count from the lowest, frames are names.

    Args:
        snapshot: as ``torch.cuda.memory._snapshot()`` gives it.
    """
    traces = [trace for trace in snapshot["device_traces"] if trace]
    addresses = [e["addr"] for trace in traces for e in trace if "addr" in e]
    lowest = min([*addresses, *(s["address"] for s in snapshot["segments"])], default=0)

    def entry(found: dict[str, Any]) -> dict[str, Any]:
        kept = {key: found[key] for key in ("action", "size", "stream") if key in found}
        if "addr" in found:
            kept["addr"] = found["addr"] - lowest
        kept["frames"] = [frame["name"] for frame in found.get("frames", [])[:4]]
        return kept

    def segment(found: dict[str, Any]) -> dict[str, Any]:
        keys = (
            "total_size",
            "allocated_size",
            "active_size",
            "stream",
            "segment_type",
            "is_expandable",
        )
        blocks = [{k: b[k] for k in ("size", "state") if k in b} for b in found["blocks"]]
        kept = {key: found[key] for key in keys if key in found}
        return {**kept, "address": found["address"] - lowest, "blocks": blocks}

    return {
        "segments": [segment(s) for s in snapshot["segments"]],
        "device_traces": [[entry(e) for e in trace] for trace in traces],
    }


def snapshots() -> dict[str, dict[str, Any]]:
    """Two steps of each of two models, as the card's allocator recorded them."""
    import cuda_truth
    import torch

    from peakfold.runtimes.torch.cuda import CudaAllocator, run_on_device

    found = {}
    for name in TRACED:
        module, args, kwargs = cuda_truth.MODELS[name]()
        torch.cuda.memory._record_memory_history(max_entries=200_000)
        run_on_device(module.train(), args, kwargs, cuda_truth.OPTIONS, CudaAllocator())
        taken = torch.cuda.memory._snapshot()
        torch.cuda.memory._record_memory_history(enabled=None)
        found[name] = {
            "card": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            **reduced(taken),
        }
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dry", action="store_true", help="write nothing")
    parser.add_argument("--expandable", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    why = missing()
    if why:
        print(f"skipped: {why}")
        return 0
    import torch

    from peakfold.runtimes.torch.cuda import CudaAllocator

    card = CudaAllocator()
    if given.expandable:
        print(json.dumps(expandable_here(card)))
        return 0
    found = run(card, torch.cuda.get_device_name(), torch.__version__, str(torch.version.cuda))
    if given.dry:
        return 0
    path = ROOT / "src" / "peakfold" / "target" / FILE
    document = merged(json.loads(path.read_text("utf-8")), found)
    path.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    folder = ROOT / "tests" / "data" / "cuda"
    folder.mkdir(parents=True, exist_ok=True)
    for name, taken in snapshots().items():
        (folder / f"{name}.json").write_text(json.dumps(taken) + "\n", "utf-8")
    print(f"wrote {path.relative_to(ROOT)} and {len(TRACED)} snapshots: commit them")
    return 0


if __name__ == "__main__":
    sys.exit(main())
