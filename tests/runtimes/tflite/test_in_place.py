"""Each kind the target runs in place, run in place on the interpreter: the same bits as apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from peakfold.ops.tflite.names import tflite_kind
from peakfold.runtimes.tflite.interpreter import Job, Outcome, equal_outputs, run_all, varied
from peakfold.runtimes.tflite.rewrite import Edit, rewrite
from peakfold.target import load_target
from tests.runtimes.tflite.build import Build

DIMS = (1, 6, 5, 8)
COUNT = 240
WIDTH = {"FLOAT32": 4, "INT8": 1, "INT16": 2, "INT32": 4, "BOOL": 1}
FLOAT = ("FLOAT32",)
SMALL = ("FLOAT32", "INT8", "INT16")
UNARY: dict[str, tuple[str, ...]] = {
    "RELU": SMALL, "RELU6": SMALL, "LOGISTIC": SMALL, "TANH": SMALL, "LEAKY_RELU": SMALL,
    "ELU": ("FLOAT32", "INT8"), "HARD_SWISH": ("FLOAT32", "INT8"), "ABS": SMALL, "NEG": FLOAT,
    "SIN": FLOAT, "COS": FLOAT, "LOG": FLOAT, "SQRT": FLOAT, "RSQRT": FLOAT, "SQUARE": FLOAT,
    "EXP": FLOAT, "CEIL": FLOAT, "FLOOR": FLOAT, "ROUND": FLOAT, "LOGICAL_NOT": ("BOOL",),
    "RESHAPE": (*SMALL, "INT32"), "SQUEEZE": SMALL, "EXPAND_DIMS": SMALL,
    "SOFTMAX": ("FLOAT32", "INT8"), "LOG_SOFTMAX": ("FLOAT32", "INT8"),
    "L2_NORMALIZATION": ("FLOAT32", "INT8"), "CAST": ("FLOAT32", "INT32"),
    "QUANTIZE": ("INT8", "INT16"),
}  # fmt: skip
BINARY: dict[str, tuple[str, ...]] = {
    "ADD": (*SMALL, "INT32"),
    "SUB": SMALL,
    "MUL": (*SMALL, "INT32"),
    "DIV": ("FLOAT32", "INT8"),
    "MAXIMUM": (*SMALL, "INT32"),
    "MINIMUM": (*SMALL, "INT32"),
    "PRELU": ("FLOAT32", "INT8"),
    "SQUARED_DIFFERENCE": ("FLOAT32", "INT8"),
    "FLOOR_DIV": FLOAT,
    "FLOOR_MOD": FLOAT,
    "LOGICAL_AND": ("BOOL",),
    "LOGICAL_OR": ("BOOL",),
}
OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "LEAKY_RELU": ("LeakyReluOptions", {"alpha": 0.1}),
    "SOFTMAX": ("SoftmaxOptions", {"beta": 1}),
    "ADD": ("AddOptions", {}),
    "SUB": ("SubOptions", {}),
    "MUL": ("MulOptions", {}),
    "DIV": ("DivOptions", {}),
    "L2_NORMALIZATION": ("L2NormOptions", {}),
    "CAST": ("CastOptions", {}),
    "SQUEEZE": ("SqueezeOptions", {}),
    "RESHAPE": ("ReshapeOptions", {}),
}
SCALES = {
    ("LOGISTIC", "INT8"): (1 / 256, -128),
    ("LOGISTIC", "INT16"): (1 / 32768, 0),
    ("TANH", "INT8"): (1 / 128, 0),
    ("TANH", "INT16"): (1 / 32768, 0),
    ("SOFTMAX", "INT8"): (1 / 256, -128),
    ("LOG_SOFTMAX", "INT8"): (16 / 256, 127),
    ("L2_NORMALIZATION", "INT8"): (1 / 128, 0),
    ("QUANTIZE", "INT8"): (0.07, 0),
    ("QUANTIZE", "INT16"): (0.002, 0),
}


@dataclass
class Case:
    name: str
    dtype: str
    made: Build
    inputs: list[int]
    out: int
    over: int

    def files(self) -> tuple[bytes, bytes]:
        """The operator with its result apart, and over its input."""
        step = 4 * COUNT * WIDTH[self.dtype]
        apart = {(0, t): step * (at + 1) for at, t in enumerate(self.inputs)}
        apart[0, self.out] = 0
        met = {**apart, (0, self.out): apart[0, self.over]}
        data = self.made.bytes()
        return tuple(rewrite(data, Edit(offsets=offsets)) for offsets in (apart, met))


def unary(name: str, dtype: str) -> Case:
    made = Build()
    x = made.tensor(dtype, DIMS)
    extra, out_dims, kind = [], DIMS, dtype
    if name == "RESHAPE":
        out_dims = (6, 40)
        extra = [made.tensor("INT32", (2,), np.array(out_dims, np.int32))]
    if name == "EXPAND_DIMS":
        extra, out_dims = [made.tensor("INT32", (1,), np.array([0], np.int32))], (1, *DIMS)
    if name == "SQUEEZE":
        out_dims = DIMS[1:]
    if name == "CAST":
        kind = "INT32" if dtype == "FLOAT32" else "FLOAT32"
    scale, zero = SCALES.get((name, dtype), (None, 0))
    out = made.tensor(kind, out_dims, scale=scale, zero=zero)
    options, fields = OPTIONS.get(name, ("", {}))
    made.op(name, [x, *extra], [out], options, **fields)
    return Case(name, dtype, made.ends([x], [out]), [x], out, x)


def binary(name: str, dtype: str, how: str) -> Case:
    """`how`: which operand is overwritten, and what the other is."""
    made = Build()
    kind = {
        "FLOAT32": np.float32,
        "INT8": np.int8,
        "INT16": np.int16,
        "INT32": np.int32,
        "BOOL": np.bool_,
    }[dtype]
    low, high = (0, 2) if dtype == "BOOL" else (1, 90)
    values = np.random.default_rng(7).integers(low, high, DIMS).astype(kind)
    a = made.tensor(dtype, DIMS)
    if how == "constant":
        b = made.tensor(dtype, (1, 1, 1, 8), values[:1, :1, :1])
    else:
        b = made.tensor(dtype, DIMS)
    out = made.tensor(dtype, DIMS)
    options, fields = OPTIONS.get(name, ("", {}))
    made.op(name, [a, b], [out], options, **fields)
    inputs = [a] if how == "constant" else [a, b]
    return Case(name, dtype, made.ends(inputs, [out]), inputs, out, b if how == "second" else a)


def cases() -> Iterator[Case]:
    for name, dtypes in UNARY.items():
        yield from (unary(name, dtype) for dtype in dtypes)
    for name, dtypes in BINARY.items():
        for dtype in dtypes:
            yield from (binary(name, dtype, how) for how in ("first", "second", "constant"))


@pytest.mark.req("TFL3")
def test_every_kind_in_place_gives_the_same_bits(tmp_path: Path) -> None:
    found = list(cases())
    jobs = []
    for number, case in enumerate(found):
        for way, data in zip(("apart", "met"), case.files(), strict=True):
            path = tmp_path / f"{number}-{way}.tflite"
            path.write_bytes(data)
            jobs.append(Job(path, 1 << 18, len(case.inputs), 1, (1, 2)))
    outcomes = run_all(jobs)
    for case, apart, met in zip(found, outcomes[::2], outcomes[1::2], strict=True):
        assert isinstance(apart, Outcome), (case.name, case.dtype, apart)
        assert isinstance(met, Outcome), (case.name, case.dtype, met)
        assert equal_outputs(apart, met), (case.name, case.dtype)
        assert varied(apart) or (case.name, case.dtype) == ("CAST", "FLOAT32"), case.name
    target = load_target("tflm")
    shown = {tflite_kind(case.name) for case in found}
    assert set(target.inplace_kinds) | set(target.inplace_also) == shown


@pytest.mark.req("TFL3")
@pytest.mark.parametrize("name", ["TRANSPOSE", "REVERSE_V2"])
def test_kinds_that_are_left_out_do_go_wrong(name: str, tmp_path: Path) -> None:
    """The experiment can fail: kernels that move elements destroy what they still need."""
    made = Build()
    x, out = made.tensor("FLOAT32", (1, 6, 6, 8)), made.tensor("FLOAT32", (1, 6, 6, 8))
    axes = [0, 2, 1, 3] if name == "TRANSPOSE" else [1]
    made.op(name, [x, made.tensor("INT32", (len(axes),), np.array(axes, np.int32))], [out])
    data = made.ends([x], [out]).bytes()
    jobs = []
    for at in (0, 4096):
        path = tmp_path / f"{at}.tflite"
        path.write_bytes(rewrite(data, Edit(offsets={(0, x): 4096, (0, out): at})))
        jobs.append(Job(path, 1 << 18, 1, 1, (1,)))
    apart, met = run_all(jobs)
    assert isinstance(apart, Outcome)
    assert isinstance(met, Outcome)
    assert not equal_outputs(apart, met)
