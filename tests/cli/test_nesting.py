"""One limit of nesting, and every verb bears a model that reaches it."""

from __future__ import annotations

import sys

import pytest

from peakfold.ir.check import MAX_NESTING


def text(depth: int) -> str:
    """An `if` in an `if`, `depth` of them."""
    lines = ["peakfold-graph 1", "input c: bool[]", "input x: float32[4]"]
    for level in range(depth):
        lines += [
            f"y{level}: float32[4] = if(c) begin",
            'region "then" captures=[c, x]',
            "input c: bool[]",
            "input x: float32[4]",
        ]
    lines += ["z: float32[4] = relu(x)", "output z"]
    other = [
        "end",
        'region "else" captures=[x]',
        "input x: float32[4]",
        "w: float32[4] = exp(x)",
        "output w",
        "end",
        "end",
    ]
    for level in reversed(range(depth)):
        lines += [*other, f"output y{level}"]
    return "\n".join(lines)


VERBS = [
    ("inspect", "M", "--json"),
    ("inspect", "M", "--device", "t4"),
    ("plan", "M", "-o", "P"),
    ("verify", "M", "P", "--run"),
    ("plan", "M", "--target", "tflm", "--json"),
    ("lanes", "M"),
    ("modes", "M"),
    ("compare", "M", "M"),
    ("fit", "M", "--budget", "1MiB"),
]


def test_every_verb_bears_a_model_at_the_limit(call, tmp_path):
    assert sys.getrecursionlimit() == 1000
    model, plan = tmp_path / "m.pf", tmp_path / "p.plan.json"
    model.write_text(text(MAX_NESTING))
    for verb, *words in VERBS:
        given = [{"M": model, "P": plan}.get(word, word) for word in words]
        done = call(verb, *given)
        assert done.exit_code == 0, (verb, done.output)


@pytest.mark.parametrize("depth", [MAX_NESTING + 1, 200, 10_000])
def test_a_model_beyond_it_is_refused_in_one_line(call, tmp_path, depth):
    model = tmp_path / "m.pf"
    model.write_text(text(depth))
    for verb in ("inspect", "plan"):
        done = call(verb, model)
        assert done.exit_code == 1
        assert f"nests too deeply: more than {MAX_NESTING} bodies" in done.stderr
        assert done.stderr.count("\n") == 1
