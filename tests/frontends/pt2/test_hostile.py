"""A `.pt2` is untrusted: whatever it holds, nothing of it runs, and errors are one clean line."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tracemalloc
import zipfile

import pytest

from peakfold.errors import ModelError, PeakfoldError, UsageError
from peakfold.frontends import load
from peakfold.frontends.pt2.archive import MAX_DIRECTORY
from tests.frontends.pt2.pt2_archives import (
    CANARY,
    CODE,
    EVIL,
    as_json,
    changed,
    members,
    meta,
    node,
    program,
    tensor,
    write,
)

GRAPH = ("graph_module", "graph")
MUL = (*GRAPH, "nodes", 0)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    yield
    assert not (tmp_path / CANARY).exists()


def refused(path, capfd) -> str:
    with pytest.raises(PeakfoldError) as caught:
        load(path)
    said = str(caught.value)
    assert len(said) < 700
    assert said.isprintable()
    assert capfd.readouterr() == ("", "")
    return said


def test_an_honest_archive_is_read(tmp_path) -> None:
    graph = load(write(tmp_path / "a.pt2", members())).graph
    assert [(op.kind, op.scope) for op in graph.ops] == [("mul", "act"), ("relu", "act")]
    assert graph["w"].trainable
    assert graph["relu"].nbytes == 64


# Everything that PyTorch's loader unpickles.

PICKLED = {
    "weight": ("data/weights/weight_0", {"use_pickle": True}),
    "sample inputs": ("data/sample_inputs/model.pt", {}),
    "tensor constant": ("data/constants/tensor_0", {"use_pickle": True}),
    "custom object": ("data/constants/custom_obj_0", {"use_pickle": True, "tensor_meta": None}),
    "opaque object": ("data/constants/opaque_obj_0", {"use_pickle": True, "tensor_meta": None}),
    "old weights": ("data/weights/model.pt", {}),
    "old constants": ("data/constants/model.pt", {}),
    "extra": ("extra/x.pkl", {}),
    "compiled": ("data/aotinductor/model/x.so", {}),
}


@pytest.mark.parametrize("name", PICKLED)
def test_no_member_is_unpickled(name: str, tmp_path) -> None:
    member, change = PICKLED[name]
    parts = members() | {member: EVIL}
    if change:
        payload = {
            "path_name": member.rpartition("/")[2],
            "is_param": True,
            "tensor_meta": meta(8),
            **change,
        }
        kind = member.split("/")[1]
        parts[f"data/{kind}/model_{kind}_config.json"] = as_json({"config": {"w": payload}})
    assert len(load(write(tmp_path / "a.pt2", parts)).graph.ops) == 2


def test_the_older_layout_is_read_without_its_pickles(tmp_path) -> None:
    names = ("state_dict.pt", "constants.pt", "example_inputs.pt", "state_dict.json")
    parts = {f"serialized_{name}": EVIL for name in names}
    parts |= {"version": b"8.20", "serialized_exported_program.json": as_json(program())}
    graph = load(write(tmp_path / "a.pt2", parts, root="")).graph
    assert [op.kind for op in graph.ops] == ["mul", "relu"]
    assert graph["w"].trainable


# Everything that it evaluates, or resolves to a Python object.


def test_no_text_is_evaluated_or_resolved(tmp_path, capfd) -> None:
    spec = ("graph_module", "module_call_graph", 0, "signature")
    for keys, value in {
        (*spec, "in_spec"): f'[1, {{"type": "os.system", "context": "{CODE}"}}]',
        (*spec, "out_spec"): CODE,
        (*spec, "forward_arg_names"): [CODE],
        (*MUL, "metadata", "nn_module_stack"): f"{CODE},{CODE},{CODE};os,system,os.system",
        (*MUL, "metadata", "source_fn_stack"): f"x,os.system;y,{CODE}",
        (*MUL, "metadata", "torch_fn"): CODE,
        (*MUL, "metadata", "custom"): CODE,
        (*MUL, "metadata", "from_node"): CODE,
        (*MUL, "metadata", "stack_trace"): CODE,
        ("guards_code",): [CODE],
        ("verifiers",): [CODE, "os.system"],
        ("graph_module", "treespec_namedtuple_fields"): {"os.system": {"field_names": [CODE]}},
        (*GRAPH, "custom_obj_values"): {"o": {"name": "o", "class_fqn": "os.system"}},
        (*GRAPH, "sym_bool_values"): {"b": {"as_expr": {"expr_str": CODE}}},
        (*GRAPH, "sym_float_values"): {"f": {"as_expr": {"expr_str": CODE}}},
        (*GRAPH, "sym_int_values"): {"unused": {"as_expr": {"expr_str": CODE}}},
        ("range_constraints",): {CODE: {"min_val": None, "max_val": None}},
        ("graph_module", "metadata"): {"x": CODE},
        ("torch_version",): CODE,
        (*MUL, "name"): "../../" + CODE,
    }.items():
        path = write(tmp_path / "a.pt2", members(changed(keys, value)))
        assert len(load(path).graph.ops) == 2, keys
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("field", ["sizes", "strides", "storage_offset"])
def test_sizes_are_read_by_a_grammar(field: str, tmp_path, capfd) -> None:
    size = {"as_expr": {"expr_str": CODE, "hint": {"as_int": CODE}}}
    value = size if field == "storage_offset" else [size, size]
    parts = members(changed((*GRAPH, "tensor_values", "mul", field), value))
    assert "cannot be read" in refused(write(tmp_path / "a.pt2", parts), capfd)


@pytest.mark.parametrize(
    "target",
    [
        "os.system",
        "torch._C._jit_clear_class_registry",
        "builtins.eval",
        "math",
        "torch.load",
        "torch.ops",
        "torch.ops.aten",
        "torch.ops.load_library",
        "_operator",
        "torch.hub.load",
        "",
        "torch.ops.aten.__class__.mro.x",
        "torch.ops.aten.relu.default; os.system",
        "#x",
        CODE,
    ],
)
def test_targets_outside_the_operators_are_refused(target: str, tmp_path, capfd) -> None:
    parts = members(changed((*MUL, "target"), target))
    assert "is no operator" in refused(write(tmp_path / "a.pt2", parts), capfd)


@pytest.mark.parametrize(
    "target",
    [
        "torch.ops.mine.warp.default",
        "torch.ops.aten.system.default",
        "#mine:warp",
        "torch.ops.mine.version.default",
        "torch.ops.aten.mul.strange",
    ],
)
def test_unknown_operators_are_counted_and_may_write_what_they_are_given(target, tmp_path) -> None:
    made = changed((*MUL, "target"), target)
    graph = load(write(tmp_path / "a.pt2", members(made))).graph
    (op, relu) = graph.ops
    assert op.kind in ("mine::warp", "aten::system", "mine::version", "mul")
    assert (op.inputs, op.outputs, op.writes) == (("x", "w"), ("mul.0",), ("w",))
    assert relu.inputs == op.outputs
    assert op.stated is not None
    assert not op.stated.views
    assert not op.stated.inplace
    assert "is unknown: it is taken to write" in graph.notes[0]
    # Whatever is read afterwards may have been written, and results may lie in operands.
    body = made["graph_module"]["graph"]
    body["nodes"][1]["inputs"][0]["arg"] = tensor("x")
    body["nodes"].append(node("torch.ops.aten.relu_.default", "y", self=tensor("x")))
    body["nodes"].append(node("torch.ops.aten.neg.default", "z", self=tensor("mul")))
    body["nodes"].append(node("torch.ops.aten.neg.default", "last", self=tensor("p_w")))
    body["tensor_values"] |= {"y": meta(2, 8), "z": meta(2, 8), "last": meta(8)}
    for one in body["nodes"][2:]:
        one["name"] = one["outputs"][0]["as_tensor"]["name"]
    op, relu, _, after, neg, last = load(write(tmp_path / "a.pt2", members(made))).graph.ops
    assert op.outputs == ("mul.0", "mul.1", "mul.2")
    assert relu.inputs == ("mul.1",)
    assert (after.kind, after.inputs, neg.inputs) == ("after_write", ("mul.0", "y"), after.outputs)
    assert last.inputs == ("mul.2",)


@pytest.mark.parametrize(
    "target", ["torch.ops.mine.fill.default", "torch.ops.higher_order.triton_wrapper_mutation"]
)
def test_a_call_that_makes_nothing_is_not_lost(target: str, tmp_path) -> None:
    made = program()
    body = made["graph_module"]["graph"]
    fill = node(target, [], source=tensor("mul"), into=tensor("x")) | {"name": "fill"}
    body["nodes"].insert(1, fill)
    graph = load(write(tmp_path / "a.pt2", members(made))).graph
    assert [(op.name, op.inputs) for op in graph.ops] == [
        ("mul", ("x", "w")),
        ("fill", ("mul", "x")),
        ("relu", ("fill.0",)),
    ]
    assert graph.ops[1].stated.inplace == (0,)
    body["nodes"] += [node("torch.ops.aten.relu.default", "y", self=tensor("x"))]
    body["tensor_values"]["y"] = meta(2, 8)
    graph = load(write(tmp_path / "a.pt2", members(made))).graph
    assert graph.ops[3].inputs == ("fill.1",)
    fill["inputs"] = []
    graph = load(write(tmp_path / "a.pt2", members(made))).graph
    assert len(graph.ops) == 3
    assert "takes no tensor and makes none" in " ".join(graph.notes)


def test_what_torch_has_no_loader_for_is_not_imported(tmp_path) -> None:
    """In a process of its own: no torch, no sympy, not even where they cannot be found."""
    write(tmp_path / "a.pt2", members())
    write(tmp_path / "b.pt2", members(changed((*MUL, "target"), "os.system")))
    code = (
        "import sys\nsys.modules['torch'] = sys.modules['sympy'] = None\n"
        "from peakfold.cli import main\n"
        "for args in ('inspect a.pt2', 'plan a.pt2', 'inspect b.pt2'):\n"
        "    try: main.main(args.split())\n"
        "    except SystemExit as end: print('code', end.code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path
    )
    assert [line for line in done.stdout.splitlines() if line.startswith("code")] == [
        "code 0",
        "code 0",
        "code 1",
    ]
    assert done.stderr.count("\n") == 1
    assert "'os.system' is no operator" in done.stderr


# The container.


def test_a_bomb_is_refused_before_it_goes_off(tmp_path, capfd) -> None:
    padded = as_json(program())[:-1] + b" " * 30_000_000 + b"}"
    path = write(
        tmp_path / "a.pt2", members() | {"models/model.json": padded}, compress=zipfile.ZIP_DEFLATED
    )
    assert path.stat().st_size < 100_000
    assert "inflates to" in refused(path, capfd)
    data = path.read_bytes()
    whole = len(padded).to_bytes(4, "little")
    assert data.count(whole) == 2
    path.write_bytes(data.replace(whole, (5000).to_bytes(4, "little")))  # it lies about its size
    refused(path, capfd)
    path.write_bytes(data.replace(whole, (2**31).to_bytes(4, "little")))
    assert "bytes" in refused(path, capfd)


def test_many_small_things_are_refused_before_they_are_decoded(tmp_path, capfd) -> None:
    """Where nobody reads them they cost nothing; all members have one limit together."""
    many = b"[" + b",".join([b"[]"] * 400_000) + b"]"
    mark = {"q": "@", "as_int": 2}
    spec = ("graph_module", "signature", "output_specs")
    x = ("graph_module", "graph", "tensor_values", "x", "sizes")
    size = {"as_expr": {"expr_str": "2", "hint": mark}}
    for keys, value in {
        spec: [{"user_output": mark}],
        (*spec, 0, "loss_output"): mark,
        x: [size, {"as_int": 8}],
        (*x, 0): size,
    }.items():
        text = as_json(changed(keys, value)).replace(b'"@"', many)
        path = write(tmp_path / "a.pt2", members() | {"models/model.json": text})
        tracemalloc.start()
        assert len(load(path).graph.ops) == 2
        assert tracemalloc.get_traced_memory()[1] < 12 * len(text)
        tracemalloc.stop()
    more = b'{"config": {}, "x": [' + b",".join([b"[]"] * 1_400_000) + b"]}"
    parts = members() | {
        f"data/{kind}/model_{kind}_config.json": more for kind in ("weights", "constants")
    }
    parts["models/model.json"] = as_json(changed(spec, [{"user_output": mark}])).replace(
        b'"@"', b"[" + b",".join([b"[]"] * 1_400_000) + b"]"
    )
    assert "too many things" in refused(write(tmp_path / "b.pt2", parts), capfd)


def test_large_programs_are_read(tmp_path) -> None:
    padded = as_json(program())[:-1] + b" " * (2 * MAX_DIRECTORY) + b"}"
    path = write(tmp_path / "a.pt2", members() | {"models/model.json": padded})
    assert len(load(path).graph.ops) == 2


def test_a_million_members_are_refused_before_they_are_listed(tmp_path, capfd) -> None:
    entry = b"PK\x01\x02" + bytes(24) + (1).to_bytes(2, "little") + bytes(16) + b"a"
    count = MAX_DIRECTORY // len(entry) + 1000
    end = b"PK\x05\x06" + bytes(4) + b"\xff\xff" * 2 + (count * len(entry)).to_bytes(4, "little")
    path = tmp_path / "a.pt2"
    path.write_bytes(entry * count + end + bytes(6))
    assert "list of members" in refused(path, capfd)


def test_members_that_are_there_twice_are_refused(tmp_path, capfd) -> None:
    path = write(tmp_path / "a.pt2", members())
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("m/models/model.json", as_json(changed((*MUL, "target"), "os.system")))
    assert "twice" in refused(path, capfd)


@pytest.mark.parametrize("compress", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA], ids=["bzip2", "lzma"])
def test_only_plain_compression_is_read(compress: int, tmp_path, capfd) -> None:
    refused(write(tmp_path / "a.pt2", members(), compress=compress), capfd)
    path = write(tmp_path / "b.pt2", members(), compress=zipfile.ZIP_DEFLATED)
    assert len(load(path).graph.ops) == 2


def test_broken_containers(tmp_path, capfd) -> None:
    parts = members()
    for missing in ("models/model.json", "archive_format", "archive_version"):
        left = {name: content for name, content in parts.items() if name != missing}
        refused(write(tmp_path / "a.pt2", left), capfd)
    assert "2 programs" in refused(
        write(
            tmp_path / "a.pt2",
            {
                **{n: c for n, c in parts.items() if n != "models/model.json"},
                "models/a.json": b"",
                "models/b.json": b"",
            },
        ),
        capfd,
    )
    whole = write(tmp_path / "a.pt2", parts).read_bytes()
    for content in (b"", b"PK", b"nothing", whole[:-30], whole[: len(whole) // 2], b"\0" * 100):
        (tmp_path / "b.pt2").write_bytes(content)
        assert "no exported program" in refused(tmp_path / "b.pt2", capfd)
    refused(write(tmp_path / "c.pt2", parts | {"archive_version": b"1"}), capfd)
    old = changed(("schema_version",), {"major": 7, "minor": 0})
    assert "--trust" in refused(write(tmp_path / "c.pt2", members(old)), capfd)
    os.mkfifo(tmp_path / "d.pt2")
    with pytest.raises(UsageError):
        load(tmp_path / "d.pt2")


def test_weights_must_be_as_large_as_they_are_said_to_be(tmp_path, capfd) -> None:
    path = write(tmp_path / "a.pt2", members() | {"data/weights/weight_0": bytes(31)})
    assert "reaches 32 bytes" in refused(path, capfd)
    load(write(tmp_path / "b.pt2", members() | {"data/weights/weight_0": b""}))  # saved without


# Numbers, types, nesting.

X = (*GRAPH, "tensor_values", "x")
ABSURD = {
    "huge": ((*X, "sizes", 0), {"as_int": 2**70}),
    "product": ((*X, "sizes"), [{"as_int": 2**40}] * 2),
    "negative": ((*X, "sizes", 0), {"as_int": -2}),
    "fraction": ((*X, "sizes", 0), {"as_int": 1.5}),
    "stride": ((*X, "strides", 0), {"as_int": 2**61}),
    "back": ((*X, "strides", 0), {"as_int": -1}),
    "offset": ((*X, "storage_offset"), {"as_int": 2**62}),
    "rank": ((*X, "strides"), []),
    "nothing": ((*X, "sizes", 0), {}),
    "text": ((*X, "sizes", 0), "4"),
    "type": ((*X, "dtype"), 99),
    "layout": ((*X, "layout"), 0),
    "no meta": (X, None),
    "digits": ((*X, "dtype"), 10**4000),
    "part": ((*X, "sizes", 0), {"as_expr": {"expr_str": "5/2"}}),
    "minus": ((*X, "sizes", 0), {"as_expr": {"expr_str": "2 - 5"}}),
    "by zero": ((*X, "sizes", 0), {"as_expr": {"expr_str": "s0//0"}}),
    "long": ((*X, "sizes", 0), {"as_expr": {"expr_str": "s0+" * 9000 + "1"}}),
    "cycle": ((*MUL, "inputs", 0, "arg"), tensor("relu")),
    "stranger": ((*MUL, "inputs", 0, "arg"), tensor("nobody")),
    "integer": ((*MUL, "inputs", 1, "arg"), {"as_int": -(2**80)}),
    "integers": ((*MUL, "inputs", 1, "arg"), {"as_ints": [2**63]}),
    "input twice": ((*GRAPH, "inputs", 0), tensor("x")),
    "result twice": ((*GRAPH, "nodes", 1, "outputs", 0), tensor("mul")),
    "no input": ((*MUL, "inputs"), []),
    "wrong input": ((*MUL, "inputs", 0, "name"), "that"),
    "inputs": ((*GRAPH, "inputs"), {"x": 1}),
    "nodes": ((*GRAPH, "nodes"), "relu"),
    "null": (GRAPH, None),
    "list": (("graph_module",), []),
    "outputs": ((*GRAPH, "outputs"), 7),
    "name": ((*MUL, "name"), 7),
    "metadata": ((*MUL, "metadata"), {"nn_module_stack": 5}),
    "version": (("schema_version", "major"), "8"),
    "output": ((*GRAPH, "outputs", 0), tensor("?")),
}


@pytest.mark.parametrize("name", ABSURD)
def test_absurd_programs_are_one_line(name: str, tmp_path, capfd) -> None:
    keys, value = ABSURD[name]
    try:
        text = json.dumps(changed(keys, value)).encode()
    except ValueError:  # more digits than Python writes
        text = (
            json.dumps(changed(keys, 0))
            .encode()
            .replace(b'"dtype": 0', b'"dtype": 1' + b"0" * 4000)
        )
    refused(write(tmp_path / "a.pt2", members() | {"models/model.json": text}), capfd)


def test_broken_json_is_one_line(tmp_path, capfd) -> None:
    text = as_json(program())
    cuts = [text[:at] for at in range(0, len(text), 997)]
    deep = b'{"graph_module": ' + b"[" * 200_000
    nested = b'{"x": ' * 100_000
    words = (b"NaN", b"Infinity", b"1e999", b".5", b"-0.5", b"8.5")
    numbers = [text.replace(b'"as_int": 8', b'"as_int": ' + word) for word in words]
    for broken in (*cuts, deep, nested, *numbers, b"\xff\xfe", b"[]", b"null", text[::-1]):
        refused(write(tmp_path / "a.pt2", members() | {"models/model.json": broken}), capfd)


def test_bodies_inside_each_other_end_somewhere(tmp_path, capfd) -> None:
    """Nested deeper than any walker bears, but no deeper than JSON is."""
    inner = program()["graph_module"]["graph"]
    for _ in range(100):
        call = node("torch.ops.higher_order.wrap", "mul")
        body = {"as_graph": {"name": "body", "graph": inner}}
        call["inputs"] = [{"name": "", "arg": arg} for arg in (body, tensor("p_w"), tensor("x"))]
        inner = program()["graph_module"]["graph"] | {"nodes": [call], "outputs": [tensor("mul")]}
    parts = members(changed(GRAPH, inner))
    assert "nests too deeply" in refused(write(tmp_path / "a.pt2", parts), capfd)


def test_writes_seen_through_many_views_end_somewhere(tmp_path, capfd) -> None:
    """Each of n views read after n writes would be n * n ops."""
    views = [
        node("torch.ops.aten.view.default", f"v{n}", self=tensor("x"), size={"as_ints": [16]})
        for n in range(800)
    ]
    writes = [node("torch.ops.aten.relu_.default", f"w{n}", self=tensor("x")) for n in range(800)]
    reads = [node("torch.ops.aten.relu.default", f"r{n}", self=tensor(f"v{n}")) for n in range(800)]
    made = program()
    graph = made["graph_module"]["graph"]
    graph["nodes"] = [
        one | {"name": one["outputs"][0]["as_tensor"]["name"]}
        for one in (*views, *writes, *reads, *graph["nodes"])
    ]
    flat = {f"{kind}{n}": meta(16) for kind in "vr" for n in range(800)}
    graph["tensor_values"] |= flat | {f"w{n}": meta(2, 8) for n in range(800)}
    assert "too many writes" in refused(write(tmp_path / "a.pt2", members(made)), capfd)


def test_sizes_are_not_endlessly_many(tmp_path, capfd) -> None:
    made = program()
    graph = made["graph_module"]["graph"]
    graph["nodes"] = [
        node("torch.ops.aten.relu.default", f"r{n}", self=tensor("x")) for n in range(300)
    ] + graph["nodes"]
    graph["tensor_values"] |= {
        f"r{n}": meta("+".join(f"s{n}*t{k}" for k in range(60))) for n in range(300)
    }
    assert "too many expressions" in refused(write(tmp_path / "a.pt2", members(made)), capfd)


def test_names_of_terminals_and_giants_stay_quiet(tmp_path, capfd) -> None:
    for name in ("\x1b[31mred", "a" * 100_000, "x\ny", "\u202egnp", "a\0b"):
        parts = members(changed((*MUL, "target"), name))
        assert "\x1b" not in refused(write(tmp_path / "a.pt2", parts), capfd)


def test_the_witness(tmp_path) -> None:
    """An honest file in which the sample inputs were replaced."""
    torch = pytest.importorskip("torch")
    honest, evil = tmp_path / "ok.pt2", tmp_path / "evil.pt2"
    torch.export.save(torch.export.export(torch.nn.ReLU(), (torch.zeros(2),)), honest)
    buffer = io.BytesIO()

    class Evil:
        def __reduce__(self):
            return exec, (f"open({CANARY!r}, 'w').close()",)

    torch.save({"a": Evil()}, buffer)
    with zipfile.ZipFile(honest) as old, zipfile.ZipFile(evil, "w") as new:
        for name in old.namelist():
            swapped = name.endswith("sample_inputs/model.pt")
            new.writestr(name, buffer.getvalue() if swapped else old.read(name))
    assert [op.kind for op in load(evil).graph.ops] == ["relu"]


def test_errors_say_where(tmp_path) -> None:
    parts = members(changed((*MUL, "inputs", 0, "arg"), tensor("nobody")))
    with pytest.raises(ModelError, match=r"a\.pt2, op 'mul', tensor 'nobody'"):
        load(write(tmp_path / "a.pt2", parts))


def test_sizes_that_known_operators_do_not_make_are_doubted(tmp_path) -> None:
    """What a file says of the result of an operator is held against the operator's own rule."""
    from peakfold.planning import make_plan

    honest = load(write(tmp_path / "a.pt2", members())).graph
    lied = load(
        write(
            tmp_path / "b.pt2",
            members(changed((*GRAPH, "tensor_values", "relu", "sizes", 0), {"as_int": 1})),
        )
    ).graph
    assert not honest.doubts
    assert lied.doubts
    plan = make_plan(lied).plan
    assert not plan.proof.packing
    assert not plan.proof.order
