"""Random graphs and option sets for the attack on the judges: the same seed, the same graph.

Every kind of sharing and trap can come up: views and parts, in-place chains, broadcasts, stated
facts, scratch, unknown kinds, bodies of control flow, variables, dead results, inputs that are
outputs.
"""

from __future__ import annotations

import random

from peakfold.analysis.graph.workspace_profile import SCHEMA as PROFILE_SCHEMA
from peakfold.analysis.graph.workspace_profile import Profile, ProfiledOp
from peakfold.errors import UsageError
from peakfold.ir import DTYPES, Graph, Op, OverlapFact, Region, Role, Stated, Tensor
from peakfold.planning import PlanOptions

KINDS = (
    "relu", "relu", "add", "add", "mul", "reshape", "reshape", "transpose", "slice", "split",
    "split", "concat", "concat", "warp", "mix", "stated", "overlap", "scratch", "if", "write",
    "read", "view",
)  # fmt: skip

OPTION_SETS: tuple[dict[str, object], ...] = (
    {}, {}, {"align": 1}, {"align": 16}, {"align": 1, "outputs": "external"},
    {"lanes": 2}, {"lanes": 2, "align": 1}, {"lanes": 0}, {"lanes": 0, "align": 16},
    {"lanes": 2, "added_edges": 2, "align": 1}, {"lanes": 0, "added_edges": 2},
    {"mode": "both"}, {"mode": "both", "align": 1}, {"mode": "share"}, {"mode": "inplace"},
    {"mode": "naive"}, {"inputs": "reusable", "align": 1}, {"inputs": "reusable"},
    {"inputs": "pinned", "align": 16}, {"outputs": "external"},
    {"inputs": "reusable", "outputs": "external", "align": 1}, {"views": False, "align": 1},
    {"inplace": False}, {"target": "tflm"}, {"target": "mxnet"}, {"target": "torch-cpu"},
    {"order": "best", "align": 1}, {"order": "best"}, {"fold": False},
    {"zero_copy": False, "align": 1}, {"profile": True}, {"profile": True, "align": 1},
)  # fmt: skip
"""Keyword arguments of `PlanOptions`; ``profile`` stands for one made up for the graph."""


class _Growth:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.dtype = DTYPES[rng.choice(["uint8", "uint8", "float32", "int16"])]
        self.width = rng.choice([1, 2, 3, 16])
        self.tensors: list[Tensor] = []
        self.ops: list[Op] = []
        self.values: list[str] = []
        self.state = ""

    def tensor(self, shape: tuple[int, ...], role: Role = Role.ACTIVATION) -> str:
        name = f"t{len(self.tensors)}"
        self.tensors.append(Tensor(name, self.dtype, shape, role))
        return name

    def shape(self, name: str) -> tuple[int, ...]:
        return self.tensors[int(name[1:])].shape  # type: ignore[return-value]

    def pick(self, rank: int = 0) -> str:
        known = [v for v in self.values if not rank or len(self.shape(v)) == rank]
        return known[-1 - self.rng.randrange(min(6, len(known)))]

    def like(self, name: str) -> str:
        """A value of the same shape, that very one if there is no other."""
        return self.rng.choice([v for v in self.values if self.shape(v) == self.shape(name)])

    def add(
        self, kind: str, inputs: tuple[str, ...], shapes: list[tuple[int, ...]], **more: object
    ) -> None:
        outputs = tuple(self.tensor(shape) for shape in shapes)
        self.ops.append(Op(outputs[0], kind, inputs, outputs, **more))
        self.values += outputs

    def step(self) -> None:
        kind = self.rng.choice(KINDS)
        x = self.pick()
        shape = self.shape(x)
        if kind in ("add", "mul"):
            self.add(kind, (x, self.like(x)), [shape])
        elif kind == "reshape":
            flat = (
                (shape[0] * shape[1],) if len(shape) == 2 else (shape[0] // self.width, self.width)
            )
            self.add(kind, (x,), [flat], attrs={"shape": flat})
        elif kind == "mix":
            shapes = [(self.rng.randint(1, 4), self.width)] * self.rng.randint(1, 2)
            self.add("opaque", (x, self.pick()), shapes)
        elif kind in ("relu", "warp"):
            self.add(kind, (x,), [shape])
        elif kind in ("stated", "scratch", "overlap", "view"):
            self.add("opaque", (x,), [shape], stated=self.stated(kind, shape))
        else:
            self.structural(kind)

    def stated(self, kind: str, shape: tuple[int, ...]) -> Stated | None:
        if kind == "stated":
            return Stated(inplace=(0,))
        if kind == "scratch":
            return Stated(workspace=self.rng.randint(1, 70))
        if kind == "overlap":
            return Stated(overlap=(OverlapFact(0, self.rng.randint(0, 2 * shape[0])),))
        return None

    def structural(self, kind: str) -> None:
        x = self.pick(2)
        rows, width = self.shape(x)
        if kind == "transpose":
            self.add(kind, (x,), [(width, rows)], attrs={"perm": (1, 0)})
            self.values.pop()  # no other op is made for its shape
        elif kind == "slice":
            start = self.rng.randrange(rows)
            stop = self.rng.randint(start + 1, rows)
            attrs = {"starts": (start,), "ends": (stop,), "axes": (0,)}
            self.add(kind, (x,), [(stop - start, width)], attrs=attrs)
        elif kind == "split" and rows > 1:
            cut = self.rng.randrange(1, rows)
            attrs = {"split": (cut, rows - cut), "axis": 0}
            self.add(kind, (x,), [(cut, width), (rows - cut, width)], attrs=attrs)
        elif kind == "concat":
            y = self.pick(2)
            if rows + self.shape(y)[0] <= 12:
                self.add(kind, (x, y), [(rows + self.shape(y)[0], width)], attrs={"axis": 0})
        elif kind == "if":
            self.branch(x)
        elif kind in ("write", "read"):
            self.effect(kind, x)

    def effect(self, kind: str, x: str) -> None:
        if not self.state:
            self.state = self.tensor((4, self.width), Role.STATE)
        if kind == "write":
            self.add("opaque", (x,), [self.shape(x)], writes=(self.state,))
        else:
            flat = (4 * self.width,)
            self.add("reshape", (self.state,), [flat], attrs={"shape": flat})

    def branch(self, x: str) -> None:
        condition = next((t.name for t in self.tensors if t.name.startswith("c")), "")
        if not condition:
            condition = f"c{len(self.tensors)}"
            self.tensors.append(Tensor(condition, DTYPES["bool"], (), Role.INPUT))
        shape = self.shape(x)
        bodies = tuple(
            _body(self.rng, label, x, shape, self.dtype.name) for label in ("then", "else")
        )
        self.add("if", (condition,), [shape], regions=bodies)


def _body(rng: random.Random, label: str, x: str, shape: tuple[int, ...], dtype: str) -> Region:
    tensors = [Tensor(x, DTYPES[dtype], shape, Role.INPUT)]
    ops: list[Op] = []
    for at in range(rng.randint(1, 3)):
        last = tensors[-1].name
        name = f"{label}{at}"
        kind = rng.choice(["relu", "add", "warp"])
        inputs = (last, x) if kind == "add" else (last,)
        ops.append(Op(name, kind, inputs, (name,)))
        tensors.append(Tensor(name, DTYPES[dtype], shape))
    graph = Graph("", tuple(tensors), tuple(ops), (x,), (tensors[-1].name,))
    return Region(label, graph, (x,))


def random_graph(rng: random.Random) -> Graph:
    """A graph of 3 to 12 ops on small tensors."""
    growth = _Growth(rng)
    for _ in range(rng.randint(1, 2)):
        growth.values.append(growth.tensor((rng.randint(1, 4), growth.width), Role.INPUT))
    if rng.random() < 0.2:
        growth.values.append(growth.tensor((2, growth.width), Role.PARAMETER))
    count = rng.randint(3, 12)
    while len(growth.ops) < count:
        growth.step()
    made = [name for op in growth.ops for name in op.outputs]
    pool = made if rng.random() < 0.8 else [*growth.values, *made]
    outputs = list(dict.fromkeys(rng.choice(pool) for _ in range(rng.randint(1, 3))))
    if rng.random() < 0.7 and made[-1] not in outputs:
        outputs.append(made[-1])
    tensors = sorted(growth.tensors, key=lambda t: t.role is Role.ACTIVATION)
    inputs = tuple(t.name for t in tensors if t.role is Role.INPUT)
    return Graph("random", tuple(tensors), tuple(growth.ops), inputs, tuple(outputs))


def options_for(
    graph: Graph, rng: random.Random, chosen: dict[str, object], seconds: float = 60.0
) -> PlanOptions:
    """An option set as options; a made-up profile covers some of the graph's ops.

    Args:
        graph: what is planned.
        rng: makes up the profile.
        chosen: one of the option sets.
        seconds: for searches. So many that a small graph never meets them, or none: a clock
            would make other plans on a busy machine.
    """
    more = {"time_limit": seconds, "quick": True, **chosen}
    if "profile" in chosen:
        rows = [
            ProfiledOp(op=op.name, operator=op.kind, scratch_bytes=rng.randint(0, 90))
            for op in graph.ops
            if rng.random() < 0.5 and not op.regions
        ]
        more["profile"] = Profile(
            schema=PROFILE_SCHEMA, target="generic", runtime="made up", model="", ops=rows
        )
    try:
        return PlanOptions(**more)
    except UsageError as error:
        raise ValueError(f"an option set that does not go together: {chosen}") from error
