"""Small .tflite models for the interpreter: every operator it has, each in the types it takes.

Shapes and channels are drawn from a seed, so that the same number always gives the same models.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.runtimes.tflite.oracle.control import logic, recurrent, signals
from tests.runtimes.tflite.oracle.operators import convolutions, elementwise, moves, reductions
from tests.runtimes.tflite.oracle.parts import (
    ALL,
    Model,
    bias,
    convolution,
    ints,
    scales,
    weights,
)


def network(seed: int) -> bytes:
    """A network of several layers."""
    rng = Random(seed)
    made, kind = Model(), rng.choice(("INT8", "INT8", "INT8", "FLOAT32", "INT16"))
    side, c = rng.choice((1, 2, 4, 6)), rng.choice((1, 3, 8, 16))
    first = x = made.real(kind, (1, side, side, c))
    for _ in range(rng.randint(1, 7)):
        layer: Callable[..., tuple[int, int, int]] = rng.choice(_LAYERS)
        x, side, c = layer(rng, made, kind, x, side, c)
    if x == first:
        x, side, c = _conv(rng, made, kind, x, side, c)
    if kind != "INT16" and side * side * c < 4000 and rng.random() < 0.5:
        x = _head(rng, made, kind, x, side * side * c)
    return made.ends([first], [x]).bytes()


def _conv(rng: Random, made: Model, kind: str, x: int, side: int, c: int) -> tuple[int, int, int]:
    n = rng.choice((1, 5, 16, 40, 96, 200))
    y = convolution(
        made,
        kind,
        x,
        side,
        (c, n),
        k=rng.choice((1, 3)),
        deep=False,
        with_bias=rng.random() < 0.8,
        by_channel=rng.random() < 0.8,
    )
    return y, side, n


def _deep(rng: Random, made: Model, kind: str, x: int, side: int, c: int) -> tuple[int, int, int]:
    return convolution(made, kind, x, side, (c, c), k=3, deep=True), side, c


def _sum(rng: Random, made: Model, kind: str, x: int, side: int, c: int) -> tuple[int, int, int]:
    name = rng.choice(("ADD", "MUL"))
    other = x if rng.random() < 0.5 else made.const(kind, 1, (1, 1, 1, c))
    y = made.real(kind, (1, side, side, c))
    made.op(name, [x, other], [y], f"{name.title()}Options")
    return y, side, c


def _pool(rng: Random, made: Model, kind: str, x: int, side: int, c: int) -> tuple[int, int, int]:
    if side < 2:
        return x, side, c
    y = made.real(kind, (1, side // 2, side // 2, c))
    made.op(
        "AVERAGE_POOL_2D",
        [x],
        [y],
        "Pool2DOptions",
        strideH=2,
        strideW=2,
        filterHeight=2,
        filterWidth=2,
        padding=1,
    )
    return y, side // 2, c


def _join(rng: Random, made: Model, kind: str, x: int, side: int, c: int) -> tuple[int, int, int]:
    if c > 200:
        return x, side, c
    y = made.real(kind, (1, side, side, 2 * c))
    made.op("CONCATENATION", [x, x], [y], "ConcatenationOptions", axis=3)
    return y, side, 2 * c


def _grow(rng: Random, made: Model, kind: str, x: int, side: int, c: int) -> tuple[int, int, int]:
    if side > 8:
        return x, side, c
    y = made.real(kind, (1, 2 * side, 2 * side, c))
    made.op(
        "RESIZE_NEAREST_NEIGHBOR",
        [x, ints(made, [2 * side, 2 * side])],
        [y],
        "ResizeNearestNeighborOptions",
    )
    return y, 2 * side, c


def _unary(rng: Random, made: Model, kind: str, x: int, side: int, c: int) -> tuple[int, int, int]:
    y = made.real(kind, (1, side, side, c))
    made.op(rng.choice(("RELU", "RELU6")), [x], [y])
    return y, side, c


_LAYERS = (_conv, _conv, _deep, _sum, _pool, _join, _grow, _unary)


def _head(rng: Random, made: Model, kind: str, x: int, c: int) -> int:
    n, by_channel = rng.choice((2, 10)), rng.random() < 0.5
    flat, y = made.real(kind, (1, c)), made.real(kind, (1, n))
    made.op("RESHAPE", [x, ints(made, [1, c])], [flat], "ReshapeOptions", newShape=[1, c])
    w = made.const(weights(kind), 1, (n, c), scales(kind, n if by_channel else 1))
    b = made.const(bias(kind), 0, (n,), scales(kind, n if by_channel else 1, 0.0005))
    made.op("FULLY_CONNECTED", [flat, w, b], [y], "FullyConnectedOptions")
    z = made.tensor(
        kind, (1, n), scale=1 / 256 if kind == "INT8" else None, zero=-128 if kind == "INT8" else 0
    )
    made.op("SOFTMAX", [y], [z], "SoftmaxOptions", beta=1.0)
    return z


NETWORKS = 60


def cases(seed: int = 0) -> dict[str, bytes]:
    """Every model by name."""
    made: dict[str, bytes] = {}
    for kind in ALL:
        rng = Random(f"{seed}{kind}")
        for group in (convolutions, elementwise, reductions, moves):
            made |= {f"{name}/{kind}": data for name, data in group(rng, kind)}
        if kind != "INT16":
            made |= {f"{name}/{kind}": data for name, data in recurrent(rng, kind)}
    rng = Random(seed)
    made |= dict(logic(rng)) | dict(signals(rng))
    return made | {f"network/{n}": network(1000 * seed + n) for n in range(NETWORKS)}
