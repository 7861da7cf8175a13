"""The reader of the text form: recursive descent over the tokens of a line at a time."""

from __future__ import annotations

import re
from dataclasses import replace

from peakfold.errors import ModelError
from peakfold.ir.check import check_nesting
from peakfold.ir.graph import (
    AttrValue,
    Graph,
    Op,
    OverlapFact,
    Region,
    Role,
    Stated,
    Tensor,
    ViewFact,
)
from peakfold.ir.line import Line
from peakfold.ir.types import DTYPES, Shape

HEADER = "peakfold-graph 1"
_ROLES = {role.value: role for role in Role}
_STATIC_WORDS = frozenset(role.value for role in Role if role.static)
_VIEW = re.compile(r"([0-9]{1,18})<([0-9]{1,18})\+([0-9]{1,18})")
_OVERLAP = re.compile(r"([0-9]{1,18})-([0-9]{1,18})")


def default_op_name(outputs: tuple[str, ...]) -> str:
    """The name of an op that states none: its first output's."""
    return next((name for name in outputs if name), "")


_NAME = r"[A-Za-z_][A-Za-z0-9_./-]*"
# One result of known shape, plain operands, no attributes: most lines of a large graph. They
# skip the tokenizer, which is several times slower.
_PLAIN_OP = re.compile(
    rf"({_NAME}): ([a-z0-9]+)\[((?:\d+(?:,\d+)*)?)\] = ({_NAME})\(((?:{_NAME}(?:, {_NAME})*)?)\)"
)


class _Body:
    """What is gathered of one graph while its lines are read."""

    def __init__(self) -> None:
        self.name = ""
        self.source = ""
        self.notes: list[str] = []
        self.tensors: list[Tensor] = []
        self.ops: list[Op] = []
        self.inputs: list[str] = []
        self.outputs: list[str] = []

    def graph(self) -> Graph:
        return Graph(
            self.name,
            tuple(self.tensors),
            tuple(self.ops),
            tuple(self.inputs),
            tuple(self.outputs),
            self.source,
            tuple(self.notes),
        )


def parse_lines(lines: list[str], name: str = "") -> Graph:
    """Read a whole text form; `name` is what errors call the file.

    Raises:
        ModelError: the line that cannot be read.
    """
    try:
        if not lines or lines[0].strip() != HEADER:
            raise ModelError(f"the first line must be {HEADER!r}", where="line 1")
        body, at = _parse_body(lines, 1, 0)
        if at < len(lines):
            raise ModelError("'end' closes nothing", where=f"line {at + 1}")
    except ModelError as error:
        where = ", ".join(part for part in (name, error.where) if part)
        raise ModelError(error.what, where=where, hint=error.hint) from None
    return body.graph()


def _parse_body(lines: list[str], at: int, depth: int) -> tuple[_Body, int]:
    """Lines from `at` up to an ``end`` or the end of the file; gives the position reached."""
    check_nesting(depth, f"line {at}")
    body = _Body()
    while at < len(lines):
        text = lines[at].strip()
        at += 1
        if not text or text[0] == "#":
            continue
        if text == "end":
            return body, at - 1
        if (plain := _PLAIN_OP.fullmatch(text)) is not None and plain[2] in DTYPES:
            _add_plain_op(body, *plain.groups())
            continue
        line = Line(text, at)
        if not _parse_statement(line, body):
            op = _parse_op(line, body)
            if line.accept("begin"):
                regions, at = _parse_regions(lines, at, depth + 1)
                op = replace(op, regions=regions)
            body.ops.append(op)
        if not line.done():
            raise line.fail(f"unexpected {line.peek()!r}")
    return body, at


def _add_plain_op(body: _Body, name: str, dtype: str, dims: str, kind: str, args: str) -> None:
    shape = tuple(map(int, dims.split(","))) if dims else ()
    body.tensors.append(Tensor(name, DTYPES[dtype], shape))
    inputs = tuple("" if arg == "_" else arg for arg in args.split(", ")) if args else ()
    body.ops.append(Op(name, kind, inputs, (name,)))


def _parse_statement(line: Line, body: _Body) -> bool:
    """A line that declares something; false if the line is an op."""
    if len(line.tokens) < 2 or line.tokens[1][3] in (":", ",", "="):
        return False
    word = line.tokens[0][2]
    if word not in _STATEMENTS:
        return False
    line.at = 1
    if word == "name":
        body.name = line.word("a name")
    elif word == "source":
        body.source = line.word("a format")
    elif word == "note":
        body.notes.append(line.word("a note"))
    elif word == "output":
        body.outputs.append(line.word("a tensor name"))
        while line.accept(","):
            body.outputs.append(line.word("a tensor name"))
    else:
        tensor = _parse_declaration(line, _ROLES[word])
        body.tensors.append(tensor)
        if word == "input":
            body.inputs.append(tensor.name)
    return True


_STATEMENTS = {"name", "source", "note", "output", "input"} | _STATIC_WORDS


def _parse_declaration(line: Line, role: Role) -> Tensor:
    name = line.word("a tensor name")
    line.expect(":")
    word = line.word("a type")
    if word in _ROLES:
        role, word = _ROLES[word], line.word("a type")
    if word not in DTYPES:
        raise line.fail(f"unknown element type {word!r}; known: {', '.join(DTYPES)}")
    shape = None if line.accept("?") else _parse_shape(line)
    stated = None
    if line.accept("("):
        stated = line.integer("a number of bytes")
        line.expect("B")
        line.expect(")")
    trainable = True if line.accept("trainable") else False if line.accept("frozen") else None
    return Tensor(name, DTYPES[word], shape, role, stated, trainable)


def _parse_shape(line: Line) -> Shape:
    line.expect("[")
    dims: list[int | str] = []
    while not line.accept("]"):
        is_number = not line.done() and line.tokens[line.at][1]
        dims.append(line.integer("a dimension") if is_number else line.word("a dimension"))
        if not line.accept(","):
            line.expect("]")
            break
    return tuple(dims)


def _parse_op(line: Line, body: _Body) -> Op:
    outputs: list[str] = []
    while not line.accept("="):
        if line.accept("_"):
            outputs.append("")
        else:
            tensor = _parse_declaration(line, Role.ACTIVATION)
            body.tensors.append(tensor)
            outputs.append(tensor.name)
        if not line.accept(","):
            line.expect("=")
            break
    kind = line.word("an op kind")
    line.expect("(")
    inputs: list[str] = []
    attrs: dict[str, AttrValue] = {}
    while not line.accept(")"):
        word = "" if line.accept("_") else line.word("an input or attribute")
        if line.accept("="):
            attrs[word] = line.value()
        else:
            inputs.append(word)
        if not line.accept(","):
            line.expect(")")
            break
    op = Op(default_op_name(tuple(outputs)), kind, tuple(inputs), tuple(outputs), attrs)
    return op if line.done() else _parse_modifiers(line, op)


def _parse_modifiers(line: Line, op: Op) -> Op:
    stated = Stated()
    while not line.done() and line.peek() != "begin":
        key = line.word("a modifier")
        line.expect("=")
        if key == "name":
            op = replace(op, name=line.word("a string"))
        elif key == "scope":
            op = replace(op, scope=line.word("a string"))
        elif key == "reads":
            op = replace(op, reads=line.names())
        elif key == "writes":
            op = replace(op, writes=line.names())
        elif key == "workspace":
            stated = replace(stated, workspace=line.integer("bytes"))
        elif key == "inplace":
            stated = replace(stated, inplace=_int_list(line))
        elif key == "views":
            stated = replace(stated, views=_view_list(line))
        elif key == "overlap":
            stated = replace(stated, overlap=_overlap_list(line))
        else:
            raise line.fail(f"unknown modifier {key!r}")
    return op if stated == Stated() else replace(op, stated=stated)


def _int_list(line: Line) -> tuple[int, ...]:
    value = line.value()
    if not isinstance(value, tuple) or not all(type(item) is int for item in value):
        raise line.fail("expected a list of input positions")
    return tuple(item for item in value if isinstance(item, int))


def _view_list(line: Line) -> tuple[ViewFact, ...]:
    value = line.value()
    matches = [_VIEW.fullmatch(str(v)) for v in value] if isinstance(value, tuple) else [None]
    if not all(matches):
        raise line.fail('a view is written "OUTPUT<INPUT+BYTES"')
    return tuple(ViewFact(int(m[1]), int(m[2]), int(m[3])) for m in matches if m)


def _overlap_list(line: Line) -> tuple[OverlapFact, ...]:
    value = line.value()
    matches = [_OVERLAP.fullmatch(str(v)) for v in value] if isinstance(value, tuple) else [None]
    if not all(matches):
        raise line.fail('an overlap is written "INPUT-BYTES"')
    return tuple(OverlapFact(int(m[1]), int(m[2])) for m in matches if m)


def _parse_regions(lines: list[str], at: int, depth: int) -> tuple[tuple[Region, ...], int]:
    regions: list[Region] = []
    while True:
        if at >= len(lines):
            raise ModelError("regions are not closed by 'end'", where=f"line {at}")
        line = Line(lines[at].strip(), at + 1)
        at += 1
        if line.done():
            continue
        if line.accept("end"):
            return tuple(regions), at
        line.expect("region")
        label = line.word("a label")
        captures: tuple[str, ...] = ()
        if line.accept("captures"):
            line.expect("=")
            captures = line.names()
        body, at = _parse_body(lines, at, depth)
        if at >= len(lines):
            raise ModelError(f"region {label!r} is not closed by 'end'", where=f"line {at}")
        at += 1
        regions.append(Region(label, body.graph(), captures))
