"""Whole networks in the text form, written from their papers; a stored tensor per weight."""

from __future__ import annotations

from peakfold.ir import Graph, parse_graph

Shape = tuple[int, ...]


class Net:
    """Lines of a graph; every method adds an op and gives its result's name."""

    def __init__(self, **inputs: Shape | str) -> None:
        self.lines = ["peakfold-graph 1"]
        self.shape: dict[str, Shape] = {}
        self.count = 0
        for name, shape in inputs.items():
            self.lines.append(f"input {name}: {self._type(shape)}")
            self.shape[name] = shape

    @staticmethod
    def _type(shape: Shape, element: str = "float32") -> str:
        return f"{element}[{','.join(map(str, shape))}]"

    def weight(self, *shape: int) -> str:
        self.count += 1
        name = f"w{self.count}"
        self.lines.append(f"parameter {name}: {self._type(shape)}")
        self.shape[name] = shape
        return name

    def op(self, kind: str, inputs: str, result: Shape, **attrs: object) -> str:
        self.count += 1
        name = f"t{self.count}"
        words = [*inputs.split(), *(f"{k}={_written(v)}" for k, v in attrs.items())]
        self.lines.append(f"{name}: {self._type(result)} = {kind}({', '.join(words)})")
        self.shape[name] = result
        return name

    def conv(
        self,
        x: str,
        out: int,
        k: int,
        stride: int = 1,
        pad: int = 0,
        *,
        groups: int = 1,
        bias: bool = False,
    ) -> str:
        n, channels, h, w = self.shape[x]
        weight = self.weight(out, channels // groups, k, k)
        more = f" {self.weight(out)}" if bias else ""
        sides = [(size + 2 * pad - k) // stride + 1 for size in (h, w)]
        return self.op(
            "conv",
            f"{x} {weight}{more}",
            (n, out, *sides),
            group=groups,
            pads=[pad] * 4,
            strides=[stride] * 2,
        )

    def norm(self, x: str) -> str:
        stored = " ".join(self.weight(self.shape[x][1]) for _ in range(4))
        return self.op("batch_normalization", f"{x} {stored}", self.shape[x])

    def relu(self, x: str) -> str:
        return self.op("relu", x, self.shape[x])

    def add(self, x: str, y: str) -> str:
        return self.op("add", f"{x} {y}", self.shape[x])

    def pool(self, x: str, k: int, stride: int, pad: int = 0) -> str:
        n, c, h, w = self.shape[x]
        sides = [(size + 2 * pad - k) // stride + 1 for size in (h, w)]
        return self.op(
            "max_pool", x, (n, c, *sides), kernel_shape=[k, k], pads=[pad] * 4, strides=[stride] * 2
        )

    def flat(self, x: str) -> str:
        n, *rest = self.shape[x]
        size = 1
        for dim in rest:
            size *= dim
        return self.op("reshape", x, (n, size), shape=[n, size])

    def mean(self, x: str) -> str:
        n, c, _, _ = self.shape[x]
        return self.flat(self.op("global_average_pool", x, (n, c, 1, 1)))

    def linear(self, x: str, out: int, *, bias: bool = True, weight: str = "") -> str:
        *rows, width = self.shape[x]
        y = self.op("matmul", f"{x} {weight or self.weight(width, out)}", (*rows, out))
        return self.op("add", f"{y} {self.weight(out)}", (*rows, out)) if bias else y

    def layer_norm(self, x: str) -> str:
        size = self.shape[x][-1]
        pair = f"{self.weight(size)} {self.weight(size)}"
        return self.op("layer_normalization", f"{x} {pair}", self.shape[x])

    def heads(self, x: str, count: int) -> str:
        n, steps, width = self.shape[x]
        split = self.op(
            "reshape", x, (n, steps, count, width // count), shape=[n, steps, count, width // count]
        )
        return self.op("transpose", split, (n, count, steps, width // count), perm=[0, 2, 1, 3])

    def attend(self, q: str, k: str, v: str, heads: int, kv_heads: int = 0) -> str:
        n, steps, width = self.shape[q]
        split = " ".join(
            self.heads(x, h)
            for x, h in ((q, heads), (k, kv_heads or heads), (v, kv_heads or heads))
        )
        y = self.op("attention", split, (n, heads, steps, width // heads))
        y = self.op("transpose", y, (n, steps, heads, width // heads), perm=[0, 2, 1, 3])
        return self.op("reshape", y, (n, steps, width), shape=[n, steps, width])

    def graph(self, output: str) -> Graph:
        # Stored tensors stand before the ops that read them.
        heads = [x for x in self.lines if " = " not in x]
        text = "\n".join([*heads, *(x for x in self.lines if " = " in x), f"output {output}"])
        return parse_graph(text)


def _written(value: object) -> str:
    return str(value).replace(" ", "")


def resnet50_folded() -> Graph:
    """BatchNorm folded into the convolutions, as exporters for inference write it."""
    net = Net(x=(1, 3, 224, 224))
    x = net.pool(net.relu(net.conv("x", 64, 7, 2, 3, bias=True)), 3, 2, 1)
    for blocks, width, first in ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2)):
        for block in range(blocks):
            stride = first if block == 0 else 1
            y = net.relu(net.conv(x, width, 1, bias=True))
            y = net.relu(net.conv(y, width, 3, stride, 1, bias=True))
            y = net.conv(y, 4 * width, 1, bias=True)
            if block == 0:
                x = net.conv(x, 4 * width, 1, stride, bias=True)
            x = net.relu(net.add(y, x))
    weights = f"{net.weight(1000, 2048)} {net.weight(1000)}"
    return net.graph(net.op("gemm", f"{net.mean(x)} {weights}", (1, 1000), transB=1))


def resnet50(batch: int = 1) -> Graph:
    net = Net(x=(batch, 3, 224, 224))
    x = net.pool(net.relu(net.norm(net.conv("x", 64, 7, 2, 3))), 3, 2, 1)
    for blocks, width, first in ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2)):
        for block in range(blocks):
            stride = first if block == 0 else 1
            y = net.relu(net.norm(net.conv(x, width, 1)))
            y = net.relu(net.norm(net.conv(y, width, 3, stride, 1)))
            y = net.norm(net.conv(y, 4 * width, 1))
            if block == 0:
                x = net.norm(net.conv(x, 4 * width, 1, stride))
            x = net.relu(net.add(y, x))
    return net.graph(net.linear(net.mean(x), 1000))


def mobilenet_v2() -> Graph:
    net = Net(x=(1, 3, 224, 224))
    x = net.relu(net.norm(net.conv("x", 32, 3, 2, 1)))
    plan = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )
    for expand, out, repeats, first in plan:
        for at in range(repeats):
            stride, width = (first if at == 0 else 1), net.shape[x][1]
            hidden = width * expand
            y = x if expand == 1 else net.relu(net.norm(net.conv(x, hidden, 1)))
            y = net.relu(net.norm(net.conv(y, hidden, 3, stride, 1, groups=hidden)))
            y = net.norm(net.conv(y, out, 1))
            x = net.add(y, x) if stride == 1 and width == out else y
    x = net.relu(net.norm(net.conv(x, 1280, 1)))
    return net.graph(net.linear(net.mean(x), 1000))


def mobilenet_v1() -> Graph:
    net = Net(x=(1, 3, 224, 224))
    x = net.relu(net.norm(net.conv("x", 32, 3, 2, 1)))
    plan = [
        (64, 1),
        (128, 2),
        (128, 1),
        (256, 2),
        (256, 1),
        (512, 2),
        *[(512, 1)] * 5,
        (1024, 2),
        (1024, 1),
    ]
    for out, stride in plan:
        x = net.relu(net.norm(net.conv(x, net.shape[x][1], 3, stride, 1, groups=net.shape[x][1])))
        x = net.relu(net.norm(net.conv(x, out, 1)))
    return net.graph(net.linear(net.mean(x), 1000))


def vgg(stages: tuple[int, ...]) -> Graph:
    net = Net(x=(1, 3, 224, 224))
    x = "x"
    for repeats, out in zip(stages, (64, 128, 256, 512, 512), strict=True):
        for _ in range(repeats):
            x = net.relu(net.conv(x, out, 3, 1, 1, bias=True))
        x = net.pool(x, 2, 2)
    x = net.relu(net.linear(net.relu(net.linear(net.flat(x), 4096)), 4096))
    return net.graph(net.linear(x, 1000))


def alexnet() -> Graph:
    """The one-tower form that torchvision has."""
    net = Net(x=(1, 3, 224, 224))
    x = net.pool(net.relu(net.conv("x", 64, 11, 4, 2, bias=True)), 3, 2)
    x = net.pool(net.relu(net.conv(x, 192, 5, 1, 2, bias=True)), 3, 2)
    for out in (384, 256, 256):
        x = net.relu(net.conv(x, out, 3, 1, 1, bias=True))
    x = net.flat(net.pool(x, 3, 2))
    x = net.relu(net.linear(net.relu(net.linear(x, 4096)), 4096))
    return net.graph(net.linear(x, 1000))


def vit_b_16() -> Graph:
    net = Net(x=(1, 3, 224, 224), token=(1, 1, 768))
    patches = net.conv("x", 768, 16, 16, bias=True)
    flat = net.op("reshape", patches, (1, 768, 196), shape=[1, 768, 196])
    x = net.op("transpose", flat, (1, 196, 768), perm=[0, 2, 1])
    x = net.op("concat", f"{net.weight(1, 1, 768)} {x}", (1, 197, 768), axis=1)
    x = net.add(x, net.weight(1, 197, 768))
    for _ in range(12):
        h = net.layer_norm(x)
        y = net.attend(*(net.linear(h, 768) for _ in "qkv"), 12)
        x = net.add(net.linear(y, 768), x)
        y = net.linear(net.layer_norm(x), 3072)
        x = net.add(net.linear(net.op("gelu", y, net.shape[y]), 768), x)
    x = net.layer_norm(x)
    first = net.op("slice", x, (1, 1, 768), starts=[0], ends=[1], axes=[1])
    return net.graph(net.linear(first, 1000))


def bert_base(steps: int = 128) -> Graph:
    net = Net()
    net.lines.append(f"input ids: int64[1,{steps}]")
    size = (1, steps, 768)
    words = net.op("gather", f"{net.weight(30522, 768)} ids", size)
    x = net.add(net.add(words, net.weight(512, 768)), net.weight(2, 768))
    net.shape[x] = size
    x = net.layer_norm(x)
    for _ in range(12):
        y = net.attend(*(net.linear(x, 768) for _ in "qkv"), 12)
        x = net.layer_norm(net.add(net.linear(y, 768), x))
        y = net.linear(x, 3072)
        y = net.linear(net.op("gelu", y, net.shape[y]), 768)
        x = net.layer_norm(net.add(y, x))
    first = net.op("slice", x, (1, 1, 768), starts=[0], ends=[1], axes=[1])
    y = net.linear(net.flat(first), 768)  # the pooler
    return net.graph(net.op("tanh", y, net.shape[y]))


def gpt2(steps: int = 128) -> Graph:
    """GPT-2 small with its tied head."""
    net = Net()
    net.lines.append(f"input ids: int64[1,{steps}]")
    table = net.weight(50257, 768)
    x = net.op("gather", f"{table} ids", (1, steps, 768))
    x = net.add(x, net.weight(1024, 768))
    net.shape[x] = (1, steps, 768)
    for _ in range(12):
        h = net.layer_norm(x)
        qkv = net.linear(h, 3 * 768)
        parts = [
            net.op("slice", qkv, (1, steps, 768), starts=[n * 768], ends=[n * 768 + 768], axes=[2])
            for n in range(3)
        ]
        x = net.add(net.linear(net.attend(*parts, 12), 768), x)
        y = net.linear(net.layer_norm(x), 3072)
        x = net.add(net.linear(net.op("gelu", y, net.shape[y]), 768), x)
    x = net.layer_norm(x)
    head = net.op("transpose", table, (768, 50257), perm=[1, 0])
    return net.graph(net.linear(x, 50257, bias=False, weight=head))


def llama_tiny(steps: int = 64) -> Graph:
    """Width 512, 8 query and 2 key heads, feed-forward 1,408, 4 layers, 1,000 words."""
    net = Net()
    net.lines.append(f"input ids: int64[1,{steps}]")
    x = net.op("gather", f"{net.weight(1000, 512)} ids", (1, steps, 512))

    def norm(value: str) -> str:
        return net.op("rms_normalization", f"{value} {net.weight(512)}", net.shape[value])

    for _ in range(4):
        h = norm(x)
        q, k, v = (net.linear(h, n, bias=False) for n in (512, 128, 128))
        x = net.add(net.linear(net.attend(q, k, v, 8, 2), 512, bias=False), x)
        h = norm(x)
        gate, up = (net.linear(h, 1408, bias=False) for _ in range(2))
        gate = net.op("mul", f"{net.op('swish', gate, net.shape[gate])} {up}", net.shape[up])
        x = net.add(net.linear(gate, 512, bias=False), x)
    return net.graph(net.linear(norm(x), 1000, bias=False))
