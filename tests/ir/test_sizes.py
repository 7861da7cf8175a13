"""Sizes as text: one grammar, nothing of which is run."""

from __future__ import annotations

import pytest

from peakfold.ir.expression import MAX_POWER, Expression
from peakfold.ir.size_functions import Unreadable
from peakfold.ir.sizes import MAX_DEPTH, MAX_TEXT, parse_size_text

SYMBOLS = {"s0": 7, "s1": 11, "seq": 9, "batch": 2}


@pytest.mark.parametrize(
    ("text", "shown", "number"),
    [
        ("Symbol('s77', positive=True, integer=True)", "s77", None),
        ("s0+1", "s0 + 1", 8),
        ("seq//2", "(seq//2)", 4),
        ("2*s0 + 1", "2*s0 + 1", 15),
        ("floor(seq/2)", "floor(seq/2)", 4),
        ("CeilToInt(seq/2)", "CeilToInt(seq/2)", 5),
        ("Max(s0, 1)", "Max(1, s0)", 7),
        ("Min(3, s0 + 1)", "Min(3, s0 + 1)", 3),
        ("Mod(seq, 4)", "Mod(seq, 4)", 1),
        ("seq % 4", "Mod(seq, 4)", 1),
        ("FloorDiv(Add(Symbol('s0'), Integer(-1)), Integer(2)) + 1", "(((s0 - 1)//2)) + 1", 4),
        ("batch*seq - seq*batch", "0", 0),
        ("(s0 + s1) - s0", "s1", 11),
        ("5 - s0", "5 - s0", -2),
        ("s0**2*batch", "batch*s0**2", 98),
        ("Pow(Symbol('s0'), Integer(2))", "s0**2", 49),
        ("-(-s0)", "s0", 7),
        ("Mul(Rational(1, 2), Symbol('s1'))", "s1/2", None),
        ("7//2", "3", 3),
        ("max(batch, s0)*2", "2*Max(batch, s0)", 14),
        ("s0*(s1 + 1)", "s0*(s1 + 1)", 84),
        ("TruncToInt(IntTrueDiv(s1, 2))", "TruncToInt(IntTrueDiv(s1, 2))", 5),
        ("ModularIndexing(s1, 2, 3)", "ModularIndexing(s1, 2, 3)", 2),
    ],
)
def test_sizes_are_read_shown_and_evaluated(text: str, shown: str, number: int | None) -> None:
    size = parse_size_text(text)
    assert str(size) == shown
    assert size.bind(SYMBOLS).number == number
    assert parse_size_text(str(size)) == size  # what is shown can be read again


def test_equal_polynomials_are_equal() -> None:
    assert parse_size_text("2*(s0 + 3) - 6") == parse_size_text("s0 + s0")
    assert parse_size_text("s0").bind({"other": 3}).number is None
    assert parse_size_text("s0 + s1").bind({"s1": 2}) == parse_size_text("2 + s0")


HOSTILE = (
    "__import__('os').system('touch x')", "exec('1')", "open('x')", "eval(\"1\")", "s0.__class__",
    "lambda: 1", "[1]", "{}", "s0; s1", "s0 if s0 else 1", "f(s0)", "S('s0')", "Symbol(s0)",
    "Symbol('a b')", "Symbol('__import__(1)')", "Function('x')(1)", "", " ", "(", "2*", "s0 s1",
    "1/0", "s0//0", "Mod(s0, 0) + 1//0", "2**70", "2**(2**70)", "s0**99", "9" * 5000, "9" * 41,
    "(" * 100_000, "-" * 3000 + "1", "Max(" * 500, "1e5", "0x10", "s0**s1", "LShift(1, 10**9)",
    "Integer('5')", "Integer(1, 2)", "Float('nan')", "\u0661", "Max()", "nan", "oo*0 + 1//(1-1)",
)  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_what_is_no_size_is_refused(text: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        parse_size_text(text).bind({"s0": 2**61, "s1": 2**61, "nan": 1, "oo": 1})
    except Unreadable as error:
        assert str(error)
        assert len(str(error)) < 300
    else:
        assert text in ("nan",)  # a symbol may be called so
    assert not list(tmp_path.iterdir())


def test_limits_hold_at_their_edge() -> None:
    assert parse_size_text("(" * (MAX_DEPTH - 1) + "s0" + ")" * (MAX_DEPTH - 1)).symbols == ("s0",)
    assert parse_size_text(f"s0**{MAX_POWER}").symbols == ("s0",)
    with pytest.raises(Unreadable):
        parse_size_text("s0 + " * (MAX_TEXT // 5) + "s0   ")
    with pytest.raises(Unreadable, match="terms"):
        parse_size_text(" + ".join(f"s{n}" for n in range(100)))
    with pytest.raises(Unreadable, match="product"):
        parse_size_text("*".join(f"(a{n}+b{n})" for n in range(300)))
    with pytest.raises(Unreadable, match="too large"):
        Expression.of(2**61) * Expression.of(2)


@pytest.mark.torch
def test_they_are_shown_as_pytorch_shows_them() -> None:
    sympy = pytest.importorskip("sympy")
    functions = pytest.importorskip("torch.utils._sympy.functions")
    a, b, c = sympy.symbols("s0 s1 s10", integer=True, positive=True)
    floor, most, mod = functions.FloorDiv, functions.Max, functions.Mod
    whole = functions.TruncToInt(functions.IntTrueDiv(a, 2))
    for made in (
        2 * a + 1,
        5 - a,
        1 - a - b,
        a * b + a,
        a * (b + 1) + 2,
        floor(a + 1, 2),
        a**2 + b * a + 3 * b,
        floor(2 * a, 3) + 1,
        2 * floor(a, 2) * b + c,
        most(1, a, floor(a, 2)),
        mod(a, 2),
        -a,
        a / 2,
        functions.PythonMod(a, 2),
        functions.ModularIndexing(a, 2, 3),
        whole,
        3 * a / 2 + 1,
        functions.CleanDiv(a * b, 8),
        floor(a, -2),
        4 * a - 4 * b,
        -4 * floor(a, 2) + 3,
        a * floor(b, 2),
        functions.Min(a, b + 1, 3),
        floor(floor(a, 2) - 1, 2) + 1,
        mod(a * b, 4) + c,
        most(a, b) * floor(c + b, 2),
        a * b * c - a**2 - 7,
    ):
        assert str(parse_size_text(sympy.srepr(made))) == str(made)
