"""The overlap column on the real kernels: TensorFlow Lite Micro with overlapping offsets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from peakfold.target import load_target

from .overlap_cases import MAKERS, cases
from .test_overlap import claim

pytest.importorskip("tflite_micro")

ARENA = 200_000
KINDS = [(code, dtype) for code, (_, dtypes) in MAKERS.items() for dtype in dtypes]
KINDS += [("RESIZE_BILINEAR", "float32")]  # claims more than it needs where a sample is on a pixel
# Tight by the order of reads and writes, but not on this machine: one instruction reads a pixel
# before it writes it, and results of one run read nothing again.
LOOSE = {"RESIZE_NEAREST_NEIGHBOR", "SLICE", "STRIDED_SLICE", "TRANSPOSE_CONV"}


@pytest.mark.req("TFL7")
@pytest.mark.parametrize(("code", "dtype"), KINDS)
def test_overlapping_tensors_give_the_bits_of_tensors_apart(
    code: str, dtype: str, tmp_path: Path
) -> None:
    rng = np.random.default_rng(1)
    nearer = differs = shared = 0
    for case in cases(code, dtype, 8):
        op, facts = claim(case, tmp_path)
        assert op.kind in load_target("tflm").overlap_kinds
        feeds = [case.feed(rng) for _ in range(2)]
        apart = [case.model.run(feed, None, ARENA) for feed in feeds]
        for fact in facts:
            shared += 1
            for distance in (fact.distance, -(-fact.distance // 16) * 16):
                for feed, want in zip(feeds, apart, strict=True):
                    got = case.model.run(feed, (distance, 0), ARENA)
                    assert np.array_equal(got, want), (op, distance)
            less = fact.distance - case.widths[1]
            if less >= 0:
                nearer += 1
                got = [case.model.run(feed, (less, 0), ARENA) for feed in feeds]
                differs += not all(map(np.array_equal, got, apart))
    assert shared
    assert differs or not nearer or code in LOOSE
