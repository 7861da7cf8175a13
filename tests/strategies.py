"""Hypothesis strategies: graphs in which every kind of sharing and trap can come up; options."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from peakfold.ir import DTYPES, Graph, Op, OverlapFact, Role, Stated, Tensor
from peakfold.planning import PlanOptions
from peakfold.planning.plan import MODES

BYTE = DTYPES["uint8"]

OPTIONS = st.builds(
    PlanOptions,
    mode=st.sampled_from(MODES),
    share=st.sampled_from(["any", "equal", "nnvm"]),
    inputs=st.sampled_from(["external", "pinned", "reusable"]),
    outputs=st.sampled_from(["pinned", "external"]),
    align=st.sampled_from([1, 4, 64]),
    inplace=st.booleans(),
    views=st.booleans(),
    zero_copy=st.booleans(),
    overlap=st.booleans(),
)
"""Plans for one lane, in every mode."""


class _Builder:
    """Grows a random graph on byte tensors of shape (rows, width)."""

    def __init__(self, draw: DrawFn, width: int) -> None:
        self.draw = draw
        self.width = width
        self.tensors: list[Tensor] = []
        self.ops: list[Op] = []
        self.values: list[str] = []

    def tensor(self, rows: int, role: Role = Role.ACTIVATION) -> str:
        name = f"t{len(self.tensors)}"
        self.tensors.append(Tensor(name, BYTE, (rows, self.width), role))
        return name

    def rows(self, name: str) -> int:
        shape = self.tensors[int(name[1:])].shape
        return int(shape[0]) if shape else 0

    def pick(self) -> str:
        # Recent values are likelier, so that chains and branches both come up.
        back = self.draw(st.integers(0, min(5, len(self.values) - 1)))
        return self.values[-1 - back]

    def add(
        self, kind: str, inputs: tuple[str, ...], rows: tuple[int, ...], **more: object
    ) -> None:
        outputs = tuple(self.tensor(n) for n in rows)
        attrs = more.pop("attrs", {})
        self.ops.append(Op(outputs[0], kind, inputs, outputs, attrs, **more))
        self.values += outputs

    def step(self, kind: str = "") -> None:
        kind = kind or self.draw(
            st.sampled_from(
                [
                    "relu",
                    "relu",
                    "add",
                    "add",
                    "mix",
                    "identity",
                    "slice",
                    "concat",
                    "split",
                    "stated",
                    "scratch",
                    "overlap",
                ]
            )
        )
        x = self.pick()
        n = self.rows(x)
        if kind in ("relu", "identity"):
            self.add(kind, (x,), (n,))
        elif kind == "add":
            y = self.pick()
            if self.rows(y) in (n, 1) or n == 1:
                self.add("add", (x, y), (max(n, self.rows(y)),))
        elif kind == "mix":
            rows = self.draw(st.integers(1, 4))
            self.add("opaque", (x, self.pick()), (rows,) * self.draw(st.integers(1, 2)))
        elif kind == "slice":
            start = self.draw(st.integers(0, n - 1))
            stop = self.draw(st.integers(start + 1, n))
            attrs = {"starts": (start,), "ends": (stop,), "axes": (0,)}
            self.add("slice", (x,), (stop - start,), attrs=attrs)
        elif kind == "concat":
            y = self.pick()
            if n + self.rows(y) <= 12:
                self.add("concat", (x, y), (n + self.rows(y),), attrs={"axis": 0})
        elif kind == "split" and n >= 2:
            cut = self.draw(st.integers(1, n - 1))
            attrs = {"split": (cut, n - cut), "axis": 0}
            self.add("split", (x,), (cut, n - cut), attrs=attrs)
        elif kind == "stated":
            self.add("opaque", (x,), (n,), stated=Stated(inplace=(0,)))
        elif kind == "overlap":
            inputs = (x,) if self.draw(st.booleans()) else (x, self.pick())
            over = self.draw(st.lists(st.integers(0, len(inputs) - 1), min_size=1, unique=True))
            facts = tuple(OverlapFact(at, self.draw(st.integers(0, 2 * self.width))) for at in over)
            self.add(
                "opaque", inputs, (self.draw(st.integers(1, 6)),), stated=Stated(overlap=facts)
            )
        elif kind == "scratch":
            scratch = self.draw(st.integers(1, 40))
            self.add("opaque", (x,), (n,), stated=Stated(workspace=scratch))


@st.composite
def graphs(draw: DrawFn, max_ops: int = 14, *, overlapping: bool = False) -> Graph:
    """A checked graph of byte tensors with views, in-place chains, traps and dead results.

    With `overlapping`, one op or more may write its result over part of an operand.
    """
    builder = _Builder(draw, draw(st.sampled_from([1, 3, 16])))
    inputs = [builder.tensor(draw(st.integers(1, 4)), Role.INPUT) for _ in range(2)]
    builder.values += inputs
    count = draw(st.integers(1, max_ops))
    over = draw(st.integers(0, count - 1)) if overlapping else -1
    for at in range(count):
        builder.step("overlap" if at == over else "")
    made = [name for op in builder.ops for name in op.outputs] or inputs
    outputs = draw(st.lists(st.sampled_from(made + inputs), min_size=1, max_size=3, unique=True))
    tensors = sorted(builder.tensors, key=lambda t: t.role is not Role.INPUT)
    return Graph("random", tuple(tensors), tuple(builder.ops), tuple(inputs), tuple(outputs))
