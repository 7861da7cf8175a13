"""What every timm model does per sample, op by op: the features of the latency fit.

Needs an environment of its own (torch 2.14, torchvision, timm); runs on meta tensors, so no
weights and no compute. One JSON line a model, resumable: models already in the file are skipped.

    python benchmarks/timm_features.py ../shared/data/timm ops.jsonl [--limit N]
    python benchmarks/timm_features.py ../shared/data/timm ops.jsonl --table benchmarks/data/...csv

The second form sums the ops by the groups of `peakfold.analysis.time.tasks` into the table that
`fit_latency.py` reads. A row of a model is `[class, name, macs, in, out, weights, static, count]`:
elements read from activations, written, and read from parameters; `static` ops do not depend on
the input and cost the same at any batch size. Equal rows are counted.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import math
import random
import sys
import time
from collections import Counter
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

CONV = {"convolution", "_convolution", "cudnn_convolution", "mkldnn_convolution"}
MATMUL = {"mm": 0, "addmm": 1, "bmm": 0, "baddbmm": 1, "mv": 0, "addmv": 1, "dot": 0}
NORM = {
    "native_batch_norm": "batch_norm",
    "_native_batch_norm_legit_no_training": "batch_norm",
    "cudnn_batch_norm": "batch_norm",
    "_native_batch_norm_legit": "batch_norm",
    "_batch_norm_no_update": "batch_norm",
    "_batch_norm_with_update": "batch_norm",
    "native_layer_norm": "layer_norm",
    "native_group_norm": "group_norm",
    "_fused_rms_norm": "layer_norm",
    "_fused_rms_norm_cuda": "layer_norm",
}
POOL = {
    "avg_pool2d",
    "max_pool2d_with_indices",
    "mean",
    "sum",
    "_adaptive_avg_pool2d",
    "amax",
    "amin",
    "adaptive_max_pool2d",
    "max_pool3d_with_indices",
    "linalg_vector_norm",
    "var_mean",
    "max",
    "var",
    "std",
    "std_mean",
    "norm",
    "argmax",
    "topk",
    "sort",
    "cumsum",
    "logsumexp",
}
COPY = {
    "clone",
    "_to_copy",
    "copy_",
    "cat",
    "stack",
    "roll",
    "index",
    "index_select",
    "gather",
    "constant_pad_nd",
    "reflection_pad2d",
    "replication_pad2d",
    "repeat",
    "flip",
    "embedding",
    "pixel_shuffle",
    "pixel_unshuffle",
    "channel_shuffle",
    "im2col",
    "col2im",
    "slice_scatter",
    "select_scatter",
    "index_put",
    "index_put_",
    "scatter",
    "masked_fill",
    "_reshape_copy",
    "_unsafe_view_copy",
    "native_channel_shuffle",
    "split_with_sizes_copy",
    "fill",
    "fill_",
    "full",
    "full_like",
    "zeros",
    "zeros_like",
    "ones",
    "ones_like",
    "new_zeros",
    "new_ones",
    "arange",
    "linspace",
    "empty",
    "empty_like",
    "new_empty",
    "zero_",
    "eye",
    "triu",
    "tril",
    "_unsafe_index",
    "masked_scatter",
    "new_full",
    "scalar_tensor",
    "uniform_",
    "normal_",
}
SOFTMAX = {"_softmax", "_log_softmax"}
RESIZE = {
    "upsample_nearest2d",
    "upsample_bilinear2d",
    "upsample_bicubic2d",
    "grid_sampler_2d",
    "_upsample_bicubic2d_aa",
    "_upsample_bilinear2d_aa",
}
ACTIVATION = {
    "gelu",
    "silu",
    "silu_",
    "sigmoid",
    "sigmoid_",
    "tanh",
    "hardswish",
    "hardswish_",
    "mish",
    "mish_",
    "elu",
    "exp",
    "erf",
    "softplus",
    "hardsigmoid",
    "hardsigmoid_",
    "pow",
    "sqrt",
    "rsqrt",
    "log",
    "sin",
    "cos",
}


def numel(value: object) -> int:
    return value.numel() if isinstance(value, torch.Tensor) else 0


def flat(values: object) -> list[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        return [values]
    if isinstance(values, list | tuple):
        return [t for v in values for t in flat(v)]
    return []


def conv_class(args: tuple) -> tuple[str, int]:
    """Class and MACs of an output element (of an input element when transposed)."""
    x, w, groups, transposed = args[0], args[1], args[8], args[6]
    per = math.prod(w.shape[1:])
    channels = x.shape[1]
    if groups == 1:
        pointwise = math.prod(w.shape[2:]) == 1
        name = "pointwise" if pointwise else "stem" if channels <= 4 else "conv"
    elif groups == channels:
        name = "depthwise"
    else:
        name = "group_conv"
    return ("conv_transpose" if transposed else name), per


class Recorder(TorchDispatchMode):
    """Counts every aten op that computes or copies; views are free."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: Counter[tuple] = Counter()
        self.paused = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        inputs = flat(args) + flat(list((kwargs or {}).values()))
        live = any(getattr(t, "_live", False) for t in inputs)
        for tensor in flat(out):
            if live:
                tensor._live = True
        if self.paused:
            return out
        name = func._schema.name.split("::")[1]
        returns = func._schema.returns
        aliased = returns and returns[0].alias_info
        if (aliased and not aliased.is_write) or name in {
            "detach",
            "alias",
            "lift_fresh",
            "_unsafe_view",
            "view",
        }:
            return out
        self.note(name, args, inputs, flat(out), live)
        return out

    def note(self, name, args, inputs, outputs, live) -> None:
        written = sum(t.numel() for t in outputs)
        read = sum(t.numel() for t in inputs if getattr(t, "_live", False))
        weights = sum(t.numel() for t in inputs if not getattr(t, "_live", False))
        macs = 0
        if name in CONV:
            kind, per = conv_class(args)
            macs = per * (args[0].numel() if args[6] else outputs[0].numel())
            written = outputs[0].numel()
        elif name in MATMUL:
            left = args[MATMUL[name]]
            macs = outputs[0].numel() * left.shape[-1]
            both = getattr(args[MATMUL[name] + 1], "_live", False) and getattr(left, "_live", False)
            kind = "bmm" if both else "matmul"
        elif name in NORM:
            kind, written = NORM[name], outputs[0].numel()
        elif name in SOFTMAX:
            kind = "softmax"
        elif name in POOL:
            kind = "reduce"
        elif name in COPY:
            kind = "copy"
        elif name in RESIZE:
            kind = "resize"
        elif name in ACTIVATION:
            kind = "activation"
        elif written >= read // 4 or not live:
            kind = "elementwise"
        else:
            kind = "reduce"
        key = (kind, name if kind == "elementwise" else "", macs, read, written, weights, not live)
        self.rows[key] += 1


def watch_attention(recorder: Recorder):
    """Fused attention as one op, as a GPU runs it: reads q, k, v, writes the result."""
    original = F.scaled_dot_product_attention

    def fused(query, key, value, attn_mask=None, *args, **kwargs):
        recorder.paused = True
        try:
            out = original(query, key, value, attn_mask, *args, **kwargs)
        finally:
            recorder.paused = False
        out._live = True
        tokens, keys = query.shape[-2], key.shape[-2]
        rows = query.numel() // query.shape[-1] // max(tokens, 1) * tokens * keys
        macs = rows * (query.shape[-1] + value.shape[-1])
        read = query.numel() + key.numel() + value.numel()
        # A mask is read once a batch when it does not depend on the input.
        dependent = getattr(attn_mask, "_live", False)
        mask = numel(attn_mask)
        entry = (
            "sdpa" if attn_mask is None else "sdpa_mask",
            "",
            macs,
            read + mask * dependent,
            out.numel(),
            mask * (not dependent),
            False,
        )
        recorder.rows[entry] += 1
        return out

    F.scaled_dot_product_attention = fused
    return original


def watch_lstm(recorder: Recorder):
    """A whole LSTM as one op, as cuDNN and oneDNN run it; meta tensors would unroll it."""
    original = torch._VF.lstm

    def fused(x, hx, weights, *args, **kwargs):
        recorder.paused = True
        try:
            out = original(x, hx, weights, *args, **kwargs)
        finally:
            recorder.paused = False
        for tensor in flat(out):
            tensor._live = True
        matrices = sum(w.numel() for w in weights if w.ndim == 2)
        entry = (
            "matmul",
            "",
            matrices * (x.numel() // x.shape[-1]),
            x.numel(),
            out[0].numel(),
            sum(w.numel() for w in weights),
            False,
        )
        recorder.rows[entry] += 1
        return out

    torch._VF.lstm = fused
    return original


def features(name: str, size: int) -> dict:
    import timm

    with torch.device("meta"):
        model = timm.create_model(name, pretrained=False)
        channels, height, _ = model.default_cfg["input_size"]
        if height != size:
            # Convolutional nets take any size and have no such argument.
            with contextlib.suppress(TypeError):
                model = timm.create_model(name, pretrained=False, img_size=size)
        model.eval()
        x = torch.empty(1, channels, size, size)
    recorder = Recorder()
    attention, lstm = watch_attention(recorder), watch_lstm(recorder)
    try:
        x._live = True
        with torch.no_grad(), recorder:
            model(x)
    finally:
        F.scaled_dot_product_attention = attention
        torch._VF.lstm = lstm
    params = sum(p.numel() for p in model.parameters())
    rows = sorted([*key, count] for key, count in recorder.rows.items())
    return {"model": name, "size": size, "params": params, "rows": rows}


def wanted(folder: Path) -> list[tuple[str, int]]:
    """Model and size of every row of the inference tables; newest tables first, then shuffled."""
    groups = [set(), set()]
    for path in sorted(folder.glob("benchmark-infer*.csv")):
        for row in csv.DictReader(path.open()):
            if row["infer_img_size"] and row["infer_samples_per_sec"]:
                key = (row["model"].split(".")[0], int(float(row["infer_img_size"])))
                groups[0 if "pt291" in path.name else 1].add(key)
    groups[1] -= groups[0]
    order = []
    for group in groups:
        pairs = sorted(group)
        random.Random(0).shuffle(pairs)
        order += pairs
    return order


GROUPS = {
    "layer_norm": "norm",
    "group_norm": "norm",
    "sdpa": "attention",
    "sdpa_mask": "attention",
    "conv_transpose": "conv",
}


def write_table(ops: Path, out: Path) -> None:
    """Sums by group, in millions to five digits; architecture family = timm's module."""
    from timm.models._registry import _model_to_module

    records = [r for r in map(json.loads, ops.open()) if "error" not in r]
    records = [r for r in records if r["model"] in _model_to_module]
    groups = sorted({GROUPS.get(row[0], row[0]) for r in records for row in r["rows"]})
    names = ["model", "size", "family", "params", "ops", "weights", "static"]
    names += [f"{group}.{what}" for group in groups for what in ("macs", "elements")]
    used = {name for name in names if not name.endswith(".macs")}
    table = []
    for record in sorted(records, key=lambda r: (r["model"], r["size"])):
        sums: Counter[str] = Counter()
        for kind, _, macs, read, written, weights, static, count in record["rows"]:
            sums["ops"] += count
            sums["weights"] += weights * count
            if static:
                sums["static"] += (written + weights) * count
                continue
            group = GROUPS.get(kind, kind)
            sums[f"{group}.macs"] += macs * count
            sums[f"{group}.elements"] += (read + written) * count
        used |= {name for name, value in sums.items() if value}
        row = {
            "model": record["model"],
            "size": record["size"],
            "ops": sums.pop("ops"),
            "family": _model_to_module[record["model"]],
            "params": f"{record['params'] / 1e6:.5g}",
        }
        table.append(row | {k: f"{v / 1e6:.5g}" for k, v in sums.items() if v})
    with out.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, [n for n in names if n in used], lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tables", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--limit", type=int, default=10**9)
    parser.add_argument("--table", type=Path, help="write the table of this file's ops, and stop")
    options = parser.parse_args()
    if options.table:
        write_table(options.out, options.table)
        return
    done = set()
    if options.out.exists():
        done = {(r["model"], r["size"]) for r in map(json.loads, options.out.open())}
    todo = [pair for pair in wanted(options.tables) if pair not in done][: options.limit]
    started = time.time()
    with options.out.open("a") as stream:
        for at, (name, size) in enumerate(todo, 1):
            try:
                record = features(name, size)
            except Exception as error:  # one model that cannot be built is named, not fatal
                record = {"model": name, "size": size, "error": f"{type(error).__name__}: {error}"}
            stream.write(json.dumps(record, separators=(",", ":")) + "\n")
            stream.flush()
            if at % 50 == 0 or "error" in record:
                note = record.get("error", "")[:120]
                print(
                    f"{at}/{len(todo)} {time.time() - started:.0f} s {name} {note}", file=sys.stderr
                )


if __name__ == "__main__":
    main()
