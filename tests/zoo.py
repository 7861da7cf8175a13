"""Networks built for tests by the conventions of the published tables they are checked with."""

from __future__ import annotations

from collections.abc import Iterator

# (expansion, channels, repeats, stride): Sandler et al. 2018, table 2.
_MOBILENET_V2 = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def mobilenet_v2() -> str:
    """MobileNet v2, 224x224, fp32, batch 1, as the TFLite planners' paper counts it.

    Convolution, bias and activation are one op; residual adds, the pool, the 1001-way 1x1
    convolution and the reshape are ops; the input and the softmax output are not counted.
    """
    return "\n".join(_mobilenet_v2())


def _mobilenet_v2() -> Iterator[str]:
    yield "peakfold-graph 1"
    yield 'name "mobilenet_v2"'
    yield "input image: float32[1,224,224,3]"
    names = iter(f"t{n}" for n in range(1000))
    side, channels = 112, 32
    last = next(names)
    yield f"{last}: float32[1,112,112,32] = opaque(image)"
    for expansion, out, repeats, first_stride in _MOBILENET_V2:
        for n in range(repeats):
            stride = first_stride if n == 0 else 1
            entry, hidden = last, channels * expansion
            if expansion > 1:
                here = next(names)
                yield f"{here}: float32[1,{side},{side},{hidden}] = opaque({last})"
                last = here
            side //= stride
            for width in (hidden, out):
                here = next(names)
                yield f"{here}: float32[1,{side},{side},{width}] = opaque({last})"
                last = here
            if stride == 1 and channels == out:
                here = next(names)
                yield f"{here}: float32[1,{side},{side},{out}] = add({last}, {entry})"
                last = here
            channels = out
    for shape in (f"1,{side},{side},1280", "1,1,1,1280", "1,1,1,1001", "1,1001"):
        here = next(names)
        yield f"{here}: float32[{shape}] = opaque({last})"
        last = here
    yield f"softmax: float32[1,1001] = softmax({last})"
    yield "output softmax"


def alexnet(batch: int = 64) -> str:
    """AlexNet forward as in the MXNet paper's memory chart (24 nodes)."""
    lines = ["peakfold-graph 1", f"input data: float32[{batch},3,224,224]"]
    last = "data"

    def add(name: str, kind: str, shape: str) -> None:
        nonlocal last
        lines.append(f"{name}: float32[{batch},{shape}] = {kind}({last})")
        last = name

    for n, (channels, side, pool, norm) in enumerate(
        [
            (96, 54, 27, True),
            (256, 27, 13, True),
            (384, 13, 0, False),
            (384, 13, 0, False),
            (256, 13, 6, False),
        ],
        1,
    ):
        add(f"conv{n}", "conv", f"{channels},{side},{side}")
        add(f"relu{n}", "relu", f"{channels},{side},{side}")
        if pool:
            add(f"pool{n}", "max_pool", f"{channels},{pool},{pool}")
        if norm:
            add(f"lrn{n}", "lrn", f"{channels},{pool},{pool}")
    add("flatten", "flatten", f"{256 * 6 * 6}")
    for n in (1, 2):
        add(f"fc{n}", "gemm", "4096")
        add(f"fc{n}_relu", "relu", "4096")
        add(f"fc{n}_drop", "dropout", "4096")
    add("fc3", "gemm", "1000")
    add("softmax", "softmax", "1000")
    lines.append("output softmax")
    return "\n".join(lines)


def vgg_a(batch: int = 64) -> str:
    """VGG-A (11 layers) forward as in the MXNet paper's memory chart (30 nodes)."""
    lines = ["peakfold-graph 1", f"input data: float32[{batch},3,224,224]"]
    last, side, count = "data", 224, 0

    def add(kind: str, shape: str) -> None:
        nonlocal last, count
        count += 1
        lines.append(f"v{count}: float32[{batch},{shape}] = {kind}({last})")
        last = f"v{count}"

    for channels, repeats in ((64, 1), (128, 1), (256, 2), (512, 2), (512, 2)):
        for _ in range(repeats):
            add("conv", f"{channels},{side},{side}")
            add("relu", f"{channels},{side},{side}")
        side //= 2
        add("max_pool", f"{channels},{side},{side}")
    add("flatten", f"{512 * side * side}")
    for _ in range(2):
        add("gemm", "4096")
        add("relu", "4096")
        add("dropout", "4096")
    add("gemm", "1000")
    add("softmax", "1000")
    lines.append(f"output {last}")
    return "\n".join(lines)


# 1x1; 3x3 reduced, 3x3; 5x5 reduced, 5x5; pooled and projected: Szegedy et al. 2014, table 1.
_INCEPTION = {
    28: ((64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64)),
    14: (
        (192, 96, 208, 16, 48, 64),
        (160, 112, 224, 24, 64, 64),
        (128, 128, 256, 24, 64, 64),
        (112, 144, 288, 32, 64, 64),
        (256, 160, 320, 32, 128, 128),
    ),
    7: ((256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128)),
}


def googlenet(batch: int = 64) -> str:
    """GoogLeNet forward as in the MXNet paper's memory chart: no auxiliary heads (140 nodes)."""
    lines, count = ["peakfold-graph 1", f"input data: float32[{batch},3,224,224]"], 0

    def add(kind: str, shape: str, *given: str) -> str:
        nonlocal count
        count += 1
        operands = ", ".join((*given, "axis=1") if kind == "concat" else given)
        lines.append(f"g{count}: float32[{batch},{shape}] = {kind}({operands})")
        return f"g{count}"

    def conv(channels: int, side: int, given: str) -> str:
        shape = f"{channels},{side},{side}"
        return add("relu", shape, add("conv", shape, given))

    last = add("max_pool", "64,56,56", conv(64, 112, "data"))
    last = add("max_pool", "192,28,28", conv(192, 56, conv(64, 56, last)))
    channels = 192
    for side, blocks in _INCEPTION.items():
        if side < 28:
            last = add("max_pool", f"{channels},{side},{side}", last)
        for one, three_in, three, five_in, five, projected in blocks:
            parts = [
                conv(one, side, last),
                conv(three, side, conv(three_in, side, last)),
                conv(five, side, conv(five_in, side, last)),
                conv(projected, side, add("max_pool", f"{channels},{side},{side}", last)),
            ]
            channels = one + three + five + projected
            last = add("concat", f"{channels},{side},{side}", *parts)
    last = add("global_average_pool", f"{channels},1,1", last)
    last = add("gemm", "1000", add("flatten", f"{channels}", last))
    lines.append(f"output {add('softmax', '1000', last)}")
    return "\n".join(lines)
