"""The truths that views and updates are proven with are what LiteRT's kernels compute."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest

from peakfold.ops import VALUE_INPUTS
from peakfold.ops.tflite.names import BUILTIN_KINDS
from tests.frontends.tflite.tflite_models import Builder

from .proofs import Instance
from .tflite_instances import blocks, cuts, slices, updates

SCRIPT = Path(__file__).parents[1] / "frontends" / "tflite" / "litert_shapes.py"
BUILTINS = {kind: name for name, kind in BUILTIN_KINDS.items()}
OPTIONS = {
    "strided_slice": "StridedSliceOptions",
    "pack": "PackOptions",
    "unpack": "UnpackOptions",
    "tfl_split": "SplitOptions",
    "split_v": "SplitVOptions",
    "tfl_space_to_depth": "SpaceToDepthOptions",
    "tfl_depth_to_space": "DepthToSpaceOptions",
    "resize_nearest_neighbor": "ResizeNearestNeighborOptions",
}


def usable() -> list[Instance]:
    """Instances of kinds that LiteRT has."""
    groups = [i for group in (updates, slices, cuts, blocks) for i in group()]
    return [i for i in groups if not i.node.op_type.startswith("stablehlo")]


def save(instance: Instance, stem: Path) -> None:
    kind = instance.node.op_type
    owner = Builder()
    main = owner.graph()
    inputs, feeds = [], {}
    fixed = set(VALUE_INPUTS.get(kind, {})) | ({2} if kind == "dynamic_update_slice" else set())
    for at, name in enumerate(instance.node.input):
        value = np.asarray(instance.feeds[name])
        if at in fixed:
            inputs.append(main.constant(value, "int32"))
        else:
            inputs.append(main.input(value.shape, str(value.dtype), name=name))
            feeds[name] = value
    outputs = [main.tensor((), has_rank=False) for _ in instance.node.output]
    fields = {}
    for item in instance.node.attribute:
        first, *rest = item.name.split("_")
        fields[first + "".join(map(str.title, rest))] = onnx.helper.get_attribute_value(item)
    if kind in ("pack", "unpack"):
        fields["valuesCount" if kind == "pack" else "num"] = max(len(inputs), len(outputs))
    if kind in ("tfl_split", "split_v"):
        fields["numSplits"] = len(outputs)
    main.op(BUILTINS[kind], inputs, outputs, OPTIONS.get(kind, ""), **fields)
    main.outputs(*outputs)
    stem.with_suffix(".tflite").write_bytes(owner.data())
    np.savez(stem.with_suffix(".npz"), **feeds)


@pytest.mark.req("R22", "R46")
def test_layout_kernels_compute_the_truths_of_the_proofs(tmp_path):
    instances = usable()
    for number, instance in enumerate(instances):
        save(instance, tmp_path / f"{number:03}")
    seen: set[str] = set()
    for _ in range(10):  # a kernel that ends the process is skipped
        run = subprocess.run(
            [sys.executable, str(SCRIPT), str(tmp_path)],
            capture_output=True,
            text=True,
            check=False,
        )
        lines = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
        seen |= {line["file"] for line in lines if "shapes" in line}
        if "start" not in lines[-1]:
            break
        (tmp_path / f"{lines[-1]['file']}.tflite").unlink()
    agreed: Counter[str] = Counter()
    for number, instance in enumerate(instances):
        stem = f"{number:03}"
        if stem not in seen:
            continue
        expected = list(instance.run(instance.feeds).values())
        results = np.load(tmp_path / f"{stem}.out.npz")
        for at, value in enumerate(expected):
            np.testing.assert_array_equal(results[f"arr_{at}"], value, instance.label)
        agreed[instance.node.op_type] += 1
    print(dict(agreed), f"{len(instances) - len(seen)} refused")
    assert set(agreed) == {"dynamic_update_slice", "tfl_slice", *OPTIONS}
    assert len(seen) > 0.9 * len(instances)
