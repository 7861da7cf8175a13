"""Recipes: searches that run a decoder as often as their operands say, and sparse operands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from onnx import GraphProto, TensorProto, helper, numpy_helper

from .contrib import Recipe, f, i32, ids

VOCABULARY, HEADS, WIDTH = 11, 3, 4


def decoder() -> GraphProto:
    """The least that a search takes for a GPT-2: logits from a table, keys that grow."""
    floats, ints = TensorProto.FLOAT, TensorProto.INT32
    info = helper.make_tensor_value_info
    past = (2, "batch", HEADS, "past", WIDTH)
    stored = {
        "table": f(VOCABULARY, VOCABULARY),
        "ones": np.ones((2, 1, HEADS, 1, WIDTH), np.float32),
        "axes": np.array([0, 2, 4], np.int64),
    }
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["logits"]),
        helper.make_node("Cast", ["input_ids"], ["numbers"], to=floats),
        helper.make_node("Unsqueeze", ["numbers", "axes"], ["spread"]),
        helper.make_node("Mul", ["spread", "ones"], ["keys"]),
        helper.make_node("Concat", ["past_0", "keys"], ["present_0"], axis=3),
    ]
    return helper.make_graph(
        nodes,
        "decoder",
        [
            info("input_ids", ints, ("batch", "steps")),
            info("position_ids", ints, ("batch", "steps")),
            info("attention_mask", ints, ("batch", "all")),
            info("past_0", floats, past),
        ],
        [
            info("logits", floats, ("batch", "steps", VOCABULARY)),
            info("present_0", floats, (2, "batch", HEADS, "all", WIDTH)),
        ],
        [numpy_helper.from_array(value, name) for name, value in stored.items()],
    )


def recipes() -> Iterator[Recipe]:
    """All of this file."""
    common: dict[str, Any] = {
        "decoder": decoder(),
        "eos_token_id": 10,
        "pad_token_id": 10,
        "model_type": 0,
        "vocab_size": VOCABULARY,
    }
    start = ids(2, 3, below=9)
    yield Recipe("GreedySearch", (start, i32([8]), i32([1])), common, stored=(1, 2))
    yield Recipe("Sampling", (start, i32([8]), i32([1])), common, stored=(1, 2))
    yield Recipe(
        "BeamSearch",
        (start, i32([8]), i32([1]), i32([4]), i32([2]), f(1), f(1)),
        common,
        results=3,
        stored=(1, 2, 3, 4),
    )
