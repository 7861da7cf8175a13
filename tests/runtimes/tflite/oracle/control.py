"""Models with subgraphs, variables, state, and custom operators."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from tests.runtimes.tflite.oracle.parts import Model, bias, ints, one, scales


def logic(rng: Random) -> Iterator[tuple[str, bytes]]:
    """Truth values, shapes, and subgraphs."""
    a = rng.randint(2, 9)
    for name in ("LOGICAL_AND", "LOGICAL_OR"):
        yield name, one(name, [("BOOL", (a,))] * 2, [("BOOL", (a,))])
    yield "LOGICAL_NOT", one("LOGICAL_NOT", [("BOOL", (a,))], [("BOOL", (a,))])
    made = Model()
    yield (
        "REDUCE_ALL",
        one(
            "REDUCE_ALL",
            [("BOOL", (4, a)), ints(made, [1])],
            [("BOOL", (4,))],
            "ReducerOptions",
            made,
        ),
    )
    yield "BROADCAST_ARGS", one("BROADCAST_ARGS", [("INT32", (2,))] * 2, [("INT32", (2,))])
    yield "IF", branches(8 * a)
    yield "WHILE", loop(8 * a)
    yield "CALL_ONCE", once(a)
    yield "IF/deep", branches(a, deep=True)
    yield "IF/twice", branches(a, twice=True)


def branches(n: int, *, deep: bool = False, twice: bool = False) -> bytes:
    """An IF over two subgraphs of one operator; with another inside, or run twice."""
    made = Model()
    go, x, y = (
        made.tensor("BOOL", (1,)),
        made.tensor("FLOAT32", (1, n)),
        made.tensor("FLOAT32", (1, n)),
    )
    fields = {"thenSubgraphIndex": 1, "elseSubgraphIndex": 2}
    made.op("IF", [go, x], [y], "IfOptions", **fields)
    last = y
    if twice:
        last = made.tensor("FLOAT32", (1, n))
        made.op("IF", [go, y], [last], "IfOptions", **fields)
    made.ends([go, x], [last])
    for kind in ("RELU", "NEG") * (2 if deep else 1):
        made.subgraph()
        a, b = made.tensor("FLOAT32", (1, n)), made.tensor("FLOAT32", (1, n))
        made.op(kind, [a], [b])
        if deep and len(made.model.subgraphs) == 2:
            c, yes = made.tensor("FLOAT32", (1, n)), made.const("BOOL", [True])
            made.op("IF", [yes, b], [c], "IfOptions", thenSubgraphIndex=3, elseSubgraphIndex=4)
            made.ends([a], [c])
        else:
            made.ends([a], [b])
    return made.bytes()


def loop(n: int) -> bytes:
    """A WHILE that adds one until a limit, and passes a value through."""
    made = Model()
    given = [made.tensor("FLOAT32", (1,)), made.tensor("FLOAT32", (1, n))]
    taken = [made.tensor("FLOAT32", (1,)), made.tensor("FLOAT32", (1, n))]
    made.op("WHILE", given, taken, "WhileOptions", condSubgraphIndex=1, bodySubgraphIndex=2)
    made.ends(given, taken)
    made.subgraph()
    a, b, go = (
        made.tensor("FLOAT32", (1,)),
        made.tensor("FLOAT32", (1, n)),
        made.tensor("BOOL", (1,)),
    )
    made.op("LESS", [a, made.const("FLOAT32", [3.0])], [go])
    made.ends([a, b], [go])
    made.subgraph()
    a, b, c = (
        made.tensor("FLOAT32", (1,)),
        made.tensor("FLOAT32", (1, n)),
        made.tensor("FLOAT32", (1,)),
    )
    made.op("ADD", [a, made.const("FLOAT32", [1.0])], [c], "AddOptions")
    made.ends([a, b], [c, b])
    return made.bytes()


def once(n: int) -> bytes:
    """A variable that a subgraph sets once."""
    made = Model()
    x, handle = made.tensor("FLOAT32", (1, n)), made.tensor("RESOURCE", ())
    value, y = made.tensor("FLOAT32", (1, n)), made.tensor("FLOAT32", (1, n))
    made.op("CALL_ONCE", [], [], "CallOnceOptions", initSubgraphIndex=1)
    made.op("VAR_HANDLE", [], [handle], "VarHandleOptions", sharedName="v", container="")
    made.op("READ_VARIABLE", [handle], [value], "ReadVariableOptions")
    made.op("ADD", [x, value], [y], "AddOptions")
    made.ends([x], [y])
    made.subgraph()
    handle, two = made.tensor("RESOURCE", ()), made.const("FLOAT32", 2, (1, n))
    made.op("VAR_HANDLE", [], [handle], "VarHandleOptions", sharedName="v", container="")
    made.op("ASSIGN_VARIABLE", [handle, two], [], "AssignVariableOptions")
    made.ends([], [])
    return made.bytes()


def recurrent(rng: Random, kind: str) -> Iterator[tuple[str, bytes]]:
    """SVDF and LSTM."""
    n, units, size = rng.randint(2, 9), 2 * rng.randint(1, 6), rng.randint(2, 9)
    small = kind == "INT8"
    state = "INT16" if small else "FLOAT32"
    made = Model()
    w = made.const(kind, 1, (2 * units, n), scales(kind, 1))
    time = made.const(state, 1, (2 * units, size), scales(kind, 1))
    b = made.const(bias(kind), 0, (units,), scales(kind, 1, 1e-5))  # of state and time
    kept = made.tensor(state, (1, 2 * units * size), variable=True)
    yield (
        "SVDF",
        one(
            "SVDF",
            [(kind, (1, n)), w, time, b, kept],
            [(kind, (1, units))],
            "SVDFOptions",
            made,
            rank=2,
        ),
    )
    made = Model()
    into = [made.const(kind, 1, (units, n), scales(kind, 1)) for _ in range(4)]
    back = [made.const(kind, 1, (units, units), scales(kind, 1)) for _ in range(4)]
    plus = [
        made.const("INT32" if small else "FLOAT32", 0, (units,), scales(kind, 1, 0.0005))
        for _ in range(4)
    ]
    hidden = made.tensor(kind, (1, units), variable=True, scale=1 / 128 if small else None)
    cell = made.tensor(state, (1, units), variable=True, scale=1 / 32768 if small else None)
    x = made.tensor(kind, (1, 5, n))
    y = made.tensor(kind, (1, 5, units), scale=1 / 128 if small else None)
    between = [made.tensor(state, (0,), scale=1 / 4096) for _ in range(4)] if small else []
    between += [made.tensor(kind, (0,), scale=1 / 128)] if small else []
    absent = [-1, -1, -1]
    inputs = [x, *into, *back, *absent, *plus, -1, -1, hidden, cell, *absent, -1]
    at = made.op(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        inputs,
        [y],
        "UnidirectionalSequenceLSTMOptions",
        fusedActivationFunction=4,
        cellClip=10.0,
        timeMajor=False,
    )
    made.graph.operators[at].intermediates = between or None
    yield "LSTM", made.ends([x], [y]).bytes()


def signals(rng: Random) -> Iterator[tuple[str, bytes]]:
    """Custom operators of audio front ends, and the detection head."""
    points = 2 ** rng.randint(5, 8)
    for kind, number in (("INT16", 7), ("INT32", 2), ("FLOAT32", 0)):
        more = {"fft_length": points, "T": number}
        yield (
            f"SignalRfft/{kind}",
            one("SignalRfft", [(kind, (points,))], [(kind, (points + 2,))], custom=more),
        )
        yield (
            f"SignalIrfft/{kind}",
            one("SignalIrfft", [(kind, (points + 2,))], [(kind, (points,))], custom=more),
        )
    n, step = 4 * rng.randint(1, 5), 4 * rng.randint(1, 3)
    yield (
        "SignalDelay",
        one("SignalDelay", [("INT16", (2, n))], [("INT16", (2, n))], custom={"delay_length": 3}),
    )
    yield (
        "SignalFramer",
        one(
            "SignalFramer",
            [("INT16", (1, step))],
            [("INT16", (1, 1, 2 * step)), ("BOOL", ())],
            custom={"frame_size": 2 * step, "frame_step": step, "prefill": 1},
        ),
    )
    yield (
        "SignalStacker",
        one(
            "SignalStacker",
            [("INT16", (n,))],
            [("INT16", (3 * n,)), ("BOOL", ())],
            custom={
                "num_channels": n,
                "stacker_left_context": 1,
                "stacker_right_context": 1,
                "stacker_step": 1,
            },
        ),
    )
    for kind, number in (("INT16", 7), ("FLOAT32", 0)):
        yield (
            f"SignalOverlapAdd/{kind}",
            one(
                "SignalOverlapAdd",
                [(kind, (1, 1, 2 * step))],
                [(kind, (1, step))],
                custom={"frame_step": step, "T": number},
            ),
        )
    yield (
        "CIRCULAR_BUFFER",
        one(
            "CIRCULAR_BUFFER",
            [("INT8", (1, 1, 1, n))],
            [("INT8", (1, 6, 1, n))],
            custom={"cycles_max": 1},
        ),
    )
    boxes, classes, most = rng.randint(4, 9), rng.randint(2, 4), rng.randint(1, 3)
    made = Model()
    anchors = made.const("FLOAT32", 1, (boxes, 4))
    yield (
        "TFLite_Detection_PostProcess",
        one(
            "TFLite_Detection_PostProcess",
            [("FLOAT32", (1, boxes, 4)), ("FLOAT32", (1, boxes, classes + 1)), anchors],
            [
                ("FLOAT32", (1, most, 4)),
                ("FLOAT32", (1, most)),
                ("FLOAT32", (1, most)),
                ("FLOAT32", (1,)),
            ],
            made=made,
            custom={
                "max_detections": most,
                "max_classes_per_detection": 1,
                "detections_per_class": 1,
                "num_classes": classes,
                "nms_score_threshold": 0.0,
                "nms_iou_threshold": 0.5,
                "y_scale": 10.0,
                "x_scale": 10.0,
                "h_scale": 5.0,
                "w_scale": 5.0,
                "use_regular_nms": False,
            },
        ),
    )
