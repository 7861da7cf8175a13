"""Small graphs for the tests of reports and of the command line."""

from __future__ import annotations

import random

EX4 = """\
peakfold-graph 1
name "ex4"
input A: int8[16]
B: int8[16] = sigmoid(A)
C: int8[16] = sigmoid(B)
F: int8[16] = opaque(B) inplace=[] workspace=0
E: int8[16] = opaque(C) inplace=[] workspace=0
G: int8[16] = mul(E, F)
output G
"""

CHAIN = """\
peakfold-graph 1
name "chain"
input x: float32[64]
parameter w: float32[64]
h: float32[64] = add(x, w)
y: float32[64] = relu(h)
z: float32[64] = add(y, w)
output z
"""

# Every role, a tied parameter, known scratch, an unknown kind, an opaque value.
ROLES = """\
peakfold-graph 1
name "roles"
input x: float32[64]
parameter w: float32[64]
constant c: float32[16]
state s: float32[8]
optimizer_state m: float32[4]
a: float32[64] = opaque(x, w) inplace=[] workspace=0
b: float32[64] = opaque(a, w, c, s) inplace=[] workspace=1024
g: gradient float32[32] = opaque(b, m) inplace=[] workspace=0
t: string[2] = warp(g)
y: float32[64] = warp(b, t)
output y
"""

# Views that die at different times, so that a buffer lives in two pieces.
HALVES = """\
peakfold-graph 1
name "halves"
input x: int8[64]
a: int8[64] = opaque(x) inplace=[] workspace=0
lo: int8[32] = opaque(a) views=["0<0+0"] workspace=0
hi: int8[32] = opaque(a) views=["0<0+32"] workspace=0
p: int8[16] = opaque(lo) inplace=[] workspace=0
q: int8[48] = opaque(p) inplace=[] workspace=0
r: int8[16] = opaque(hi, q) inplace=[] workspace=0
output r
"""

EVIL = '<b>&"\u001b[31m\u202e$x^{$\nend'


def evil() -> str:
    """A graph whose names try to break terminals, XML and TeX."""
    import json

    def name(tail: str) -> str:
        return json.dumps(EVIL + tail)

    return (
        f"peakfold-graph 1\nname {name('graph')}\ninput {name('in')}: int8[64]\n"
        f"{name('mid')}: int8[64] = opaque({name('in')}) inplace=[] workspace=64 "
        f"name={name('op')}\n"
        f"{name('out')}: int8[64] = {name('kind')}({name('mid')})\noutput {name('out')}\n"
    )


def branches(ops: int, seed: int = 0, scratch: bool = True) -> str:
    """A chain with side inputs from nearby, and scratch here and there."""
    rng = random.Random(seed)
    lines = ["peakfold-graph 1", 'name "branches"', "input t0: int8[64]"]
    for at in range(1, ops + 1):
        back = max(0, at - rng.randint(1, 6))
        room = rng.choice([0, 0, 64]) if scratch else 0
        lines.append(
            f"t{at}: int8[{rng.choice([64, 128, 256])}] = opaque(t{at - 1}, t{back}) "
            f"inplace=[] workspace={room}"
        )
    return "\n".join([*lines, f"output t{ops}", ""])
