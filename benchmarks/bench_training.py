"""Training steps of real networks, captured without their memory: seconds, bytes, BERT's table.

    python benchmarks/bench_training.py [--quick] [--json FILE]

Capture and plan are timed in CPU seconds, since machines are shared; memory is the process's
own peak. The table of BERT-base, batch 64, sequence 512 shows the configurations around the 73 GB
that a course quotes (docs/explanation/training.md).
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.frontends.torch.torch_models import resnet50

from peakfold.frontends.torch.training.step import StepOptions, fake_steps, step_graph
from peakfold.planning import PlanOptions
from peakfold.planning.modes import make_layout
from peakfold.planning.planner import plan_layout, planning_context

GB = 1e9


def bert(
    layers: int = 12,
    batch: int = 64,
    length: int = 512,
    attention: str = "eager",
    drop: float = 0.1,
    again: bool = False,
):
    """BERT of today; with ``again`` its layers are checkpointed."""
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        num_hidden_layers=layers,
        attn_implementation=attention,
        hidden_dropout_prob=drop,
        attention_probs_dropout_prob=drop,
    )
    with torch.device("meta"):
        model = BertForMaskedLM(config).train()
        ids = torch.zeros(batch, length, dtype=torch.long)
    if again:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return model, (), {"input_ids": ids, "labels": ids}


def gpt2(layers: int = 12, batch: int = 8, length: int = 512):
    from transformers import GPT2Config, GPT2LMHeadModel

    with torch.device("meta"):
        model = GPT2LMHeadModel(GPT2Config(n_layer=layers)).train()
        ids = torch.zeros(batch, length, dtype=torch.long)
    return model, (), {"input_ids": ids, "labels": ids}


def resnet(batch: int = 32):
    with torch.device("meta"):
        return resnet50().train(), (torch.zeros(batch, 3, 224, 224),), {}


class OldBert(nn.Module):
    """BERT pre-training as written in 2018: LayerNorm and GELU out of elementary operators."""

    def __init__(
        self,
        layers: int = 12,
        wide: int = 768,
        heads: int = 12,
        words: int = 30522,
        length: int = 512,
        form: str = "erf",
        fused: bool = False,
        drop: float = 0.1,
        again: bool = False,
    ) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, wide), nn.Embedding(length, wide)
        self.kinds = nn.Embedding(2, wide)
        self.norm = _norm(wide, fused)
        self.drop, self.again = nn.Dropout(drop), again
        self.layers = nn.ModuleList(
            _OldLayer(wide, heads, form, fused, drop) for _ in range(layers)
        )
        self.transform, self.head_norm = nn.Linear(wide, wide), _norm(wide, fused)
        self.bias = nn.Parameter(torch.zeros(words))
        self.pool, self.next = nn.Linear(wide, wide), nn.Linear(wide, 2)
        self.form, self.fused = form, fused

    def forward(self, ids, labels, following):
        at = torch.arange(ids.shape[1], device=ids.device)
        x = self.words(ids) + self.places(at) + self.kinds(torch.zeros_like(ids))
        x = self.drop(self.norm(x))
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.again else layer(x)
        h = self.head_norm(_gelu(self.transform(x), self.form, self.fused))
        scores = nn.functional.linear(h, self.words.weight) + self.bias
        one = nn.functional.cross_entropy(scores.view(-1, scores.shape[-1]), labels.view(-1))
        two = nn.functional.cross_entropy(self.next(torch.tanh(self.pool(x[:, 0]))), following)
        return one + two


class _PlainNorm(nn.Module):
    def __init__(self, wide: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(wide)), nn.Parameter(torch.zeros(wide))

    def forward(self, x):
        u = x.mean(-1, keepdim=True)
        s = (x - u).pow(2).mean(-1, keepdim=True)
        return self.weight * ((x - u) / torch.sqrt(s + 1e-12)) + self.bias


def _norm(wide: int, fused: bool) -> nn.Module:
    return nn.LayerNorm(wide) if fused else _PlainNorm(wide)


def _gelu(x, form: str, fused: bool):
    if fused:
        return nn.functional.gelu(x, approximate="tanh" if form == "tanh" else "none")
    if form == "tanh":
        return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * torch.pow(x, 3))))
    return x * 0.5 * (1.0 + torch.erf(x / 2**0.5))


class _OldLayer(nn.Module):
    def __init__(self, wide: int, heads: int, form: str, fused: bool, drop: float) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(wide, wide) for _ in range(3))
        self.out, self.up, self.down = (
            nn.Linear(wide, wide),
            nn.Linear(wide, 4 * wide),
            nn.Linear(4 * wide, wide),
        )
        self.one, self.two = _norm(wide, fused), _norm(wide, fused)
        self.drops = nn.ModuleList(nn.Dropout(drop) for _ in range(3))
        self.heads, self.form, self.fused = heads, form, fused

    def forward(self, x):
        b, s, w = x.shape

        def split(y):
            return y.view(b, s, self.heads, w // self.heads).permute(0, 2, 1, 3)

        q, k, v = split(self.q(x)), split(self.k(x)), split(self.v(x))
        scores = torch.matmul(q, k.transpose(-1, -2)) / (w // self.heads) ** 0.5
        mask = torch.zeros(b, 1, 1, s, device=x.device)
        probs = self.drops[0](nn.functional.softmax(scores + mask, dim=-1))
        y = torch.matmul(probs, v).permute(0, 2, 1, 3).contiguous().view(b, s, w)
        x = self.one(self.drops[1](self.out(y)) + x)
        h = _gelu(self.up(x), self.form, self.fused)
        return self.two(self.drops[2](self.down(h)) + x)


def old_bert(
    form: str,
    fused: bool,
    batch: int = 64,
    length: int = 512,
    drop: float = 0.1,
    again: bool = False,
):
    with torch.device("meta"):
        model = OldBert(form=form, fused=fused, drop=drop, again=again).train()
        ids = torch.zeros(batch, length, dtype=torch.long)
        after = torch.zeros(batch, dtype=torch.long)
    return model, (ids, ids, after), {}


def timed(name: str) -> dict[str, object]:
    """Capture and plan in this process; CPU seconds and peak memory."""
    make = {
        "resnet50-b32": resnet,
        "gpt-12l-b8-s512": gpt2,
        "bert-base-b64-s128": lambda: bert(length=128),
        "decoder-100l": lambda: gpt2(layers=100, batch=1),
    }[name]
    module, args, kwargs = make()
    start = time.process_time()
    step = step_graph(module, args, kwargs, StepOptions(optimizer="adamw", loss="sum"))
    captured = time.process_time() - start
    context = planning_context(step.graph, PlanOptions(time_limit=0.0))
    layout = make_layout(context, "arena")
    plan_layout(context, layout)
    planned = time.process_time() - start - captured
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "name": name,
        "ops": len(step.graph.ops),
        "capture_cpu_s": round(captured, 2),
        "plan_cpu_s": round(planned, 2),
        "process_bytes": peak,
        "arena_bytes": layout.total,
        "lower_bound_bytes": layout.bound,
    }


CUDA = StepOptions(optimizer="adamw", form="fused", device="cuda")
FUSED = replace(CUDA, attention="fused")
TODAY = {"attention": "sdpa"}


def measured(name: str, made: tuple, options: StepOptions) -> dict[str, object]:
    """One configuration of BERT-base: the live peak of its steady step, and what is in it."""
    module, args, kwargs = made
    run = fake_steps(module, args, kwargs, options).steady
    forward = sum(s.nbytes for s in run.storages if s.phase == "forward")
    print(f"{name:52} {run.peak / GB:6.1f} GB  no reuse {forward / 2**30:6.1f} GiB", flush=True)
    return {
        "configuration": name,
        "peak_gb": round(run.peak / GB, 1),
        "static_gb": round(run.static_bytes / GB, 2),
        "forward_sum_gb": round(forward / GB, 1),
        "forward_sum_gib": round(forward / 2**30, 1),
        "at_peak": run.at_peak(),
    }


def table() -> list[dict[str, object]]:
    """BERT-base, batch 64, sequence 512, fp32, AdamW: what each configuration takes, in GB."""
    rows = [
        ("2018 style, erf GELU, unfused", old_bert("erf", False), CUDA),
        ("2018 style, tanh GELU, unfused", old_bert("tanh", False), CUDA),
        ("2018 style, tanh GELU, fused norm and GELU", old_bert("tanh", True), CUDA),
        ("today, attention of operators", bert(), CUDA),
        ("today, attention of operators, no dropout", bert(drop=0.0), CUDA),
        ("today, attention of operators, CPU masks", bert(), replace(CUDA, device="cpu")),
        ("today, fused attention", bert(**TODAY), FUSED),
        ("today, fused attention, no dropout", bert(**TODAY, drop=0.0), FUSED),
    ]
    return [measured(*row) for row in rows]


def levers() -> list[dict[str, object]]:
    """What each lever saves on its own, from three of those configurations, in GB."""
    starts: dict[str, tuple[Callable[..., tuple], StepOptions]] = {
        "2018 style, erf GELU, unfused": (partial(old_bert, "erf", False), CUDA),
        "today, attention of operators": (bert, CUDA),
        "today, fused attention": (partial(bert, **TODAY), FUSED),
    }
    rows = []
    for start, (make, options) in starts.items():
        moves = {
            "as it is": (make(), options),
            "no dropout": (make(drop=0.0), options),
            "bfloat16 autocast": (make(), replace(options, autocast=torch.bfloat16)),
            "layers checkpointed": (make(again=True), options),
            "4 parts of 16": (make(batch=16), replace(options, accumulate=4)),
            "sequence 128": (make(length=128), options),
            "plain SGD": (make(), replace(options, optimizer="sgd")),
        }
        if options is CUDA and make is bert:
            moves["fused attention"] = (bert(**TODAY), FUSED)
        if make is not bert and options is CUDA:
            moves["fused norm and GELU"] = (old_bert("erf", True), CUDA)
        found = {lever: measured(f"{start} | {lever}", *move) for lever, move in moves.items()}
        base = float(found["as it is"]["peak_gb"])
        rows += [
            {
                "start": start,
                "lever": lever,
                "peak_gb": row["peak_gb"],
                "saves_gb": round(base - float(row["peak_gb"]), 1),
            }
            for lever, row in found.items()
        ]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.only:
        print(json.dumps(timed(options.only)))
        return
    rows = []
    for name in ("resnet50-b32", "gpt-12l-b8-s512", "bert-base-b64-s128", "decoder-100l"):
        done = subprocess.run(
            [sys.executable, __file__, "--only", name], check=True, capture_output=True, text=True
        )
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print(rows[-1], flush=True)
    result = {"captures": rows, "bert": table(), "levers": levers()}
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
