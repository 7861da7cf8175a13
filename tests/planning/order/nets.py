"""Networks whose order matters: cells, pyramids, wirings; each a graph in the text form.

Shapes follow the published networks; a convolution stands for convolution, norm and
activation, as in the counts of the papers on memory. Sources: RandWire, Xie et al. 2019
(Watts-Strogatz wiring); NASNet-A, Zoph et al. 2018; Inception, Szegedy et al. 2016; U-Net,
Ronneberger et al. 2015; DenseNet, Huang et al. 2017; FPN, Lin et al. 2017; DARTS, Liu et al.
2019, and SwiftNet, Zhang et al. 2019.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from peakfold.ir import Graph, parse_graph


class Net:
    """Writes a network line by line; values are named in the order they are made."""

    def __init__(self, name: str, channels: int, side: int) -> None:
        self.lines = ["peakfold-graph 1", f'name "{name}"']
        self.shape = {"x": (channels, side)}
        self.lines.append(f"input x: float32[1,{channels},{side},{side}]")

    def op(
        self, kind: str, inputs: tuple[str, ...], channels: int, side: int, more: str = ""
    ) -> str:
        name = f"t{len(self.lines) - 2}"
        self.shape[name] = (channels, side)
        self.lines.append(
            f"{name}: float32[1,{channels},{side},{side}] = {kind}({', '.join(inputs)}{more})"
        )
        return name

    def conv(self, x: str, channels: int = 0, stride: int = 1) -> str:
        old, side = self.shape[x]
        return self.op("opaque", (x,), channels or old, side // stride)

    def relu(self, x: str) -> str:
        return self.op("relu", (x,), *self.shape[x])

    def add(self, first: str, *others: str) -> str:
        for other in others:
            first = self.op("add", (first, other), *self.shape[first])
        return first

    def concat(self, *parts: str) -> str:
        channels = sum(self.shape[p][0] for p in parts)
        return self.op("concat", parts, channels, self.shape[parts[0]][1], ", axis=1")

    def separable(self, x: str, channels: int = 0, stride: int = 1) -> str:
        return self.conv(self.conv(self.relu(x), 0, stride), channels)

    def up(self, x: str) -> str:
        return self.op("opaque", (x,), self.shape[x][0], self.shape[x][1] * 2)

    def graph(self, *outputs: str) -> Graph:
        return parse_graph("\n".join([*self.lines, f"output {', '.join(outputs)}"]))


def randwire(seed: int, nodes: int = 32, near: int = 4, rewire: float = 0.75) -> Graph:
    """Three stages, each a Watts-Strogatz graph WS(32, 4, 0.75) made acyclic by node number."""
    rng = random.Random(seed)
    net = Net(f"randwire-{seed}", 3, 224)
    last = net.conv("x", 32, 2)
    for stage in range(3):
        width = 64 << stage
        entry = net.conv(last, width, 2)
        needs: list[set[int]] = [set() for _ in range(nodes)]
        for hop in range(1, near // 2 + 1):
            for one in range(nodes):
                other = (one + hop) % nodes
                if rng.random() < rewire:
                    other = rng.choice([n for n in range(nodes) if n != one])
                needs[max(one, other)].add(min(one, other))
        made: list[str] = []
        used: set[int] = set()
        for node in range(nodes):
            sources = [made[n] for n in sorted(needs[node])] or [entry]
            used |= needs[node]
            made.append(net.separable(net.add(*sources)))
        last = net.add(*(made[n] for n in range(nodes) if n not in used))
    return net.graph(net.conv(last, 10))


def nasnet(cells: int = 4) -> Graph:
    """NASNet-A normal cells: five pairs of branches over the last two cells, concatenated."""
    net = Net("nasnet-a", 3, 112)
    before, last = "", net.conv("x", 44, 2)
    before = last
    for _ in range(cells):
        h0, h1 = net.conv(before, 44), net.conv(last, 44)
        sep = [net.separable(net.separable(h)) for h in (h1, h0, h0, h0, h1)]
        pairs = [
            net.add(sep[0], h1),
            net.add(sep[1], sep[4]),
            net.add(net.conv(h1), h0),
            net.add(net.conv(h0), net.conv(h0)),
            net.add(sep[2], sep[3]),
        ]
        before, last = last, net.concat(h0, *pairs)
    return net.graph(net.conv(last, 10))


def inception(blocks: int = 4) -> Graph:
    """Inception-v3 blocks of four branches, written branch by branch, stems first."""
    net = Net("inception", 3, 70)
    last = net.conv("x", 192, 2)
    for _ in range(blocks):
        stems = [net.conv(last, 64), net.conv(last, 48), net.conv(last, 64), net.conv(last)]
        five = net.conv(stems[1], 64)
        three = net.conv(net.conv(stems[2], 96), 96)
        last = net.concat(stems[0], five, three, net.conv(stems[3], 32))
    return net.graph(net.conv(last, 10))


def unet(depth: int = 4, width: int = 32, side: int = 128) -> Graph:
    net = Net("unet", 3, side)
    last, skips = "x", []
    for level in range(depth):
        last = net.conv(net.conv(last, width << level))
        skips.append(last)
        last = net.op("max_pool", (last,), width << level, side >> (level + 1))
    last = net.conv(net.conv(last, width << depth))
    for level in reversed(range(depth)):
        joined = net.concat(skips[level], net.conv(net.up(last), width << level))
        last = net.conv(net.conv(joined, width << level))
    return net.graph(net.conv(last, 2))


def densenet(layers: int = 12, growth: int = 32) -> Graph:
    net = Net("densenet", 3, 112)
    features = [net.conv("x", 64, 2)]
    for _ in range(layers):
        joined = features[0] if len(features) == 1 else net.concat(*features)
        bottleneck = net.conv(net.relu(net.conv(joined)), 4 * growth)
        features.append(net.conv(net.relu(bottleneck), growth))
    return net.graph(net.conv(net.concat(*features), 10))


def fpn() -> Graph:
    """Bottom-up stages, laterals written first, then the top-down path and five heads."""
    net = Net("fpn", 3, 256)
    last, stages = net.conv("x", 64, 4), []
    for stage in range(4):
        last = net.conv(net.conv(last, 64 << stage, 1 if stage == 0 else 2))
        last = net.add(net.conv(net.relu(last)), last)
        stages.append(last)
    laterals = [net.conv(c, 64) for c in stages]
    merged = [laterals[3]]
    for lateral in reversed(laterals[:3]):
        merged.append(net.add(lateral, net.up(merged[-1])))
    outputs = [net.conv(m) for m in merged]
    heads = [net.conv(net.conv(o), 9) for o in [*outputs, net.conv(outputs[0], 0, 2)]]
    return net.graph(*heads)


def darts(cells: int = 3) -> Graph:
    """Irregular cells as a search finds them: nodes of mixed operations over all before them.

    Each edge widens its input before it narrows it, and the file lists operations edge type by
    edge type, as exporters of mixed-operation graphs do.
    """
    net = Net("darts", 3, 64)
    before = last = net.conv("x", 24, 2)
    for _ in range(cells):
        states = [net.conv(before, 24), net.conv(last, 24)]
        for _ in range(4):
            wide = [net.conv(s, 96) for s in states]
            deep = [net.conv(w) for w in wide]
            narrow = [net.conv(d, 24) for d in deep]
            states.append(net.add(*narrow))
        before, last = last, net.concat(*states[2:])
    return net.graph(net.conv(last, 10))


def swiftnet() -> Graph:
    """A cell of unequal branches: wide stems early, their readers late, joined at the end."""
    net = Net("swiftnet", 8, 64)
    last = net.conv("x", 16)
    for width in (16, 24, 32):
        wide = [net.conv(last, width * k) for k in (6, 2, 5, 3, 4, 6)]
        mid = [net.conv(w, width) for w in wide]
        cross = [net.add(mid[0], mid[3]), net.add(mid[1], mid[4]), net.add(mid[2], mid[5])]
        tail = [net.conv(net.conv(c, 4 * width), width) for c in cross]
        last = net.conv(net.concat(*tail, mid[5]), width)
    return net.graph(net.conv(last, 10))


def random_dag(seed: int, ops: int, near: int = 8) -> Graph:
    """One piece of `ops` ops, each reading one to three of the last `near` values, rarely any.

    Values left unread are read before more than `near` of them pile up, so that the last op
    does not decide the peak.
    """
    rng = random.Random(seed)
    net = Net(f"random-{ops}-{seed}", 8, 16)
    values = ["x"]
    unread: list[str] = []
    while len(values) < ops:
        count = rng.choice((1, 1, 1, 2, 2, 3))
        recent = values[-near:]
        sources = {rng.choice(recent if rng.random() < 0.95 else values) for _ in range(count)}
        if len(unread) > near:
            sources.update(unread[:2])
        ordered = tuple(sorted(sources))
        values.append(net.op("opaque", ordered, rng.randint(1, 32), 16))
        unread = [u for u in unread if u not in sources] + [values[-1]]
    return net.graph(net.op("opaque", tuple(unread), 8, 16))


def series_parallel(seed: int, ops: int) -> Graph:
    """Grown by replacing edges with chains or with parallel branches that meet again."""
    rng = random.Random(seed)
    net = Net(f"series-parallel-{seed}", rng.randint(1, 8), 8)

    def grow(x: str, budget: int) -> str:
        if budget < 3 or rng.random() < 0.2:
            return net.op("opaque", (x,), rng.randint(1, 16), 8)
        if rng.random() < 0.4:
            half = budget // 2
            return grow(grow(x, half), budget - half)
        ways = rng.randint(2, 3)
        parts = [grow(x, (budget - 1) // ways) for _ in range(ways)]
        return net.op("opaque", tuple(parts), rng.randint(1, 16), 8)

    return net.graph(grow(net.op("opaque", ("x",), 4, 8), ops))


NETS: dict[str, Callable[[], Graph]] = {
    "randwire-0": lambda: randwire(0),
    "randwire-1": lambda: randwire(1),
    "randwire-2": lambda: randwire(2),
    "nasnet": nasnet,
    "inception": inception,
    "unet": unet,
    "densenet": densenet,
    "fpn": fpn,
    "darts": darts,
    "swiftnet": swiftnet,
}
