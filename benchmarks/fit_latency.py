"""Fit the latency constants of the device presets on published throughput tables, and check them.

    python benchmarks/fit_latency.py                      table of errors
    python benchmarks/fit_latency.py --write              and write the constants into the presets
    python benchmarks/fit_latency.py --forms              other models of the same data
    python benchmarks/fit_latency.py --worst              where the estimates are off most

The tables are those of timm (huggingface/pytorch-image-models, ``results/``); what each model
does per sample is in ``benchmarks/data/timm_groups.csv``, made by ``timm_features.py``. Errors
are those of 10-fold cross-validation over architecture families (timm's modules): no model is
predicted by constants that saw a model of its family.
"""

from __future__ import annotations

import argparse
import csv
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from peakfold.device import read_device

ROOT = Path(__file__).parents[1]
FEATURES = ROOT / "benchmarks/data/timm_groups.csv"
TABLES = ROOT.parent / "shared/data/timm"
PRESETS = ROOT / "src/peakfold/device"
FOLDS = 10
# What the fit falls back on for a group a fold has nothing to say about, in seconds a unit.
PRIOR = {"macs": 2e-14, "elements": 3e-12, "weights": 1e-12, "ops": 5e-6}
# How hard it is held there, and the residual (of the logarithm) below which all errors are equal.
HOLD, FLOOR = 1e-3, 0.03
MARK = "# Constants fitted by benchmarks/fit_latency.py; errors on families it had not seen.\n"


@dataclass(frozen=True)
class Source:
    device: str
    name: str
    table: str
    conditions: str
    dtype: str = "float16"


SOURCES = [
    Source(
        "rtx-3090",
        "eager",
        "amp-nchw-pt240-cu124-rtx3090",
        "PyTorch 2.4 eager, float16 autocast, NCHW",
    ),
    Source(
        "rtx-3090",
        "eager-nhwc",
        "amp-nhwc-pt240-cu124-rtx3090",
        "PyTorch 2.4 eager, float16 autocast, NHWC",
    ),
    Source(
        "rtx-4090",
        "eager",
        "amp-nchw-pt291-cu128-4090",
        "PyTorch 2.9.1 eager, float16 autocast, NCHW",
    ),
    Source(
        "rtx-4090",
        "compiled",
        "amp-nchw-pt291-cu128-4090-dynamo",
        "PyTorch 2.9.1 compiled, float16 autocast, NCHW",
    ),
    Source(
        "rtx-5090",
        "eager",
        "amp-nchw-pt291-cu130-5090",
        "PyTorch 2.9.1 eager, float16 autocast, NCHW",
    ),
    Source(
        "rtx-5090",
        "compiled",
        "amp-nchw-pt291-cu130-5090-dynamo",
        "PyTorch 2.9.1 compiled, float16 autocast, NCHW",
    ),
    Source(
        "rtx-pro-6000-maxq",
        "eager",
        "amp-nchw-pt291-cu130-pro6000maxq",
        "PyTorch 2.9.1 eager, float16 autocast, NCHW",
    ),
    Source(
        "rtx-pro-6000-maxq",
        "compiled",
        "amp-nchw-pt291-cu130-pro6000maxq-dynamo",
        "PyTorch 2.9.1 compiled, float16 autocast, NCHW",
    ),
    Source(
        "rtx-pro-6000-maxq",
        "compiled-bf16",
        "bf16-nchw-pt291-cu130-pro6000maxq-dynamo",
        "PyTorch 2.9.1 compiled, bfloat16 throughout, NCHW",
        "bfloat16",
    ),
    Source(
        "i9-10940x",
        "compiled",
        "fp32-nchw-pt240-cpu-i9_10940x-dynamo",
        "PyTorch 2.4 compiled, float32, NCHW",
        "float32",
    ),
    Source(
        "i7-12700h",
        "compiled",
        "fp32-nchw-pt240-cpu-i7_12700h-dynamo",
        "PyTorch 2.4 compiled, float32, NCHW",
        "float32",
    ),
]


@dataclass(frozen=True)
class Rows:
    """One table joined with the features: a row a model, `x` in units a sample."""

    models: list[str]
    family: np.ndarray
    batch: np.ndarray
    seconds: np.ndarray
    x: np.ndarray
    columns: list[str]
    published: np.ndarray
    left_out: int


def features(path: Path) -> tuple[dict[tuple[str, int], dict[str, str]], list[str]]:
    with path.open() as stream:
        reader = csv.DictReader(stream)
        columns = [name for name in reader.fieldnames or [] if "." in name]
        return {(row["model"], int(row["size"])): row for row in reader}, columns


def load(table: Path, known: dict[tuple[str, int], dict[str, str]], columns: list[str]) -> Rows:
    """The rows of a table whose model was counted as it was measured."""
    kept, x, left_out = [], [], 0
    for row in csv.DictReader(table.open()):
        if not row["infer_samples_per_sec"] or not row["infer_batch_size"]:
            continue
        name, size = row["model"].split(".")[0], int(float(row["infer_img_size"]))
        found = known.get((name, size))
        # Re-parameterised nets were measured fused, with fewer parameters than the built model.
        wide = found is not None and abs(float(found["params"]) - float(row["param_count"])) > max(
            0.02 * float(row["param_count"]), 0.006
        )
        if found is None or wide:
            left_out += 1
            continue
        batch = int(float(row["infer_batch_size"]))
        values = [float(found[name] or 0) * 1e6 for name in columns]
        # Once a batch: what does not depend on the input, the weights, the launches.
        values[columns.index("elementwise.elements")] += float(found["static"] or 0) * 1e6 / batch
        x.append([*values, float(found["weights"] or 0) * 1e6 / batch, float(found["ops"]) / batch])
        kept.append((name, found["family"], batch, 1 / float(row["infer_samples_per_sec"]), row))
    return Rows(
        models=[k[0] for k in kept],
        family=np.array([k[1] for k in kept]),
        batch=np.array([k[2] for k in kept]),
        seconds=np.array([k[3] for k in kept]),
        x=np.array(x),
        columns=[*columns, "weights", "ops"],
        published=np.array(
            [
                [float(k[4].get(c) or "nan") for c in ("infer_gmacs", "infer_macts", "param_count")]
                for k in kept
            ]
        ),
        left_out=left_out,
    )


def prior(columns: Sequence[str], weight: float = PRIOR["weights"]) -> np.ndarray:
    known = {**PRIOR, "weights": weight}
    return np.array([known[name.rsplit(".", 1)[-1]] for name in columns])


def weight_seconds(source: Source) -> float:
    """An element of a weight at full bandwidth: large batches say little about it."""
    # Without the constants fitted before, which this run may be about to replace.
    text = (PRESETS / f"{source.device}.toml").read_text("utf-8").split(MARK)[0]
    bandwidth = read_device(text, source.device, source.device).bandwidth
    if bandwidth is None:
        return PRIOR["weights"]
    return (4 if source.dtype == "float32" else 2) / bandwidth.value


def solve(x: np.ndarray, seconds: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Constants above 0 that make the logarithm's error small, most rows before few.

    Gauss-Newton on the logarithms of the constants; weights 1 / |residual| make it the sum of
    absolute errors, so that a few odd models do not pull (iteratively reweighted least squares).
    """
    centre, theta, damping = np.log(start), np.log(start), 1e-2
    rows, width = x.shape

    def value(at: np.ndarray) -> float:
        r = np.log(x @ np.exp(at)) - np.log(seconds)
        return np.sqrt(r * r + FLOOR**2).mean() + HOLD * ((at - centre) ** 2).sum() / width

    best = value(theta)
    for _ in range(100):
        constants = np.exp(theta)
        predicted = x @ constants
        r = np.log(predicted) - np.log(seconds)
        weight = 1 / np.sqrt(r * r + FLOOR**2) / rows
        slope = x * constants / predicted[:, None]
        curve = (slope * weight[:, None]).T @ slope + np.eye(width) * 2 * HOLD / width
        push = (slope * weight[:, None]).T @ r + 2 * HOLD * (theta - centre) / width
        for _ in range(14):
            step = np.linalg.solve(curve + damping * np.diag(np.diag(curve)), -push)
            now = value(theta + np.clip(step, -2, 2))
            if now < best:
                break
            damping *= 4
        else:
            return np.exp(theta)
        theta, damping = theta + np.clip(step, -2, 2), max(damping / 5, 1e-7)
        if best - now < 1e-7:
            return np.exp(theta)
        best = now
    return np.exp(theta)


def folds(family: np.ndarray) -> np.ndarray:
    """A fold for every row, whole families together; the same every time."""
    names = sorted(set(family))
    order = np.random.RandomState(0).permutation(len(names))
    fold = {names[at]: rank % FOLDS for rank, at in enumerate(order)}
    return np.array([fold[name] for name in family])


Predictor = Callable[[np.ndarray], np.ndarray]
"""Seconds of every row, from constants fitted on the rows of a mask."""


def held_out(rows: Rows, fit: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Relative errors, each from constants that saw no model of the family.

    Args:
        rows: the data.
        fit: a mask of rows to train on -> predicted seconds of all rows.
    """
    fold = folds(rows.family)
    error = np.zeros(len(rows.seconds))
    for number in range(FOLDS):
        test = fold == number
        error[test] = fit(~test)[test] / rows.seconds[test] - 1
    return error


def by_group(rows: Rows, weight: float = PRIOR["weights"]) -> Predictor:
    """The model that is used: constants a group."""
    start = prior(rows.columns, weight)
    return lambda mask: rows.x @ solve(rows.x[mask], rows.seconds[mask], start)


def two_constants(rows: Rows) -> Predictor:
    """Compute and memory only: all MACs at one speed, all elements at another."""
    macs = sum(rows.x[:, at] for at, n in enumerate(rows.columns) if n.endswith(".macs"))
    moved = sum(rows.x[:, at] for at, n in enumerate(rows.columns) if n.endswith(".elements"))
    return _plain(rows, np.column_stack([macs, moved]), ["macs", "elements"])


def three_constants(rows: Rows) -> Predictor:
    """The same with weights and launches."""
    macs = sum(rows.x[:, at] for at, n in enumerate(rows.columns) if n.endswith(".macs"))
    moved = sum(rows.x[:, at] for at, n in enumerate(rows.columns) if n.endswith(".elements"))
    names = ["macs", "elements", "weights", "ops"]
    return _plain(rows, np.column_stack([macs, moved, rows.x[:, -2:]]), names)


def published(rows: Rows) -> Predictor:
    """Two constants on the table's own columns: MACs and activations of conv and matmul."""
    return _plain(rows, rows.published[:, :2] * [1e9, 1e6], ["macs", "elements"])


def by_engine(rows: Rows) -> Predictor:
    """Matrix and vector compute apart (depthwise and grouped convolutions), one memory speed."""
    vector = ("depthwise.macs", "group_conv.macs")
    pick = [
        sum(rows.x[:, at] for at, n in enumerate(rows.columns) if n in vector),
        sum(
            rows.x[:, at]
            for at, n in enumerate(rows.columns)
            if n.endswith(".macs") and n not in vector
        ),
        sum(rows.x[:, at] for at, n in enumerate(rows.columns) if n.endswith(".elements")),
    ]
    names = ["macs", "macs", "elements", "weights", "ops"]
    return _plain(rows, np.column_stack([*pick, rows.x[:, -2:]]), names)


def _plain(rows: Rows, x: np.ndarray, names: list[str]) -> Predictor:
    good = np.isfinite(x).all(axis=1)
    x = np.where(np.isfinite(x), x, 1.0)
    return lambda mask: x @ solve(x[mask & good], rows.seconds[mask & good], prior(names))


FORMS = {
    "published MACs and activations, 2 constants": published,
    "counted MACs and elements, 2 constants": two_constants,
    "and weights and launches, 4 constants": three_constants,
    "and vector compute apart, 5 constants": by_engine,
    "constants a group of kernels": by_group,
}


def summary(error: np.ndarray) -> tuple[float, float, float]:
    size = np.abs(error)
    return float(np.median(size)), float(np.quantile(size, 0.9)), float(np.median(error))


def section(source: Source, rows: Rows, constants: np.ndarray, error: np.ndarray) -> str:
    """The [[latency]] table of a preset."""
    median, p90, _ = summary(error)
    values = dict(zip(rows.columns, constants, strict=True))

    def table(ending: str) -> str:
        chosen = {n.removesuffix(ending): v for n, v in values.items() if n.endswith(ending)}
        return ", ".join(f"{name} = {value * 1e12:.4g}" for name, value in chosen.items())

    return (
        f'[[latency]]\nname = "{source.name}"\n'
        f'source = "timm results, benchmark-infer-{source.table}.csv"\n'
        f'conditions = "{source.conditions}"\n'
        f'dtype = "{source.dtype}"\n'
        f"batch = {int(np.median(rows.batch))}\n"
        f"launch_us = {values['ops'] * 1e6:.4g}\nweight_ps = {values['weights'] * 1e12:.4g}\n"
        f"compute_ps = {{ {table('.macs')} }}\nmemory_ps = {{ {table('.elements')} }}\n"
        f"models = {len(rows.models)}\nfamilies = {len(set(rows.family))}\n"
        f"median = {median:.4f}\np90 = {p90:.4f}\n"
    )


def write(device: str, sections: list[str], folder: Path) -> None:
    path = folder / f"{device}.toml"
    text = re.split(re.escape(MARK), path.read_text("utf-8"))[0].rstrip("\n")
    path.write_text(f"{text}\n\n{MARK}{chr(10).join(sections)}", "utf-8")


def worst(rows: Rows, error: np.ndarray) -> None:
    found = []
    for family in sorted(set(rows.family)):
        chosen = error[rows.family == family]
        found.append(
            (float(np.median(np.abs(chosen))), float(np.median(chosen)), len(chosen), family)
        )
    for size, signed, count, family in sorted(found, reverse=True)[:12]:
        print(f"    {family:24} {count:4} models  median {size:6.1%}  signed {signed:+7.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", action="store_true", help="write the constants into the presets")
    parser.add_argument("--forms", action="store_true", help="compare models of the same data")
    parser.add_argument("--worst", action="store_true", help="families with the largest errors")
    parser.add_argument("--tables", type=Path, default=TABLES)
    parser.add_argument("--features", type=Path, default=FEATURES)
    parser.add_argument("--presets", type=Path, default=PRESETS)
    options = parser.parse_args()
    known, columns = features(options.features)
    sections: dict[str, list[str]] = {}
    print("| device | run | models | families | left out | median | p90 | bias |")
    print("|---|---|---|---|---|---|---|---|")
    for source in SOURCES:
        table = options.tables / f"benchmark-infer-{source.table}.csv"
        rows = load(table, known, columns)
        weight = weight_seconds(source)
        error = held_out(rows, by_group(rows, weight))
        median, p90, bias = summary(error)
        print(
            f"| {source.device} | {source.name} | {len(rows.models):,} | "
            f"{len(set(rows.family))} | {rows.left_out} | {median:.1%} | {p90:.1%} | "
            f"{bias:+.1%} |",
            flush=True,
        )
        if options.forms:
            for name, form in FORMS.items():
                median, p90, bias = summary(held_out(rows, form(rows)))
                print(f"    {name:46} {median:6.1%} {p90:7.1%} {bias:+6.1%}")
        if options.worst:
            worst(rows, error)
        constants = solve(rows.x, rows.seconds, prior(rows.columns, weight))
        sections.setdefault(source.device, []).append(section(source, rows, constants, error))
    if options.write:
        for device, found in sections.items():
            write(device, found, options.presets)


if __name__ == "__main__":
    main()
