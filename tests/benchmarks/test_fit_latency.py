"""The fit of the latency constants: it finds what is there, and never sees what it predicts."""

from __future__ import annotations

import csv
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import get_args

import numpy as np
import pytest

from peakfold.device import Group, load_device, read_device
from tests.conftest import ROOT


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fit", ROOT / "benchmarks/fit_latency.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fit"] = module
    spec.loader.exec_module(module)
    return module


fit = script()
CONSTANTS = {
    "conv.macs": 1e-14,
    "conv.elements": 5e-12,
    "matmul.macs": 2e-14,
    "matmul.elements": 1e-12,
    "elementwise.elements": 2e-12,
    "weights": 3e-12,
    "ops": 6e-6,
}


def made_up(noise: float, seed: int = 0, count: int = 300) -> object:
    """Models of 30 families whose time follows `CONSTANTS`, give or take `noise`."""
    rng = np.random.RandomState(seed)
    columns = list(CONSTANTS)
    scale = np.array([1e9, 1e7, 1e9, 1e7, 1e7, 1e7, 2.0])
    x = np.exp(rng.normal(0, 1.0, (count, len(columns)))) * scale
    seconds = x @ np.array(list(CONSTANTS.values())) * np.exp(rng.normal(0, noise, count))
    family = np.array([f"family{at % 30}" for at in range(count)])
    return fit.Rows(
        models=[f"m{at}" for at in range(count)],
        family=family,
        batch=np.full(count, 256),
        seconds=seconds,
        x=x,
        columns=columns,
        published=np.ones((count, 3)),
        left_out=0,
    )


def test_it_finds_the_constants_behind_clean_times() -> None:
    rows = made_up(0.0)
    found = fit.solve(rows.x, rows.seconds, fit.prior(rows.columns))
    assert found == pytest.approx(list(CONSTANTS.values()), rel=0.03)
    assert fit.summary(fit.held_out(rows, fit.by_group(rows)))[1] < 0.02


def test_noise_comes_back_as_error_and_odd_models_do_not_pull() -> None:
    rows = made_up(0.1)
    median, p90, _ = fit.summary(fit.held_out(rows, fit.by_group(rows)))
    # Quantiles of |N(0, 0.1)|: 0.067 and 0.164.
    assert median == pytest.approx(0.067, abs=0.02)
    assert p90 == pytest.approx(0.164, abs=0.05)
    clean = made_up(0.0)
    clean.seconds[::20] *= 10
    found = fit.solve(clean.x, clean.seconds, fit.prior(clean.columns))
    assert found == pytest.approx(list(CONSTANTS.values()), rel=0.1)


def test_no_family_has_a_say_in_its_own_prediction() -> None:
    rows = made_up(0.1)
    before = fit.held_out(rows, fit.by_group(rows))
    chosen = rows.family == "family7"
    mates = fit.folds(rows.family) == fit.folds(rows.family)[chosen][0]
    predicted = (before + 1) * rows.seconds
    rows.seconds[chosen] *= 100
    after = (fit.held_out(rows, fit.by_group(rows)) + 1) * rows.seconds
    assert after[mates] == pytest.approx(predicted[mates], rel=1e-12)
    # The test can fail: others are predicted from this family, too.
    assert after[~mates] != pytest.approx(predicted[~mates], rel=1e-6)


def test_folds_keep_families_together_and_cover_all() -> None:
    family = np.array([f"f{at % 23}" for at in range(500)])
    fold = fit.folds(family)
    assert set(fold) == set(range(fit.FOLDS))
    for name in set(family):
        assert len(set(fold[family == name])) == 1


def test_the_script_reads_its_tables_and_writes_presets(tmp_path: Path) -> None:
    groups = get_args(Group)
    names = ["model", "size", "family", "params", "ops", "weights", "static"]
    names += ["conv.macs", "matmul.macs", *(f"{group}.elements" for group in groups)]
    rng = np.random.RandomState(1)
    with (tmp_path / "groups.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(names)
        for at in range(60):
            values = np.exp(rng.normal(2, 1, len(names) - 5))
            writer.writerow([f"m{at}", 224, f"f{at % 12}", 5, 100, *values])
    lines = [
        "model,infer_img_size,infer_samples_per_sec,infer_batch_size,param_count,"
        "infer_gmacs,infer_macts"
    ]
    lines += [f"m{at}.tag,224,{100 + at},256,5.0,1.0,10" for at in range(50)]
    lines += ["m50,224,,256,5,1,10", "m51,224,9,256,4.0,1,10", "stranger,224,9,256,5,1,10"]
    (tmp_path / "benchmark-infer-t.csv").write_text("\n".join(lines), "utf-8")
    known, columns = fit.features(tmp_path / "groups.csv")
    rows = fit.load(tmp_path / "benchmark-infer-t.csv", known, columns)
    # Left out: other parameters than were counted (fused nets), and a model nobody counted.
    assert (len(rows.models), rows.left_out) == (50, 2)
    assert rows.seconds[0] == 0.01
    assert rows.x[0, -1] == 100 / 256
    (tmp_path / "board.toml").write_text('title = "Board"\n', "utf-8")
    source = fit.Source("board", "eager", "t", "made up")
    error = fit.held_out(rows, fit.by_group(rows))
    constants = fit.solve(rows.x, rows.seconds, fit.prior(rows.columns))
    for _ in range(2):
        fit.write("board", [fit.section(source, rows, constants, error)], tmp_path)
    text = (tmp_path / "board.toml").read_text("utf-8")
    assert text.count("[[latency]]") == 1
    (found,) = read_device(text, "board", "board.toml").latency
    assert set(found.memory) == set(groups)
    assert found.launch == pytest.approx(constants[-1], rel=1e-3)
    assert found.check.models == 50
    assert found.check.median == pytest.approx(float(np.median(np.abs(error))), abs=1e-4)


@pytest.mark.shared
@pytest.mark.parametrize(("device", "median", "p90"), [("rtx-4090", 0.10, 0.30)])
def test_the_errors_in_a_preset_are_those_of_its_table(
    shared: Path, device: str, median: float, p90: float
) -> None:
    known, columns = fit.features(fit.FEATURES)
    stated = load_device(device).latency[0]
    (source,) = (s for s in fit.SOURCES if (s.device, s.name) == (device, stated.name))
    rows = fit.load(shared / f"data/timm/benchmark-infer-{source.table}.csv", known, columns)
    found = fit.summary(fit.held_out(rows, fit.by_group(rows, fit.weight_seconds(source))))
    assert (stated.check.models, stated.check.families) == (len(rows.models), 88)
    assert found[:2] == pytest.approx((stated.check.median, stated.check.p90), abs=2e-3)
    assert found[0] <= median
    assert found[1] <= p90


@pytest.mark.shared
def test_the_counted_models_are_those_of_the_recount(shared: Path) -> None:
    # MACs that do not depend on the input (networks of relative positions, attention over
    # positions) run once a batch and are left out of a sample's.
    positional = {
        "maxxvit",
        "xcit",
        "swin_transformer_v2_cr",
        "swin_transformer_v2",
        "vision_transformer_relpos",
        "edgenext",
        "convit",
        "vision_transformer",
    }
    known, columns = fit.features(fit.FEATURES)
    macs = [name for name in columns if name.endswith(".macs")]
    off = seen = 0
    for row in csv.DictReader((shared / "data/timm/recount.csv").open()):
        found = known.get((row["model"], int(row["img_size"])))
        if found is None:
            continue
        seen += 1
        counted = sum(float(found[name] or 0) for name in macs) * 1e6
        # The table holds five digits of each group.
        ratio = counted / float(row["macs"])
        if abs(ratio - 1) > 1e-4:
            assert found["family"] in positional, row["model"]
            assert 0.9 < ratio < 1
            off += 1
    assert seen > 1000
    assert off < 100
